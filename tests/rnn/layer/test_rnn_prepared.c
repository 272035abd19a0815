/*
 * test_rnn_prepared.c - single steps with prepared weights have the bits of one long forward pass,
 * whatever the batch and the threads; so has a prepared linear layer behind them.
 */
#include "tests/rnn/product/set_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/random.h"
#include "arena/compute/convert.h"
#include "arena/compute/workers.h"
#include "rnn/layer/ops.h"
#include "rnn/layer/rnn_cpu.h"

enum { STEPS = 6, GUARD_BYTES = 64, GUARD = 0x5a, BLOCKS_MAX = 64 };

/* ---- memory with guards behind it ---- */

static struct {
    unsigned char *at;
    size_t bytes;
} blocks[BLOCKS_MAX];
static size_t block_count;

/* Bytes of ones are NaN: what is read before it is written is seen. */
static void *take(size_t bytes) {
    const size_t whole = (bytes + 63) / 64 * 64 + GUARD_BYTES;
    unsigned char *at = aligned_alloc(64, whole);
    CHECK(at != NULL && block_count < BLOCKS_MAX);
    memset(at, 0xff, whole);
    memset(at + bytes, GUARD, GUARD_BYTES);
    blocks[block_count].at = at;
    blocks[block_count++].bytes = bytes;
    return at;
}

static void give_all(void) {
    while (block_count-- > 0) {
        size_t wrong = 0;
        for (size_t i = 0; i < GUARD_BYTES; i++) {
            wrong += blocks[block_count].at[blocks[block_count].bytes + i] != GUARD;
        }
        CHECK_ZU(wrong, 0);
        free(blocks[block_count].at);
    }
    block_count = 0;
}

static void *take_values(ashlar_dtype dtype, size_t count, double width, ashlar_random *random) {
    void *const out = take(count * ashlar_dtype_bytes(dtype));
    for (size_t i = 0; i < count; i++) {
        const double value = width * (2 * ashlar__random_uniform(random) - 1);
        if (dtype == ASHLAR_F32) {
            ((float *)out)[i] = (float)value;
        } else {
            ((double *)out)[i] = value;
        }
    }
    return out;
}

/* ---- both ways ---- */

/* An embedding, a stack of layers and a linear layer, of one type. */
typedef struct weights {
    const ashlar_rnn_layout *layout;
    size_t classes;     /* V */
    const void *table;  /* [V, I] */
    const void *stack;  /* in packed order */
    const void *weight; /* [V, P] */
    const void *bias;   /* [V] */
} weights;

typedef struct sizes {
    size_t classes, batch, threads;
    bool is_bf16; /* fp32 matrices are prepared as bf16 */
} sizes;

/* What a text's steps leave: logits [STEPS, B, V], and the last states. */
typedef struct results {
    char *logits, *h, *c;
} results;

static results take_results(const ashlar_rnn_layout *layout, const sizes *s) {
    const size_t item = ashlar_dtype_bytes(layout->config.dtype);
    const size_t rows = layout->config.layers * s->batch * item;
    return (results){.logits = take(STEPS * s->batch * s->classes * item),
                     .h = take(rows * layout->state),
                     .c = take(rows * layout->config.hidden)};
}

static void *take_zeros(size_t bytes) {
    return memset(take(bytes), 0, bytes);
}

/* One forward pass over all steps, as a training runs it. */
static void pass(const weights *m, const sizes *s, const int32_t *tokens, results *out) {
    const ashlar_rnn_layout *const layout = m->layout;
    const ashlar_dtype dtype = layout->config.dtype;
    const size_t item = ashlar_dtype_bytes(dtype), input = layout->config.input;
    const size_t rows = STEPS * s->batch;
    size_t reserve = 0, work = 0;
    int32_t lengths[16];
    for (size_t b = 0; b < s->batch; b++) {
        lengths[b] = STEPS;
    }
    char *const x = take(rows * input * item), *const y = take(rows * layout->output * item);
    for (size_t i = 0; i < rows; i++) {
        memcpy(x + i * input * item, (const char *)m->table + (size_t)tokens[i] * input * item,
               input * item);
    }
    CHECK(ashlar__rnn_cpu_sizes(layout, STEPS, s->batch, false, &reserve, &work) == ASHLAR_OK);
    const ashlar_rnn_cpu_args args = {
        .layout = layout,
        .steps = STEPS,
        .batch = s->batch,
        .lengths = lengths,
        .b = {.work = take(work),
              .x = x,
              .weights = m->stack,
              .y = y,
              .hy = out->h,
              .cy = layout->config.cell == ASHLAR_RNN_LSTM ? out->c : NULL}};
    const ashlar_linear_args linear = {.rows = rows,
                                       .in = layout->output,
                                       .out = s->classes,
                                       .x = y,
                                       .weight = m->weight,
                                       .bias = m->bias,
                                       .y = out->logits};
    ashlar__rnn_loops_of(dtype)->passes[ASHLAR_RNN_FORWARD](&args);
    (dtype == ASHLAR_F32 ? ashlar__linear_forward_f32 : ashlar__linear_forward_f64)(&linear);
}

