/* test_cycle.c - steps as a cache sees them: before a step that is unlike the last it is emptied.
 */
#include "tests/allocator/core/allocator_fixture.h"

#include "allocator/core/allocator_impl.h"

enum { SMALL = 4, LARGE = 600 * KIB };

static size_t last_bytes; /* of the last large block */

static bool set_up_steps(void) {
    last_bytes = 700 * KIB;
    return set_up_cached("memory=128MiB", 8 * MIB);
}

/* How much is cached behind a step's first request, a miss: of large blocks only the one taken last
 * stays. */
static size_t step(size_t small_bytes, size_t small_count) {
    unsigned char *blocks[2 * SMALL], *large = take(LARGE, streams[0]);
    const size_t kept = ashlar__cache_get(allocator)->weight[0];
    unsigned char *last = take(last_bytes, streams[0]);
    for (size_t i = 0; i < small_count; i++) {
        blocks[i] = take(small_bytes, streams[0]);
    }
    for (size_t i = 0; i < small_count; i++) {
        give(blocks[i]);
    }
    give(large);
    give(last);
    return kept;
}

CASE_WITH(steps_that_are_alike_keep_the_cache, set_up_steps()) {
    CHECK_ZU(step(40 * KIB, SMALL), 0);
    CHECK_ZU(step(40 * KIB, SMALL), 0); /* there was no step before the first */
    for (int i = 0; i < 3; i++) {
        CHECK_ZU(step(40 * KIB, SMALL), SMALL * ashlar__cache_weight(40 * KIB));
    }
}

static void check_unlike(void) {
    const size_t sizes[] = {40 * KIB, 40 * KIB, 10 * KIB, 10 * KIB, 40 * KIB, 40 * KIB};
    for (size_t i = 0; i < 6; i++) {
        CHECK((step(sizes[i], SMALL) > 0) == (i == 2 || i == 4)); /* behind two that are alike */
    }
}

CASE_WITH(a_step_with_other_bytes_is_unlike, set_up_steps()) {
    check_unlike();
}

CASE_WITH(a_step_with_more_requests_is_unlike, set_up_steps()) {
    for (int i = 0; i < 3; i++) {
        (void)step(40 * KIB, SMALL);
    }
    (void)step(40 * KIB, SMALL + 1);
    CHECK_ZU(step(40 * KIB, SMALL + 1), 0);
    CHECK(step(40 * KIB, SMALL + 1) > 0);
}

RUN_CASES()
