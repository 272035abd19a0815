/* batch_sampler.h - an endless, seeded series of batches of items of similar length (internal).
 *
 *     epoch    a seeded permutation of all items; epochs follow each other without a break
 *     window   the next `window` * `batch` items of an epoch, sorted by length, cut into batches,
 *              and handed out in seeded random order
 *
 * So lengths are similar within a batch, but differ from batch to batch.
 *
 * Threads: one at a time per batch sampler. */
#ifndef ASHLAR_BATCH_SAMPLER_H
#define ASHLAR_BATCH_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

#include <ashlar/base.h>

#include "allocator/base/random.h"

enum { ASHLAR_BATCH_SAMPLER_WINDOW = 16 }; /* the usual number of batches per window */

typedef struct ashlar_batch_sampler ashlar_batch_sampler;

typedef struct ashlar_batch_sampler_item {
    size_t number; /* the caller's number for the item */
    size_t length;
} ashlar_batch_sampler_item;

/* Sort items, the longest first; those of one length by their numbers. */
void ashlar__batch_sort_items(ashlar_batch_sampler_item *items, size_t count);

/* Create a batch sampler over `count` items. The items are copied.
 *
 * batch    items per batch, 1..; if `count` is less, a batch has items more than once
 * window   batches per window, 1..
 *
 * Ownership: *out is the caller's.
 * Errors:    ASHLAR_EINVAL (no item; batch or window is 0), ASHLAR_EOVERFLOW, ASHLAR_EHOSTMEM.
 * Cost:      host memory O(count + window * batch), all of it taken here. */
ASHLAR_MUST_CHECK ashlar_status ashlar__batch_sampler_create(const ashlar_batch_sampler_item *items,
                                                             size_t count, size_t batch,
                                                             size_t window, uint64_t seed,
                                                             ashlar_batch_sampler **out);
void ashlar__batch_sampler_destroy(ashlar_batch_sampler *batch_sampler); /* NULL is allowed */

/* The next batch: `batch` items, longest first. Valid until the next call. */
const ashlar_batch_sampler_item *ashlar__batch_sampler_next(ashlar_batch_sampler *batch_sampler);

void ashlar__batch_sampler_skip(ashlar_batch_sampler *batch_sampler, uint64_t batches);

/* Epochs handed out so far, with the fraction of the current one. */
double ashlar__batch_sampler_epochs(const ashlar_batch_sampler *batch_sampler);

/* The state of the random generator. Samplers of the same items that have the same state draw the
 * same batches from here on. */
ashlar_random ashlar__batch_sampler_random(const ashlar_batch_sampler *batch_sampler);

#endif /* ASHLAR_BATCH_SAMPLER_H */
