/* turn_latency.c - times each operation of a list by itself, for the percentiles of a malloc + free
 * pair's time. */
#include <math.h>
#include <stdlib.h>

#include "allocator/base/clock.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "bench/peers/turn.h"

typedef struct latencies {
    double clock_ns;   /* the time that reading the clock adds */
    double *operation; /* [variable_count]: time in which the variable's block was taken */
    double *pair;      /* [body_pairs]: times of pairs, in the newest repeat */
} latencies;

static double clock_cost(void) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 1000; i++) {
        const uint64_t before = ashlar__clock_ns(), after = ashlar__clock_ns();
        least = after - before < least ? after - before : least;
    }
    return (double)least;
}

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
            ashlar__turn_give(s, *variable, s->sizes != NULL ? s->sizes[op.variable] : 0, stream);
        }
        const double ns = fmax(0, (double)(ashlar__clock_ns() - before) - l->clock_ns);
        t->figures[0] += ns;
        if (op.bytes == 0) {
            *variable = NULL;
            l->pair[pairs++] = l->operation[op.variable] + ns;
        } else if (*variable == NULL) {
            return ashlar__turn_fail_take(t, op.bytes);
        } else {
            l->operation[op.variable] = ns;
            if (s->sizes != NULL) {
                s->sizes[op.variable] = op.bytes;
            }
        }
    }
    return ASHLAR_OK;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
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
    latencies l = {.clock_ns = clock_cost(),
                   .operation = ashlar__host_calloc(t->workload->variable_count, sizeof(double)),
                   .pair = ashlar__host_calloc(count, sizeof(double))};
    ashlar_status status = l.operation != NULL && l.pair != NULL
                               ? ashlar__turn_enter(t->subject, thread)
                               : ashlar__fail(ASHLAR_EHOSTMEM, "bench: no memory for latencies");
    if (status == ASHLAR_OK) {
        for (size_t i = 0; i < t->repeats && status == ASHLAR_OK; i++) {
            status = time_ops(t, &l);
        }
        ashlar__turn_leave(t->subject);
        qsort(l.pair, count, sizeof l.pair[0], by_value);
        for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
            t->figures[wanted[i].figure] =
                l.pair[(size_t)ceil(wanted[i].share * (double)count) - 1];
        }
    }
    ashlar__host_free(l.operation);
    ashlar__host_free(l.pair);
    return status;
}

ashlar_status ashlar__turn_latency(ashlar_thread_team *team, ashlar_turn *turn, double *wall_ns) {
    ASHLAR_TRY(ashlar__thread_team_run(team, run_latency, turn, wall_ns));
    *wall_ns = turn->figures[0];
    return ASHLAR_OK;
}
