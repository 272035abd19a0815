/*
 * block.h - the blocks that the address range is cut into (internal).
 *
 * A free block bears a stamp of its last use: the state of the stream it was freed on, and that
 * stream's tick at the time. The use is past once an event recorded after the free has completed:
 *
 *     is_past(block) == (stream_state == NULL || stream_state->completed > tick)
 */
#ifndef ASHLAR_BLOCK_H
#define ASHLAR_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/compiler.h"

typedef struct ashlar_block ashlar_block;
typedef struct ashlar_stream_state ashlar_stream_state;
typedef struct ashlar_use ashlar_use;
typedef struct ashlar_slot ashlar_slot;

typedef enum ashlar_block_state {
    ASHLAR_BLOCK_FREE, /* in the bins of the stream it was last used on, or in the heap's `idle` */
    ASHLAR_BLOCK_USED, /* taken from the heap, and in the page map. The block is live if
                        * requested > 0; else a thread's cache or a guard's quarantine keeps it,
                        * or work on one of its streams may still use it */
    ASHLAR_BLOCK_UNMAPPED,    /* a hole: addresses without memory */
    ASHLAR_BLOCK_PLAN_MEMORY, /* taken from the heap as the memory of plans. The page map has its
                               * slot blocks instead of it; these are USED, and not in the heap's
                               * list: see plan_memory.h */
} ashlar_block_state;

/* Bits of ashlar_block.marks. A thread's cache takes no block that has one of them. */
enum {
    ASHLAR_BLOCK_SHARED = 1,  /* live, and used on more streams than its own: see shared.h */
    ASHLAR_BLOCK_OF_SLOT = 2, /* a slot block: it belongs to plan memory, never to the heap */
};

/*
 * A block has two cache lines of its own, since its neighbours in memory may be in use by other
 * threads. A hit in a thread's cache touches only the first line; the second is the heap's alone.
 *
 * Lock: the allocator's guards every field. Exception: while a block is in a thread's cache, or
 * handed out from it, the block's first line belongs to that thread.
 */
struct ashlar_block {
    _Alignas(ASHLAR_CACHE_LINE) size_t offset; /* from the range's base, a multiple of
                                                  ASHLAR_BLOCK_ALIGN */
    size_t bytes;        /* > 0, a multiple of ASHLAR_BLOCK_ALIGN */
    union {
        size_t requested; /* live: bytes asked for, 1 .. bytes; a slot block that was freed while
                           * streams still use it: ASHLAR_SLOT_BLOCK_AWAITED; any other: 0 */
        _Atomic size_t taken; /* `requested` as hits on a plan see it: is it 0 or not? */
    };
    ashlar_stream_state *stream_state; /* live: the stream it was taken for; free: the stream it
                                        * was last used on, or NULL if it is idle */
    unsigned char state; /* an ashlar_block_state */
    unsigned char tag;   /* live: an ashlar_tag */
    uint16_t list;       /* live: index of its list in a cache's magazines; free: of its bin */
    unsigned char marks; /* ASHLAR_BLOCK_SHARED, ASHLAR_BLOCK_OF_SLOT */
    bool starts_segment; /* never merges with the block below it */
    ashlar_block *older; /* the next block in the magazine or bin that `list` names, NULL at its
                          * end; in plan memory: the first slot block */
    union {
        const ashlar_slot *slot; /* in a slot block: the slot it was last handed out for; NULL:
                                  * the block is late, see plan.h */
        uint32_t recorded;       /* in any other: its index in ashlar_recording.blocks, if that
                                  * entry is this block */
    };
    _Alignas(ASHLAR_CACHE_LINE) ashlar_block **link; /* free: what points here in its bin */
    union {
        uint64_t tick;    /* free: recordings of stream_state when its last use ended */
        ashlar_use *uses; /* SHARED: one for each of its streams */
    };
    ashlar_block *prev; /* address order, NULL at the ends */
    ashlar_block *next; /* of a spare node: the next spare one */
};

_Static_assert(sizeof(ashlar_block) == (size_t)2 * ASHLAR_CACHE_LINE,
               "a hit's line, and the heap's");
_Static_assert(offsetof(ashlar_block, link) == ASHLAR_CACHE_LINE, "what a hit uses is one line");

#define ASHLAR_SLOT_BLOCK_AWAITED SIZE_MAX

/* The bytes asked for if the block is live; else 0. */
static inline size_t ashlar__block_live_bytes(const ashlar_block *block) {
    return block->requested == ASHLAR_SLOT_BLOCK_AWAITED ? 0 : block->requested;
}

static inline bool ashlar__block_is_shared(const ashlar_block *block) {
    return (block->marks & ASHLAR_BLOCK_SHARED) != 0;
}

static inline bool ashlar__block_is_of_slot(const ashlar_block *block) {
    return (block->marks & ASHLAR_BLOCK_OF_SLOT) != 0;
}

#endif /* ASHLAR_BLOCK_H */
