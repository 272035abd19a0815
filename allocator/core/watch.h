/*
 * watch.h - streams that may end without a word: which calls may show their handles to the driver,
 * and how their memory is had without (internal).
 *
 * Of a watched allocator's streams, only those that a call under way names are known to be alive.
 * So in such a call
 *   - the driver says whether the handle still means the same stream; if not, the old one has ended
 *   - an event is recorded behind what was freed on the stream, from the moment on when such memory
 *     was wanted elsewhere or a stream had ended; before that it would cost every free a call, and
 *     nobody would ask for it.
 * What has no event behind it, and belongs to a stream that no call names, waits for the whole
 * device: rung 10 of the ladder. Driver calls that name no stream cover destroyed ones too.
 */
#ifndef ASHLAR_WATCH_H
#define ASHLAR_WATCH_H

#include "allocator/core/allocator_impl.h"

/*
 * Begin a call that names `stream`; *out is what to pass at its end, NULL for a default stream.
 * Without the stream's identity, since the driver is older than CUDA 12, `stream` is made to wait
 * for what was freed under its handle.
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
 * Wait on the host for all work of the device; then all is past that was freed before. With streams
 * of other allocators, too, this is the only proof that needs no handle.
 *
 * Lock: held, but dropped during the wait.
 * Errors: ASHLAR_EINVAL (a stream is being captured), ASHLAR_EDRIVER.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__watch_settle_locked(ashlar_allocator *allocator);

/* The same; lock: not held. */
ASHLAR_MUST_CHECK ashlar_status ashlar__watch_settle(ashlar_allocator *allocator);

/* Do so if that is what free memory waits for. False: it is not, or it cannot be done. Lock: held,
 * but dropped during the wait. */
bool ashlar__watch_wait_locked(ashlar_allocator *allocator);

#endif /* ASHLAR_WATCH_H */
