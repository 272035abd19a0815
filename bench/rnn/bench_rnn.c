/* bench_rnn.c - chooses cases and subjects, times them in rounds, and adds the rows. */
#include "bench/rnn/bench_rnn.h"

#include <string.h>
#include <time.h>

#include "rnn/layer/blas_impl.h"
#include "allocator/base/clock.h"
#include "allocator/base/error.h"
#include "bench/harness/rounds.h"
#include "arena/compute/workers.h"

/* Long rounds are few: as many as fit into the time, but enough for a median. */
enum { ROUNDS_MAX = 61, ROUNDS_MIN = 9, SHARE_ROUNDS = 5, PAUSE_NS = 10000000 };
static const double round_s = 50e-3, while_s = 15;

/* What one subject's rounds were. */
typedef struct lane {
    ashlar_rnn_subject subject;
    double forward_ms[ROUNDS_MAX], backward_ms[ROUNDS_MAX], step_ms[ROUNDS_MAX];
} lane;

/* A case in rounds. */
typedef struct contest {
    ashlar_rnn_setup setup;
    lane lanes[ASHLAR_RNN_SUBJECT_COUNT];
    size_t count;
} contest;

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

static ashlar_status run_lane(void *context, size_t index, size_t repeats, size_t round,
                              double *seconds) {
    contest *r = context;
    lane *l = &r->lanes[index];
    double forward_s = 0, backward_s = 0;
    pause_a_moment();
    for (size_t i = 0; i < repeats; i++) {
        ashlar_rnn_times times;
        ASHLAR_TRY(ashlar__rnn_setup_run(&r->setup, l->subject, &times));
        forward_s += times.forward_s;
        backward_s += times.backward_s;
    }
    *seconds = (forward_s + backward_s) / (double)repeats;
    l->forward_ms[round] = 1e3 * forward_s / (double)repeats;
    l->backward_ms[round] = 1e3 * backward_s / (double)repeats;
    l->step_ms[round] = l->forward_ms[round] + l->backward_ms[round];
    return ASHLAR_OK;
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
static double ratio_of(const contest *r, const lane *l, ashlar_rnn_subject base, size_t rounds) {
    double ratios[ROUNDS_MAX];
    for (size_t i = 0; i < r->count; i++) {
        if (r->lanes[i].subject == base) {
            for (size_t round = 0; round < rounds; round++) {
                ratios[round] = l->step_ms[round] / r->lanes[i].step_ms[round];
            }
            return ashlar__median(ratios, rounds);
        }
    }
    return 0;
}

static void add_rows(contest *r, size_t rounds, double share, ashlar_rnn_results *results) {
    const size_t first = results->count;
    for (size_t i = 0; i < r->count; i++) { /* the ratios before medians sort the rounds */
        const lane *l = &r->lanes[i];
        results->items[results->count++] = (ashlar_rnn_result){
            .case_name = r->setup.which->name,
            .subject = l->subject,
            .is_inference = r->setup.which->is_inference,
            .over_static = ratio_of(r, l, ASHLAR_RNN_SUBJECT_STATIC_BUFFER, rounds),
            .product_share = l->subject == ASHLAR_RNN_SUBJECT_ASHLAR ? share : 0,
            .over_onednn = ratio_of(r, l, ASHLAR_RNN_SUBJECT_ONEDNN, rounds),
        };
    }
    for (size_t i = 0; i < r->count; i++) {
        ashlar_rnn_result *result = &results->items[first + i];
        result->ms_forward = ashlar__median(r->lanes[i].forward_ms, rounds);
        result->ms_backward = ashlar__median(r->lanes[i].backward_ms, rounds);
        result->ms_step = ashlar__median(r->lanes[i].step_ms, rounds);
    }
}

static void choose_lanes(contest *r, const ashlar_bench_rnn_config *config) {
    for (unsigned i = 0; i < ASHLAR_RNN_SUBJECT_COUNT; i++) {
        const ashlar_rnn_subject subject = (ashlar_rnn_subject)i;
        if (ashlar__rnn_setup_has(&r->setup, subject) &&
            is_listed(&config->subjects, ashlar__rnn_subject_name(subject))) {
            r->lanes[r->count++].subject = subject;
        }
    }
}

/* On a setup that is there. */
static ashlar_status run_contest(contest *r, const ashlar_bench_rnn_config *config,
                                 ashlar_rnn_results *results) {
    const ashlar_rounds how = {.most = ROUNDS_MAX,
                               .least = ROUNDS_MIN,
                               .while_s = while_s,
                               .round_s = round_s,
                               .is_smoke = config->is_smoke,
                               .run = run_lane,
                               .context = r};
    size_t repeats[ASHLAR_RNN_SUBJECT_COUNT], rounds;
    double share = 0;
    choose_lanes(r, config);
    ASHLAR_TRY(ashlar__rounds_run(&how, r->count, repeats, &rounds));
    if (r->count > 0 && r->lanes[0].subject == ASHLAR_RNN_SUBJECT_ASHLAR) {
        ASHLAR_TRY(measure_share(&r->setup, config->is_smoke, &share));
    }
    const size_t first = results->count;
    add_rows(r, rounds, share, results);
    ashlar__rnn_results_print(stdout, results, first);
    return ASHLAR_OK;
}

static ashlar_status measure_case(ashlar_device *device, const ashlar_bench_rnn_config *config,
                                  const ashlar_rnn_case *which, ashlar_rnn_results *results) {
    contest r = {.count = 0};
    ashlar_status status = ashlar__rnn_setup_init(&r.setup, device, which);
    if (status == ASHLAR_OK) {
        status = run_contest(&r, config, results);
    }
    ashlar__rnn_setup_finish(&r.setup);
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
