"""ashlar_torch - ashlar as PyTorch's allocator, in two lines before the first use of CUDA:

    import ashlar_torch
    ashlar_torch.use()

allocator/dropin/torch.h, in ashlar's source, says what PyTorch can do with such an allocator and
what not. Options are in the environment: ASHLAR_CONF, ASHLAR_REPORT=on.
"""

import collections
import ctypes
import os

INSTALLED = "@LIBRARY@"  # filled in when it is installed
HOOKS = ("record_stream", "reset", "memory_fraction", "base_alloc")
GRAPH_HOOKS = (("set_begin_allocate_to_pool", "begin_graph"),
               ("set_end_allocate_to_pool_fn", "end_graph"),
               ("set_release_pool", "release_graph"))
OLD_GRAPH_HOOKS = (("set_begin_allocate_stream_to_pool", "refuse_graph"),)

Bytes = collections.namedtuple("Bytes", "live live_peak reserved reserved_peak")


class _Bytes(ctypes.Structure):
    """ashlar_torch_bytes"""
    _fields_ = [(name, ctypes.c_uint64) for name in Bytes._fields]


_library = None


def find_library():
    """The file: $ASHLAR_TORCH, or where it was installed, or what the dynamic linker finds."""
    given = os.environ.get("ASHLAR_TORCH")
    return given or (INSTALLED if os.path.exists(INSTALLED) else "libashlar-torch.so")


def _load(path):
    """The functions of the library; one file for the whole process."""
    global _library
    path = path or (_library[0] if _library else find_library())
    if _library is None:
        _library = path, ctypes.CDLL(path)
    elif _library[0] != path:
        raise RuntimeError("ashlar_torch: %s is in use, and not %s" % (_library[0], path))
    return _library


def _address(function):
    return ctypes.cast(function, ctypes.c_void_p).value


def use(library=None):
    """Make ashlar the allocator of the whole process. CUDA must not have been used before."""
    from torch.cuda.memory import CUDAPluggableAllocator, change_current_allocator
    path, functions = _load(library)
    ashlar = CUDAPluggableAllocator(path, "ashlar_torch_alloc_or_throw", "ashlar_torch_free")
    hooks = ashlar.allocator()
    for hook in HOOKS:
        getattr(hooks, "set_%s_fn" % hook)(_address(getattr(functions, "ashlar_torch_" + hook)))
    for setter, function in (GRAPH_HOOKS if hasattr(hooks, GRAPH_HOOKS[0][0]) else OLD_GRAPH_HOOKS):
        getattr(hooks, setter)(_address(getattr(functions, "ashlar_torch_" + function)))
    change_current_allocator(ashlar)


def pool(library=None):
    """A torch.cuda.MemPool that takes its memory from ashlar, for torch.cuda.use_mem_pool()."""
    import torch
    allocator = torch.cuda.memory.CUDAPluggableAllocator(_load(library)[0], "ashlar_torch_alloc",
                                                         "ashlar_torch_free")
    made = torch.cuda.MemPool(allocator.allocator())
    made.ashlar = allocator  # lives as long
    return made


def memory(device=0):
    """Bytes of a device, as in ashlar_stats: live, live_peak, reserved, reserved_peak."""
    told = _Bytes()
    _load(None)[1].ashlar_torch_memory(device, ctypes.byref(told))
    return Bytes(*(int(getattr(told, name)) for name in Bytes._fields))


def forget_stream(stream):
    """Before a stream that PyTorch did not make (ExternalStream) is destroyed, behind its work."""
    _load(None)[1].ashlar_torch_forget_stream(ctypes.c_void_p(stream.cuda_stream))
