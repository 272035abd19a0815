"""ashlar.torch - a module's weights in one range, optimizers of one pass, and recurrent layers.

    arena = ashlar.torch.contiguous(module)
    optimizer = ashlar.torch.AdamW(arena, lr=1e-3)
"""

try:
    import torch as _torch
except ImportError as error:
    raise ImportError("ashlar.torch needs PyTorch, 2.4 or later: pip install torch") from error

from ashlar_torch import forget_stream, pool, stats, use
from ._contiguous import Arena, Moved, contiguous
from ._layers import GRU, LSTM, RNN
from ._optimizers import SGD, Adagrad, Adam, AdamW, Muon, RMSprop
from ._parallel import DataParallel
