/*
 * test_bench_alloc.c - which workloads and subjects the benchmark takes by name. That
 * it measures them is seen from a shell (shell_bench.sh).
 */
#include "bench/peers/measure.h"

#include <ashlar/device.h>

#include "tests/check.h"
#include "tests/text.h"
#include "allocator/soft/soft.h"

static ashlar_bench_request request_of(const char *workload, const char *subject) {
    return (ashlar_bench_request){
        .workloads = {.items = {workload}, .count = workload != NULL},
        .subjects = {.items = {subject}, .count = subject != NULL},
    };
}

CASE(every_list_and_subject_has_its_name) {
    static const char *const good[] = {"one_size/4096-fragmented", "mix/reverse", "rnn_warm",
                                       "streams_512"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        const ashlar_bench_request request = request_of(good[i], "floor");
        CHECK(ashlar__benchmark_check(&ashlar__benchmark_alloc, &request) == ASHLAR_OK);
    }
    const ashlar_bench_request step = request_of("rnn_step/64", NULL);
    CHECK(ashlar__benchmark_check(&ashlar__benchmark_plan, &step) == ASHLAR_OK);
    CHECK_FAILS(ashlar__benchmark_check(&ashlar__benchmark_alloc, &step), ASHLAR_EINVAL,
                "rnn_cold"); /* what there is */
    const ashlar_bench_request bad = request_of("mix", "tcmalloc");
    CHECK_FAILS(ashlar__benchmark_check(&ashlar__benchmark_alloc, &bad), ASHLAR_EINVAL, "tcmalloc");
    CHECK_HAS(ashlar_error_detail(), " ashlar, floor");
    CHECK_HAS(ashlar_error_detail(), " driver, plan, none");
}

/* Two driver calls a pair tell how many were run, in whole lists: of 256 pairs of 4 KiB, or of the
 * 3200 of a mix. */
CASE(pairs_alone_are_run_as_often_as_asked) {
    static const char *const lists[] = {NULL, "mix/reverse"};
    static const size_t pairs[] = {768, 3200};
    ashlar_device *device = NULL;
    ashlar_driver_counts before, after;
    REQUIRE(ashlar__soft_configure("memory=64GiB") == ASHLAR_OK);
    REQUIRE(ashlar_device_open("soft", &device) == ASHLAR_OK);
    for (size_t i = 0; i < 2; i++) {
        ashlar_bench_request request = request_of(lists[i], "driver");
        request.pairs = 600;
        request.out = nowhere();
        request.device = "soft";
        before = ashlar_device_get_info(device).calls;
        CHECK(ashlar__benchmark_run(&ashlar__benchmark_alloc, &request) == ASHLAR_OK);
        after = ashlar_device_get_info(device).calls;
        CHECK_ZU(after.memory - before.memory, 2 * pairs[i]);
    }
    ashlar_device_close(device);
}

RUN_CASES()
