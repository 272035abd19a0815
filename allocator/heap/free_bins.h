/*
 * free_bins.h - free blocks by size, found in a few instructions (internal).
 *
 * Two levels, in units of ASHLAR_BLOCK_ALIGN: group 0 has a bin for each of 1 .. 31 units, group
 * g >= 1 has 32 bins of 2^(g-1) units for [32, 64) * 2^(g-1) units. So a bin of groups 0 and 1 has
 * blocks of one size, and in the others a block is less than 1/32 larger than the smallest there
 * may be in its bin.
 *
 * Invariants:
 *   groups bit g is set       == bins[g] != 0
 *   bins[g] bit b is set      == newest[32 * g + b] != NULL
 *   every block in newest[32 * g + b] has the size of bin b of group g, and
 *   block->list == 32 * g + b, *block->link == block
 */
#ifndef ASHLAR_FREE_BINS_H
#define ASHLAR_FREE_BINS_H

#include "allocator/heap/block.h"
#include "allocator/base/check_level.h"
#include "allocator/heap/size_class.h"

enum {
    ASHLAR_LOG2_BINS = 5,
    ASHLAR_BINS_PER_GROUP = 1 << ASHLAR_LOG2_BINS,
    ASHLAR_BIN_GROUPS = 36, /* blocks of less than 2^49 bytes, more than an address can reach */
    ASHLAR_BIN_COUNT = ASHLAR_BIN_GROUPS * ASHLAR_BINS_PER_GROUP,
};

/* All zero is empty. */
typedef struct ashlar_free_bins {
    uint64_t groups;
    uint32_t bins[ASHLAR_BIN_GROUPS];
    ashlar_block *newest[ASHLAR_BIN_COUNT];
} ashlar_free_bins;

/*
 * Without a branch: sizes come in no order that a processor could guess. With s = g - 1 for group
 * g >= 1, and 0 for group 0, the bin of group g is 32 * s + (units >> s).
 */
static inline size_t ashlar__bin_of(size_t bytes) {
    const size_t units = bytes / ASHLAR_BLOCK_ALIGN;
    const unsigned long long at_least = units | ASHLAR_BINS_PER_GROUP;
    const unsigned shift = 63u - (unsigned)__builtin_clzll(at_least) - ASHLAR_LOG2_BINS;
    return shift * (size_t)ASHLAR_BINS_PER_GROUP + (units >> shift);
}

static inline void ashlar__free_bins_insert(ashlar_free_bins *bins, ashlar_block *block) {
    const size_t at = ashlar__bin_of(block->bytes), group = at >> ASHLAR_LOG2_BINS;
    ASHLAR_ASSERT(at < ASHLAR_BIN_COUNT);
    ashlar_block **newest = &bins->newest[at];
    ashlar_block *older = *newest;
    block->list = (uint16_t)at;
    block->link = newest;
    block->older = older;
    *newest = block;
    if (older != NULL) {
        older->link = &block->older;
        return;
    }
    bins->bins[group] |= UINT32_C(1) << at % ASHLAR_BINS_PER_GROUP;
    bins->groups |= UINT64_C(1) << group;
}

/* Requires: in them. */
static inline void ashlar__free_bins_remove(ashlar_free_bins *bins, ashlar_block *block) {
    const size_t at = block->list, group = at >> ASHLAR_LOG2_BINS;
    ashlar_block **link = block->link, *older = block->older;
    ASHLAR_ASSERT(*link == block);
    *link = older;
    if (older != NULL) {
        older->link = link;
    } else if (bins->newest[at] == NULL) {
        bins->bins[group] &= ~(UINT32_C(1) << at % ASHLAR_BINS_PER_GROUP);
        bins->groups &= ~((uint64_t)(bins->bins[group] == 0) << group);
    }
}

/*
 * A block of at least `bytes`, NULL only where there is none: the best of the newest few in the
 * bin of `bytes`, else the best of the newest few in the next larger one. Cost: O(1), but O(n)
 * where only old blocks of the one bin fit.
 */
ashlar_block *ashlar__free_bins_best_fit(const ashlar_free_bins *bins, size_t bytes);

static inline bool ashlar__free_bins_is_empty(const ashlar_free_bins *bins) {
    return bins->groups == 0;
}

/* The largest block's bytes, 0 where there is none. O(blocks of the last bin). */
size_t ashlar__free_bins_largest(const ashlar_free_bins *bins);

/* How many blocks there are. O(n), for checks. */
size_t ashlar__free_bins_count(const ashlar_free_bins *bins);

/* Whether `block` is in its bin, and knows where. O(blocks of that bin), for checks. */
bool ashlar__free_bins_has(const ashlar_free_bins *bins, const ashlar_block *block);

#endif /* ASHLAR_FREE_BINS_H */
