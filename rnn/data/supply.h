/*
 * supply.h - an endless, seeded supply of batches of items of similar length (internal).
 *
 *     epoch    a seeded permutation of all items; epochs follow each other without a break
 *     window   the next `window` * `batch` items of that, sorted by length and cut into batches,
 *              which are handed out in seeded random order
 *
 * So the lengths within a batch are similar, and those of successive batches differ.
 *
 * Threads: one at a time per supply.
 */
#ifndef ASHLAR_SUPPLY_H
#define ASHLAR_SUPPLY_H

#include <stddef.h>
#include <stdint.h>

#include <ashlar/status.h>

#include "allocator/base/random.h"

enum { ASHLAR_SUPPLY_WINDOW = 16 }; /* the usual number of batches per window */

typedef struct ashlar_supply ashlar_supply;

typedef struct ashlar_supply_item {
    size_t number; /* the caller's own */
    size_t length;
} ashlar_supply_item;

/*
 * Set up the supply of `count` items, which are copied.
 *
 * batch    items per batch, 1..; items repeat where there are fewer
 * window   batches per window, 1..
 *
 * Ownership: *out is the caller's.
 * Errors:    ASHLAR_EINVAL (no item; batch or window is 0), ASHLAR_EOVERFLOW, ASHLAR_EHOSTMEM.
 * Cost:      host memory O(count + window * batch), all of it taken here.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_supply_create(const ashlar_supply_item *items, size_t count,
                                                     size_t batch, size_t window, uint64_t seed,
                                                     ashlar_supply **out);
void ashlar_supply_destroy(ashlar_supply *supply); /* NULL is allowed */

/* The next batch: `batch` items, longest first, until the next call. */
const ashlar_supply_item *ashlar_supply_next(ashlar_supply *supply);

/* Pass over the next `batches` batches, as if they had been handed out. */
void ashlar_supply_skip(ashlar_supply *supply, uint64_t batches);

/* Epochs that were handed out. */
double ashlar_supply_epochs(const ashlar_supply *supply);

/* The generator as it is now: a supply at the same place of the same order has the same. */
ashlar_random ashlar_supply_random(const ashlar_supply *supply);

#endif /* ASHLAR_SUPPLY_H */
