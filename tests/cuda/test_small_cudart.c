/*
 * test_small_cudart.c - the CUDA of the tests behaves as a program expects CUDA to: built twice,
 * with the shared and with the static runtime.
 */
#include "tests/check.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>

enum { BYTES = 4096 };

CASE(copies_and_fills_arrive) {
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

static bool work_is_late(void) {
    const char *soft = getenv("ASHLAR_SOFT");
    return soft != NULL && strstr(soft, "mode=adversarial") != NULL;
}

/* As the driver's, in test_small_contexts.c. */
CASE(copies_wait_for_no_more_than_they_must) {
    unsigned char mine[1] = {5}, *a = NULL, *b = NULL;
    REQUIRE(cudaMalloc((void **)&a, 1) == cudaSuccess && cudaMalloc((void **)&b, 1) == cudaSuccess);
    CHECK(cudaMemset(b, 1, 1) == cudaSuccess);
    CHECK(cudaMemcpy(a, mine, 1, cudaMemcpyHostToDevice) == cudaSuccess);
    CHECK(*b == 1 && *a == (work_is_late() ? 0 : 5));
    mine[0] = 6;
    CHECK(cudaMemcpy(b, a, 1, cudaMemcpyDeviceToDevice) == cudaSuccess);
    CHECK(*b == (work_is_late() ? 1 : 5));
    CHECK(cudaMemcpy(mine, b, 1, cudaMemcpyDefault) == cudaSuccess && mine[0] == 5);
    CHECK(cudaFree(a) == cudaSuccess && cudaFree(b) == cudaSuccess);
}

CASE(rows_lie_apart_and_arrive) {
    enum { WIDTH = 100, HEIGHT = 5 };
    unsigned char in[HEIGHT][WIDTH], out[HEIGHT][WIDTH];
    const struct cudaExtent extent = {WIDTH, HEIGHT, 3};
    struct cudaPitchedPtr cube;
    unsigned char *rows = NULL;
    size_t pitch = 0;
    for (size_t i = 0; i < sizeof in; i++) {
        in[i / WIDTH][i % WIDTH] = (unsigned char)i;
    }
    REQUIRE(cudaMallocPitch((void **)&rows, &pitch, WIDTH, HEIGHT) == cudaSuccess);
    CHECK(pitch >= WIDTH && pitch % 512 == 0);
    CHECK(cudaMemset2D(rows, pitch, 1, pitch, HEIGHT) == cudaSuccess);
    CHECK(cudaMemcpy2D(rows, pitch, in, WIDTH, WIDTH, HEIGHT, cudaMemcpyDefault) == cudaSuccess);
    CHECK(cudaMemcpy2D(out, WIDTH, rows, pitch, WIDTH, HEIGHT, cudaMemcpyDefault) == cudaSuccess);
    CHECK(memcmp(in, out, sizeof in) == 0);
    CHECK(cudaMemcpy(out, rows + WIDTH, 1, cudaMemcpyDefault) == cudaSuccess && out[0][0] == 1);
    CHECK(cudaMemcpy2D(rows, WIDTH - 1, in, WIDTH, WIDTH, 1, cudaMemcpyDefault) ==
          cudaErrorInvalidPitchValue);
    REQUIRE(cudaMalloc3D(&cube, extent) == cudaSuccess);
    CHECK(cube.ysize == HEIGHT && cube.pitch == pitch);
    CHECK(cudaMemset(cube.ptr, 2, cube.pitch * HEIGHT * 3) == cudaSuccess);
    CHECK(cudaFree(cube.ptr) == cudaSuccess && cudaFree(rows) == cudaSuccess);
    (void)cudaGetLastError();
}

CASE(managed_memory_is_the_hosts_too) {
    unsigned char *ptr = NULL;
    void *pinned = NULL, *same = NULL;
    REQUIRE(cudaMallocManaged((void **)&ptr, BYTES, cudaMemAttachGlobal) == cudaSuccess);
    ptr[1] = 5;
    CHECK(cudaMemset(ptr, 9, 1) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess);
    CHECK(ptr[0] == 9 && ptr[1] == 5);
    CHECK(cudaFree(ptr) == cudaSuccess);
    REQUIRE(cudaMallocHost(&pinned, BYTES) == cudaSuccess);
    CHECK(cudaHostGetDevicePointer(&same, pinned, 0) == cudaSuccess && same == pinned);
    CHECK(cudaFreeHost(pinned) == cudaSuccess);
    CHECK(cudaMalloc(NULL, 1) == cudaErrorInvalidValue);
    (void)cudaGetLastError();
}

CASE(an_error_is_remembered_until_it_is_asked_for) {
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

CASE(streams_run_in_order_and_events_tell) {
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
}

CASE(a_device_says_what_it_is) {
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

CASE(pool_memory_is_kept_and_reused) {
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

static uint64_t pool_value(cudaMemPool_t pool, enum cudaMemPoolAttr attribute) {
    uint64_t value = 0;
    CHECK(cudaMemPoolGetAttribute(pool, attribute, &value) == cudaSuccess);
    return value;
}

CASE(a_pool_counts_and_keeps_what_its_threshold_says) {
    uint64_t all = UINT64_MAX, none = 0;
    cudaMemPool_t pool;
    void *a = NULL, *b = NULL;
    REQUIRE(cudaDeviceGetMemPool(&pool, 0) == cudaSuccess);
    REQUIRE(cudaMallocAsync(&a, 2 * BYTES, NULL) == cudaSuccess);
    REQUIRE(cudaMallocAsync(&b, BYTES, NULL) == cudaSuccess);
    CHECK(pool_value(pool, cudaMemPoolAttrUsedMemCurrent) == UINT64_C(3) * BYTES);
    CHECK(cudaFreeAsync(a, NULL) == cudaSuccess);
    CHECK(pool_value(pool, cudaMemPoolAttrUsedMemCurrent) == BYTES);
    CHECK(pool_value(pool, cudaMemPoolAttrReservedMemCurrent) == UINT64_C(3) * BYTES);
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all) == cudaSuccess);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(pool_value(pool, cudaMemPoolAttrReservedMemCurrent) == UINT64_C(3) * BYTES);
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &none) == cudaSuccess);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(pool_value(pool, cudaMemPoolAttrReservedMemCurrent) == BYTES);
    CHECK(pool_value(pool, cudaMemPoolAttrUsedMemHigh) == UINT64_C(3) * BYTES);
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &none) == cudaSuccess);
    CHECK(pool_value(pool, cudaMemPoolAttrUsedMemHigh) == BYTES);
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &none) ==
          cudaErrorInvalidValue);
    CHECK(cudaFreeAsync(b, NULL) == cudaSuccess);
    (void)cudaGetLastError();
}

