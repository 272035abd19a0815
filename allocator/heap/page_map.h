/*
 * page_map.h - from the offset of a block's first byte to the block (internal).
 *
 * Three levels: one pointer per 32 MiB of the range, a leaf with one entry per page of 64 KiB, and
 * where several blocks start in a page, or ever did, a table with one entry per 512 B. A page in
 * which one block starts has that block itself for its entry: so the map of large blocks, few of
 * which lie close together, is small and stays in the processor's caches.
 *
 * Threads: ashlar__page_map_get() any, without a lock, beside one thread in the other functions,
 * which the allocator's lock sees to. What it answers stays true only for a block that the caller
 * owns; for any other pointer it may be out of date at once.
 */
#ifndef ASHLAR_PAGE_MAP_H
#define ASHLAR_PAGE_MAP_H

#include <stdatomic.h>

#include <ashlar/status.h>

#include "allocator/heap/block.h"
#include "allocator/base/check_level.h"
#include "allocator/heap/size_class.h"

#define ASHLAR_LEAF_BYTES ((size_t)32 << 20) /* of the range, covered by one leaf */
#define ASHLAR_PAGE_BYTES ((size_t)64 << 10) /* covered by one entry of it */
#define ASHLAR_LEAF_ENTRIES (ASHLAR_LEAF_BYTES / ASHLAR_PAGE_BYTES)
#define ASHLAR_TABLE_ENTRIES (ASHLAR_PAGE_BYTES / ASHLAR_BLOCK_ALIGN)

/* A block, or a table: the address of its first byte and 1. Or 0. */
typedef _Atomic uintptr_t ashlar_page_entry;
typedef _Atomic(ashlar_page_entry *) ashlar_page_leaf;

enum { ASHLAR_PAGE_IS_TABLE = 1 };

typedef struct ashlar_page_map {
    ashlar_page_leaf *leaves; /* [leaf_count], each NULL or [ASHLAR_LEAF_ENTRIES]; const */
    size_t leaf_count;        /* const */
    size_t used_from;         /* leaves outside [used_from, used_to) are NULL: most of them, */
    size_t used_to;           /* where the range is all addresses that there are */
} ashlar_page_map;

/* range_bytes   offsets below it may be asked for. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__page_map_init(ashlar_page_map *map, size_t range_bytes);
void ashlar__page_map_finish(ashlar_page_map *map);

/*
 * Make room for a block that starts at `offset`. The next one that is set must be that one, or all
 * must be in different pages.
 *
 * Errors: ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__page_map_reserve(ashlar_page_map *map, size_t offset);

/* Make room for as many blocks as can start in the page of `offset`. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__page_map_reserve_page(ashlar_page_map *map, size_t offset);

static inline ashlar_page_entry *ashlar__page_table(uintptr_t entry) {
    return (ashlar_page_entry *)(entry - ASHLAR_PAGE_IS_TABLE);
}

static inline size_t ashlar__page_idx(size_t offset) {
    return offset % ASHLAR_LEAF_BYTES / ASHLAR_PAGE_BYTES;
}

static inline size_t ashlar__table_idx(size_t offset) {
    return offset % ASHLAR_PAGE_BYTES / ASHLAR_BLOCK_ALIGN;
}

/*
 * Set (block, which starts there) or clear (NULL) what starts at `offset`, for which there is room.
 */
static inline void ashlar__page_map_set(ashlar_page_map *map, size_t offset, ashlar_block *block) {
    ashlar_page_entry *at =
        atomic_load_explicit(&map->leaves[offset / ASHLAR_LEAF_BYTES], memory_order_relaxed) +
        ashlar__page_idx(offset);
    const uintptr_t entry = atomic_load_explicit(at, memory_order_relaxed);
    if ((entry & ASHLAR_PAGE_IS_TABLE) != 0) {
        at = ashlar__page_table(entry) + ashlar__table_idx(offset);
    } else {
        ASHLAR_ASSERT(entry == 0 || ((ashlar_block *)entry)->offset == offset);
    }
    atomic_store_explicit(at, (uintptr_t)block, memory_order_release);
}

/* The block that starts at `offset`, or NULL. Any offset inside the range. O(1). */
static inline ashlar_block *ashlar__page_map_get(const ashlar_page_map *map, size_t offset) {
    /* Acquire: the block's own fields were written before it was set. */
    ashlar_page_entry *leaf =
        atomic_load_explicit(&map->leaves[offset / ASHLAR_LEAF_BYTES], memory_order_acquire);
    if (leaf == NULL) {
        return NULL;
    }
    uintptr_t entry = atomic_load_explicit(&leaf[ashlar__page_idx(offset)], memory_order_acquire);
    if ((entry & ASHLAR_PAGE_IS_TABLE) != 0) {
        entry = atomic_load_explicit(&ashlar__page_table(entry)[ashlar__table_idx(offset)],
                                     memory_order_acquire);
    }
    ashlar_block *block = (ashlar_block *)entry;
    return block != NULL && block->offset == offset ? block : NULL;
}

/* How many blocks are set. O(size of the leaves), for checks. */
size_t ashlar__page_map_count(const ashlar_page_map *map);

#endif /* ASHLAR_PAGE_MAP_H */
