/*
 * test_warmup.c - the warm-up of a program whose steps have many lengths: which of them it goes
 * through, what it reserves, and that no later step of any length calls the driver or misses.
 */
#include "tests/allocator/step/warmup_fixture.h"

/* ---- lengths ---- */

CASE(each_length_has_a_key_of_its_own) {
    ashlar_warmup_options o = {.min_length = 3, .max_length = 12, .key = 70};
    const size_t counts[] = {0, 1, 3, 10, 12};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        o.length_bucket_count = counts[i];
        CHECK_ZU(ashlar_warmup_key(&o, 0), 70);
        CHECK_ZU(ashlar_warmup_key(&o, 3), 70);
        CHECK_ZU(ashlar_warmup_key(&o, 4), 71);
        CHECK_ZU(ashlar_warmup_key(&o, 12), 79);
        CHECK_ZU(ashlar_warmup_key(&o, SIZE_MAX), 79);
    }
    o = (ashlar_warmup_options){
        .min_length = 1, .max_length = SIZE_MAX, .length_bucket_count = SIZE_MAX};
    CHECK_ZU(ashlar_warmup_key(&o, SIZE_MAX), SIZE_MAX - 1);
    /* What a warm-up would refuse has one key. */
    o = (ashlar_warmup_options){.min_length = 5, .max_length = 4, .length_bucket_count = 1};
    CHECK_ZU(ashlar_warmup_key(&o, 9), 0);
}

/* Calls from number `at` on: dry runs, or steps, of the lengths from `from` down to `to`. */
static size_t check_calls(size_t at, bool is_step, size_t from, size_t to) {
    for (size_t length = from; length >= to; length--, at++) {
        CHECK(at < program.call_count && program.calls[at].length == length &&
              program.calls[at].is_step == is_step);
    }
    return at;
}

CASE(every_length_is_rehearsed_twice_and_the_longest_step_run_once) {
    ashlar_warmup_report report;
    REQUIRE(set_up_cached("memory=1GiB", CACHE_BYTES));
    program_init(1);
    const ashlar_warmup_options o = made_options();
    CHECK(ashlar_allocator_warmup(allocator, &o, &report) == ASHLAR_OK);
    size_t at = check_calls(0, false, LENGTH_MAX, LENGTH_MIN);
    at = check_calls(at, true, LENGTH_MAX, LENGTH_MAX);
    CHECK_ZU(check_calls(at, false, LENGTH_MAX, LENGTH_MIN), program.call_count);
    CHECK_ZU(report.length_count, LENGTH_MAX - LENGTH_MIN + 1);
    CHECK_ZU(report.pass_count, 1);
    CHECK_ZU(report.plan.steps_recorded, LENGTH_MAX - LENGTH_MIN + 1);
    CHECK_ZU(report.plan.steps_replayed, LENGTH_MAX - LENGTH_MIN + 2);
    CHECK(1 <= report.plan.plan_count && report.plan.plan_count < report.length_count);
}

CASE(without_a_rehearsal_the_longest_step_of_each_bucket_is_run_twice) {
    ashlar_warmup_report report;
    REQUIRE(set_up_cached("memory=1GiB", CACHE_BYTES));
    program_init(1);
    ashlar_warmup_options o = made_options();
    o.dry_run = NULL;
    o.length_bucket_count = 3; /* 3 to 15, 16 to 28, 29 to 40 */
    CHECK(ashlar_allocator_warmup(allocator, &o, &report) == ASHLAR_OK);
    CHECK_ZU(program.call_count, 6);
    for (size_t at = 0; at < 6; at++) {
        const size_t want[] = {40, 28, 15};
        (void)check_calls(at, true, want[at % 3], want[at % 3]);
    }
    CHECK_ZU(report.length_count, 3);
    CHECK_ZU(report.plan.plan_count, 3);
    CHECK(report.plan.hits > 0 && report.is_steady);
    program_init(1);
    o.dry_run = made_rehearsal; /* and dry runs alone */
    o.step = NULL;
    CHECK(ashlar_allocator_warmup(allocator, &o, NULL) == ASHLAR_OK);
    const size_t at = check_calls(0, false, LENGTH_MAX, LENGTH_MIN);
    CHECK_ZU(check_calls(at, false, LENGTH_MAX, LENGTH_MIN), program.call_count);
}

/* ---- dry runs ---- */

static size_t seen_reserved[2], seen_without_memory; /* in dry runs, with a plan or without */

