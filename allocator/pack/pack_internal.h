/*
 * pack_internal.h - the parts of the packer: items, taken addresses, the best plan so far, and the
 * methods that improve it (internal).
 *
 * Functions that return `ashlar_status` fail only with ASHLAR_EHOSTMEM, once the arguments of
 * ashlar_pack() are checked.
 */
#ifndef ASHLAR_PACK_INTERNAL_H
#define ASHLAR_PACK_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/plan.h>

/* ---- memory ---- */

/* All memory of a packing. It lives until ashlar__pack_memory_finish(). */
typedef struct ashlar_pack_memory {
    struct ashlar_pack_chunk *chunks;
    bool has_failed; /* some allocation has; it is never reset */
} ashlar_pack_memory;

/* An array of zeros. NULL, and has_failed, if there is no host memory. */
void *ashlar__pack_alloc(ashlar_pack_memory *m, size_t count, size_t bytes);

/* A larger copy of an array if it has room for less than `needed`; else `array` itself. NULL as
 * above; the old array remains then. */
void *ashlar__pack_grow(ashlar_pack_memory *m, void *array, size_t *capacity, size_t needed,
                        size_t bytes);

/* ASHLAR_EHOSTMEM if an allocation has failed. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_memory_check(const ashlar_pack_memory *m);

void ashlar__pack_memory_finish(ashlar_pack_memory *m);

/* ---- items ---- */

/* Invariants: bytes > 0, a multiple of the alignment; first < end <= section_count. */
typedef struct ashlar_pack_item {
    size_t bytes;
    uint32_t first, end; /* live in sections [first, end) */
} ashlar_pack_item;

/*
 * The buffers to pack. Time is divided into sections: a section is a maximal set of buffers that
 * are all live at once. So there are at most as many sections as buffers, each buffer is live in a
 * run of sections, and two buffers are live together if and only if they share a section.
 *
 * Invariants: section_count <= count;
 *   loads[s] == sum of bytes of the items live in s;  peak_bytes == max of loads (0: no item)
 *   sum of all bytes < SIZE_MAX, so that no sum of sizes or offset of a plan wraps
 */
typedef struct ashlar_pack_items {
    ashlar_pack_item *items; /* [count], in the order of the buffers */
    size_t count;
    size_t *loads; /* [section_count] */
    size_t section_count;
    size_t peak_bytes;
    uint32_t peak_section; /* the first section with that load */
} ashlar_pack_items;

/* alignment: a power of two. Errors: those of ashlar_pack(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_items_init(ashlar_pack_items *out,
                                                        ashlar_pack_memory *memory,
                                                        const ashlar_pack_buffer *buffers,
                                                        size_t count, size_t alignment);

static inline uint32_t ashlar__pack_life(const ashlar_pack_item *item) {
    return item->end - item->first;
}

/* base^(eighths / 8), eighths <= 15. By square roots, which every machine rounds alike, unlike
 * pow(). */
double ashlar__pack_power(double base, unsigned eighths);

/* ---- addresses taken in each section ---- */

typedef struct ashlar_pack_occupancy ashlar_pack_occupancy;

/* section_count > 0. NULL: no host memory. */
ashlar_pack_occupancy *ashlar__pack_occupancy_create(ashlar_pack_memory *memory,
                                                     size_t section_count);

/* Make all addresses free. */
void ashlar__pack_occupancy_clear(ashlar_pack_occupancy *occupancy);

/* The lowest gap at or above `from` that is free in all of the item's sections and large enough for
 * it. Returns where it begins; *gap_end is where it ends, SIZE_MAX if nothing is above it. */
size_t ashlar__pack_occupancy_gap(const ashlar_pack_occupancy *occupancy,
                                  const ashlar_pack_item *item, size_t from, size_t *gap_end);

/* Take the item's bytes from `offset` on, which must be free. False: no host memory. */
bool ashlar__pack_occupancy_add(ashlar_pack_occupancy *occupancy, const ashlar_pack_item *item,
                                size_t offset);

/* ---- the best plan so far ---- */

/* Invariants: is_stopped is never reset;  begin_ms <= told_ms <= the clock. */
typedef struct ashlar_pack_budget {
    const ashlar_pack_options *options;
    uint64_t begin_ms, told_ms; /* monotonic clock: start of the call, last progress report */
    ashlar_pack_progress now;   /* the packer sets plan_bytes, bound_bytes and strategy */
    bool has_deadline;          /* false: the time budget is ignored, as for the greedy orders */
    bool is_stopped;
} ashlar_pack_budget;

/*
 * Invariants: plan_bytes == highest end of `offsets`, or SIZE_MAX if there is no plan yet;
 *             problem->peak_bytes <= plan_bytes
 */
typedef struct ashlar_pack_state {
    const ashlar_pack_items *problem;
    ashlar_pack_memory *memory;
    size_t target_bytes; /* the packer is done once plan_bytes <= target_bytes */
    size_t plan_bytes;   /* SIZE_MAX: no plan yet */
    size_t *offsets;     /* [count], of the best plan */
    const char *strategy;
    ashlar_pack_budget budget;
    ashlar_pack_occupancy *occupancy;
    uint32_t *order; /* [count], scratch: items in the order of placing */
    double *keys;    /* [count], scratch, by item: larger keys are placed earlier */
    size_t *trial;   /* [count], scratch: offsets of the plan being made */
} ashlar_pack_state;

/* The monotonic clock. */
uint64_t ashlar__pack_now_ms(void);

