/*
 * page_map.h - finding the block that starts at an offset (internal).
 *
 * Three levels: a pointer for each 32 MiB of the range; a leaf with an entry for each page of 64
 * KiB; and a table with an entry for each 512 B, for a page in which several blocks start or once
 * did. If only one block starts in a page, the page's entry is that block. Large blocks seldom
 * start in the same page, so their map is small and stays in the processor's caches.
 *
 * Threads: any thread may call ashlar__page_map_get() without a lock. The other functions are for
 * whoever may touch the zone that the page lies in; adding a leaf needs the allocator's lock, too.
 * What it returns stays true only for a block that the caller owns; for any other pointer it may be
 * out of date at once.
 *
 * Invariants:
 *   an entry that is a block: block->offset lies in the entry's page or, in a table, its 512 B
 *   leaves[i] != NULL  =>  used_from <= i < used_to <= leaf_count
 */
#ifndef ASHLAR_PAGE_MAP_H
#define ASHLAR_PAGE_MAP_H

#include <stdatomic.h>

#include <ashlar/base.h>

#include "allocator/heap/block.h"
#include "allocator/base/check_level.h"

#define ASHLAR_LEAF_BYTES ((size_t)32 << 20) /* of the range, covered by one leaf */
#define ASHLAR_PAGE_BYTES ((size_t)64 << 10) /* of the range, covered by one entry of a leaf */
#define ASHLAR_LEAF_ENTRIES (ASHLAR_LEAF_BYTES / ASHLAR_PAGE_BYTES)
#define ASHLAR_TABLE_ENTRIES (ASHLAR_PAGE_BYTES / ASHLAR_BLOCK_ALIGN)

/* 0, a block's address, or a table's address plus ASHLAR_PAGE_IS_TABLE. */
typedef _Atomic uintptr_t ashlar_page_entry;
typedef _Atomic(ashlar_page_entry *) ashlar_page_leaf;

enum { ASHLAR_PAGE_IS_TABLE = 1 };

_Static_assert(_Alignof(ashlar_block) > ASHLAR_PAGE_IS_TABLE, "no block's address has that bit");
_Static_assert(ASHLAR_LEAF_BYTES % ASHLAR_PAGE_BYTES == 0, "a leaf is whole pages");
_Static_assert(ASHLAR_PAGE_BYTES % ASHLAR_BLOCK_ALIGN == 0, "a table has every offset of its page");

typedef struct ashlar_page_map {
    ashlar_page_leaf *leaves; /* [leaf_count], each NULL or [ASHLAR_LEAF_ENTRIES]; const */
    size_t leaf_count;        /* const */
    size_t used_from;         /* leaves outside [used_from, used_to) are NULL, so a walk is short
                               * even if the range is the whole address space */
    size_t used_to;
} ashlar_page_map;

/* Make an empty map for offsets below `range_bytes`. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__page_map_init(ashlar_page_map *map, size_t range_bytes);
void ashlar__page_map_finish(ashlar_page_map *map);

/*
 * Make room for a block that starts at `offset`. Call ashlar__page_map_set() for this block before
 * making room for another one in the same page.
 *
 * Errors: ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__page_map_reserve(ashlar_page_map *map, size_t offset);

/* Whether there is a leaf for `offset`. If so, making room changes only the page, and needs no lock
 * unless another thread makes room in the same page. */
static inline bool ashlar__page_map_has_leaf(const ashlar_page_map *map, size_t offset) {
    return atomic_load_explicit(&map->leaves[offset / ASHLAR_LEAF_BYTES], memory_order_relaxed) !=
           NULL;
}

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

/* The entry for a block that is to start at `offset`: one of the page's table or, if the page has
 * no table and no block starts in it, the page's own entry. NULL: there is no room yet, or a block
 * starts at `offset` now. O(1). */
static inline ashlar_page_entry *ashlar__page_map_room(const ashlar_page_map *map, size_t offset) {
    ashlar_page_entry *leaf =
        atomic_load_explicit(&map->leaves[offset / ASHLAR_LEAF_BYTES], memory_order_relaxed);
    if (leaf == NULL) {
        return NULL;
    }
    ashlar_page_entry *at = leaf + ashlar__page_idx(offset);
    const uintptr_t entry = atomic_load_explicit(at, memory_order_relaxed);
    return (entry & ASHLAR_PAGE_IS_TABLE) != 0
               ? ashlar__page_table(entry) + ashlar__table_idx(offset)
           : entry == 0 ? at
                        : NULL;
}

/* Enter `block` as the one that starts at `offset`; NULL: none does. There must be room for it. */
static inline void ashlar__page_map_set(ashlar_page_map *map, size_t offset, ashlar_block *block) {
    ashlar_page_entry *leaf =
        atomic_load_explicit(&map->leaves[offset / ASHLAR_LEAF_BYTES], memory_order_relaxed);
    ASHLAR_CHECK2(leaf != NULL);
    ashlar_page_entry *at = leaf + ashlar__page_idx(offset);
    const uintptr_t entry = atomic_load_explicit(at, memory_order_relaxed);
    if ((entry & ASHLAR_PAGE_IS_TABLE) != 0) {
        at = ashlar__page_table(entry) + ashlar__table_idx(offset);
    } else {
        ASHLAR_CHECK2(entry == 0 || ((ashlar_block *)entry)->offset == offset);
    }
    atomic_store_explicit(at, (uintptr_t)block, memory_order_release);
}

/* The block that starts at `offset`, any offset in the range; NULL: none does. O(1). */
static inline ashlar_block *ashlar__page_map_get(const ashlar_page_map *map, size_t offset) {
    ASHLAR_CHECK2(offset / ASHLAR_LEAF_BYTES < map->leaf_count);
    /* Acquire: the caller sees what was written to the block before ashlar__page_map_set(). */
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

/* The number of blocks in the map. O(entries of all leaves and tables), for checks. */
size_t ashlar__page_map_count(const ashlar_page_map *map);

#endif /* ASHLAR_PAGE_MAP_H */
