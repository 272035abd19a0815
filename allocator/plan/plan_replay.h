/*
 * plan_replay.h - a step under way: one thread's replay of a plan, or its recording (internal).
 *
 * See plan.h for why what is handed out here overlaps nothing live.
 *
 * Invariants while a plan is replayed (is_sound in plan_replay.c), with `next` the slot that comes
 * next, whether held or not:
 *   plan->slots <= next <= plan->slots + plan->count
 *   expired <= plan->expiry_count
 *   skipped_count <= ASHLAR_REPLAY_SKIPPED_MAX
 */
#ifndef ASHLAR_PLAN_REPLAY_H
#define ASHLAR_PLAN_REPLAY_H

#include "allocator/plan/planner.h"

/* How many of the slots passed over a request out of order may still have. */
enum { ASHLAR_REPLAY_SKIPPED_MAX = 16 };

typedef struct ashlar_replay ashlar_replay;

/* A replay of no step, which serves nothing: so a request need not ask whether there is a step. */
extern ashlar_replay ashlar__no_replay;

/* The thread's own between entering and leaving its cache; else the allocator's lock guards it. */
struct ashlar_replay {
    const ashlar_slot *next; /* the slot that the next request should want; the time is that of the
                              * slot before. While something is late: one that fits no request */
    const ashlar_slot *held; /* what `next` would be if nothing were late */
    uint32_t expired;        /* entries of plan->expiry looked at when their time was over; may lag
                              * behind: see let_go() in plan_replay.c */
    size_t late_count;       /* on the late lists of all its plan memories */
    uint64_t hits_before;    /* planned_count of the cache when the step began */
    uint64_t unserved;       /* slots before the next one that were not handed out */
    ashlar_plan *plan;
    ashlar_stream streams[ASHLAR_PLAN_STREAMS_MAX]; /* by stream_idx; ASHLAR_NO_STREAM: none */
    ashlar_plan_memory *memories[ASHLAR_PLAN_STREAMS_MAX]; /* NULL: nothing is planned there */
    uint32_t skipped[ASHLAR_REPLAY_SKIPPED_MAX];           /* slots passed over, the newest last */
    uint32_t skipped_count;
    uint64_t unplanned;
    uint64_t misses[ASHLAR_PLAN_MISS_COUNT];
    ashlar_step_key *key;       /* NULL: the step is neither recorded nor replayed */
    ashlar_recording recording; /* of the step, while it is recorded */
    bool is_recorded;
    bool is_dry_run;          /* it is recorded without memory; see dry_run.h */
    ashlar_block dry_block;   /* stands for every block of a dry run */
    uint32_t dry_block_count; /* live blocks of a dry run */
    uint32_t depth;           /* steps begun and not ended, each within the one before */
};

/* A slot's block, made ready for the slot. It is taken once the caller writes to `taken`. */
static inline ashlar_block *ashlar__replay_slot_block(const ashlar_slot *slot) {
    ashlar_block *slot_block = slot->slot_block;
    ASHLAR_CHECK2(slot->bytes > 0 && ashlar__block_is_of_slot(slot_block));
    ASHLAR_CHECK2(!ashlar__slot_block_is_taken(slot_block)); /* plan.h proves that it is free */
    slot_block->slot = slot;
    slot_block->bytes = slot->bytes;
    return slot_block;
}

/*
 * The block for a request that is just what the plan expects next, with nothing in the way. NULL:
 * ask ashlar__replay_serve_otherwise(). This one calls nothing, so that its caller need save
 * nothing on the stack; and it does not know the default stream's other name.
 */
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

/* Blocks that plans have handed out to the thread's cache, those of this replay included. */
uint64_t ashlar__replay_served(const ashlar_replay *replay);

/* For any request. NULL: the ordinary path has to serve it. */
ashlar_block *ashlar__replay_serve_otherwise(ashlar_replay *replay, size_t bytes, unsigned tag,
                                             ashlar_stream stream);

/* Begin at the plan's first slot. The caller has set `streams` and `memories`. */
void ashlar__replay_start(ashlar_replay *replay, ashlar_plan *plan);

/* The step is over: what is still live of it is late from now on. */
void ashlar__replay_stop(ashlar_replay *replay);

/* Tell the planner that a recorded or replayed step is over; the latter also stops the replay. */
void ashlar__replay_stop_recording(ashlar_replay *replay, ashlar_planner *planner);
void ashlar__replay_end_replay(ashlar_replay *replay, ashlar_planner *planner,
                               uint64_t planned_count);

/* From now on the step's replay serves no request of `state`'s stream. */
void ashlar__replay_forget_stream(ashlar_replay *replay, const ashlar_stream_state *state);

#endif /* ASHLAR_PLAN_REPLAY_H */
