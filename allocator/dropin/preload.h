/*
 * preload.h - what the files of libashlar-preload.so share (internal).
 *
 *   preload_find.c      how programs find the driver's functions, and ours for steps; how we find
 *                       the driver's
 *   preload_memory.c    requests for memory, served by us or by the driver
 *   preload_tell.c      what a program is told about pointers and memory pools
 *   preload_streams.c   streams, captures, contexts, waits
 *   preload_report.c    ASHLAR_PRELOAD, the report at the end, traces
 *
 * With LD_PRELOAD=libashlar-preload.so an unmodified program's device memory comes from us. We
 * replace functions of the driver, not of the CUDA runtime: any runtime, even one linked
 * statically, finds the driver by dlopen() and dlsym() or cuGetProcAddress(), and itself keeps
 * track of errors, current devices and contexts.
 *
 * ASHLAR_PRELOAD is a list of words, separated by commas:
 *   off      replace nothing
 *   on       the default
 *   report   a line on stderr at the end of the process, and one for each device not served
 *   trace=FILE
 *            a log in RMM's format of what we serve, written while the program runs; if FILE ends
 *            in .json, a snapshot at the end instead
 *   ipc      leave allocations that name no stream to the driver, so that cuIpcGetMemHandle() can
 *            export them
 *
 * A program that knows of us may look up functions of ashlar by dlsym(RTLD_DEFAULT, ...), to have
 * steps (plan.h); preload_find.c lists them. They are not exported, so that a program that is
 * linked with ashlar itself has its own copy's functions wherever it names them, and by dlsym().
 * Neither copy's functions must get allocators of the other.
 *
 * ASHLAR_CONF has the allocators' options. With ASHLAR_DEVICE=soft nothing is replaced, since the
 * program's driver knows no software device.
 *
 * If several libraries in LD_PRELOAD have a dlsym(), name this one first. We find the functions
 * that we call by the next library's dlsym(), so that it can intercept our calls as it would the
 * program's. A library loaded with RTLD_DEEPBIND finds libcuda before us, and so must not free what
 * the rest of the program allocated.
 *
 * Each context that the program makes has its own allocator until the context ends. The driver
 * serves: green contexts, managed and host memory, memory pools that a program makes,
 * allocations in a capture, and every pointer that is not ours. If the driver lacks memory for
 * these, or for contexts, graphs and code, we return idle memory of that device to it, of whatever
 * context, and call it again (preload_memory.c). After cudaDeviceReset() the driver
 * serves the whole device.
 *
 * All functions that describe a pointer describe our blocks as CUDA describes memory from
 * cuMemAllocAsync(): a block is an allocation, which cannot be exported and has no handle. An
 * address of ours outside all live blocks is no device memory. CUDA's own answers would describe
 * the mapping that the block is cut from.
 *
 * cuCtxEnablePeerAccess() does not reach our memory, which is mapped by the virtual memory
 * functions, but other devices can use it all the same, unless ASHLAR_PEERS=off.
 */
#ifndef ASHLAR_DROPIN_PRELOAD_H
#define ASHLAR_DROPIN_PRELOAD_H

#include <limits.h>

#include <ashlar/base.h>

#include "allocator/base/compiler.h"
#include "allocator/dropin/frees.h"

typedef struct cu_green_context_opaque *cu_green_context;

/* Columns of the maps below: exported name; name and first version for cuGetProcAddress(); whether
 * it is the per-thread default stream's variant; parameters; arguments. */