/* The same step by step. Returns whether every pass was one that runs as a step. */
static bool step(const weights *m, const sizes *s, const int32_t *tokens, results *out) {
    const ashlar_rnn_layout *const layout = m->layout;
    const ashlar_dtype dtype = layout->config.dtype;
    const size_t item = ashlar_dtype_bytes(dtype), input = layout->config.input;
    const size_t h_bytes = layout->config.layers * s->batch * layout->state * item;
    const size_t c_bytes = layout->config.layers * s->batch * layout->config.hidden * item;
    const bool is_lstm = layout->config.cell == ASHLAR_RNN_LSTM;
    const ashlar_rnn_loops *const loops = ashlar__rnn_loops_of(dtype);
    void *const h[] = {take_zeros(h_bytes), take(h_bytes)};
    void *const c[] = {take_zeros(c_bytes), take(c_bytes)};
    char *const x = take(s->batch * input * item);
    size_t reserve, work;
    bool are_steps = true;
    ashlar_prepared_linear linear = {.args = {.rows = s->batch,
                                              .in = layout->output,
                                              .out = s->classes,
                                              .x = take(s->batch * layout->output * item),
                                              .weight = m->weight,
                                              .bias = m->bias},
                                     .dtype = dtype,
                                     .is_bf16 = s->is_bf16};
    linear.prepared = take(ashlar__linear_prepared_bytes(&linear));
    loops->prepare_linear(&linear);
    ashlar_prepare_args prepare = {.layout = layout, .is_bf16 = s->is_bf16, .weights = m->stack};
    prepare.prepared = take(ashlar__rnn_prepared_bytes(layout, s->is_bf16));
    loops->prepare(&prepare);
    CHECK(ashlar__rnn_cpu_sizes(layout, 1, s->batch, false, &reserve, &work) == ASHLAR_OK);
    ashlar_rnn_cpu_args args = {.layout = layout,
                                .steps = 1,
                                .batch = s->batch,
                                .is_bf16 = s->is_bf16,
                                .b = {.work = take(work),
                                      .x = x,
                                      .y = (void *)(uintptr_t)linear.args.x,
                                      .prepared = prepare.prepared}};
    for (size_t t = 0; t < STEPS; t++) {
        for (size_t b = 0; b < s->batch; b++) {
            memcpy(x + b * input * item,
                   (const char *)m->table + (size_t)tokens[t * s->batch + b] * input * item,
                   input * item);
        }
        args.b.hx = h[t % 2];
        args.b.hy = h[1 - t % 2];
        args.b.cx = is_lstm ? c[t % 2] : NULL;
        args.b.cy = is_lstm ? c[1 - t % 2] : NULL;
        are_steps &= ashlar__rnn_is_step(&args);
        loops->passes[ASHLAR_RNN_FORWARD](&args);
        linear.args.y = out->logits + t * s->batch * s->classes * item;
        loops->linear(&linear);
    }
    memcpy(out->h, h[STEPS % 2], h_bytes);
    memcpy(out->c, c[STEPS % 2], c_bytes);
    return are_steps;
}

static void round_values(float *values, size_t count) {
    for (size_t i = 0; i < count; i++) {
        values[i] = ashlar__float_from_bf16(ashlar__bf16_from_float(values[i]));
    }
}

/* Round the elements of all matrices, and not the biases. */
static void round_matrices(const weights *m) {
    const ashlar_rnn_layout *const layout = m->layout;
    static const ashlar_rnn_tensor matrices[] = {ASHLAR_RNN_W, ASHLAR_RNN_R, ASHLAR_RNN_WP};
    for (size_t i = 0; i < 3 * layout->config.layers; i++) {
        const ashlar_rnn_view view = ashlar_rnn_layout_view(layout, i / 3, matrices[i % 3]);
        round_values((float *)(uintptr_t)m->stack + view.offset, view.rows * view.cols);
    }
    round_values((float *)(uintptr_t)m->weight, m->classes * layout->output);
}

