/*
 * test_heap_check.c - the walker finds each broken invariant: every case breaks some and mends
 * them.
 */
#include "tests/allocator/heap/heap_fixture.h"

/* Of 1 MiB each: live | freed | above | a gap up to the window's end. Handles 0 and 1 have memory.
 */
static ashlar_block *live, *freed, *above;
static ashlar_window *w;

static bool set_up_three(void) {
    if (!set_up_heap("memory=16MiB")) {
        return false;
    }
    live = take(&state_a, 1 * MIB);
    freed = take(&state_a, 1 * MIB);
    above = take(&state_a, 1 * MIB);
    put(freed);
    w = window_of(&state_a, 1 * MIB);
    return true;
}

/* With `field` at another value the check fails, and says `part`. */
#define BROKEN(field, value, part)                                                   \
    do {                                                                             \
        const __typeof__(field) sound_ = (field);                                    \
        (field) = (value);                                                           \
        CHECK_FAILS(ashlar__heap_check(&heap), ASHLAR_EFORMAT, "heap check: " part); \
        (field) = sound_;                                                            \
        CHECK(ashlar__heap_check(&heap) == ASHLAR_OK);                               \
    } while (0)

CASE_WITH(blocks_that_do_not_follow_one_another_are_found, set_up_three()) {
    BROKEN(above->offset, above->offset + 512,
           "block at offset 2097664 of 1048576 bytes: does not follow the block before it");
    BROKEN(above->prev, live, "block at offset 2097152 of 1048576 bytes: does not follow");
    BROKEN(live->prev, freed, "block at offset 0 of 1048576 bytes: does not follow");
    BROKEN(above->window, NULL, "block at offset 2097152 of 1048576 bytes: does not follow");
    BROKEN(live->bytes, live->bytes + 1, "block at offset 0 of 1048577 bytes: not aligned");
    BROKEN(live->bytes, 0, "block at offset 0 of 0 bytes: not aligned, or empty");
}

CASE_WITH(a_window_that_its_blocks_do_not_fill_is_found, set_up_three()) {
    BROKEN(w->last, above, "window at offset 0 of 33554432 bytes: its blocks do not end");
    BROKEN(w->bytes, w->bytes + H, "window at offset 0 of 35651584 bytes: its blocks do not end");
    take(&state_b, 512);
    BROKEN(w->above->offset, w->bytes - H, "window at offset 31457280 of 33554432 bytes: overlaps");
}

CASE_WITH(a_page_map_that_disagrees_is_found, set_up_three()) {
    ashlar__page_map_set(&heap.map, freed->offset, freed);
    CHECK_FAILS(ashlar__heap_check(&heap), ASHLAR_EFORMAT,
                "block at offset 1048576 of 1048576 bytes: free, but in the page map");
    ashlar__page_map_set(&heap.map, freed->offset, NULL);
    ashlar__page_map_set(&heap.map, above->offset, NULL);
    CHECK_FAILS(ashlar__heap_check(&heap), ASHLAR_EFORMAT,
                "block at offset 2097152 of 1048576 bytes: used, but not in the page map");
    ashlar__page_map_set(&heap.map, above->offset, above);
}

CASE_WITH(a_used_block_with_a_wrong_size_or_no_stream_is_found, set_up_three()) {
    BROKEN(above->requested, above->bytes + 1,
           "block at offset 2097152 of 1048576 bytes: used, with a wrong size or no stream");
    BROKEN(above->stream_state, NULL, "block at offset 2097152 of 1048576 bytes: used, with");
    live->requested = 0; /* as in a thread's cache */
    check_heap();
    ashlar__page_map_set(&heap.map, 0, NULL);
    live->state = ASHLAR_BLOCK_PLAN_MEMORY;
    check_heap();
    BROKEN(live->requested, 1, "block at offset 0 of 1048576 bytes: a plan's memory, but bytes");
    live->state = ASHLAR_BLOCK_USED;
    ashlar__page_map_set(&heap.map, 0, live);
}

CASE_WITH(a_gap_that_is_none_is_found, set_up_three()) {
    ashlar_free_bins *gaps = &w->zone->gaps;
    BROKEN(freed->requested, 1, "block at offset 1048576 of 1048576 bytes: a gap, but bytes");
    ashlar__free_bins_remove(gaps, freed);
    CHECK_FAILS(ashlar__heap_check(&heap), ASHLAR_EFORMAT,
                "block at offset 1048576 of 1048576 bytes: a gap, but not in its zone's bins");
    ashlar__free_bins_insert(&state_b.zones[1].gaps, freed); /* another stream's will not do */
    CHECK_FAILS(ashlar__heap_check(&heap), ASHLAR_EFORMAT, "not in its zone's bins");
    ashlar__free_bins_remove(&state_b.zones[1].gaps, freed);
    ashlar__free_bins_insert(gaps, freed);
}

CASE_WITH(gaps_side_by_side_are_found, set_up_three()) {
    ashlar__page_map_set(&heap.map, above->offset, NULL);
    above->state = ASHLAR_BLOCK_FREE;
    above->requested = above->holes = 0;
    ashlar__free_bins_insert(&w->zone->gaps, above);
    CHECK_FAILS(ashlar__heap_check(&heap), ASHLAR_EFORMAT,
                "block at offset 1048576 of 1048576 bytes: not merged with the gap behind it");
    ashlar__free_bins_remove(&w->zone->gaps, above);
    above->state = ASHLAR_BLOCK_USED;
    above->requested = above->bytes;
    above->uses = NULL;
    ashlar__page_map_set(&heap.map, above->offset, above);
}

