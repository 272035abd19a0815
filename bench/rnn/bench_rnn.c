#include "bench/rnn/bench_rnn.h"

#include <string.h>
#include <time.h>

#include "rnn/layer/blas_impl.h"
#include "allocator/base/clock.h"
#include "allocator/base/error.h"
#include "bench/harness/median.h"
#include "arena/compute/workers.h"

/* Rounds are few where they are long: as many as fit in a while, but enough for a median. */
enum { ROUNDS_MAX = 61, ROUNDS_MIN = 9, SHARE_ROUNDS = 5, PAUSE_NS = 10000000 };
static const double round_s = 50e-3, while_s = 15;

/* What one subject's rounds were. */
typedef struct lane {
    ashlar_rnn_subject subject;
    size_t repeats; /* of the step in a round */
    double forward_ms[ROUNDS_MAX], backward_ms[ROUNDS_MAX], step_ms[ROUNDS_MAX];
} lane;

/* ---- names ---- */

static bool is_listed(const ashlar_option_list *list, const char *name) {
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->items[i], name) == 0) {
            return true;
        }
    }
    return list->count == 0;
}

static bool is_case(const char *name) {
    size_t count;
    const ashlar_rnn_case *cases = ashlar__rnn_cases(&count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(cases[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_subject(const char *name) {
    for (unsigned i = 0; i < ASHLAR_RNN_SUBJECT_COUNT; i++) {
        if (strcmp(ashlar__rnn_subject_name((ashlar_rnn_subject)i), name) == 0) {
            return true;
        }
    }
    return false;
}

ashlar_status ashlar__bench_rnn_check(const ashlar_bench_rnn_config *config) {
    for (size_t i = 0; i < config->wanted.count; i++) {
        if (!is_case(config->wanted.items[i])) {
            return ashlar__fail(
                ASHLAR_EINVAL,
                "--workload: there is no \"%.80s\"; there are those that rnn --help "
                "lists, such as lstm_T64_B32_H256_L2",
                config->wanted.items[i]);
        }
    }
    for (size_t i = 0; i < config->subjects.count; i++) {
        if (!is_subject(config->subjects.items[i])) {
            return ashlar__fail(ASHLAR_EINVAL,
                                "--subject: there is no \"%.80s\"; there are ashlar, onednn, "
                                "driver_each_step, static_buffer",
                                config->subjects.items[i]);
        }
    }
    return ASHLAR_OK;
}

void ashlar__bench_rnn_print_cases(FILE *out) {
    size_t count;
    const ashlar_rnn_case *cases = ashlar__rnn_cases(&count);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "%s%s", i % 3 == 0 ? "\n  " : ", ", cases[i].name);
    }
    fprintf(out, "\n");
}

/* ---- rounds ---- */

static void use_threads(size_t count) {
    ashlar__workers_set_count(count);
    ashlar__onednn_set_threads(ashlar__workers_count());
}

static void pause_a_moment(void) {
    const struct timespec moment = {.tv_nsec = PAUSE_NS};
    (void)nanosleep(&moment, NULL);
}

/* Twice, the second time warm; that says how often the step fits in a round. */
static ashlar_status warm_up(ashlar_rnn_setup *setup, lane *l) {
    ashlar_rnn_times times = {0};
    ashlar_status status = ASHLAR_OK;
    for (int i = 0; i < 2 && status == ASHLAR_OK; i++) {
        status = ashlar__rnn_setup_run(setup, l->subject, &times);
    }
    const double seconds = times.forward_s + times.backward_s;
    l->repeats = seconds < round_s ? (size_t)(round_s / (seconds + 1e-9)) : 1;
    return status;
}

static ashlar_status run_round(ashlar_rnn_setup *setup, lane *l, size_t round) {
    double forward_s = 0, backward_s = 0;
    ashlar_status status = ASHLAR_OK;
    pause_a_moment();
    for (size_t i = 0; i < l->repeats && status == ASHLAR_OK; i++) {
        ashlar_rnn_times times;
        status = ashlar__rnn_setup_run(setup, l->subject, &times);
        forward_s += times.forward_s;
        backward_s += times.backward_s;
    }
    l->forward_ms[round] = 1e3 * forward_s / (double)l->repeats;
    l->backward_ms[round] = 1e3 * backward_s / (double)l->repeats;
    l->step_ms[round] = l->forward_ms[round] + l->backward_ms[round];
    return status;
}

static ashlar_status run_rounds(ashlar_rnn_setup *setup, bool is_smoke, lane *lanes, size_t count,
                                size_t *rounds) {
    const double start = ashlar__clock_s();
    const size_t most = is_smoke ? 1 : ROUNDS_MAX;
    ashlar_status status = ASHLAR_OK;
    size_t round = 0;
    for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
        status = warm_up(setup, &lanes[i]);
        lanes[i].repeats = is_smoke ? 1 : lanes[i].repeats;
    }
    while (status == ASHLAR_OK && round < most &&
           (round < ROUNDS_MIN || ashlar__clock_s() - start < while_s)) {
        for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
            status = run_round(setup, &lanes[(round + i) % count], round);
        }
        round++;
    }
    *rounds = round;
    return status;
}

