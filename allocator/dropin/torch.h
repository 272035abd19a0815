/*
 * torch.h - what libashlar-torch.so exports: functions with the signatures that PyTorch's
 * CUDAPluggableAllocator and CuPy's CFunctionAllocator call, which find them by name.
 *
 * A stream is a cudaStream_t, a device an ordinal of the CUDA runtime. The allocators are those of
 * devices.h, so PyTorch and CuPy share memory within a process. No function prints, unless
 * ASHLAR_REPORT=on, and none changes the calling thread's current device. In a forked child,
 * requests fail and frees are ignored.
 *
 * For PyTorch, as the allocator of the whole process, set before its first use of CUDA:
 *
 *     from torch.cuda.memory import CUDAPluggableAllocator, change_current_allocator
 *     ashlar = CUDAPluggableAllocator("libashlar-torch.so", "ashlar_torch_alloc_or_throw",
 *                                     "ashlar_torch_free")
 *     hooks, lib = ashlar.allocator(), ctypes.CDLL("libashlar-torch.so")
 *     address = lambda f: ctypes.cast(f, ctypes.c_void_p).value
 *     hooks.set_record_stream_fn(address(lib.ashlar_torch_record_stream))
 *     hooks.set_reset_fn(address(lib.ashlar_torch_reset))
 *     hooks.set_memory_fraction_fn(address(lib.ashlar_torch_memory_fraction))
 *     hooks.set_base_alloc_fn(address(lib.ashlar_torch_base_alloc))
 *     hooks.set_begin_allocate_to_pool(address(lib.ashlar_torch_refuse_graph))
 *     change_current_allocator(ashlar)
 *
 * Without set_record_stream_fn a tensor's record_stream() does nothing, and its memory may be
 * reused too early. PyTorch says only in C++, not in C, what memory a captured graph keeps. So
 * capturing is refused; do not try it without set_begin_allocate_to_pool
 * (set_begin_allocate_stream_to_pool in an old PyTorch). PyTorch refuses some things for every
 * allocator of this kind: statistics, snapshots, memory pools, sharing memory between processes.
 * ashlar_torch_memory() has statistics.
 *
 * For a part of the program; PyTorch's own allocator then divides what it takes from here. Before a
 * capture, run a step that fills its pool:
 *
 *     ashlar = CUDAPluggableAllocator("libashlar-torch.so", "ashlar_torch_alloc",
 *                                     "ashlar_torch_free")
 *     with torch.cuda.use_mem_pool(torch.cuda.MemPool(ashlar.allocator())): ...
 *
 * What such a pool frees stays reserved here until ashlar_torch_reset(), which PyTorch calls only
 * for the allocator of the whole process.
 */
#ifndef ASHLAR_DROPIN_TORCH_H
#define ASHLAR_DROPIN_TORCH_H

#include <stddef.h>
#include <stdint.h>

#include <ashlar/device.h>
#include <ashlar/export.h>

ASHLAR_BEGIN_DECLS

/*
 * A block for work on `stream`; NULL for 0 bytes, which is no failure.
 *
 * ashlar_torch_alloc            NULL on failure. For a MemPool: PyTorch then frees what it can and
 *                               asks again.
 * ashlar_torch_alloc_or_throw   Throws a std::runtime_error on failure; Python sees a RuntimeError.
 *                               For the whole process, where PyTorch would use NULL as an address.
 *                               If memory is out, the text begins as PyTorch's own: "CUDA out of
 *                               memory. Tried to allocate". NULL in a process without a C++
 * library.
 *
 * Threads: any.  Cost: that of ashlar_alloc().
 */
ASHLAR_API void *ashlar_torch_alloc(size_t bytes, int device, ashlar_stream stream);
ASHLAR_API void *ashlar_torch_alloc_or_throw(size_t bytes, int device, ashlar_stream stream);

/*
 * Free a block on the stream that it was taken for, and those recorded since. NULL is allowed.
 * `bytes` and `stream` are those of the allocation as PyTorch remembers them; they are ignored.
 */