static void check_steps(const ashlar_rnn_config *config, const sizes *s) {
    ashlar_rnn_layout layout;
    ashlar_random random;
    int32_t tokens[STEPS * 16];
    ashlar__random_init(&random, 11);
    REQUIRE(ashlar_rnn_layout_init(&layout, config) == ASHLAR_OK && s->batch <= 16);
    const ashlar_dtype dtype = config->dtype;
    const size_t item = ashlar_dtype_bytes(dtype);
    const weights model = {
        .layout = &layout,
        .classes = s->classes,
        .table = take_values(dtype, s->classes * config->input, 1, &random),
        .stack = take_values(dtype, layout.elements, 0.2, &random),
        .weight = take_values(dtype, s->classes * layout.output, 0.3, &random),
        .bias = take_values(dtype, s->classes, 0.3, &random),
    };
    for (size_t i = 0; i < STEPS * s->batch; i++) {
        tokens[i] = (int32_t)ashlar__random_below(&random, s->classes);
    }
    results want = take_results(&layout, s), got = take_results(&layout, s);
    ashlar__workers_set_count(s->threads);
    CHECK(step(&model, s, tokens, &got));
    ashlar__workers_set_count(1);
    if (s->is_bf16) {
        round_matrices(&model);
    }
    pass(&model, s, tokens, &want);
    ashlar__workers_set_count(0);
    CHECK(memcmp(got.logits, want.logits, STEPS * s->batch * s->classes * item) == 0);
    CHECK(memcmp(got.h, want.h, config->layers * s->batch * layout.state * item) == 0);
    CHECK(config->cell != ASHLAR_RNN_LSTM ||
          memcmp(got.c, want.c, config->layers * s->batch * config->hidden * item) == 0);
    give_all();
}

/* ---- cases ---- */

/* Widths of whole panels, in which a cell is cut, and others; more columns than one depth. */
static const size_t WIDTHS[][2] = {{7, 5}, {33, 64}, {300, 96}, {3, 288}, {64, 258}};
enum { WIDTH_COUNT = sizeof WIDTHS / sizeof WIDTHS[0] };

static void check_cells_with(ashlar_dtype dtype, size_t batch, size_t threads, bool is_bf16) {
    for (unsigned i = 0; i < 4 * (unsigned)ASHLAR_RNN_CELL_COUNT * WIDTH_COUNT;
         i += CHECK_SANITIZED(1, CHECK_SHARE(7, 23))) {
        const ashlar_rnn_config config = {.input = WIDTHS[i % WIDTH_COUNT][0],
                                          .hidden = WIDTHS[i % WIDTH_COUNT][1],
                                          .layers = 1 + i % 3,
                                          .dtype = dtype,
                                          .cell = (ashlar_rnn_cell)(i / WIDTH_COUNT / 4),
                                          .bias = (ashlar_rnn_bias)(i / WIDTH_COUNT % 4)};
        check_steps(&config, &(sizes){.classes = 19 + i % 80,
                                      .batch = batch,
                                      .threads = threads,
                                      .is_bf16 = is_bf16});
    }
}

static void check_cells(ashlar_dtype dtype, size_t batch, size_t threads) {
    check_cells_with(dtype, batch, threads, false);
}

CASE(steps_have_the_bits_of_a_pass_with_every_cell_and_bias) {
    check_cells(ASHLAR_F32, 1, 1);
    check_cells(ASHLAR_F64, 1, 1);
}

CASE(so_they_do_with_any_batch) {
    check_cells(ASHLAR_F32, 2, 1);
    check_cells(ASHLAR_F32, 5, 1);
    check_cells(ASHLAR_F32, 16, 1);
    check_cells(ASHLAR_F64, 3, 1);
}

CASE(and_with_any_number_of_threads) {
    check_cells(ASHLAR_F32, 1, 2);
    check_cells(ASHLAR_F32, 1, 5);
    check_cells(ASHLAR_F32, 16, 3);
    check_cells(ASHLAR_F64, 4, 2);
}

CASE(and_with_a_projection) {
    for (size_t i = 0; i < 3 * WIDTH_COUNT; i++) {
        const size_t hidden = WIDTHS[i % WIDTH_COUNT][1];
        const ashlar_rnn_config config = {.input = WIDTHS[i % WIDTH_COUNT][0],
                                          .hidden = hidden,
                                          .layers = 1 + i % 3,
                                          .dtype = i % 2 == 0 ? ASHLAR_F32 : ASHLAR_F64,
                                          .projection = 1 + hidden / 2};
        check_steps(&config, &(sizes){.classes = 70, .batch = 1 + i % 4, .threads = 1 + i % 3});
    }
}

CASE(matrices_prepared_as_bf16_give_the_bits_of_matrices_rounded_so) {
    check_cells_with(ASHLAR_F32, 1, 1, true);
    check_cells_with(ASHLAR_F32, 1, 3, true);
    check_cells_with(ASHLAR_F32, 2, 1, true);
    check_cells_with(ASHLAR_F32, 16, 2, true);
    for (size_t i = 0; i < WIDTH_COUNT; i++) {
        const size_t hidden = WIDTHS[i][1];
        const ashlar_rnn_config config = {
            .input = WIDTHS[i][0], .hidden = hidden, .layers = 2, .projection = 1 + hidden / 2};
        check_steps(&config, &(sizes){70, 1 + i, 1 + i % 3, true});
    }
}

RUN_CASES_OF_SET()
