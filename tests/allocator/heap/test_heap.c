/*
 * test_heap.c - splitting, merging under every pair of stamps, growing and sweeping.
 */
#include "tests/allocator/heap/heap_fixture.h"

static ashlar_block *blocks[4];

CASE_BOTH_WITH(a_new_heap_is_empty, set_up_heap("memory=16MiB")) {
    CHECK(heap.first == NULL && heap.last == NULL && ashlar__free_bins_is_empty(&heap.idle));
    CHECK_ZU(heap.used_bytes + heap.free_bytes + heap.range.mapped_bytes, 0);
}

CASE_BOTH(a_block_is_cut_from_the_front_and_the_rest_keeps_its_stamp) {
    REQUIRE(set_up_heap("memory=16MiB"));
    fill_four(blocks);
    put(blocks[1], &order_b, 7);
    put(blocks[2], &order_b, 9);
    ashlar_block *front = cut(block_at(1), 512, &order_a); /* of the two, merged */
    CHECK_ZU(front->offset, origin() + UNIT);
    CHECK(front->prev == blocks[0] && front->next->prev == front);
    const ashlar_block *rest = front->next;
    CHECK_ZU(rest->offset, origin() + UNIT + 512);
    CHECK_ZU(rest->bytes, 2 * UNIT - 512);
    CHECK(rest->stream_state == &order_b && rest->tick == 9 && rest->state == ASHLAR_BLOCK_FREE);
    CHECK(rest->next == blocks[3] && blocks[3]->prev == rest);
    CHECK(ashlar__free_bins_has(&order_b.free, rest));
    CHECK(!ashlar__free_bins_has(&order_b.free, front));
    CHECK(ashlar__page_map_get(&heap.map, origin() + UNIT) == front);
}

CASE_BOTH_WITH(a_cached_block_counts_as_used_until_it_is_put_back, set_up_heap("memory=16MiB")) {
    fill_four(blocks);
    blocks[1]->requested = 0;
    check_heap();
    CHECK_ZU(heap.used_bytes, 4 * UNIT);
    CHECK(ashlar__page_map_get(&heap.map, origin() + UNIT) == blocks[1]);
    put(blocks[2], &order_a, 7); /* does not merge with it */
    CHECK(is_free_run(2, 1, &order_a, 7));
    put(blocks[1], &order_a, 5);
    CHECK(is_free_run(1, 2, &order_a, 7));
}

CASE_WITH(blocks_lie_on_two_cache_lines_at_most, set_up_heap("memory=16MiB")) {
    fill_four(blocks);
    for (int i = 0; i < 4; i++) {
        const uintptr_t start = (uintptr_t)blocks[i], last = start + sizeof *blocks[i] - 1;
        CHECK(last / 64 - start / 64 <= 1);
        CHECK(start % 16 == 0);
    }
    CHECK((uintptr_t)blocks[0] % 64 == 0); /* the first of its chunk */
}

CASE_BOTH_WITH(a_block_taken_whole_leaves_no_rest, set_up_heap("memory=16MiB")) {
    fill_four(blocks);
    put(blocks[1], &order_b, 7);
    cut(blocks[1], UNIT, &order_a);
    CHECK(ashlar__free_bins_is_empty(&order_b.free));
    CHECK(blocks[1]->next == blocks[2]);
    CHECK_ZU(heap.free_bytes, 0);
}

/* ---- merging ---- */

typedef struct stamp {
    ashlar_stream_state *stream_state;
    uint64_t tick;
} stamp;

static bool is_past(stamp s) {
    return s.stream_state == NULL || s.stream_state->completed > s.tick;
}

/* The header's rule, written down once more: true and *out where the two may become one. */
static bool may_merge(stamp x, stamp y, stamp *out) {
    if (is_past(x) && is_past(y)) {
        *out = (stamp){NULL, 0};
        return true;
    }
    if (is_past(x) != is_past(y)) {
        *out = is_past(x) ? y : x;
        return true;
    }
    *out = (stamp){x.stream_state, x.tick > y.tick ? x.tick : y.tick};
    return x.stream_state == y.stream_state;
}

