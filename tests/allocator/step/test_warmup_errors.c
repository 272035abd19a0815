/*
 * test_warmup_errors.c - warm-ups that fail: what they say, and that they leave no plan, no memory
 * and no seal behind, wherever the failure comes from.
 */
#include "tests/allocator/step/warmup_fixture.h"

static size_t live_before;

static void begin_case(const char *spec) {
    CHECK(set_up_cached(spec, CACHE_BYTES));
    program_init(2);
    live_before = 0;
}

/* As if it had never been: what is reserved is what is live, and a new one succeeds. */
static void check_undone(const ashlar_warmup_report *report) {
    const ashlar_plan_stats plan = plans();
    CHECK_ZU(report->length_count, 77);
    CHECK(!stats_now().is_sealed);
    CHECK(plan.plan_count == 0 && plan.memory_bytes == 0);
    CHECK_ZU(stats_now().live_blocks, live_before);
    CHECK(live_before > 0 || stats_now().reserved_bytes == 0);
    CHECK(ashlar_step_end(allocator) == ASHLAR_EINVAL); /* none is under way */
}

static void end_case(void) {
    const ashlar_plan_stats before = plans();
    ashlar_warmup_options o = made_options();
    o.max_length = LENGTH_MIN + 2;
    program_init(2);
    CHECK(ashlar_allocator_warmup(allocator, &o, NULL) == ASHLAR_OK);
    run_later(&o, LENGTH_MIN + 1);
    const ashlar_plan_stats plan = plans();
    CHECK(plan.hits > before.hits && plan.miss_count == before.miss_count);
    wait_for_all();
    tear_down();
}

CASE(bad_options_are_refused) {
    ashlar_warmup_report report = {.length_count = 77};
    begin_case("memory=1GiB");
    for (int i = 0; i < 3; i++) {
        ashlar_warmup_options o = made_options();
        if (i == 0) {
            o.max_length = 0;
        } else if (i == 1) {
            o.min_length = o.max_length + 1;
        } else {
            o.step = NULL;
            o.dry_run = NULL;
        }
        CHECK_FAILS(ashlar_allocator_warmup(allocator, &o, &report), ASHLAR_EINVAL,
                    i == 2 ? "give a step" : "give max_length, and min_length from 1");
        check_undone(&report);
    }
    CHECK_ZU(program.call_count, 0);
    end_case();
}

CASE(a_step_under_way_is_refused) {
    ashlar_warmup_report report = {.length_count = 77};
    begin_case("memory=1GiB");
    const ashlar_warmup_options o = made_options();
    CHECK(ashlar_step_begin(allocator, streams[0], o.key) == ASHLAR_OK);
    CHECK_FAILS(ashlar_allocator_warmup(allocator, &o, &report), ASHLAR_EINVAL,
                "a step is under way");
    CHECK_ZU(program.call_count, 0);
    CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
    CHECK(ashlar_plan_drop(allocator) == ASHLAR_OK);
    check_undone(&report);
    end_case();
}

CASE(a_callback_that_fails_ends_it) {
    const size_t lengths = LENGTH_MAX - LENGTH_MIN + 1;
    const struct {
        size_t call, length;
    } cases[] = {{1, LENGTH_MAX},
                 {2, LENGTH_MAX - 1},
                 {lengths, LENGTH_MIN},
                 {lengths + 1, LENGTH_MAX},
                 {lengths + 2, LENGTH_MAX},
                 {2 * lengths + 1, LENGTH_MIN}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ashlar_warmup_report report = {.length_count = 77};
        char where[64];
        begin_case("memory=1GiB,mode=adversarial,seed=2");
        const ashlar_warmup_options o = made_options();
        program.fail_at = cases[i].call;
        program.failure = i % 2 == 0 ? ASHLAR_EFORMAT : ASHLAR_ENOMEM;
        CHECK(ashlar_allocator_warmup(allocator, &o, &report) == program.failure);
        (void)snprintf(where, sizeof where, "warm-up at length %zu: the program's own words",
                       cases[i].length);
        CHECK_HAS(ashlar_error_detail(), where);
        CHECK_ZU(program.call_count, cases[i].call);
        check_undone(&report);
        end_case();
    }
}

/* ---- a step that is not what its dry run was ---- */

static ashlar_status take_otherwise(void *user, size_t length) {
    const int kind = *(const int *)user;
    void *ptr = NULL;
    ashlar_status status = kind == 0 ? ASHLAR_OK
                           : kind == 1
                               ? ashlar_alloc_tagged(allocator, 5, ASHLAR_TAG_BATCH, streams[0],
                                                     &ptr)
                               : ashlar_alloc(allocator, 5, streams[kind], &ptr);
    status = status == ASHLAR_OK ? ashlar_free(allocator, ptr) : status;
    (void)length;
    return status;
}

