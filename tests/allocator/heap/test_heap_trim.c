/*
 * test_heap_trim.c - reserving memory, giving it back, and growing into the holes that leaves.
 */
#include "tests/allocator/heap/heap_fixture.h"

#include "allocator/soft/soft_state.h"

static ashlar_block *blocks[16];

/* ---- trim ---- */

CASE_BOTH_WITH(everything_idle_can_be_given_back, set_up_heap("memory=64MiB")) {
    fill(blocks, 4, 8);
    for (int i = 0; i < 4; i++) {
        put_idle(blocks[i]);
    }
    trim(0);
    CHECK_ZU(heap.range.mapped_bytes, 0);
    CHECK(heap.first == NULL && heap.last == NULL);
    CHECK_ZU(free_memory_of(device), 64 * MIB);
    fill(blocks, 4, 8); /* and be had again */
    CHECK_ZU(heap.range.mapped_bytes, 16 * MIB);
}

CASE_BOTH_WITH(memory_is_given_back_from_the_top_down_to_the_target, set_up_heap("memory=64MiB")) {
    fill(blocks, 6, 4);
    put_idle(blocks[1]);
    put_idle(blocks[2]);
    put_idle(blocks[4]);
    trim(12 * MIB); /* as many as there are */
    CHECK_ZU(heap.range.mapped_bytes, 12 * MIB);
    trim(9 * MIB); /* 8 MiB are the most that is no more than 9 */
    CHECK_ZU(heap.range.mapped_bytes, 8 * MIB);
    if (!use_segments) { /* where segments lie is the driver's choice */
        CHECK(is_free_run(4, 4, NULL, 0));
        CHECK(blocks[3]->prev->state == ASHLAR_BLOCK_UNMAPPED);
        CHECK(blocks[3]->next->state == ASHLAR_BLOCK_UNMAPPED);
        CHECK_ZU(holes(), 2);
    }
    trim(0);
    CHECK_ZU(heap.range.mapped_bytes, 6 * MIB);
    trim(0); /* nothing else is idle */
    CHECK_ZU(heap.range.mapped_bytes, 6 * MIB);
}

CASE_WITH(holes_side_by_side_become_one, set_up_heap("memory=64MiB")) {
    fill(blocks, 5, 4);
    put_idle(blocks[1]);
    trim(0);
    put_idle(blocks[3]);
    trim(0);
    CHECK_ZU(holes(), 2);
    put_idle(blocks[2]);
    trim(0);
    CHECK_ZU(holes(), 1);
    CHECK(blocks[0]->next->next == blocks[4]);
    CHECK_ZU(blocks[0]->next->bytes, 12 * UNIT);
    put_idle(blocks[4]); /* the end comes down to the first */
    trim(0);
    CHECK(heap.last == blocks[0]);
}

CASE_BOTH_WITH(a_chunk_in_part_in_use_stays, set_up_heap("memory=64MiB")) {
    fill_four(blocks);
    fill(blocks + 4, 1, 4);
    put_idle(blocks[4]);
    put_idle(blocks[1]);
    put_idle(blocks[3]); /* with what lay behind it, idle from unit 3 on */
    trim(0);
    CHECK_ZU(heap.range.mapped_bytes, 4 * UNIT);
    CHECK(is_free_run(1, 1, NULL, 0) && is_free_run(3, 1, NULL, 0));
    CHECK(heap.last == block_at(3));
}

CASE_BOTH_WITH(memory_still_in_use_by_a_stream_stays, set_up_heap("memory=64MiB")) {
    fill(blocks, 2, 4);
    put(blocks[0], &order_a, 5);
    trim(0);
    CHECK_ZU(heap.range.mapped_bytes, 8 * UNIT);
    CHECK(blocks[0]->state == ASHLAR_BLOCK_FREE && blocks[0]->stream_state == &order_a);
    order_a.completed = 6; /* known now: no put, no sweep has looked at it */
    trim(0);
    CHECK_ZU(heap.range.mapped_bytes, 4 * UNIT);
}

