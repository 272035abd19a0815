/*
 * test_warmup_file.c - a warm-up whose plans are kept in a file: made and saved the first time,
 * loaded the next.
 */
#include "tests/allocator/base/file_fixture.h"
#include "tests/allocator/step/warmup_fixture.h"

static ashlar_warmup_options file_options(void) {
    ashlar_warmup_options o = made_options();
    o.plan_file = path;
    o.fingerprint = "a program";
    return o;
}

static bool begin_case(void) {
    const bool is_set_up = set_up_cached("memory=1GiB", CACHE_BYTES);
    program_init(1);
    return is_set_up;
}

/* A warm-up that says how it went. */
static ashlar_warmup_report warm_up(const ashlar_warmup_options *o) {
    ashlar_warmup_report report = {0};
    CHECK(ashlar_allocator_warmup(allocator, o, &report) == ASHLAR_OK);
    CHECK(report.is_planned && report.is_steady);
    return report;
}

CASE(what_the_first_one_packs_the_second_one_loads) {
    for (size_t buckets = 1; buckets <= 3; buckets += 2) {
        (void)unlink(path);
        REQUIRE(begin_case());
        ashlar_warmup_options o = file_options();
        o.length_bucket_count = buckets;
        const ashlar_warmup_report first = warm_up(&o);
        CHECK(!first.is_loaded && first.plan.steps_recorded > 0);
        tear_down();
        REQUIRE(begin_case());
        const ashlar_warmup_report second = warm_up(&o);
        CHECK(second.is_loaded);
        CHECK_ZU(second.plan.steps_recorded, 0);
        CHECK_ZU(second.plan.plan_count, buckets);
        CHECK_ZU(second.plan.memory_bytes, first.plan.memory_bytes);
        CHECK_ZU(second.plan.steps_replayed, first.plan.steps_replayed);
        CHECK(second.reserved_bytes == first.reserved_bytes);
        tear_down();
    }
}

/* Nothing is planned, sealed or held then, and the file is as it was. */
static void check_refused(const ashlar_warmup_options *o, ashlar_status want, const char *part) {
    static unsigned char before[FILE_MAX_BYTES], after[FILE_MAX_BYTES];
    ashlar_stats stats;
    ashlar_plan_stats plan;
    const size_t bytes = read_bytes(before);
    const ashlar_status status = ashlar_allocator_warmup(allocator, o, NULL);
    CHECK(status == want);
    CHECK_HAS(ashlar_error_detail(), part);
    ashlar_allocator_get_stats(allocator, &stats);
    ashlar_plan_get_stats(allocator, &plan);
    CHECK(!stats.is_sealed && plan.plan_count == 0 && plan.memory_bytes == 0);
    CHECK(read_bytes(after) == bytes && memcmp(before, after, bytes) == 0);
}

CASE(a_file_of_something_else_is_refused) {
    (void)unlink(path);
    REQUIRE(begin_case());
    ashlar_warmup_options o = file_options();
    (void)warm_up(&o);
    tear_down();
    REQUIRE(begin_case());
    o.fingerprint = "another program";
    check_refused(&o, ASHLAR_EINVAL, "the plans are of");
    o = file_options();
    o.max_length--;
    check_refused(&o, ASHLAR_EINVAL, "the plans are of");
    o = file_options();
    o.length_bucket_count = 2;
    check_refused(&o, ASHLAR_EINVAL, "the plans are of");
    o = file_options();
    o.key++;
    check_refused(&o, ASHLAR_EINVAL, "the plans are of");
    program.scale = 2; /* what its fingerprint should have said */
    o = file_options();
    check_refused(&o, ASHLAR_EINVAL, "larger than recorded");
    program.scale = 1;
    (void)warm_up(&o);
}

CASE(a_damaged_file_is_refused) {
    REQUIRE(begin_case());
    write_bytes("ashlar-plan,2\n", 14);
    const ashlar_warmup_options o = file_options();
    check_refused(&o, ASHLAR_EFORMAT, path);
    CHECK_ZU(program.call_count, 0);
}

CASE(a_file_that_cannot_be_written_ends_it) {
    REQUIRE(begin_case());
    ashlar_warmup_options o = file_options();
    o.plan_file = "/nowhere/at/all";
    check_refused(&o, ASHLAR_EIO, "/nowhere/at/all");
    static char wide[4096];
    memset(wide, 'x', sizeof wide - 1);
    o = file_options();
    (void)unlink(path);
    o.fingerprint = wide;
    check_refused(&o, ASHLAR_EINVAL, "fingerprint is too long");
}

CASE(without_plans_no_file_is_made) {
    (void)unlink(path);
    REQUIRE(begin_case());
    ashlar_warmup_options o = file_options();
    ashlar_warmup_report report;
    o.without_plan = true;
    CHECK(ashlar_allocator_warmup(allocator, &o, &report) == ASHLAR_OK);
    CHECK(!report.is_planned && !report.is_loaded && access(path, F_OK) != 0);
}

RUN_CASES_IN_FOLDER()
