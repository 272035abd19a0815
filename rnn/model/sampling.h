/*
 * sampling.h - drawing a symbol from logits: temperature, top-k, top-p (internal).
 *
 * A draw depends on nothing but its configuration, the logits and one number, so a seed's text
 * is the same on every device that computes the same logits.
 */
#ifndef ASHLAR_SAMPLING_H
#define ASHLAR_SAMPLING_H

#include <stddef.h>
#include <stdint.h>

#include <ashlar/status.h>

/*
 * A symbol is likelier than another if its logit is larger, or equal and its number lower. First
 * temperature gives each symbol its probability, then top_k and top_p drop symbols in this order;
 * the others' probabilities keep their ratios.
 */
typedef struct ashlar_sampling_config {
    double temperature; /* >= 0: below 1 sharpens, above 1 flattens; 0: always the likeliest */
    size_t top_k;       /* keep so many, the likeliest; 0: all */
    double top_p;       /* keep the fewest likeliest that have this share of what top_k left, at
                           least one; 1: all */
} ashlar_sampling_config;

typedef struct ashlar_sampling {
    ashlar_sampling_config config;
    size_t classes;       /* V, 1.. */
    float *logits;        /* [V], host; the caller writes them before each draw */
    float *probabilities; /* [V], of the last draw; 0 where dropped */
    uint32_t *ranking;    /* [V], a permutation of the symbols */
} ashlar_sampling;

/* Take host memory for `classes` symbols, 1 .. 2^31. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__sampling_init(ashlar_sampling *sampling, size_t classes,
                                                      const ashlar_sampling_config *config);
void ashlar__sampling_finish(ashlar_sampling *sampling); /* zeroed is allowed */

/*
 * Draw from the logits that are there now.
 *
 * number   in [0, 1), which the kept symbols share in their order, each by its probability
 *
 * Threads: one at a time per struct.
 * Errors:  ASHLAR_EFORMAT (a logit is not finite).
 * Cost:    O(V); with top-k or top-p a sort. Takes no memory.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__sampling_draw(ashlar_sampling *sampling, double number,
                                                      int32_t *symbol);

#endif /* ASHLAR_SAMPLING_H */
