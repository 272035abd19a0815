/*
 * test_tagger.c - one step of the tagger: its loss against a reference in plain loops, and its
 * gradients against the slopes of its loss.
 */
#include "tests/rnn/model/tagger_fixture.h"

enum { WIDTH_MAX = 64, STEPS_MAX = 32 };

static const double *weights(const char *prefix, const char *suffix, size_t layer,
                             bool is_reverse) {
    char name[96];
    (void)snprintf(name, sizeof name, "%s.%s_l%zu%s", prefix, suffix, layer,
                   is_reverse ? "_reverse" : "");
    return tensor_named(ASHLAR_REGION_PARAMETERS, name, NULL);
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

static double product(const double *row, const double *x, size_t width) {
    double sum = 0;
    for (size_t i = 0; i < width; i++) {
        sum += row[i] * x[i];
    }
    return sum;
}

/* One step of one part, PyTorch's formulas: h and c, the LSTM's, become the next ones. */
static void reference_cell(const char *prefix, size_t layer, bool is_reverse, const double *x,
                           size_t in, size_t hidden, double *h, double *c) {
    const double *w = weights(prefix, "weight_ih", layer, is_reverse);
    const double *r = weights(prefix, "weight_hh", layer, is_reverse);
    const double *bw = weights(prefix, "bias_ih", layer, is_reverse);
    const double *br = weights(prefix, "bias_hh", layer, is_reverse);
    double next[WIDTH_MAX];
    for (size_t j = 0; j < hidden; j++) {
        double s[4], u[4];
        const size_t gates = tagger_config.cell == ASHLAR_RNN_LSTM  ? 4
                             : tagger_config.cell == ASHLAR_RNN_GRU ? 3
                                                                    : 1;
        for (size_t g = 0; g < gates; g++) {
            const size_t row = g * hidden + j;
            s[g] = product(w + row * in, x, in) + bw[row];
            u[g] = product(r + row * hidden, h, hidden) + br[row];
        }
        if (gates == 4) {
            c[j] = sigmoid(s[1] + u[1]) * c[j] + sigmoid(s[0] + u[0]) * tanh(s[2] + u[2]);
            next[j] = sigmoid(s[3] + u[3]) * tanh(c[j]);
        } else if (gates == 3) {
            const double z = sigmoid(s[1] + u[1]);
            next[j] = (1 - z) * tanh(s[2] + sigmoid(s[0] + u[0]) * u[2]) + z * h[j];
        } else {
            next[j] = tanh(s[0] + u[0]);
        }
    }
    memcpy(h, next, hidden * sizeof *h);
}

/* One layer over x [steps][in] in both directions, or one: its outputs, and its last states. */
static void reference_layer(const char *prefix, size_t layer, double x[][WIDTH_MAX], size_t steps,
                            size_t in, size_t hidden, double y[][WIDTH_MAX], double *last) {
    for (size_t d = 0; d < tagger_config.directions; d++) {
        double h[WIDTH_MAX] = {0}, c[WIDTH_MAX] = {0};
        for (size_t i = 0; i < steps; i++) {
            const size_t t = d == 0 ? i : steps - 1 - i;
            reference_cell(prefix, layer, d == 1, x[t], in, hidden, h, c);
            memcpy(y[t] + d * hidden, h, hidden * sizeof *h);
        }
        memcpy(last + d * hidden, h, hidden * sizeof *h);
    }
}

/* The vector of a word, and behind it the last states of its characters. */
static void reference_word(const made_tags *made, size_t at, const char *prefix, double *x) {
    const ashlar_tagger_config *c = &tagger_config;
    const ashlar_tagger_shape *shape = &made->batch.shape;
    const ashlar_tagger_arrays from = ashlar__tagger_batch_arrays(shape, made->batch.data);
    const double *vectors = tensor_named(ASHLAR_REGION_PARAMETERS, "char_embedding.weight", NULL);
    const double *words = tensor_named(ASHLAR_REGION_PARAMETERS, "word_embedding.weight", NULL);
    double letters[STEPS_MAX][WIDTH_MAX], unused[STEPS_MAX][WIDTH_MAX];
    const size_t count = (size_t)from.char_counts[at];
    for (size_t i = 0; i < count; i++) {
        const size_t letter = (size_t)from.characters[i * shape->steps * shape->batch + at];
        memcpy(letters[i], vectors + letter * c->character_embedding,
               c->character_embedding * sizeof(double));
    }
    memcpy(x, words + (size_t)from.words[at] * c->word_embedding,
           c->word_embedding * sizeof(double));
    reference_layer(prefix, 0, letters, count, c->character_embedding, c->character_hidden, unused,
                    x + c->word_embedding);
}

/* Of one token: minus the log-probability of its label; *label is fed in, and then the best. */
static double reference_token(const double *y, size_t width, int32_t target, int32_t *label) {
    const ashlar_tagger_config *c = &tagger_config;
    const double *w = tensor_named(ASHLAR_REGION_PARAMETERS, "linear.weight", NULL);
    const double *bias = tensor_named(ASHLAR_REGION_PARAMETERS, "linear.bias", NULL);
    const size_t in = width + c->label_embedding;
    double x[2 * WIDTH_MAX] = {0}, logits[WIDTH_MAX], sum = 0;
    memcpy(x, y, width * sizeof *x);
    if (c->label_embedding > 0 && *label >= 0) {
        const double *t = tensor_named(ASHLAR_REGION_PARAMETERS, "label_embedding.weight", NULL);
        memcpy(x + width, t + (size_t)*label * c->label_embedding, c->label_embedding * sizeof *x);
    }
    size_t best = 0;
    for (size_t k = 0; k < c->tags; k++) {
        logits[k] = product(w + k * in, x, in) + bias[k];
        sum += exp(logits[k]);
        best = logits[k] > logits[best] ? k : best;
    }
    *label = (int32_t)best;
    return log(sum) - logits[target];
}

/* The mean over all words; labels [T, B] past the lengths are not written. */
static double reference_loss(const made_tags *made, int32_t *labels) {
    const ashlar_tagger_config *c = &tagger_config;
    const ashlar_tagger_shape *shape = &made->batch.shape;
    const ashlar_tagger_arrays from = ashlar__tagger_batch_arrays(shape, made->batch.data);
    char spelling[16];
    (void)snprintf(spelling, sizeof spelling, "char_%s", ashlar_rnn_cell_name(c->cell));
    double sum = 0;
    for (size_t b = 0; b < shape->batch; b++) {
        double x[STEPS_MAX][WIDTH_MAX], y[STEPS_MAX][WIDTH_MAX], unused[WIDTH_MAX];
        const size_t steps = (size_t)from.lengths[b], outputs = c->directions * c->hidden;
        size_t in = c->word_embedding + c->directions * c->character_hidden;
        int32_t label = -1;
        for (size_t t = 0; t < steps; t++) {
            reference_word(made, t * shape->batch + b, spelling, x[t]);
        }
        for (size_t layer = 0; layer < c->layers; layer++) {
            reference_layer(ashlar_rnn_cell_name(c->cell), layer, x, steps, in, c->hidden, y,
                            unused);
            memcpy(x, y, sizeof x);
            in = outputs;
        }
        for (size_t t = 0; t < steps; t++) {
            const size_t at = t * shape->batch + b;
            sum += reference_token(y[t], outputs, from.targets[at], &label);
            labels[at] = label;
        }
    }
    return sum / (double)made->batch.tokens;
}

enum { LABELS_MAX = 256 };

/* ---- the loss ---- */

static void check_loss(ashlar_tagger_shape shape, const int32_t *lengths) {
    made_tags made;
    int32_t want[LABELS_MAX], got[LABELS_MAX];
    REQUIRE(open_tagger("memory=64MiB"));
    make_tags(&made, shape, lengths);
    const double reference = reference_loss(&made, want);
    CHECK_NEAR(run_tags(&made), reference, 0, 1e-12);
    CHECK_NEAR(predict_tags(&made, got), reference, 0, 1e-12);
    for (size_t at = 0; at < shape.steps * shape.batch; at++) {
        if (at / shape.batch < (size_t)lengths[at % shape.batch]) {
            CHECK(got[at] == want[at]);
        }
    }
    const ashlar_tagger_config as = tagger_config;
    close_tagger();
    tagger_config = as;
}

CASE(the_loss_is_that_of_the_reference) {
    check_loss(SHAPE, LENGTHS);
    check_loss((ashlar_tagger_shape){1, 1, 1}, (int32_t[]){1});
    check_loss((ashlar_tagger_shape){20, 2, 9}, (int32_t[]){20, 20});
    check_loss((ashlar_tagger_shape){9, 3, 2}, (int32_t[]){1, 1, 1}); /* none reaches T */
}

CASE(so_it_is_with_every_cell_and_direction_and_depth) {
    const ashlar_rnn_cell cells[] = {ASHLAR_RNN_LSTM, ASHLAR_RNN_GRU, ASHLAR_RNN_TANH};
    for (size_t i = 0; i < 12; i++) {
        tagger_config.cell = cells[i % 3];
        tagger_config.directions = 1 + i / 3 % 2;
        tagger_config.layers = 1 + i / 6;
        check_loss(SHAPE, LENGTHS);
    }
}

CASE(so_it_is_with_labels_fed_back) {
    tagger_config.label_embedding = 3;
    check_loss(SHAPE, LENGTHS);
    check_loss((ashlar_tagger_shape){1, 1, 1}, (int32_t[]){1});
    check_loss((ashlar_tagger_shape){20, 2, 3}, (int32_t[]){20, 7});
    check_loss((ashlar_tagger_shape){9, 3, 2}, (int32_t[]){9, 9, 9});
}

/* ---- the gradients ---- */

/* In every tensor, at a few places; the slopes of each are not all zero. */
static void check_slopes(void) {
    made_tags made;
    REQUIRE(open_tagger("memory=64MiB"));
    const ashlar_arena *arena = tagger->arena;
    make_tags(&made, SHAPE, LENGTHS);
    (void)run_tags(&made);
    const size_t bytes = ashlar_arena_region_bytes(arena, ASHLAR_REGION_GRADIENTS);
    double *gradients = malloc(bytes);
    memcpy(gradients, ashlar_arena_region(arena, ASHLAR_REGION_GRADIENTS), bytes);
    double *parameters = ashlar_arena_region(arena, ASHLAR_REGION_PARAMETERS);
    for (size_t tensor = 0; tensor < ashlar_arena_tensor_count(arena); tensor++) {
        ashlar_tensor_info info;
        double largest = 0;
        ashlar_arena_tensor(arena, tensor, &info);
        for (size_t i = 0; i < info.elements; i += 1 + info.elements / 23) {
            const size_t at = info.offset[ASHLAR_LAYOUT_STORAGE] / sizeof(double) + i;
            const double here = parameters[at], h = 1e-5;
            parameters[at] = here + h;
            const double above = run_tags(&made);
            parameters[at] = here - h;
            const double below = run_tags(&made);
            parameters[at] = here;
            CHECK_NEAR(gradients[at], (above - below) / (2 * h), 1e-10, 1e-6);
            largest = fmax(largest, fabs(gradients[at]));
        }
        CHECK(largest > 1e-6);
    }
    free(gradients);
    const ashlar_tagger_config as = tagger_config;
    close_tagger();
    tagger_config = as;
}

CASE(so_they_are_with_every_kind_of_stack) {
    for (int i = 0; i < ASHLAR_RNN_CELL_COUNT; i++) {
        tagger_config.cell = (ashlar_rnn_cell)i;
        tagger_config.directions = 1 + (size_t)i % 2;
        tagger_config.layers = 2;
        tagger_config.dropout = i % 2 == 0 ? 0.3 : 0;
        tagger_config.projection = tagger_config.cell == ASHLAR_RNN_LSTM ? 3 : 0;
        check_slopes();
    }
}

/* No label changes within the small steps of this seed, or the slopes would not agree. */
CASE(so_they_are_with_labels_fed_back) {
    tagger_config.label_embedding = 3;
    check_slopes();
}

CASE_WITH(both_are_added_to_what_is_there, open_tagger("memory=64MiB")) {
    made_tags made;
    make_tags(&made, SHAPE, LENGTHS);
    const double once = run_tags(&made);
    size_t count = 0;
    const double *gradient = tensor_named(ASHLAR_REGION_GRADIENTS, "linear.weight", &count);
    const double first = gradient[1];
    const ashlar_tagger_bytes sizes = sizes_of(SHAPE);
    const ashlar_tagger_batch batch = copied(&made);
    CHECK(ashlar__tagger_step(tagger, &batch, &sizes, 0, loss) == ASHLAR_OK);
    wait_for(streams[1]);
    CHECK_NEAR(*loss, 2 * once, 0, 1e-14);
    CHECK_NEAR(gradient[1], 2 * first, 0, 1e-12);
    CHECK(ashlar__tagger_step(tagger, &batch, &sizes, 0.5, loss) == ASHLAR_OK);
    wait_for(streams[1]);
    CHECK_NEAR(*loss, (2 + 0.5 * 15) * once, 0, 1e-12); /* of 15 words */
    CHECK_NEAR(gradient[1], (2 + 0.5 * 15) * first, 0, 1e-12);
}

/* ---- what changes nothing ---- */

/* Leftovers in every buffer, sizes beyond what is needed, work delayed: the same bits. */
static void check_order_of_execution(void) {
    static const char *const specs[] = {"memory=64MiB", "memory=64MiB,mode=adversarial,seed=1",
                                        "memory=64MiB,mode=adversarial,seed=2"};
    static char first[1 << 16];
    const ashlar_tagger_config as = tagger_config;
    double want = 0;
    made_tags made;
    for (size_t i = 0; i < 3; i++) {
        tagger_config = as;
        REQUIRE(open_tagger(specs[i]));
        make_tags(&made, SHAPE, LENGTHS);
        const size_t bytes = ashlar_arena_region_bytes(tagger->arena, ASHLAR_REGION_GRADIENTS);
        const void *gradients = ashlar_arena_region(tagger->arena, ASHLAR_REGION_GRADIENTS);
        REQUIRE(bytes <= sizeof first);
        const ashlar_tagger_bytes sizes = sizes_of((ashlar_tagger_shape){20, 4, 7});
        unsigned char *dirty = take((size_t)1 << 20, streams[1]);
        CHECK(ashlar_fill(device, dirty, 0xff, (size_t)1 << 20, streams[1]) == ASHLAR_OK);
        give(dirty);
        *loss = 0;
        const ashlar_tagger_batch batch = copied(&made);
        CHECK(ashlar__tagger_step(tagger, &batch, &sizes, 0, loss) == ASHLAR_OK);
        wait_for(streams[1]);
        if (i == 0) {
            want = *loss;
            memcpy(first, gradients, bytes);
        }
        CHECK(*loss == want && memcmp(first, gradients, bytes) == 0);
        CHECK(run_tags(&made) == want && memcmp(first, gradients, bytes) == 0);
        close_tagger();
    }
}

CASE(sizes_and_order_of_execution_do_not_change_a_bit) {
    check_order_of_execution();
    tagger_config.label_embedding = 3;
    check_order_of_execution();
}

CASE(a_prediction_drops_nothing_and_leaves_the_gradients_alone) {
    made_tags made;
    int32_t labels[LABELS_MAX];
    tagger_config.layers = 2;
    tagger_config.dropout = 0.5;
    REQUIRE(open_tagger("memory=64MiB,mode=adversarial,seed=5"));
    make_tags(&made, SHAPE, LENGTHS);
    tagger->dropout_seed = 1;
    const double dropped = run_tags(&made);
    const double *gradient = tensor_named(ASHLAR_REGION_GRADIENTS, "linear.weight", NULL);
    const double first = gradient[1];
    tagger->dropout_seed = 2;
    const double whole = predict_tags(&made, labels);
    CHECK_NEAR(whole, reference_loss(&made, labels), 0, 1e-12);
    CHECK(whole != dropped && gradient[1] == first);
    CHECK(run_tags(&made) != dropped);
    tagger->dropout_seed = 1;
    CHECK(run_tags(&made) == dropped);
}

CASE(single_precision_agrees_with_double) {
    made_tags made;
    for (size_t feeds = 0; feeds < 2; feeds++) {
        tagger_config.label_embedding = 3 * feeds;
        REQUIRE(open_tagger("memory=64MiB"));
        make_tags(&made, SHAPE, LENGTHS);
        const double want = run_tags(&made);
        close_tagger();
        tagger_config.label_embedding = 3 * feeds;
        tagger_config.dtype = ASHLAR_F32;
        REQUIRE(open_tagger("memory=64MiB"));
        CHECK_NEAR(run_tags(&made), want, 0, 1e-6);
        close_tagger();
    }
}

RUN_CASES_AFTER(usual_tagger(); check_each = usual_tagger)
