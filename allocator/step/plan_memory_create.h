/*
 * plan_memory_create.h - the memory of a new plan (internal).
 */
#ifndef ASHLAR_PLAN_MEMORY_CREATE_H
#define ASHLAR_PLAN_MEMORY_CREATE_H

#include "allocator/core/allocator_impl.h"

/*
 * Take memory for a plan's memory of `bytes` with slot blocks at `offsets`, different and in order;
 * it is not in the allocator's list yet. Lock: held; may be dropped and taken again meanwhile.
 *
 * own     the calling thread's cache or NULL
 * Errors: ASHLAR_EHOSTMEM, ASHLAR_ENOMEM, ASHLAR_EDRIVER; then nothing has changed.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__plan_memory_create_locked(
    ashlar_allocator *allocator, ashlar_cache *own, ashlar_stream_state *state, size_t bytes,
    const size_t *offsets, size_t count, ashlar_plan_memory **out);

#endif /* ASHLAR_PLAN_MEMORY_CREATE_H */
