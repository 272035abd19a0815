/*
 * test_allocator_errors.c - what a caller's mistake, a full device and a broken index are told.
 */
#include "tests/allocator/core/allocator_fixture.h"

#include "allocator/core/allocator_impl.h"
#include "allocator/soft/soft_state.h"

/* A free that is refused with `part` in the detail, and changes nothing. */
static void check_refused(void *ptr, const char *part) {
    const ashlar_stats before = stats_now();
    CHECK_FAILS(ashlar_free(allocator, ptr), ASHLAR_EPOINTER, part);
    CHECK_FAILS(ashlar_free_on(allocator, ptr, streams[1]), ASHLAR_EPOINTER, part);
    const ashlar_stats after = stats_now();
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
}

CASE_WITH(a_foreign_pointer_is_refused, set_up("memory=16MiB")) {
    static char elsewhere[16];
    char text[64];
    check_refused(elsewhere, "not a block of this allocator"); /* nothing is mapped yet */
    unsigned char *ptr = take(1000, streams[0]);
    unsigned char *base = ashlar__ptr_out(allocator->heap.range.base);
    (void)snprintf(text, sizeof text, "%p: not a block of this allocator", (void *)elsewhere);
    check_refused(elsewhere, text);
    check_refused((void *)512, "not a block of this allocator");
    check_refused(base - 1, "not a block of this allocator");
    check_refused(base - 512, "not a block of this allocator");
    check_refused(base + 2 * MIB, "not a block of this allocator"); /* reserved, not mapped */
    check_refused(base + 64 * MIB, "not a block of this allocator");
    check_refused(base + 2 * MIB - 1, "freed before, or never handed out");
    give(ptr);
}

CASE_WITH(a_pointer_inside_a_block_is_refused_with_its_distance, set_up("memory=16MiB")) {
    unsigned char *low = take(512, streams[0]), *ptr = take(4 * MIB, streams[0]);
    check_refused(ptr + 1, ": 1 bytes inside a block; use the block's own address");
    check_refused(ptr + 512, ": 512 bytes inside a block");
    check_refused(ptr + 2 * MIB, ": 2097152 bytes inside a block");
    check_refused(ptr + 4 * MIB - 1, ": 4194303 bytes inside a block");
    check_refused(low + 511, ": 511 bytes inside a block");
    give(ptr);
    give(low);
}

CASE_WITH(a_pointer_freed_twice_is_refused, set_up("memory=16MiB")) {
    unsigned char *low = take(512, streams[0]), *ptr = take(512, streams[0]);
    unsigned char *high = take(512, streams[0]);
    char text[64];
    give(ptr);
    (void)snprintf(text, sizeof text, "%p: freed before, or never handed out", (void *)ptr);
    check_refused(ptr, text);
    give(low);
    check_refused(ptr, text); /* inside a larger free block now */
    check_refused(low, "freed before, or never handed out");
    give(high);
}

CASE_WITH(an_argument_outside_its_range_is_named, set_up("memory=16MiB")) {
    void *out = &out;
    CHECK_FAILS(ashlar_alloc(allocator, 0, streams[0], &out), ASHLAR_EINVAL,
                "bytes: a block of 0 bytes");
    CHECK_FAILS(ashlar_alloc_tagged(allocator, 1, ASHLAR_TAG_COUNT, streams[0], &out),
                ASHLAR_EINVAL, "tag: 8 is no ashlar_tag");
    CHECK_FAILS(ashlar_alloc_tagged(allocator, 1, (ashlar_tag)-1, streams[0], &out), ASHLAR_EINVAL,
                "tag: -1 is no ashlar_tag");
    CHECK(out == &out);
    CHECK(stats_now().alloc_count == 0);
}

CASE_WITH(a_full_device_is_reported_with_its_numbers, set_up("memory=16MiB")) {
    void *out = &out;
    unsigned char *a = take(3 * MIB, streams[0]), *b = take(9 * MIB, streams[1]);
    unsigned char *c = take(500000, streams[0]);
    give(a);
    /* Of 8 handles 5 hold b, of which 1 MiB is free; 2 are free; 1 holds c and 3 half MiB. */
    CHECK(ashlar_alloc_tagged(allocator, 6 * MIB, ASHLAR_TAG_BATCH, streams[0], &out) ==
          ASHLAR_ENOMEM);
    CHECK(out == &out);
    CHECK_HAS(ashlar_error_detail(), "out of memory on soft:0: 6291456 bytes asked for (batch), "
                                     "9937184 live in 2 blocks (user 9937184), ");
    CHECK_HAS(ashlar_error_detail(),
              "16777216 reserved of the device's 16777216, largest hole 4194304; make the batch");
    CHECK(stats_now().alloc_count == 3);
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    unsigned char *d = take(3 * MIB, streams[0]); /* what is there is still served */
    CHECK(d == a);
    give(d);
    give(b);
    give(c);
}