static void look_at_memory(const call *now) {
    const ashlar_stats stats = stats_now();
    const bool has_plan = plans().plan_count > 0;
    seen_reserved[has_plan] = stats.reserved_bytes;
    if (!has_plan && !now->is_step) {
        void *ptr = NULL, *next = NULL;
        CHECK(ashlar_alloc(allocator, 5, streams[0], &ptr) == ASHLAR_OK);
        CHECK(ashlar_alloc(allocator, 600 * MIB, streams[0], &next) == ASHLAR_OK);
        CHECK((uintptr_t)ptr % 512 == 0 && (uintptr_t)next > (uintptr_t)ptr);
        seen_without_memory += stats_now().alloc_count == stats.alloc_count;
        CHECK(ashlar_free(allocator, ptr) == ASHLAR_OK);
        CHECK(ashlar_free(allocator, next) == ASHLAR_OK);
    }
    if (has_plan && !now->is_step) { /* the same, from the plan */
        CHECK(ashlar_free(allocator, take(5, streams[0])) == ASHLAR_OK);
        CHECK(ashlar_free(allocator, take(600 * MIB, streams[0])) == ASHLAR_OK);
    }
}

CASE(dry_runs_take_no_memory_until_there_is_a_plan) {
    REQUIRE(set_up_cached("memory=1GiB", CACHE_BYTES));
    program_init(2);
    program.visit = look_at_memory;
    seen_without_memory = 0;
    ashlar_warmup_options o = made_options();
    o.step = NULL;
    CHECK(ashlar_allocator_warmup(allocator, &o, NULL) == ASHLAR_OK);
    CHECK_ZU(seen_without_memory, LENGTH_MAX - LENGTH_MIN + 1);
    CHECK_ZU(seen_reserved[0], 0);
    CHECK(seen_reserved[1] >= 600 * MIB);
}

/* ---- what is reserved ---- */

CASE(what_is_reserved_is_what_was_live_and_the_regions) {
    enum { BLOCKS = 9 };
    unsigned char *blocks[BLOCKS];
    for (int i = 0; i < 4; i++) {
        ashlar_warmup_report report;
        REQUIRE(set_up_cached(i < 2 ? "memory=1GiB" : "memory=1GiB,mode=adversarial", CACHE_BYTES));
        program_init(2);
        program.scale = 20;
        for (int k = 0; k < BLOCKS; k++) {
            blocks[k] = take(10 * MIB, streams[k % 3]);
            queue_write(streams[k % 3], blocks[k], 10 * MIB, 1);
        }
        for (int k = 0; k < BLOCKS; k += 2) {
            give(blocks[k]);
        }
        ashlar_warmup_options o = made_options();
        o.dry_run = i % 2 == 0 ? made_rehearsal : NULL;
        const uint64_t calls = stats_now().driver_calls;
        CHECK(ashlar_allocator_warmup(allocator, &o, &report) == ASHLAR_OK);
        const ashlar_stats stats = stats_now();
        CHECK_ZU(report.reserved_bytes, stats.reserved_bytes);
        /* a plan's memory for each of two streams, each with less than one handle to spare. */
        CHECK(stats.reserved_bytes <= BLOCKS / 2 * 10 * MIB + report.plan.memory_bytes + 4 * MIB);
        CHECK_ZU(stats.driver_calls_sealed, 0);
        CHECK(report.plan.bound_bytes <= report.plan.plan_bytes &&
              report.plan.plan_bytes <= report.plan.memory_bytes);
        CHECK_NEAR(report.gap,
                   (double)report.plan.plan_bytes / (double)report.plan.bound_bytes - 1, 1e-15, 0);
        CHECK(report.is_planned && report.is_steady && stats.is_sealed);
        CHECK(calls > 0 && stats.driver_calls > calls);
        CHECK_ZU(report.driver_calls, stats.driver_calls - calls);
        for (int k = 1; k < BLOCKS; k += 2) {
            give(blocks[k]);
        }
        tear_down();
    }
}

