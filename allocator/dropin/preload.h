/*
 * preload.h - what the files of libashlar-preload.so share (internal).
 *
 *   preload_find.c      how programs come to the driver's functions, and the driver's own
 *   preload_memory.c    memory
 *   preload_others.c    memory that is the driver's
 *   preload_streams.c   streams, captures, contexts, waits
 *   preload_options.c   ASHLAR_PRELOAD, and the report at the end
 *
 * LD_PRELOAD=libashlar-preload.so has an unmodified program's device memory come from here. It is
 * the driver that is stood in for, not the CUDA runtime: whichever runtime the program has, linked
 * statically or not, finds its driver by dlopen() and dlsym() or cuGetProcAddress(), and keeps its
 * errors, current devices and contexts itself.
 *
 * ASHLAR_PRELOAD is a list of words, separated by commas:
 *   off      nothing is stood in for
 *   on       as without it
 *   report   one line on stderr when the process ends, and one if a device cannot be served
 *   unsafe   for tests: memory is given out again at once, which cudaFree() does not promise
 * ASHLAR_CONF has the allocators' options. With ASHLAR_DEVICE=soft nothing is stood in for: the
 * program's driver knows no software device. Where the library is one of several in LD_PRELOAD that
 * have a dlsym(), it is to be the first.
 *
 * Each context that the program makes has an allocator of its own, to its end. What passes on to
 * the driver: memory of contexts that were made in other ways (green contexts), managed and host
 * memory, memory pools that a program names or sets, allocations in a capture, and every
 * pointer that is not ours. Where the driver then has too little, because it is kept here, all that
 * is free goes back to it and it is asked again. After cudaDeviceReset() the driver has the device
 * to itself.
 *
 * Our memory is mapped by the virtual memory functions. So cuIpcGetMemHandle() refuses it (also
 * with ASHLAR_CONF=vmm=off, where it would name the whole segment), and cuCtxEnablePeerAccess()
 * does not reach it: other devices can use it without, unless ASHLAR_PEERS=off.
 */
#ifndef ASHLAR_DROPIN_PRELOAD_H
#define ASHLAR_DROPIN_PRELOAD_H

#include <ashlar/export.h>

#include "allocator/dropin/frees.h"

typedef struct cu_green_context_opaque *cu_green_context;

/*
 * Each function that is stood in for: the driver's exported name, the name and the first version
 * that cuGetProcAddress() has it by, whether it is the one for per-thread default streams,
 * parameters, arguments.
 */
