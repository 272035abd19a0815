/*
 * pack_eject.c - makes a plan smaller by moving items about.
 *
 * An attempt at a capacity takes out the items that end above it. Then, until none is out, the
 * heaviest item is placed where that costs least, and the items in its way are taken out. An item's
 * weight, which is also its cost, is its area times how hard it has been to place, so the search
 * does not run in circles. An attempt fails if it takes too many moves, or if for long the area
 * that is out has not shrunk. The next one then aims only half as far below the plan.
 *
 * A phase moves the short-lived items of one plan. This is a new plan, in which the long-lived
 * items lie at the bottom without gaps, or the best plan so far. Which moves are made depends on
 * the problem and earlier moves, and not on the clock.
 */
#include "allocator/pack/pack_internal.h"

#include <math.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"

enum {
    LIVE_COUNT = 64,       /* so many short-lived items may be live at once, on average */
    ATTEMPT_MOVES = 16000, /* an attempt with this many moves fails */
    VAIN_MOVES = 1000,     /* so does one that has not lowered the area out for so many */
    PHASE_FAILURES = 4,    /* failed attempts that end an early phase; later ones allow more */
    PHASES = 3,            /* this many from new plans, then this many from the best one, in turn */
    FIRST_STEP_SHARE = 16, /* a phase's first attempt goes down by 1/16 of the way to the bound */
    GOAL_SHARE = 400,      /* items that end more than 1/400 above the bound may move */
    ITEMS_OF_MOVE = 4,     /* beginning a phase counts as one move for each 4 items */
    LOOK_EVERY = 32,       /* moves between two reads of the clock */
};

/* When placing an item takes others out, this many times its area is added to its weight. */
static const double WEIGHT_OF_EJECTING = 2;
/* Factor of the cost of taking out the item that was placed just before. */
static const double COST_OF_UNDOING = 1e6;

/*
 * An item is out from the time it is taken out of the plan until it is placed again.
 *
 * Invariants: heap[0] is the heaviest item that is out;  is_out[i] if and only if i is in the heap;
 *             plan_top == highest end of plan[];  items that are not out do not overlap
 */
struct ashlar_pack_eject {
    ashlar_pack_state *state;
    size_t unit;
    ashlar_pack_movable movable;
    uint32_t life;  /* items that live longer are fixed */
    uint64_t left;  /* moves that may still be made in this run */
    uint32_t phase; /* phases begun so far */
    size_t *plan;   /* [count], the smallest plan of this phase */
    size_t plan_top;
    size_t step;     /* how much smaller the next plan is to be, at least */
    size_t capacity; /* no item may end above it in this attempt */
    size_t *offsets; /* [count], the items' places in this attempt */
    double out_area; /* sum of bytes times sections of the items that are out, rounded */
    bool *is_out;
    double *weights; /* [count], area times how hard the item was to place */
    uint32_t *heap, heap_count;
    uint32_t latest; /* the item placed last */
    uint32_t *neighbours;
    ashlar_pack_mark *begins, *ends; /* [count] */
};

static double area_of(const ashlar_pack_eject *e, uint32_t item) {
    const ashlar_pack_item *x = &e->state->problem->items[item];
    return (double)x->bytes * ashlar__pack_life(x);
}

/* ---- items that are out, as a heap ---- */

static bool is_heavier(const ashlar_pack_eject *e, uint32_t a, uint32_t b) {
    return e->weights[a] != e->weights[b] ? e->weights[a] > e->weights[b] : a < b;
}

static void take_out(ashlar_pack_eject *e, uint32_t item) {
    uint32_t at = e->heap_count++;
    ASHLAR_CHECK2(!e->is_out[item] && e->movable.is_movable[item]);
    e->is_out[item] = true;
    e->out_area += area_of(e, item);
    for (; at > 0 && is_heavier(e, item, e->heap[(at - 1) / 2]); at = (at - 1) / 2) {
        e->heap[at] = e->heap[(at - 1) / 2];
    }
    e->heap[at] = item;
}

static uint32_t take_heaviest(ashlar_pack_eject *e) {
    const uint32_t heaviest = e->heap[0], item = e->heap[--e->heap_count];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        child += child + 1 < e->heap_count && is_heavier(e, e->heap[child + 1], e->heap[child]);
        if (child >= e->heap_count || !is_heavier(e, e->heap[child], item)) {
            break;
        }
        e->heap[at] = e->heap[child];
        at = child;
    }
    e->heap[at] = item;
    ASHLAR_CHECK2(e->is_out[heaviest]);
    return heaviest;
}

/* ---- phases ---- */

/* Keys for a new plan, which places long-lived items first: those of the fullest section, then the
 * others. Short-lived ones follow, hardest to place first. */
static void set_keys(ashlar_pack_eject *e) {
    const ashlar_pack_items *p = e->state->problem;
    for (size_t i = 0; i < p->count; i++) {
        const ashlar_pack_item *x = &p->items[i];
        const uint32_t mine = ashlar__pack_life(x);
        const bool is_at_peak = x->first <= p->peak_section && p->peak_section < x->end;
        const double hardness = e->weights[i] / mine; /* at first, its size */
        e->state->keys[i] = mine <= e->life ? -1 / hardness
                            : is_at_peak    ? (double)mine + (double)p->section_count
                                            : (double)mine;
    }
}

