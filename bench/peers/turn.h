/*
 * turn.h - runs one subject's turn on the threads of a team
 * (internal to bench/peers).
 */
#ifndef ASHLAR_TURN_H
#define ASHLAR_TURN_H

#include "bench/harness/rounds.h"
#include "bench/harness/thread_team.h"
#include "bench/peers/peer.h"
#include "bench/peers/workload.h"

/* A turn's figures besides the seconds of a body, in ns. */
enum {
    ASHLAR_TURN_P50 = 1, /* times of single pairs, for ASHLAR_WORKLOAD_LATENCY */
    ASHLAR_TURN_P99,
    ASHLAR_TURN_P999,
    ASHLAR_TURN_MAX,
};
_Static_assert((int)ASHLAR_TURN_MAX < (int)ASHLAR_ROUNDS_FIGURES, "a turn's figures are kept");

/* One subject: an instance of a peer, and the blocks that its threads hold. */
typedef struct ashlar_turn_subject {
    const ashlar_peer *peer;
    void *self;
    bool is_created;
    void **variables; /* [threads, ashlar__turn_stride()]: blocks; NULL: the variable is free */
    size_t *sizes;    /* laid out like `variables`: the size of the block in each, in bytes; NULL
                         unless the peer has give_sized */
} ashlar_turn_subject;

/* Operations [begin, end) of the list, `repeats` times. */
typedef struct ashlar_turn {
    const ashlar_workload *workload;
    const ashlar_turn_subject *subject;
    const ashlar_stream *streams; /* [threads, workload->streams] */
    size_t begin, end, repeats;
    double figures[ASHLAR_ROUNDS_FIGURES]; /* zeros before the turn; after it, what the workload's
                                              kind measures; [0]: the ns that were timed */
} ashlar_turn;

/* Variables per thread, padded by two cache lines so that no two threads write into one line. */
static inline size_t ashlar__turn_stride(const ashlar_workload *w) {
    return w->variable_count + 16;
}

/*
 * Run the turn on the threads of the team, by the list's kind: the operations as they are; each
 * timed by itself (LATENCY); or one thread takes the blocks and another gives them back (HANDOFF).
 *
 * wall_ns   time of the turn; for latencies only of its timed parts
 *
 * Errors: those of the peer; ASHLAR_ENOMEM if it had no block to give; ASHLAR_EHOSTMEM. Blocks that
 *         are left are in the variables; a hand-over leaves none.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__turn_run(ashlar_thread_team *team, ashlar_turn *turn,
                                                 double *wall_ns);

/* The same with the operations as they are, whatever the list's kind. */
ASHLAR_MUST_CHECK ashlar_status ashlar__turn_list(ashlar_thread_team *team, ashlar_turn *turn,
                                                  double *wall_ns);

/* Give back all blocks in the variables of each thread. */
ASHLAR_MUST_CHECK ashlar_status ashlar__turn_give_rest(ashlar_thread_team *team, ashlar_turn *turn);

#endif /* ASHLAR_TURN_H */
