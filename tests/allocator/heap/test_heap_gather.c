/*
 * test_heap_gather.c - one block out of idle memory from anywhere.
 */
#include "tests/allocator/heap/heap_fixture.h"

#include "allocator/soft/soft_state.h"

static ashlar_block *blocks[16];

/* `count` chunks of 2 MiB on a device of 16 MiB; those whose bit is set in `idle` are idle. */
static bool set_up_chunks(size_t count, unsigned idle) {
    if (!set_up_heap("memory=16MiB")) {
        return false;
    }
    fill(blocks, count, 4);
    for (size_t i = 0; i < count; i++) {
        if ((idle >> i & 1) != 0) {
            put_idle(blocks[i]);
        }
    }
    return true;
}

static ashlar_block *gather(size_t bytes) {
    ashlar_block *out = NULL;
    CHECK(ashlar__heap_gather(&heap, &order_a, bytes, &out) == ASHLAR_OK);
    CHECK(out != NULL && out->state == ASHLAR_BLOCK_FREE && out->bytes >= bytes);
    check_heap();
    CHECK_ZU(free_memory_of(device), 16 * MIB - heap.range.mapped_bytes);
    return out;
}

/* A gathering that fails with `want` and leaves the mapped memory as it was. */
static void check_no_gather(size_t bytes, ashlar_status want) {
    ashlar_block *out = NULL;
    const size_t mapped = heap.range.mapped_bytes, first_holes = holes();
    CHECK(ashlar__heap_gather(&heap, &order_a, bytes, &out) == want);
    CHECK(out == NULL);
    check_heap();
    CHECK_ZU(heap.range.mapped_bytes, mapped);
    CHECK_ZU(holes(), first_holes);
    CHECK_ZU(free_memory_of(device), 16 * MIB - mapped);
}

static unsigned char *bytes_of(const ashlar_block *block) {
    return ashlar__ptr_out(heap.range.base + block->offset);
}

CASE_BOTH(idle_chunks_from_anywhere_make_one_block) {
    REQUIRE(set_up_chunks(8, 0x2a)); /* 1, 3 and 5 */
    ashlar_block *out = NULL;
    const size_t creates = CALLS(mem_create);
    for (size_t i = 0; i < 8; i += i == 6 ? 1 : 2) {
        memset(bytes_of(blocks[i]), (int)i + 1, blocks[i]->bytes);
    }
    CHECK(ashlar__heap_grow(&heap, &order_a, 12 * UNIT, &out) == ASHLAR_ENOMEM);
    out = cut(gather(12 * UNIT), 12 * UNIT, &order_a);
    memset(bytes_of(out), 99, out->bytes);
    CHECK_ZU(heap.range.mapped_bytes, 16 * MIB);
    for (size_t i = 0; i < 8; i += i == 6 ? 1 : 2) {
        const unsigned char *bytes = bytes_of(blocks[i]);
        CHECK(bytes[0] == i + 1 && bytes[2 * MIB - 1] == i + 1);
    }
    if (!use_segments) {
        CHECK_ZU(out->offset, 32 * UNIT);
        CHECK_ZU(holes(), 3);
        CHECK_ZU(CALLS(mem_create), creates);
    }
}

CASE(only_as_many_chunks_move_as_are_needed) {
    REQUIRE(set_up_chunks(8, 0xaa)); /* 1, 3, 5, and 7, which counts where it is */
    const ashlar_block *out = gather(8 * UNIT);
    CHECK_ZU(out->offset, 28 * UNIT);
    CHECK_ZU(out->bytes, 8 * UNIT);
    CHECK_ZU(holes(), 1);
    CHECK(is_free_run(4, 4, NULL, 0) && is_free_run(12, 4, NULL, 0));
    CHECK(blocks[4]->next->state == ASHLAR_BLOCK_UNMAPPED);
}

