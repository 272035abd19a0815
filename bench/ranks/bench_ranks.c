/* bench_ranks.c - the benchmark `ranks`: chooses cases, numbers of ranks and subjects, runs each as
 * programs in rounds, and adds the rows. */
#include "bench/ranks/bench_ranks.h"

#include <math.h>
#include <string.h>

#include "allocator/base/error.h"
#include "arena/compute/workers.h"
#include "bench/harness/machine.h"
#include "bench/harness/rounds.h"
#include "bench/ranks/rank_jobs.h"
#include "bench/ranks/rank_sums.h"
#include "rnn/product/blas.h"

enum { ROUNDS = 5, SMOKE_ROUNDS = 1, RANK_COUNTS = 3, CASES = 3 };

#define COLUMN(name, key, heading, kind, ...) {key, heading, ASHLAR_ROWS_##kind, __VA_ARGS__},
static const ashlar_rows_column columns[] = {ASHLAR_RANKS_ROW_COLUMN_MAP(COLUMN)};

static const ashlar_rows_target targets[] = {
    {"throughput / one process", "ashlar", ASHLAR_RANKS_ROW_OVER_ONE, .limit = 0.95,
     .is_at_least = true, .names = {"strong", "2"}},
    {"ashlar / torch_gloo", "ashlar", ASHLAR_RANKS_ROW_OVER_TORCH, .limit = 1,
     .names = {NULL, "2"}},
};

static const ashlar_rows_form form = {columns, ASHLAR_RANKS_ROW_COLUMNS, ASHLAR_RANKS_ROW_SUBJECT,
                                      targets, sizeof targets / sizeof targets[0]};

static const struct rank_count {
    size_t count;
    const char *name;
} rank_counts[RANK_COUNTS] = {{1, "1"}, {2, "2"}, {4, "4"}};

static const char sums_name[] = "sums";
static const struct training {
    const char *name;
    size_t batch;
    bool is_of_each; /* the batch is that of each rank, not of all */
} trainings[CASES - 1] = {{"strong", 32, false}, {"weak", 16, true}};

typedef enum subject_kind { ASHLAR, SHARDED, REPRODUCIBLE, TORCH, SUBJECTS } subject_kind;
static const char *const subjects[] = {[ASHLAR] = "ashlar",
                                       [SHARDED] = "sharded",
                                       [REPRODUCIBLE] = "reproducible",
                                       [TORCH] = "torch_gloo"};
ASHLAR_TABLE_IS_FULL(subjects, SUBJECTS);

/* What is trained: the text model of ashlar-train, two layers of LSTM. */
typedef struct scale {
    size_t length, hidden, steps, rounds, text_bytes;
} scale;
static const scale whole = {64, 256, 20, ROUNDS, (size_t)1 << 17};
static const scale smoke = {8, 16, 2, SMOKE_ROUNDS, (size_t)1 << 13};

typedef struct bench {
    const ashlar_bench_request *request;
    ashlar_rank_jobs jobs;
    const scale *scale;
    ashlar_rows *rows;
} bench;

/* ---- a training by one subject ---- */

enum { TOKENS_PER_S, STEP_MS, SUMS_SHARE, HIDDEN_SHARE, FIGURES };

typedef struct contestant {
    const struct training *training;
    subject_kind subject;
    const struct rank_count *ranks;
    double figures[FIGURES][ROUNDS];
    double parameters;
} contestant;

static double number(const ashlar_json *object, const char *key) {
    const ashlar_json *member = ashlar__json_member(object, key);
    return member != NULL && member->kind == ASHLAR_JSON_NUMBER ? member->number : NAN;
}

/* The list of ranks is empty where one process was alone. */
static void read_ranks(const ashlar_json *document, double *sums_share, double *hidden_share) {
    const ashlar_json *list = ashlar__json_member(document, "ranks");
    double seconds = 0, sums = 0, hidden = 0;
    for (const ashlar_json *r = list != NULL ? list->item : NULL; r != NULL; r = r->next) {
        seconds += number(r, "seconds");
        sums += number(r, "sum_seconds");
        hidden += number(r, "hidden_seconds");
    }
    *sums_share = seconds > 0 ? sums / seconds : NAN;
    *hidden_share = sums > 0 ? hidden / sums : NAN;
}

static size_t batch_of(const contestant *c) {
    return c->training->batch * (c->training->is_of_each ? c->ranks->count : 1);
}

