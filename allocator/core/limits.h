/*
 * limits.h - whether more memory may be taken of the device, and what the program gives back
 * instead (internal).
 */
#ifndef ASHLAR_LIMITS_H
#define ASHLAR_LIMITS_H

#include "allocator/core/allocator_impl.h"

/* Whether the seal lets memory be taken. Lock: held. Errors: ASHLAR_ENOMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__may_map_locked(ashlar_allocator *allocator);

/* Raise the peak of reserved bytes. Call it after mapping memory, also where that failed. */
void ashlar__update_reserved_peak_locked(ashlar_allocator *allocator);

/*
 * Have the program's callback give something back. False: it gave nothing. Lock: held, but dropped
 * during the callback.
 */
bool ashlar__reclaim_locked(ashlar_allocator *allocator, size_t bytes);

#endif /* ASHLAR_LIMITS_H */
