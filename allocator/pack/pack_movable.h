/*
 * pack_movable.h - which items may be moved, which of them live at the same time, and the gaps
 * between the fixed items (internal).
 *
 * Long-lived items are fixed: they stay where a plan has them. Most items that share a section with
 * any item are long-lived, and moving one would move many others. So a move of a short-lived item
 * looks at the few items that may be moved, and at the gaps between the fixed ones, which are found
 * once for each item.
 */
#ifndef ASHLAR_PACK_MOVABLE_H
#define ASHLAR_PACK_MOVABLE_H

#include <stdbool.h>

#include "allocator/pack/pack_items.h"
#include "allocator/pack/pack_occupancy.h"

/* [begin, end), free of fixed items. */
typedef struct ashlar_pack_gap {
    size_t begin, end;
} ashlar_pack_gap;

/*
 * Invariants:
 *   the movable items live in section s are listed[i] for starts[s] <= i < starts[s + 1];
 *   the first begin_counts[s] of them begin in s
 *   a fixed item ends at or below fixed_top
 */
typedef struct ashlar_pack_movable {
    const ashlar_pack_items *problem;
    const size_t *plan; /* [count], the offsets that fixed items keep */
    bool *is_movable;   /* [count] */
    size_t fixed_top;
    size_t plan_top; /* no gap above it is of use */
    size_t *starts;  /* [section_count + 1] */
    uint32_t *begin_counts;
    uint32_t *listed;
    size_t listed_capacity;
    ashlar_pack_occupancy *fixed;
    ashlar_pack_gap *gaps; /* of all items whose gaps were looked for */
    size_t gap_count, gap_capacity;
    size_t *gap_begins, *gap_ends; /* [count], in `gaps`; equal: not looked for yet */
} ashlar_pack_movable;

/* Ownership: the caller ends *m with ashlar__pack_movable_finish(), also after a failure; `problem`
 * must outlive it. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_movable_init(ashlar_pack_movable *m,
                                                          const ashlar_pack_items *problem);
void ashlar__pack_movable_finish(ashlar_pack_movable *m);

/* The largest power of two n, at least 1, for which this holds: of the items that live at most n
 * sections, on average at most `live_count` are live at once. */
uint32_t ashlar__pack_movable_life(const ashlar_pack_items *problem, uint32_t live_count);

/* Make the items movable that live at most `life` sections and, as long as the lists do not become
 * too long, those that end above `goal` in `plan`. Fix all others. `plan` must outlive *m, and the
 * offsets of fixed items must not change. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_movable_choose(ashlar_pack_movable *m,
                                                            const size_t *plan, uint32_t life,
                                                            size_t goal);

/* Find the movable items, placed or not, that share a section with `item`. Returns their number.
 *
 * out   [count], these items, without `item` itself */
size_t ashlar__pack_movable_neighbours(const ashlar_pack_movable *m, uint32_t item, uint32_t *out);

/* The gaps between fixed items that `item` fits in, ascending; *count is at least 1. The last may
 * end at SIZE_MAX. They are valid until the next call. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_movable_gaps(ashlar_pack_movable *m, uint32_t item,
                                                          const ashlar_pack_gap **gaps,
                                                          size_t *count);

#endif /* ASHLAR_PACK_MOVABLE_H */
