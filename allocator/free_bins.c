#include "free_bins.h"

#include "check_level.h"
#include "size_class.h"

/*
 * How many blocks of a bin are looked at. More find smaller and lower fits, and each may cost a
 * cache miss.
 */
enum { FITS_LOOKED_AT = 8 };

enum { LOG2_BINS = 5 };
_Static_assert(1 << LOG2_BINS == ASHLAR_BINS_PER_GROUP, "a group is one power of two");

typedef struct bin_idx {
    unsigned group, bin;
} bin_idx;

/*
 * Without a branch: sizes come in no order that a processor could guess. With s = g - 1 the bins of
 * group g follow those before it as the numbers 32 * s + (units >> s); for less than 32 units, s is 0.
 */
static bin_idx bin_of(size_t bytes) {
    const size_t units = bytes / ASHLAR_BLOCK_ALIGN;
    const unsigned long long at_least = units | ASHLAR_BINS_PER_GROUP;
    const unsigned shift = 63u - (unsigned)__builtin_clzll(at_least) - LOG2_BINS;
    const size_t idx = shift * (size_t)ASHLAR_BINS_PER_GROUP + (units >> shift);
    return (bin_idx){(unsigned)(idx >> LOG2_BINS), (unsigned)idx % ASHLAR_BINS_PER_GROUP};
}

void ashlar_free_bins_insert(ashlar_free_bins *bins, ashlar_block *block) {
    const bin_idx at = bin_of(block->bytes);
    ASHLAR_ASSERT(at.group < ASHLAR_BIN_GROUPS);
    ashlar_block **newest = &bins->newest[at.group][at.bin];
    block->newer = NULL;
    block->older = *newest;
    if (*newest != NULL) {
        (*newest)->newer = block;
    } else {
        bins->bins[at.group] |= UINT32_C(1) << at.bin;
        bins->groups |= UINT64_C(1) << at.group;
    }
    *newest = block;
}

void ashlar_free_bins_remove(ashlar_free_bins *bins, ashlar_block *block) {
    if (block->older != NULL) {
        block->older->newer = block->newer;
    }
    if (block->newer != NULL) {
        block->newer->older = block->older;
        return;
    }
    const bin_idx at = bin_of(block->bytes);
    ASHLAR_ASSERT(bins->newest[at.group][at.bin] == block);
    bins->newest[at.group][at.bin] = block->older;
    if (block->older == NULL) {
        bins->bins[at.group] &= ~(UINT32_C(1) << at.bin);
        bins->groups &= ~((uint64_t)(bins->bins[at.group] == 0) << at.group);
    }
}

static bool is_better(const ashlar_block *a, const ashlar_block *b) {
    return b == NULL || a->bytes < b->bytes || (a->bytes == b->bytes && a->offset < b->offset);
}

/* The best of the first `count` blocks of a list that fit. */
static ashlar_block *best_of(ashlar_block *list, size_t bytes, size_t count) {
    ashlar_block *best = NULL;
    for (; list != NULL && count > 0; list = list->older, count--) {
        if (list->bytes >= bytes && is_better(list, best)) {
            best = list;
        }
    }
    return best;
}

/* The first bin behind `at` that is not empty; false where there is none. */
static bool next_bin(const ashlar_free_bins *bins, bin_idx *at) {
    /* Shifted by 31 and by one more: by 32 at once is undefined. */
    const uint32_t same = bins->bins[at->group] & (~UINT32_C(0) << at->bin << 1);
    const uint64_t larger = bins->groups & (~UINT64_C(0) << at->group << 1);
    if (same == 0 && larger == 0) {
        return false;
    }
    if (same == 0) {
        at->group = (unsigned)__builtin_ctzll(larger);
    }
    at->bin = (unsigned)__builtin_ctz(same != 0 ? same : bins->bins[at->group]);
    return true;
}

ashlar_block *ashlar_free_bins_best_fit(const ashlar_free_bins *bins, size_t bytes) {
    const bin_idx own = bin_of(bytes);
    bin_idx at = own;
    if (own.group >= ASHLAR_BIN_GROUPS) {
        return NULL;
    }
    ashlar_block *best = best_of(bins->newest[own.group][own.bin], bytes, FITS_LOOKED_AT);
    if (best == NULL && next_bin(bins, &at)) {
        best = best_of(bins->newest[at.group][at.bin], bytes, FITS_LOOKED_AT);
    }
    /* Rather look at all than let the caller map memory while some is free. */
    return best != NULL ? best : best_of(bins->newest[own.group][own.bin], bytes, SIZE_MAX);
}

size_t ashlar_free_bins_largest(const ashlar_free_bins *bins) {
    size_t largest = 0;
    if (bins->groups == 0) {
        return 0;
    }
    const unsigned group = 63u - (unsigned)__builtin_clzll(bins->groups);
    const unsigned bin = 31u - (unsigned)__builtin_clz(bins->bins[group]);
    for (const ashlar_block *at = bins->newest[group][bin]; at != NULL; at = at->older) {
        largest = at->bytes > largest ? at->bytes : largest;
    }
    return largest;
}

size_t ashlar_free_bins_count(const ashlar_free_bins *bins) {
    size_t count = 0;
    for (size_t i = 0; i < (size_t)ASHLAR_BIN_GROUPS * ASHLAR_BINS_PER_GROUP; i++) {
        const ashlar_block *at = bins->newest[i / ASHLAR_BINS_PER_GROUP][i % ASHLAR_BINS_PER_GROUP];
        for (; at != NULL; at = at->older) {
            count++;
        }
    }
    return count;
}

bool ashlar_free_bins_has(const ashlar_free_bins *bins, const ashlar_block *block) {
    const bin_idx own = bin_of(block->bytes);
    const ashlar_block *at = bins->newest[own.group][own.bin];
    while (at != NULL && at != block) {
        at = at->older;
    }
    return at != NULL;
}
