/*
 * tagger_estimate.h - what memory a training of the tagger needs, and why (internal).
 *
 * It is computed from the configuration and the shape of the largest batch, of which no allocator
 * is asked: what one then takes can be held against it.
 *
 *     needed = bytes of the arena's regions + of the batches that are in device memory
 *            + the most that a step's buffers have in one phase
 */
#ifndef ASHLAR_TAGGER_ESTIMATE_H
#define ASHLAR_TAGGER_ESTIMATE_H

#include <stdio.h>

#include "rnn/model/tagger.h"

typedef struct ashlar_tagger_estimate {
    const ashlar_tagger *tagger;
    ashlar_tagger_shape shape;
    ashlar_tagger_bytes buffers;
    ashlar_tagger_phase peak;
    size_t weights_bytes; /* of all of the arena's regions */
    size_t batches_bytes; /* of all batches */
    size_t step_bytes;    /* at the peak */
    size_t needed_bytes;
} ashlar_tagger_estimate;

/*
 * batches   in device memory at once: this step's, and those that are copied meanwhile
 *
 * Ownership: the tagger must outlive *out.  Errors: those of ashlar__tagger_sizes().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__tagger_estimate_make(const ashlar_tagger *tagger,
                                                             const ashlar_tagger_shape *shape,
                                                             size_t batches,
                                                             ashlar_tagger_estimate *out);

/*
 * Print it: every region and every buffer with its shape, its bytes and when it is live, and the
 * sum at the peak beside what was measured.
 *
 * measured_bytes   0: it was not
 */
void ashlar__tagger_estimate_print(FILE *out, const ashlar_tagger_estimate *estimate,
                                   uint64_t measured_bytes);

#endif /* ASHLAR_TAGGER_ESTIMATE_H */
