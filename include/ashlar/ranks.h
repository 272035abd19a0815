/* ranks.h - joins the processes that train together, and runs the collectives of reduce.h between
 * them, by MPI or NCCL.
 *
 * A launcher (mpirun) starts the same program several times; each process is a rank. The library
 * ashlar-mpi, which makes the calls of MPI, is loaded at run time: the one built for the MPI whose
 * launcher started the program. On software devices MPI does the collectives, in a stream's order.
 * On CUDA devices, one for each rank, NCCL does them; it is found at run time, too.
 *
 * Before each collective the ranks compare on the host what they are about to do. If one rank is
 * about to do something else, or does not come within the timeout, all collectives from then on do
 * nothing, on every rank that is still there, and ashlar_ranks_check() names the rank and the
 * collective.
 *
 * Threads: one at a time. */
#ifndef ASHLAR_RANKS_H
#define ASHLAR_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/device.h>
#include <ashlar/export.h>
#include <ashlar/reduce.h>
#include <ashlar/status.h>

ASHLAR_BEGIN_DECLS

typedef struct ashlar_ranks ashlar_ranks;

/* In which order the elements of all ranks are added up. */
typedef enum ashlar_ranks_order {
    ASHLAR_RANKS_FASTEST, /* MPI's or NCCL's */
    /* As a binary tree over the ranks: ((0 + 1) + (2 + 3)) + .... The sums have the same bits as
     * those of fewer ranks, if each of these first adds up its neighbouring parts as such a tree.
     * Needs 2^k ranks. A sum sends all elements log2(ranks) times */
    ASHLAR_RANKS_TREE,
    ASHLAR_RANKS_ORDER_COUNT
} ashlar_ranks_order;

/* How many processes the launcher has started, this one included, as the environment says. 1: there
 * is no launcher. */
ASHLAR_API size_t ashlar_ranks_started(void);

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

/* Leave the other ranks. No collective may be queued, nor may there be a table for a CUDA device.
 * NULL is allowed.
 *
 * has_failed   true: end all ranks, and this process too, with status 1. false: wait until the
 *              others leave, too */
ASHLAR_API void ashlar_ranks_close(ashlar_ranks *ranks, bool has_failed);

ASHLAR_API size_t ashlar_ranks_rank(const ashlar_ranks *ranks); /* 0 .. count - 1 */
ASHLAR_API size_t ashlar_ranks_count(const ashlar_ranks *ranks);

/* Fill the table for a reducer. Its all_reduce serves other data, too: in any memory on a software
 * device, in device memory on a CUDA device. On CUDA devices every rank must make this call, and a
 * collective returns when all ranks have come to queue it; a thread then watches whether it ends.
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

/* Give back what the table holds of the device; the ranks stay joined. Does nothing without a
 * table.
 *
 * has_failed   true: give up queued collectives. false: all must have ended, on every rank */
ASHLAR_API void ashlar_ranks_drop_collectives(ashlar_ranks *ranks, bool has_failed);

/* Say which step the collectives queued from now on belong to; they are numbered from 0 in it.
 *
 * facts   a checksum of what must be the same on all ranks; the next collective compares it */
ASHLAR_API void ashlar_ranks_mark(ashlar_ranks *ranks, uint64_t step, uint64_t facts);

/* Whether all collectives that have run so far did what they should.
 *
 * Errors: ASHLAR_EIO: a rank did not come, or came with something else; the detail names both. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_ranks_check(ashlar_ranks *ranks);

/* How long this rank was in collectives so far, waits for other ranks included; on a CUDA device,
 * only the waits of the host. */
ASHLAR_API double ashlar_ranks_seconds(const ashlar_ranks *ranks);

/* Whether the program should report a failure on this rank. False: another rank has the same
 * failure and reports it. */
ASHLAR_API bool ashlar_ranks_reports(const ashlar_ranks *ranks);

ASHLAR_END_DECLS

#endif /* ASHLAR_RANKS_H */
