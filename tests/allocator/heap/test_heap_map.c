/*
 * test_heap_map.c - memory mapped behind gaps: new handles, handles moved from where they are free,
 * reserves, and the devices that may use it all.
 */
#include "tests/allocator/heap/heap_fixture.h"

#include "allocator/soft/soft_state.h"

static ashlar_status back(ashlar_block *gap, size_t bytes, unsigned may) {
    const ashlar_status status = ashlar__heap_back(&heap, gap, bytes, may);
    CHECK(status != ASHLAR_OK || ashlar__heap_missing(&heap, gap, bytes) == 0);
    check_heap();
    return status;
}

/* Blocks of these sizes in MiB, one behind the other in the stream's window for large ones. */
static void take_row(ashlar_stream_state *state, ashlar_block **blocks, const size_t *sizes,
                     size_t count) {
    for (size_t i = 0; i < count; i++) {
        blocks[i] = take(state, sizes[i] * MIB);
        CHECK(i == 0 || blocks[i]->prev == blocks[i - 1]);
    }
}

/* Whether handle `idx` of a block's window has memory. */
static bool has_memory(const ashlar_block *block, size_t idx) {
    return block->window->backing[idx].is_mapped;
}

/* ---- new handles ---- */

CASE_WITH(only_what_is_missing_is_created_and_each_run_is_opened_once,
          set_up_heap("memory=64MiB")) {
    static const size_t sizes[] = {4, 2, 4, 2};
    ashlar_block *blocks[4];
    size_t moved = 0;
    take_row(&state_a, blocks, sizes, 4);
    put_past(blocks[0]);
    put_past(blocks[2]);
    CHECK(ashlar__heap_unmap_free(&heap, NULL, 4, &moved) == ASHLAR_OK);
    CHECK(ashlar__heap_trim(&heap, 4 * MIB) == ASHLAR_OK);
    put_past(blocks[1]); /* 4 MiB missing, 2 there, 4 missing */
    const size_t creates = CALLS(mem_create), maps = CALLS(mem_map), opens = CALLS(mem_set_access);
    CHECK(back(blocks[0], 7 * MIB, ASHLAR_MAY_CREATE) == ASHLAR_OK);
    CHECK(CALLS(mem_create) == creates + 3 && CALLS(mem_map) == maps + 3);
    CHECK_ZU(CALLS(mem_set_access), opens + 2);
    CHECK_ZU(blocks[0]->holes, 1);
    const uint64_t calls = client.calls;
    CHECK(back(blocks[0], 8 * MIB, 0) == ASHLAR_OK); /* all there */
    CHECK(client.calls == calls);
}

CASE_WITH(spare_handles_are_mapped_whatever_is_allowed, set_up_heap("memory=64MiB")) {
    CHECK(ashlar__heap_reserve(&heap, state_a.zones, 6 * MIB) == ASHLAR_OK);
    ashlar_block *gap = gap_for(&state_a, 6 * MIB);
    const uint64_t calls = client.calls;
    CHECK_FAILS(back(gap, 8 * MIB, 0), ASHLAR_ENOMEM, "no memory may be taken from the device");
    CHECK(client.calls == calls && heap.range.spare_count == 3);
    CHECK(back(gap, 6 * MIB, 0) == ASHLAR_OK);
    CHECK_ZU(heap.range.spare_count, 0);
}

CASE_WITH(no_handle_is_created_in_vain, set_up_heap("memory=64MiB")) {
    ashlar_block *gap = gap_for(&state_a, 10 * MIB);
    heap.range.limit_bytes = 9 * MIB;
    const uint64_t calls = client.calls;
    CHECK_FAILS(back(gap, 10 * MIB, ASHLAR_MAY_CREATE), ASHLAR_ENOMEM,
                "10485760 bytes more than the 0 mapped would exceed the limit of 9437184");
    CHECK(client.calls == calls);
    CHECK(back(gap, 8 * MIB, ASHLAR_MAY_CREATE) == ASHLAR_OK);
}

