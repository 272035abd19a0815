// test_rmm_streams.cpp - rmm_adaptor.hpp, as RMM calls it, with streams that end without a word.
#include <cuda_runtime_api.h>

#include <ashlar/rmm_adaptor.hpp>

#include <cstdio>

namespace {

int bad, count;

void check(bool holds, const char *name) {
    count++;
    bad += !holds;
    std::printf("%s %d - %s\n", holds ? "ok" : "not ok", count, name);
}

constexpr std::size_t BYTES = std::size_t(8) << 20; // all that the allocator may have

cudaStream_t make_stream() {
    cudaStream_t stream = nullptr;
    (void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    return stream;
}

bool holds(const void *ptr, unsigned char value) {
    unsigned char byte = 0;
    return cudaMemcpy(&byte, ptr, 1, cudaMemcpyDeviceToHost) == cudaSuccess && byte == value;
}

// A stream uses all memory and ends right behind its free. Whoever comes next, perhaps under the
// same handle, has the memory for itself.
bool each_has_memory_for_itself(ashlar::rmm_resource memory) {
    bool is_right = true;
    for (unsigned char i = 1; i < 10 && is_right; i++) {
        cudaStream_t stream = make_stream();
        void *ptr = memory.allocate(stream, BYTES);
        is_right = cudaMemsetAsync(ptr, i, BYTES, stream) == cudaSuccess;
        if (i % 3 == 0) {
            is_right = is_right && cudaDeviceSynchronize() == cudaSuccess && holds(ptr, i);
        }
        if (i % 3 == 1) {
            memory.deallocate(stream, ptr, BYTES);
            is_right = is_right && cudaStreamDestroy(stream) == cudaSuccess;
        } else {
            is_right = is_right && cudaStreamSynchronize(stream) == cudaSuccess &&
                       cudaStreamDestroy(stream) == cudaSuccess;
            memory.deallocate_sync(ptr, BYTES);
        }
    }
    return is_right;
}

bool a_stream_beside_them_does_not_see_them(ashlar::rmm_resource memory) {
    bool is_right = true;
    cudaStream_t steady = make_stream();
    for (int i = 0; i < 10 && is_right; i++) {
        cudaStream_t brief = make_stream();
        void *ptr = memory.allocate(brief, BYTES / 2);
        is_right = cudaMemsetAsync(ptr, 1, BYTES / 2, brief) == cudaSuccess;
        memory.deallocate(brief, ptr, BYTES / 2);
        is_right = is_right && cudaStreamDestroy(brief) == cudaSuccess;
        void *all = memory.allocate(steady, BYTES);
        is_right = is_right && cudaMemsetAsync(all, 2, BYTES, steady) == cudaSuccess &&
                   cudaDeviceSynchronize() == cudaSuccess && holds(all, 2);
        memory.deallocate(steady, all, BYTES);
    }
    return is_right && cudaStreamDestroy(steady) == cudaSuccess;
}

} // namespace

int main() {
    ashlar_device *device;
    ashlar_allocator *memory;
    ashlar_config config = {};
    config.limit_bytes = BYTES;
    if (cudaSetDevice(0) != cudaSuccess || ashlar_device_open("cuda:0", &device) != ASHLAR_OK ||
        ashlar_allocator_create_with(device, &config, &memory) != ASHLAR_OK) {
        std::printf("not ok 1 - an allocator # %s\n1..1\n", ashlar_error_detail());
        return 1;
    }
    const ashlar::rmm_resource resource(memory);
    check(each_has_memory_for_itself(resource), "each_stream_has_memory_for_itself");
    check(a_stream_beside_them_does_not_see_them(resource), "a_stream_beside_them_sees_nothing");
    check(ashlar_allocator_check(memory) == ASHLAR_OK, "the_allocator_is_sound");
    ashlar_allocator_destroy(memory);
    ashlar_device_close(device);
    std::printf("1..%d\n", count);
    return bad != 0;
}
