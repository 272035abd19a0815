/*
 * size_class.h - how a request is rounded to a block size (internal).
 *
 *   up to 32 KiB      multiples of 512 B: classes 0..63
 *   32 to 512 KiB     groups (base, 2 * base] in 32 equal steps of base / 32, so that a block is
 *                     less than 1/32 larger than the request: classes 64..191
 *   above 512 KiB     exact to 512 B, no class
 *
 * Coarser steps (eight a group is usual) would let more requests share a magazine, but waste 6 % of
 * the memory instead of 1.5 %. Classes up to 1 MiB would let a few blocks that nobody asks for
 * again fill a cache, and waste a further 1.5 % in programs with many sizes.
 *
 * Invariants (tests/allocator/heap/test_size_class.c walks every class):
 *   bytes_of(of_bytes(n)) >= n             a class always fits the request
 *   of_bytes(bytes_of(c)) == c             the mapping is its own inverse
 *   bytes_of(c) % ASHLAR_BLOCK_ALIGN == 0
 */
#ifndef ASHLAR_SIZE_CLASS_H
#define ASHLAR_SIZE_CLASS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/check_level.h"

#define ASHLAR_BLOCK_ALIGN ((size_t)512)          /* textures want it of cudaMalloc's addresses */
#define ASHLAR_SC_LINEAR_BYTES ((size_t)32 << 10) /* largest class of the linear part */
#define ASHLAR_SC_MAX_BYTES ((size_t)512 << 10)   /* largest class of all */

enum {
    ASHLAR_LOG2_SC_PER_GROUP = 5,
    ASHLAR_SC_PER_GROUP = 1 << ASHLAR_LOG2_SC_PER_GROUP,
    ASHLAR_SC_LINEAR_COUNT = 64,
    ASHLAR_SC_COUNT = ASHLAR_SC_LINEAR_COUNT + 4 * ASHLAR_SC_PER_GROUP,
};

/* A size-class index. A struct, so it cannot be mixed up with a byte count. */
typedef struct ashlar_sc {
    uint16_t idx;
} ashlar_sc;

/* Entry n: the class of n + 1 units of 512 B. A table, since computing the class would take a sixth
 * of the time of a hit. */
extern const uint8_t ashlar__sc_table[ASHLAR_SC_MAX_BYTES / ASHLAR_BLOCK_ALIGN];

/* The class that serves a request. Requires 0 < bytes <= ASHLAR_SC_MAX_BYTES. */
static inline ashlar_sc ashlar__sc_of_bytes(size_t bytes) {
    ASHLAR_CHECK2(bytes > 0 && bytes <= ASHLAR_SC_MAX_BYTES);
    return (ashlar_sc){.idx = ashlar__sc_table[(bytes - 1) / ASHLAR_BLOCK_ALIGN]};
}

size_t ashlar__sc_bytes(ashlar_sc sc);

/* The block size that serves a request of `bytes`, 0 < bytes <= ASHLAR_SC_MAX_BYTES: the next
 * multiple of the step of the class's group, which equals ashlar__sc_bytes() of the class. */
static inline size_t ashlar__small_block_bytes(size_t bytes) {
    const size_t last = bytes - 1;
    const unsigned long long base = last | (ASHLAR_SC_LINEAR_BYTES / 2);
    const unsigned step = 63u - (unsigned)__builtin_clzll(base) - ASHLAR_LOG2_SC_PER_GROUP;
    return ((last >> step) + 1) << step;
}

/*
 * Like ashlar__small_block_bytes(), for any `bytes` > 0; false if the result does not fit in
 * size_t.
 */
bool ashlar__block_bytes(size_t bytes, size_t *out);

#endif /* ASHLAR_SIZE_CLASS_H */
