"""torch_contiguous.py - a module of PyTorch's in one range, trained by one pass a step.

    pip install .. && python3 torch_contiguous.py

An LSTM learns to add the marked two of a sequence of numbers. Runs on a CPU, or a CUDA device.
"""

import torch
import ashlar.torch

STEPS, LENGTH, BATCH = 300, 12, 64


class Adder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.output = torch.nn.LSTM(2, 48), torch.nn.Linear(48, 1)

    def forward(self, x):
        return self.output(self.rnn(x)[0][-1])[:, 0]


def draw_batch(device):
    numbers, marks = torch.rand(LENGTH, BATCH), torch.zeros(LENGTH, BATCH)
    for column in range(BATCH):
        marks[torch.randperm(LENGTH)[:2], column] = 1
    return torch.stack([numbers, marks], 2).to(device), (numbers * marks).sum(0).to(device)


torch.manual_seed(1)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = Adder().to(device)
arena = ashlar.torch.contiguous(model)
optimizer = ashlar.torch.AdamW(arena, lr=1e-2, clip_norm=1.0, zero_gradients=True)

losses = []
for step in range(STEPS):
    x, wanted = draw_batch(device)
    loss = (model(x) - wanted).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
arena.check()
print("loss %.3f, then %.3f; %d parameters in %d bytes" % (
    losses[0], sum(losses[-20:]) / 20, len(arena.places), arena.values.numel()))
