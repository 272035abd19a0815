/* programs.c - the programs of several streams that the benchmark simulates: loops, models, a
 * prefetch and a pipeline. */
#include "bench/streams/simulation.h"

#include "allocator/base/error.h"
#include "allocator/base/random.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* By how many steps the host may run ahead of a stream. */
enum { LAG = 4, MODEL_LAG = 2 };

#define KERNEL(sim, stream, ...)                                             \
    ashlar__sim_kernel((sim), (stream), (ashlar_sim_block *[]){__VA_ARGS__}, \
                       sizeof((ashlar_sim_block *[]){__VA_ARGS__}) / sizeof(ashlar_sim_block *))

/* Each stream in turn takes a block, works on it, and gives it back. */
static ashlar_status run_independent(ashlar_sim *sim, const ashlar_sim_program *p, size_t steps) {
    ashlar_sim_block block;
    for (size_t i = 0; i < steps * p->streams; i++) {
        const size_t stream = i % p->streams;
        ASHLAR_TRY(ashlar__sim_begin_step(sim, stream, LAG));
        ASHLAR_TRY(ashlar__sim_take(sim, p->variant, stream, &block));
        ASHLAR_TRY(KERNEL(sim, stream, &block));
        ASHLAR_TRY(ashlar__sim_give(sim, &block));
        ASHLAR_TRY(ashlar__sim_end_step(sim, stream));
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
    ashlar_sim_block activations[LONGEST], gradient;
} model;

static ashlar_status begin_model_step(ashlar_sim *sim, model *m) {
    m->at = 0;
    m->length = m->random == FIXED
                    ? LENGTH
                    : SHORTEST + ashlar__random_step_below(&m->random, LONGEST - SHORTEST + 1);
    return ashlar__sim_begin_step(sim, m->stream, MODEL_LAG);
}

static ashlar_status go_back(ashlar_sim *sim, model *m, ashlar_sim_block *workspace) {
    ashlar_sim_block *activation = &m->activations[2 * m->length - 1 - m->at], gradient;
    ASHLAR_TRY(ashlar__sim_take(sim, GRADIENT_BYTES, m->stream, &gradient));
    ASHLAR_TRY(KERNEL(sim, m->stream, activation, workspace, &gradient, &m->gradient));
    ASHLAR_TRY(ashlar__sim_give(sim, activation));
    ASHLAR_TRY(ashlar__sim_give(sim, &m->gradient));
    m->gradient = gradient;
    return ASHLAR_OK;
}

static ashlar_status end_model_step(ashlar_sim *sim, model *m) {
    ASHLAR_TRY(ashlar__sim_give(sim, &m->gradient));
    ASHLAR_TRY(ashlar__sim_end_step(sim, m->stream));
    return begin_model_step(sim, m);
}

/* Run one time step, forwards or backwards. */
static ashlar_status advance(ashlar_sim *sim, model *m) {
    ashlar_sim_block workspace;
    ASHLAR_TRY(ashlar__sim_take(sim, WORKSPACE_BYTES, m->stream, &workspace));
    if (m->at < m->length) {
        ashlar_sim_block *activation = &m->activations[m->at];
        ASHLAR_TRY(ashlar__sim_take(sim, ACTIVATION_BYTES, m->stream, activation));
        ASHLAR_TRY(KERNEL(sim, m->stream, activation, &workspace));
    } else {
        ASHLAR_TRY(go_back(sim, m, &workspace));
    }
    ASHLAR_TRY(ashlar__sim_give(sim, &workspace));
    return ++m->at == 2 * m->length ? end_model_step(sim, m) : ASHLAR_OK;
}

/* About half a step: the time of the forward and backward time steps over half the length. */
static uint64_t half_step_ns(void) {
    const size_t forwards = ACTIVATION_BYTES + WORKSPACE_BYTES;
    return LENGTH * ashlar__sim_kernel_ns(forwards + GRADIENT_BYTES);
}

/* The host serves the streams in turn, one time step each; every second stream is half a step late.
 */
static ashlar_status run_models(ashlar_sim *sim, const ashlar_sim_program *p, size_t steps) {
    model models[ASHLAR_SIM_STREAMS_MAX] = {{0}};
    for (size_t i = 0; i < p->streams; i++) {
        models[i] = (model){.stream = i, .random = p->variant == FIXED ? FIXED : p->variant + i};
        ASHLAR_TRY(begin_model_step(sim, &models[i]));
        if (i % 2 != 0) {
            ASHLAR_TRY(ashlar__sim_delay(sim, i, half_step_ns()));
        }
    }
    for (size_t tick = 0; tick < (2 * steps + 1) * LENGTH; tick++) {
        for (size_t i = 0; i < p->streams; i++) {
            const size_t late = i % 2 * LENGTH;
            if (tick >= late && tick < late + 2 * steps * LENGTH) {
                ASHLAR_TRY(advance(sim, &models[i]));
            }
        }
    }
    for (size_t i = 0; i < p->streams; i++) {
        for (size_t k = 0; k < LONGEST; k++) {
            ASHLAR_TRY(ashlar__sim_give(sim, &models[i].activations[k]));
        }
        ASHLAR_TRY(ashlar__sim_give(sim, &models[i].gradient));
    }
    return ASHLAR_OK;
}

/* Prefetch: one stream copies batches that the other computes on. */
enum { COPY, COMPUTE, KERNELS = 4 };
#define BATCH_BYTES (32 * MIB)
#define LABEL_BYTES (256 * KIB)
#define HIDDEN_BYTES (8 * MIB)

static ashlar_status compute_batch(ashlar_sim *sim, ashlar_sim_block *batch,
                                   ashlar_sim_block *labels) {
    ashlar_sim_block hidden[KERNELS] = {{0}};
    for (size_t i = 0; i < KERNELS; i++) {
        ASHLAR_TRY(ashlar__sim_take(sim, HIDDEN_BYTES, COMPUTE, &hidden[i]));
        ASHLAR_TRY(i == 0 ? KERNEL(sim, COMPUTE, &hidden[0], batch)
                          : KERNEL(sim, COMPUTE, &hidden[i], &hidden[i - 1], labels));
    }
    for (size_t i = KERNELS; i-- > 0;) {
        ASHLAR_TRY(ashlar__sim_give(sim, &hidden[i]));
    }
    return ASHLAR_OK;
}

static ashlar_status run_prefetch(ashlar_sim *sim, const ashlar_sim_program *p, size_t steps) {
    ashlar_sim_block batch, labels;
    (void)p;
    for (size_t step = 0; step < steps; step++) {
        ASHLAR_TRY(ashlar__sim_begin_step(sim, COMPUTE, LAG));
        ASHLAR_TRY(ashlar__sim_take(sim, BATCH_BYTES, COPY, &batch));
        ASHLAR_TRY(ashlar__sim_take(sim, LABEL_BYTES, COPY, &labels));
        ASHLAR_TRY(KERNEL(sim, COPY, &batch, &labels));
        ASHLAR_TRY(ashlar__sim_follow(sim, COMPUTE, COPY));
        ASHLAR_TRY(compute_batch(sim, &batch, &labels));
        ASHLAR_TRY(ashlar__sim_give(sim, &batch));
        ASHLAR_TRY(ashlar__sim_give(sim, &labels));
        ASHLAR_TRY(ashlar__sim_end_step(sim, COMPUTE));
    }
    return ASHLAR_OK;
}

/* Pipeline: each stream hands its block to the next one. */
enum { BY_RECORD, BY_FREE_ON };
#define STAGE_BYTES (16 * MIB)

static ashlar_status run_pipeline(ashlar_sim *sim, const ashlar_sim_program *p, size_t steps) {
    const size_t last = p->streams - 1;
    ashlar_sim_block block;
    for (size_t step = 0; step < steps; step++) {
        ASHLAR_TRY(ashlar__sim_begin_step(sim, last, LAG));
        ASHLAR_TRY(ashlar__sim_take(sim, STAGE_BYTES, 0, &block));
        ASHLAR_TRY(KERNEL(sim, 0, &block));
        for (size_t i = 1; i <= last; i++) {
            ASHLAR_TRY(ashlar__sim_follow(sim, i, i - 1));
            ASHLAR_TRY(KERNEL(sim, i, &block));
        }
        ASHLAR_TRY(p->variant == BY_FREE_ON ? ashlar__sim_give_on(sim, &block, last)
                                            : ashlar__sim_give(sim, &block));
        ASHLAR_TRY(ashlar__sim_end_step(sim, last));
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
