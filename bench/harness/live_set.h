/*
 * live_set.h - the live blocks, ordered by address, so that inserting one finds an overlap
 * (internal).
 *
 * Invariant: for blocks a before b, a.address + a.bytes <= b.address.
 * Threads:   one at a time.
 */
#ifndef ASHLAR_LIVE_SET_H
#define ASHLAR_LIVE_SET_H

#include <stddef.h>
#include <stdint.h>

typedef struct ashlar_live_block ashlar_live_block;

struct ashlar_live_block {
    uintptr_t address;               /* the caller's to set; fixed while the block is in a set */
    size_t bytes;                    /* at least 1 */
    ashlar_live_block *left, *right; /* the set's */
};

/* A balanced tree: by address, and a heap by the hash of the address. Zeroes are an empty set. */
typedef struct ashlar_live_set {
    ashlar_live_block *root;
} ashlar_live_set;

/*
 * Insert a block. If it shares a byte with one in the set, return that one and change nothing; the
 * block itself if it wraps around the end of the address space; else NULL.
 * Cost: O(log n).
 */
const ashlar_live_block *ashlar__live_set_insert(ashlar_live_set *set, ashlar_live_block *block);

/* Remove a block of the set. Cost: O(log n). */
void ashlar__live_set_remove(ashlar_live_set *set, ashlar_live_block *block);

#endif /* ASHLAR_LIVE_SET_H */
