/*
 * plan_memory.h - the memory of the plans of one stream (internal).
 *
 * Plan memory is a block of the heap. It has a slot block for each offset at which a slot of a plan
 * starts: the descriptor of whatever block starts there at the time, known to the page map once and
 * for all, so that handing a slot out writes no index. Plans of one stream share one memory, for
 * one step at a time is in it.
 *
 * Invariants (ashlar__plan_memories_check_locked):
 *   the slot blocks are in order of their offsets, inside the plan memory's block, each in the page
 *   map live slot blocks do not overlap
 *   a slot block that is live while no step is in the plan memory is on its late list;  late_count
 *   <= slot_block_count, since each is there once
 */
#ifndef ASHLAR_PLAN_MEMORY_H
#define ASHLAR_PLAN_MEMORY_H

#include "allocator/heap/heap.h"
#include "allocator/plan/plan.h"

typedef struct ashlar_plan_memory ashlar_plan_memory;

/* Lock: the allocator's; `late` is that of the step that is in the plan memory, while there is one.
 *       */
struct ashlar_plan_memory {
    ashlar_plan_memory *next;
    ashlar_stream_state *stream_state; /* whose work uses it */
    ashlar_block *block;               /* the heap's, state REGION */
    ashlar_block *slot_blocks;         /* [slot_block_count], linked by next */
    size_t slot_block_count;
    void *host_memory;   /* host memory that the slot blocks lie in, from a cache line's start */
    ashlar_block **late; /* [late_count], room for every slot block: live, but not by the plan's
                          * time; some may have been freed since they were put here */
    size_t late_count;
    bool is_busy;   /* a step is in it */
    bool is_unused; /* no plan uses it: it goes when its last live block is freed */
};

/* a plan's memory with `count` slot blocks, in no memory yet. NULL: no host memory. */
ashlar_plan_memory *ashlar__region_new(size_t count);

/*
 * Have a new plan memory lie in a used block of the heap's and be its order's, with slot blocks at
 * `offsets`, different and in order. Lock: held. Errors: ASHLAR_EHOSTMEM; then nothing has changed.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__region_place_locked(ashlar_plan_memory *memory,
                                                            ashlar_heap *heap, ashlar_block *block,
                                                            const size_t *offsets);

/* Give its memory back to the heap. Requires that no slot block is live. Lock: held. */
void ashlar__plan_memory_destroy_locked(ashlar_heap *heap, ashlar_plan_memory *memory);

/* Forget it with the heap; the allocator ends. */
void ashlar__plan_memory_free(ashlar_plan_memory *memory);

/* The slot block at an offset of the plan memory's, which there is. */
ashlar_block *ashlar__plan_memory_block_at(const ashlar_plan_memory *memory, size_t offset);

/* Take what has been freed off the late list. */
void ashlar__plan_memory_clean(ashlar_plan_memory *memory);

/* Whether any slot block is live. Cost: O(late_count). Requires that no step is in it. */
bool ashlar__plan_memory_is_live(ashlar_plan_memory *memory);

/* Make `state` the one whose work uses the plan memory. Lock: held. */
void ashlar__plan_memory_rehome_locked(ashlar_plan_memory *memory, ashlar_stream_state *state);

/* A slot block's block is freed, and its stream's later work may have it. Any thread. */
static inline void ashlar__slot_block_vacate(ashlar_block *slot_block) {
    /* Release: whoever hands the slot block out again writes what was read here. */
    atomic_store_explicit(&slot_block->taken, 0, memory_order_release);
}

/* In use by the caller, or by streams after it was freed. */
static inline bool ashlar__slot_block_is_taken(const ashlar_block *slot_block) {
    return atomic_load_explicit(&slot_block->taken, memory_order_acquire) != 0;
}

/*
 * Every block there is, for walks: behind a plan's memory come those of its slot blocks that are
 * taken. Lock: held, caches claimed.
 */
static inline ashlar_block *ashlar__block_after(const ashlar_block *block) {
    const ashlar_block *memory = ashlar__block_is_of_slot(block) ? block->prev : block;
    ashlar_block *slot_block = ashlar__block_is_of_slot(block)            ? block->next
                               : block->state == ASHLAR_BLOCK_PLAN_MEMORY ? block->older
                                                                          : NULL;
    while (slot_block != NULL && !ashlar__slot_block_is_taken(slot_block)) {
        slot_block = slot_block->next;
    }
    return slot_block != NULL ? slot_block : memory->next;
}

/* Bytes of plan memories that no live or shared slot block has. O(slot blocks). Lock: held, caches
 * claimed. */
size_t ashlar__plan_memories_idle_bytes(const ashlar_plan_memory *memories);

/* Slot blocks that are not taken. O(slot blocks). Lock: held, caches claimed. */
size_t ashlar__plan_memories_idle_blocks(const ashlar_plan_memory *memories);

/* Errors: ASHLAR_EFORMAT, naming the invariant that does not hold. Lock: held, caches claimed. */
ASHLAR_MUST_CHECK ashlar_status
ashlar__plan_memories_check_locked(const ashlar_plan_memory *memories, const ashlar_page_map *map);

#endif /* ASHLAR_PLAN_MEMORY_H */
