/*
 * free_bins.h - free blocks in the order of size and offset, found in few steps (internal).
 *
 * Two levels, in units of ASHLAR_BLOCK_ALIGN: group 0 has a bin for each of 1 .. 31 units; group
 * g >= 1 divides [32, 64) * 2^(g-1) units into 32 bins. So all blocks in a bin of groups 0 and 1
 * have one size; in the other groups, a block is less than 1/32 larger than the smallest size of
 * its bin. A bin is a search tree, and most bins have one block or none.
 *
 * Blocks are ordered by the pair (bytes, offset), with bytes compared first. No two blocks in the
 * bins have the same offset.
 *
 * The trees are treaps: parents have higher priorities than their children, and a priority is a
 * hash of the node's address. So whatever the order of inserts, a tree of n blocks has the depth
 * that inserts in random order give, O(log n). "Expected" below means this.
 *
 * Invariants (ashlar__free_bins_bits_agree, ashlar__free_bins_has):
 *   (groups >> g & 1) == (bins[g] != 0)
 *   (bins[g] >> b & 1) == (roots[32 * g + b] != NULL)
 *   for every block under roots[32 * g + b]:
 *     block->list == ashlar__bin_of(block->bytes) == 32 * g + b
 *     every block under block->left < block < every block under block->right, in the order
 *     priority(block->left), priority(block->right) < priority(block), where these are not NULL
 */
#ifndef ASHLAR_FREE_BINS_H
#define ASHLAR_FREE_BINS_H

#include "allocator/heap/block.h"
#include "allocator/base/check_level.h"
#include "allocator/heap/size_class.h"

enum {
    ASHLAR_LOG2_BINS = 5,
    ASHLAR_BINS_PER_GROUP = 1 << ASHLAR_LOG2_BINS,
    ASHLAR_BIN_GROUPS = 36, /* for blocks of less than 2^49 bytes, more than an address can reach */
    ASHLAR_BIN_COUNT = ASHLAR_BIN_GROUPS * ASHLAR_BINS_PER_GROUP,
};

/* All zero means that the bins are empty. */
typedef struct ashlar_free_bins {
    uint64_t groups;
    uint32_t bins[ASHLAR_BIN_GROUPS];
    ashlar_block *roots[ASHLAR_BIN_COUNT];
} ashlar_free_bins;

_Static_assert(ASHLAR_BIN_GROUPS <= 64, "a group has a bit of `groups`");
_Static_assert(ASHLAR_BINS_PER_GROUP == 32, "a bin has a bit of its group's");
_Static_assert(ASHLAR_BIN_COUNT <= UINT16_MAX, "a bin's number fits ashlar_block.list");

/*
 * The bin for a block of `bytes`: in group g it is 32 * s + (units >> s), with s = g - 1 for
 * g >= 1, and s = 0 for g = 0. Computed without a branch, which a processor could not predict.
 */
static inline size_t ashlar__bin_of(size_t bytes) {
    const size_t units = bytes / ASHLAR_BLOCK_ALIGN;
    const unsigned long long at_least = units | ASHLAR_BINS_PER_GROUP;
    const unsigned shift = 63u - (unsigned)__builtin_clzll(at_least) - ASHLAR_LOG2_BINS;
    return shift * (size_t)ASHLAR_BINS_PER_GROUP + (units >> shift);
}

/* Whether both bitmaps are right about bin `at`. O(1); for assertions. */
static inline bool ashlar__free_bins_bits_agree(const ashlar_free_bins *bins, size_t at) {
    const size_t group = at >> ASHLAR_LOG2_BINS;
    const bool has_bin = (bins->bins[group] >> at % ASHLAR_BINS_PER_GROUP & 1) != 0;
    const bool has_group = (bins->groups >> group & 1) != 0;
    return has_bin == (bins->roots[at] != NULL) && has_group == (bins->bins[group] != 0);
}

/*
 * _insert_among, _remove_among: insert a block into a tree that has other blocks as well, or remove
 * it from such a tree. Expected O(log n).
 */
void ashlar__free_bins_insert_among(ashlar_block **root, ashlar_block *block);
void ashlar__free_bins_remove_among(ashlar_block **root, ashlar_block *block);

/* block   free, and in no bin. Cost: expected O(log(blocks of its bin)). */
static inline void ashlar__free_bins_insert(ashlar_free_bins *bins, ashlar_block *block) {
    const size_t at = ashlar__bin_of(block->bytes), group = at >> ASHLAR_LOG2_BINS;
    ASHLAR_CHECK2(at < ASHLAR_BIN_COUNT);
    ASHLAR_CHECK2(block->state == ASHLAR_BLOCK_FREE);
    ASHLAR_CHECK2(block->bytes > 0 && block->bytes % ASHLAR_BLOCK_ALIGN == 0);
    ASHLAR_CHECK2(ashlar__free_bins_bits_agree(bins, at));
    block->list = (uint16_t)at;
    if (bins->roots[at] != NULL) {
        ashlar__free_bins_insert_among(&bins->roots[at], block);
        return;
    }
    block->left = NULL;
    block->right = NULL;
    bins->roots[at] = block;
    bins->bins[group] |= UINT32_C(1) << at % ASHLAR_BINS_PER_GROUP;
    bins->groups |= UINT64_C(1) << group;
    ASHLAR_CHECK2(ashlar__free_bins_bits_agree(bins, at));
}

/*
 * block   in one of these bins, with the same size and offset as when it was inserted
 *
 * Cost: expected O(log(blocks of its bin)).
 */
