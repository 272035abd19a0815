"""training.py - modules that draw their own batches, and trainings of them by ashlar.torch's optimizers
beside PyTorch's."""

import copy

from cases import same, torch
import ashlar.torch
from torch import nn

STEPS, TOLERANCE = 20, 1e-6


class Recurrent(nn.Module):
    def __init__(self, layer, width=11, **options):
        super().__init__()
        self.embedding = nn.Embedding(width, 6)
        self.rnn = layer(6, 8, **options)
        size = (options.get("proj_size") or 8) * (2 if options.get("bidirectional") else 1)
        self.output = nn.Linear(size, width)

    def forward(self, seed):
        x = torch.randint(11, (4, 3), generator=torch.Generator().manual_seed(seed))
        return self.output(self.rnn(self.embedding(x))[0])


class Rows(nn.Module):
    def __init__(self, *layers, width=7):
        super().__init__()
        self.layers, self.width = nn.Sequential(*layers), width

    def forward(self, seed):
        x = torch.randn(4, 5, self.width, generator=torch.Generator().manual_seed(seed))
        return self.layers(x.to(next(self.layers.parameters()).dtype))


KINDS = {
    "SGD": ({"lr": 0.05}, {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.01, "dampening": 0.1},
            {"lr": 0.02, "momentum": 0.9, "nesterov": True}),
    "Adam": ({}, {"lr": 3e-3, "weight_decay": 0.1, "betas": (0.8, 0.99)}),
    "AdamW": ({}, {"lr": 3e-3, "weight_decay": 0.3, "eps": 1e-6}),
    "Adagrad": ({"lr": 1e-2, "eps": 1e-6},
                {"lr": 1e-2, "lr_decay": 0.1, "initial_accumulator_value": 0.1}),
    "RMSprop": ({"lr": 1e-3, "eps": 1e-5},
                {"lr": 1e-4, "eps": 1e-4, "momentum": 0.9, "weight_decay": 0.1, "alpha": 0.9}),
}


def backward(module, seed, factor=1.0):
    # Adam and RMSprop divide noise by noise where a gradient is 0 but for rounding, as behind a
    # batch norm: here none is.
    penalty = sum((p * (1 + p)).double().mean() for p in module.parameters() if p.requires_grad)
    loss = module(seed).square().double().mean() + penalty
    (loss * factor).backward()
    return loss.detach()


def pair(module, kind, options, **ours):
    """The module in an arena and a copy, each with its optimizer."""
    other = copy.deepcopy(module)
    arena = ashlar.torch.contiguous(module)
    theirs = [p for p in other.parameters() if p.requires_grad]
    return arena, other, getattr(ashlar.torch, kind)(arena, **options, **ours), getattr(
        torch.optim, kind)(theirs, **options) if kind != "Muon" else MuonAndAdamW(theirs, **options)


class MuonAndAdamW:
    """PyTorch's Muon on the matrices and its AdamW on the rest."""

    def __init__(self, parameters, **options):
        kinds = ((torch.optim.Muon, [p for p in parameters if p.dim() == 2]),
                 (torch.optim.AdamW, [p for p in parameters if p.dim() != 2]))
        self.parts = [kind(part, **options) for kind, part in kinds if part]

    def step(self):
        for part in self.parts:
            part.step()

    def zero_grad(self, **options):
        for part in self.parts:
            part.zero_grad(**options)


def alike(module, other, tolerance=TOLERANCE):
    return all(same(p, q, tolerance) for p, q in zip(module.parameters(), other.parameters()))


def compare(module, kind, options, steps=STEPS, tolerance=TOLERANCE):
    """Train both, with clipping; whether they end alike."""
    arena, other, ours, theirs = pair(module, kind, options, clip_norm=0.5)
    for seed in range(steps):
        for m, optimizer in ((module, ours), (other, theirs)):
            backward(m, seed)
            if m is other:
                norm = nn.utils.clip_grad_norm_(m.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        assert same(torch.tensor(ours.last_step().norm), norm.float(), 10 * tolerance)
    arena.check()
    return alike(module, other, tolerance)
