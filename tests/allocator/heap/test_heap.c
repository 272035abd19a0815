/*
 * test_heap.c - how large windows and segments are, and how much of what is free could serve again.
 */
#include "tests/allocator/heap/heap_fixture.h"

/* ---- windows and zones ---- */

CASE_WITH(the_more_windows_there_are_the_smaller_is_the_next, set_up_heap("memory=1GiB")) {
    static ashlar_stream_state many[66];
    for (size_t i = 0; i < 66; i++) {
        init_state(&many[i], NULL);
        const ashlar_block *gap = gap_for(&many[i], 20 * MIB);
        CHECK_ZU(gap->bytes, (i < 4 ? 2048 : i < 64 ? 256 : 20) * MIB); /* 20: more than 1/64 */
    }
    const ashlar_block *small = gap_for(&many[65], 512);
    CHECK_ZU(small->bytes, 16 * MIB);
    check_heap();
}

CASE_WITH(a_zones_next_window_is_at_least_twice_as_large, set_up_heap("memory=64MiB")) {
    static const size_t sizes[] = {128, 256, 512, 1024, 128}; /* the last is what is left */
    ashlar_zone *zone = &state_a.zones[ASHLAR_ZONE_LARGE];
    size_t offset = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CHECK(ashlar__heap_add_window(&heap, zone, 1 * MIB) == ASHLAR_OK);
        CHECK_ZU(zone->windows->offset, offset);
        CHECK_ZU(zone->windows->bytes, sizes[i] * MIB);
        offset += sizes[i] * MIB;
        check_heap();
    }
    CHECK_FAILS(ashlar__heap_add_window(&heap, zone, 1025 * MIB), ASHLAR_ENOMEM,
                "1075838976 bytes exceed the reserved address range");
    CHECK_FAILS(ashlar__heap_add_window(&heap, zone, SIZE_MAX), ASHLAR_ENOMEM, "too many");
    CHECK_ZU(heap.window_count, 5);
}

CASE_WITH(where_no_addresses_are_left_an_empty_window_changes_hands, set_up_heap("memory=64MiB")) {
    ashlar_zone *a = &state_a.zones[ASHLAR_ZONE_LARGE], *b = &state_b.zones[ASHLAR_ZONE_LARGE];
    for (int i = 0; i < 5; i++) {
        CHECK(ashlar__heap_add_window(&heap, a, 1 * MIB) == ASHLAR_OK);
    }
    take(&state_a, 1 * MIB); /* in the lowest window, of 128 MiB */
    CHECK_ZU(gap_for(&state_b, 100 * MIB)->offset, 1920 * MIB); /* the other one of 128 */
    CHECK_ZU(gap_for(&state_b, 129 * MIB)->offset, 128 * MIB);
    check_heap();
    CHECK(b->windows->next->next == NULL && heap.window_count == 5);
    CHECK(ashlar__heap_add_window(&heap, b, 1025 * MIB) == ASHLAR_ENOMEM);
    gap_for(&state_b, 500 * MIB);
    gap_for(&state_b, 1000 * MIB);
    CHECK(a->windows->next == NULL); /* where its block is */
    CHECK(ashlar__heap_add_window(&heap, &state_b.zones[ASHLAR_ZONE_SMALL], 512) == ASHLAR_OK);
    check_heap();
}

/* ---- segments ---- */

static bool set_up_segments(const char *spec) {
    use_segments = true;
    const bool is_set_up = set_up_heap(spec);
    use_segments = false;
    return is_set_up;
}

CASE_WITH(a_segment_is_a_few_blocks_of_the_size_asked_for, set_up_segments("memory=256MiB")) {
    static const size_t sizes[][2] = {{512, 2 * MIB},       /* small ones share 2 MiB */
                                      {1 * MIB, 16 * MIB},  /* 16 of them */
                                      {6 * MIB, 18 * MIB},  /* 3 */
                                      {15 * MIB, 30 * MIB}, /* 2 */
                                      {16 * MIB, 16 * MIB}, /* from here on, one */
                                      {31 * MIB + 512, 32 * MIB}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ashlar_zone *zone = ashlar__zone_of(&state_a, sizes[i][0]);
        CHECK(ashlar__heap_add_window(&heap, zone, sizes[i][0]) == ASHLAR_OK);
        CHECK_ZU(zone->windows->bytes, sizes[i][1]);
        CHECK(zone->windows->first->holes == 0);
        check_heap();
    }
    heap.range.growth_min_bytes = 65 * MIB;
    CHECK(ashlar__heap_add_window(&heap, state_a.zones, 512) == ASHLAR_OK);
    CHECK_ZU(state_a.zones[0].windows->bytes, 66 * MIB);
    check_heap();
}

CASE_WITH(a_segment_that_is_refused_gives_way_to_the_least, set_up_segments("memory=256MiB")) {
    CHECK_ZU(gap_for(&state_a, 240 * MIB)->bytes, 240 * MIB);
    CHECK_ZU(gap_for(&state_b, 9 * MIB)->bytes, 10 * MIB); /* not 18: the device refuses them */
    heap.range.limit_bytes = 255 * MIB;
    take(&state_b, 10 * MIB);
    CHECK_ZU(gap_for(&state_b, 3 * MIB)->bytes, 4 * MIB); /* not 18: above the limit */
    check_heap();
    CHECK(ashlar__heap_add_window(&heap, &state_a.zones[1], 1 * MIB) == ASHLAR_ENOMEM);
    heap.range.limit_bytes = SIZE_MAX;
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_mem_alloc, 1, CU_UNKNOWN);
    CHECK(ashlar__heap_add_window(&heap, &state_a.zones[1], 1 * MIB) == ASHLAR_EDRIVER);
    CHECK_ZU(heap.window_count, 3);
}

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

RUN_CASES()
