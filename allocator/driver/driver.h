/*
 * driver.h - every call that ashlar makes to a device, as one table (internal).
 *
 * The table has the CUDA driver API's own signatures and result codes. It is filled by
 * driver_cuda.c (libcuda.so.1, found at run time) or by soft_device.c (the software device). Except
 * for the compute back ends, no code that uses the table knows which of the two filled it.
 *
 * All calls go through ASHLAR_DRIVER_CALL, which counts them and keeps them from invalidating
 * captures, and with which a test can make the n-th call of a function fail.
 */
#ifndef ASHLAR_DRIVER_H
#define ASHLAR_DRIVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/base.h>

#include "allocator/driver/cuda_abi.h"

/*
 * What a call is for, so that reports can tell memory management from the step's own work:
 *   QUERY    reads a fact                    MEMORY  takes, maps or returns memory
 *   CONTEXT  sets a thread or context up     ORDER   streams, events and graphs
 *   WORK     copies, fills, launches         WAIT    the host waits for the device
 * cuPointerGetAttribute is WORK: a copy asks by it whether its source is page-locked.
 */
typedef enum ashlar_driver_kind {
    ASHLAR_DRIVER_QUERY,
    ASHLAR_DRIVER_MEMORY,
    ASHLAR_DRIVER_CONTEXT,
    ASHLAR_DRIVER_ORDER,
    ASHLAR_DRIVER_WORK,
    ASHLAR_DRIVER_WAIT,
    ASHLAR_DRIVER_KIND_COUNT
} ashlar_driver_kind;

/*
 * Columns: field, CUDA's name, the CUDA version that introduced this signature, kind, safety,
 * parameters. Name and version are passed to cuGetProcAddress. A driver may lack cuStreamGetId,
 * before CUDA 12; its stand-in returns CU_NOT_SUPPORTED. The software device's functions for
 * kernels are NULL.
 *
 * UNSAFE are calls that could invalidate a capture of another thread, unless the calling thread's
 * capture mode is relaxed (see cuThreadExchangeStreamCaptureMode). CUDA has no list of them.
 */
#define ASHLAR_DRIVER_MAP(X)                                                                \
    ASHLAR_DRIVER_DEVICE_MAP(X)                                                             \
    X(module_load_data, cuModuleLoadData, 2000, CONTEXT, UNSAFE,                            \
      (cu_module * module, const void *image))                                              \
    X(module_unload, cuModuleUnload, 2000, CONTEXT, UNSAFE, (cu_module module))             \
    X(module_get_function, cuModuleGetFunction, 2000, CONTEXT, UNSAFE,                      \
      (cu_function * function, cu_module module, const char *name))                         \
    X(launch_kernel, cuLaunchKernel, 4000, WORK, SAFE,                                      \
      (cu_function function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, \
       unsigned int block_x, unsigned int block_y, unsigned int block_z,                    \
       unsigned int shared_bytes, cu_stream stream, void **params, void **extra))

