"""torch_examples.py - the models of examples/ trained by PyTorch, for shell_examples.sh.

    python3 torch_examples.py NAME PROGRAM

Makes weights, trains from them for some steps on the data that examples/NAME.c draws, and has PROGRAM,
which is that example, begin with the same weights: each step's loss has to be the same. Status: 0, 1,
or 77 where there is no PyTorch.
"""

import ctypes
import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    import torch
    from torch import nn
except ImportError:
    print("there is no PyTorch")
    sys.exit(77)

from torch_sequences import Ctc, Seq2seq, Tagger

STEPS, TOLERANCE = 20, 1e-6  # of the losses, relative


class Draw:
    """The generators of the examples: their own, and rand()."""

    C = ctypes.CDLL(None)

    def __init__(self, state):
        self.state = state
        self.C.srand(1)

    def __call__(self, below):
        self.state = (self.state * 1664525 + 1013904223) % 2**32
        return self.again(below)

    def again(self, below):
        """The number that the state gives without a step."""
        return (self.state >> 8) % below

    def of_c(self, below):
        """The next number of the C library's generator, which a program begins with the seed 1."""
        return self.C.rand() % below


def write(path, tensors):
    """A safetensors file."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        values = tensor.detach().flatten().tolist()
        begin = len(data)
        data += struct.pack("<%df" % len(values), *values)
        header[name] = {"dtype": "F32", "shape": list(tensor.shape),
                        "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


class Classifier(nn.Module):
    FIRST = 4321  # state of the generator
    T, B, V = 24, 32, 8

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(self.V, 8)
        self.gru = nn.GRU(8, 16, 2, bidirectional=True)
        self.linear = nn.Linear(32, 2)

    def file(self):
        return self.state_dict()

    def optimizer(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)

    def loss(self, draw):
        longest = 1 + draw.again(self.T)
        sequences = []
        for _ in range(self.B):
            length = 1 + draw.again(longest)
            sequences.append(torch.tensor([draw(self.V) for _ in range(length)]))
        classes = torch.tensor([int(s[0] < s[-1]) for s in sequences])
        packed = nn.utils.rnn.pack_sequence([self.embedding(s) for s in sequences],
                                            enforce_sorted=False)
        h = self.gru(packed)[1]
        return nn.functional.cross_entropy(self.linear(torch.cat([h[-2], h[-1]], 1)), classes)


class TiedLanguageModel(nn.Module):
    T, B, V, H = 32, 16, 24, 24

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(self.V, self.H)
        self.lstm = nn.LSTM(self.H, self.H)
        self.linear = nn.Linear(self.H, self.V)
        self.linear.weight = self.embedding.weight

    def file(self):
        return self.state_dict()  # with both names of the weight

    def optimizer(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)

    def loss(self, draw):
        steps = 1 + draw(self.T)
        tokens = torch.zeros(self.T + 1, self.B, dtype=torch.long)
        for i in range(self.B):
            tokens[:, i] = ((draw.state >> 16) + i + (1 + i % 3) * torch.arange(self.T + 1)) % self.V
        y = self.linear(self.lstm(self.embedding(tokens[:steps]))[0])
        return nn.functional.cross_entropy(y.flatten(0, 1), tokens[1:steps + 1].flatten())


class NewHead(nn.Module):
    T, B, V = 24, 16, 11

    def __init__(self):
        super().__init__()
        self.base = nn.ModuleDict({"embedding": nn.Embedding(self.V, 16),
                                   "lstm": nn.LSTM(16, 32)})
        self.decoder = nn.Linear(32, self.V)
        self.head = nn.Linear(32, self.V)
        for parameter in self.head.parameters():
            nn.init.zeros_(parameter)

    def file(self):
        return {name: tensor for name, tensor in self.state_dict().items() if "head" not in name}

    def optimizer(self):
        return torch.optim.AdamW(self.head.parameters(), lr=0.05)

    def loss(self, draw):
        tokens = torch.tensor([draw(self.V) for _ in range((self.T + 1) * self.B)])
        tokens = tokens.view(self.T + 1, self.B)
        with torch.no_grad():
            y = self.base["lstm"](self.base["embedding"](tokens[1:]))[0]
        return nn.functional.cross_entropy(self.head(y).flatten(0, 1), tokens[:-1].flatten())


MODELS = {"classifier": Classifier, "tied_language_model": TiedLanguageModel, "new_head": NewHead,
          "ctc": Ctc, "seq2seq": Seq2seq, "tagger": Tagger}


def lines_of(command):
    """What it prints: each step's loss, and the other lines."""
    print("$", *command)
    lines = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.split("\n")
    losses = [float(line) for line in lines if line[:1].isdigit() and " " not in line]
    return losses, [line for line in lines if " " in line]


def main(name, program):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model, theirs = MODELS[name](), []
    draw = Draw(getattr(model, "FIRST", 1))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "weights.safetensors")
        write(path, model.file())
        no_dropout = ["0"] if name == "tied_language_model" else []
        ours, others = lines_of([program, path] + no_dropout)
        dropped = lines_of([program, path, "0.2"])[0] if no_dropout else None
    optimizer = model.optimizer()
    for _ in range(STEPS):
        loss = model.loss(draw)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        theirs.append(loss.item())
    worst = max(abs(a / b - 1) for a, b in zip(ours, theirs))
    print("%d losses, %.6f to %.6f: off by at most %.2g of PyTorch's" %
          (len(theirs), theirs[0], theirs[-1], worst))
    print(*others, sep="\n")
    failed = worst > TOLERANCE or len(ours) < STEPS
    if dropped:
        last = sum(dropped[-10:]) / 10
        print("with dropout %.6f to %.6f" % (dropped[0], last))
        failed |= abs(dropped[0] / ours[0] - 1) < 1e-3 or last > 0.5 * dropped[0]
    return failed


sys.exit(main(*sys.argv[1:]))
