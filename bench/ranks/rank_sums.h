/* rank_sums.h - measures how long ranks take to add up gradients, by the size of the pieces in
 * which these are sent (internal). */
#ifndef ASHLAR_RANK_SUMS_H
#define ASHLAR_RANK_SUMS_H

#include <stddef.h>

#include <ashlar/status.h>

/* Run `ashlar-bench sums`, which a launcher has started on each rank: on software devices, time the
 * sum of a range over all ranks, in both orders and in pieces of several sizes. Takes --json FILE,
 * where rank 0 writes {rows}, rows of {subject, bucket, ms_step}, and --smoke.
 *
 * Errors: ASHLAR_EINVAL (an option; no launcher; not 2^k ranks), those of ashlar_ranks_open() and
 *         of the collectives. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rank_sums(int argc, char **argv);

/* The name of the i-th size of pieces; NULL: there are fewer. */
const char *ashlar__rank_sums_bucket(size_t i);

#endif /* ASHLAR_RANK_SUMS_H */