CASE(a_program_has_pools_of_its_own) {
    const struct cudaMemPoolProps props = {.allocType = cudaMemAllocationTypePinned,
                                           .location = {cudaMemLocationTypeDevice, 0}};
    cudaMemPool_t first, mine, now;
    void *a = NULL, *b = NULL;
    REQUIRE(cudaDeviceGetMemPool(&first, 0) == cudaSuccess);
    REQUIRE(cudaMemPoolCreate(&mine, &props) == cudaSuccess);
    REQUIRE(cudaMallocFromPoolAsync(&a, BYTES, mine, NULL) == cudaSuccess);
    CHECK(cudaDeviceSetMemPool(0, mine) == cudaSuccess);
    CHECK(cudaDeviceGetMemPool(&now, 0) == cudaSuccess && now == mine);
    REQUIRE(cudaMallocAsync(&b, BYTES, NULL) == cudaSuccess);
    CHECK(pool_value(mine, cudaMemPoolAttrUsedMemCurrent) == UINT64_C(2) * BYTES);
    CHECK(cudaFreeAsync(a, NULL) == cudaSuccess && cudaFreeAsync(b, NULL) == cudaSuccess);
    CHECK(cudaMemPoolDestroy(mine) == cudaSuccess);
    CHECK(cudaDeviceGetMemPool(&now, 0) == cudaSuccess && now == first);
    CHECK(cudaMemPoolDestroy(first) == cudaErrorInvalidValue);
    (void)cudaGetLastError();
}

