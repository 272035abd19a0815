/*
 * seal.h - whether more memory may be taken of the device, and what the program gives back instead
 * (internal).
 */
#ifndef ASHLAR_SEAL_H
#define ASHLAR_SEAL_H

#include "allocator/core/allocator_impl.h"

/* Whether the seal lets memory be taken. Lock: held. Errors: ASHLAR_ENOMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__may_map_locked(ashlar_allocator *allocator);

/* To be called after memory was mapped, whatever came of it: the peak of reserved bytes. */
void ashlar__update_reserved_peak_locked(ashlar_allocator *allocator);

/* Have the program's callback give something back. The lock is dropped meanwhile. False: nothing.
 */
bool ashlar__reclaim_locked(ashlar_allocator *allocator, size_t bytes);

#endif /* ASHLAR_SEAL_H */
