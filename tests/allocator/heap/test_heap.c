/*
 * test_heap.c - windows and zones, gaps with and without memory, taking from them and putting back.
 */
#include "tests/allocator/heap/heap_fixture.h"

static ashlar_block *blocks[6];

/* Blocks of `bytes` each, side by side at the front of the stream's window. */
static void take_row(ashlar_stream_state *state, size_t count, size_t bytes) {
    for (size_t i = 0; i < count; i++) {
        blocks[i] = take(state, bytes);
        CHECK_ZU(blocks[i]->offset, blocks[0]->offset + i * bytes);
    }
    check_heap();
}

/* Bytes that are mapped in a zone's windows. */
static size_t zone_mapped_bytes(const ashlar_zone *zone) {
    size_t count = 0;
    for (const ashlar_window *w = zone->windows; w != NULL; w = w->next) {
        count += w->mapped_count;
    }
    return count * H;
}

/* ---- windows and zones ---- */

CASE_BOTH_WITH(a_new_heap_is_empty, set_up_heap("memory=16MiB")) {
    ashlar_heap_piece piece = {0};
    CHECK(ashlar__heap_first(&heap) == NULL && !ashlar__heap_next_piece(&heap, &piece));
    CHECK(ashlar__heap_find(&heap, 0) == NULL && !ashlar__heap_is_mapped(&heap, 0));
    CHECK_ZU(ashlar__heap_used_bytes(&heap) + heap.range.mapped_bytes +
                 ashlar__heap_free_bytes(&heap),
             0);
}

CASE_WITH(a_window_is_one_gap_without_memory, set_up_heap("memory=64MiB")) {
    const uint64_t calls = client.calls;
    const ashlar_block *gap = gap_for(&state_a, 1 * MIB);
    CHECK_ZU(gap->offset, 0);
    CHECK_ZU(gap->bytes, 128 * MIB); /* all of the device's memory, twice */
    CHECK_ZU(gap->holes, 128 * MIB / H);
    CHECK_ZU(ashlar__heap_missing(&heap, gap, 3 * H + 512), 4 * H);
    CHECK_ZU(heap.range.mapped_bytes, 0);
    CHECK(client.calls == calls && gap->window->zone == &state_a.zones[ASHLAR_ZONE_LARGE]);
    check_heap();
}

CASE_BOTH_WITH(small_and_large_blocks_lie_in_zones_of_their_own, set_up_heap("memory=256MiB")) {
    const ashlar_block *small = take(&state_a, ASHLAR_SC_MAX_BYTES);
    const ashlar_block *large = take(&state_a, ASHLAR_SC_MAX_BYTES + 512);
    const ashlar_block *other = take(&state_b, 512);
    CHECK(small->window->zone == &state_a.zones[ASHLAR_ZONE_SMALL]);
    CHECK(large->window->zone == &state_a.zones[ASHLAR_ZONE_LARGE]);
    CHECK(other->window->zone == &state_b.zones[ASHLAR_ZONE_SMALL]);
    CHECK_ZU(heap.window_count, 3);
    if (!use_segments) {
        CHECK_ZU(zone_mapped_bytes(large->window->zone), H);
    }
    check_heap();
}

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

CASE_WITH(a_request_larger_than_a_share_gets_a_window_of_its_size, set_up_heap("memory=64MiB")) {
    CHECK_ZU(gap_for(&state_a, 128 * MIB + 1)->bytes, 130 * MIB);
    CHECK_ZU(gap_for(&state_b, 2048 * MIB - 130 * MIB)->bytes, 1918 * MIB); /* all there is */
    check_heap();
}

