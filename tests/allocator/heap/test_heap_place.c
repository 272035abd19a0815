/*
 * test_heap_place.c - where a block takes the fewest handles, what could serve again, and segments
 * that are exchanged for others.
 */
#include "tests/allocator/heap/heap_fixture.h"

static ashlar_heap_place place_for(ashlar_stream_state *state, size_t bytes) {
    ashlar_heap_place place = {0};
    CHECK(ashlar__heap_find_place(&heap, state, bytes, &place));
    CHECK(place.bytes == bytes && place.offset >= place.gap->offset);
    CHECK(place.offset + bytes <= place.gap->offset + place.gap->bytes);
    return place;
}

static size_t offset_in_window(const ashlar_heap_place *place) {
    return place->offset - place->gap->window->offset;
}

/* ---- places ---- */

CASE_WITH(a_block_goes_where_a_handle_is_in_part_used, set_up_heap("memory=64MiB")) {
    (void)take(&state_a, 3 * MIB);
    (void)take(&state_a, MIB / 2);
    ashlar_heap_place place = place_for(&state_a, MIB); /* both zones have room: its own */
    CHECK(place.gap->window == window_of(&state_a, MIB) && offset_in_window(&place) == 3 * MIB);
    place = place_for(&state_a, MIB + MIB / 2); /* only the other one needs no handle */
    CHECK(place.gap->window == window_of(&state_a, 512) && offset_in_window(&place) == MIB / 2);
    place = place_for(&state_a, 3 * MIB);
    CHECK(place.gap->window == window_of(&state_a, MIB) && offset_in_window(&place) == 3 * MIB);
    CHECK(ashlar__heap_back_at(&heap, &place, ASHLAR_MAY_CREATE) == ASHLAR_OK);
    CHECK_ZU(heap.range.mapped_bytes, 4 * H); /* one more */
    check_heap();
}

CASE_WITH(a_block_goes_before_a_handle_that_is_in_part_used, set_up_heap("memory=64MiB")) {
    ashlar_block *first = take(&state_a, 7 * MIB);
    (void)take(&state_a, 7 * MIB);
    put_past(first);
    const ashlar_heap_place place = place_for(&state_a, 3 * MIB);
    CHECK(place.gap == first && offset_in_window(&place) == 4 * MIB);
}

CASE_WITH(another_streams_memory_serves_when_its_last_use_is_over, set_up_heap("memory=64MiB")) {
    (void)take(&state_b, MIB);
    put(take(&state_b, MIB));
    ashlar_heap_place place = place_for(&state_a, MIB);
    CHECK(place.gap->window->zone->owner == &state_b && offset_in_window(&place) == H);
    place = place_for(&state_b, MIB); /* its own may be in use still */
    CHECK_ZU(offset_in_window(&place), MIB);
    set_events(&state_b, 1, 1);
    place = place_for(&state_a, MIB);
    CHECK_ZU(offset_in_window(&place), MIB);
    state_b.is_pool = true;
    CHECK(!ashlar__heap_find_place(&heap, &state_a, MIB, &place));
}

CASE_WITH(memory_that_only_the_stream_may_use_is_used_first, set_up_heap("memory=64MiB")) {
    ashlar_block *old = take(&state_a, 4 * MIB), *busy;
    (void)take(&state_a, 2 * MIB);
    busy = take(&state_a, 6 * MIB);
    (void)take(&state_a, 2 * MIB);
    put_past(old); /* the better fit, but others could have its handles */
    put(busy);
    CHECK(place_for(&state_a, 4 * MIB).gap == busy);
    set_events(&state_a, 1, 1);
    CHECK(place_for(&state_a, 4 * MIB).gap == old);
}

/* ---- what could serve again ---- */

