"""torch_training.py - a PyTorch training on ashlar's memory: the first two lines are all it takes.

    python3 torch_training.py

Needs a CUDA device. After the first steps no more memory is reserved.
"""

import ashlar_torch
ashlar_torch.use()  # before anything that uses CUDA

import sys

import torch

if not torch.cuda.is_available():
    print("this PyTorch sees no GPU")
    sys.exit(77)

STEPS, LENGTH_MAX, BATCH, SYMBOLS = 100, 64, 32, 96

torch.manual_seed(1)
table = torch.nn.Embedding(SYMBOLS, 64).cuda()
lstm = torch.nn.LSTM(64, 128, 2).cuda()
linear = torch.nn.Linear(128, SYMBOLS).cuda()
parameters = [p for part in (table, lstm, linear) for p in part.parameters()]
optimizer = torch.optim.Adam(parameters, lr=1e-2)
text = (torch.arange(LENGTH_MAX + 1)[:, None] + torch.arange(BATCH)).cuda() % SYMBOLS

losses, reserved = [], []
for step in range(STEPS):
    length = LENGTH_MAX if step < 5 else 8 + step * 37 % (LENGTH_MAX - 8)
    outputs, _ = lstm(table(text[:length]))
    loss = torch.nn.functional.cross_entropy(linear(outputs).flatten(0, 1),
                                             text[1:length + 1].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    reserved.append(ashlar_torch.stats().reserved)
print("loss %.3f, then %.3f; %d MiB reserved after 10 steps, %d at the end" %
      (losses[0], losses[-1], reserved[9] >> 20, reserved[-1] >> 20))
