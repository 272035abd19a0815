/*
 * test_heap_check.c - the walker finds each broken invariant: every case breaks one and mends it.
 */
#include "heap_fixture.h"

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
    CHECK(ashlar_heap_check(&heap) == ASHLAR_EFORMAT);
    CHECK_HAS(ashlar_error_detail(), "heap check: ");
    CHECK_HAS(ashlar_error_detail(), part);
}

static void a_sound_heap_passes(void) {
    REQUIRE(set_up_four());
    CHECK(ashlar_heap_check(&heap) == ASHLAR_OK);
    tear_down_heap();
}

static void a_gap_between_blocks_is_found(void) {
    REQUIRE(set_up_four());
    above->offset += 512;
    check_broken("block at offset 1049088 of 524288 bytes: does not follow the block before it");
    above->offset -= 512;
    tear_down_heap();
}

static void a_wrong_back_link_is_found(void) {
    REQUIRE(set_up_four());
    above->prev = live;
    check_broken("block at offset 1048576 of 524288 bytes: does not follow the block before it");
    above->prev = freed;
    live->prev = idle;
    check_broken("block at offset 0 of 524288 bytes: does not follow the block before it");
    live->prev = NULL;
    tear_down_heap();
}

static void a_size_that_is_no_multiple_is_found(void) {
    REQUIRE(set_up_four());
    live->bytes += 1;
    check_broken("block at offset 0 of 524289 bytes: not aligned, or empty");
    live->bytes = 0;
    check_broken("block at offset 0 of 0 bytes: not aligned, or empty");
    live->bytes = UNIT;
    tear_down_heap();
}

static void a_page_map_that_disagrees_is_found(void) {
    REQUIRE(set_up_four());
    ashlar_page_map_set(&heap.map, freed->offset, freed);
    check_broken("block at offset 524288 of 524288 bytes: free, but in the page map");
    ashlar_page_map_set(&heap.map, freed->offset, NULL);
    ashlar_page_map_set(&heap.map, above->offset, NULL);
    check_broken("block at offset 1048576 of 524288 bytes: live, but not in the page map");
    ashlar_page_map_set(&heap.map, above->offset, live);
    check_broken("live, but not in the page map");
    ashlar_page_map_set(&heap.map, above->offset, above);
    tear_down_heap();
}

static void a_live_block_with_a_wrong_size_or_no_stream_is_found(void) {
    REQUIRE(set_up_four());
    above->requested = UNIT + 1;
    check_broken("block at offset 1048576 of 524288 bytes: live, with a wrong size or no stream");
    above->requested = UNIT;
    above->order = NULL;
    check_broken("live, with a wrong size or no stream");
    above->order = &order_a;
    above->requested = 0;
    check_broken("live, with a wrong size or no stream");
    above->requested = UNIT;
    tear_down_heap();
}

static void bytes_asked_for_of_a_block_that_is_not_live_are_found(void) {
    REQUIRE(set_up_four());
    idle->requested = 1;
    check_broken("block at offset 1572864 of 524288 bytes: not live, but bytes of it");
    idle->requested = 0;
    live->state = ASHLAR_BLOCK_CACHED;
    check_broken("block at offset 0 of 524288 bytes: not live, but bytes of it");
    live->requested = 0;
    check_heap();
    ashlar_page_map_set(&heap.map, 0, NULL);
    check_broken("live, but not in the page map");
    ashlar_page_map_set(&heap.map, 0, live);
    tear_down_heap();
}

static void a_free_block_outside_its_bins_is_found(void) {
    REQUIRE(set_up_four());
    ashlar_free_bins_remove(&order_a.free, freed);
    check_broken("block at offset 524288 of 524288 bytes: free, but not in its bins");
    ashlar_free_bins_insert(&order_b.free, freed); /* another stream's will not do */
    check_broken("free, but not in its bins");
    ashlar_free_bins_remove(&order_b.free, freed);
    ashlar_free_bins_insert(&order_a.free, freed);
    ashlar_free_bins_remove(&heap.idle, idle);
    check_broken("block at offset 1572864 of 524288 bytes: free, but not in its bins");
    ashlar_free_bins_insert(&heap.idle, idle);
    tear_down_heap();
}

static void free_neighbours_that_should_be_one_are_found(void) {
    REQUIRE(set_up_four());
    put(above, &order_b, 7); /* joins the idle block above it; `freed` stays apart */
    CHECK(is_free_run(1, 1, &order_a, 5) && is_free_run(2, 2, &order_b, 7));
    ashlar_free_bins_remove(&order_b.free, above);
    above->order = &order_a;
    ashlar_free_bins_insert(&order_a.free, above);
    check_broken("block at offset 524288 of 524288 bytes: not merged with the free block behind");
    ashlar_free_bins_remove(&order_a.free, above);
    above->order = &order_b;
    ashlar_free_bins_insert(&order_b.free, above);
    tear_down_heap();
}

static void blocks_that_do_not_end_with_the_range_are_found(void) {
    REQUIRE(set_up_four());
    heap.range.mapped_bytes += 512;
    check_broken("blocks end at 2097152, the mapped range at 2097664");
    heap.range.mapped_bytes -= 512;
    heap.last = above;
    check_broken("blocks end at 2097152");
    heap.last = idle;
    tear_down_heap();
}

static void wrong_sums_are_found(void) {
    REQUIRE(set_up_four());
    put(above, &order_b, 7);
    heap.used_bytes += 1;
    check_broken("524288 used and 1572864 free bytes, counted 524289 and 1572864");
    heap.used_bytes -= 1;
    heap.free_bytes += 1;
    check_broken("524288 used and 1572864 free bytes, counted 524288 and 1572865");
    heap.free_bytes -= 1;
    tear_down_heap();
}

int main(void) {
    RUN(a_sound_heap_passes);
    RUN(a_gap_between_blocks_is_found);
    RUN(a_wrong_back_link_is_found);
    RUN(a_size_that_is_no_multiple_is_found);
    RUN(a_page_map_that_disagrees_is_found);
    RUN(a_live_block_with_a_wrong_size_or_no_stream_is_found);
    RUN(bytes_asked_for_of_a_block_that_is_not_live_are_found);
    RUN(a_free_block_outside_its_bins_is_found);
    RUN(free_neighbours_that_should_be_one_are_found);
    RUN(blocks_that_do_not_end_with_the_range_are_found);
    RUN(wrong_sums_are_found);
    return check_report();
}
