/*
 * block.h - the blocks that the address range is cut into (internal).
 *
 * A free block is stamped with its last user: the state of the stream it was freed on, and that
 * stream's tick then. Its last use is past once an event recorded after the free has completed:
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
    ASHLAR_BLOCK_FREE,     /* in its stream's bins, or in the heap's idle ones */
    ASHLAR_BLOCK_USED,     /* taken from the heap; in the page map: live if requested > 0, else kept
                            * by a thread's cache, or because not all its streams may be done */
    ASHLAR_BLOCK_UNMAPPED, /* a hole: addresses without memory */
    ASHLAR_BLOCK_PLAN_MEMORY, /* taken from the heap by plans: instead of it, the page map has its
                            * slot blocks, which are USED blocks outside the heap's list; see
                            * plan_memory.h */
} ashlar_block_state;

/* What makes a block unfit for a thread's cache: bits of ashlar_block.marks. */
enum {
    ASHLAR_BLOCK_SHARED = 1, /* live: used on further streams, see shared.h */
    ASHLAR_BLOCK_OF_SLOT = 2, /* always: of plan memory, which has it back when it is freed */
};

/*
 * What a hit in a thread's cache reads and writes is one cache line, of this block alone: the
 * blocks beside it may be other threads' ones. What only the heap uses is the next line.
 *
 * Lock: the allocator's guards every field; of a block that is handed out or in a thread's cache,
 * the first line is the thread's.
 */
struct ashlar_block {
    _Alignas(ASHLAR_CACHE_LINE) size_t offset; /* from the range's base, a multiple of
                                                  ASHLAR_BLOCK_ALIGN */
    size_t bytes;        /* > 0, a multiple of ASHLAR_BLOCK_ALIGN */
    union {
        size_t
            requested; /* live: bytes asked for, 1 .. bytes; otherwise 0, but for a slot block that
                           * was freed and that streams still use: ASHLAR_SLOT_BLOCK_AWAITED */
        _Atomic size_t taken; /* the same, as hits on a plan write and read it: not 0 */
    };
    ashlar_stream_state *stream_state; /* live: taken for; free: last used on, or NULL */
    unsigned char state; /* an ashlar_block_state */
    unsigned char tag;   /* live: an ashlar_tag */
    uint16_t list;       /* live: the list it has in a cache's magazines; free: its bin */
    unsigned char marks; /* ASHLAR_BLOCK_SHARED, ASHLAR_BLOCK_OF_SLOT */
    bool starts_segment; /* never merges with the block below it */
    ashlar_block *older; /* free: the list of its bin; live: that of a cache; NULL at the end;
                            of plan memory: its first slot block */
    union {
        const ashlar_slot *slot; /* of a slot block: last handed out as; NULL: late */
        uint32_t recorded;       /* of others: its number in a recording that says the same */
    };
    _Alignas(ASHLAR_CACHE_LINE) ashlar_block **link; /* free: what in that list points to it */
    union {
        uint64_t tick;    /* free: state->recorded at that use */
        ashlar_use *uses; /* SHARED: one for each of its streams */
    };
    ashlar_block *prev;  /* address order, NULL at the ends */
    ashlar_block *next;  /* and the list of spare nodes */
};

_Static_assert(sizeof(ashlar_block) == (size_t)2 * ASHLAR_CACHE_LINE, "two lines");

#define ASHLAR_SLOT_BLOCK_AWAITED SIZE_MAX

/* Bytes asked for by whoever has the block now; 0: nobody. */
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
