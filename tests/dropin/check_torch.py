"""Every function that libashlar-torch.so exports, called as PyTorch and CuPy do, by ctypes.

check_torch.py LIBRARY NAME...  with the names that the library exports; all have to be used here.
"""
import ctypes
import os
import sys
import threading

THREADS, DEVICES, ROUNDS, LIVE = 8, 2, 40, 10
MIB = 1 << 20

path, exported = sys.argv[1], set(sys.argv[2:])
lib = ctypes.CDLL(path)
called = set()


class Stats(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "live", "live_peak", "reserved", "peak", "live_blocks", "alloc_count", "free_count",
        "mapped_count", "retry_count", "wait_count", "failed_count")]


def function(name, result, *arguments):
    called.add(name)
    address = ctypes.cast(getattr(lib, name), ctypes.c_void_p).value
    # By address, as set_record_stream_fn and CFunctionAllocator take it.
    return ctypes.CFUNCTYPE(result, *arguments)(address)


ptr, size, num = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
alloc = function("ashlar_torch_alloc", ptr, size, num, ptr)
alloc_or_throw = function("ashlar_torch_alloc_or_throw", ptr, size, num, ptr)
free = function("ashlar_torch_free", None, ptr, size, num, ptr)
free_to_driver = function("ashlar_torch_free_to_driver", None, ptr, size, num, ptr)
record_stream = function("ashlar_torch_record_stream", None, ptr, ptr)
forget_stream = function("ashlar_torch_forget_stream", None, ptr)
reset = function("ashlar_torch_reset", None)
memory_fraction = function("ashlar_torch_memory_fraction", None, ctypes.c_double, num)
base_alloc = function("ashlar_torch_base_alloc", ptr, ptr, ctypes.POINTER(size))
get_stats = function("ashlar_torch_get_stats", num, num, ctypes.POINTER(Stats))
reset_peaks = function("ashlar_torch_reset_peaks", None, num)
for name in ("begin_graph", "end_graph", "release_graph"):
    function("ashlar_torch_" + name, None) # C++ in their interface: see catch.cpp
error = function("ashlar_torch_error", ctypes.c_char_p)
cupy_malloc = function("ashlar_cupy_malloc", ptr, ptr, size, num)
cupy_free = function("ashlar_cupy_free", None, ptr, ptr, num)


def bytes_of(device):
    out = Stats()
    status = get_stats(device, out)
    return out, status


def use(number, device, takes, gives, bad):
    live = []
    for i in range(ROUNDS):
        bytes_ = 1000 + 700 * (i % 13) + number
        block = takes(bytes_, device)
        if not block:
            bad.append("no block of %d" % bytes_)
            continue
        value = (number * 31 + i) % 255 + 1
        ctypes.memset(block, value, bytes_)
        live.append((block, bytes_, value))
        if len(live) == LIVE or i == ROUNDS - 1:
            for block, bytes_, value in live:
                if ctypes.string_at(block, bytes_) != bytes([value]) * bytes_:
                    bad.append("a block of thread %d has changed" % number)
                gives(block, bytes_, device)
            live = []


def thread(number, bad):
    for device in range(DEVICES):
        use(number, device, lambda n, d: alloc(n, d, None), lambda p, n, d: free(p, n, d, None),
            bad)
        use(number, device, lambda n, d: alloc_or_throw(n, d, 1),
            lambda p, n, d: free(p, n, d, 1), bad)
        use(number, device, lambda n, d: cupy_malloc(None, n, d),
            lambda p, n, d: cupy_free(None, p, d), bad)
        use(number, device, lambda n, d: cupy_malloc(2, n, d), lambda p, n, d: cupy_free(2, p, d),
            bad)


def expect(condition, what):
    if not condition:
        sys.exit("failed: " + what)


expect(called == exported, "other names are exported: %s" % sorted(called ^ exported))

bad, threads = [], []
for i in range(THREADS):
    threads.append(threading.Thread(target=thread, args=(i, bad)))
    threads[-1].start()
for t in threads:
    t.join()
expect(not bad, str(bad[:5]))

for device in range(DEVICES):
    got, status = bytes_of(device)
    expect(status == 0 and got.live == 0 and 0 < got.live_peak <= got.reserved <= got.peak,
           "bytes of device %d after 8 threads" % device)
expect(bytes_of(7)[1] == 1, "bytes of a device that was not used")

block, bytes_ = alloc(5 * MIB, 1, None), size(0)
expect(base_alloc(block, bytes_) == block and bytes_.value == 5 * MIB, "base_alloc")
record_stream(block, 2)
free(block, 5 * MIB, 1, None)
forget_stream(0x1234) # one that was never named

block = alloc(20 * MIB, 0, None)
before = bytes_of(0)[0].reserved
free_to_driver(block, 20 * MIB, 0, None)
expect(bytes_of(0)[0].reserved <= before - 20 * MIB, "free_to_driver")

reset()
expect(bytes_of(0)[0].reserved == 0 and bytes_of(1)[0].reserved == 0, "reset")
memory_fraction(0.25, 0)
expect(not alloc(17 * MIB, 0, None) and alloc(17 * MIB, 1, None), "memory_fraction")
expect(b"17825792" in error(), "error: %r" % error())
expect([bytes_of(device)[0].failed_count for device in (0, 1)] == [1, 0], "failures")
reset_peaks(0)
expect(bytes_of(0)[0].live_peak == 0 < bytes_of(1)[0].live_peak, "peaks")

# A worker of a data loader: it has what its parent had, and cannot have more.
child = os.fork()
if child == 0:
    free(block, 5 * MIB, 1, None)
    os._exit(0 if not alloc(10, 0, None) and b"forked" in error() else 1)
expect(os.waitpid(child, 0)[1] == 0, "fork")
print("ok")
