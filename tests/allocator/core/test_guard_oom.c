/*
 * test_guard_oom.c - a fixed workload in the guard mode, in which the n-th call of each driver
 * function, or the n-th host allocation, fails: for every n. Nothing is lost, the next call works,
 * nothing is reported that is not so, and the device has its memory back.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

#include "tests/allocator/core/guard_fixture.h"

enum { SLOTS = 6, ATTEMPTS = 3 };

/* The largest block is to be had only once everything else was given back. */
typedef struct workload {
    ashlar_guard guard;
    const char *device;
    size_t large, largest; /* bytes of blocks */
} workload;

static const workload workload_of_fill = {ASHLAR_GUARD_FILL, "memory=4MiB,mode=adversarial,seed=5",
                                          80000, 4 * MIB - 512};
static ashlar_status allowed; /* the status of a refusal, besides ENOMEM */
static unsigned refusals;
static ashlar_stats served; /* of the last run */

static void check_refusal(ashlar_status status, const ashlar_stats *before) {
    ashlar_stats after;
    ashlar_allocator_get_stats(allocator, &after);
    refusals++;
    CHECK(status == allowed || status == ASHLAR_ENOMEM);
    CHECK(strstr(ashlar_error_detail(), "this free") == NULL); /* no pointer is to blame */
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    CHECK(after.alloc_count == before->alloc_count && after.free_count == before->free_count);
    CHECK(after.live_bytes == before->live_bytes);
}

static void *take_at_last(size_t bytes, ashlar_stream stream) {
    ashlar_stats before;
    void *ptr = NULL;
    ashlar_allocator_get_stats(allocator, &before);
    for (int i = 0; i < ATTEMPTS && ptr == NULL; i++) {
        const ashlar_status status = ashlar_alloc(allocator, bytes, stream, &ptr);
        CHECK((status == ASHLAR_OK) == (ptr != NULL));
        if (status != ASHLAR_OK) {
            check_refusal(status, &before);
        }
    }
    CHECK(ptr != NULL);
    return ptr;
}

static void give_at_last(void *ptr, ashlar_stream *stream) {
    ashlar_stats before;
    ashlar_status status = ASHLAR_EDRIVER;
    ashlar_allocator_get_stats(allocator, &before);
    for (int i = 0; i < ATTEMPTS && status != ASHLAR_OK; i++) {
        status =
            stream != NULL ? ashlar_free_on(allocator, ptr, *stream) : ashlar_free(allocator, ptr);
        if (status != ASHLAR_OK) {
            check_refusal(status, &before);
        }
    }
    CHECK(status == ASHLAR_OK);
}

/* The whole life of an allocator: more than the quarantine holds, and more than the device. */
static void run_script(const workload *w) {
    void *slots[SLOTS];
    allocator = NULL;
    refusals = 0;
    for (int i = 0; i < ATTEMPTS && allocator == NULL; i++) {
        const ashlar_status status = make_guarded(w->guard, true);
        refusals += status != ASHLAR_OK;
        CHECK((status == ASHLAR_OK) == (allocator != NULL));
    }
    CHECK(allocator != NULL);
    if (allocator == NULL) {
        return;
    }
    ashlar_allocator_set_report(allocator, keep_report, &report_count);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < SLOTS; i++) {
            slots[i] = take_at_last(i % 3 == 0 ? w->large : 1000, streams[i % 2]);
        }
        for (int i = 0; i < SLOTS; i++) {
            give_at_last(slots[i], i % 4 == 0 ? &streams[i % 2] : NULL);
        }
    }
    void *most = take_at_last(w->largest, streams[2]);
    give_at_last(most, NULL);
    (void)take_at_last(5, streams[0]); /* left to the end */
    ashlar_allocator_get_stats(allocator, &served);
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    CHECK(report_count == 0);
    ashlar_allocator_destroy(allocator);
    CHECK(report_count == 2 || report_count == 1); /* the leak, and the line that lists it */
    report_count = 0;
}

