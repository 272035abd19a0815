/*
 * watch.h - streams that may end without a word: which calls may pass their handles to the driver,
 * and how their memory is reused without (internal).
 *
 * A stream of a watched allocator is known to be alive only during a call that names it. So in such
 * a call
 *   - the driver says whether the handle still means the same stream; if not, the old stream has
 *     ended
 *   - an event is recorded behind the stream's frees, once another stream wanted such memory or a
 *     stream ended; earlier, that would be a driver call per free that nobody needs.
 * Memory with no event behind it, of a stream that no call names, is reused after a wait for the
 * whole device, which needs no handle and covers destroyed streams: rung 10 of the ladder.
 */
#ifndef ASHLAR_WATCH_H
#define ASHLAR_WATCH_H

#include "allocator/core/allocator_impl.h"

/*
 * Begin a call that names `stream`; pass *out, which is NULL for a default stream, at its end. If
 * the driver is older than CUDA 12 and cannot identify streams, `stream` is made to wait for the
 * work of what was freed under its handle.
 *
 * Lock: held. Errors: ASHLAR_EHOSTMEM, ASHLAR_EDRIVER; then no call has begun.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__watch_begin_slow_locked(ashlar_allocator *allocator,
                                                                ashlar_stream stream,
                                                                ashlar_stream_state **out);

static inline ashlar_status ashlar__watch_begin_locked(ashlar_allocator *a, ashlar_stream stream,
                                                       ashlar_stream_state **out) {
    *out = NULL;
    return a->client.watches_streams ? ashlar__watch_begin_slow_locked(a, stream, out) : ASHLAR_OK;
}

static inline void ashlar__watch_end_locked(ashlar_stream_state *state) {
    if (state != NULL) {
        ASHLAR_CHECK2(state->caller_count > 0);
        state->caller_count--;
    }
}

/*
 * Wait on the host for all work of the device; then all memory freed before is past. No other proof
 * works without the streams' handles.
 *
 * Lock: held, but dropped during the wait.
 * Errors: ASHLAR_EINVAL (a stream is being captured), ASHLAR_EDRIVER.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__watch_settle_locked(ashlar_allocator *allocator);

/* The same; lock: not held. */
ASHLAR_MUST_CHECK ashlar_status ashlar__watch_settle(ashlar_allocator *allocator);

/* Wait for the device, if free memory waits for just that. False: none does, or the wait failed.
 * Lock: held, but dropped during the wait. */
bool ashlar__watch_wait_locked(ashlar_allocator *allocator);

#endif /* ASHLAR_WATCH_H */
