/* dropin_plain.c - a file of the same program that has CUDA's functions as they are. */
#include <cuda_runtime_api.h>

cudaError_t plain_malloc(void **ptr, size_t bytes);
cudaError_t plain_free(void *ptr);
cudaError_t plain_free_host(void *ptr);
cudaError_t plain_stream_destroy(cudaStream_t stream);

cudaError_t plain_malloc(void **ptr, size_t bytes) {
    return cudaMalloc(ptr, bytes);
}

cudaError_t plain_free(void *ptr) {
    return cudaFree(ptr);
}

cudaError_t plain_free_host(void *ptr) {
    return cudaFreeHost(ptr);
}

cudaError_t plain_stream_destroy(cudaStream_t stream) {
    return cudaStreamDestroy(stream);
}
