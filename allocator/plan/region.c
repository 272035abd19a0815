#include "allocator/plan/region.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

/* ---- making ---- */

void ashlar_region_free(ashlar_plan_region *region) {
    if (region != NULL) {
        ashlar_host_free(region->seats_memory);
        ashlar_host_free((void *)region->late);
        ashlar_host_free(region);
    }
}

ashlar_plan_region *ashlar_region_new(size_t count) {
    ashlar_plan_region *region = ashlar_host_calloc(1, sizeof *region);
    if (region == NULL) {
        return NULL;
    }
    region->seat_count = count;
    region->late = ashlar_host_calloc(count, sizeof(ashlar_block *));
    region->seats_memory = ashlar_host_calloc(count + 1, sizeof(ashlar_block));
    if (region->late == NULL || region->seats_memory == NULL) {
        ashlar_region_free(region);
        return NULL;
    }
    const uintptr_t start = (uintptr_t)region->seats_memory;
    region->seats =
        (ashlar_block *)((start + ASHLAR_CACHE_LINE - 1) / ASHLAR_CACHE_LINE * ASHLAR_CACHE_LINE);
    return region;
}

/* What can fail about the page map, before anything is changed. A seat alone needs no table. */
static ashlar_status reserve_map(ashlar_page_map *map, const ashlar_block *block,
                                 const size_t *offsets, size_t count) {
    ashlar_status status = ASHLAR_OK;
    size_t last_page = SIZE_MAX;
    for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
        const size_t at = block->offset + offsets[i], page = at / ASHLAR_PAGE_BYTES;
        status = page == last_page ? ashlar_page_map_reserve_page(map, at)
                                   : ashlar_page_map_reserve(map, at);
        last_page = page;
    }
    return status;
}

static void seat(ashlar_page_map *map, ashlar_plan_region *region, const size_t *offsets) {
    ashlar_block *block = region->block;
    block->state = ASHLAR_BLOCK_REGION;
    block->requested = 0;
    block->older = region->seats;
    ashlar_page_map_set(map, block->offset, NULL);
    for (size_t i = 0; i < region->seat_count; i++) {
        ashlar_block *s = &region->seats[i];
        s->offset = block->offset + offsets[i];
        s->bytes = ASHLAR_BLOCK_ALIGN;
        s->order = region->order;
        s->state = ASHLAR_BLOCK_USED;
        s->marks = ASHLAR_BLOCK_SEAT;
        s->prev = block;
        s->next = i + 1 < region->seat_count ? s + 1 : NULL;
        ashlar_page_map_set(map, s->offset, s);
    }
}

ashlar_status ashlar_region_place_locked(ashlar_plan_region *region, ashlar_heap *heap,
                                         ashlar_block *block, const size_t *offsets) {
    const ashlar_status status = reserve_map(&heap->map, block, offsets, region->seat_count);
    if (status == ASHLAR_OK) {
        region->block = block;
        region->order = block->order;
        seat(&heap->map, region, offsets);
    }
    return status;
}

void ashlar_region_destroy_locked(ashlar_heap *heap, ashlar_plan_region *region) {
    for (size_t i = 0; i < region->seat_count; i++) {
        ASHLAR_ASSERT(!ashlar_seat_is_taken(&region->seats[i]));
        ashlar_page_map_set(&heap->map, region->seats[i].offset, NULL);
    }
    region->block->state = ASHLAR_BLOCK_USED;
    ashlar_release_block_locked(heap, region->block, region->order);
    ashlar_region_free(region);
}

void ashlar_region_rehome_locked(ashlar_plan_region *region, ashlar_order *order) {
    region->order = order;
    region->block->order = order;
    for (size_t i = 0; i < region->seat_count; i++) {
        region->seats[i].order = order;
    }
}

/* ---- asking ---- */

ashlar_block *ashlar_region_seat(const ashlar_plan_region *region, size_t offset) {
    const size_t wanted = region->block->offset + offset;
    size_t low = 0, high = region->seat_count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        *(region->seats[middle].offset <= wanted ? &low : &high) = middle;
    }
    ASHLAR_ASSERT(region->seats[low].offset == wanted);
    return &region->seats[low];
}

