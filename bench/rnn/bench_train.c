/* bench_train.c - the benchmark `rnn --train`: chooses cases and subjects, trains them in rounds,
 * and adds the rows. */
#include "bench/rnn/bench_train.h"

#include <math.h>
#include <string.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "arena/compute/workers.h"
#include "bench/harness/machine.h"
#include "bench/harness/rounds.h"
#include "bench/rnn/train_setup.h"
#include "rnn/product/blas.h"

/* TURN_STEPS: few, so that rounding has not yet driven the subjects' losses apart.
 * LOSS_MEAN: as many as ashlar-train shows the mean of. */
enum { ROUNDS_MAX = 41, ROUNDS_MIN = 5, TURN_STEPS = 10, SMOKE_STEPS = 3, LOSS_MEAN = 10 };
enum { DRAWN_STEPS = 2000, CASES_MAX = 8 };
static const double while_s = 20, loss_s = 10;

enum { ASHLAR, TORCH, SUBJECTS };
static const char *const subjects[] = {[ASHLAR] = "ashlar", [TORCH] = "torch"};
ASHLAR_TABLE_IS_FULL(subjects, SUBJECTS);

#define COLUMN(name, key, heading, kind, ...) {key, heading, ASHLAR_ROWS_##kind, __VA_ARGS__},
static const ashlar_rows_column columns[] = {ASHLAR_TRAIN_ROW_COLUMN_MAP(COLUMN)};

static const ashlar_rows_target targets[] = {
    {"ashlar / torch", "ashlar", ASHLAR_TRAIN_ROW_OVER_TORCH, .limit = 1},
    {"difference of losses", "ashlar", ASHLAR_TRAIN_ROW_LOSS_DIFFERENCE, .limit = 1e-4},
};

static const ashlar_rows_form form = {columns, ASHLAR_TRAIN_ROW_COLUMNS, ASHLAR_TRAIN_ROW_SUBJECT,
                                      targets, sizeof targets / sizeof targets[0]};

enum { STEP_S, TOKENS_PER_S }; /* figures of a turn */

/* A case in rounds. */
typedef struct contest {
    const ashlar_bench_request *request;
    ashlar_train_setup setup;
    size_t count, subjects[SUBJECTS];
    ashlar_turns turns[SUBJECTS];
    ashlar_train_result
        last[SUBJECTS]; /* by subject: of the last turn, or of the longer training */
    double *numbers;    /* of all results */
} contest;

static size_t turn_steps(const contest *c) {
    return c->request->is_smoke ? SMOKE_STEPS : TURN_STEPS;
}

static ashlar_status take_turn(void *context, size_t index, size_t repeats,
                               double figures[static ASHLAR_ROUNDS_FIGURES]) {
    contest *c = context;
    const size_t subject = c->subjects[index], steps = turn_steps(c);
    double seconds = 0, tokens = 0;
    for (size_t i = 0; i < repeats; i++) {
        ASHLAR_TRY(
            ashlar__train_setup_run(&c->setup, subject == TORCH, steps, 0, &c->last[subject]));
        seconds += c->last[subject].seconds;
        for (size_t k = 0; k < steps; k++) {
            tokens += (double)c->setup.tokens[k];
        }
    }
    figures[STEP_S] = seconds / (double)(repeats * steps);
    figures[TOKENS_PER_S] = tokens / seconds;
    return ASHLAR_OK;
}

static bool takes_part(const contest *c, size_t subject) {
    const ashlar_bench_name name = {subjects[subject], NULL};
    return ashlar__bench_wants(&c->request->subjects, name) &&
           (subject != TORCH || c->setup.torch != NULL);
}

/* The median of the ratios of each round; NaN if PyTorch took no part. */
static double over_torch(const contest *c, const ashlar_turns *of) {
    const ashlar_turns *const base = &c->turns[c->count - 1];
    double ratios[ROUNDS_MAX];
    if (c->count == 0 || c->subjects[c->count - 1] != TORCH) {
        return NAN;
    }
    for (size_t k = 0; k < of->rounds; k++) {
        ratios[k] = of->figures[STEP_S][k] / base->figures[STEP_S][k];
    }
    return ashlar__median(ratios, of->rounds);
}

static double largest_difference(const contest *c) {
    double most = NAN;
    for (size_t i = 0; c->count == SUBJECTS && i < turn_steps(c); i++) {
        most = fmax(most, fabs(c->last[ASHLAR].losses[i] - c->last[TORCH].losses[i]));
    }
    return most;
}