/* Functions for which the driver takes an unknown amount of the current device's memory. */
#define ASHLAR_PRELOAD_TAKING_MAP(X)                                                               \
    X(cuGraphInstantiate_v2, cuGraphInstantiate, 11000, 0,                                         \
      (cu_graph_exec * exec, cu_graph graph, void **node, char *log, size_t log_bytes),            \
      (exec, graph, node, log, log_bytes))                                                         \
    X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040, 0,                          \
      (cu_graph_exec * exec, cu_graph graph, unsigned long long flags), (exec, graph, flags))      \
    X(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, 12000, 0,                        \
      (cu_graph_exec * exec, cu_graph graph, void *params), (exec, graph, params))                 \
    X(cuGraphInstantiateWithParams_ptsz, cuGraphInstantiateWithParams, 12000, 1,                   \
      (cu_graph_exec * exec, cu_graph graph, void *params), (exec, graph, params))                 \
    X(cuGraphUpload, cuGraphUpload, 11010, 0, (cu_graph_exec exec, cu_stream stream),              \
      (exec, stream))                                                                              \
    X(cuGraphUpload_ptsz, cuGraphUpload, 11010, 1, (cu_graph_exec exec, cu_stream stream),         \
      (exec, stream))                                                                              \
    X(cuGraphLaunch, cuGraphLaunch, 10000, 0, (cu_graph_exec exec, cu_stream stream),              \
      (exec, stream))                                                                              \
    X(cuGraphLaunch_ptsz, cuGraphLaunch, 10000, 1, (cu_graph_exec exec, cu_stream stream),         \
      (exec, stream))                                                                              \
    X(cuModuleLoad, cuModuleLoad, 2000, 0, (cu_module * module, const char *path), (module, path)) \
    X(cuModuleLoadData, cuModuleLoadData, 2000, 0, (cu_module * module, const void *image),        \
      (module, image))                                                                             \
    X(cuModuleLoadDataEx, cuModuleLoadDataEx, 2010, 0,                                             \
      (cu_module * module, const void *image, unsigned int count, unsigned int *options,           \
       void **values),                                                                             \
      (module, image, count, options, values))                                                     \
    X(cuModuleLoadFatBinary, cuModuleLoadFatBinary, 2000, 0,                                       \
      (cu_module * module, const void *image), (module, image))

/* Functions that begin a capture of `stream`; below, those that make a `context` of `device`. */
#define ASHLAR_PRELOAD_CAPTURE_MAP(X)                                                          \
    X(cuStreamBeginCapture, cuStreamBeginCapture, 10000, 0, (cu_stream stream), (stream))      \
    X(cuStreamBeginCapture_ptsz, cuStreamBeginCapture, 10000, 1, (cu_stream stream), (stream)) \
    X(cuStreamBeginCapture_v2, cuStreamBeginCapture, 10010, 0,                                 \
      (cu_stream stream, unsigned int mode), (stream, mode))                                   \
    X(cuStreamBeginCapture_v2_ptsz, cuStreamBeginCapture, 10010, 1,                            \
      (cu_stream stream, unsigned int mode), (stream, mode))                                   \
    X(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, 12030, 0,                      \
      (cu_stream stream, cu_graph graph, const void *nodes, const void *edges, size_t count,   \
       unsigned int mode),                                                                     \
      (stream, graph, nodes, edges, count, mode))                                              \
    X(cuStreamBeginCaptureToGraph_ptsz, cuStreamBeginCaptureToGraph, 12030, 1,                 \
      (cu_stream stream, cu_graph graph, const void *nodes, const void *edges, size_t count,   \
       unsigned int mode),                                                                     \
      (stream, graph, nodes, edges, count, mode))

#define ASHLAR_PRELOAD_CONTEXT_MAP(X)                                                            \
    X(cuCtxCreate_v2, cuCtxCreate, 3020, 0,                                                      \
      (cu_context * context, unsigned int flags, cu_device device), (context, flags, device))    \
    X(cuCtxCreate_v3, cuCtxCreate, 11040, 0,                                                     \
      (cu_context * context, void *affinities, int count, unsigned int flags, cu_device device), \
      (context, affinities, count, flags, device))                                               \
    X(cuCtxCreate_v4, cuCtxCreate, 12050, 0,                                                     \
      (cu_context * context, void *parameters, unsigned int flags, cu_device device),            \
      (context, parameters, flags, device))

