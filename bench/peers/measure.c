/* measure.c - runs a workload on each subject in rounds that take turns, and times them. */
#include "bench/peers/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness/thread_team.h"
#include "bench/harness/rounds.h"
#include "allocator/device/device_impl.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

enum { ROUNDS_OF_SLOW = 5 }; /* see slow_rounds in rounds.h */

/* One subject: an instance of a peer, and the blocks that its threads hold. */
typedef struct subject {
    const ashlar_peer *peer;
    void *self;
    bool is_created;
    void **variables; /* [threads, variable_stride]: blocks; NULL: the variable is free */
    size_t *sizes;    /* laid out like `variables`: the size of the block in each, in bytes; NULL
                         unless the peer has give_sized */
    bool has_run;     /* the prologue and once the body */
    uint64_t driver_calls; /* of that run of the body */
} subject;

typedef struct bench {
    const ashlar_measure_config *config;
    const ashlar_workload *workload;
    ashlar_thread_team *team;
    ashlar_stream streams[ASHLAR_PEER_THREADS_MAX];
    subject *subjects;
    size_t count;
} bench;

/* What the threads are to do next: operations [begin, end) of the list, `repeats` times. */
typedef struct stretch {
    const bench *bench;
    subject *subject;
    size_t begin, end;
    size_t repeats;
} stretch;

/* Variables per thread, padded by two cache lines so that no two threads write into one line. */
static size_t variable_stride(const ashlar_workload *w) {
    return w->variable_count + 16;
}

/*
 * The loop that is timed. False: the peer had no block for operation *at. is_sized, which is a
 * constant, and so are the branches on it: the peer has give_sized(), and each block's size is
 * remembered in `sizes`.
 */
static ASHLAR_ALWAYS_INLINE bool run_ops(const subject *s, ashlar_stream stream, void **variables,
                                         size_t *sizes, bool is_sized, const ashlar_op **at,
                                         const ashlar_op *end) {
    void *(*const take)(void *, size_t, ashlar_stream) = s->peer->take;
    void (*const give)(void *, void *) = s->peer->give;
    void (*const give_sized)(void *, void *, size_t, ashlar_stream) = s->peer->give_sized;
    void *const self = s->self;
    for (const ashlar_op *op = *at; op != end; op++) {
        void **variable = &variables[op->variable];
        if (op->bytes == 0) {
            if (is_sized) {
                give_sized(self, *variable, sizes[op->variable], stream);
            } else {
                give(self, *variable);
            }
            *variable = NULL;
            continue;
        }
        *variable = take(self, op->bytes, stream);
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

static ashlar_status run_range(const subject *s, const bench *b, size_t thread, size_t begin,
                               size_t end) {
    const ashlar_workload *w = b->workload;
    const ashlar_stream stream = b->streams[thread];
    const ashlar_op *at = w->ops + begin, *stop = w->ops + end;
    const size_t first = thread * variable_stride(w);
    void **variables = s->variables + first;
    const bool is_done = s->sizes == NULL
                             ? run_ops(s, stream, variables, NULL, false, &at, stop)
                             : run_ops(s, stream, variables, s->sizes + first, true, &at, stop);
    return is_done ? ASHLAR_OK
                   : ashlar__fail(ASHLAR_ENOMEM, "bench: %s has no block of %u bytes in %s",
                                  s->peer->name, at->bytes, w->name);
}

/* Run operations [begin, end) as one step. The step is ended even if an operation fails. */
static ashlar_status run_step(const subject *s, const bench *b, size_t thread, size_t begin,
                              size_t end) {
    ASHLAR_TRY(s->peer->begin_step(s->self, b->streams[thread]));
    const ashlar_status status = run_range(s, b, thread, begin, end);
    const ashlar_status ended = s->peer->end_step(s->self);
    return status == ASHLAR_OK ? ended : status;
}

/* Run a stretch on a subject that has begin_step() and end_step(). */
static ashlar_status run_steps(const stretch *turn, size_t thread) {
    const ashlar_workload *w = turn->bench->workload;
    ashlar_status status = ASHLAR_OK;
    size_t step = 0, at = turn->begin;
    while (step < w->step_count && w->steps[step] < at) {
        step++;
    }
    while (at < turn->end && status == ASHLAR_OK) {
        const bool is_step = step < w->step_count && w->steps[step] == at;
        step += is_step;
        const size_t end =
            step < w->step_count && w->steps[step] < turn->end ? w->steps[step] : turn->end;
        status = (is_step ? run_step : run_range)(turn->subject, turn->bench, thread, at, end);
        at = end;
    }
    return status;
}

static ashlar_status enter(const subject *s, size_t thread) {
    return s->peer->enter != NULL ? s->peer->enter(s->self, thread) : ASHLAR_OK;
}

static void leave(const subject *s) {
    if (s->peer->leave != NULL) {
        s->peer->leave(s->self);
    }
}

static ashlar_status run_stretch(void *arg, size_t thread) {
    const stretch *turn = arg;
    const subject *s = turn->subject;
    ASHLAR_TRY(enter(s, thread));
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; i < turn->repeats && status == ASHLAR_OK; i++) {
        status = s->peer->begin_step != NULL
                     ? run_steps(turn, thread)
                     : run_range(s, turn->bench, thread, turn->begin, turn->end);
    }
    leave(s);
    return status;
}

static ashlar_status run(const bench *b, subject *s, size_t begin, size_t end, size_t repeats,
                         double *wall_ns) {
    stretch turn = {b, s, begin, end, repeats};
    *wall_ns = 0;
    return begin < end ? ashlar__thread_team_run(b->team, run_stretch, &turn, wall_ns) : ASHLAR_OK;
}

/* --- set-up and end -------------------------------------------------------------------------- */

static ashlar_status create_subject(const bench *b, subject *s, const ashlar_peer *peer) {
    const size_t count = b->config->threads * variable_stride(b->workload);
    s->peer = peer;
    s->self = peer->origin;
    s->variables = ashlar__host_calloc(count, sizeof s->variables[0]);
    if (peer->give_sized != NULL) {
        s->sizes = ashlar__host_calloc(count, sizeof s->sizes[0]);
    }
    if (s->variables == NULL || (peer->give_sized != NULL && s->sizes == NULL)) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "bench: no host memory for the variables");
    }
    const ashlar_status status =
        peer->create != NULL ? peer->create(b->config->device, &s->self) : ASHLAR_OK;
    s->is_created = status == ASHLAR_OK;
    return status;
}