CASE_WITH(a_failure_gives_created_handles_back_or_keeps_them_spare, set_up_heap("memory=64MiB")) {
    static const struct {
        ashlar_driver_fn fn;
        size_t calls, kept;
    } steps[] = {{ASHLAR_DRIVER_FN_mem_create, 5, 0},
                 {ASHLAR_DRIVER_FN_mem_map, 5, 5},
                 {ASHLAR_DRIVER_FN_mem_set_access, 1, 5}};
    static const cu_result results[] = {CU_UNKNOWN, CU_OUT_OF_MEMORY};
    ashlar_block *gap = gap_for(&state_a, 10 * MIB);
    HOST_FAILS_AT(1, CHECK(back(gap, 10 * MIB, ASHLAR_MAY_CREATE) == ASHLAR_EHOSTMEM));
    CHECK_ZU(heap.range.mapped_bytes, 0);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        for (size_t n = 1; n <= 2 * steps[i].calls; n++) {
            ashlar__driver_fail_at(driver, (int)steps[i].fn, (n + 1) / 2, results[n % 2]);
            CHECK(back(gap, 10 * MIB, ASHLAR_MAY_CREATE) ==
                  (n % 2 == 0 ? ASHLAR_EDRIVER : ASHLAR_ENOMEM));
            CHECK_ZU(heap.range.mapped_bytes, steps[i].kept * H);
            CHECK_ZU(heap.range.spare_count, steps[i].kept);
            CHECK_ZU(gap->holes, gap->bytes / H);
        }
    }
    const size_t creates = CALLS(mem_create);
    CHECK(back(gap, 10 * MIB, ASHLAR_MAY_CREATE) == ASHLAR_OK);
    CHECK_ZU(CALLS(mem_create), creates);
}

/* ---- handles that move ---- */

CASE_WITH(a_free_handle_moves_and_leaves_a_hole_that_can_be_filled_again,
          set_up_heap("memory=16MiB")) {
    static const size_t sizes[] = {6, 4, 6};
    ashlar_block *blocks[3];
    take_row(&state_a, blocks, sizes, 3);
    put_past(blocks[1]);
    const cu_mem_handle handle = blocks[0]->window->backing[4].handle;
    ashlar_block *gap = gap_for(&state_b, 2 * MIB);
    CHECK(back(gap, 2 * MIB, ASHLAR_MAY_CREATE) == ASHLAR_ENOMEM);
    const size_t creates = CALLS(mem_create), unmaps = CALLS(mem_unmap);
    CHECK(back(gap, 2 * MIB, ASHLAR_MAY_MOVE) == ASHLAR_OK);
    CHECK(CALLS(mem_create) == creates && CALLS(mem_unmap) == unmaps + 1);
    CHECK(gap->window->backing[0].handle == handle); /* the gap's uppermost one */
    CHECK(blocks[1]->holes == 1 && has_memory(blocks[1], 3) && !has_memory(blocks[1], 4));
    CHECK_ZU(ashlar__heap_missing(&heap, blocks[1], 2 * MIB), 0);
    CHECK_ZU(ashlar__heap_missing(&heap, blocks[1], 4 * MIB), 2 * MIB);
    put_past(cut(gap, 2 * MIB));
    CHECK(take_from(&state_a, 4 * MIB, ASHLAR_MAY_MOVE) == blocks[1]);
    check_heap();
    CHECK(blocks[0]->window->backing[4].handle == handle); /* and back */
}

CASE_WITH(only_handles_move_that_are_free_as_a_whole_and_past, set_up_heap("memory=16MiB")) {
    static const size_t sizes[] = {1, 6, 1, 3, 1, 2, 2};
    ashlar_block *blocks[7];
    set_events(&state_a, 2, 2);
    take_row(&state_a, blocks, sizes, 7);
    put(blocks[1]); /* [1, 7): handles 1 and 2; 3 is shared with the block above */
    state_a.recorded = 3;
    put(blocks[3]); /* [8, 11): handle 4 */
    put(blocks[6]); /* [14, ...): handle 7 */
    ashlar_block *gap = gap_for(&state_b, 8 * MIB);
    CHECK_FAILS(back(gap, 2 * MIB, ASHLAR_MAY_MOVE), ASHLAR_ENOMEM, "no memory may be taken");
    CHECK_ZU(heap.range.spare_count, 0);
    state_a.completed = 3; /* what was freed after recording 3 is not past */
    CHECK(back(gap, 4 * MIB, ASHLAR_MAY_MOVE) == ASHLAR_OK);
    CHECK(!has_memory(blocks[0], 1) && !has_memory(blocks[0], 2) && has_memory(blocks[0], 4));
    set_events(&state_a, 4, 4);
    CHECK(back(gap, 8 * MIB, ASHLAR_MAY_MOVE) == ASHLAR_OK);
    CHECK(!has_memory(blocks[0], 4) && !has_memory(blocks[0], 7));
    CHECK(has_memory(blocks[0], 0) && has_memory(blocks[0], 3) && has_memory(blocks[0], 5));
}

