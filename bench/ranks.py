#!/usr/bin/env python3
"""Train the text model of ashlar-train on 1, 2 and 4 processes of this machine, beside PyTorch.

usage: bench/ranks.py TRAIN [--smoke] [--json FILE]      TRAIN: build/release/rnn/ashlar-train

strong has one batch for all ranks, weak one for each; all ranks together have the same number of
threads. Subjects: ashlar, reproducible (--reproducible), and torch_gloo, the same model by
DistributedDataParallel over gloo, where python3 has PyTorch: on one process that is its plain
training step. They take turns, and medians are told. over_one: symbols a second beside
ashlar's on one process; over_torch: the time of a step beside PyTorch's; sums: the share of a step
in sums over the ranks. Without mpirun, or in a build without MPI, one process is measured. Status: 0, or 1 where something failed.
"""

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

EMBEDDING, LAYERS, SYMBOLS, RATE, TORCH_WARM_STEPS = 64, 2, 256, 0.004, 3
#        length, hidden, steps, rounds, bytes of text
WHOLE, SMOKE = (64, 256, 20, 5, 1 << 17), (8, 16, 2, 1, 1 << 13)
CASES = ("strong", lambda ranks: 32), ("weak", lambda ranks: 16 * ranks)
WAYS = {"ashlar": [], "reproducible": ["--reproducible"]}
# Several ranks as root and on few cores, by Open MPI; others ignore it.
RANKS_ALLOWED = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                 "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
                 "OMPI_MCA_hwloc_base_binding_policy": "none",
                 "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}


