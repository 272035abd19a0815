/*
 * test_ops_threads.c - the CPU's operations around the layers and of a model's engine on one thread
 * and on several: the same bits.
 */
#include "rnn/layer/ops.h"

#include "tests/allocator/trace/numbers_fixture.h"

#include "arena/compute/workers.h"

/* Enough for several threads in each operation, and more positions than losses are kept at once. */
enum { STEPS = 83, BATCH = 27, ROWS = STEPS * BATCH, CLASSES = 67, WIDTH = 83, RUNS = 5 };
static const size_t THREADS[RUNS] = {1, 2, 3, 7, 16};

static int32_t lengths[BATCH], tokens[ROWS];
static float in[ROWS * WIDTH], more[ROWS * WIDTH], weights[CLASSES * WIDTH], bias[CLASSES],
    drawn[ROWS * CLASSES];

/* What one run has written. */
static struct outputs {
    float rows[ROWS * WIDTH], table[CLASSES * WIDTH], logits[ROWS * CLASSES], dbias[CLASSES];
    double losses[ROWS], loss;
} one, many;

static void fill(float *numbers, size_t count) {
    for (size_t i = 0; i < count; i++) {
        numbers[i] = (float)random_real();
    }
}

static void begin(void) {
    fill(in, ROWS * WIDTH);
    fill(more, ROWS * WIDTH);
    fill(weights, CLASSES * WIDTH);
    fill(bias, CLASSES);
    fill(drawn, ROWS * CLASSES);
    for (size_t b = 0; b < BATCH; b++) {
        lengths[b] = b == 0 ? STEPS : (int32_t)(1 + b * 3 % STEPS);
    }
    for (size_t i = 0; i < ROWS; i++) {
        const bool is_valid = i / BATCH < (size_t)lengths[i % BATCH];
        tokens[i] = is_valid ? (int32_t)(i * 7 % CLASSES) : -1;
    }
}

static ashlar_embedding_args embedding_of(struct outputs *o) {
    return (ashlar_embedding_args){.steps = STEPS,
                                   .batch = BATCH,
                                   .lengths = lengths,
                                   .classes = CLASSES,
                                   .width = WIDTH,
                                   .tokens = tokens,
                                   .table = weights,
                                   .out = o->rows,
                                   .dout = in,
                                   .dtable = o->table};
}

static ashlar_linear_args linear_of(struct outputs *o) {
    return (ashlar_linear_args){.rows = ROWS,
                                .in = WIDTH,
                                .out = CLASSES,
                                .x = in,
                                .weight = weights,
                                .bias = bias,
                                .y = o->logits,
                                .dy = drawn,
                                .dbias = o->dbias};
}

static ashlar_cross_entropy_args loss_of(struct outputs *o, bool wants_losses) {
    return (ashlar_cross_entropy_args){.steps = STEPS,
                                       .batch = BATCH,
                                       .lengths = lengths,
                                       .classes = CLASSES,
                                       .logits = drawn,
                                       .targets = tokens,
                                       .dlogits = wants_losses ? o->logits : NULL,
                                       .losses = wants_losses ? o->losses : NULL,
                                       .loss = &o->loss};
}

static void gather(struct outputs *o) {
    const ashlar_embedding_args args = embedding_of(o);
    ashlar__embedding_forward_f32(&args);
}

static void scatter(struct outputs *o) {
    const ashlar_embedding_args args = embedding_of(o);
    ashlar__embedding_backward_f32(&args);
}

static void multiply(struct outputs *o) {
    const ashlar_linear_args args = linear_of(o);
    ashlar__linear_forward_f32(&args);
    ashlar__linear_backward_f32(&args);
}

static void lose(struct outputs *o) {
    const ashlar_cross_entropy_args args = loss_of(o, true);
    ashlar__cross_entropy_f32(&args);
}

static void only_lose(struct outputs *o) {
    const ashlar_cross_entropy_args args = loss_of(o, false);
    ashlar__cross_entropy_f32(&args);
}

