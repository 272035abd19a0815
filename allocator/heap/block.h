/*
 * block.h - the blocks that a window of addresses (zone.h) is cut into (internal).
 */
#ifndef ASHLAR_BLOCK_H
#define ASHLAR_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/compiler.h"

typedef struct ashlar_block ashlar_block;
typedef struct ashlar_stream_state ashlar_stream_state;
typedef struct ashlar_window ashlar_window;
typedef struct ashlar_slot ashlar_slot;

typedef enum ashlar_block_state {
    ASHLAR_BLOCK_FREE, /* a gap between used blocks, with or without memory behind its addresses;
                        * in the bins of its window's zone */
    ASHLAR_BLOCK_USED, /* taken from the heap, and in the page map. The block is live if requested >
                        * 0; otherwise a thread's cache or a guard's quarantine keeps it, or it is
                        * away */
    ASHLAR_BLOCK_PLAN_MEMORY, /* taken from the heap as the memory of plans. The page map has its
                               * slot blocks instead; these are USED, but not in the heap's list:
                               * see planner.h */
} ashlar_block_state;

/* Bits of ashlar_block.marks. A thread's cache accepts no block that has one of them. */
enum {
    ASHLAR_BLOCK_SHARED = 1,   /* used on several streams, or away: see away.h. Plan memory: several
                                * streams used blocks of its newest step */
    ASHLAR_BLOCK_OF_SLOT = 2,  /* a slot block: it belongs to plan memory, never to the heap */
    ASHLAR_BLOCK_BORROWED = 4, /* taken for a stream other than its zone's */
};

/* One stream's use of a block that other streams use as well. Lock: the allocator's. */
typedef struct ashlar_use ashlar_use;
struct ashlar_use {
    ashlar_use *next;
    ashlar_stream_state *stream_state;
    uint64_t tick; /* ashlar__stream_state_stamp() at the free; unused before */
};

/*
 * The node of a block. A hit in a thread's cache touches only its first six words. A zone takes
 * nodes in whole cache lines, so zones share no cache line while their nodes are new.
 *
 * Whoever may touch the block's zone may touch every field. Exception: while a block is in a
 * thread's cache, or handed out from it, the block's first six words belong to that thread.
 */
struct ashlar_block {
    _Alignas(16) size_t offset; /* from the range's base, a multiple of ASHLAR_BLOCK_ALIGN */
    size_t bytes;               /* > 0, a multiple of ASHLAR_BLOCK_ALIGN */
    union {
        size_t requested; /* live: bytes asked for, 1 .. bytes; slot block freed while streams still
                           * use it: ASHLAR_SLOT_BLOCK_AWAITED; otherwise 0 */
        _Atomic size_t taken; /* `requested` as hits on a plan read it: they ask whether it is 0 */
    };
    ashlar_stream_state *stream_state; /* used: the stream that it was taken for or freed on */
    unsigned char state;               /* an ashlar_block_state */
    unsigned char tag;                 /* live: an ashlar_tag */
    uint16_t list;       /* live: index of its list in a cache's magazines; free: of its bin */
    unsigned char marks; /* ASHLAR_BLOCK_SHARED, ... */
    union {
        ashlar_block *older; /* the next block in its magazine, or in its queue of blocks away; NULL
                              * at the end; in plan memory: the first slot block */
        ashlar_block *left;  /* free: left subtree in its bin's tree, whose blocks come before this
                              * one, see free_bins.h; NULL: empty */
        uint32_t recorded; /* live: index in ashlar_recording.blocks, if that entry is this block */
    };
    union {
        ashlar_block *right; /* free: right subtree, whose blocks come after this one */
        uint64_t covered_by; /* away: as ashlar_backing.covered_by, for the use by its home; live,
                              * with guard=fill: see ashlar__guard_fill_take_locked(); deferred:
                              * the number of its free */
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
    ashlar_use own_use; /* node of `uses` for the stream of the free, so that a free needs no
                         * memory; not in the list if its stream_state is NULL */
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

/* Whether a used block was freed, and waits for streams that may still use it: see away.h. */
static inline bool ashlar__block_is_away(const ashlar_block *block) {
    return block->state == ASHLAR_BLOCK_USED && ashlar__block_is_shared(block) &&
           ashlar__block_live_bytes(block) == 0 && block->uses != NULL;
}

static inline bool ashlar__block_is_of_slot(const ashlar_block *block) {
    return (block->marks & ASHLAR_BLOCK_OF_SLOT) != 0;
}

#endif /* ASHLAR_BLOCK_H */
