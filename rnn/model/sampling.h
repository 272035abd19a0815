/* sampling.h - drawing a symbol from logits: temperature, top-k, top-p (internal). A draw depends
 * on nothing but its configuration, the logits and one number, so a seed's text is the same on
 * every device that computes the same logits. */
#ifndef ASHLAR_SAMPLING_H
#define ASHLAR_SAMPLING_H

#include <stddef.h>
#include <stdint.h>

#include <ashlar/status.h>

/* The symbol with the larger logit is likelier; of equal logits, the one with the lower number.
 * Temperature first gives each symbol its probability, then top_k drops symbols, then top_p does;
 * the probabilities of the kept symbols keep their ratios. */
typedef struct ashlar_sampling_config {
    double temperature; /* >= 0: below 1 sharpens, above 1 flattens; 0: always the likeliest */
    size_t top_k;       /* keep the top_k likeliest symbols; 0: all */
    double top_p;       /* of the symbols that top_k keeps, keep the fewest likeliest ones, at least
                         * one, that have this share of the probability; 1: all */
} ashlar_sampling_config;

typedef struct ashlar_sampling {
    ashlar_sampling_config config;
    size_t classes;       /* V, 1.. */
    float *logits;        /* [V], host; the caller writes them before each draw */
    float *probabilities; /* [V], of the last draw; 0 for a dropped symbol */
    uint32_t *ranking;    /* [V], a permutation of the symbols */
} ashlar_sampling;

/* Take host memory for `classes` symbols, 1 .. 2^31. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__sampling_init(ashlar_sampling *sampling, size_t classes,
                                                      const ashlar_sampling_config *config);
void ashlar__sampling_finish(ashlar_sampling *sampling); /* a zeroed struct is allowed */

/* Draw a symbol from sampling->logits.
 *
 * number   in [0, 1). The kept symbols divide this range among them, in the order of their numbers,
 *          in proportion to their probabilities; the symbol whose part contains `number` is drawn
 *
 * Threads: one at a time per struct.
 * Errors:  ASHLAR_EFORMAT (a logit is not finite).
 * Cost:    O(V); with top-k or top-p a sort. Takes no memory. */
ASHLAR_MUST_CHECK ashlar_status ashlar__sampling_draw(ashlar_sampling *sampling, double number,
                                                      int32_t *symbol);

#endif /* ASHLAR_SAMPLING_H */
