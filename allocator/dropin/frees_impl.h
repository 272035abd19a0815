/*
 * frees_impl.h - what the four files of frees.h share (internal).
 *
 *   frees.c           the object of each device and context; allocating
 *   frees_free.c      freeing
 *   frees_past.c      whether freed blocks are past; streams
 *   frees_captures.c  captures
 */
#ifndef ASHLAR_DROPIN_FREES_IMPL_H
#define ASHLAR_DROPIN_FREES_IMPL_H

#include <stdatomic.h>

#include "allocator/base/lock.h"
#include "allocator/dropin/frees.h"

/* Invariant: is_host => is_distrusted */
struct ashlar_frees {
    ashlar_allocator *allocator; /* const */
    ashlar_device *device;       /* const */
    bool is_host;                /* const; for page-locked host memory */
    atomic_bool is_distrusted;   /* there may be streams that we do not know */
    atomic_bool is_trusting;     /* set only by tests */
    atomic_bool is_watching;     /* calls named unknown streams: the allocator watches streams */
    atomic_bool is_told;         /* the program tells of the end of each stream that it names */
};

/*
 * Find out whether freed blocks are past, once, or again and again for `ns` nanoseconds, until some
 * are. If not all streams are known, wait for the device; in_need: also if a capture keeps events
 * away. Returns whether any blocks are free now.
 */
bool ashlar__frees_reap(ashlar_frees *frees, uint64_t ns, bool in_need);

/* Wait on the host for all work of the device, while a stream is captured, too; for host memory, of
 * all devices, but not during a capture. _wait returns whether any blocks are free now. */
ASHLAR_MUST_CHECK ashlar_status ashlar__frees_synchronize(ashlar_frees *frees, bool is_capturing);
bool ashlar__frees_wait(ashlar_frees *frees, bool is_capturing);

/* Have the allocator watch streams, unless the stream is a default one, or its end is told of. */
void ashlar__frees_watch(ashlar_frees *frees, ashlar_stream stream);

/*
 * Forget the captures of a stream that is about to end; NULL: of all streams. After its end the
 * driver can no longer be asked about them.
 */
void ashlar__frees_drop_captures(const ashlar_frees *frees, const ashlar_stream *stream);

/* An ashlar_reclaim_fn, with an ashlar_frees as `user`: wait for all that is pending. */
bool ashlar__frees_reclaim(void *user, size_t bytes);

#endif /* ASHLAR_DROPIN_FREES_IMPL_H */
