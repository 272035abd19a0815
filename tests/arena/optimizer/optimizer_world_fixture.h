/*
 * optimizer_world_fixture.h - all that an optimizer's job works on in one block of bytes, so that
 * back ends can be given the same and be compared bit by bit.
 */
#ifndef ASHLAR_OPTIMIZER_WORLD_FIXTURE_H
#define ASHLAR_OPTIMIZER_WORLD_FIXTURE_H

#include "tests/check.h"

#include <stdint.h>

#include "tests/arena/optimizer/element_fixture.h"
#include "arena/optimizer/optimizer_impl.h"
#include "allocator/base/random.h"

enum { ARRAYS = 5, RUNS_MAX = 8, GAP = 64 }; /* parameters, gradients, moments, master */

/* A run to be made. Its arrays miss their alignment by `shift` elements. */
typedef struct run_spec {
    ashlar_dtype dtype;
    size_t elements;
    size_t shift[ARRAYS];
} run_spec;

/*
 * The block: scalars, runs, partial sums, then all arrays with gaps between them. `bytes` is where
 * the host has it; a device may have it elsewhere.
 */
typedef struct world {
    unsigned char *bytes;
    size_t size;
    size_t run_count, chunk_count;
    size_t runs_at, partials_at, arrays_at;
    size_t array_at[RUNS_MAX][ARRAYS];
    ashlar_optimizer_run runs[RUNS_MAX]; /* with the addresses of `bytes` */
} world;

static inline size_t array_width(ashlar_dtype dtype, int array) {
    const size_t real = dtype == ASHLAR_F64 ? sizeof(double) : sizeof(float);
    return array < 2 ? ashlar_dtype_bytes(dtype) : real;
}

static inline bool has_array(ashlar_dtype dtype, int array) {
    return array < 4 || ashlar_dtype_is_narrow(dtype);
}

/* The runs as they are where the block begins at `base`. */
static inline void world_point(const world *w, void *base, ashlar_optimizer_run *runs) {
    unsigned char *bytes = base;
    for (size_t i = 0; i < w->run_count; i++) {
        runs[i] = w->runs[i];
        runs[i].parameters = bytes + w->array_at[i][0];
        runs[i].gradients = bytes + w->array_at[i][1];
        runs[i].moment1 = bytes + w->array_at[i][2];
        runs[i].moment2 = bytes + w->array_at[i][3];
        runs[i].master =
            has_array(runs[i].dtype, 4) ? (float *)(void *)(bytes + w->array_at[i][4]) : NULL;
    }
}

static inline world world_new(const run_spec *specs, size_t count) {
    world w = {.run_count = count, .runs_at = 256};
    for (size_t i = 0; i < count; i++) {
        w.runs[i] = (ashlar_optimizer_run){.elements = specs[i].elements,
                                           .dtype = specs[i].dtype,
                                           .rate_scale = 1 + (double)i / 2,
                                           .is_decayed = i % 2 == 0};
    }
    w.chunk_count = ashlar__optimizer_number(w.runs, count);
    w.partials_at = w.runs_at + (sizeof w.runs + 255) / 256 * 256;
    w.arrays_at = w.partials_at + (w.chunk_count * sizeof(double) + 255) / 256 * 256;
    w.size = w.arrays_at;
    for (size_t i = 0; i < count; i++) {
        for (int array = 0; array < ARRAYS && has_array(specs[i].dtype, array); array++) {
            const size_t width = array_width(specs[i].dtype, array);
            w.array_at[i][array] = w.size + specs[i].shift[array] * width;
            w.size += ((specs[i].shift[array] + specs[i].elements) * width + GAP + 255) / 256 * 256;
        }
    }
    w.bytes = aligned_alloc(256, w.size);
    CHECK(w.bytes != NULL);
    memset(w.bytes, 0x5A, w.size); /* a write into a gap is seen */
    memset(w.bytes, 0, w.arrays_at);
    world_point(&w, w.bytes, w.runs);
    memcpy(w.bytes + w.runs_at, w.runs, sizeof w.runs);
    return w;
}

static inline world world_copy(const world *from) {
    world w = *from;
    w.bytes = aligned_alloc(256, w.size);
    CHECK(w.bytes != NULL);
    memcpy(w.bytes, from->bytes, w.size);
    world_point(&w, w.bytes, w.runs);
    memcpy(w.bytes + w.runs_at, w.runs, sizeof w.runs);
    return w;
}

static inline void world_free(world *w) {
    free(w->bytes);
}

