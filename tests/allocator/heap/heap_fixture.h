/*
 * heap_fixture.h - a heap of its own on a software device, with two streams' orders that no driver
 * knows, so that a case sets their ticks as it likes. A case can run on both back ends of the
 * range: CASE_BOTH(name).
 */
#ifndef ASHLAR_HEAP_FIXTURE_H
#define ASHLAR_HEAP_FIXTURE_H

#include "tests/allocator/device/device_fixture.h"

#include "allocator/heap/heap.h"

#define UNIT (512 * KIB) /* four of them fill the first chunk */

static ashlar_driver_client client;
static ashlar_heap heap;
static ashlar_stream_state order_a, order_b;
static bool use_segments; /* the back end */

#define KIND (use_segments ? ASHLAR_RANGE_SEGMENTS : ASHLAR_RANGE_VIRTUAL)

static inline void tear_down_heap(void) {
    CHECK(ashlar__heap_check(&heap) == ASHLAR_OK);
    ashlar__heap_finish(&heap);
    tear_down_device();
}

static inline bool set_up_heap(const char *spec) {
    if (!set_up_device(spec)) {
        return false;
    }
    client = (ashlar_driver_client){.device = device};
    order_a = (ashlar_stream_state){.recorded = 100};
    order_b = (ashlar_stream_state){.recorded = 100};
    return ashlar__heap_init(&heap, &client, KIND) == ASHLAR_OK && check_at_end(tear_down_heap);
}

static inline void check_heap(void) {
    CHECK(ashlar__heap_check(&heap) == ASHLAR_OK);
    CHECK_ZU(heap.used_bytes + heap.free_bytes, heap.range.mapped_bytes);
}

/* Cut `bytes` off a free block for `state`. */
static inline ashlar_block *cut(ashlar_block *block, size_t bytes, ashlar_stream_state *state) {
    const size_t used = heap.used_bytes;
    CHECK(ashlar__heap_take(&heap, block, bytes) == ASHLAR_OK);
    CHECK_ZU(block->bytes, bytes);
    CHECK_ZU(heap.used_bytes, used + bytes);
    block->stream_state = state;
    block->requested = bytes;
    check_heap();
    return block;
}

/* Map memory so that there is a free block of `bytes` for `state`. */
static inline ashlar_block *grow(size_t bytes, ashlar_stream_state *state) {
    ashlar_block *block = NULL;
    CHECK(ashlar__heap_grow(&heap, state, bytes, &block) == ASHLAR_OK);
    CHECK(block != NULL && block->bytes >= bytes);
    check_heap();
    return block;
}

/* Fill the first 2 MiB with four live blocks of order_a. */
static inline void fill_four(ashlar_block *blocks[4]) {
    ashlar_block *rest = grow(4 * UNIT, &order_a);
    for (int i = 0; i < 4; i++) {
        blocks[i] = cut(rest, UNIT, &order_a);
        rest = blocks[i]->next;
    }
    CHECK(rest == NULL);
}

static inline void put(ashlar_block *block, ashlar_stream_state *state, uint64_t tick) {
    const size_t used = heap.used_bytes, bytes = block->bytes;
    ashlar__heap_put(&heap, block, state, tick);
    CHECK_ZU(heap.used_bytes, used - bytes);
    check_heap();
}

/* Where memory starts: not at 0 in a range of segments. */
static inline size_t origin(void) {
    const ashlar_block *block = heap.first;
    while (block != NULL && block->state == ASHLAR_BLOCK_UNMAPPED) {
        block = block->next;
    }
    return block != NULL ? block->offset : 0;
}

/* The block that starts at unit `idx`, NULL where none does. */
static inline ashlar_block *block_at(size_t idx) {
    const size_t offset = origin() + idx * UNIT;
    ashlar_block *block = heap.first;
    while (block != NULL && block->offset != offset) {
        block = block->next;
    }
    return block;
}

/* Units [first, first + count) are one free block stamped (order, tick). */
static inline bool is_free_run(size_t first, size_t count, const ashlar_stream_state *state,
                               uint64_t tick) {
    const ashlar_block *block = block_at(first);
    return block != NULL && block->state == ASHLAR_BLOCK_FREE && block->bytes == count * UNIT &&
           block->stream_state == state && block->tick == tick;
}

/*
 * Live blocks of `units` units each, of order_a, in a heap that grew for each of them: with
 * units a multiple of four, every block is a chunk.
 */
static inline void fill(ashlar_block **blocks, size_t count, size_t units) {
    for (size_t i = 0; i < count; i++) {
        blocks[i] = cut(grow(units * UNIT, &order_a), units * UNIT, &order_a);
    }
}

/* Free a block whose last use is over. */
static inline void put_idle(ashlar_block *block) {
    order_a.completed = 1;
    put(block, &order_a, 0);
}

static inline void trim(size_t target) {
    CHECK(ashlar__heap_trim(&heap, target) == ASHLAR_OK);
    check_heap();
}

/* Blocks in state UNMAPPED. */
static inline size_t holes(void) {
    size_t count = 0;
    for (const ashlar_block *block = heap.first; block != NULL; block = block->next) {
        count += block->state == ASHLAR_BLOCK_UNMAPPED;
    }
    return count;
}

#define CASE_BOTH(test) CASE_TWICE(test, test##_in_segments, &use_segments)
#define CASE_BOTH_WITH(test, set_up) \
    CASE_TWICE_WITH(test, test##_in_segments, &use_segments, set_up)

#endif /* ASHLAR_HEAP_FIXTURE_H */
