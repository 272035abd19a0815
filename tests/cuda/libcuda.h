/*
 * libcuda.h - the libcuda.so.1 of the tests: the software device under the driver's own names.
 *
 * What it offers is the driver table (driver.h), which is the software device's, and besides that
 * the functions below, which programs call and the library does not.
 */
#ifndef ASHLAR_TESTS_LIBCUDA_H
#define ASHLAR_TESTS_LIBCUDA_H

#include <stdbool.h>

#include <ashlar/base.h>

#include "allocator/driver/cuda_abi.h"

typedef struct CUmemPoolHandle_st *cu_pool;
typedef struct cu_uuid {
    unsigned char bytes[16];
} cu_uuid;
enum { FAKE_IPC_HANDLE_BYTES = 64 };
typedef void (*cu_stream_callback)(cu_stream stream, cu_result status, void *user_data);

/* Field, CUDA's name, the CUDA version that introduced this signature, parameters. */
#define FAKE_MORE_MAP(X)                                                                           \
    X(ctx_get_current, cuCtxGetCurrent, 4000, (cu_context * context))                              \
    X(ctx_set_current, cuCtxSetCurrent, 4000, (cu_context context))                                \
    X(ctx_get_device, cuCtxGetDevice, 2000, (cu_device * device))                                  \
    X(ctx_create, cuCtxCreate, 3020, (cu_context * context, unsigned int flags, cu_device device)) \
    X(ctx_destroy, cuCtxDestroy, 4000, (cu_context context))                                       \
    X(ctx_synchronize_v2, cuCtxSynchronize, 13000, (cu_context context))                           \
    X(stream_begin_capture_v1, cuStreamBeginCapture, 10000, (cu_stream stream))                    \
    X(primary_ctx_reset, cuDevicePrimaryCtxReset, 7000, (cu_device device))                        \
    X(mem_alloc_pitch, cuMemAllocPitch, 3020,                                                      \
      (cu_ptr * ptr, size_t * pitch, size_t width, size_t height, unsigned int element))           \
    X(mem_get_address_range, cuMemGetAddressRange, 3020,                                           \
      (cu_ptr * base, size_t * bytes, cu_ptr ptr))                                                 \
    X(pointer_get_attributes, cuPointerGetAttributes, 7000,                                        \
      (unsigned int count, const unsigned int *attributes, void **data, cu_ptr ptr))               \
    X(mem_retain_handle, cuMemRetainAllocationHandle, 11000, (cu_mem_handle * handle, void *ptr))  \
    X(ipc_get_mem_handle, cuIpcGetMemHandle, 4010, (void *handle, cu_ptr ptr))                     \
    X(mem_host_register, cuMemHostRegister, 6050, (void *ptr, size_t bytes, unsigned int flags))   \
    X(mem_host_unregister, cuMemHostUnregister, 4000, (void *ptr))                                 \
    X(mem_host_get_device_pointer, cuMemHostGetDevicePointer, 3020,                                \
      (cu_ptr * ptr, void *host, unsigned int flags))                                              \
    X(memcpy_htod, cuMemcpyHtoD, 3020, (cu_ptr dst, const void *src, size_t bytes))                \
    X(memcpy_dtoh, cuMemcpyDtoH, 3020, (void *dst, cu_ptr src, size_t bytes))                      \
    X(memcpy_dtod, cuMemcpyDtoD, 3020, (cu_ptr dst, cu_ptr src, size_t bytes))                     \
    X(memset_d8, cuMemsetD8, 3020, (cu_ptr dst, unsigned char value, size_t bytes))                \
    X(device_get_uuid, cuDeviceGetUuid, 11040, (cu_uuid * uuid, cu_device device))                 \
    X(stream_priority_range, cuCtxGetStreamPriorityRange, 5050, (int *least, int *greatest))       \
    X(stream_add_callback, cuStreamAddCallback, 5000,                                              \
      (cu_stream stream, cu_stream_callback callback, void *user_data, unsigned int flags))        \
    X(mem_alloc_async, cuMemAllocAsync, 11020, (cu_ptr * ptr, size_t bytes, cu_stream stream))     \
    X(mem_free_async, cuMemFreeAsync, 11020, (cu_ptr ptr, cu_stream stream))                       \
    X(mem_alloc_from_pool_async, cuMemAllocFromPoolAsync, 11020,                                   \
      (cu_ptr * ptr, size_t bytes, cu_pool pool, cu_stream stream))                                \
    X(mem_alloc_managed, cuMemAllocManaged, 6000,                                                  \
      (cu_ptr * ptr, size_t bytes, unsigned int flags))                                            \
    X(default_pool, cuDeviceGetDefaultMemPool, 11020, (cu_pool * pool, cu_device device))          \
    X(get_pool, cuDeviceGetMemPool, 11020, (cu_pool * pool, cu_device device))                     \
    X(set_pool, cuDeviceSetMemPool, 11020, (cu_device device, cu_pool pool))                       \
    X(mem_default_pool, cuMemGetDefaultMemPool, 13000,                                             \
      (cu_pool * pool, cu_mem_location * location, unsigned int type))                             \
    X(mem_get_pool, cuMemGetMemPool, 13000,                                                        \
      (cu_pool * pool, cu_mem_location * location, unsigned int type))                             \
    X(mem_set_pool, cuMemSetMemPool, 13000,                                                        \
      (cu_mem_location * location, unsigned int type, cu_pool pool))                               \
    X(pool_create, cuMemPoolCreate, 11020, (cu_pool * pool, const void *props))                    \
    X(pool_destroy, cuMemPoolDestroy, 11020, (cu_pool pool))                                       \
    X(pool_trim_to, cuMemPoolTrimTo, 11020, (cu_pool pool, size_t bytes))                          \
    X(pool_set_attribute, cuMemPoolSetAttribute, 11020,                                            \
      (cu_pool pool, unsigned int attribute, void *value))                                         \
    X(pool_get_attribute, cuMemPoolGetAttribute, 11020,                                            \
      (cu_pool pool, unsigned int attribute, void *value))                                         \
    X(stream_create_with_priority, cuStreamCreateWithPriority, 5050,                               \
      (cu_stream * stream, unsigned int flags, int priority))                                      \
    X(stream_get_ctx, cuStreamGetCtx, 9020, (cu_stream stream, cu_context * context))              \
    X(stream_get_flags, cuStreamGetFlags, 5050, (cu_stream stream, unsigned int *flags))           \
    X(stream_get_priority, cuStreamGetPriority, 5050, (cu_stream stream, int *priority))           \
    X(stream_get_capture_info, cuStreamGetCaptureInfo, 10010,                                      \
      (cu_stream stream, unsigned int *status, unsigned long long *id))                            \
    X(event_elapsed_time, cuEventElapsedTime, 2000, (float *ms, cu_event start, cu_event end))

