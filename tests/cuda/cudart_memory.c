/* cudart_memory.c - the small CUDA runtime: memory, copies, fills, memory pools. */
#include "cudart.h"

#include <stdint.h>
#include <string.h>

static cu_ptr in(const void *ptr) {
    return (cu_ptr)(uintptr_t)ptr;
}

/* ---- memory ---- */

static cudaError_t give(cudaError_t error, const cu_ptr *taken, void **ptr) {
    if (error == cudaSuccess) {
        *ptr = (void *)(uintptr_t)*taken;
    }
    return error;
}

static cudaError_t take(cu_ptr *ptr, size_t bytes) {
    CUDART_CALL(table.mem_alloc, (ptr, bytes));
}

cudaError_t cudaMalloc(void **ptr, size_t bytes) {
    cu_ptr taken = 0;
    return give(bytes == 0 ? cudaSuccess : take(&taken, bytes), &taken, ptr);
}

cudaError_t cudaFree(void *ptr) {
    if (ptr == NULL) {
        const cudart_driver *driver; /* as a program that wants its context made */
        return ashlar_cudart_done(ashlar_cudart_enter(&driver));
    }
    CUDART_CALL(table.mem_free, (in(ptr)));
}

static cudaError_t take_rows(cu_ptr *ptr, size_t *pitch, size_t width, size_t height) {
    CUDART_CALL(mem_alloc_pitch, (ptr, pitch, width, height, 4));
}

cudaError_t cudaMallocPitch(void **ptr, size_t *pitch, size_t width, size_t height) {
    cu_ptr taken = 0;
    return give(take_rows(&taken, pitch, width, height), &taken, ptr);
}

cudaError_t cudaHostAlloc(void **ptr, size_t bytes, unsigned int flags) {
    CUDART_CALL(table.mem_host_alloc, (ptr, bytes, flags));
}

cudaError_t cudaMallocHost(void **ptr, size_t bytes) {
    return cudaHostAlloc(ptr, bytes, 0);
}

cudaError_t cudaFreeHost(void *ptr) {
    if (ptr == NULL) {
        return cudaSuccess;
    }
    CUDART_CALL(table.mem_free_host, (ptr));
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    CUDART_CALL(table.mem_get_info, (free_bytes, total_bytes));
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr) {
    const cudart_driver *driver;
    unsigned int type = 0;
    cu_result result = ashlar_cudart_enter(&driver);
    if (result != CU_SUCCESS) {
        return ashlar_cudart_done(result);
    }
    *attributes = (struct cudaPointerAttributes){.device = -1};
    result = driver->pointer_get_attribute(&type, FAKE_POINTER_MEMORY_TYPE, in(ptr));
    if (result == CU_INVALID_VALUE) { /* ordinary memory of the host */
        attributes->hostPointer = (void *)(uintptr_t)ptr;
        return cudaSuccess;
    }
    attributes->type = type == FAKE_MEMORY_DEVICE ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    attributes->devicePointer = (void *)(uintptr_t)ptr;
    attributes->hostPointer = type == FAKE_MEMORY_DEVICE ? NULL : attributes->devicePointer;
    return ashlar_cudart_done(
        type == FAKE_MEMORY_DEVICE
            ? driver->pointer_get_attribute(&attributes->device, FAKE_POINTER_ORDINAL, in(ptr))
            : result);
}

/* ---- stream-ordered memory ---- */

static cudaError_t take_async(cu_ptr *ptr, size_t bytes, cudaStream_t stream) {
    CUDART_CALL(mem_alloc_async, (ptr, bytes, stream));
}

cudaError_t cudaMallocAsync(void **ptr, size_t bytes, cudaStream_t stream) {
    cu_ptr taken = 0;
    return give(bytes == 0 ? cudaSuccess : take_async(&taken, bytes, stream), &taken, ptr);
}

/* There is one pool. */
cudaError_t cudaMallocFromPoolAsync(void **ptr, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
    (void)pool;
    return cudaMallocAsync(ptr, bytes, stream);
}

cudaError_t cudaFreeAsync(void *ptr, cudaStream_t stream) {
    if (ptr == NULL) {
        return cudaSuccess;
    }
    CUDART_CALL(mem_free_async, (in(ptr), stream));
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    CUDART_CALL(default_pool, (pool, device));
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes) {
    CUDART_CALL(pool_trim_to, (pool, bytes));
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute,
                                    void *value) {
    CUDART_CALL(pool_set_attribute, (pool, (unsigned int)attribute, value));
}

/* ---- copies and fills ---- */

static bool is_on_device(const cudart_driver *driver, const void *ptr) {
    unsigned int type = 0;
    return driver->pointer_get_attribute(&type, FAKE_POINTER_MEMORY_TYPE, in(ptr)) == CU_SUCCESS &&
           type == FAKE_MEMORY_DEVICE;
}

static cu_result copy(const cudart_driver *driver, void *dst, const void *src, size_t bytes,
                      enum cudaMemcpyKind kind, cudaStream_t stream) {
    if (kind == cudaMemcpyDefault) {
        kind = is_on_device(driver, src)
                   ? is_on_device(driver, dst) ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost
               : is_on_device(driver, dst) ? cudaMemcpyHostToDevice
                                           : cudaMemcpyHostToHost;
    }
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return driver->table.memcpy_htod_async(in(dst), src, bytes, stream);
    case cudaMemcpyDeviceToHost:
        return driver->table.memcpy_dtoh_async(dst, in(src), bytes, stream);
    case cudaMemcpyDeviceToDevice:
        return driver->table.memcpy_dtod_async(in(dst), in(src), bytes, stream);
    case cudaMemcpyHostToHost:
        memcpy(dst, src, bytes);
        return CU_SUCCESS;
    default:
        return 21; /* cudaErrorInvalidMemcpyDirection, which the driver has no name for */
    }
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    const cudart_driver *driver;
    const cu_result result = ashlar_cudart_enter(&driver);
    return ashlar_cudart_done(result == CU_SUCCESS ? copy(driver, dst, src, bytes, kind, stream)
                                                   : result);
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind) {
    const cudaError_t error = cudaMemcpyAsync(dst, src, bytes, kind, NULL);
    return error == cudaSuccess ? cudaStreamSynchronize(NULL) : error;
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t stream) {
    CUDART_CALL(table.memset_d8_async, (in(dst), (unsigned char)value, bytes, stream));
}

cudaError_t cudaMemset(void *dst, int value, size_t bytes) {
    return cudaMemsetAsync(dst, value, bytes, NULL);
}
