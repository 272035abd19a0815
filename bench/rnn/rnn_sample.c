/* rnn_sample.c - times steps of a text sampler beside reads of as many bytes. */
#include "bench/rnn/rnn_sample.h"

#include <math.h>

#include "allocator/base/clock.h"
#include "allocator/base/error.h"
#include "bench/harness/rounds.h"
#include "bench/rnn/roof.h"
#include "rnn/data/batcher.h"
#include "rnn/model/text_sampler.h"

enum { ROUNDS_MAX = 61, ROUNDS_MIN = 9, TEXTS_MAX = 16, SEED = 1, LINE = 64 };
static const double round_s = 20e-3, while_s = 6;

#define COLUMN(name, key, heading, kind, ...) {key, heading, ASHLAR_ROWS_##kind, __VA_ARGS__},
static const ashlar_rows_column columns[] = {ASHLAR_RNN_SAMPLE_COLUMN_MAP(COLUMN)};

static const ashlar_rows_target targets[] = {
    {"share of the read rate", "ashlar", ASHLAR_RNN_SAMPLE_OF_READ, 0.85, true,
     .names = {"sample_lstm_B1_H256_L2"}},
};

const ashlar_rows_form ashlar__rnn_sample_form = {columns, ASHLAR_RNN_SAMPLE_COLUMNS,
                                                  ASHLAR_RNN_SAMPLE_SUBJECT, targets,
                                                  sizeof targets / sizeof targets[0]};

static const struct {
    const char *name;
    size_t texts;
    bool is_bf16;
} cases[] = {{"sample_lstm_B1_H256_L2", 1, false},
             {"sample_lstm_B16_H256_L2", TEXTS_MAX, false},
             {"sample_lstm_B1_H256_L2_bf16", 1, true}};

const char *ashlar__rnn_sample_name(size_t i) {
    return i < sizeof cases / sizeof cases[0] ? cases[i].name : NULL;
}

enum { SAMPLER, READ, TURNS }; /* who take turns */

typedef struct contest {
    ashlar_allocator *allocator;
    ashlar_model *model;
    ashlar_text_sampler *sampler;
    size_t read_bytes;
    bool is_cuda;
} contest;

static bool is_on_cuda(const ashlar_device *device) {
    ashlar_device_info info;
    ashlar_device_get_info(device, &info);
    return info.kind == ASHLAR_DEVICE_CUDA;
}

/* The model that ashlar-train trains by default. */
static ashlar_status open(contest *c, ashlar_device *device, size_t texts, bool is_bf16) {
    const ashlar_model_config config = {
        .classes = ASHLAR_BATCHER_SYMBOLS, .embedding = 64, .hidden = 256, .layers = 2};
    const ashlar_text_sampler_config sampler = {.sampling = {.temperature = 0.7, .top_p = 1},
                                                .seed = SEED,
                                                .count = texts,
                                                .is_bf16 = is_bf16};
    c->is_cuda = is_on_cuda(device);
    ASHLAR_TRY(ashlar_allocator_create(device, &c->allocator));
    ASHLAR_TRY(
        ashlar__model_create(c->allocator, NULL, &config, ASHLAR_REGIONS_INFERENCE, &c->model));
    ASHLAR_TRY(ashlar__model_init_weights(c->model, SEED));
    const ashlar_rnn_layout *const layout = ashlar_rnn_layout_of(c->model->rnn);
    const size_t biases = 2 * layout->gates * config.hidden * config.layers;
    const size_t matrices = layout->elements - biases + config.classes * layout->output;
    const size_t others = biases + config.classes + texts * config.embedding;
    c->read_bytes =
        matrices * (is_bf16 ? sizeof(uint16_t) : sizeof(float)) + others * sizeof(float);
    return ashlar__text_sampler_create(c->model, &sampler, &c->sampler);
}

static void finish(contest *c) {
    ashlar__text_sampler_destroy(c->sampler);
    ashlar__model_destroy(c->model);
    ashlar_allocator_destroy(c->allocator);
}

