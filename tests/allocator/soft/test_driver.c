/*
 * test_driver.c - counting, kinds and armed failures of the driver table's one door, and how it
 * keeps captures from harm.
 */
#include "tests/check.h"

#include <time.h>

#include "allocator/driver/driver.h"
#include "allocator/soft/soft.h"
#include "allocator/soft/soft_state.h"
#include "tests/thread.h"

static ashlar_driver *driver;

static bool set_up(void) {
    return ashlar__driver_open_soft(&driver) == ASHLAR_OK &&
           ashlar__soft_configure("") == ASHLAR_OK;
}

static uint64_t calls_of(ashlar_driver_fn fn) {
    return atomic_load(&driver->calls[fn]);
}

static cu_result call_count(void) {
    int count;
    return ASHLAR_DRIVER_CALL(driver, device_get_count, (&count));
}

static cu_result call_total(void) {
    size_t bytes;
    return ASHLAR_DRIVER_CALL(driver, device_total_mem, (&bytes, 0));
}

/* Admit `fn` + 1 calls of each function, and find them in the right sums. */
CASE_WITH(calls_are_counted_by_function_and_kind, set_up()) {
    uint64_t before[ASHLAR_DRIVER_KIND_COUNT], want[ASHLAR_DRIVER_KIND_COUNT] = {0};
    for (int kind = 0; kind < ASHLAR_DRIVER_KIND_COUNT; kind++) {
        before[kind] = ashlar__driver_calls(driver, (ashlar_driver_kind)kind);
    }
    for (int fn = 0; fn < ASHLAR_DRIVER_FN_COUNT; fn++) {
        const uint64_t had = calls_of((ashlar_driver_fn)fn);
        for (int i = 0; i <= fn; i++) {
            CHECK(ashlar__driver_admit(driver, (ashlar_driver_fn)fn));
        }
        CHECK(calls_of((ashlar_driver_fn)fn) == had + (uint64_t)fn + 1);
        if (fn != ASHLAR_DRIVER_FN_thread_exchange_capture_mode) { /* part of another call */
            want[ashlar__driver_fn_kind((ashlar_driver_fn)fn)] += (uint64_t)fn + 1;
        }
    }
    uint64_t all = 0, sums = calls_of(ASHLAR_DRIVER_FN_thread_exchange_capture_mode);
    for (int fn = 0; fn < ASHLAR_DRIVER_FN_COUNT; fn++) {
        all += calls_of((ashlar_driver_fn)fn);
    }
    for (int kind = 0; kind < ASHLAR_DRIVER_KIND_COUNT; kind++) {
        sums += ashlar__driver_calls(driver, (ashlar_driver_kind)kind);
    }
    CHECK(sums == all);
    for (int kind = 0; kind < ASHLAR_DRIVER_KIND_COUNT; kind++) {
        CHECK(want[kind] > 0);
        CHECK(ashlar__driver_calls(driver, (ashlar_driver_kind)kind) == before[kind] + want[kind]);
    }
}

CASE_WITH(the_nth_call_of_the_armed_function_fails_once, set_up()) {
    for (uint64_t n = 1; n <= 5; n++) {
        ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_device_get_count, n, CU_LAUNCH_FAILED);
        for (uint64_t call = 1; call <= 8; call++) {
            const uint64_t before = calls_of(ASHLAR_DRIVER_FN_device_get_count);
            CHECK(call_total() == CU_SUCCESS); /* another function does not count */
            CHECK(call_count() == (call == n ? CU_LAUNCH_FAILED : CU_SUCCESS));
            CHECK(calls_of(ASHLAR_DRIVER_FN_device_get_count) == before + 1);
        }
    }
}

CASE_WITH(a_refusal_becomes_a_status_with_its_words, set_up()) {
    const uint64_t before = ashlar__driver_calls(driver, ASHLAR_DRIVER_QUERY);
    CHECK(ashlar__driver_error(driver, "cuMemCreate", CU_OUT_OF_MEMORY) == ASHLAR_ENOMEM);
    CHECK(strcmp(ashlar_error_detail(),
                 "cuMemCreate on the soft device: CUDA_ERROR_OUT_OF_MEMORY (2): the software "
                 "device's memory is used up") == 0);
    CHECK_FAILS(ashlar__driver_error(driver, "it", CU_INVALID_VALUE), ASHLAR_EDRIVER,
                "it on the soft device: CUDA_ERROR_INVALID_VALUE (1): ");
    CHECK(ashlar__driver_error(driver, "it", 12345) == ASHLAR_EDRIVER);
    CHECK(strcmp(ashlar_error_detail(),
                 "it on the soft device: unknown error (12345): no description") == 0);
    /* Explaining is no call of the program's. */
    CHECK(ashlar__driver_calls(driver, ASHLAR_DRIVER_QUERY) == before);
}

