"""A training step of ashlar-train beside PyTorch's: torch_step.py TRAIN JSON SIZE

TRAIN is the program, SIZE one of small, medium, large and smoke. The same text models are trained by both on a GPU: an embedding, two LSTM
layers, a linear layer, cross-entropy, clipping and AdamW, on full batches of one length. bf16 is
weights of bf16 with masters in float for ashlar, and autocast for PyTorch, whose weights are float.
TF32 is off on both sides. PyTorch waits for the device after the last step only; ashlar-train also
tells the loss. The subjects take turns, and JSON gets the medians. Their speed is judged by nobody;
a loss that is no number, or does not fall, is an error. Status: 0, 1, or 77 where there is no
PyTorch that sees a GPU.
"""

import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

from torch_lstm import find_reason_not_to

SYMBOLS, WARM_STEPS, TURNS = 100, 10, 3
#                    T    B   embedding, hidden, steps, rate
SIZES = {"small": (64, 32, 64, 256, 400, 1e-3),
         "medium": (128, 64, 256, 512, 200, 1e-3),
         "large": (256, 64, 1024, 1536, 40, 1e-3),
         "smoke": (6, 2, 4, 8, 4, 0.1)}


def write_text(path, length, count):
    """Records of `length` letters, in the form of Debian's fortunes; letters that follow a rule."""
    draw = random.Random(1)
    letters = "".join(map(chr, range(33, 127)))
    with open(path, "w") as file:
        for _ in range(count):
            at, step = draw.randrange(len(letters)), draw.choice((1, 3, 7))
            file.write("".join(letters[(at + i * step) % len(letters)] for i in range(length - 1)))
            file.write("\n%\n")


def train_ashlar(program, text, size, dtype, options):
    """ms a step, tokens a second, reserved bytes, and the losses at both ends."""
    length, batch, embedding, hidden, steps, rate = SIZES[size]
    done = subprocess.run(
        [program, "--device", "cuda", "--data", text, "--sample", "0", "--json", "-",
         "--max-length", str(length), "--batch", str(batch), "--embedding", str(embedding),
         "--hidden", str(hidden), "--layers", "2", "--steps", str(steps), "--dtype", dtype,
         "--learning-rate", str(rate), "--held-out", "0", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError("ashlar-train: " + done.stderr.decode(errors="replace")[-400:])
    said = json.loads(done.stdout)
    return {"ms_step": 1e3 * said["seconds"] / said["steps"], "tokens_per_s": said["tokens_per_s"],
            "reserved_bytes": said["reserved_peak_bytes"],
            "losses": (said["loss_first"], said["loss_last"])}


def train_torch(size, dtype):
    import torch
    length, batch, embedding, hidden, steps, rate = SIZES[size]
    torch.manual_seed(1)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    table = torch.nn.Embedding(SYMBOLS, embedding).cuda()
    lstm = torch.nn.LSTM(embedding, hidden, 2).cuda()
    out = torch.nn.Linear(hidden, SYMBOLS).cuda()
    parameters = [p for part in (table, lstm, out) for p in part.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=rate, fused=True)
    rows = torch.arange(length + 1, device="cuda").unsqueeze(1) + torch.arange(batch, device="cuda")
    losses, start = [], 0.0
    for step in range(-WARM_STEPS, steps):
        if step == 0:
            torch.cuda.synchronize()
            start = time.perf_counter()
        text = (rows + step) % SYMBOLS
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=dtype == "bf16"):
            hidden_rows, _ = lstm(table(text[:length]))
            loss = torch.nn.functional.cross_entropy(out(hidden_rows).flatten(0, 1).float(),
                                                     text[1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        losses.append(loss.detach())
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return {"ms_step": 1e3 * seconds / steps, "tokens_per_s": length * batch * steps / seconds,
            "reserved_bytes": int(torch.cuda.max_memory_reserved()),
            "losses": (float(losses[0].item()), float(losses[-1].item()))}


def train_torch_elsewhere(size, dtype):
    """In a process of its own, so that its peak is this training's."""
    child = subprocess.run([sys.executable, __file__, "--torch", size, dtype],
                           stdout=subprocess.PIPE)
    if child.returncode != 0:
        raise RuntimeError("PyTorch's training ended with %d" % child.returncode)
    return json.loads(child.stdout.splitlines()[-1])


def check(name, losses):
    first, last = losses
    if not (math.isfinite(first) and math.isfinite(last) and last < first):
        raise RuntimeError("%s: the loss went from %g to %g" % (name, first, last))


def measure(program, size, dtype, folder):
    """The rows of one case."""
    text = os.path.join(folder, "text")
    write_text(text, SIZES[size][0], 8 * SIZES[size][1])
    subjects = {
        "ashlar": lambda: train_ashlar(program, text, size, dtype, ()),
        "ashlar_graphs": lambda: train_ashlar(program, text, size, dtype, ("--graphs",)),
        "torch": lambda: train_torch_elsewhere(size, dtype),
    }
    turns = {name: [] for name in subjects}
    for _ in range(1 if size == "smoke" else TURNS):
        for name, train in subjects.items():
            turns[name].append(train())
            check("%s %s, %s" % (size, dtype, name), turns[name][-1]["losses"])
    for name, runs in turns.items():
        row = {"case": "%s_%s" % (size, dtype), "subject": name}
        for key in "ms_step", "tokens_per_s", "reserved_bytes":
            row[key] = round(statistics.median(run[key] for run in runs), 4)
        yield row


def main(program, path, size):
    reason = find_reason_not_to()
    if reason:
        print(reason)
        return 77
    rows = []
    for dtype in "f32", "bf16":
        with tempfile.TemporaryDirectory() as folder:
            try:
                rows.extend(measure(program, size, dtype, folder))
            except RuntimeError as error:
                print(error)
                return 1
    for row in rows:
        print("%-12s %-14s %9.3f ms a step %12.0f symbols a second %8.1f MiB" %
              (row["case"], row["subject"], row["ms_step"], row["tokens_per_s"],
               row["reserved_bytes"] / 2**20))
    with open(path, "w") as file:
        json.dump(rows, file, indent=1)
        file.write("\n")
    ratios = [(row["case"], row["ms_step"] / rows[i + 2]["ms_step"])
              for i, row in enumerate(rows) if row["subject"] == "ashlar"]
    print("ashlar's step / PyTorch's: " + ", ".join("%s %.2f" % ratio for ratio in ratios))
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "--torch":
        json.dump(train_torch(*sys.argv[2:]), sys.stdout)
    else:
        sys.exit(main(*sys.argv[1:]))