/* All functions that we replace. */
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
    X(cuPointerGetAttribute, cuPointerGetAttribute, 4000, 0,                                       \
      (void *data, unsigned int attribute, cu_ptr ptr), (data, attribute, ptr))                    \
    X(cuPointerGetAttributes, cuPointerGetAttributes, 7000, 0,                                     \
      (unsigned int count, unsigned int *attributes, void **data, cu_ptr ptr),                     \
      (count, attributes, data, ptr))                                                              \
    X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, 0,                          \
      (cu_mem_handle * handle, void *ptr), (handle, ptr))                                          \
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
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, 0,                                 \
      (cu_context * context, cu_device device), (context, device))                                 \
    X(cuArrayCreate_v2, cuArrayCreate, 3020, 0, (void **array, const void *shape), (array, shape)) \
    X(cuArray3DCreate_v2, cuArray3DCreate, 3020, 0, (void **array, const void *shape),             \
      (array, shape))                                                                              \
    X(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, 0,                                     \
      (void **array, const void *shape, unsigned int levels), (array, shape, levels))              \
    X(cuDeviceSetMemPool, cuDeviceSetMemPool, 11020, 0, (cu_device device, void *pool),            \
      (device, pool))                                                                              \
    X(cuMemSetMemPool, cuMemSetMemPool, 13000, 0,                                                  \
      (cu_mem_location * location, unsigned int type, void *pool), (location, type, pool))         \
    X(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, 0, (void *pool, size_t kept_bytes),                 \
      (pool, kept_bytes))                                                                          \
    X(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020, 0,                                      \
      (void *pool, unsigned int attribute, void *value), (pool, attribute, value))                 \
    X(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020, 0,                                      \
      (void *pool, unsigned int attribute, void *value), (pool, attribute, value))                 \
    X(cuStreamCreate, cuStreamCreate, 2000, 0, (cu_stream * stream, unsigned int flags),           \
      (stream, flags))                                                                             \
    X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, 5050, 0,                             \
      (cu_stream * stream, unsigned int flags, int priority), (stream, flags, priority))           \
    X(cuGreenCtxStreamCreate, cuGreenCtxStreamCreate, 12050, 0,                                    \
      (cu_stream * stream, cu_green_context context, unsigned int flags, int priority),            \
      (stream, context, flags, priority))                                                          \
    X(cuStreamDestroy_v2, cuStreamDestroy, 4000, 0, (cu_stream stream), (stream))                  \
    X(cuStreamEndCapture, cuStreamEndCapture, 10000, 0, (cu_stream stream, cu_graph * graph),      \
      (stream, graph))                                                                             \
    X(cuStreamEndCapture_ptsz, cuStreamEndCapture, 10000, 1, (cu_stream stream, cu_graph * graph), \
      (stream, graph))                                                                             \
    X(cuCtxSynchronize, cuCtxSynchronize, 2000, 0, (void), ())                                     \
    X(cuCtxSynchronize_v2, cuCtxSynchronize, 13000, 0, (cu_context context), (context))            \
    X(cuCtxDestroy_v2, cuCtxDestroy, 4000, 0, (cu_context context), (context))                     \
    X(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 7000, 0, (cu_device device), (device))  \
    X(cuGetProcAddress_v2, cuGetProcAddress, 12000, 0,                                             \
      (const char *symbol, void **address, int version, unsigned long long flags,                  \
       unsigned int *found),                                                                       \
      (symbol, address, version, flags, found))                                                    \
    X(cuGetProcAddress, cuGetProcAddress, 11030, 0,                                                \
      (const char *symbol, void **address, int version, unsigned long long flags),                 \
      (symbol, address, version, flags))                                                           \
    ASHLAR_PRELOAD_TAKING_MAP(X)                                                                   \
    ASHLAR_PRELOAD_CAPTURE_MAP(X)                                                                  \
    ASHLAR_PRELOAD_CONTEXT_MAP(X)

/* Further driver functions that we call. */
#define ASHLAR_PRELOAD_NEEDED_MAP(X)                                               \
    X(cuCtxGetCurrent, (cu_context * context), (context))                          \
    X(cuCtxGetDevice, (cu_device * device), (device))                              \
    X(cuDeviceGetDefaultMemPool, (void **pool, cu_device device), (pool, device))  \
    X(cuStreamGetCtx, (cu_stream stream, cu_context * context), (stream, context)) \
    X(cuStreamIsCapturing, (cu_stream stream, unsigned int *status), (stream, status))

