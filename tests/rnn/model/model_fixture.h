/*
 * model_fixture.h - a small model on a software device, and batches for it, for tests.
 *
 * A case begins with open_model(spec, regions); close_model() runs at its end and checks that every
 * block went back.
 */
#ifndef ASHLAR_MODEL_FIXTURE_H
#define ASHLAR_MODEL_FIXTURE_H

#include "tests/allocator/core/allocator_fixture.h"

#include "rnn/data/batcher.h"
#include "rnn/model/model.h"
#include "allocator/base/random.h"

/* A vector of each width is more than 64 bytes, and no multiple of them. */
enum { CLASSES = 19, EMBEDDING = 17, HIDDEN = 18, LAYERS = 2, CELLS_MAX = 256, BATCH_MAX = 16 };

#define USUAL_MODEL \
    { .classes = CLASSES, .embedding = EMBEDDING, .hidden = HIDDEN, .layers = LAYERS }

/* A case of another kind of stack changes it; in a program with check_each = usual_model, it is as
 * usual for the next one. */
static ashlar_model_config model_config = USUAL_MODEL;

static inline void usual_model(void) {
    model_config = (ashlar_model_config)USUAL_MODEL;
}

/* What a step works on and leaves, in device memory: wait for the stream, then read. */
typedef struct step_memory {
    double loss;
    int32_t inputs[CELLS_MAX], targets[CELLS_MAX], lengths[BATCH_MAX];
} step_memory;

static ashlar_model *model;
static step_memory *results;

/* A batch with the memory it lies in. */
typedef struct made_batch {
    ashlar_batch batch;
    size_t count; /* B */
    int32_t inputs[CELLS_MAX], targets[CELLS_MAX], lengths[BATCH_MAX];
} made_batch;

/* Symbols of every class up to each length; past it what must never be read as a symbol. */
static inline void make_batch(made_batch *made, size_t steps, size_t count,
                              const int32_t *lengths) {
    ashlar_random random;
    ashlar__random_init(&random, 17);
    *made = (made_batch){.count = count};
    made->batch = (ashlar_batch){.inputs = made->inputs,
                                 .targets = made->targets,
                                 .lengths = made->lengths,
                                 .steps = steps};
    for (size_t b = 0; b < count; b++) {
        made->lengths[b] = lengths[b];
        made->batch.tokens += (size_t)lengths[b];
        for (size_t t = 0; t < steps; t++) {
            const bool is_padding = t >= (size_t)lengths[b];
            made->inputs[t * count + b] =
                is_padding ? -7 : (int32_t)ashlar__random_below(&random, CLASSES);
            made->targets[t * count + b] =
                is_padding ? -7 : (int32_t)ashlar__random_below(&random, CLASSES);
        }
    }
}

static inline void close_model(void) {
    CHECK(ashlar_free(allocator, results) == ASHLAR_OK);
    ashlar__model_destroy(model);
    model = NULL;
    CHECK_ZU(stats_now().live_blocks, 0);
    tear_down();
}

/* With caches of that size; of 0 bytes, there are none, and no plans. */
static inline bool open_model_cached(const char *spec, unsigned regions, uint64_t cache_bytes) {
    void *memory = NULL;
    if (!set_up_cached(spec, cache_bytes) ||
        ashlar__model_create(allocator, streams[1], &model_config, regions, &model) != ASHLAR_OK) {
        return false;
    }
    CHECK(ashlar__model_init_weights(model, 3) == ASHLAR_OK);
    CHECK(ashlar_alloc(allocator, sizeof *results, streams[1], &memory) == ASHLAR_OK);
    results = memory;
    results->loss = -1;
    return check_at_end(close_model);
}

static inline bool open_model(const char *spec, unsigned regions) {
    return open_model_cached(spec, regions, 0);
}

static inline bool open_usual_model(void) {
    return open_model("memory=64MiB", ASHLAR_REGIONS_ALL);
}

/* Copy a batch to where the step finds it, and clear what it adds to. */
static inline ashlar_status prepare_step(const made_batch *made) {
    const size_t grid = made->batch.steps * made->count * sizeof(int32_t);
    const size_t lengths = made->count * sizeof(int32_t);
    ashlar_status status =
        ashlar_copy_to_device(device, results->inputs, made->batch.inputs, grid, streams[1]);
    if (status == ASHLAR_OK) {
        status =
            ashlar_copy_to_device(device, results->targets, made->batch.targets, grid, streams[1]);
    }
    if (status == ASHLAR_OK) {
        status = ashlar_copy_to_device(device, results->lengths, made->batch.lengths, lengths,
                                       streams[1]);
    }
    if (status == ASHLAR_OK) {
        status = ashlar_fill(device, &results->loss, 0, sizeof results->loss, streams[1]);
    }
    return status == ASHLAR_OK
               ? ashlar_arena_zero(model->arena, ASHLAR_REGION_GRADIENTS, streams[1])
               : status;
}

static inline ashlar_model_window window_of(const made_batch *made) {
    return (ashlar_model_window){.steps = made->batch.steps,
                                 .count = made->count,
                                 .inputs = results->inputs,
                                 .targets = results->targets,
                                 .lengths = results->lengths,
                                 .rnn_lengths = made->batch.lengths};
}

static inline ashlar_status queue_step_sized(const made_batch *made,
                                             const ashlar_step_sizes *sizes) {
    const ashlar_model_window window = window_of(made);
    const ashlar_status status = prepare_step(made);
    return status == ASHLAR_OK ? ashlar__model_step(model, &window, sizes, &results->loss) : status;
}

/* Queue a step with exactly the sizes that the batch needs. */
static inline ashlar_status queue_step(const made_batch *made) {
    ashlar_step_sizes sizes;
    CHECK(ashlar__model_sizes(model, made->batch.steps, made->count, &sizes) == ASHLAR_OK);
    return queue_step_sized(made, &sizes);
}

/* Run a step to its end. */
static inline void run_step(const made_batch *made) {
    CHECK(queue_step(made) == ASHLAR_OK);
    wait_for(streams[1]);
}

static inline float *region_of(ashlar_region region) {
    return ashlar_arena_region(model->arena, region);
}

/* Elements of a region, padding included. */
static inline size_t region_count(void) {
    return ashlar_arena_region_bytes(model->arena, ASHLAR_REGION_PARAMETERS) / sizeof(float);
}

#endif /* ASHLAR_MODEL_FIXTURE_H */
