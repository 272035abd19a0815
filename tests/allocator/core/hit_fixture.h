/*
 * hit_fixture.h - allocators with thread caches, and calls that look into no other thread's cache.
 */
#ifndef ASHLAR_HIT_FIXTURE_H
#define ASHLAR_HIT_FIXTURE_H

#include "tests/allocator/core/allocator_fixture.h"

#include "allocator/core/core.h"
#include "allocator/base/threads.h"


#define ROOM (8 * MIB) /* of a cache, where a case does not try its limits */

/* Where there can be no caches there is nothing to test. */
#define SET_UP(spec, cache_bytes)                 \
    if (!ashlar__barrier_init()) {                \
        SKIP("this kernel has no membarrier(2)"); \
    }                                             \
    atomic_store(&payload_bad_count, 0);          \
    REQUIRE(set_up_cached(spec, cache_bytes))

/* As take() and give(), without the check that looks into every cache. */
static inline unsigned char *take_only(size_t bytes, ashlar_stream stream) {
    void *ptr = NULL;
    CHECK(ashlar_alloc(allocator, bytes, stream, &ptr) == ASHLAR_OK);
    return ptr;
}

static inline void give_only(void *ptr) {
    CHECK(ashlar_free(allocator, ptr) == ASHLAR_OK);
}

/* Have no cache own the stream, as after many handovers. */
static inline void share(ashlar_stream stream) {
    ashlar__allocator_enter(allocator);
    ashlar_stream_state *state = NULL;
    CHECK(ashlar__stream_state_of_locked(allocator, stream, &state) == ASHLAR_OK);
    ashlar__owner_cache_clear_locked(allocator, state);
    state->handovers = 1000;
    ashlar__allocator_leave(allocator);
}

#endif /* ASHLAR_HIT_FIXTURE_H */
