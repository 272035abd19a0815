/* train_ranks.h - ashlar-train as one of several processes: joins the others, leaves printing and
 * files to rank 0, and ends with them (internal). */
#ifndef ASHLAR_TRAIN_RANKS_H
#define ASHLAR_TRAIN_RANKS_H

#include "allocator/base/json.h"
#include "rnn/programs/train_command.h"

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
