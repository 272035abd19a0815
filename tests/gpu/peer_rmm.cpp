// peer_rmm.cpp - RMM's pool on cudaMalloc, which grows up to the device's memory, for `ashlar-bench
// alloc --peer`. Compiled on the machine that has RMM (peers.py).
#include <cstddef>
#include <exception>

#include <cuda/stream_ref>
#include <rmm/version_config.hpp>
#if __has_include(<rmm/mr/pool_memory_resource.hpp>)
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#else
#include <rmm/mr/device/cuda_memory_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>
#endif

extern "C" void *rmm_alloc(std::size_t bytes, int device, cudaStream_t stream);
extern "C" void rmm_free(void *ptr, std::size_t bytes, int device, cudaStream_t stream);

namespace {

constexpr std::size_t MIB = std::size_t(1) << 20;

#if RMM_VERSION_MAJOR * 100 + RMM_VERSION_MINOR >= 2606
constexpr std::size_t ALIGNMENT = 256; // what RMM takes for the usual one

auto &pool() {
    static rmm::mr::pool_memory_resource made(rmm::mr::cuda_memory_resource(), MIB);
    return made;
}
void *take(std::size_t bytes, cudaStream_t stream) {
    return pool().allocate(cuda::stream_ref(stream), bytes, ALIGNMENT);
}
void give(void *ptr, std::size_t bytes, cudaStream_t stream) {
    pool().deallocate(cuda::stream_ref(stream), ptr, bytes, ALIGNMENT);
}
#else
auto &pool() {
    static rmm::mr::cuda_memory_resource upstream;
    static rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> made(&upstream, MIB);
    return made;
}
void *take(std::size_t bytes, cudaStream_t stream) {
    return pool().allocate_async(bytes, rmm::cuda_stream_view(stream));
}
void give(void *ptr, std::size_t bytes, cudaStream_t stream) {
    pool().deallocate_async(ptr, bytes, rmm::cuda_stream_view(stream));
}
#endif

} // namespace

void *rmm_alloc(std::size_t bytes, int, cudaStream_t stream) {
    try {
        return take(bytes, stream);
    } catch (const std::exception &) {
        return nullptr;
    }
}

void rmm_free(void *ptr, std::size_t bytes, int, cudaStream_t stream) {
    give(ptr, bytes, stream);
}
