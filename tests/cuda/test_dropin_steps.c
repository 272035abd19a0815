/*
 * test_dropin_steps.c - programs with ashlar/cuda_dropin.h and steps, on the CUDA of the tests: in
 * C, and in C++ with a guard (dropin_steps.cpp). Each is a loop as it may stand in one file.
 */
#include "tests/check.h"

#include <cuda_runtime_api.h>

#include <ashlar/cuda_dropin.h>
#include <ashlar/plan.h>

enum { LENGTHS = 128, STEPS = 400 };

#define WIDTH ((size_t)4 << 10)

/* In a C++ file. */
int guarded_steps(void);
int guarded_errors(void);

/* Layer after layer, as many as the sequence is long; then back. */
static void work(size_t length, cudaStream_t stream) {
    void *kept[LENGTHS], *gradient = NULL;
    for (size_t i = 0; i < length; i++) {
        CHECK(cudaMalloc(&kept[i], (1 + i % 7) * WIDTH) == cudaSuccess);
        CHECK(cudaMemsetAsync(kept[i], (int)i, WIDTH, stream) == cudaSuccess);
    }
    for (size_t i = length; i-- > 0;) {
        unsigned char byte = 0;
        CHECK(cudaMalloc(&gradient, (1 + i % 5) * WIDTH) == cudaSuccess);
        CHECK(cudaMemsetAsync(gradient, 255, WIDTH, stream) == cudaSuccess);
        CHECK(cudaMemcpyAsync(&byte, kept[i], 1, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
        CHECK(i % 16 > 0 || (cudaStreamSynchronize(stream) == cudaSuccess && byte == i));
        CHECK(cudaFree(gradient) == cudaSuccess && cudaFree(kept[i]) == cudaSuccess);
    }
}

/* All steps have one key. The warm-up is the first `warm_up` of them, with the longest before all;
 * `recorded` of them make the plan. */
static void loop(cudaStream_t stream, uint64_t key, int warm_up, int recorded) {
    ashlar_allocator *memory = ashlar_cuda_allocator(0);
    ashlar_plan_stats before, after;
    ashlar_stats sealed, stats;
    REQUIRE(memory != NULL);
    ashlar_plan_get_stats(memory, &before);
    for (int step = 0; step < STEPS; step++) {
        const size_t length = step == 0 ? LENGTHS : 1 + (size_t)step * 37 % LENGTHS;
        CHECK(ashlar_step_begin(memory, stream, key) == ASHLAR_OK);
        work(length, stream);
        CHECK(ashlar_step_end(memory) == ASHLAR_OK);
        if (step == warm_up - 1) {
            ashlar_allocator_seal(memory);
            ashlar_allocator_get_stats(memory, &sealed);
        }
    }
    ashlar_allocator_get_stats(memory, &stats);
    ashlar_plan_get_stats(memory, &after);
    CHECK(stats.driver_calls_sealed == 0 && stats.reserved_bytes == sealed.reserved_bytes);
    CHECK(stats.shared_bytes == 0 && stats.live_blocks == 0);
    CHECK(after.steps_replayed - before.steps_replayed == (uint64_t)(STEPS - recorded));
    CHECK(after.miss_count == 0);
}

CASE(three_lines_more_make_steps_that_call_no_driver) {
    loop(NULL, 0, 1, 1);
    loop(cudaStreamPerThread, 0, 1, 1);
}

CASE(a_guard_in_cpp_ends_a_step_behind_destructors) {
    CHECK(guarded_steps());
}

CASE(a_guard_in_cpp_throws_what_a_step_begins_with) {
    CHECK(guarded_errors());
}

static ashlar_status dry_run(void *user, size_t length) {
    void *kept = NULL, *gradient = NULL;
    (void)user;
    CHECK(cudaMalloc(&kept, length * WIDTH) == cudaSuccess);
    CHECK(cudaMalloc(&gradient, 2 * length * WIDTH) == cudaSuccess);
    CHECK(cudaFree(gradient) == cudaSuccess && cudaFree(kept) == cudaSuccess);
    return ASHLAR_OK;
}

CASE(a_dry_run_may_call_cudas_names) {
    const ashlar_warmup_options options = {.max_length = LENGTHS, .dry_run = dry_run, .key = 100};
    ashlar_allocator *memory = ashlar_cuda_allocator(0);
    ashlar_warmup_report report = {0};
    CHECK(ashlar_allocator_warmup(memory, &options, &report) == ASHLAR_OK);
    CHECK(report.is_planned && report.is_steady);
}

/* The first step on each stream, whose handle may be that of the last one, is recorded. */
CASE(streams_of_steps_may_come_and_go) {
    for (int i = 0; i < 4; i++) {
        cudaStream_t stream;
        void *named = NULL;
        REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
        loop(stream, 2, 1, 1);
        CHECK(cudaMallocAsync(&named, WIDTH, stream) == cudaSuccess);
        CHECK(cudaFreeAsync(named, stream) == cudaSuccess);
        CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    }
}

CASE(there_is_no_allocator_where_there_is_no_device) {
    CHECK(ashlar_cuda_allocator(-1) == NULL);
    CHECK(strstr(ashlar_error_detail(), "ordinals") != NULL);
    CHECK(ashlar_cuda_allocator(0) == ashlar_cuda_allocator(0));
    ashlar_cuda_end_stream(NULL);
}

RUN_CASES()
