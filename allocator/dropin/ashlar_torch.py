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

Stats = collections.namedtuple("Stats", (
    "live", "live_peak", "reserved", "reserved_peak", "live_blocks", "alloc_count", "free_count",
    "mapped_count", "retry_count", "wait_count", "failed_count"))


class _Stats(ctypes.Structure):
    """ashlar_torch_stats"""
    _fields_ = [(name, ctypes.c_uint64) for name in Stats._fields]


_library = None


def find_library():
    """The file: $ASHLAR_TORCH, the wheel's own, the installed one, or what the linker finds."""
    here = os.path.dirname(os.path.abspath(__file__)) + "/ashlar/libashlar-torch.so"
    known = (path for path in (here, INSTALLED) if os.path.exists(path))
    return os.environ.get("ASHLAR_TORCH") or next(known, "libashlar-torch.so")


def _load(path):
    """Load the library, of which a process can use only one: its path, and its functions."""
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
    if not hasattr(hooks, GRAPH_HOOKS[0][0]):
        raise RuntimeError("ashlar_torch: this PyTorch does not tell an allocator which streams a "
                           "capture uses; take 2.9 or later, or ashlar_torch.pool()")
    for setter, function in GRAPH_HOOKS:
        getattr(hooks, setter)(_address(getattr(functions, "ashlar_torch_" + function)))
    change_current_allocator(ashlar)
    _serve_statistics()


# What torch.cuda.memory_stats() has of each figure, for all memory and for two pools of PyTorch's.
_FIGURES = ("allocation", "segment", "active", "inactive_split", "allocated_bytes",
            "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes")
_counted = {}  # by device: what was counted when torch.cuda.reset_accumulated_memory_stats() ran


def _figure(current=0, peak=0, allocated=0, freed=0):
    return {"current": current, "peak": peak, "allocated": allocated, "freed": freed}


def _memory_stats(device):
    """torch.cuda.memory_stats() of ashlar. What ashlar does not count is 0."""
    now, then = stats(device), _counted.get(device, Stats(*[0] * len(Stats._fields)))
    blocks = _figure(now.live_blocks, 0, now.alloc_count - then.alloc_count,
                     now.free_count - then.free_count)
    live = _figure(now.live, now.live_peak)
    told = {"allocation": blocks, "active": blocks, "allocated_bytes": live, "active_bytes": live,
            "requested_bytes": live, "reserved_bytes": _figure(now.reserved, now.reserved_peak)}
    nested = {name: {"all": told.get(name, _figure()), "small_pool": _figure(),
                     "large_pool": _figure()} for name in _FIGURES}
    nested.update(
        oversize_allocations=_figure(), oversize_segments=_figure(), max_split_size=-1,
        num_alloc_retries=now.retry_count - then.retry_count,
        num_ooms=now.failed_count - then.failed_count,
        num_sync_all_streams=now.wait_count - then.wait_count,
        num_device_alloc=now.mapped_count - then.mapped_count, num_device_free=0)
    return nested


def _serve_statistics():
    """Let PyTorch's statistics be ashlar's: its getters call these three, for its own allocator."""
    import torch
    torch._C._cuda_memoryStats = _memory_stats
    torch._C._cuda_resetPeakMemoryStats = lambda device: _load(None)[1].ashlar_torch_reset_peaks(
        device)
    torch._C._cuda_resetAccumulatedMemoryStats = lambda device: _counted.update(
        {device: stats(device)})


_of_pools = None  # the allocator of all pools, which in PyTorch up to 2.9 has to outlive them


def pool(library=None):
    """A torch.cuda.MemPool that takes its memory from ashlar, for torch.cuda.use_mem_pool()."""
    global _of_pools
    import torch
    path = _load(library)[0]
    _of_pools = _of_pools or torch.cuda.memory.CUDAPluggableAllocator(
        path, "ashlar_torch_alloc", "ashlar_torch_free_to_driver")
    return torch.cuda.MemPool(_of_pools.allocator())


def stats(device=0):
    """What a device's allocator has counted: ashlar_torch_stats, in allocator/dropin/torch.h."""
    told = _Stats()
    _load(None)[1].ashlar_torch_get_stats(device, ctypes.byref(told))
    return Stats(*(int(getattr(told, name)) for name in Stats._fields))


def forget_stream(stream):
    """Call this before destroying a stream that PyTorch did not make, after its last work."""
    _load(None)[1].ashlar_torch_forget_stream(ctypes.c_void_p(stream.cuda_stream))
