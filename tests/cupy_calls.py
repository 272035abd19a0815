"""What CuPy asks of an allocator, asked of ours by CuPy itself: cupy_calls.py LIBRARY

LIBRARY is libashlar-torch.so. Only copies and fills are queued, so that a device that runs no
kernels will do. Status: 0, 1, or 77 where there is no CuPy that sees a GPU.
"""

import ctypes
import os
import struct
import sys
import threading
import traceback

from torch_lstm import ashlar_torch

MIB = 1 << 20
OUT_OF_MEMORY = 2 # cudaErrorMemoryAllocation


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def raises(error, call):
    try:
        call()
    except error:
        return True
    return False


class Ours:
    """The library: allocators for CuPy, and what it says of a device's bytes."""

    def __init__(self, cupy, path):
        os.environ["ASHLAR_TORCH"] = path
        self.cupy, self.functions = cupy, ctypes.CDLL(path)
        self.functions.ashlar_cupy_malloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t,
                                                      ctypes.c_int]
        self.functions.ashlar_cupy_malloc.restype = ctypes.c_void_p
        self.functions.ashlar_cupy_free.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
        self.functions.ashlar_torch_memory_fraction.argtypes = [ctypes.c_double, ctypes.c_int]
        self.by_python = cupy.cuda.PythonFunctionAllocator(self.malloc, self.free)

    def malloc(self, size, device):
        ptr = self.functions.ashlar_cupy_malloc(None, size, device) or 0
        if size and not ptr:
            raise self.cupy.cuda.runtime.CUDARuntimeError(OUT_OF_MEMORY)
        return ptr

    def free(self, ptr, device):
        self.functions.ashlar_cupy_free(None, ptr, device)

    def by_address(self, stream):
        malloc, free = (ctypes.cast(f, ctypes.c_void_p).value for f in
                        (self.functions.ashlar_cupy_malloc, self.functions.ashlar_cupy_free))
        return self.cupy.cuda.CFunctionAllocator(stream, malloc, free, self.functions)

    def live(self, device=0):
        return ashlar_torch.stats(device).live

    def limit(self, size):
        total = self.cupy.cuda.runtime.memGetInfo()[1]
        self.functions.ashlar_torch_reset()
        self.functions.ashlar_torch_memory_fraction(min(1.0, size / total), 0)


def copy_of(array, stream):
    got = ctypes.create_string_buffer(array.nbytes)
    array.data.copy_to_host_async(ctypes.cast(got, ctypes.c_void_p), array.nbytes, stream)
    stream.synchronize()
    return got.raw


def copies_are_right(cupy, number, count):
    """Through memory freed while streams that CuPy's allocators are not told of still read it."""
    own, other = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    with own:
        for i in range(count):
            given = struct.pack("I", number * count + i + 1) * (10007 * (i % 7 + 1))
            first = cupy.ndarray(len(given), dtype="uint8")
            first.data.copy_from_host_async(ctypes.cast(given, ctypes.c_void_p), len(given), own)
            other.wait_event(own.record())
            second = cupy.ndarray(len(given), dtype="uint8")
            second.data.copy_from_device_async(first.data, first.nbytes, other)
            del first
            third = cupy.ndarray(len(given), dtype="uint8")
            third.data.memset_async(0, third.nbytes, own)
            # What is asked for last may have been overwritten meanwhile.
            if any(copy_of(third, own)) or copy_of(second, other) != given:
                return False
    return True


def memory_is_ours_and_comes_back(cupy, ours):
    for allocator in ours.by_python, ours.by_address(0), ours.by_address(1):
        cupy.cuda.set_allocator(allocator.malloc)
        array = cupy.ndarray(MIB, dtype="uint8")
        expect(ours.live() == MIB, "live bytes with an array")
        del array
        expect(ours.live() == 0, "live bytes without it")
        expect(cupy.ndarray(0, dtype="uint8").data.ptr == 0, "an empty array has none")


def copies_of_8_threads_are_right(cupy, ours):
    right = [False] * 8

    def work(number):
        cupy.cuda.set_allocator(ours.by_python.malloc)
        right[number] = copies_are_right(cupy, number, 40)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(right))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(all(right), "copies")


def memory_of_one_stream_is_had_again(cupy, ours):
    cupy.cuda.set_allocator(ours.by_address(1).malloc)
    array = cupy.ndarray(MIB, dtype="uint8")
    array.data.memset_async(1, MIB, cupy.cuda.Stream.null)
    address = array.data.ptr
    del array
    array = cupy.ndarray(MIB, dtype="uint8")
    expect(array.data.ptr == address, "the same memory")


def every_device_has_its_own(cupy, ours):
    cupy.cuda.set_allocator(ours.by_python.malloc)
    last = cupy.cuda.runtime.getDeviceCount() - 1
    with cupy.cuda.Device(last):
        array = cupy.ndarray(MIB, dtype="uint8")
        expect(ours.live(last) == MIB, "live bytes of the last device")
        del array
    expect(ours.live(last) == 0, "live bytes without it")


def a_pool_between_gives_back_what_it_keeps(cupy, ours):
    pool = cupy.cuda.MemoryPool(ours.by_python.malloc)
    cupy.cuda.set_allocator(pool.malloc)
    ours.limit(64 * MIB)
    array = cupy.ndarray(40 * MIB, dtype="uint8")
    del array
    array = cupy.ndarray(50 * MIB, dtype="uint8") # there is room once the pool has given back
    expect(array.data.ptr != 0 and pool.total_bytes() == 50 * MIB, "the pool's bytes")
    expect(raises(cupy.cuda.memory.OutOfMemoryError,
                  lambda: cupy.ndarray(20 * MIB, dtype="uint8")), "more than there is")
    del array
    pool.free_all_blocks()
    ours.limit(1 << 62)
    expect(ours.live() == 0, "bytes are left")


CASES = [memory_is_ours_and_comes_back, copies_of_8_threads_are_right,
         memory_of_one_stream_is_had_again, every_device_has_its_own,
         a_pool_between_gives_back_what_it_keeps]


def main(path):
    try:
        import cupy
        count = cupy.cuda.runtime.getDeviceCount()
    except ImportError as error:
        print("no CuPy: %s" % error)
        return 77
    except cupy.cuda.runtime.CUDARuntimeError:
        count = 0
    if count == 0:
        print("this CuPy sees no GPU")
        return 77
    ours, failed = Ours(cupy, path), 0
    for case in CASES:
        try:
            case(cupy, ours)
            print("ok -", case.__name__)
        except Exception:
            traceback.print_exc()
            print("not ok -", case.__name__)
            failed += 1
        cupy.cuda.set_allocator(None)
    print("CuPy %s: %d of %d cases failed" % (cupy.__version__, failed, len(CASES)) if failed else
          "CuPy %s: %d cases" % (cupy.__version__, len(CASES)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
