/* tiers.h - where what a step keeps from forward to backward lies meanwhile: on the device, on the
 * host, or nowhere, to be computed again (internal). */
#ifndef ASHLAR_TIERS_H
#define ASHLAR_TIERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/base/error.h"

/*
 * A step is a row of moments, which the device works through in their order. An item is a buffer
 * that a forward sweep writes and the backward sweep reads: the forward works with it in the
 * moments first_forward .. last_forward, the backward in first_backward .. last_backward. It is
 *
 *   RESIDENT    live from first_forward to last_backward
 *   HOST        live in first_forward .. out_end and back_begin .. last_backward: it is copied out
 *               after moment last_forward, and back before moment first_backward
 *   RECOMPUTED  live nowhere: it is computed again just before moment first_backward, and what that
 *               and its own moments need is among the bytes of the moments
 *
 * with last_forward <= out_end < back_begin <= first_backward.
 *
 * Three engines work at the same time, each in order: the device's work by moments, copies out by
 * last_forward, copies back by first_backward; equal ones by number. Time passes by these rules:
 *
 *   the place of moment k is free when moment k - 1 and all copies out with out_end < k are over
 *   a copy back begins when the place of moment back_begin is free, its own copy out and the copy
 *   back before it are over
 *   moment k begins when its place is free and all copies back with first_backward <= k are over;
 *   what is computed again before it makes it longer
 */
typedef enum ashlar_tier {
    ASHLAR_TIER_RESIDENT,
    ASHLAR_TIER_HOST,
    ASHLAR_TIER_RECOMPUTED,
    ASHLAR_TIER_COUNT
} ashlar_tier;

typedef struct ashlar_tiers_moment {
    uint64_t ns;
    size_t bytes; /* live in it whatever is chosen: all but items */
} ashlar_tiers_moment;

typedef struct ashlar_tiers_item {
    size_t bytes;
    size_t first_forward, last_forward, first_backward, last_backward; /* moments */
    uint64_t again_ns; /* that computing it again takes, if it */
    bool may_recompute;
} ashlar_tiers_item;

typedef struct ashlar_tiers_table {
    const ashlar_tiers_moment *moments;
    size_t moment_count;
    const ashlar_tiers_item *items;
    size_t item_count;
    uint64_t out_bytes_per_us, back_bytes_per_us; /* rates of copies, > 0 */
    uint64_t copy_ns;                             /* of each copy, beside its bytes' time */
    size_t host_bytes; /* of items that are HOST, at most, if all may be computed again; 0: any */
} ashlar_tiers_table;

typedef struct ashlar_tiers_place {
    ashlar_tier tier;
    size_t out_end, back_begin; /* of HOST */
} ashlar_tiers_place;

typedef struct ashlar_tiers_choice {
    uint64_t ns;                     /* the step takes so long, ... */
    uint64_t bound_ns;               /* ... in no choice less than this, ... */
    uint64_t compute_ns;             /* ... and this with enough memory */
    size_t peak_bytes;               /* most bytes live at once, <= budget */
    size_t bytes[ASHLAR_TIER_COUNT]; /* of the items of each tier */
    bool is_best;                    /* no other tiers take less time */
} ashlar_tiers_choice;

/*
 * Choose the tiers with which a step in `budget` bytes takes the least time. The same arguments
 * give the same choice, on every machine.
 *
 * places  [item_count], written on success
 *
 * Errors: ASHLAR_EINVAL (moments out of order, a rate of 0), ASHLAR_EOVERFLOW (sums of bytes or of
 *         times), ASHLAR_ENOMEM (budget < ashlar__tiers_least(), which the detail names),
 *         ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__tiers_choose(const ashlar_tiers_table *table, size_t budget,
                                                     ashlar_tiers_place *places,
                                                     ashlar_tiers_choice *out);

/* The least budget with which there is a choice. Errors: the same, but ASHLAR_ENOMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__tiers_least(const ashlar_tiers_table *table, size_t *out);

#endif /* ASHLAR_TIERS_H */
