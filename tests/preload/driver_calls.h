/*
 * driver_calls.h - the driver's functions that programs of the preload's tests call, found as a
 * program finds them that is not linked with the driver: by dlsym(), by their exported names.
 */
#ifndef ASHLAR_TESTS_PRELOAD_DRIVER_CALLS_H
#define ASHLAR_TESTS_PRELOAD_DRIVER_CALLS_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "allocator/driver/cuda_abi.h"

/* Field, exported name, parameters. */
#define DRIVER_CALLS(X)                                                                          \
    X(init, cuInit, (unsigned int flags))                                                        \
    X(retain, cuDevicePrimaryCtxRetain, (cu_context * context, cu_device device))                \
    X(ctx_create, cuCtxCreate_v2, (cu_context * context, unsigned int flags, cu_device device))  \
    X(ctx_destroy, cuCtxDestroy_v2, (cu_context context))                                        \
    X(set_current, cuCtxSetCurrent, (cu_context context))                                        \
    X(synchronize, cuCtxSynchronize, (void))                                                     \
    X(mem_alloc, cuMemAlloc_v2, (cu_ptr * ptr, size_t bytes))                                    \
    X(mem_alloc_pitch, cuMemAllocPitch_v2,                                                       \
      (cu_ptr * ptr, size_t * pitch, size_t width, size_t height, unsigned int element))         \
    X(mem_alloc_managed, cuMemAllocManaged, (cu_ptr * ptr, size_t bytes, unsigned int flags))    \
    X(mem_free, cuMemFree_v2, (cu_ptr ptr))                                                      \
    X(mem_alloc_async, cuMemAllocAsync, (cu_ptr * ptr, size_t bytes, cu_stream stream))          \
    X(mem_free_async, cuMemFreeAsync, (cu_ptr ptr, cu_stream stream))                            \
    X(mem_alloc_from_pool, cuMemAllocFromPoolAsync,                                              \
      (cu_ptr * ptr, size_t bytes, void *pool, cu_stream stream))                                \
    X(pool_create, cuMemPoolCreate, (void **pool, const void *props))                            \
    X(pool_destroy, cuMemPoolDestroy, (void *pool))                                              \
    X(pool_default, cuDeviceGetDefaultMemPool, (void **pool, cu_device device))                  \
    X(pool_set, cuDeviceSetMemPool, (cu_device device, void *pool))                              \
    X(pool_trim, cuMemPoolTrimTo, (void *pool, size_t kept_bytes))                               \
    X(mem_create, cuMemCreate,                                                                   \
      (cu_mem_handle * handle, size_t bytes, const cu_mem_prop *prop, unsigned long long flags)) \
    X(mem_release, cuMemRelease, (cu_mem_handle handle))                                         \
    X(mem_get_info, cuMemGetInfo_v2, (size_t * free_bytes, size_t * total_bytes))                \
    X(fill, cuMemsetD8Async, (cu_ptr ptr, unsigned char value, size_t bytes, cu_stream stream))  \
    X(launch_host, cuLaunchHostFunc, (cu_stream stream, cu_host_fn fn, void *data))              \
    X(stream_create, cuStreamCreate, (cu_stream * stream, unsigned int flags))                   \
    X(stream_destroy, cuStreamDestroy_v2, (cu_stream stream))                                    \
    X(stream_synchronize, cuStreamSynchronize, (cu_stream stream))                               \
    X(stream_query, cuStreamQuery, (cu_stream stream))                                           \
    X(stream_wait_event, cuStreamWaitEvent,                                                      \
      (cu_stream stream, cu_event event, unsigned int flags))                                    \
    X(event_create, cuEventCreate, (cu_event * event, unsigned int flags))                       \
    X(event_destroy, cuEventDestroy_v2, (cu_event event))                                        \
    X(event_record, cuEventRecord, (cu_event event, cu_stream stream))                           \
    X(event_query, cuEventQuery, (cu_event event))                                               \
    X(event_synchronize, cuEventSynchronize, (cu_event event))                                   \
    X(exchange_mode, cuThreadExchangeStreamCaptureMode, (unsigned int *mode))                    \
    X(begin_capture, cuStreamBeginCapture_v2, (cu_stream stream, unsigned int mode))             \
    X(end_capture, cuStreamEndCapture, (cu_stream stream, cu_graph * graph))                     \
    X(graph_instantiate, cuGraphInstantiateWithFlags,                                            \
      (cu_graph_exec * exec, cu_graph graph, unsigned long long flags))                          \
    X(graph_launch, cuGraphLaunch, (cu_graph_exec exec, cu_stream stream))                       \
    X(graph_exec_destroy, cuGraphExecDestroy, (cu_graph_exec exec))                              \
    X(graph_destroy, cuGraphDestroy, (cu_graph graph))                                           \
    X(module_load, cuModuleLoadData, (cu_module * module, const void *image))                    \
    X(module_unload, cuModuleUnload, (cu_module module))

typedef struct driver_calls {
#define X(field, name, params) cu_result(*field) params;
    DRIVER_CALLS(X)
#undef X
} driver_calls;

/* False: there is no driver, or it lacks a function, which is printed. */
static inline bool driver_calls_find(driver_calls *calls) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *address;
    bool has_all = library != NULL;
#define X(field, name, params)                                \
    address = library == NULL ? NULL : dlsym(library, #name); \
    memcpy(&calls->field, &address, sizeof address);          \
    if (address == NULL) {                                    \
        printf("libcuda.so.1: %s is missing\n", #name);       \
        has_all = false;                                      \
    }
    DRIVER_CALLS(X)
#undef X
    return has_all;
}

#endif /* ASHLAR_TESTS_PRELOAD_DRIVER_CALLS_H */
