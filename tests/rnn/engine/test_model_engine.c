/* test_model_engine.c - what a model refuses, by name; weights that are tied, shared and frozen,
 * and by which names; an operation of the caller's; what draws differ; memory: failures, the dry
 * run, the warm-up; a step, a warm-up and a start by one call. */
#include "tests/rnn/engine/engine_fixture.h"

#include <unistd.h>

#include <ashlar/plan.h>

#include "tests/strict.h"

#define DEVICE "memory=64MiB,mode=adversarial"

enum { T = 4, B = 3, V = 5, W = 3 };

static const bool no_targets[INPUTS];

/* ---- an operation of the caller's: y[t] = w y[t - 1] + x[t], and a loss: the mean of y^2 / 2 ----
 */

static void *kept_at; /* in the last forward pass */

static size_t count_of(const ashlar_operand_data *t) {
    return t->extent.steps * t->extent.rows * t->width;
}

/* Kept: y[t - 1] for each t, and then the gradients of y[t] for the weights. */
static ashlar_status size_running(void *user, const ashlar_operation_call *c,
                                  ashlar_operation_sizes *out) {
    const size_t row = c->inputs[0].extent.rows * c->inputs[0].width * sizeof(double);
    (void)user;
    *out = (ashlar_operation_sizes){.kept_bytes = 2 * row * c->inputs[0].extent.steps,
                                    .work_bytes = {row, row, 0},
                                    .carried_bytes = row};
    return ASHLAR_OK;
}

static ashlar_status queue_running(void *user, const ashlar_operation_call *c,
                                   ashlar_stream stream) {
    const size_t n = count_of(&c->inputs[0]), width = c->inputs[0].width;
    const size_t row = n / c->inputs[0].extent.steps;
    const double *w = c->weights[0].value, *x = c->inputs[0].value, *dy = c->outputs[0].gradient;
    double *y = c->outputs[0].value, *dx = c->inputs[0].gradient, *state = c->work, *old = c->kept;
    const bool is_forward = c->phase == ASHLAR_PHASE_FORWARD;
    const void *first = is_forward ? c->before : c->after_gradient;
    (void)user;
    ASHLAR_TRY(ashlar_stream_synchronize(device, stream));
    for (size_t i = 0; i < row && state != NULL; i++) {
        state[i] = first != NULL ? ((const double *)first)[i] : 0;
    }
    for (size_t i = 0; i < n && is_forward; i++) {
        if (old != NULL) {
            old[i] = state[i % row];
        }
        y[i] = state[i % row] = w[i % width] * state[i % row] + x[i];
    }
    for (size_t i = n; c->phase == ASHLAR_PHASE_BACKWARD && i-- > 0;) {
        const double d = state[i % row] + (dy != NULL ? dy[i] : 0);
        old[n + i] = d;
        state[i % row] = w[i % width] * d;
        if (dx != NULL) {
            dx[i] = d;
        }
    }
    for (size_t i = 0; i < n && c->phase == ASHLAR_PHASE_BACKWARD_WEIGHTS; i++) {
        ((double *)c->weights[0].gradient)[i % width] += old[n + i] * old[i];
    }
    void *last = is_forward ? c->after : c->before_gradient;
    if (last != NULL && state != NULL) {
        memcpy(last, state, row * sizeof(double));
    }
    kept_at = is_forward ? c->kept : kept_at;
    return ASHLAR_OK;
}

static ashlar_status queue_half(void *user, const ashlar_operation_call *c, ashlar_stream stream) {
    const size_t n = count_of(&c->inputs[0]);
    const double *y = c->inputs[0].value, weight = c->weight > 0 ? c->weight : 1 / (double)n;
    double *dy = c->inputs[0].gradient;
    (void)user;
    ASHLAR_TRY(ashlar_stream_synchronize(device, stream));
    for (size_t i = 0; i < n; i++) {
        *c->loss += weight * y[i] * y[i] / 2;
        if (dy != NULL) {
            dy[i] = weight * y[i] * (c->scale != NULL ? *c->scale : 1);
        }
    }
    return ASHLAR_OK;
}

static const ashlar_operation running = {.name = "running",
                                         .sizes = size_running,
                                         .queue = queue_running,
                                         .has_weights_phase = true,
                                         .carries = true,
                                         .is_local = true},
                              half = {.name = "half",
                                      .queue = queue_half,
                                      .is_loss = true,
                                      .is_local = true};

static ashlar_tensor *add_running(ashlar_tensor *x) {
    const ashlar_operation_shape shape = {.input_count = 1,
                                          .output_count = 1,
                                          .weight_count = 1,
                                          .inputs = {x},
                                          .axes = {ASHLAR_AXIS_TIME},
                                          .widths = {W},
                                          .weight_names = {"running.weight"},
                                          .weight_rows = {1},
                                          .weight_widths = {W}};
    ashlar_tensor *out[ASHLAR_OPERATION_OUTPUTS];
    ashlar_model_operation(model, &running, &shape, out);
    return out[0];
}

static void add_half(ashlar_tensor *y) {
    const ashlar_operation_shape shape = {.input_count = 1, .inputs = {y}};
    ashlar_tensor *out[ASHLAR_OPERATION_OUTPUTS];
    ashlar_model_operation(model, &half, &shape, out);
}

/* ---- a model with all there is ---- */

static ashlar_rnn_config lstm = {.hidden = W, .layers = 2, .cell = ASHLAR_RNN_LSTM, .dropout = 0.5};

