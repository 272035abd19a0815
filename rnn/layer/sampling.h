/* sampling.h - draws a symbol at random from logits in host memory (internal). An ashlar_sampler of
 * <ashlar/model.h> is one ashlar_sampling. */
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

/* Take host memory for `classes` symbols, 1 .. 2^31. config->top_p > 0. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__sampling_init(ashlar_sampling *sampling, size_t classes,
                                                      const ashlar_sampling_config *config);
void ashlar__sampling_finish(ashlar_sampling *sampling); /* a zeroed struct is allowed */

/* Draw a symbol from sampling->logits: the symbols that top-k and top-p keep divide [0, 1) in
 * proportion to their probabilities, symbol 0 first; the one whose part contains `number` is drawn.
 * Cost: O(V), and a sort with top-k or top-p. Errors: ASHLAR_EFORMAT (a logit is not finite). */
ASHLAR_MUST_CHECK ashlar_status ashlar__sampling_draw(ashlar_sampling *sampling, double number,
                                                      int32_t *symbol);

#endif /* ASHLAR_SAMPLING_H */
