/*
 * lookup.h - from an address to its block (internal).
 */
#ifndef ASHLAR_LOOKUP_H
#define ASHLAR_LOOKUP_H

#include "allocator/core/allocator_impl.h"

/* The heap's check where the calling thread's cache is in the middle of nothing. O(blocks). */
bool ashlar__is_sound_locked(ashlar_allocator *allocator, const ashlar_cache *own);

/* The block that `ptr` is the address of. Lock: held. Errors: ASHLAR_EPOINTER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__find_live_locked(ashlar_allocator *allocator,
                                                         const void *ptr, ashlar_block **out);

/*
 * The live block that `ptr` points into: where it begins, and the bytes asked for. Not guard=unmap.
 * Lock: not held. Errors: ASHLAR_EPOINTER. Cost: O(log(blocks)), all caches claimed.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__find_around(ashlar_allocator *allocator, const void *ptr,
                                                    void **base, size_t *bytes);

/*
 * Whether `ptr` points into memory that is reserved, live or not. Not what guard=unmap has mapped.
 * Lock: not held.  Cost: O(chunks).
 */
bool ashlar__has_reserved(ashlar_allocator *allocator, const void *ptr);

#endif /* ASHLAR_LOOKUP_H */