CASE_WITH(the_streams_own_block_at_the_end_counts, set_up_chunks(8, 0x2a)) {
    put(blocks[7], &order_a, 5); /* in use by the stream itself */
    const ashlar_block *out = gather(12 * UNIT);
    CHECK_ZU(out->offset, 28 * UNIT);
    CHECK(out->stream_state == &order_a && out->tick == 5);
    CHECK_ZU(holes(), 2);
}

CASE_BOTH(what_the_chunks_lack_is_mapped_new) {
    REQUIRE(set_up_chunks(6, 0x0a)); /* 4 MiB are idle, 4 not mapped */
    ashlar_block *out = gather(16 * UNIT);
    CHECK_ZU(out->bytes, 16 * UNIT);
    CHECK_ZU(heap.range.mapped_bytes, 16 * MIB);
    cut(out, 16 * UNIT, &order_a);
    memset(bytes_of(out), 1, out->bytes);
}

CASE_WITH(too_little_idle_memory_is_an_error, set_up_chunks(8, 0x2a)) {
    check_no_gather(13 * UNIT, ASHLAR_ENOMEM);
    CHECK_HAS(ashlar_error_detail(), "would exceed the limit");
    tear_down_heap();
    REQUIRE(set_up_chunks(8, 0));
    check_no_gather(1, ASHLAR_ENOMEM);
    CHECK_HAS(ashlar_error_detail(), "no idle memory");
    tear_down_heap();
    REQUIRE(set_up_chunks(6, 0x0a)); /* the device refuses what the limit allows */
    heap.range.limit_bytes = SIZE_MAX;
    check_no_gather(20 * UNIT, ASHLAR_ENOMEM);
    CHECK_HAS(ashlar_error_detail(), "cuMemCreate");
}

CASE_WITH(memory_in_use_is_not_moved, set_up_chunks(8, 0x22)) {
    put(blocks[3], &order_b, 7);
    check_no_gather(12 * UNIT, ASHLAR_ENOMEM);
    CHECK(is_free_run(12, 4, &order_b, 7));
    order_b.completed = 8; /* known now */
    CHECK_ZU(gather(12 * UNIT)->bytes, 12 * UNIT);
}

CASE_BOTH(blocks_that_have_become_past_side_by_side_need_no_driver) {
    REQUIRE(set_up_heap("memory=16MiB"));
    fill_four(blocks);
    put(blocks[1], &order_a, 5);
    put(blocks[2], &order_b, 5);
    order_a.completed = order_b.completed = 6;
    const uint64_t calls = client.calls;
    CHECK(gather(2 * UNIT) == block_at(1));
    CHECK(client.calls == calls);
    tear_down_heap();
    REQUIRE(set_up_heap("memory=16MiB"));
    fill_four(blocks);
    put(blocks[1], &order_a, 5); /* still in use, by the one who asks */
    CHECK(gather(UNIT) == block_at(1));
}

CASE_WITH(gathering_goes_into_a_hole_where_addresses_are_used_up, set_up_heap("memory=128MiB")) {
    const size_t bytes = heap.range.bytes;
    fill(blocks, 1, 120); /* 60 MiB */
    fill(blocks + 1, 1, 4);
    put_idle(blocks[0]);
    trim(0);
    CHECK_ZU(holes(), 1);
    heap.range.bytes = 124 * UNIT;
    heap.range.limit_bytes = 10 * MIB;
    ashlar_block *out = NULL;
    fill(blocks + 2, 3, 4); /* in the hole, from its start */
    put_idle(blocks[2]);
    put_idle(blocks[4]);
    CHECK_ZU(heap.range.mapped_bytes, 8 * MIB);
    heap.range.limit_bytes = 8 * MIB;
    CHECK(ashlar__heap_gather(&heap, &order_a, 8 * UNIT, &out) == ASHLAR_OK);
    check_heap();
    CHECK_ZU(out->bytes, 8 * UNIT);
    CHECK_ZU(heap.range.mapped_bytes, 8 * MIB);
    heap.range.bytes = bytes;
}

