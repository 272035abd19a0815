/*
 * test_bench_alloc.c - which workloads and subjects the benchmark takes by name. That it measures
 * them is seen from a shell (shell_bench.sh).
 */
#include "bench/peers/bench_alloc.h"

#include "tests/check.h"
#include "allocator/soft/soft.h"

static ashlar_bench_config config_of(const char *workload, const char *subject) {
    ashlar_bench_config config = {0};
    if (workload != NULL) {
        config.workloads.items[config.workloads.count++] = workload;
    }
    if (subject != NULL) {
        config.subjects.items[config.subjects.count++] = subject;
    }
    return config;
}

CASE(names_of_workloads_may_have_a_variant) {
    static const char *const good[] = {"one_size",    "one_size/4096", "one_size/4096-fragmented",
                                       "mix/reverse", "random",        "rnn_warm"};
    static const char *const bad[] = {"one",      "one_size/", "one_size/7",
                                      "mix/4096", "one_sizes", "rnn_warm/x"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        const ashlar_bench_config config = config_of(good[i], NULL);
        CHECK(ashlar__bench_check(&config) == ASHLAR_OK);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const ashlar_bench_config config = config_of(bad[i], NULL);
        CHECK_FAILS(ashlar__bench_check(&config), ASHLAR_EINVAL, bad[i]);
        CHECK_HAS(ashlar_error_detail(), "rnn_cold"); /* what there is */
    }
}

CASE(a_subject_that_is_not_there_is_refused) {
    const ashlar_bench_config good = config_of(NULL, "floor"), bad = config_of("mix", "tcmalloc");
    CHECK(ashlar__bench_check(&good) == ASHLAR_OK);
    CHECK_FAILS(ashlar__bench_check(&bad), ASHLAR_EINVAL, "tcmalloc");
    CHECK_HAS(ashlar_error_detail(), " ashlar floor");
    CHECK_HAS(ashlar_error_detail(), " glibc driver cuda_async plan none");
}

CASE(every_name_of_several_is_checked) {
    ashlar_bench_config config = config_of("mix", "floor");
    config.workloads.items[config.workloads.count++] = "random";
    CHECK(ashlar__bench_check(&config) == ASHLAR_OK);
    config.workloads.items[config.workloads.count++] = "chaos";
    CHECK(ashlar__bench_check(&config) == ASHLAR_EINVAL);
    config.workloads.count--;
    config.subjects.items[config.subjects.count++] = "ceiling";
    CHECK(ashlar__bench_check(&config) == ASHLAR_EINVAL);
}

/* Two driver calls a pair tell how many were run, in whole lists of 256. */
CASE(pairs_alone_are_run_as_often_as_asked) {
    ashlar_device *device = NULL;
    ashlar_driver_counts before, after;
    REQUIRE(ashlar__soft_configure("") == ASHLAR_OK);
    REQUIRE(ashlar_device_open("soft", &device) == ASHLAR_OK);
    const ashlar_bench_config config = config_of("mix", "driver"); /* the workload is not asked */
    ashlar_device_get_counts(device, &before);
    CHECK(ashlar__bench_pairs(device, &config, 600) == ASHLAR_OK);
    ashlar_device_get_counts(device, &after);
    CHECK_ZU(after.memory - before.memory, 2 * 768);
    ashlar_device_close(device);
}

RUN_CASES()
