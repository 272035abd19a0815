/*
 * test_frees_steps.c - memory taken and freed without a stream in steps: it is the plan's, in the
 * order of the step's stream; what leaves the step keeps cudaFree()'s promise.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

#include <ashlar/plan.h>
#include <ashlar/warmup.h>

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

CASE_WITH(a_step_may_be_on_any_stream, set_up("memory=64MiB," LATE, "")) {
    for (size_t s = 0; s < STREAMS; s++) {
        for (int i = 0; i < 3; i++) {
            begin(s);
            give(chain(MIB, s));
            end();
        }
        CHECK_ZU(plans().hits, 4 * (s + 1));
    }
}

CASE_WITH(a_longer_first_step_serves_shorter_ones, set_up("memory=64MiB," LATE, "")) {
    enum { LENGTHS = 128 };
    ashlar_stats at_seal;
    for (size_t i = 0; i <= LENGTHS; i++) {
        const size_t length = i == 0 ? LENGTHS : 1 + i * 37 % LENGTHS;
        begin(0);
        for (size_t k = 0; k < length; k++) {
            give(chain((length + k) * KIB, 0));
        }
        end();
        if (i == 0) {
            ashlar_allocator_seal(allocator);
            at_seal = stats_now();
        }
    }
    const ashlar_plan_stats now = plans();
    CHECK_ZU(ashlar_plan_miss_total(&now), 0);
    CHECK_ZU(stats_now().driver_calls_sealed, 0);
    CHECK_ZU(stats_now().reserved_bytes, at_seal.reserved_bytes);
}

CASE_WITH(memory_of_a_stream_in_a_step_is_in_that_streams_order, set_up("memory=64MiB," LATE, "")) {
    for (int i = 0; i < 3; i++) {
        void *other = NULL;
        begin(0);
        CHECK(ashlar__frees_alloc_on(frees, MIB, streams[1], &other) == ASHLAR_OK);
        void *own = take(MIB);
        use(own, MIB, streams[0]);
        use(other, MIB, streams[1]);
        give(other); /* not the step's stream: all work counts */
        CHECK(ashlar_free_on(allocator, own, streams[1]) == ASHLAR_OK);
        end();
    }
    CHECK_ZU(plans().hits, 4);
    CHECK_ZU(plans().steps_declined, 0);
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

