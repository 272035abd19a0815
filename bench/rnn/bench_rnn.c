/* bench_rnn.c - the benchmark `rnn`: chooses networks and subjects, times their steps in rounds,
 * and adds the rows. */
#include "bench/rnn/bench_rnn.h"

#include <math.h>
#include <time.h>

#include <ashlar/model.h>

#include "allocator/base/error.h"
#include "arena/compute/workers.h"
#include "bench/harness/harness.h"

/* As many rounds as fit into while_s; if rounds are long, still enough for a median. */
enum { ROUNDS_MAX = 61, ROUNDS_MIN = 9, PAUSE_NS = 10000000, SMOKE_STEPS = 8 };
static const double round_s = 50e-3, while_s = 15;

#define COLUMN(name, key, heading, kind, ...) {key, heading, ASHLAR_ROWS_##kind, __VA_ARGS__},
static const ashlar_rows_column columns[] = {ASHLAR_RNN_ROW_COLUMN_MAP(COLUMN)};

static const ashlar_rows_target targets[] = {
    {"ashlar / static_buffer", "ashlar", ASHLAR_RNN_ROW_OVER_STATIC, .limit = 1.01},
    {"ashlar / torch", "ashlar", ASHLAR_RNN_ROW_OVER_TORCH, .limit = 1},
    {"ashlar / torch", "ashlar", ASHLAR_RNN_ROW_OVER_TORCH, 1 / 1.08,
     .names = {"lstm_T64_B16_H1024_L1"}},
    {"share of the peak", "ashlar", ASHLAR_RNN_ROW_OF_PEAK, 0.82, true,
     .names = {"lstm_T64_B32_H256_L2"}},
    {"share of the peak", "ashlar", ASHLAR_RNN_ROW_OF_PEAK, 0.82, true,
     .names = {"gru_T64_B32_H256_L2"}},
    {"share of the peak", "ashlar", ASHLAR_RNN_ROW_OF_PEAK, 0.82, true,
     .names = {"lstm_T64_B32_I128_H512_L1"}},
    {"share of the peak", "ashlar", ASHLAR_RNN_ROW_OF_PEAK, 0.8, true,
     .names = {"lstm_T64_B32_H256_L2_inference"}},
    {"share of the read rate", "ashlar", ASHLAR_RNN_ROW_OF_READ, 0.85, true,
     .names = {"lstm_T64_B1_H1024_L1_inference"}},
};

static const ashlar_rows_form form = {columns, ASHLAR_RNN_ROW_COLUMNS, ASHLAR_RNN_ROW_SUBJECT,
                                      targets, sizeof targets / sizeof targets[0]};

enum { STEP_S, FORWARD_S, BACKWARD_S }; /* figures of a turn */

/* A case that is measured in rounds, by subjects and by the machine's limits. */
typedef struct contest {
    ashlar_rnn_setup setup;
    ashlar_rnn_work work;
    ashlar_rnn_subject subjects[ASHLAR_RNN_SUBJECT_COUNT];
    ashlar_turns turns[ASHLAR_RNN_SUBJECT_COUNT + ASHLAR_ROOF_COUNT]; /* subjects', then limits' */
    size_t count;                                                     /* the number of subjects */
} contest;

static void pause_a_moment(void) {
    const struct timespec moment = {.tv_nsec = PAUSE_NS};
    (void)nanosleep(&moment, NULL);
}

static ashlar_status take_turn(void *context, size_t index, size_t repeats,
                               double figures[static ASHLAR_ROUNDS_FIGURES]) {
    contest *c = context;
    double forward_s = 0, backward_s = 0;
    pause_a_moment();
    if (index >= c->count) { /* a limit of the machine: roof_run() chooses how long it runs */
        const ashlar_roof roof = (ashlar_roof)(index - c->count);
        figures[STEP_S] = 1 / ashlar__roof_run(roof, c->setup.weights, c->work.state_bytes);
        return ASHLAR_OK;
    }
    for (size_t i = 0; i < repeats; i++) {
        ashlar_rnn_times times;
        ASHLAR_TRY(ashlar__rnn_setup_run(&c->setup, c->subjects[index], &times));
        forward_s += times.forward_s;
        backward_s += times.backward_s;
    }
    figures[STEP_S] = (forward_s + backward_s) / (double)repeats;
    figures[FORWARD_S] = forward_s / (double)repeats;
    figures[BACKWARD_S] = backward_s / (double)repeats;
    return ASHLAR_OK;
}

