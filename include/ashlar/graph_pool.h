/*
 * graph_pool.h - memory of CUDA graphs: blocks that belong to a graph as long as it can be
 * launched.
 *
 * Every launch of a captured graph uses the addresses that were captured. So allocations during the
 * capture come from a pool, and nobody else gets this memory until the pool is released:
 *
 *     ashlar_graph_pool_begin(allocator, stream, &pool);
 *     cuStreamBeginCapture(stream, mode);
 *     ... allocate for `stream`, queue work on it, free ...
 *     cuStreamEndCapture(stream, &graph);
 *     ashlar_graph_pool_end(pool);
 *     ... instantiate, launch, destroy the graph ...
 *     ashlar_graph_pool_release(pool, stream of the last launch);
 *
 * Blocks freed during the capture are reused in the same capture, but not one whose last use is on
 * another stream (ashlar_free_on(), ashlar_record_stream()); blocks still live when it ends are the
 * graph's results. A block taken outside the capture must stay live as long as a graph that
 * uses it is launched.
 */
#ifndef ASHLAR_GRAPH_POOL_H
#define ASHLAR_GRAPH_POOL_H

#include <ashlar/allocator.h>

ASHLAR_BEGIN_DECLS

typedef struct ashlar_graph_pool ashlar_graph_pool;

/*
 * Serve requests for `stream` from a new pool until ashlar_graph_pool_end(). Until then no function
 * of ashlar invalidates a capture of any thread or mode, except what names the legacy default
 * stream, waits for a stream or event of the capture, and what waits for the whole device:
 * warm-ups, and functions that destroy an allocator or an object with CUDA kernels. The allocator
 * queues no wait on the stream nor on the legacy default stream, and a block last used on it goes
 * to another stream only if that use is known to be over. So this function asks, before the
 * capture, how far the stream is: what it has freed, and is done with, may serve the capture.
 *
 * stream   the stream that is about to be captured, named from now on (see the top of allocator.h);
 *          end its pool before forgetting the stream. The legacy default stream cannot be captured.
 *          If a capture spans several streams, each that memory is taken for needs a pool of its
 *          own
 * out      unchanged on failure
 *
 * Ownership: the caller owns *out, and must call ashlar_graph_pool_release() before destroying the
 *            allocator.
 * Threads:   any; no call that names `stream` may be under way. If another thread waits for the
 *            whole device meanwhile (ashlar_allocator_watch_streams()), that ends first, or a
 *            second passes.
 * Errors:    ASHLAR_EINVAL (the default stream, or one that has a pool), ASHLAR_EHOSTMEM.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_graph_pool_begin(ashlar_allocator *allocator,
                                                                   ashlar_stream stream,
                                                                   ashlar_graph_pool **out);

/*
 * Serve requests for `stream` from a pool again, until ashlar_graph_pool_end(): a further graph
 * uses the memory that the pool's earlier graphs have freed. Then no two of them may run at a time,
 * and what one of them has computed in a freed block is lost when another one runs.
 *
 * pool     one that ashlar_graph_pool_end() was called for
 * stream   as for ashlar_graph_pool_begin(); it need not be that of the earlier captures
 *
 * Threads: as for ashlar_graph_pool_begin().
 * Errors:  ASHLAR_EINVAL (also: the pool's capture has not ended), ASHLAR_EHOSTMEM (only if
 * `stream` is new to the allocator). On failure nothing changes.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_graph_pool_continue(ashlar_graph_pool *pool,
                                                                      ashlar_stream stream);

/*
 * Call this when the capture is over, whether it succeeded or not: requests for the stream are
 * ordinary again. Blocks of the pool that are freed later go back to the pool, by ashlar_free_on()
 * once the work on that stream is over.
 * Threads: any; no call that names the stream may be under way.
 */
ASHLAR_API void ashlar_graph_pool_end(ashlar_graph_pool *pool);

/*
 * Call this when neither the graph nor a copy of it will be launched any more. The pool's free
 * blocks then count as freed on `stream` just now: that stream may have them at once, others, and
 * later captures, when its work is over. Its live blocks count as taken for `stream`; they stay
 * valid, and are freed as usual.
 *
 * pool     a pool that ashlar_graph_pool_end() was called for; NULL is allowed and does nothing
 * stream   the stream of the last launch, or any stream whose later work comes after all uses of
 *          the pool's blocks; named from now on (see the top of allocator.h)
 *
 * Ownership: `pool` is destroyed; on failure nothing changes.
 * Threads:   any.  Stream: an event is recorded.
 * Errors:    ASHLAR_EINVAL (the capture has not ended), ASHLAR_EHOSTMEM (only if `stream` is new to
 *            the allocator).
 * Cost:      O(blocks).
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_graph_pool_release(ashlar_graph_pool *pool,
                                                                     ashlar_stream stream);

ASHLAR_END_DECLS

#endif /* ASHLAR_GRAPH_POOL_H */
