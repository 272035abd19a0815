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
    ASHLAR_BLOCK_FREE, /* in its stream's bins, or in the heap's idle ones */
    ASHLAR_BLOCK_USED, /* taken from the heap, and in the page map. Live if requested > 0; else a
                        * thread's cache keeps it, or some of its streams may not be done with it */
    ASHLAR_BLOCK_UNMAPPED,    /* a hole: addresses without memory */
    ASHLAR_BLOCK_PLAN_MEMORY, /* taken from the heap by plans. In its place the page map has its
                               * slot blocks: USED ones outside the heap's list; see plan_memory.h
                               */
} ashlar_block_state;

/* Bits of ashlar_block.marks. A thread's cache takes no block that has one of them. */
enum {
    ASHLAR_BLOCK_SHARED = 1,  /* live, and used on further streams: see shared.h */
    ASHLAR_BLOCK_OF_SLOT = 2, /* for good: it belongs to plan memory, and goes back there */
};

/*
 * A hit in a thread's cache reads and writes one cache line, which holds no other block: the blocks
 * beside this one may be other threads'. The second line is the heap's alone.
 *
 * Lock: the allocator's guards every field, except that the first line of a block that is handed
 * out, or in a thread's cache, is that thread's.
 */
struct ashlar_block {
    _Alignas(ASHLAR_CACHE_LINE) size_t offset; /* from the range's base, a multiple of
                                                  ASHLAR_BLOCK_ALIGN */
    size_t bytes;        /* > 0, a multiple of ASHLAR_BLOCK_ALIGN */
    union {
        size_t requested; /* live: bytes asked for, 1 .. bytes; else 0. Of a slot block that is
                           * freed, but that streams still use: ASHLAR_SLOT_BLOCK_AWAITED */
        _Atomic size_t taken; /* the same for hits on a plan, which ask only whether it is 0 */
    };
    ashlar_stream_state *stream_state; /* live: taken for; free: last used on, or NULL */
    unsigned char state; /* an ashlar_block_state */
    unsigned char tag;   /* live: an ashlar_tag */
    uint16_t list;       /* live: its list among a cache's magazines; free: its bin */
    unsigned char marks; /* ASHLAR_BLOCK_SHARED, ASHLAR_BLOCK_OF_SLOT */
    bool starts_segment; /* never merges with the block below it */
    ashlar_block *older; /* the next one in that list, NULL at its end; of plan memory: its first
                          * slot block */
    union {
        const ashlar_slot *slot; /* of a slot block: what it was last handed out as; NULL: late */
        uint32_t recorded;       /* of others: its number in a recording, if that knows the block */
    };
    _Alignas(ASHLAR_CACHE_LINE) ashlar_block **link; /* free: the pointer to it in its bin's list */
    union {
        uint64_t tick;    /* free: the stream's recordings at its last use */
        ashlar_use *uses; /* SHARED: one for each of its streams */
    };
    ashlar_block *prev; /* address order, NULL at the ends */
    ashlar_block *next; /* of a spare node: the next spare one */
};

_Static_assert(sizeof(ashlar_block) == (size_t)2 * ASHLAR_CACHE_LINE,
               "a hit's line, and the heap's");
_Static_assert(offsetof(ashlar_block, link) == ASHLAR_CACHE_LINE, "what a hit uses is one line");

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
