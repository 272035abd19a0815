/*
 * free_bins.h - free blocks by size, found in a few instructions (internal).
 *
 * Two levels, in units of ASHLAR_BLOCK_ALIGN: group 0 has a bin for each of 1 .. 31 units; group
 * g >= 1 divides [32, 64) * 2^(g-1) units into 32 bins. So all blocks in a bin of groups 0 and 1
 * have one size; in the other groups, a block is less than 1/32 larger than the smallest size of
 * its bin.
 *
 * Invariants (ashlar__free_bins_bits_agree, ashlar__free_bins_has):
 *   (groups >> g & 1) == (bins[g] != 0)
 *   (bins[g] >> b & 1) == (newest[32 * g + b] != NULL)
 *   for every block in newest[32 * g + b]:
 *     block->list == ashlar__bin_of(block->bytes) == 32 * g + b,  *block->link == block
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

/* Whether both bitmaps tell the truth about bin `at`. O(1), for assertions. */
static inline bool ashlar__free_bins_bits_agree(const ashlar_free_bins *bins, size_t at) {
    const size_t group = at >> ASHLAR_LOG2_BINS;
    const bool has_bin = (bins->bins[group] >> at % ASHLAR_BINS_PER_GROUP & 1) != 0;
    const bool has_group = (bins->groups >> group & 1) != 0;
    return has_bin == (bins->newest[at] != NULL) && has_group == (bins->bins[group] != 0);
}

/* block   free, in no bin */
static inline void ashlar__free_bins_insert(ashlar_free_bins *bins, ashlar_block *block) {
    const size_t at = ashlar__bin_of(block->bytes), group = at >> ASHLAR_LOG2_BINS;
    ASHLAR_ASSERT(at < ASHLAR_BIN_COUNT);
    ASHLAR_CHECK2(block->state == ASHLAR_BLOCK_FREE);
    ASHLAR_CHECK2(block->bytes > 0 && block->bytes % ASHLAR_BLOCK_ALIGN == 0);
    ASHLAR_CHECK2(ashlar__free_bins_bits_agree(bins, at));
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
    ASHLAR_CHECK2(ashlar__free_bins_bits_agree(bins, at));
}

/* block   in one of these bins, and as large as when it was inserted */
static inline void ashlar__free_bins_remove(ashlar_free_bins *bins, ashlar_block *block) {
    const size_t at = block->list, group = at >> ASHLAR_LOG2_BINS;
    ashlar_block **link = block->link, *older = block->older;
    ASHLAR_ASSERT(*link == block);
    ASHLAR_CHECK2(at == ashlar__bin_of(block->bytes));
    ASHLAR_CHECK2(older == NULL || older->link == &block->older);
    *link = older;
    if (older != NULL) {
        older->link = link;
    } else if (bins->newest[at] == NULL) {
        bins->bins[group] &= ~(UINT32_C(1) << at % ASHLAR_BINS_PER_GROUP);
        bins->groups &= ~((uint64_t)(bins->bins[group] == 0) << group);
    }
    ASHLAR_CHECK2(ashlar__free_bins_bits_agree(bins, at));
}

/*
 * A block of at least `bytes` > 0; NULL only if there is none. It is the best of the newest few
 * in the bin of `bytes`, else the best of the newest few in the next larger bin that is not empty.
 * Cost: O(1), but O(blocks of the bin) if only older blocks in the bin of `bytes` fit.
 */
ashlar_block *ashlar__free_bins_best_fit(const ashlar_free_bins *bins, size_t bytes);

static inline bool ashlar__free_bins_is_empty(const ashlar_free_bins *bins) {
    return bins->groups == 0;
}

/* The largest block's bytes, 0 if there is none. O(blocks of the last bin that is not empty). */
size_t ashlar__free_bins_largest(const ashlar_free_bins *bins);

/* How many blocks there are. O(n), for checks. */
size_t ashlar__free_bins_count(const ashlar_free_bins *bins);

/* Whether `block` is in its bin, with its `list` and `link` right. O(blocks of it), for checks. */
bool ashlar__free_bins_has(const ashlar_free_bins *bins, const ashlar_block *block);

#endif /* ASHLAR_FREE_BINS_H */
