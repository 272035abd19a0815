/*
 * reduce.h - keep the arenas of several ranks equal: gradients summed bucket by bucket while
 * backward still runs, parameters sent to all.
 *
 * A rank is one arena that trains, one of `world size` with the same layout (by the same
 * declarations, or ashlar_arena_replicate()). The collectives come from outside, as a table of
 * functions, each over one range of one type.
 *
 * A reducer sends each bucket as soon as all gradients in it are final, and in the order of the
 * buckets. So every rank sends the same ranges in the same order, in whatever order its backward
 * reports gradients, which collectives need.
 *
 * Sums are not divided. For the average over ranks, scale by 1 / world size: in the optimizer,
 * where it costs nothing (its gradient scale), or in the collective.
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
 * What a communication library does, on `stream` and without a host wait for the device. A failure
 * is a status with a detail (ashlar_error_set()).
 *
 *   broadcast        rank `root`'s elements become everyone's
 *   all_reduce       the sum over ranks becomes everyone's
 *   reduce_scatter   in `world size` equal parts, part r becomes the sum in rank r; the other parts
 *                    are undefined. NULL is allowed, and so for all_gather
 *   all_gather       part r of rank r becomes everyone's part r
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
     * Rank r has the sums of part r of each bucket, updates the parameters there, and
     * ashlar_reducer_gather() brings them together. For ashlar_arena_set_buckets() with the world
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
 * stream       on which collectives are queued: best one of their own, so that backward goes on
 *              beside them
 *
 * Tensors that are frozen by now are left out: nobody reports them. A bucket with frozen tensors
 * only is never sent; of other buckets they are a part, with what their gradients hold.
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
 * Begin a step: no gradient is final. With several micro-batches, one step is the last one's
 * backward.
 *
 * Errors: ASHLAR_EINVAL (a step has begun and not finished; the arena has no gradients).
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_reducer_begin(ashlar_reducer *reducer);

/*
 * Say that this tensor's gradient is final behind what is queued on `stream`. Sends the buckets
 * that this completes, if all before them have been sent.
 *
 * stream   any, up to ASHLAR_REDUCER_STREAMS different ones in a step; it must live until the step
 *          is finished
 *
 * Stream:  collectives of a bucket run behind what is queued on the streams of its tensors when it
 *          is sent. No host wait.
 * Errors:  ASHLAR_EINVAL (no step; no such tensor, a frozen one, one reported before in this step;
 *          too many streams), ASHLAR_EDRIVER: nothing has changed. Those of sending, and of the
 *          collective's own: nothing more is sent in this step, and every further call says so
 *          until it is finished.
 * Cost:    O(1); an event record and a wait for each bucket and other stream.
 */
enum { ASHLAR_REDUCER_STREAMS = 64 };
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_reducer_final(ashlar_reducer *reducer,
                                                                size_t tensor,
                                                                ashlar_stream stream);

/*
 * End the step. Sends nothing; what is queued on `stream` from now on runs behind all collectives.
 *
 * Errors: ASHLAR_EINVAL (no step; a tensor is missing: the first in the order of buckets is named),
 *         the status of sending that failed, ASHLAR_EDRIVER. The step is over even so.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_reducer_finish(ashlar_reducer *reducer,
                                                                 ashlar_stream stream);

/*
 * Make all parameters those of rank `root`: one broadcast for each stretch of one type, on the
 * reducer's stream, behind what is queued on `stream` and before what will be.
 *
 * ashlar_reducer_gather: make part r of each bucket's parameters that of rank r; for
 * ASHLAR_REDUCTION_SCATTER, after the update.
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
