/*
 * test_small_cudart.c - the CUDA of the tests behaves as a program expects CUDA to: built twice,
 * with the shared and with the static runtime.
 */
#include "check.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>

enum { BYTES = 4096 };

static void copies_and_fills_arrive(void) {
    unsigned char out[BYTES], in[BYTES];
    void *a = NULL, *b = NULL, *pinned = NULL;
    memset(in, 7, sizeof in);
    REQUIRE(cudaMalloc(&a, BYTES) == cudaSuccess && cudaMalloc(&b, BYTES) == cudaSuccess);
    REQUIRE(cudaMallocHost(&pinned, BYTES) == cudaSuccess);
    CHECK(cudaMemcpy(a, in, BYTES, cudaMemcpyHostToDevice) == cudaSuccess);
    CHECK(cudaMemcpy(b, a, BYTES, cudaMemcpyDefault) == cudaSuccess);
    CHECK(cudaMemset((char *)b + 1, 9, 1) == cudaSuccess);
    CHECK(cudaMemcpy(out, b, BYTES, cudaMemcpyDefault) == cudaSuccess);
    CHECK(out[0] == 7 && out[1] == 9 && out[2] == 7 && out[BYTES - 1] == 7);
    CHECK(cudaMemcpyAsync(pinned, b, BYTES, cudaMemcpyDeviceToHost, NULL) == cudaSuccess);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(memcmp(pinned, out, BYTES) == 0);
    CHECK(cudaFreeHost(pinned) == cudaSuccess);
    CHECK(cudaFree(a) == cudaSuccess && cudaFree(b) == cudaSuccess &&
          cudaFree(NULL) == cudaSuccess);
}

static void an_error_is_remembered_until_it_is_asked_for(void) {
    void *ptr = NULL;
    CHECK(cudaMalloc(&ptr, (size_t)1 << 50) == cudaErrorMemoryAllocation);
    CHECK(ptr == NULL);
    CHECK(cudaPeekAtLastError() == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(cudaFree(&ptr) == cudaErrorInvalidValue);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    CHECK_HAS(cudaGetErrorName(cudaErrorMemoryAllocation), "OUT_OF_MEMORY");
    CHECK(cudaSetDevice(99) == cudaErrorInvalidDevice && cudaGetLastError() != cudaSuccess);
}

static void note(void *user) {
    atomic_store((_Atomic int *)user, 1);
}

static void streams_run_in_order_and_events_tell(void) {
    _Atomic int ran = 0;
    cudaStream_t streams[2];
    cudaEvent_t event;
    float ms = -1;
    REQUIRE(cudaStreamCreateWithFlags(&streams[0], cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaStreamCreateWithPriority(&streams[1], cudaStreamNonBlocking, 0) == cudaSuccess);
    REQUIRE(cudaEventCreate(&event) == cudaSuccess);
    CHECK(cudaLaunchHostFunc(streams[0], note, &ran) == cudaSuccess);
    CHECK(cudaEventRecord(event, streams[0]) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(streams[1], event, 0) == cudaSuccess);
    CHECK(cudaStreamSynchronize(streams[1]) == cudaSuccess);
    CHECK(atomic_load(&ran) == 1);
    CHECK(cudaEventQuery(event) == cudaSuccess);
    CHECK(cudaEventElapsedTime(&ms, event, event) == cudaSuccess && ms == 0);
    CHECK(cudaEventDestroy(event) == cudaSuccess);
    CHECK(cudaStreamDestroy(streams[0]) == cudaSuccess);
    CHECK(cudaStreamDestroy(streams[1]) == cudaSuccess);
    CHECK(cudaStreamSynchronize(streams[1]) == cudaErrorInvalidResourceHandle);
    (void)cudaGetLastError();
}

static void a_device_says_what_it_is(void) {
    struct cudaDeviceProp prop;
    struct cudaPointerAttributes attributes;
    size_t free_bytes = 0, total_bytes = 0;
    int count = 0, version = 0;
    void *ptr = NULL;
    CHECK(cudaGetDeviceCount(&count) == cudaSuccess && count == 1);
    CHECK(cudaGetDeviceProperties(&prop, 0) == cudaSuccess);
    CHECK(cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess);
    CHECK(prop.totalGlobalMem == total_bytes && free_bytes <= total_bytes);
    CHECK_HAS(prop.name, "software");
    CHECK(cudaDriverGetVersion(&version) == cudaSuccess && version >= 12000);
    REQUIRE(cudaMalloc(&ptr, 1) == cudaSuccess);
    CHECK(cudaPointerGetAttributes(&attributes, ptr) == cudaSuccess);
    CHECK(attributes.type == cudaMemoryTypeDevice && attributes.device == 0);
    CHECK(cudaPointerGetAttributes(&attributes, &ptr) == cudaSuccess);
    CHECK(attributes.type == cudaMemoryTypeUnregistered);
    CHECK(cudaFree(ptr) == cudaSuccess);
}

static unsigned long long memory_calls(void) {
    unsigned long long (*calls)(void) = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *address = dlsym(library, "ashlar_fake_memory_calls");
    memcpy(&calls, &address, sizeof calls);
    return calls();
}

static void pool_memory_is_kept_and_reused(void) {
    cudaStream_t stream;
    cudaMemPool_t pool;
    void *first = NULL, *second = NULL;
    REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
    REQUIRE(cudaMallocAsync(&first, BYTES, stream) == cudaSuccess);
    CHECK(cudaMemsetAsync(first, 1, BYTES, stream) == cudaSuccess);
    CHECK(cudaFreeAsync(first, stream) == cudaSuccess);
    CHECK(cudaFreeAsync(first, stream) == cudaErrorInvalidValue);
    const unsigned long long calls = memory_calls();
    REQUIRE(cudaMallocAsync(&second, BYTES, stream) == cudaSuccess);
    CHECK(second == first && memory_calls() == calls);
    CHECK(cudaFreeAsync(second, stream) == cudaSuccess);
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0) == cudaSuccess);
    CHECK(cudaMemPoolTrimTo(pool, 0) == cudaSuccess);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

static void the_driver_is_found_by_its_names_too(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library != NULL);
    unsigned int (*get_count)(int *) = NULL;
    void *address = dlsym(library, "cuDeviceGetCount");
    REQUIRE(address != NULL && dlsym(library, "cuMemAlloc_v2") != NULL);
    memcpy(&get_count, &address, sizeof get_count);
    int count = 0;
    CHECK(get_count(&count) == 0 && count == 1);
}

/* Last: nothing of before is there any more. */
static void a_reset_takes_everything_and_the_next_call_begins_anew(void) {
    void *ptr = NULL;
    REQUIRE(cudaMalloc(&ptr, BYTES) == cudaSuccess);
    CHECK(cudaDeviceReset() == cudaSuccess);
    CHECK(cudaFree(ptr) == cudaErrorInvalidValue);
    CHECK(cudaMalloc(&ptr, BYTES) == cudaSuccess && cudaFree(ptr) == cudaSuccess);
}

int main(void) {
    RUN(copies_and_fills_arrive);
    RUN(an_error_is_remembered_until_it_is_asked_for);
    RUN(streams_run_in_order_and_events_tell);
    RUN(a_device_says_what_it_is);
    RUN(pool_memory_is_kept_and_reused);
    RUN(the_driver_is_found_by_its_names_too);
    RUN(a_reset_takes_everything_and_the_next_call_begins_anew);
    return check_report();
}
