/*
 * live_set.h - a set of live blocks, ordered by address, which finds overlaps on insertion
 * (internal).
 *
 * Invariant: for blocks a and b with a.address < b.address, a.address + a.bytes <= b.address.
 * Threads:   one at a time.
 */
#ifndef ASHLAR_LIVE_SET_H
#define ASHLAR_LIVE_SET_H

#include <stddef.h>
#include <stdint.h>

typedef struct ashlar_live_block ashlar_live_block;

struct ashlar_live_block {
    uintptr_t address; /* the caller sets address and bytes, and leaves them while it is in a set */
    size_t bytes;      /* at least 1 */
    ashlar_live_block *left, *right; /* only live_set.c uses these */
};

/* A treap: a search tree by address, and a heap by the address's hash. Zeroes are an empty set. */
typedef struct ashlar_live_set {
    ashlar_live_block *root;
} ashlar_live_set;

/* Insert a block and return NULL. If it shares a byte with a block in the set, return that block;
 * if it wraps around the end of the address space, return `block` itself; then the set is
 * unchanged. The block stays the caller's and must outlive its membership. Cost: O(log n). */
const ashlar_live_block *ashlar__live_set_insert(ashlar_live_set *set, ashlar_live_block *block);

/* Remove a block, which must be in the set. Cost: O(log n). */
void ashlar__live_set_remove(ashlar_live_set *set, ashlar_live_block *block);

#endif /* ASHLAR_LIVE_SET_H */
