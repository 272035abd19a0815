/* pack.c - ashlar_pack(): runs the packing methods in turn: greedy orders first; then rounds of
 * valley plans, moves and the exact search, each round with more effort than the last. */
#include "allocator/pack/pack_internal.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"

enum {
    VALLEY_PLANS = 16,  /* valley plans of the first round */
    MOVES_OF_ITEM = 16, /* moves of the first round, for each item */
    STEPS = 1 << 21,    /* steps of the first search for the target */
    GROWTH = 4,         /* factor of plans, moves and steps, from one round to the next */
    AREA_MAX = 1 << 22, /* items times sections: larger problems are left to moves */
    SECTIONS = 512,     /* with more sections a step takes longer: make fewer steps */
};

/* ---- the state ---- */

/* Make a state without a plan, whose target is the peak load. `options` must outlive it. */
static ashlar_status pack_state_init(ashlar_pack_state *state, ashlar_pack_memory *memory,
                                     const ashlar_pack_items *problem,
                                     const ashlar_pack_options *options) {
    const size_t count = problem->count;
    const uint64_t now = ashlar__pack_now_ms();
    *state = (ashlar_pack_state){
        .problem = problem,
        .memory = memory,
        .target_bytes = problem->peak_bytes,
        .plan_bytes = SIZE_MAX,
        .offsets = ashlar__pack_alloc(memory, count, sizeof *state->offsets),
        .trial = ashlar__pack_alloc(memory, count, sizeof *state->trial),
        .order = ashlar__pack_alloc(memory, count, sizeof *state->order),
        .keys = ashlar__pack_alloc(memory, count, sizeof *state->keys),
        .occupancy = ashlar__pack_occupancy_create(memory, problem->section_count),
        .budget = {.options = options,
                   .begin_ms = now,
                   .told_ms = now,
                   .now = {.bound_bytes = problem->peak_bytes, .strategy = ""}},
    };
    return ashlar__pack_memory_check(memory);
}

/* ---- rounds ---- */