/* The median over the rounds of the ratio of a subject's time to that of `base`; NaN if `base` took
 * no part. */
static double ratio_of(const contest *c, const ashlar_turns *of, ashlar_rnn_subject base) {
    double ratios[ROUNDS_MAX];
    for (size_t i = 0; i < c->count; i++) {
        if (c->subjects[i] == base) {
            for (size_t k = 0; k < of->rounds; k++) {
                ratios[k] = of->figures[STEP_S][k] / c->turns[i].figures[STEP_S][k];
            }
            return ashlar__median(ratios, of->rounds);
        }
    }
    return NAN;
}

/* The limits, and how near to them a step of this length comes. */
static void add_roof(const contest *c, const double limits[static ASHLAR_ROOF_COUNT], double step_s,
                     ashlar_rows_cell *cells) {
    const double flops = limits[ASHLAR_ROOF_FMA], rate = limits[ASHLAR_ROOF_READ];
    cells[ASHLAR_RNN_ROW_FLOPS].number = flops;
    cells[ASHLAR_RNN_ROW_READ_RATE].number = rate;
    cells[ASHLAR_RNN_ROW_OF_PEAK].number = c->work.flops / step_s / flops;
    cells[ASHLAR_RNN_ROW_OF_READ].number = c->work.read_bytes / step_s / rate;
}

static ashlar_status add_rows(contest *c, FILE *out, ashlar_rows *rows) {
    const size_t first = rows->count;
    double limits[ASHLAR_ROOF_COUNT];
    for (size_t i = 0; i < ASHLAR_ROOF_COUNT; i++) {
        limits[i] =
            c->setup.is_cuda ? NAN : 1 / ashlar__turns_median(&c->turns[c->count + i], STEP_S);
    }
    for (size_t i = 0; i < c->count; i++) { /* take ratios first, because medians sort the rounds */
        const ashlar_rnn_subject subject = c->subjects[i];
        const ashlar_row row = {{
            [ASHLAR_RNN_ROW_CASE].text = c->setup.which->name,
            [ASHLAR_RNN_ROW_SUBJECT].text = ashlar__rnn_subject_name(subject),
            [ASHLAR_RNN_ROW_OVER_STATIC].number =
                ratio_of(c, &c->turns[i], ASHLAR_RNN_SUBJECT_STATIC_BUFFER),
            [ASHLAR_RNN_ROW_OVER_TORCH].number =
                ratio_of(c, &c->turns[i], ASHLAR_RNN_SUBJECT_TORCH),
        }};
        ASHLAR_TRY(ashlar__rows_add(rows, &row));
    }
    for (size_t i = 0; i < c->count; i++) {
        ashlar_rows_cell *cells = rows->items[first + i].cells;
        ashlar_turns *turns = &c->turns[i];
        const double step_s = ashlar__turns_median(turns, STEP_S);
        double low, high;
        ashlar__turns_spread(turns, STEP_S, &low, &high);
        cells[ASHLAR_RNN_ROW_MS_FORWARD].number = 1e3 * ashlar__turns_median(turns, FORWARD_S);
        cells[ASHLAR_RNN_ROW_MS_BACKWARD].number =
            c->setup.which->is_inference ? NAN : 1e3 * ashlar__turns_median(turns, BACKWARD_S);
        cells[ASHLAR_RNN_ROW_MS_STEP].number = 1e3 * step_s;
        cells[ASHLAR_RNN_ROW_MS_STEP_LOW].number = 1e3 * low;
        cells[ASHLAR_RNN_ROW_MS_STEP_HIGH].number = 1e3 * high;
        cells[ASHLAR_RNN_ROW_STEPS_PER_S].number = 1 / step_s;
        add_roof(c, limits, step_s, cells);
    }
    ashlar__rows_print(out, rows, first);
    return ASHLAR_OK;
}

