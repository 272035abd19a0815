/* free_bins.c - finding the best fit in a bin, and the next larger bin that is not empty. */
#include "allocator/heap/free_bins.h"

/*
 * How many blocks of a bin a search looks at. Looking at more would find smaller and lower fits,
 * but each block may cost a cache miss.
 */
enum { FITS_LOOKED_AT = 8 };

/*
 * Of the first `count` blocks of a list, the smallest that has at least `bytes`; among equal sizes
 * the lowest. NULL: none of them fits.
 */
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

/* The first bin behind `at` that is not empty; ASHLAR_BIN_COUNT if there is none. */
static size_t next_bin(const ashlar_free_bins *bins, size_t at) {
    ASHLAR_CHECK2(at < ASHLAR_BIN_COUNT && ashlar__free_bins_bits_agree(bins, at));
    /* Shifted by at most 31 and then by 1: a shift by 32 would be undefined. */
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

ashlar_block *ashlar__free_bins_best_fit(const ashlar_free_bins *bins, size_t bytes) {
    ASHLAR_CHECK2(bytes > 0);
    const size_t own = ashlar__bin_of(bytes);
    if (own >= ASHLAR_BIN_COUNT) {
        return NULL;
    }
    ashlar_block *best = best_of(bins->newest[own], bytes, FITS_LOOKED_AT);
    if (best != NULL) {
        return best;
    }
    const size_t next = next_bin(bins, own);
    if (next < ASHLAR_BIN_COUNT) {
        ASHLAR_CHECK2(next > own && bins->newest[next] != NULL);
        ASHLAR_CHECK2(bins->newest[next]->bytes >= bytes); /* as has every block of a larger bin */
        return best_of(bins->newest[next], bytes, FITS_LOOKED_AT);
    }
    /* Looking at every block is cheaper than mapping memory while a free block fits. */
    return best_of(bins->newest[own], bytes, SIZE_MAX);
}

size_t ashlar__free_bins_largest(const ashlar_free_bins *bins) {
    size_t largest = 0;
    if (bins->groups == 0) {
        return 0;
    }
    const unsigned group = 63u - (unsigned)__builtin_clzll(bins->groups);
    const unsigned bin = 31u - (unsigned)__builtin_clz(bins->bins[group]);
    const ashlar_block *at = bins->newest[((size_t)group << ASHLAR_LOG2_BINS) + bin];
    for (; at != NULL; at = at->older) {
        largest = at->bytes > largest ? at->bytes : largest;
    }
    ASHLAR_CHECK2(largest > 0);
    return largest;
}

size_t ashlar__free_bins_count(const ashlar_free_bins *bins) {
    size_t count = 0;
    for (size_t i = 0; i < ASHLAR_BIN_COUNT; i++) {
        for (const ashlar_block *at = bins->newest[i]; at != NULL; at = at->older) {
            count++;
        }
    }
    return count;
}

bool ashlar__free_bins_has(const ashlar_free_bins *bins, const ashlar_block *block) {
    const size_t own = ashlar__bin_of(block->bytes);
    const ashlar_block *at = bins->newest[own];
    while (at != NULL && at != block) {
        at = at->older;
    }
    return at != NULL && block->list == own && *block->link == block;
}
