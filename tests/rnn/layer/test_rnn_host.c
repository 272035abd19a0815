/*
 * test_rnn_host.c - the RNN without a device: passes over plain host memory have run when their
 * calls return, with the bits that they have elsewhere; and rows without padding.
 */
#include "tests/rnn/layer/rnn_cpu_fixture.h"

typedef ashlar_status pass_call(const ashlar_rnn *, const ashlar_rnn_batch *,
                                const ashlar_rnn_buffers *, ashlar_stream);
static pass_call *const calls[] = {ashlar_rnn_forward, ashlar_rnn_backward_data,
                                   ashlar_rnn_backward_weights};

static ashlar_rnn_batch batch_of(const problem *p) {
    return (ashlar_rnn_batch){.steps = p->args.steps,
                              .batch = p->args.batch,
                              .lengths = p->args.lengths,
                              .dropout_seed = p->args.dropout_seed};
}

static void run_directly(const problem *p, bool training) {
    run_forward(p);
    if (training) {
        run_backward(p);
    }
}

/* Prepared weights change no bits where there are many rows. */
static void run_without_a_device(problem *p, bool is_packed, bool training) {
    ashlar_rnn *rnn = NULL;
    ashlar_rnn_batch batch = batch_of(p);
    batch.is_packed = is_packed;
    REQUIRE(ashlar_rnn_create(NULL, &p->layout.config, &rnn) == ASHLAR_OK);
    if (p->args.steps > 4 && p->args.batch > 3) {
        void *const prepared = scratch(p, ashlar_rnn_prepared_bytes(rnn));
        CHECK(ashlar_rnn_prepare(rnn, p->args.b.weights, prepared, NULL) == ASHLAR_OK);
        p->args.b.prepared = prepared;
    }
    for (size_t i = 0; i < (training ? 3 : 1); i++) {
        CHECK(calls[i](rnn, &batch, &p->args.b, NULL) == ASHLAR_OK);
    }
    ashlar_rnn_destroy(rnn);
}

static shape sorted(const shape *s) {
    shape out = *s;
    for (size_t i = 1; i < s->batch; i++) {
        for (size_t j = i; j > 0 && out.lengths[j] > out.lengths[j - 1]; j--) {
            const int32_t length = out.lengths[j];
            out.lengths[j] = out.lengths[j - 1];
            out.lengths[j - 1] = length;
        }
    }
    return out;
}

static size_t count_of(const problem *p) {
    size_t count = 0;
    for (size_t b = 0; b < p->args.batch; b++) {
        count += (size_t)p->args.lengths[b];
    }
    return count;
}

/* The rows of padded [T, B, width] without padding, in memory that has room for no more. */
static void *without_padding(problem *p, const void *padded, size_t width) {
    char *const rows = tensor(p, count_of(p) * width, 1);
    const size_t bytes = width * p->item;
    for (size_t row = 0, at = 0; row < p->args.steps * p->args.batch; row++) {
        if (row / p->args.batch < (size_t)p->args.lengths[row % p->args.batch]) {
            memcpy(rows + at++ * bytes, (const char *)padded + row * bytes, bytes);
        }
    }
    return rows;
}

static void check_equal(const problem *p, const void *a, const void *b, size_t count) {
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        wrong += !(get(a, p->item, i) == get(b, p->item, i)); /* and none is NaN */
    }
    CHECK_ZU(wrong, 0);
}

CASE(passes_without_a_device_have_run_when_their_calls_return) {
    for (size_t i = 0; i < 2 * KIND_COUNT; i++) {
        const kind k = kind_at(i / 2);
        const bool is_packed = i % 2 == 1, training = i % 5 != 0;
        const ashlar_dtype dtype = i % 3 == 0 ? ASHLAR_F64 : ASHLAR_F32;
        const shape given = SHAPES[i % SHAPE_COUNT], s = is_packed ? sorted(&given) : given;
        problem p, q;
        REQUIRE(open_problem(&p, &s, &k, dtype, training));
        REQUIRE(open_problem(&q, &s, &k, dtype, training));
        const size_t output = q.layout.output, count = is_packed ? count_of(&q) : s.steps * s.batch;
        run_directly(&p, training);
        if (is_packed) {
            q.args.b.x = without_padding(&q, q.args.b.x, s.input);
            q.args.b.dy = without_padding(&q, q.args.b.dy, output);
            q.args.b.y = without_padding(&q, q.args.b.y, output); /* NaN */
            q.args.b.dx = without_padding(&q, q.args.b.dx, s.input);
            p.args.b.y = without_padding(&p, p.args.b.y, output);
            p.args.b.dx = without_padding(&p, p.args.b.dx, s.input);
        }
        run_without_a_device(&q, is_packed, training);
        check_equal(&p, p.args.b.y, q.args.b.y, count * output);
        check_equal(&p, p.args.b.hy, q.args.b.hy, p.state_count);
        if (training) {
            check_equal(&p, p.args.b.dx, q.args.b.dx, count * s.input);
            check_equal(&p, p.args.b.dhx, q.args.b.dhx, p.state_count);
            check_equal(&p, p.args.b.dweights, q.args.b.dweights, p.layout.elements);
        }
        drop_problems();
    }
}

CASE(what_is_wrong_without_a_device_is_told_by_the_call) {
    problem p;
    ashlar_rnn *rnn = NULL;
    REQUIRE(open_problem(&p, &SHAPES[2], &PLAIN_LSTM, ASHLAR_F32, true));
    REQUIRE(ashlar_rnn_create(NULL, &p.layout.config, &rnn) == ASHLAR_OK);
    ashlar_rnn_batch batch = batch_of(&p);
    ashlar_rnn_buffers b = p.args.b;
    CHECK_FAILS(ashlar_rnn_backward_data(rnn, &batch, &b, NULL), ASHLAR_EINVAL,
                "that no forward has filled");
    CHECK(ashlar_rnn_forward(rnn, &batch, &b, NULL) == ASHLAR_OK);
    CHECK_FAILS(ashlar_rnn_backward_weights(rnn, &batch, &b, NULL), ASHLAR_EINVAL,
                "on which backward_data has not run");
    CHECK(ashlar_rnn_backward_data(rnn, &batch, &b, NULL) == ASHLAR_OK);
    CHECK_FAILS(ashlar_rnn_backward_data(rnn, &batch, &b, NULL), ASHLAR_EINVAL, "is spent");
    CHECK(ashlar_rnn_backward_weights(rnn, &batch, &b, NULL) == ASHLAR_OK);
    batch.is_packed = true; /* lengths 2, 5, 1 */
    CHECK_FAILS(ashlar_rnn_forward(rnn, &batch, &b, NULL), ASHLAR_EINVAL,
                "lengths[1] of packed rows is 5, longer than the one before it");
    batch.is_packed = false;
    b.x = NULL;
    CHECK_FAILS(ashlar_rnn_forward(rnn, &batch, &b, NULL), ASHLAR_EINVAL, "x is NULL");
    b.x = p.args.b.x;
    b.work = (char *)b.work + p.item;
    CHECK_FAILS(ashlar_rnn_forward(rnn, &batch, &b, NULL), ASHLAR_EINVAL,
                "must be aligned to 64 bytes");
    ashlar_rnn_destroy(rnn);
}

RUN_CASES()
