/*
 * test_gpu_ops.c - linear layers and the likeliest class on a CUDA device against the CPU's, in
 * every type. Exits with 77 where there is no GPU. It also runs on the fake driver, whose kernels
 * are the same source on the CPU.
 *
 * The CPU computes in double from the numbers that the device has.
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

typedef struct shape {
    size_t rows, in, out;
} shape;

static const shape SHAPES[] = {
    {1, 1, 1},    /* the least */
    {12, 5, 19},  /* a few */
    {20, 130, 7}, /* more columns than threads */
    {4, 3, 140},  /* more classes than threads */
    {4, 2, 931},  /* many more */
};
enum { SHAPE_COUNT = sizeof SHAPES / sizeof *SHAPES };

/* Run a case in every type on every shape. */
static void on_every_shape(void (*check)(const shape *s)) {
    for (int type = 0; type < ASHLAR_DTYPE_COUNT; type += CHECK_SHARE(1, 3)) {
        dtype = (ashlar_dtype)type;
        REQUIRE(ashlar_ops_create(gpu, dtype, &ops) == ASHLAR_OK);
        for (size_t i = 0; i < SHAPE_COUNT; i++) {
            check(&SHAPES[i]);
            gpu_give_all();
        }
        ashlar_ops_destroy(ops);
    }
}

#define CASE_OF_SHAPES(test, s)            \
    static void test##_on(const shape *s); \
    CASE(test) {                           \
        on_every_shape(test##_on);         \
    }                                      \
    static void test##_on(const shape *s)

CASE_OF_SHAPES(linear_layers_are_those_of_the_cpu, s) {
    const size_t rows = s->rows, in = s->in, out = s->out;
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

/* Ties, NaN here and there, and a row of it. */
CASE_OF_SHAPES(labels_are_those_of_the_cpu, s) {
    tensor logits = drawn(s->rows * s->out);
    int32_t want[20];
    for (size_t i = 0; i < logits.count; i++) {
        logits.near[i] = i % 3 == 0 ? (double)NAN : floor(3 * logits.near[i]);
        logits.near[i] = i / s->out == 1 ? (double)NAN : logits.near[i];
    }
    send(&logits);
    const ashlar_argmax_args far = {.rows = s->rows,
                                    .classes = s->out,
                                    .logits = logits.far,
                                    .labels = gpu_take(s->rows * sizeof(int32_t))};
    ashlar_argmax_args near = far;
    near.logits = logits.near;
    near.labels = want;
    CHECK(ashlar_argmax(ops, &far, gpu_stream) == ASHLAR_OK);
    ashlar__argmax_f64(&near);
    int32_t *got = gpu_fetch(far.labels, s->rows * sizeof *got);
    CHECK(memcmp(got, want, s->rows * sizeof *got) == 0);
}

RUN_CASES_ON_GPU()