/* Those with the most bytes; of equal ones the first. */
CASE_WITH(three_tags_are_named_for_what_is_live, set_up("memory=16MiB")) {
    static const ashlar_tag tags[] = {ASHLAR_TAG_WORKSPACE, ASHLAR_TAG_BATCH, ASHLAR_TAG_WEIGHTS,
                                      ASHLAR_TAG_GRADIENTS};
    void *blocks[4], *out = NULL;
    for (size_t i = 0; i < 4; i++) {
        CHECK(ashlar_alloc_tagged(allocator,
                                  i == 0   ? 2048
                                  : i == 1 ? 512
                                           : 1024,
                                  tags[i], streams[0], &blocks[i]) == ASHLAR_OK);
    }
    CHECK_FAILS(ashlar_alloc(allocator, 17 * MIB, streams[0], &out), ASHLAR_ENOMEM,
                " live in 4 blocks (workspace 2048, weights 1024, gradients 1024), ");
    for (size_t i = 0; i < 4; i++) {
        give(blocks[i]);
    }
}

CASE_WITH(the_advice_fits_what_the_block_is_for, set_up("memory=16MiB")) {
    void *out = NULL;
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        const bool is_model =
            tag == ASHLAR_TAG_WEIGHTS || tag == ASHLAR_TAG_GRADIENTS || tag == ASHLAR_TAG_MOMENTS;
        CHECK_FAILS(ashlar_alloc_tagged(allocator, 17 * MIB, (ashlar_tag)tag, streams[0], &out),
                    ASHLAR_ENOMEM,
                    is_model ? "; make the model smaller, or free blocks"
                             : "; make the batch or the sequences smaller");
    }
}

CASE_WITH(a_request_beyond_the_device_is_refused_without_a_call, set_up("memory=16MiB")) {
    static const size_t sizes[] = {16777217, SIZE_MAX, SIZE_MAX - 511};
    void *out = &out;
    const uint64_t calls = stats_now().driver_calls;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CHECK_FAILS(ashlar_alloc(allocator, sizes[i], streams[0], &out), ASHLAR_ENOMEM,
                    "(user), 0 live in 0 blocks, 0 of rounding, 0 cached, ");
        CHECK_HAS(ashlar_error_detail(), "0 spare: 0 reserved of the device's");
        CHECK_HAS(ashlar_error_detail(), "largest hole 0");
    }
    CHECK(out == &out);
    CHECK(stats_now().driver_calls == calls);
    give(take(16 * MIB, streams[0])); /* the whole device can be had */
}

CASE_WITH(spare_memory_counts_as_one_hole, set_up("memory=16MiB")) {
    void *out = NULL;
    CHECK(ashlar_allocator_reserve(allocator, 10 * MIB) == ASHLAR_OK);
    give(take(1000, streams[0]));
    CHECK_FAILS(ashlar_alloc(allocator, 17 * MIB, streams[0], &out), ASHLAR_ENOMEM,
                "10485760 reserved of the device's 16777216, largest hole 8388608;");
}

CASE_WITH(the_largest_hole_may_be_any_streams, set_up("memory=16MiB,mode=adversarial")) {
    void *out;
    unsigned char *blocks[4];
    for (int i = 0; i < 4; i++) {
        blocks[i] = take(4 * MIB, streams[i]);
    }
    /* Where the driver runs out before the host may wait, the holes are still the streams'. */
    for (int i = 0; i < 4; i++) {
        give(blocks[i]);
        ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_event_record, 1, CU_OUT_OF_MEMORY);
        CHECK_FAILS(ashlar_alloc(allocator, 6 * MIB, streams[0], &out), ASHLAR_ENOMEM,
                    "largest hole 4194304;");
        ashlar__driver_fail_at(driver, -1, 0, CU_SUCCESS);
        CHECK(take(4 * MIB, streams[i]) == blocks[i]);
    }
    for (int i = 0; i < 4; i++) {
        give(blocks[i]);
    }
}

CASE_WITH(creation_without_host_memory_leaves_nothing, set_up_device("memory=16MiB")) {
    allocator = NULL;
    ashlar__host_fail_at(1);
    CHECK_FAILS(ashlar_allocator_create(device, &allocator), ASHLAR_EHOSTMEM,
                "no host memory for an allocator");
    int refused = 0;
    for (unsigned long n = 1; n < 16; n++) { /* the software device's own memory is among them */
        ashlar__host_fail_at(n);
        const ashlar_status status = ashlar_allocator_create(device, &allocator);
        ashlar__host_fail_at(0);
        if (status == ASHLAR_OK) { /* the failure was not met, or the address space tried again */
            ashlar_allocator_destroy(allocator);
            allocator = NULL;
        } else {
            CHECK(status == ASHLAR_EHOSTMEM || status == ASHLAR_ENOMEM);
            refused++;
        }
        CHECK(allocator == NULL);
        CHECK_ZU(ashlar__soft_state.reservations.count, 0);
    }
    CHECK(refused >= 2 && refused < 8);
}

/* ---- the walker ---- */

static void check_broken(const char *part) {
    CHECK_FAILS(ashlar_allocator_check(allocator), ASHLAR_EFORMAT, part);
}

