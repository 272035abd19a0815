/*
 * model_warmup_fixture.h - a warm-up of nothing but a model's steps, for tests.
 */
#ifndef ASHLAR_MODEL_WARMUP_FIXTURE_H
#define ASHLAR_MODEL_WARMUP_FIXTURE_H

#include "tests/rnn/model/model_fixture.h"

#include <ashlar/warmup.h>

enum { WARM_BATCH_MAX = 64 };

/* What the steps are made of: device memory for one window of `steps` x batch at most. */
typedef struct warm_model {
    size_t steps, batch;
    int32_t *words; /* device: inputs, targets, lengths */
} warm_model;

/* A batch of sequences of `length` zeros. */
static inline ashlar_status warm_step(void *user, size_t length) {
    const warm_model *w = user;
    const size_t grid = w->steps * w->batch;
    int32_t lengths[WARM_BATCH_MAX];
    for (size_t b = 0; b < w->batch; b++) {
        lengths[b] = (int32_t)length;
    }
    const ashlar_model_window window = {.steps = length,
                                        .count = w->batch,
                                        .inputs = w->words,
                                        .targets = w->words + grid,
                                        .lengths = w->words + 2 * grid,
                                        .rnn_lengths = lengths};
    ashlar_step_sizes sizes;
    CHECK(ashlar_fill(device, w->words, 0, 2 * grid * sizeof *w->words, streams[1]) == ASHLAR_OK);
    CHECK(ashlar_copy_to_device(device, w->words + 2 * grid, lengths, w->batch * sizeof *lengths,
                                streams[1]) == ASHLAR_OK);
    const ashlar_status status = ashlar__model_sizes(model, length, w->batch, &sizes);
    return status == ASHLAR_OK ? ashlar__model_step(model, &window, &sizes, &results->loss)
                               : status;
}

static inline ashlar_status warm_rehearse(void *user, size_t length) {
    const warm_model *w = user;
    ashlar_step_sizes sizes;
    const ashlar_status status = ashlar__model_sizes(model, length, w->batch, &sizes);
    return status == ASHLAR_OK ? ashlar__model_dry_run(model, false, &sizes) : status;
}

/* words: room for 2 * as->max_length * batch + batch of them */
static inline ashlar_status warm_up_model(const ashlar_warmup_options *as, size_t batch,
                                          int32_t *words, ashlar_warmup_report *report) {
    warm_model w = {as->max_length, batch, words};
    ashlar_warmup_options filled = *as;
    filled.step = warm_step;
    filled.dry_run = warm_rehearse;
    filled.user = &w;
    return ashlar_allocator_warmup(allocator, &filled, report);
}

#endif /* ASHLAR_MODEL_WARMUP_FIXTURE_H */