static bool set_up_script(const workload *w) {
    report_count = 0;
    return set_up_device(w->device);
}

static bool returns_memory(int fn) {
    return fn == ASHLAR_DRIVER_FN_mem_unmap || fn == ASHLAR_DRIVER_FN_mem_release ||
           fn == ASHLAR_DRIVER_FN_mem_address_free;
}

CASE(the_workload_climbs_to_the_quarantine_and_beyond) {
    REQUIRE(set_up_script(&workload_of_fill));
    run_script(&workload_of_fill);
    tear_down_device();
    CHECK(refusals == 0);
    CHECK(served.served_same_stream > 0 && served.served_mapped > 0 && served.served_waited > 0);
    CHECK(served.served_drained > 0); /* and behind that the whole ladder once more */
}

/* True where the armed call came. */
static bool run_with_failing_call(const workload *w, int fn, uint64_t n, cu_result result) {
    const bool is_set_up = set_up_script(w);
    CHECK(is_set_up);
    if (!is_set_up) {
        return false;
    }
    allowed = result == CU_OUT_OF_MEMORY ? ASHLAR_ENOMEM : ASHLAR_EDRIVER;
    ashlar__driver_fail_at(driver, fn, n, result);
    run_script(w);
    const bool has_fired = atomic_load(&driver->fail_countdown) == 0;
    ashlar__driver_fail_at(driver, fn, 0, CU_SUCCESS);
    if (has_fired && returns_memory(fn)) {
        ashlar_device_close(device);
        check_forget(tear_down_device);
    } else {
        tear_down_device();
    }
    return has_fired;
}

CASE(every_driver_call_may_fail) {
    static const cu_result results[] = {CU_OUT_OF_MEMORY, CU_UNKNOWN};
    static const ashlar_driver_fn must_come[4] = {
        ASHLAR_DRIVER_FN_memset_d8_async, ASHLAR_DRIVER_FN_memcpy_dtoh_async,
        ASHLAR_DRIVER_FN_launch_host_func, ASHLAR_DRIVER_FN_mem_host_alloc};
    uint64_t reached[ASHLAR_DRIVER_FN_COUNT] = {0};
    for (size_t i = 0; i < 2; i++) {
        for (int fn = 0; fn < ASHLAR_DRIVER_FN_COUNT; fn++) {
            uint64_t n = 1;
            while (run_with_failing_call(&workload_of_fill, fn, n, results[i])) {
                n++;
            }
            reached[fn] = n - 1;
        }
    }
    for (size_t i = 0; i < 4; i++) {
        CHECK(reached[must_come[i]] > 0);
    }
}

CASE(every_host_allocation_may_fail) {
    unsigned long n = 0, seen = 0;
    for (bool is_over = false; !is_over;) {
        REQUIRE(set_up_script(&workload_of_fill));
        allowed = ASHLAR_EHOSTMEM;
        ashlar__host_fail_at(++n);
        run_script(&workload_of_fill);
        is_over = is_still_armed(n);
        seen += refusals;
        tear_down_device();
    }
    CHECK(n > 30 && seen > 10);
}

CASE(an_allocator_with_a_guard_may_lack_any_host_memory_at_first) {
    ashlar_config config;
    ashlar_config_init(&config);
    config.guard = workload_of_fill.guard;
    REQUIRE(set_up_device(workload_of_fill.device));
    unsigned long n = 0, refused = 0;
    for (bool is_over = false; !is_over;) { /* some it can do without */
        ashlar_allocator *made = NULL;
        ashlar__host_fail_at(++n);
        const ashlar_status status = ashlar_allocator_create_with(device, &config, &made);
        is_over = is_still_armed(n);
        CHECK((made != NULL) == (status == ASHLAR_OK));
        CHECK(status == ASHLAR_OK || (status == ASHLAR_EHOSTMEM && !is_over));
        refused += status != ASHLAR_OK;
        ashlar_allocator_destroy(made);
    }
    CHECK(refused > 1);
    tear_down_device();
}

RUN_CASES()