/* Memory for the plan, and not for what would lie beside it on the ordinary path. */
CASE_WITH(a_device_with_just_enough_memory_is_enough, set_up_cached("memory=1GiB", CACHE_BYTES)) {
    ashlar_warmup_report report;
    char spec[64];
    program_init(1);
    program.scale = 20;
    const ashlar_warmup_options o = made_options();
    CHECK(ashlar_allocator_warmup(allocator, &o, &report) == ASHLAR_OK);
    const size_t enough = report.reserved_bytes;
    CHECK(enough <= report.plan.memory_bytes + 2 * MIB);
    tear_down();
    (void)snprintf(spec, sizeof spec, "memory=%zuMiB", enough / MIB);
    REQUIRE(set_up_cached(spec, CACHE_BYTES));
    program_init(1);
    program.scale = 20;
    unsigned char *before = take(enough, streams[1]); /* the whole device; free by then */
    queue_write(streams[1], before, 100, 1);
    give(before);
    const ashlar_warmup_options again = made_options();
    CHECK(ashlar_allocator_warmup(allocator, &again, NULL) == ASHLAR_OK);
    run_later(&again, LENGTH_MAX);
}

/* ---- after it ---- */

static void check_later_steps(const char *spec, size_t stream_count, size_t buckets, bool grows) {
    ashlar_warmup_report report;
    REQUIRE(set_up_cached(spec, CACHE_BYTES));
    program_init(stream_count);
    program.grows = grows;
    ashlar_warmup_options o = made_options();
    o.length_bucket_count = buckets;
    const ashlar_status status = ashlar_allocator_warmup(allocator, &o, &report);
    CHECK(status == ASHLAR_OK);
    if (status != ASHLAR_OK) {
        printf("# %s, %zu streams, %zu buckets: %s\n", spec, stream_count, buckets,
               ashlar_error_detail());
    }
    program.alloc_count = 0;
    const ashlar_stats before = stats_now();
    for (size_t i = 0; i < 60 && status == ASHLAR_OK; i++) {
        run_later(&o, LENGTH_MIN + i * 29 % (LENGTH_MAX - LENGTH_MIN + 1));
    }
    check_all();
    wait_for_all();
    const ashlar_stats after = stats_now();
    const ashlar_plan_stats plan = plans();
    CHECK_ZU(after.driver_calls_sealed, 0);
    CHECK_ZU(after.reserved_bytes, before.reserved_bytes);
    CHECK_ZU(after.reserved_peak_bytes, before.reserved_peak_bytes);
    CHECK_ZU(plan.hits - report.plan.hits, program.alloc_count);
    CHECK_ZU(ashlar_plan_miss_total(&plan), 0);
    CHECK_ZU(plan.steps_declined, 0);
    CHECK(payload_bad_count == 0);
    CHECK_ZU(plan.plan_count, buckets);
    tear_down();
}

CASE(no_later_step_of_any_length_calls_the_driver_or_misses) {
    static const char *const specs[] = {"memory=1GiB", "memory=1GiB,mode=adversarial,seed=3"};
    for (size_t i = 0; i < 2; i++) {
        for (size_t stream_count = 1; stream_count <= 3; stream_count += 2) {
            for (size_t buckets = 1; buckets <= 5; buckets += 4) {
                check_later_steps(specs[i], stream_count, buckets, false);
                check_later_steps(specs[i], stream_count, buckets, true);
            }
        }
    }
}

/* ---- beside it ---- */

CASE_WITH(options_and_other_keys_stay_as_they_are, set_up_cached("memory=1GiB", CACHE_BYTES)) {
    program_init(1);
    ashlar_warmup_options o = made_options(), other = made_options();
    other.min_length = LENGTH_MAX;                           /* so its only key is other.key */
    const uint64_t above = 70 + LENGTH_MAX - LENGTH_MIN + 1; /* the first behind the warm-up's */
    o.length_bucket_count = 2;
    for (other.key = 69; other.key <= above; other.key += above - 69) {
        run_later(&other, LENGTH_MAX);
    }
    CHECK_ZU(plans().plan_count, 2);
    CHECK(ashlar_allocator_warmup(allocator, &o, NULL) == ASHLAR_OK);
    CHECK_ZU(plans().plan_count, 4);
    const uint64_t recorded = plans().steps_recorded;
    for (other.key = 69; other.key <= above; other.key += above - 69) {
        run_later(&other, LENGTH_MAX);
    }
    CHECK_ZU(plans().steps_recorded, recorded);
    other.key = above + 1; /* recorded, and planned when it ends, as options were */
    run_later(&other, LENGTH_MAX);
    CHECK_ZU(plans().plan_count, 5);
    const ashlar_plan_options later = {.search_ms = 1, .build_after = 2};
    CHECK(ashlar_plan_set_options(allocator, &later) == ASHLAR_OK);
    CHECK(ashlar_allocator_warmup(allocator, &o, NULL) == ASHLAR_OK);
    for (other.key = above + 2; other.key < above + 4; other.key++) {
        run_later(&other, LENGTH_MAX);
        CHECK_ZU(plans().plan_count, 5 + other.key - above - 2);
        run_later(&other, LENGTH_MAX);
    }
}