/* What a longer training has learned after loss_s seconds. */
static ashlar_status learn(contest *c, size_t subject, ashlar_rows_cell *cells) {
    ashlar_train_result *const r = &c->last[subject];
    size_t done = 0;
    double sum = 0;
    cells[ASHLAR_TRAIN_ROW_LOSS_S].number = cells[ASHLAR_TRAIN_ROW_LOSS_STEPS].number = NAN;
    cells[ASHLAR_TRAIN_ROW_LOSS].number = NAN;
    if (c->request->is_smoke) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(ashlar__train_setup_run(&c->setup, subject == TORCH, c->setup.steps, loss_s, r));
    while (done < r->count && r->ends[done] <= loss_s) {
        done++;
    }
    if (done < LOSS_MEAN || done == r->count) { /* too slow, or the batches have run out before */
        return ASHLAR_OK;
    }
    for (size_t i = done - LOSS_MEAN; i < done; i++) {
        sum += r->losses[i];
    }
    cells[ASHLAR_TRAIN_ROW_LOSS_S].number = loss_s;
    cells[ASHLAR_TRAIN_ROW_LOSS_STEPS].number = (double)done;
    cells[ASHLAR_TRAIN_ROW_LOSS].number = sum / LOSS_MEAN;
    return ASHLAR_OK;
}

/* Rows keep a text's address, so it is one for each case. */
static const char *peer_text(const contest *c) {
    static char texts[CASES_MAX][2 * ASHLAR_TRAIN_WAY_BYTES];
    size_t count;
    char *const text = texts[c->setup.which - ashlar__train_cases(&count)];
    ASHLAR_CHECK2(count <= CASES_MAX);
    if (c->setup.torch != NULL) {
        (void)snprintf(text, sizeof texts[0], "%s: %s", ashlar__rnn_torch_name(), c->setup.way);
        return text;
    }
    return ashlar__rnn_torch_name() != NULL ? "none: PyTorch's is on the CPU"
                                            : "none: python3 has no PyTorch, or it is not wanted";
}

static ashlar_status add_rows(contest *c, ashlar_rows *rows) {
    const size_t first = rows->count;
    const double difference = largest_difference(c);
    for (size_t i = 0; i < c->count; i++) { /* take ratios first, because medians sort the rounds */
        ashlar_row row = {{
            [ASHLAR_TRAIN_ROW_CASE].text = c->setup.which->name,
            [ASHLAR_TRAIN_ROW_SUBJECT].text = subjects[c->subjects[i]],
            [ASHLAR_TRAIN_ROW_OVER_TORCH].number = over_torch(c, &c->turns[i]),
            [ASHLAR_TRAIN_ROW_LOSS_DIFFERENCE].number = c->subjects[i] == ASHLAR ? difference : NAN,
            [ASHLAR_TRAIN_ROW_PEER].text = peer_text(c),
        }};
        ASHLAR_TRY(learn(c, c->subjects[i], row.cells));
        ASHLAR_TRY(ashlar__rows_add(rows, &row));
    }
    for (size_t i = 0; i < c->count; i++) {
        ashlar_rows_cell *cells = rows->items[first + i].cells;
        double low, high;
        ashlar__turns_spread(&c->turns[i], STEP_S, &low, &high);
        cells[ASHLAR_TRAIN_ROW_TOKENS_PER_S].number =
            ashlar__turns_median(&c->turns[i], TOKENS_PER_S);
        cells[ASHLAR_TRAIN_ROW_MS_STEP].number = 1e3 * ashlar__turns_median(&c->turns[i], STEP_S);
        cells[ASHLAR_TRAIN_ROW_MS_STEP_LOW].number = 1e3 * low;
        cells[ASHLAR_TRAIN_ROW_MS_STEP_HIGH].number = 1e3 * high;
    }
    ashlar__rows_print(c->request->out, rows, first);
    return ASHLAR_OK;
}

/* Train on a setup that was made. */
static ashlar_status run_contest(contest *c, ashlar_rows *rows) {
    const ashlar_rounds how = {.most = ROUNDS_MAX,
                               .least = ROUNDS_MIN,
                               .while_s = while_s,
                               .is_smoke = c->request->is_smoke,
                               .run = take_turn,
                               .context = c};
    const size_t steps = c->setup.steps;
    ASHLAR_HOST_NEW(c->numbers, 2 * SUBJECTS * steps, "bench: no host memory for %zu losses",
                    2 * SUBJECTS * steps);
    for (size_t i = 0; i < SUBJECTS; i++) {
        c->last[i].losses = c->numbers + 2 * i * steps;
        c->last[i].ends = c->last[i].losses + steps;
        if (takes_part(c, i)) {
            c->subjects[c->count++] = i;
        }
    }
    ASHLAR_TRY(ashlar__rounds_run(&how, c->count, c->turns));
    return add_rows(c, rows);
}