/* Our functions, which are exported. */
#define X(name, symbol, version, is_ptsz, params, args) ASHLAR_API cu_result name params;
ASHLAR_PRELOAD_MAP(X)
#undef X

/* The driver's functions. CU_NOT_SUPPORTED: there is no driver, or it lacks the function. */
#define X(name, symbol, version, is_ptsz, params, args) cu_result ashlar__real_##name params;
ASHLAR_PRELOAD_MAP(X)
#undef X
#define X(name, params, args) cu_result ashlar__real_##name params;
ASHLAR_PRELOAD_NEEDED_MAP(X)
#undef X

/* ---- which calls to serve ---- */

/*
 * Begin to serve a call. False: pass it to the driver, because ASHLAR_PRELOAD is off or the call is
 * our own. We call the allocator only between begin and end.
 */
bool ashlar__preload_begin(void);
void ashlar__preload_end(void);

/*
 * The ashlar_frees that serves the calling thread's current context. NULL: the driver serves it,
 * since the context is neither a primary one nor made by the program. Call this between begin and
 * end.
 */
ashlar_frees *ashlar__preload_here(void);

/* In functions whose names end in _ptsz, NULL is the per-thread default stream. */
static inline cu_stream ashlar__preload_per_thread(cu_stream stream) {
    return stream == NULL ? (cu_stream)(uintptr_t)CU_STREAM_PER_THREAD : stream;
}

/* Note a new stream that may use our memory but that no ashlar_frees knows. */
void ashlar__preload_note_missed_stream(void);

/* Note that a device is left to the driver, because its allocator could not be made;
 * ashlar_error_detail() says why. */
void ashlar__preload_note_refusal(void);

/* Whether a pool's memory is ours, which is so for the device's default pool. `pool` NULL: the pool
 * from which cuMemAllocAsync() takes. */
bool ashlar__preload_is_default_pool(const ashlar_frees *frees, const void *pool);

/* Call this after the program has waited for the device. Like CUDA for its memory pools, it gives
 * back what exceeds the release threshold. Ours is unlimited until the program sets one. */
void ashlar__preload_keep_to_threshold(ashlar_frees *frees);

/*
 * After a call by which the driver takes memory of a device, and which returned `result`: if it
 * lacked memory, give idle memory of ours back, with a wait if need be. Returns whether any was
 * given back, so that the call is worth another attempt.
 *
 * device   ASHLAR_PRELOAD_CURRENT: that of the current context
 * bytes    that the call needs; SIZE_MAX: unknown, then all that is idle goes back
 */
enum { ASHLAR_PRELOAD_CURRENT = -1 };
bool ashlar__preload_has_room(cu_result result, cu_device device, size_t bytes);

/* Make such a call, once more each time that memory was given back. */
#define ASHLAR_PRELOAD_WITH_ROOM(result, device, bytes, name, args) \
    do {                                                            \
        (result) = ashlar__real_##name args;                        \
    } while (ashlar__preload_has_room((result), (device), (bytes)))

/* Note that a call for memory was passed on to the driver. */
void ashlar__preload_note_passed(void);

/* Note that the program tried to export our memory. */
void ashlar__preload_note_unexported(void);

/* ---- options ---- */

typedef struct ashlar_preload_options {
    bool is_off;
    bool reports;
    bool leaves_plain; /* "ipc": allocations that name no stream are left to the driver */
    char trace[PATH_MAX]; /* FILE of "trace=FILE"; "": no trace */
} ashlar_preload_options;

/* The words of ASHLAR_PRELOAD, read at the first call. Threads: any. */
const ashlar_preload_options *ashlar__preload_options_get(void);

/* Call this before a device or context ends: adds it to the report's totals, and ends its trace. */
void ashlar__preload_note_end(const ashlar_frees *frees);

#endif /* ASHLAR_DROPIN_PRELOAD_H */
