/*
 * region_memory.h - the memory of a new region (internal).
 */
#ifndef ASHLAR_REGION_MEMORY_H
#define ASHLAR_REGION_MEMORY_H

#include "allocator/core/allocator_impl.h"

/*
 * Take memory for a region of `bytes` with seats at `offsets`, different and in order; it is not
 * in the allocator's list yet. Lock: held; may be dropped and taken again meanwhile.
 *
 * own     the calling thread's cache or NULL
 * Errors: ASHLAR_EHOSTMEM, ASHLAR_ENOMEM, ASHLAR_EDRIVER; then nothing has changed.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_region_create_locked(ashlar_allocator *allocator,
                                                            ashlar_cache *own, ashlar_order *order,
                                                            size_t bytes, const size_t *offsets,
                                                            size_t count, ashlar_plan_region **out);

#endif /* ASHLAR_REGION_MEMORY_H */