enum { RANKS_WORD, THREADS_WORD, BATCH_WORD, LENGTH_WORD, HIDDEN_WORD, STEPS_WORD, NUMBERS };
enum { WORD_BYTES = 24 };
typedef char number_words[NUMBERS][WORD_BYTES];

static void print_numbers(const bench *b, const contestant *c, number_words words) {
    const size_t threads = ashlar__workers_count() / c->ranks->count;
    const size_t numbers[] = {
        [RANKS_WORD] = c->ranks->count,   [THREADS_WORD] = threads > 0 ? threads : 1,
        [BATCH_WORD] = batch_of(c),       [LENGTH_WORD] = b->scale->length,
        [HIDDEN_WORD] = b->scale->hidden, [STEPS_WORD] = b->scale->steps};
    ASHLAR_TABLE_IS_FULL(numbers, NUMBERS);
    for (size_t i = 0; i < NUMBERS; i++) {
        (void)snprintf(words[i], WORD_BYTES, "%zu", numbers[i]);
    }
}

static ashlar_status run_torch(const bench *b, const contestant *c, ashlar_json **out) {
    number_words n;
    print_numbers(b, c, n);
    const char *words[] = {"python3",      "-c",           ashlar__torch_ddp, b->jobs.text,
                           b->jobs.json,   n[RANKS_WORD],  n[THREADS_WORD],   n[BATCH_WORD],
                           n[LENGTH_WORD], n[HIDDEN_WORD], n[STEPS_WORD],     NULL};
    return ashlar__rank_job_run(&b->jobs, 1, words, out); /* it starts its ranks itself */
}

static ashlar_status run_train(const bench *b, const contestant *c, ashlar_json **out) {
    number_words n;
    print_numbers(b, c, n);
    const char *words[] = {b->jobs.train,
                           "--quiet",
                           "--device",
                           "soft",
                           "--data",
                           b->jobs.text,
                           "--json",
                           b->jobs.json,
                           "--threads",
                           n[THREADS_WORD],
                           "--batch",
                           n[BATCH_WORD],
                           "--max-length",
                           n[LENGTH_WORD],
                           "--hidden",
                           n[HIDDEN_WORD],
                           "--steps",
                           n[STEPS_WORD],
                           "--sample",
                           "0",
                           "--held-out",
                           "0",
                           c->subject == REPRODUCIBLE ? "--reproducible"
                           : c->subject == SHARDED    ? "--shard"
                                                      : NULL,
                           NULL};
    return ashlar__rank_job_run(&b->jobs, c->ranks->count, words, out);
}

static ashlar_status run_round(const bench *b, contestant *c, size_t round) {
    ashlar_json *document = NULL;
    ASHLAR_TRY(c->subject == TORCH ? run_torch(b, c, &document) : run_train(b, c, &document));
    c->figures[TOKENS_PER_S][round] = number(document, "tokens_per_s");
    c->figures[STEP_MS][round] = 1e3 * number(document, "seconds") / number(document, "steps");
    c->parameters = number(document, "parameters");
    read_ranks(document, &c->figures[SUMS_SHARE][round], &c->figures[HIDDEN_SHARE][round]);
    ashlar__json_free(document);
    return c->figures[STEP_MS][round] > 0
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EFORMAT, "ranks: %s left no time of a step",
                              subjects[c->subject]);
}

/* ---- a case of trainings ---- */

static bool has_ranks(const bench *b, size_t i) {
    return rank_counts[i].count == 1 || b->jobs.no_ranks == NULL;
}

static bool wants(const bench *b, const char *name, const struct rank_count *ranks) {
    return ashlar__bench_wants(&b->request->workloads, (ashlar_bench_name){name, ranks->name});
}

/* One process has nothing to divide. */
static bool has_subject(const bench *b, subject_kind subject, const struct rank_count *ranks) {
    return (subject != TORCH || b->jobs.has_torch) && (subject != SHARDED || ranks->count > 1) &&
           ashlar__bench_wants(&b->request->subjects, (ashlar_bench_name){subjects[subject], NULL});
}

static size_t list_contestants(const bench *b, const struct training *t,
                               contestant list[static RANK_COUNTS * SUBJECTS]) {
    size_t count = 0;
    for (size_t i = 0; i < RANK_COUNTS; i++) {
        for (unsigned k = 0; k < SUBJECTS; k++) {
            if (has_ranks(b, i) && wants(b, t->name, &rank_counts[i]) &&
                has_subject(b, (subject_kind)k, &rank_counts[i])) {
                list[count++] = (contestant){t, (subject_kind)k, &rank_counts[i], .parameters = 0};
            }
        }
    }
    return count;
}

