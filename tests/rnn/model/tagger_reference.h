/*
 * tagger_reference.h - the tagger's loss, word by word in plain loops, for tests: a second way from
 * the weights' names to the number, which shares no code with the first.
 */
#ifndef ASHLAR_TAGGER_REFERENCE_H
#define ASHLAR_TAGGER_REFERENCE_H

#include "tests/rnn/model/tagger_fixture.h"

enum { WIDTH_MAX = 64, STEPS_MAX = 32 };

static inline const double *weights(const char *prefix, const char *suffix, size_t layer,
                                    bool is_reverse) {
    char name[96];
    (void)snprintf(name, sizeof name, "%s.%s_l%zu%s", prefix, suffix, layer,
                   is_reverse ? "_reverse" : "");
    return tensor_named(ASHLAR_REGION_PARAMETERS, name, NULL);
}

static inline double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

static inline double product(const double *row, const double *x, size_t width) {
    double sum = 0;
    for (size_t i = 0; i < width; i++) {
        sum += row[i] * x[i];
    }
    return sum;
}

/* One step of one part, PyTorch's formulas: h and c, the LSTM's, become the next ones. */
static inline void reference_cell(const char *prefix, size_t layer, bool is_reverse,
                                  const double *x, size_t in, size_t hidden, double *h, double *c) {
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
static inline void reference_layer(const char *prefix, size_t layer, double x[][WIDTH_MAX],
                                   size_t steps, size_t in, size_t hidden, double y[][WIDTH_MAX],
                                   double *last) {
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
static inline void reference_word(const made_tags *made, size_t at, const char *prefix, double *x) {
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
static inline double reference_token(const double *y, size_t width, int32_t target,
                                     int32_t *label) {
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
static inline double reference_loss(const made_tags *made, int32_t *labels) {
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

#endif /* ASHLAR_TAGGER_REFERENCE_H */
