/*
 * stream_state.h - what the allocator knows about the order of work on one stream (internal).
 *
 * Each stream has one event, recorded only when another stream wants a block that was last used
 * here. Recordings are numbered 1, 2, 3 ... A use is stamped with a tick, the number of recordings
 * made before it ended. Recording n then comes after the use, in stream order, exactly if n > tick:
 *
 *     is_past(state, tick) == (state->completed > tick)
 *
 * Invariants (ashlar__stream_state_is_sound):
 *   completed <= recorded                     what has completed was recorded
 *   last_tick <= recorded                     no stamp is ahead of the recordings
 *   event == NULL  =>  completed == recorded  without an event there is nothing to wait for
 *   is_gone        =>  last_tick < recorded   a gone stream's last recording came after every use
 * and of every block in `free`: block->stream_state == this,  block->tick <= last_tick
 */
#ifndef ASHLAR_STREAM_STATE_H
#define ASHLAR_STREAM_STATE_H

#include "allocator/base/lock.h"
#include "allocator/heap/free_bins.h"
#include "allocator/heap/range.h"
#include "allocator/base/threads.h"

/* Stands for no stream: a handle that no driver gives. */
#define ASHLAR_NO_STREAM ((ashlar_stream)UINTPTR_MAX)

/* Lock: the allocator's guards every field except those marked const. */
struct ashlar_stream_state {
    ashlar_stream_state *next; /* the allocator's list of streams */
    ashlar_stream stream;      /* const */
    uint64_t thread;           /* const; number of the thread whose default stream it is; else 0 */
    uint64_t stream_id;        /* const; the driver's, which is never reused; 0: not known */
    ashlar_stream_state *pool; /* while the stream is captured: its graph pool; else NULL */
    bool is_pool;  /* not a stream but a graph's pool: keeps its blocks until the graph is gone */
    bool is_idle;  /* const; not a stream: takes blocks that no work uses; see deferred_free.h */
    bool is_gone;  /* the stream was destroyed: no work will follow */
    bool is_ended; /* the pool's capture, or the stream's thread, has ended: no request names it */
    size_t waiter_count;   /* threads that wait for the event, having dropped the lock */
    bool is_referenced;    /* used only while looking for states that may be freed */
    ashlar_free_bins free; /* the free blocks last used here */
    cu_event event;        /* NULL until first wanted */
    uint64_t recorded;     /* the newest recording; 0: none so far */
    uint64_t completed;    /* the newest recording known to have completed */
    uint64_t last_tick;    /* the newest tick stamped on a block that was freed here */
    uint64_t recorded_at;  /* the newest recording's number, counted over all streams */
};

/* Whether the invariants above hold, except for those of blocks. O(1). */
static inline bool ashlar__stream_state_is_sound(const ashlar_stream_state *state) {
    return state->completed <= state->recorded && state->last_tick <= state->recorded &&
           (state->event != NULL || state->completed == state->recorded) &&
           (!state->is_gone || state->last_tick < state->recorded);
}

/* Whether a use stamped (state, tick) is known to be over. */
static inline bool ashlar__stream_state_is_past(const ashlar_stream_state *state, uint64_t tick) {
    return state == NULL || state->completed > tick;
}

/*
 * The tick to stamp on a use that ends now. If the stream is gone, all its work came before its
 * last recording, so the stamp is one less than that recording's number.
 */
static inline uint64_t ashlar__stream_state_stamp(const ashlar_stream_state *state) {
    ASHLAR_CHECK2(!state->is_gone || state->recorded > 0);
    return state->is_gone ? state->recorded - 1 : state->recorded;
}

/*
 * Whether no event can be recorded here now, so that no other stream can have the blocks last used
 * here. That holds for a graph's pool and for a stream under capture. While any stream is under
 * capture, it also holds for the legacy default stream, which may be ordered with that stream, and
 * for other threads' default streams, whose events would go to the legacy one.
 */
bool ashlar__stream_state_is_closed(const ashlar_stream_state *state,
                                    const ashlar_driver_client *client);

/* Whether it is another thread's default stream, which the calling thread cannot name. */
static inline bool ashlar__stream_state_is_others(const ashlar_stream_state *state) {
    return state->thread != 0 && state->thread != ashlar__thread_number();
}

/* Ask the driver for the id of a stream that is new here. Before CUDA 12 it has none: stays 0. */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_identify(ashlar_stream_state *state,
                                                              ashlar_driver_client *client);

/*
 * Record an event unless a recording after `tick` exists. *recorded counts the recordings of all
 * streams.
 *
 * The stream may turn out to have been destroyed (its handle may even name another stream by now).
 * It can record no event then: the host waits once for the whole device, and is_gone is set.
 *
 * Errors: ASHLAR_EINVAL (the stream is captured without a pool; or it was destroyed, and a capture
 *         forbids that wait), ASHLAR_EDRIVER.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_cover(ashlar_stream_state *state,
                                                           ashlar_driver_client *client,
                                                           uint64_t tick, uint64_t *recorded);

/* Ask, without waiting, if the newest recording has completed. Requires that this is not known. */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_query(ashlar_stream_state *state,
                                                           ashlar_driver_client *client);

/*
 * Find out, without waiting, whether a use stamped `tick` is over. First ask whether the newest
 * recording has completed. If it has, but came before the end of the use, record again and ask.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_ask(ashlar_stream_state *state,
                                                         ashlar_driver_client *client,
                                                         uint64_t tick, uint64_t *recorded);

/* Have `waiter` wait for the newest recording. Errors: as ashlar__stream_state_cover(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_wait_on(ashlar_stream_state *state,
                                                             ashlar_driver_client *client,
                                                             ashlar_stream waiter);

/*
 * Wait on the host for the newest recording. Requires that it is not known to have completed.
 *
 * lock   the allocator's, held; dropped during the wait, so that other threads go on: what the host
 *        waits for may itself wait for one of them
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_synchronize(ashlar_stream_state *state,
                                                                 ashlar_driver_client *client,
                                                                 ashlar_lock *lock);

/* Return the event to the driver. */
void ashlar__stream_state_finish(ashlar_stream_state *state, ashlar_driver_client *client);

#endif /* ASHLAR_STREAM_STATE_H */
