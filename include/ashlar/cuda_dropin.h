/*
 * cuda_dropin.h - a program's cudaMalloc() and cudaFree() become ashlar's, file by file:
 *
 *     #include <cuda_runtime.h>        // or cuda_runtime_api.h
 *     #include <ashlar/cuda_dropin.h>
 *
 * in C or C++; link with -lashlar. In the rest of the file cudaMalloc, cudaFree, cudaMallocAsync,
 * cudaFreeAsync, cudaMallocHost, cudaFreeHost, cudaMemGetInfo and cudaStreamDestroy are ashlar's,
 * with CUDA's parameters and result codes. Other files of the program may do without the include:
 * memory taken from CUDA may be freed in any file, but memory taken from ashlar must be freed in a
 * file with the include. An unmodified program uses libashlar-preload.so instead.
 *
 * cudaFree() promises that all work submitted before it, on any stream, is over when the memory is
 * used next. ashlar does not know the program's streams. So freed memory gathers; when a request
 * finds no other memory, the host waits for the device, once for all that has gathered (CUDA waits
 * at each free). cudaMallocAsync() and cudaFreeAsync() do not wait, except that the host waits in
 * the same way before memory freed on one stream first serves another. A stream may be destroyed
 * right after the call.
 *
 * Freed page-locked memory gathers in the same way. The wait is then for every device of the
 * process, since each may copy from and to that memory, but not for work in contexts other than the
 * primary ones. The memory is taken in pieces of 2 MiB or more; asked for the extent of a block,
 * CUDA reports the whole piece. cudaHostAlloc() stays CUDA's, and so does cudaMallocHost() with
 * flags in C++. A program that can name its streams waits less with ashlar_allocator_create_host().
 *
 * STEPS. A loop whose steps allocate alike calls the driver no more after its first steps (plan.h):
 *
 *     ashlar_allocator *memory = ashlar_cuda_allocator(0);
 *     ...
 *     ashlar_step_begin(memory, stream, 0);
 *     ...                                          a step, the one that needs most first
 *     ashlar_step_end(memory);
 *
 * Between the two, on the thread that calls them, cudaMalloc() means cudaMallocAsync() on `stream`,
 * and cudaFree() of such memory cudaFreeAsync(): the memory is for work on `stream`, and for work
 * that the program itself puts in order with it. That holds for cudaMemcpy(), too, which a
 * non-blocking stream does not wait for. Memory of a step that is freed outside of it, or by
 * another thread, keeps cudaFree()'s promise, for which the host may wait for the device; so does
 * memory from before the step that is freed in it. A nested step on another stream suspends all of
 * this until the outer one ends, and so does a capture that ashlar knows of. A dry run (plan.h)
 * may call both.
 *
 * Each device has an allocator in its primary context, with the options of ASHLAR_CONF in the
 * environment, from its first allocation to the end of the process: do not call cudaDeviceReset().
 * cudaMallocAsync() on a captured stream is left to CUDA; cudaMalloc() may not be called
 * while any stream is captured.
 */
#ifndef ASHLAR_CUDA_DROPIN_H
#define ASHLAR_CUDA_DROPIN_H

#if !defined(__CUDA_RUNTIME_API_H__)
#error "include cuda_runtime.h, or cuda_runtime_api.h, before ashlar/cuda_dropin.h"
#endif

#include <stddef.h>

#include <ashlar/allocator.h>
#include <ashlar/base.h>
#include <ashlar/device.h>

ASHLAR_BEGIN_DECLS

/* Whom the memory is for, and where it lies. */
typedef enum ashlar_cuda_kind {
    ASHLAR_CUDA_ALL_STREAMS, /* cudaMalloc() and cudaFree() */
    ASHLAR_CUDA_ONE_STREAM,  /* cudaMallocAsync() and cudaFreeAsync() */
    ASHLAR_CUDA_PAGE_LOCKED, /* cudaMallocHost() and cudaFreeHost() */
} ashlar_cuda_kind;

/*
 * The functions behind the replaced names. Each returns a cudaError_t, or ASHLAR_CUDA_ASK if the
 * caller must make CUDA's own call instead. The thread's last error is not changed.
 *
 * device   the device's ordinal in the CUDA runtime; page-locked memory is shared by all devices,
 *          and taken from CUDA through that of the first call
 * bytes    > 0
 * stream   of ASHLAR_CUDA_ONE_STREAM: a stream of the device; cudaStreamPerThread names the
 *          per-thread default stream
 *
 * Threads: any.
 */
enum { ASHLAR_CUDA_ASK = -1 };
ASHLAR_API int ashlar_cuda_malloc(ashlar_cuda_kind kind, int device, void **ptr, size_t bytes,
                                  ashlar_stream stream);
