/* programs.c - the programs of several streams that the benchmark simulates: loops, models, a
 * prefetch and a pipeline. */
#include "bench/streams/stage.h"

#include "allocator/base/error.h"
#include "allocator/base/random.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* By how many steps the host may run ahead of a stream. */
enum { LAG = 4, MODEL_LAG = 2 };

#define KERNEL(stage, stream, ...)                                                 \
    ashlar__stage_kernel((stage), (stream), (ashlar_stage_block *[]){__VA_ARGS__}, \
                         sizeof((ashlar_stage_block *[]){__VA_ARGS__}) /           \
                             sizeof(ashlar_stage_block *))

/* Each stream in turn takes a block, works on it, and gives it back. */
static ashlar_status run_independent(ashlar_stage *stage, const ashlar_stage_program *p,
                                     size_t steps) {
    ashlar_stage_block block;
    for (size_t i = 0; i < steps * p->streams; i++) {
        const size_t stream = i % p->streams;
        ASHLAR_TRY(ashlar__stage_begin_step(stage, stream, LAG));
        ASHLAR_TRY(ashlar__stage_take(stage, p->variant, stream, &block));
        ASHLAR_TRY(KERNEL(stage, stream, &block));
        ASHLAR_TRY(ashlar__stage_give(stage, &block));
        ASHLAR_TRY(ashlar__stage_end_step(stage, stream));
    }
    return ASHLAR_OK;
}

/* Models take activations forwards and give them back backwards. */
enum { LENGTH = 32, SHORTEST = 8, LONGEST = 56, FIXED = 0 /* else the seed of drawn lengths */ };
#define ACTIVATION_BYTES (3584 * KIB)
#define WORKSPACE_BYTES (2 * MIB)
#define GRADIENT_BYTES (1 * MIB)

typedef struct model {
    size_t stream;
    size_t length, at; /* of this step; `at` runs to 2 * length */
    uint64_t random;   /* 0: each step has LENGTH */
    ashlar_stage_block activations[LONGEST], gradient;
} model;

static ashlar_status begin_model_step(ashlar_stage *stage, model *m) {
    m->at = 0;
    m->length = m->random == FIXED
                    ? LENGTH
                    : SHORTEST + ashlar__random_step_below(&m->random, LONGEST - SHORTEST + 1);
    return ashlar__stage_begin_step(stage, m->stream, MODEL_LAG);
}

static ashlar_status go_back(ashlar_stage *stage, model *m, ashlar_stage_block *workspace) {
    ashlar_stage_block *activation = &m->activations[2 * m->length - 1 - m->at], gradient;
    ASHLAR_TRY(ashlar__stage_take(stage, GRADIENT_BYTES, m->stream, &gradient));
    ASHLAR_TRY(KERNEL(stage, m->stream, activation, workspace, &gradient, &m->gradient));
    ASHLAR_TRY(ashlar__stage_give(stage, activation));
    ASHLAR_TRY(ashlar__stage_give(stage, &m->gradient));
    m->gradient = gradient;
    return ASHLAR_OK;
}

static ashlar_status end_model_step(ashlar_stage *stage, model *m) {
    ASHLAR_TRY(ashlar__stage_give(stage, &m->gradient));
    ASHLAR_TRY(ashlar__stage_end_step(stage, m->stream));
    return begin_model_step(stage, m);
}

/* Run one time step, forwards or backwards. */
static ashlar_status advance(ashlar_stage *stage, model *m) {
    ashlar_stage_block workspace;
    ASHLAR_TRY(ashlar__stage_take(stage, WORKSPACE_BYTES, m->stream, &workspace));
    if (m->at < m->length) {
        ashlar_stage_block *activation = &m->activations[m->at];
        ASHLAR_TRY(ashlar__stage_take(stage, ACTIVATION_BYTES, m->stream, activation));
        ASHLAR_TRY(KERNEL(stage, m->stream, activation, &workspace));
    } else {
        ASHLAR_TRY(go_back(stage, m, &workspace));
    }
    ASHLAR_TRY(ashlar__stage_give(stage, &workspace));
    return ++m->at == 2 * m->length ? end_model_step(stage, m) : ASHLAR_OK;
}

/* About half a step: the time of the forward and backward time steps over half the length. */
static uint64_t half_step_ns(void) {
    const size_t forwards = ACTIVATION_BYTES + WORKSPACE_BYTES;
    return LENGTH * ashlar__stage_kernel_ns(forwards + GRADIENT_BYTES);
}

/* The host serves the streams in turn, one time step each; every second stream is half a step late.
 */
static ashlar_status run_models(ashlar_stage *stage, const ashlar_stage_program *p, size_t steps) {
    model models[ASHLAR_STAGE_STREAMS_MAX] = {{0}};
    for (size_t i = 0; i < p->streams; i++) {
        models[i] = (model){.stream = i, .random = p->variant == FIXED ? FIXED : p->variant + i};
        ASHLAR_TRY(begin_model_step(stage, &models[i]));
        if (i % 2 != 0) {
            ASHLAR_TRY(ashlar__stage_delay(stage, i, half_step_ns()));
        }
    }
    for (size_t tick = 0; tick < (2 * steps + 1) * LENGTH; tick++) {
        for (size_t i = 0; i < p->streams; i++) {
            const size_t late = i % 2 * LENGTH;
            if (tick >= late && tick < late + 2 * steps * LENGTH) {
                ASHLAR_TRY(advance(stage, &models[i]));
            }
        }
    }
    for (size_t i = 0; i < p->streams; i++) {
        for (size_t k = 0; k < LONGEST; k++) {
            ASHLAR_TRY(ashlar__stage_give(stage, &models[i].activations[k]));
        }
        ASHLAR_TRY(ashlar__stage_give(stage, &models[i].gradient));
    }
    return ASHLAR_OK;
}

