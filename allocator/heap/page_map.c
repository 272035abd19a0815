/* page_map.c - the leaves and tables of a page map: making, counting and returning them. */
#include "allocator/heap/page_map.h"

#include "allocator/base/error.h"
#include "allocator/base/host.h"

ashlar_status ashlar__page_map_init(ashlar_page_map *map, size_t range_bytes) {
    ASHLAR_CHECK2(range_bytes > 0);
    const size_t count = (range_bytes + ASHLAR_LEAF_BYTES - 1) / ASHLAR_LEAF_BYTES;
    ashlar_page_leaf *leaves = ashlar__host_calloc(count, sizeof *leaves);
    ASHLAR_FAIL_IF(leaves == NULL, ASHLAR_EHOSTMEM, "no host memory for a page map of %zu entries",
                   count);
    *map = (ashlar_page_map){.leaves = leaves, .leaf_count = count, .used_from = count};
    return ASHLAR_OK;
}

static ashlar_page_entry *leaf_at(const ashlar_page_map *map, size_t idx) {
    return atomic_load_explicit(&map->leaves[idx], memory_order_relaxed);
}

static bool is_table(uintptr_t entry) {
    return (entry & ASHLAR_PAGE_IS_TABLE) != 0;
}

void ashlar__page_map_finish(ashlar_page_map *map) {
    for (size_t i = map->used_from; i < map->used_to; i++) {
        ashlar_page_entry *leaf = leaf_at(map, i);
        for (size_t k = 0; leaf != NULL && k < ASHLAR_LEAF_ENTRIES; k++) {
            const uintptr_t entry = atomic_load_explicit(&leaf[k], memory_order_relaxed);
            if (is_table(entry)) {
                ashlar__host_free((void *)ashlar__page_table(entry));
            }
        }
        ashlar__host_free((void *)leaf);
    }
    ashlar__host_free((void *)map->leaves);
}

static ashlar_status add_leaf(ashlar_page_map *map, size_t idx) {
    ashlar_page_entry *leaf = ashlar__host_calloc(ASHLAR_LEAF_ENTRIES, sizeof *leaf);
    ASHLAR_FAIL_IF(leaf == NULL, ASHLAR_EHOSTMEM, "no host memory for a leaf of the page map");
    map->used_from = idx < map->used_from ? idx : map->used_from;
    map->used_to = idx >= map->used_to ? idx + 1 : map->used_to;
    ASHLAR_CHECK2(map->used_from <= idx && idx < map->used_to && map->used_to <= map->leaf_count);
    atomic_store_explicit(&map->leaves[idx], leaf, memory_order_release);
    return ASHLAR_OK;
}

/* The entry of the page of `offset`. Makes the leaf that holds it, if there is none yet. */
static ashlar_status entry_at(ashlar_page_map *map, size_t offset, ashlar_page_entry **out) {
    const size_t idx = offset / ASHLAR_LEAF_BYTES;
    ASHLAR_ASSERT(idx < map->leaf_count && offset % ASHLAR_BLOCK_ALIGN == 0);
    if (leaf_at(map, idx) == NULL) {
        ASHLAR_TRY(add_leaf(map, idx));
    }
    *out = leaf_at(map, idx) + ashlar__page_idx(offset);
    return ASHLAR_OK;
}

/* Give a page a table, for good, and move the block that starts in the page, if any, into it. */
static ashlar_status add_table(ashlar_page_entry *at) {
    const uintptr_t entry = atomic_load_explicit(at, memory_order_relaxed);
    ASHLAR_CHECK2(!is_table(entry));
    ashlar_page_entry *table = ashlar__host_calloc(ASHLAR_TABLE_ENTRIES, sizeof *table);
    ASHLAR_FAIL_IF(table == NULL, ASHLAR_EHOSTMEM, "no host memory for a table of the page map");
    if (entry != 0) {
        const ashlar_block *block = (const ashlar_block *)entry;
        atomic_store_explicit(&table[ashlar__table_idx(block->offset)], entry,
                              memory_order_relaxed);
    }
    ASHLAR_CHECK2(!is_table((uintptr_t)table));
    atomic_store_explicit(at, (uintptr_t)table + ASHLAR_PAGE_IS_TABLE, memory_order_release);
    return ASHLAR_OK;
}

ashlar_status ashlar__page_map_reserve(ashlar_page_map *map, size_t offset) {
    ashlar_page_entry *at = NULL;
    ASHLAR_TRY(entry_at(map, offset, &at));
    const uintptr_t entry = atomic_load_explicit(at, memory_order_relaxed);
    const bool has_room =
        entry == 0 || is_table(entry) || ((const ashlar_block *)entry)->offset == offset;
    return has_room ? ASHLAR_OK : add_table(at);
}

ashlar_status ashlar__page_map_reserve_page(ashlar_page_map *map, size_t offset) {
    ashlar_page_entry *at = NULL;
    ASHLAR_TRY(entry_at(map, offset, &at));
    return is_table(atomic_load_explicit(at, memory_order_relaxed)) ? ASHLAR_OK : add_table(at);
}

static size_t count_table(const ashlar_page_entry *table) {
    size_t count = 0;
    for (size_t i = 0; i < ASHLAR_TABLE_ENTRIES; i++) {
        count += atomic_load_explicit(&table[i], memory_order_relaxed) != 0;
    }
    return count;
}

size_t ashlar__page_map_count(const ashlar_page_map *map) {
    size_t count = 0;
    for (size_t i = map->used_from; i < map->used_to; i++) {
        const ashlar_page_entry *leaf = leaf_at(map, i);
        for (size_t k = 0; leaf != NULL && k < ASHLAR_LEAF_ENTRIES; k++) {
            const uintptr_t entry = atomic_load_explicit(&leaf[k], memory_order_relaxed);
            count += is_table(entry) ? count_table(ashlar__page_table(entry)) : entry != 0;
        }
    }
    return count;
}
