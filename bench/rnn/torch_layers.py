"""torch_layers.py - whole training steps with ashlar.torch's layers beside PyTorch's, in turns.

usage: torch_layers.py [--threads N] [--rounds N] [--cpu-time] [CELL...]

A step is forward, loss, backward, clipping and SGD of a stack of layers with a linear one behind it.
Both have the same weights and threads; a round is a step of each, and the ratio the median over the
rounds. --cpu-time counts the calling thread's time instead of the clock's: on a busy machine, with
one thread. `libashlar.so` is $ASHLAR_LIBRARY, `ashlar` is looked for in tools/python."""

import argparse
import os
import statistics
import sys
import time

ROOT = os.path.abspath(__file__ + "/../../..")
sys.path[:0] = [ROOT + "/tools/python", ROOT + "/allocator/dropin"]
import torch
from torch import nn
import ashlar.torch

# I, H, layers, B, T, and other options
CASES = [(256, 256, 1, 32, 100, {}), (256, 256, 2, 32, 100, {}), (128, 512, 1, 32, 50, {}),
         (64, 128, 1, 64, 50, {}), (128, 128, 1, 32, 50, {"bidirectional": True}),
         (256, 256, 1, 32, 100, {"batch_first": True}), (32, 32, 1, 1, 20, {})]
OUTPUTS = 64


class Model(nn.Module):
    def __init__(self, kind, inputs, hidden, layers, options):
        super().__init__()
        torch.manual_seed(1)
        self.rnn = kind(inputs, hidden, layers, **options)
        self.out = nn.Linear(hidden * (1 + self.rnn.bidirectional), OUTPUTS)
        self.optimizer = torch.optim.SGD(self.parameters(), lr=0.01)

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.out(self.rnn(x)[0]), y)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()


def measure(models, x, y, rounds, clock):
    times = []
    for _ in range(rounds + 1):
        taken = []
        for model in models:
            begin, count = clock(), 0
            while count < 1 or clock() - begin < 0.02:
                model.step(x, y)
                count += 1
            taken.append((clock() - begin) / count)
        times.append(taken)
    return times[1:]  # the first warms up


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("cells", nargs="*", default=["LSTM", "GRU"], metavar="CELL")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print("# PyTorch %s, %s, threads %d, rounds %d" % (
        torch.__version__, torch.backends.cpu.get_cpu_capability(), given.threads, given.rounds))
    print("cell\tI\tH\tlayers\tB\tT\toptions\tours_ms\ttorch_ms\tratio", flush=True)
    for cell in given.cells:
        for inputs, hidden, layers, batch, steps, options in CASES:
            models = [Model(getattr(kinds, cell), inputs, hidden, layers, options)
                      for kinds in (ashlar.torch, nn)]
            shape = [batch, steps] if "batch_first" in options else [steps, batch]
            times = measure(models, torch.randn(*shape, inputs), torch.randn(*shape, OUTPUTS),
                            given.rounds, time.thread_time if given.cpu_time else time.perf_counter)
            ours, its = (statistics.median(column) * 1e3 for column in zip(*times))
            print("%s\t%d\t%d\t%d\t%d\t%d\t%s\t%.2f\t%.2f\t%.3f" % (
                cell, inputs, hidden, layers, batch, steps, " ".join(options) or "-", ours, its,
                statistics.median(a / b for a, b in times)), flush=True)


main()