def run(command):
    """What it says on standard error where it failed, else ""."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, env={**RANKS_ALLOWED, **os.environ})
    said = done.stderr.decode(errors="replace").strip() or "status %d" % done.returncode
    return said if done.returncode else ""


def command_of(subject, program, folder, ranks, batch, size):
    length, hidden, steps = size[:3]
    threads = max(1, len(os.sched_getaffinity(0)) // ranks)
    text, out = os.path.join(folder, "text"), os.path.join(folder, "json")
    if subject == "torch_gloo":
        numbers = ranks, threads, batch, length, hidden, steps
        return [sys.executable, __file__, "--torch", text, out, *map(str, numbers)]
    options = {"device": "soft", "data": text, "json": out, "threads": threads, "batch": batch,
               "max-length": length, "hidden": hidden, "embedding": EMBEDDING, "layers": LAYERS,
               "steps": steps, "sample": 0, "held-out": 0}
    words = [str(word) for name, value in options.items() for word in ("--" + name, value)]
    launch = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
    return launch + [program, "--quiet", *words, *WAYS[subject]]


def train(*job):
    """The figures of one training."""
    wrong = run(command_of(*job))
    if wrong:
        raise RuntimeError("%s on %d ranks: %s" % (job[0], job[3], wrong[-400:]))
    with open(os.path.join(job[2], "json")) as file:
        said = json.load(file)
    row = {"ms_step": 1e3 * said["seconds"] / said["steps"], "tokens_per_s": said["tokens_per_s"],
           "parameters": said["parameters"]}
    seconds, sums = (sum(rank[key] for rank in said.get("ranks", ()))
                     for key in ("seconds", "sum_seconds"))
    if sums > 0:
        row["sums_share"] = sums / seconds
    return row


def measure(case, batch_of, counts, subjects, size, program, folder):
    """The rows of a case. Each round begins with another one, so that noise disturbs all alike."""
    jobs = [(subject, ranks) for ranks in counts for subject in subjects]
    turns = {job: [] for job in jobs}
    for i in range(size[3]):
        for subject, ranks in jobs[i % len(jobs):] + jobs[:i % len(jobs)]:
            turns[subject, ranks].append(
                train(subject, program, folder, ranks, batch_of(ranks), size))
    rows = {job: {"case": case, "ranks": str(job[1]), "subject": job[0],
                  **{key: statistics.median(turn[key] for turn in list_) for key in list_[0]}}
            for job, list_ in turns.items()}
    for (subject, ranks), row in rows.items():
        row["over_one"] = row["tokens_per_s"] / rows["ashlar", 1]["tokens_per_s"]
        if subject != "torch_gloo" and ("torch_gloo", ranks) in rows:
            row["over_torch"] = row["ms_step"] / rows["torch_gloo", ranks]["ms_step"]
        print("%-7s %5d %-12s %9.3f %12.0f %8s %8s %6s" % (
            case, ranks, subject, row["ms_step"], row["tokens_per_s"],
            *("%.3f" % row[key] if key in row else "-"
              for key in ("over_one", "over_torch", "sums_share"))), flush=True)
    return list(rows.values())


def main(program, size, path):
    counts, subjects, rows = [1], list(WAYS), []
    if run([sys.executable, "-c", "import torch.distributed"]):
        print("torch_gloo is left out: python3 has no PyTorch.")
    else:
        subjects.append("torch_gloo")
    with tempfile.TemporaryDirectory() as folder:
        draw = random.Random(11)
        with open(os.path.join(folder, "text"), "w") as file: # without a blank: one record
            file.write("".join(chr(48 + draw.randrange(64)) for _ in range(size[4])))
        why = "there is no mpirun on the PATH" if not shutil.which("mpirun") else run(
            command_of("ashlar", program, folder, 2, 2, SMOKE))
        if why:
            print("Several ranks are left out: %s." % why.splitlines()[-1])
        else:
            counts += [2, 4]
        print("%-7s %5s %-12s %9s %12s %8s %8s %6s" % (
            "case", "ranks", "subject", "ms/step", "symbols/s", "/ one", "/ torch", "sums"),
            flush=True)
        for case, batch_of in CASES:
            rows += measure(case, batch_of, counts, subjects, size, program, folder)
    if path:
        with open(path, "w") as file:
            json.dump({"schema": "ashlar-bench/1", "rows": rows}, file, indent=2)
            file.write("\n")


def train_torch(rank, meeting, text, out, ranks, threads, batch, length, hidden, steps):
    import torch
    import torch.distributed as dist
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(SYMBOLS, EMBEDDING)
            self.layers = nn.LSTM(EMBEDDING, hidden, LAYERS)
            self.out = nn.Linear(hidden, SYMBOLS)

        def forward(self, x):
            return self.out(self.layers(self.embedding(x))[0])

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = Model()
    parameters = sum(p.numel() for p in model.parameters())
    if ranks > 1:
        dist.init_process_group("gloo", "file://" + meeting, rank=rank, world_size=ranks)
        model = nn.parallel.DistributedDataParallel(model)
    with open(text, "rb") as file:
        symbols = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
    loss, optimizer = nn.CrossEntropyLoss(), torch.optim.AdamW(model.parameters(), RATE)
    draw = torch.Generator().manual_seed(1)
    for step in range(TORCH_WARM_STEPS + steps):
        if step == TORCH_WARM_STEPS:
            begin = time.perf_counter()
        first = torch.randint(len(symbols) - length, (batch,), generator=draw)
        first = first[rank * batch // ranks:(rank + 1) * batch // ranks]
        piece = symbols[first[None, :] + torch.arange(length + 1)[:, None]]
        optimizer.zero_grad()
        value = loss(model(piece[:-1]).flatten(0, 1), piece[1:].flatten())
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        value.item()
    seconds = time.perf_counter() - begin
    if rank == 0:
        with open(out, "w") as file:
            json.dump({"seconds": seconds, "steps": steps, "parameters": parameters,
                       "tokens_per_s": steps * batch * length / seconds}, file)
    if ranks > 1:
        dist.destroy_process_group()


def start_torch(text, out, *numbers):
    """Each rank in a process of its own; rank 0 writes JSON to `out`."""
    numbers = list(map(int, numbers))
    with tempfile.TemporaryDirectory() as folder:
        meeting, others = os.path.join(folder, "meeting"), []
        for rank in range(1, numbers[0]):
            others.append(os.fork())
            if others[-1] == 0:
                status = 1
                try:
                    train_torch(rank, meeting, text, out, *numbers)
                    status = 0
                finally:
                    os._exit(status)
        train_torch(0, meeting, text, out, *numbers)
        if any([os.waitpid(pid, 0)[1] for pid in others]):
            sys.exit("a rank failed")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--torch"]:
        sys.exit(start_torch(*sys.argv[2:]))
    is_smoke = "--smoke" in sys.argv
    words = [word for word in sys.argv[1:] if word != "--smoke"]
    if len(words) not in (1, 3) or (len(words) == 3 and words[1] != "--json"):
        sys.exit(__doc__)
    try:
        main(words[0], SMOKE if is_smoke else WHOLE, words[2] if len(words) == 3 else None)
    except RuntimeError as error:
        sys.exit("ranks.py: %s" % error)
