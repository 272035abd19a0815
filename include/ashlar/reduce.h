/*
 * reduce.h - keep the arenas of several ranks equal: sum gradients bucket by bucket while backward
 * still runs, and send parameters to all.
 *
 * A rank is one of `world size` arenas with the same layout, by the same declarations or by
 * ashlar_arena_replicate(). The program supplies the collectives as a table of functions, each over
 * one range of one type.
 *
 * A reducer sends a bucket as soon as all its gradients are final and all buckets before it are
 * sent. So every rank sends the same ranges in the same order, as collectives require, in whatever
 * order its backward reports gradients.
 *
 * Sums are not divided. For the average over ranks scale by 1 / world size: in the optimizer, whose
 * gradient scale costs nothing, or in the collective.
 *
 * Threads: one thread at a time for a reducer.
 */
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

/*
 * What a communication library does, queued on `stream`, without a host wait for the device. A
 * function that fails returns a status and sets the detail (ashlar_error_set()).
 *
 *   broadcast        rank `root`'s elements become everyone's
 *   all_reduce       the sum over ranks becomes everyone's
 *   reduce_scatter   of `world size` equal shards, shard r becomes the sum in rank r; the others
 *                    are undefined. NULL is allowed unless the reducer scatters
 *   all_gather       shard r of rank r becomes everyone's shard r. NULL likewise
 */
typedef struct ashlar_collectives {
    void *context;
    ashlar_status (*broadcast)(void *context, void *data, size_t elements, ashlar_dtype dtype,
                               size_t root, ashlar_stream stream);
    ashlar_collective_fn all_reduce;
    ashlar_collective_fn reduce_scatter;
    ashlar_collective_fn all_gather;
} ashlar_collectives;

/* What becomes of a bucket's gradients. */
typedef enum ashlar_reduction {
    ASHLAR_REDUCTION_ALL, /* every rank has every sum */
    /*
     * Rank r has the sums of shard r of each bucket, updates the parameters there, and
     * ashlar_reducer_gather() brings them together. Needs ashlar_arena_set_buckets() with the world
     * size.
     */
    ASHLAR_REDUCTION_SCATTER,
    ASHLAR_REDUCTION_COUNT
} ashlar_reduction;

typedef struct ashlar_reducer ashlar_reducer;

/*
 * Make a reducer for an arena.
 *
 * collectives  copied; its context must outlive the reducer
 * stream       on which collectives are queued: best one of its own, so that backward runs beside
 *              them
 *
 * Nobody reports tensors that are frozen by now. A bucket of frozen tensors only is never sent; in
 * other buckets they are sent along, with whatever their gradients hold.
 *
 * Ownership: *out is the caller's; arena and stream must outlive it.
 * Errors:    ASHLAR_EINVAL (not committed; a function that is needed is NULL), ASHLAR_EHOSTMEM,
 *            ASHLAR_EDRIVER.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_reducer_create(
    const ashlar_arena *arena, const ashlar_collectives *collectives, ashlar_reduction reduction,
    ashlar_stream stream, ashlar_reducer **out);
ASHLAR_API void ashlar_reducer_destroy(ashlar_reducer *reducer); /* NULL is allowed */

/*
 * Begin a step, in which no gradient is final yet. With several micro-batches, a step is the
 * backward pass of the last one.
 *
 * Errors: ASHLAR_EINVAL (a step has begun and not finished; the arena has no gradients).
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_reducer_begin(ashlar_reducer *reducer);

/*
 * Report that the tensor's gradient is final after what is queued on `stream`. Sends the buckets
 * that this completes, if all before them have been sent.
 *
 * stream   any, up to ASHLAR_REDUCER_STREAMS different ones in a step; it must live until the step
 *          is finished
 *
 * Stream:  a bucket's collective runs after what is queued on the streams of its tensors when it is
 *          sent. No host wait.
 * Errors:  ASHLAR_EINVAL (no step; no such tensor, a frozen one, one reported before in this step;
 *          too many streams), ASHLAR_EDRIVER: nothing has changed. What sending or the collective
 *          returned: nothing more is sent in this step, and every further call returns it until
 *          the step is finished.
 * Cost:    O(1); an event record and a wait for each bucket and other stream.
 */
enum { ASHLAR_REDUCER_STREAMS = 64 };
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_reducer_final(ashlar_reducer *reducer,
                                                                size_t tensor,
                                                                ashlar_stream stream);

/*
 * End the step. Sends nothing; work queued on `stream` from now on runs after all collectives.
 *
 * Errors: ASHLAR_EINVAL (no step; a tensor is missing: the first in the order of buckets is named),
 *         the status of sending that failed, ASHLAR_EDRIVER. The step is over even so.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_reducer_finish(ashlar_reducer *reducer,
                                                                 ashlar_stream stream);

/*
 * Make all parameters those of rank `root`: one broadcast for each stretch of one type, on the
 * reducer's stream, after what is queued on `stream` and before what will be.
 *
 * ashlar_reducer_gather: make shard r of each bucket's parameters that of rank r, after the update;
 * for ASHLAR_REDUCTION_SCATTER.
 *
 * Errors: ASHLAR_EINVAL (gather: the reducer does not scatter), ASHLAR_EDRIVER, and the
 *         collective's own; some ranges may be sent then.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_reducer_broadcast(ashlar_reducer *reducer,
                                                                    size_t root,
                                                                    ashlar_stream stream);
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_reducer_gather(ashlar_reducer *reducer,
                                                                 ashlar_stream stream);

ASHLAR_END_DECLS

#endif /* ASHLAR_REDUCE_H */
