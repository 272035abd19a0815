/*
 * test_dropin_header.c - a C program with ashlar/cuda_dropin.h, on the CUDA of the tests.
 */
#include "tests/check.h"

#include <cuda_runtime_api.h>

#include <ashlar/cuda_dropin.h>
#include <dlfcn.h>
#include <pthread.h>

#define MIB ((size_t)1 << 20)

/* In a file without the header (dropin_plain.c). */
cudaError_t plain_malloc(void **ptr, size_t bytes);
cudaError_t plain_free(void *ptr);
cudaError_t plain_stream_destroy(cudaStream_t stream);
/* In a C++ file with it (dropin_templates.cpp). */
int templates_hold(void);

static unsigned long long memory_calls(void) {
    unsigned long long (*calls)(void) = NULL;
    void *address = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "ashlar_fake_memory_calls");
    memcpy(&calls, &address, sizeof calls);
    return calls();
}

static void *grow(void *unused) {
    void *ptr = NULL;
    CHECK(cudaMalloc(&ptr, 48 * MIB) == cudaSuccess);
    CHECK(cudaFree(ptr) == cudaSuccess);
    return unused;
}

/* Of a stream that nobody has told us of, in CUDA's default mode. Where freed memory gathers, the
 * device would be waited for, which spoils it: so this comes first. */
