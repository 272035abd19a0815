/*
 * test_frees_steps.c - memory taken and freed without a stream in steps: it is the plan's, in the
 * order of the step's stream; what leaves the step keeps cudaFree()'s promise.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

#include <ashlar/plan.h>

#include "allocator/dropin/frees.h"
#include "tests/allocator/dropin/frees_fixture.h"
#include "tests/thread.h"

/* One piece of work at a time, and only when somebody waits for it. */
#define LATE "mode=adversarial,seed=1"

static void begin(size_t s) {
    CHECK(ashlar_step_begin(allocator, streams[s], 0) == ASHLAR_OK);
}

static void end(void) {
    CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
    CHECK_SOUND();
}

static ashlar_plan_stats plans(void) {
    ashlar_plan_stats stats;
    ashlar_plan_get_stats(allocator, &stats);
    return stats;
}

/* A block that the step frees, queued work on it, and another that may have its memory. Returns
 * the second. */
static void *chain(size_t bytes, size_t s) {
    void *ptr = take(bytes);
    use(ptr, bytes, streams[s]);
    give(ptr);
    return take(bytes);
}

static bool is_written(void *ptr, unsigned char value) {
    unsigned char bytes[64] = {0};
    CHECK(ashlar_copy_to_host(device, bytes, ptr, sizeof bytes, NULL) == ASHLAR_OK);
    CHECK(ashlar_stream_synchronize(device, NULL) == ASHLAR_OK);
    return bytes[0] == value && bytes[63] == value;
}

/* ---- within a step ---- */

CASE_WITH(a_step_takes_its_plans_memory_and_waits_for_nothing, set_up("memory=64MiB," LATE, "")) {
    for (int i = 0; i < 4; i++) {
        begin(0);
        give(chain(3 * MIB, 0));
        end();
        if (i == 0) {
            ashlar_allocator_seal(allocator);
        }
    }
    CHECK_ZU(plans().hits, 6);
    CHECK_ZU(plans().memory_bytes, 3 * MIB); /* both blocks have one place */
    CHECK_ZU(stats_now().driver_calls_sealed, 0);
    CHECK_ZU(stats_now().shared_bytes, 0); /* no free waits */
}

/* ---- what leaves a step, or comes into it ---- */

/* A block of 4 MiB that a plan serves, and that its step leaves live. */
static void *outlive_a_step(void) {
    void *ptr = NULL;
    for (int i = 0; i < 2; i++) {
        begin(0);
        ptr = take(4 * MIB);
        if (i == 0) {
            give(ptr);
        }
        end();
    }
    return ptr;
}

/* The next step gets the same. */
CASE_WITH(a_planned_block_that_outlives_its_step_is_free_after_all_work,
          set_up("memory=64MiB," LATE, "")) {
    void *ptr = outlive_a_step();
    CHECK_ZU(plans().hits, 1);
    use(ptr, 4 * MIB, streams[1]); /* not by the step's stream */
    give(ptr);
    begin(0);
    void *next = take(4 * MIB);
    CHECK(next == ptr);
    CHECK(ashlar_fill(device, next, 7, 64, streams[0]) == ASHLAR_OK);
    give(next);
    end();
    CHECK(ashlar_stream_synchronize(device, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_stream_synchronize(device, streams[1]) == ASHLAR_OK);
    CHECK(is_written(next, 7));
    CHECK_ZU(plans().hits, 2);
}

CASE_WITH(a_block_from_before_a_step_waits_for_all_work, set_up("memory=64MiB," LATE, "")) {
    void *before = take(4 * MIB);
    use(before, 4 * MIB, streams[1]);
    begin(0);
    give(before);
    CHECK_ZU(stats_now().shared_bytes, 4 * MIB);
    void *in_step = take(4 * MIB);
    CHECK(in_step != before);
    give(in_step);
    end();
}

CASE_WITH(a_block_that_leaves_its_recorded_step_waits_for_all_work,
          set_up("memory=64MiB," LATE, "")) {
    begin(0);
    void *ptr = take(4 * MIB);
    end();
    give(ptr);
    CHECK_ZU(stats_now().shared_bytes, 4 * MIB);
    CHECK_ZU(plans().slot_count, 0);
}

/* ---- streams whose ends are told ---- */

CASE_WITH(streams_that_are_watched_cannot_be_told_of, set_up("memory=64MiB", "")) {
    void *ptr = NULL;
    ashlar__frees_distrust_streams(frees);
    CHECK(ashlar__frees_alloc_on(frees, MIB, streams[1], &ptr) == ASHLAR_OK);
    CHECK(ashlar__frees_tell_ends(frees) == ASHLAR_EINVAL);
    CHECK(strstr(ashlar_error_detail(), "no steps") != NULL);
    give(ptr);
}

RUN_CASES()