/* Choose the plan that a phase begins with: in every second round of phases the best one so far,
 * else a new one. *is_begun is false if the budget was used up before there was a new one. */
static ashlar_status begin_phase(ashlar_pack_eject *e, bool *is_begun) {
    ashlar_pack_state *state = e->state;
    const ashlar_pack_items *p = state->problem;
    const size_t *plan = state->offsets;
    e->plan_top = state->plan_bytes;
    if (e->phase++ / PHASES % 2 == 0) {
        set_keys(e);
        ASHLAR_TRY(ashlar__pack_place(state, SIZE_MAX, &e->plan_top));
        plan = state->trial;
    }
    *is_begun = e->plan_top != SIZE_MAX;
    if (!*is_begun) {
        return ASHLAR_OK;
    }
    memcpy(e->plan, plan, p->count * sizeof *e->plan);
    ashlar__pack_keep_trial(state, e->plan_top);
    const size_t above = e->plan_top - p->peak_bytes, little = p->peak_bytes / GOAL_SHARE;
    e->step = above / FIRST_STEP_SHARE;
    return ashlar__pack_movable_choose(&e->movable, e->plan, e->life,
                                       p->peak_bytes + (above < little ? above : little));
}

/* ---- attempts ---- */

/* Take out the items that end above the next capacity. False: no capacity below the plan's end
 * holds the fixed items. */
static bool begin_attempt(ashlar_pack_eject *e) {
    const ashlar_pack_items *p = e->state->problem;
    const size_t target = e->state->target_bytes;
    const size_t step = e->step > e->unit ? e->step : e->unit;
    ASHLAR_CHECK2(e->plan_top > target); /* else is_over() would be true */
    size_t capacity = e->plan_top - target > step ? e->plan_top - step : target;
    capacity -= capacity % e->unit;
    ASHLAR_CHECK2(p->peak_bytes <= capacity && capacity < e->plan_top);
    capacity = capacity > e->movable.fixed_top ? capacity : e->movable.fixed_top;
    if (capacity >= e->plan_top) {
        return false;
    }
    e->capacity = capacity;
    e->heap_count = 0;
    e->out_area = 0;
    e->latest = UINT32_MAX;
    memcpy(e->offsets, e->plan, p->count * sizeof *e->offsets);
    memset(e->is_out, 0, p->count * sizeof *e->is_out);
    for (uint32_t i = 0; i < p->count; i++) {
        if (e->plan[i] + p->items[i].bytes > capacity) {
            take_out(e, i);
        }
    }
    return true;
}

/* Keep the plan of an attempt. Returns whether it is the best of all. */
static bool succeed(ashlar_pack_eject *e) {
    ashlar_pack_state *state = e->state;
    const size_t plan_bytes = state->problem->count * sizeof *e->plan;
    memcpy(e->plan, e->offsets, plan_bytes);
    e->plan_top = ashlar__pack_highest_end(state->problem, e->plan);
    ASHLAR_CHECK2(e->plan_top <= e->capacity);
    const size_t step = e->step + e->step / 2,
                 half = (e->plan_top - state->problem->peak_bytes) / 2;
    e->step = step < half ? step : half;
    const bool is_best = e->plan_top < state->plan_bytes;
    if (is_best) {
        memcpy(state->trial, e->plan, plan_bytes);
        ashlar__pack_keep_trial(state, e->plan_top);
    }
    return is_best;
}

/* ---- moves ---- */

static size_t find_placed(ashlar_pack_eject *e, uint32_t item) {
    const ashlar_pack_item *items = e->state->problem->items;
    const size_t count = ashlar__pack_movable_neighbours(&e->movable, item, e->neighbours);
    size_t placed = 0;
    for (size_t k = 0; k < count; k++) {
        const uint32_t i = e->neighbours[k];
        if (!e->is_out[i]) {
            const double cost = i == e->latest ? e->weights[i] * COST_OF_UNDOING : e->weights[i];
            e->begins[placed] = (ashlar_pack_mark){e->offsets[i], cost};
            e->ends[placed] = (ashlar_pack_mark){e->offsets[i] + items[i].bytes, cost};
            e->neighbours[placed++] = i;
        }
    }
    return placed;
}

/* Place the heaviest item that is out. *is_placed is false if it fits nowhere between the fixed
 * items. */
