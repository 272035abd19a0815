#include "model_warmup.h"

#include <string.h>

static void raise_to(size_t *largest, size_t value) {
    *largest = value > *largest ? value : *largest;
}

ashlar_status ashlar_warmup_sizes(const ashlar_model *model, size_t max_steps, size_t batch,
                                  ashlar_step_sizes *sizes) {
    ashlar_step_sizes largest = {0};
    for (size_t steps = 1; steps <= max_steps; steps++) {
        ashlar_step_sizes s;
        const ashlar_status status = ashlar_model_sizes(model, steps, batch, &s);
        if (status != ASHLAR_OK) {
            return status;
        }
        raise_to(&largest.grid, s.grid);
        raise_to(&largest.lengths, s.lengths);
        raise_to(&largest.x, s.x);
        raise_to(&largest.y, s.y);
        raise_to(&largest.logits, s.logits);
        raise_to(&largest.reserve, s.reserve);
        raise_to(&largest.work, s.work);
    }
    *sizes = largest;
    return ASHLAR_OK;
}

/* The allocations of a step of every length, once. */
static ashlar_status rehearse_lengths(ashlar_model *model, size_t max_steps, size_t batch) {
    for (size_t steps = max_steps; steps >= 1; steps--) {
        ashlar_step_sizes sizes;
        ashlar_status status = ashlar_model_sizes(model, steps, batch, &sizes);
        if (status == ASHLAR_OK) {
            status = ashlar_model_rehearse(model, &sizes);
        }
        if (status != ASHLAR_OK) {
            return status;
        }
    }
    return ASHLAR_OK;
}

/*
 * A shorter step's buffers, though each is smaller, may be placed in other holes and then find
 * none for the last of them. So go through all lengths until every block came from the stream's
 * own, and none had to be mapped: a pass that changed nothing is how each later step will go. It
 * comes to that, for whatever is served otherwise is the stream's own from then on.
 */
static ashlar_status rehearse(ashlar_model *model, size_t max_steps, size_t batch) {
    ashlar_stats before, after;
    do {
        ashlar_stats_read(model->allocator, &before);
        const ashlar_status status = rehearse_lengths(model, max_steps, batch);
        if (status != ASHLAR_OK) {
            return status;
        }
        ashlar_stats_read(model->allocator, &after);
    } while (after.alloc_count - before.alloc_count !=
             after.served_cached + after.served_same_stream - before.served_cached -
                 before.served_same_stream);
    return ASHLAR_OK;
}

ashlar_status ashlar_warmup_run(ashlar_model *model, size_t max_steps, size_t batch,
                                ashlar_batch *staging, ashlar_step_results *results) {
    ashlar_step_sizes sizes;
    ashlar_status status = ashlar_warmup_sizes(model, max_steps, batch, &sizes);
    if (status != ASHLAR_OK) {
        return status;
    }
    const size_t cells = max_steps * batch; /* fits: the sizes were computed from it */
    memset(staging->inputs, 0, cells * sizeof staging->inputs[0]);
    memset(staging->targets, 0, cells * sizeof staging->targets[0]);
    for (size_t b = 0; b < batch; b++) {
        staging->lengths[b] = (int32_t)max_steps;
    }
    staging->steps = max_steps;
    staging->tokens = cells;
    status = ashlar_model_step(model, staging, batch, &sizes, results);
    if (status == ASHLAR_OK) {
        status = rehearse(model, max_steps, batch);
    }
    if (status == ASHLAR_OK) {
        status = ashlar_stream_synchronize(model->device, model->stream);
    }
    if (status == ASHLAR_OK) {
        ashlar_allocator_seal(model->allocator);
    }
    return status;
}