CASE_BOTH_WITH(a_window_without_host_memory_changes_nothing, set_up_heap("memory=256MiB")) {
    ashlar_zone *zone = &state_a.zones[ASHLAR_ZONE_LARGE];
    static const char *const what[] = {"block descriptors", "window of", "segment of"};
    for (unsigned long n = 1; n <= 2; n++) {
        HOST_FAILS_AT(1, CHECK_FAILS(ashlar__heap_add_window(&heap, zone, 1 * MIB), ASHLAR_EHOSTMEM,
                                     what[n == 1         ? 0
                                          : use_segments ? 2
                                                         : 1]));
        CHECK(heap.windows == NULL && heap.zones == NULL && zone->windows == NULL);
        CHECK(ashlar__free_bins_is_empty(&zone->gaps) && heap.range.next_offset == 0);
        check_heap();
        CHECK(ashlar__heap_reserve_nodes(&heap, zone, 1) == ASHLAR_OK);
    }
    take(&state_a, 1 * MIB);
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

CASE_WITH(on_a_small_device_segments_are_shared_less, set_up_segments("memory=32MiB")) {
    CHECK_ZU(gap_for(&state_a, 1 * MIB)->bytes, 2 * MIB); /* a sixteenth of it */
    CHECK_ZU(gap_for(&state_b, 3 * MIB)->bytes, 4 * MIB);
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

/* ---- taking and putting ---- */

CASE_BOTH_WITH(a_block_is_cut_from_the_front_of_its_gap, set_up_heap("memory=256MiB")) {
    take_row(&state_a, 3, 1 * MIB);
    put(blocks[1]);
    const size_t at = blocks[1]->offset;
    ashlar_block *front = cut(gap_at(at), 512);
    check_heap();
    CHECK(front->offset == at && front->prev == blocks[0] && blocks[0]->next == front);
    const ashlar_block *rest = front->next;
    CHECK(rest == gap_at(at + 512) && rest->prev == front && rest->next == blocks[2]);
    CHECK_ZU(rest->bytes, 1 * MIB - 512);
    CHECK(ashlar__page_map_get(&heap.map, at) == front && front->state == ASHLAR_BLOCK_USED);
    cut(gap_at(at + 512), 1 * MIB - 512); /* whole: no rest */
    CHECK(rest->next == blocks[2]);
    check_heap();
}

/* Free four blocks that fill a row in every order; a fifth one above them stays. */
CASE_BOTH_WITH(what_is_put_back_is_one_gap_with_its_neighbours, set_up_heap("memory=256MiB")) {
    for (size_t order = 0; order < 24; order++) {
        size_t left[] = {0, 1, 2, 3}, rest = order;
        take_row(&state_a, 5, 1 * MIB);
        for (size_t count = 4; count > 0; count--) {
            const size_t pick = rest % count;
            rest /= count;
            put(blocks[left[pick]]);
            CHECK(ashlar__page_map_get(&heap.map, blocks[0]->offset + left[pick] * MIB) == NULL);
            left[pick] = left[count - 1];
            check_heap();
        }
        const ashlar_window *w = window_of(&state_a, 1 * MIB);
        CHECK(w->first->bytes == 4 * MIB && w->first->next == blocks[4]);
        put(blocks[4]);
        CHECK(w->first == w->last && w->first->bytes == w->bytes);
        check_heap();
    }
    CHECK_ZU(ashlar__heap_used_bytes(&heap), 0);
}

CASE_WITH(the_lowest_of_the_smallest_gaps_serves_whether_it_has_memory_or_not,
          set_up_heap("memory=64MiB")) {
    static const size_t sizes[] = {6, 2, 4, 2, 4, 2}; /* MiB; every second one stays */
    size_t moved = 0;
    for (size_t i = 0; i < 6; i++) {
        blocks[i] = take(&state_a, sizes[i] * MIB);
    }
    put(blocks[0]);
    put(blocks[2]);
    set_events(&state_a, 1, 1);
    CHECK(ashlar__heap_unmap_free(&heap, NULL, 5, &moved) == ASHLAR_OK && moved == 5);
    state_a.recorded = 2;
    put(blocks[4]); /* of the two gaps of 4 MiB the higher one has memory */
    check_heap();
    CHECK(gap_for(&state_a, 3 * MIB) == blocks[2] && gap_for(&state_a, 5 * MIB) == blocks[0]);
    CHECK_ZU(ashlar__heap_missing(&heap, blocks[2], 3 * MIB), 4 * MIB);
    CHECK_ZU(ashlar__heap_missing(&heap, blocks[4], 3 * MIB), 0);
    CHECK_ZU(take(&state_a, 3 * MIB)->offset, 8 * MIB);
}

CASE_WITH(what_is_missing_is_counted_in_the_handles_that_are_touched, set_up_heap("memory=64MiB")) {
    ashlar_block *front = take(&state_a, 1 * MIB); /* half of the first handle */
    const ashlar_block *gap = front->next;
    CHECK_ZU(gap->holes, 128 * MIB / H - 1);
    CHECK_ZU(ashlar__heap_missing(&heap, gap, 1 * MIB), 0);
    CHECK_ZU(ashlar__heap_missing(&heap, gap, 1 * MIB + 512), H);
    CHECK_ZU(ashlar__heap_missing(&heap, gap, 3 * MIB), H);
    CHECK_ZU(ashlar__heap_missing(&heap, gap, 3 * MIB + 512), 2 * H);
    cut(front->next, 1 * MIB);
    CHECK_ZU(take(&state_a, 3 * MIB)->offset, 2 * MIB);
    CHECK_ZU(heap.range.mapped_bytes, 6 * MIB);
    check_heap();
}

/* Memory behind [2, 4) and [6, 10) MiB of a gap of 12; a block above it. */
static ashlar_block *gap_with_runs(void) {
    static const size_t sizes[] = {2, 2, 2, 4, 2, 2};
    size_t moved = 0;
    for (size_t i = 0; i < 6; i++) {
        blocks[i] = take(&state_a, sizes[i] * MIB);
    }
    for (size_t i = 0; i < 5; i += 2) {
        put_past(blocks[i]);
    }
    CHECK(ashlar__heap_unmap_free(&heap, NULL, 3, &moved) == ASHLAR_OK && moved == 3);
    put_past(blocks[1]);
    put_past(blocks[3]);
    check_heap();
    return blocks[0];
}

CASE_WITH(a_block_is_taken_where_a_gap_has_memory, set_up_heap("memory=64MiB")) {
    ashlar_block *gap = gap_with_runs(), *block = NULL;
    size_t offset = 77;
    CHECK(!ashlar__heap_find_run(&heap, gap, 4 * MIB + 512, &offset));
    CHECK(ashlar__heap_find_run(&heap, gap, 2 * MIB, &offset) && offset == 2 * MIB);
    CHECK(ashlar__heap_find_run(&heap, gap, 2 * MIB + 512, &offset) && offset == 6 * MIB);
    HOST_FAILS_AT(1,
                  CHECK(ashlar__heap_take_run(&heap, gap, offset, 3 * MIB, &block) == ASHLAR_OK));
    block->stream_state = &state_a;
    check_heap();
    CHECK(block->offset == 6 * MIB && block->bytes == 3 * MIB && block->prev == gap);
    CHECK(gap->bytes == 6 * MIB && gap->holes == 2);
    CHECK(block->next == gap_at(9 * MIB) && block->next->holes == 1);
    CHECK(ashlar__heap_find_run(&heap, gap, 512, &offset) && offset == 2 * MIB);
    CHECK(ashlar__heap_find_run(&heap, block->next, 1 * MIB, &offset) && offset == 9 * MIB);
    CHECK(ashlar__heap_take_run(&heap, block->next, 9 * MIB, 512, &block) == ASHLAR_OK);
    CHECK(block->offset == 9 * MIB && block->next->offset == 9 * MIB + 512); /* its front */
    block->stream_state = &state_a;
    check_heap();
}

CASE_WITH(a_run_without_host_memory_is_not_taken, set_up_heap("memory=64MiB")) {
    ashlar_block *gap = gap_with_runs(), *block = NULL;
    ashlar_node_pool *pool = &gap->window->zone->nodes;
    const size_t nodes = pool->count, heap_nodes = heap.nodes.count;
    for (int n = 1; n <= 2; n++) { /* nodes; a table of the page map, where 512 B away is a block */
        pool->count = n == 1 ? 1 : nodes;
        heap.nodes.count = n == 1 ? 0 : heap_nodes;
        if (n == 2) {
            CHECK(ashlar__heap_take_run(&heap, gap, 6 * MIB, 512, &block) == ASHLAR_OK);
            block->stream_state = &state_a;
            gap = block->next;
        }
        const size_t bytes = gap->bytes, holes = gap->holes;
        HOST_FAILS_AT(1, CHECK(ashlar__heap_take_run(&heap, gap, gap->offset + 512, 512, &block) ==
                               ASHLAR_EHOSTMEM));
        pool->count = n == 1 ? nodes : pool->count;
        heap.nodes.count = heap_nodes;
        CHECK(gap->bytes == bytes && gap->holes == holes);
        check_heap();
    }
}

static size_t free_nodes(void) {
    return heap.nodes.count + ashlar__zone_of(&state_a, 512)->nodes.count;
}

CASE_BOTH_WITH(nodes_are_used_again, set_up_heap("memory=256MiB")) {
    enum { MANY = 2400, CHUNKS = 3, NODES = 1024 };
    static ashlar_block *many[MANY];
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < MANY; i++) {
            many[i] = take(&state_a, 512);
        }
        CHECK_ZU(free_nodes(), CHUNKS * NODES - MANY - 1); /* so many chunks, in every round */
        for (size_t i = 0; i < MANY; i++) {
            put(many[i * 7 % MANY]); /* 7 and MANY have no common divisor */
        }
        CHECK_ZU(free_nodes(), CHUNKS * NODES - 1);
        check_heap();
    }
}

