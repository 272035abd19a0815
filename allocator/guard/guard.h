/*
 * guard.h - what an allocator in a guard mode tells its program (internal).
 */
#ifndef ASHLAR_GUARD_H
#define ASHLAR_GUARD_H

#include <ashlar/allocator.h>

#include "allocator/guard/free_log.h"

/* What `config` asks for. Errors: as ashlar_allocator_create(). */
ASHLAR_MUST_CHECK ashlar_status ashlar_guard_create(ashlar_allocator *allocator,
                                                    ashlar_guard guard);

/* Before the device is waited for; then report; then when nothing is queued any more. */
void ashlar_guard_compare_all(ashlar_allocator *allocator);
void ashlar_guard_destroy(ashlar_allocator *allocator);

/*
 * After a free by `place` that ended with `status`: note it, or say who has freed `ptr` before.
 * Returns `status`, with a longer detail. Lock: held.
 */
ashlar_status ashlar_guard_note_free_locked(ashlar_allocator *allocator, const void *ptr,
                                            ashlar_place place, ashlar_status status);

/*
 * Tell the oldest finding, if there is one: to the callback, and as ASHLAR_EDAMAGE.
 * Lock: not held.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_guard_take_finding(ashlar_allocator *allocator);

#endif /* ASHLAR_GUARD_H */