/* Free units 1 and 2 stamped x and y, the `first` of them first. */
static void check_pair(stamp x, stamp y, int first) {
    REQUIRE(set_up_heap("memory=16MiB"));
    fill_four(blocks);
    order_a.completed = 2;
    stamp merged;
    const stamp stamps[2] = {x, y};
    put(blocks[1 + first], stamps[first].stream_state, stamps[first].tick);
    put(blocks[2 - first], stamps[1 - first].stream_state, stamps[1 - first].tick);
    if (may_merge(x, y, &merged)) {
        CHECK(is_free_run(1, 2, merged.stream_state, merged.tick));
        CHECK(block_at(2) == NULL);
    } else {
        CHECK(is_free_run(1, 1, x.stream_state, x.tick));
        CHECK(is_free_run(2, 1, y.stream_state, y.tick));
    }
    CHECK(heap.last == blocks[3]);
    tear_down_heap();
}

CASE(neighbours_merge_only_where_their_stamps_have_a_common_one) {
    /* order_a has completed recording 2: its tick 1 is past, its ticks 2 and 3 are not. */
    const stamp stamps[] = {
        {&order_a, 1}, {&order_a, 2}, {&order_a, 3}, {&order_b, 0}, {&order_b, 8}};
    for (size_t i = 0; i < 5; i++) {
        for (size_t k = 0; k < 5; k++) {
            check_pair(stamps[i], stamps[k], 0);
            check_pair(stamps[i], stamps[k], 1);
        }
    }
}

CASE_BOTH(a_use_that_has_passed_since_yields_to_the_other) {
    for (int upper = 0; upper < 2; upper++) {
        REQUIRE(set_up_heap("memory=16MiB"));
        fill_four(blocks);
        put(blocks[1 + upper], &order_a, 5);
        order_a.completed = 6; /* known now; the block still waits in order_a's bins */
        put(blocks[2 - upper], &order_b, 8);
        CHECK(is_free_run(1, 2, &order_b, 8));
        CHECK(ashlar__free_bins_is_empty(&order_a.free));
        tear_down_heap();
    }
}

CASE_BOTH_WITH(two_past_uses_make_an_idle_block, set_up_heap("memory=16MiB")) {
    fill_four(blocks);
    order_a.completed = 6;
    order_b.completed = 4;
    put(blocks[1], &order_a, 5);
    CHECK(is_free_run(1, 1, NULL, 0));
    put(blocks[2], &order_b, 3);
    CHECK(is_free_run(1, 2, NULL, 0));
    CHECK(ashlar__free_bins_has(&heap.idle, block_at(1)));
}

CASE_BOTH(a_merge_that_changes_the_stamp_goes_on_to_the_next_neighbour) {
    /* Units 0 and 3 are order_a's; between them two of order_b, past when unit 2 or 1 comes. */
    for (int upper = 0; upper < 2; upper++) {
        REQUIRE(set_up_heap("memory=16MiB"));
        fill_four(blocks);
        put(blocks[upper ? 3 : 0], &order_a, 3);
        put(blocks[upper ? 2 : 1], &order_b, 4);
        CHECK(is_free_run(upper ? 3 : 0, 1, &order_a, 3));
        order_b.completed = 5;
        put(blocks[upper ? 1 : 2], &order_a, 6);
        CHECK(is_free_run(upper ? 1 : 0, 3, &order_a, 6));
        tear_down_heap();
    }
}

CASE_BOTH_WITH(a_block_between_two_streams_joins_one_of_them, set_up_heap("memory=16MiB")) {
    fill_four(blocks);
    put(blocks[0], &order_a, 3);
    put(blocks[2], &order_b, 4);
    order_b.completed = 1;
    put(blocks[1], &order_b, 0); /* past: it may go to either */
    CHECK(is_free_run(0, 2, &order_a, 3));
    CHECK(is_free_run(2, 1, &order_b, 4));
}

CASE_BOTH(everything_freed_is_one_block_again) {
    static const int states[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {0, 2, 1, 3}, {1, 3, 0, 2}};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        REQUIRE(set_up_heap("memory=16MiB"));
        fill_four(blocks);
        for (int k = 0; k < 4; k++) {
            put(blocks[states[i][k]], &order_a, (uint64_t)k);
        }
        CHECK(is_free_run(0, 4, &order_a, 3));
        CHECK(block_at(0) == heap.last);
        tear_down_heap();
    }
}

