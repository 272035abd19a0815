/* ranks_beside.h - sums over all ranks that run on a thread of their own, beside the work of the
 * stream they were queued on (internal).
 *
 * A stream of a software device computes on the thread that queues or waits, so a collective in the
 * stream's order would stop that thread. Here the stream only hands the collective over to another
 * thread, and waits for it where the program says so.
 *
 * Only one thread may be in the MPI: between ashlar__ranks_beside_begin() and the work queued by
 * ashlar__ranks_beside_end() no other collective may run. */
#ifndef ASHLAR_RANKS_BESIDE_H
#define ASHLAR_RANKS_BESIDE_H

#include <ashlar/ranks.h>

/* Start and stop the thread; with NCCL, whose collectives are queued like all work, there is none.
 * If collectives are still under way, _close gives them up, and the ranks fail. Errors:
 * ASHLAR_EHOSTMEM (no memory, or no thread). */
ASHLAR_MUST_CHECK ashlar_status ashlar__ranks_beside_open(ashlar_ranks *ranks);
void ashlar__ranks_beside_close(ashlar_ranks *ranks); /* allowed in every state */

/* From here on the table's all_reduce and reduce hand sums to the thread, in the stream's order. */
void ashlar__ranks_beside_begin(ashlar_ranks *ranks);

/* End that, and queue a wait for all sums handed over so far. Errors: those of ashlar_launch(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__ranks_beside_end(ashlar_ranks *ranks, ashlar_stream stream);

/* How many of the seconds of ashlar_ranks_seconds() the stream did not wait. No work may be queued
 * during the call. */
double ashlar__ranks_hidden_seconds(const ashlar_ranks *ranks);

#endif /* ASHLAR_RANKS_BESIDE_H */
