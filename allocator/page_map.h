/*
 * page_map.h - from the offset of a block's first byte to the block (internal).
 *
 * Two levels: one pointer per 32 MiB of the range, and where blocks start in those 32 MiB, a leaf
 * with one entry per 512 B. Both are zeroed memory straight from the host, which backs it only
 * where something is written: host memory is spent where blocks start, not where they reach.
 *
 * Threads: ashlar_page_map_get() any, without a lock, beside one thread in the other functions,
 * which the allocator's lock sees to. What it answers stays true only for a block that the caller
 * owns; for any other pointer it may be out of date at once.
 */
#ifndef ASHLAR_PAGE_MAP_H
#define ASHLAR_PAGE_MAP_H

#include <stdatomic.h>

#include <ashlar/status.h>

#include "block.h"
#include "check_level.h"
#include "size_class.h"

#define ASHLAR_LEAF_BYTES ((size_t)32 << 20) /* of the range, covered by one leaf */
#define ASHLAR_LEAF_ENTRIES (ASHLAR_LEAF_BYTES / ASHLAR_BLOCK_ALIGN)

typedef _Atomic(ashlar_block *) ashlar_page_entry;
typedef _Atomic(ashlar_page_entry *) ashlar_page_leaf;

typedef struct ashlar_page_map {
    ashlar_page_leaf *leaves; /* [leaf_count], each NULL or [ASHLAR_LEAF_ENTRIES]; const */
    size_t leaf_count;        /* const */
    size_t used_from;         /* leaves outside [used_from, used_to) are NULL: most of them, */
    size_t used_to;           /* where the range is all addresses that there are */
} ashlar_page_map;

/* range_bytes   offsets below it may be asked for. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar_page_map_init(ashlar_page_map *map, size_t range_bytes);
void ashlar_page_map_finish(ashlar_page_map *map);

/* For whoever writes to the map: what covers `offset`, or NULL. */
static inline ashlar_page_entry *ashlar_page_map_leaf(const ashlar_page_map *map, size_t offset) {
    return atomic_load_explicit(&map->leaves[offset / ASHLAR_LEAF_BYTES], memory_order_relaxed);
}

/* Requires that no leaf covers `offset`. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar_page_map_add_leaf(ashlar_page_map *map, size_t offset);

/* Make room for a block that starts at `offset`. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK static inline ashlar_status ashlar_page_map_reserve(ashlar_page_map *map,
                                                                      size_t offset) {
    return ashlar_page_map_leaf(map, offset) != NULL ? ASHLAR_OK
                                                     : ashlar_page_map_add_leaf(map, offset);
}

/* Set (block) or clear (NULL) what starts at `offset`, for which there is room. */
static inline void ashlar_page_map_set(ashlar_page_map *map, size_t offset, ashlar_block *block) {
    ashlar_page_entry *leaf = ashlar_page_map_leaf(map, offset);
    ASHLAR_ASSERT(offset % ASHLAR_BLOCK_ALIGN == 0 && leaf != NULL);
    atomic_store_explicit(&leaf[offset % ASHLAR_LEAF_BYTES / ASHLAR_BLOCK_ALIGN], block,
                          memory_order_release);
}

/* The block that starts at `offset`, or NULL. Any offset inside the range. O(1). */
static inline ashlar_block *ashlar_page_map_get(const ashlar_page_map *map, size_t offset) {
    /* Acquire: the block's own fields were written before it was set. */
    ashlar_page_entry *leaf =
        atomic_load_explicit(&map->leaves[offset / ASHLAR_LEAF_BYTES], memory_order_acquire);
    if (leaf == NULL || offset % ASHLAR_BLOCK_ALIGN != 0) {
        return NULL;
    }
    return atomic_load_explicit(&leaf[offset % ASHLAR_LEAF_BYTES / ASHLAR_BLOCK_ALIGN],
                                memory_order_acquire);
}

/* How many blocks are set. O(size of the leaves), for checks. */
size_t ashlar_page_map_count(const ashlar_page_map *map);

#endif /* ASHLAR_PAGE_MAP_H */