CASE(memory_that_a_thread_takes_spoils_no_capture_of_another) {
    cudaStream_t stream;
    cudaGraph_t graph = NULL;
    pthread_t other;
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
    REQUIRE(pthread_create(&other, NULL, grow, NULL) == 0 && pthread_join(other, NULL) == 0);
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    CHECK(graph != NULL && cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

CASE(steps_take_nothing_from_the_driver_after_the_first) {
    unsigned long long after_first = 0;
    cudaStream_t stream;
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    for (int i = 0; i < 10; i++) {
        void *a = NULL, *b = NULL;
        unsigned char byte = 0;
        CHECK(cudaMalloc(&a, MIB) == cudaSuccess);
        CHECK(cudaMallocAsync(&b, MIB, stream) == cudaSuccess);
        CHECK(cudaMemsetAsync(a, i, MIB, stream) == cudaSuccess);
        CHECK(cudaMemcpyAsync(b, a, MIB, cudaMemcpyDeviceToDevice, stream) == cudaSuccess);
        CHECK(cudaMemcpyAsync(&byte, b, 1, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
        CHECK(cudaStreamSynchronize(stream) == cudaSuccess && byte == i);
        CHECK(cudaFreeAsync(b, stream) == cudaSuccess);
        CHECK(cudaFree(a) == cudaSuccess);
        after_first = i == 0 ? memory_calls() : after_first;
    }
    CHECK(memory_calls() == after_first);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

/* The device has 64 MiB, and runs work as late as it may. */
CASE(memory_freed_under_a_streams_work_is_safe) {
    cudaStream_t slow, fast;
    REQUIRE(cudaStreamCreateWithFlags(&slow, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaStreamCreateWithFlags(&fast, cudaStreamNonBlocking) == cudaSuccess);
    for (int i = 0; i < 5; i++) {
        void *before = NULL, *after = NULL;
        unsigned char byte = 0;
        CHECK(cudaMalloc(&before, 40 * MIB) == cudaSuccess);
        CHECK(cudaMemsetAsync(before, 1, MIB, slow) == cudaSuccess);
        CHECK(cudaFree(before) == cudaSuccess);
        CHECK(cudaMalloc(&after, 40 * MIB) == cudaSuccess);
        CHECK(cudaMemsetAsync(after, 2, MIB, fast) == cudaSuccess);
        CHECK(cudaDeviceSynchronize() == cudaSuccess);
        CHECK(cudaMemcpy(&byte, after, 1, cudaMemcpyDeviceToHost) == cudaSuccess && byte == 2);
        CHECK(cudaFree(after) == cudaSuccess);
    }
    CHECK(cudaStreamDestroy(slow) == cudaSuccess && cudaStreamDestroy(fast) == cudaSuccess);
}

/* Each stream ends right behind its free, without a word, and the next one may have its handle. */
CASE(a_stream_may_end_right_after_a_free) {
    cudaStream_t steady;
    REQUIRE(cudaStreamCreateWithFlags(&steady, cudaStreamNonBlocking) == cudaSuccess);
    for (int i = 0; i < 10; i++) {
        cudaStream_t brief;
        void *before = NULL, *after = NULL;
        unsigned char byte = 0;
        REQUIRE(cudaStreamCreateWithFlags(&brief, cudaStreamNonBlocking) == cudaSuccess);
        CHECK(cudaMallocAsync(&before, 40 * MIB, brief) == cudaSuccess);
        CHECK(cudaMemsetAsync(before, 1, MIB, brief) == cudaSuccess);
        CHECK(cudaFreeAsync(before, brief) == cudaSuccess);
        CHECK(plain_stream_destroy(brief) == cudaSuccess);
        cudaStream_t next = steady;
        if (i % 3 == 0) {
            CHECK(cudaStreamCreateWithFlags(&next, cudaStreamNonBlocking) == cudaSuccess);
        }
        CHECK((i % 3 == 1 ? cudaMalloc(&after, 40 * MIB)
                          : cudaMallocAsync(&after, 40 * MIB, next)) == cudaSuccess);
        CHECK(cudaMemsetAsync(after, 2, MIB, next) == cudaSuccess);
        CHECK(cudaDeviceSynchronize() == cudaSuccess);
        CHECK(cudaMemcpy(&byte, after, 1, cudaMemcpyDeviceToHost) == cudaSuccess && byte == 2);
        CHECK((i % 3 == 1 ? cudaFree(after) : cudaFreeAsync(after, next)) == cudaSuccess);
        if (next != steady) {
            CHECK(plain_stream_destroy(next) == cudaSuccess);
        }
    }
    CHECK(plain_stream_destroy(steady) == cudaSuccess);
}

CASE(page_locked_memory_is_kept_and_safe) {
    unsigned long long after_first = 0;
    void *on_device = NULL;
    cudaStream_t slow;
    REQUIRE(cudaMalloc(&on_device, MIB) == cudaSuccess);
    REQUIRE(cudaStreamCreateWithFlags(&slow, cudaStreamNonBlocking) == cudaSuccess);
    for (int i = 0; i < 10; i++) {
        void *before = NULL, *after = NULL;
        CHECK(cudaMallocHost(&before, 2 * MIB) == cudaSuccess);
        CHECK(cudaMemsetAsync(on_device, 1, MIB, slow) == cudaSuccess);
        CHECK(cudaMemcpyAsync(before, on_device, MIB, cudaMemcpyDeviceToHost, slow) == cudaSuccess);
        CHECK(cudaFreeHost(before) == cudaSuccess);
        CHECK(cudaMallocHost(&after, 2 * MIB) == cudaSuccess);
        memset(after, 2, MIB);
        CHECK(cudaStreamSynchronize(slow) == cudaSuccess);
        CHECK(((unsigned char *)after)[0] == 2 && ((unsigned char *)after)[MIB - 1] == 2);
        CHECK(cudaFreeHost(after) == cudaSuccess);
        after_first = i == 0 ? memory_calls() : after_first;
    }
    CHECK(memory_calls() == after_first);
    CHECK(cudaStreamDestroy(slow) == cudaSuccess && cudaFree(on_device) == cudaSuccess);
}

CASE(errors_are_cudas_and_remembered) {
    void *ptr = NULL;
    CHECK(cudaMalloc(&ptr, 1000 * MIB) == cudaErrorMemoryAllocation && ptr == NULL);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
    CHECK(cudaMallocAsync(&ptr, 1000 * MIB, NULL) == cudaErrorMemoryAllocation && ptr == NULL);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaSuccess);
    CHECK(cudaMalloc(&ptr, MIB) == cudaSuccess);
    CHECK(cudaFree((char *)ptr + 512) == cudaErrorInvalidValue);
    CHECK(cudaFree(ptr) == cudaSuccess);
    CHECK(cudaFree(ptr) == cudaErrorInvalidValue);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    CHECK(cudaFreeAsync(ptr, NULL) == cudaErrorInvalidValue);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    /* Nor did that reach the segment that begins there. */
    CHECK(cudaMalloc(&ptr, MIB) == cudaSuccess && cudaMemset(ptr, 1, MIB) == cudaSuccess);
    CHECK(cudaFree(ptr) == cudaSuccess);
    CHECK(cudaFree(NULL) == cudaSuccess && cudaFreeAsync(NULL, NULL) == cudaSuccess);
    CHECK(cudaMalloc(&ptr, 0) == cudaSuccess);
}

/* The cases above have named some whose end nobody tells. */
CASE(once_streams_are_watched_there_is_no_allocator_for_steps) {
    cudaStream_t stream;
    void *ptr = NULL;
    REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
    CHECK(cudaMallocAsync(&ptr, MIB, stream) == cudaSuccess);
    CHECK(ashlar_cuda_allocator(0) == NULL);
    CHECK(strstr(ashlar_error_detail(), "no steps") != NULL);
    CHECK(cudaFreeAsync(ptr, stream) == cudaSuccess && cudaStreamDestroy(stream) == cudaSuccess);
}

CASE(templates_take_pointers_of_any_type) {
    CHECK(templates_hold());
}

RUN_CASES()