/* Whoever walks the blocks goes on from there. */
CASE_BOTH(what_is_merged_is_the_lowest_block) {
    static const int states[][3] = {{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 2, 0}};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        REQUIRE(set_up_heap("memory=16MiB"));
        fill_four(blocks);
        for (int k = 0; k < 3; k++) {
            put(blocks[states[i][k]], &order_a, 7);
        }
        CHECK(is_free_run(0, 3, &order_a, 7) && block_at(0) == blocks[0]);
        CHECK(blocks[0]->next == blocks[3] && blocks[3]->prev == blocks[0]);
        CHECK(blocks[0] == (use_segments ? heap.first->next : heap.first));
        CHECK(heap.last == blocks[3]);
        tear_down_heap();
    }
}

/* While busy on two streams, neighbours are not merged. */
CASE_BOTH_WITH(a_sweep_goes_on_behind_what_it_has_merged, set_up_heap("memory=16MiB")) {
    fill_four(blocks);
    for (int i = 0; i < 4; i++) {
        put(blocks[i], i % 2 == 0 ? &order_a : &order_b, 3);
    }
    order_b.completed = 4;
    ashlar__heap_sweep(&heap); /* unit 1 is the first one that is past, and goes to unit 0 */
    CHECK(is_free_run(0, 4, &order_a, 3));
    order_a.completed = 4;
    ashlar__heap_sweep(&heap);
    CHECK(is_free_run(0, 4, NULL, 0));
}

/* ---- growing ---- */

CASE(growth_extends_a_last_block_that_the_stream_may_use) {
    for (int who = 0; who < 3; who++) { /* the stream's own, another's but past, idle */
        REQUIRE(set_up_heap("memory=16MiB"));
        fill_four(blocks);
        ashlar_stream_state *const owner = who == 0 ? &order_a : &order_b;
        put(blocks[3], owner, 5);
        owner->completed = who == 0 ? 0 : 6;
        if (who == 2) {
            ashlar__heap_sweep(&heap);
        }
        const ashlar_block *grown = grow(5 * UNIT, &order_a);
        CHECK_ZU(heap.range.mapped_bytes, 8 * UNIT); /* one unit was there: 4 more do */
        CHECK_ZU(grown->offset, 3 * UNIT);
        CHECK_ZU(grown->bytes, 5 * UNIT);
        CHECK(grown->stream_state == (who == 0 ? owner : NULL) &&
              grown->tick == (who == 0 ? 5 : 0));
        tear_down_heap();
    }
}

CASE_WITH(growth_leaves_a_last_block_of_another_stream_alone, set_up_heap("memory=16MiB")) {
    fill_four(blocks);
    put(blocks[3], &order_b, 5);
    const ashlar_block *grown = grow(5 * UNIT, &order_a);
    CHECK_ZU(heap.range.mapped_bytes, 12 * UNIT);
    CHECK_ZU(grown->offset, 4 * UNIT);
    CHECK(grown->stream_state == NULL && grown->tick == 0);
    CHECK(is_free_run(3, 1, &order_b, 5));
}

CASE_WITH(growth_goes_above_a_live_last_block, set_up_heap("memory=16MiB")) {
    fill_four(blocks);
    const ashlar_block *grown = grow(1, &order_a);
    CHECK_ZU(grown->offset, 4 * UNIT);
    CHECK_ZU(grown->bytes, 4 * UNIT);
    CHECK(grown->prev == blocks[3] && blocks[3]->next == grown && grown->next == NULL);
}

CASE_BOTH_WITH(growth_that_fails_changes_nothing, set_up_heap("memory=4MiB")) {
    ashlar_block *out = NULL;
    ashlar__host_fail_at(1);
    CHECK_FAILS(ashlar__heap_grow(&heap, &order_a, 1, &out), ASHLAR_EHOSTMEM, "block descriptors");
    CHECK(heap.first == NULL && out == NULL);
    fill_four(blocks);
    put(blocks[3], &order_a, 1);
    CHECK(ashlar__heap_grow(&heap, &order_a, 6 * UNIT, &out) == ASHLAR_ENOMEM);
    CHECK(out == NULL);
    CHECK(is_free_run(3, 1, &order_a, 1));
    CHECK_ZU(heap.free_bytes, UNIT);
}