CASE(streams_say_what_they_are) {
    cudaStream_t stream;
    unsigned int flags = 7;
    int priority = 7, least = 7, greatest = 7;
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    CHECK(cudaStreamGetFlags(stream, &flags) == cudaSuccess && flags == cudaStreamNonBlocking);
    CHECK(cudaStreamGetPriority(stream, &priority) == cudaSuccess && priority == 0);
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest) == cudaSuccess);
    CHECK(least == 0 && greatest == 0);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

CASE(a_graph_is_captured_and_launched) {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    unsigned char out = 0;
    void *ptr = NULL;
    REQUIRE(cudaMalloc(&ptr, 1) == cudaSuccess && cudaStreamCreate(&stream) == cudaSuccess);
    CHECK(cudaMemset(ptr, 1, 1) == cudaSuccess);
    REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(cudaMemsetAsync(ptr, 2, 1, stream) == cudaSuccess);
    REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    REQUIRE(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
    CHECK(cudaMemcpy(&out, ptr, 1, cudaMemcpyDefault) == cudaSuccess && out == 1);
    CHECK(cudaGraphLaunch(exec, stream) == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(cudaMemcpy(&out, ptr, 1, cudaMemcpyDefault) == cudaSuccess && out == 2);
    CHECK(cudaGraphExecDestroy(exec) == cudaSuccess && cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess && cudaFree(ptr) == cudaSuccess);
}

/* As a program calls them that is compiled for such streams. */
cudaError_t cudaStreamBeginCapture_ptsz(cudaStream_t stream, enum cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture_ptsz(cudaStream_t stream, cudaGraph_t *graph);

CASE(per_thread_default_streams_have_names_of_their_own) {
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(NULL, cudaStreamCaptureModeRelaxed) != cudaSuccess);
    CHECK(cudaStreamBeginCapture_ptsz(NULL, cudaStreamCaptureModeRelaxed) == cudaSuccess);
    CHECK(cudaStreamEndCapture_ptsz(NULL, &graph) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    (void)cudaGetLastError();
}

CASE(the_driver_is_found_by_its_names_too) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library != NULL);
    unsigned int (*get_count)(int *) = NULL;
    void *address = dlsym(library, "cuDeviceGetCount");
    REQUIRE(address != NULL && dlsym(library, "cuMemAlloc_v2") != NULL);
    memcpy(&get_count, &address, sizeof get_count);
    int count = 0;
    CHECK(get_count(&count) == 0 && count == 1);
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    CHECK(cudaGetDriverEntryPointByVersion("cuDeviceGetCount", &address, 12000, 0, &found) ==
          cudaSuccess);
    CHECK(address != NULL && found == cudaDriverEntryPointSuccess);
    CHECK(cudaGetDriverEntryPointByVersion("cuNoSuch", &address, 12000, 0, &found) == cudaSuccess);
    CHECK(address == NULL && found == cudaDriverEntryPointSymbolNotFound);
}

/* Last: nothing of before is there any more. */
CASE(a_reset_takes_everything_and_the_next_call_begins_anew) {
    void *ptr = NULL;
    REQUIRE(cudaMalloc(&ptr, BYTES) == cudaSuccess);
    CHECK(cudaDeviceReset() == cudaSuccess);
    CHECK(cudaFree(ptr) == cudaErrorInvalidValue);
    CHECK(cudaMalloc(&ptr, BYTES) == cudaSuccess && cudaFree(ptr) == cudaSuccess);
}

RUN_CASES()
