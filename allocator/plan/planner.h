/* planner.h - what an allocator knows of a program's steps: keys (one for each kind of step), their
 * plans, and the memories in which the plans have their slots (internal). */
#ifndef ASHLAR_PLANNER_H
#define ASHLAR_PLANNER_H

#include "allocator/heap/heap.h"
#include "allocator/plan/plan.h"

/* ---- plan memories ---- */

/*
 * Plan memory is a block of the heap. For each offset at which a slot of a plan starts, there is a
 * slot block, which describes the block that is handed out there at present. The slot blocks stay
 * in the page map for good, so that handing out a slot need not change the map. The plans of a
 * stream share one plan memory, since only one step at a time uses it.
 *
 * Freeing the block of a shared slot vacates the slot block at once, although other streams may
 * still use the memory: that is safe, since a step hands out each such address only once. The uses
 * are noted in the plan memory's own block, the latest of each stream for all slot blocks together.
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
typedef struct ashlar_plan_memory ashlar_plan_memory;

/* Lock: the allocator's. While a step uses the plan memory, `late` belongs to the step's thread. */
struct ashlar_plan_memory {
    ashlar_plan_memory *next;
    ashlar_stream_state *stream_state; /* the stream whose requests it serves */
    ashlar_block *block;               /* the block of the heap that it lies in */
    ashlar_block *slot_blocks;         /* [slot_block_count], linked by next */
    size_t slot_block_count;
    void *host_memory;   /* holds the slot blocks, from its first cache line on */
    ashlar_block **late; /* [late_count], slot blocks that outlived their slots (plan.h), some of
                          * them freed by now; has room for every slot block */
    size_t late_count;
    uint64_t used_at; /* when its newest step began; on the same clock as a stream's `last_used` */
    bool is_busy;     /* a step uses it */
    bool is_unused;   /* no plan uses it: it is returned to the heap as soon as that is possible */
};

/* New plan memory with `count` > 0 slot blocks, not yet in the heap. NULL: no host memory. */
ashlar_plan_memory *ashlar__plan_memory_new(size_t count);

/* Place new plan memory in a used block of the heap, with slot blocks at `offsets`, in ascending
 * order. The block's stream becomes the plan memory's. Lock: held. */
ASHLAR_MUST_CHECK ashlar_status ashlar__plan_memory_place_locked(ashlar_plan_memory *memory,
                                                                 ashlar_heap *heap,
                                                                 ashlar_block *block,
                                                                 const size_t *offsets);

/*
 * Return the plan memory's block to the heap, and free the plan memory. Slot blocks that are live
 * become blocks of the heap where they lie, no larger than requested; the rest is free. No step may
 * be using the memory. The plan memory's block waits for streams that may still use freed slot
 * blocks; but if some slot blocks are live, the memory's stream is made to wait for these uses at
 * once. False: nothing has changed, since that stream cannot wait, or the block lies in another
 * stream's zone, or there is no host memory. Lock: held, caches taken over.
 */
bool ashlar__plan_memory_end_locked(ashlar_plan_memory *memory, ashlar_heap *heap);

/* Free the structure but not its block: for memory not in the heap, and at the allocator's end. */
void ashlar__plan_memory_free(ashlar_plan_memory *memory);

/* The slot block at `offset` in the plan memory. Requires that there is one. */
ashlar_block *ashlar__plan_memory_block_at(const ashlar_plan_memory *memory, size_t offset);

/*
 * Free a slot block, of a step under way, that streams other than the memory's own use. These uses,
 * including the one on the stream of the free, are noted for the next step. False: the block is
 * unchanged, since its slot is not shared or there is no host memory. Lock: held, caches taken
 * over.
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
 * Lock: held, caches taken over. */
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

/* The bytes that the live slot blocks would take as blocks of the heap. O(slot blocks). Lock: held,
 * caches taken over. */
size_t ashlar__plan_memory_live_bytes(const ashlar_plan_memory *memory);

/* Bytes of plan memory outside taken slot blocks. O(slot blocks). Lock: held, caches taken over. */
size_t ashlar__plan_memories_idle_bytes(const ashlar_plan_memory *memories);

/* The number of slot blocks that are not taken. O(slot blocks). Lock: held, caches taken over. */
size_t ashlar__plan_memories_idle_blocks(const ashlar_plan_memory *memories);

/* Check the invariants of all plan memories. Lock: held, caches taken over. Errors: ASHLAR_EFORMAT,
 * naming the invariant that does not hold. */
ASHLAR_MUST_CHECK ashlar_status
ashlar__plan_memories_check_locked(const ashlar_plan_memory *memories, const ashlar_page_map *map);

/* ---- keys ---- */

/*
 * The steps of one key on one stream. A key stands for a range of the numbers that programs give to
 * ashlar_step_begin(). Lock: the allocator's.
 *
 * Invariants: replay_count > 0  =>  plan != NULL;  no two keys of a stream share a number
 */
