"""torch_rnn.py - the networks of `ashlar-bench rnn` in PyTorch, a step at a time.

usage: torch_rnn.py THREADS

ashlar-bench carries this text, gives it to python3, and writes lines to its standard input:

    case CELL STEPS BATCH INPUT HIDDEN LAYERS DIRECTIONS INFERENCE LENGTH...
    step
    train CELL LAYERS EMBEDDING HIDDEN CLASSES BATCH RATE DECAY CLIP TRIES TENSORS BATCHES
    run STEPS SECONDS

Of a case the fastest way that PyTorch has is taken: with oneDNN or without, and sequences of
different lengths padded or packed; of a training, if TRIES is not 0, with oneDNN or without, by the
fused optimizer or by foreach, and with the output layer and its loss compiled or not. The answers
are a line each: PyTorch's version at first, of a case the way, and of a step the seconds of forward
and backward.

Behind `train` stand the weights to begin with, each a line NAME BYTES and its fp32 numbers, and the
batches, each a line STEPS and its inputs and targets, int32 [STEPS, BATCH] each; a target below 0
does not count. `run` begins anew with them, and ends after so many steps, or after the one during
which the seconds have passed. It answers the way's SECONDS COUNT, and in COUNT more lines the loss
of each step and the second in which it ended."""
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


def read_numbers(dtype, count):
    return torch.frombuffer(bytearray(questions.read(4 * count)), dtype=dtype)


class Training:
    WAYS = (("oneDNN", "without oneDNN"), ("fused AdamW", "foreach AdamW"), ("", "compiled loss"))

    def __init__(self, cell, layers, embedding, hidden, classes, batch, rate, decay, clip, tries,
                 tensors, batches):
        layers, embedding, hidden, classes, batch, tries, tensors, batches = map(
            int, (layers, embedding, hidden, classes, batch, tries, tensors, batches))
        self.model = nn.ModuleDict({"embedding": nn.Embedding(classes, embedding),
                                    cell: CELLS[cell](embedding, hidden, layers),
                                    "linear": nn.Linear(hidden, classes)})
        self.cell, self.rate, self.decay, self.clip = cell, float(rate), float(decay), float(clip)
        self.begin = {}
        for _ in range(tensors):
            name, size = questions.readline().decode().split()
            self.begin[name] = read_numbers(torch.float32, int(size) // 4)
        assert self.begin.keys() == dict(self.model.named_parameters()).keys()
        self.batches = []
        for _ in range(batches):
            steps = int(questions.readline())
            x, y = read_numbers(torch.int32, 2 * steps * batch).long().view(2, steps, batch)
            self.batches.append((x, y.flatten()))
        self.compiled = torch.compile(self.loss, dynamic=True) if tries else None
        self.way = [0, 0, 0]
        for i in range(3 if tries else 0):
            self.way[i] = min((0, 1), key=lambda one: self.time(i, one))

    def loss(self, y, targets):
        return nn.functional.cross_entropy(self.model["linear"](y).flatten(0, 1), targets,
                                           ignore_index=-1)

    def time(self, i, one):
        self.way[i] = one
        try:
            self.run(TRIALS + 1, 0)
            ends = [end for _, end in self.run(TRIALS + 1, 0)]
            return min(b - a for a, b in zip(ends, ends[1:]))
        except Exception:  # there is no compiler, or PyTorch lacks it
            return float("inf")

    def name(self):
        return ", ".join(names[one] for names, one in zip(self.WAYS, self.way) if names[one])

    def step(self, batch, optimizer):
        x, targets = batch
        optimizer.zero_grad()
        y = self.model[self.cell](self.model["embedding"](x))[0]
        loss = (self.compiled if self.way[2] else self.loss)(y, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        optimizer.step()
        return loss.item()

    def run(self, steps, seconds):
        with torch.no_grad():
            for name, tensor in self.model.named_parameters():
                tensor.copy_(self.begin[name].view_as(tensor))
        way = "foreach" if self.way[1] else "fused"
        optimizer = torch.optim.AdamW(self.model.parameters(), self.rate, weight_decay=self.decay,
                                      **{way: True})
        results = []
        with torch.backends.mkldnn.flags(enabled=not self.way[0]):
            begin = time.perf_counter()
            for batch in self.batches[:steps]:
                loss = self.step(batch, optimizer)
                results.append((loss, time.perf_counter() - begin))
                if 0 < seconds < results[-1][1]:
                    break
        return results


torch.set_num_threads(int(sys.argv[1]))
torch.manual_seed(1)
print("PyTorch " + torch.__version__ + ", " + torch.backends.cpu.get_cpu_capability(), flush=True)
questions = sys.stdin.buffer
case = None
for line in iter(questions.readline, b""):
    word, *rest = line.decode().split()
    if word == "case":
        case = Case(rest[0], *map(int, rest[1:]))
        print(case.name(), flush=True)
    elif word == "step":
        print("%.9f %.9f" % case.step(), flush=True)
    elif word == "train":
        case = Training(*rest)
        print(case.name(), flush=True)
    else:
        results = case.run(int(rest[0]), float(rest[1]))
        print("%.9f %d" % (results[-1][1], len(results)))
        print("".join("%.9g %.9f\n" % one for one in results), end="", flush=True)