ASHLAR_API void ashlar_torch_free(void *ptr, size_t bytes, int device, ashlar_stream stream);

/* Work on `stream` uses the block, too: as ashlar_record_stream(). */
ASHLAR_API void ashlar_torch_record_stream(void *ptr, ashlar_stream stream);

/* torch.cuda.empty_cache(): wait for every device, and give what is free back to the driver. */
ASHLAR_API void ashlar_torch_reset(void);

/* torch.cuda.set_per_process_memory_fraction(): at most so much of the device's memory, 0 .. 1. */
ASHLAR_API void ashlar_torch_memory_fraction(double fraction, int device);

/*
 * PyTorch calls it before it captures a graph: throws a std::runtime_error. The arguments that
 * PyTorch passes are ignored. Threads: any.
 */
ASHLAR_API void ashlar_torch_refuse_graph(void);

/* The block that begins at `ptr`: `ptr` itself, and its size, 0 where there is none. */
ASHLAR_API void *ashlar_torch_base_alloc(void *ptr, size_t *bytes);

typedef struct ashlar_torch_bytes {
    uint64_t live, live_peak, reserved, reserved_peak;
} ashlar_torch_bytes;

/* Bytes of a device, as in ashlar_stats. Returns 0; or 1, and all are 0: it has no allocator yet.
 */
ASHLAR_API int ashlar_torch_memory(int device, ashlar_torch_bytes *out);

/* Why the calling thread's last failing call failed: ashlar_error_detail(). */
ASHLAR_API const char *ashlar_torch_error(void);

/*
 * For CuPy, by Python functions, which can raise what CuPy understands: 2 is
 * cudaErrorMemoryAllocation, at which a MemoryPool frees what it keeps and asks again.
 *
 *     lib = ctypes.CDLL("libashlar-torch.so")
 *     lib.ashlar_cupy_malloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
 *     lib.ashlar_cupy_free.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
 *     lib.ashlar_cupy_malloc.restype = ctypes.c_void_p
 *     def malloc(bytes, device):
 *         ptr = lib.ashlar_cupy_malloc(None, bytes, device) or 0
 *         if bytes and not ptr:
 *             raise cupy.cuda.runtime.CUDARuntimeError(2) # ashlar_torch_error() says more
 *         return ptr
 *     free = lambda ptr, device: lib.ashlar_cupy_free(None, ptr, device)
 *     ashlar = cupy.cuda.PythonFunctionAllocator(malloc, free)
 *     cupy.cuda.set_allocator(ashlar.malloc)
 *
 * Or directly, which is faster, but CuPy does not check for NULL then: an array lies at address 0,
 * and a MemoryPool frees nothing.
 *
 *     address = lambda f: ctypes.cast(f, ctypes.c_void_p).value
 *     ashlar = cupy.cuda.CFunctionAllocator(
 *         0, address(lib.ashlar_cupy_malloc), address(lib.ashlar_cupy_free), lib)
 *
 * stream   CuPy's `param`, the one stream that uses this allocator's memory, since CuPy does not
 *          say which does: as an integer, where 1 is the legacy default stream and 2 the thread's
 *          own. Freed blocks are reused on it at once. 0: any streams, as with cudaMalloc() and
 *          cudaFree(): freed blocks gather, and when a request finds no free memory, the host waits
 *          once for the device; not during a capture. With cupy.cuda.MemoryPool(ashlar.malloc)
 *          between, which knows CuPy's streams, it waits less often, but the pool keeps memory.
 *
 * NULL on failure.
 *
 * Threads: any.
 */
ASHLAR_API void *ashlar_cupy_malloc(void *stream, size_t bytes, int device);
ASHLAR_API void ashlar_cupy_free(void *stream, void *ptr, int device);

ASHLAR_END_DECLS

#endif /* ASHLAR_DROPIN_TORCH_H */
