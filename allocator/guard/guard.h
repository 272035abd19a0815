/*
 * guard.h - the guard mode of an allocator: what it keeps, and what it says of a bad free
 * (internal).
 */
#ifndef ASHLAR_GUARD_H
#define ASHLAR_GUARD_H

#include "allocator/guard/free_log.h"
#include "allocator/guard/guard_fill.h"
#include "allocator/guard/guard_unmap.h"

/* At most one mode. All const once the allocator is made. */
typedef struct ashlar_guards {
    ashlar_guard_fill *fill;   /* NULL: not guard=fill */
    ashlar_guard_unmap *unmap; /* NULL: not guard=unmap */
    ashlar_free_log *frees;    /* NULL: no guard mode */
} ashlar_guards;

/*
 * What `mode` asks for, in *guards, which is zero. `lock`: the allocator's.
 * Errors: as ashlar_allocator_create().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__guard_create(ashlar_guards *guards, ashlar_guard mode,
                                                     ashlar_heap *heap, ashlar_lock *lock);

/* Nothing is queued any more. */
void ashlar__guard_destroy(ashlar_guards *guards);

/*
 * After a free by `place` that ended with `status`: note it, or say who has freed `ptr` before.
 * Returns `status`, with a longer detail. `frees`: NULL is allowed. Lock: held.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__guard_log_free_locked(ashlar_free_log *frees,
                                                              const void *ptr,
                                                              ashlar_call_site place,
                                                              ashlar_status status);

#endif /* ASHLAR_GUARD_H */