#define RUN(op, kind, ...)                               \
    static void op(struct outputs *o) {                  \
        const ashlar_##kind##_args args = {__VA_ARGS__}; \
        ashlar__##op##_f32(&args);                       \
    }
#define GRID .steps = STEPS, .batch = BATCH, .width = WIDTH
RUN(map, map, .kind = ASHLAR_MAP_TANH, .count = ROWS * WIDTH, .a = in, .out = o->rows)
RUN(scale_rows, scale_rows, .rows = ROWS, GRID, .a = in, .lengths = lengths, .out = o->rows)
RUN(row_products, row_products, .rows = ROWS, .width = WIDTH, .a = in, .b = more, .out = o->rows)
RUN(softmax, softmax, .rows = ROWS, .width = WIDTH, .x = in, .y = o->rows)
RUN(softmax_back, softmax_back, .rows = ROWS, .width = WIDTH, .y = in, .dy = more, .dx = o->rows)
RUN(drop, drop, GRID, .rate = 0.4, .a = in, .out = o->rows)
RUN(pool, pool, GRID, .kind = ASHLAR_POOL_MEAN, .x = in, .y = o->rows)
RUN(pool_back, pool_back, GRID, .kind = ASHLAR_POOL_MEAN, .x = in, .y = more, .dy = more,
    .dx = o->rows)
RUN(squared_error, squared_error, GRID, .outputs = in, .targets = more, .doutputs = o->rows,
    .losses = o->losses, .loss = &o->loss, .kind = ASHLAR_ELEMENT_BINARY)
RUN(swap, swap, .outer = STEPS, .inner = BATCH, .width = WIDTH, .from = in, .to = o->rows)

static bool is_zero(const struct outputs *o) {
    static const struct outputs zeros;
    return memcmp(o, &zeros, sizeof zeros) == 0;
}

/* Run on one thread, then on others; each has to write the same, and something. */
static void check_same(void (*operation)(struct outputs *)) {
    begin();
    for (size_t i = 0; i < RUNS; i++) {
        struct outputs *const o = i == 0 ? &one : &many;
        memset(o, 0, sizeof *o);
        ashlar__workers_set_count(THREADS[i]);
        operation(o);
        CHECK(!is_zero(o) && (i == 0 || memcmp(&one, &many, sizeof one) == 0));
    }
    ashlar__workers_set_count(0);
}

CASE(embeddings_have_the_same_bits_on_any_number_of_threads) {
    check_same(gather);
    check_same(scatter);
}

CASE(linear_layers_have_the_same_bits_on_any_number_of_threads) {
    check_same(multiply);
}

CASE(losses_have_the_same_bits_on_any_number_of_threads) {
    check_same(lose);
    check_same(only_lose);
    check_same(squared_error);
}

/* The last step of so many alone has the losses that it has among them. */
CASE(more_positions_than_are_added_up_at_once_have_each_its_loss) {
    int32_t last[BATCH];
    begin();
    lose(&one);
    ashlar_cross_entropy_args args = loss_of(&many, true);
    for (size_t b = 0; b < BATCH; b++) {
        last[b] = lengths[b] == STEPS;
    }
    args.steps = 1;
    args.lengths = last;
    args.logits = drawn + (ROWS - BATCH) * CLASSES;
    args.targets = tokens + ROWS - BATCH;
    ashlar__cross_entropy_f32(&args);
    CHECK(many.losses[0] > 0);
    CHECK(memcmp(many.losses, one.losses + ROWS - BATCH, BATCH * sizeof one.losses[0]) == 0);
}

CASE(elements_have_the_same_bits_on_any_number_of_threads) {
    static void (*const all[])(struct outputs *) = {
        map, scale_rows, row_products, softmax, softmax_back, drop, pool, pool_back, swap};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        check_same(all[i]);
    }
}

RUN_CASES()
