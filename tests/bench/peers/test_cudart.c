/*
 * test_cudart.c - the runtime that CUB runs on in the benchmark: never early, never silent.
 */
#include "bench/peers/peer.h"

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "tests/allocator/core/allocator_fixture.h"

/* Work that has not run when it is asked for, in adversarial mode. */
static void nothing(void *args) {
    (void)args;
}

static void queue_work(ashlar_stream stream) {
    const char args[1] = {0};
    CHECK(ashlar_launch(device, stream, nothing, args, sizeof args) == ASHLAR_OK);
}

/* The driver counts for the whole process, and one has been opened before the first case. */
static bool set_up_runtime(const char *spec) {
    if (!set_up_device(spec)) {
        return false;
    }
    ashlar__cudart_use(device);
    return true;
}

CASE_WITH(with_work_an_event_waits_for_it, set_up_runtime("mode=adversarial,seed=3")) {
    cudaEvent_t event = NULL;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
    for (int i = 0; i < 3; i++) {
        /* Enough that a few polls, each of which may run one, do not finish it. */
        for (int n = 0; n < 100; n++) {
            queue_work(streams[0]);
        }
        CHECK(cudaEventRecord(event, streams[0]) == cudaSuccess);
        CHECK(cudaEventQuery(event) == cudaErrorNotReady);
        CHECK(cudaPeekAtLastError() == cudaSuccess); /* that is no error */
        wait_for(streams[0]);
        CHECK(cudaEventQuery(event) == cudaSuccess);
    }
    CHECK(cudaEventDestroy(event) == cudaSuccess);
}

CASE_WITH(memory_comes_from_the_device_and_goes_back, set_up_runtime("memory=8MiB")) {
    void *ptr = NULL, *more = NULL;
    const size_t before = free_memory_of(device);
    CHECK(cudaMalloc(&ptr, 4 * MIB) == cudaSuccess && ptr != NULL);
    CHECK_ZU(before - free_memory_of(device), 4 * MIB);
    CHECK(cudaMalloc(&more, 8 * MIB) == cudaErrorMemoryAllocation && more == NULL);
    CHECK(cudaPeekAtLastError() == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaSuccess); /* asking takes it away */
    CHECK(cudaFree(ptr) == cudaSuccess);
    CHECK(cudaFree(NULL) == cudaSuccess);
    CHECK(cudaFree(ptr) == cudaErrorInvalidValue);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    CHECK(driver->table.ctx_pop_current(NULL) == CU_INVALID_CONTEXT); /* as before */
}

CASE_WITH(failing_driver_calls_are_reported, set_up_runtime("")) {
    cudaEvent_t event = NULL;
    void *ptr = NULL;
    queue_work(streams[0]);
    ashlar__host_fail_at(1);
    CHECK(cudaEventCreateWithFlags(&event, 0) == cudaErrorMemoryAllocation && event == NULL);
    REQUIRE(cudaEventCreateWithFlags(&event, 0) == cudaSuccess);
    static const int fns[] = {ASHLAR_DRIVER_FN_ctx_push_current, ASHLAR_DRIVER_FN_event_create,
                              ASHLAR_DRIVER_FN_event_record};
    for (size_t i = 0; i < sizeof fns / sizeof fns[0]; i++) {
        ashlar__driver_fail_at(driver, fns[i], 1, CU_UNKNOWN);
        CHECK(cudaEventRecord(event, streams[0]) == cudaErrorUnknown);
    }
    CHECK(cudaEventRecord(event, streams[0]) == cudaSuccess);
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_event_query, 1, CU_UNKNOWN);
    CHECK(cudaEventQuery(event) == cudaErrorUnknown);
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_ctx_push_current, 1, CU_UNKNOWN);
    CHECK(cudaMalloc(&ptr, MIB) == cudaErrorUnknown && ptr == NULL);
    CHECK(cudaEventDestroy(event) == cudaSuccess);
}

RUN_CASES()
