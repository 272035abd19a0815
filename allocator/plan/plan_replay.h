/*
 * plan_replay.h - a step under way: one thread's replay of a plan, or its recording (internal).
 *
 * See plan.h for why what is handed out here overlaps nothing live.
 */
#ifndef ASHLAR_PLAN_REPLAY_H
#define ASHLAR_PLAN_REPLAY_H

#include "allocator/plan/planner.h"

/* Slots that were passed over, and that a request out of order may still have. */
enum { ASHLAR_REPLAY_SKIPPED_MAX = 16 };

typedef struct ashlar_replay ashlar_replay;

/* No step's, so that a request for another stream need not ask whether there is one. */
extern ashlar_replay ashlar__no_replay;

/* The thread's own, between entering and leaving its cache; else under the allocator's lock. */
struct ashlar_replay {
    const ashlar_slot *next; /* the slot that the next request is expected to want; the time is
                              * that of the one before it. One that nothing fits, and `held` in its
                              * place, while something is late */
    const ashlar_slot *held;
    uint32_t expired; /* of the plan's expiry, so many were seen to be over; those up to `next`
                       * that were not had just been found dead, see ashlar__replay_serve() */
    size_t late_count;                  /* on the late lists of all its plan memories */
    uint64_t hits_before;               /* planned_count of the cache when the step began */
    uint64_t unserved;                  /* of the slots before `next`, those not handed out */
    ashlar_plan *plan;
    ashlar_stream streams[ASHLAR_PLAN_STREAMS_MAX];  /* by stream_idx; ASHLAR_NO_STREAM: not now */
    ashlar_plan_memory *memories[ASHLAR_PLAN_STREAMS_MAX]; /* NULL: nothing is planned there */
    uint32_t skipped[ASHLAR_REPLAY_SKIPPED_MAX];     /* the newest last */
    uint32_t skipped_count;
    uint64_t unplanned;
    uint64_t misses[ASHLAR_PLAN_MISS_COUNT];
    ashlar_step_key *key;       /* NULL: the step is neither recorded nor replayed */
    ashlar_recording recording; /* while it is recorded */
    bool is_recorded;
    bool is_dry_run;          /* ... and without memory; see dry_run.h */
    ashlar_block dry_block;   /* what stands for every block then */
    uint32_t dry_block_count; /* live ones */
    uint32_t depth; /* steps begun and not ended, each within the one before */
};

/* What the caller writes to `taken` next makes the slot block taken. */
static inline ashlar_block *ashlar__replay_slot_block(const ashlar_slot *slot) {
    ashlar_block *slot_block = slot->slot_block;
    slot_block->slot = slot;
    slot_block->bytes = slot->bytes;
    return slot_block;
}

/*
 * The block for the next request of the step, if that is what is expected and nothing is in the
 * way; else NULL, and ashlar__replay_serve_otherwise() is to be asked. It calls nothing, so that
 * its caller has nothing to save on the stack; nor does it know the default stream's other name.
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

/* Blocks that plans have served the thread's cache, those of this replay among them. */
uint64_t ashlar__replay_served(const ashlar_replay *replay);

/* For any request. NULL: the ordinary path has to serve it. */
ashlar_block *ashlar__replay_serve_otherwise(ashlar_replay *replay, size_t bytes, unsigned tag,
                                             ashlar_stream stream);

/* Begin at the plan's first slot; its streams and memories are the replay's. */
void ashlar__replay_start(ashlar_replay *replay, ashlar_plan *plan);

/* The step is over: what of it is still live is late from now on. */
void ashlar__replay_stop(ashlar_replay *replay);

/* The same for the planner: its recording is over, or its replay, which ashlar__replay_stop()s. */
void ashlar__replay_stop_recording(ashlar_replay *replay, ashlar_planner *planner);
void ashlar__replay_end_replay(ashlar_replay *replay, ashlar_planner *planner,
                               uint64_t planned_count);

/* A run that is replayed serves `state`'s stream no more. */
void ashlar__replay_forget_order(ashlar_replay *replay, const ashlar_stream_state *state);

#endif /* ASHLAR_PLAN_REPLAY_H */
