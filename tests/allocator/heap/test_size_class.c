/*
 * test_size_class.c - every class and every request against the arithmetic of size_class.h.
 */
#include "tests/check.h"

#include "allocator/heap/block.h"

static size_t class_bytes(unsigned idx) {
    return ashlar__sc_bytes((ashlar_sc){.idx = (uint16_t)idx});
}

CASE(every_request_gets_the_smallest_class_that_fits) {
    size_t wrong = 0, idx = 0;
    for (size_t bytes = 1; bytes <= ASHLAR_SC_MAX_BYTES; bytes++) {
        idx += class_bytes((unsigned)idx) < bytes;
        size_t block = 0;
        wrong += ashlar__sc_of_bytes(bytes).idx != idx;
        wrong += !ashlar__block_bytes(bytes, &block) || block != class_bytes((unsigned)idx);
        /* At most 1/32 larger above the linear classes, less than one step within them. */
        wrong += bytes > ASHLAR_SC_LINEAR_BYTES && (block - bytes) * 32 >= bytes;
        wrong += bytes <= ASHLAR_SC_LINEAR_BYTES && block - bytes >= ASHLAR_BLOCK_ALIGN;
    }
    CHECK_ZU(wrong, 0);
}

CASE(large_blocks_are_exact_to_the_alignment) {
    static const struct {
        size_t bytes, block;
    } known[] = {{524289, 524800},
                 {1048577, 1049088},
                 {1049088, 1049088},
                 {1049089, 1049600},
                 {SIZE_MAX - 511, SIZE_MAX - 511},
                 {SIZE_MAX - 512, SIZE_MAX - 511}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t block = 0;
        CHECK(ashlar__block_bytes(known[i].bytes, &block));
        CHECK_ZU(block, known[i].block);
    }
}

CASE(a_size_that_cannot_be_rounded_up_is_refused) {
    size_t block = 77;
    CHECK(!ashlar__block_bytes(SIZE_MAX, &block));
    CHECK(!ashlar__block_bytes(SIZE_MAX - 510, &block));
    CHECK_ZU(block, 77);
}

RUN_CASES()