typedef struct ashlar_step_key ashlar_step_key;
struct ashlar_step_key {
    ashlar_step_key *next;
    uint64_t key;                      /* the first of its numbers */
    uint64_t number_count;             /* how many numbers in a row it stands for */
    ashlar_stream_state *stream_state; /* the stream on which the steps begin */
    ashlar_recording recording; /* of the steps recorded so far: the largest, if its slots serve the
                                 * others, too, else all of them merged; empty if there are none */
    uint32_t step_count;        /* how many steps were recorded */
    size_t reserved_bytes;      /* the most that the allocator reserved when a recorded step ended;
                                 * SIZE_MAX: one was a dry run, which takes no memory */
    ashlar_plan *plan;          /* NULL: none; each planned slot has a slot block, unless the plan
                                 * lacks memory (see ashlar__planner_lacks_memory()) */
    size_t replay_count;        /* steps that replay the plan now */
    bool is_current;            /* `recording` was planned as it is; if plan is NULL nevertheless,
                                 * there was no memory for the plan */
    bool is_busy;               /* a step is recorded or planned, partly without the lock */
    bool is_wanted;             /* record the next step although there is a plan */
    bool is_retired;            /* its plan is freed as soon as no step replays it */
    bool is_stale;              /* like is_wanted, but also discard the present recording */
    bool is_ordinary; /* a warm-up without plans made the key, or its plan was given up: its steps
                       * are recorded only on request */
    bool is_warmed;             /* a warm-up made the key; its options.key is in warmup_key */
    uint64_t warmup_key;
    bool has_apart;             /* merging a recorded step would have cost memory: plan nothing */
    uint32_t left_count;        /* how often a step left the key's plan, because it wanted memory
                                 * that the plan kept idle: a second plan must be for larger steps,
                                 * and there is no third */
    bool is_held;               /* when a step begins, the cache is empty and all cross-stream
                                 * blocks have returned to gaps, and none returns during the step:
                                 * so the addresses follow from the step alone */
    uint32_t diverged;          /* steps in a row that had a miss */
};

/* What an allocator knows of all steps. Lock: the allocator's. */
typedef struct ashlar_planner {
    ashlar_plan_options options;
    ashlar_step_key *keys;
    ashlar_plan_memory *memories;
    ashlar_plan_stats stats;  /* only the counts; ashlar_plan_get_stats() computes the sizes */
    size_t active_step_count; /* steps under way */
    size_t recording_count;   /* steps under way that are recorded: <= active_step_count */
    bool is_installing;       /* memory is being taken for a plan, perhaps without the lock */
} ashlar_planner;

/* Replace each option that is 0 by its default. */
ashlar_plan_options ashlar__plan_options_chosen(ashlar_plan_options given);

/* Whether the key stands for steps of this number. If the number is below the key's first one, the
 * difference wraps around to a large value. */
static inline bool ashlar__step_key_has(const ashlar_step_key *key, uint64_t number) {
    return number - key->key < key->number_count;
}

/* Whether a step is recorded, planned or replayed under this key now. */
static inline bool ashlar__step_key_is_in_use(const ashlar_step_key *key) {
    return key->is_busy || key->replay_count > 0;
}

/* A stream's plan memory; NULL if no plan uses one. Lock: the allocator's, as for all below. */
ashlar_plan_memory *ashlar__planner_memory(const ashlar_planner *planner,
                                           const ashlar_stream_state *state);

/* Return to the heap every plan memory that no plan uses and that can end. */
void ashlar__planner_tidy_locked(ashlar_planner *planner, ashlar_heap *heap);

/*
 * Return one plan memory to the heap, which no step uses or is about to use. _end_memory: this one;
 * _give_up: preferably one that no plan uses, otherwise the one used longest ago. Its plans keep
 * their offsets, and lack memory until one of their steps begins. False: none can end now.
 */
bool ashlar__planner_end_memory_locked(ashlar_planner *planner, ashlar_heap *heap,
                                       const ashlar_plan_memory *memory);
bool ashlar__planner_give_up_locked(ashlar_planner *planner, ashlar_heap *heap);

/* By how many bytes a plan of `bytes` bytes may raise what the allocator reserves for its steps: a
 * hundredth, or a handle if that is more. */
static inline size_t ashlar__planner_spare_bytes(const ashlar_heap *heap, size_t bytes) {
    return bytes / 100 > heap->range.handle_bytes ? bytes / 100 : heap->range.handle_bytes;
}

/* Bytes of plan memory that no step uses. */
size_t ashlar__planner_quiet_bytes(const ashlar_planner *planner);

/* Whether some plan memory that the plan needs for its slots was given up. */
bool ashlar__planner_lacks_memory(const ashlar_planner *planner, const ashlar_plan *plan);

/* Mark the plan memories that no plan uses as unused, then call ashlar__planner_tidy_locked(). */
void ashlar__planner_drop_unused_locked(ashlar_planner *planner, ashlar_heap *heap);

/* Forget the keys of a stream, or, if `state` is NULL, the keys of all streams that have ended. A
 * key that a step uses stays. */
void ashlar__planner_forget_stream_locked(ashlar_planner *planner, ashlar_heap *heap,
                                          const ashlar_stream_state *state);

/*
 * Set is_referenced of the stream states that keys, their recordings and their plans refer to, so
 * that they are not deleted. Steps under way may refer to further ones.
 */
void ashlar__planner_mark_referenced(const ashlar_planner *planner);

/* Fail with ASHLAR_EINVAL if a step is under way or a plan is being made. */
ASHLAR_MUST_CHECK ashlar_status ashlar__planner_refuse_busy_locked(const ashlar_planner *planner);

/* Free a key's plan. */
void ashlar__step_key_drop_plan(ashlar_step_key *key);

/* Free a key's plan, and end the memory that no plan uses then: now or, if steps replay the plan,
 * when the last of them ends. Lock: held, caches taken over. */
void ashlar__planner_retire_plan_locked(ashlar_planner *planner, ashlar_heap *heap,
                                        ashlar_step_key *key);

/* Take a key out of the planner's list. Lock: the allocator's. */
void ashlar__planner_unlink_key(ashlar_planner *planner, const ashlar_step_key *key);

/* Free a key that is in no list. NULL is allowed. */
void ashlar__planner_free_key(ashlar_step_key *key);

/* Free every key. */
void ashlar__planner_free_keys(ashlar_planner *planner);

/* Free everything at the allocator's end. The heap ends, too, so nothing is returned to it. */
void ashlar__planner_finish(ashlar_planner *planner);

#endif /* ASHLAR_PLANNER_H */
