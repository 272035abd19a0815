/* engine_fixture.h - a model in F64 on a software device, batches of drawn values for it, its walks,
 * and what they compute against finite differences or another walk. */
#ifndef ASHLAR_ENGINE_FIXTURE_H
#define ASHLAR_ENGINE_FIXTURE_H

#include "tests/allocator/core/allocator_fixture.h"

#include "allocator/base/random.h"
#include "rnn/engine/engine.h"

enum { T_MOST = 48, B_MOST = 40, INPUTS = 20, GRADIENTS = 1 << 15, WORDS = 4 /* at most */ };

static ashlar_model *model;
static ashlar_random rng;
static double *loss;
static double expected[GRADIENTS], expected_loss; /* of a walk that others are compared with */

/* A batch. Every input is [S, B, items], as S = 1, T or C * T, or the layers of states. */
static struct {
    size_t classes[INPUTS]; /* of tokens; 0 stands for 2 */
    size_t layers[INPUTS];  /* of states [layers, B, width / layers]; 0: an input is none */
    void *inputs[INPUTS], *gradients[INPUTS];
    int32_t lengths[B_MOST], nested_lengths[T_MOST * B_MOST];
    size_t words; /* of the axis within that of time; 0: there is none */
    ashlar_axis nested;
} drawn;

static inline size_t below(size_t bound) {
    return (size_t)ashlar__random_below(&rng, bound);
}

static inline void close_model(void) {
    check_forget(close_model);
    wait_for(streams[0]);
    ashlar_model_destroy(model);
    model = NULL;
    for (size_t i = 0; i < INPUTS; i++) {
        give(drawn.inputs[i]);
        give(drawn.gradients[i]);
    }
    give(loss);
    tear_down();
}

static inline bool open_model(const char *device_line, uint64_t seed) {
    ashlar__random_init(&rng, seed);
    memset(&drawn, 0, sizeof drawn);
    return set_up_cached(device_line, 8 * MIB) &&
           ashlar_model_create(allocator, ASHLAR_F64, &model) == ASHLAR_OK &&
           (loss = (void *)take(sizeof *loss, streams[0]), check_at_end(close_model));
}

/* Commit with all regions, and draw the weights. */
static inline ashlar_status commit(uint64_t seed) {
    ashlar_status status = ashlar_model_commit(model, ASHLAR_REGIONS_ALL, streams[0]);
    if (status == ASHLAR_OK) {
        status = ashlar_model_init(model, ASHLAR_INIT_PYTORCH, seed, streams[0]);
    }
    wait_for(streams[0]);
    return status;
}

/* Two stacks of layers on tokens, with something between them. */
static inline ashlar_tensor *declare_stacks(ashlar_tensor *tokens, size_t classes, size_t width,
                                            const ashlar_rnn_config *config) {
    ashlar_tensor *x = ashlar_model_embedding(model, "embedding", tokens, classes, width);
    x = ashlar_model_rnn(model, "first", x, config, NULL).y;
    x = ashlar_model_element(model, ASHLAR_ELEMENT_TANH, x, NULL);
    return ashlar_model_rnn(model, "second", x, config, NULL).y;
}

/* ---- a batch ---- */

static inline size_t outer_of(ashlar_axis axis, size_t T) {
    return axis == ASHLAR_AXIS_NONE ? 1 : axis == ASHLAR_AXIS_TIME ? T : drawn.words * T;
}

static inline size_t steps_of(size_t i, size_t T) {
    return outer_of(model->inputs[i].axis, T) * (drawn.layers[i] > 0 ? drawn.layers[i] : 1);
}

static inline size_t item_of(size_t i) {
    const size_t width = model->inputs[i].width, layers = drawn.layers[i];
    return width == 0 ? sizeof(int32_t) : width / (layers > 0 ? layers : 1) * sizeof(double);
}

static inline void draw_values(size_t T, size_t B) {
    for (size_t i = 0; i < model->input_count; i++) {
        const size_t bytes = steps_of(i, T) * B * item_of(i);
        const bool has_tokens = model->inputs[i].width == 0;
        for (size_t k = 0; k < bytes / (has_tokens ? sizeof(int32_t) : sizeof(double)); k++) {
            if (has_tokens) {
                ((int32_t *)drawn.inputs[i])[k] =
                    (int32_t)below(drawn.classes[i] > 0 ? drawn.classes[i] : 2);
            } else {
                ((double *)drawn.inputs[i])[k] = ashlar__random_uniform(&rng);
            }
        }
    }
    for (size_t b = 0; b < B; b++) {
        drawn.lengths[b] = (int32_t)(1 + below(T));
    }
    for (size_t w = 0; w < T * B && drawn.words > 0; w++) {
        drawn.nested_lengths[w] = (int32_t)(1 + below(drawn.words));
    }
}

