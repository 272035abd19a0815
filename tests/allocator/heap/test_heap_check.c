/*
 * test_heap_check.c - the walker finds each broken invariant: every case breaks one and mends it.
 */
#include "tests/allocator/heap/heap_fixture.h"

static ashlar_block *live, *freed, *above, *idle;

/* live | free, order_a's | live | idle */
static bool set_up_four(void) {
    ashlar_block *blocks[4];
    if (!set_up_heap("memory=16MiB")) {
        return false;
    }
    fill_four(blocks);
    live = blocks[0];
    freed = blocks[1];
    above = blocks[2];
    idle = blocks[3];
    put(freed, &order_a, 5);
    order_b.completed = 1;
    put(idle, &order_b, 0);
    return true;
}

static void check_broken(const char *part) {
    CHECK_FAILS(ashlar__heap_check(&heap), ASHLAR_EFORMAT, "heap check: ");
    CHECK_HAS(ashlar_error_detail(), part);
}

CASE_WITH(a_sound_heap_passes, set_up_four()) {
    CHECK(ashlar__heap_check(&heap) == ASHLAR_OK);
}

CASE_WITH(a_gap_between_blocks_is_found, set_up_four()) {
    above->offset += 512;
    check_broken("block at offset 1049088 of 524288 bytes: does not follow the block before it");
    above->offset -= 512;
}

CASE_WITH(a_wrong_back_link_is_found, set_up_four()) {
    above->prev = live;
    check_broken("block at offset 1048576 of 524288 bytes: does not follow the block before it");
    above->prev = freed;
    live->prev = idle;
    check_broken("block at offset 0 of 524288 bytes: does not follow the block before it");
    live->prev = NULL;
}

CASE_WITH(a_size_that_is_no_multiple_is_found, set_up_four()) {
    live->bytes += 1;
    check_broken("block at offset 0 of 524289 bytes: not aligned, or empty");
    live->bytes = 0;
    check_broken("block at offset 0 of 0 bytes: not aligned, or empty");
    live->bytes = UNIT;
}

CASE_WITH(a_page_map_that_disagrees_is_found, set_up_four()) {
    ashlar__page_map_set(&heap.map, freed->offset, freed);
    check_broken("block at offset 524288 of 524288 bytes: free, but in the page map");
    ashlar__page_map_set(&heap.map, freed->offset, NULL);
    REQUIRE(ashlar__page_map_reserve_page(&heap.map, above->offset) == ASHLAR_OK);
    ashlar__page_map_set(&heap.map, above->offset, NULL);
    check_broken("block at offset 1048576 of 524288 bytes: used, but not in the page map");
    ashlar__page_map_set(&heap.map, above->offset, live);
    check_broken("used, but not in the page map");
    ashlar__page_map_set(&heap.map, above->offset, above);
}

CASE_WITH(a_live_block_with_a_wrong_size_or_no_stream_is_found, set_up_four()) {
    above->requested = UNIT + 1;
    check_broken("block at offset 1048576 of 524288 bytes: used, with a wrong size or no stream");
    above->requested = UNIT;
    above->stream_state = NULL;
    check_broken("used, with a wrong size or no stream");
    above->stream_state = &order_a;
}

CASE_WITH(bytes_asked_for_of_a_block_that_is_not_live_are_found, set_up_four()) {
    idle->requested = 1;
    check_broken("block at offset 1572864 of 524288 bytes: not used, but bytes of it");
    idle->requested = 0;
    live->requested = 0; /* as in a thread's cache */
    check_heap();
    ashlar__page_map_set(&heap.map, 0, NULL);
    check_broken("used, but not in the page map");
    ashlar__page_map_set(&heap.map, 0, live);
}

CASE_WITH(a_free_block_outside_its_bins_is_found, set_up_four()) {
    ashlar__free_bins_remove(&order_a.free, freed);
    check_broken("block at offset 524288 of 524288 bytes: free, but not in its bins");
    ashlar__free_bins_insert(&order_b.free, freed); /* another stream's will not do */
    check_broken("free, but not in its bins");
    ashlar__free_bins_remove(&order_b.free, freed);
    ashlar__free_bins_insert(&order_a.free, freed);
    ashlar__free_bins_remove(&heap.idle, idle);
    check_broken("block at offset 1572864 of 524288 bytes: free, but not in its bins");
    ashlar__free_bins_insert(&heap.idle, idle);
}

CASE_WITH(free_neighbours_that_should_be_one_are_found, set_up_four()) {
    put(above, &order_b, 7); /* joins the idle block above it; `freed` stays apart */
    CHECK(is_free_run(1, 1, &order_a, 5) && is_free_run(2, 2, &order_b, 7));
    ashlar__free_bins_remove(&order_b.free, above);
    above->stream_state = &order_a;
    ashlar__free_bins_insert(&order_a.free, above);
    check_broken("block at offset 524288 of 524288 bytes: not merged with the free block behind");
    ashlar__free_bins_remove(&order_a.free, above);
    above->stream_state = &order_b;
    ashlar__free_bins_insert(&order_b.free, above);
}

CASE_WITH(blocks_that_do_not_end_with_the_range_are_found, set_up_four()) {
    heap.range.mapped_bytes += 512;
    check_broken("blocks of 2097152 bytes, 2097664 mapped");
    heap.range.mapped_bytes -= 512;
    heap.last = above;
    check_broken("blocks end at 2097152, but not with the last");
    heap.last = idle;
}

