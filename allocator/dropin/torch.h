/*
 * torch.h - what libashlar-torch.so exports: functions that PyTorch's CUDAPluggableAllocator and
 * CuPy's CFunctionAllocator find by name and call.
 *
 * A stream is a cudaStream_t, a device an ordinal of the CUDA runtime. The allocators are those of
 * devices.h, so PyTorch and CuPy share memory within a process. No function prints, except with
 * ASHLAR_REPORT=on, or what leaks=on and guard=fill in ASHLAR_CONF find. None changes the calling
 * thread's current device. In a forked child, requests fail and frees are ignored.
 *
 * For PyTorch call them through ashlar_torch.py, which is installed with the library
 * (docs/under-other-programs.md). Whoever passes them otherwise must not leave out
 * set_record_stream_fn: without it a tensor's memory may be reused too early. Nor may anybody
 * capture a graph without the functions for it (set_begin_allocate_to_pool,
 * set_end_allocate_to_pool_fn, set_release_pool): the graph's memory would be reused while it can
 * still be launched.
 *
 * In a MemPool (ashlar_torch.pool()) PyTorch's own allocator takes memory from ashlar, and divides
 * it; run a step that fills PyTorch's pool before a capture. What such a pool frees goes back to
 * the driver at once, for PyTorch's own allocator: keeping it for the next time is the pool's
 * affair.
 *
 * PyTorch's own streams live as long as the process. Before an external one (ExternalStream) is
 * destroyed, call ashlar_torch_forget_stream().
 */
#ifndef ASHLAR_DROPIN_TORCH_H
#define ASHLAR_DROPIN_TORCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/allocator.h>
#include <ashlar/base.h>

/*
 * The C++ types in PyTorch's interface, as C structures: the layouts of the Itanium C++ ABI and of
 * libstdc++, which all builds of PyTorch for Linux use. tests/dropin/catch.cpp compares them with a
 * C++ compiler's. No C++ library is linked: its functions are found in the one that the process has
 * loaded.
 */

/* std::pair<unsigned long long, unsigned long long>, passed by value as such a structure. */
typedef struct ashlar_torch_pool_id {
    uint64_t first, second;
} ashlar_torch_pool_id;

/* std::function<bool(cudaStream_t)>, passed by reference to a copy that ends with the call. */
typedef struct ashlar_torch_filter ashlar_torch_filter;
struct ashlar_torch_filter {
    void *functor[2];
    bool (*manage)(void *to, const void *from, int operation); /* NULL: an empty function */
    bool (*invoke)(const void *functor, ashlar_stream *stream);
};

ASHLAR_BEGIN_DECLS

/*
 * A block for work on `stream`; NULL for 0 bytes, which is no failure.
 *
 * ashlar_torch_alloc            For use in a MemPool: returns NULL on failure; then PyTorch frees
 *                               what it can, and asks again.
 * ashlar_torch_alloc_or_throw   For use as the allocator of the whole process, where PyTorch would
 *                               take NULL for an address. Throws torch.OutOfMemoryError when memory
 *                               runs out; for other failures, and in a process without
 *                               libc10_cuda.so, std::runtime_error. Returns NULL on failure only if
 *                               libstdc++ is not loaded.
 *
 * Threads: any.  Cost: that of ashlar_alloc().
 */
ASHLAR_API void *ashlar_torch_alloc(size_t bytes, int device, ashlar_stream stream);
ASHLAR_API void *ashlar_torch_alloc_or_throw(size_t bytes, int device, ashlar_stream stream);

/* Free a block in the order of the stream that allocated it and of the streams recorded since by
 * ashlar_torch_record_stream(). NULL is allowed. `bytes` and `stream` are those of the allocation
 * as PyTorch remembers them; they are ignored. */
ASHLAR_API void ashlar_torch_free(void *ptr, size_t bytes, int device, ashlar_stream stream);

/* Like ashlar_torch_free(), for use in a MemPool: waits for the device, as cudaFree() does, and
 * gives its idle memory back to the driver; during a capture, without a wait, only a part of it. */
ASHLAR_API void ashlar_torch_free_to_driver(void *ptr, size_t bytes, int device,
                                            ashlar_stream stream);

/* Work on `stream` uses the block, too: as ashlar_record_stream(). */
ASHLAR_API void ashlar_torch_record_stream(void *ptr, ashlar_stream stream);

/* Call this before destroying a stream that the program has made, behind the stream's last work: as
 * ashlar_allocator_forget_stream(). Threads: any. */
ASHLAR_API void ashlar_torch_forget_stream(ashlar_stream stream);

/* torch.cuda.empty_cache(): wait for every device, and give all free memory back to the driver. */
ASHLAR_API void ashlar_torch_reset(void);

/* torch.cuda.set_per_process_memory_fraction(): limit the allocator to `fraction` (0 .. 1) of the
 * device's memory. */
ASHLAR_API void ashlar_torch_memory_fraction(double fraction, int device);

/*
 * Graphs. What is allocated for a stream of a capture comes from memory that nobody else gets while
 * the graph can be launched. Graphs that were captured with the same pool share it, as in PyTorch:
 * no two of them may run at a time. Memory of a graph that is gone can be reused after
 * ashlar_torch_reset(), or when a request would otherwise fail for want of memory; in both cases
 * not while a capture is under way.
 *
 * id       PyTorch's MempoolId_t
 * filter   PyTorch's std::function<bool(cudaStream_t)>; copied
 *
 * Before 2.14 PyTorch reports no release of a capture that has failed: its memory stays.
 *
 * ashlar_torch_begin_graph() throws a std::runtime_error where it fails.
 *
 * Threads: any.
 */