/* Its number is next to those of the warm-up, with which it has nothing to do. */
CASE_WITH(a_key_directly_above_is_left_alone, set_up_cached("memory=1GiB", CACHE_BYTES)) {
    program_init(1);
    const ashlar_warmup_options o = made_options();
    const uint64_t other = o.key + LENGTH_MAX - LENGTH_MIN + 1;
    for (int i = 0; i < 2; i++) { /* recorded before the warm-up, and replayed after it */
        CHECK(ashlar_step_begin(allocator, streams[0], other) == ASHLAR_OK);
        give(take(3 * MIB, streams[0]));
        CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
        CHECK(i > 0 || ashlar_allocator_warmup(allocator, &o, NULL) == ASHLAR_OK);
    }
    const ashlar_plan_stats before = plans();
    run_later(&o, LENGTH_MAX);
    const ashlar_plan_stats after = plans();
    CHECK_ZU(ashlar_plan_miss_total(&after), 0);
    CHECK_ZU(after.steps_replayed, before.steps_replayed + 1);
}

CASE_WITH(a_second_warm_up_replaces_the_first, set_up_cached("memory=1GiB", CACHE_BYTES)) {
    ashlar_warmup_report first, second;
    program_init(1);
    program.scale = 20;
    ashlar_warmup_options o = made_options();
    o.length_bucket_count = 3;
    CHECK(ashlar_allocator_warmup(allocator, &o, &first) == ASHLAR_OK);
    o.max_length = 10;
    CHECK(ashlar_allocator_warmup(allocator, &o, &second) == ASHLAR_OK);
    CHECK(second.plan.memory_bytes < first.plan.memory_bytes);
    CHECK(second.reserved_bytes < first.reserved_bytes);
    CHECK_ZU(second.plan.plan_count, 3);
}

/* ---- without a plan ---- */

CASE(without_plans_the_ordinary_path_is_warmed_up) {
    for (int i = 0; i < 2; i++) {
        ashlar_warmup_report report;
        REQUIRE(set_up_cached("memory=1GiB", i == 0 ? 0 : CACHE_BYTES));
        program_init(1);
        ashlar_warmup_options o = made_options();
        o.without_plan = i == 1;
        CHECK(ashlar_allocator_warmup(allocator, &o, &report) == ASHLAR_OK);
        CHECK(!report.is_planned && report.is_steady && report.gap == 0);
        CHECK(report.plan.plan_count == 0 && report.plan.steps_recorded == 0);
        size_t at = check_calls(0, true, LENGTH_MAX, LENGTH_MAX);
        for (size_t pass = 0; pass < report.pass_count; pass++) {
            at = check_calls(at, false, LENGTH_MAX, LENGTH_MIN);
        }
        CHECK_ZU(at, program.call_count);
        CHECK(stats_now().is_sealed);
        for (size_t length = LENGTH_MAX; i == 0 && length >= LENGTH_MIN; length--) {
            CHECK(run_program(true, length) == ASHLAR_OK);
        }
        CHECK_ZU(stats_now().driver_calls_sealed, 0);
        tear_down();
    }
}

/* Each of two streams has all but a third of the device in turn. */
static ashlar_status take_turns(void *user, size_t length) {
    (void)user, (void)length;
    for (int i = 0; i < 2; i++) {
        void *ptr = NULL;
        ashlar_status status = ashlar_alloc(allocator, 40 * MIB, streams[i], &ptr);
        status = status == ASHLAR_OK ? ashlar_free(allocator, ptr) : status;
        if (status != ASHLAR_OK) {
            return status;
        }
    }
    return ASHLAR_OK;
}

CASE(streams_that_take_from_each_other_are_reported) {
    ashlar_warmup_report report;
    REQUIRE(set_up_cached("memory=64MiB", CACHE_BYTES));
    program_init(1);
    ashlar_warmup_options o = made_options();
    o.dry_run = take_turns;
    o.step = NULL;
    o.without_plan = true;
    CHECK(ashlar_allocator_warmup(allocator, &o, &report) == ASHLAR_OK);
    CHECK(!report.is_steady);
    CHECK_ZU(report.pass_count, ASHLAR_WARMUP_PASSES_MAX);
    CHECK(stats_now().is_sealed);
}

RUN_CASES()