CASE_WITH(handles_that_no_live_block_touches_could_serve, set_up_heap("memory=64MiB")) {
    ashlar_block *blocks[3];
    for (int i = 0; i < 3; i++) {
        blocks[i] = take(&state_a, 3 * MIB);
    }
    CHECK_ZU(ashlar__heap_servable_bytes(&heap), 0);
    put(blocks[1]);
    CHECK_ZU(ashlar__heap_servable_bytes(&heap), 2 * MIB); /* the other half is beside a block */
    blocks[2]->requested = 0;                              /* a cache keeps it */
    CHECK_ZU(ashlar__heap_servable_bytes(&heap), 6 * MIB);
    CHECK(ashlar__heap_reserve(&heap, state_a.zones, 14 * MIB) == ASHLAR_OK);
    CHECK_ZU(ashlar__heap_servable_bytes(&heap), 10 * MIB); /* and two spare ones */
}

CASE_WITH(places_between_live_blocks_of_segments_could_serve,
          (use_segments = true, set_up_heap("memory=64MiB"))) {
    use_segments = false;
    ashlar_block *first = take(&state_a, 16 * MIB);
    put_past(first);
    ashlar_block *low = take(&state_a, 3 * MIB), *middle = take(&state_a, 7 * MIB);
    (void)take(&state_a, 3 * MIB);
    CHECK_ZU(heap.range.mapped_bytes, 16 * MIB);
    CHECK_ZU(ashlar__heap_servable_bytes(&heap), 2 * MIB);
    put(middle);
    CHECK_ZU(ashlar__heap_servable_bytes(&heap), 8 * MIB); /* 7 and 3 MiB */
    put(low);
    CHECK_ZU(ashlar__heap_servable_bytes(&heap), 12 * MIB); /* 10 and 3 MiB */
}

/* ---- segments that do not fit ---- */

CASE_WITH(a_segment_is_exchanged_for_one_that_fits,
          (use_segments = true, set_up_heap("memory=64MiB"))) {
    use_segments = false;
    ashlar_block *gap = take(&state_a, 10 * MIB);
    (void)take(&state_a, 54 * MIB);
    put_past(gap);
    CHECK(!ashlar__heap_is_misfit(&heap, gap, 6 * MIB));
    heap.short_at = ashlar__heap_count_use(&heap);
    CHECK(ashlar__heap_is_misfit(&heap, gap, 6 * MIB));
    CHECK(!ashlar__heap_is_misfit(&heap, gap, 5 * MIB));
    CHECK(ashlar__heap_exchange(&heap, gap, 6 * MIB) == ASHLAR_OK);
    CHECK_ZU(heap.range.mapped_bytes, 60 * MIB);
    CHECK_ZU(gap_for(&state_a, 6 * MIB)->bytes, 6 * MIB);
    check_heap();
}

CASE_WITH(a_segment_in_use_is_not_exchanged, (use_segments = true, set_up_heap("memory=64MiB"))) {
    use_segments = false;
    ashlar_block *gap = take(&state_a, 10 * MIB);
    (void)take(&state_a, 54 * MIB);
    put(gap);
    heap.short_at = ashlar__heap_count_use(&heap);
    CHECK(ashlar__heap_exchange(&heap, gap, 6 * MIB) == ASHLAR_ENOMEM);
    CHECK_ZU(heap.range.mapped_bytes, 64 * MIB);
    CHECK_ZU(heap.window_count, 2);
}

CASE_WITH(a_new_segment_is_filled_by_blocks_of_one_size,
          (use_segments = true, set_up_heap("memory=1GiB"))) {
    use_segments = false;
    static const size_t sizes[][2] = {{3, 18}, {5, 20}, {12, 24}, {20, 20}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t mapped = heap.range.mapped_bytes;
        ashlar_block *block = take(&state_a, sizes[i][0] * MIB);
        CHECK_ZU(heap.range.mapped_bytes - mapped, sizes[i][1] * MIB);
        while (block->next != NULL) {
            (void)take(&state_a, block->next->bytes); /* so that the next size gets its own */
            block = block->next;
        }
    }
    heap.range.growth_min_bytes = 32 * MIB;
    const size_t mapped = heap.range.mapped_bytes;
    (void)take(&state_a, 12 * MIB);
    CHECK_ZU(heap.range.mapped_bytes - mapped, 36 * MIB);
}

RUN_CASES()