ASHLAR_API void ashlar_torch_begin_graph(signed char device, ashlar_torch_pool_id id,
                                         const ashlar_torch_filter *filter);
ASHLAR_API void ashlar_torch_end_graph(signed char device, ashlar_torch_pool_id id);
ASHLAR_API void ashlar_torch_release_graph(signed char device, ashlar_torch_pool_id id);

/* Returns `ptr`. *bytes gets the size of the live block that begins there, 0 if there is none. */
ASHLAR_API void *ashlar_torch_base_alloc(void *ptr, size_t *bytes);

typedef struct ashlar_torch_stats {
    uint64_t live, live_peak, reserved, reserved_peak; /* bytes */
    uint64_t live_blocks, alloc_count, free_count;     /* blocks */
    uint64_t mapped_count;                             /* allocations that took new memory */
    uint64_t retry_count;  /* allocations that had to empty caches, or to wait for the device */
    uint64_t wait_count;   /* allocations that had to wait for the device */
    uint64_t failed_count; /* requests that failed for want of memory */
} ashlar_torch_stats;

/* Statistics of a device, from ashlar_stats. Returns 0, or 1 if the device has no allocator yet;
 * then all fields are 0. Threads: any. */
ASHLAR_API int ashlar_torch_get_stats(int device, ashlar_torch_stats *out);

/* As ashlar_allocator_reset_peaks(). Threads: any. */
ASHLAR_API void ashlar_torch_reset_peaks(int device);

/* Why the calling thread's last failing call failed: ashlar_error_detail(). */
ASHLAR_API const char *ashlar_torch_error(void);

/*
 * For CuPy, through Python functions, which can raise the exception that CuPy expects. Error 2 is
 * cudaErrorMemoryAllocation: on it, a MemoryPool frees the memory it keeps and asks again.
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
 * A CFunctionAllocator is faster, but then CuPy does not check for NULL.
 *
 * stream   CuPy's `param`. CuPy does not say which stream uses a block, so this is the only stream
 *          that may use the allocator's memory, as an integer: 1 is the legacy default stream, 2
 *          the calling thread's own. Freed blocks are reused on it at once. 0: any stream may use
 *          the memory, as with cudaMalloc() and cudaFree(). Then freed blocks gather, and when a
 *          request finds no free memory, the host waits once for the device, but not during a
 *          capture. With cupy.cuda.MemoryPool(ashlar.malloc) on top, which knows CuPy's streams,
 *          the host waits less often, but the pool keeps memory.
 *
 * NULL on failure.
 *
 * Threads: any.
 */
ASHLAR_API void *ashlar_cupy_malloc(void *stream, size_t bytes, int device);
ASHLAR_API void ashlar_cupy_free(void *stream, void *ptr, int device);

ASHLAR_END_DECLS

/* ---- internal ---- */

/* Copy a filter to *to. Destroy the copy by ashlar__torch_filter_end(). */
void ashlar__torch_filter_copy(ashlar_torch_filter *to, const ashlar_torch_filter *from);
void ashlar__torch_filter_end(ashlar_torch_filter *filter);
bool ashlar__torch_filter_accepts(const ashlar_torch_filter *filter, ashlar_stream stream);

/*
 * _throw: throw a std::runtime_error. _throw_out_of_memory: throw torch.OutOfMemoryError
 * (c10::OutOfMemoryError, or a std::runtime_error in a process without that). They return only
 * where the process has not loaded libstdc++, so nobody could catch the exception. Nothing is
 * cleaned up on the way out, so callers must hold nothing.
 *
 * text   copied
 */
void ashlar__throw(const char *text);
void ashlar__throw_out_of_memory(const char *text);

extern _Atomic size_t ashlar__torch_capture_count; /* captures that PyTorch has begun and not
                                                    * ended */

/*
 * From now on, memory for streams that `filter` accepts comes from the graph pools of `id`. Ends a
 * capture of the same id that is still under way.
 *
 * filter   copied
 *
 * Errors: ASHLAR_EHOSTMEM, those of ashlar__dropin_allocator().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__torch_capture_begin(int device, ashlar_torch_pool_id id,
                                                            const ashlar_torch_filter *filter);

/* Call this before taking memory for `stream`: if the stream belongs to a capture, it then gets the
 * capture's. Errors: those of ashlar_graph_pool_begin(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__torch_capture_enter_slow(int device, ashlar_stream stream);

static inline ashlar_status ashlar__torch_capture_enter(int ordinal, ashlar_stream stream) {
    return atomic_load_explicit(&ashlar__torch_capture_count, memory_order_acquire) == 0
               ? ASHLAR_OK
               : ashlar__torch_capture_enter_slow(ordinal, stream);
}

/* Wait for the device, and give the memory of graphs that are gone to the default stream. False:
 * there is none, or a capture is under way, or the wait failed. */
bool ashlar__torch_graphs_give_back(ashlar_allocator *allocator, int device);

#endif /* ASHLAR_DROPIN_TORCH_H */
