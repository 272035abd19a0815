"""test_modules.py - 40 modules trained by each of ashlar.torch's optimizers as by PyTorch's."""

from cases import case, run
from torch import nn
import torch
from training import KINDS, STEPS, TOLERANCE, Recurrent, Rows, compare

# Muon rounds to bf16, here and there: where the last bit of a product decides between two of its values
# an element's direction changes by 1/256. With oneDNN for AVX2 in the place of AVX-512 PyTorch differs
# from itself by 9e-5 after these steps.
TOLERANCES = {"Muon": 5e-4}
if hasattr(torch.optim, "Muon"):
    KINDS["Muon"] = {"lr": 1e-3, "weight_decay": 0.1}, {"lr": 3e-4, "weight_decay": 0.01}


class Images(nn.Module):
    """Blocks of convolutions, as torchvision's models have them, on images of 3 channels."""

    def __init__(self, *blocks):
        super().__init__()
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.LazyLinear(5)
        self(0)

    def forward(self, seed):
        x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
        return self.head(self.blocks(x).flatten(1))


class Residual(nn.Module):
    def __init__(self, *inner):
        super().__init__()
        self.inner = nn.Sequential(*inner)

    def forward(self, x):
        return x + self.inner(x)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.rnn = nn.Embedding(9, 8), nn.GRU(8, 8)
        self.output = nn.Linear(8, 9)
        self.output.weight = self.embedding.weight

    def forward(self, seed):
        x = torch.randint(9, (4, 3), generator=torch.Generator().manual_seed(seed))
        return self.output(self.rnn(self.embedding(x))[0])


def convolution(groups=1, channels=6):
    return nn.Conv2d(channels, channels, 3, padding=1, groups=groups)


def make_modules():
    """40 modules; forward(seed) draws its own batch."""
    for layer in nn.LSTM, nn.GRU, nn.RNN:
        for options in ({}, {"num_layers": 2}, {"bidirectional": True}, {"bias": False},
                        {"num_layers": 2, "bidirectional": True, "bias": False},
                        {"batch_first": True}):
            yield Recurrent(layer, **options)
    yield Recurrent(nn.LSTM, proj_size=3)
    yield Recurrent(nn.LSTM, proj_size=3, num_layers=2, bidirectional=True)
    yield Tied()
    for norm in nn.BatchNorm2d, lambda n: nn.GroupNorm(2, n), nn.InstanceNorm2d:
        yield Images(nn.Conv2d(3, 6, 3), norm(6), nn.ReLU())                        # as AlexNet
        yield Images(nn.Conv2d(3, 6, 3), Residual(convolution(), norm(6), nn.ReLU()))  # ResNet
        yield Images(nn.Conv2d(3, 6, 1), convolution(6), norm(6), nn.Hardswish())   # MobileNet
    yield Images(nn.Conv2d(3, 6, 3).to(memory_format=torch.channels_last), nn.ReLU(),
                 nn.MaxPool2d(2))                                                   # VGG
    yield Images(nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 6, 3)), nn.PReLU(6))
    for layers in ([nn.Linear(7, 5)], [nn.Linear(7, 65), nn.Tanh(), nn.Linear(65, 3, bias=False)],
                   [nn.LayerNorm(7), nn.Linear(7, 300), nn.GELU(), nn.Linear(300, 7)],
                   [nn.Linear(7, 9) if i == 0 else nn.Linear(9, 9) for i in range(12)],
                   [nn.Linear(7, 8), nn.TransformerEncoderLayer(8, 2, 16, dropout=0)]):
        yield Rows(*layers)
    yield Rows(nn.Linear(7, 6), nn.Linear(6, 4)).double()
    mixed = Rows(nn.Linear(7, 6), nn.Linear(6, 4))
    mixed.unused, mixed.scalar = nn.Linear(3, 3).double(), nn.Parameter(torch.tensor(1.))
    yield mixed
    frozen = Rows(nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, 4))
    frozen.layers[0].weight.requires_grad_(False)
    yield frozen


def trains_like_pytorch(kind):
    """The case of a kind: its options take turns on 40 modules."""
    def steps():
        modules, bad = list(make_modules()), []
        assert len(modules) == 40, len(modules)
        for number, module in enumerate(modules):
            options = KINDS[kind][number % len(KINDS[kind])]
            if not compare(module, kind, options, STEPS, TOLERANCES.get(kind, TOLERANCE)):
                bad.append((number, options))
        assert not bad, bad
    steps.__name__ = kind.lower() + "_trains_40_modules_like_pytorchs"
    case(steps)


for name in KINDS:
    trains_like_pytorch(name)


run()