static ashlar_status take_one(void *user, size_t length) {
    void *ptr = NULL;
    ashlar_status status = ashlar_alloc(allocator, length, streams[0], &ptr);
    (void)user;
    return status == ASHLAR_OK ? ashlar_free(allocator, ptr) : status;
}

CASE(a_step_unlike_its_rehearsal_is_reported) {
    ashlar_warmup_report report = {.length_count = 77};
    begin_case("memory=1GiB");
    ashlar_warmup_options o = made_options();
    program.extra_bytes = MIB;
    CHECK_FAILS(ashlar_allocator_warmup(allocator, &o, &report), ASHLAR_EINVAL,
                "warm-up at length 40: ");
    CHECK_HAS(ashlar_error_detail(), " larger than recorded");
    check_undone(&report);
    program.extra_bytes = 0;
    int kind = 1;
    o.dry_run = take_one;
    o.step = take_otherwise;
    o.user = &kind;
    CHECK_FAILS(ashlar_allocator_warmup(allocator, &o, &report), ASHLAR_EINVAL,
                "(1 another tag than recorded);");
    check_undone(&report);
    kind = 2; /* another stream is no error, but a doubt */
    CHECK(ashlar_allocator_warmup(allocator, &o, &report) == ASHLAR_OK);
    CHECK_HAS(report.unsteady_because, "other streams");
    kind = 0; /* less than in the dry run is no miss */
    CHECK(ashlar_allocator_warmup(allocator, &o, &report) == ASHLAR_OK && report.is_steady);
}

CASE(a_rehearsal_that_keeps_a_block_is_reported) {
    ashlar_warmup_report report = {.length_count = 77};
    begin_case("memory=1GiB");
    const ashlar_warmup_options o = made_options();
    program.leaks = true;
    CHECK_FAILS(ashlar_allocator_warmup(allocator, &o, &report), ASHLAR_EINVAL,
                "at length 40: a dry run left 1 of its blocks live");
    CHECK_ZU(program.call_count, 1);
    check_undone(&report);
    program.leaked_count = 0; /* the address stands for nothing any more */
    CHECK(ashlar_free(allocator, program.leaked[0]) == ASHLAR_EPOINTER);
    end_case();
}

/* ---- no memory ---- */

CASE(a_device_that_is_too_small_is_told_before_any_step) {
    unsigned char *live;
    ashlar_warmup_report report = {.length_count = 77};
    begin_case("memory=32MiB");
    program.scale = 20; /* 40 MiB */
    live = take(5 * MIB, streams[0]);
    live_before = 1;
    const ashlar_warmup_options o = made_options();
    CHECK_FAILS(ashlar_allocator_warmup(allocator, &o, &report), ASHLAR_ENOMEM,
                "warm-up: no memory for the plan of a step of length 40");
    CHECK_HAS(ashlar_error_detail(), "make the steps shorter or smaller");
    CHECK_ZU(program.call_count, LENGTH_MAX - LENGTH_MIN + 1); /* dry runs */
    check_undone(&report);
    CHECK(stats_now().reserved_bytes <= 6 * MIB);
    give(live);
    end_case();
}

CASE(a_limit_and_a_seal_hold_for_it_too) {
    ashlar_warmup_report report = {.length_count = 77};
    begin_case("memory=1GiB");
    program.scale = 20;
    const ashlar_warmup_options o = made_options();
    CHECK(ashlar_allocator_set_limit(allocator, 20 * MIB) == ASHLAR_OK);
    CHECK_FAILS(ashlar_allocator_warmup(allocator, &o, &report), ASHLAR_ENOMEM,
                "no memory for the plan");
    check_undone(&report);
    CHECK(ashlar_allocator_set_limit(allocator, 0) == ASHLAR_OK);
    ashlar_allocator_seal(allocator);
    CHECK(ashlar_allocator_set_seal_policy(allocator, ASHLAR_SEAL_ERROR, NULL, NULL) == ASHLAR_OK);
    CHECK_FAILS(ashlar_allocator_warmup(allocator, &o, &report), ASHLAR_ENOMEM, "sealed");
    CHECK(plans().plan_count == 0 && plans().memory_bytes == 0);
    CHECK(ashlar_allocator_set_seal_policy(allocator, ASHLAR_SEAL_COUNT, NULL, NULL) == ASHLAR_OK);
    end_case();
}

