/*
 * torch.h - what libashlar-torch.so exports: functions in the shapes that PyTorch's
 * CUDAPluggableAllocator and CuPy's CFunctionAllocator call, found there by name.
 *
 * A stream is a cudaStream_t, a device the ordinal of the CUDA runtime. The allocators are those of
 * devices.h, so that PyTorch and CuPy in one process share their memory. None of the functions
 * prints, unless ASHLAR_REPORT=on asks for it, none changes the calling thread's current device,
 * and in a forked child memory is refused and what comes back is ignored.
 *
 * PyTorch, one allocator for the whole process, set before its first use of CUDA:
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
 * Without set_record_stream_fn a tensor's record_stream() does nothing, and its memory may be given
 * out too early. What memory a captured graph keeps PyTorch tells by C++, not C: capturing is
 * refused, and must not be tried without set_begin_allocate_to_pool (an old PyTorch has it as
 * set_begin_allocate_stream_to_pool). What PyTorch asks of its own allocator alone (statistics,
 * snapshots, memory pools, sharing memory between processes) it refuses for every allocator of this
 * kind; ashlar_torch_memory() tells.
 *
 * PyTorch, for a part of the program; PyTorch's own allocator then carves what it takes from here,
 * and where it is captured, its pool should have been filled by a step before:
 *
 *     ashlar = CUDAPluggableAllocator("libashlar-torch.so", "ashlar_torch_alloc",
 *                                     "ashlar_torch_free")
 *     with torch.cuda.use_mem_pool(torch.cuda.MemPool(ashlar.allocator())): ...
 *
 * What such a pool gives back stays reserved here until ashlar_torch_reset(), which PyTorch calls
 * only for an allocator of the whole process.
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
 * ashlar_torch_alloc            NULL on failure: for a MemPool, where PyTorch then frees what it
 *                               can and asks again
 * ashlar_torch_alloc_or_throw   throws a std::runtime_error on failure: for the whole process,
 *                               where PyTorch would use NULL as it is. The text begins as that of
 *                               PyTorch's own error, "CUDA out of memory. Tried to allocate", where
 *                               memory was out; Python sees a RuntimeError. In a process without a
 *                               C++ library it is NULL.
 *
 * Threads: any.  Cost: that of ashlar_alloc().
 */
ASHLAR_API void *ashlar_torch_alloc(size_t bytes, int device, ashlar_stream stream);
ASHLAR_API void *ashlar_torch_alloc_or_throw(size_t bytes, int device, ashlar_stream stream);

/*
 * Give a block back to the stream that it was taken for; further ones were recorded before. NULL is
 * allowed. `bytes` and `stream` are what PyTorch remembers of the allocation, and not looked at.
 */
ASHLAR_API void ashlar_torch_free(void *ptr, size_t bytes, int device, ashlar_stream stream);

/* Work on `stream` uses the block, too: see ashlar_record_stream(). */
ASHLAR_API void ashlar_torch_record_stream(void *ptr, ashlar_stream stream);

/* torch.cuda.empty_cache(): wait for every device, and give what is free back to the driver. */
ASHLAR_API void ashlar_torch_reset(void);

/* torch.cuda.set_per_process_memory_fraction(): at most so much of the device's memory, 0 .. 1. */
ASHLAR_API void ashlar_torch_memory_fraction(double fraction, int device);

/*
 * PyTorch is about to capture a graph: throws a std::runtime_error. The parameters that it passes
 * are not looked at. Threads: any.
 */
ASHLAR_API void ashlar_torch_refuse_graph(void);

/* The block that begins at `ptr`: `ptr` itself, and its size, 0 where there is none. */
ASHLAR_API void *ashlar_torch_base_alloc(void *ptr, size_t *bytes);

/* Bytes of a device, as in ashlar_stats. 0, or 1 with all of it 0: nothing was allocated there. */
typedef struct ashlar_torch_bytes {
    uint64_t live, live_peak, reserved, reserved_peak;
} ashlar_torch_bytes;

ASHLAR_API int ashlar_torch_memory(int device, ashlar_torch_bytes *out);

/* Why the calling thread's last failing call failed: ashlar_error_detail(). */
ASHLAR_API const char *ashlar_torch_error(void);

/*
 * CuPy, by functions of Python, which can raise what CuPy understands: 2 is
 * cudaErrorMemoryAllocation, upon which a MemoryPool gives back what it keeps and asks again.
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
 * or directly, which is faster, but takes no notice of NULL: an array then lies at address 0, and
 * a MemoryPool gives nothing back.
 *
 *     address = lambda f: ctypes.cast(f, ctypes.c_void_p).value
 *     ashlar = cupy.cuda.CFunctionAllocator(
 *         0, address(lib.ashlar_cupy_malloc), address(lib.ashlar_cupy_free), lib)
 *
 * stream   what CuPy calls param, since it does not tell on which stream memory is used: the one
 *          stream of all memory of this allocator (as an integer; 1 is the legacy default stream,
 *          2 the thread's own), whose blocks it may have again at once. 0: any streams, as
 *          cudaMalloc and cudaFree do it: what is freed gathers, and when memory is wanted that is
 *          not free, the host waits once for the device, for all of it; not while something is
 *          captured. cupy.cuda.MemoryPool(ashlar.malloc).malloc between knows CuPy's streams and
 *          waits less, but keeps what it has.
 *
 * NULL on failure.
 *
 * Threads: any.
 */
ASHLAR_API void *ashlar_cupy_malloc(void *stream, size_t bytes, int device);
ASHLAR_API void ashlar_cupy_free(void *stream, void *ptr, int device);

ASHLAR_END_DECLS

#endif /* ASHLAR_DROPIN_TORCH_H */