static bool workload(size_t i, ashlar_bench_name *out) {
    size_t count;
    const ashlar_train_case *cases = ashlar__train_cases(&count);
    if (i < count) {
        *out = (ashlar_bench_name){cases[i].name, NULL};
    }
    return i < count;
}

static const char *subject(size_t i) {
    return i < SUBJECTS ? subjects[i] : NULL;
}

static ashlar_status run_cases(const ashlar_bench_request *request, ashlar_device *device,
                               const ashlar_corpus *corpus, ashlar_rnn_torch *torch,
                               ashlar_rows *rows) {
    ashlar_bench_name name;
    size_t count;
    const ashlar_train_case *cases = ashlar__train_cases(&count);
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; status == ASHLAR_OK && workload(i, &name); i++) {
        if (ashlar__bench_wants(&request->workloads, name)) {
            contest c = {.request = request};
            status = ashlar__train_setup_init(&c.setup, device, corpus, torch, &cases[i],
                                              request->is_smoke ? SMOKE_STEPS : DRAWN_STEPS,
                                              !request->is_smoke);
            ASHLAR_THEN(status, run_contest(&c, rows));
            ashlar__train_setup_finish(&c.setup);
            ashlar__host_free(c.numbers);
        }
    }
    return status;
}

static ashlar_status run(const ashlar_bench_request *request, ashlar_device *device,
                         ashlar_rows *rows, ashlar_rows *more) {
    ashlar_rnn_torch *torch = NULL;
    ashlar_corpus *corpus = NULL;
    (void)more;
    ASHLAR_FAIL_IF(request->data.count == 0, ASHLAR_EINVAL,
                   "rnn --train: give a text to train on, by --data PATH");
    ASHLAR_TRY(ashlar__corpus_open(request->data.items, request->data.count, &corpus));
    ashlar__workers_set_count(request->threads);
    ashlar_status status =
        ashlar__bench_wants(&request->subjects, (ashlar_bench_name){subjects[TORCH], NULL})
            ? ashlar__rnn_torch_start(ashlar__workers_count(), &torch)
            : ASHLAR_OK;
    ashlar__rows_print_head(request->out, rows);
    ASHLAR_THEN(status, run_cases(request, device, corpus, torch, rows));
    ashlar__rnn_torch_stop(torch);
    ashlar__corpus_destroy(corpus);
    return status;
}

static void put_head(ashlar_json_writer *w) {
    char processor[ASHLAR_MACHINE_TEXT_BYTES];
    ashlar__machine_processor(processor);
    ashlar__json_add_string(w, "processor", processor);
    ashlar__json_add_string(w, "products", ashlar__blas_name());
    ashlar__json_add_uint64(w, "threads", ashlar__workers_count());
}

static void print_help(FILE *out) {
    size_t count;
    const ashlar_train_case *cases = ashlar__train_cases(&count);
    fprintf(
        out,
        "\n"
        "rnn --train --data PATH: whole training steps of ashlar-train's text model (embedding,\n"
        "layers, output layer, loss, backward, clipping, AdamW) on batches of that text, beside\n"
        "the same by PyTorch in its fastest way, from the same weights: tokens and steps by\n"
        "time, the mean loss of the last %d steps after %.0f s of training, and the largest\n"
        "difference of the losses of the first %d steps, which shows that both do the same.\n"
        "Takes also --smoke, --workload, --subject, --threads, --json, --device. JSON:\n"
        "{processor, products, threads, rows}, rows of {case, subject, tokens_per_s, ms_step,\n"
        "over_torch, loss_s, loss_steps, loss, loss_difference, peer}. Cases:",
        LOSS_MEAN, loss_s, TURN_STEPS);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "%s%s", i % 2 == 0 ? "\n  " : ", ", cases[i].name);
    }
    fprintf(out, "\n");
}

const ashlar_benchmark ashlar__benchmark_rnn_train = {
    .name = "rnn --train",
    .takes = "--train, --data, --smoke, --workload, --subject, --threads, --json, --device",
    .form = &form,
    .workload = workload,
    .subject = subject,
    .run = run,
    .put_head = put_head,
    .print_help = print_help,
};
