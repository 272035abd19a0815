#include "free_bins.h"

#include "check_level.h"
#include "size_class.h"

/*
 * How many blocks of a bin are looked at. More find smaller and lower fits, and each may cost a
 * cache miss.
 */
enum { FITS_LOOKED_AT = 8 };

enum { LOG2_BINS = 5, BIN_COUNT = ASHLAR_BIN_GROUPS * ASHLAR_BINS_PER_GROUP };
_Static_assert(1 << LOG2_BINS == ASHLAR_BINS_PER_GROUP, "a group is one power of two");

/*
 * Without a branch: sizes come in no order that a processor could guess. With s = g - 1 for group
 * g >= 1, and 0 for group 0, the bin of group g is 32 * s + (units >> s).
 */
static size_t bin_of(size_t bytes) {
    const size_t units = bytes / ASHLAR_BLOCK_ALIGN;
    const unsigned long long at_least = units | ASHLAR_BINS_PER_GROUP;
    const unsigned shift = 63u - (unsigned)__builtin_clzll(at_least) - LOG2_BINS;
    return shift * (size_t)ASHLAR_BINS_PER_GROUP + (units >> shift);
}

void ashlar_free_bins_insert(ashlar_free_bins *bins, ashlar_block *block) {
    const size_t at = bin_of(block->bytes);
    ASHLAR_ASSERT(at < BIN_COUNT);
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
    bins->bins[at >> LOG2_BINS] |= UINT32_C(1) << at % ASHLAR_BINS_PER_GROUP;
    bins->groups |= UINT64_C(1) << (at >> LOG2_BINS);
}

void ashlar_free_bins_remove(ashlar_free_bins *bins, ashlar_block *block) {
    const size_t at = block->list, group = at >> LOG2_BINS;
    ashlar_block **link = block->link;
    ASHLAR_ASSERT(*link == block);
    *link = block->older;
    if (block->older != NULL) {
        block->older->link = link;
    } else if (bins->newest[at] == NULL) {
        bins->bins[group] &= ~(UINT32_C(1) << at % ASHLAR_BINS_PER_GROUP);
        bins->groups &= ~((uint64_t)(bins->bins[group] == 0) << group);
    }
}

/* The best of the first `count` blocks of a list that fit: the smallest, of these the lowest. */
static ashlar_block *best_of(ashlar_block *list, size_t bytes, size_t count) {
    ashlar_block *best = NULL;
    size_t best_bytes = SIZE_MAX, best_offset = SIZE_MAX;
    for (; list != NULL && count > 0; list = list->older, count--) {
        const bool is_lower = (list->bytes == best_bytes) & (list->offset < best_offset);
        const bool is_better = (list->bytes >= bytes) & ((list->bytes < best_bytes) | is_lower);
        best = is_better ? list : best;
        best_bytes = is_better ? list->bytes : best_bytes;
        best_offset = is_better ? list->offset : best_offset;
    }
    return best;
}

/* The first bin behind `at` that is not empty; BIN_COUNT where there is none. */
static size_t next_bin(const ashlar_free_bins *bins, size_t at) {
    /* Shifted by 31 and by one more: by 32 at once is undefined. */
    size_t group = at >> LOG2_BINS;
    uint32_t in_group = bins->bins[group] & (~UINT32_C(0) << at % ASHLAR_BINS_PER_GROUP << 1);
    if (in_group == 0) {
        const uint64_t larger = bins->groups & (~UINT64_C(0) << group << 1);
        if (larger == 0) {
            return BIN_COUNT;
        }
        group = (size_t)__builtin_ctzll(larger);
        in_group = bins->bins[group];
    }
    return (group << LOG2_BINS) + (size_t)__builtin_ctz(in_group);
}

ashlar_block *ashlar_free_bins_best_fit(const ashlar_free_bins *bins, size_t bytes) {
    const size_t own = bin_of(bytes);
    if (own >= BIN_COUNT) {
        return NULL;
    }
    ashlar_block *best = best_of(bins->newest[own], bytes, FITS_LOOKED_AT);
    if (best != NULL) {
        return best;
    }
    const size_t next = next_bin(bins, own);
    if (next < BIN_COUNT) {
        return best_of(bins->newest[next], bytes, FITS_LOOKED_AT);
    }
    /* Rather look at all than let the caller map memory while some is free. */
    return best_of(bins->newest[own], bytes, SIZE_MAX);
}

size_t ashlar_free_bins_largest(const ashlar_free_bins *bins) {
    size_t largest = 0;
    if (bins->groups == 0) {
        return 0;
    }
    const unsigned group = 63u - (unsigned)__builtin_clzll(bins->groups);
    const unsigned bin = 31u - (unsigned)__builtin_clz(bins->bins[group]);
    const ashlar_block *at = bins->newest[((size_t)group << LOG2_BINS) + bin];
    for (; at != NULL; at = at->older) {
        largest = at->bytes > largest ? at->bytes : largest;
    }
    return largest;
}

size_t ashlar_free_bins_count(const ashlar_free_bins *bins) {
    size_t count = 0;
    for (size_t i = 0; i < BIN_COUNT; i++) {
        for (const ashlar_block *at = bins->newest[i]; at != NULL; at = at->older) {
            count++;
        }
    }
    return count;
}

bool ashlar_free_bins_has(const ashlar_free_bins *bins, const ashlar_block *block) {
    const ashlar_block *at = bins->newest[bin_of(block->bytes)];
    while (at != NULL && at != block) {
        at = at->older;
    }
    return at != NULL;
}