static ashlar_status move(ashlar_pack_eject *e, bool *is_placed) {
    const ashlar_pack_item *items = e->state->problem->items;
    const uint32_t item = take_heaviest(e);
    const size_t placed = find_placed(e, item);
    const size_t bytes = items[item].bytes;
    double cost;
    size_t offset = 0;
    ASHLAR_TRY(ashlar__pack_movable_cheapest(&e->movable, item, e->begins, e->ends, placed,
                                             e->capacity, &cost, &offset));
    *is_placed = cost < INFINITY;
    if (!*is_placed) {
        return ASHLAR_OK;
    }
    for (size_t k = 0; cost > 0 && k < placed; k++) {
        const uint32_t i = e->neighbours[k];
        if (e->offsets[i] < offset + bytes && offset < e->offsets[i] + items[i].bytes) {
            take_out(e, i);
        }
    }
    if (cost > 0) {
        e->weights[item] += WEIGHT_OF_EJECTING * area_of(e, item);
    }
    e->is_out[item] = false;
    e->out_area -= area_of(e, item);
    e->offsets[item] = offset;
    e->latest = item;
    return ASHLAR_OK;
}

static bool is_over(const ashlar_pack_state *state) {
    return state->plan_bytes <= state->target_bytes || state->budget.is_stopped;
}

/* Count a move. False: no more may be made. */
static bool may_move(ashlar_pack_eject *e) {
    if (e->left == 0 || (e->left % LOOK_EVERY == 0 && !ashlar__pack_has_time(e->state))) {
        return false;
    }
    e->left--;
    return true;
}

/* Move items until none is out. *is_done is false after too many moves, or too many in vain. */
static ashlar_status attempt(ashlar_pack_eject *e, bool *is_done) {
    double least_area = INFINITY;
    uint32_t least_at = 0; /* the move at which the area that is out was least */
    *is_done = true;
    for (uint32_t moves = 0; *is_done && e->heap_count > 0; moves++) {
        if (e->out_area < least_area) {
            least_area = e->out_area;
            least_at = moves;
        }
        *is_done = moves < ATTEMPT_MOVES && moves - least_at < VAIN_MOVES && may_move(e);
        if (*is_done) {
            ASHLAR_TRY(move(e, is_done));
        }
    }
    return ASHLAR_OK;
}

/* Make the plan smaller until attempts keep failing. */
static ashlar_status run_phase(ashlar_pack_eject *e) {
    const uint32_t patience = PHASE_FAILURES * (1 + e->phase / PHASES);
    const uint64_t effort = 1 + e->state->problem->count / ITEMS_OF_MOVE;
    bool is_begun, is_done;
    ASHLAR_TRY(begin_phase(e, &is_begun));
    e->left -= effort < e->left ? effort : e->left;
    for (uint32_t failures = 0; is_begun && failures < patience && e->left > 0;) {
        if (is_over(e->state) || !begin_attempt(e)) {
            break;
        }
        ASHLAR_TRY(attempt(e, &is_done));
        if (is_done) {
            failures = succeed(e) ? 0 : failures;
        } else {
            e->step /= 2;
            failures++;
        }
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__pack_eject_run(ashlar_pack_eject *e, uint64_t move_count) {
    e->state->budget.now.strategy = "ejection";
    for (e->left = move_count; e->left > 0 && !is_over(e->state);) {
        ASHLAR_TRY(run_phase(e));
    }
    return ASHLAR_OK;
}

/* ---- making ---- */

/* Twice the largest power of two n, at least 1, for which this holds: of the items that live at
 * most n sections, on average at most LIVE_COUNT are live at once. */
static uint32_t choose_life(const ashlar_pack_items *p) {
    uint64_t area = 0;
    uint32_t life = 1;
    for (; life < p->section_count; life *= 2) {
        for (size_t i = 0; i < p->count; i++) {
            const uint32_t mine = ashlar__pack_life(&p->items[i]);
            area += mine <= 2 * life && (mine > life || life == 1) ? mine : 0;
        }
        if (area > (uint64_t)LIVE_COUNT * p->section_count) {
            break;
        }
    }
    return 2 * life;
}

ashlar_status ashlar__pack_eject_create(ashlar_pack_state *state, size_t unit,
                                        ashlar_pack_eject **out) {
    const size_t count = state->problem->count;
    ashlar_pack_memory *m = state->memory;
    ashlar_pack_eject *e = ashlar__pack_alloc(m, 1, sizeof *e);
    ASHLAR_TRY(ashlar__pack_memory_check(m));
    *e = (ashlar_pack_eject){
        .state = state,
        .unit = unit,
        .life = choose_life(state->problem),
        .plan = ashlar__pack_alloc(m, count, sizeof *e->plan),
        .offsets = ashlar__pack_alloc(m, count, sizeof *e->offsets),
        .is_out = ashlar__pack_alloc(m, count, sizeof *e->is_out),
        .weights = ashlar__pack_alloc(m, count, sizeof *e->weights),
        .heap = ashlar__pack_alloc(m, count, sizeof *e->heap),
        .neighbours = ashlar__pack_alloc(m, count + 1, sizeof *e->neighbours),
        .begins = ashlar__pack_alloc(m, count, sizeof *e->begins),
        .ends = ashlar__pack_alloc(m, count, sizeof *e->ends),
    };
    ASHLAR_TRY(ashlar__pack_memory_check(m));
    for (uint32_t i = 0; i < count; i++) {
        e->weights[i] = area_of(e, i);
    }
    *out = e;
    return ashlar__pack_movable_init(&e->movable, m, state->problem);
}
