/*
 * plan.h - slots: where each allocation of a step goes in the plan memories (internal).
 *
 * Why a slot may be handed out. Time passes from slot to slot as requests are served, and never
 * goes back within a step. The slots with i <= t < slots[i].end were live at time t of the recorded
 * step, so they were packed without overlaps. Only a live block of some other slot can be in the
 * way. Such a block is *late*: its slot's end has passed, or it is left from an earlier step.
 * `expiry` lists the slots by their ends: as time passes, the replay looks at each slot whose end
 * has come, and puts its block, if still live, on the late list of the plan memory. A request gets
 * slot i if i <= t < slots[i].end and no late block overlaps the slot.
 *
 * Invariants:
 *   i < slots[i].end <= count for every planned slot; slots[i].bytes == 0 for every other one
 *   slots[i].end == count if slots[i].is_shared
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
        ashlar_block *slot_block; /* describes the block that starts at this slot's offset */
        size_t unplanned;         /* if bytes == 0: the recorded size; in slots[count]: 0. If
                                   * is_refused: requests of less than that were not refused */
    };
    ashlar_block *before; /* slot block of the slot that ends when this one begins, which must be
                           * dead by then; if none ends: ashlar__no_slot_block; if several do:
                           * ashlar__many_slot_blocks */
    uintptr_t who;        /* ashlar__slot_who() of the requests that this slot serves */
    uint32_t end;         /* the slot is dead from allocation number `end` on */
    unsigned char tag;
    unsigned char stream_idx;
    bool is_shared;  /* its block's uses on other streams are noted in the plan memory */
    bool is_refused; /* a request that was refused when it was recorded; not planned */
};

_Static_assert(sizeof(ashlar_slot) == 40, "a step's slots stay in the nearest cache");

/* A request's stream and tag in one word, so that one comparison checks both. Different pairs give
 * different words, because the highest byte of every handle but ASHLAR_NO_STREAM is zero. */
static inline uintptr_t ashlar__slot_who(ashlar_stream stream, unsigned tag) {
    return (uintptr_t)stream ^ (uintptr_t)tag << 56;
}

/* The size of the largest request that a slot can serve; not of a refused one's. */
static inline size_t ashlar__slot_room(const ashlar_slot *slot) {
    return slot->bytes > 0 ? slot->bytes : slot->unplanned;
}

typedef struct ashlar_stream_plan {
    ashlar_stream_state *stream_state; /* the stream of the slots */
    size_t plan_bytes;                 /* the highest end of the stream's slots */
    size_t bound_bytes; /* the peak of the stream's live bytes in any one of the merged steps:
                         * memory that serves all of these cannot be smaller */
} ashlar_stream_plan;

typedef struct ashlar_plan {
    uint32_t count;
    ashlar_slot *slots;         /* [count + 1]; the last slot fits no request, so that searches end
                                 * there */
    size_t *offsets;            /* [count], by slot, in the plan memory of the slot's stream */
    uint32_t *next_kind;        /* [count + 1], by slot: the next slot of another size, tag or
                                 * stream */
    const ashlar_slot **expiry; /* [expiry_count], the planned slots by `end` */
    uint32_t expiry_count;
    uint32_t *expired_to; /* [count + 1], by time: number of planned slots that end by then */
    uint32_t *landings;   /* [landing_count], rising: see ashlar_recorded.is_landing */
    uint32_t landing_count;
    ashlar_stream_plan stream_plans[ASHLAR_PLAN_STREAMS_MAX];
    ashlar_stream streams[ASHLAR_PLAN_STREAMS_MAX]; /* the streams that the slots' `who` names */
    bool has_streams;                               /* false: `who` is not set yet */
    uint32_t stream_count;
} ashlar_plan;

/*
 * Make a plan of a closed recording, whose peaks are known, by packing it. The slots have no slot
 * blocks yet. Lock: none is needed.
 *
 * room   [stream_count]: the first packing of a stream that fits in so many bytes is taken; 0: the
 *        smallest packing is searched for
 *
 * Errors: ASHLAR_EHOSTMEM, ASHLAR_EOVERFLOW.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__plan_make(const ashlar_recording *recording,
                                                  uint64_t search_ms, const size_t *room,
                                                  ashlar_plan **out);

/* The slots alone, without places in memory: to find out which of them would serve a step. */
ASHLAR_MUST_CHECK ashlar_status ashlar__plan_outline(const ashlar_recording *recording,
                                                     ashlar_plan **out);

void ashlar__plan_free(ashlar_plan *plan); /* NULL is allowed */

/* From now on a slot serves requests on streams[stream_idx], or no requests if that is
 * ASHLAR_NO_STREAM.
 * Cost: O(slots), or O(streams) if no stream has changed. */
void ashlar__plan_name_streams(ashlar_plan *plan, const ashlar_stream *streams);

/* Stand-ins in ashlar_slot.before. The one for no slot block is never taken. The one for several is
 * always taken, so that a request takes the slow way, which looks at each slot block. */
extern ashlar_block ashlar__no_slot_block, ashlar__many_slot_blocks;

/* Whether a plan has slots in the plan memory of a stream. False if `plan` is NULL. */
bool ashlar__plan_uses(const ashlar_plan *plan, const ashlar_stream_state *state);

/* Whether a plan has slots for a stream that has ended. False if `plan` is NULL. */
bool ashlar__plan_has_ended(const ashlar_plan *plan);

/* Set `before` of every slot. Every planned slot must have its slot block. */
void ashlar__plan_link(ashlar_plan *plan);

#endif /* ASHLAR_PLAN_INTERNAL_H */
