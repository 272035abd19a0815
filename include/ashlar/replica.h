/*
 * replica.h - the same arena on another device, contiguous there from the start.
 *
 * A replica has the layout of its source: offsets, buckets and runs of one are those of the other.
 * It never needs flattening, since its tensors never lie anywhere else.
 */
#ifndef ASHLAR_REPLICA_H
#define ASHLAR_REPLICA_H

#include <ashlar/allocator.h>
#include <ashlar/arena.h>
#include <ashlar/export.h>
#include <ashlar/status.h>

ASHLAR_BEGIN_DECLS

/*
 * Make an arena like `source`, with its tensors, options and buckets, and copy regions to it: one
 * copy each, padding and all. Nothing is bound.
 *
 * source_stream  of the source's device: the copies run after what is queued there, and before what
 *                is queued there from now on
 * allocator      of any device of the same kind, the source's too
 * stream         of the allocator's device; the copies are queued on it
 * regions        a set of ASHLAR_REGION_BIT()s that includes the parameters, all of which the
 *                source has; ashlar_arena_extend() adds others
 *
 * Ownership: *out is the caller's, an arena like any other; it may outlive its source.
 * Stream:    no host wait, except after an error.
 * Errors:    ASHLAR_EINVAL (source not committed, regions, devices of two kinds), ASHLAR_EHOSTMEM,
 *            and those of ashlar_alloc(), ashlar_copy_peer() and of events. Nothing is made then.
 * Cost:      a driver call for each region, and seven for the two events.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_replicate(
    const ashlar_arena *source, ashlar_stream source_stream, ashlar_allocator *allocator,
    ashlar_stream stream, unsigned regions, ashlar_arena **out);

/*
 * Copy the parameters again, all of them by one copy.
 *
 * source   any arena of the replica's layout
 *
 * Stream:  as above: on `stream`, behind what is queued on `source_stream` and before what will be.
 * Errors:  ASHLAR_EINVAL (another layout, not committed, one arena twice), and those of
 *          ashlar_copy_peer() and of events; the replica's parameters may be overwritten then.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_arena_refresh(ashlar_arena *replica,
                                                                ashlar_stream stream,
                                                                const ashlar_arena *source,
                                                                ashlar_stream source_stream);

/*
 * The address in `to` of the byte that `pointer` points to in `from`, in the same region. NULL if
 * `pointer` is in no region of `from`, `to` lacks that region, or their layouts differ.
 * Cost: O(1).
 */
ASHLAR_API void *ashlar_arena_rebase(const ashlar_arena *from, const ashlar_arena *to,
                                     const void *pointer);

ASHLAR_END_DECLS

#endif /* ASHLAR_REPLICA_H */