/* The calls that a software device has, too: all but those for kernels. It runs host functions. */
#define ASHLAR_DRIVER_DEVICE_MAP(X)                                                                \
    X(init, cuInit, 2000, QUERY, SAFE, (unsigned int flags))                                       \
    X(driver_get_version, cuDriverGetVersion, 2020, QUERY, SAFE, (int *version))                   \
    X(get_error_name, cuGetErrorName, 6000, QUERY, SAFE, (cu_result error, const char **name))     \
    X(get_error_string, cuGetErrorString, 6000, QUERY, SAFE, (cu_result error, const char **text)) \
    X(device_get_count, cuDeviceGetCount, 2000, QUERY, SAFE, (int *count))                         \
    X(device_get, cuDeviceGet, 2000, QUERY, SAFE, (cu_device * device, int ordinal))               \
    X(device_get_name, cuDeviceGetName, 2000, QUERY, SAFE,                                         \
      (char *name, int bytes, cu_device device))                                                   \
    X(device_total_mem, cuDeviceTotalMem, 3020, QUERY, SAFE, (size_t * bytes, cu_device device))   \
    X(device_get_attribute, cuDeviceGetAttribute, 2000, QUERY, SAFE,                               \
      (int *value, unsigned int attribute, cu_device device))                                      \
    X(mem_get_info, cuMemGetInfo, 3020, QUERY, UNSAFE,                                             \
      (size_t * free_bytes, size_t * total_bytes))                                                 \
    X(primary_ctx_retain, cuDevicePrimaryCtxRetain, 7000, CONTEXT, UNSAFE,                         \
      (cu_context * context, cu_device device))                                                    \
    X(primary_ctx_release, cuDevicePrimaryCtxRelease, 11000, CONTEXT, UNSAFE, (cu_device device))  \
    X(primary_ctx_get_state, cuDevicePrimaryCtxGetState, 7000, QUERY, SAFE,                        \
      (cu_device device, unsigned int *flags, int *is_active))                                     \
    X(ctx_push_current, cuCtxPushCurrent, 4000, CONTEXT, SAFE, (cu_context context))               \
    X(ctx_pop_current, cuCtxPopCurrent, 4000, CONTEXT, SAFE, (cu_context * context))               \
    X(ctx_synchronize, cuCtxSynchronize, 2000, WAIT, UNSAFE, (void))                               \
    X(mem_get_allocation_granularity, cuMemGetAllocationGranularity, 10020, QUERY, SAFE,           \
      (size_t * bytes, const cu_mem_prop *prop, unsigned int option))                              \
    X(mem_address_reserve, cuMemAddressReserve, 10020, MEMORY, UNSAFE,                             \
      (cu_ptr * ptr, size_t bytes, size_t align, cu_ptr hint, unsigned long long flags))           \
    X(mem_address_free, cuMemAddressFree, 10020, MEMORY, UNSAFE, (cu_ptr ptr, size_t bytes))       \
    X(mem_create, cuMemCreate, 10020, MEMORY, UNSAFE,                                              \
      (cu_mem_handle * handle, size_t bytes, const cu_mem_prop *prop, unsigned long long flags))   \
    X(mem_release, cuMemRelease, 10020, MEMORY, UNSAFE, (cu_mem_handle handle))                    \
    X(mem_map, cuMemMap, 10020, MEMORY, UNSAFE,                                                    \
      (cu_ptr ptr, size_t bytes, size_t offset, cu_mem_handle handle, unsigned long long flags))   \
    X(mem_unmap, cuMemUnmap, 10020, MEMORY, UNSAFE, (cu_ptr ptr, size_t bytes))                    \
    X(mem_set_access, cuMemSetAccess, 10020, MEMORY, UNSAFE,                                       \
      (cu_ptr ptr, size_t bytes, const cu_mem_access *access, size_t count))                       \
    X(mem_alloc, cuMemAlloc, 3020, MEMORY, UNSAFE, (cu_ptr * ptr, size_t bytes))                   \
    X(mem_free, cuMemFree, 3020, MEMORY, UNSAFE, (cu_ptr ptr))                                     \
    X(mem_host_alloc, cuMemHostAlloc, 2020, MEMORY, UNSAFE,                                        \
      (void **ptr, size_t bytes, unsigned int flags))                                              \
    X(mem_free_host, cuMemFreeHost, 2000, MEMORY, UNSAFE, (void *ptr))                             \
    X(pointer_get_attribute, cuPointerGetAttribute, 4000, WORK, SAFE,                              \
      (void *data, unsigned int attribute, cu_ptr ptr))                                            \
    X(memcpy_htod_async, cuMemcpyHtoDAsync, 3020, WORK, SAFE,                                      \
      (cu_ptr dst, const void *src, size_t bytes, cu_stream stream))                               \
    X(memcpy_dtoh_async, cuMemcpyDtoHAsync, 3020, WORK, SAFE,                                      \
      (void *dst, cu_ptr src, size_t bytes, cu_stream stream))                                     \
    X(memcpy_dtod_async, cuMemcpyDtoDAsync, 3020, WORK, SAFE,                                      \
      (cu_ptr dst, cu_ptr src, size_t bytes, cu_stream stream))                                    \
    X(memset_d8_async, cuMemsetD8Async, 3020, WORK, SAFE,                                          \
      (cu_ptr dst, unsigned char value, size_t bytes, cu_stream stream))                           \
    X(memcpy_peer_async, cuMemcpyPeerAsync, 4000, WORK, SAFE,                                      \
      (cu_ptr dst, cu_context dst_context, cu_ptr src, cu_context src_context, size_t bytes,       \
       cu_stream stream))                                                                          \
    X(device_can_access_peer, cuDeviceCanAccessPeer, 4000, QUERY, SAFE,                            \
      (int *can_access, cu_device device, cu_device peer))                                         \
    X(ctx_enable_peer_access, cuCtxEnablePeerAccess, 4000, CONTEXT, UNSAFE,                        \
      (cu_context peer, unsigned int flags))                                                       \
    X(launch_host_func, cuLaunchHostFunc, 10000, WORK, SAFE,                                       \
      (cu_stream stream, cu_host_fn fn, void *user_data))                                          \
    X(stream_create, cuStreamCreate, 2000, ORDER, UNSAFE,                                          \
      (cu_stream * stream, unsigned int flags))                                                    \
    X(stream_destroy, cuStreamDestroy, 4000, ORDER, UNSAFE, (cu_stream stream))                    \
    X(stream_get_id, cuStreamGetId, 12000, QUERY, SAFE,                                            \
      (cu_stream stream, unsigned long long *id))                                                  \
    X(stream_wait_event, cuStreamWaitEvent, 3020, ORDER, SAFE,                                     \
      (cu_stream stream, cu_event event, unsigned int flags))                                      \
    X(stream_query, cuStreamQuery, 2000, ORDER, UNSAFE, (cu_stream stream))                        \
    X(stream_synchronize, cuStreamSynchronize, 2000, WAIT, UNSAFE, (cu_stream stream))             \
    X(event_create, cuEventCreate, 2000, ORDER, UNSAFE, (cu_event * event, unsigned int flags))    \
    X(event_destroy, cuEventDestroy, 4000, ORDER, UNSAFE, (cu_event event))                        \
    X(event_record, cuEventRecord, 2000, ORDER, SAFE, (cu_event event, cu_stream stream))          \
    X(event_query, cuEventQuery, 2000, ORDER, UNSAFE, (cu_event event))                            \
    X(event_synchronize, cuEventSynchronize, 2000, WAIT, UNSAFE, (cu_event event))                 \
    X(stream_begin_capture, cuStreamBeginCapture, 10010, ORDER, SAFE,                              \
      (cu_stream stream, unsigned int mode))                                                       \
    X(stream_end_capture, cuStreamEndCapture, 10000, ORDER, SAFE,                                  \
      (cu_stream stream, cu_graph * graph))                                                        \
    X(stream_is_capturing, cuStreamIsCapturing, 10000, QUERY, SAFE,                                \
      (cu_stream stream, unsigned int *status))                                                    \
    X(thread_exchange_capture_mode, cuThreadExchangeStreamCaptureMode, 10010, CONTEXT, SAFE,       \
      (unsigned int *mode))                                                                        \
    X(graph_instantiate, cuGraphInstantiateWithFlags, 11040, ORDER, UNSAFE,                        \
      (cu_graph_exec * exec, cu_graph graph, unsigned long long flags))                            \
    X(graph_launch, cuGraphLaunch, 10000, WORK, SAFE, (cu_graph_exec exec, cu_stream stream))      \
    X(graph_exec_destroy, cuGraphExecDestroy, 10000, ORDER, UNSAFE, (cu_graph_exec exec))          \
    X(graph_destroy, cuGraphDestroy, 10000, ORDER, UNSAFE, (cu_graph graph))

