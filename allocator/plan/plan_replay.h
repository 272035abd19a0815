/* plan_replay.h - a thread's step under way, which replays a plan or is recorded (internal).
 *
 * plan.h tells why a block handed out here overlaps no live block.
 *
 * Invariants while a plan is replayed (is_sound in plan_replay.c). If `next` is the stand-in that
 * fits no request, read `held` in its place:
 *   plan->slots <= next <= plan->slots + plan->count
 *   expired <= plan->expiry_count
 *   skipped_count <= ASHLAR_REPLAY_SKIPPED_MAX
 */
#ifndef ASHLAR_PLAN_REPLAY_H
#define ASHLAR_PLAN_REPLAY_H

#include "allocator/plan/planner.h"

typedef struct ashlar_replay ashlar_replay;

/* What a thread's cache refers to outside steps: it fits no request, so that a hit need not ask
 * whether there is a step. */
extern ashlar_replay ashlar__no_replay;

/* Lock: a thread that takes or frees a block without the lock (core.h: "inside its cache") owns its
 * replay meanwhile; otherwise the allocator's lock guards every field. */
struct ashlar_replay {
    const ashlar_slot *next; /* the slot expected to serve the next request. While any block is
                              * late: a stand-in that fits no request */
    const ashlar_slot *held; /* what `next` would be if no block were late */
    uint32_t expired;        /* number of plan->expiry entries known to have ended; may lag behind:
                              * see let_go() in plan_replay.c */
    size_t late_count;       /* entries on the late lists of all `memories` */
    uint64_t hits_before;    /* requests of the thread that plans had served when the step began */
    uint64_t unserved;       /* how many slots before the next one were not handed out */
    ashlar_plan *plan;
    ashlar_stream streams[ASHLAR_PLAN_STREAMS_MAX]; /* by stream_idx; ASHLAR_NO_STREAM: none */
    ashlar_plan_memory *memories[ASHLAR_PLAN_STREAMS_MAX]; /* by stream_idx; NULL: no slots there */
    uint32_t skipped[ASHLAR_REPLAY_SKIPPED_MAX];           /* slots passed over, ascending */
    uint32_t skipped_count;
    uint64_t unplanned; /* requests for allocations that were recorded, but have no slot */
    bool is_at_refusal; /* the latest request on the slow path was refused when recorded */
    bool is_at_miss;    /* the latest request on the slow path was a miss */
    uint64_t misses[ASHLAR_PLAN_MISS_COUNT];
    ashlar_step_key *key;       /* NULL: the step is neither recorded nor replayed */
    ashlar_recording recording; /* of the step, while it is recorded */
    bool is_recorded;
    bool is_dry_run;                /* the step is recorded without memory; see dry_run.c */
    ashlar_block dry_block;         /* stands for every block of a dry run */
    uint32_t dry_block_count;       /* live blocks of a dry run */
    size_t dry_bytes;               /* bytes that a dry run may still take */
    bool is_held;                   /* requests take no cross-stream block back: see
                                     * ashlar_step_key.is_held */
    uint32_t depth;                 /* nested steps: how many have begun and not ended */
    ashlar_stream stream;           /* the stream on which the step began; ASHLAR_NO_STREAM: a
                                     * nested step began on another */
};

/* A slot's block, with `slot` and `bytes` set. The caller takes it by writing to `taken`. */
static inline ashlar_block *ashlar__replay_slot_block(const ashlar_slot *slot) {
    ashlar_block *slot_block = slot->slot_block;
    ASHLAR_CHECK2(slot->bytes > 0 && ashlar__block_is_of_slot(slot_block));
    ASHLAR_CHECK2(!ashlar__slot_block_is_taken(slot_block)); /* plan.h proves that it is free */
    slot_block->slot = slot;
    slot_block->bytes = slot->bytes;
    return slot_block;
}

/* The block for a request that is exactly what the plan expects next, if nothing is in the way.
 * NULL: ask ashlar__replay_serve_otherwise(). This function calls no other, so that its caller need
 * not save registers. It declines requests that name the legacy default stream CU_STREAM_LEGACY. */
static inline ashlar_block *ashlar__replay_serve(ashlar_replay *replay, size_t bytes, unsigned tag,
                                                 ashlar_stream stream) {
    const ashlar_slot *slot = replay->next;
    if (!ASHLAR_LIKELY(bytes - 1 < slot->bytes && slot->who == ashlar__slot_who(stream, tag) &&
                       !ashlar__slot_block_is_taken(slot->before))) {
        return NULL;
    }
    replay->next = slot + 1;
    return ashlar__replay_slot_block(slot);
}

/* How many requests of the thread plans have served so far, including those of this replay. */
uint64_t ashlar__replay_served(const ashlar_replay *replay);

/* The block for any request of a step. NULL: the ordinary path must serve the request. */
ashlar_block *ashlar__replay_serve_otherwise(ashlar_replay *replay, size_t bytes, unsigned tag,
                                             ashlar_stream stream);

/* Begin at the plan's first slot. The caller has set `streams` and `memories`. */
void ashlar__replay_start(ashlar_replay *replay, ashlar_plan *plan);

/* _stop_recording: tell the planner that a recorded step is over. _end_replay: tell it that a
 * replayed step is over, after stopping the replay. */
void ashlar__replay_stop_recording(ashlar_replay *replay, ashlar_planner *planner);
void ashlar__replay_end_replay(ashlar_replay *replay, ashlar_planner *planner,
                               uint64_t planned_count);

/* From now on the step's replay serves no request of `state`'s stream. */
void ashlar__replay_forget_stream(ashlar_replay *replay, const ashlar_stream_state *state);

/*
 * Whether a plan of `base` alone would serve the step that `more` recorded, even if that leaves out
 * some of base's allocations. Also false where it is uncertain: if one of the two has landings.
 * Errors: ASHLAR_EHOSTMEM, ASHLAR_EOVERFLOW.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__replay_find_served(const ashlar_recording *base,
                                                           const ashlar_recording *more,
                                                           bool *is_served);

#endif /* ASHLAR_PLAN_REPLAY_H */