/* As above, the idle block live; then a hole of 2 MiB and a live block above it. */
static bool set_up_hole(void) {
    if (!set_up_four()) {
        return false;
    }
    idle = cut(grow(4 * UNIT, &order_a), UNIT, &order_a);
    ashlar_block *rest = cut(idle->next, 4 * UNIT, &order_a);
    cut(grow(4 * UNIT, &order_a), 4 * UNIT, &order_a);
    order_a.completed = 3;
    put(rest, &order_a, 2);
    CHECK(ashlar__heap_trim(&heap, 0) == ASHLAR_OK);
    check_heap();
    return rest->state == ASHLAR_BLOCK_UNMAPPED;
}

CASE_WITH(a_hole_that_is_none_is_found, set_up_hole()) {
    ashlar_block *hole = idle->next, *last = heap.last;
    REQUIRE(hole->state == ASHLAR_BLOCK_UNMAPPED && hole->next == last);
    hole->stream_state = &order_a;
    check_broken("block at offset 2097152 of 2097152 bytes: a hole, with a stamp");
    hole->stream_state = NULL;
    hole->starts_segment = true;
    check_broken("a hole, with a stamp or a segment's start");
    hole->starts_segment = false;
    ashlar__page_map_set(&heap.map, hole->offset, hole);
    check_broken("free, but in the page map");
    ashlar__page_map_set(&heap.map, hole->offset, NULL);
    REQUIRE(ashlar__page_map_reserve_page(&heap.map, last->offset) == ASHLAR_OK);
    REQUIRE(ashlar__page_map_reserve_page(&heap.map, last->offset - 512) == ASHLAR_OK);
    hole->bytes -= 512; /* memory above it that no chunk is behind */
    last->bytes += 512;
    last->offset -= 512;
    ashlar__page_map_set(&heap.map, last->offset + 512, NULL);
    ashlar__page_map_set(&heap.map, last->offset, last);
    heap.used_bytes += 512;
    check_broken("blocks of 4194816 bytes, 4194304 mapped");
    heap.used_bytes -= 512;
    ashlar__page_map_set(&heap.map, last->offset, NULL);
    last->offset += 512;
    last->bytes -= 512;
    hole->bytes += 512;
    ashlar__page_map_set(&heap.map, last->offset, last);
}

CASE_WITH(holes_at_the_end_or_side_by_side_are_found, set_up_hole()) {
    ashlar_block *last = heap.last;
    ashlar__page_map_set(&heap.map, last->offset, NULL);
    last->state = ASHLAR_BLOCK_UNMAPPED;
    last->stream_state = NULL;
    last->requested = 0;
    check_broken("block at offset 2097152 of 2097152 bytes: a hole at the end, or not merged");
    last->prev->state = ASHLAR_BLOCK_USED;
    last->prev->stream_state = &order_a;
    ashlar__page_map_set(&heap.map, last->prev->offset, last->prev);
    check_broken("block at offset 4194304 of 2097152 bytes: a hole at the end, or not merged");
    ashlar__page_map_set(&heap.map, last->prev->offset, NULL);
    last->prev->state = ASHLAR_BLOCK_UNMAPPED;
    last->prev->stream_state = NULL;
    last->state = ASHLAR_BLOCK_USED;
    last->stream_state = &order_a;
    last->requested = last->bytes;
    ashlar__page_map_set(&heap.map, last->offset, last);
}

CASE_WITH(chunks_that_disagree_with_the_blocks_are_found, set_up_hole()) {
    ashlar_range *range = &heap.range;
    REQUIRE(range->chunk_count == 2);
    range->chunks[1].offset -= 2 * MIB;
    check_broken("block at offset 2097152 of 2097152 bytes: a hole where memory is mapped");
    range->chunks[1].offset -= 2 * MIB;
    check_broken("chunk 1 overlaps, or is half moved");
    range->chunks[1].offset += 4 * MIB;
    range->chunks[0].is_chosen = true;
    check_broken("chunk 0 overlaps, or is half moved");
    range->chunks[0].is_chosen = false;
    range->chunks[1].is_gone = true;
    check_broken("chunk 1 overlaps, or is half moved");
    range->chunks[1].is_gone = false;
    range->chunk_count = 1;
    check_broken("2097152 bytes mapped, counted 4194304");
    range->chunk_count = 2;
}

CASE(a_segment_that_starts_inside_a_block_is_found) {
    use_segments = true;
    REQUIRE(set_up_four());
    use_segments = false;
    live->starts_segment = false;
    check_broken("segment 0 starts inside a block");
    live->starts_segment = true;
    heap.range.chunks[0].offset += UNIT;
    check_broken("segment 0 starts inside a block");
    heap.range.chunks[0].offset -= UNIT;
}

CASE_WITH(wrong_sums_are_found, set_up_four()) {
    put(above, &order_b, 7);
    heap.used_bytes += 1;
    check_broken("524288 used and 1572864 free bytes, counted 524289 and 1572864");
    heap.used_bytes -= 1;
    heap.free_bytes += 1;
    check_broken("524288 used and 1572864 free bytes, counted 524288 and 1572865");
    heap.free_bytes -= 1;
}

RUN_CASES()