#define X(field, symbol, version, params) cu_result ashlar_fake_##field params;
FAKE_MORE_MAP(X)
#undef X

/* cuMemAllocAsync and cuMemFreeAsync as they are with per-thread default streams. */
cu_result ashlar_fake_mem_alloc_async_ptsz(cu_ptr *ptr, size_t bytes, cu_stream stream);
cu_result ashlar_fake_mem_alloc_from_pool_async_ptsz(cu_ptr *ptr, size_t bytes, cu_pool of,
                                                     cu_stream stream);
cu_result ashlar_fake_mem_free_async_ptsz(cu_ptr ptr, cu_stream stream);

/* All pools' memory that a context asked for, its modules and what its graphs take are gone with
 * it; a device's work is over, so that pools give back what they do not keep. */
typedef struct soft_device soft_device;
void ashlar_fake_pools_forget(const soft_device *context);
void ashlar_fake_modules_forget(const soft_device *context);
void ashlar_fake_graphs_forget(const soft_device *context);
void ashlar_fake_pools_settle(cu_device device);

/* Whether an address is that of a pool's memory; whether bytes are page-locked host memory, and
 * what the program took or registered around an address. */
bool ashlar_fake_is_of_pool(cu_ptr ptr);
bool ashlar_fake_find_host(cu_ptr ptr, cu_ptr *base, size_t *bytes);
bool ashlar_fake_is_host(cu_ptr ptr, size_t bytes);

