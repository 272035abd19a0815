/*
 * pack_search.h - the exact search for a plan within a capacity (internal).
 *
 * A depth-first search over the candidates at the edges of a skyline (pack_skyline.h); edges with
 * the fewest candidates come first. It is fast because
 *   - a part of the skyline that no unplaced item connects with the rest is a problem of its own: a
 *     failure there undoes nothing elsewhere;
 *   - it remembers parts that were found impossible, also for later searches;
 *   - after a number of nodes it starts again with other preferences among items, and turns first
 *     to the sections where it has failed most.
 */
#ifndef ASHLAR_PACK_SEARCH_H
#define ASHLAR_PACK_SEARCH_H

#include "allocator/pack/pack_skyline.h"
#include "allocator/pack/pack_budget.h"

typedef struct ashlar_pack_search ashlar_pack_search;

typedef enum ashlar_pack_outcome {
    ASHLAR_PACK_FOUND,
    ASHLAR_PACK_IMPOSSIBLE, /* there is no such plan */
    ASHLAR_PACK_UNDECIDED,  /* the node limit or the budget was reached */
} ashlar_pack_outcome;

/* Ownership: the caller destroys *out; `problem` must outlive it.
 * Errors:    ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_search_create(const ashlar_pack_items *problem,
                                                           ashlar_pack_search **out);
void ashlar__pack_search_destroy(ashlar_pack_search *search); /* NULL is allowed */

/*
 * Search for a plan of at most `capacity` bytes, visiting at most `node_limit` nodes.
 *
 * offsets   [count], the plan if the outcome is FOUND; else unchanged
 *
 * Errors: ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_search_run(ashlar_pack_search *search, size_t capacity,
                                                        uint64_t node_limit,
                                                        ashlar_pack_budget *budget, size_t *offsets,
                                                        ashlar_pack_outcome *outcome);

#endif /* ASHLAR_PACK_SEARCH_H */
