/*
 * region.h - the memory of the plans of one stream (internal).
 *
 * A region is a block of the heap. It has a seat for each offset at which a slot of a plan starts:
 * the descriptor of whatever block starts there at the time, known to the page map once and for
 * all, so that handing a slot out writes no index. Plans of one stream share its region, for one
 * step at a time is in it.
 *
 * Invariants (ashlar_regions_check_locked):
 *   the seats are in order of their offsets, inside the region's block, each in the page map
 *   live seats do not overlap
 *   a seat that is live while no step is in the region is on its late list;  late_count <=
 *   seat_count, since each is there once
 */
#ifndef ASHLAR_REGION_H
#define ASHLAR_REGION_H

#include "allocator/heap/heap.h"
#include "allocator/plan/plan.h"

typedef struct ashlar_plan_region ashlar_plan_region;

/* Lock: the allocator's; `late` is that of the step that is in the region, while there is one. */
struct ashlar_plan_region {
    ashlar_plan_region *next;
    ashlar_order *order; /* whose work uses it */
    ashlar_block *block; /* the heap's, state REGION */
    ashlar_block *seats; /* [seat_count], linked by next */
    size_t seat_count;
    void *seats_memory;  /* host memory that the seats lie in, from a cache line's start */
    ashlar_block **late; /* [late_count], room for every seat: live, but not by the plan's time;
                          * some may have been freed since they were put here */
    size_t late_count;
    bool is_busy;    /* a step is in it */
    bool is_retired; /* no plan uses it: it goes when its last live block is freed */
};

/* A region with `count` seats, in no memory yet. NULL: no host memory. */
ashlar_plan_region *ashlar_region_new(size_t count);

/*
 * Have a new region lie in a used block of the heap's and be its order's, with seats at `offsets`,
 * different and in order. Lock: held. Errors: ASHLAR_EHOSTMEM; then nothing has changed.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_region_place_locked(ashlar_plan_region *region,
                                                           ashlar_heap *heap, ashlar_block *block,
                                                           const size_t *offsets);

/* Give its memory back to the heap. Requires that no seat is live. Lock: held. */
void ashlar_region_destroy_locked(ashlar_heap *heap, ashlar_plan_region *region);

/* Forget it with the heap; the allocator ends. */
void ashlar_region_free(ashlar_plan_region *region);

/* The seat at an offset of the region's, which there is. */
ashlar_block *ashlar_region_seat(const ashlar_plan_region *region, size_t offset);

/* Take what has been freed off the late list. */
void ashlar_region_clean(ashlar_plan_region *region);

/* Whether any seat is live. Cost: O(late_count). Requires that no step is in it. */
bool ashlar_region_is_live(ashlar_plan_region *region);

/* Make `order` the one whose work uses the region. Lock: held. */
void ashlar_region_rehome_locked(ashlar_plan_region *region, ashlar_order *order);

/* A seat's block is freed, and its stream's later work may have it. Any thread. */
static inline void ashlar_seat_vacate(ashlar_block *seat) {
    /* Release: whoever hands the seat out again writes what was read here. */
    atomic_store_explicit(&seat->taken, 0, memory_order_release);
}

/* In use by the caller, or by streams after it was freed. */
static inline bool ashlar_seat_is_taken(const ashlar_block *seat) {
    return atomic_load_explicit(&seat->taken, memory_order_acquire) != 0;
}

/*
 * Every block there is, for walks: behind a region come those of its seats that are taken. Lock:
 * held, caches claimed.
 */
static inline ashlar_block *ashlar_block_after(const ashlar_block *block) {
    const ashlar_block *region = ashlar_block_is_seat(block) ? block->prev : block;
    ashlar_block *seat = ashlar_block_is_seat(block)           ? block->next
                         : block->state == ASHLAR_BLOCK_REGION ? block->older
                                                               : NULL;
    while (seat != NULL && !ashlar_seat_is_taken(seat)) {
        seat = seat->next;
    }
    return seat != NULL ? seat : region->next;
}

/* Bytes of regions that no live or shared seat has. O(seats). Lock: held, caches claimed. */
size_t ashlar_regions_idle_bytes(const ashlar_plan_region *regions);

/* Seats that are not taken. O(seats). Lock: held, caches claimed. */
size_t ashlar_regions_idle_seats(const ashlar_plan_region *regions);

/* Errors: ASHLAR_EFORMAT, naming the invariant that does not hold. Lock: held, caches claimed. */
ASHLAR_MUST_CHECK ashlar_status ashlar_regions_check_locked(const ashlar_plan_region *regions,
                                                            const ashlar_page_map *map);

#endif /* ASHLAR_REGION_H */