/* Measure a case that was set up, in rounds, and add its rows. */
static ashlar_status run_contest(contest *c, const ashlar_bench_request *request,
                                 ashlar_rows *rows) {
    const ashlar_rounds how = {.most = ROUNDS_MAX,
                               .least = ROUNDS_MIN,
                               .while_s = while_s,
                               .round_s = round_s,
                               .is_smoke = request->is_smoke,
                               .run = take_turn,
                               .context = c};
    for (unsigned i = 0; i < ASHLAR_RNN_SUBJECT_COUNT; i++) {
        const ashlar_rnn_subject subject = (ashlar_rnn_subject)i;
        const ashlar_bench_name name = {ashlar__rnn_subject_name(subject), NULL};
        if (ashlar__rnn_setup_has(&c->setup, subject) &&
            ashlar__bench_wants(&request->subjects, name)) {
            c->subjects[c->count++] = subject;
        }
    }
    c->work = ashlar__rnn_case_work(c->setup.which);
    ASHLAR_TRY(
        ashlar__rounds_run(&how, c->count + (c->setup.is_cuda ? 0 : ASHLAR_ROOF_COUNT), c->turns));
    return add_rows(c, request->out, rows);
}

static bool workload(size_t i, ashlar_bench_name *out) {
    size_t count;
    const ashlar_rnn_case *cases = ashlar__rnn_cases(&count);
    if (i < count) {
        *out = (ashlar_bench_name){cases[i].name, NULL};
    }
    return i < count;
}

static const char *subject(size_t i) {
    return i < ASHLAR_RNN_SUBJECT_COUNT ? ashlar__rnn_subject_name((ashlar_rnn_subject)i) : NULL;
}

static ashlar_status run_cases(const ashlar_bench_request *request, ashlar_device *device,
                               ashlar_rnn_torch *torch, ashlar_rows *rows) {
    ashlar_bench_name name;
    size_t count;
    const ashlar_rnn_case *cases = ashlar__rnn_cases(&count);
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; status == ASHLAR_OK && i < count && workload(i, &name); i++) {
        if (ashlar__bench_wants(&request->workloads, name)) {
            contest c = {.count = 0};
            ashlar_rnn_case one = cases[i];
            one.steps = request->is_smoke ? SMOKE_STEPS : one.steps;
            status = ashlar__rnn_setup_init(&c.setup, device, torch, &one);
            status = status == ASHLAR_OK ? run_contest(&c, request, rows) : status;
            ashlar__rnn_setup_finish(&c.setup);
        }
    }
    return status;
}

static ashlar_status run(const ashlar_bench_request *request, ashlar_device *device,
                         ashlar_rows *rows, ashlar_rows *more) {
    const ashlar_bench_name name = {ashlar__rnn_subject_name(ASHLAR_RNN_SUBJECT_TORCH), NULL};
    ashlar_rnn_torch *torch = NULL;
    (void)more;
    ashlar__workers_set_count(request->threads);
    if (ashlar__bench_wants(&request->subjects, name)) {
        ASHLAR_TRY(ashlar__rnn_torch_start(ashlar__workers_count(), &torch));
    }
    ashlar__rows_print_head(request->out, rows);
    const ashlar_status status = run_cases(request, device, torch, rows);
    ashlar__rnn_torch_stop(torch);
    return status;
}

static void put_head(ashlar_json_writer *w) {
    char processor[ASHLAR_MACHINE_TEXT_BYTES];
    ashlar__machine_processor(processor);
    ashlar__json_add_string(w, "processor", processor);
    ashlar__json_add_string(w, "products", ashlar_cpu_get_info().products);
    ashlar__json_put_key(w, "torch");
    if (ashlar__rnn_torch_name() != NULL) {
        ashlar__json_put_string(w, ashlar__rnn_torch_name());
    } else {
        ashlar__json_put_null(w);
    }
    ashlar__json_add_uint64(w, "threads", ashlar__workers_count());
}

const ashlar_benchmark ashlar__benchmark_rnn = {
    .name = "rnn",
    .takes = "--smoke, --workload, --subject, --threads, --json, --device",
    .form = &form,
    .workload = workload,
    .subject = subject,
    .run = run,
    .put_head = put_head,
};
