/*
 * rehearsal.h - steps that are recorded without memory (internal).
 *
 * A rehearsal takes and frees what a step does, and uses none of it. So while it is recorded its
 * requests get addresses with nothing behind them: the recording costs no memory, and leaves none
 * where a plan is to lie. The addresses are far above those that a process can have, so that
 * whoever uses one is told at once.
 */
#ifndef ASHLAR_REHEARSAL_H
#define ASHLAR_REHEARSAL_H

#include "allocator/core/allocator_impl.h"
#include "allocator/plan/run.h"

#define ASHLAR_REHEARSAL_BASE ((uintptr_t)1 << 62)

enum {
    ASHLAR_REHEARSAL_STRIDE_LOG2 = 40,            /* from one address to the next */
    ASHLAR_REHEARSAL_BLOCKS_MAX = 1 << (62 - 40), /* of one step: up to where BASE ends */
};

/* Whether requests of this thread get no memory. `own`: its cache or NULL. */
static inline bool ashlar_rehearsal_is_on(const ashlar_cache *own) {
    return own != NULL && own->run != NULL && own->run->is_rehearsed && own->run->is_recorded;
}

/* Whether an address is a rehearsal's. */
static inline bool ashlar_rehearsal_has(const ashlar_cache *own, const void *ptr) {
    return ashlar_rehearsal_is_on(own) && (uintptr_t)ptr >= ASHLAR_REHEARSAL_BASE;
}

/*
 * Record an allocation. *out stays NULL where it is not recorded, and has to get memory.
 * Lock: held. Errors: ASHLAR_EHOSTMEM, ASHLAR_EDRIVER, ASHLAR_EOVERFLOW (too many).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_rehearsal_alloc_locked(ashlar_allocator *allocator,
                                                              ashlar_cache *own, size_t bytes,
                                                              ashlar_tag tag, ashlar_stream stream,
                                                              void **out);

/*
 * Record that a block is freed, or from now on used on further streams.
 *
 * stream   where it was used last; NULL: on its own
 *
 * Lock: held. Errors: ASHLAR_EPOINTER, ASHLAR_EHOSTMEM, ASHLAR_EDRIVER.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_rehearsal_free_locked(ashlar_allocator *allocator,
                                                             ashlar_cache *own, const void *ptr,
                                                             const ashlar_stream *stream);
ASHLAR_MUST_CHECK ashlar_status ashlar_rehearsal_mark_locked(ashlar_allocator *allocator,
                                                             ashlar_cache *own, const void *ptr,
                                                             ashlar_stream stream);

#endif /* ASHLAR_REHEARSAL_H */
