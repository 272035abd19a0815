/*
 * test_allocator_errors.c - what a caller's mistake and a full device are told.
 */
#include "tests/allocator/core/allocator_fixture.h"

#include "allocator/core/core.h"

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

/* ---- sizes ---- */

CASE_WITH(a_blocks_size_can_be_asked_for, set_up("memory=16MiB")) {
    unsigned char *ptr = take(4097, streams[0]);
    size_t bytes = 7;
    CHECK(ashlar_usable_bytes(allocator, ptr, &bytes) == ASHLAR_OK);
    CHECK_ZU(bytes, 4608); /* the next multiple of 512 */
    bytes = 7;
    CHECK(ashlar_usable_bytes(allocator, ptr + 512, &bytes) == ASHLAR_EPOINTER);
    give(ptr);
    CHECK(ashlar_usable_bytes(allocator, ptr, &bytes) == ASHLAR_EPOINTER);
    CHECK_ZU(bytes, 7);
}

RUN_CASES()
