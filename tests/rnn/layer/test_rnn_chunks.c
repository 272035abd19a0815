/* test_rnn_chunks.c - passes cut into chunks give the bits of one pass, and sums of weights'
 * gradients that differ by rounding only; what cannot be cut is refused. */
#include "tests/allocator/core/allocator_fixture.h"
#include "tests/rnn/product/set_fixture.h"
#include "tests/allocator/trace/numbers_fixture.h"

#include <math.h>

#include <ashlar/rnn.h>

#include "rnn/layer/backend.h"

enum { BATCH = 3, INPUT = 5, HIDDEN = 6 };

/* All of a training pass, in device memory, which the host reads once the pass has run. */
typedef struct pass {
    double *memory;
    ashlar_rnn_buffers b;
    double *y, *hy, *cy, *dx, *dhx, *dcx, *dweights;
    size_t count; /* of the outputs from y on */
} pass;

static ashlar_rnn *rnn;
static int32_t lengths[BATCH];

static void close_rnn(void) {
    check_forget(close_rnn);
    ashlar_rnn_destroy(rnn);
    tear_down();
}

static bool open_rnn(const ashlar_rnn_config *config) {
    return set_up("memory=1GiB") && ashlar_rnn_create(device, config, &rnn) == ASHLAR_OK &&
           check_at_end(close_rnn);
}

static ashlar_rnn_config config_of(ashlar_rnn_cell cell, size_t projection) {
    return (ashlar_rnn_config){.input = INPUT,
                               .hidden = HIDDEN,
                               .layers = 2,
                               .cell = cell,
                               .projection = projection,
                               .dtype = ASHLAR_F64};
}

/* Inputs are the same numbers each time; outputs begin as others. */
static pass open_pass(size_t steps, size_t batch) {
    const ashlar_rnn_layout *l = ashlar_rnn_layout_of(rnn);
    const size_t N = steps * batch, states = l->pseudo_layers * batch * l->config.hidden;
    const size_t x = N * l->config.input, y = N * l->output;
    const size_t inputs = x + 4 * states + y + l->elements;
    pass p = {.count = y + 4 * states + x + l->elements};
    size_t reserve, work, work_of_inference;
    CHECK(ashlar_rnn_sizes(rnn, steps, batch, false, &reserve, &work_of_inference) == ASHLAR_OK);
    CHECK(reserve == 0);
    CHECK(ashlar_rnn_sizes(rnn, steps, batch, true, &reserve, &work) == ASHLAR_OK);
    work = work > work_of_inference ? work : work_of_inference;
    const size_t bytes = (inputs + p.count) * sizeof(double);
    p.memory = (double *)(void *)take(bytes, streams[0]);
    memset(p.memory, 0, bytes);
    random_state = 5;
    for (size_t i = 0; i < inputs; i++) {
        p.memory[i] = random_real();
    }
    double *at = p.memory;
    p.b = (ashlar_rnn_buffers){
        .reserve = take(reserve, streams[0]), .work = take(work, streams[0]), .x = at};
    p.b.weights = at += x;
    p.b.hx = at += l->elements;
    p.b.cx = at += states;
    p.b.dhy = at += states;
    p.b.dcy = at += states;
    p.b.dy = at += states;
    p.b.y = p.y = at += y;
    p.b.hy = p.hy = at += y;
    p.b.cy = p.cy = at += states;
    p.b.dhx = p.dhx = at += states;
    p.b.dcx = p.dcx = at += states;
    p.b.dx = p.dx = at += states;
    p.b.dweights = p.dweights = at + x;
    return p;
}

static void close_pass(pass *p) {
    give(p->b.reserve);
    give(p->b.work);
    give(p->memory);
}