/* Instead of the epilogue: give back every block that the prologue or a failed run still holds. */
static ashlar_status give_rest(void *arg, size_t thread) {
    const stretch *turn = arg;
    const subject *s = turn->subject;
    const size_t variable_count = turn->bench->workload->variable_count;
    const size_t first = thread * variable_stride(turn->bench->workload);
    const ashlar_status status = enter(s, thread);
    for (size_t i = 0; i < variable_count && status == ASHLAR_OK; i++) {
        void **variable = &s->variables[first + i];
        if (*variable != NULL && s->sizes == NULL) {
            s->peer->give(s->self, *variable);
        } else if (*variable != NULL) {
            s->peer->give_sized(s->self, *variable, s->sizes[first + i],
                                turn->bench->streams[thread]);
        }
        *variable = NULL;
    }
    if (status == ASHLAR_OK) {
        leave(s);
    }
    return status;
}

static void destroy_subject(const bench *b, subject *s) {
    if (s->is_created && b->team != NULL) {
        stretch turn = {.bench = b, .subject = s};
        double wall_ns;
        const ashlar_status status = ashlar__thread_team_run(b->team, give_rest, &turn, &wall_ns);
        (void)status; /* fails only if enter() does, and then the thread holds no blocks */
    }
    if (s->is_created && s->peer->destroy != NULL) {
        s->peer->destroy(s->self);
    }
    ashlar__host_free(s->variables);
    ashlar__host_free(s->sizes);
}

static ashlar_status set_up(bench *b, const ashlar_peer *const *peers, size_t count) {
    b->subjects = ashlar__host_calloc(count, sizeof b->subjects[0]);
    if (b->subjects == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "bench: no host memory for %zu subjects", count);
    }
    ASHLAR_TRY(ashlar__thread_team_create(b->config->threads, &b->team));
    for (size_t i = 0; i < b->config->threads; i++) {
        ASHLAR_TRY(ashlar_stream_create(b->config->device, &b->streams[i]));
    }
    for (size_t i = 0; i < count; i++) {
        b->count++;
        ASHLAR_TRY(create_subject(b, &b->subjects[i], peers[i]));
    }
    return ASHLAR_OK;
}

