/* measure.c - runs a workload on each subject in rounds that take turns, and times them. */
#include "bench/peers/measure.h"

#include <math.h>
#include <string.h>

#include "bench/harness/harness.h"
#include "allocator/device/device_impl.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

enum { ROUNDS_OF_SLOW = 5 }; /* see slow_rounds in harness.h */

/* A subject, and its figures other than time. */
typedef struct subject {
    ashlar_turn_subject base;
    bool has_run;          /* the prologue has run, and the body once */
    uint64_t driver_calls; /* of that run of the body */
    double host_bytes;     /* ASHLAR_WORKLOAD_LIVE: by how much the prologue grew the process */
} subject;

typedef struct bench {
    const ashlar_measure_config *config;
    const ashlar_workload *workload;
    ashlar_thread_team *team;
    ashlar_stream *streams; /* [threads, workload->streams] */
    subject *subjects;
    size_t count;
} bench;

static ashlar_turn turn_of(const bench *b, const subject *s) {
    return (ashlar_turn){.workload = b->workload,
                         .subject = &s->base,
                         .streams = b->streams,
                         .begin = b->workload->body_begin,
                         .end = b->workload->body_end,
                         .repeats = 1};
}

static ashlar_status run_prologue(const bench *b, const subject *s) {
    ashlar_turn turn = turn_of(b, s);
    double wall_ns = 0;
    turn.begin = 0;
    turn.end = b->workload->body_begin;
    return turn.end > 0 ? ashlar__turn_list(b->team, &turn, &wall_ns) : ASHLAR_OK;
}

/* --- set-up and end -------------------------------------------------------------------------- */

static ashlar_status create_instance(const bench *b, ashlar_turn_subject *s) {
    s->self = s->peer->origin;
    const ashlar_status status =
        s->peer->create != NULL ? s->peer->create(b->config->device, &s->self) : ASHLAR_OK;
    s->is_created = status == ASHLAR_OK;
    return status;
}

static void destroy_instance(ashlar_turn_subject *s) {
    if (s->is_created && s->peer->destroy != NULL) {
        s->peer->destroy(s->self);
    }
    s->is_created = false;
}

static ashlar_status create_subject(const bench *b, ashlar_turn_subject *s,
                                    const ashlar_peer *peer) {
    const size_t count = b->config->threads * ashlar__turn_stride(b->workload);
    s->peer = peer;
    s->variables = ashlar__host_calloc(count, sizeof s->variables[0]);
    if (peer->give_sized != NULL) {
        s->sizes = ashlar__host_calloc(count, sizeof s->sizes[0]);
    }
    if (s->variables == NULL || (peer->give_sized != NULL && s->sizes == NULL)) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "bench: no host memory for the variables");
    }
    return create_instance(b, s);
}

/* End a subject. Instead of running the epilogue, give back every block that it still holds. */
static void destroy_subject(const bench *b, subject *s) {
    if (s->base.is_created && b->team != NULL) {
        ashlar_turn turn = turn_of(b, s);
        const ashlar_status status = ashlar__turn_give_rest(b->team, &turn);
        (void)status; /* fails only if enter() does, and then the thread holds no blocks */
    }
    destroy_instance(&s->base);
    ashlar__host_free(s->base.variables);
    ashlar__host_free(s->base.sizes);
}

static size_t stream_count(const bench *b) {
    return b->config->threads * b->workload->streams;
}

static ashlar_status set_up(bench *b, const ashlar_peer *const *peers, size_t count) {
    ASHLAR_HOST_NEW(b->subjects, count, "bench: no host memory for %zu subjects", count);
    ASHLAR_HOST_NEW(b->streams, stream_count(b), "bench: no host memory for the streams");
    ASHLAR_TRY(ashlar__thread_team_create(b->config->threads, &b->team));
    for (size_t i = 0; i < stream_count(b); i++) {
        ASHLAR_TRY(ashlar_stream_create(b->config->device, &b->streams[i]));
    }
    for (size_t i = 0; i < count; i++) {
        b->count++;
        ASHLAR_TRY(create_subject(b, &b->subjects[i].base, peers[i]));
    }
    return ASHLAR_OK;
}

static void tear_down(bench *b) {
    for (size_t i = 0; i < b->count; i++) {
        destroy_subject(b, &b->subjects[i]);
    }
    ashlar__thread_team_destroy(b->team);
    for (size_t i = 0; b->streams != NULL && i < stream_count(b); i++) {
        ashlar_stream_destroy(b->config->device, b->streams[i]);
    }
    ashlar__host_free(b->streams);
    ashlar__host_free(b->subjects);
}

/* --- the phases ------------------------------------------------------------------------------ */

static uint64_t driver_calls(const ashlar_device *device) {
    const ashlar_driver_counts counts = ashlar_device_get_info(device).calls;
    return counts.query + counts.memory + counts.order + counts.work + counts.wait;
}

static ashlar_status begin(const bench *b, subject *s) {
    const bool counts_host = b->workload->kind == ASHLAR_WORKLOAD_LIVE;
    if (counts_host) { /* touch the variables first: their pages are not the peer's memory */
        memset(s->base.variables, 0, b->workload->variable_count * sizeof s->base.variables[0]);
        s->host_bytes = -ashlar__machine_host_bytes();
    }
    ASHLAR_TRY(run_prologue(b, s));
    s->host_bytes += counts_host ? ashlar__machine_host_bytes() : NAN;
    return ASHLAR_OK;
}

