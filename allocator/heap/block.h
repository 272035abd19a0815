/*
 * block.h - block sizes, the node that describes a block, and the bins of free blocks (internal).
 */
#ifndef ASHLAR_BLOCK_H
#define ASHLAR_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/check_level.h"
#include "allocator/base/compiler.h"

/*
 * ---- how a request is rounded to a block size ----
 *
 *   up to 32 KiB      multiples of 512 B: classes 0..63
 *   32 to 512 KiB     groups (base, 2 * base] in 32 equal steps of base / 32, so that a block is
 *                     less than 1/32 larger than the request: classes 64..191
 *   above 512 KiB     exact to 512 B, no class
 *
 * With the usual eight steps a group, rounding would waste 6 % of the memory instead of 1.5 %. With
 * classes up to 1 MiB, a few blocks that nobody asks for again would fill a thread's cache.
 *
 * Invariants (tests/allocator/heap/test_size_class.c walks every class):
 *   bytes_of(of_bytes(n)) >= n             a class always fits the request
 *   of_bytes(bytes_of(c)) == c             to bytes and back gives the same class
 *   bytes_of(c) % ASHLAR_BLOCK_ALIGN == 0
 */
#define ASHLAR_BLOCK_ALIGN ((size_t)512)          /* CUDA's alignment for textures */
#define ASHLAR_SC_LINEAR_BYTES ((size_t)32 << 10) /* largest class of the linear part */
#define ASHLAR_SC_MAX_BYTES ((size_t)512 << 10)   /* largest class of all */

enum {
    ASHLAR_LOG2_SC_PER_GROUP = 5,
    ASHLAR_SC_PER_GROUP = 1 << ASHLAR_LOG2_SC_PER_GROUP,
    ASHLAR_SC_LINEAR_COUNT = 64,
    ASHLAR_SC_COUNT = ASHLAR_SC_LINEAR_COUNT + 4 * ASHLAR_SC_PER_GROUP,
};

/* A size-class index. A struct, so it cannot be mixed up with a byte count. */
typedef struct ashlar_sc {
    uint16_t idx;
} ashlar_sc;

/* Entry n is the class for n + 1 units of 512 B. It is looked up because computing it would take a
 * sixth of the time of a cache hit. */
extern const uint8_t ashlar__sc_table[ASHLAR_SC_MAX_BYTES / ASHLAR_BLOCK_ALIGN];

/* The class that serves a request. Requires 0 < bytes <= ASHLAR_SC_MAX_BYTES. */
static inline ashlar_sc ashlar__sc_of_bytes(size_t bytes) {
    ASHLAR_CHECK2(bytes > 0 && bytes <= ASHLAR_SC_MAX_BYTES);
    return (ashlar_sc){.idx = ashlar__sc_table[(bytes - 1) / ASHLAR_BLOCK_ALIGN]};
}

size_t ashlar__sc_bytes(ashlar_sc sc);

/* The block size that serves a request of `bytes`, 0 < bytes <= ASHLAR_SC_MAX_BYTES: `bytes`
 * rounded up to the step of their group, which is ashlar__sc_bytes() of their class. */
static inline size_t ashlar__small_block_bytes(size_t bytes) {
    const size_t last = bytes - 1;
    const unsigned long long base = last | (ASHLAR_SC_LINEAR_BYTES / 2);
    const unsigned step = 63u - (unsigned)__builtin_clzll(base) - ASHLAR_LOG2_SC_PER_GROUP;
    return ((last >> step) + 1) << step;
}

/* Like ashlar__small_block_bytes(), for any `bytes` > 0; false if the result does not fit in
 * size_t. */
bool ashlar__block_bytes(size_t bytes, size_t *out);

/* ---- blocks ---- */

typedef struct ashlar_block ashlar_block;
typedef struct ashlar_stream_state ashlar_stream_state;
typedef struct ashlar_window ashlar_window;
typedef struct ashlar_slot ashlar_slot;

typedef enum ashlar_block_state {
    ASHLAR_BLOCK_FREE, /* a gap between used blocks, with or without memory behind its addresses;
                        * in the bins of its window's zone */
    ASHLAR_BLOCK_USED, /* taken from the heap, and in the page map. The block is live if requested >
                        * 0; otherwise a thread's cache or a guard's quarantine keeps it, or
                        * other streams may still use it */
    ASHLAR_BLOCK_PLAN_MEMORY, /* taken from the heap to be cut into the slots of plans. The page map
                               * has these slot blocks instead; they are USED, but in no window's
                               * list of blocks: see planner.h */
} ashlar_block_state;

