/* text_sampler.h - texts from a model, one symbol at a time, in constant memory (internal). */
#ifndef ASHLAR_TEXT_SAMPLER_H
#define ASHLAR_TEXT_SAMPLER_H

#include "rnn/layer/sampling.h"
#include "rnn/model/model.h"

typedef struct ashlar_text_sampler ashlar_text_sampler;

typedef struct ashlar_text_sampler_config {
    ashlar_sampling_config sampling;
    uint64_t seed; /* of the first text; each further one has the next number */
    size_t count;  /* texts that are drawn together, B; 0: 1 */
    bool is_bf16;  /* read the matrices as bf16: an fp32 model on a software device only */
} ashlar_text_sampler_config;

/* Create a sampler with the buffers of one inference step; no later call takes memory. The model
 * has then read the mark that begins a record, in each text. On a software device the model's
 * weights are read here, and never again; a text is the same as if it were drawn alone.
 *
 * Ownership: *out is the caller's; the model must outlive it. Errors: ASHLAR_ENOMEM,
 * ASHLAR_EHOSTMEM, ASHLAR_EOVERFLOW (count), ASHLAR_EINVAL (is_bf16), ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__text_sampler_create(
    ashlar_model *model, const ashlar_text_sampler_config *config, ashlar_text_sampler **out);
void ashlar__text_sampler_destroy(ashlar_text_sampler *sampler); /* NULL is allowed */

/* Let the model read a symbol in each text as if the sampler had drawn it. Errors: those of
 * ashlar_launch(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__text_sampler_read(ashlar_text_sampler *sampler,
                                                          int32_t symbol);

/* Draw the next symbol of each text, and let the model read them. ASHLAR_BATCHER_MARK ends a record
 * and begins the next. Waits for the device.
 *
 * symbols  [count], written on success
 *
 * Errors: those of ashlar_launch(); ASHLAR_EFORMAT (a logit is not finite). */
ASHLAR_MUST_CHECK ashlar_status ashlar__text_sampler_next(ashlar_text_sampler *sampler,
                                                          int32_t *symbols);

#endif /* ASHLAR_TEXT_SAMPLER_H */
