/*
 * plan_file_fixture.h - a file of plans written by hand, and loads that are refused, for tests.
 */
#ifndef ASHLAR_PLAN_FILE_FIXTURE_H
#define ASHLAR_PLAN_FILE_FIXTURE_H

#include "tests/allocator/step/plan_fixture.h"

#include "allocator/core/allocator_impl.h"
#include "allocator/step/plan_image.h"

#define PRINT "rnn 2x512, \"batch 16\"" /* the fingerprint */

static char text[TEXT_BYTES], again[TEXT_BYTES];

/* A device and an allocator without plans. */
static inline bool set_up_plans(void) {
    return set_up_cached("memory=1GiB", 64 * MIB);
}

static inline ashlar_status load(void) {
    return ashlar_plan_load(allocator, streams, STREAMS, path, PRINT);
}

/* A step of four allocations, of which one is not planned. */
#define SMALL_BODY             \
    "ashlar-plan,2\n"          \
    "fingerprint," PRINT "\n"  \
    "plans,512,1,1\n"          \
    "key,7,1,0,1,1,4\n"        \
    "part,0,1536,1536\n"       \
    "alloc,1000,0,0,0,2,0\n"   \
    "alloc,512,7,0,0,4,1024\n" \
    "alloc,300,1,0,0\n"        \
    "alloc,700,0,0,0,4,0\n"

/* `body` as a file, with its sum behind it. */
static inline void write_sealed(const char *body) {
    char sum[ASHLAR_NUMBER_BYTES];
    const size_t bytes = strlen(body);
    ashlar__plan_write_sum(ashlar__plan_sum(ASHLAR_PLAN_SUM_OF_NOTHING, body, bytes), sum);
    const int all = snprintf(again, sizeof again, "%send,%s\n", body, sum);
    write_bytes(again, (size_t)all);
}

/* The load says so, and nothing is as if it had been tried. */
static inline void check_refused(ashlar_status want, const char *part) {
    const ashlar_status status = load();
    CHECK(status == want);
    CHECK_HAS(ashlar_error_detail(), part);
    CHECK(status != want || strchr(ashlar_error_detail(), '\n') == NULL);
    CHECK(allocator->planner.keys == NULL && allocator->planner.memories == NULL);
    CHECK(!allocator->planner.is_installing);
    check_all();
}

#endif /* ASHLAR_PLAN_FILE_FIXTURE_H */