static inline ashlar_model_batch draw_batch(size_t T, size_t B, bool is_ragged) {
    for (size_t i = 0; i < model->input_count; i++) {
        drawn.inputs[i] = take(steps_of(i, T) * B * item_of(i), streams[0]);
        drawn.gradients[i] = take(steps_of(i, T) * B * item_of(i), streams[0]);
    }
    draw_values(T, B);
    ashlar_model_batch b = {.batch = B,
                            .steps = T,
                            .lengths = is_ragged ? drawn.lengths : NULL,
                            .inputs = (const void *const *)drawn.inputs,
                            .loss = loss,
                            .seed = 77};
    if (drawn.words > 0) {
        b.axes[drawn.nested].steps = drawn.words;
        b.axes[drawn.nested].lengths = is_ragged ? drawn.nested_lengths : NULL;
    }
    return b;
}

/* ---- walks ---- */

static inline double *region(ashlar_region which) {
    return ashlar_arena_region(ashlar_model_arena(model), which);
}

static inline size_t region_count(void) {
    const size_t bytes =
        ashlar_arena_get_info(ashlar_model_arena(model)).region_bytes[ASHLAR_REGION_GRADIENTS];
    CHECK(bytes <= sizeof expected);
    return bytes / sizeof(double);
}

static inline void clear(void) {
    wait_for(streams[0]);
    *loss = 0;
    memset(region(ASHLAR_REGION_GRADIENTS), 0, region_count() * sizeof(double));
}

static inline void go(ashlar_walk walk, const ashlar_model_batch *b) {
    const ashlar_status status = ashlar_model_run(model, walk, b, streams[0]);
    CHECK(status == ASHLAR_OK);
    if (status != ASHLAR_OK) {
        printf("# %s\n", ashlar_error_detail());
    }
    wait_for(streams[0]);
}

/* Run, from cleared results. */
static inline double run(ashlar_walk walk, const ashlar_model_batch *b) {
    clear();
    go(walk, b);
    return *loss;
}

static inline void expect(void) {
    expected_loss = *loss;
    memcpy(expected, region(ASHLAR_REGION_GRADIENTS), region_count() * sizeof *expected);
}

/* All gradients and the loss, computed in two ways, agree. */
static inline void check_same(double tolerance) {
    double difference = fabs(*loss - expected_loss), size = fmax(1, fabs(expected_loss));
    for (size_t i = 0; i < region_count(); i++) {
        difference = fmax(difference, fabs(region(ASHLAR_REGION_GRADIENTS)[i] - expected[i]));
        size = fmax(size, fabs(expected[i]));
    }
    CHECK(difference <= tolerance * size);
}

/* A value a little up and down; at a kink, such as that of a ReLU, less. */
static inline void check_slope(double *place, double gradient, const ashlar_model_batch *b) {
    const double old = *place, size = fmax(1, fabs(gradient));
    double off = NAN;
    for (double step = 1e-5; step > 1e-8 && !(off <= 1e-12 / step); step /= 10) {
        *place = old + step;
        const double above = run(ASHLAR_WALK_TRAIN, b);
        *place = old - step;
        const double under = run(ASHLAR_WALK_TRAIN, b);
        *place = old;
        off = fabs((above - under) / (2 * step) - gradient) / size;
        CHECK(off <= 1e-12 / step || step > 1.5e-7);
    }
}

/* The gradients of some weights, and of some elements of the inputs; those of inputs that no
 * gradient reaches, which are targets[i], are 0. */
static inline void check_gradients(const ashlar_model_batch *plain, size_t count,
                                   const bool *targets) {
    void *wanted[INPUTS] = {0};
    ashlar_model_batch b = *plain;
    b.input_gradients = wanted;
    for (size_t i = 0; i < model->input_count; i++) {
        const bool is_wanted = model->inputs[i].width > 0 && below(4) > 0;
        wanted[i] = is_wanted ? drawn.gradients[i] : NULL;
        memset(drawn.gradients[i], 0xff, steps_of(i, b.steps) * b.batch * item_of(i));
    }
    (void)run(ASHLAR_WALK_TRAIN, &b);
    expect();
    for (size_t k = 0; k < count; k++) {
        const size_t i = below(region_count());
        check_slope(region(ASHLAR_REGION_PARAMETERS) + i, expected[i], plain);
    }
    for (size_t i = 0; i < model->input_count; i++) {
        const size_t n = steps_of(i, b.steps) * b.batch * item_of(i) / sizeof(double);
        const double *const gradients = drawn.gradients[i];
        for (size_t k = 0; k < count / 4 && wanted[i] != NULL && !targets[i]; k++) {
            const size_t at = below(n);
            check_slope((double *)drawn.inputs[i] + at, gradients[at], plain);
        }
        for (size_t k = 0; k < n && wanted[i] != NULL && targets[i]; k++) {
            CHECK(gradients[k] == 0);
        }
    }
}

#endif /* ASHLAR_ENGINE_FIXTURE_H */
