"""torch_rnn.py - the networks of `ashlar-bench rnn` in PyTorch, a step at a time.

usage: torch_rnn.py THREADS

ashlar-bench carries this text, gives it to python3, and writes lines to its standard input:

    case CELL STEPS BATCH INPUT HIDDEN LAYERS DIRECTIONS INFERENCE LENGTH...
    step

Of a case the fastest way that PyTorch has is taken: with oneDNN or without, and sequences of
different lengths padded or packed. The answers are a line each: PyTorch's version at first, of a
case the way, and of a step the seconds of forward and backward."""
import sys, time
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

TRIALS = 3
CELLS = {"lstm": nn.LSTM, "gru": nn.GRU}


class Case:
    def __init__(self, cell, steps, batch, inputs, hidden, layers, directions, inference, *lengths):
        self.net = CELLS[cell](inputs, hidden, layers, bidirectional=directions == 2)
        self.inference = bool(inference)
        self.lengths = torch.tensor(lengths)
        self.x = torch.rand(steps, batch, inputs) * 2 - 1
        self.x.requires_grad = not self.inference
        self.dy = torch.rand(steps, batch, hidden * directions) * 2 - 1
        if self.inference:
            self.net.eval()
        ways = [(mkldnn, packs) for mkldnn in (True, False)
                for packs in {False, min(lengths) < steps}]
        self.way = min(ways, key=self.time)

    def time(self, way):
        self.way = way
        return min(sum(self.step()) for _ in range(TRIALS + 1))

    def name(self):
        return ("oneDNN" if self.way[0] else "without oneDNN") + (", packed" if self.way[1] else "")

    def forward(self):
        if not self.way[1]:
            return self.net(self.x)[0], self.dy
        packed = pack_padded_sequence(self.x, self.lengths, enforce_sorted=False)
        y = self.net(packed)[0].data
        return y, self.dy.flatten(0, 1)[:len(y)]

    def step(self):
        with torch.backends.mkldnn.flags(enabled=self.way[0]), \
                torch.inference_mode(self.inference):
            begin = time.perf_counter()
            y, dy = self.forward()
            middle = time.perf_counter()
            if not self.inference:
                y.backward(dy)
                self.net.zero_grad()
                self.x.grad = None
            return middle - begin, time.perf_counter() - middle


torch.set_num_threads(int(sys.argv[1]))
torch.manual_seed(1)
print("PyTorch " + torch.__version__ + ", " + torch.backends.cpu.get_cpu_capability(), flush=True)
case = None
for line in sys.stdin:
    word, *rest = line.split()
    if word == "case":
        case = Case(rest[0], *map(int, rest[1:]))
        print(case.name(), flush=True)
    else:
        print("%.9f %.9f" % case.step(), flush=True)
