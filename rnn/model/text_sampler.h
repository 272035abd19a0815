/* text_sampler.h - text from a model, one symbol at a time, in constant memory (internal). */
#ifndef ASHLAR_TEXT_SAMPLER_H
#define ASHLAR_TEXT_SAMPLER_H

#include "rnn/layer/sampling.h"
#include "rnn/model/model.h"

typedef struct ashlar_text_sampler ashlar_text_sampler;

typedef struct ashlar_text_sampler_config {
    ashlar_sampling_config sampling;
    uint64_t seed;
} ashlar_text_sampler_config;

/* Create a sampler with the buffers of one inference step; no later call takes memory. The model
 * has then read the mark that begins a record. Ownership: *out is the caller's; the model must
 * outlive it. Errors: ASHLAR_ENOMEM, ASHLAR_EHOSTMEM, ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__text_sampler_create(
    ashlar_model *model, const ashlar_text_sampler_config *config, ashlar_text_sampler **out);
void ashlar__text_sampler_destroy(ashlar_text_sampler *sampler); /* NULL is allowed */

/* Let the model read a symbol as if the sampler had drawn it. Errors: those of ashlar_launch(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__text_sampler_read(ashlar_text_sampler *sampler,
                                                          int32_t symbol);

/* Draw the next symbol and let the model read it. ASHLAR_BATCHER_MARK ends a record and begins the
 * next. Waits for the device. Errors: those of ashlar_launch(); ASHLAR_EFORMAT (a logit
 * is not finite). */
ASHLAR_MUST_CHECK ashlar_status ashlar__text_sampler_next(ashlar_text_sampler *sampler,
                                                          int32_t *symbol);

#endif /* ASHLAR_TEXT_SAMPLER_H */
