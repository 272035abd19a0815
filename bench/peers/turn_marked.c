/* turn_marked.c - blocks that are taken, marked for a further stream and given back: the cost of
 * early and late calls, and the host memory that calls leave in use. */
#include <sched.h>

#include "allocator/base/check_level.h"
#include "allocator/base/clock.h"
#include "allocator/base/error.h"
#include "bench/harness/machine.h"
#include "bench/peers/turn.h"

/* Calls whose time is averaged: those around the 100th, and the last. */
enum { EARLY_BEGIN = 50, EARLY_END = 150, LATE_COUNT = 100, CALLS_LEAST = 500 };

typedef struct marked {
    ashlar_turn *turn;
    atomic_bool is_held; /* the further stream's work has begun */
    atomic_bool is_over; /* the further stream's work may end */
} marked;

static ashlar_status run_calls(const ashlar_turn *t, size_t count, double *ns) {
    const ashlar_turn_subject *s = t->subject;
    const size_t bytes = t->workload->ops[t->begin].bytes;
    const uint64_t start = ashlar__clock_ns();
    for (size_t i = 0; i < count; i++) {
        void *ptr = s->peer->take(s->self, bytes, t->streams[0]);
        if (ptr == NULL) {
            return ashlar__turn_fail_take(t, bytes);
        }
        const ashlar_status status = s->peer->mark(s->self, ptr, t->streams[1]);
        ashlar__turn_give(s, ptr, bytes, t->streams[0]);
        ASHLAR_TRY(status);
    }
    *ns = (double)(ashlar__clock_ns() - start);
    return ASHLAR_OK;
}

/* Host memory counts from a tenth of the calls on, when all fixed costs have been paid. */
static ashlar_status run_all(ashlar_turn *t) {
    const size_t count = t->workload->body_pairs, settled = count / 10 + EARLY_END;
    double ns[5] = {0};
    ASHLAR_ASSERT(count >= CALLS_LEAST);
    ASHLAR_TRY(run_calls(t, EARLY_BEGIN, &ns[0]));
    ASHLAR_TRY(run_calls(t, EARLY_END - EARLY_BEGIN, &ns[1]));
    ASHLAR_TRY(run_calls(t, settled - EARLY_END, &ns[2]));
    const double before = ashlar__machine_host_bytes();
    ASHLAR_TRY(run_calls(t, count - LATE_COUNT - settled, &ns[3]));
    ASHLAR_TRY(run_calls(t, LATE_COUNT, &ns[4]));
    t->figures[ASHLAR_TURN_EARLY] = ns[1] / (EARLY_END - EARLY_BEGIN);
    t->figures[ASHLAR_TURN_LATE] = ns[4] / LATE_COUNT;
    t->figures[ASHLAR_TURN_HOST] =
        (ashlar__machine_host_bytes() - before) / (double)(count - settled);
    t->figures[0] = ns[0] + ns[1] + ns[2] + ns[3] + ns[4];
    return ASHLAR_OK;
}

static void hold(void *arg) {
    marked *m = *(marked **)arg;
    atomic_store(&m->is_held, true);
    while (!atomic_load(&m->is_over)) {
        sched_yield();
    }
}

/* Queue the further stream's work, which on a software device runs on the calling thread. */
static ashlar_status hold_stream(marked *m) {
    const ashlar_status status =
        ashlar_launch(m->turn->device, m->turn->streams[1], hold, &m, sizeof m);
    if (status != ASHLAR_OK) {
        atomic_store(&m->is_held, true); /* so that nobody waits for it */
    }
    return status;
}

/* Thread 0 makes the calls. Thread 1, if there is one, keeps the stream busy for which blocks are
 * marked. */
static ashlar_status run_thread(void *arg, size_t thread) {
    marked *m = arg;
    if (thread > 0) {
        return hold_stream(m);
    }
    while (!atomic_load(&m->is_held)) {
        sched_yield();
    }
    ashlar_status status = ashlar__turn_enter(m->turn->subject, 0);
    if (status == ASHLAR_OK) {
        status = run_all(m->turn);
        ashlar__turn_leave(m->turn->subject);
    }
    atomic_store(&m->is_over, true);
    return status;
}

ashlar_status ashlar__turn_marked(ashlar_thread_team *team, ashlar_turn *turn, double *wall_ns) {
    marked m = {.turn = turn, .is_held = ashlar__turn_helpers(turn->workload->kind) == 0};
    ASHLAR_TRY(ashlar__thread_team_run(team, run_thread, &m, wall_ns));
    ASHLAR_TRY(ashlar_stream_synchronize(turn->device, turn->streams[1]));
    *wall_ns = turn->figures[0];
    return ASHLAR_OK;
}
