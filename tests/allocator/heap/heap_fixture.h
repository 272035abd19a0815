/*
 * heap_fixture.h - a heap of its own on a software device, with two streams' states, which it also
 * checks for what they say about each other. A case that needs no driver sets their numbers as it
 * likes. A case can run on both back ends of the range: CASE_BOTH(name).
 */
#ifndef ASHLAR_HEAP_FIXTURE_H
#define ASHLAR_HEAP_FIXTURE_H

#include "tests/allocator/device/device_fixture.h"

#include "allocator/heap/heap.h"

#define H ASHLAR_HANDLE_BYTES

static ashlar_driver_client client;
static ashlar_heap heap;
static ashlar_stream_state state_a, state_b;
static uint64_t events_recorded;
static bool use_segments; /* the back end */

static inline void tear_down_heap(void) {
    CHECK(ashlar__heap_check(&heap) == ASHLAR_OK);
    CHECK(ashlar__cross_check(&heap) == ASHLAR_OK);
    for (ashlar_block *block = ashlar__heap_first(&heap); block != NULL;
         block = ashlar__heap_next(block)) {
        ashlar__cross_drop_uses(&heap, block);
    }
    ashlar__heap_finish(&heap);
    ashlar__stream_state_finish(&state_a, &client);
    ashlar__stream_state_finish(&state_b, &client);
    tear_down_device();
}

static inline void init_state(ashlar_stream_state *state, ashlar_stream stream) {
    *state = (ashlar_stream_state){.stream = stream};
    for (size_t kind = 0; kind < ASHLAR_ZONE_COUNT; kind++) {
        state->zones[kind].owner = state;
    }
}

static inline bool set_up_heap(const char *spec) {
    if (!set_up_device(spec)) {
        return false;
    }
    client = (ashlar_driver_client){.device = device};
    events_recorded = 0;
    init_state(&state_a, streams[0]);
    init_state(&state_b, streams[1]);
    return ashlar__heap_init(&heap, &client,
                             use_segments ? ASHLAR_RANGE_SEGMENTS : ASHLAR_RANGE_VIRTUAL, 0,
                             &events_recorded) == ASHLAR_OK &&
           check_at_end(tear_down_heap);
}

static inline void check_heap(void) {
    CHECK(ashlar__heap_check(&heap) == ASHLAR_OK);
    CHECK(ashlar__cross_check(&heap) == ASHLAR_OK);
    CHECK_ZU(free_memory_of(device), device->info.total_bytes - heap.range.mapped_bytes);
}

/* The best gap for `bytes` in the stream's zone, in a new window if there is none. */
static inline ashlar_block *gap_for(ashlar_stream_state *state, size_t bytes) {
    ashlar_zone *zone = ashlar__zone_of(state, bytes);
    ashlar_block *gap = ashlar__free_bins_best_fit(&zone->gaps, bytes);
    if (gap == NULL) {
        CHECK(ashlar__heap_add_window(&heap, zone, bytes) == ASHLAR_OK);
        gap = ashlar__free_bins_best_fit(&zone->gaps, bytes);
    }
    CHECK(gap != NULL && gap->window->zone == zone);
    return gap;
}

/* Take the front of a gap behind which memory is mapped. */
static inline ashlar_block *cut(ashlar_block *gap, size_t bytes) {
    const size_t used = ashlar__heap_used_bytes(&heap);
    ashlar_stream_state *owner = gap->window->zone->owner;
    CHECK(ashlar__heap_take_run(&heap, gap, gap->offset, bytes, &gap) == ASHLAR_OK);
    CHECK_ZU(gap->bytes, bytes);
    CHECK_ZU(ashlar__heap_used_bytes(&heap), used + bytes);
    gap->stream_state = owner;
    gap->requested = bytes;
    return gap;
}

/* A block of the stream's zone as an allocator takes it: the lowest best fit, memory behind it. */
static inline ashlar_block *take_from(ashlar_stream_state *state, size_t bytes, unsigned may) {
    ashlar_block *gap = gap_for(state, bytes);
    const ashlar_status status = ashlar__heap_back(&heap, gap, bytes, may);
    return status == ASHLAR_OK ? cut(gap, bytes) : NULL;
}

static inline ashlar_block *take(ashlar_stream_state *state, size_t bytes) {
    ashlar_block *block = take_from(state, bytes, ASHLAR_MAY_CREATE);
    CHECK(block != NULL);
    return block;
}

/* Free a block whose last use is queued on its zone's owner. */
static inline void put(ashlar_block *block) {
    const size_t used = ashlar__heap_used_bytes(&heap), bytes = block->bytes;
    ashlar__heap_put(&heap, block);
    CHECK_ZU(ashlar__heap_used_bytes(&heap), used - bytes);
}

/* Free a block that no queued work uses. */
static inline void put_past(ashlar_block *block) {
    ashlar__heap_put_stamped(&heap, block, 0);
}

/* The stream's only window for blocks of `bytes`. */
static inline ashlar_window *window_of(ashlar_stream_state *state, size_t bytes) {
    ashlar_window *w = ashlar__zone_of(state, bytes)->windows;
    CHECK(w != NULL && w->next == NULL);
    return w;
}

#define CASE_BOTH_WITH(test, set_up) \
    CASE_TWICE_WITH(test, test##_in_segments, &use_segments, set_up)

#endif /* ASHLAR_HEAP_FIXTURE_H */
