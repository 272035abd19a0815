/* train_ranks.h - ashlar-train as one of several processes: joins the others, leaves printing and
 * files to rank 0, and ends with them (internal). */
#ifndef ASHLAR_TRAIN_RANKS_H
#define ASHLAR_TRAIN_RANKS_H

#include <ashlar/reduce.h>

#include "allocator/base/json.h"
#include "rnn/programs/train_command.h"

/* ---- ranks start ---- */

/*
 * Joins the processes of a launcher, or ends this one in time (internal).
 */

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

/* Join the processes that a launcher has started with this one; without any, only work out
 * --reproducible. Sets c->train.ranks and c->train.shards, and on ranks above 0 takes all outputs
 * out of the command. Threads that compute are divided among the processes of this machine, unless
 * their number was given, and so are its CUDA devices, unless --device has one by its number. A
 * rank that is told to end by SIGTERM says so.
 *
 * Errors: those of ashlar__ranks_start() and ashlar__shards_check(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_ranks_open(ashlar_train_command *c, int argc,
                                                         char **argv);

/* After a training: bring together what each rank has to report, for report->ranks. Every rank must
 * call it; without ranks it does nothing. Ownership: *out is the caller's (ashlar__host_free()),
 * also after an error. Errors: those of the collectives. */
ASHLAR_MUST_CHECK ashlar_status ashlar__train_ranks_gather(const ashlar_train_command *c,
                                                           ashlar_train_report *report,
                                                           ashlar_train_rank **out);

void ashlar__train_ranks_print(const ashlar_train_report *report);
void ashlar__train_ranks_put(ashlar_json_writer *writer, const ashlar_train_report *report);

/* Leave the other ranks. If `exit_status` is not 0, they end, too. Returns `exit_status`. */
int ashlar__train_ranks_close(ashlar_train_command *c, int exit_status);

/* As ashlar__program_fail(), but silent if another rank reports the failure. */
int ashlar__train_ranks_fail(const ashlar_train_command *c, const char *program,
                             ashlar_status status);

#endif /* ASHLAR_TRAIN_RANKS_H */
