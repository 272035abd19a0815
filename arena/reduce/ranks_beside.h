/* ranks_beside.h - sums of all ranks that run on a thread of their own, beside the work of the
 * stream they were queued on (internal).
 *
 * A stream of a software device computes on the thread that queues or waits, so a collective in its
 * order would stop it. Begun this way it only hands the collective to the thread; the stream waits
 * where the program says so.
 *
 * Only one thread may be in the MPI: between ashlar__ranks_beside_begin() and the work queued by
 * ashlar__ranks_beside_end() no other collective may run. */
#ifndef ASHLAR_RANKS_BESIDE_H
#define ASHLAR_RANKS_BESIDE_H

#include <ashlar/ranks.h>

/* Start and stop the thread; with NCCL, whose collectives are queued like all work, there is none.
 * Stopping fails the ranks if collectives are under way still. Errors:
 * ASHLAR_EHOSTMEM (no memory, or no thread). */
ASHLAR_MUST_CHECK ashlar_status ashlar__ranks_beside_open(ashlar_ranks *ranks);
void ashlar__ranks_beside_close(ashlar_ranks *ranks); /* allowed in every state */

/* From here on the table's all_reduce begins sums only, in the stream's order. */
void ashlar__ranks_beside_begin(ashlar_ranks *ranks);

/* No more; and queue a wait for all that was begun. Errors: those of ashlar_launch(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__ranks_beside_end(ashlar_ranks *ranks, ashlar_stream stream);

/* For how many of ashlar_ranks_seconds() the stream had other work. No work may be queued. */
double ashlar__ranks_hidden_seconds(const ashlar_ranks *ranks);

#endif /* ASHLAR_RANKS_BESIDE_H */