static inline void ashlar__free_bins_remove(ashlar_free_bins *bins, ashlar_block *block) {
    const size_t at = block->list, group = at >> ASHLAR_LOG2_BINS;
    ASHLAR_CHECK2(at < ASHLAR_BIN_COUNT);
    ASHLAR_CHECK2(at == ashlar__bin_of(block->bytes));
    ASHLAR_CHECK2(ashlar__free_bins_bits_agree(bins, at));
    if (bins->roots[at] != block || block->left != NULL || block->right != NULL) {
        ashlar__free_bins_remove_among(&bins->roots[at], block);
        return;
    }
    bins->roots[at] = NULL;
    bins->bins[group] &= ~(UINT32_C(1) << at % ASHLAR_BINS_PER_GROUP);
    if (!ASHLAR_LIKELY(bins->bins[group] != 0)) {
        bins->groups &= ~(UINT64_C(1) << group);
    }
    ASHLAR_CHECK2(ashlar__free_bins_bits_agree(bins, at));
}

/* ---- searching ---- */

/* (bytes, offset) as one number: a processor compares two of them in two steps, without a branch
 * between. */
__extension__ typedef unsigned __int128 ashlar_bin_rank;

static inline ashlar_bin_rank ashlar__bin_rank(size_t bytes, size_t offset) {
    return (ashlar_bin_rank)bytes << 64 | offset;
}

/* Whether a block comes before (bytes, offset). */
static inline bool ashlar__block_is_before(const ashlar_block *block, size_t bytes, size_t offset) {
    return ashlar__bin_rank(block->bytes, block->offset) < ashlar__bin_rank(bytes, offset);
}

/*
 * The first block of a tree that does not come before (bytes, offset); NULL: all blocks come
 * before.
 */
static inline ashlar_block *ashlar__bin_first_from(ashlar_block *tree, size_t bytes,
                                                   size_t offset) {
    ashlar_block *first = NULL;
    while (tree != NULL) {
        if (ashlar__block_is_before(tree, bytes, offset)) {
            tree = tree->right;
        } else {
            first = tree;
            tree = tree->left;
        }
    }
    return first;
}

/* The first bin after `at` that is not empty; ASHLAR_BIN_COUNT if there is none. */
static inline size_t ashlar__bins_next_bin(const ashlar_free_bins *bins, size_t at) {
    ASHLAR_CHECK2(at < ASHLAR_BIN_COUNT && ashlar__free_bins_bits_agree(bins, at));
    /* Two shifts, by at most 31 and then by 1: one shift by 32 would be undefined. */
    size_t group = at >> ASHLAR_LOG2_BINS;
    uint32_t in_group = bins->bins[group] & (~UINT32_C(0) << at % ASHLAR_BINS_PER_GROUP << 1);
    if (in_group == 0) {
        const uint64_t larger = bins->groups & (~UINT64_C(0) << group << 1);
        if (larger == 0) {
            return ASHLAR_BIN_COUNT;
        }
        group = (size_t)__builtin_ctzll(larger);
        in_group = bins->bins[group];
    }
    return (group << ASHLAR_LOG2_BINS) + (size_t)__builtin_ctz(in_group);
}

/* The first block of all bins that does not come before (bytes, offset). */
static inline ashlar_block *ashlar__free_bins_find_from(const ashlar_free_bins *bins, size_t bytes,
                                                        size_t offset) {
    const size_t own = ashlar__bin_of(bytes);
    if (own >= ASHLAR_BIN_COUNT) {
        return NULL;
    }
    ashlar_block *found = ashlar__bin_first_from(bins->roots[own], bytes, offset);
    if (found != NULL) {
        return found;
    }
    const size_t next = ashlar__bins_next_bin(bins, own);
    if (next == ASHLAR_BIN_COUNT) {
        return NULL;
    }
    ASHLAR_CHECK2(next > own && bins->roots[next] != NULL);
    found = bins->roots[next];
    while (found->left != NULL) {
        found = found->left;
    }
    ASHLAR_CHECK2(found->bytes > bytes); /* every block of a larger bin is larger */
    return found;
}

/*
 * The smallest block of at least `bytes` > 0 bytes; among equal ones, the one with the lowest
 * offset. NULL if there is none. Cost: expected O(log n), for n blocks in one or two bins.
 */
static inline ashlar_block *ashlar__free_bins_best_fit(const ashlar_free_bins *bins, size_t bytes) {
    ASHLAR_CHECK2(bytes > 0);
    return ashlar__free_bins_find_from(bins, bytes, 0);
}

/*
 * The first block after (bytes, offset) in the order; NULL if there is none. With a block's own
 * size and offset this is the next block; (0, 0) begins a walk. Blocks may come and go during a
 * walk. Cost: as ashlar__free_bins_best_fit().
 */
ashlar_block *ashlar__free_bins_next(const ashlar_free_bins *bins, size_t bytes, size_t offset);

/*
 * The last block before (bytes, offset); (SIZE_MAX, SIZE_MAX) begins a walk at the largest block.
 */
ashlar_block *ashlar__free_bins_prev(const ashlar_free_bins *bins, size_t bytes, size_t offset);

static inline bool ashlar__free_bins_is_empty(const ashlar_free_bins *bins) {
    return bins->groups == 0;
}

/* The largest block's bytes, 0 if there is none. Cost: expected O(log(blocks of its bin)). */
size_t ashlar__free_bins_largest(const ashlar_free_bins *bins);

/* The number of blocks in the bins. O(n log n), for checks. */
size_t ashlar__free_bins_count(const ashlar_free_bins *bins);

/*
 * Whether a search finds `block` in its bin, and its `list`, its children and the path to it are
 * right. If this holds for all blocks, all invariants hold. Expected O(log n), for checks.
 */
bool ashlar__free_bins_has(const ashlar_free_bins *bins, const ashlar_block *block);

#endif /* ASHLAR_FREE_BINS_H */