static ashlar_status take_turn(void *context, size_t index, size_t repeats,
                               double figures[static ASHLAR_ROUNDS_FIGURES]) {
    const contest *c = context;
    int32_t symbols[TEXTS_MAX];
    if (index == READ) { /* its turn has a length of its own */
        const void *weights = ashlar_arena_region(c->model->arena, ASHLAR_REGION_PARAMETERS);
        figures[0] = (double)c->read_bytes /
                     ashlar__roof_run(ASHLAR_ROOF_READ, weights, c->read_bytes / LINE * LINE);
        return ASHLAR_OK;
    }
    const double start_s = ashlar__clock_s();
    for (size_t i = 0; i < repeats; i++) {
        ASHLAR_TRY(ashlar__text_sampler_next(c->sampler, symbols));
    }
    figures[0] = (ashlar__clock_s() - start_s) / (double)repeats;
    return ASHLAR_OK;
}

static ashlar_status add_row(const contest *c, size_t i, ashlar_turns *turns, FILE *out,
                             ashlar_rows *rows) {
    double shares[ROUNDS_MAX], low, high;
    for (size_t k = 0; k < turns[SAMPLER].rounds && !c->is_cuda; k++) {
        shares[k] = turns[READ].figures[0][k] / turns[SAMPLER].figures[0][k];
    }
    const double share = c->is_cuda ? NAN : ashlar__median(shares, turns[SAMPLER].rounds);
    const double rate =
        c->is_cuda ? NAN : (double)c->read_bytes / ashlar__turns_median(&turns[READ], 0);
    const double step_s = ashlar__turns_median(&turns[SAMPLER], 0);
    ashlar__turns_spread(&turns[SAMPLER], 0, &low, &high);
    const ashlar_row row = {{
        [ASHLAR_RNN_SAMPLE_CASE].text = cases[i].name,
        [ASHLAR_RNN_SAMPLE_SUBJECT].text = "ashlar",
        [ASHLAR_RNN_SAMPLE_TEXTS].number = (double)cases[i].texts,
        [ASHLAR_RNN_SAMPLE_NS].number = step_s * 1e9,
        [ASHLAR_RNN_SAMPLE_NS_LOW].number = low * 1e9,
        [ASHLAR_RNN_SAMPLE_NS_HIGH].number = high * 1e9,
        [ASHLAR_RNN_SAMPLE_SYMBOLS_PER_S].number = (double)cases[i].texts / step_s,
        [ASHLAR_RNN_SAMPLE_READ_BYTES].number = (double)c->read_bytes,
        [ASHLAR_RNN_SAMPLE_OF_READ].number = share,
        [ASHLAR_RNN_SAMPLE_READ_RATE].number = rate,
    }};
    const size_t first = rows->count;
    ASHLAR_TRY(ashlar__rows_add(rows, &row));
    ashlar__rows_print(out, rows, first);
    return ASHLAR_OK;
}

static ashlar_status run_case(const ashlar_bench_request *request, ashlar_device *device, size_t i,
                              ashlar_rows *rows) {
    contest c = {0};
    ashlar_turns turns[TURNS];
    const ashlar_rounds how = {.most = ROUNDS_MAX,
                               .least = ROUNDS_MIN,
                               .while_s = while_s,
                               .round_s = round_s,
                               .is_smoke = request->is_smoke,
                               .run = take_turn,
                               .context = &c};
    ashlar_status status = open(&c, device, cases[i].texts, cases[i].is_bf16);
    ASHLAR_THEN(status, ashlar__rounds_run(&how, c.is_cuda ? READ : TURNS, turns));
    ASHLAR_THEN(status, add_row(&c, i, turns, request->out, rows));
    finish(&c);
    return status;
}

ashlar_status ashlar__rnn_sample_run(const ashlar_bench_request *request, ashlar_device *device,
                                     ashlar_rows *rows) {
    bool has_head = false;
    for (size_t i = 0; ashlar__rnn_sample_name(i) != NULL; i++) {
        const ashlar_bench_name name = {cases[i].name, NULL};
        const ashlar_bench_name subject = {"ashlar", NULL};
        const bool is_possible = !cases[i].is_bf16 || !is_on_cuda(device);
        if (is_possible && ashlar__bench_wants(&request->workloads, name) &&
            ashlar__bench_wants(&request->subjects, subject)) {
            if (!has_head) {
                fputc('\n', request->out);
                ashlar__rows_print_head(request->out, rows);
                has_head = true;
            }
            ASHLAR_TRY(run_case(request, device, i, rows));
        }
    }
    return ASHLAR_OK;
}
