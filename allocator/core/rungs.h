/*
 * rungs.h - the rungs of the ladder (ladder.c) that look for memory (internal).
 *
 * A rung that finds nothing leaves *out NULL. The caller holds the allocator's lock, and from rung
 * 2 on has shut all other threads out of their caches.
 */
#ifndef ASHLAR_RUNGS_H
#define ASHLAR_RUNGS_H

#include "allocator/core/slow_path.h"

/* ---- the stream's own memory: rungs_own.c ---- */

/* Rung 1. `gap` is the best of the stream's own gaps; NULL: there is none. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rung_take_own(ashlar_allocator *a, const ashlar_request *r,
                                                      ashlar_block *gap, ashlar_block **out);

static inline ashlar_block *ashlar__rung_own_gap(const ashlar_request *r) {
    return ashlar__free_bins_best_fit(&ashlar__zone_of(r->stream_state, r->bytes)->gaps, r->bytes);
}

/* Rung 1 again, if the best fit has no memory: another gap may have some. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rung_take_mapped(ashlar_allocator *a,
                                                         const ashlar_request *r,
                                                         ashlar_block **out);

/* Rung 2. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rung_take_home(ashlar_allocator *a, const ashlar_request *r,
                                                       ashlar_block **out);

/* Rung 3. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rung_map_new(ashlar_allocator *a, const ashlar_request *r,
                                                     ashlar_block **out);

/* Rung 6. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rung_map_free(ashlar_allocator *a, const ashlar_request *r,
                                                      ashlar_block **out);

/* ---- other streams' memory: rungs_others.c ---- */

/* Before rung 4: find out how far the work on every stream has come. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rung_ask_all(ashlar_allocator *a);

/* Rung 4. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rung_borrow_past(ashlar_allocator *a,
                                                         const ashlar_request *r,
                                                         ashlar_block **out);

/* Rung 5. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rung_borrow_waited(ashlar_allocator *a,
                                                           const ashlar_request *r,
                                                           ashlar_block **out);

/* After rung 10: take the place, in any zone, where the request needs the fewest handles. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rung_take_anywhere(ashlar_allocator *a,
                                                           const ashlar_request *r,
                                                           ashlar_block **out);

/* ---- for both ---- */

/* One of a zone's best few gaps that has memory and, with is_past_only, is past; NULL: none. */
ashlar_block *ashlar__rung_mapped_gap(const ashlar_allocator *a, const ashlar_zone *zone,
                                      const ashlar_request *r, bool is_past_only);

/* Take bytes of a gap from `offset` on. All memory behind them must be mapped. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rung_take_at(ashlar_allocator *a, const ashlar_request *r,
                                                     ashlar_block *gap, size_t offset,
                                                     ashlar_block **out);

/* The kinds of memory that a request may map: sealed, the allocator may only use what it has. */
unsigned ashlar__rung_may_create(ashlar_allocator *a);

#endif /* ASHLAR_RUNGS_H */