CASE_BOTH_WITH(a_take_without_host_memory_changes_nothing, set_up_heap("memory=256MiB")) {
    ashlar_block *gap = gap_for(&state_a, 4 * MIB);
    CHECK(ashlar__heap_back(&heap, gap, 4 * MIB, ASHLAR_MAY_CREATE) == ASHLAR_OK);
    ashlar_node_pool *pool = &gap->window->zone->nodes;
    const size_t nodes = pool->count, heap_nodes = heap.nodes.count, bytes = gap->bytes;
    for (int n = 1; n <= 2; n++) {        /* a leaf of the page map; a node for the rest */
        pool->count = n == 2 ? 0 : nodes; /* as if the chunk were used up */
        heap.nodes.count = n == 2 ? 0 : heap_nodes;
        HOST_FAILS_AT(1, CHECK_FAILS(ashlar__heap_take(&heap, gap, 1 * MIB), ASHLAR_EHOSTMEM,
                                     n == 1 ? "leaf" : "block descriptors"));
        CHECK(gap->bytes == bytes && gap->next == NULL && ashlar__heap_used_bytes(&heap) == 0);
        check_heap();
        CHECK(ashlar__page_map_reserve(&heap.map, gap->offset) == ASHLAR_OK);
    }
    pool->count = 1;
    HOST_FAILS_AT(1, cut(gap, 1 * MIB)); /* one node is enough */
    CHECK_ZU(pool->count, 0);
    pool->count = nodes - 1;
    heap.nodes.count = heap_nodes;
}

