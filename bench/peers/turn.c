/* turn.c - runs a list's operations on the threads of a turn: in one timed loop, each timed by
 * itself, or with blocks handed from one thread to another. */
#include "bench/peers/measure.h"

#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

#include "allocator/base/host.h"
#include "allocator/base/compiler.h"
#include "allocator/base/error.h"

static ashlar_status enter(const ashlar_turn_subject *s, size_t thread) {
    return s->peer->enter != NULL ? s->peer->enter(s->self, thread) : ASHLAR_OK;
}

static void leave(const ashlar_turn_subject *s) {
    if (s->peer->leave != NULL) {
        s->peer->leave(s->self);
    }
}

static ashlar_status fail_take(const ashlar_turn *t, size_t bytes) {
    return ashlar__fail(ASHLAR_ENOMEM, "bench: %s has no block of %zu bytes in %s",
                        t->subject->peer->name, bytes, t->workload->name);
}

static const ashlar_stream *streams_of(const ashlar_turn *t, size_t thread) {
    return t->streams + thread * t->workload->streams;
}

static ASHLAR_ALWAYS_INLINE void give_one(const ashlar_turn_subject *s, void *ptr, size_t bytes,
                                          ashlar_stream stream) {
    if (s->peer->give_sized != NULL) {
        s->peer->give_sized(s->self, ptr, bytes, stream);
    } else {
        s->peer->give(s->self, ptr);
    }
}

/* ---- in one timed loop ---- */

/*
 * The loop that is timed. False: the peer had no block for operation *at. is_sized: the peer has
 * give_sized(), and each block's size is kept in `sizes`. Callers pass a constant, so that the
 * compiler removes the branches on it.
 */
static ASHLAR_ALWAYS_INLINE bool run_ops(const ashlar_turn_subject *s, const ashlar_stream *streams,
                                         void **variables, size_t *sizes, bool is_sized,
                                         const ashlar_op **at, const ashlar_op *end) {
    void *(*const take)(void *, size_t, ashlar_stream) = s->peer->take;
    void (*const give)(void *, void *) = s->peer->give;
    void (*const give_sized)(void *, void *, size_t, ashlar_stream) = s->peer->give_sized;
    void *const self = s->self;
    for (const ashlar_op *op = *at; op != end; op++) {
        void **variable = &variables[op->variable];
        if (op->bytes == 0) {
            if (is_sized) {
                give_sized(self, *variable, sizes[op->variable], streams[op->stream]);
            } else {
                give(self, *variable);
            }
            *variable = NULL;
            continue;
        }
        *variable = take(self, op->bytes, streams[op->stream]);
        if (is_sized) {
            sizes[op->variable] = op->bytes;
        }
        if (*variable == NULL) {
            *at = op;
            return false;
        }
    }
    return true;
}

static ashlar_status run_range(const ashlar_turn *t, size_t thread, size_t begin, size_t end) {
    const ashlar_turn_subject *s = t->subject;
    const ashlar_workload *w = t->workload;
    const ashlar_stream *streams = streams_of(t, thread);
    const ashlar_op *at = w->ops + begin, *stop = w->ops + end;
    const size_t first = thread * ashlar__turn_stride(w);
    void **variables = s->variables + first;
    const bool is_done = s->sizes == NULL
                             ? run_ops(s, streams, variables, NULL, false, &at, stop)
                             : run_ops(s, streams, variables, s->sizes + first, true, &at, stop);
    return is_done ? ASHLAR_OK : fail_take(t, at->bytes);
}

/* Run operations [begin, end) as one step. The step is ended even if an operation fails. */
static ashlar_status run_step(const ashlar_turn *t, size_t thread, size_t begin, size_t end) {
    const ashlar_turn_subject *s = t->subject;
    ASHLAR_TRY(s->peer->begin_step(s->self, streams_of(t, thread)[0]));
    const ashlar_status status = run_range(t, thread, begin, end);
    const ashlar_status ended = s->peer->end_step(s->self);
    return status == ASHLAR_OK ? ended : status;
}

/* Run a turn on a subject that has begin_step() and end_step(). */
static ashlar_status run_steps(const ashlar_turn *t, size_t thread) {
    const ashlar_workload *w = t->workload;
    ashlar_status status = ASHLAR_OK;
    size_t step = 0, at = t->begin;
    while (step < w->step_count && w->steps[step] < at) {
        step++;
    }
    while (at < t->end && status == ASHLAR_OK) {
        const bool is_step = step < w->step_count && w->steps[step] == at;
        step += is_step;
        const size_t end =
            step < w->step_count && w->steps[step] < t->end ? w->steps[step] : t->end;
        status = (is_step ? run_step : run_range)(t, thread, at, end);
        at = end;
    }
    return status;
}

