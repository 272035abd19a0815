/*
 * turn.h - runs one subject's turn on the threads of a team, with a function for each kind of list
 * (internal to bench/peers).
 */
#ifndef ASHLAR_TURN_H
#define ASHLAR_TURN_H

#include <stdatomic.h>

#include "allocator/base/compiler.h"
#include "bench/harness/rounds.h"
#include "bench/harness/thread_team.h"
#include "bench/peers/peer.h"
#include "bench/peers/workload.h"

/* A turn's figures besides the seconds of a body, in ns or bytes. */
enum {
    ASHLAR_TURN_P50 = 1, /* times of single pairs, for ASHLAR_WORKLOAD_LATENCY */
    ASHLAR_TURN_P99,
    ASHLAR_TURN_P999,
    ASHLAR_TURN_MAX,
    ASHLAR_TURN_EARLY = 1, /* for a marked list: time of a call around the 100th */
    ASHLAR_TURN_LATE,      /* ... and of one of the last 100 */
    ASHLAR_TURN_HOST,      /* bytes of host memory that a call leaves in use */
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
    ashlar_device *device;
    size_t threads;               /* threads that run the list; the team may have helpers, too */
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
 * Run the turn on the threads of the team. _list: the operations as they are. _latency: each one is
 * timed by itself. _handoff: one thread takes the blocks, another one gives them back. _marked:
 * each block is marked for a further stream; the subject must be a new instance.
 *
 * wall_ns   time of the turn; for latencies and marked blocks only of its timed parts
 *
 * Errors: those of the peer; ASHLAR_ENOMEM if it had no block to give; ASHLAR_EHOSTMEM. Blocks left
 *         by a list, or by latencies, are in the variables; the others leave none.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__turn_list(ashlar_thread_team *team, ashlar_turn *turn,
                                                  double *wall_ns);
ASHLAR_MUST_CHECK ashlar_status ashlar__turn_latency(ashlar_thread_team *team, ashlar_turn *turn,
                                                     double *wall_ns);
ASHLAR_MUST_CHECK ashlar_status ashlar__turn_handoff(ashlar_thread_team *team, ashlar_turn *turn,
                                                     double *wall_ns);
ASHLAR_MUST_CHECK ashlar_status ashlar__turn_marked(ashlar_thread_team *team, ashlar_turn *turn,
                                                    double *wall_ns);

/* Give back all blocks in the variables of a thread. */
ASHLAR_MUST_CHECK ashlar_status ashlar__turn_give_rest(const ashlar_turn *turn, size_t thread);

/* The number of threads that a kind of list needs besides those that run it. */
static inline size_t ashlar__turn_helpers(ashlar_workload_kind kind) {
    return kind == ASHLAR_WORKLOAD_MARKED_UNFINISHED;
}

/* ---- for the files of the kinds ---- */

ASHLAR_MUST_CHECK ashlar_status ashlar__turn_enter(const ashlar_turn_subject *s, size_t thread);
void ashlar__turn_leave(const ashlar_turn_subject *s);

/* Fail with ASHLAR_ENOMEM: the subject had no block of `bytes` bytes. */
ASHLAR_MUST_CHECK ashlar_status ashlar__turn_fail_take(const ashlar_turn *t, size_t bytes);

static inline const ashlar_stream *ashlar__turn_streams(const ashlar_turn *t, size_t thread) {
    return t->streams + thread * t->workload->streams;
}

static ASHLAR_ALWAYS_INLINE void ashlar__turn_give(const ashlar_turn_subject *s, void *ptr,
                                                   size_t bytes, ashlar_stream stream) {
    if (s->peer->give_sized != NULL) {
        s->peer->give_sized(s->self, ptr, bytes, stream);
    } else {
        s->peer->give(s->self, ptr);
    }
}

#endif /* ASHLAR_TURN_H */