/* ---- what the device is done with ---- */

CASE_BOTH_WITH(memory_is_past_with_the_recording_behind_its_last_use,
               set_up_heap("memory=256MiB")) {
    set_events(&state_a, 3, 3);
    take_row(&state_a, 5, 1 * MIB);
    CHECK(ashlar__heap_is_past_at(&heap, blocks[0]->window, blocks[0]->offset, 5 * MIB));
    put(blocks[0]);
    set_events(&state_a, 5, 4);
    put(blocks[4]);
    const ashlar_block *low = gap_at(blocks[0]->offset), *high = gap_at(blocks[4]->offset);
    CHECK(ashlar__heap_is_past(&heap, low, 1 * MIB)); /* recording 4 comes behind it */
    CHECK(!ashlar__heap_is_past(&heap, high, 512) &&
          ashlar__heap_tick_at(&heap, high->window, high->offset, 512) == 5);
    CHECK(ashlar__heap_is_past_at(&heap, high->window, low->offset, 4 * MIB));
    CHECK(!ashlar__heap_is_past_at(&heap, high->window, low->offset, 4 * MIB + 512));
    state_a.completed = 3;
    CHECK(!ashlar__heap_is_past(&heap, low, 512) &&
          ashlar__heap_tick_at(&heap, low->window, low->offset, 512) == 3);
    state_a.completed = state_a.recorded = 6;
    CHECK(ashlar__heap_is_past(&heap, low, 1 * MIB) && ashlar__heap_is_past(&heap, high, 1 * MIB));
}