void ashlar_region_clean(ashlar_plan_region *region) {
    size_t kept = 0;
    for (size_t i = 0; i < region->late_count; i++) {
        if (ashlar_seat_is_taken(region->late[i])) {
            region->late[kept++] = region->late[i];
        }
    }
    region->late_count = kept;
}

bool ashlar_region_is_live(ashlar_plan_region *region) {
    ashlar_region_clean(region);
    return region->late_count > 0;
}

/* While no step is in it, what is taken is late: there may be far more seats than that. */
static size_t taken_bytes(const ashlar_plan_region *region) {
    size_t bytes = 0;
    for (size_t i = 0; i < region->late_count && !region->is_busy; i++) {
        bytes += ashlar_seat_is_taken(region->late[i]) ? region->late[i]->bytes : 0;
    }
    for (size_t i = 0; i < region->seat_count && region->is_busy; i++) {
        bytes += ashlar_seat_is_taken(&region->seats[i]) ? region->seats[i].bytes : 0;
    }
    return bytes;
}

size_t ashlar_regions_idle_bytes(const ashlar_plan_region *regions) {
    size_t bytes = 0;
    for (const ashlar_plan_region *region = regions; region != NULL; region = region->next) {
        bytes += region->block->bytes - taken_bytes(region);
    }
    return bytes;
}

size_t ashlar_regions_idle_seats(const ashlar_plan_region *regions) {
    size_t count = 0;
    for (const ashlar_plan_region *region = regions; region != NULL; region = region->next) {
        for (size_t i = 0; i < region->seat_count; i++) {
            count += !ashlar_seat_is_taken(&region->seats[i]);
        }
    }
    return count;
}

/* ---- checks ---- */

static ashlar_status broken(const ashlar_block *seat, const char *what) {
    return ashlar_fail(ASHLAR_EFORMAT, "region check: seat at offset %zu: %s", seat->offset, what);
}

static bool is_late(const ashlar_plan_region *region, const ashlar_block *seat) {
    size_t i = 0;
    while (i < region->late_count && region->late[i] != seat) {
        i++;
    }
    return i < region->late_count;
}

static ashlar_status check_seat(const ashlar_page_map *map, const ashlar_plan_region *region,
                                const ashlar_block *seat, size_t begin, size_t *end) {
    const ashlar_block *block = region->block;
    if (seat->offset < begin || seat->offset >= block->offset + block->bytes) {
        return broken(seat, "not in order, or outside its region");
    }
    if (ashlar_page_map_get(map, seat->offset) != seat) {
        return broken(seat, "not in the page map");
    }
    if (!ashlar_seat_is_taken(seat)) {
        return ASHLAR_OK;
    }
    if (seat->offset < *end) {
        return broken(seat, "live, as is one that reaches into it");
    }
    *end = seat->offset + seat->bytes;
    if (*end > block->offset + block->bytes || ashlar_block_live_bytes(seat) > seat->bytes) {
        return broken(seat, "larger than its region, or than its block");
    }
    return region->is_busy || is_late(region, seat) ? ASHLAR_OK
                                                    : broken(seat, "live, but not known to be");
}

static ashlar_status check_region(const ashlar_page_map *map, const ashlar_plan_region *region) {
    ashlar_status status = region->block->state == ASHLAR_BLOCK_REGION
                               ? ASHLAR_OK
                               : broken(region->block, "the heap's block is no region");
    if (status == ASHLAR_OK && region->late_count > region->seat_count) {
        status = broken(region->block, "more late blocks than seats");
    }
    size_t end = 0, begin = region->block->offset;
    for (size_t i = 0; i < region->seat_count && status == ASHLAR_OK; i++) {
        status = check_seat(map, region, &region->seats[i], begin, &end);
        begin = region->seats[i].offset + ASHLAR_BLOCK_ALIGN;
    }
    return status;
}

ashlar_status ashlar_regions_check_locked(const ashlar_plan_region *regions,
                                          const ashlar_page_map *map) {
    ashlar_status status = ASHLAR_OK;
    for (const ashlar_plan_region *region = regions; region != NULL && status == ASHLAR_OK;
         region = region->next) {
        status = check_region(map, region);
    }
    return status;
}
