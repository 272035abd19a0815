/*
 * tagger_fixture.h - a small tagger on a software device, and batches for it, for tests.
 *
 * A case begins with open_tagger(spec); close_tagger() runs at its end and checks that every block
 * went back.
 */
#ifndef ASHLAR_TAGGER_FIXTURE_H
#define ASHLAR_TAGGER_FIXTURE_H

#include "tests/allocator/core/allocator_fixture.h"

#include "allocator/base/random.h"
#include "rnn/model/tagger.h"

enum { CELLS_MAX = 8192, BATCH_MAX = 16 };

/* A test of another kind of tagger changes it, and calls usual_tagger() at its end. */
static ashlar_tagger_config tagger_config;

static ashlar_tagger *tagger;
static double *loss;       /* device memory: wait for the stream, then read */
static int32_t *on_device; /* [CELLS_MAX], where batches are copied */

static inline void usual_tagger(void) {
    tagger_config = (ashlar_tagger_config){.words = 13,
                                           .characters = 9,
                                           .tags = 5,
                                           .word_embedding = 6,
                                           .character_embedding = 3,
                                           .character_hidden = 4,
                                           .hidden = 5,
                                           .layers = 1,
                                           .cell = ASHLAR_RNN_LSTM,
                                           .directions = 2,
                                           .dtype = ASHLAR_F64};
}

/* A batch with the memory it lies in. */
typedef struct made_tags {
    ashlar_tagger_batch batch;
    int32_t data[CELLS_MAX];
} made_tags;

static const int32_t LENGTHS[] = {6, 4, 4, 1};
static const ashlar_tagger_shape SHAPE = {.steps = 6, .batch = 4, .width = 5};

/* Symbols of every class up to each length; past it what must never be read as a symbol. */
static inline void make_tags(made_tags *made, ashlar_tagger_shape shape, const int32_t *lengths) {
    const size_t words = shape.steps * shape.batch;
    ashlar_random random;
    ashlar__random_init(&random, 17);
    *made = (made_tags){.batch = {.shape = shape}};
    made->batch.data = made->data;
    const ashlar_tagger_arrays to = ashlar__tagger_batch_arrays(&shape, made->data);
    for (size_t b = 0; b < shape.batch; b++) {
        to.lengths[b] = lengths[b];
        made->batch.tokens += (size_t)lengths[b];
    }
    for (size_t at = 0; at < words; at++) {
        const bool is_padding = at / shape.batch >= (size_t)lengths[at % shape.batch];
        to.present[at] = !is_padding;
        to.words[at] =
            is_padding ? -7 : (int32_t)ashlar__random_below(&random, tagger_config.words);
        to.targets[at] =
            is_padding ? -7 : (int32_t)ashlar__random_below(&random, tagger_config.tags);
        to.char_counts[at] =
            is_padding ? 1 : 1 + (int32_t)ashlar__random_below(&random, shape.width);
        for (size_t i = 0; i < shape.width; i++) {
            const int32_t drawn = (int32_t)ashlar__random_below(&random, tagger_config.characters);
            to.characters[i * words + at] = i >= (size_t)to.char_counts[at] ? -7
                                            : is_padding                    ? 0
                                                                            : drawn;
        }
    }
}

static inline void close_tagger(void) {
    CHECK(ashlar_free(allocator, loss) == ASHLAR_OK);
    CHECK(ashlar_free(allocator, on_device) == ASHLAR_OK);
    ashlar__tagger_destroy(tagger);
    tagger = NULL;
    CHECK_ZU(stats_now().live_blocks, 0);
    tear_down();
    usual_tagger();
}

/* With caches of that size; of 0 bytes, there are none, and no plans. */
static inline bool open_tagger_cached(const char *spec, uint64_t cache_bytes) {
    void *memory = NULL;
    if (!set_up_cached(spec, cache_bytes) ||
        ashlar__tagger_create(allocator, streams[1], &tagger_config, ASHLAR_REGIONS_ALL, &tagger) !=
            ASHLAR_OK) {
        return false;
    }
    CHECK(ashlar__tagger_init_weights(tagger, 3) == ASHLAR_OK);
    CHECK(ashlar_alloc(allocator, sizeof *loss, streams[1], &memory) == ASHLAR_OK);
    loss = memory;
    *loss = -1;
    CHECK(ashlar_alloc(allocator, CELLS_MAX * sizeof *on_device, streams[1], &memory) == ASHLAR_OK);
    on_device = memory;
    return check_at_end(close_tagger);
}

static inline bool open_tagger(const char *spec) {
    return open_tagger_cached(spec, 0);
}

static inline ashlar_tagger_bytes sizes_of(ashlar_tagger_shape shape) {
    ashlar_tagger_bytes sizes = {0};
    CHECK(ashlar__tagger_sizes(tagger, &shape, &sizes) == ASHLAR_OK);
    return sizes;
}

/* The batch, as a step is to have it: in device memory too. */
static inline ashlar_tagger_batch copied(const made_tags *made) {
    ashlar_tagger_batch batch = made->batch;
    size_t bytes = 0;
    CHECK(ashlar__tagger_batch_bytes(&batch.shape, &bytes) == ASHLAR_OK);
    batch.device = on_device;
    CHECK(ashlar_copy_to_device(device, on_device, batch.data, bytes, streams[1]) == ASHLAR_OK);
    return batch;
}

/* Clear the sums and queue a step with exactly the sizes that the batch needs. */
static inline ashlar_status queue_tags(const made_tags *made) {
    const ashlar_tagger_bytes sizes = sizes_of(made->batch.shape);
    CHECK(ashlar_fill(device, loss, 0, sizeof *loss, streams[1]) == ASHLAR_OK);
    CHECK(ashlar_arena_zero(tagger->arena, ASHLAR_REGION_GRADIENTS, streams[1]) == ASHLAR_OK);
    const ashlar_tagger_batch batch = copied(made);
    return ashlar__tagger_step(tagger, &batch, &sizes, 0, loss);
}

/* Run a step to its end. */
static inline double run_tags(const made_tags *made) {
    CHECK(queue_tags(made) == ASHLAR_OK);
    wait_for(streams[1]);
    return *loss;
}

/* Run a prediction to its end. */
static inline double predict_tags(const made_tags *made, int32_t *labels) {
    const ashlar_tagger_bytes sizes = sizes_of(made->batch.shape);
    CHECK(ashlar_fill(device, loss, 0, sizeof *loss, streams[1]) == ASHLAR_OK);
    const ashlar_tagger_batch batch = copied(made);
    CHECK(ashlar__tagger_predict(tagger, &batch, &sizes, loss, labels) == ASHLAR_OK);
    wait_for(streams[1]);
    return *loss;
}

/* The tensor of that name, in a region of doubles. */
static inline double *tensor_named(ashlar_region region, const char *name, size_t *elements) {
    size_t tensor = 0;
    ashlar_tensor_info info;
    CHECK(ashlar_arena_find(tagger->arena, name, &tensor) == ASHLAR_OK);
    ashlar_arena_tensor(tagger->arena, tensor, &info);
    if (elements != NULL) {
        *elements = info.elements;
    }
    return ashlar_arena_view(tagger->arena, region, tensor);
}

#endif /* ASHLAR_TAGGER_FIXTURE_H */