/* Break one counter by `by`, see it found, and mend it. */
static void check_counter(uint64_t *counter, uint64_t by, const char *part) {
    *counter += by;
    check_broken(part);
    *counter -= by;
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
}

CASE_WITH(the_walker_compares_the_counters_with_the_blocks, set_up("memory=16MiB")) {
    unsigned char *ptr = take(1000, streams[0]), *other = take(2000, streams[0]);
    ashlar_stats *stats = &allocator->stats;
    check_counter(&stats->tags[ASHLAR_TAG_BATCH].live_bytes, 1, "batch is counted as 1, found 0");
    check_counter(&stats->tags[ASHLAR_TAG_USER].live_bytes, (uint64_t)-1,
                  "user is counted as 2999, found 3000");
    check_counter(&stats->live_bytes, (uint64_t)-1, "live bytes is counted as 2999, found 3000");
    stats->alloc_count++; /* counters that agree with each other, but not with the blocks */
    stats->served_idle++;
    check_broken("live blocks is counted as 3, found 2");
    stats->alloc_count--;
    stats->served_idle--;
    allocator->heap.zones->used_bytes++;
    check_broken("heap check: ");
    allocator->heap.zones->used_bytes--;
    /* A page-map entry where no block starts, and bins with a stray block. */
    REQUIRE(ashlar__page_map_reserve_page(&allocator->heap.map, 512) == ASHLAR_OK);
    ashlar__page_map_set(&allocator->heap.map, 512, allocator->heap.windows->first);
    check_broken("blocks in the page map is counted as 3, found 2");
    ashlar__page_map_set(&allocator->heap.map, 512, NULL);
    ashlar_block stray = {.offset = 4 * MIB, .bytes = 512};
    ashlar__free_bins_insert(&allocator->heap.zones->gaps, &stray);
    check_broken("free blocks in bins is counted as 2, found 1");
    ashlar__free_bins_remove(&allocator->heap.zones->gaps, &stray);
    check_counter(&allocator->stream_states->completed, 1, "ahead of its recordings");
    check_counter(&allocator->stream_states->last_tick, 1, "ahead of its recordings");
    allocator->stream_states->away_count++;
    check_broken("a stream's blocks that are away is counted as 1, found 0");
    allocator->stream_states->away_count--;
    give(ptr);
    give(other);
}

CASE_WITH(the_walker_compares_the_counters_with_each_other, set_up("memory=16MiB")) {
    ashlar_stats *stats = &allocator->stats;
    unsigned char *ptr = take(1000, streams[0]), *other = take(2000, streams[0]);
    check_counter(&stats->live_peak_bytes, 1,
                  "the bytes at the peak is counted as 3000, found 3001");
    check_counter(&stats->live_peak_bytes, (uint64_t)-1, "a peak is below its value");
    check_counter(&stats->reserved_peak_bytes, (uint64_t)-1, "a peak is below its value");
    check_counter(&stats->tags[ASHLAR_TAG_USER].peak_bytes, (uint64_t)-1, "the peak of a tag");
    check_counter(&stats->free_count, 1, "live blocks is counted as 1, found 2");
    check_counter(&stats->alloc_count, 1, "live blocks is counted as 3, found 2");
    check_counter(&stats->served_same_stream, 1, "the number of allocations");
    check_counter(&stats->served_idle, 1, "the number of allocations");
    check_counter(&stats->served_completed, 1, "the number of allocations");
    check_counter(&stats->served_waited, 1, "the number of allocations");
    check_counter(&stats->served_mapped, 1, "the number of allocations");
    check_counter(&stats->served_after_sync, 1, "the number of allocations");
    check_counter(&stats->served_cached, 1, "the number of allocations");
    check_counter(&stats->served_drained, 1, "the number of allocations");
    check_counter(&stats->served_reclaimed, 1, "the number of allocations");
    check_counter(&stats->served_gathered, 1, "the number of allocations");
    give(ptr);
    check_counter(&stats->tags[ASHLAR_TAG_USER].at_peak_bytes, 1, "the peak of a tag");
    check_counter(&stats->tags[ASHLAR_TAG_USER].at_peak_bytes, (uint64_t)-1,
                  "the bytes at the peak");
    give(other);
}

CASE_WITH(a_blocks_size_can_be_asked_for, set_up("memory=16MiB")) {
    unsigned char *ptr = take(4097, streams[0]);
    size_t bytes = 7;
    CHECK(ashlar_allocator_usable_bytes(allocator, ptr, &bytes) == ASHLAR_OK);
    CHECK_ZU(bytes, 4608); /* the next multiple of 512 */
    bytes = 7;
    CHECK(ashlar_allocator_usable_bytes(allocator, ptr + 512, &bytes) == ASHLAR_EPOINTER);
    give(ptr);
    CHECK(ashlar_allocator_usable_bytes(allocator, ptr, &bytes) == ASHLAR_EPOINTER);
    CHECK_ZU(bytes, 7);
}

RUN_CASES()