/* Live, a hole of 60 MiB, live, live, live: five blocks of 2 MiB, but for the hole. */
static bool set_up_wide_hole(void) {
    if (!set_up_heap("memory=128MiB")) {
        return false;
    }
    for (size_t i = 0; i < 5; i++) {
        fill(blocks + i, 1, i == 1 ? 120 : 4);
    }
    put_idle(blocks[1]);
    trim(0);
    return holes() == 1;
}

CASE_WITH(memory_is_gathered_below_an_idle_block_too, set_up_wide_hole()) {
    put_idle(blocks[2]);
    put_idle(blocks[4]); /* moves; the other 2 MiB are mapped new */
    heap.range.limit_bytes = heap.range.mapped_bytes + 2 * MIB;
    ashlar_block *out = NULL;
    CHECK(ashlar__heap_gather(&heap, &order_a, 12 * UNIT, &out) == ASHLAR_OK);
    check_heap();
    CHECK_ZU(out->bytes, 12 * UNIT);
    CHECK(out->offset + out->bytes == 128 * UNIT); /* where the first ended */
}

CASE_WITH(chunks_that_are_too_large_for_a_hole_go_elsewhere, set_up_heap("memory=64MiB")) {
    static const size_t units[] = {4, 12, 4, 8, 4, 8, 4};
    for (size_t i = 0; i < 7; i++) {
        fill(blocks + i, 1, units[i]);
    }
    put_idle(blocks[1]);
    trim(0);
    heap.range.limit_bytes = heap.range.mapped_bytes;
    put_idle(blocks[0]); /* with the hole's 12 units, as many as are wanted */
    put_idle(blocks[3]);
    put_idle(blocks[5]);
    ashlar_block *out = NULL;
    CHECK(ashlar__heap_gather(&heap, &order_a, 16 * UNIT, &out) == ASHLAR_OK);
    check_heap();
    CHECK_ZU(out->bytes, 16 * UNIT);
    CHECK_ZU(out->offset, 44 * UNIT);
}

/* ---- failures ---- */

CASE_WITH(new_memory_beside_a_block_in_use_is_given_back, set_up_wide_hole()) {
    put(blocks[0], &order_a, 5);
    put_idle(blocks[3]);
    heap.range.limit_bytes = heap.range.mapped_bytes + 2 * MIB;
    const size_t mapped = heap.range.mapped_bytes;
    ashlar_block *out = NULL;
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_mem_unmap, 1, CU_UNKNOWN);
    CHECK(ashlar__heap_gather(&heap, &order_a, 12 * UNIT, &out) == ASHLAR_EDRIVER);
    check_heap();
    CHECK_ZU(heap.range.mapped_bytes, mapped);
    CHECK(is_free_run(0, 4, &order_a, 5));
    CHECK(ashlar__heap_gather(&heap, &order_a, 12 * UNIT, &out) == ASHLAR_OK);
    check_heap();
    CHECK(is_free_run(0, 12, &order_a, 5));
}

/*
 * Idle are chunks 1 and 3, and the last, 5, which in every second round its stream still uses. 10
 * MiB take all of them, and the 4 MiB that are not mapped yet.
 */