CASE_BOTH(a_failing_trim_keeps_what_it_could_not_give_back) {
    static const ashlar_driver_fn fns[] = {ASHLAR_DRIVER_FN_mem_unmap, ASHLAR_DRIVER_FN_mem_release,
                                           ASHLAR_DRIVER_FN_mem_free,
                                           ASHLAR_DRIVER_FN_ctx_push_current};
    for (size_t i = use_segments ? 2 : 0; i < (use_segments ? 4u : 2u); i++) {
        for (size_t n = 1; n <= 3; n++) {
            REQUIRE(set_up_heap("memory=64MiB"));
            fill(blocks, 3, 4);
            for (int k = 0; k < 3; k++) {
                put_idle(blocks[k]);
            }
            ashlar__driver_fail_at(driver, (int)fns[i], n, CU_UNKNOWN);
            CHECK(ashlar__heap_trim(&heap, 0) == ASHLAR_EDRIVER);
            check_heap();
            CHECK_ZU(heap.range.mapped_bytes, (4 - n) * 4 * UNIT);
            trim(0);
            CHECK_ZU(heap.range.mapped_bytes, 0);
            tear_down_heap();
        }
    }
}

CASE_BOTH_WITH(a_trim_without_host_memory_changes_nothing, set_up_heap("memory=64MiB")) {
    fill(blocks, 3, 4);
    put_idle(blocks[1]);
    const size_t spares = heap.spare_count;
    heap.spare_count = 1;
    ashlar__host_fail_at(1);
    CHECK(ashlar__heap_trim(&heap, 0) == ASHLAR_EHOSTMEM);
    heap.spare_count = spares;
    check_heap();
    CHECK_ZU(heap.range.mapped_bytes, 12 * UNIT);
}

/* ---- segments side by side ---- */

static cu_ptr adjacent; /* three segments of 2 MiB in one allocation, handed out upwards */
static size_t handed_out, returned;

static cu_result alloc_adjacent(cu_ptr *ptr, size_t bytes) {
    CHECK(bytes == 2 * MIB && handed_out < 3);
    if (handed_out == 0 && ashlar__soft_mem_alloc(&adjacent, 6 * MIB) != CU_SUCCESS) {
        return CU_OUT_OF_MEMORY;
    }
    *ptr = adjacent + 2 * MIB * handed_out++;
    return CU_SUCCESS;
}

static cu_result free_adjacent(cu_ptr ptr) {
    CHECK(ptr == adjacent || ptr == adjacent + 2 * MIB || ptr == adjacent + 4 * MIB);
    return ++returned == 3 ? ashlar__soft_mem_free(adjacent) : CU_SUCCESS;
}

CASE(segments_side_by_side_stay_apart) {
    use_segments = true;
    REQUIRE(set_up_heap("memory=64MiB"));
    const ashlar_driver_table table = driver->table;
    driver->table.mem_alloc = alloc_adjacent;
    driver->table.mem_free = free_adjacent;
    handed_out = returned = 0;
    fill(blocks, 3, 4);
    put_idle(blocks[1]);
    put_idle(blocks[0]); /* below a free block */
    put_idle(blocks[2]); /* above one */
    CHECK(is_free_run(0, 4, NULL, 0) && is_free_run(4, 4, NULL, 0) && is_free_run(8, 4, NULL, 0));
    cut(blocks[0], 4 * UNIT, &order_a);
    cut(blocks[2], 4 * UNIT, &order_a);
    trim(0);
    CHECK_ZU(returned, 1);
    CHECK(blocks[0]->next->state == ASHLAR_BLOCK_UNMAPPED && blocks[0]->next->next == blocks[2]);
    put_idle(blocks[0]);
    put_idle(blocks[2]);
    trim(0);
    CHECK_ZU(returned, 3);
    tear_down_heap();
    driver->table = table;
    use_segments = false;
}

/* ---- reserve ---- */

CASE_BOTH_WITH(a_reserve_is_one_idle_block, set_up_heap("memory=256MiB")) {
    CHECK(ashlar__heap_reserve(&heap, 100 * MIB + 1) == ASHLAR_OK);
    check_heap();
    CHECK_ZU(heap.range.mapped_bytes, 102 * MIB);
    CHECK(is_free_run(0, 204, NULL, 0));
    cut(heap.last, 2 * MIB, &order_a);
    CHECK(ashlar__heap_reserve(&heap, 102 * MIB) == ASHLAR_OK); /* there already */
    CHECK_ZU(heap.range.mapped_bytes, 102 * MIB);
    CHECK(ashlar__heap_reserve(&heap, 120 * MIB) == ASHLAR_OK);
    check_heap();
    CHECK_ZU(heap.range.mapped_bytes, 120 * MIB);
    if (!use_segments) {
        CHECK(is_free_run(4, 236, NULL, 0));
    }
}

