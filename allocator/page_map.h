/*
 * page_map.h - from the offset of a live block's first byte to the block (internal).
 *
 * Two levels: one pointer per 2 MiB of the range, and where live blocks start in those 2 MiB, a
 * leaf with one entry per 512 B. Host memory is spent where blocks start, not where they reach.
 *
 * Lock: the allocator's, for every function.
 */
#ifndef ASHLAR_PAGE_MAP_H
#define ASHLAR_PAGE_MAP_H

#include <ashlar/status.h>

#include "block.h"

typedef struct ashlar_page_map {
    ashlar_block ***leaves; /* leaf_count of them, each NULL or a leaf */
    size_t leaf_count;      /* const */
} ashlar_page_map;

ASHLAR_MUST_CHECK ashlar_status ashlar_page_map_init(ashlar_page_map *map, size_t range_bytes);
void ashlar_page_map_finish(ashlar_page_map *map);

/* Make room for a block that starts at `offset`. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar_page_map_reserve(ashlar_page_map *map, size_t offset);

/* Set (block) or clear (NULL) what starts at `offset`, for which there is room. */
void ashlar_page_map_set(ashlar_page_map *map, size_t offset, ashlar_block *block);

/* The live block that starts at `offset`, or NULL. Any offset inside the range. O(1). */
ashlar_block *ashlar_page_map_get(const ashlar_page_map *map, size_t offset);

/* How many blocks are set. O(size of the leaves), for checks. */
size_t ashlar_page_map_count(const ashlar_page_map *map);

#endif /* ASHLAR_PAGE_MAP_H */
