/*
 * pack_skyline.h - a plan that the exact search fills from the bottom up (internal).
 *
 * If there is a plan at all, there is one in which no item can sink: each rests on another or on
 * 0. A valley is a run of sections with one floor that is lower than both neighbours. In each of
 * its sections either an item rests on that floor, one that sticks out of the valley at neither
 * side, or nothing does. So a section has few candidates: the unplaced items that fit there, or
 * none. At a valley's edge these are only the items that begin (or end) right there.
 */
#ifndef ASHLAR_PACK_SKYLINE_H
#define ASHLAR_PACK_SKYLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/pack/pack_items.h"

#define ASHLAR_PACK_DONE SIZE_MAX   /* the floor of a section without unplaced items: a wall */
#define ASHLAR_PACK_NONE UINT32_MAX /* no item */

/* What undoing brings back: an item's placing, or a section as it was. */
typedef struct ashlar_pack_change {
    size_t floor;
    uint32_t idx; /* of an item that was placed, or of a section */
    bool is_item, was_closed;
} ashlar_pack_change;

/*
 * Invariants, for each section s:
 *   rests[s] == sum of bytes of the unplaced items live in s
 *   floors[s] >= highest end of a placed item live in s, or DONE if and only if rests[s] == 0
 *   floors[s] + rests[s] <= capacity, unless DONE
 *   crossings[s] == number of unplaced items live in both s - 1 and s; 0 at either end
 *   is_closed[s]: no item will rest on floors[s] there
 *   left_keys[s] == exclusive or of the keys of the unplaced items whose first section is s
 */
typedef struct ashlar_pack_skyline {
    const ashlar_pack_items *problem;
    size_t capacity;
    size_t *floors, *rests;
    uint32_t *crossings; /* [section_count + 1] */
    bool *is_closed;
    uint64_t *left_keys;
    bool *is_placed;             /* by item */
    size_t *offsets;             /* by item, of the placed ones */
    uint32_t *by_first, *by_end; /* items, ascending; those of section s start at ... */
    uint32_t *first_at, *end_at; /* ... first_at[s], end_at[s], both [section_count + 2] */
    uint32_t *duplicates;        /* by item: an equal one that has to be placed earlier, or NONE */
    size_t *fills;               /* scratch of the check of a valley: [section_count + 1] */
    ashlar_pack_change *changes; /* since the skyline was empty, oldest first */
    size_t change_count, change_capacity;
    bool has_failed; /* no host memory to record a change: the skyline is useless from now on */
} ashlar_pack_skyline;

/* An edge of a valley: where the search goes on. */
typedef struct ashlar_pack_edge {
    uint32_t first, end;      /* of the valley, without closed sections */
    bool is_right;            /* the section is end - 1, otherwise first */
    bool may_stay_empty;      /* that nothing rests there is a candidate too */
    uint32_t candidate_count; /* with that one; at least 1 */
} ashlar_pack_edge;

typedef enum ashlar_pack_edge_result {
    ASHLAR_PACK_EDGE,   /* there is a candidate */
    ASHLAR_PACK_STUCK,  /* there is none: this cannot become a plan */
    ASHLAR_PACK_FILLED, /* nothing is left to place */
} ashlar_pack_edge_result;

/*
 * Ownership: the caller ends *out with ashlar__pack_skyline_finish(); `problem` must outlive it.
 * Errors:    ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_skyline_init(ashlar_pack_skyline *out,
                                                          const ashlar_pack_items *problem);
void ashlar__pack_skyline_finish(ashlar_pack_skyline *skyline); /* all 0 is allowed */

/*
 * Find the edge with the fewest candidates for its weight in the sections [first, end), whose ends
 * no unplaced item crosses. Valleys that have to stay empty are filled up on the way.
 *
 * weights   by section: the heavier, the earlier
 * edge      written where the result is EDGE; may be overwritten otherwise
 * stuck     written where the result is STUCK: a section to blame
 */
ashlar_pack_edge_result ashlar__pack_skyline_find_edge(ashlar_pack_skyline *skyline, uint32_t first,
                                                       uint32_t end, const uint32_t *weights,
                                                       ashlar_pack_edge *edge, uint32_t *stuck);

static inline uint32_t ashlar__pack_edge_section(const ashlar_pack_edge *edge) {
    return edge->is_right ? edge->end - 1 : edge->first;
}

/* The items that may rest at an edge, into out [candidate_count], or NULL. Returns how many. */
uint32_t ashlar__pack_skyline_candidates(const ashlar_pack_skyline *skyline,
                                         const ashlar_pack_edge *edge, uint32_t *out);

/* Place `item`, one of the candidates, on the floor below it. */
void ashlar__pack_skyline_place(ashlar_pack_skyline *skyline, uint32_t item);

/* Let nothing rest on the floor of `section`. */
void ashlar__pack_skyline_close(ashlar_pack_skyline *skyline, uint32_t section);

/* Raise the sections [first, end) to `floor`, and open them again. */
void ashlar__pack_skyline_level(ashlar_pack_skyline *skyline, uint32_t first, uint32_t end,
                                size_t floor);

/* Undo the newest changes until `change_count` are left. */
void ashlar__pack_skyline_undo(ashlar_pack_skyline *skyline, size_t change_count);

/* Widen *first and *end to all sections that unplaced items connect with [*first, *end). */
void ashlar__pack_skyline_connect(const ashlar_pack_skyline *skyline, uint32_t *first,
                                  uint32_t *end);

/* A hash, not 0, of all that decides how the connected sections [first, end) can be filled. */
uint64_t ashlar__pack_skyline_key(const ashlar_pack_skyline *skyline, uint32_t first, uint32_t end);

#endif /* ASHLAR_PACK_SKYLINE_H */