/* A subject's turn. Before its first run the prologue is run; driver calls of that run are counted.
 */
static ashlar_status take_turn(void *context, size_t index, size_t repeats,
                               double figures[static ASHLAR_ROUNDS_FIGURES]) {
    const bench *b = context;
    subject *s = &b->subjects[index];
    ashlar_turn turn = turn_of(b, s);
    double wall_ns = 0;
    turn.repeats = repeats;
    ASHLAR_TRY(s->has_run ? ASHLAR_OK : begin(b, s));
    const uint64_t before = driver_calls(b->config->device);
    ASHLAR_TRY(ashlar__turn_run(b->team, &turn, &wall_ns));
    if (!s->has_run) {
        s->driver_calls = driver_calls(b->config->device) - before;
        s->has_run = true;
    }
    memcpy(figures, turn.figures, sizeof turn.figures);
    figures[0] = wall_ns / 1e9 / (double)repeats;
    return ASHLAR_OK;
}

static double reserved_over_live(const bench *b, const subject *s) {
    ashlar_peer_usage usage = {0};
    if (s->base.peer->usage != NULL) {
        s->base.peer->usage(s->base.self, &usage);
    }
    if (usage.live_peak_bytes == 0 && b->config->threads == 1) {
        usage.live_peak_bytes = b->workload->peak_bytes;
    }
    return usage.live_peak_bytes == 0 || usage.reserved_peak_bytes == 0
               ? NAN
               : (double)usage.reserved_peak_bytes / (double)usage.live_peak_bytes;
}

/* Compute the medians of the figures that a turn of this kind has. */
static void fill(const bench *b, const subject *s, ashlar_turns *turns, ashlar_measurement *out) {
    const ashlar_workload_kind kind = b->workload->kind;
    const double pairs = (double)b->workload->body_pairs;
    *out = (ashlar_measurement){
        .ns_pair = ashlar__turns_median(turns, 0) * 1e9 / pairs,
        .driver_calls = s->driver_calls,
        .reserved_over_live = reserved_over_live(b, s),
    };
    ashlar__turns_spread(turns, 0, &out->ns_pair_low, &out->ns_pair_high);
    out->ns_pair_low = out->ns_pair_low * 1e9 / pairs; /* the same operations as for ns_pair */
    out->ns_pair_high = out->ns_pair_high * 1e9 / pairs;
    out->ns_p50 = out->ns_p99 = out->ns_p999 = out->ns_max = NAN;
    out->host_bytes = s->host_bytes / (double)b->workload->live_max;
    if (kind == ASHLAR_WORKLOAD_LATENCY) {
        out->ns_p50 = ashlar__turns_median(turns, ASHLAR_TURN_P50);
        out->ns_p99 = ashlar__turns_median(turns, ASHLAR_TURN_P99);
        out->ns_p999 = ashlar__turns_median(turns, ASHLAR_TURN_P999);
        out->ns_max = ashlar__turns_median(turns, ASHLAR_TURN_MAX);
    }
}

static ashlar_status run_all(bench *b, ashlar_measurement *out) {
    const ashlar_rounds rounds = {.most = b->config->rounds,
                                  .least = b->config->rounds,
                                  .round_s = b->config->round_ns / 1e9,
                                  .slow_rounds = ROUNDS_OF_SLOW,
                                  .is_smoke = b->config->round_ns == 0,
                                  .run = take_turn,
                                  .context = b};
    ashlar_turns *turns = NULL;
    ASHLAR_HOST_NEW(turns, b->count, "bench: no host memory for %zu subjects", b->count);
    const ashlar_status status = ashlar__rounds_run(&rounds, b->count, turns);
    for (size_t i = 0; i < b->count && status == ASHLAR_OK; i++) {
        fill(b, &b->subjects[i], &turns[i], &out[i]);
    }
    ashlar__host_free(turns);
    return status;
}

bool ashlar__measure_can(const ashlar_workload *workload, const ashlar_peer *peer) {
    return !(workload->kind == ASHLAR_WORKLOAD_LIVE && peer->has_few_blocks) &&
           !(workload->kind == ASHLAR_WORKLOAD_HANDOFF && peer->is_per_thread);
}

ashlar_status ashlar__measure(const ashlar_measure_config *config, const ashlar_workload *workload,
                              const ashlar_peer *const *peers, size_t count,
                              ashlar_measurement *out) {
    bench b = {.config = config, .workload = workload};
    ashlar_status status = set_up(&b, peers, count);
    ASHLAR_THEN(status, run_all(&b, out));
    tear_down(&b);
    return status;
}

ashlar_status ashlar__measure_repeat(ashlar_device *device, const ashlar_workload *workload,
                                     const ashlar_peer *peer, size_t times) {
    const ashlar_measure_config config = {.device = device, .threads = 1};
    bench b = {.config = &config, .workload = workload};
    double wall_ns;
    ashlar_status status = set_up(&b, &peer, 1);
    ASHLAR_THEN(status, run_prologue(&b, &b.subjects[0]));
    if (status == ASHLAR_OK) {
        ashlar_turn turn = turn_of(&b, &b.subjects[0]);
        turn.repeats = times;
        status = ashlar__turn_list(b.team, &turn, &wall_ns);
    }
    tear_down(&b);
    return status;
}
