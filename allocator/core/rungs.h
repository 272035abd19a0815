/*
 * rungs.h - the rungs of the ladder (ladder.c) that look for memory (internal).
 *
 * A rung that finds nothing leaves *out NULL. The caller holds the allocator's lock and, from rung
 * 2 on, has shut all other threads out of their caches.
 */
#ifndef ASHLAR_RUNGS_H
#define ASHLAR_RUNGS_H

#include "allocator/core/slow_path.h"

/* ---- the stream's own memory: rungs_own.c ---- */

/* Rung 1: take a gap of the stream's own zone. `gap` is the best one; NULL: no gap fits. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rung_take_own(ashlar_allocator *a, const ashlar_request *r,
                                                      ashlar_block *gap, ashlar_block **out);

static inline ashlar_block *ashlar__rung_own_gap(const ashlar_request *r) {
    return ashlar__free_bins_best_fit(&ashlar__zone_of(r->stream_state, r->bytes)->gaps, r->bytes);
}

/* Rung 1 again, if the best gap has no memory: another gap may have some. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rung_take_mapped(ashlar_allocator *a,
                                                         const ashlar_request *r,
                                                         ashlar_block **out);

/* Rung 2: the same, after blocks came home, or with the zone of an ended stream. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rung_take_home(ashlar_allocator *a, const ashlar_request *r,
                                                       ashlar_block **out);

/* Rung 3: map new memory. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rung_map_new(ashlar_allocator *a, const ashlar_request *r,
                                                     ashlar_block **out);

/* Rung 6: move free memory of any zone to the request's zone. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rung_map_free(ashlar_allocator *a, const ashlar_request *r,
                                                      ashlar_block **out);

/*
 * Before rung 3, for a request of a step, not of a held one, that no slot serves: if its stream's
 * plan memory is idle for more than a plan may cost, end that memory, and take a place in what it
 * leaves free. If it is the memory of the step itself, the step has left its plan by then, and so
 * has its key.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__rung_leave_plan(ashlar_allocator *a,
                                                        const ashlar_request *r,
                                                        ashlar_block **out);

/* When all else has failed: the step that makes the request leaves its plan, so that what its slots
 * leave idle can serve the request. False: it has none. */
bool ashlar__rung_leave_own_plan(ashlar_allocator *a, const ashlar_request *r);

/* Have memory behind a place by moving what is free and past. *is_there false: that is too little.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__rung_move_to(ashlar_allocator *a,
                                                     const ashlar_heap_place *place,
                                                     bool *is_there);

/* ---- other streams' memory: rungs_others.c ---- */

/* Before rung 4: find out how far the work on every stream has come. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rung_ask_all(ashlar_allocator *a);

/* Rung 4 for memory of ended streams, before more is mapped: where memory cannot move, it serves
 * there or nowhere, and a stream that has just ended seldom can be taken over at once. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rung_borrow_ended(ashlar_allocator *a,
                                                          const ashlar_request *r,
                                                          ashlar_block **out);

/* Rung 4: take a gap of another stream whose last use is over. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rung_borrow_past(ashlar_allocator *a,
                                                         const ashlar_request *r,
                                                         ashlar_block **out);

/*
 * Rung 5: take a gap of another stream, and have the request's stream wait for its last use.
 *
 * prompt   only if that wait is for no work that was queued after the gap was freed
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__rung_borrow_waited(ashlar_allocator *a,
                                                           const ashlar_request *r, bool prompt,
                                                           ashlar_block **out);

/* Before and after rung 10: take the place, in any zone, where the request needs the fewest
 * handles. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rung_take_anywhere(ashlar_allocator *a,
                                                           const ashlar_request *r,
                                                           ashlar_block **out);

/* ---- for both files ---- */

/*
 * A place with memory for the request in one of a zone's best few gaps and, if is_past_only, whose
 * last use is past. False: there is none.
 */
bool ashlar__rung_find_place(const ashlar_allocator *a, const ashlar_zone *zone,
                             const ashlar_request *r, bool is_past_only, ashlar_heap_place *out);

/* Take the request's bytes there. All their memory must be mapped. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rung_take_place(ashlar_allocator *a,
                                                        const ashlar_request *r,
                                                        const ashlar_heap_place *place,
                                                        ashlar_block **out);

/*
 * The kinds of memory that a request may map. While sealed, the allocator may use only what it has.
 */
unsigned ashlar__rung_may_create(ashlar_allocator *a);

#endif /* ASHLAR_RUNGS_H */