static inline ashlar_optimizer_scalars *world_cell(const world *w) {
    return (ashlar_optimizer_scalars *)(void *)w->bytes;
}

static inline double *world_partials(const world *w) {
    return (double *)(void *)(w->bytes + w->partials_at);
}

/* In [-1, 1), of about so many bits. */
static inline double draw_value(uint64_t *random) {
    return (double)(int32_t)(ashlar__random_step(random) >> 32) / 2147483648.0;
}

/* New gradients, some of them 0; with `all`, new values everywhere. */
static inline void world_draw(world *w, uint64_t seed, bool all) {
    uint64_t random = seed;
    for (size_t i = 0; i < w->run_count; i++) {
        const ashlar_dtype dtype = w->runs[i].dtype;
        const ashlar_dtype real = dtype == ASHLAR_F64 ? ASHLAR_F64 : ASHLAR_F32;
        for (int array = all ? 0 : 1; array < (all ? ARRAYS : 2); array++) {
            for (size_t k = 0; has_array(dtype, array) && k < w->runs[i].elements; k++) {
                const double value = draw_value(&random);
                put_element(w->bytes + w->array_at[i][array], array < 2 ? dtype : real, k,
                            array == 3     ? value * value
                            : k % 61 == 60 ? 0
                                           : value);
            }
        }
    }
}

/* The job over all runs, as the host sees it. */
static inline ashlar_optimizer_job world_job(const world *w,
                                             const ashlar_optimizer_config *config) {
    ashlar_optimizer_job job = {
        .rule = {.algorithm = ashlar__optimizer_algorithm(config), .config = *config},
        .learning_rate = 0.01,
        .gradient_scale = 0.5,
    };
    ashlar__optimizer_cover(&job, w->runs, w->run_count);
    job.runs = (const ashlar_optimizer_run *)(const void *)(w->bytes + w->runs_at);
    job.scalars = world_cell(w);
    job.partials = world_partials(w);
    return job;
}

/* A configuration for each algorithm, with everything switched on that it has. */
static inline ashlar_optimizer_config world_config(ashlar_algorithm algorithm) {
    static const ashlar_optimizer_kind kinds[ASHLAR_ALGORITHM_COUNT] = {
        [ASHLAR_ALGORITHM_SGD] = ASHLAR_OPTIMIZER_SGD,
        [ASHLAR_ALGORITHM_MOMENTUM] = ASHLAR_OPTIMIZER_SGD,
        [ASHLAR_ALGORITHM_NESTEROV] = ASHLAR_OPTIMIZER_SGD,
        [ASHLAR_ALGORITHM_ADAM] = ASHLAR_OPTIMIZER_ADAMW,
        [ASHLAR_ALGORITHM_ADAGRAD] = ASHLAR_OPTIMIZER_ADAGRAD,
        [ASHLAR_ALGORITHM_RMSPROP] = ASHLAR_OPTIMIZER_RMSPROP,
        [ASHLAR_ALGORITHM_RMSPROP_MOMENTUM] = ASHLAR_OPTIMIZER_RMSPROP,
    };
    const bool has_momentum = algorithm == ASHLAR_ALGORITHM_MOMENTUM ||
                              algorithm == ASHLAR_ALGORITHM_NESTEROV ||
                              algorithm == ASHLAR_ALGORITHM_RMSPROP_MOMENTUM;
    return (ashlar_optimizer_config){
        .kind = kinds[algorithm],
        .learning_rate = 0.01,
        .momentum = has_momentum ? 0.9 : 0,
        .dampening = algorithm == ASHLAR_ALGORITHM_MOMENTUM ? 0.1 : 0,
        .nesterov = algorithm == ASHLAR_ALGORITHM_NESTEROV,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .smoothing = 0.99,
        .rate_decay = 0.01,
        .epsilon = 1e-8,
        .weight_decay = 0.1,
        .clip_norm = 1,
        .loss_scale = 1024,
        .scale_growth = 2,
        .scale_backoff = 0.5,
        .scale_interval = 2,
    };
}

/* Every byte but those of addresses and of the sum, which back ends add in orders of their own. */
static inline bool world_is_same(const world *a, const world *b) {
    ashlar_optimizer_scalars x = *world_cell(a), y = *world_cell(b);
    x.sum = y.sum = 0;
    return memcmp(&x, &y, sizeof x) == 0 &&
           memcmp(a->bytes + a->partials_at, b->bytes + b->partials_at, a->size - a->partials_at) ==
               0;
}

#endif /* ASHLAR_OPTIMIZER_WORLD_FIXTURE_H */
