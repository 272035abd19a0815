/*
 * test_gpu_ops.c - a model's operations on a CUDA device against the CPU's, in every type. Exits
 * with 77 where there is no GPU. It also runs on the fake driver, whose kernels are the same source
 * on the CPU.
 *
 * The CPU computes in double from the numbers that the device has; padding holds NaN, tokens and
 * targets that are no classes.
 */
#include "tests/arena/optimizer/element_fixture.h"
#include "tests/allocator/device/gpu_fixture.h"
#include "tests/allocator/trace/numbers_fixture.h"

#include "rnn/layer/ops.h"

/* By type: what one rounding of a number near 1 is, or a little more. */
static const double NEAR[ASHLAR_DTYPE_COUNT] = {
    [ASHLAR_F32] = 2e-6, [ASHLAR_F64] = 1e-13, [ASHLAR_F16] = 2e-3, [ASHLAR_BF16] = 1.6e-2};

/* Numbers of the device's type: here as doubles, and there. */
typedef struct tensor {
    ashlar_dtype dtype;
    size_t count;
    double *near;
    void *far;
} tensor;

static ashlar_dtype dtype; /* of the case's tensors */
static ashlar_ops *ops;

static void send(tensor *t) {
    const size_t item = ashlar_dtype_bytes(t->dtype);
    void *image = host_take(t->count * item);
    for (size_t i = 0; i < t->count; i++) {
        put_element(image, t->dtype, i, t->near[i]);
        t->near[i] = get_element(image, t->dtype, i);
    }
    t->far = gpu_send(image, t->count * item);
}

static tensor drawn(size_t count) {
    tensor t = {dtype, count, host_take(count * sizeof(double)), NULL};
    for (size_t i = 0; i < count; i++) {
        t.near[i] = random_real();
    }
    send(&t);
    return t;
}

/* What an operation is to overwrite. */
static tensor spoilt(size_t count) {
    tensor t = {dtype, count, host_take(count * sizeof(double)), gpu_take(count * 8)};
    for (size_t i = 0; i < count; i++) {
        t.near[i] = (double)NAN;
    }
    return t;
}

/* With NaN past the lengths of [T, B, width]. */
static tensor padded(size_t steps, size_t batch, const int32_t *lengths, size_t width) {
    tensor t = drawn(steps * batch * width);
    for (size_t i = 0; i < t.count; i++) {
        const size_t at = i / width;
        t.near[i] = at / batch < (size_t)lengths[at % batch] ? t.near[i] : (double)NAN;
    }
    send(&t);
    return t;
}

static void compare(const tensor *t, double scale) {
    void *image = gpu_fetch(t->far, t->count * ashlar_dtype_bytes(t->dtype));
    size_t wrong = 0;
    double worst = 0;
    for (size_t i = 0; i < t->count; i++) {
        const double got = get_element(image, t->dtype, i);
        const double difference = fabs(got - t->near[i]);
        const bool is_near = difference <= NEAR[t->dtype] * (scale + fabs(t->near[i]));
        wrong += is_near ? 0 : 1;
        worst = is_near ? worst : difference;
    }
    CHECK_ZU(wrong, 0);
    if (wrong > 0) {
        printf("# dtype %d: worst %g\n", (int)t->dtype, worst);
    }
}

static void compare_bits(const tensor *t) {
    void *image = gpu_fetch(t->far, t->count * ashlar_dtype_bytes(t->dtype));
    size_t wrong = 0;
    for (size_t i = 0; i < t->count; i++) {
        wrong += get_element(image, t->dtype, i) == t->near[i] ? 0 : 1;
    }
    CHECK_ZU(wrong, 0);
}

/* ---- batches ---- */

typedef struct grid {
    size_t steps, batch, classes, width;
    int32_t lengths[4]; /* 0 is allowed */
} grid;

static const grid GRIDS[] = {
    {1, 1, 1, 1, {1}},
    {4, 3, 19, 5, {2, 4, 1}},
    {5, 4, 7, 130, {5, 0, 3, 5}}, /* more columns than threads */
    {2, 2, 140, 3, {2, 1}},       /* more classes than threads */
    {2, 2, 931, 2, {2, 2}},       /* than a block has at once, and twice */
};
enum { GRID_COUNT = sizeof GRIDS / sizeof *GRIDS, MAX_POSITIONS = 5000 };

static int32_t tokens[MAX_POSITIONS];

