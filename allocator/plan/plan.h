/*
 * plan.h - slots: where each allocation of a step goes in the plan memories (internal).
 *
 * Why a slot may be handed out. Time passes from slot to slot as requests are served; it never goes
 * back within a step. At time t the recorded step had live exactly the slots i with i <= t < end of
 * i, and these do not overlap, for so they were packed. So a block that is live, but for which that
 * does not hold, is the only kind that can be in the way. Such a block is *late*: its slot's end
 * has passed, or it is of an earlier step. `expiry` lists the slots by their ends, so that whoever
 * moves the time on looks at each slot once, and puts those still live on the late list of their
 * plan memory. A request for slot i is served if i <= t < end of i and its addresses meet no late
 * block.
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
        size_t unplanned;   /* bytes == 0: the recorded size; the last slot of all: 0 */
    };
    ashlar_block *before; /* the slot block of the one slot that ends just here: it has to be dead;
                           * ashlar__no_slot_block: none does; ashlar__many_slot_blocks: several do
                           *                        */
    uintptr_t who; /* ashlar__slot_who() of the requests that it is for, in the step under way */
    uint32_t end;         /* the slot is dead from allocation `end` on */
    unsigned char tag;
    unsigned char stream_idx;
};

_Static_assert(sizeof(ashlar_slot) == 40, "a step's slots stay in the nearest cache");

/*
 * A request's stream and tag in one comparison. Handles are addresses or small numbers, whose
 * highest byte is zero, or ASHLAR_NO_STREAM: no two pairs meet.
 */
static inline uintptr_t ashlar__slot_who(ashlar_stream stream, unsigned tag) {
    return (uintptr_t)stream ^ (uintptr_t)tag << 56;
}

/* The largest request that a slot stands for. */
static inline size_t ashlar__slot_room(const ashlar_slot *slot) {
    return slot->bytes > 0 ? slot->bytes : slot->unplanned;
}

typedef struct ashlar_stream_plan {
    ashlar_stream_state *stream_state; /* whose work uses it */
    size_t plan_bytes;   /* highest end of a slot */
    size_t bound_bytes;  /* peak of live bytes: no packing needs less */
} ashlar_stream_plan;

typedef struct ashlar_plan {
    uint32_t count;
    ashlar_slot *slots;         /* [count + 1]: the last one serves nothing, and ends the search */
    size_t *offsets;            /* [count], in its part's plan memory */
    uint32_t *next_kind;        /* [count + 1], the next slot of another size, tag or stream */
    const ashlar_slot **expiry; /* [expiry_count], by `end`: the planned ones */
    uint32_t expiry_count;
    uint32_t *expired_to;       /* [count + 1], how many of them end by then */
    uint32_t *landings; /* [landing_count], rising: slots that a merged step comes to from afar */
    uint32_t landing_count;
    ashlar_stream_plan stream_plans[ASHLAR_PLAN_STREAMS_MAX];
    ashlar_stream streams[ASHLAR_PLAN_STREAMS_MAX]; /* the streams, as the slots have them */
    bool has_streams;                               /* false: they have none so far */
    uint32_t stream_count;
} ashlar_plan;

/*
 * Pack a recording; the slots have no slot blocks yet. Lock: none is needed.
 *
 * Errors: ASHLAR_EHOSTMEM, ASHLAR_EOVERFLOW.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__plan_make(const ashlar_recording *recording,
                                                  uint64_t search_ms, ashlar_plan **out);

/*
 * The plan that has these offsets, [recording->count], which are checked; those of allocations that
 * are not planned are of no matter. Lock: none is needed.
 *
 * Errors: ASHLAR_EFORMAT (not aligned, or two slots overlap), ASHLAR_EHOSTMEM, ASHLAR_EOVERFLOW.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__plan_restore(const ashlar_recording *recording,
                                                     const size_t *offsets, ashlar_plan **out);
void ashlar__plan_free(ashlar_plan *plan); /* NULL is allowed */

/*
 * Have every slot stand for requests of these streams, by stream_idx; ASHLAR_NO_STREAM: of none.
 * Cost: O(slots), where it is not so already.
 */
void ashlar__plan_name_streams(ashlar_plan *plan, const ashlar_stream *streams);

/* What stands for no slot block, never taken; and for several, always taken: they need a closer
 * look. */
extern ashlar_block ashlar__no_slot_block, ashlar__many_slot_blocks;

/* Whether a plan has slots in the plan memory of a stream. NULL: no plan, and none. */
bool ashlar__plan_uses(const ashlar_plan *plan, const ashlar_stream_state *state);

/* Set `before` of every slot, once all that are planned have slot blocks. */
void ashlar__plan_link(ashlar_plan *plan);

#endif /* ASHLAR_PLAN_INTERNAL_H */