static void tear_down(bench *b) {
    for (size_t i = 0; i < b->count; i++) {
        destroy_subject(b, &b->subjects[i]);
    }
    ashlar__thread_team_destroy(b->team);
    for (size_t i = 0; i < b->config->threads; i++) {
        ashlar_stream_destroy(b->config->device, b->streams[i]);
    }
    ashlar__host_free(b->subjects);
}

/* --- the phases ------------------------------------------------------------------------------ */

static uint64_t driver_calls(const ashlar_device *device) {
    ashlar_driver_counts counts;
    ashlar_device_get_counts(device, &counts);
    return counts.query + counts.memory + counts.order + counts.work + counts.wait;
}

/* A subject's turn; its first run begins with the prologue, and its driver calls are counted. */
static ashlar_status take_turn(void *context, size_t index, size_t repeats,
                               double figures[static ASHLAR_ROUNDS_FIGURES]) {
    const bench *b = context;
    const ashlar_workload *w = b->workload;
    subject *s = &b->subjects[index];
    double wall_ns;
    if (!s->has_run) {
        ASHLAR_TRY(run(b, s, 0, w->body_begin, 1, &wall_ns));
    }
    const uint64_t before = driver_calls(b->config->device);
    ASHLAR_TRY(run(b, s, w->body_begin, w->body_end, repeats, &wall_ns));
    if (!s->has_run) {
        s->driver_calls = driver_calls(b->config->device) - before;
        s->has_run = true;
    }
    figures[0] = wall_ns / 1e9 / (double)repeats;
    return ASHLAR_OK;
}

static double reserved_over_live(const bench *b, const subject *s) {
    ashlar_peer_usage usage = {0};
    if (s->peer->usage != NULL) {
        s->peer->usage(s->self, &usage);
    }
    if (usage.live_peak_bytes == 0 && b->config->threads == 1) {
        usage.live_peak_bytes = b->workload->peak_bytes;
    }
    return usage.live_peak_bytes == 0 || usage.reserved_peak_bytes == 0
               ? NAN
               : (double)usage.reserved_peak_bytes / (double)usage.live_peak_bytes;
}

static ashlar_status run_all(bench *b, ashlar_measurement *out) {
    const ashlar_rounds rounds = {.most = b->config->rounds,
                                  .least = b->config->rounds,
                                  .round_s = b->config->round_ns / 1e9,
                                  .slow_rounds = ROUNDS_OF_SLOW,
                                  .run = take_turn,
                                  .context = b};
    ashlar_turns *turns = ashlar__host_calloc(b->count, sizeof *turns);
    if (turns == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "bench: no host memory for %zu subjects", b->count);
    }
    const ashlar_status status = ashlar__rounds_run(&rounds, b->count, turns);
    for (size_t i = 0; i < b->count && status == ASHLAR_OK; i++) {
        const double ns = ashlar__turns_median(&turns[i], 0) * 1e9;
        out[i] = (ashlar_measurement){.ns_pair = ns / (double)b->workload->body_pairs,
                                      .driver_calls = b->subjects[i].driver_calls,
                                      .reserved_over_live = reserved_over_live(b, &b->subjects[i])};
    }
    ashlar__host_free(turns);
    return status;
}

ashlar_status ashlar__measure(const ashlar_measure_config *config, const ashlar_workload *workload,
                              const ashlar_peer *const *peers, size_t count,
                              ashlar_measurement *out) {
    bench b = {.config = config, .workload = workload};
    ashlar_status status = set_up(&b, peers, count);
    if (status == ASHLAR_OK) {
        status = run_all(&b, out);
    }
    tear_down(&b);
    return status;
}

ashlar_status ashlar__measure_repeat(ashlar_device *device, const ashlar_workload *workload,
                                     const ashlar_peer *peer, size_t times) {
    const ashlar_measure_config config = {.device = device, .threads = 1};
    bench b = {.config = &config, .workload = workload};
    double wall_ns;
    ashlar_status status = set_up(&b, &peer, 1);
    if (status == ASHLAR_OK) {
        status = run(&b, &b.subjects[0], 0, workload->body_begin, 1, &wall_ns);
    }
    if (status == ASHLAR_OK) {
        status = run(&b, &b.subjects[0], workload->body_begin, workload->body_end, times, &wall_ns);
    }
    tear_down(&b);
    return status;
}