typedef struct ashlar_driver_table {
#define X(field, symbol, version, kind, safety, params) cu_result(*field) params;
    ASHLAR_DRIVER_MAP(X)
#undef X
} ashlar_driver_table;

typedef enum ashlar_driver_fn {
#define X(field, symbol, version, kind, safety, params) ASHLAR_DRIVER_FN_##field,
    ASHLAR_DRIVER_MAP(X)
#undef X
        ASHLAR_DRIVER_FN_COUNT
} ashlar_driver_fn;

enum {
    ASHLAR_DRIVER_SAFE,
    ASHLAR_DRIVER_UNSAFE,
#define X(field, symbol, version, kind, safety, params) \
    ASHLAR_DRIVER_SAFETY_##field = ASHLAR_DRIVER_##safety,
    ASHLAR_DRIVER_MAP(X)
#undef X
};

typedef struct ashlar_driver {
    ashlar_driver_table table;          /* const once opened */
    const char *name;                   /* "cuda" or "soft" */
    void (*delay)(ashlar_driver_fn fn); /* called before each call; or NULL */
    /* Wait until one of several events is complete; NULL: ashlar__driver_wait_any() polls. */
    cu_result (*wait_any)(const cu_event *events, size_t count);
    _Atomic uint64_t calls[ASHLAR_DRIVER_FN_COUNT]; /* [fn]: calls made so far */
    _Atomic uint64_t capture_count;                 /* captures between begin_ and end_capture() */
    pthread_rwlock_t beginnings;                    /* read-locked by threads that hold captures
                                                     * off; begin_capture() takes it for writing */
    _Atomic uint64_t fail_countdown;                /* calls until one fails; 0: none will */
    _Atomic int fail_fn;                            /* function that will fail; -1: any */
    _Atomic cu_result fail_result;                  /* what the failing call returns */
} ashlar_driver;

/*
 * Open the CUDA driver or that of the software device. Each exists once in the process and is never
 * closed; later calls return the same driver.
 *
 * Errors: ASHLAR_ENODEVICE (no library, no device), ASHLAR_EINVAL (a bad ASHLAR_SOFT),
 *         ASHLAR_EDRIVER; the detail says which. A failed open is tried again by the next call.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__driver_open_cuda(ashlar_driver **out);
ASHLAR_MUST_CHECK ashlar_status ashlar__driver_open_soft(ashlar_driver **out);

/* Count one call of `fn`. True: the caller makes the call. False: a test wants it to fail, and the
 * caller uses driver->fail_result as its result instead. */
