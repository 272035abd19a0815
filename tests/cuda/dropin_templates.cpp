// dropin_templates.cpp - a C++ file of the same program, which has the templates of cuda_runtime.h.
#include <cuda_runtime.h>

#include <ashlar/cuda_dropin.h>

extern "C" int templates_hold(void);
extern "C" cudaError_t plain_free_host(void *ptr); // CUDA's own

int templates_hold(void) {
    float *numbers = nullptr;
    double *ordered = nullptr;
    void *plain = nullptr;
    cudaMemPool_t pool;
    short *pooled = nullptr;
    int *locked = nullptr;
    long *mapped = nullptr;
    void *flagged = nullptr;
    cudaError_t (*function)(void **, size_t) = cudaMalloc;
    return cudaMalloc(&numbers, 100) == cudaSuccess && cudaFree(numbers) == cudaSuccess &&
           cudaMallocAsync(&ordered, 100, nullptr) == cudaSuccess &&
           cudaFreeAsync(ordered, nullptr) == cudaSuccess &&
           function(&plain, 100) == cudaSuccess && cudaFree(plain) == cudaSuccess &&
           cudaDeviceGetDefaultMemPool(&pool, 0) == cudaSuccess &&
           cudaMallocAsync(&pooled, 100, pool, nullptr) == cudaSuccess &&
           cudaFreeAsync(pooled, nullptr) == cudaSuccess &&
           cudaMallocHost(&locked, 100) == cudaSuccess &&
           cudaMallocHost(&mapped, 100, cudaHostAllocMapped) == cudaSuccess &&
           cudaMallocHost(&flagged, 100, cudaHostAllocPortable) == cudaSuccess &&
           cudaFreeHost(flagged) == cudaSuccess && plain_free_host(mapped) == cudaSuccess &&
           cudaFreeHost(locked) == cudaSuccess;
}
