/* ranks_start.h - joins the processes of a launcher, or ends this one in time (internal). */
#ifndef ASHLAR_RANKS_START_H
#define ASHLAR_RANKS_START_H

#include <ashlar/ranks.h>

/* ashlar_ranks_open(), which waits in MPI's start-up for all ranks and cannot be told to give up.
 * If they have not joined in time, print a line and end the process with ASHLAR_EXIT_FAILED;
 * launchers then end the other ranks. Rank 0 does so after the time, the others some seconds later,
 * if they are still there.
 *
 * program      its name, for the line
 * timeout_ms   0: ashlar_ranks_open()'s
 *
 * Errors: those of ashlar_ranks_open(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__ranks_start(const char *program, uint32_t timeout_ms,
                                                    ashlar_ranks **out);

#endif /* ASHLAR_RANKS_START_H */
