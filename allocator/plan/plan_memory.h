/*
 * plan_memory.h - the memory of the plans of one stream (internal).
 *
 * Plan memory is a block of the heap. For each offset at which a slot of a plan starts, there is a
 * slot block, which describes the block that is handed out there at present. The slot blocks stay
 * in the page map for good, so that handing out a slot need not change the map. The plans of a
 * stream share one plan memory, since only one step at a time uses it.
 *
 * The free of a shared slot's block vacates the slot block at once, although other streams may
 * still use the memory: that is safe, since a step hands out each such address only once. The uses
 * are noted in the plan memory's own block, one for each stream, whatever the number of blocks.
 * Before the next step begins, the memory's stream is made to wait for these uses. So a step costs
 * at most one event and one wait for each pair of streams.
 *
 * Invariants (ashlar__plan_memories_check_locked):
 *   block->state == ASHLAR_BLOCK_PLAN_MEMORY,  block->older == slot_blocks
 *   slot_blocks[i].offset < slot_blocks[i + 1].offset, all inside the block and in the page map
 *   taken slot blocks lie inside the block and do not overlap
 *   is_busy, or every taken slot block is on the late list
 *   late_count <= slot_block_count, since a slot block is on the late list at most once
 */
#ifndef ASHLAR_PLAN_MEMORY_H
#define ASHLAR_PLAN_MEMORY_H

#include "allocator/heap/heap.h"
#include "allocator/plan/plan.h"

typedef struct ashlar_plan_memory ashlar_plan_memory;

/* Lock: the allocator's. While a step uses the plan memory, `late` belongs to the step's thread. */
struct ashlar_plan_memory {
    ashlar_plan_memory *next;
    ashlar_stream_state *stream_state; /* the stream whose work uses it */
    ashlar_block *block;               /* the heap's, in state ASHLAR_BLOCK_PLAN_MEMORY */
    ashlar_block *slot_blocks;         /* [slot_block_count], linked by next */
    size_t slot_block_count;
    void *host_memory;   /* holds the slot blocks, from its first cache line on */
    ashlar_block **late; /* [late_count], room for every slot block: see plan.h; some may be freed
                          * by now */
    size_t late_count;
    uint64_t used_at; /* when its newest step began; on the same clock as a stream's `last_used` */
    bool is_busy;     /* a step uses it */
    bool is_unused;   /* no plan uses it: it goes as soon as it can end */
};

/* New plan memory with `count` > 0 slot blocks, not placed yet. NULL: no host memory. */
ashlar_plan_memory *ashlar__plan_memory_new(size_t count);

/* Place new plan memory in a used block of the heap, with slot blocks at `offsets`, in ascending
 * order. The block's stream becomes the plan memory's. Lock: held. */
ASHLAR_MUST_CHECK ashlar_status ashlar__plan_memory_place_locked(ashlar_plan_memory *memory,
                                                                 ashlar_heap *heap,
                                                                 ashlar_block *block,
                                                                 const size_t *offsets);

/*
 * Return the plan memory's block to the heap, and free the plan memory. Slot blocks that are live
 * become blocks of the heap where they lie, no larger than requested; the rest is free. No
 * step may be using the memory. Blocks that are away are no longer: where some are live beside
 * them, the memory's stream is made to wait for their uses. False: not now, since that stream
 * cannot wait or has the memory from another one, or there is no host memory; nothing is lost.
 * Lock: held, other threads shut out.
 */
bool ashlar__plan_memory_end_locked(ashlar_plan_memory *memory, ashlar_heap *heap);

/* Free the plan memory but not its block: for memory not placed, and at the allocator's end. */
void ashlar__plan_memory_free(ashlar_plan_memory *memory);

/* The slot block at `offset` in the plan memory. Requires that there is one. */
ashlar_block *ashlar__plan_memory_block_at(const ashlar_plan_memory *memory, size_t offset);

/*
 * Free a slot block of a step under way that streams other than the memory's own use. The uses,
 * including the one on the stream of the free, are noted for the next step. False: the block is
 * unchanged, since its slot is not shared or there is no host memory. Lock: held, other threads
 * shut out.
 */
bool ashlar__plan_memory_vacate_locked(ashlar_plan_memory *memory, ashlar_heap *heap,
                                       ashlar_block *slot_block, ashlar_stream_state *state);

/* Remove freed blocks from the late list. */
void ashlar__plan_memory_clean(ashlar_plan_memory *memory);

/* Free a slot block, so that its stream's later work may have it. Any thread. */
static inline void ashlar__slot_block_vacate(ashlar_block *slot_block) {
    ASHLAR_CHECK2(ashlar__block_is_of_slot(slot_block));
    /* Release: fields that were read here are overwritten when the slot block is reused. */
    atomic_store_explicit(&slot_block->taken, 0, memory_order_release);
}

/* Whether the slot block is live, or freed but still used by streams. */
static inline bool ashlar__slot_block_is_taken(const ashlar_block *slot_block) {
    return atomic_load_explicit(&slot_block->taken, memory_order_acquire) != 0;
}

/* Whether the slot block is freed but still used by streams. */
static inline bool ashlar__slot_block_is_awaited(const ashlar_block *slot_block) {
    return atomic_load_explicit(&slot_block->taken, memory_order_acquire) ==
           ASHLAR_SLOT_BLOCK_AWAITED;
}

/* The next block, for walks over all blocks: plan memory is followed by its taken slot blocks.
 * Lock: held, caches claimed. */
static inline ashlar_block *ashlar__block_after(const ashlar_block *block) {
    const ashlar_block *memory = ashlar__block_is_of_slot(block) ? block->prev : block;
    ashlar_block *slot_block = ashlar__block_is_of_slot(block)            ? block->next
                               : block->state == ASHLAR_BLOCK_PLAN_MEMORY ? block->older
                                                                          : NULL;
    while (slot_block != NULL && !ashlar__slot_block_is_taken(slot_block)) {
        slot_block = slot_block->next;
    }
    return slot_block != NULL ? slot_block : ashlar__heap_next(memory);
}

/* What the live slot blocks would take without slots. O(slot blocks). Lock: held, caches claimed.
 */
size_t ashlar__plan_memory_live_bytes(const ashlar_plan_memory *memory);

/* Bytes of plan memory outside taken slot blocks. O(slot blocks). Lock: held, caches claimed. */
size_t ashlar__plan_memories_idle_bytes(const ashlar_plan_memory *memories);

/* The number of slot blocks that are not taken. O(slot blocks). Lock: held, caches claimed. */
size_t ashlar__plan_memories_idle_blocks(const ashlar_plan_memory *memories);

/* Errors: ASHLAR_EFORMAT, naming the invariant that does not hold. Lock: held, caches claimed. */
ASHLAR_MUST_CHECK ashlar_status
ashlar__plan_memories_check_locked(const ashlar_plan_memory *memories, const ashlar_page_map *map);

#endif /* ASHLAR_PLAN_MEMORY_H */
