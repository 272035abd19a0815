"""Stands in for CuPy where there is none: its names over the CUDA runtime that the process has.

It takes memory by allocators, copies and fills; it computes nothing. What it does to an allocator is
what CuPy does: asks for no 0 bytes, frees by the device that it asked on, and, in a MemoryPool, keeps
what is freed until a request fails. STAND_IN_CUPY is a program that changes it.
"""

import ctypes
import os
import sys
import threading
import types

__version__ = "0.0"
OUT_OF_MEMORY = 2
COPY_ANY = 4  # cudaMemcpyDefault
NON_BLOCKING = 1

_cuda = ctypes.CDLL(None)
if not hasattr(_cuda, "cudaMemcpyAsync"):
    raise ImportError("this process has no CUDA runtime")
_now = threading.local()  # device


class CUDARuntimeError(RuntimeError):
    def __init__(self, status):
        super().__init__("error %d of CUDA's runtime" % status)
        self.status = status


class OutOfMemoryError(MemoryError):
    pass


def _call(name, *arguments):
    status = getattr(_cuda, name)(*arguments)
    if status != 0:
        raise CUDARuntimeError(status)


# Devices and streams.

def getDeviceCount():
    count = ctypes.c_int()
    _call("cudaGetDeviceCount", ctypes.byref(count))
    return count.value


def memGetInfo():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    _call("cudaMemGetInfo", ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


class Device:
    def __init__(self, number):
        self.number = number

    def __enter__(self):
        self.before = getattr(_now, "device", 0)
        self._use(self.number)

    def __exit__(self, *error):
        self._use(self.before)

    def _use(self, number):
        _call("cudaSetDevice", number)
        _now.device = number


class Event:
    def __init__(self):
        handle = ctypes.c_void_p()
        _call("cudaEventCreate", ctypes.byref(handle))
        self.handle = handle

    def __del__(self):
        _call("cudaEventDestroy", self.handle)


class Stream:
    def __init__(self, null=False, non_blocking=False):
        self.handle = ctypes.c_void_p()
        if not null:
            _call("cudaStreamCreateWithFlags", ctypes.byref(self.handle),
                  NON_BLOCKING if non_blocking else 0)

    def __del__(self):
        if self.handle:
            _call("cudaStreamDestroy", self.handle)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def record(self):
        event = Event()
        _call("cudaEventRecord", event.handle, self.handle)
        return event

    def wait_event(self, event):
        _call("cudaStreamWaitEvent", self.handle, event.handle, 0)

    def synchronize(self):
        _call("cudaStreamSynchronize", self.handle)


Stream.null = Stream(null=True)


# Memory, freed with the last who knows it.

class Memory:
    def __init__(self, size, malloc, free):
        self.device, self.size, self.free = getattr(_now, "device", 0), size, free
        self.ptr = 0
        if size > 0:
            self.ptr = malloc(size, self.device)

    def __del__(self):
        if self.ptr:
            self.free(self.ptr, self.device)


class MemoryPointer:
    def __init__(self, memory):
        self.memory, self.ptr = memory, memory.ptr

    def _copy(self, to, source, size, stream):
        _call("cudaMemcpyAsync", to, source, ctypes.c_size_t(size), COPY_ANY, stream.handle)

    def copy_from_host_async(self, host, size, stream):
        self._copy(ctypes.c_void_p(self.ptr), host, size, stream)

    def copy_to_host_async(self, host, size, stream):
        self._copy(host, ctypes.c_void_p(self.ptr), size, stream)

    def copy_from_device_async(self, source, size, stream):
        self._copy(ctypes.c_void_p(self.ptr), ctypes.c_void_p(source.ptr), size, stream)

    def memset_async(self, value, size, stream):
        _call("cudaMemsetAsync", ctypes.c_void_p(self.ptr), value, ctypes.c_size_t(size),
              stream.handle)


class PythonFunctionAllocator:
    def __init__(self, malloc, free):
        self.functions = malloc, free

    def malloc(self, size):
        return MemoryPointer(Memory(size, *self.functions))


class CFunctionAllocator(PythonFunctionAllocator):
    def __init__(self, param, malloc, free, owner):
        pointer, number = ctypes.c_void_p, ctypes.c_int
        take = ctypes.CFUNCTYPE(pointer, pointer, ctypes.c_size_t, number)(malloc)
        give = ctypes.CFUNCTYPE(None, pointer, pointer, number)(free)
        super().__init__(lambda size, device: take(param, size, device) or 0,
                         lambda ptr, device: give(param, ptr, device))
        self.owner = owner


class PooledMemory:
    def __init__(self, pool, memory):
        self.pool, self.memory, self.ptr = pool, memory, memory.ptr

    def __del__(self):
        self.pool.used.remove(self.memory)
        self.pool.kept.append(self.memory)


class MemoryPool:
    def __init__(self, malloc):
        self.take, self.used, self.kept = malloc, [], []

    def malloc(self, size):
        fitting = [memory for memory in self.kept if memory.size == size]
        memory = fitting[0] if fitting else self._take(size)
        self.kept = [other for other in self.kept if other is not memory]
        self.used.append(memory)
        return MemoryPointer(PooledMemory(self, memory))

    def _take(self, size):
        for _ in range(2):
            try:
                return self.take(size).memory
            except CUDARuntimeError as error:
                if error.status != OUT_OF_MEMORY:
                    raise
            self.free_all_blocks()
        raise OutOfMemoryError("%d bytes" % size)

    def total_bytes(self):
        return sum(memory.size for memory in self.used + self.kept)

    def free_all_blocks(self):
        self.kept = []


_malloc = None


def set_allocator(malloc):
    global _malloc
    _malloc = malloc


class ndarray:
    """A row of bytes."""

    def __init__(self, shape, dtype):
        if dtype != "uint8":
            raise TypeError("this stand-in has bytes only, and not %s" % dtype)
        self.nbytes, self.data = shape, _malloc(shape)


runtime = types.SimpleNamespace(CUDARuntimeError=CUDARuntimeError, getDeviceCount=getDeviceCount,
                                memGetInfo=memGetInfo)
memory = types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError)
cuda = sys.modules[__name__]
exec(os.environ.get("STAND_IN_CUPY", ""))
