#include "model_warmup.h"

#include <string.h>

typedef struct context {
    ashlar_model *model;
    size_t batch;
    ashlar_batch *staging;
    ashlar_step_results *results;
} context;

/* A batch of sequences of `length` zeros. */
static void fill_staging(const context *c, size_t length) {
    ashlar_batch *staging = c->staging;
    const size_t cells = length * c->batch; /* fits: sizes were computed from it */
    memset(staging->inputs, 0, cells * sizeof staging->inputs[0]);
    memset(staging->targets, 0, cells * sizeof staging->targets[0]);
    for (size_t b = 0; b < c->batch; b++) {
        staging->lengths[b] = (int32_t)length;
    }
    staging->steps = length;
    staging->tokens = cells;
}

static ashlar_status step(void *user, size_t length) {
    const context *c = user;
    ashlar_step_sizes sizes;
    const ashlar_status status = ashlar_model_sizes(c->model, length, c->batch, &sizes);
    if (status != ASHLAR_OK) {
        return status;
    }
    fill_staging(c, length);
    return ashlar_model_step(c->model, c->staging, c->batch, &sizes, c->results);
}

/* Every length on its own: a back end's workspace need not grow with it (cuDNN's does not). */
static ashlar_status rehearse(void *user, size_t length) {
    const context *c = user;
    ashlar_step_sizes sizes;
    const ashlar_status status = ashlar_model_sizes(c->model, length, c->batch, &sizes);
    return status == ASHLAR_OK ? ashlar_model_rehearse(c->model, &sizes) : status;
}

ashlar_status ashlar_model_warmup(ashlar_model *model, const ashlar_warmup_options *options,
                                  size_t batch, ashlar_batch *staging, ashlar_step_results *results,
                                  ashlar_warmup_report *report) {
    context c = {.model = model, .batch = batch, .staging = staging, .results = results};
    ashlar_warmup_options filled = *options;
    filled.step = step;
    filled.rehearse = rehearse;
    filled.user = &c;
    return ashlar_warmup(model->allocator, &filled, report);
}
