/*
 * block.h - blocks of the address range and the trees that free ones wait in (internal).
 *
 * A free block is stamped with its last user: the order (stream) it was freed on, and that order's
 * tick then. Its last use is past once an event recorded after the free has completed:
 *
 *     is_past(block) == (order == NULL || order->completed > tick)
 */
#ifndef ASHLAR_BLOCK_H
#define ASHLAR_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ashlar_block ashlar_block;
typedef struct ashlar_order ashlar_order;

/* Lock: the allocator's guards every field. */
struct ashlar_block {
    size_t offset;        /* from the range's base, a multiple of ASHLAR_BLOCK_ALIGN */
    size_t bytes;         /* > 0, a multiple of ASHLAR_BLOCK_ALIGN */
    ashlar_block *prev;   /* address order, NULL at the ends */
    ashlar_block *next;   /* and the list of spare nodes */
    ashlar_block *left;   /* free: subtrees of the tree it waits in */
    ashlar_block *right;
    ashlar_order *order;  /* live: the stream it was taken for; free: of its last use, or NULL */
    uint64_t tick;        /* free: order->recorded at that use */
    size_t requested;     /* live: bytes asked for, 1 .. bytes; free: 0 */
    unsigned char tag;    /* live: an ashlar_tag */
};

/*
 * Free blocks by (bytes, offset), so that the first fit is the best fit, and the lowest of equals.
 * A treap whose priorities are a hash of the offset: balanced in expectation, the same on every
 * run, and without a field for the balance.
 */
typedef struct ashlar_free_tree {
    ashlar_block *root;
} ashlar_free_tree;

void ashlar_free_tree_insert(ashlar_free_tree *tree, ashlar_block *block);
void ashlar_free_tree_remove(ashlar_free_tree *tree, ashlar_block *block); /* requires: in it */

/* The smallest block of at least `bytes`, NULL where there is none. O(log n). */
ashlar_block *ashlar_free_tree_best_fit(const ashlar_free_tree *tree, size_t bytes);

/* The largest block's bytes, 0 for an empty tree. */
size_t ashlar_free_tree_largest(const ashlar_free_tree *tree);

/* How many blocks there are. O(n), for checks. */
size_t ashlar_free_tree_count(const ashlar_free_tree *tree);

bool ashlar_free_tree_has(const ashlar_free_tree *tree, const ashlar_block *block);

#endif /* ASHLAR_BLOCK_H */
