/*
 * reduce.h - keep the arenas of several ranks equal: sum gradients bucket by bucket while backward
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
 * Threads: one thread at a time for a reducer.
 */
#ifndef ASHLAR_REDUCE_H
#define ASHLAR_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/arena.h>

ASHLAR_BEGIN_DECLS

/* Queue a collective on `stream`, in place, for `elements` elements of type `dtype` at `data`. */
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
 *                    (ashlar_segment()), at the same places on all ranks
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

/* ---- ranks ---- */

/*
 * ashlar_ranks joins processes for one training, and runs their collectives, by MPI or NCCL.
 *
 * A launcher (mpirun) starts the same program several times; each process is a rank. The library
 * ashlar-mpi, which makes the calls of MPI, is loaded at run time: the one built for the MPI whose
 * launcher started the program. On software devices MPI does the collectives, in a stream's order.
 * On CUDA devices, one for each rank, NCCL does them; it is found at run time, too.
 *
 * Before each collective the ranks compare on the host which one they are about to run. If a rank
 * is about to run another one, or does not come within the timeout, all collectives from then on do
 * nothing, on every rank that is still there, and ashlar_ranks_check() names the rank and the
 * collective.
 *
 * Threads: one at a time.
 */

typedef struct ashlar_ranks ashlar_ranks;

/* In which order the elements of all ranks are added up. */
typedef enum ashlar_ranks_order {
    ASHLAR_RANKS_FASTEST, /* the order that MPI or NCCL chooses */
    /* As a binary tree over the ranks: ((0 + 1) + (2 + 3)) + .... The sums have the same bits as
     * those of fewer ranks, if each of these first adds up its neighbouring parts as such a tree.
     * Needs 2^k ranks. A sum sends all elements log2(ranks) times */
    ASHLAR_RANKS_TREE,
    ASHLAR_RANKS_ORDER_COUNT
} ashlar_ranks_order;

/* Join the other ranks. Once per process; every rank must.
 *
 * library      the file of ashlar-mpi; NULL: the one that ASHLAR_MPI names, or else the one for the
 *              launcher's MPI
 * timeout_ms   for how long a collective waits for a rank; 0: two minutes. Rank 0 reports after
 *              this time, the others some seconds later. This call itself waits for all ranks as
 *              long as MPI does: for ever, if one never comes
 *
 * Ownership: *out is the caller's.
 * Errors:    ASHLAR_ENOTSUP (the library cannot be loaded, or cannot start: the detail says why),
 *            ASHLAR_EHOSTMEM. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_ranks_open(const char *library,
                                                             uint32_t timeout_ms,
                                                             ashlar_ranks **out);

/* Leave the other ranks. No collective may be queued; call ashlar_ranks_drop_collectives() before,
 * if there is a table for a CUDA device. NULL is allowed.
 *
 * has_failed   true: end all ranks, and this process too, with status 1. false: wait until the
 *              others leave, too */
ASHLAR_API void ashlar_ranks_close(ashlar_ranks *ranks, bool has_failed);

typedef struct ashlar_ranks_info {
    size_t rank, count; /* rank: 0 .. count - 1 */
    double seconds;     /* that this rank was in collectives so far, waits for other ranks included;
                         * on a CUDA device, only the waits of the host */
    uint64_t event_calls; /* driver calls made so far to watch collectives by events, which are
                           * queued like work: 0 without NCCL. A program that counts the calls of
                           * its steps leaves them out */
    bool reports; /* whether the program should report a failure on this rank. False: another rank
                   * has the same failure and reports it */
} ashlar_ranks_info;

/* ranks   NULL, before the ranks are joined: only `count` counts, the number of processes that the
 *         launcher started, as the environment says; 1: there is no launcher */
ASHLAR_API ashlar_ranks_info ashlar_ranks_get_info(const ashlar_ranks *ranks);

/* Get a table of collectives for a reducer. Its all_reduce serves other data, too: in any memory on
 * a software device, in device memory on a CUDA device. On CUDA devices every rank must make this
 * call, and a collective returns when all ranks have come to queue it; a thread then watches
 * whether it ends.
 *
 * Ownership: the table is good until ashlar_ranks_drop_collectives() or the next call of this
 *            function; the device must outlive it, and its queued work.
 * Errors:    ASHLAR_EINVAL (order; not 2^k ranks for the tree), ASHLAR_EHOSTMEM; on a CUDA device
 *            also ASHLAR_ENOTSUP (no NCCL from 2.14 on), ASHLAR_EDRIVER, ASHLAR_EIO (the ranks do
 *            not come together; the detail has NCCL's reason). */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_ranks_collectives(ashlar_ranks *ranks,
                                                                    ashlar_device *device,
                                                                    ashlar_ranks_order order,
                                                                    const ashlar_collectives **out);

/* Give back what the table of collectives holds on its device; the ranks stay joined. Does nothing
 * if there is no table.
 *
 * has_failed   true: give up queued collectives. false: all must have ended, on every rank */
ASHLAR_API void ashlar_ranks_drop_collectives(ashlar_ranks *ranks, bool has_failed);

/* Say which step the collectives queued from now on belong to; they are numbered from 0 in it.
 *
 * facts   a checksum of what must be the same on all ranks; the next collective compares it */
ASHLAR_API void ashlar_ranks_mark(ashlar_ranks *ranks, uint64_t step, uint64_t facts);

/* Whether all collectives that have run so far did what they should.
 *
 * Errors: ASHLAR_EIO: a rank did not come to a collective, or came to another one than this rank;
 *         the detail names both. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_ranks_check(ashlar_ranks *ranks);

/* Add up numbers in host memory over all ranks, such as the figures of a report, on the calling
 * thread, which waits for the others. Every rank must call it, with the same count.
 *
 * numbers   [count], replaced by the sums
 *
 * Errors: those of ashlar_ranks_check(); `numbers` may then have changed. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_ranks_sum(ashlar_ranks *ranks, double *numbers,
                                                            size_t count);

ASHLAR_END_DECLS

#endif /* ASHLAR_REDUCE_H */
