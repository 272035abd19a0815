/*
 * test_heap_ends.c - which end of a gap a block takes: where it touches fewer handles, or beside
 * the neighbour whose size is closer to its own.
 */
#include "tests/allocator/heap/heap_fixture.h"

static ashlar_block *blocks[3];

/* Three blocks side by side, then the middle one is freed. Returns its gap. */
static ashlar_block *gap_between(size_t below, size_t bytes, size_t above) {
    blocks[0] = take(&state_a, below);
    blocks[1] = take(&state_a, bytes);
    blocks[2] = take(&state_a, above);
    CHECK_ZU(blocks[2]->offset, blocks[0]->offset + below + bytes);
    put_past(blocks[1]);
    return blocks[1];
}

/* Take a block of the stream as a thread does that holds it; returns where it lies in the zone. */
static size_t take_fit(size_t bytes, ashlar_block **out) {
    ashlar_zone *zone = ashlar__zone_of(&state_a, bytes);
    const size_t used = ashlar__heap_used_bytes(&heap);
    *out = ashlar__heap_take_fit(&heap, zone, bytes, false);
    if (*out == NULL) {
        CHECK_ZU(ashlar__heap_used_bytes(&heap), used);
        check_heap();
        return SIZE_MAX;
    }
    CHECK_ZU((*out)->bytes, bytes);
    CHECK_ZU(ashlar__heap_used_bytes(&heap), used + bytes);
    (*out)->stream_state = &state_a;
    (*out)->requested = bytes;
    check_heap();
    return (*out)->offset - blocks[0]->offset;
}

CASE_BOTH_WITH(a_block_lies_beside_the_neighbour_of_its_size, set_up_heap("memory=256MiB")) {
    ashlar_block *block = NULL;
    (void)gap_between(4 * MIB, 10 * MIB, 2 * MIB);         /* a segment of 16 MiB */
    const size_t back = use_segments ? 4 * MIB : 12 * MIB; /* without handles: the front */
    CHECK_ZU(take_fit(2 * MIB, &block), back);
    put_past(block);
    CHECK_ZU(take_fit(2 * MIB, &block), back); /* and again */
    CHECK(block->prev != NULL && block->next != NULL);
    put_past(block);
    CHECK_ZU(take_fit(4 * MIB, &block), 4 * MIB);
    put_past(block);
    CHECK_ZU(take_fit(3 * MIB, &block), 4 * MIB); /* as close to both */
    put_past(block);
    CHECK_ZU(take_fit(10 * MIB, &block), 4 * MIB); /* all of the gap */
    put_past(block);
    CHECK_ZU(take_fit(H - 512, &block), 4 * MIB); /* smaller than a handle */
}

CASE_WITH(a_block_lies_where_it_touches_fewer_handles, set_up_heap("memory=64MiB")) {
    ashlar_block *block = NULL;
    (void)gap_between(3 * MIB, 5 * MIB, 16 * MIB);
    CHECK_ZU(take_fit(4 * MIB, &block), 4 * MIB); /* though the one below is closer in size */
    put_past(block);
    CHECK_ZU(take_fit(2 * MIB + 512, &block), 3 * MIB); /* two, there and at the back */
    put_past(block);
    put_past(blocks[0]);
    put_past(blocks[2]);
    CHECK_ZU(take_fit(4 * MIB, &block), SIZE_MAX); /* the window's last gap */
}

CASE_WITH(only_the_end_that_is_taken_needs_memory, set_up_heap("memory=64MiB")) {
    ashlar_block *gap = gap_between(8 * MIB, 12 * MIB, 4 * MIB), *block = NULL;
    const ashlar_heap_place back = {gap, gap->offset + 8 * MIB, 4 * MIB};
    size_t moved = 0;
    CHECK(ashlar__heap_unmap_free(&heap, &back, 9, &moved) == ASHLAR_OK && moved == 4);
    CHECK_ZU(gap->holes, 4);
    CHECK_ZU(take_fit(4 * MIB, &block), 16 * MIB);
    CHECK(gap->holes == 4 && gap->bytes == 8 * MIB && block->prev == gap);
    put_past(block);
    CHECK_ZU(gap->holes, 4);
    CHECK_ZU(take_fit(8 * MIB, &block), SIZE_MAX); /* it belongs at the front */
}

RUN_CASES()