CASE_BOTH_WITH(a_put_past_keeps_the_stamp, set_up_heap("memory=256MiB")) {
    set_events(&state_a, 7, 7);
    take_row(&state_a, 3, 2 * MIB);
    put_past(blocks[1]);
    CHECK(ashlar__heap_is_past(&heap, blocks[1], 2 * MIB));
    put(blocks[2]);
    put_past(blocks[0]);
    CHECK(!ashlar__heap_is_past(&heap, blocks[0], 6 * MIB)); /* all three, merged */
    CHECK(ashlar__heap_is_past(&heap, blocks[0], 4 * MIB));
    CHECK(ashlar__heap_tick_at(&heap, blocks[0]->window, blocks[0]->offset, 6 * MIB) == 7);
    check_heap();
}

/* Otherwise nobody would ask for the recording that makes it past. */
CASE_BOTH_WITH(the_owners_last_tick_is_that_of_its_newest_put, set_up_heap("memory=256MiB")) {
    take_row(&state_a, 1, 1 * MIB);
    set_events(&state_a, 9, 9);
    put(blocks[0]);
    CHECK(state_a.last_tick == 9 && !ashlar__heap_is_past(&heap, gap_at(blocks[0]->offset), 512));
    take_row(&state_a, 1, 1 * MIB);
    state_a.is_gone = true;
    state_a.recorded = state_a.completed = 10; /* the last event covers whatever is freed later */
    put(blocks[0]);
    CHECK(state_a.last_tick == 9 && ashlar__heap_is_past(&heap, gap_at(blocks[0]->offset), 512));
}

/* ---- zones that change hands ---- */

CASE_BOTH_WITH(a_zone_moves_with_its_gaps_and_blocks, set_up_heap("memory=256MiB")) {
    for (int is_past = 0; is_past < 2; is_past++) {
        ashlar_stream_state *from = is_past ? &state_b : &state_a;
        ashlar_stream_state *to = is_past ? &state_a : &state_b;
        ashlar_zone *zone = &to->zones[ASHLAR_ZONE_LARGE];
        take_row(from, 3, 2 * MIB);
        put(blocks[1]);
        const size_t windows = heap.window_count, bytes = heap.range.mapped_bytes;
        set_events(to, 4, 4);
        ashlar__zone_move(&heap, &from->zones[ASHLAR_ZONE_LARGE], zone, is_past);
        check_heap();
        CHECK(from->zones[ASHLAR_ZONE_LARGE].windows == NULL);
        CHECK(ashlar__free_bins_is_empty(&from->zones[ASHLAR_ZONE_LARGE].gaps));
        CHECK(blocks[0]->window->zone == zone && heap.window_count == windows);
        CHECK(ashlar__free_bins_has(&zone->gaps, gap_at(blocks[1]->offset)));
        CHECK(ashlar__heap_is_past(&heap, blocks[1], 2 * MIB) == is_past);
        CHECK(is_past ||
              ashlar__heap_tick_at(&heap, blocks[1]->window, blocks[1]->offset, 2 * MIB) == 4);
        CHECK_ZU(zone_mapped_bytes(zone), bytes);
        put(blocks[0]);
        put(blocks[2]);
        check_heap();
    }
}

