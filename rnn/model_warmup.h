/*
 * model_warmup.h - size every block of a training step before the first one (internal).
 */
#ifndef ASHLAR_MODEL_WARMUP_H
#define ASHLAR_MODEL_WARMUP_H

#include "model.h"

/*
 * The largest size of each buffer over all lengths 1 .. max_steps. Not the sizes at max_steps: a
 * back end's workspace need not grow with the length (cuDNN's does not).
 *
 * Errors: those of ashlar_model_sizes().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_warmup_sizes(const ashlar_model *model, size_t max_steps,
                                                    size_t batch, ashlar_step_sizes *sizes);

/*
 * Run one step forward and backward, without an update, on a made-up batch of the maximum length
 * with every buffer at its maximum size; rehearse the allocations of every shorter one, until none
 * of them needs the driver; wait, and seal the allocator. Gradients are left in the arena; the next
 * step overwrites them.
 *
 * staging   host memory for the batch: room for max_steps x batch
 *
 * Errors: those of ashlar_model_step(); the allocator is sealed only on ASHLAR_OK.
 * Cost:   the step, and a few passes of some 15 allocations for each length.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_warmup_run(ashlar_model *model, size_t max_steps,
                                                  size_t batch, ashlar_batch *staging,
                                                  ashlar_step_results *results);

#endif /* ASHLAR_MODEL_WARMUP_H */
