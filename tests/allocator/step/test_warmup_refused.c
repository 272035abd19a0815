/*
 * test_warmup_refused.c - steps that try a large workspace, are refused, and take a smaller one:
 * refusals are recorded, and expected at their places, so a step that meets them is no other one.
 */
#include "tests/allocator/base/file_fixture.h"
#include "tests/allocator/step/warmup_fixture.h"

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
                                   .length_bucket_count = is_dry_run ? 0 : LENGTHS,
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
    CHECK_ZU(ashlar_plan_miss_total(&now), 0);
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