CASE_WITH(memory_of_ended_streams_moves_first, set_up_heap("memory=12MiB")) {
    for (int which = 0; which < 4; which++) {
        ashlar_stream_state *ended = which % 2 == 0 ? &state_a : &state_b, third;
        ashlar_block *of_a = take(&state_a, 4 * MIB), *of_b = take(&state_b, 8 * MIB);
        init_state(&third, NULL);
        *(which < 2 ? &ended->is_gone : &ended->is_ended) = true;
        ended->recorded = ended->completed = 1;
        put_past(of_a);
        put_past(of_b);
        const ashlar_block *gap = gap_for(&third, 4 * MIB);
        CHECK(back(gap_for(&third, 4 * MIB), 4 * MIB, ASHLAR_MAY_MOVE) == ASHLAR_OK);
        CHECK_ZU(window_of(ended, 4 * MIB)->mapped_count, ended == &state_a ? 0 : 2);
        CHECK_ZU(window_of(ended == &state_a ? &state_b : &state_a, 4 * MIB)->mapped_count,
                 ended == &state_a ? 4 : 2);
        CHECK(gap->holes == gap->bytes / H - 2);
        tear_down_heap();
        REQUIRE(set_up_heap("memory=12MiB"));
    }
}

CASE_WITH(nothing_moves_away_from_the_front_that_is_wanted, set_up_heap("memory=8MiB")) {
    ashlar_block *low = take(&state_a, 4 * MIB), *high = take(&state_a, 4 * MIB);
    size_t moved = 0;
    put_past(high);
    CHECK(back(gap_for(&state_a, 6 * MIB), 6 * MIB, ASHLAR_MAY_MOVE) == ASHLAR_ENOMEM);
    CHECK(has_memory(low, 2) && has_memory(low, 3));
    put_past(low);
    high = cut(low, 4 * MIB)->next;
    high = cut(high, 4 * MIB); /* as before; now the lower one becomes a hole */
    put_past(low);
    CHECK(ashlar__heap_unmap_free(&heap, NULL, 2, &moved) == ASHLAR_OK && moved == 2);
    CHECK(ashlar__heap_trim(&heap, 4 * MIB) == ASHLAR_OK);
    put_past(high);
    CHECK(back(low, 6 * MIB, ASHLAR_MAY_MOVE) == ASHLAR_ENOMEM); /* handle 2 is wanted itself */
    CHECK(has_memory(low, 2) && !has_memory(low, 3) && heap.range.spare_count == 1);
    CHECK(back(low, 4 * MIB, ASHLAR_MAY_MOVE) == ASHLAR_OK); /* from behind its front */
    CHECK(has_memory(low, 0) && has_memory(low, 1) && !has_memory(low, 2) && !has_memory(low, 3));
}

CASE_WITH(what_cannot_be_created_moves_and_too_little_is_given_back, set_up_heap("memory=64MiB")) {
    ashlar_block *freed = take(&state_a, 6 * MIB), *gap = gap_for(&state_b, 16 * MIB);
    put_past(freed);
    heap.range.limit_bytes = 10 * MIB;
    CHECK_FAILS(back(gap, 12 * MIB, ASHLAR_MAY_CREATE | ASHLAR_MAY_MOVE), ASHLAR_ENOMEM,
                "exceed the limit");
    CHECK_ZU(heap.range.mapped_bytes, 6 * MIB); /* two were created */
    CHECK_ZU(gap->holes, gap->bytes / H);
    const size_t spare = heap.range.spare_count, creates = CALLS(mem_create);
    CHECK(back(gap, 10 * MIB, ASHLAR_MAY_CREATE | ASHLAR_MAY_MOVE) == ASHLAR_OK);
    CHECK_ZU(CALLS(mem_create), creates + 2);
    CHECK_ZU(heap.range.spare_count, 0);
    CHECK(spare == 3 && window_of(&state_a, 6 * MIB)->mapped_count == 0);
}

CASE(a_move_that_fails_loses_no_memory) {
    static const ashlar_driver_fn fns[] = {ASHLAR_DRIVER_FN_mem_unmap, ASHLAR_DRIVER_FN_mem_map,
                                           ASHLAR_DRIVER_FN_mem_set_access};
    for (size_t i = 0; i < sizeof fns / sizeof *fns; i++) {
        for (size_t n = 1; n <= (i < 2 ? 3 : 1); n++) {
            REQUIRE(set_up_heap("memory=8MiB"));
            ashlar_block *freed = take(&state_a, 8 * MIB), *gap = gap_for(&state_b, 6 * MIB);
            put_past(freed);
            ashlar__driver_fail_at(driver, (int)fns[i], n, CU_UNKNOWN);
            CHECK(back(gap, 6 * MIB, ASHLAR_MAY_CREATE | ASHLAR_MAY_MOVE) == ASHLAR_EDRIVER);
            CHECK_ZU(heap.range.mapped_bytes, 8 * MIB);
            CHECK_ZU(gap->holes, gap->bytes / H);
            CHECK_ZU(heap.range.spare_count, i == 0 ? n - 1 : 3);
            CHECK(back(gap, 6 * MIB, ASHLAR_MAY_MOVE) == ASHLAR_OK);
            tear_down_heap();
        }
    }
}

