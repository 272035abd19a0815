/* sampling.h - draws a symbol from logits, which it holds in host memory of its own (internal). An
 * ashlar_sampler of <ashlar/model.h> is one of these. */
#ifndef ASHLAR_SAMPLING_H
#define ASHLAR_SAMPLING_H

#include <ashlar/model.h>

typedef struct ashlar_sampling {
    ashlar_sampling_config config;
    size_t classes;       /* V, 1.. */
    float *logits;        /* [V], host; the caller writes them before each draw */
    float *probabilities; /* [V], of the last draw; 0 for a dropped symbol */
    uint32_t *ranking;    /* [V], a permutation of the symbols */
} ashlar_sampling;

/* Take host memory for `classes` symbols, 1 .. 2^31. top_p is above 0. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__sampling_init(ashlar_sampling *sampling, size_t classes,
                                                      const ashlar_sampling_config *config);
void ashlar__sampling_finish(ashlar_sampling *sampling); /* a zeroed struct is allowed */

/* Draw a symbol from sampling->logits: the kept symbols, 0 first, divide [0, 1) among them in
 * proportion to their probabilities; that whose part contains `number` is drawn. O(V); with top-k
 * or top-p a sort. Errors: ASHLAR_EFORMAT (a logit is not finite). */
ASHLAR_MUST_CHECK ashlar_status ashlar__sampling_draw(ashlar_sampling *sampling, double number,
                                                      int32_t *symbol);

/* ashlar_sampler_draw(), also from logits in the memory of a software device, once they are there.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__sampler_draw_anywhere(ashlar_sampler *sampler,
                                                              ashlar_dtype dtype,
                                                              const void *logits, double number,
                                                              int32_t *out);

#endif /* ASHLAR_SAMPLING_H */
