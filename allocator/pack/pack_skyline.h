/*
 * pack_skyline.h - a plan that the exact search fills from the bottom up (internal).
 *
 * If there is a plan at all, there is one in which no item can sink: each rests on another item or
 * at offset 0. The floor of a section is where the next item in it would rest. A valley is a run of
 * sections with one floor that is lower than its neighbours on both sides. On each section of that
 * floor rests either an item that lies wholly inside the valley, or nothing. So the candidates of a
 * section are the unplaced items that fit into the valley there, and "nothing". At an edge of the
 * valley, its first or last section, there are few: only items that begin (or end) exactly there.
 */
#ifndef ASHLAR_PACK_SKYLINE_H
#define ASHLAR_PACK_SKYLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/pack/pack_items.h"

#define ASHLAR_PACK_DONE SIZE_MAX   /* the floor of a section without unplaced items: a wall */
#define ASHLAR_PACK_NONE UINT32_MAX /* no item */

/* What undoing restores: an item's placement, or the former state of a section. */
typedef struct ashlar_pack_change {
    size_t floor;
    uint32_t idx; /* of an item that was placed, or of a section that was changed */
    bool is_item, was_closed;
} ashlar_pack_change;

/*
 * Invariants, for each section s:
 *   rests[s] == sum of bytes of the unplaced items live in s
 *   floors[s] >= highest end of a placed item live in s, or DONE if and only if rests[s] == 0
 *   floors[s] + rests[s] <= capacity, unless DONE
 *   crossings[s] == number of unplaced items live in both s - 1 and s; 0 at either end
 *   is_closed[s]: no item will rest on floors[s] in section s
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
    size_t *offsets;             /* by item, for placed items */
    uint32_t *by_first, *by_end; /* all items, sorted by `first` or `end`; those of section s ... */
    uint32_t *first_at, *end_at; /* ... start at first_at[s], end_at[s], [section_count + 2] */
    uint32_t *duplicates;        /* by item: an equal item that must be placed before it, or NONE */
    size_t *fills;               /* [section_count + 1], scratch of pack_skyline_edges.c */
    ashlar_pack_change *changes; /* all changes since the skyline was empty, oldest first */
    size_t change_count, change_capacity;
    bool has_failed; /* no host memory to record a change: the skyline is useless */
} ashlar_pack_skyline;

/* An edge of a valley, where the search continues. */
typedef struct ashlar_pack_edge {
    uint32_t first, end;      /* a run of the valley's sections that are not closed */
    bool is_right;            /* the edge is section end - 1; false: section first */
    bool may_stay_empty;      /* "nothing rests there" is a candidate, too */
    uint32_t candidate_count; /* >= 1; "nothing" is counted, too */
} ashlar_pack_edge;

typedef enum ashlar_pack_edge_result {
    ASHLAR_PACK_EDGE,   /* there is a candidate */
    ASHLAR_PACK_STUCK,  /* an edge has no candidate: no plan has these placements */
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
 * Find the edge with the fewest candidates, divided by its section's weight, in the sections
 * [first, end). No unplaced item may cross the ends of this run. On the way, a valley in which
 * nothing more can rest is filled up: its floor rises to the lower neighbour.
 *
 * weights   by section; edges of heavier sections come earlier
 * edge      the edge if the result is EDGE, else undefined
 * stuck     if the result is STUCK: the section that cannot be filled
 */
ashlar_pack_edge_result ashlar__pack_skyline_find_edge(ashlar_pack_skyline *skyline, uint32_t first,
                                                       uint32_t end, const uint32_t *weights,
                                                       ashlar_pack_edge *edge, uint32_t *stuck);

static inline uint32_t ashlar__pack_edge_section(const ashlar_pack_edge *edge) {
    return edge->is_right ? edge->end - 1 : edge->first;
}

/*
 * Write the items that may rest at an edge to out [candidate_count], unless it is NULL. Returns
 * their number.
 */
uint32_t ashlar__pack_skyline_candidates(const ashlar_pack_skyline *skyline,
                                         const ashlar_pack_edge *edge, uint32_t *out);

/* Place `item`, which must be a candidate, on the floor below it. */
void ashlar__pack_skyline_place(ashlar_pack_skyline *skyline, uint32_t item);

/* Decide that nothing rests on the floor of `section`. */
void ashlar__pack_skyline_close(ashlar_pack_skyline *skyline, uint32_t section);

/* Raise the floors of sections [first, end) to `floor`, and open these sections again. */
void ashlar__pack_skyline_level(ashlar_pack_skyline *skyline, uint32_t first, uint32_t end,
                                size_t floor);

/* Undo the newest changes until `change_count` are left. */
void ashlar__pack_skyline_undo(ashlar_pack_skyline *skyline, size_t change_count);

/* Widen [*first, *end) to all sections that unplaced items connect with it. */
void ashlar__pack_skyline_connect(const ashlar_pack_skyline *skyline, uint32_t *first,
                                  uint32_t *end);

/* A hash, never 0, of everything on which filling the connected sections [first, end) depends. */
uint64_t ashlar__pack_skyline_key(const ashlar_pack_skyline *skyline, uint32_t first, uint32_t end);

#endif /* ASHLAR_PACK_SKYLINE_H */
