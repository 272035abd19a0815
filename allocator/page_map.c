#include "page_map.h"

#include "check_level.h"
#include "error.h"
#include "host.h"

ashlar_status ashlar_page_map_init(ashlar_page_map *map, size_t range_bytes) {
    const size_t count = (range_bytes + ASHLAR_LEAF_BYTES - 1) / ASHLAR_LEAF_BYTES;
    ashlar_page_leaf *leaves = ashlar_host_calloc(count, sizeof *leaves);
    if (leaves == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory for a page map of %zu entries", count);
    }
    *map = (ashlar_page_map){.leaves = leaves, .leaf_count = count, .used_from = count};
    return ASHLAR_OK;
}

void ashlar_page_map_finish(ashlar_page_map *map) {
    for (size_t i = map->used_from; i < map->used_to; i++) {
        ashlar_host_free(ashlar_page_map_leaf(map, i * ASHLAR_LEAF_BYTES));
    }
    ashlar_host_free(map->leaves);
}

ashlar_status ashlar_page_map_add_leaf(ashlar_page_map *map, size_t offset) {
    const size_t idx = offset / ASHLAR_LEAF_BYTES;
    ASHLAR_ASSERT(idx < map->leaf_count && ashlar_page_map_leaf(map, offset) == NULL);
    ashlar_page_entry *leaf = ashlar_host_calloc(ASHLAR_LEAF_ENTRIES, sizeof *leaf);
    if (leaf == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory for a leaf of the page map");
    }
    map->used_from = idx < map->used_from ? idx : map->used_from;
    map->used_to = idx >= map->used_to ? idx + 1 : map->used_to;
    atomic_store_explicit(&map->leaves[idx], leaf, memory_order_release);
    return ASHLAR_OK;
}

size_t ashlar_page_map_count(const ashlar_page_map *map) {
    size_t count = 0;
    for (size_t i = map->used_from; i < map->used_to; i++) {
        ashlar_page_entry *leaf = ashlar_page_map_leaf(map, i * ASHLAR_LEAF_BYTES);
        for (size_t k = 0; leaf != NULL && k < ASHLAR_LEAF_ENTRIES; k++) {
            count += atomic_load_explicit(&leaf[k], memory_order_relaxed) != NULL;
        }
    }
    return count;
}
