/* cudart_memory.c - the small CUDA runtime: memory and memory pools. */
#include "cudart.h"

#include <stdint.h>
#include <string.h>

static cu_ptr in(const void *ptr) {
    return (cu_ptr)(uintptr_t)ptr;
}

/* ---- memory ---- */

cudaError_t ashlar_cudart_give(cudaError_t error, const cu_ptr *taken, void **ptr) {
    if (ptr == NULL) {
        return ashlar_cudart_done(CU_INVALID_VALUE);
    }
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
    return ashlar_cudart_give(bytes == 0 || ptr == NULL ? cudaSuccess : take(&taken, bytes), &taken,
                              ptr);
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
    return ashlar_cudart_give(take_rows(&taken, pitch, width, height), &taken, ptr);
}

cudaError_t cudaMalloc3D(struct cudaPitchedPtr *rows, struct cudaExtent extent) {
    cu_ptr taken = 0;
    rows->xsize = extent.width;
    rows->ysize = extent.height;
    return ashlar_cudart_give(
        take_rows(&taken, &rows->pitch, extent.width, extent.height * extent.depth), &taken,
        &rows->ptr);
}

static cudaError_t take_managed(cu_ptr *ptr, size_t bytes, unsigned int flags) {
    CUDART_CALL(mem_alloc_managed, (ptr, bytes, flags));
}

cudaError_t cudaMallocManaged(void **ptr, size_t bytes, unsigned int flags) {
    cu_ptr taken = 0;
    return ashlar_cudart_give(take_managed(&taken, bytes, flags), &taken, ptr);
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

cudaError_t cudaHostGetDevicePointer(void **ptr, void *host, unsigned int flags) {
    const cudart_driver *driver;
    unsigned int type = 0;
    cu_result result = ashlar_cudart_enter(&driver);
    if (result == CU_SUCCESS) {
        result = flags != 0
                     ? CU_INVALID_VALUE
                     : driver->table.pointer_get_attribute(&type, CU_POINTER_MEMORY_TYPE, in(host));
    }
    const cu_ptr same = in(host);
    return ashlar_cudart_give(ashlar_cudart_done(result), &same, ptr);
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
    result = driver->table.pointer_get_attribute(&type, CU_POINTER_MEMORY_TYPE, in(ptr));
    if (result == CU_INVALID_VALUE) { /* ordinary memory of the host */
        attributes->hostPointer = (void *)(uintptr_t)ptr;
        return cudaSuccess;
    }
    attributes->type = type == CU_MEMORY_DEVICE ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    attributes->devicePointer = (void *)(uintptr_t)ptr;
    attributes->hostPointer = type == CU_MEMORY_DEVICE ? NULL : attributes->devicePointer;
    return ashlar_cudart_done(type == CU_MEMORY_DEVICE
                                  ? driver->table.pointer_get_attribute(
                                        &attributes->device, FAKE_POINTER_ORDINAL, in(ptr))
                                  : result);
}

/* ---- memory for other processes ---- */

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *ptr) {
    CUDART_CALL(ipc_get_mem_handle, (handle, in(ptr)));
}

/* ---- memory pools ---- */

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

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute,
                                    void *value) {
    CUDART_CALL(pool_get_attribute, (pool, (unsigned int)attribute, value));
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *props) {
    CUDART_CALL(pool_create, (pool, props));
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
    CUDART_CALL(pool_destroy, (pool));
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device) {
    CUDART_CALL(get_pool, (pool, device));
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
    CUDART_CALL(set_pool, (device, pool));
}
