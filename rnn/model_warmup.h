/*
 * model_warmup.h - size every block of a model's training step before the first one (internal).
 */
#ifndef ASHLAR_MODEL_WARMUP_H
#define ASHLAR_MODEL_WARMUP_H

#include <ashlar/warmup.h>

#include "model.h"

/*
 * Warm up the model's allocator with its training step, forward and backward on a made-up batch
 * without an update, and seal it. Gradients are left in the arena; the next step overwrites them.
 *
 * options   stream, lengths, buckets and keys; what is called, and with what, is filled in here
 * batch     sequences per step
 * staging   host memory for the batch: room for max_length x batch
 * report    NULL: not wanted
 *
 * Errors: those of ashlar_warmup(), ashlar_model_sizes() and ashlar_model_step().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_model_warmup(ashlar_model *model,
                                                    const ashlar_warmup_options *options,
                                                    size_t batch, ashlar_batch *staging,
                                                    ashlar_step_results *results,
                                                    ashlar_warmup_report *report);

#endif /* ASHLAR_MODEL_WARMUP_H */