CASE_BOTH_WITH(a_reserve_that_fails_changes_nothing, set_up_heap("memory=64MiB")) {
    fill(blocks, 2, 4);
    CHECK_FAILS(ashlar__heap_reserve(&heap, 65 * MIB), ASHLAR_ENOMEM,
                "would exceed the limit of 67108864");
    CHECK(ashlar__heap_reserve(&heap, SIZE_MAX) == ASHLAR_ENOMEM);
    check_heap();
    ashlar__driver_fail_at(driver,
                           use_segments ? ASHLAR_DRIVER_FN_mem_alloc : ASHLAR_DRIVER_FN_mem_create,
                           1, CU_UNKNOWN);
    CHECK(ashlar__heap_reserve(&heap, 64 * MIB) == ASHLAR_EDRIVER);
    check_heap();
    CHECK_ZU(heap.range.mapped_bytes, 8 * UNIT);
}

/* ---- growing into holes ---- */

CASE_BOTH_WITH(a_heap_grows_up_to_the_limit_of_its_range, set_up_heap("memory=64MiB")) {
    CHECK_ZU(heap.range.limit_bytes, 64 * MIB);
    heap.range.limit_bytes = 5 * MIB;
    ashlar_block *out = NULL;
    fill(blocks, 2, 4);
    const uint64_t calls = client.calls;
    CHECK_FAILS(ashlar__heap_grow(&heap, &order_a, 512, &out), ASHLAR_ENOMEM,
                "would exceed the limit of 5242880");
    CHECK(out == NULL && client.calls == calls);
    heap.range.limit_bytes = 6 * MIB;
    grow(512, &order_a);
}

/* Chunks of 2, 6, 2, 8 and 2 MiB, the second and the fourth of them holes. */
static bool set_up_holes(void) {
    static const size_t units[] = {4, 12, 4, 16, 4};
    if (!set_up_heap("memory=64MiB")) {
        return false;
    }
    for (size_t i = 0; i < 5; i++) {
        fill(blocks + i, 1, units[i]);
    }
    put_idle(blocks[1]);
    put_idle(blocks[3]);
    trim(0);
    return holes() == 2;
}

CASE_WITH(of_places_that_take_the_same_the_lowest_hole_is_filled, set_up_holes()) {
    const ashlar_block *grown = grow(4 * UNIT, &order_a);
    CHECK_ZU(grown->offset, 4 * UNIT);
    CHECK_ZU(grown->bytes, 4 * UNIT);
    cut(block_at(4), 4 * UNIT, &order_a);
    CHECK_ZU(grow(16 * UNIT, &order_a)->offset, 20 * UNIT); /* fits the other hole only */
    CHECK_ZU(holes(), 1);
    cut(block_at(20), 16 * UNIT, &order_a);
    CHECK_ZU(grow(12 * UNIT, &order_a)->offset, 40 * UNIT); /* the end: no hole is left for it */
}

CASE_WITH(growth_goes_where_it_takes_the_least_memory, set_up_holes()) {
    put_idle(blocks[2]); /* idle between the holes: 2 MiB count already */
    const ashlar_block *grown = grow(12 * UNIT, &order_a);
    CHECK_ZU(heap.range.mapped_bytes, 20 * UNIT);
    CHECK_ZU(grown->offset, 8 * UNIT); /* in the lower hole, from its end */
    CHECK_ZU(grown->bytes, 12 * UNIT);
    CHECK_ZU(blocks[0]->next->bytes, 4 * UNIT);
    CHECK(blocks[0]->next->state == ASHLAR_BLOCK_UNMAPPED);
    tear_down_heap();

    REQUIRE(set_up_holes());
    put_idle(blocks[4]); /* at the end, and above the upper hole */
    grown = grow(8 * UNIT, &order_a);
    CHECK_ZU(heap.range.mapped_bytes, 16 * UNIT);
    CHECK_ZU(grown->offset, 32 * UNIT);
    CHECK_ZU(holes(), 2);
}

CASE_WITH(a_whole_hole_is_filled_where_both_neighbours_count, set_up_holes()) {
    put_idle(blocks[0]);
    put_idle(blocks[2]);
    cut(grow(20 * UNIT, &order_a), 20 * UNIT, &order_a); /* 2 + 6 + 2 MiB */
    CHECK_ZU(heap.range.mapped_bytes, 24 * UNIT);
    CHECK_ZU(heap.first->bytes, 20 * UNIT);
    CHECK_ZU(holes(), 1);
}

CASE_WITH(growth_does_not_count_what_another_stream_uses, set_up_holes()) {
    put(blocks[2], &order_b, 7);
    const ashlar_block *grown = grow(12 * UNIT, &order_a);
    CHECK_ZU(grown->offset, 4 * UNIT);
    CHECK_ZU(grown->bytes, 12 * UNIT);
    CHECK(grown->stream_state == NULL && is_free_run(16, 4, &order_b, 7));
    grown = grow(16 * UNIT, &order_b); /* to whom it does count */
    CHECK_ZU(heap.range.mapped_bytes, 36 * UNIT);
    CHECK(grown->stream_state == &order_b);
    CHECK_ZU(grown->offset, 4 * UNIT);
}