static void declare_all(bool has_loop) {
    static const double weights[V] = {1, 2, 0.5, 1, 3};
    const ashlar_loss_options options = {.class_weights = weights};
    ashlar_tensor *tokens = ashlar_model_input(model, "tokens", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *targets = ashlar_model_input(model, "targets", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *x = ashlar_model_embedding(model, "embedding", tokens, 2, W);
    x = add_running(ashlar_model_dropout(model, x, 0.5));
    x = ashlar_model_rnn(model, "lstm", x, &lstm, NULL).y;
    if (has_loop) {
        ashlar_model *body = ashlar_model_loop(model, ASHLAR_AXIS_TIME, false);
        ashlar_tensor *old = ashlar_loop_carried(body, NULL, W);
        ashlar_tensor *step = ashlar_loop_step(body, x);
        ashlar_tensor *next =
            ashlar_model_linear(body, "inner", ashlar_model_concatenate(body, old, step), W, true);
        ashlar_loop_carry(body, old, next);
        x = ashlar_loop_end(body, next);
    }
    ashlar_tensor *logits = ashlar_model_linear(model, "linear", x, V, true);
    ashlar_model_loss(model, ASHLAR_LOSS_CROSS_ENTROPY, logits, targets, &options);
    ashlar_model_output(model, logits);
}

/* ---- declarations ---- */

/* What an error says, and the mistake that it tells of. The last ones have the body of a loop. */
#define MISTAKES(X)                                                                                \
    X("input 0 of bad is NULL", ashlar_model_linear(m, "bad", NULL, 3, true))                      \
    X("input 0 of bad is another model's", ashlar_model_linear(m, "bad", foreign, 3, true))        \
    X("bad reads tokens, which has tokens", ashlar_model_linear(m, "bad", k, 3, true))             \
    X("bad: a width of 0", ashlar_model_linear(m, "bad", x, 0, true))                              \
    X("a layer without a name: ", ashlar_model_linear(m, NULL, x, 3, true))                        \
    X("weight linear.weight is declared before", ashlar_model_linear(m, "linear", x, W + 1, true)) \
    X("bad: 3 classes of width 3, of vectors", ashlar_model_embedding(m, "bad", x, 3, 3))          \
    X("bad: 0 classes", ashlar_model_embedding(m, "bad", k, 0, 3))                                 \
    X("bad reads tokens", ashlar_model_rnn(m, "bad", k, &lstm, NULL))                              \
    X("bad reads vectors of width 3", ashlar_model_rnn(m, "bad", x, &wide, NULL))                  \
    X("bad computes in F64; its config's dtype is BF16",                                           \
      ashlar_model_rnn(m, "bad", x, &(ashlar_rnn_config){.dtype = ASHLAR_BF16}, NULL))             \
    X("bad: ", ashlar_model_rnn(m, "bad", x, &none, NULL))                                         \
    X("bad: an LSTM needs both states, h and c", ashlar_model_rnn(m, "bad", x, &lstm, &states))    \
    X("bad: the layer is no LSTM", ashlar_model_rnn(m, "bad", x, &gru, &cells))                    \
    X("bad: rnn: input 3, hidden 0", ashlar_model_rnn(m, "bad", x, NULL, NULL))                    \
    X("bad: state plain has width 3 on axis 0", ashlar_model_rnn(m, "bad", x, &lstm, &cells))      \
    X("add: vectors has width 3 on axis 1, plain",                                                 \
      ashlar_model_element(m, ASHLAR_ELEMENT_ADD, x, p))                                           \
    X("is no kind of elements", ashlar_model_element(m, ASHLAR_ELEMENT_KIND_COUNT, x, p))          \
    X("tanh reads r, which has the states of layers",                                              \
      ashlar_model_element(m, ASHLAR_ELEMENT_TANH, ashlar_model_rnn(m, "r", x, &one, NULL).h,      \
                           NULL))                                                                  \
    X("tanh reads one tensor", ashlar_model_element(m, ASHLAR_ELEMENT_TANH, x, x))                 \
    X("a dropout of 1", ashlar_model_dropout(m, x, 1))                                             \
    X("concatenate: vectors is on axis 1, plain on axis 0", ashlar_model_concatenate(m, x, p))     \
    X("slice: columns 2 to 4 of vectors, which has 3", ashlar_model_slice(m, x, 2, 2))             \
    X("last layer: vectors is no state", ashlar_model_last_layer(m, x))                            \
    X("pool: plain is on no axis of time", ashlar_model_pool(m, ASHLAR_POOL_MEAN, p))              \
    X("argmax reads tokens", ashlar_model_argmax(m, k))                                            \
    X("loss 0 of linear, of width 3 on axis 1: the targets vectors",                               \
      ashlar_model_loss(m, ASHLAR_LOSS_CROSS_ENTROPY, y, x, NULL))                                 \
    X("loss of linear: smoothing 1",                                                               \
      ashlar_model_loss(m, ASHLAR_LOSS_CROSS_ENTROPY, y, k, &smooth))                              \
    X("loss of linear: the weight of class 1 is -1",                                               \
      ashlar_model_loss(m, ASHLAR_LOSS_CROSS_ENTROPY, y, k, &negative))                            \
    X("loss of linear: smoothing 0, delta 0, factor inf",                                          \
      ashlar_model_loss(m, ASHLAR_LOSS_CROSS_ENTROPY, y, k, &infinite))                            \
    X("loss of linear: weights of classes and smoothing are of cross-entropy alone",               \
      ashlar_model_loss(m, ASHLAR_LOSS_BINARY, y, x, &classes))                                    \
    X("the weights of positions, vectors",                                                         \
      ashlar_model_loss(m, ASHLAR_LOSS_SQUARED, y, x,                                              \
                        &(ashlar_loss_options){.position_weights = x}))                            \
    X("an input without a name", ashlar_model_input(m, NULL, 1, 1))                                \
    X("a tie of out.weight to a weight without a name", ashlar_model_tie(m, "out.weight", NULL))   \
    X("input bad: axis 5", ashlar_model_input(m, "bad", 5, 1))                                     \
    X("vectors is an input", ashlar_model_output(m, x))                                            \
    X("linear is an input, or in a loop, or an output already", ashlar_model_output(m, y),         \
      ashlar_model_output(m, y))                                                                   \
    X("there is no axis 5", ashlar_model_axis(m, 5))                                               \
    X("more than 8 axes", for (int n = 0; n < 8; n++) ashlar_model_axis(m, 1))                     \
    X("operation odd has no name or queue()", shape.inputs[0] = x,                                 \
      ashlar_model_operation(m, &nameless, &shape, out))                                           \
    X("operation an operation has no name", ashlar_model_operation(m, NULL, NULL, out))            \
    X("input 0 of running is NULL", ashlar_model_operation(m, &running, &shape, out))              \
    X("operation half has no name", shape.inputs[0] = x,                                           \
      ashlar_model_operation(m, &half, &shape, out))                                               \
    X("weight r is declared before", ashlar_model_rnn(m, "r", x, &one, NULL),                      \
      ashlar_model_rnn(m, "r", x, &other, NULL))                                                   \
    X("linear.weight is tied to other behind its layer",                                           \
      ashlar_model_tie(m, "linear.weight", "other"))                                               \
    X("next.weight is tied to other, which is not declared before",                                \
      ashlar_model_tie(m, "next.weight", "other"), ashlar_model_linear(m, "next", x, W, true))     \
    X("weight linear.weight is declared before, in another shape",                                 \
      ashlar_model_tie(m, "next.bias", "linear.weight"),                                           \
      ashlar_model_linear(m, "next", x, W, true))                                                  \
    X("lost.weight is tied to linear.weight, but no layer",                                        \
      ashlar_model_tie(m, "lost.weight", "linear.weight"))                                         \
    X("a loop over axis 0", ashlar_model_loop(m, ASHLAR_AXIS_NONE, false))                         \
    X("this is no loop's body", ashlar_loop_end(m, x))                                             \
    X("this is no loop's body", ashlar_loop_carry(m, x, x))                                        \
    X("a loop has no end", (void)0)                                                                \
    X("a loop carries a value whose next one is not given", ashlar_loop_end(body, s))              \
    X("plain is on axis 0, the loop goes over axis 1", ashlar_loop_step(body, p))                  \
    X("input 0 of a loop is NULL", ashlar_loop_step(body, NULL))                                   \
    X("input 0 of a loop is another model's", ashlar_loop_use(body, foreign))                      \
    X("begins with vectors, which is on axis 1", ashlar_loop_carried(body, x, 0))                  \
    X("a loop cannot carry", ashlar_loop_carry(body, s, s))                                        \
    X("a loop cannot carry", ashlar_loop_carry(body, c, s), ashlar_loop_carry(body, c, s))         \
    X("a loop cannot collect", for (int n = 0; n < 5; n++) ashlar_loop_collect(body, s, out))      \
    X("not inside another loop", ashlar_model_loop(body, ASHLAR_AXIS_TIME, false))                 \
    X("bad: the body of a loop has no inputs",                                                     \
      ashlar_model_input(body, "bad", ASHLAR_AXIS_NONE, 1))                                        \
    X("loss of loop: collect it", ashlar_model_loss(body, ASHLAR_LOSS_SQUARED, s, s, NULL))        \
    X("inner is an input, or in a loop",                                                           \
      ashlar_model_output(body, ashlar_model_linear(body, "inner", s, W, true)))                   \
    X("input 0 of bad is another model's", ashlar_model_linear(body, "bad", x, 3, true))           \
    X("a loop reads more than 8 tensors", for (int n = 0; n < 9; n++) ashlar_loop_use(body, p);    \
      ashlar_loop_carry(body, c, s), ashlar_loop_end(body, s))                                     \
    X("dropout is declared after the commit, or the end of its loop",                              \
      ashlar_loop_carry(body, c, s), ashlar_loop_end(body, s), ashlar_model_dropout(body, s, 0))

#define TRY(text, ...) \
    if (at++ == i) {   \
        __VA_ARGS__;   \
        return text;   \
    }

/* Make the i-th mistake; returns what the error says of it, NULL: there are no more. */
static const char *mistake(size_t i, ashlar_model *m, ashlar_tensor *foreign) {
    const double ones[W] = {1, -1, 1};
    const ashlar_loss_options smooth = {.smoothing = 1}, negative = {.class_weights = ones},
                              infinite = {.factor = INFINITY}, classes = {.smoothing = 0.1};
    const ashlar_rnn_config gru = {.hidden = W, .layers = 1, .cell = ASHLAR_RNN_GRU};
    const ashlar_rnn_config wide = {.input = W + 1, .hidden = 2, .layers = 1}, none = {0},
                            one = {.hidden = 2, .layers = 1, .bias = ASHLAR_RNN_BIAS_INPUT},
                            other = {.hidden = 2, .layers = 1, .bias = ASHLAR_RNN_BIAS_RECURRENT};
    size_t at = 0;
    const ashlar_operation nameless = {.name = "odd"};
    ashlar_operation_shape shape = {.input_count = 1, .output_count = 1};
    ashlar_tensor *k = ashlar_model_input(m, "tokens", ASHLAR_AXIS_TIME, 0), *out[4];
    ashlar_tensor *x = ashlar_model_input(m, "vectors", ASHLAR_AXIS_TIME, W);
    ashlar_tensor *p = ashlar_model_input(m, "plain", ASHLAR_AXIS_NONE, W);
    ashlar_tensor *y = ashlar_model_linear(m, "linear", x, W, true);
    const ashlar_rnn_states states = {.h = p}, cells = {.h = p, .c = p};
    ashlar_model *body = i < 50 ? NULL : ashlar_model_loop(m, ASHLAR_AXIS_TIME, false);
    ashlar_tensor *s = i < 51 ? NULL : ashlar_loop_step(body, x);
    ashlar_tensor *c = i < 51 ? NULL : ashlar_loop_carried(body, p, 0);
    MISTAKES(TRY)
    return NULL;
}

CASE(the_first_mistake_is_told_by_the_commit_in_one_line) {
    const char *text = "";
    for (size_t i = 0; text != NULL; i++) {
        ashlar_model *other = NULL;
        REQUIRE(open_model(DEVICE, 1));
        REQUIRE(ashlar_model_create(allocator, ASHLAR_F64, &other) == ASHLAR_OK);
        text = mistake(i, model, ashlar_model_input(other, "foreign", ASHLAR_AXIS_TIME, W));
        if (text != NULL) {
            if (model->status != ASHLAR_OK) { /* what comes later changes nothing */
                CHECK(ashlar_model_input(model, "later", ASHLAR_AXIS_TIME, 1) == NULL);
                CHECK(ashlar_model_dropout(model, NULL, 2) == NULL);
            }
            CHECK_FAILS(ashlar_model_commit(model, ASHLAR_REGIONS_ALL, streams[0]), ASHLAR_EINVAL,
                        text);
            CHECK(strchr(ashlar_error_detail(), '\n') == NULL);
        }
        ashlar_model_destroy(other);
        close_model();
    }
}

/* ---- weights ---- */

/* A chain of linear layers and a loss; returns the batch. */
static ashlar_model_batch chain(const char *const *names, size_t count) {
    ashlar_tensor *x = ashlar_model_input(model, "x", ASHLAR_AXIS_TIME, W);
    for (size_t i = 0; i < count; i++) {
        x = ashlar_model_linear(model, names[i], x, W, false);
        x = ashlar_model_dropout(model, x, 0.3);
    }
    add_half(x);
    CHECK(commit(3) == ASHLAR_OK);
    return draw_batch(T, B, false);
}

CASE(the_gradients_of_all_uses_of_a_weight_add_up) {
    for (int is_tied = 0; is_tied < 2; is_tied++) {
        static const char *const names[][3] = {{"a", "b", "a"}, {"a", "b", "c"}};
        REQUIRE(open_model(DEVICE, 1));
        if (is_tied != 0) {
            ashlar_model_tie(model, "c.weight", "a.weight");
        }
        const ashlar_model_batch b = chain(names[is_tied], 3);
        CHECK_ZU(ashlar_arena_get_info(ashlar_model_arena(model)).tensor_count, 2);
        check_gradients(&b, 18, no_targets);
        close_model();
    }
}

CASE_WITH(what_is_frozen_has_no_gradient_and_still_drops, open_model(DEVICE, 1)) {
    static const char *const names[] = {"a", "b", "c"};
    ashlar_model_need all, some;
    const ashlar_model_batch b = chain(names, 3);
    CHECK(ashlar_model_get_need(model, ASHLAR_WALK_TRAIN, &b, &all) == ASHLAR_OK);
    (void)run(ASHLAR_WALK_TRAIN, &b);
    expect();
    const double *const trained =
        ashlar_arena_view(ashlar_model_arena(model), ASHLAR_REGION_GRADIENTS, 2);
    CHECK(ashlar_model_freeze(model, "a", true) == ASHLAR_OK);
    CHECK(ashlar_model_freeze(model, "b", true) == ASHLAR_OK);
    CHECK(ashlar_model_get_need(model, ASHLAR_WALK_TRAIN, &b, &some) == ASHLAR_OK);
    CHECK_ZU(some.phases, all.phases - 4); /* both layers, and the dropouts behind them */
    (void)run(ASHLAR_WALK_TRAIN, &b);
    CHECK(*loss == expected_loss);
    for (size_t i = 0; i < region_count(); i++) {
        const double *const at = region(ASHLAR_REGION_GRADIENTS) + i;
        CHECK(*at == (at >= trained ? expected[i] : 0));
    }
    CHECK(ashlar_arena_set_options(ashlar_model_arena(model), 0, &(ashlar_tensor_options){0}) ==
          ASHLAR_OK);
    CHECK_FAILS(ashlar_model_run(model, ASHLAR_WALK_TRAIN, &b, streams[0]), ASHLAR_EINVAL,
                "a.weight is frozen, and has no gradients, but not by its options");
    CHECK(ashlar_model_freeze(model, "", false) == ASHLAR_OK);
    (void)run(ASHLAR_WALK_TRAIN, &b);
    check_same(0);
    CHECK_FAILS(ashlar_model_freeze(model, "d", true), ASHLAR_EINVAL, "\"d\"");
    CHECK_FAILS(ashlar_model_freeze(model, NULL, true), ASHLAR_EINVAL, "without a prefix");
}

/* One step of an optimizer that is made for it and decays weights changes so many tensors of a
 * table, of the stack "lstm" and of a linear layer "lstm2"; those that are frozen get no gradient.
 */
static void check_trained(const ashlar_model_batch *b, size_t table, size_t stack, size_t linear) {
    static const ashlar_optimizer_config adamw = {
        .kind = ASHLAR_OPTIMIZER_ADAMW, .learning_rate = 0.1, .weight_decay = 0.1};
    static const char *const prefixes[] = {"table.", "lstm.", "lstm2."};
    const ashlar_arena *const arena = ashlar_model_arena(model);
    double before[GRADIENTS];
    ashlar_optimizer *optimizer;
    REQUIRE(ashlar_optimizer_create(ashlar_model_arena(model), &adamw, streams[0], &optimizer) ==
            ASHLAR_OK);
    memcpy(before, region(ASHLAR_REGION_PARAMETERS), region_count() * sizeof *before);
    CHECK(ashlar_model_step(model, optimizer, b, 0.1, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    ashlar_optimizer_destroy(optimizer);
    size_t changed[3] = {0};
    for (size_t i = 0; i < ashlar_arena_get_info(arena).tensor_count; i++) {
        const double *const now = ashlar_arena_view(arena, ASHLAR_REGION_PARAMETERS, i);
        const double *const gradient = ashlar_arena_view(arena, ASHLAR_REGION_GRADIENTS, i);
        const size_t at = (size_t)(now - region(ASHLAR_REGION_PARAMETERS));
        ashlar_tensor_info info;
        ashlar_arena_tensor(arena, i, &info);
        for (size_t k = 0; k < 3; k++) {
            changed[k] += strncmp(info.name, prefixes[k], strlen(prefixes[k])) == 0 &&
                          memcmp(now, before + at, info.bytes) != 0;
        }
        for (size_t k = 0; k < info.elements && info.options.is_frozen; k++) {
            CHECK(gradient[k] == 0);
        }
    }
    CHECK(changed[0] == table && changed[1] == stack && changed[2] == linear);
}

CASE_WITH(what_is_frozen_is_neither_trained_nor_decayed, open_model(DEVICE, 1)) {
    ashlar_tensor *tokens = ashlar_model_input(model, "tokens", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *x = ashlar_model_embedding(model, "table", tokens, 2, W);
    x = ashlar_model_rnn(model, "lstm", x, &lstm, NULL).y;
    x = ashlar_model_linear(model, "lstm2", x, V, true);
    ashlar_model_loss(model, ASHLAR_LOSS_CROSS_ENTROPY, x, tokens, NULL);
    CHECK(ashlar_model_freeze(model, "lstm", true) == ASHLAR_OK); /* before the commit: both */
    REQUIRE(commit(1) == ASHLAR_OK);
    const ashlar_model_batch b = draw_batch(T, B, false);
    check_trained(&b, 1, 0, 0);
    CHECK(ashlar_model_freeze(model, "", false) == ASHLAR_OK);
    CHECK(ashlar_model_freeze(model, "table.", true) == ASHLAR_OK);
    check_trained(&b, 0, 8, 2);
    CHECK(ashlar_model_freeze(model, "lstm.", true) == ASHLAR_OK);
    check_trained(&b, 0, 0, 2);
    CHECK(ashlar_model_freeze(model, "", false) == ASHLAR_OK);
    CHECK(ashlar_model_freeze(model, "lstm2", true) == ASHLAR_OK);
    check_trained(&b, 1, 8, 0);
    CHECK(ashlar_model_freeze(model, "lstm2.bias", false) == ASHLAR_OK);
    check_trained(&b, 1, 8, 1);
    CHECK(ashlar_model_freeze(model, "", false) == ASHLAR_OK);
    CHECK_FAILS(ashlar_model_freeze(model, "lstm.weight_ih_l0", true), ASHLAR_EINVAL,
                "begins with \"lstm.weight_ih_l0\""); /* a part of a stack */
    check_trained(&b, 1, 8, 2);
}

static bool is_elementwise(size_t tensor) {
    ashlar_tensor_info info;
    ashlar_arena_tensor(ashlar_model_arena(model), tensor, &info);
    return info.options.is_elementwise;
}

CASE_WITH(muon_leaves_embeddings_to_adamw_until_told_otherwise, open_model(DEVICE, 1)) {
    ashlar_tensor *tokens = ashlar_model_input(model, "tokens", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *x = ashlar_model_embedding(model, "table", tokens, V, W);
    x = ashlar_model_linear(model, "a", x, W, false);
    x = ashlar_model_linear(model, "b", x, W, false);
    ashlar_model_tie(model, "other.weight", "b.weight"); /* a table of W classes */
    (void)ashlar_model_embedding(model, "other", tokens, W, W);
    x = ashlar_model_linear(model, "c", x, V, false);
    ashlar_model_loss(model, ASHLAR_LOSS_CROSS_ENTROPY, x, tokens, NULL);
    REQUIRE(commit(1) == ASHLAR_OK);
    CHECK(is_elementwise(0) && !is_elementwise(1) && is_elementwise(2) && !is_elementwise(3));
    CHECK(ashlar_arena_set_options(ashlar_model_arena(model), 0, &(ashlar_tensor_options){0}) ==
          ASHLAR_OK);
    CHECK(ashlar_model_freeze(model, "", true) == ASHLAR_OK);
    CHECK(!is_elementwise(0) && is_elementwise(2));
}

/* Values, and gradients, that are live together in one phase alone. */
CASE_WITH(a_chain_of_elements_lies_in_one_place, open_model(DEVICE, 1)) {
    static const char *const names[] = {"a"};
    static const char *const roles[] = {"value", "gradient"};
    ashlar_model_buffer buffers[20];
    size_t count;
    const ashlar_model_batch b = chain(names, 1);
    REQUIRE(ashlar_model_list_buffers(model, ASHLAR_WALK_TRAIN, &b, buffers, 20, &count) ==
            ASHLAR_OK);
    for (size_t k = 0; k < 2; k++) {
        size_t found = 0, first = 0;
        for (size_t i = 0; i < count; i++) {
            if (strcmp(buffers[i].role, roles[k]) == 0) {
                first = found++ == 0 ? buffers[i].offset : first;
                CHECK_ZU(buffers[i].offset, first);
            }
        }
        CHECK_ZU(found, 2);
    }
}

/* A loss of what does not lie on the axis of time is added once, however many chunks there are. */
CASE_WITH(a_loss_on_another_axis_counts_once_in_chunks, open_model(DEVICE, 1)) {
    ashlar_tensor *x = ashlar_model_input(model, "x", ASHLAR_AXIS_TIME, W);
    ashlar_tensor *target = ashlar_model_input(model, "target", ASHLAR_AXIS_TIME, W);
    ashlar_tensor *z = ashlar_model_input(model, "z", ASHLAR_AXIS_NONE, W);
    ashlar_tensor *goal = ashlar_model_input(model, "goal", ASHLAR_AXIS_NONE, W);
    ashlar_model_loss(model, ASHLAR_LOSS_SQUARED, ashlar_model_linear(model, "linear", x, W, true),
                      target, NULL);
    ashlar_model_loss(model, ASHLAR_LOSS_SQUARED, z, goal, NULL);
    REQUIRE(commit(3) == ASHLAR_OK);
    ashlar_model_batch b = draw_batch(T, B, false);
    b.weight = 0.1;
    const double whole = run(ASHLAR_WALK_TRAIN, &b);
    expect();
    for (b.chunk = 1; b.chunk < T; b.chunk++) {
        CHECK_NEAR(run(ASHLAR_WALK_TRAIN, &b), whole, 0, 1e-13);
        check_same(1e-13);
        CHECK_NEAR(run(ASHLAR_WALK_TEST, &b), whole, 0, 1e-13);
    }
}

/* ---- an operation of the caller's ---- */

static ashlar_model_batch open_running(void) {
    ashlar_tensor *x = ashlar_model_input(model, "x", ASHLAR_AXIS_TIME, W);
    x = ashlar_model_linear(model, "linear", x, W, true);
    add_half(add_running(x));
    CHECK(commit(3) == ASHLAR_OK);
    const ashlar_model_batch b = draw_batch(T, B, false);
    for (size_t i = 0; i < region_count(); i++) { /* a weight of 1 row is not drawn alone */
        region(ASHLAR_REGION_PARAMETERS)[i] = 0.3 + ashlar__random_uniform(&rng);
    }
    return b;
}

CASE_WITH(an_operation_of_the_callers_is_one_of_the_models, open_model(DEVICE, 1)) {
    ashlar_model_buffer buffers[40];
    void *block = NULL;
    size_t count;
    ashlar_model_batch b = open_running();
    b.weight = 0.1;
    check_gradients(&b, 15, no_targets);
    (void)run(ASHLAR_WALK_TRAIN, &b);
    expect();
    CHECK(ashlar_model_dry_run(model, ASHLAR_WALK_TRAIN, &b, streams[0], &block) == ASHLAR_OK);
    CHECK(ashlar_model_list_buffers(model, ASHLAR_WALK_TRAIN, &b, buffers, 40, &count) ==
          ASHLAR_OK);
    bool is_found = false;
    for (size_t i = 0; i < count && i < 40; i++) { /* the walk's block is that of the dry run */
        is_found |= strcmp(buffers[i].role, "kept for backward") == 0 &&
                    strcmp(buffers[i].operation, "running") == 0 &&
                    (char *)block + buffers[i].offset == (char *)kept_at;
    }
    CHECK(is_found);
    for (b.chunk = 1; b.chunk < T; b.chunk++) {
        (void)run(ASHLAR_WALK_TRAIN, &b);
        check_same(1e-13);
    }
    b.chunk = 1;
    b.weight = 0; /* each chunk would have a mean of its own */
    CHECK_FAILS(ashlar_model_run(model, ASHLAR_WALK_TRAIN, &b, streams[0]), ASHLAR_EINVAL,
                "chunks of 1 steps need a weight");
    b.weight = 0.1;
    ashlar_model_need need;
    REQUIRE(ashlar_model_get_need(model, ASHLAR_WALK_TRAIN, &b, &need) == ASHLAR_OK);
    char *const set = (char *)take(2 * need.carried_bytes, streams[0]);
    memset(set, 0, 2 * need.carried_bytes);
    b.before = set;
    b.after = set + need.carried_bytes - sizeof(double);
    CHECK_FAILS(ashlar_model_run(model, ASHLAR_WALK_TRAIN, &b, streams[0]), ASHLAR_EINVAL,
                "before and after overlap");
    b.after = set + need.carried_bytes;
    CHECK(ashlar_model_run(model, ASHLAR_WALK_TRAIN, &b, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    give((void *)set);
    b.before = b.after = NULL;
    const void *late[] = {(double *)drawn.inputs[0] + B * W};
    double *state = (void *)take(B * W * sizeof *state, streams[0]);
    b.chunk = 0;
    b.steps = 1;
    b.after = state;
    (void)run(ASHLAR_WALK_TEST, &b); /* from a first window to a second */
    b = (ashlar_model_batch){.batch = B,
                             .steps = T - 1,
                             .inputs = late,
                             .before = state,
                             .loss = loss,
                             .weight = b.weight};
    go(ASHLAR_WALK_TEST, &b);
    CHECK_NEAR(*loss, expected_loss, 1e-13, 1e-13);
    give((void *)state);
}

/* ---- losses and dropouts ---- */

/* The factor multiplies the loss, too; the scale its gradient alone. */
CASE_WITH(losses_have_their_factors_and_gradients_the_scale, open_model(DEVICE, 1)) {
    static const ashlar_loss_kind kinds[] = {ASHLAR_LOSS_CROSS_ENTROPY, ASHLAR_LOSS_HUBER};
    ashlar_tensor *x = ashlar_model_input(model, "x", ASHLAR_AXIS_TIME, W);
    x = ashlar_model_linear(model, "linear", x, W, true);
    for (int k = 0; k < 2; k++) {
        ashlar_tensor *z = ashlar_model_input(model, "z", ASHLAR_AXIS_TIME, k == 0 ? 0 : W);
        ashlar_model_loss(model, kinds[k], x, z, &(ashlar_loss_options){.factor = 0});
        ashlar_model_loss(model, kinds[k], x, z, &(ashlar_loss_options){.factor = 2});
        ashlar_model_loss(model, kinds[k], x, z, &(ashlar_loss_options){.factor = 5});
    }
    REQUIRE(commit(1) == ASHLAR_OK);
    ashlar_model_batch b = draw_batch(T, B, false);
    memset(region(ASHLAR_REGION_PARAMETERS), 0, region_count() * sizeof(double));
    double squares = 0;
    for (size_t i = 0; i < T * B * W; i++) {
        const double z = ((double *)drawn.inputs[2])[i];
        squares += z * z / 2 / (T * B * W);
    }
    CHECK_NEAR(run(ASHLAR_WALK_TRAIN, &b), 8 * (log(W) + squares), 1e-12, 1e-12);
    expect();
    double *scale = (void *)take(sizeof *scale, streams[0]);
    *scale = 4;
    b.scale = scale;
    CHECK(run(ASHLAR_WALK_TRAIN, &b) == expected_loss);
    for (size_t i = 0; i < region_count(); i++) {
        CHECK(region(ASHLAR_REGION_GRADIENTS)[i] == 4 * expected[i]);
    }
    give((void *)scale);
}

CASE_WITH(a_mask_zeroes_what_lies_past_the_lengths, open_model(DEVICE, 1)) {
    static const int32_t lengths[B] = {1, T, 2};
    ashlar_tensor *x = ashlar_model_input(model, "x", ASHLAR_AXIS_TIME, W);
    x = ashlar_model_element(model, ASHLAR_ELEMENT_MASK, x, NULL);
    ashlar_model_output(model, x);
    add_half(ashlar_model_linear(model, "linear", x, W, true));
    REQUIRE(commit(1) == ASHLAR_OK);
    ashlar_model_batch b = draw_batch(T, B, false);
    double *const out = drawn.gradients[0];
    b.lengths = lengths;
    b.outputs = drawn.gradients;
    go(ASHLAR_WALK_PREDICT, &b);
    for (size_t i = 0; i < T * B * W; i++) {
        const bool is_valid = i / W / B < (size_t)lengths[i / W % B];
        CHECK(out[i] == (is_valid ? ((double *)drawn.inputs[0])[i] : 0));
    }
}

/* Where ones go through dropouts at several places of a model, others are zeroed at each place and
 * step; none in a test. The places: two in the model, and two in loops; or, since a batch is cut
 * into chunks, in stacks with the same weights. */
static void check_places(bool in_chunks) {
    enum { PLACES = 4, WIDTH = 64 };
    static double values[PLACES][T][WIDTH];
    const ashlar_rnn_config stack = {.hidden = WIDTH, .layers = 2, .dropout = 0.5};
    void *outputs[PLACES];
    REQUIRE(open_model(DEVICE, 1));
    ashlar_tensor *x = ashlar_model_input(model, "x", ASHLAR_AXIS_TIME, WIDTH), *y;
    for (size_t i = 0; i < PLACES; i++) {
        if (i < 2) {
            y = ashlar_model_dropout(model, x, 0.5);
        } else if (in_chunks) {
            y = ashlar_model_rnn(model, "stack", x, &stack, NULL).y;
        } else {
            ashlar_model *body = ashlar_model_loop(model, ASHLAR_AXIS_TIME, false);
            y = ashlar_loop_end(body, ashlar_model_dropout(body, ashlar_loop_step(body, x), 0.5));
        }
        add_half(ashlar_model_linear(model, "linear", y, W, true));
        ashlar_model_output(model, y);
        outputs[i] = take(sizeof values[i], streams[0]);
    }
    REQUIRE(commit(1) == ASHLAR_OK);
    ashlar_model_batch b = draw_batch(T, 1, false);
    for (size_t i = 0; i < (size_t)T * WIDTH; i++) {
        ((double *)drawn.inputs[0])[i] = 1;
    }
    b.outputs = outputs;
    for (int walk = 0; walk < ASHLAR_WALK_COUNT; walk++) {
        const bool trains = walk == ASHLAR_WALK_TRAIN;
        b.chunk = in_chunks && walk != ASHLAR_WALK_PREDICT ? 1 : 0;
        b.weight = 0.5; /* chunks need one */
        go((ashlar_walk)walk, &b);
        for (size_t i = 0; i < PLACES * T; i++) {
            double *const now = values[i / T][i % T], *const last = values[2][i % T];
            memcpy(now, (double *)outputs[i / T] + i % T * WIDTH, sizeof values[0][0]);
            for (size_t k = 0; k < i && trains; k++) {
                CHECK(memcmp(now, values[k / T][k % T], sizeof values[0][0]) != 0);
            }
            for (size_t k = 0; k < WIDTH && !trains; k++) {
                CHECK(in_chunks && i / T >= 2 ? now[k] == last[k] : now[k] == 1);
            }
        }
    }
    for (size_t i = 0; i < PLACES; i++) {
        give(outputs[i]);
    }
    close_model();
}

CASE(each_dropout_draws_for_itself) {
    check_places(false);
    check_places(true);
}

/* A projection, and behind it a layer that has the table's weight and a bias of its own. */
CASE_WITH(a_bias_is_drawn_with_its_own_matrix_alone, open_model(DEVICE, 1)) {
    static const char *const biases[] = {"out.bias", "last.bias"};
    size_t tensor;
    ashlar_tensor *x = ashlar_model_input(model, "tokens", ASHLAR_AXIS_NONE, 0);
    x = ashlar_model_embedding(model, "table", x, V, W);
    x = ashlar_model_linear(model, "projection", x, W, false);
    ashlar_model_tie(model, "out.weight", "table.weight");
    x = ashlar_model_linear(model, "out", x, V, true);
    (void)ashlar_model_linear(model, "last", x, V, true);
    REQUIRE(ashlar_model_commit(model, ASHLAR_REGIONS_INFERENCE, streams[0]) == ASHLAR_OK);
    REQUIRE(ashlar_model_init(model, ASHLAR_INIT_PYTORCH, 1, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    for (size_t i = 0; i < 2; i++) {
        const ashlar_arena *arena = ashlar_model_arena(model);
        REQUIRE(ashlar_arena_find(arena, biases[i], &tensor) == ASHLAR_OK);
        const double *bias = ashlar_arena_view(arena, ASHLAR_REGION_PARAMETERS, tensor);
        for (size_t k = 0; k < V; k++) {
            CHECK((bias[k] != 0) == (i == 1)); /* that of a tied matrix stays 0 */
        }
    }
}

/* A sum over time that begins with an input: inputs, outputs and gradients may all be page-locked.
 * What a loop carries does not go from batch to batch. */
CASE_WITH(a_loop_reads_page_locked_memory, open_model(DEVICE, 1)) {
    enum { N = T * B * W, ROW = B * W };
    struct {
        double x[N], first[ROW], y[N], copy[N], dx[N], dfirst[ROW], loss;
    } * at;
    REQUIRE(ashlar_device_host_alloc(device, sizeof *at, (void **)&at) == ASHLAR_OK);
    ashlar_tensor *x = ashlar_model_input(model, "x", ASHLAR_AXIS_TIME, W), *copy;
    ashlar_tensor *first = ashlar_model_input(model, "first", ASHLAR_AXIS_NONE, W);
    ashlar_model *body = ashlar_model_loop(model, ASHLAR_AXIS_TIME, false);
    ashlar_tensor *step = ashlar_loop_step(body, x), *sum = ashlar_loop_carried(body, first, 0);
    ashlar_tensor *next = ashlar_model_element(body, ASHLAR_ELEMENT_ADD, sum, step);
    ashlar_loop_carry(body, sum, next);
    ashlar_loop_collect(body, step, &copy);
    ashlar_tensor *y = ashlar_loop_end(body, next);
    ashlar_model_output(model, y);
    ashlar_model_output(model, copy);
    add_half(ashlar_model_linear(model, "linear", y, W, true));
    REQUIRE(commit(1) == ASHLAR_OK);
    for (size_t i = 0; i < N; i++) {
        at->x[i] = (double)i;
        at->first[i % ROW] = 0.5;
    }
    ashlar_model_batch b = {.batch = B,
                            .steps = T,
                            .inputs = (const void *[]){at->x, at->first},
                            .outputs = (void *[]){at->y, at->copy},
                            .input_gradients = (void *[]){at->dx, at->dfirst},
                            .loss = &at->loss};
    for (int walk = 0; walk < ASHLAR_WALK_COUNT; walk++) {
        memset(at->y, 0, sizeof at->y);
        memset(at->copy, 0, sizeof at->copy);
        REQUIRE(ashlar_model_run(model, (ashlar_walk)walk, &b, streams[0]) == ASHLAR_OK);
        wait_for(streams[0]);
        for (size_t i = 0; i < N; i++) {
            CHECK(at->y[i] == at->x[i] + (i < ROW ? 0.5 : at->y[i - ROW]));
            CHECK(at->copy[i] == at->x[i]);
            CHECK(i >= ROW || at->dfirst[i] == at->dx[i]);
        }
    }
    b.after = at->y;
    CHECK_FAILS(ashlar_model_run(model, ASHLAR_WALK_TEST, &b, streams[0]), ASHLAR_EINVAL,
                "no layer carries states from batch to batch");
    ashlar_device_host_free(device, at);
}

/* The states that a ragged batch leaves are those of each sequence's own last step. */
CASE_WITH(chunks_leave_the_states_that_the_batch_leaves, open_model(DEVICE, 1)) {
    enum { LSTM, GRU, LAYERS };
    static const ashlar_rnn_config stacks[LAYERS] = {
        {.hidden = W, .layers = 2, .projection = 2},
        {.hidden = W, .layers = 2, .cell = ASHLAR_RNN_GRU}};
    static const int32_t lengths[B] = {1, T, 2};
    double *whole, *cut;
    ashlar_model_need need;
    ashlar_tensor *y = ashlar_model_input(model, "x", ASHLAR_AXIS_TIME, W);
    y = ashlar_model_rnn(model, "lstm", y, &stacks[LSTM], NULL).y;
    add_half(ashlar_model_rnn(model, "gru", y, &stacks[GRU], NULL).y);
    REQUIRE(commit(1) == ASHLAR_OK);
    ashlar_model_batch b = draw_batch(T, B, false);
    b.lengths = lengths;
    b.weight = 0.1;
    REQUIRE(ashlar_model_get_need(model, ASHLAR_WALK_TRAIN, &b, &need) == ASHLAR_OK);
    whole = (void *)take(need.carried_bytes, streams[0]);
    cut = (void *)take(need.carried_bytes, streams[0]);
    for (int walk = ASHLAR_WALK_TRAIN; walk <= ASHLAR_WALK_TEST; walk++) {
        memset(whole, 0, need.carried_bytes);
        b.chunk = 0;
        b.after = whole;
        go((ashlar_walk)walk, &b);
        for (b.chunk = 1; b.chunk < T; b.chunk++) {
            memset(cut, 0, need.carried_bytes);
            b.after = cut;
            go((ashlar_walk)walk, &b);
            for (size_t i = 0; i < need.carried_bytes / sizeof *cut; i++) {
                CHECK_NEAR(cut[i], whole[i], 1e-14, 1e-14);
            }
        }
    }
    give((void *)whole);
    give((void *)cut);
}

/* ---- what a walk refuses ---- */

static int32_t on_host[1 << 12];

/* The batch with one thing changed by `...` is refused so; the batch itself never is. */
#define REFUSED(walk, wanted, text, ...)                                                   \
    do {                                                                                   \
        ashlar_model_batch b = good;                                                       \
        __VA_ARGS__;                                                                       \
        CHECK_FAILS(ashlar_model_run(model, (walk), &b, streams[0]), (wanted), (text));    \
        CHECK(ashlar_model_run(model, ASHLAR_WALK_TRAIN, &good, streams[0]) == ASHLAR_OK); \
    } while (0)

#define INVALID(text, ...) REFUSED(ASHLAR_WALK_TRAIN, ASHLAR_EINVAL, text, __VA_ARGS__)
#define FOREIGN(name, ...) INVALID("ashlar_model_run: " name ", ", __VA_ARGS__)

CASE(a_batch_that_cannot_be_is_refused_by_name) {
    int32_t lengths[B] = {1, 2, T};
    const void *inputs[2] = {on_host};
    void *outputs[1] = {on_host}, *gradients[2] = {NULL, on_host};
    REQUIRE(open_model("memory=64MiB," STRICT_NOT_HERE, 1));
    declare_all(true);
    ashlar_model_batch good = {0};
    CHECK_FAILS(ashlar_model_run(model, ASHLAR_WALK_TEST, &good, streams[0]), ASHLAR_EINVAL,
                "not committed");
    CHECK_FAILS(ashlar_model_init(model, ASHLAR_INIT_ASHLAR, 1, streams[0]), ASHLAR_EINVAL,
                "not committed");
    CHECK_FAILS(ashlar_model_commit(model, 0, streams[0]), ASHLAR_EINVAL, "regions");
    CHECK_ZU(stats_now().live_blocks, 2); /* the loss, the weights of classes */
    REQUIRE(commit(1) == ASHLAR_OK);
    CHECK_ZU(stats_now().live_blocks, 2 + 4);
    CHECK_FAILS(ashlar_model_commit(model, ASHLAR_REGIONS_ALL, streams[0]), ASHLAR_EINVAL,
                "committed before");
    good = draw_batch(T, B, false);
    good.lengths = lengths;
    inputs[1] = drawn.inputs[1];
    INVALID("a batch of 0 sequences", b.batch = 0);
    INVALID("a batch of 0 steps on axis 1", b.steps = 0);
    INVALID("lengths[1] of axis 1 is 0; it must be 1 to 4", b.lengths = (int32_t[]){1, 0, 1});
    INVALID("lengths[2] of axis 1 is 5", b.lengths = (int32_t[]){1, 1, T + 1});
    INVALID("lengths", b.lengths = (const int32_t *)(void *)loss);
    INVALID("in chunks", b.chunk = 1);
    INVALID("the weight of a position is -1", b.weight = -1);
    INVALID("the weight of a position is nan", b.weight = NAN);
    INVALID("the weight of a position is inf", b.weight = INFINITY);
    FOREIGN("lengths_at", b.lengths_at = on_host);
    INVALID("lengths_at of axis 1 without lengths", b.lengths_at = b.lengths, b.lengths = NULL);
    FOREIGN("tokens", b.inputs = inputs);
    FOREIGN("linear", b.outputs = outputs);
    FOREIGN("targets", b.input_gradients = gradients);
    FOREIGN("loss", b.loss = (double *)(void *)on_host);
    FOREIGN("scale", b.scale = (double *)(void *)on_host);
    FOREIGN("weight_at", b.weight_at = (double *)(void *)on_host);
    FOREIGN("seed_at", b.seed_at = (uint64_t *)(void *)on_host);
    FOREIGN("before", b.before = on_host);
    FOREIGN("after", b.after = on_host);
    INVALID("tokens", b.inputs = NULL);
    INVALID("loss", b.loss = NULL);
    REFUSED(ASHLAR_WALK_PREDICT, ASHLAR_EINVAL, "nothing to predict", (void)0);
    REFUSED(ASHLAR_WALK_PREDICT, ASHLAR_EINVAL, "not made in chunks", b.chunk = 1);
    REFUSED(ASHLAR_WALK_COUNT, ASHLAR_EINVAL, "is no walk", (void)0);
    REFUSED(ASHLAR_WALK_TRAIN, ASHLAR_EOVERFLOW, "too large", b.batch = SIZE_MAX / 2);
    REFUSED(ASHLAR_WALK_TRAIN, ASHLAR_EOVERFLOW, "", b.batch = SIZE_MAX / 512);
    good.batch = 1 << 20;
    CHECK(ashlar_model_dry_run(model, ASHLAR_WALK_TRAIN, &good, streams[0], NULL) == ASHLAR_ENOMEM);
}

/* ---- memory ---- */

static ashlar_model_batch batch;

/* A whole life of a model. */
static ashlar_status live(void) {
    ashlar_model_batch b = batch;
    void *outputs[] = {drawn.gradients[2]};
    ashlar_model_destroy(model);
    model = NULL;
    ASHLAR_TRY(ashlar_model_create(allocator, ASHLAR_F64, &model));
    declare_all(true);
    ASHLAR_TRY(ashlar_model_commit(model, ASHLAR_REGIONS_ALL, streams[0]));
    ASHLAR_TRY(ashlar_model_init(model, ASHLAR_INIT_PYTORCH, 1, streams[0]));
    *loss = 0;
    ASHLAR_TRY(ashlar_model_run(model, ASHLAR_WALK_TRAIN, &b, streams[0]));
    b.outputs = outputs;
    ASHLAR_TRY(ashlar_model_run(model, ASHLAR_WALK_PREDICT, &b, streams[0]));
    return ashlar_stream_synchronize(device, streams[0]);
}

static bool open_live(void) {
    if (!open_model(DEVICE, 1)) {
        return false;
    }
    declare_all(true);
    (void)ashlar_model_input(model, "room for outputs", ASHLAR_AXIS_TIME, V);
    batch = draw_batch(T, B, true);
    const bool is_alive = live() == ASHLAR_OK;
    expect();
    return is_alive;
}

/* What a software device itself takes from the host is memory of its own. */
static bool is_short(ashlar_status status) {
    return status == ASHLAR_EHOSTMEM || status == ASHLAR_ENOMEM;
}

CASE_WITH(whatever_host_memory_is_short_nothing_is_left_behind, open_live()) {
    unsigned long failures = 0;
    bool is_over = false;
    for (unsigned long n = 1; !is_over; n++) {
        ashlar__host_fail_at(n);
        const ashlar_status status = live();
        is_over = is_still_armed(n);
        CHECK(status == ASHLAR_OK || is_short(status));
        failures += status != ASHLAR_OK;
        if (status != ASHLAR_OK) {
            wait_for(streams[0]);
            ashlar_model_destroy(model);
            model = NULL;
            CHECK_ZU(stats_now().live_blocks, 1 + 2 * 3);
        }
    }
    CHECK(failures > 100);
    check_same(0);
    is_over = false;
    for (unsigned long n = 1; !is_over; n++) { /* the first run of a model that lives on */
        CHECK(ashlar_model_freeze(model, "", false) == ASHLAR_OK);
        ashlar__host_fail_at(n);
        const ashlar_status status = ashlar_model_run(model, ASHLAR_WALK_TRAIN, &batch, streams[0]);
        is_over = is_still_armed(n);
        CHECK(status == ASHLAR_OK || (is_short(status) && !is_over));
        (void)run(ASHLAR_WALK_TRAIN, &batch);
        check_same(0);
    }
}

CASE_WITH(whatever_call_fails_nothing_is_left_behind, open_live()) {
    static const ashlar_driver_fn calls[] = {
        ASHLAR_DRIVER_FN_launch_host_func,   ASHLAR_DRIVER_FN_memcpy_htod_async,
        ASHLAR_DRIVER_FN_memcpy_dtod_async,  ASHLAR_DRIVER_FN_memset_d8_async,
        ASHLAR_DRIVER_FN_stream_synchronize, ASHLAR_DRIVER_FN_ctx_push_current,
        ASHLAR_DRIVER_FN_mem_create,         ASHLAR_DRIVER_FN_mem_map};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        uint64_t n = 0, made;
        do {
            CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
            const uint64_t before = atomic_load(&driver->calls[calls[i]]);
            ashlar_status status;
            DRIVER_FAILS_AT(calls[i], ++n, CU_UNKNOWN, status = live());
            made = atomic_load(&driver->calls[calls[i]]) - before;
            CHECK(status == (made < n ? ASHLAR_OK : ASHLAR_EDRIVER));
            wait_for(streams[0]);
            ashlar_model_destroy(model);
            model = NULL;
            CHECK_ZU(stats_now().live_blocks, 1 + 2 * 3);
        } while (made >= n);
        CHECK(live() == ASHLAR_OK);
        check_same(0);
    }
}

static ashlar_status dry_run(void *user, size_t length) {
    ashlar_model_batch b = batch;
    b.steps = length;
    b.lengths = user;
    ASHLAR_TRY(ashlar_model_dry_run(model, ASHLAR_WALK_TRAIN, &b, streams[0], NULL));
    return ashlar_model_dry_run(model, ASHLAR_WALK_TEST, &b, streams[0], NULL);
}

CASE_WITH(after_the_warm_up_no_length_calls_the_driver_for_memory, open_live()) {
    static const int32_t ones[B] = {1, 1, 1};
    const ashlar_warmup_options options = {
        .stream = streams[0], .max_length = T, .dry_run = dry_run, .user = (void *)(uintptr_t)ones};
    ashlar_warmup_report report;
    REQUIRE(ashlar_allocator_warmup(allocator, &options, &report) == ASHLAR_OK);
    CHECK(report.is_planned && report.is_steady);
    const uint64_t before = counts_now().memory;
    for (size_t i = 0; i < 20; i++) {
        ashlar_model_batch b = batch;
        b.steps = 1 + below(T);
        b.lengths = ones;
        CHECK(ashlar_step_begin(allocator, streams[0], ashlar_warmup_key(&options, b.steps)) ==
              ASHLAR_OK);
        CHECK(ashlar_model_run(model, ASHLAR_WALK_TRAIN, &b, streams[0]) == ASHLAR_OK);
        CHECK(ashlar_model_run(model, ASHLAR_WALK_TEST, &b, streams[0]) == ASHLAR_OK);
        CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
    }
    CHECK(counts_now().memory == before && stats_now().driver_calls_sealed == 0);
}

/* ---- one call for a step, one for the warm-up ---- */

static const ashlar_optimizer_config sgd = {ASHLAR_OPTIMIZER_SGD, .learning_rate = 0.1};

/* The weights after a step by its parts, and after one by ashlar_model_step(): the same bits. */
CASE_WITH(a_step_is_what_its_parts_are, open_live()) {
    const size_t bytes = region_count() * sizeof(double);
    ashlar_optimizer *optimizer;
    double first[GRADIENTS], parts[GRADIENTS];
    REQUIRE(ashlar_optimizer_create(ashlar_model_arena(model), &sgd, streams[0], &optimizer) ==
            ASHLAR_OK);
    memcpy(first, region(ASHLAR_REGION_PARAMETERS), bytes);
    (void)run(ASHLAR_WALK_TRAIN, &batch);
    CHECK(ashlar_optimizer_step(optimizer, 0.1, 1, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    expect();
    memcpy(parts, region(ASHLAR_REGION_PARAMETERS), bytes);
    CHECK(memcmp(parts, first, bytes) != 0);
    for (int i = 0; i < 2; i++) { /* whatever loss and gradients were before */
        memcpy(region(ASHLAR_REGION_PARAMETERS), first, bytes);
        memset(region(ASHLAR_REGION_GRADIENTS), 0x40, (size_t)i * bytes);
        *loss = 77;
        CHECK(ashlar_model_step(model, optimizer, &batch, 0.1, streams[0]) == ASHLAR_OK);
        wait_for(streams[0]);
        check_same(0);
        CHECK(memcmp(parts, region(ASHLAR_REGION_PARAMETERS), bytes) == 0);
    }
    ashlar_optimizer_destroy(optimizer);
}

CASE_WITH(a_step_refuses_what_it_cannot_do, open_live()) {
    ashlar_model_batch b = batch;
    ashlar_model *bare;
    ashlar_optimizer *optimizer;
    REQUIRE(ashlar_optimizer_create(ashlar_model_arena(model), &sgd, streams[0], &optimizer) ==
            ASHLAR_OK);
    b.loss = NULL;
    CHECK(ashlar_model_step(model, optimizer, &b, 0.1, streams[0]) == ASHLAR_EINVAL);
    CHECK(strstr(ashlar_error_detail(), "loss") != NULL);
    CHECK(ashlar_model_warmup(model, &b, streams[0], NULL) == ASHLAR_EINVAL);
    CHECK(strstr(ashlar_error_detail(), "neither a loss nor an output") != NULL);
    b = batch;
    b.batch = 0;
    CHECK(ashlar_model_warmup(model, &b, streams[0], NULL) == ASHLAR_EINVAL);
    CHECK(ashlar_model_step(model, optimizer, &b, 0.1, streams[0]) == ASHLAR_EINVAL);
    REQUIRE(ashlar_model_create(allocator, ASHLAR_F64, &bare) == ASHLAR_OK);
    CHECK(ashlar_model_step(bare, optimizer, &batch, 0.1, streams[0]) == ASHLAR_EINVAL);
    CHECK(strstr(ashlar_error_detail(), "not committed") != NULL);
    CHECK_FAILS(ashlar_model_step(model, NULL, &batch, 0.1, streams[0]), ASHLAR_EINVAL,
                "no optimizer");
    (void)ashlar_model_linear(bare, "own", ashlar_model_input(bare, "x", ASHLAR_AXIS_NONE, 1), 1,
                              false);
    REQUIRE(ashlar_model_commit(bare, ASHLAR_REGIONS_ALL, streams[0]) == ASHLAR_OK);
    CHECK_FAILS(ashlar_model_step(bare, optimizer, &batch, 0.1, streams[0]), ASHLAR_EINVAL,
                "of another arena");
    CHECK(ashlar_model_warmup(bare, &batch, streams[0], NULL) == ASHLAR_EINVAL);
    ashlar_model_destroy(bare);
    CHECK(ashlar_model_step(model, optimizer, &batch, 0.1, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    ashlar_optimizer_destroy(optimizer);
}

CASE_WITH(after_a_model_s_warm_up_walks_of_all_kinds_take_no_memory, open_live()) {
    static int32_t lengths[B];
    void *outputs[] = {drawn.gradients[2]};
    ashlar_model_batch b = batch;
    ashlar_optimizer *optimizer;
    ashlar_warmup_report report;
    REQUIRE(ashlar_optimizer_create(ashlar_model_arena(model), &sgd, streams[0], &optimizer) ==
            ASHLAR_OK);
    b.outputs = outputs;
    b.lengths = lengths;
    REQUIRE(ashlar_model_warmup(model, &b, streams[0], &report) == ASHLAR_OK);
    CHECK(report.is_planned && report.is_steady);
    const uint64_t before = counts_now().memory;
    for (size_t i = 0; i < 60; i++) {
        b.steps = i < T ? 1 + i : 1 + below(T);
        for (size_t k = 0; k < B; k++) {
            lengths[k] = (int32_t)(1 + below(b.steps));
        }
        const size_t kind = below(ASHLAR_WALK_COUNT + 1);
        CHECK((kind == ASHLAR_WALK_COUNT
                   ? ashlar_model_step(model, optimizer, &b, 0.1, streams[0])
                   : ashlar_model_run(model, (ashlar_walk)kind, &b, streams[0])) == ASHLAR_OK);
    }
    wait_for(streams[0]);
    CHECK(counts_now().memory == before && stats_now().driver_calls_sealed == 0);
    ashlar_optimizer_destroy(optimizer);
}

/* ---- a start ---- */

static char folder[32], path[48];

static void remove_file(void) {
    (void)unlink(path);
    CHECK(rmdir(folder) == 0);
}

static bool open_saved(void) {
    (void)snprintf(folder, sizeof folder, "/tmp/ashlar-start-XXXXXX");
    if (!open_live() || mkdtemp(folder) == NULL || !check_at_end(remove_file)) {
        return false;
    }
    (void)snprintf(path, sizeof path, "%s/weights", folder);
    return ashlar_checkpoint_save(ashlar_model_arena(model), path, 0, NULL, 0, streams[0]) ==
           ASHLAR_OK;
}

/* Declare the model anew, and start it. */
static ashlar_status start(const ashlar_model_start_options *options,
                           const ashlar_model_batch *largest, ashlar_optimizer **out) {
    ashlar_model_destroy(model);
    model = NULL;
    ASHLAR_TRY(ashlar_model_create(allocator, ASHLAR_F64, &model));
    declare_all(true);
    return ashlar_model_start(model, options, largest, streams[0], out);
}

/* The file has the weights that the seed 1 draws, and no other draws. */
CASE_WITH(a_start_is_what_its_parts_are, open_saved()) {
    static const struct {
        ashlar_init_rule rule;
        uint64_t seed;
        bool has_file, is_same;
    } rows[] = {{ASHLAR_INIT_PYTORCH, 1, false, true},
                {ASHLAR_INIT_PYTORCH, 2, false, false},
                {ASHLAR_INIT_ASHLAR, 1, false, false},
                {ASHLAR_INIT_ASHLAR, 2, true, true}};
    const size_t bytes = region_count() * sizeof(double);
    double first[GRADIENTS], parts[GRADIENTS];
    ashlar_optimizer *optimizer;
    memcpy(first, region(ASHLAR_REGION_PARAMETERS), bytes);
    REQUIRE(ashlar_optimizer_create(ashlar_model_arena(model), &sgd, streams[0], &optimizer) ==
            ASHLAR_OK);
    CHECK(ashlar_model_step(model, optimizer, &batch, 0.1, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    memcpy(parts, region(ASHLAR_REGION_PARAMETERS), bytes);
    ashlar_optimizer_destroy(optimizer);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const ashlar_model_start_options options = {.optimizer = sgd,
                                                    .rule = rows[i].rule,
                                                    .seed = rows[i].seed,
                                                    .file = rows[i].has_file ? path : NULL};
        REQUIRE(start(&options, &batch, &optimizer) == ASHLAR_OK);
        wait_for(streams[0]);
        CHECK((memcmp(first, region(ASHLAR_REGION_PARAMETERS), bytes) == 0) == rows[i].is_same);
        CHECK(region(ASHLAR_REGION_MOMENT1) == NULL); /* which this optimizer does not need */
        const uint64_t before = counts_now().memory;
        CHECK(ashlar_model_step(model, optimizer, &batch, 0.1, streams[0]) == ASHLAR_OK);
        wait_for(streams[0]);
        CHECK((memcmp(parts, region(ASHLAR_REGION_PARAMETERS), bytes) == 0) == rows[i].is_same);
        CHECK(counts_now().memory == before && stats_now().driver_calls_sealed == 0);
        ashlar_optimizer_destroy(optimizer);
    }
}

CASE_WITH(a_start_loads_as_its_options_say, open_saved()) {
    static const ashlar_checkpoint_pair renames[] = {{"", "old."}};
    const ashlar_load_options load = {.renames = renames, .rename_count = 1};
    ashlar_model_start_options options = {.optimizer = sgd, .file = path, .load = &load};
    ashlar_optimizer *optimizer = NULL;
    CHECK_FAILS(start(&options, &batch, &optimizer), ASHLAR_EFORMAT, "not of this model");
    CHECK(optimizer == NULL);
}

CASE_WITH(a_start_that_fails_for_want_of_host_memory_leaves_nothing_behind, open_saved()) {
    const ashlar_model_start_options options = {.optimizer = sgd, .file = path};
    unsigned long failures = 0;
    bool is_over = false;
    for (unsigned long n = 1; !is_over; n++) {
        ashlar_optimizer *optimizer = NULL;
        ashlar__host_fail_at(n);
        const ashlar_status status = start(&options, &batch, &optimizer);
        is_over = is_still_armed(n);
        CHECK(status == ASHLAR_OK || is_short(status));
        CHECK((optimizer != NULL) == (status == ASHLAR_OK));
        failures += status != ASHLAR_OK;
        wait_for(streams[0]);
        ashlar_optimizer_destroy(optimizer);
        ashlar_model_destroy(model);
        model = NULL;
        CHECK_ZU(stats_now().live_blocks, 1 + 2 * 3);
    }
    CHECK(failures > 50);
}

/* Dropout zeroes in a resumed training what it would have zeroed. */
CASE_WITH(a_training_that_goes_on_draws_the_same, open_saved()) {
    ashlar_model_start_options options = {.optimizer = sgd, .seed = 1};
    const ashlar_training_state state = {.step = 1};
    ashlar_training_state found;
    ashlar_optimizer *optimizer;
    ashlar_checkpoint *file;
    double losses[2];
    batch.seed = 0;
    REQUIRE(start(&options, &batch, &optimizer) == ASHLAR_OK);
    CHECK(ashlar_model_step(model, optimizer, &batch, 0.1, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_training_save(ashlar_model_arena(model), optimizer, path, &state, NULL, 0,
                               streams[0]) == ASHLAR_OK);
    for (size_t i = 0; i < 2; i++) {
        CHECK(ashlar_model_step(model, optimizer, &batch, 0.1, streams[0]) == ASHLAR_OK);
        wait_for(streams[0]);
        losses[i] = *batch.loss;
        ashlar_optimizer_destroy(optimizer);
        options.seed = 2;
        REQUIRE(start(&options, &batch, &optimizer) == ASHLAR_OK);
        REQUIRE(ashlar_checkpoint_open(path, &file) == ASHLAR_OK);
        CHECK(ashlar_training_load(ashlar_model_arena(model), optimizer, file, streams[0],
                                   &found) == ASHLAR_OK);
        ashlar_checkpoint_close(file);
    }
    CHECK(losses[0] == losses[1]);
    ashlar_optimizer_destroy(optimizer);
}

/* What is refused before the commit leaves the model as it was. */
CASE_WITH(a_start_refuses_what_it_cannot_do, open_saved()) {
    ashlar_model_start_options options = {.optimizer = sgd, .file = "/no/such/file"};
    ashlar_model_batch b = batch;
    ashlar_optimizer *optimizer = NULL;
    CHECK_FAILS(start(&options, &batch, &optimizer), ASHLAR_EIO, "/no/such/file");
    options = (ashlar_model_start_options){.optimizer.kind = ASHLAR_OPTIMIZER_COUNT};
    CHECK(ashlar_model_start(model, &options, &batch, streams[0], &optimizer) == ASHLAR_EINVAL);
    CHECK(ashlar_model_start(model, NULL, &batch, streams[0], &optimizer) == ASHLAR_OK);
    ashlar_optimizer_destroy(optimizer);
    optimizer = NULL;
    CHECK_FAILS(ashlar_model_start(model, NULL, &batch, streams[0], &optimizer), ASHLAR_EINVAL,
                "committed before");
    b.loss = NULL;
    CHECK_FAILS(start(NULL, &b, &optimizer), ASHLAR_EINVAL, "neither a loss nor an output");
    CHECK(optimizer == NULL);
}

RUN_CASES()