/* What products take of a step on one thread; 0 where `ashlar` takes no part. */
static ashlar_status measure_share(ashlar_rnn_setup *setup, bool is_smoke, double *share) {
    double shares[SHARE_ROUNDS];
    const size_t threads = ashlar__workers_count(), rounds = is_smoke ? 1 : SHARE_ROUNDS;
    ashlar_status status = ASHLAR_OK;
    ashlar__workers_set_count(1);
    for (size_t i = 0; i < rounds && status == ASHLAR_OK; i++) {
        ashlar_rnn_times times;
        ashlar__blas_clock_start(true);
        status = ashlar__rnn_setup_run(setup, ASHLAR_RNN_SUBJECT_ASHLAR, &times);
        const double products_s = (double)ashlar__blas_clock_ns() * 1e-9;
        shares[i] = products_s / (times.forward_s + times.backward_s);
    }
    ashlar__blas_clock_start(false);
    ashlar__workers_set_count(threads);
    *share = status == ASHLAR_OK ? ashlar__median(shares, rounds) : 0;
    return status;
}

/* ---- rows ---- */

/* The median of the ratios of each round; 0 where `base` took no part. */
static double ratio_of(const lane *l, const lane *lanes, size_t count, ashlar_rnn_subject base,
                       size_t rounds) {
    double ratios[ROUNDS_MAX];
    for (size_t i = 0; i < count; i++) {
        if (lanes[i].subject == base) {
            for (size_t round = 0; round < rounds; round++) {
                ratios[round] = l->step_ms[round] / lanes[i].step_ms[round];
            }
            return ashlar__median(ratios, rounds);
        }
    }
    return 0;
}

static void add_rows(const ashlar_rnn_case *which, lane *lanes, size_t count, size_t rounds,
                     double share, ashlar_rnn_results *results) {
    const size_t first = results->count;
    for (size_t i = 0; i < count; i++) { /* the ratios before medians sort the rounds */
        results->items[results->count++] = (ashlar_rnn_result){
            .case_name = which->name,
            .subject = lanes[i].subject,
            .is_inference = which->is_inference,
            .over_static =
                ratio_of(&lanes[i], lanes, count, ASHLAR_RNN_SUBJECT_STATIC_BUFFER, rounds),
            .product_share = lanes[i].subject == ASHLAR_RNN_SUBJECT_ASHLAR ? share : 0,
            .over_onednn = ratio_of(&lanes[i], lanes, count, ASHLAR_RNN_SUBJECT_ONEDNN, rounds),
        };
    }
    for (size_t i = 0; i < count; i++) {
        ashlar_rnn_result *r = &results->items[first + i];
        r->ms_forward = ashlar__median(lanes[i].forward_ms, rounds);
        r->ms_backward = ashlar__median(lanes[i].backward_ms, rounds);
        r->ms_step = ashlar__median(lanes[i].step_ms, rounds);
    }
}

static size_t choose_lanes(const ashlar_rnn_setup *setup, const ashlar_bench_rnn_config *config,
                           lane lanes[static ASHLAR_RNN_SUBJECT_COUNT]) {
    size_t count = 0;
    for (unsigned i = 0; i < ASHLAR_RNN_SUBJECT_COUNT; i++) {
        const ashlar_rnn_subject subject = (ashlar_rnn_subject)i;
        if (ashlar__rnn_setup_has(setup, subject) &&
            is_listed(&config->subjects, ashlar__rnn_subject_name(subject))) {
            lanes[count++].subject = subject;
        }
    }
    return count;
}

static ashlar_status measure_case(ashlar_device *device, const ashlar_bench_rnn_config *config,
                                  const ashlar_rnn_case *which, ashlar_rnn_results *results) {
    ashlar_rnn_setup setup = {0};
    lane lanes[ASHLAR_RNN_SUBJECT_COUNT] = {0};
    size_t rounds;
    double share = 0;
    const size_t first = results->count;
    ashlar_status status = ashlar__rnn_setup_init(&setup, device, which);
    const size_t count = status == ASHLAR_OK ? choose_lanes(&setup, config, lanes) : 0;
    if (status == ASHLAR_OK) {
        status = run_rounds(&setup, config->is_smoke, lanes, count, &rounds);
    }
    if (status == ASHLAR_OK && count > 0 && lanes[0].subject == ASHLAR_RNN_SUBJECT_ASHLAR) {
        status = measure_share(&setup, config->is_smoke, &share);
    }
    if (status == ASHLAR_OK) {
        add_rows(which, lanes, count, rounds, share, results);
        ashlar__rnn_results_print(stdout, results, first);
    }
    ashlar__rnn_setup_finish(&setup);
    return status;
}

ashlar_status ashlar__bench_rnn(ashlar_device *device, const ashlar_bench_rnn_config *config,
                                ashlar_rnn_results *results) {
    size_t count;
    const ashlar_rnn_case *cases = ashlar__rnn_cases(&count);
    ashlar_status status = ASHLAR_OK;
    use_threads(config->threads);
    results->threads = ashlar__workers_count();
    ashlar__rnn_results_print_head(stdout);
    for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
        if (is_listed(&config->wanted, cases[i].name)) {
            status = measure_case(device, config, &cases[i], results);
        }
    }
    return status;
}
