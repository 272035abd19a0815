"""Stands in for PyTorch where there is none: a module that answers every call and computes nothing.

With it a dry run goes through the scripts that train with PyTorch. Its losses fall from step to
step. STAND_IN_TORCH is a program that changes it: loss() is the next loss, ours() whether the
allocator was changed, torch the module.
"""

import os
import sys
from unittest.mock import MagicMock

torch = MagicMock(__version__="0.0")
torch.cuda.memory_reserved.return_value = 900
torch.cuda.max_memory_reserved.return_value = 1000
torch.cuda.is_available.return_value = True
torch.cuda.device_count.return_value = 0  # for torch_calls.py, which wants a real one
torch.nn.LSTM.return_value.cuda.return_value.return_value = MagicMock(), None
_losses = []


def ours():
    return torch.cuda.memory.change_current_allocator.called


def loss():
    _losses.append(4.0 - 1e-3 * len(_losses))
    return _losses[-1]


exec(os.environ.get("STAND_IN_TORCH", ""))
_loss = torch.nn.functional.cross_entropy.return_value
_loss.item = loss
_loss.detach.side_effect = lambda: MagicMock(item=MagicMock(return_value=loss()))
sys.modules.update({"torch": torch, "torch.cuda": torch.cuda,
                    "torch.cuda.memory": torch.cuda.memory})