/* ---- a device full of blocks, every other one freed ---- */

CASE(one_large_request_gets_what_lies_stranded_between_blocks) {
    static const size_t sizes[] = {2, 8, 16, 48};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        REQUIRE(set_up_heap("memory=960MiB"));
        const size_t count = 960 / sizes[i];
        ashlar_block *blocks[480];
        for (size_t k = 0; k < count; k++) {
            blocks[k] = take(&state_a, sizes[i] * MIB);
        }
        CHECK_ZU(heap.range.mapped_bytes, 960 * MIB);
        for (size_t k = 0; k < count; k += 2) {
            put_past(blocks[k]);
        }
        const size_t free_bytes = ashlar__heap_free_bytes(&heap);
        CHECK_ZU(free_bytes, 480 * MIB);
        CHECK(take_from(&state_a, free_bytes / 100 * 95 / 512 * 512, ASHLAR_MAY_MOVE) != NULL);
        check_heap();
        CHECK_ZU(heap.range.mapped_bytes, 960 * MIB);
        tear_down_heap();
    }
}

/* ---- reserves ---- */

CASE_BOTH_WITH(a_reserve_is_memory_at_hand, set_up_heap("memory=256MiB")) {
    ashlar_zone *zone = &state_a.zones[ASHLAR_ZONE_LARGE];
    CHECK(ashlar__heap_reserve(&heap, zone, 100 * MIB + 1) == ASHLAR_OK);
    check_heap();
    CHECK_ZU(heap.range.mapped_bytes, 102 * MIB);
    CHECK(take_from(&state_a, 102 * MIB, 0) != NULL);
    CHECK(ashlar__heap_reserve(&heap, zone, 102 * MIB) == ASHLAR_OK); /* there already */
    CHECK_ZU(heap.range.mapped_bytes, 102 * MIB);
    CHECK(ashlar__heap_reserve(&heap, zone, 120 * MIB) == ASHLAR_OK);
    check_heap();
    CHECK_ZU(heap.range.mapped_bytes, 120 * MIB);
    CHECK_ZU(heap.range.spare_count, use_segments ? 0 : 9);
}

CASE_BOTH_WITH(a_reserve_that_fails_changes_nothing, set_up_heap("memory=64MiB")) {
    ashlar_zone *zone = &state_a.zones[ASHLAR_ZONE_LARGE];
    take(&state_a, use_segments ? 16 * MIB : 8 * MIB);
    const size_t bytes = heap.range.mapped_bytes, windows = heap.window_count;
    CHECK_FAILS(ashlar__heap_reserve(&heap, zone, 65 * MIB), ASHLAR_ENOMEM, "exceed the limit");
    CHECK(ashlar__heap_reserve(&heap, zone, SIZE_MAX) == ASHLAR_ENOMEM);
    HOST_FAILS_AT(1, CHECK(ashlar__heap_reserve(&heap, zone, 64 * MIB) == ASHLAR_EHOSTMEM));
    ashlar__driver_fail_at(driver,
                           use_segments ? ASHLAR_DRIVER_FN_mem_alloc : ASHLAR_DRIVER_FN_mem_create,
                           use_segments ? 1 : 5, CU_UNKNOWN);
    CHECK(ashlar__heap_reserve(&heap, zone, 64 * MIB) == ASHLAR_EDRIVER);
    check_heap();
    CHECK(heap.range.mapped_bytes == bytes && heap.window_count == windows);
}

/* ---- peers ---- */

enum { SEEN = 64 };

static struct {
    cu_ptr ptr;
    size_t bytes, count;
    int last;
    unsigned flags;
} seen[SEEN]; /* cuMemSetAccess calls; the software device behind has no peers */

static size_t seen_count;
static size_t refuse_at; /* the number of the call, from 1, that is refused; 0: none */