bool ashlar__driver_admit(ashlar_driver *driver, ashlar_driver_fn fn);

/* Let the calling thread make the calls that CUDA forbids while a stream is captured, until
 * ashlar__driver_unrelax(). Table calls do this themselves; libraries that call the driver need it.
 * Pairs nest, and only the outermost one calls the driver. */
void ashlar__driver_relax(ashlar_driver *driver);
void ashlar__driver_unrelax(ashlar_driver *driver);

static inline bool ashlar__driver_begin(ashlar_driver *driver, ashlar_driver_fn fn, int safety) {
    const bool is_made = ashlar__driver_admit(driver, fn);
    if (is_made && safety != ASHLAR_DRIVER_SAFE) {
        ashlar__driver_relax(driver);
    }
    return is_made;
}

static inline cu_result ashlar__driver_end(ashlar_driver *driver, int safety, cu_result result) {
    if (safety != ASHLAR_DRIVER_SAFE) {
        ashlar__driver_unrelax(driver);
    }
    return result;
}

/* Make and count one call, such that it does not invalidate captures of streams that it does not
 * name. The value is a cu_result. `args` are in parentheses:
 *     ASHLAR_DRIVER_CALL(driver, mem_free, (ptr)) */
#define ASHLAR_DRIVER_CALL(driver, field, args)                                                   \
    (ashlar__driver_begin((driver), ASHLAR_DRIVER_FN_##field, ASHLAR_DRIVER_SAFETY_##field)       \
         ? ashlar__driver_end((driver), ASHLAR_DRIVER_SAFETY_##field, (driver)->table.field args) \
         : atomic_load(&(driver)->fail_result))

/* Call these before cuStreamBeginCapture and after cuStreamEndCapture. The first counts the
 * capture, and then waits for threads between hold_captures() and release_captures(), for a second
 * at most. The caller holds no lock that queued work could need. */
void ashlar__driver_begin_capture(ashlar_driver *driver);
void ashlar__driver_end_capture(ashlar_driver *driver);

/* Call these around a call that invalidates captures whatever their mode: on the legacy default
 * stream, or on the whole device. In between, ashlar__driver_begin_capture() of another thread
 * waits, for a second at most. */
void ashlar__driver_hold_captures(ashlar_driver *driver);
void ashlar__driver_release_captures(ashlar_driver *driver);

/* Wait on the host for all work of the current context. If a capture is under way, by our count or
 * by the driver's answer, return CU_STREAM_CAPTURE_UNSUPPORTED or _IMPLICIT without waiting: the
 * wait would invalidate that capture. */
cu_result ashlar__driver_try_synchronize(ashlar_driver *driver);

/*
 * Wait on the host until any one of the events is complete. To wait for a certain one could take
 * for ever, since the work before it may itself wait for what the program does next. The caller has
 * counted the call for its allocator, and then dropped the allocator's lock.
 *
 * count   1 .. ASHLAR_AWAITED_MAX
 */
enum { ASHLAR_AWAITED_MAX = 64 };
cu_result ashlar__driver_wait_any(ashlar_driver *driver, const cu_event *events, size_t count);

/* Tests: make one call return `result`: the n-th of `fn` (-1: of any function), counted from now. 1
 * is the next call; 0 cancels an earlier request. */
void ashlar__driver_fail_at(ashlar_driver *driver, int fn, uint64_t n, cu_result result);

/* The number of calls of one kind so far. */
uint64_t ashlar__driver_calls(const ashlar_driver *driver, ashlar_driver_kind kind);

/* The name of a function of the table, as CUDA spells it, and its kind. */
const char *ashlar__driver_fn_name(ashlar_driver_fn fn);
ashlar_driver_kind ashlar__driver_fn_kind(ashlar_driver_fn fn);

/*
 * Turn a driver's refusal into a status with a detail line:
 *     return ashlar__driver_error(driver, "cuMemCreate", result);
 * Returns ASHLAR_ENOMEM for CU_OUT_OF_MEMORY, else ASHLAR_EDRIVER. `result` must not be CU_SUCCESS.
 */
ashlar_status ashlar__driver_error(ashlar_driver *driver, const char *what, cu_result result);

/* The status for any result of a driver call; `what` is CUDA's name of the call. */
static inline ashlar_status ashlar__driver_status(ashlar_driver *driver, const char *what,
                                                  cu_result result) {
    return result == CU_SUCCESS ? ASHLAR_OK : ashlar__driver_error(driver, what, result);
}

#endif /* ASHLAR_DRIVER_H */
