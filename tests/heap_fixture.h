/*
 * heap_fixture.h - a heap of its own on a software device, with two streams' orders that no driver
 * knows, so that a case sets their ticks as it likes.
 */
#ifndef ASHLAR_HEAP_FIXTURE_H
#define ASHLAR_HEAP_FIXTURE_H

#include "allocator_fixture.h"

#include "heap.h"

#define UNIT (512 * KIB) /* four of them fill the first mapping */

static ashlar_caller caller;
static ashlar_heap heap;
static ashlar_order order_a, order_b;

static inline bool set_up_heap(const char *spec) {
    if (!set_up_device(spec)) {
        return false;
    }
    caller = (ashlar_caller){.device = device};
    order_a = (ashlar_order){.recorded = 100};
    order_b = (ashlar_order){.recorded = 100};
    return ashlar_heap_init(&heap, &caller) == ASHLAR_OK;
}

static inline void tear_down_heap(void) {
    CHECK(ashlar_heap_check(&heap) == ASHLAR_OK);
    ashlar_heap_finish(&heap);
    tear_down_device();
}

static inline void check_heap(void) {
    CHECK(ashlar_heap_check(&heap) == ASHLAR_OK);
    CHECK_ZU(heap.used_bytes + heap.free_bytes, heap.range.mapped_bytes);
}

/* Cut `bytes` off a free block for `order`. */
static inline ashlar_block *cut(ashlar_block *block, size_t bytes, ashlar_order *order) {
    const size_t used = heap.used_bytes;
    CHECK(ashlar_heap_take(&heap, block, bytes) == ASHLAR_OK);
    CHECK_ZU(block->bytes, bytes);
    CHECK_ZU(heap.used_bytes, used + bytes);
    block->order = order;
    block->requested = bytes;
    check_heap();
    return block;
}

/* Map `bytes` more on top for `order`, and return the free block that now ends the range. */
static inline ashlar_block *grow(size_t bytes, ashlar_order *order) {
    ashlar_block *block = NULL;
    CHECK(ashlar_heap_grow(&heap, order, bytes, &block) == ASHLAR_OK);
    CHECK(block != NULL && block == heap.last && block->bytes >= bytes);
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

static inline void put(ashlar_block *block, ashlar_order *order, uint64_t tick) {
    const size_t used = heap.used_bytes, bytes = block->bytes;
    ashlar_heap_put(&heap, block, order, tick);
    CHECK_ZU(heap.used_bytes, used - bytes);
    check_heap();
}

/* The block that starts at unit `idx`, NULL where none does. */
static inline const ashlar_block *block_at(size_t idx) {
    const ashlar_block *block = heap.first;
    while (block != NULL && block->offset != idx * UNIT) {
        block = block->next;
    }
    return block;
}

/* Units [first, first + count) are one free block stamped (order, tick). */
static inline bool is_free_run(size_t first, size_t count, const ashlar_order *order,
                               uint64_t tick) {
    const ashlar_block *block = block_at(first);
    return block != NULL && block->state == ASHLAR_BLOCK_FREE && block->bytes == count * UNIT &&
           block->order == order && block->tick == tick;
}

#endif /* ASHLAR_HEAP_FIXTURE_H */