/* Invariants: proven_bytes <= smallest possible plan <= state->plan_bytes, multiples of `unit`. */
typedef struct refinement {
    ashlar_pack_state *state;
    ashlar_pack_valley *valley; /* NULL if the problem is too large for it; so is `search` */
    ashlar_pack_eject *eject;
    ashlar_pack_search *search;
    size_t unit; /* divides all sizes, so a plan without needless gaps is a multiple of it */
    size_t proven_bytes;
    uint64_t plans, moves, steps; /* of this round */
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

/* Search for a plan within the target, or within the smallest one that is not proven impossible. */
static ashlar_status search_round(refinement *r) {
    ashlar_pack_state *state = r->state;
    const size_t target = state->target_bytes - state->target_bytes % r->unit;
    ashlar_pack_outcome outcome = ASHLAR_PACK_IMPOSSIBLE;
    state->budget.now.strategy = "exact search";
    while (outcome == ASHLAR_PACK_IMPOSSIBLE && !is_over(r)) {
        const size_t capacity = target > r->proven_bytes ? target : r->proven_bytes;
        ASHLAR_CHECK2(capacity % r->unit == 0 && state->plan_bytes % r->unit == 0);
        ASHLAR_CHECK2(capacity < state->plan_bytes);
        ASHLAR_TRY(ashlar__pack_search_run(r->search, capacity, r->steps, &outcome));
        if (outcome == ASHLAR_PACK_FOUND) {
            ashlar__pack_keep_trial(state, ashlar__pack_highest_end(state->problem, state->trial));
            ASHLAR_CHECK2(state->plan_bytes <= capacity);
        } else if (outcome == ASHLAR_PACK_IMPOSSIBLE) {
            r->proven_bytes = capacity + r->unit;
        }
        ASHLAR_CHECK2(r->proven_bytes <= state->plan_bytes);
    }
    return ASHLAR_OK;
}

static ashlar_status run_round(refinement *r) {
    /* Leave the first plan to the moves, which make one even if there is no time. */
    if (r->valley != NULL && r->state->plan_bytes != SIZE_MAX) {
        ashlar__pack_valley_run(r->valley, r->plans);
    }
    if (!is_over(r)) {
        ASHLAR_TRY(ashlar__pack_eject_run(r->eject, r->moves));
    }
    if (!is_over(r) && r->search != NULL) {
        ASHLAR_TRY(search_round(r));
    }
    r->plans *= GROWTH;
    r->moves *= GROWTH;
    r->steps *= GROWTH;
    return ASHLAR_OK;
}

/* The items' lifetimes in sections, summed up. */
static uint64_t area_of(const ashlar_pack_items *p) {
    uint64_t area = 0;
    for (size_t i = 0; i < p->count; i++) {
        area += ashlar__pack_life(&p->items[i]);
    }
    return area;
}

/* Create the methods that are fast enough for the problem: to place an item, valleys look at every
 * section, and the search changes each section that the item is live in. */
static ashlar_status create(refinement *r) {
    const ashlar_pack_items *p = r->state->problem;
    if ((uint64_t)p->count * p->section_count <= AREA_MAX / 2) {
        r->valley = ashlar__pack_valley_create(r->state);
    }
    if (area_of(p) <= AREA_MAX) {
        ASHLAR_TRY(ashlar__pack_search_create(r->state, &r->search));
    }
    return ashlar__pack_eject_create(r->state, r->unit, &r->eject);
}

/* Search, longer in each round, until the plan meets the target, is proven to be the smallest, or
 * the budget is used up. If there is no plan yet, one is made even without time. */
static ashlar_status refine(ashlar_pack_state *state, size_t *proven_bytes) {
    const ashlar_pack_items *p = state->problem;
    refinement r = {
        .state = state,
        .unit = common_divisor(p),
        .proven_bytes = p->peak_bytes,
        .plans = VALLEY_PLANS,
        .moves = (uint64_t)MOVES_OF_ITEM * p->count,
        .steps = STEPS,
    };
    r.steps = p->section_count > SECTIONS ? r.steps * SECTIONS / p->section_count : r.steps;
    ASHLAR_CHECK2(state->target_bytes >= r.proven_bytes);
    ASHLAR_TRY(create(&r));
    while (!is_over(&r)) {
        ASHLAR_TRY(run_round(&r));
    }
    *proven_bytes = r.proven_bytes;
    return ASHLAR_OK;
}

/* ---- all of it ---- */

/* Without a capacity to meet, the search may stop at a plan close to the bound. */
static size_t search_target(const ashlar_pack_state *state, const ashlar_pack_options *options) {
    enum { CLOSE = 200 }; /* a 200th of the bound: 0.5 % */
    const size_t bound = state->problem->peak_bytes;
    ASHLAR_CHECK2(state->target_bytes >= bound);
    const bool is_near_the_end = bound > SIZE_MAX - bound / CLOSE;
    return options->capacity_bytes > 0 || is_near_the_end ? state->target_bytes
                                                          : bound + bound / CLOSE;
}

/* Try the greedy orders, then search if a smaller plan is possible and there is time. With many
 * buffers each order takes long, and the search makes better use of the time: it begins with a plan
 * of its own. */
static ashlar_status make_plan(ashlar_pack_state *state, const ashlar_pack_options *options,
                               size_t *proven_bytes) {
    enum { ITEMS_MAX = 32768 };
    const bool has_time = options->time_budget_ms > 0;
    *proven_bytes = state->problem->peak_bytes;
    ASHLAR_TRY(ashlar__pack_greedy(state, has_time ? ITEMS_MAX / state->problem->count : SIZE_MAX));
    if (!has_time) {
        return ASHLAR_OK;
    }
    state->target_bytes = search_target(state, options);
    state->budget.has_deadline = true;
    return state->plan_bytes > state->target_bytes ? refine(state, proven_bytes) : ASHLAR_OK;
}

static ashlar_status pack_items(const ashlar_pack_items *problem, ashlar_pack_memory *memory,
                                const ashlar_pack_options *options, size_t *offsets,
                                ashlar_pack_result *out) {
    ashlar_pack_state state;
    size_t proven_bytes;
    ASHLAR_TRY(pack_state_init(&state, memory, problem, options));
    if (options->capacity_bytes > problem->peak_bytes) {
        state.target_bytes = options->capacity_bytes;
    }
    ASHLAR_TRY(make_plan(&state, options, &proven_bytes));
    ASHLAR_CHECK2(state.plan_bytes != SIZE_MAX); /* the first plan is always completed */
    ASHLAR_CHECK2(problem->peak_bytes <= proven_bytes && proven_bytes <= state.plan_bytes);
    ASHLAR_CHECK3(state.plan_bytes == ashlar__pack_highest_end(problem, state.offsets));
    memcpy(offsets, state.offsets, problem->count * sizeof *offsets);
    *out = (ashlar_pack_result){
        .plan_bytes = state.plan_bytes,
        .bound_bytes = proven_bytes < state.plan_bytes ? proven_bytes : state.plan_bytes,
        .is_optimal = state.plan_bytes <= proven_bytes,
        .was_stopped = state.budget.is_stopped,
        .strategy = state.strategy,
    };
    return ASHLAR_OK;
}

ashlar_status ashlar_pack(const ashlar_pack_buffer *buffers, size_t count,
                          const ashlar_pack_options *options, size_t *offsets,
                          ashlar_pack_result *out) {
    ashlar_pack_items problem;
    ashlar_pack_memory memory = {0};
    ashlar_pack_result result = {.is_optimal = true, .strategy = "nothing to place"};
    const ashlar_pack_options chosen = ASHLAR_OR_ZERO(ashlar_pack_options, options);
    const size_t alignment = chosen.alignment == 0 ? 1 : chosen.alignment;
    ASHLAR_FAIL_IF((alignment & (alignment - 1)) != 0, ASHLAR_EINVAL,
                   "pack: an alignment of %zu; give a power of two", alignment);
    ashlar_status status = ashlar__pack_items_init(&problem, &memory, buffers, count, alignment);
    if (count > 0) {
        ASHLAR_THEN(status, pack_items(&problem, &memory, &chosen, offsets, &result));
    }
    ashlar__pack_memory_finish(&memory);
    if (status == ASHLAR_OK && out != NULL) {
        *out = result;
    }
    return status;
}
