/* replica.h - a copy of an arena on another device, contiguous there from the start.
 *
 * A replica has the same layout as its source: the same offsets and buckets. It never needs
 * flattening, since its tensors never lie anywhere else. */
#ifndef ASHLAR_REPLICA_H
#define ASHLAR_REPLICA_H

#include <ashlar/allocator.h>
#include <ashlar/arena.h>
#include <ashlar/export.h>
#include <ashlar/status.h>

ASHLAR_BEGIN_DECLS

/* Make an arena with the tensors, options and buckets of `source`, and copy `regions` to it: one
 * copy for each region, padding included. No pointer is bound to the new arena.
 *
 * source_stream  a stream of the source's device: the copies run after work queued on it so far,
 *                and before work queued on it from now on
 * allocator      of the source's device, or of another device of the same kind
 * stream         a stream of the allocator's device; the copies are queued on it
 * regions        a set of ASHLAR_REGION_BIT()s that includes the parameters. The source must have
 *                each of them; ashlar_arena_extend() adds others to the new arena
 *
 * Ownership: *out is the caller's, an arena like any other; it may outlive its source.
 * Stream:    no host wait, except after an error.
 * Errors:    ASHLAR_EINVAL (source not committed, regions, devices of two kinds), ASHLAR_EHOSTMEM,
 *            and those of ashlar_alloc(), ashlar_copy_peer(), ashlar_event_create() and
 *            ashlar_event_record(). No arena is made then.
 * Cost:      a driver call for each region, and seven for the two events. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_replicate(
    const ashlar_arena *source, ashlar_stream source_stream, ashlar_allocator *allocator,
    ashlar_stream stream, unsigned regions, ashlar_arena **out);

/* Copy the parameters again, all of them by one copy.
 *
 * source   any arena of the replica's layout
 *
 * Stream:  as ashlar_arena_replicate(): the copy is queued on `stream`, and runs after work queued
 *          on `source_stream` so far and before work queued there later.
 * Errors:  ASHLAR_EINVAL (another layout, not committed, source and replica are one arena), and
 *          those of ashlar_copy_peer(), ashlar_event_create() and ashlar_event_record(); the
 *          replica's parameters may be overwritten then. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_refresh(ashlar_arena *replica,
                                                                ashlar_stream stream,
                                                                const ashlar_arena *source,
                                                                ashlar_stream source_stream);

/* The address in `to` of the byte that `pointer` points to in `from`, in the same region. NULL if
 * `pointer` is in no region of `from`, `to` lacks that region, or their layouts differ.
 * Cost: O(1). */
ASHLAR_API void *ashlar_arena_rebase(const ashlar_arena *from, const ashlar_arena *to,
                                     const void *pointer);

ASHLAR_END_DECLS

#endif /* ASHLAR_REPLICA_H */