static cu_result say_nothing(cu_result error, const char **text) {
    (void)error;
    *text = NULL;
    return CU_SUCCESS;
}

static cu_result fail_to_say(cu_result error, const char **text) {
    (void)error;
    *text = "rubbish";
    return CU_INVALID_VALUE;
}

CASE_WITH(a_driver_without_words_is_survived, set_up()) {
    const ashlar_driver_table table = driver->table;
    driver->table.get_error_name = say_nothing;
    driver->table.get_error_string = say_nothing;
    CHECK(ashlar__driver_error(driver, "it", CU_UNKNOWN) == ASHLAR_EDRIVER);
    CHECK(strcmp(ashlar_error_detail(),
                 "it on the soft device: unknown error (999): no description") == 0);
    driver->table.get_error_name = fail_to_say;
    driver->table.get_error_string = fail_to_say;
    CHECK_FAILS(ashlar__driver_error(driver, "it", CU_UNKNOWN), ASHLAR_EDRIVER,
                "unknown error (999): no description");
    driver->table = table;
}

enum { THREADS = 4, THREAD_CALLS = 20000 };

static uint64_t ns_of(cu_result (*call)(void)) {
    struct timespec start, end;
    (void)clock_gettime(CLOCK_MONOTONIC, &start);
    CHECK(call() == CU_SUCCESS);
    (void)clock_gettime(CLOCK_MONOTONIC, &end);
    return (uint64_t)(end.tv_sec - start.tv_sec) * 1000000000u + (uint64_t)end.tv_nsec -
           (uint64_t)start.tv_nsec;
}

/* ---- captures ---- */

static uint64_t exchanges(void) {
    return calls_of(ASHLAR_DRIVER_FN_thread_exchange_capture_mode);
}

static void query_no_event(void) {
    CHECK(ASHLAR_DRIVER_CALL(driver, event_query, (NULL)) != CU_SUCCESS);
}

CASE_WITH(only_unsafe_calls_are_relaxed, set_up()) {
    const uint64_t before = exchanges();
    CHECK(call_count() == CU_SUCCESS);
    CHECK(exchanges() == before);
    query_no_event();
    CHECK(exchanges() == before + 2);
}

CASE_WITH(pairs_nest_and_the_outermost_one_restores, set_up()) {
    const uint64_t before = exchanges();
    ashlar__driver_relax(driver);
    ashlar__driver_relax(driver);
    CHECK(exchanges() == before + 1 && ashlar__soft_capture_mode == CU_CAPTURE_RELAXED);
    query_no_event();
    CHECK(exchanges() == before + 1);
    ashlar__driver_unrelax(driver);
    CHECK(exchanges() == before + 1 && ashlar__soft_capture_mode == CU_CAPTURE_RELAXED);
    ashlar__driver_unrelax(driver);
    CHECK(exchanges() == before + 2 && ashlar__soft_capture_mode == CU_CAPTURE_GLOBAL);
}

CASE_WITH(no_device_is_waited_for_while_a_capture_is_known, set_up()) {
    const uint64_t before = calls_of(ASHLAR_DRIVER_FN_ctx_synchronize);
    ashlar__driver_begin_capture(driver);
    CHECK(ashlar__driver_try_synchronize(driver) == CU_STREAM_CAPTURE_UNSUPPORTED);
    ashlar__driver_end_capture(driver);
    CHECK(calls_of(ASHLAR_DRIVER_FN_ctx_synchronize) == before);
}

static cu_result begin_and_end_capture(void) {
    ashlar__driver_begin_capture(driver);
    ashlar__driver_end_capture(driver);
    return CU_SUCCESS;
}

/* Its thread may be the one that the awaited work needs. */
CASE_WITH(a_capture_does_not_wait_without_end_for_a_wait, set_up()) {
    CHECK(pthread_rwlock_rdlock(&driver->beginnings) == 0);
    CHECK(ns_of(begin_and_end_capture) >= 500000000);
    CHECK(pthread_rwlock_unlock(&driver->beginnings) == 0);
}

RUN_CASES()
