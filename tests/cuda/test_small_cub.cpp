// test_small_cub.cpp - CUB's CachingDeviceAllocator runs on the CUDA of the tests as on a GPU's.
#include <cub/util_allocator.cuh>

#include <cstdio>

static int bad, count;

static void check(bool holds, const char *name) {
    count++;
    bad += !holds;
    std::printf("%s %d - %s\n", holds ? "ok" : "not ok", count, name);
}

int main() {
    cudaStream_t stream;
    check(cudaStreamCreate(&stream) == cudaSuccess, "a_stream_is_made");
    {
        cub::CachingDeviceAllocator allocator;
        void *first = nullptr, *second = nullptr;
        check(allocator.DeviceAllocate(&first, 1000, stream) == cudaSuccess, "memory_is_taken");
        check(allocator.DeviceFree(first) == cudaSuccess, "memory_is_freed");
        check(allocator.DeviceAllocate(&second, 1000, stream) == cudaSuccess && second == first,
              "a_freed_block_serves_its_stream_again");
        check(allocator.DeviceFree(second) == cudaSuccess, "it_is_freed_again");
    }
    check(cudaStreamDestroy(stream) == cudaSuccess, "the_stream_goes");
    std::printf("1..%d\n", count);
    return bad != 0;
}
