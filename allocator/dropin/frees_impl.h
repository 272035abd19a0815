/*
 * frees_impl.h - what the three files of frees.h share (internal).
 *
 *   frees.c           the object of each device and context; allocating and freeing
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
};

/*
 * Find out whether freed blocks are past, once, or again and again for `ns` nanoseconds, until some
 * are. in_need: as for ashlar__deferred_ask(). If not all streams are known, wait for the device.
 * Returns whether any blocks are free now.
 */
bool ashlar__frees_reap(ashlar_frees *frees, uint64_t ns, bool in_need);

/*
 * Forget the captures of a stream that is about to end; NULL: of all streams. After its end the
 * driver can no longer be asked about them.
 */
void ashlar__frees_drop_captures(const ashlar_frees *frees, const ashlar_stream *stream);

/*
 * Whether a request should rather go to the driver than take memory that comes back only after a
 * capture: because the legacy stream takes part in one, so that nothing tells when freed blocks are
 * past; and no capture is on that the driver's own call would spoil.
 */
bool ashlar__frees_leaves_to_driver(const ashlar_frees *frees);
/* Whether what is freed now would come back only after a capture: the legacy stream takes part in it. */
bool ashlar__frees_is_kept(const ashlar_frees *frees);

/* Free what was freed so far, by a wait of the driver's that is allowed during such a capture. */
void ashlar__frees_wait_by_driver(ashlar_frees *frees);

/* Whether there are captures that the program told of. */
bool ashlar__frees_knows_captures(void);

/* An ashlar_reclaim_fn, with an ashlar_frees as `user`: wait for all that is pending. */
bool ashlar__frees_reclaim(void *user, size_t bytes);

#endif /* ASHLAR_DROPIN_FREES_IMPL_H */
