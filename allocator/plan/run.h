/*
 * run.h - a step under way: one thread's way through a plan, or a recording (internal).
 *
 * See plan.h for why what is handed out here overlaps nothing live.
 */
#ifndef ASHLAR_RUN_H
#define ASHLAR_RUN_H

#include "allocator/plan/planner.h"

/* Slots that were passed over, and that a request out of order may still have. */
enum { ASHLAR_RUN_SKIPPED_MAX = 16 };

typedef struct ashlar_run ashlar_run;

/* No step's, so that a request for another stream need not ask whether there is one. */
extern ashlar_run ashlar_no_run;

/* The thread's own, between entering and leaving its cache; else under the allocator's lock. */
struct ashlar_run {
    const ashlar_slot *next; /* the slot that the next request is expected to want; the time is
                              * that of the one before it. One that nothing fits, and `held` in its
                              * place, while something is late */
    const ashlar_slot *held;
    uint32_t expired; /* of the plan's expiry, so many were seen to be over; those up to `next`
                       * that were not had just been found dead, see ashlar_run_serve() */
    size_t late_count;                  /* on the late lists of all its regions */
    uint64_t hits_before;               /* planned_count of the cache when the step began */
    uint64_t unserved;                  /* of the slots before `next`, those not handed out */
    ashlar_plan *plan;
    ashlar_stream streams[ASHLAR_PLAN_STREAMS_MAX];  /* of the parts; ASHLAR_NO_STREAM: not now */
    ashlar_plan_region *regions[ASHLAR_PLAN_STREAMS_MAX]; /* NULL: the part plans nothing */
    uint32_t skipped[ASHLAR_RUN_SKIPPED_MAX];        /* the newest last */
    uint32_t skipped_count;
    uint64_t unplanned;
    uint64_t misses[ASHLAR_PLAN_MISS_COUNT];
    ashlar_step_key *key;       /* NULL: the step is neither recorded nor replayed */
    ashlar_recording recording; /* while it is recorded */
    bool is_recorded;
    bool is_rehearsed;        /* ... and without memory; see rehearsal.h */
    ashlar_block rehearsed;   /* what stands for every block then */
    uint32_t rehearsed_count; /* live ones */
    uint32_t depth; /* steps begun and not ended, each within the one before */
};

/* What the caller writes to `taken` next makes the seat taken. */
static inline ashlar_block *ashlar_run_seat(const ashlar_slot *slot) {
    ashlar_block *seat = slot->seat;
    seat->slot = slot;
    seat->bytes = slot->bytes;
    return seat;
}

/*
 * The block for the next request of the step, if that is what is expected and nothing is in the
 * way; else NULL, and ashlar_run_serve_otherwise() is to be asked. It calls nothing, so that its
 * caller has nothing to save on the stack; nor does it know the default stream's other name.
 */
static inline ashlar_block *ashlar_run_serve(ashlar_run *run, size_t bytes, unsigned tag,
                                             ashlar_stream stream) {
    const ashlar_slot *slot = run->next;
    if (!ASHLAR_LIKELY(bytes - 1 < slot->bytes && slot->who == ashlar_slot_who(stream, tag) &&
                       !ashlar_seat_is_taken(slot->before))) {
        return NULL;
    }
    run->next = slot + 1;
    return ashlar_run_seat(slot);
}

/* Blocks that plans have served the thread's cache, those of this replay among them. */
uint64_t ashlar_run_served(const ashlar_run *run);

/* For any request. NULL: the ordinary path has to serve it. */
ashlar_block *ashlar_run_serve_otherwise(ashlar_run *run, size_t bytes, unsigned tag,
                                         ashlar_stream stream);

/* Begin at the plan's first slot; its streams and regions are the run's. */
void ashlar_run_start(ashlar_run *run, ashlar_plan *plan);

/* The step is over: what of it is still live is late from now on. */
void ashlar_run_stop(ashlar_run *run);

/* The same for the planner: its recording is over, or its replay, which ashlar_run_stop()s. */
void ashlar_run_stop_recording(ashlar_run *run, ashlar_planner *planner);
void ashlar_run_end_replay(ashlar_run *run, ashlar_planner *planner, uint64_t planned_count);

/* A run that is replayed serves `order`'s stream no more. */
void ashlar_run_forget_order(ashlar_run *run, const ashlar_order *order);

#endif /* ASHLAR_RUN_H */