/* The median of a subject's figure on `ranks` ranks; NaN: it took no part. */
static double figure_of(contestant *list, size_t count, subject_kind subject, size_t ranks,
                        unsigned figure, size_t rounds) {
    for (size_t i = 0; i < count; i++) {
        if (list[i].subject == subject && list[i].ranks->count == ranks) {
            return ashlar__median(list[i].figures[figure], rounds);
        }
    }
    return NAN;
}

static ashlar_status add_rows(const bench *b, contestant *list, size_t count) {
    const size_t first = b->rows->count, rounds = b->scale->rounds;
    const double one = figure_of(list, count, ASHLAR, 1, TOKENS_PER_S, rounds);
    for (size_t i = 0; i < count; i++) {
        contestant *c = &list[i];
        const double tokens_per_s = ashlar__median(c->figures[TOKENS_PER_S], rounds);
        const double step_ms = ashlar__median(c->figures[STEP_MS], rounds);
        const bool is_torch = c->subject == TORCH;
        const ashlar_row row = {{
            [ASHLAR_RANKS_ROW_CASE].text = c->training->name,
            [ASHLAR_RANKS_ROW_RANKS].text = c->ranks->name,
            [ASHLAR_RANKS_ROW_BUCKET].text = "",
            [ASHLAR_RANKS_ROW_SUBJECT].text = subjects[c->subject],
            [ASHLAR_RANKS_ROW_MS_STEP].number = step_ms,
            [ASHLAR_RANKS_ROW_TOKENS_PER_S].number = tokens_per_s,
            [ASHLAR_RANKS_ROW_OVER_ONE].number = tokens_per_s / one,
            [ASHLAR_RANKS_ROW_OVER_TORCH].number =
                is_torch
                    ? NAN
                    : step_ms / figure_of(list, count, TORCH, c->ranks->count, STEP_MS, rounds),
            [ASHLAR_RANKS_ROW_SUMS].number = ashlar__median(c->figures[SUMS_SHARE], rounds),
            [ASHLAR_RANKS_ROW_HIDDEN].number = ashlar__median(c->figures[HIDDEN_SHARE], rounds),
            [ASHLAR_RANKS_ROW_PARAMETERS].number = c->parameters,
        }};
        ASHLAR_TRY(ashlar__rows_add(b->rows, &row));
    }
    ashlar__rows_print(b->request->out, b->rows, first);
    return ASHLAR_OK;
}

/* Each round begins with another contestant, so that a noisy machine disturbs all alike. */
static ashlar_status measure_training(const bench *b, const struct training *t) {
    contestant list[RANK_COUNTS * SUBJECTS];
    const size_t count = list_contestants(b, t, list);
    for (size_t round = 0; round < b->scale->rounds; round++) {
        for (size_t i = 0; i < count; i++) {
            ASHLAR_TRY(run_round(b, &list[(i + round) % count], round));
        }
    }
    return add_rows(b, list, count);
}

/* ---- sums ---- */

static const char *subject(size_t i) {
    return i < SUBJECTS ? subjects[i] : NULL;
}

/* The row's text under `key`, as the equal one among name(0), name(1), ..., which lives as long as
 * the program; the JSON's text does not. NULL: none is equal. */
static const char *kept(const char *(*name)(size_t), const ashlar_json *row, const char *key) {
    const ashlar_json *member = ashlar__json_member(row, key);
    size_t i = 0;
    while (member != NULL && name(i) != NULL && strcmp(name(i), member->text) != 0) {
        i++;
    }
    return member != NULL ? name(i) : NULL;
}

static ashlar_status add_sums(const bench *b, const struct rank_count *ranks,
                              const ashlar_json *document) {
    const ashlar_json *list = ashlar__json_member(document, "rows");
    for (const ashlar_json *r = list != NULL ? list->item : NULL; r != NULL; r = r->next) {
        ashlar_row row = {{
            [ASHLAR_RANKS_ROW_CASE].text = sums_name,
            [ASHLAR_RANKS_ROW_RANKS].text = ranks->name,
            [ASHLAR_RANKS_ROW_BUCKET].text = kept(ashlar__rank_sums_bucket, r, "bucket"),
            [ASHLAR_RANKS_ROW_SUBJECT].text = kept(subject, r, "subject"),
            [ASHLAR_RANKS_ROW_MS_STEP].number = number(r, "ms_step"),
        }};
        for (size_t i = ASHLAR_RANKS_ROW_TOKENS_PER_S; i < ASHLAR_RANKS_ROW_COLUMNS; i++) {
            row.cells[i].number = NAN;
        }
        ASHLAR_FAIL_IF(row.cells[ASHLAR_RANKS_ROW_BUCKET].text == NULL ||
                           row.cells[ASHLAR_RANKS_ROW_SUBJECT].text == NULL,
                       ASHLAR_EFORMAT, "ranks: sums left a row of another program");
        const ashlar_bench_name name = {row.cells[ASHLAR_RANKS_ROW_SUBJECT].text, NULL};
        if (ashlar__bench_wants(&b->request->subjects, name)) {
            ASHLAR_TRY(ashlar__rows_add(b->rows, &row));
        }
    }
    return ASHLAR_OK;
}