/* Read the clock, and report progress if it is time to. Returns false if the packer must stop. */
bool ashlar__pack_has_time(ashlar_pack_state *state);

/* The highest end of an item in a plan. */
size_t ashlar__pack_highest_end(const ashlar_pack_items *problem, const size_t *offsets);

/* Make `state->trial`, a plan of `bytes` bytes, the best plan if it is smaller. */
void ashlar__pack_keep_trial(ashlar_pack_state *state, size_t bytes);

/* Place all items, those of the largest keys first, each at the lowest offset where it fits. Their
 * offsets go to `trial`. *bytes is the highest end. It is SIZE_MAX if that end is not below
 * `limit`, or if the budget ran out on the way and there is a plan already. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_place(ashlar_pack_state *state, size_t limit,
                                                   size_t *bytes);

/* ---- methods: they keep the best plan in `state`, and stop at its target ---- */

/* Try greedy orders, at most the first `order_count`, until a plan is close to the target. The
 * first order is completed even without budget. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_greedy(ashlar_pack_state *state, size_t order_count);

/* Plans that always fill the lowest valley (see pack_valley.c). NULL: no host memory. */
typedef struct ashlar_pack_valley ashlar_pack_valley;
ashlar_pack_valley *ashlar__pack_valley_create(ashlar_pack_state *state);
void ashlar__pack_valley_run(ashlar_pack_valley *valley, uint64_t plan_count);

/* Plans made smaller by moving items. `unit` divides all sizes. If there is no plan yet, one is
 * made even without budget. */
typedef struct ashlar_pack_eject ashlar_pack_eject;
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_eject_create(ashlar_pack_state *state, size_t unit,
                                                          ashlar_pack_eject **out);
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_eject_run(ashlar_pack_eject *eject,
                                                       uint64_t move_count);

/* The exact search for a plan of at most `capacity` bytes, in at most `steps` steps. FOUND: the
 * plan is state->trial. */
typedef enum ashlar_pack_outcome {
    ASHLAR_PACK_FOUND,
    ASHLAR_PACK_IMPOSSIBLE, /* there is no such plan */
    ASHLAR_PACK_UNDECIDED,  /* the steps or the budget were used up */
} ashlar_pack_outcome;

typedef struct ashlar_pack_search ashlar_pack_search;
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_search_create(ashlar_pack_state *state,
                                                           ashlar_pack_search **out);
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_search_run(ashlar_pack_search *search, size_t capacity,
                                                        uint64_t steps,
                                                        ashlar_pack_outcome *outcome);

/* ---- which items ejection may move ---- */

/* Addresses [begin, end) that no fixed item uses. */
typedef struct ashlar_pack_gap {
    size_t begin, end;
} ashlar_pack_gap;

/*
 * Long-lived items are fixed: they stay where a plan has them. Most items that share a section with
 * any item are long-lived, and moving one would move many others. So a move of a short-lived item
 * looks at the few items that may be moved, and at the gaps between the fixed ones, which are found
 * once for each item.
 *
 * Invariants:
 *   the movable items live in section s are listed[i] for starts[s] <= i < starts[s + 1];
 *   the first begin_counts[s] of them begin in s
 *   a fixed item ends at or below fixed_top
 */
typedef struct ashlar_pack_movable {
    const ashlar_pack_items *problem;
    ashlar_pack_memory *memory;
    bool *is_movable; /* [count] */
    size_t fixed_top;
    size_t plan_top; /* highest end in the plan; no gap above it is of use */
    size_t *starts;  /* [section_count + 1] */
    uint32_t *begin_counts;
    uint32_t *listed;
    size_t listed_capacity;
    ashlar_pack_occupancy *fixed;
    ashlar_pack_gap *gaps; /* one run for each item whose gaps were looked for */
    size_t gap_count, gap_capacity;
    size_t *gap_begins, *gap_ends; /* [count], each item's run in `gaps`; equal: none yet */
} ashlar_pack_movable;

ASHLAR_MUST_CHECK ashlar_status ashlar__pack_movable_init(ashlar_pack_movable *m,
                                                          ashlar_pack_memory *memory,
                                                          const ashlar_pack_items *problem);

/* Make the items movable that live at most `life` sections and, as long as the lists do not become
 * too long, those that end above `goal` in `plan`. Fix all others where `plan` has them. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_movable_choose(ashlar_pack_movable *m,
                                                            const size_t *plan, uint32_t life,
                                                            size_t goal);

/* Find the movable items, placed or not, that share a section with `item`. Returns their number.
 *
 * out   [count + 1], these items, without `item` itself */
size_t ashlar__pack_movable_neighbours(const ashlar_pack_movable *m, uint32_t item, uint32_t *out);

/* Where a placed movable item begins or ends. It shares a section with the item to place. */
typedef struct ashlar_pack_mark {
    size_t at;
    double cost; /* of taking that item out; > 0 */
} ashlar_pack_mark;

/*
 * Find the lowest offset of `item` at which the items in the way cost least. Placed items may
 * overlap each other.
 *
 * begins, ends   [placed_count], of the same items; sorted here
 * capacity       limit to the item's end
 * cost           0: none is in the way. Infinity: it fits in no gap, and *offset is unchanged.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__pack_movable_cheapest(ashlar_pack_movable *m, uint32_t item,
                                                              ashlar_pack_mark *begins,
                                                              ashlar_pack_mark *ends,
                                                              size_t placed_count, size_t capacity,
                                                              double *cost, size_t *offset);

#endif /* ASHLAR_PACK_INTERNAL_H */
