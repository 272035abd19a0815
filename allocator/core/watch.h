/*
 * watch.h - streams that may end unannounced: which calls may pass their handles to the driver, and
 * how their memory is reused without such a call (internal).
 *
 * A stream of a watched allocator is known to be alive only during a call that names it. So in such
 * a call
 *   - the driver says whether the handle still means the same stream; if not, the old stream has
 *     ended
 *   - an event is recorded behind the stream's frees, if another stream has wanted such memory or a
 *     stream has ended. Before that, an event per free would be a driver call for nothing.
 * If no event follows the use of some memory, and no call names its stream, the memory is reused
 * after a wait for the whole device, which needs no handle and covers destroyed streams: rung 10 of
 * the ladder.
 */
#ifndef ASHLAR_WATCH_H
#define ASHLAR_WATCH_H

#include "allocator/core/allocator_impl.h"

/*
 * Begin a call that names `stream`. Pass *out, which is NULL for a default stream, to the function
 * that ends the call. Drivers older than CUDA 12 cannot identify streams: then `stream` is made to
 * wait for the work of everything freed under its handle.
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
 * Wait on the host for all work of the device; then all memory freed before is past. Without the
 * streams' handles, nothing else can prove that.
 *
 * Lock: held, but dropped during the wait. Errors: ASHLAR_EINVAL (a stream is being captured),
 * ASHLAR_EDRIVER.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__watch_settle_locked(ashlar_allocator *allocator);

/*
 * Around a wait for the device that the caller makes: after it, all that was freed before is past,
 * as after ashlar__watch_settle_locked(). _end_wait: only if the wait succeeded. Lock: held, and
 * all caches claimed.
 */
uint64_t ashlar__watch_begin_wait_locked(ashlar_allocator *allocator);
void ashlar__watch_end_wait_locked(ashlar_allocator *allocator, uint64_t wait);

/* Like ashlar__watch_settle_locked(), but called without the lock. */
ASHLAR_MUST_CHECK ashlar_status ashlar__watch_settle(ashlar_allocator *allocator);

/* Wait for the device, if some free memory can become usable only by that. False: no memory needs
 * it, or the wait failed. Lock: held, but dropped during the wait. */
bool ashlar__watch_wait_locked(ashlar_allocator *allocator);

#endif /* ASHLAR_WATCH_H */