static ashlar_status measure_sums(const bench *b) {
    for (size_t i = 0; i < RANK_COUNTS; i++) {
        const char *words[] = {b->jobs.self,
                               sums_name,
                               "--json",
                               b->jobs.json,
                               b->request->is_smoke ? "--smoke" : NULL,
                               NULL};
        const size_t first = b->rows->count;
        ashlar_json *document = NULL;
        if (rank_counts[i].count > 1 && has_ranks(b, i) && wants(b, sums_name, &rank_counts[i])) {
            ASHLAR_TRY(ashlar__rank_job_run(&b->jobs, rank_counts[i].count, words, &document));
            const ashlar_status status = add_sums(b, &rank_counts[i], document);
            ashlar__json_free(document);
            ASHLAR_TRY(status);
            ashlar__rows_print(b->request->out, b->rows, first);
        }
    }
    return ASHLAR_OK;
}

/* ---- the benchmark ---- */

static bool workload(size_t i, ashlar_bench_name *out) {
    const size_t which = i / RANK_COUNTS;
    if (which < CASES) {
        *out = (ashlar_bench_name){which < CASES - 1 ? trainings[which].name : sums_name,
                                   rank_counts[i % RANK_COUNTS].name};
    }
    return which < CASES;
}

static ashlar_status measure_all(const bench *b) {
    if (b->jobs.no_ranks != NULL) {
        fprintf(b->request->out, "Several ranks are left out: %s.\n", b->jobs.no_ranks);
    }
    if (!b->jobs.has_torch) {
        fprintf(b->request->out, "%s is left out: python3 has no PyTorch.\n", subjects[TORCH]);
    }
    ashlar__rows_print_head(b->request->out, b->rows);
    for (size_t i = 0; i < CASES - 1; i++) {
        ASHLAR_TRY(measure_training(b, &trainings[i]));
    }
    return measure_sums(b);
}

static ashlar_status run(const ashlar_bench_request *request, ashlar_device *device,
                         ashlar_rows *rows, ashlar_rows *more) {
    bench b = {.request = request, .scale = request->is_smoke ? &smoke : &whole, .rows = rows};
    (void)device;
    (void)more;
    ashlar__workers_set_count(request->threads);
    ashlar_status status = ashlar__rank_jobs_init(&b.jobs, b.scale->text_bytes);
    ASHLAR_THEN(status, measure_all(&b));
    ashlar__rank_jobs_finish(&b.jobs);
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
    fprintf(
        out,
        "\n"
        "ranks: training on 1, 2 and 4 processes of this machine that mpirun starts, all with\n"
        "the same number of threads together: with one batch (strong) or one for each rank\n"
        "(weak); in MPI's order (ashlar), with a part of the moments on each (sharded), in an\n"
        "order with the same bits for any number (reproducible), and the same model by PyTorch's\n"
        "DistributedDataParallel (torch_gloo), where python3 has it. sums: adding up 16 MiB of "
        "gradients in pieces of several sizes.\n"
        "Takes --smoke, --workload, --subject, --threads (0: all), --json. JSON: {processor,\n"
        "products, threads, rows}, rows of {case, ranks, bucket, subject, ms_step, tokens_per_s,\n"
        "over_one, over_torch, sums_share, hidden_share, parameters}; sums_share: of a step, in\n"
        "sums and waits for other ranks; hidden_share: of these, beside work.\n");
}

const ashlar_benchmark ashlar__benchmark_ranks = {
    .name = "ranks",
    .takes = "--smoke, --workload, --subject, --threads, --json",
    .form = &form,
    .opens_devices = true,
    .workload = workload,
    .subject = subject,
    .run = run,
    .put_head = put_head,
    .print_help = print_help,
};