CASE_WITH(a_planned_block_may_outlive_its_step_into_an_unknown_capture,
          set_up("memory=64MiB,strict=off," LATE, "")) {
    cu_graph graph = NULL;
    void *ptr = outlive_a_step();
    CHECK(driver->table.stream_begin_capture(streams[1], CU_CAPTURE_RELAXED) == CU_SUCCESS);
    give(ptr);
    /* The wait spoils the capture, as cudaFree() may. */
    (void)driver->table.stream_end_capture(streams[1], &graph);
    CHECK(graph == NULL || driver->table.graph_destroy(graph) == CU_SUCCESS);
    CHECK_ZU(stats_now().live_blocks, 0);
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

static void *give_elsewhere(void *ptr) {
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    CHECK(ashlar__frees_free(frees, ptr) == ASHLAR_OK);
    ashlar__device_leave(device);
    return NULL;
}

/* In the recorded step, and in those that have the plan. */
CASE_WITH(another_threads_free_ends_a_block_of_the_step, set_up("memory=64MiB," LATE, "")) {
    for (int i = 0; i < 3; i++) {
        begin(0);
        void *ptr = take(4 * MIB);
        use(ptr, 4 * MIB, streams[1]);
        run_thread(give_elsewhere, ptr);
        void *next = take(4 * MIB);
        CHECK(i == 0 || next == ptr);
        use(next, 4 * MIB, streams[0]);
        give(next);
        end();
    }
    CHECK_ZU(plans().hits, 4);
}

/* ---- steps that serve nothing without a stream ---- */

/* What it takes is for any stream, and none of the plan's business, however much it is. */
CASE_WITH(a_nested_step_on_another_stream_suspends_the_order, set_up("memory=64MiB," LATE, "")) {
    for (int i = 0; i < 3; i++) {
        begin(0);
        void *outer = take(MIB), *last = NULL;
        begin(0);
        give(take(MIB));
        end();
        begin(1);
        for (size_t k = 0; k <= ASHLAR_PLAN_LOOK_AHEAD; k++) {
            void *inner = take((1 + k) * KIB);
            use(inner, 64, streams[1]);
            give(inner);
        }
        give(outer);
        end();
        CHECK(ashlar_alloc(allocator, MIB, streams[0], &last) == ASHLAR_OK);
        CHECK(ashlar_free(allocator, last) == ASHLAR_OK);
        end();
    }
    CHECK_ZU(plans().hits, 6);
    CHECK_ZU(plans().slot_count, 3);
    CHECK(stats_now().shared_bytes > 0);
    begin(0);
    give(take(MIB));
    end();
    CHECK_ZU(plans().hits, 7);
}

CASE_WITH(a_captured_stream_suspends_the_order, set_up("memory=64MiB", "")) {
    cu_graph graph = NULL;
    for (int i = 0; i < 2; i++) {
        begin(0);
        void *first = take(MIB);
        give(take(MIB));
        give(first);
        end();
    }
    begin(0);
    void *first = take(MIB);
    ashlar__frees_begin_capture(frees, streams[1]);
    CHECK(driver->table.stream_begin_capture(streams[1], CU_CAPTURE_RELAXED) == CU_SUCCESS);
    ashlar__frees_note_capture(streams[1], true);
    const size_t waits = CALLS(mem_free);
    give(first); /* as cudaFree() waits then */
    CHECK_ZU(CALLS(mem_free), waits + 1);
    give(take(MIB));
    CHECK_ZU(stats_now().served_planned, 3);
    CHECK(driver->table.stream_end_capture(streams[1], &graph) == CU_SUCCESS);
    CHECK(driver->table.graph_destroy(graph) == CU_SUCCESS);
    give(take(MIB));
    CHECK_ZU(stats_now().served_planned, 4);
    end();
}

CASE_WITH(a_guard_mode_serves_steps_as_it_serves_the_rest, set_up("memory=64MiB", "guard=fill")) {
    for (int i = 0; i < 3; i++) {
        begin(0);
        give(take(MIB));
        end();
    }
    CHECK_ZU(plans().steps_recorded, 0);
    CHECK_ZU(stats_now().live_blocks, 0);
}

/* ---- streams whose ends are told ---- */

CASE_WITH(streams_whose_ends_are_told_are_not_watched, set_up("memory=64MiB", "")) {
    void *ptr = NULL;
    ashlar__frees_distrust_streams(frees);
    CHECK(ashlar__frees_tell_ends(frees) == ASHLAR_OK);
    CHECK(ashlar__frees_tell_ends(frees) == ASHLAR_OK);
    for (int i = 0; i < 2; i++) {
        begin(0);
        CHECK(ashlar__frees_alloc_on(frees, MIB, streams[1], &ptr) == ASHLAR_OK);
        CHECK(ashlar_free_on(allocator, ptr, streams[1]) == ASHLAR_OK);
        end();
    }
    CHECK_ZU(plans().hits, 1);
}

CASE_WITH(streams_that_are_watched_cannot_be_told_of, set_up("memory=64MiB", "")) {
    void *ptr = NULL;
    ashlar__frees_distrust_streams(frees);
    CHECK(ashlar__frees_alloc_on(frees, MIB, streams[1], &ptr) == ASHLAR_OK);
    CHECK(ashlar__frees_tell_ends(frees) == ASHLAR_EINVAL);
    CHECK(strstr(ashlar_error_detail(), "no steps") != NULL);
    give(ptr);
}

/* ---- a warm-up ---- */

static ashlar_status dry_run(void *unused, size_t length) {
    (void)unused;
    cu_result result = CU_UNKNOWN;
    void *a = take(length * KIB), *b = take(2 * length * KIB), *on = NULL;
    CHECK(ashlar__frees_alloc_on(frees, length * KIB, streams[1], &on) == ASHLAR_OK);
    CHECK(ashlar__frees_answer(b, NULL, &result) && result == CU_SUCCESS);
    CHECK(ashlar__frees_answer(a, NULL, &result) && result == CU_SUCCESS);
    CHECK(ashlar__frees_answer(on, &streams[1], &result) && result == CU_SUCCESS);
    return ASHLAR_OK;
}

CASE_WITH(a_dry_run_may_allocate_without_a_stream, set_up("memory=64MiB", "")) {
    const ashlar_warmup_options options = {
        .stream = streams[0], .min_length = 1, .max_length = 128, .dry_run = dry_run};
    ashlar_warmup_report report;
    CHECK(ashlar_allocator_warmup(allocator, &options, &report) == ASHLAR_OK);
    CHECK(report.is_planned && report.is_steady);
    for (size_t i = 0; i < 128; i++) {
        const size_t length = 1 + i * 37 % 128;
        CHECK(ashlar_step_begin(allocator, streams[0], ashlar_warmup_key(&options, length)) ==
              ASHLAR_OK);
        CHECK(dry_run(NULL, length) == ASHLAR_OK);
        end();
    }
    CHECK_ZU(stats_now().driver_calls_sealed, 0);
}

/* It takes memory that any stream may use, which a plan cannot serve. */
static ashlar_status nested_dry_run(void *unused, size_t length) {
    (void)unused;
    CHECK(ashlar_step_begin(allocator, streams[1], 0) == ASHLAR_OK);
    void *ptr = take(length * KIB);
    CHECK(ashlar_fill(device, ptr, 1, length * KIB, streams[0]) == ASHLAR_OK);
    give(ptr);
    CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
    return ASHLAR_OK;
}

CASE_WITH(what_a_plan_cannot_serve_is_real_in_a_dry_run, set_up("memory=64MiB", "")) {
    const ashlar_warmup_options options = {
        .stream = streams[0], .min_length = 1, .max_length = 4, .dry_run = nested_dry_run};
    CHECK(ashlar_allocator_warmup(allocator, &options, NULL) == ASHLAR_OK);
}

RUN_CASES()
