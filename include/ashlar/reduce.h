/* reduce.h - keep the arenas of several ranks equal: sum gradients bucket by bucket while backward
 * still runs, and send parameters to all.
 *
 * Each rank has one arena. The arenas of all ranks, `world size` of them, must have the same
 * layout: make them by the same declarations or by ashlar_arena_replicate(). The program supplies
 * the collectives as a table of functions, each for one range of elements of one type.
 *
 * A reducer sends a bucket as soon as all its gradients are final and all buckets before it are
 * sent. So every rank sends the same ranges in the same order, as collectives require, even if
 * backward reports gradients in another order on each rank.
 *
 * Sums are not divided. For the average over ranks, scale by 1 / world size: in the optimizer,
 * whose gradient scale costs nothing, or in the collective.
 *
 * Threads: one thread at a time for a reducer. */
#ifndef ASHLAR_REDUCE_H
#define ASHLAR_REDUCE_H

#include <stddef.h>

#include <ashlar/arena.h>
#include <ashlar/device.h>
#include <ashlar/dtype.h>
#include <ashlar/export.h>
#include <ashlar/status.h>

ASHLAR_BEGIN_DECLS

/* Queue a collective on `stream` for `elements` of `dtype` at `data`, in place. */
typedef ashlar_status (*ashlar_collective_fn)(void *context, void *data, size_t elements,
                                              ashlar_dtype dtype, ashlar_stream stream);

/* The functions of a communication library. Each queues its work on `stream`, without a host wait
 * for the device. A function that fails returns a status and sets the detail (ashlar_error_set()).
 *
 *   broadcast        every rank gets the elements of rank `root`
 *   all_reduce       every rank gets the sums over all ranks
 *   reduce_scatter   `data` is `world size` equal shards: rank r gets the sums of shard r, and its
 *                    other shards are undefined. May be NULL unless the reducer scatters
 *   all_gather       every rank gets shard r from rank r. May be NULL unless the reducer scatters
 *   attach           says that many collectives will use the memory from `base`, a whole segment
 *                    (ashlar_allocator_segment()), at the same places on all ranks
 *   detach           says that none will use it any more. No collective that may use it may be
 *                    under way, and the memory must not have been given back yet
 *
 * The program calls attach and detach, on every rank in the same order; no reducer does. They are
 * NULL where the library gains nothing by them. */
typedef struct ashlar_collectives {
    void *context;
    ashlar_status (*broadcast)(void *context, void *data, size_t elements, ashlar_dtype dtype,
                               size_t root, ashlar_stream stream);
    ashlar_collective_fn all_reduce;
    ashlar_collective_fn reduce_scatter;
    ashlar_collective_fn all_gather;
    ashlar_status (*attach)(void *context, void *base, size_t bytes);
    ashlar_status (*detach)(void *context, void *base);
} ashlar_collectives;

/* The result of reducing a bucket's gradients. */
typedef enum ashlar_reduction {
    ASHLAR_REDUCTION_ALL, /* every rank has every sum */
    /* Rank r has the sums of shard r of each bucket and updates the parameters of that shard; then
     * ashlar_reducer_gather() gives every rank all parameters. Needs ashlar_arena_set_buckets()
     * with the world size. */
    ASHLAR_REDUCTION_SCATTER,
    ASHLAR_REDUCTION_COUNT
} ashlar_reduction;

typedef struct ashlar_reducer ashlar_reducer;

/* Make a reducer for an arena.
 *
 * collectives  copied; its context must outlive the reducer
 * stream       collectives are queued on it; preferably a stream for them alone, so that backward
 *              runs beside them
 *
 * Do not report tensors that are frozen when the step begins. A bucket with only frozen tensors is
 * not sent; in other buckets the gradients of frozen tensors are sent along as they are. All ranks
 * freeze the same tensors.
 *
 * Ownership: *out is the caller's; arena and stream must outlive it.
 * Errors:    ASHLAR_EINVAL (not committed; a function that is needed is NULL), ASHLAR_EHOSTMEM,
 *            ASHLAR_EDRIVER. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_reducer_create(const ashlar_arena *arena, const ashlar_collectives *collectives,
                      ashlar_reduction reduction, ashlar_stream stream, ashlar_reducer **out);
ASHLAR_API void ashlar_reducer_destroy(ashlar_reducer *reducer); /* NULL is allowed */

/* Begin a step, in which no gradient is final yet. With several micro-batches, a step is the
 * backward pass of the last one.
 *
 * Errors: ASHLAR_EINVAL (a step has begun and not finished; the arena has no gradients).
 * Cost:   O(tensors), to see which are frozen. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_reducer_begin(ashlar_reducer *reducer);

/* Report that the tensor's gradient is final after the work queued so far on `stream`. Sends the
 * buckets that this completes, if all before them have been sent.
 *
 * stream   any, up to ASHLAR_REDUCER_STREAMS different ones in a step; it must live until the step
 *          is finished
 *
 * Stream:  a bucket's collective runs after all work that is queued, when the bucket is sent, on
 *          the streams that its tensors were reported on. No host wait.
 * Errors:  ASHLAR_EINVAL (no step; no such tensor; the tensor is frozen, or was reported before in
 *          this step; too many streams), ASHLAR_EDRIVER: nothing has changed. If sending or the
 *          collective fails, its status: nothing more is sent in this step, and every further call
 *          returns that status until the step is finished.
 * Cost:    O(1); for each bucket, an event record and a wait for each stream but the reducer's. */
enum { ASHLAR_REDUCER_STREAMS = 64 };
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_reducer_final(ashlar_reducer *reducer,
                                                                size_t tensor,
                                                                ashlar_stream stream);

/* End the step. Sends nothing; work queued on `stream` from now on runs after all collectives.
 *
 * Errors: ASHLAR_EINVAL (no step; a tensor was not reported: the detail names the first in the
 *         order of buckets), the status of a failure to send, ASHLAR_EDRIVER. The step is over even
 *         so. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_reducer_finish(ashlar_reducer *reducer,
                                                                 ashlar_stream stream);

/* ashlar_reducer_broadcast: give every rank the parameters of rank `root`, by one broadcast for
 * each range of one type.
 *
 * ashlar_reducer_gather: for ASHLAR_REDUCTION_SCATTER, after the update: give every rank shard r of
 * each bucket's parameters from rank r.
 *
 * Stream: the collectives run on the reducer's stream, after work queued on `stream` so far and
 *         before work queued there later.
 * Errors: ASHLAR_EINVAL (gather: the reducer does not scatter), ASHLAR_EDRIVER, and those of the
 *         collective; some ranges may have been sent then. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_reducer_broadcast(ashlar_reducer *reducer,
                                                                    size_t root,
                                                                    ashlar_stream stream);
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_reducer_gather(ashlar_reducer *reducer,
                                                                 ashlar_stream stream);

ASHLAR_END_DECLS

#endif /* ASHLAR_REDUCE_H */
