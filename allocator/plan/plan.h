/*
 * plan.h - slots: where each allocation of a step goes in the plan memories (internal).
 *
 * Why a slot may be handed out. Time passes from slot to slot as requests are served, and never
 * goes back within a step. At time t, the slots that were live in the recorded step are those with
 * i <= t < slots[i].end; they were packed so that they do not overlap. So only a block that is live
 * but is not one of these can be in the way. Such a block is *late*: its slot's end has passed, or
 * it is of an earlier step. `expiry` lists the slots by their ends: whoever moves the time on looks
 * at each slot once, and puts those still live on the late list of their plan memory. A request
 * gets slot i if i <= t < slots[i].end and no late block overlaps the slot.
 *
 * Invariants:
 *   i < slots[i].end <= count for every planned slot; bytes of the others are 0
 *   expiry[k]->end <= expiry[k + 1]->end,  expired_to[count] == expiry_count <= count
 *   expired_to[i] == number of planned slots with end <= i
 *   i < next_kind[i] <= count,  landings[k] < landings[k + 1] < count
 *   of the planned slots of a stream: offsets[i] + slots[i].bytes <= plan_bytes,
 *     bound_bytes <= plan_bytes
 */
#ifndef ASHLAR_PLAN_INTERNAL_H
#define ASHLAR_PLAN_INTERNAL_H

#include <ashlar/plan.h>

#include "allocator/plan/recording.h"

typedef struct ashlar_slot ashlar_slot;
struct ashlar_slot {
    size_t bytes; /* a multiple of ASHLAR_BLOCK_ALIGN; 0: not planned */
    union {
        ashlar_block *slot_block; /* of its plan memory: the descriptor of blocks that start here */
        size_t unplanned;         /* if bytes == 0: the recorded size; of slots[count]: 0 */
    };
    ashlar_block *before; /* the slot block of the one slot that ends here, which has to be dead;
                           * ashlar__no_slot_block if none ends here, ashlar__many_slot_blocks if
                           * several do */
    uintptr_t who;        /* ashlar__slot_who() of the requests that it is for in this step */
    uint32_t end;         /* the slot is dead from allocation `end` on */
    unsigned char tag;
    unsigned char stream_idx;
};

_Static_assert(sizeof(ashlar_slot) == 40, "a step's slots stay in the nearest cache");

/*
 * A request's stream and tag in one word, to compare at once. Different pairs give different words,
 * for the highest byte of a handle is zero, but for ASHLAR_NO_STREAM.
 */
static inline uintptr_t ashlar__slot_who(ashlar_stream stream, unsigned tag) {
    return (uintptr_t)stream ^ (uintptr_t)tag << 56;
}

/* The largest request that a slot is for. */
static inline size_t ashlar__slot_room(const ashlar_slot *slot) {
    return slot->bytes > 0 ? slot->bytes : slot->unplanned;
}

typedef struct ashlar_stream_plan {
    ashlar_stream_state *stream_state; /* whose work uses it */
    size_t plan_bytes;   /* the highest end of its slots */
    size_t bound_bytes;  /* the peak of its live bytes: no packing needs less */
} ashlar_stream_plan;

typedef struct ashlar_plan {
    uint32_t count;
    ashlar_slot *slots;         /* [count + 1]; the last one fits no request, and ends searches */
    size_t *offsets;            /* [count], in the plan memory of the slot's stream */
    uint32_t *next_kind;        /* [count + 1], the next slot of another size, tag or stream */
    const ashlar_slot **expiry; /* [expiry_count], the planned slots by `end` */
    uint32_t expiry_count;
    uint32_t *expired_to; /* [count + 1], how many of them end by then */
    uint32_t *landings;   /* [landing_count], rising: see ashlar_recorded.is_landing */
    uint32_t landing_count;
    ashlar_stream_plan stream_plans[ASHLAR_PLAN_STREAMS_MAX];
    ashlar_stream streams[ASHLAR_PLAN_STREAMS_MAX]; /* what `who` of the slots was made from */
    bool has_streams;                               /* false: `who` is not set yet */
    uint32_t stream_count;
} ashlar_plan;

/*
 * Make a plan of a closed recording by packing it. The slots have no slot blocks yet. Lock: none is
 * needed.
 *
 * Errors: ASHLAR_EHOSTMEM, ASHLAR_EOVERFLOW.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__plan_make(const ashlar_recording *recording,
                                                  uint64_t search_ms, ashlar_plan **out);

/*
 * Make a plan with given offsets, [recording->count], which it checks; those of allocations that
 * are not planned do not matter. Lock: none is needed.
 *
 * Errors: ASHLAR_EFORMAT (not aligned, or two slots overlap), ASHLAR_EHOSTMEM, ASHLAR_EOVERFLOW.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__plan_restore(const ashlar_recording *recording,
                                                     const size_t *offsets, ashlar_plan **out);
void ashlar__plan_free(ashlar_plan *plan); /* NULL is allowed */

/*
 * From now on a slot is for requests of streams[stream_idx]; ASHLAR_NO_STREAM: for none. Cost:
 * O(slots), unless the streams are what they were.
 */
void ashlar__plan_name_streams(ashlar_plan *plan, const ashlar_stream *streams);

/* Stand-ins in ashlar_slot.before: for no slot block, never taken; and for several, always taken,
 * so that a request takes the long way, which looks at each. */
extern ashlar_block ashlar__no_slot_block, ashlar__many_slot_blocks;

/* Whether a plan has slots in the plan memory of a stream. NULL, no plan, has none. */
bool ashlar__plan_uses(const ashlar_plan *plan, const ashlar_stream_state *state);

/* Set `before` of every slot, once all that are planned have slot blocks. */
void ashlar__plan_link(ashlar_plan *plan);

#endif /* ASHLAR_PLAN_INTERNAL_H */
