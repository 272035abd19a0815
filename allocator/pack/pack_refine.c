/* pack_refine.c - improves a plan in rounds of growing effort: moves items, makes plans valley by
 * valley, and runs the exact search at chosen capacities. */
#include "allocator/pack/pack_greedy.h"

#include <stdbool.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/pack/pack_eject.h"
#include "allocator/pack/pack_search.h"
#include "allocator/pack/pack_valley.h"

enum {
    MOVES_OF_ITEM = 16,          /* moves for each item, before the first plan by pack_valley.h */
    VALLEY_PLANS = 16,           /* plans by pack_valley.h before the first search */
    STEPS = 1 << 20,             /* steps of the first search for the target */
    STEPS_OF_CAPACITY = 1 << 21, /* the same if a capacity is given: a plan above it is of little
                                  * use */
    STEPS_SHARE = 8,             /* a search above the target gets 1/8 of these steps */
    GROWTH = 4,                  /* factor of moves, plans and steps, from one round to the next */
    AREA_MAX = 1 << 22,          /* most sections, summed over all items, for a search */
    SECTIONS = 512,              /* with more sections a step takes longer: make fewer steps */
};

_Static_assert((uint64_t)STEPS * SECTIONS / AREA_MAX >= STEPS_SHARE, "every search has a step");

/* Invariants: proven_bytes <= smallest possible plan <= state->plan_bytes, multiples of `unit`. */
typedef struct refinement {
    ashlar_pack_state *state;
    ashlar_pack_eject *eject;
    ashlar_pack_valley *valley;
    ashlar_pack_search *search; /* NULL: the problem is too large */
    size_t unit; /* divides all sizes, so a plan without needless gaps is a multiple of it */
    size_t proven_bytes;
    uint64_t moves, plans, steps; /* of this round */
} refinement;

static size_t common_divisor(const ashlar_pack_items *p) {
    size_t divisor = 0;
    for (size_t i = 0; i < p->count; i++) {
        size_t a = p->items[i].bytes;
        while (a != 0) {
            const size_t rest = divisor % a;
            divisor = a;
            a = rest;
        }
    }
    ASHLAR_CHECK2(divisor > 0);
    return divisor;
}

static bool is_over(const refinement *r) {
    return r->state->plan_bytes <= r->state->target_bytes ||
           r->state->plan_bytes <= r->proven_bytes || r->state->budget.is_stopped;
}

/* Search for a plan within `capacity`. If *is_found, the best plan is now at most that large. */
static ashlar_status try_capacity(refinement *r, size_t capacity, uint64_t steps, bool *is_found) {
    ashlar_pack_state *state = r->state;
    ashlar_pack_outcome outcome;
    ASHLAR_CHECK2(capacity % r->unit == 0 && state->plan_bytes % r->unit == 0);
    ASHLAR_CHECK2(r->proven_bytes <= capacity && capacity < state->plan_bytes);
    const ashlar_status status =
        ashlar__pack_search_run(r->search, capacity, steps, &state->budget, state->trial, &outcome);
    *is_found = status == ASHLAR_OK && outcome == ASHLAR_PACK_FOUND;
    if (*is_found) {
        ashlar__pack_keep_trial(state, ashlar__pack_highest_end(state->problem, state->trial));
        ASHLAR_CHECK2(state->plan_bytes <= capacity);
    } else if (status == ASHLAR_OK && outcome == ASHLAR_PACK_IMPOSSIBLE) {
        r->proven_bytes = capacity + r->unit;
    }
    ASHLAR_CHECK2(r->proven_bytes <= state->plan_bytes);
    return status;
}

/* Search between a capacity that has failed and the best plan, halving the distance each time. */
static ashlar_status bisect(refinement *r, size_t failed) {
    const ashlar_pack_state *state = r->state;
    const size_t fine = state->problem->peak_bytes / 1024;
    while (!is_over(r) && state->plan_bytes - failed > r->unit + fine) {
        bool is_found;
        size_t middle = failed + (state->plan_bytes - failed) / 2;
        middle -= middle % r->unit;
        middle = middle <= failed ? failed + r->unit : middle;
        ASHLAR_CHECK2(failed < middle && middle < state->plan_bytes);
        ASHLAR_TRY(try_capacity(r, middle, r->steps / STEPS_SHARE, &is_found));
        failed = is_found ? failed : middle;
    }
    return ASHLAR_OK;
}

static ashlar_status search_round(refinement *r) {
    bool is_found;
    const size_t target = r->state->target_bytes - r->state->target_bytes % r->unit;
    const size_t goal = target > r->proven_bytes ? target : r->proven_bytes;
    r->state->budget.now.strategy = "exact search";
    const ashlar_status status = try_capacity(r, goal, r->steps, &is_found);
    return status == ASHLAR_OK && !is_found ? bisect(r, goal) : status;
}

static uint64_t first_steps(const ashlar_pack_state *state) {
    const uint64_t sections = state->problem->section_count;
    const uint64_t steps = state->budget.options->capacity_bytes > 0 ? STEPS_OF_CAPACITY : STEPS;
    return sections > SECTIONS ? steps * SECTIONS / sections : steps;
}

/*
 * Whether the records of a search fit in host memory. It records every section of every item that
 * it places, so the number of sections, summed over all items, may be AREA_MAX at most.
 */
static bool is_searchable(const ashlar_pack_items *p) {
    uint64_t area = 0;
    for (size_t i = 0; i < p->count; i++) {
        area += p->items[i].end - p->items[i].first;
    }
    return area <= AREA_MAX;
}

static ashlar_status run_round(refinement *r) {
    ashlar_pack_state *state = r->state;
    ASHLAR_TRY(ashlar__pack_eject_run(r->eject, r->moves));
    if (!is_over(r)) {
        state->budget.now.strategy = "lowest valley first";
        ashlar__pack_valley_run(r->valley, r->plans);
    }
    if (!is_over(r) && r->search != NULL) {
        ASHLAR_TRY(search_round(r));
    }
    r->moves *= GROWTH;
    r->plans *= GROWTH;
    r->steps *= GROWTH;
    return ASHLAR_OK;
}

static ashlar_status create(refinement *r) {
    ASHLAR_TRY(ashlar__pack_eject_create(r->state, r->unit, &r->eject));
    ASHLAR_TRY(ashlar__pack_valley_create(r->state, &r->valley));
    return is_searchable(r->state->problem)
               ? ashlar__pack_search_create(r->state->problem, &r->search)
               : ASHLAR_OK;
}

ashlar_status ashlar__pack_refine(ashlar_pack_state *state, size_t *proven_bytes) {
    refinement r = {.state = state,
                    .unit = common_divisor(state->problem),
                    .proven_bytes = state->problem->peak_bytes,
                    .moves = (uint64_t)MOVES_OF_ITEM * state->problem->count,
                    .plans = VALLEY_PLANS,
                    .steps = first_steps(state)};
    ASHLAR_CHECK2(state->target_bytes >= r.proven_bytes);
    ashlar_status status = create(&r);
    while (status == ASHLAR_OK && !is_over(&r)) {
        status = run_round(&r);
    }
    ashlar__pack_eject_destroy(r.eject);
    ashlar__pack_search_destroy(r.search);
    ashlar__pack_valley_destroy(r.valley);
    if (status == ASHLAR_OK) {
        *proven_bytes = r.proven_bytes;
    }
    return status;
}