CASE_WITH(a_zone_that_is_moved_stands_before_the_others_windows, set_up_heap("memory=64MiB")) {
    ashlar_zone *a = &state_a.zones[ASHLAR_ZONE_LARGE], *b = &state_b.zones[ASHLAR_ZONE_LARGE];
    CHECK(ashlar__heap_add_window(&heap, a, 1) == ASHLAR_OK);
    CHECK(ashlar__heap_add_window(&heap, b, 1) == ASHLAR_OK);
    CHECK(ashlar__heap_add_window(&heap, a, 1) == ASHLAR_OK);
    ashlar_window *newest = a->windows, *oldest = newest->next, *own = b->windows;
    ashlar__zone_move(&heap, a, b, true);
    check_heap();
    CHECK(b->windows == newest && newest->next == oldest && oldest->next == own);
    CHECK(own->next == NULL && heap.zones == b && b->next == NULL);
    CHECK(heap.windows == oldest && oldest->above == own && own->above == newest);
}

/* ---- walking and finding ---- */

static const struct {
    size_t offset, bytes;
    bool is_free, is_mapped;
} pieces[] = {
    {0, 2 * MIB, false, true},           {2 * MIB, 2 * MIB, true, true},
    {4 * MIB, 2 * MIB, true, false},     {6 * MIB, 1 * MIB, false, true},
    {7 * MIB, 1 * MIB, true, true},      {8 * MIB, 120 * MIB, true, false},
    {128 * MIB, 512, false, true},       {128 * MIB + 512, 2 * MIB - 512, true, true},
    {130 * MIB, 126 * MIB, true, false},
};

CASE_WITH(pieces_are_blocks_and_the_parts_of_gaps_with_and_without_memory,
          set_up_heap("memory=64MiB")) {
    ashlar_heap_piece piece = {0};
    size_t moved = 0, count = 0;
    take(&state_a, 2 * MIB);
    ashlar_block *freed = take(&state_a, 4 * MIB);
    take(&state_a, 1 * MIB);
    take(&state_b, 512);
    put_past(freed);
    CHECK(ashlar__heap_unmap_free(&heap, NULL, 1, &moved) == ASHLAR_OK && moved == 1);
    check_heap();
    for (; ashlar__heap_next_piece(&heap, &piece); count++) {
        REQUIRE(count < sizeof pieces / sizeof *pieces);
        const size_t offset = pieces[count].offset, last = offset + pieces[count].bytes - 1;
        CHECK_ZU(piece.offset, offset);
        CHECK_ZU(piece.bytes, pieces[count].bytes);
        CHECK(piece.is_mapped == pieces[count].is_mapped);
        CHECK((piece.block->state == ASHLAR_BLOCK_FREE) == pieces[count].is_free);
        CHECK(ashlar__heap_find(&heap, offset) == piece.block);
        CHECK(ashlar__heap_find(&heap, last) == piece.block);
        CHECK(ashlar__heap_is_mapped(&heap, offset) == piece.is_mapped);
        CHECK(ashlar__heap_is_mapped(&heap, last) == piece.is_mapped);
    }
    CHECK_ZU(count, sizeof pieces / sizeof *pieces);
    CHECK(ashlar__heap_find(&heap, 256 * MIB) == NULL);
    CHECK(!ashlar__heap_is_mapped(&heap, 256 * MIB));
}

RUN_CASES()