static void train(const pass *p, size_t steps, size_t batch) {
    const ashlar_rnn_batch of = {.steps = steps, .batch = batch, .lengths = lengths};
    CHECK(ashlar_rnn_forward(rnn, &of, &p->b, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_rnn_backward_data(rnn, &of, &p->b, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_rnn_backward_weights(rnn, &of, &p->b, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
}

/* Train over `steps` in one pass, and in chunks of `most`. */
static void compare(size_t steps, size_t batch, size_t most) {
    /* Passes of very few steps multiply by weights that are not packed, and round otherwise. */
    const double error = most < 4 ? 1e-14 : 0;
    const size_t elements = ashlar_rnn_layout_of(rnn)->elements;
    rnn->most_steps = steps;
    pass whole = open_pass(steps, batch);
    train(&whole, steps, batch);
    rnn->most_steps = most;
    pass cut = open_pass(steps, batch);
    train(&cut, steps, batch);
    for (size_t i = 0; i < (size_t)(whole.dweights - whole.y); i++) {
        CHECK_NEAR(cut.y[i], whole.y[i], error, 0);
    }
    double worst = 0, largest = 0;
    for (size_t i = 0; i < elements; i++) {
        worst = fmax(worst, fabs(whole.dweights[i] - cut.dweights[i]));
        largest = fmax(largest, fabs(whole.dweights[i]));
    }
    CHECK(worst <= 1e-12 * largest && largest > 0);

    memset(cut.y, 0, (cut.count - elements) * sizeof(double)); /* inference */
    give(cut.b.reserve);
    cut.b.reserve = NULL;
    const ashlar_rnn_batch of = {.steps = steps, .batch = batch, .lengths = lengths};
    CHECK(ashlar_rnn_forward(rnn, &of, &cut.b, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    for (size_t i = 0; i < (size_t)(whole.dhx - whole.y); i++) {
        CHECK_NEAR(cut.y[i], whole.y[i], error, 0);
    }
    close_pass(&whole);
    close_pass(&cut);
}

CASE(chunks_of_any_size_give_the_results_of_one_pass) {
    for (int cell = 0; cell < ASHLAR_RNN_CELL_COUNT; cell++) {
        const ashlar_rnn_config config =
            config_of((ashlar_rnn_cell)cell, cell == ASHLAR_RNN_LSTM ? 4 : 0);
        REQUIRE(open_rnn(&config));
        for (size_t most = 2; most < 20; most++) {
            const int count = (int)(19 / most + 1), each = 19 / count + 1;
            const int before = (count - 1) * each; /* the last chunk */
            lengths[0] = before + (21 - before) / 2;
            lengths[1] = 20;
            lengths[2] = before + 1;
            compare(20, BATCH, most);
        }
        close_rnn();
    }
}

CASE(a_training_over_100000_steps_is_cut_where_cudnn_ends) {
    const ashlar_rnn_config config = {.input = 2, .hidden = 3, .layers = 1, .dtype = ASHLAR_F64};
    REQUIRE(open_rnn(&config));
    lengths[0] = 100000;
    CHECK_ZU(rnn->most_steps, 65535);
    compare(100000, 1, rnn->most_steps);
}

CASE(what_cannot_be_cut_is_refused_with_a_line) {
    ashlar_rnn_config config = config_of(ASHLAR_RNN_GRU, 0);
    size_t reserve = 7, work = 7;
    config.directions = 2;
    REQUIRE(open_rnn(&config));
    CHECK_FAILS(ashlar_rnn_sizes(rnn, 65536, 1, true, &reserve, &work), ASHLAR_ENOTSUP,
                "one direction");
    CHECK(reserve == 7 && work == 7);
    CHECK(ashlar_rnn_sizes(rnn, 65535, 1, true, &reserve, &work) == ASHLAR_OK);
    close_rnn();

    config.directions = 1;
    REQUIRE(open_rnn(&config));
    CHECK_FAILS(ashlar_rnn_sizes(rnn, SIZE_MAX / 2, 1, true, &reserve, &work), ASHLAR_EOVERFLOW,
                "too large");
    CHECK_FAILS(ashlar_rnn_sizes(rnn, 70000, SIZE_MAX / 2, true, &reserve, &work), ASHLAR_EOVERFLOW,
                "too large");
    rnn->most_steps = 4;
    pass p = open_pass(10, 2);
    const ashlar_rnn_batch batch = {.steps = 10, .batch = 2, .lengths = lengths};
    lengths[0] = 10;
    lengths[1] = 8; /* ends with the last chunk but one */
    CHECK_FAILS(ashlar_rnn_forward(rnn, &batch, &p.b, streams[0]), ASHLAR_ENOTSUP,
                "lengths[1] is 8");
    lengths[1] = 9;
    HOST_FAILS_AT(1, CHECK(ashlar_rnn_forward(rnn, &batch, &p.b, streams[0]) == ASHLAR_EHOSTMEM));
    CHECK(ashlar_rnn_forward(rnn, &batch, &p.b, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    close_pass(&p);
}

CASE(what_no_persistent_algorithm_takes_is_refused_on_the_cpu_too) {
    ashlar_rnn_config config = {
        .input = 2, .hidden = 3, .layers = 1, .algorithm = ASHLAR_RNN_PERSIST_STATIC};
    const int32_t ragged[] = {2, 1};
    const ashlar_rnn_batch batch = {.steps = 2, .batch = 2, .lengths = ragged};
    REQUIRE(open_rnn(&config));
    pass p = open_pass(2, 2);
    CHECK_FAILS(ashlar_rnn_forward(rnn, &batch, &p.b, streams[0]), ASHLAR_ENOTSUP, "full length");
    close_pass(&p);
    ashlar_rnn *other = NULL;
    config.bias = ASHLAR_RNN_BIAS_NONE;
    CHECK_FAILS(ashlar_rnn_create(device, &config, &other), ASHLAR_ENOTSUP, "persistent");
    config.bias = ASHLAR_RNN_BIAS_DOUBLE;
    config.dtype = ASHLAR_F64;
    CHECK_FAILS(ashlar_rnn_create(device, &config, &other), ASHLAR_ENOTSUP, "persistent");
    CHECK(other == NULL);
}

RUN_CASES_OF_SET()
