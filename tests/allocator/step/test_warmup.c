/*
 * test_warmup.c - the warm-up of a program whose steps have many lengths: which of them it goes
 * through, what it reserves, its list of buckets, refused requests, and that no later step of any
 * length calls the driver or misses.
 */
#include "tests/allocator/step/warmup_fixture.h"
#include "tests/allocator/base/file_fixture.h"

/* ---- lengths ---- */

CASE(each_length_has_a_key_of_its_own) {
    ashlar_warmup_options o = {.min_length = 3, .max_length = 12, .key = 70};
    const size_t counts[] = {0, 1, 3, 10, 12};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        o.length_range_count = counts[i];
        CHECK_ZU(ashlar_warmup_key(&o, 0), 70);
        CHECK_ZU(ashlar_warmup_key(&o, 3), 70);
        CHECK_ZU(ashlar_warmup_key(&o, 4), 71);
        CHECK_ZU(ashlar_warmup_key(&o, 12), 79);
        CHECK_ZU(ashlar_warmup_key(&o, SIZE_MAX), 79);
    }
    o = (ashlar_warmup_options){
        .min_length = 1, .max_length = SIZE_MAX, .length_range_count = SIZE_MAX};
    CHECK_ZU(ashlar_warmup_key(&o, SIZE_MAX), SIZE_MAX - 1);
    /* What a warm-up would refuse has one key. */
    o = (ashlar_warmup_options){.min_length = 5, .max_length = 4, .length_range_count = 1};
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
    o.length_range_count = 3; /* 3 to 15, 16 to 28, 29 to 40 */
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

/* ---- after it ---- */

static void check_later_steps(const char *spec, size_t stream_count, size_t buckets, bool grows) {
    ashlar_warmup_report report;
    REQUIRE(set_up_cached(spec, CACHE_BYTES));
    program_init(stream_count);
    program.grows = grows;
    ashlar_warmup_options o = made_options();
    o.length_range_count = buckets;
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
    CHECK_ZU(plan.miss_count, 0);
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
    o.length_range_count = 2;
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

enum { LENGTHS = 12 };

/* What the workspaces of this file's steps are like, and how they fared. */
static struct {
    size_t unit_bytes;                    /* for each unit of length */
    size_t refused;                       /* how often, since the step began */
    size_t refused_at_first[LENGTHS + 1]; /* [length]: when it was recorded */
    bool differs;                         /* a later step was refused more often, or less */
} tries;

static ashlar_status take_and_free(size_t bytes, ashlar_tag tag) {
    void *ptr = NULL;
    const ashlar_status status = ashlar_alloc_tagged(allocator, bytes, tag, streams[0], &ptr);
    return status == ASHLAR_OK ? ashlar_free(allocator, ptr) : status;
}

static ashlar_status try_workspace(size_t bytes) {
    const ashlar_status status = take_and_free(bytes, ASHLAR_TAG_WORKSPACE);
    tries.refused += status == ASHLAR_ENOMEM;
    return status == ASHLAR_ENOMEM ? take_and_free(bytes / 16, ASHLAR_TAG_WORKSPACE) : status;
}

/* A workspace is tried beside one block and beside two, and a block as large as it, with the same
 * tag, is taken when nothing else is live. */
static ashlar_status try_step(void *user, size_t length) {
    void *kept[2] = {0};
    const size_t bytes = length * tries.unit_bytes;
    ashlar_status status = ASHLAR_OK;
    tries.refused = 0;
    for (size_t i = 0; i < 2 && status == ASHLAR_OK; i++) {
        status = take_for(false, 8 * MIB, ASHLAR_TAG_ACTIVATIONS, 0, &kept[i]);
        status = status == ASHLAR_OK ? try_workspace(bytes) : status;
    }
    for (size_t i = 0; i < 2; i++) {
        CHECK(ashlar_free(allocator, kept[i]) == ASHLAR_OK);
    }
    if (status == ASHLAR_OK) {
        status =
            bytes <= 60 * MIB ? take_and_free(bytes, ASHLAR_TAG_WORKSPACE) : try_workspace(bytes);
    }
    (void)user;
    if (plans().plan_count == 0) {
        tries.refused_at_first[length] = tries.refused;
    }
    tries.differs |= plans().steps_recorded > 0 && tries.refused != tries.refused_at_first[length];
    return status;
}

static ashlar_warmup_options try_options(bool is_dry_run) {
    return (ashlar_warmup_options){.stream = streams[0],
                                   .max_length = LENGTHS,
                                   .length_range_count = is_dry_run ? 0 : LENGTHS,
                                   .step = try_step,
                                   .dry_run = is_dry_run ? try_step : NULL};
}

/* Steps of all lengths, each as it was recorded, without a call of the driver. */
static void check_tries(const ashlar_warmup_options *o, const ashlar_warmup_report *report) {
    const uint64_t hits = report->plan.hits;
    CHECK(report->is_planned && report->is_steady);
    CHECK(report->unsteady_because == NULL);
    if (report->unsteady_because != NULL) {
        printf("# unsteady: %s\n", report->unsteady_because);
    }
    for (size_t i = 0; i < 3 * LENGTHS; i++) {
        const size_t length = 1 + i * 5 % LENGTHS;
        CHECK(ashlar_step_begin(allocator, o->stream, ashlar_warmup_key(o, length)) == ASHLAR_OK);
        CHECK(try_step(NULL, length) == ASHLAR_OK);
        CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
    }
    const ashlar_plan_stats now = plans();
    CHECK_ZU(now.miss_count, 0);
    CHECK_ZU(stats_now().driver_calls_sealed, 0);
    CHECK(now.hits > hits && !tries.differs);
}

static void check_warm_up(const char *spec, size_t limit, size_t unit_bytes, bool is_dry_run) {
    ashlar_warmup_report report = {0};
    REQUIRE(set_up_cached(spec, CACHE_BYTES));
    program_init(1);
    memset(&tries, 0, sizeof tries);
    tries.unit_bytes = unit_bytes;
    CHECK(ashlar_allocator_set_limit(allocator, limit) == ASHLAR_OK);
    ashlar_warmup_options o = try_options(is_dry_run);
    const ashlar_status status = ashlar_allocator_warmup(allocator, &o, &report);
    CHECK(status == ASHLAR_OK);
    if (status == ASHLAR_OK) {
        CHECK(tries.refused_at_first[LENGTHS] >= 2);
        check_tries(&o, &report);
    } else {
        printf("# %s, limit %zu, unit %zu: %s\n", spec, limit, unit_bytes, ashlar_error_detail());
    }
    tear_down();
}

CASE(what_is_larger_than_the_device_may_be_tried) {
    check_warm_up("memory=1GiB", 0, 200 * MIB, true);
    check_warm_up("memory=1GiB", 0, 200 * MIB, false);
}

/* A workspace of 60 MiB fits alone; one of 55 MiB beside one block, and not beside two. */
CASE(what_is_larger_than_the_limit_may_be_tried) {
    check_warm_up("memory=1GiB", 64 * MIB, 5 * MIB, true);
    check_warm_up("memory=1GiB", 64 * MIB, 5 * MIB, false);
    check_warm_up("memory=1GiB", 64 * MIB, 20 * MIB, true);
    check_warm_up("memory=1GiB", 64 * MIB, 20 * MIB, false);
}

CASE(what_is_larger_than_what_is_left_of_the_device_may_be_tried) {
    check_warm_up("memory=64MiB", 0, 5 * MIB, true);
    check_warm_up("memory=64MiB", 0, 5 * MIB, false);
}

RUN_CASES()
