/*
 * graph_pool.h - memory of CUDA graphs: blocks that belong to a graph for as long as it can be
 * launched.
 *
 * A captured graph works on the addresses it was captured with, at every launch. So what is
 * allocated during the capture comes from a pool, and nobody else gets it until the pool is
 * released:
 *
 *     ashlar_graph_pool_begin(allocator, stream, &pool);
 *     cuStreamBeginCapture(stream, mode);
 *     ... allocate for `stream`, queue work on it, free ...
 *     cuStreamEndCapture(stream, &graph);
 *     ashlar_graph_pool_end(pool);
 *     ... instantiate, launch, destroy the graph ...
 *     ashlar_graph_pool_release(pool, stream of the last launch);
 *
 * Blocks freed in the capture are used again in it, and those still live at its end are the
 * graph's results. A block that was taken outside has to stay live for as long as the graph that
 * uses it is launched.
 */
#ifndef ASHLAR_GRAPH_POOL_H
#define ASHLAR_GRAPH_POOL_H

#include <ashlar/allocator.h>

ASHLAR_BEGIN_DECLS

typedef struct ashlar_graph_pool ashlar_graph_pool;

/*
 * Have requests for `stream` served from a new pool until ashlar_graph_pool_end(). From now to then
 * the allocator makes no call that could spoil a capture, on whichever thread and in whichever
 * mode: it queues no wait on the stream, and blocks whose last use is there, or on the legacy
 * default stream, are given to no other stream unless that use is known to be over.
 *
 * stream   about to be captured; not the legacy default stream, which cannot be. Each stream that
 *          takes part in a capture and is allocated for needs a pool of its own.
 * out      unchanged on failure
 *
 * Ownership: *out is the caller's, to be released before the allocator is destroyed.
 * Threads:   any; no call that names `stream` may be under way.
 * Errors:    ASHLAR_EINVAL (the default stream, or one that has a pool), ASHLAR_EHOSTMEM,
 *            ASHLAR_EDRIVER.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_graph_pool_begin(ashlar_allocator *allocator,
                                                                   ashlar_stream stream,
                                                                   ashlar_graph_pool **out);

/*
 * The capture is over, whether it succeeded or not: requests for the stream are ordinary ones
 * again. Blocks of the pool that are freed later, also by ashlar_free_on(), go back to the pool.
 * Threads: any; no call that names the stream may be under way.
 */
ASHLAR_API void ashlar_graph_pool_end(ashlar_graph_pool *pool);

/*
 * The graph, with all copies of it, will not be launched any more. Free blocks of the pool are from
 * now on as if they had just been freed on `stream`, and live ones as if taken for it: they stay
 * valid, and are freed as usual.
 *
 * pool     its capture is over; NULL is allowed and does nothing
 * stream   of the last launch, or any on which work queued from now on comes after all that used
 *          the pool's blocks
 *
 * Ownership: `pool` is gone, except on failure, which changes nothing.
 * Threads:   any.  Stream: nothing is queued.
 * Errors:    ASHLAR_EINVAL (the capture has not ended), ASHLAR_EHOSTMEM, ASHLAR_EDRIVER (both only
 *            where `stream` is new to the allocator).
 * Cost:      O(blocks).
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_graph_pool_release(ashlar_graph_pool *pool,
                                                                     ashlar_stream stream);

ASHLAR_END_DECLS

#endif /* ASHLAR_GRAPH_POOL_H */
