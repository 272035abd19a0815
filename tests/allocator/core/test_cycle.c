/* test_cycle.c - steps as a cache sees them: before a step that is unlike the last it is emptied.
 */
#include "tests/allocator/core/allocator_fixture.h"

#include "allocator/core/allocator_impl.h"
#include "allocator/core/cycle.h"

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

/* What is live throughout the steps; else they would begin with the fewest bytes, none. */
static unsigned char *take_weights(size_t bytes) {
    unsigned char *weights = take(bytes, streams[0]);
    ashlar__lock_acquire(&allocator->lock);
    ashlar__cycle_restart(ashlar__cache_get(allocator));
    ashlar__lock_release(&allocator->lock);
    return weights;
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

CASE_WITH(between_steps_something_may_be_live, set_up_steps()) {
    unsigned char *weights = take_weights(2 * MIB);
    check_unlike();
    give(weights);
}

CASE_WITH(beside_much_that_is_live_there_are_no_steps, set_up_steps()) {
    unsigned char *weights = take_weights(16 * MIB);
    (void)step(40 * KIB, SMALL);
    for (int i = 0; i < 3; i++) {
        CHECK(step((size_t)(20 + i) * KIB, SMALL) > 0);
    }
    give(weights);
}

CASE_WITH(within_a_step_fewer_live_bytes_begin_no_other, set_up_steps()) {
    (void)step(40 * KIB, SMALL);
    unsigned char *first = take(LARGE, streams[0]), *second = take(last_bytes, streams[0]);
    unsigned char *small = take(40 * KIB, streams[0]);
    give(small);
    give(first);
    first = take(LARGE / 2 * 3, streams[0]);
    CHECK_ZU(ashlar__cache_get(allocator)->weight[0], ashlar__cache_weight(40 * KIB));
    give(first);
    give(second);
}

/* What a cache may hold explains no more. */
CASE_WITH(hits_explain_only_some_bytes, set_up_steps()) {
    last_bytes = MIB;
    (void)step(40 * KIB, SMALL);
    (void)step(40 * KIB, SMALL);
    CHECK(step(40 * KIB, SMALL) > 0);
    CHECK_ZU(step(40 * KIB, SMALL), 0);
}

CASE_WITH(a_step_with_more_requests_is_unlike, set_up_steps()) {
    for (int i = 0; i < 3; i++) {
        (void)step(40 * KIB, SMALL);
    }
    (void)step(40 * KIB, SMALL + 1);
    CHECK_ZU(step(40 * KIB, SMALL + 1), 0);
    CHECK(step(40 * KIB, SMALL + 1) > 0);
}

enum { MANY = 64 };

static unsigned char *many[MANY];

/* Free until the cache has had no room and no block waits beside it. Returns the number of blocks
 * that are left. */
static size_t fill_up(const ashlar_cache *own) {
    size_t left = MANY;
    for (size_t i = 0; i < MANY; i++) {
        many[i] = take(40 * KIB, streams[0]);
    }
    while (left > 0 && (!own->was_full || own->pending != NULL)) {
        give(many[--left]);
    }
    CHECK(left > 0 && own->weight[0] > 0);
    return left;
}

CASE_WITH(a_cache_full_of_what_nobody_wants_is_emptied, set_up_steps()) {
    unsigned char *weights = take_weights(64 * MIB);
    const ashlar_cache *own = ashlar__cache_get(allocator);
    for (int hits = 0; hits < 2; hits++) {
        const size_t left = fill_up(own);
        if (hits > 0) {
            give(take(40 * KIB, streams[0]));
        }
        give(take(10 * KIB, streams[0]));
        CHECK((own->weight[0] > ashlar__cache_weight(10 * KIB)) == (hits > 0));
        for (size_t i = 0; i < left; i++) {
            give(many[i]);
        }
    }
    give(weights);
}

RUN_CASES()