/* Attributes of cuPointerGetAttribute that it knows beside CU_POINTER_MEMORY_TYPE. */
enum {
    FAKE_POINTER_CONTEXT = 1,
    FAKE_POINTER_DEVICE_POINTER = 3,
    FAKE_POINTER_HOST_POINTER = 4,
    FAKE_POINTER_IS_MANAGED = 8,
    FAKE_POINTER_ORDINAL = 9,
    FAKE_POINTER_IS_IPC_CAPABLE = 10,
    FAKE_POINTER_RANGE_START = 11,
    FAKE_POINTER_RANGE_SIZE = 12,
    FAKE_POINTER_HANDLE_TYPES = 14,
    FAKE_POINTER_POOL = 17,
    FAKE_POINTER_MAPPING_SIZE = 18,
    FAKE_POINTER_MAPPING_BASE = 19,
};

/* As cuGetProcAddress_v2, of a driver for CUDA versions up to `newest`. */
cu_result ashlar_fake_find(int newest, const char *symbol, void **address, int version,
                           unsigned long long flags, unsigned int *found);

/* As functions of the table, where they differ from the software device's. */
cu_result ashlar_fake_init(unsigned int flags);
cu_result ashlar_fake_device_get_count(int *count);
cu_result ashlar_fake_device_get_attribute(int *value, unsigned int attribute, cu_device device);
cu_result ashlar_fake_primary_ctx_release(cu_device ordinal);
cu_result ashlar_fake_ctx_synchronize(void);
cu_result ashlar_fake_event_record(cu_event event, cu_stream stream);
cu_result ashlar_fake_mem_alloc(cu_ptr *ptr, size_t bytes);
cu_result ashlar_fake_mem_create(cu_mem_handle *handle, size_t bytes, const cu_mem_prop *prop,
                                 unsigned long long flags);
cu_result ashlar_fake_mem_unmap(cu_ptr ptr, size_t bytes);
cu_result ashlar_fake_pointer_get_attribute(void *data, unsigned int attribute, cu_ptr ptr);
/* libcuda_host.c */
cu_result ashlar_fake_memset_d8_async(cu_ptr dst, unsigned char value, size_t bytes,
                                      cu_stream stream);
cu_result ashlar_fake_memcpy_htod_async(cu_ptr dst, const void *src, size_t bytes,
                                        cu_stream stream);
cu_result ashlar_fake_memcpy_dtoh_async(void *dst, cu_ptr src, size_t bytes, cu_stream stream);
cu_result ashlar_fake_memcpy_dtod_async(cu_ptr dst, cu_ptr src, size_t bytes, cu_stream stream);
/* libcuda_graphs.c */
cu_result ashlar_fake_graph_instantiate(cu_graph_exec *exec, cu_graph graph,
                                        unsigned long long flags);
cu_result ashlar_fake_graph_launch(cu_graph_exec exec, cu_stream stream);
cu_result ashlar_fake_graph_exec_destroy(cu_graph_exec exec);
/* libcuda_kernels.c */
cu_result ashlar_fake_module_load_data(cu_module *module, const void *image);
cu_result ashlar_fake_module_unload(cu_module module);
cu_result ashlar_fake_module_get_function(cu_function *function, cu_module module,
                                          const char *name);
cu_result ashlar_fake_launch_kernel(cu_function function, unsigned int grid_x, unsigned int grid_y,
                                    unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                    unsigned int block_z, unsigned int shared_bytes,
                                    cu_stream stream, void **params, void **extra);

/*
 * What a test asks of the fake, by dlsym(): how many modules are loaded; how many were unloaded
 * with kernels still queued; each kernel launched since the last call, as
 * "name<<<blocks, threads>>>" with a space behind it; how often memory was taken, by cuMemAlloc,
 * cuMemCreate, or cuMemAllocAsync beyond its pool; how often an event was recorded; how many calls
 * these were with those that map, unmap or give back memory, and queries of events and streams.
 */
ASHLAR_API int ashlar_fake_module_count(void);
ASHLAR_API int ashlar_fake_early_unload_count(void);
ASHLAR_API const char *ashlar_fake_launch_log(void);
ASHLAR_API unsigned long long ashlar_fake_memory_calls(void);
ASHLAR_API unsigned long long ashlar_fake_event_records(void);
ASHLAR_API unsigned long long ashlar_fake_calls(void);

/* From now on fn(ptr, bytes) is called before memory is unmapped; NULL: no more. */
typedef void ashlar_fake_unmap_fn(cu_ptr ptr, size_t bytes);
ASHLAR_API void ashlar_fake_on_unmap(ashlar_fake_unmap_fn *fn);

#endif /* ASHLAR_TESTS_LIBCUDA_H */
