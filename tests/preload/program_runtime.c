/* program_runtime.c - a program that calls the CUDA runtime; linked with it, shared or static. */
#include "program.h"

#include <cuda_runtime_api.h>
#include <string.h>

static int alloc(void **ptr, size_t bytes) {
    return (int)cudaMalloc(ptr, bytes);
}

static int give(void *ptr) {
    return (int)cudaFree(ptr);
}

static int alloc_on(void **ptr, size_t bytes, void *stream) {
    return (int)cudaMallocAsync(ptr, bytes, stream);
}

static int give_on(void *ptr, void *stream) {
    return (int)cudaFreeAsync(ptr, stream);
}

static int alloc_rows(void **ptr, size_t *pitch, size_t width, size_t height) {
    return (int)cudaMallocPitch(ptr, pitch, width, height);
}

static int fill(void *ptr, int value, size_t bytes, void *stream) {
    return (int)cudaMemsetAsync(ptr, value, bytes, stream);
}

static int read_back(void *dst, const void *src, size_t bytes, void *stream) {
    const cudaError_t error = cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, stream);
    return (int)(error == cudaSuccess ? cudaStreamSynchronize(stream) : error);
}

static int info(size_t *free_bytes, size_t *total_bytes) {
    return (int)cudaMemGetInfo(free_bytes, total_bytes);
}

static int make_stream(void **stream, bool is_blocking) {
    cudaStream_t made = NULL;
    const cudaError_t error = is_blocking ? cudaStreamCreate(&made)
                                          : cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
    *stream = made;
    return (int)error;
}

static int end_stream(void *stream) {
    return (int)cudaStreamDestroy(stream);
}

static int wait_for(void *stream) {
    return (int)cudaStreamSynchronize(stream);
}

static int wait_for_all(void) {
    return (int)cudaDeviceSynchronize();
}

static int begin_capture(void *stream, int mode) {
    return (int)cudaStreamBeginCapture(stream, (enum cudaStreamCaptureMode)mode);
}

static int end_capture(void *stream) {
    cudaGraph_t graph = NULL;
    const cudaError_t error = cudaStreamEndCapture(stream, &graph);
    return (int)(error == cudaSuccess ? cudaGraphDestroy(graph) : error);
}

static int use(int device) {
    return (int)cudaSetDevice(device);
}

static int owner(void *ptr, int *device) {
    struct cudaPointerAttributes attributes;
    const cudaError_t error = cudaPointerGetAttributes(&attributes, ptr);
    *device = attributes.device;
    return (int)error;
}

static cudaMemPool_t pool;

static int own_pool(void) {
    const struct cudaMemPoolProps props = {.allocType = cudaMemAllocationTypePinned,
                                           .location = {cudaMemLocationTypeDevice, 0}};
    const cudaError_t error = cudaMemPoolCreate(&pool, &props);
    return (int)(error == cudaSuccess ? cudaDeviceSetMemPool(0, pool) : error);
}

static int own_pool_bytes(unsigned long long *bytes) {
    return (int)cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, bytes);
}

static int reset(void) {
    return (int)cudaDeviceReset();
}

static int export_block(ipc_handle *handle, void *ptr) {
    return (int)cudaIpcGetMemHandle((cudaIpcMemHandle_t *)handle, ptr);
}

int main(int argc, char **argv) {
    static const gpu calls = {GPU_CALLS};
    return run_program(&calls, argc, argv);
}
