/*
 * cudart_work.c - the small CUDA runtime: what is put on streams.
 *
 * Compiled twice. The second time CUDART_NULL_STREAM is the calling thread's default stream, and
 * cuda_runtime_api.h gives the functions the names that programs compiled for such streams call.
 */
#include "cudart.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define OF(stream) ((stream) == NULL ? (cudaStream_t)CUDART_NULL_STREAM : (stream))

static cu_ptr in(const void *ptr) {
    return (cu_ptr)(uintptr_t)ptr;
}

/* ---- copies ---- */

static bool is_on_device(const cudart_driver *driver, const void *ptr) {
    unsigned int type = 0;
    return driver->table.pointer_get_attribute(&type, CU_POINTER_MEMORY_TYPE, in(ptr)) ==
               CU_SUCCESS &&
           type == CU_MEMORY_DEVICE;
}

static enum cudaMemcpyKind kind_of(const cudart_driver *driver, const void *dst, const void *src) {
    return is_on_device(driver, src)
               ? is_on_device(driver, dst) ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost
           : is_on_device(driver, dst) ? cudaMemcpyHostToDevice
                                       : cudaMemcpyHostToHost;
}

static cu_result copy(const cudart_driver *driver, void *dst, const void *src, size_t bytes,
                      enum cudaMemcpyKind kind, cudaStream_t stream) {
    switch (kind == cudaMemcpyDefault ? kind_of(driver, dst, src) : kind) {
    case cudaMemcpyHostToDevice:
        return driver->table.memcpy_htod_async(in(dst), src, bytes, OF(stream));
    case cudaMemcpyDeviceToHost:
        return driver->table.memcpy_dtoh_async(dst, in(src), bytes, OF(stream));
    case cudaMemcpyDeviceToDevice:
        return driver->table.memcpy_dtod_async(in(dst), in(src), bytes, OF(stream));
    case cudaMemcpyHostToHost:
        memcpy(dst, src, bytes);
        return CU_SUCCESS;
    default:
        return cudaErrorInvalidMemcpyDirection; /* which the driver has no name for */
    }
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream) {
    const cudart_driver *driver;
    cu_result result = ashlar_cudart_enter(&driver);
    if (result == CU_SUCCESS && (width > dst_pitch || width > src_pitch)) {
        result = cudaErrorInvalidPitchValue;
    }
    for (size_t row = 0; row < height && result == CU_SUCCESS; row++) {
        result = copy(driver, (char *)dst + row * dst_pitch, (const char *)src + row * src_pitch,
                      width, kind, stream);
    }
    return ashlar_cudart_done(result);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    return cudaMemcpy2DAsync(dst, bytes, src, bytes, bytes, 1, kind, stream);
}

static cu_result copy_staged(const cudart_driver *driver, void *dst, const void *src,
                             size_t bytes) {
    void *staged = malloc(bytes + 1);
    if (staged == NULL) {
        return CU_OUT_OF_MEMORY;
    }
    memcpy(staged, src, bytes);
    cu_result result = copy(driver, dst, staged, bytes, cudaMemcpyHostToDevice, NULL);
    if (result == CU_SUCCESS) {
        result = driver->table.launch_host_func(OF((cudaStream_t)NULL), free, staged);
    }
    if (result != CU_SUCCESS) {
        free(staged);
    }
    return result;
}

/* It waits for no more than CUDA says ("API synchronization behavior"): before pageable bytes are
 * staged, which need not have arrived on return; after copies to the host and from page-locked
 * memory; not for copies on the device. */
