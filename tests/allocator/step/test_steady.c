/*
 * test_steady.c - what the warm-up does not call steady, and why; and how the promise is kept. That
 * what it calls steady is so, whatever the steps do, is the world's affair (world_warmup.h).
 */
#include "tests/allocator/core/allocator_fixture.h"

#include <ashlar/plan.h>

/* A step of blocks that are live together; with `moves`, the first is freed on another stream. */
static struct program {
    size_t length_count, bucket_count, block_count, base, slope;
    int stream;
    bool moves, with_plan, without_dry_run;
} made;

static void make(bool moves, bool without_dry_run) {
    made = (struct program){.length_count = 4,
                            .block_count = 2,
                            .base = 3 * MIB,
                            .slope = 1 * MIB,
                            .moves = moves,
                            .without_dry_run = without_dry_run};
}

static ashlar_status run_made(size_t length, bool works) {
    const size_t bytes = made.base + made.slope * length;
    const ashlar_stream stream = streams[made.stream];
    void *ptrs[2] = {NULL};
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; i < made.block_count && status == ASHLAR_OK; i++) {
        status = ashlar_alloc(allocator, bytes, stream, &ptrs[i]);
        if (status == ASHLAR_OK && works) {
            queue_write(stream, ptrs[i], 64, 1);
        }
    }
    for (size_t i = 0; i < made.block_count && status == ASHLAR_OK; i++) {
        if (made.moves && i == 0) {
            order_behind(stream, streams[1]);
            status = ashlar_free_on(allocator, ptrs[i], streams[1]);
        } else {
            status = ashlar_free(allocator, ptrs[i]);
        }
    }
    return status;
}

static ashlar_status made_step(void *unused, size_t length) {
    (void)unused;
    return run_made(length, true);
}

static ashlar_status made_dry_run(void *unused, size_t length) {
    (void)unused;
    return run_made(length, false);
}

static ashlar_warmup_options options_of(void) {
    return (ashlar_warmup_options){.stream = streams[0],
                                   .min_length = 1,
                                   .max_length = made.length_count,
                                   .length_range_count = made.bucket_count,
                                   .key = 7,
                                   .without_plan = !made.with_plan,
                                   .step = made_step,
                                   .dry_run = made.without_dry_run ? NULL : made_dry_run};
}

static const char *doubt_of(ashlar_warmup_options o) {
    ashlar_warmup_report report = {.is_steady = true};
    CHECK(ashlar_allocator_warmup(allocator, &o, &report) == ASHLAR_OK);
    CHECK(report.is_steady == (report.unsteady_because == NULL));
    return report.is_steady ? "" : report.unsteady_because;
}

static void run_later(const ashlar_warmup_options *o, size_t length) {
    CHECK(ashlar_step_begin(allocator, o->stream, ashlar_warmup_key(o, length)) == ASHLAR_OK);
    CHECK(run_made(length, true) == ASHLAR_OK);
    CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
}

static ashlar_plan_stats plans(void) {
    ashlar_plan_stats stats;
    ashlar_plan_get_stats(allocator, &stats);
    return stats;
}

/* ---- what is not called steady ---- */

CASE(a_length_that_has_not_run_is_in_doubt_unless_a_plan_serves_it) {
    REQUIRE(set_up_cached("memory=1GiB", CACHE_AUTO));
    make(false, true);
    CHECK_HAS(doubt_of(options_of()), "not every length has run");
    made.with_plan = true;
    CHECK(doubt_of(options_of())[0] == '\0');
    make(true, true); /* which its plan knows of */
    made.with_plan = true;
    CHECK(doubt_of(options_of())[0] == '\0');
    made.with_plan = false;
    CHECK_HAS(doubt_of(options_of()), "not every length has run");
    made.bucket_count = made.length_count; /* every length has run */
    CHECK(doubt_of(options_of())[0] == '\0');
}

CASE(without_caches_blocks_of_several_streams_are_in_doubt) {
    REQUIRE(set_up_cached("memory=1GiB", 0));
    make(false, false);
    CHECK(doubt_of(options_of())[0] == '\0');
    make(true, false);
    CHECK_HAS(doubt_of(options_of()), "several streams");
}

CASE(a_guard_mode_is_in_doubt) {
    ashlar_config config = {0};
    config.guard = ASHLAR_GUARD_FILL;
    REQUIRE(set_up_device("memory=1GiB"));
    REQUIRE(ashlar_allocator_create_with(device, &config, &allocator) == ASHLAR_OK);
    make(false, false);
    CHECK_HAS(doubt_of(options_of()), "guard");
    ashlar_allocator_destroy(allocator);
}

/* The step's block lies in the zone of a stream that ended, which cannot wait for it to come home:
 * whether it is there when the next step begins depends on the device. */
CASE(a_pass_that_borrows_from_a_stream_that_ended_proves_nothing) {
    ashlar_stream doomed = NULL;
    REQUIRE(set_up_cached("memory=16MiB,mode=adversarial,seed=3", CACHE_AUTO));
    REQUIRE(ashlar_stream_create(device, &doomed) == ASHLAR_OK);
    unsigned char *kept = take(4096, doomed);
    ashlar_stream_destroy(device, doomed);
    unsigned char *rest = take(14 * MIB, streams[0]);
    make(false, false);
    made.block_count = made.length_count = 1;
    made.base = made.slope = 500 * KIB + 1;
    made.stream = 1;
    ashlar_warmup_options o = options_of();
    o.step = NULL;
    CHECK_HAS(doubt_of(o), "another stream");
    give(kept);
    give(rest);
}

/* ---- how the promise is kept ---- */

CASE(a_step_waits_in_stream_for_blocks_that_the_last_one_left_away) {
    REQUIRE(set_up_cached("memory=1GiB,mode=adversarial,seed=3", CACHE_AUTO));
    make(true, false);
    const ashlar_warmup_options o = options_of();
    CHECK(doubt_of(o)[0] == '\0');
    run_later(&o, 2);
    CHECK_ZU(stats_now().shared_bytes, 5 * MIB);
    const uint64_t memory_calls = counts_now().memory;
    const size_t waits = CALLS(stream_wait_event);
    CHECK(ashlar_step_begin(allocator, o.stream, o.key) == ASHLAR_OK);
    CHECK_ZU(CALLS(stream_wait_event), waits + 1);
    CHECK_ZU(stats_now().shared_bytes, 0);
    CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
    CHECK_ZU(counts_now().memory, memory_calls);
    for (int i = 0; i < STREAMS; i++) {
        wait_for(streams[i]);
    }
}

CASE(without_plans_later_steps_are_recorded_only_if_that_is_asked_for) {
    REQUIRE(set_up_cached("memory=1GiB", CACHE_AUTO));
    make(false, false);
    const ashlar_warmup_options o = options_of();
    CHECK(doubt_of(o)[0] == '\0');
    run_later(&o, 4);
    run_later(&o, 4);
    CHECK(plans().steps_recorded == 0 && plans().steps_declined == 0 && plans().plan_count == 0);
    ashlar_plan_record_next(allocator, o.key);
    run_later(&o, 4);
    run_later(&o, 3);
    CHECK(plans().steps_recorded == 1 && plans().steps_replayed == 1);
}

RUN_CASES()