/* Bits of ashlar_block.marks. A thread's cache accepts no block that has one of them. */
enum {
    ASHLAR_BLOCK_SHARED = 1,   /* work on several streams uses the block: see heap.h. Plan memory:
                                * several streams used blocks of its newest step */
    ASHLAR_BLOCK_OF_SLOT = 2,  /* a slot block: it belongs to plan memory, never to the heap */
    ASHLAR_BLOCK_BORROWED = 4, /* taken for a stream that does not own its zone */
};

/* One stream's use of a block that other streams use as well. Lock: the allocator's. */
typedef struct ashlar_use ashlar_use;
struct ashlar_use {
    ashlar_use *next;
    ashlar_stream_state *stream_state;
    uint64_t tick; /* the tick at which the use ended, set at the free */
};

/*
 * The node of a block. A hit in a thread's cache touches only its first six words. A zone takes
 * several nodes at a time, which fill whole cache lines, so threads that work in different zones do
 * not write the same line while nodes are new.
 *
 * Whoever may touch the block's zone (core.h says who) may touch every field. Exception: while a
 * block is in a thread's cache, or handed out from it, the block's first six words belong to that
 * thread.
 */
struct ashlar_block {
    _Alignas(16) size_t offset; /* from the heap's base address; a multiple of ASHLAR_BLOCK_ALIGN */
    size_t bytes;               /* > 0, a multiple of ASHLAR_BLOCK_ALIGN */
    union {
        size_t requested;     /* live: the bytes asked for, 1 .. bytes; slot block freed while
                               * streams still use it: ASHLAR_SLOT_BLOCK_AWAITED; otherwise 0 */
        _Atomic size_t taken; /* the same word, read without a lock by requests that a plan serves:
                               * 0 if the slot is vacant */
    };
    ashlar_stream_state *stream_state; /* the stream it was taken for or freed on; NULL: a gap */
    unsigned char state;               /* an ashlar_block_state */
    unsigned char tag;                 /* live: an ashlar_tag */
    uint16_t list;       /* live: the index of its magazine in a thread's cache; free: of its bin */
    unsigned char marks; /* ASHLAR_BLOCK_SHARED, ... */
    union {
        ashlar_block *older; /* the next block in its magazine, or in its queue of cross-stream
                              * blocks; NULL at the end; in plan memory: the first slot block */
        ashlar_block *left;  /* free: left subtree in its bin's tree, whose blocks come before this
                              * one, see below; NULL: empty */
        uint32_t recorded;   /* live: index in ashlar_recording.blocks, if that entry points here */
    };
    union {
        ashlar_block *right; /* free: right subtree, whose blocks come after this one */
        uint64_t covered_by; /* cross-stream: the owner's recording behind the owner's last use;
                              * live, with guard=fill: the recording behind the fill of the red
                              * zone; freed for any stream: that free's number */
    };
    union {
        size_t holes;     /* free: unmapped handles that lie wholly in the gap */
        ashlar_use *uses; /* SHARED: one for each stream whose use is not known to be over */
    };
    union {
        ashlar_window *window;   /* const */
        const ashlar_slot *slot; /* slot block: the slot that it served last; NULL: the block is
                                    late, see plan.h */
    };
    ashlar_block *prev; /* address order, NULL at the window's ends */
    ashlar_block *next; /* spare node: the next spare one */
    ashlar_use own_use; /* the entry of `uses` for the stream of the free, kept here so that a free
                         * needs no host memory; its stream_state is NULL while it is in no list */
};

_Static_assert(sizeof(ashlar_block) == 14 * sizeof(size_t), "the most that a live block may cost");
_Static_assert(offsetof(ashlar_block, right) == 6 * sizeof(size_t), "a hit's words come first");

#define ASHLAR_SLOT_BLOCK_AWAITED SIZE_MAX

/* The requested bytes if the block is live; otherwise 0. */
static inline size_t ashlar__block_live_bytes(const ashlar_block *block) {
    return block->requested == ASHLAR_SLOT_BLOCK_AWAITED ? 0 : block->requested;
}

static inline bool ashlar__block_is_shared(const ashlar_block *block) {
    return (block->marks & ASHLAR_BLOCK_SHARED) != 0;
}

/* Whether a used block was freed, and waits for streams that may still use it: see heap.h. */
static inline bool ashlar__block_is_cross(const ashlar_block *block) {
    return block->state == ASHLAR_BLOCK_USED && ashlar__block_is_shared(block) &&
           ashlar__block_live_bytes(block) == 0 && block->uses != NULL;
}

