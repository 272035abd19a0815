/* text_sampler.h - texts from a model, one symbol at a time, in constant memory (internal). */
#ifndef ASHLAR_TEXT_SAMPLER_H
#define ASHLAR_TEXT_SAMPLER_H

#include "rnn/model/text_model.h"

typedef struct ashlar_text_sampler ashlar_text_sampler;

/* A character model (text_model.h), and what it was made with. Work is queued on `stream`. */
typedef struct ashlar_sampled_model {
    ashlar_model *model;
    ashlar_text_model_config config;
    ashlar_allocator *allocator;
    ashlar_stream stream;
} ashlar_sampled_model;

typedef struct ashlar_text_sampler_config {
    ashlar_sampling_config sampling;
    uint64_t seed; /* of the first text; each further one has the next number */
    size_t count;  /* texts that are drawn together, B; 0: 1 */
    bool is_bf16;  /* read the matrices as bf16: an fp32 model on a software device only */
} ashlar_text_sampler_config;

/* Create a sampler. The model's weights are prepared (ashlar_model_prepare()), and it has then read
 * the mark that begins a record, in each text. No later call takes memory from the device: each
 * takes and gives back the block of a walk of one step. A text is the same as if it were drawn
 * alone.
 *
 * Ownership: *out is the caller's; what `of` points to must outlive it, and do nothing else until
 *            then. Errors: ASHLAR_ENOMEM, ASHLAR_EHOSTMEM, ASHLAR_EOVERFLOW (count), ASHLAR_EINVAL
 *            (is_bf16), ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status
ashlar__text_sampler_create(const ashlar_sampled_model *of,
                            const ashlar_text_sampler_config *config, ashlar_text_sampler **out);
void ashlar__text_sampler_destroy(ashlar_text_sampler *sampler); /* NULL is allowed */

/* Let the model read a symbol in each text as if the sampler had drawn it. Waits for the device.
 * Errors: those of ashlar_model_run(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__text_sampler_read(ashlar_text_sampler *sampler,
                                                          int32_t symbol);

/* Draw the next symbol of each text, and let the model read them. ASHLAR_BATCHER_MARK ends a record
 * and begins the next. Waits for the device.
 *
 * symbols  [count], written on success
 *
 * Errors: those of ashlar_model_run(); ASHLAR_EFORMAT (a logit is not finite). */
ASHLAR_MUST_CHECK ashlar_status ashlar__text_sampler_next(ashlar_text_sampler *sampler,
                                                          int32_t *symbols);

#endif /* ASHLAR_TEXT_SAMPLER_H */