static ashlar_status run_thread(void *arg, size_t thread) {
    const ashlar_turn *t = arg;
    ASHLAR_TRY(enter(t->subject, thread));
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; i < t->repeats && status == ASHLAR_OK; i++) {
        status = t->subject->peer->begin_step != NULL ? run_steps(t, thread)
                                                      : run_range(t, thread, t->begin, t->end);
    }
    leave(t->subject);
    return status;
}

static ashlar_status give_rest(void *arg, size_t thread) {
    const ashlar_turn *t = arg;
    const ashlar_turn_subject *s = t->subject;
    const size_t first = thread * ashlar__turn_stride(t->workload);
    ASHLAR_TRY(enter(s, thread));
    for (size_t i = 0; i < t->workload->variable_count; i++) {
        void **variable = &s->variables[first + i];
        if (*variable != NULL) {
            give_one(s, *variable, s->sizes != NULL ? s->sizes[first + i] : 0,
                     streams_of(t, thread)[0]);
        }
        *variable = NULL;
    }
    leave(s);
    return ASHLAR_OK;
}

ashlar_status ashlar__turn_give_rest(ashlar_thread_team *team, ashlar_turn *turn) {
    double wall_ns;
    return ashlar__thread_team_run(team, give_rest, turn, &wall_ns);
}

ashlar_status ashlar__turn_list(ashlar_thread_team *team, ashlar_turn *turn, double *wall_ns) {
    return ashlar__thread_team_run(team, run_thread, turn, wall_ns);
}

/* ---- each operation timed by itself ---- */

typedef struct latencies {
    double clock_ns;   /* the time that reading the clock adds */
    double *operation; /* [variable_count]: how long it took to take the variable's block */
    double *pair;      /* [body_pairs]: how long each pair took, in the last repeat */
} latencies;

static ashlar_status time_ops(ashlar_turn *t, latencies *l) {
    const ashlar_turn_subject *s = t->subject;
    size_t pairs = 0;
    for (size_t i = t->begin; i < t->end; i++) {
        const ashlar_op op = t->workload->ops[i];
        const ashlar_stream stream = t->streams[op.stream];
        void **variable = &s->variables[op.variable];
        const uint64_t before = ashlar__clock_ns();
        if (op.bytes != 0) {
            *variable = s->peer->take(s->self, op.bytes, stream);
        } else {
            give_one(s, *variable, s->sizes != NULL ? s->sizes[op.variable] : 0, stream);
        }
        const double ns = fmax(0, (double)(ashlar__clock_ns() - before) - l->clock_ns);
        t->figures[0] += ns;
        if (op.bytes == 0) {
            *variable = NULL;
            l->pair[pairs++] = l->operation[op.variable] + ns;
        } else if (*variable == NULL) {
            return fail_take(t, op.bytes);
        } else {
            l->operation[op.variable] = ns;
            if (s->sizes != NULL) {
                s->sizes[op.variable] = op.bytes;
            }
        }
    }
    return ASHLAR_OK;
}

static ashlar_status run_latency(void *arg, size_t thread) {
    static const struct {
        size_t figure;
        double share;
    } wanted[] = {{ASHLAR_TURN_P50, 0.5},
                  {ASHLAR_TURN_P99, 0.99},
                  {ASHLAR_TURN_P999, 0.999},
                  {ASHLAR_TURN_MAX, 1}};
    ashlar_turn *t = arg;
    const size_t count = t->workload->body_pairs;
    latencies l = {.clock_ns = ashlar__clock_cost_ns(),
                   .operation = ashlar__host_calloc(t->workload->variable_count, sizeof(double)),
                   .pair = ashlar__host_calloc(count, sizeof(double))};
    ashlar_status status = l.operation != NULL && l.pair != NULL
                               ? enter(t->subject, thread)
                               : ashlar__fail(ASHLAR_EHOSTMEM, "bench: no memory for latencies");
    if (status == ASHLAR_OK) {
        for (size_t i = 0; i < t->repeats && status == ASHLAR_OK; i++) {
            status = time_ops(t, &l);
        }
        leave(t->subject);
        (void)ashlar__median(l.pair, count); /* called because it sorts the times */
        for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
            t->figures[wanted[i].figure] =
                l.pair[(size_t)ceil(wanted[i].share * (double)count) - 1];
        }
    }
    ashlar__host_free(l.operation);
    ashlar__host_free(l.pair);
    return status;
}