static cu_result note_access(cu_ptr ptr, size_t bytes, const cu_mem_access *access, size_t count) {
    if (seen_count + 1 == refuse_at || seen_count == SEEN) {
        refuse_at = 0;
        return CU_UNKNOWN;
    }
    seen[seen_count].ptr = ptr - heap.range.base;
    seen[seen_count].bytes = bytes;
    seen[seen_count].count = count;
    seen[seen_count].last = access[count - 1].location.id;
    seen[seen_count++].flags = access[0].flags;
    return access[0].location.id == 0 ? ashlar__soft_mem_set_access(ptr, bytes, access, 1)
                                      : CU_SUCCESS;
}

static bool saw(size_t idx, size_t ptr, size_t bytes, unsigned flags, size_t count) {
    return idx < seen_count && seen[idx].ptr == ptr && seen[idx].bytes == bytes &&
           seen[idx].flags == flags && seen[idx].count == count && seen[idx].last == 3;
}

/* Memory behind [0, 4) and [6, 10) MiB of one window and [0, 2) of the next. */
static bool set_up_peers(void) {
    static const size_t sizes[] = {4, 2, 4};
    ashlar_block *blocks[3];
    if (!set_up_heap("memory=64MiB")) {
        return false;
    }
    take_row(&state_a, blocks, sizes, 3);
    put_past(blocks[1]);
    take(&state_b, 512);
    CHECK(ashlar__heap_trim(&heap, 10 * MIB) == ASHLAR_OK);
    seen_count = refuse_at = 0;
    return true;
}

CASE_WITH(a_peer_may_use_what_is_mapped_now_and_later, set_up_peers()) {
    const ashlar_driver_table table = driver->table;
    driver->table.mem_set_access = note_access;
    CHECK(ashlar__heap_allow_peer(&heap, 0) == ASHLAR_OK); /* the device itself */
    CHECK_ZU(seen_count, 0);
    CHECK(ashlar__heap_allow_peer(&heap, 3) == ASHLAR_OK);
    CHECK_ZU(seen_count, 3); /* one for each run of handles */
    CHECK(saw(0, 0, 4 * MIB, CU_ACCESS_READWRITE, 1));
    CHECK(saw(1, 6 * MIB, 4 * MIB, CU_ACCESS_READWRITE, 1));
    CHECK(saw(2, 128 * MIB, 2 * MIB, CU_ACCESS_READWRITE, 1));
    CHECK(ashlar__heap_allow_peer(&heap, 3) == ASHLAR_OK);
    CHECK_ZU(seen_count, 3);
    take(&state_a, 2 * MIB);
    CHECK(seen_count == 4 && saw(3, 4 * MIB, 2 * MIB, CU_ACCESS_READWRITE, 2));
    driver->table = table;
}

CASE(a_peer_that_is_refused_may_use_nothing) {
    for (size_t n = 1; n <= 3; n++) {
        REQUIRE(set_up_peers());
        const ashlar_driver_table table = driver->table;
        driver->table.mem_set_access = note_access;
        refuse_at = n;
        CHECK_FAILS(ashlar__heap_allow_peer(&heap, 3), ASHLAR_EDRIVER, "cuMemSetAccess on");
        CHECK_ZU(heap.range.peer_count, 0);
        CHECK_ZU(seen_count, n - 1 + 3); /* all is closed again */
        CHECK(saw(n - 1, 0, 4 * MIB, CU_ACCESS_NONE, 1));
        CHECK(saw(n + 1, 128 * MIB, 2 * MIB, CU_ACCESS_NONE, 1));
        driver->table = table;
        tear_down_heap();
    }
}

CASE_BOTH_WITH(more_peers_than_there_can_be_are_refused, set_up_heap("memory=16MiB")) {
    CHECK(ashlar__heap_allow_peer(&heap, 0) == ASHLAR_OK);
    if (use_segments) {
        CHECK_FAILS(ashlar__heap_allow_peer(&heap, 1), ASHLAR_ENOTSUP,
                    "peer 1: device 0 has no virtual memory management");
        return;
    }
    for (int i = 1; i <= ASHLAR_PEERS_MAX; i++) {
        CHECK(ashlar__heap_allow_peer(&heap, i) == ASHLAR_OK); /* nothing is mapped yet */
    }
    CHECK_FAILS(ashlar__heap_allow_peer(&heap, ASHLAR_PEERS_MAX + 1), ASHLAR_ENOTSUP,
                "peer 32: at most 32 devices");
    CHECK(ashlar__heap_allow_peer(&heap, ASHLAR_PEERS_MAX) == ASHLAR_OK);
}

RUN_CASES()
