/* turn.c - runs a list's operations on the threads of a turn, in the loop that is timed. */
#include "bench/peers/turn.h"

#include "allocator/base/error.h"

ashlar_status ashlar__turn_enter(const ashlar_turn_subject *s, size_t thread) {
    return s->peer->enter != NULL ? s->peer->enter(s->self, thread) : ASHLAR_OK;
}

void ashlar__turn_leave(const ashlar_turn_subject *s) {
    if (s->peer->leave != NULL) {
        s->peer->leave(s->self);
    }
}

ashlar_status ashlar__turn_fail_take(const ashlar_turn *t, size_t bytes) {
    return ashlar__fail(ASHLAR_ENOMEM, "bench: %s has no block of %zu bytes in %s",
                        t->subject->peer->name, bytes, t->workload->name);
}

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
    const ashlar_stream *streams = ashlar__turn_streams(t, thread);
    const ashlar_op *at = w->ops + begin, *stop = w->ops + end;
    const size_t first = thread * ashlar__turn_stride(w);
    void **variables = s->variables + first;
    const bool is_done = s->sizes == NULL
                             ? run_ops(s, streams, variables, NULL, false, &at, stop)
                             : run_ops(s, streams, variables, s->sizes + first, true, &at, stop);
    return is_done ? ASHLAR_OK : ashlar__turn_fail_take(t, at->bytes);
}

/* Run operations [begin, end) as one step. The step is ended even if an operation fails. */
static ashlar_status run_step(const ashlar_turn *t, size_t thread, size_t begin, size_t end) {
    const ashlar_turn_subject *s = t->subject;
    ASHLAR_TRY(s->peer->begin_step(s->self, ashlar__turn_streams(t, thread)[0]));
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
    ASHLAR_TRY(ashlar__turn_enter(t->subject, thread));
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; i < t->repeats && status == ASHLAR_OK; i++) {
        status = t->subject->peer->begin_step != NULL ? run_steps(t, thread)
                                                      : run_range(t, thread, t->begin, t->end);
    }
    ashlar__turn_leave(t->subject);
    return status;
}

ashlar_status ashlar__turn_give_rest(const ashlar_turn *t, size_t thread) {
    const ashlar_turn_subject *s = t->subject;
    const size_t first = thread * ashlar__turn_stride(t->workload);
    if (thread >= t->threads) {
        return ASHLAR_OK; /* helpers have no variables */
    }
    ASHLAR_TRY(ashlar__turn_enter(s, thread));
    for (size_t i = 0; i < t->workload->variable_count; i++) {
        void **variable = &s->variables[first + i];
        if (*variable != NULL) {
            ashlar__turn_give(s, *variable, s->sizes != NULL ? s->sizes[first + i] : 0,
                              ashlar__turn_streams(t, thread)[0]);
        }
        *variable = NULL;
    }
    ashlar__turn_leave(s);
    return ASHLAR_OK;
}

ashlar_status ashlar__turn_list(ashlar_thread_team *team, ashlar_turn *turn, double *wall_ns) {
    return ashlar__thread_team_run(team, run_thread, turn, wall_ns);
}