/* ---- the n-th call fails ---- */

/* A small warm-up: few lengths, so that there are few calls. */
static ashlar_status warm_up_small(bool is_dry_run, ashlar_warmup_report *report) {
    ashlar_warmup_options o = made_options();
    o.max_length = LENGTH_MIN + 3;
    o.length_range_count = 2;
    o.dry_run = is_dry_run ? made_rehearsal : NULL;
    program.is_idle = true;
    program.scale = 20;
    *report = (ashlar_warmup_report){.length_count = 77};
    return ashlar_allocator_warmup(allocator, &o, report);
}

/* It either failed as a whole, or as far as a failure may be hidden did all that it does. */
static bool check_outcome(ashlar_status status, const ashlar_warmup_report *report) {
    const ashlar_plan_stats plan = plans();
    CHECK(stats_now().is_sealed == (status == ASHLAR_OK));
    if (status == ASHLAR_OK) {
        CHECK(plan.plan_count == (report->is_planned ? 2 : 0));
        return true;
    }
    CHECK_ZU(report->length_count, 77);
    CHECK(plan.plan_count == 0);
    CHECK_ZU(stats_now().live_blocks, 0);
    CHECK(ashlar_step_end(allocator) == ASHLAR_EINVAL);
    return false;
}

/* Host memory of the program's own launches is not in it: dry runs only. */
CASE(each_host_allocation_may_fail) {
    size_t refusals = 0;
    for (int has_cache = 0; has_cache < 2; has_cache++) {
        bool was_armed = true;
        for (unsigned long n = 1; was_armed && n < 2000; n++) {
            ashlar_warmup_report report = {.length_count = 77};
            begin_case("memory=1GiB");
            ashlar_warmup_options o = made_options();
            o.max_length = LENGTH_MIN + 3;
            o.length_range_count = 2;
            o.step = NULL;
            if (has_cache) {
                give(take(100, streams[0]));
            }
            ashlar__host_fail_at(n);
            const ashlar_status status = ashlar_allocator_warmup(allocator, &o, &report);
            was_armed = !is_still_armed(n);
            CHECK(status == ASHLAR_OK || status == ASHLAR_EHOSTMEM || status == ASHLAR_ENOMEM);
            refusals += !check_outcome(status, &report);
            CHECK(!has_cache || status != ASHLAR_OK || report.is_planned);
            end_case();
        }
        CHECK(!was_armed);
    }
    CHECK(refusals > 20);
}

/* With memory that is to be given back. */
static void begin_idle_case(void) {
    begin_case("memory=1GiB");
    give(take(20 * MIB, streams[2]));
}

/* Fail the n-th call of one function, for every n up to `calls`; with many, for ever fewer. */
static size_t fail_each(bool is_dry_run, int fn, uint64_t calls) {
    size_t refusals = 0;
    for (uint64_t n = 1; n <= calls; n += 1 + n / 16) {
        ashlar_warmup_report report;
        begin_idle_case();
        ashlar__driver_fail_at(driver, fn, n, CU_UNKNOWN);
        const ashlar_status status = warm_up_small(is_dry_run, &report);
        ashlar__driver_fail_at(driver, -1, 0, CU_SUCCESS);
        CHECK(status == ASHLAR_OK || status == ASHLAR_EDRIVER);
        refusals += !check_outcome(status, &report);
        end_case();
    }
    return refusals;
}

CASE(each_driver_call_may_fail) {
    size_t refusals = 0;
    for (int is_dry_run = 0; is_dry_run < 2; is_dry_run++) {
        ashlar_warmup_report report;
        uint64_t calls[ASHLAR_DRIVER_FN_COUNT];
        begin_idle_case();
        for (int fn = 0; fn < ASHLAR_DRIVER_FN_COUNT; fn++) {
            calls[fn] = atomic_load(&driver->calls[fn]);
        }
        CHECK(warm_up_small(is_dry_run, &report) == ASHLAR_OK);
        for (int fn = 0; fn < ASHLAR_DRIVER_FN_COUNT; fn++) {
            calls[fn] = atomic_load(&driver->calls[fn]) - calls[fn];
        }
        end_case();
        for (int fn = 0; fn < ASHLAR_DRIVER_FN_COUNT; fn++) {
            if (fn != ASHLAR_DRIVER_FN_ctx_pop_current) { /* what that leaves nobody can undo */
                refusals += fail_each(is_dry_run, fn, calls[fn]);
            }
        }
    }
    CHECK(refusals > 20);
}

RUN_CASES()
