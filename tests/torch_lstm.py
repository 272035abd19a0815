"""Train a small LSTM with PyTorch's own allocator and with ours: torch_lstm.py LIBRARY JSON [STEPS]

LIBRARY is libashlar-torch.so. Each training is a process of its own, since an allocator is chosen
once; the two take turns. The losses have to be the same, and in the second half of the steps ours may
not take a byte more from the driver. Time, reserved bytes and how they grew after the first steps,
which are of full length, are written to JSON beside each other and judged by nobody. Status: 0, 1, or
77 where there is no PyTorch that sees a GPU.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../allocator/dropin"))
import ashlar_torch

TURNS, WARM_STEPS, LENGTH_MAX, BATCH = 3, 5, 64, 32
SYMBOLS, EMBEDDING, HIDDEN, LAYERS = 96, 128, 256, 2


def use_ashlar(library):
    """Before the first use of CUDA; returns what tells the reserved bytes, now and at the peak."""
    ashlar_torch.use(library)

    def reserved():
        told = ashlar_torch.stats()
        return told.reserved, told.reserved_peak

    return reserved


def train(library, steps):
    """library: "" for PyTorch's own allocator. What it took, as a dict."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    import torch
    if library:
        reserved = use_ashlar(library)
    else:
        def reserved():
            return torch.cuda.memory_reserved(), torch.cuda.max_memory_reserved()

    torch.manual_seed(1)
    torch.backends.cudnn.deterministic = True
    lengths = random.Random(1)
    table = torch.nn.Embedding(SYMBOLS, EMBEDDING).cuda()
    lstm = torch.nn.LSTM(EMBEDDING, HIDDEN, LAYERS).cuda()
    out = torch.nn.Linear(HIDDEN, SYMBOLS).cuda()
    parameters = [p for part in (table, lstm, out) for p in part.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    text = torch.randint(SYMBOLS, (LENGTH_MAX + 1, BATCH), device="cuda")
    losses, warm, half, start = [], 0, 0, 0.0
    for step in range(steps):
        if step == WARM_STEPS:
            torch.cuda.synchronize()
            warm, start = reserved()[0], time.perf_counter()
        if step == steps // 2:
            half = reserved()[0]
        length = LENGTH_MAX if step < WARM_STEPS else lengths.randint(8, LENGTH_MAX)
        hidden, _ = lstm(table(text[:length]))
        loss = torch.nn.functional.cross_entropy(out(hidden).flatten(0, 1),
                                                 text[1:length + 1].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    torch.cuda.synchronize()
    now, peak = reserved()
    return {
        "ms_step": (time.perf_counter() - start) * 1e3 / (steps - WARM_STEPS),
        "reserved_bytes": int(peak),
        "growth_bytes": int(now - warm),
        "late_growth_bytes": int(now - half),
        "losses": losses,
        "torch": str(torch.__version__),
    }


def find_reason_not_to():
    try:
        import torch
    except ImportError as error:
        return "no PyTorch: %s" % error
    return "" if torch.cuda.is_available() else "this PyTorch sees no GPU"


def train_elsewhere(library, steps):
    """In a process of its own; None where that failed, and said why on stderr."""
    child = subprocess.run([sys.executable, __file__, "--train", library, str(steps)],
                           stdout=subprocess.PIPE)
    return json.loads(child.stdout) if child.returncode == 0 else None


def compare(native, ours):
    """What is wrong, as lines; and the figures for the file."""
    wrong = []
    apart = max(abs(a - b) for a, b in zip(native[0]["losses"], ours[0]["losses"]))
    growth = max(run["late_growth_bytes"] for run in ours)
    if apart > 1e-6 * max(native[0]["losses"]):
        wrong.append("losses are up to %g apart" % apart)
    if growth > 0:
        wrong.append("%d bytes more are taken in the second half" % growth)
    result = {"torch": ours[0]["torch"], "steps": len(ours[0]["losses"]), "losses_apart": apart,
              "last_loss": ours[0]["losses"][-1]}
    for name, runs in ("torch_own", native), ("ashlar", ours):
        result[name] = {key: statistics.median(run[key] for run in runs)
                        for key in ("ms_step", "reserved_bytes", "growth_bytes",
                                    "late_growth_bytes")}
    return wrong, result


def main(library, path, steps=200):
    reason = find_reason_not_to()
    if reason:
        print(reason)
        return 77
    runs = {"": [], library: []}
    for _ in range(TURNS):
        for name in runs:
            runs[name].append(train_elsewhere(name, int(steps)))
            if runs[name][-1] is None:
                print("training with %s failed" % ("ours" if name else "PyTorch's own allocator"))
                return 1
    wrong, result = compare(runs[""], runs[library])
    with open(path, "w") as file:
        json.dump(result, file, indent=2)
        file.write("\n")
    ours, own = result["ashlar"], result["torch_own"]
    print("; ".join(wrong) or "losses at most %g apart, no late growth" % result["losses_apart"],
          "(ms a step: %.3f, its own %.3f; MiB reserved: %.0f, its own %.0f)" %
          (ours["ms_step"], own["ms_step"], ours["reserved_bytes"] / 2**20,
           own["reserved_bytes"] / 2**20))
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1] == "--train":
        json.dump(train(sys.argv[2], int(sys.argv[3])), sys.stdout)
    else:
        sys.exit(main(*sys.argv[1:]))