/* ---- sweeping and finding ---- */

CASE_BOTH_WITH(a_sweep_makes_past_blocks_idle_and_merges_them, set_up_heap("memory=16MiB")) {
    fill_four(blocks);
    put(blocks[0], &order_a, 1);
    put(blocks[1], &order_b, 2);
    put(blocks[3], &order_b, 5);
    order_a.completed = 2;
    order_b.completed = 3;
    ashlar__heap_sweep(&heap);
    check_heap();
    CHECK(is_free_run(0, 2, NULL, 0));
    CHECK(is_free_run(3, 1, &order_b, 5)); /* still in use */
    order_b.completed = 6;
    put(blocks[2], &order_a, 1);
    CHECK(is_free_run(0, 4, NULL, 0));
    ashlar__heap_sweep(&heap);
    CHECK(is_free_run(0, 4, NULL, 0));
    CHECK(ashlar__free_bins_is_empty(&order_a.free) && ashlar__free_bins_is_empty(&order_b.free));
}

CASE_BOTH_WITH(every_offset_is_found_in_its_block, set_up_heap("memory=16MiB")) {
    fill_four(blocks);
    for (size_t i = 0; i < 4; i++) {
        CHECK(ashlar__heap_find(&heap, origin() + i * UNIT) == blocks[i]);
        CHECK(ashlar__heap_find(&heap, origin() + i * UNIT + 1) == blocks[i]);
        CHECK(ashlar__heap_find(&heap, origin() + (i + 1) * UNIT - 1) == blocks[i]);
    }
    CHECK(ashlar__heap_find(&heap, origin() + 4 * UNIT) == NULL);
}

/* ---- host memory ---- */

CASE_BOTH_WITH(a_take_without_host_memory_changes_nothing, set_up_heap("memory=16MiB")) {
    ashlar_block *block = grow(4 * UNIT, &order_a);
    for (int n = 1; n <= 2; n++) { /* the leaf of the page map; the node of the rest */
        if (n == 2) {
            heap.spare_count = 0; /* as if the chunk were used up */
        }
        ashlar__host_fail_at(1);
        CHECK_FAILS(ashlar__heap_take(&heap, block, UNIT), ASHLAR_EHOSTMEM,
                    n == 1 ? "leaf" : "block descriptors");
        CHECK(is_free_run(0, 4, NULL, 0));
        CHECK_ZU(heap.used_bytes, 0);
        check_heap();
        CHECK(ashlar__page_map_reserve(&heap.map, origin()) == ASHLAR_OK);
    }
    cut(block, UNIT, &order_a);
}

CASE_BOTH_WITH(the_last_spare_node_is_used_before_more_are_fetched, set_up_heap("memory=16MiB")) {
    ashlar_block *block = grow(4 * UNIT, &order_a);
    CHECK(ashlar__page_map_reserve(&heap.map, origin()) == ASHLAR_OK);
    const size_t spares = heap.spare_count;
    heap.spare_count = 1;
    ashlar__host_fail_at(1); /* whoever asks for host memory gets none */
    ashlar_block *rest = cut(block, UNIT, &order_a)->next;
    CHECK_ZU(heap.spare_count, 0);
    cut(rest, 3 * UNIT, &order_a); /* a block that is taken whole needs no node */
    ashlar__host_fail_at(0);
    heap.spare_count = spares - 1;
}

CASE_BOTH_WITH(nodes_are_used_again, set_up_heap("memory=16MiB")) {
    ashlar_block *rest = grow(4 * UNIT, &order_a);
    static ashlar_block *many[600];
    const size_t used = use_segments ? 2 : 1; /* the hole below the segment */
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < 600; i++) {
            many[i] = cut(rest, 512, &order_a);
            rest = many[i]->next;
        }
        CHECK_ZU(heap.spare_count, 3 * 256 - 600 - used); /* three chunks, in every round */
        for (size_t i = 0; i < 600; i++) {
            put(many[i], &order_a, 0);
        }
        rest = heap.last;
        CHECK(rest == block_at(0));
        CHECK_ZU(heap.spare_count, 3 * 256 - used);
    }
}

RUN_CASES()