CASE_WITH(steps_stay_inside_a_hole, set_up_heap("memory=1GiB")) {
    fill(blocks, 3, 4);
    put_idle(blocks[1]);
    trim(0);
    CHECK(ashlar__heap_reserve(&heap, 512 * MIB) == ASHLAR_OK); /* steps of 8 MiB from here on */
    cut(heap.last, heap.last->bytes, &order_a);
    const ashlar_block *grown = grow(UNIT, &order_a);
    CHECK_ZU(grown->offset, 4 * UNIT);
    CHECK_ZU(grown->bytes, 4 * UNIT);
    cut(block_at(4), 4 * UNIT, &order_a);
    CHECK_ZU(grow(UNIT, &order_a)->bytes, 8 * MIB);
}

CASE_BOTH(a_step_that_the_limit_or_the_device_refuses_gives_way) {
    for (int which = 0; which < 3; which++) {
        REQUIRE(set_up_heap("memory=1GiB"));
        CHECK(ashlar__heap_reserve(&heap, 512 * MIB) == ASHLAR_OK);
        cut(heap.last, heap.last->bytes, &order_a);
        const uint64_t calls = client.calls;
        ashlar_block *out = NULL;
        if (which == 0) {
            heap.range.limit_bytes = 518 * MIB;
        } else {
            ashlar__driver_fail_at(
                driver, use_segments ? ASHLAR_DRIVER_FN_mem_alloc : ASHLAR_DRIVER_FN_mem_create, 1,
                which == 1 ? CU_OUT_OF_MEMORY : CU_UNKNOWN);
        }
        const ashlar_status status = ashlar__heap_grow(&heap, &order_a, UNIT, &out);
        check_heap();
        CHECK(status == (which == 2 ? ASHLAR_EDRIVER : ASHLAR_OK));
        CHECK_ZU(heap.range.mapped_bytes, (which == 2 ? 512 : 514) * MIB);
        CHECK(client.calls == calls +
                                  (use_segments ? 1u
                                   : which == 2 ? 1u
                                                : 3u) +
                                  (which == 1 ? 1u : 0u));
        tear_down_heap();
    }
}

CASE_WITH(used_up_addresses_are_found_again_in_holes, set_up_holes()) {
    const size_t bytes = heap.range.bytes; /* const for everybody else */
    ashlar_block *out = NULL;
    heap.range.bytes = 42 * UNIT; /* 2 units are left at the end */
    put_idle(blocks[4]);
    CHECK_ZU(grow(16 * UNIT, &order_a)->offset, 24 * UNIT); /* 36 from the end of the hole */
    cut(block_at(24), 16 * UNIT, &order_a);
    CHECK_FAILS(ashlar__heap_grow(&heap, &order_a, 13 * UNIT, &out), ASHLAR_ENOMEM,
                "exceed the reserved address range");
    CHECK(ashlar__heap_reserve(&heap, heap.range.mapped_bytes + 12 * UNIT) == ASHLAR_OK);
    check_heap();
    CHECK(is_free_run(4, 12, NULL, 0));
    CHECK(ashlar__heap_reserve(&heap, heap.range.mapped_bytes + 8 * UNIT) == ASHLAR_ENOMEM);
    CHECK(ashlar__heap_grow(&heap, &order_a, SIZE_MAX, &out) == ASHLAR_ENOMEM);
    CHECK(out == NULL);
    heap.range.bytes = bytes;
}

static int peer_accesses; /* cuMemSetAccess calls that name a second device */

static cu_result note_peer(cu_ptr ptr, size_t bytes, const cu_mem_access *access, size_t count) {
    peer_accesses += count == 2 && access[1].location.id == 1;
    return ashlar__soft_mem_set_access(ptr, bytes, access, 1);
}

CASE_WITH(a_peer_is_let_in, set_up_heap("memory=64MiB")) {
    const ashlar_driver_table table = driver->table;
    driver->table.mem_set_access = note_peer;
    peer_accesses = 0;
    fill(blocks, 1, 4);
    CHECK(ashlar__heap_allow_peer(&heap, 1) == ASHLAR_OK);
    CHECK(peer_accesses == 1);
    fill(blocks + 1, 1, 4);
    CHECK(peer_accesses == 2);
    driver->table = table;
}

RUN_CASES()
