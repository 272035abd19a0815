/*
 * flatten_fixture.h - the arena of arena_fixture.h, and its tensors scattered over blocks, for
 * tests.
 */
#ifndef ASHLAR_FLATTEN_FIXTURE_H
#define ASHLAR_FLATTEN_FIXTURE_H

#include "tests/arena/layout/arena_fixture.h"

#include <ashlar/arena.h>

static void *pointers[TENSORS]; /* the program's, one per tensor */
static ashlar_flatten_item items[TENSORS];
static ashlar_flatten_stats gathered;

/* What each byte of a scattered tensor holds. */
static inline unsigned char value_of(size_t tensor) {
    return (unsigned char)(0x10 + tensor);
}

/* A block of its own for each tensor that the region has, from `stream`, which is to write it. */
static inline size_t scatter(ashlar_region region, ashlar_stream stream) {
    size_t count = 0;
    for (size_t i = TENSORS; i-- > 0;) {
        if (view_of(region, i) != NULL) {
            pointers[i] = take(bytes_in(region, i), stream);
            queue_write(stream, pointers[i], bytes_in(region, i), value_of(i));
            items[count++] = (ashlar_flatten_item){i, &pointers[i]};
        }
    }
    return count;
}

static inline ashlar_status flatten(ashlar_region region, size_t count, ashlar_allocator *owner,
                                    ashlar_stream stream) {
    memset(&gathered, 0xee, sizeof gathered);
    return ashlar_arena_flatten(arena, region, items, count, owner, stream, &gathered);
}

/* What was scattered is in the region, and the pointers are bound to it. Waits for `stream`. */
static inline void check_gathered(ashlar_region region, ashlar_stream stream) {
    wait_for(stream);
    for (size_t i = 0; i < TENSORS; i++) {
        if (view_of(region, i) != NULL) {
            CHECK(pointers[i] == view_of(region, i));
            CHECK(holds(pointers[i], bytes_in(region, i), value_of(i)));
            const ashlar_arena_binding *binding = ashlar__arena_find_binding(arena, &pointers[i]);
            CHECK(binding != NULL && binding->region == region && binding->tensor == i);
        }
    }
    CHECK(ashlar_arena_check(arena) == ASHLAR_OK);
    CHECK(ashlar_arena_check_padding(arena, stream) == ASHLAR_OK);
}

#endif /* ASHLAR_FLATTEN_FIXTURE_H */