static void check_call(uint64_t n, bool is_own, cu_result code) {
    enum { CALLS_MADE = 8 }; /* create, map, open; twice unmap, twice map, open */
    REQUIRE(set_up_chunks(6, is_own ? 0x0a : 0x2a));
    if (is_own) {
        put(blocks[5], &order_a, 5);
    }
    ashlar_block *out = NULL;
    ashlar__driver_fail_at(driver, -1, n, code);
    const ashlar_status status = ashlar__heap_gather(&heap, &order_a, 20 * UNIT, &out);
    ashlar__driver_fail_at(driver, -1, 0, CU_SUCCESS);
    check_heap();
    CHECK((status == ASHLAR_OK) == (out != NULL));
    CHECK(status == ASHLAR_OK ||
          status == (code == CU_OUT_OF_MEMORY ? ASHLAR_ENOMEM : ASHLAR_EDRIVER));
    CHECK_ZU(free_memory_of(device), 16 * MIB - heap.range.mapped_bytes);
    if (!use_segments) {
        CHECK((status == ASHLAR_OK) == (n > CALLS_MADE));
        CHECK_ZU(heap.range.mapped_bytes, (status == ASHLAR_OK ? 16 : 12) * MIB);
        CHECK(is_free_run(20, status == ASHLAR_OK ? 20 : 4, is_own ? &order_a : NULL,
                          is_own ? 5 : 0));
    }
    cut(gather(20 * UNIT), 20 * UNIT, &order_a);
    tear_down_heap();
}

CASE_BOTH(whichever_driver_call_fails_nothing_is_lost) {
    for (uint64_t n = 1; n <= 12; n++) {
        check_call(n, false, CU_UNKNOWN);
        check_call(n, false, CU_OUT_OF_MEMORY);
        if (!use_segments) {
            check_call(n, true, CU_UNKNOWN);
        }
    }
}

/* The software device's own allocations are among them; to it, they are ASHLAR_ENOMEM. */
CASE(whichever_host_allocation_fails_nothing_is_lost) {
    int refused = 0;
    for (size_t spares = 0; spares < 6; spares++) { /* nodes left, as if the others were used up */
        for (unsigned long n = 1; n <= 10; n++) {
            REQUIRE(set_up_chunks(6, 0x2a));
            heap.range.chunk_capacity = spares % 2 == 0 ? 16 : heap.range.chunk_count;
            heap.spare_count = spares;
            ashlar_block *out = NULL;
            ashlar__host_fail_at(n);
            const ashlar_status status = ashlar__heap_gather(&heap, &order_a, 20 * UNIT, &out);
            ashlar__host_fail_at(0);
            check_heap();
            CHECK((status == ASHLAR_OK) == (out != NULL));
            CHECK(status == ASHLAR_OK || status == ASHLAR_EHOSTMEM || status == ASHLAR_ENOMEM);
            CHECK_ZU(heap.range.mapped_bytes, (status == ASHLAR_OK ? 16 : 12) * MIB);
            refused += status == ASHLAR_EHOSTMEM;
            gather(20 * UNIT);
            tear_down_heap();
        }
    }
    CHECK(refused == 9); /* nodes for the new chunk: 2, the list: 3, nodes for the moved ones: 4 */
}

static int refusals, allowed; /* `refusals` calls are refused, after `allowed` more */

static cu_result refuse_map(cu_ptr ptr, size_t bytes, size_t offset, cu_mem_handle handle,
                            unsigned long long flags) {
    if (allowed > 0) {
        allowed--;
    } else if (refusals > 0) {
        refusals--;
        return CU_UNKNOWN;
    }
    return ashlar__soft_mem_map(ptr, bytes, offset, handle, flags);
}

CASE_WITH(memory_that_cannot_be_put_back_becomes_a_hole, set_up_chunks(8, 0x2a)) {
    const ashlar_driver_table table = driver->table;
    driver->table.mem_map = refuse_map;
    allowed = 1;
    refusals = 2; /* the second mapping, and the first one back */
    ashlar_block *out = NULL;
    CHECK(ashlar__heap_gather(&heap, &order_a, 12 * UNIT, &out) == ASHLAR_EDRIVER);
    driver->table = table;
    CHECK(out == NULL);
    check_heap();
    CHECK_ZU(heap.range.mapped_bytes, 14 * MIB);
    CHECK_ZU(free_memory_of(device), 2 * MIB);
    CHECK_ZU(holes(), 1);
    gather(12 * UNIT);
}

RUN_CASES()