#define ASHLAR_PRELOAD_MAP(X)                                                                      \
    X(cuMemAlloc_v2, cuMemAlloc, 3020, 0, (cu_ptr * ptr, size_t bytes), (ptr, bytes))              \
    X(cuMemFree_v2, cuMemFree, 3020, 0, (cu_ptr ptr), (ptr))                                       \
    X(cuMemAllocPitch_v2, cuMemAllocPitch, 3020, 0,                                                \
      (cu_ptr * ptr, size_t * pitch, size_t width, size_t height, unsigned int element),           \
      (ptr, pitch, width, height, element))                                                        \
    X(cuMemGetInfo_v2, cuMemGetInfo, 3020, 0, (size_t * free_bytes, size_t * total_bytes),         \
      (free_bytes, total_bytes))                                                                   \
    X(cuMemGetAddressRange_v2, cuMemGetAddressRange, 3020, 0,                                      \
      (cu_ptr * base, size_t * bytes, cu_ptr ptr), (base, bytes, ptr))                             \
    X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, 0, (void *handle, cu_ptr ptr), (handle, ptr))    \
    X(cuMemAllocAsync, cuMemAllocAsync, 11020, 0, (cu_ptr * ptr, size_t bytes, cu_stream stream),  \
      (ptr, bytes, stream))                                                                        \
    X(cuMemAllocAsync_ptsz, cuMemAllocAsync, 11020, 1,                                             \
      (cu_ptr * ptr, size_t bytes, cu_stream stream), (ptr, bytes, stream))                        \
    X(cuMemFreeAsync, cuMemFreeAsync, 11020, 0, (cu_ptr ptr, cu_stream stream), (ptr, stream))     \
    X(cuMemFreeAsync_ptsz, cuMemFreeAsync, 11020, 1, (cu_ptr ptr, cu_stream stream),               \
      (ptr, stream))                                                                               \
    X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, 0,                                  \
      (cu_ptr * ptr, size_t bytes, void *pool, cu_stream stream), (ptr, bytes, pool, stream))      \
    X(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync, 11020, 1,                             \
      (cu_ptr * ptr, size_t bytes, void *pool, cu_stream stream), (ptr, bytes, pool, stream))      \
    X(cuMemAllocManaged, cuMemAllocManaged, 6000, 0,                                               \
      (cu_ptr * ptr, size_t bytes, unsigned int flags), (ptr, bytes, flags))                       \
    X(cuMemCreate, cuMemCreate, 10020, 0,                                                          \
      (cu_mem_handle * handle, size_t bytes, const cu_mem_prop *prop, unsigned long long flags),   \
      (handle, bytes, prop, flags))                                                                \
    X(cuArrayCreate_v2, cuArrayCreate, 3020, 0, (void **array, const void *shape), (array, shape)) \
    X(cuArray3DCreate_v2, cuArray3DCreate, 3020, 0, (void **array, const void *shape),             \
      (array, shape))                                                                              \
    X(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, 0,                                     \
      (void **array, const void *shape, unsigned int levels), (array, shape, levels))              \
    X(cuDeviceSetMemPool, cuDeviceSetMemPool, 11020, 0, (cu_device device, void *pool),            \
      (device, pool))                                                                              \
    X(cuStreamCreate, cuStreamCreate, 2000, 0, (cu_stream * stream, unsigned int flags),           \
      (stream, flags))                                                                             \
    X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, 5050, 0,                             \
      (cu_stream * stream, unsigned int flags, int priority), (stream, flags, priority))           \
    X(cuGreenCtxStreamCreate, cuGreenCtxStreamCreate, 12050, 0,                                    \
      (cu_stream * stream, cu_green_context context, unsigned int flags, int priority),            \
      (stream, context, flags, priority))                                                          \
    X(cuStreamDestroy_v2, cuStreamDestroy, 4000, 0, (cu_stream stream), (stream))                  \
    X(cuStreamBeginCapture_v2, cuStreamBeginCapture, 10010, 0,                                     \
      (cu_stream stream, unsigned int mode), (stream, mode))                                       \
    X(cuStreamBeginCapture_v2_ptsz, cuStreamBeginCapture, 10010, 1,                                \
      (cu_stream stream, unsigned int mode), (stream, mode))                                       \
    X(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, 12030, 0,                          \
      (cu_stream stream, cu_graph graph, const void *nodes, const void *edges, size_t count,       \
       unsigned int mode),                                                                         \
      (stream, graph, nodes, edges, count, mode))                                                  \
    X(cuStreamBeginCaptureToGraph_ptsz, cuStreamBeginCaptureToGraph, 12030, 1,                     \
      (cu_stream stream, cu_graph graph, const void *nodes, const void *edges, size_t count,       \
       unsigned int mode),                                                                         \
      (stream, graph, nodes, edges, count, mode))                                                  \
    X(cuStreamEndCapture, cuStreamEndCapture, 10000, 0, (cu_stream stream, cu_graph * graph),      \
      (stream, graph))                                                                             \
    X(cuStreamEndCapture_ptsz, cuStreamEndCapture, 10000, 1, (cu_stream stream, cu_graph * graph), \
      (stream, graph))                                                                             \
    X(cuCtxSynchronize, cuCtxSynchronize, 2000, 0, (void), ())                                     \
    X(cuCtxCreate_v2, cuCtxCreate, 3020, 0,                                                        \
      (cu_context * context, unsigned int flags, cu_device device), (context, flags, device))      \
    X(cuCtxCreate_v3, cuCtxCreate, 11040, 0,                                                       \
      (cu_context * context, void *affinities, int count, unsigned int flags, cu_device device),   \
      (context, affinities, count, flags, device))                                                 \
    X(cuCtxCreate_v4, cuCtxCreate, 12050, 0,                                                       \
      (cu_context * context, void *parameters, unsigned int flags, cu_device device),              \
      (context, parameters, flags, device))                                                        \
    X(cuCtxDestroy_v2, cuCtxDestroy, 4000, 0, (cu_context context), (context))                     \
    X(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 7000, 0, (cu_device device), (device))  \
    X(cuGetProcAddress_v2, cuGetProcAddress, 12000, 0,                                             \
      (const char *symbol, void **address, int version, unsigned long long flags,                  \
       unsigned int *found),                                                                       \
      (symbol, address, version, flags, found))                                                    \
    X(cuGetProcAddress, cuGetProcAddress, 11030, 0,                                                \
      (const char *symbol, void **address, int version, unsigned long long flags),                 \
      (symbol, address, version, flags))

/* Further functions of the driver that are wanted here. */
#define ASHLAR_PRELOAD_NEEDED_MAP(X)                                               \
    X(cuCtxGetCurrent, (cu_context * context), (context))                          \
    X(cuCtxGetDevice, (cu_device * device), (device))                              \
    X(cuStreamGetCtx, (cu_stream stream, cu_context * context), (stream, context)) \
    X(cuStreamIsCapturing, (cu_stream stream, unsigned int *status), (stream, status))

/* The program's names: what is exported. */
#define X(name, symbol, version, is_ptsz, params, args) ASHLAR_API cu_result name params;
ASHLAR_PRELOAD_MAP(X)
#undef X

/* The driver's own: CU_NOT_SUPPORTED where it has none, or there is no driver. */
#define X(name, symbol, version, is_ptsz, params, args) cu_result ashlar__real_##name params;
ASHLAR_PRELOAD_MAP(X)
#undef X
#define X(name, params, args) cu_result ashlar__real_##name params;
ASHLAR_PRELOAD_NEEDED_MAP(X)
#undef X

/* ---- whose call it is ---- */

/*
 * Begin to serve a call; false: it is the driver's, since all of this is switched off, or the call
 * comes from within. Every call of the library stands between begin and end.
 */
bool ashlar__preload_begin(void);
void ashlar__preload_end(void);

/*
 * Between begin and end: of the calling thread's current context, if that is a device's primary one
 * or was made by the program; NULL: the driver's business.
 */
ashlar_frees *ashlar__preload_here(void);

/* There is a stream that may use memory of a device and has not been told to it. */
void ashlar__preload_note_missed_stream(void);

/* There is no allocator for a device, as ashlar_error_detail() says: its memory is the driver's. */
void ashlar__preload_note_refusal(void);

/* A call has gone on to the driver that took memory. */
void ashlar__preload_note_passed(void);

/* ---- options ---- */

typedef struct ashlar_preload_options {
    bool is_off;
    bool reports;
    bool is_unsafe;
} ashlar_preload_options;

/* Read at the first call. Threads: any. */
const ashlar_preload_options *ashlar__preload_options_get(void);

/* What a device or context that is about to be given up adds to the report. */
void ashlar__preload_add_to_report(const ashlar_frees *frees);

#endif /* ASHLAR_DROPIN_PRELOAD_H */
