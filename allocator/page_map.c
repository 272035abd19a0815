#include "page_map.h"

#include "check_level.h"
#include "error.h"
#include "host.h"
#include "size_class.h"

#define LEAF_BYTES ((size_t)2 << 20) /* of the range, covered by one leaf */
#define LEAF_ENTRIES (LEAF_BYTES / ASHLAR_BLOCK_ALIGN)

ashlar_status ashlar_page_map_init(ashlar_page_map *map, size_t range_bytes) {
    const size_t count = (range_bytes + LEAF_BYTES - 1) / LEAF_BYTES;
    ashlar_block ***leaves = ashlar_host_calloc(count, sizeof *leaves);
    if (leaves == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory for a page map of %zu entries", count);
    }
    *map = (ashlar_page_map){.leaves = leaves, .leaf_count = count};
    return ASHLAR_OK;
}

void ashlar_page_map_finish(ashlar_page_map *map) {
    for (size_t i = 0; i < map->leaf_count; i++) {
        ashlar_host_free(map->leaves[i]);
    }
    ashlar_host_free(map->leaves);
}

ashlar_status ashlar_page_map_reserve(ashlar_page_map *map, size_t offset) {
    ASHLAR_ASSERT(offset / LEAF_BYTES < map->leaf_count);
    ashlar_block ***leaf = &map->leaves[offset / LEAF_BYTES];
    if (*leaf == NULL) {
        *leaf = ashlar_host_calloc(LEAF_ENTRIES, sizeof **leaf);
    }
    return *leaf != NULL
               ? ASHLAR_OK
               : ashlar_fail(ASHLAR_EHOSTMEM, "no host memory for a leaf of the page map");
}

void ashlar_page_map_set(ashlar_page_map *map, size_t offset, ashlar_block *block) {
    ASHLAR_ASSERT(offset % ASHLAR_BLOCK_ALIGN == 0 && map->leaves[offset / LEAF_BYTES] != NULL);
    map->leaves[offset / LEAF_BYTES][offset % LEAF_BYTES / ASHLAR_BLOCK_ALIGN] = block;
}

ashlar_block *ashlar_page_map_get(const ashlar_page_map *map, size_t offset) {
    ashlar_block *const *leaf = map->leaves[offset / LEAF_BYTES];
    if (leaf == NULL || offset % ASHLAR_BLOCK_ALIGN != 0) {
        return NULL;
    }
    return leaf[offset % LEAF_BYTES / ASHLAR_BLOCK_ALIGN];
}

size_t ashlar_page_map_count(const ashlar_page_map *map) {
    size_t count = 0;
    for (size_t i = 0; i < map->leaf_count; i++) {
        for (size_t k = 0; map->leaves[i] != NULL && k < LEAF_ENTRIES; k++) {
            count += map->leaves[i][k] != NULL;
        }
    }
    return count;
}