ASHLAR_API int ashlar_cuda_free(ashlar_cuda_kind kind, void *ptr, ashlar_stream stream);

/* Reserved bytes of the device that no block uses: a program may count them free. Threads: any. */
ASHLAR_API size_t ashlar_cuda_spare_bytes(int device);

/*
 * The allocator behind cudaMalloc() on a device, for steps, plans, options and statistics; made by
 * the first call for the device, as by a first cudaMalloc().
 *
 * By this call the program promises what NAMED STREAMS in allocator.h asks for: the stream of a
 * step, of cudaMallocAsync() or of cudaFreeAsync() stays alive until
 * ashlar_allocator_forget_stream(). cudaStreamDestroy() in a file with this header calls that;
 * elsewhere the program must. Without the promise streams are watched from the first
 * cudaMallocAsync() on that names one that may end, and steps have no plans.
 *
 * device   the device's ordinal in the CUDA runtime
 *
 * NULL: there is none, or streams are watched already; ashlar_error_detail() says why.
 *
 * Ownership: the allocator lives to the end of the process, and must not be destroyed.
 * Threads:   any.
 */
ASHLAR_API ashlar_allocator *ashlar_cuda_allocator(int device);

/* What cudaStreamDestroy() does first: ashlar_allocator_forget_stream() for each device. It always
 * succeeds; if no event can be recorded, memory last used on `stream` stays unused. Threads: any.
 */
ASHLAR_API void ashlar_cuda_end_stream(ashlar_stream stream);

ASHLAR_END_DECLS

/* More bytes than any device has, so that a request for them fails with out of memory. */
#define ASHLAR_CUDA_TOO_MUCH ((size_t)1 << 62)

/* The stream of calls that name none. */
#if defined(__cplusplus)
#define ASHLAR_CUDA_NO_STREAM nullptr
#else
#define ASHLAR_CUDA_NO_STREAM NULL
#endif

static inline cudaStream_t ashlar_cuda_stream(cudaStream_t stream) {
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM)
    return stream ? stream : cudaStreamPerThread;
#else
    return stream;
#endif
}

static inline int ashlar_cuda_is_captured(cudaStream_t stream) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
           status != cudaStreamCaptureStatusNone;
}

/* Make the runtime itself fail with out of memory, so that cudaGetLastError() reports it too;
 * return that error. */
static inline cudaError_t ashlar_cuda_no_memory(void) {
    void *none;
    return cudaMalloc(&none, ASHLAR_CUDA_TOO_MUCH);
}

/* cudaMalloc(&ptr, 0) is no error, and allocates nothing. */
static inline cudaError_t ashlar_cudaMalloc(void **ptr, size_t bytes) {
    int device = 0;
    int result = ASHLAR_CUDA_ASK;
    if (ptr && bytes != 0 && cudaGetDevice(&device) == cudaSuccess) {
        result =
            ashlar_cuda_malloc(ASHLAR_CUDA_ALL_STREAMS, device, ptr, bytes, ASHLAR_CUDA_NO_STREAM);
    }
    if (result == cudaErrorMemoryAllocation) {
        return ashlar_cuda_no_memory();
    }
    return result == ASHLAR_CUDA_ASK ? cudaMalloc(ptr, bytes) : (cudaError_t)result;
}

static inline cudaError_t ashlar_cudaFree(void *ptr) {
    const int result = ptr ? ashlar_cuda_free(ASHLAR_CUDA_ALL_STREAMS, ptr, ASHLAR_CUDA_NO_STREAM)
                           : ASHLAR_CUDA_ASK;
    if (result == cudaErrorInvalidValue) {
        return cudaFree((char *)ptr + 1); /* fails in the same way; with `ptr` itself CUDA might
                                           * free a segment */
    }
    return result == ASHLAR_CUDA_ASK ? cudaFree(ptr) : (cudaError_t)result;
}

static inline cudaError_t ashlar_cudaMallocAsync(void **ptr, size_t bytes, cudaStream_t stream) {
    int device = 0;
    int result = ASHLAR_CUDA_ASK;
    if (ptr && bytes != 0 && !ashlar_cuda_is_captured(stream) &&
        cudaGetDevice(&device) == cudaSuccess) {
        result = ashlar_cuda_malloc(ASHLAR_CUDA_ONE_STREAM, device, ptr, bytes,
                                    ashlar_cuda_stream(stream));
    }
    if (result == cudaErrorMemoryAllocation) {
        return ashlar_cuda_no_memory();
    }
    return result == ASHLAR_CUDA_ASK ? cudaMallocAsync(ptr, bytes, stream) : (cudaError_t)result;
}