/* Prefetch: one stream copies batches that the other computes on. */
enum { COPY, COMPUTE, KERNELS = 4 };
#define BATCH_BYTES (32 * MIB)
#define LABEL_BYTES (256 * KIB)
#define HIDDEN_BYTES (8 * MIB)

static ashlar_status compute_batch(ashlar_stage *stage, ashlar_stage_block *batch,
                                   ashlar_stage_block *labels) {
    ashlar_stage_block hidden[KERNELS] = {{0}};
    for (size_t i = 0; i < KERNELS; i++) {
        ASHLAR_TRY(ashlar__stage_take(stage, HIDDEN_BYTES, COMPUTE, &hidden[i]));
        ASHLAR_TRY(i == 0 ? KERNEL(stage, COMPUTE, &hidden[0], batch)
                          : KERNEL(stage, COMPUTE, &hidden[i], &hidden[i - 1], labels));
    }
    for (size_t i = KERNELS; i-- > 0;) {
        ASHLAR_TRY(ashlar__stage_give(stage, &hidden[i]));
    }
    return ASHLAR_OK;
}

static ashlar_status run_prefetch(ashlar_stage *stage, const ashlar_stage_program *p,
                                  size_t steps) {
    ashlar_stage_block batch, labels;
    (void)p;
    for (size_t step = 0; step < steps; step++) {
        ASHLAR_TRY(ashlar__stage_begin_step(stage, COMPUTE, LAG));
        ASHLAR_TRY(ashlar__stage_take(stage, BATCH_BYTES, COPY, &batch));
        ASHLAR_TRY(ashlar__stage_take(stage, LABEL_BYTES, COPY, &labels));
        ASHLAR_TRY(KERNEL(stage, COPY, &batch, &labels));
        ASHLAR_TRY(ashlar__stage_follow(stage, COMPUTE, COPY));
        ASHLAR_TRY(compute_batch(stage, &batch, &labels));
        ASHLAR_TRY(ashlar__stage_give(stage, &batch));
        ASHLAR_TRY(ashlar__stage_give(stage, &labels));
        ASHLAR_TRY(ashlar__stage_end_step(stage, COMPUTE));
    }
    return ASHLAR_OK;
}

/* Pipeline: each stream hands its block to the next one. */
enum { BY_RECORD, BY_FREE_ON };
#define STAGE_BYTES (16 * MIB)

static ashlar_status run_pipeline(ashlar_stage *stage, const ashlar_stage_program *p,
                                  size_t steps) {
    const size_t last = p->streams - 1;
    ashlar_stage_block block;
    for (size_t step = 0; step < steps; step++) {
        ASHLAR_TRY(ashlar__stage_begin_step(stage, last, LAG));
        ASHLAR_TRY(ashlar__stage_take(stage, STAGE_BYTES, 0, &block));
        ASHLAR_TRY(KERNEL(stage, 0, &block));
        for (size_t i = 1; i <= last; i++) {
            ASHLAR_TRY(ashlar__stage_follow(stage, i, i - 1));
            ASHLAR_TRY(KERNEL(stage, i, &block));
        }
        ASHLAR_TRY(p->variant == BY_FREE_ON ? ashlar__stage_give_on(stage, &block, last)
                                            : ashlar__stage_give(stage, &block));
        ASHLAR_TRY(ashlar__stage_end_step(stage, last));
    }
    return ASHLAR_OK;
}

#define INDEPENDENT(streams, mib)                                                               \
    {                                                                                           \
        "independent", #streams "x" #mib "MiB", {streams, streams, (mib)*MIB, run_independent}, \
            512, 16, (mib)*MIB, 0                                                               \
    }
#define MODELS(name, streams, seed, share) \
    { name, #streams, {streams, streams, seed, run_models}, 96, 8, 0, share }

static const ashlar_streams_case cases[] = {
    INDEPENDENT(2, 2),
    INDEPENDENT(2, 16),
    INDEPENDENT(2, 64),
    INDEPENDENT(8, 2),
    INDEPENDENT(8, 16),
    INDEPENDENT(8, 64),
    MODELS("models_fixed", 2, FIXED, 0),
    MODELS("models_fixed", 4, FIXED, 0),
    MODELS("models_fixed", 8, FIXED, 0),
    MODELS("models_varying", 8, 1, 0),
    {"prefetch", "2", {2, 1, 0, run_prefetch}, 256, 16, 0, 0},
    {"pipeline", "record", {3, 1, BY_RECORD, run_pipeline}, 256, 16, STAGE_BYTES, 0},
    {"pipeline", "free_on", {3, 1, BY_FREE_ON, run_pipeline}, 256, 16, STAGE_BYTES, 0},
    MODELS("models_fixed_087", 2, FIXED, 0.87),
    MODELS("models_fixed_087", 4, FIXED, 0.87),
    MODELS("models_fixed_087", 8, FIXED, 0.87),
};

const ashlar_streams_case *ashlar__streams_cases(size_t *count) {
    *count = sizeof cases / sizeof cases[0];
    return cases;
}
