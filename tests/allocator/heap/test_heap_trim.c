/*
 * test_heap_trim.c - memory given back to the device, as far as it is done with it.
 */
#include "tests/allocator/heap/heap_fixture.h"

static ashlar_block *blocks[6];

/* Blocks of `mib` MiB each; in segments, each is one of its own if mib >= 16. */
static void take_row(size_t count, size_t mib) {
    for (size_t i = 0; i < count; i++) {
        blocks[i] = take(&state_a, mib * MIB);
    }
}

static void trim(size_t target) {
    CHECK(ashlar__heap_trim(&heap, target) == ASHLAR_OK);
    check_heap();
}

CASE_BOTH_WITH(everything_that_is_past_can_be_given_back, set_up_heap("memory=64MiB")) {
    for (int round = 0; round < 2; round++) { /* and be had again */
        take_row(4, 16);
        trim(0);
        CHECK_ZU(heap.range.mapped_bytes, 64 * MIB);
        for (int i = 0; i < 4; i++) {
            put_past(blocks[i]);
        }
        trim(64 * MIB);
        CHECK_ZU(heap.range.mapped_bytes, 64 * MIB);
        trim(0);
        CHECK_ZU(heap.range.mapped_bytes, 0);
        CHECK_ZU(heap.window_count, use_segments ? 0 : 1); /* addresses are kept */
        CHECK((heap.zones == NULL) == use_segments);
    }
}

CASE_WITH(handles_go_down_to_the_target_spare_ones_first, set_up_heap("memory=64MiB")) {
    take_row(5, 4);
    put_past(blocks[1]);
    put_past(blocks[3]);
    CHECK(ashlar__heap_reserve(&heap, state_a.zones, 24 * MIB) == ASHLAR_OK);
    const size_t unmaps = CALLS(mem_unmap);
    trim(20 * MIB);
    CHECK(heap.range.spare_count == 0 && CALLS(mem_unmap) == unmaps);
    trim(17 * MIB); /* 16 MiB are the most that is no more than 17 */
    CHECK_ZU(heap.range.mapped_bytes, 16 * MIB);
    CHECK(blocks[3]->holes == 2 && blocks[1]->holes == 0); /* the upper one of equal gaps */
    trim(14 * MIB);
    CHECK(blocks[1]->holes == 1 && ashlar__heap_missing(&heap, blocks[1], 2 * MIB) == 0);
    trim(0);
    CHECK_ZU(heap.range.mapped_bytes, 12 * MIB); /* the rest is in use */
}

CASE_WITH(segments_go_down_to_the_target, (use_segments = true, set_up_heap("memory=64MiB"))) {
    use_segments = false;
    take_row(3, 16);
    put_past(blocks[0]);
    put_past(blocks[2]);
    trim(47 * MIB);
    CHECK_ZU(heap.range.mapped_bytes, 32 * MIB);
    trim(0);
    CHECK(heap.range.mapped_bytes == 16 * MIB && heap.windows == blocks[1]->window);
    CHECK(heap.windows->next == NULL && heap.zones->windows == heap.windows);
}

CASE_BOTH_WITH(what_is_in_use_in_part_stays, set_up_heap("memory=64MiB")) {
    take_row(6, 1);
    put_past(blocks[1]);
    put_past(blocks[2]);
    put_past(blocks[4]);
    const size_t bytes = heap.range.mapped_bytes;
    trim(0);
    CHECK_ZU(heap.range.mapped_bytes, bytes); /* no handle is free as a whole */
    put_past(blocks[3]);
    trim(0);
    CHECK_ZU(heap.range.mapped_bytes, bytes - (use_segments ? 0 : H));
}

CASE_BOTH_WITH(memory_that_the_device_may_still_use_stays, set_up_heap("memory=64MiB")) {
    take_row(2, 16);
    set_events(&state_a, 5, 5);
    put(blocks[0]);
    trim(0);
    CHECK_ZU(heap.range.mapped_bytes, 32 * MIB);
    state_a.completed = state_a.recorded = 6;
    trim(0);
    CHECK_ZU(heap.range.mapped_bytes, 16 * MIB);
}

CASE_BOTH_WITH(a_failing_trim_keeps_what_it_could_not_give_back, set_up_device("memory=64MiB")) {
    static const ashlar_driver_fn fns[] = {ASHLAR_DRIVER_FN_mem_release, ASHLAR_DRIVER_FN_mem_unmap,
                                           ASHLAR_DRIVER_FN_mem_free,
                                           ASHLAR_DRIVER_FN_ctx_push_current};
    tear_down_device();
    for (size_t i = use_segments ? 2 : 0; i < (use_segments ? 4u : 2u); i++) {
        for (size_t n = 1; n <= 3; n++) {
            REQUIRE(set_up_heap("memory=64MiB"));
            const size_t mib = use_segments ? 16 : 2;
            take_row(3, mib);
            for (int k = 0; k < 3; k++) {
                put_past(blocks[k]);
            }
            ashlar__driver_fail_at(driver, (int)fns[i], n, CU_UNKNOWN);
            CHECK(ashlar__heap_trim(&heap, 0) == ASHLAR_EDRIVER);
            check_heap();
            /* What was unmapped before an unmapping failed is spare. */
            CHECK_ZU(heap.range.mapped_bytes, (i == 1 ? 3 : 4 - n) * mib * MIB);
            CHECK_ZU(heap.range.spare_count, i == 0 ? 4 - n : i == 1 ? n - 1 : 0);
            trim(0);
            CHECK_ZU(heap.range.mapped_bytes, 0);
            tear_down_heap();
        }
    }
}

CASE_WITH(a_trim_without_host_memory_changes_nothing, set_up_heap("memory=64MiB")) {
    take_row(2, 20); /* the list of spare handles has room for 16 or 32 */
    put_past(blocks[0]);
    put_past(blocks[1]);
    HOST_FAILS_AT(1, CHECK(ashlar__heap_trim(&heap, 0) == ASHLAR_EHOSTMEM));
    check_heap();
    CHECK_ZU(heap.range.mapped_bytes, 40 * MIB);
    trim(0);
}

CASE_WITH(unmapped_handles_are_kept_as_spare_ones, set_up_heap("memory=64MiB")) {
    size_t moved = 77;
    take_row(3, 4);
    put_past(blocks[0]);
    put_past(blocks[2]);
    const ashlar_heap_place kept = {blocks[0], blocks[0]->offset, 2 * MIB};
    CHECK(ashlar__heap_unmap_free(&heap, &kept, 9, &moved) == ASHLAR_OK);
    check_heap();
    CHECK(moved == 3 && heap.range.spare_count == 3); /* all but the first 2 MiB that are kept */
    CHECK(ashlar__heap_missing(&heap, blocks[0], 2 * MIB) == 0 && blocks[0]->holes == 1);
    CHECK_ZU(heap.range.mapped_bytes, 12 * MIB);
    CHECK(ashlar__heap_unmap_free(&heap, &kept, 1, &moved) == ASHLAR_OK);
    CHECK_ZU(moved, 0);
}

RUN_CASES()