static inline cudaError_t ashlar_cudaFreeAsync(void *ptr, cudaStream_t stream) {
    const int result =
        ptr && !ashlar_cuda_is_captured(stream)
            ? ashlar_cuda_free(ASHLAR_CUDA_ONE_STREAM, ptr, ashlar_cuda_stream(stream))
            : ASHLAR_CUDA_ASK;
    if (result == cudaErrorInvalidValue) {
        return cudaFreeAsync((char *)ptr + 1, stream);
    }
    return result == ASHLAR_CUDA_ASK ? cudaFreeAsync(ptr, stream) : (cudaError_t)result;
}

static inline cudaError_t ashlar_cudaStreamDestroy(cudaStream_t stream) {
    ashlar_cuda_end_stream(stream);
    return cudaStreamDestroy(stream);
}

static inline cudaError_t ashlar_cudaMallocHost(void **ptr, size_t bytes) {
    int device = 0;
    int result = ASHLAR_CUDA_ASK;
    if (ptr && bytes != 0 && cudaGetDevice(&device) == cudaSuccess) {
        result =
            ashlar_cuda_malloc(ASHLAR_CUDA_PAGE_LOCKED, device, ptr, bytes, ASHLAR_CUDA_NO_STREAM);
    }
    if (result == cudaErrorMemoryAllocation) {
        return ashlar_cuda_no_memory();
    }
    return result == ASHLAR_CUDA_ASK ? cudaMallocHost(ptr, bytes) : (cudaError_t)result;
}

static inline cudaError_t ashlar_cudaFreeHost(void *ptr) {
    const int result = ptr ? ashlar_cuda_free(ASHLAR_CUDA_PAGE_LOCKED, ptr, ASHLAR_CUDA_NO_STREAM)
                           : ASHLAR_CUDA_ASK;
    if (result == cudaErrorInvalidValue) {
        return cudaFreeHost((char *)ptr + 1);
    }
    return result == ASHLAR_CUDA_ASK ? cudaFreeHost(ptr) : (cudaError_t)result;
}

static inline cudaError_t ashlar_cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    int device = 0;
    size_t unasked;
    size_t *total = total_bytes ? total_bytes : &unasked; /* as in CUDA, either may be NULL */
    cudaError_t error = cudaMemGetInfo(free_bytes, total);
    if (error == cudaSuccess) {
        error = cudaGetDevice(&device);
    }
    if (error == cudaSuccess && free_bytes) {
        const size_t spare = ashlar_cuda_spare_bytes(device);
        const size_t room = *total - *free_bytes;
        *free_bytes += spare < room ? spare : room;
    }
    return error;
}

#if defined(__cplusplus)
/* The overloads for C++, like those of cuda_runtime.h. */
template <class T> static inline cudaError_t ashlar_cudaMalloc(T **ptr, size_t bytes) {
    return ashlar_cudaMalloc((void **)(void *)ptr, bytes);
}

template <class T>
static inline cudaError_t ashlar_cudaMallocAsync(T **ptr, size_t bytes, cudaStream_t stream) {
    return ashlar_cudaMallocAsync((void **)(void *)ptr, bytes, stream);
}

template <class T>
static inline cudaError_t ashlar_cudaMallocHost(T **ptr, size_t bytes, unsigned int flags = 0) {
    return flags == 0 ? ashlar_cudaMallocHost((void **)(void *)ptr, bytes)
                      : cudaHostAlloc((void **)(void *)ptr, bytes, flags);
}

/* Where the program names a memory pool of CUDA's, CUDA serves the request. */
template <class T>
static inline cudaError_t ashlar_cudaMallocAsync(T **ptr, size_t bytes, cudaMemPool_t pool,
                                                 cudaStream_t stream) {
    return cudaMallocFromPoolAsync((void **)(void *)ptr, bytes, pool, stream);
}
#endif

/* With per-thread default streams, the runtime's own header makes macros of these two. */
#undef cudaMallocAsync
#undef cudaFreeAsync
#define cudaMalloc ashlar_cudaMalloc
#define cudaFree ashlar_cudaFree
#define cudaMallocAsync ashlar_cudaMallocAsync
#define cudaFreeAsync ashlar_cudaFreeAsync
#define cudaMallocHost ashlar_cudaMallocHost
#define cudaFreeHost ashlar_cudaFreeHost
#define cudaMemGetInfo ashlar_cudaMemGetInfo
#define cudaStreamDestroy ashlar_cudaStreamDestroy

#endif /* ASHLAR_CUDA_DROPIN_H */
