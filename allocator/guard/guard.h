/* guard.h - the guard mode of an allocator: its state, and its report of a bad free. */
#ifndef ASHLAR_GUARD_H
#define ASHLAR_GUARD_H

#include "allocator/guard/free_log.h"
#include "allocator/guard/guard_fill.h"

/* Const once the allocator is made. Both are NULL if there is no guard mode, or neither. */
typedef struct ashlar_guards {
    ashlar_guard_fill *fill;
    ashlar_free_log *frees;
} ashlar_guards;

/*
 * Set up *guards for `mode`; the caller has zeroed *guards.
 *
 * Errors: as for ashlar_allocator_create().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__guard_create(ashlar_guards *guards, ashlar_guard mode,
                                                     ashlar_heap *heap);

/* Free everything. No queued work may be left. */
void ashlar__guard_destroy(ashlar_guards *guards);

/* Log a free that `place` called and that ended with `status`. If `ptr` was bad, add to the error
 * detail who is freeing it, and who freed it before. Returns `status`. `frees` may be NULL.
 * Lock: the allocator's, held. */
ASHLAR_MUST_CHECK ashlar_status ashlar__guard_log_free_locked(ashlar_free_log *frees,
                                                              const void *ptr,
                                                              ashlar_call_site place,
                                                              ashlar_status status);

#endif /* ASHLAR_GUARD_H */