static ashlar_status run_timed(ashlar_thread_team *team, ashlar_turn *turn, double *wall_ns) {
    ASHLAR_TRY(ashlar__thread_team_run(team, run_latency, turn, wall_ns));
    *wall_ns = turn->figures[0];
    return ASHLAR_OK;
}

/* ---- with blocks handed from one thread to another ---- */

enum { RING = 64 };

/* A ring of blocks on their way: block i is in it for given <= i < taken. A NULL ends them. */
typedef struct handoff {
    ashlar_turn *turn;
    _Alignas(ASHLAR_CACHE_LINE) _Atomic size_t taken;
    void *blocks[RING];
    _Alignas(ASHLAR_CACHE_LINE) _Atomic size_t given;
    atomic_bool is_over; /* one of the two threads could not begin */
} handoff;

/* Wait until the other thread's index is no longer `stop`. False: that thread could not begin. */
static bool wait_for(handoff *h, _Atomic size_t *index, size_t stop, size_t *out) {
    while ((*out = atomic_load_explicit(index, memory_order_acquire)) == stop) {
        if (atomic_load(&h->is_over)) {
            return false;
        }
        sched_yield();
    }
    return true;
}

static ashlar_status take_side(handoff *h, size_t count, size_t bytes) {
    const ashlar_turn *t = h->turn;
    size_t given = 0; /* h->given when it was last read */
    for (size_t i = 0; i < count; i++) {
        if (i - given == RING && !wait_for(h, &h->given, given, &given)) {
            return ASHLAR_OK; /* the other thread returns the failure */
        }
        void *ptr = t->subject->peer->take(t->subject->self, bytes, t->streams[0]);
        h->blocks[i % RING] = ptr;
        atomic_store_explicit(&h->taken, i + 1, memory_order_release);
        if (ptr == NULL) {
            return fail_take(t, bytes);
        }
    }
    return ASHLAR_OK;
}

static void give_side(handoff *h, size_t count, size_t bytes) {
    const ashlar_turn *t = h->turn;
    size_t taken = 0; /* h->taken when it was last read */
    for (size_t i = 0; i < count; i++) {
        if (i == taken && !wait_for(h, &h->taken, taken, &taken)) {
            return;
        }
        void *ptr = h->blocks[i % RING];
        if (ptr == NULL) {
            return;
        }
        give_one(t->subject, ptr, bytes, t->streams[0]);
        atomic_store_explicit(&h->given, i + 1, memory_order_release);
    }
}

static ashlar_status run_side(void *arg, size_t thread) {
    handoff *h = arg;
    const size_t count = h->turn->repeats * h->turn->workload->body_pairs;
    const size_t bytes = h->turn->workload->ops[h->turn->begin].bytes;
    ashlar_status status = enter(h->turn->subject, thread);
    if (status != ASHLAR_OK) {
        atomic_store(&h->is_over, true);
        return status;
    }
    if (thread == 0) {
        status = take_side(h, count, bytes);
    } else {
        give_side(h, count, bytes);
    }
    leave(h->turn->subject);
    return status;
}

/* Give back what the second thread, which could not begin, has left in the ring. */
static void give_left(handoff *h, size_t bytes) {
    const ashlar_turn_subject *s = h->turn->subject;
    if (h->given < h->taken && enter(s, 0) == ASHLAR_OK) {
        for (size_t i = h->given; i < h->taken; i++) {
            void *ptr = h->blocks[i % RING];
            if (ptr != NULL) {
                give_one(s, ptr, bytes, h->turn->streams[0]);
            }
        }
        leave(s);
    }
}

static ashlar_status run_handoff(ashlar_thread_team *team, ashlar_turn *turn, double *wall_ns) {
    handoff h = {.turn = turn};
    const ashlar_status status = ashlar__thread_team_run(team, run_side, &h, wall_ns);
    if (status != ASHLAR_OK) {
        char detail[ASHLAR_DETAIL_BYTES];
        (void)snprintf(detail, sizeof detail, "%s", ashlar_error_detail());
        give_left(&h, turn->workload->ops[turn->begin].bytes);
        return ashlar__fail(status, "%s", detail);
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__turn_run(ashlar_thread_team *team, ashlar_turn *turn, double *wall_ns) {
    const ashlar_workload_kind kind = turn->workload->kind;
    return kind == ASHLAR_WORKLOAD_LATENCY   ? run_timed(team, turn, wall_ns)
           : kind == ASHLAR_WORKLOAD_HANDOFF ? run_handoff(team, turn, wall_ns)
                                             : ashlar__turn_list(team, turn, wall_ns);
}