/* On the device; the same in `tokens`. */
static int32_t *send_tokens(const grid *g, const int32_t *lengths) {
    for (size_t at = 0; at < g->steps * g->batch; at++) {
        const bool is_inside = at / g->batch < (size_t)lengths[at % g->batch];
        tokens[at] = is_inside ? (int32_t)(fabs(random_real()) * (double)g->classes) : -1;
    }
    return gpu_send(tokens, g->steps * g->batch * sizeof *tokens);
}

/* Run a case in every type on every grid. */
static void on_every_grid(void (*check)(const grid *g)) {
    for (int type = 0; type < ASHLAR_DTYPE_COUNT; type += CHECK_SHARE(1, 3)) {
        dtype = (ashlar_dtype)type;
        REQUIRE(ashlar_ops_create(gpu, dtype, &ops) == ASHLAR_OK);
        for (size_t i = 0; i < GRID_COUNT; i++) {
            check(&GRIDS[i]);
            gpu_give_all();
        }
        ashlar_ops_destroy(ops);
    }
}

#define CASE_OF_GRIDS(test, g)            \
    static void test##_on(const grid *g); \
    CASE(test) {                          \
        on_every_grid(test##_on);         \
    }                                     \
    static void test##_on(const grid *g)

/* ---- cases ---- */

/* Both ways to add: with `work` positions are linked, over many pieces in which tokens come again;
 * without it each of the rows looks at all positions, more than one chunk of them. */
static void check_order(size_t classes, size_t steps, size_t batch, bool has_work) {
    enum { WIDTH = 3 };
    const size_t positions = steps * batch;
    int32_t *lengths = host_take(batch * sizeof *lengths);
    int32_t *near_tokens = host_take(positions * sizeof *near_tokens);
    for (size_t i = 0; i < batch; i++) {
        lengths[i] = (int32_t)(steps - i);
    }
    for (size_t i = 0; i < positions; i++) { /* some often, some once */
        near_tokens[i] = (int32_t)(i % 5 == 0 ? classes - 1 : i * 7919 % classes);
    }
    dtype = ASHLAR_F32;
    REQUIRE(ashlar_ops_create(gpu, dtype, &ops) == ASHLAR_OK);
    tensor dout = drawn(positions * WIDTH), dtable = drawn(classes * WIDTH);
    float *dout32 = host_take(dout.count * sizeof(float));
    float *dtable32 = host_take(dtable.count * sizeof(float));
    for (size_t i = 0; i < dout.count; i++) {
        dout32[i] = (float)dout.near[i];
    }
    for (size_t i = 0; i < dtable.count; i++) {
        dtable32[i] = (float)dtable.near[i];
    }
    ashlar_embedding_args far = {
        .steps = steps, .batch = batch, .classes = classes, .width = WIDTH};
    far.lengths = gpu_send(lengths, batch * sizeof *lengths);
    far.tokens = gpu_send(near_tokens, positions * sizeof *near_tokens);
    far.dout = dout.far;
    far.dtable = dtable.far;
    ashlar_embedding_args near = far;
    near.lengths = lengths;
    near.tokens = near_tokens;
    near.dout = dout32;
    near.dtable = dtable32;
    const size_t bytes = (classes + positions) * sizeof(uint32_t);
    CHECK(!has_work || ashlar_ops_set_work(ops, gpu_take(bytes), bytes) == ASHLAR_OK);
    CHECK(ashlar_embedding_backward(ops, &far, gpu_stream) == ASHLAR_OK);
    ashlar__embedding_backward_f32(&near);
    for (size_t i = 0; i < dtable.count; i++) {
        dtable.near[i] = (double)dtable32[i];
    }
    compare_bits(&dtable);
    gpu_give_all();
    ashlar_ops_destroy(ops);
}

CASE(embedding_gradients_add_up_in_the_order_of_the_cpu) {
    check_order(2, 4500, 1, false);
    check_order(3, 1000, 5, false);
}

/* The CPU asserts that there is none. */
CASE(a_token_that_is_no_class_becomes_nan) {
    const int32_t length = 3, tokens_here[] = {1, 2, -1};
    dtype = ASHLAR_F32;
    REQUIRE(ashlar_ops_create(gpu, dtype, &ops) == ASHLAR_OK);
    tensor table = drawn(4), out = spoilt(6), dtable = drawn(4);
    const ashlar_embedding_args args = {.steps = 3,
                                        .batch = 1,
                                        .lengths = gpu_send(&length, sizeof length),
                                        .classes = 2,
                                        .width = 2,
                                        .tokens = gpu_send(tokens_here, sizeof tokens_here),
                                        .table = table.far,
                                        .out = out.far,
                                        .dout = table.far,
                                        .dtable = dtable.far};
    CHECK(ashlar_embedding_forward(ops, &args, gpu_stream) == ASHLAR_OK);
    float *got = gpu_fetch(out.far, 6 * sizeof *got);
    CHECK((double)got[0] == table.near[2] && (double)got[1] == table.near[3]);
    for (int i = 2; i < 6; i++) {
        CHECK(isnan(got[i]));
    }
    gpu_give_all();
    ashlar_ops_destroy(ops);
}

CASE_OF_GRIDS(linear_layers_are_those_of_the_cpu, g) {
    const size_t rows = g->steps * g->batch, in = g->width, out = g->classes;
    tensor x = drawn(rows * in), weight = drawn(out * in), bias = drawn(out);
    tensor y = spoilt(rows * out), bare = spoilt(rows * out), dy = drawn(rows * out);
    tensor dx = spoilt(rows * in), dweight = drawn(out * in), dbias = drawn(out);
    const ashlar_linear_args far = {.rows = rows,
                                    .in = in,
                                    .out = out,
                                    .x = x.far,
                                    .weight = weight.far,
                                    .bias = bias.far,
                                    .y = y.far,
                                    .dy = dy.far,
                                    .dx = dx.far,
                                    .dweight = dweight.far,
                                    .dbias = dbias.far};
    const ashlar_linear_args near = {.rows = rows,
                                     .in = in,
                                     .out = out,
                                     .x = x.near,
                                     .weight = weight.near,
                                     .bias = bias.near,
                                     .y = y.near,
                                     .dy = dy.near,
                                     .dx = dx.near,
                                     .dweight = dweight.near,
                                     .dbias = dbias.near};
    ashlar_linear_args far_bare = far, near_bare = near;
    far_bare.bias = near_bare.bias = NULL;
    far_bare.y = bare.far;
    near_bare.y = bare.near;
    far_bare.dx = far_bare.dweight = far_bare.dbias = NULL;
    CHECK(ashlar_linear_forward(ops, &far, gpu_stream) == ASHLAR_OK);
    CHECK(ashlar_linear_forward(ops, &far_bare, gpu_stream) == ASHLAR_OK);
    CHECK(ashlar_linear_backward(ops, &far, gpu_stream) == ASHLAR_OK);
    CHECK(ashlar_linear_backward(ops, &far_bare, gpu_stream) == ASHLAR_OK);
    ashlar__linear_forward_f64(&near);
    ashlar__linear_forward_f64(&near_bare);
    ashlar__linear_backward_f64(&near);
    compare(&y, 8);
    compare(&bare, 8);
    compare(&dx, 8);
    compare(&dweight, 8);
    compare(&dbias, 8);
}

/* Each third target is to be ignored. */
static int32_t *send_targets(const grid *g) {
    (void)send_tokens(g, g->lengths);
    for (size_t at = 0; at < g->steps * g->batch; at += 3) {
        tokens[at] = -100;
    }
    return gpu_send(tokens, g->steps * g->batch * sizeof *tokens);
}

static void compare_losses(const double *far, const double *want, size_t count) {
    double *got = gpu_fetch(far, count * sizeof *got);
    for (size_t at = 0; at < count; at++) {
        CHECK_NEAR(got[at], want[at], dtype == ASHLAR_F64 ? 1e-12 : 1e-5, 1e-5);
    }
}

/* `weight` and `scale` given or not, dlogits in its own place, in the logits' or not wanted; with
 * losses of positions, or not. */
static void check_loss_of(const grid *g, bool has_weight, bool has_scale, int place) {
    double losses[MAX_POSITIONS];
    const size_t positions = g->steps * g->batch;
    const double scale = 3, before = 2;
    double want = before;
    tensor logits = padded(g->steps, g->batch, g->lengths, g->classes);
    tensor dlogits = spoilt(logits.count);
    ashlar_cross_entropy_args far = {
        .steps = g->steps,
        .batch = g->batch,
        .lengths = gpu_send(g->lengths, g->batch * sizeof(int32_t)),
        .classes = g->classes,
        .logits = logits.far,
        .targets = send_targets(g),
        .weight = has_weight ? 0.25 : 0,
        .dlogits = place == 0   ? NULL
                   : place == 1 ? logits.far
                                : dlogits.far,
        .scale = has_scale ? gpu_send(&scale, sizeof scale) : NULL,
        .work = gpu_take(ashlar_ops_get_need(ops, positions).loss_work_bytes),
        .loss = gpu_send(&before, sizeof before),
        .losses = has_scale ? gpu_take(positions * sizeof(double)) : NULL};
    ashlar_cross_entropy_args near = far;
    near.lengths = g->lengths;
    near.logits = logits.near;
    near.targets = tokens;
    near.dlogits = place == 0 ? NULL : place == 1 ? logits.near : dlogits.near;
    near.scale = has_scale ? &scale : NULL;
    CHECK(ashlar_cross_entropy(ops, &far, gpu_stream) == ASHLAR_OK);
    near.loss = &want;
    near.losses = losses;
    ashlar__cross_entropy_f64(&near);
    if (far.losses != NULL) {
        compare_losses(far.losses, losses, positions);
    }
    double *got = gpu_fetch(far.loss, sizeof *got);
    CHECK_NEAR(*got, want, 0, dtype == ASHLAR_F64 ? 1e-13 : 1e-6);
    if (place != 0) {
        compare(place == 1 ? &logits : &dlogits, 0.5);
    }
}

CASE_OF_GRIDS(losses_are_those_of_the_cpu, g) {
    for (int i = 0; i < 6; i++) {
        check_loss_of(g, i % 2 == 0, i % 3 != 0, i / 2);
        gpu_give_all();
    }
}

/* `lengths` given or not, and doutputs in the outputs' place or not wanted. */
static void check_squares_of(const grid *g, bool has_lengths, bool has_gradient) {
    const size_t positions = g->steps * g->batch;
    const double scale = 3, before = 2;
    double want = before, losses[MAX_POSITIONS];
    tensor outputs = has_lengths ? padded(g->steps, g->batch, g->lengths, g->width)
                                 : drawn(positions * g->width);
    tensor targets = drawn(outputs.count);
    ashlar_squared_error_args far = {
        .steps = g->steps,
        .batch = g->batch,
        .lengths = gpu_send(g->lengths, g->batch * sizeof(int32_t)),
        .width = g->width,
        .outputs = outputs.far,
        .targets = targets.far,
        .weight = has_lengths ? 0 : 0.25,
        .doutputs = has_gradient ? outputs.far : NULL,
        .scale = gpu_send(&scale, sizeof scale),
        .work = gpu_take(ashlar_ops_get_need(ops, positions).loss_work_bytes),
        .loss = gpu_send(&before, sizeof before)};
    far.losses = has_gradient ? gpu_take(positions * sizeof(double)) : NULL;
    far.lengths = has_lengths ? far.lengths : NULL;
    ashlar_squared_error_args near = far;
    near.lengths = has_lengths ? g->lengths : NULL;
    near.outputs = outputs.near;
    near.targets = targets.near;
    near.doutputs = has_gradient ? outputs.near : NULL;
    near.scale = &scale;
    near.loss = &want;
    near.losses = losses;
    CHECK(ashlar_squared_error(ops, &far, gpu_stream) == ASHLAR_OK);
    ashlar__squared_error_f64(&near);
    double *got = gpu_fetch(far.loss, sizeof *got);
    CHECK_NEAR(*got, want, 0, dtype == ASHLAR_F64 ? 1e-13 : 1e-6);
    if (has_gradient) {
        compare(&outputs, 0.5);
        compare_losses(far.losses, losses, positions);
    }
}

CASE_OF_GRIDS(squared_errors_are_those_of_the_cpu, g) {
    for (int i = 0; i < 4; i++) {
        check_squares_of(g, i % 2 == 0, i / 2 == 0);
        gpu_give_all();
    }
}

/* Ties, NaN here and there, and a row of it. */
CASE_OF_GRIDS(labels_are_those_of_the_cpu, g) {
    const size_t rows = g->steps * g->batch;
    tensor logits = drawn(rows * g->classes);
    int32_t want[MAX_POSITIONS];
    for (size_t i = 0; i < logits.count; i++) {
        logits.near[i] = i % 3 == 0 ? (double)NAN : floor(3 * logits.near[i]);
        logits.near[i] = i / g->classes == 1 ? (double)NAN : logits.near[i];
    }
    send(&logits);
    const ashlar_argmax_args far = {.rows = rows,
                                    .classes = g->classes,
                                    .logits = logits.far,
                                    .labels = gpu_take(rows * sizeof(int32_t))};
    ashlar_argmax_args near = far;
    near.logits = logits.near;
    near.labels = want;
    CHECK(ashlar_argmax(ops, &far, gpu_stream) == ASHLAR_OK);
    ashlar__argmax_f64(&near);
    int32_t *got = gpu_fetch(far.labels, rows * sizeof *got);
    CHECK(memcmp(got, want, rows * sizeof *got) == 0);
}

RUN_CASES_ON_GPU()
