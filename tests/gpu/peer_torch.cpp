// peer_torch.cpp - PyTorch's caching allocator for `ashlar-bench alloc --peer`. Compiled on the
// machine that has PyTorch (peers.py).
#include <exception>

#include <c10/cuda/CUDACachingAllocator.h>

extern "C" void *torch_alloc(size_t bytes, int device, cudaStream_t stream);
extern "C" void torch_free(void *ptr, size_t bytes, int device, cudaStream_t stream);

void *torch_alloc(size_t bytes, int device, cudaStream_t stream) {
    static const bool is_ready = (c10::cuda::CUDACachingAllocator::init(device + 1), true);
    try {
        return is_ready ? c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(bytes, stream)
                        : nullptr;
    } catch (const std::exception &) {
        return nullptr;
    }
}

void torch_free(void *ptr, size_t, int, cudaStream_t) {
    c10::cuda::CUDACachingAllocator::raw_delete(ptr);
}