cudaError_t cudaMemcpy2D(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                         size_t width, size_t height, enum cudaMemcpyKind kind) {
    const cudart_driver *driver;
    unsigned int type = 0;
    const cu_result entered = ashlar_cudart_enter(&driver);
    if (entered != CU_SUCCESS) {
        return ashlar_cudart_done(entered);
    }
    const enum cudaMemcpyKind way = kind == cudaMemcpyDefault ? kind_of(driver, dst, src) : kind;
    const bool is_staged =
        way == cudaMemcpyHostToDevice && src != NULL &&
        driver->table.pointer_get_attribute(&type, CU_POINTER_MEMORY_TYPE, in(src)) != CU_SUCCESS;
    if (!is_staged) {
        const cudaError_t error =
            cudaMemcpy2DAsync(dst, dst_pitch, src, src_pitch, width, height, way, NULL);
        return error != cudaSuccess || way == cudaMemcpyDeviceToDevice
                   ? error
                   : cudaStreamSynchronize(NULL);
    }
    cu_result result = driver->table.stream_synchronize(OF((cudaStream_t)NULL));
    if (result == CU_SUCCESS && (width > dst_pitch || width > src_pitch)) {
        result = cudaErrorInvalidPitchValue;
    }
    for (size_t row = 0; row < height && result == CU_SUCCESS; row++) {
        result = copy_staged(driver, (char *)dst + row * dst_pitch,
                             (const char *)src + row * src_pitch, width);
    }
    return ashlar_cudart_done(result);
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind) {
    return cudaMemcpy2D(dst, bytes, src, bytes, bytes, 1, kind);
}

/* ---- fills ---- */

cudaError_t cudaMemset2DAsync(void *dst, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
    const cudart_driver *driver;
    cu_result result = ashlar_cudart_enter(&driver);
    for (size_t row = 0; row < height && result == CU_SUCCESS; row++) {
        result = driver->table.memset_d8_async(in(dst) + row * pitch, (unsigned char)value, width,
                                               OF(stream));
    }
    return ashlar_cudart_done(result);
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t stream) {
    return cudaMemset2DAsync(dst, bytes, value, bytes, 1, stream);
}

cudaError_t cudaMemset(void *dst, int value, size_t bytes) {
    return cudaMemsetAsync(dst, value, bytes, NULL);
}

cudaError_t cudaMemset2D(void *dst, size_t pitch, int value, size_t width, size_t height) {
    return cudaMemset2DAsync(dst, pitch, value, width, height, NULL);
}

/* ---- memory in stream order ---- */

static cudaError_t take(cu_ptr *ptr, size_t bytes, cudaStream_t stream) {
    CUDART_CALL(mem_alloc_async, (ptr, bytes, OF(stream)));
}

static cudaError_t take_of(cu_ptr *ptr, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
    CUDART_CALL(mem_alloc_from_pool_async, (ptr, bytes, pool, OF(stream)));
}

cudaError_t cudaMallocAsync(void **ptr, size_t bytes, cudaStream_t stream) {
    cu_ptr taken = 0;
    return ashlar_cudart_give(bytes == 0 ? cudaSuccess : take(&taken, bytes, stream), &taken, ptr);
}

cudaError_t cudaMallocFromPoolAsync(void **ptr, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
    cu_ptr taken = 0;
    return ashlar_cudart_give(bytes == 0 ? cudaSuccess : take_of(&taken, bytes, pool, stream),
                              &taken, ptr);
}

cudaError_t cudaFreeAsync(void *ptr, cudaStream_t stream) {
    if (ptr == NULL) {
        return cudaSuccess;
    }
    CUDART_CALL(mem_free_async, (in(ptr), OF(stream)));
}

/* ---- order ---- */

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    CUDART_CALL(table.stream_synchronize, (OF(stream)));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    CUDART_CALL(table.stream_query, (OF(stream)));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
    CUDART_CALL(table.stream_wait_event, (OF(stream), event, flags));
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
    CUDART_CALL(stream_get_priority, (OF(stream), priority));
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int *flags) {
    CUDART_CALL(stream_get_flags, (OF(stream), flags));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *user_data) {
    CUDART_CALL(table.launch_host_func, (OF(stream), fn, user_data));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    CUDART_CALL(table.event_record, (event, OF(stream)));
}

/* The flags are for captures. */
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
    (void)flags;
    return cudaEventRecord(event, stream);
}

/* ---- captures ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    CUDART_CALL(table.stream_begin_capture, (OF(stream), (unsigned int)mode));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    CUDART_CALL(table.stream_end_capture, (OF(stream), graph));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    CUDART_CALL(table.stream_is_capturing, (OF(stream), (unsigned int *)status));
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    CUDART_CALL(table.graph_launch, (exec, OF(stream)));
}
