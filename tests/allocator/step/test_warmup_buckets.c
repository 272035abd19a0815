/*
 * test_warmup_buckets.c - a warm-up's list of buckets; steps whose blocks several streams use, and
 * steps on other streams from run to run.
 */
#include "tests/allocator/step/warmup_fixture.h"

static ashlar_status mark_one(void *user, size_t length) {
    void *ptr = NULL;
    (void)user;
    ashlar_status status = ashlar_alloc(allocator, length * 50000, streams[0], &ptr);
    if (status == ASHLAR_OK) {
        status = ashlar_record_stream(allocator, ptr, streams[1]);
        const ashlar_status freed = ashlar_free(allocator, ptr);
        status = status == ASHLAR_OK ? freed : status;
    }
    return status == ASHLAR_OK ? run_program(false, length) : status;
}

CASE_WITH(what_a_further_stream_uses_is_planned_too, set_up_cached("memory=1GiB", CACHE_BYTES)) {
    ashlar_warmup_report report;
    program_init(1);
    ashlar_warmup_options o = made_options();
    o.dry_run = mark_one;
    o.step = NULL;
    CHECK(ashlar_allocator_warmup(allocator, &o, &report) == ASHLAR_OK);
    CHECK(report.is_steady && report.plan.unplanned == 0);
    CHECK_ZU(ashlar_plan_miss_total(&report.plan), 0);
    CHECK(report.gap > 0); /* its slot is held to the end of the step */
}

/* A block on whichever stream of a pool is next, and freed on the one after that. */
static ashlar_status draw_streams(void *user, size_t length) {
    static size_t next;
    void *ptr = NULL;
    (void)user;
    ashlar_status status = ashlar_alloc(allocator, length * 50000, streams[1 + next++ % 3], &ptr);
    if (status == ASHLAR_OK) {
        status = ashlar_free_on(allocator, ptr, streams[1 + next % 3]);
    }
    return status == ASHLAR_OK ? run_program(false, length) : status;
}

CASE_WITH(streams_that_differ_from_run_to_run_are_served,
          set_up_cached("memory=1GiB", CACHE_BYTES)) {
    ashlar_warmup_report report;
    program_init(1);
    ashlar_warmup_options o = made_options();
    o.min_length = o.max_length; /* keys of several lengths have been on all streams */
    o.dry_run = draw_streams;
    o.step = NULL;
    CHECK(ashlar_allocator_warmup(allocator, &o, &report) == ASHLAR_OK);
    REQUIRE(report.is_planned && !report.is_steady);
    CHECK_HAS(report.unsteady_because, "other streams");
    const uint64_t hits = plans().hits;
    run_later(&o, LENGTH_MAX);
    CHECK(plans().hits > hits);
}

CASE_WITH(buckets_say_what_their_steps_need_and_call, set_up_cached("memory=1GiB", CACHE_BYTES)) {
    ashlar_warmup_bucket b[3];
    size_t count = 0;
    program_init(1);
    ashlar_warmup_options o = made_options();
    o.length_bucket_count = 2;
    o.dry_run = mark_one;
    o.step = NULL;
    CHECK(ashlar_warmup_list_buckets(allocator, &o, NULL, 0, &count) == ASHLAR_OK && count == 0);
    CHECK(ashlar_allocator_warmup(allocator, &o, NULL) == ASHLAR_OK);
    for (int i = 0; i < 3; i++) {
        run_later(&o, LENGTH_MAX - (size_t)i); /* not marked */
    }
    CHECK(ashlar_step_begin(allocator, o.stream, ashlar_warmup_key(&o, LENGTH_MIN)) == ASHLAR_OK);
    CHECK(mark_one(NULL, LENGTH_MIN) == ASHLAR_OK);
    CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
    CHECK(ashlar_warmup_list_buckets(allocator, &o, b, 1, &count) == ASHLAR_OK);
    CHECK_ZU(count, 2);
    CHECK(ashlar_warmup_list_buckets(allocator, &o, b, 3, &count) == ASHLAR_OK);
    REQUIRE(count == 2);
    CHECK(b[0].first_length == LENGTH_MIN && b[1].last_length == LENGTH_MAX);
    CHECK_ZU(b[0].last_length + 1, b[1].first_length);
    CHECK(b[0].steps == 1 && b[1].steps == 3);
    CHECK(0 < b[0].peak_bytes && b[0].peak_bytes < b[1].peak_bytes);
    CHECK(b[0].plan_bytes > b[0].peak_bytes && b[1].plan_bytes <= plans().plan_bytes);
    CHECK_ZU(b[0].own_calls, 2); /* an event, and whether its stream is captured */
    CHECK(b[0].calls == 2 && b[1].calls > 0);
}

CASE_WITH(buckets_without_a_plan_have_steps_all_the_same,
          set_up_cached("memory=1GiB", CACHE_BYTES)) {
    ashlar_warmup_bucket b;
    size_t count = 0;
    program_init(1);
    ashlar_warmup_options o = made_options();
    o.without_plan = true;
    CHECK(ashlar_allocator_warmup(allocator, &o, NULL) == ASHLAR_OK);
    run_later(&o, LENGTH_MAX);
    run_later(&o, LENGTH_MIN);
    CHECK(ashlar_warmup_list_buckets(allocator, &o, &b, 1, &count) == ASHLAR_OK && count == 1);
    CHECK(b.first_length == LENGTH_MIN && b.last_length == LENGTH_MAX);
    CHECK(b.plan_bytes == 0 && b.peak_bytes == 0 && b.steps == 2 && b.own_calls == 0);
}

RUN_CASES()