static inline bool ashlar__block_is_of_slot(const ashlar_block *block) {
    return (block->marks & ASHLAR_BLOCK_OF_SLOT) != 0;
}

/*
 * ---- free blocks in the order of size and offset, found in few steps ----
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
enum {
    ASHLAR_LOG2_BINS = 5,
    ASHLAR_BINS_PER_GROUP = 1 << ASHLAR_LOG2_BINS,
    ASHLAR_BIN_GROUPS = 36, /* for blocks of less than 2^49 bytes, more than an address can reach */
    ASHLAR_BIN_COUNT = ASHLAR_BIN_GROUPS * ASHLAR_BINS_PER_GROUP,
};

/* A structure of zeros has empty bins. */
typedef struct ashlar_free_bins {
    uint64_t groups;
    uint32_t bins[ASHLAR_BIN_GROUPS];
    ashlar_block *roots[ASHLAR_BIN_COUNT];
} ashlar_free_bins;

_Static_assert(ASHLAR_BIN_GROUPS <= 64, "a group has a bit of `groups`");
_Static_assert(ASHLAR_BINS_PER_GROUP == 32, "a bin has a bit of its group's");
_Static_assert(ASHLAR_BIN_COUNT <= UINT16_MAX, "a bin's number fits ashlar_block.list");

/* The bin for a block of `bytes`: in group g it is 32 * s + (units >> s), with s = g - 1 for g >=
 * 1, and s = 0 for g = 0. Computed without a branch, which a processor could not predict. */
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

/* _insert_among, _remove_among: insert a block into a tree that has other blocks as well, or remove
 * it from such a tree. Expected O(log n). */
void ashlar__free_bins_insert_among(ashlar_block **root, ashlar_block *block);
void ashlar__free_bins_remove_among(ashlar_block **root, ashlar_block *block);

/* Put a free block, which is in no bin, into its bin. Cost: expected O(log(blocks of its bin)). */
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

/* Remove a block, whose size and offset are those of its insertion. Cost: as for inserting. */
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

/* (bytes, offset) as one 128-bit number: two pairs are compared without a branch. */
__extension__ typedef unsigned __int128 ashlar_bin_rank;

static inline ashlar_bin_rank ashlar__bin_rank(size_t bytes, size_t offset) {
    return (ashlar_bin_rank)bytes << 64 | offset;
}

/* Whether a block comes before (bytes, offset) in the order of the bins. */
static inline bool ashlar__block_is_before(const ashlar_block *block, size_t bytes, size_t offset) {
    return ashlar__bin_rank(block->bytes, block->offset) < ashlar__bin_rank(bytes, offset);
}

/* The first block of a tree that does not come before (bytes, offset); NULL: none. */
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

/* The smallest block of at least `bytes` > 0 bytes; among equal ones, the one with the lowest
 * offset. NULL if there is none. Cost: expected O(log n), for n blocks in one or two bins. */
static inline ashlar_block *ashlar__free_bins_best_fit(const ashlar_free_bins *bins, size_t bytes) {
    ASHLAR_CHECK2(bytes > 0);
    return ashlar__free_bins_find_from(bins, bytes, 0);
}

/* The first block after (bytes, offset) in the order; NULL if there is none. With a block's own
 * size and offset this is the next block; (0, 0) begins a walk. Blocks may come and go during a
 * walk. Cost: as ashlar__free_bins_best_fit(). */
ashlar_block *ashlar__free_bins_next(const ashlar_free_bins *bins, size_t bytes, size_t offset);

/* The last block before (bytes, offset); (SIZE_MAX, SIZE_MAX) begins a walk at the largest
 * block. */
ashlar_block *ashlar__free_bins_prev(const ashlar_free_bins *bins, size_t bytes, size_t offset);

static inline bool ashlar__free_bins_is_empty(const ashlar_free_bins *bins) {
    return bins->groups == 0;
}

/* The number of blocks in the bins. O(n log n), for checks. */
size_t ashlar__free_bins_count(const ashlar_free_bins *bins);

/* Whether a search finds `block` in its bin, and its `list`, its children and the path to it are
 * right. If this holds for all blocks, all invariants hold. Expected O(log n), for checks. */
bool ashlar__free_bins_has(const ashlar_free_bins *bins, const ashlar_block *block);

#endif /* ASHLAR_BLOCK_H */
