/*
 * size_class.h - how a request is rounded to a block size (internal).
 *
 *   up to 4 KiB       multiples of 512 B: classes 0..7
 *   4 KiB to 1 MiB    groups (base, 2 * base] in 8 equal steps of base / 8, so that a block is
 *                     less than 1/8 larger than the request: classes 8..71
 *   above 1 MiB       exact to 512 B, no class
 *
 * Invariants (tests/test_size_class.c walks every class):
 *   bytes_of(of_bytes(n)) >= n             a class always fits the request
 *   of_bytes(bytes_of(c)) == c             the mapping is its own inverse
 *   bytes_of(c) % ASHLAR_BLOCK_ALIGN == 0
 */
#ifndef ASHLAR_SIZE_CLASS_H
#define ASHLAR_SIZE_CLASS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ASHLAR_BLOCK_ALIGN ((size_t)512)          /* twice cudaMalloc's 256 B */
#define ASHLAR_SC_LINEAR_BYTES ((size_t)4096)     /* largest class of the linear part */
#define ASHLAR_SC_MAX_BYTES ((size_t)1024 * 1024) /* largest class of all */

enum {
    ASHLAR_SC_PER_GROUP = 8,
    ASHLAR_SC_LINEAR_COUNT = 8,
    ASHLAR_SC_COUNT = ASHLAR_SC_LINEAR_COUNT + 8 * ASHLAR_SC_PER_GROUP,
};

/* A size-class index. A struct, so it cannot be mixed up with a byte count. */
typedef struct ashlar_sc {
    uint16_t idx;
} ashlar_sc;

ashlar_sc ashlar_sc_of_bytes(size_t bytes); /* requires 0 < bytes <= ASHLAR_SC_MAX_BYTES */
size_t ashlar_sc_bytes(ashlar_sc sc);

/* The block size that serves a request of `bytes` > 0; false where it does not fit in size_t. */
bool ashlar_block_bytes(size_t bytes, size_t *out);

#endif /* ASHLAR_SIZE_CLASS_H */