CASE_WITH(memory_that_is_missing_or_miscounted_is_found, set_up_three()) {
    const ashlar_backing mapped = w->backing[1];
    BROKEN(freed->holes, 1, "block at offset 1048576 of 1048576 bytes: its holes are miscounted");
    BROKEN(w->last->holes, 13, "block at offset 3145728 of 30408704 bytes: its holes are");
    w->backing[1].is_mapped = 0;
    CHECK_FAILS(ashlar__heap_check(&heap), ASHLAR_EFORMAT,
                "block at offset 2097152 of 1048576 bytes: used, but memory is missing");
    w->backing[1] = mapped;
    w->backing[2].is_mapped = 1;
    CHECK_FAILS(ashlar__heap_check(&heap), ASHLAR_EFORMAT, "its holes are miscounted");
    w->backing[2].is_mapped = 0;
    BROKEN(w->mapped_count, 3, "window at offset 0 of 33554432 bytes: its mapped handles");
    w->backing[1].covered_by = 2;
    CHECK_FAILS(ashlar__heap_check(&heap), ASHLAR_EFORMAT,
                "window at offset 0 of 33554432 bytes: memory stamped after its owner's last tick");
    w->backing[1] = mapped;
}

CASE(a_segment_with_a_hole_is_found) {
    use_segments = true;
    const bool is_set_up = set_up_heap("memory=256MiB");
    use_segments = false;
    REQUIRE(is_set_up);
    w = take(&state_a, 1 * MIB)->window;
    w->backing[3].is_mapped = 0;
    w->mapped_count--;
    w->last->holes = 1;
    CHECK_FAILS(ashlar__heap_check(&heap), ASHLAR_EFORMAT, "a segment with a hole");
    w->backing[3].is_mapped = 1;
    w->mapped_count++;
    w->last->holes = 0;
}

CASE_WITH(wrong_sums_are_found, set_up_three()) {
    ashlar_zone *zone = w->zone;
    BROKEN(zone->used_bytes, zone->used_bytes + 512,
           "2097152 bytes of a zone used, counted 2097664");
    BROKEN(heap.range.mapped_bytes, 3 * H, "4194304 bytes mapped, counted 6291456");
    BROKEN(heap.range.mapped_bytes, 17 * MIB, "the range contradicts itself");
    BROKEN(heap.range.next_offset, heap.range.bytes + 1, "the range contradicts itself");
    BROKEN(heap.range.spare_count, heap.range.spare_capacity + 1, "the range contradicts itself");
    BROKEN(heap.range.handle_bytes, heap.range.handle_bytes << 20, "");
    BROKEN(heap.window_count, 2, "1 windows, counted 2");
}

CASE_WITH(zones_that_disagree_about_their_windows_are_found, set_up_three()) {
    ashlar_zone *large = &state_a.zones[ASHLAR_ZONE_LARGE], *small = state_a.zones;
    take(&state_a, 512);
    CHECK(heap.zones == small && small->next == large);
    BROKEN(heap.zones, large, "zones have 1 of 2 windows");
    BROKEN(large->windows, NULL, "a zone without windows is listed");
    BROKEN(large->windows, small->windows, "window at offset 33554432 of 33554432 bytes: in the");
}

/* With `field` at another value the state is unsound. */
#define UNSOUND(field, value)                            \
    do {                                                 \
        const __typeof__(field) sound_ = (field);        \
        (field) = (value);                               \
        CHECK(!ashlar__stream_state_is_sound(&state_a)); \
        (field) = sound_;                                \
        CHECK(ashlar__stream_state_is_sound(&state_a));  \
    } while (0)

CASE_WITH(a_stream_state_that_contradicts_itself_is_found, set_up_heap("memory=16MiB")) {
    ashlar_stream_state *s = &state_a;
    s->recorded = s->event_count = s->pending_count = 2;
    for (uint64_t i = 0; i < 2; i++) {
        REQUIRE(ashlar_event_create(device, (ashlar_event *)&s->events[i].event) == ASHLAR_OK);
        s->events[i].number = i + 1;
    }
    REQUIRE(ashlar__stream_state_is_sound(s));
    UNSOUND(s->completed, 1); /* recording 1 is still pending */
    UNSOUND(s->completed, 3);
    UNSOUND(s->pending_count, 1); /* recording 2 is nowhere */
    UNSOUND(s->pending_count, 3);
    UNSOUND(s->event_count, ASHLAR_EVENTS_MAX + 1);
    UNSOUND(s->events[1].event, NULL);
    UNSOUND(s->events[1].number, 1); /* not behind the first */
    UNSOUND(s->recorded, 3);         /* by no event */
    UNSOUND(s->last_tick, 3);        /* a use in the future, unless an owner is writing it */
    UNSOUND(s->is_lost, true);       /* and not gone */
    s->last_tick = 2;
    UNSOUND(s->is_gone, true); /* with a use behind its last recording, unless it is lost */
    s->is_gone = s->is_lost = true;
    CHECK(ashlar__stream_state_is_sound(s));
    s->is_gone = s->is_lost = false;
}

RUN_CASES()
