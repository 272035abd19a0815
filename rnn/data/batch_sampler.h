/*
 * batch_sampler.h - an endless, seeded series of batches of items of similar length (internal).
 *
 *     epoch    a seeded permutation of all items; epochs follow each other without a break
 *     window   the next `window` * `batch` items of that, sorted by length and cut into batches,
 *              which are handed out in seeded random order
 *
 * So the lengths within a batch are similar, and those of successive batches differ.
 *
 * Threads: one at a time per batch sampler.
 */
#ifndef ASHLAR_BATCH_SAMPLER_H
#define ASHLAR_BATCH_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

#include <ashlar/status.h>

#include "allocator/base/random.h"

enum { ASHLAR_BATCH_SAMPLER_WINDOW = 16 }; /* the usual number of batches per window */

typedef struct ashlar_batch_sampler ashlar_batch_sampler;

typedef struct ashlar_batch_sampler_item {
    size_t number; /* the caller's own */
    size_t length;
} ashlar_batch_sampler_item;

/*
 * Set up the batch sampler of `count` items, which are copied.
 *
 * batch    items per batch, 1..; items repeat where there are fewer
 * window   batches per window, 1..
 *
 * Ownership: *out is the caller's.
 * Errors:    ASHLAR_EINVAL (no item; batch or window is 0), ASHLAR_EOVERFLOW, ASHLAR_EHOSTMEM.
 * Cost:      host memory O(count + window * batch), all of it taken here.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__batch_sampler_create(const ashlar_batch_sampler_item *items,
                                                             size_t count, size_t batch,
                                                             size_t window, uint64_t seed,
                                                             ashlar_batch_sampler **out);
void ashlar__batch_sampler_destroy(ashlar_batch_sampler *batch_sampler); /* NULL is allowed */

/* The next batch: `batch` items, longest first, until the next call. */
const ashlar_batch_sampler_item *ashlar__batch_sampler_next(ashlar_batch_sampler *batch_sampler);

/* Pass over the next `batches` batches, as if they had been handed out. */
void ashlar__batch_sampler_skip(ashlar_batch_sampler *batch_sampler, uint64_t batches);

/* Epochs that were handed out. */
double ashlar__batch_sampler_epochs(const ashlar_batch_sampler *batch_sampler);

/* The generator as it is now: a batch sampler at the same place of the same order has the same. */
ashlar_random ashlar__batch_sampler_random(const ashlar_batch_sampler *batch_sampler);

#endif /* ASHLAR_BATCH_SAMPLER_H */
