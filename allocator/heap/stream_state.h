/*
 * stream_state.h - what the allocator knows about the order of work on one stream (internal).
 *
 * One event per stream, recorded only when another stream wants a block that was last used here.
 * Ticks count the recordings: a block freed here is stamped with `recorded` at that moment, so a
 * later recording, number n > tick, comes after its last use in stream order.
 *
 * Invariants: completed <= recorded;  last_tick <= recorded;  completed == recorded if event ==
 *   NULL; is_gone: recorded > 0 and last_tick < recorded
 */
#ifndef ASHLAR_STREAM_STATE_H
#define ASHLAR_STREAM_STATE_H

#include "allocator/base/lock.h"
#include "allocator/base/thread_number.h"
#include "allocator/heap/free_bins.h"
#include "allocator/heap/range.h"

/* No handle of the driver's. */
#define ASHLAR_NO_STREAM ((ashlar_stream)UINTPTR_MAX)

/* Lock: the allocator's guards every field except those marked const. */
struct ashlar_stream_state {
    ashlar_stream_state *next; /* the allocator's list of streams */
    ashlar_stream stream;      /* const */
    uint64_t thread;           /* const; whose per-thread default stream it is; 0: no such stream */
    uint64_t stream_id;        /* const; the driver's, which it does not use again; 0: not known */
    ashlar_stream_state *pool; /* of the stream's capture, while it lasts; else NULL */
    bool is_pool;              /* blocks of a graph: kept apart until the graph is gone */
    bool is_idle;  /* const; of no stream: takes only what no work uses; see deferred_free.h */
    bool is_gone;  /* the stream: no work will follow */
    bool is_ended; /* the pool's capture, the stream's thread: no request names it */
    size_t waiter_count;   /* host waits under way, without the lock */
    bool is_referenced;    /* for the moment in which gone ones are looked for */
    ashlar_free_bins free; /* the free blocks last used here */
    cu_event event;        /* NULL until first wanted */
    uint64_t recorded;     /* recordings so far */
    uint64_t completed;    /* the newest recording known to have completed */
    uint64_t last_tick;    /* of the newest block freed here: no free block has a later one */
    uint64_t recorded_at;  /* number of the newest recording among those of all streams */
};

/* True where a use stamped (stream state, tick) is known to be over. */
static inline bool ashlar__stream_state_is_past(const ashlar_stream_state *state, uint64_t tick) {
    return state == NULL || state->completed > tick;
}

/*
 * The tick of a use until now. Where the stream is gone its last recording came after all work, and
 * that was before now.
 */
static inline uint64_t ashlar__stream_state_stamp(const ashlar_stream_state *state) {
    return state->is_gone ? state->recorded - 1 : state->recorded;
}

/*
 * No event can be recorded here now, nor waited for: blocks last used here are no other stream's to
 * have. So it is with a stream that is captured, and with the legacy default stream as long as any
 * is, since that might be ordered with it.
 */
bool ashlar__stream_state_is_closed(const ashlar_stream_state *state,
                                    const ashlar_driver_client *client);

/* Another thread's default stream: the calling thread has no name for it. */
static inline bool ashlar__stream_state_is_others(const ashlar_stream_state *state) {
    return state->thread != 0 && state->thread != ashlar__thread_number();
}

/* Ask for the id of a stream that has just been met; a driver before CUDA 12 knows none. */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_identify(ashlar_stream_state *state,
                                                              ashlar_driver_client *client);

/*
 * Make sure that a recording after `tick` exists. *recorded counts those of all streams, and gives
 * the one made, if any, its number.
 *
 * A stream that turns out to have been destroyed, or to be another one by the same handle, has no
 * event to record any more: the host then waits for the whole device once, and the stream is gone.
 *
 * Errors: ASHLAR_EINVAL (the stream is captured without a pool; or a destroyed one has to be
 *         waited for during a capture), ASHLAR_EDRIVER.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_cover(ashlar_stream_state *state,
                                                           ashlar_driver_client *client,
                                                           uint64_t tick, uint64_t *recorded);

/* Ask once, without waiting, whether the newest recording, not known to be over, has completed. */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_query(ashlar_stream_state *state,
                                                           ashlar_driver_client *client);

/*
 * Find out, without waiting, whether a use stamped `tick` is over, and at least the uses before the
 * newest recording: ask, and once that has completed record what is not recorded yet.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_ask(ashlar_stream_state *state,
                                                         ashlar_driver_client *client,
                                                         uint64_t tick, uint64_t *recorded);

/* Queue on `waiter` a wait for the newest recording. Errors: also ASHLAR_EINVAL, as above. */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_wait_on(ashlar_stream_state *state,
                                                             ashlar_driver_client *client,
                                                             ashlar_stream waiter);

/*
 * Wait on the host for the newest recording, which is not known to be over.
 *
 * lock   the allocator's, held; dropped during the wait, for other threads go on, and what the
 *        host waits for may itself wait for one of them
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_synchronize(ashlar_stream_state *state,
                                                                 ashlar_driver_client *client,
                                                                 ashlar_lock *lock);

/* Return the event to the driver. */
void ashlar__stream_state_finish(ashlar_stream_state *state, ashlar_driver_client *client);

#endif /* ASHLAR_STREAM_STATE_H */
