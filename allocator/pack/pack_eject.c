/* pack_eject.c - moves items to make a plan smaller: phases, attempts at a capacity, moves. */
#include "allocator/pack/pack_eject.h"

#include <math.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/pack/pack_window.h"

enum {
    LIVE_COUNT = 64,       /* at most so many items up to usual_life are live at once, on average */
    ATTEMPT_MOVES = 16000, /* an attempt with so many moves fails */
    VAIN_MOVES = 1000,     /* and so does one that has not lowered least_out_area for so many */
    PHASE_FAILURES = 4,    /* failed attempts that end an early phase; later ones allow more */
    FIRST_STEP_SHARE = 16, /* a phase's first attempt goes down by 1/16 of the way to the bound */
    GOAL_SHARE = 400,      /* items that end more than 1/400 above the bound may move */
    ITEMS_OF_MOVE = 4,     /* beginning a phase counts as one move for so many items */
    LOOK_EVERY = 32,       /* moves between two reads of the clock */
};

/* If placing an item takes others out, so many times its area is added to its weight. */
static const double WEIGHT_OF_EJECTING = 2;
/* Factor of the cost of taking out the item that was placed just before. */
static const double COST_OF_UNDOING = 1e6;

/* For each phase in turn: movable items live at most so many times usual_life. */
static const uint32_t lives[] = {2, 1, 4};

enum { LIVES = sizeof lives / sizeof lives[0] };

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
    uint32_t usual_life;
    uint32_t phase;
    uint64_t ahead; /* moves made beyond those asked for so far */
    bool is_in_phase, is_in_attempt;
    size_t *plan; /* [count], the smallest plan of this phase */
    size_t plan_top;
    size_t step;       /* how much smaller the next plan is to be, at least */
    uint32_t failures; /* attempts that failed since the phase began or found a new best plan */
    size_t capacity; /* of this attempt */
    uint32_t moves;  /* of this attempt */
    double out_area; /* bytes times sections, summed over the items that are out, with rounding */
    double least_out_area; /* of this attempt */
    uint32_t least_at;     /* `moves` when out_area was that small */
    size_t *offsets;       /* [count], of this attempt */
    bool *is_out;
    double *weights; /* [count], area times how hard the item was to place */
    uint32_t *heap, heap_count;
    uint32_t latest; /* the item placed last */
    uint32_t *neighbours;
    ashlar_pack_mark *begins, *ends, *scratch; /* [count] */
};

static double area_of(const ashlar_pack_eject *e, uint32_t item) {
    const ashlar_pack_item *x = &e->state->problem->items[item];
    return (double)x->bytes * (x->end - x->first);
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

/* Long-lived items first: those of the fullest section, then the others. Then the short-lived ones,
 * hardest to place first. */
static void set_keys(ashlar_pack_eject *e, uint32_t life) {
    const ashlar_pack_items *p = e->state->problem;
    for (size_t i = 0; i < p->count; i++) {
        const ashlar_pack_item *x = &p->items[i];
        const uint32_t mine = x->end - x->first;
        const bool is_at_peak = x->first <= p->peak_section && p->peak_section < x->end;
        const double hardness = e->weights[i] / mine; /* at first, its size */
        e->state->keys[i] = mine <= life ? -1 / hardness
                            : is_at_peak ? (double)mine + (double)p->section_count
                                         : (double)mine;
    }
}

/* Choose the plan that a phase begins with: in every second round of phases the best one so far,
 * else a new one. *is_found is false if the budget was used up before there was a new one. */
static ashlar_status choose_plan(ashlar_pack_eject *e, uint32_t life, bool *is_found) {
    ashlar_pack_state *state = e->state;
    const size_t plan_bytes = state->problem->count * sizeof *e->plan;
    *is_found = true;
    if (e->phase / LIVES % 2 == 1) {
        memcpy(e->plan, state->offsets, plan_bytes);
        e->plan_top = state->plan_bytes;
        return ASHLAR_OK;
    }
    set_keys(e, life);
    ashlar__pack_sort(state);
    ASHLAR_TRY(ashlar__pack_place(state, SIZE_MAX, &e->plan_top));
    *is_found = e->plan_top != SIZE_MAX;
    if (*is_found) {
        memcpy(e->plan, state->trial, plan_bytes);
        ashlar__pack_keep_trial(state, e->plan_top);
    }
    return ASHLAR_OK;
}

static ashlar_status begin_phase(ashlar_pack_eject *e) {
    const ashlar_pack_items *p = e->state->problem;
    const uint32_t life = e->usual_life * lives[e->phase % LIVES];
    ASHLAR_TRY(choose_plan(e, life, &e->is_in_phase));
    if (e->is_in_phase) {
        const size_t above = e->plan_top - p->peak_bytes, little = p->peak_bytes / GOAL_SHARE;
        ASHLAR_TRY(ashlar__pack_movable_choose(&e->movable, e->plan, life,
                                               p->peak_bytes + (above < little ? above : little)));
        e->step = (e->plan_top - p->peak_bytes) / FIRST_STEP_SHARE;
        e->failures = 0;
        e->phase++;
    }
    return ASHLAR_OK;
}

/* ---- attempts ---- */

/* Take out what ends above the next capacity. False: the fixed items end too high for a smaller
 * one. */
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
    e->moves = 0;
    e->heap_count = 0;
    e->out_area = 0;
    e->least_out_area = INFINITY;
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

static void succeed(ashlar_pack_eject *e) {
    ashlar_pack_state *state = e->state;
    const size_t count = state->problem->count;
    const size_t above = state->problem->peak_bytes;
    memcpy(e->plan, e->offsets, count * sizeof *e->plan);
    e->plan_top = ashlar__pack_highest_end(state->problem, e->plan);
    ASHLAR_CHECK2(e->plan_top <= e->capacity);
    if (e->plan_top < state->plan_bytes) {
        memcpy(state->trial, e->plan, count * sizeof *e->plan);
        ashlar__pack_keep_trial(state, e->plan_top);
        e->failures = 0;
    }
    e->step = e->step + e->step / 2 < (e->plan_top - above) / 2 ? e->step + e->step / 2
                                                                : (e->plan_top - above) / 2;
    e->is_in_attempt = false;
}

static void fail(ashlar_pack_eject *e) {
    const uint32_t patience = PHASE_FAILURES * (1 + e->phase / LIVES);
    e->step /= 2;
    e->is_in_attempt = false;
    e->is_in_phase = ++e->failures < patience;
}

static bool is_in_vain(ashlar_pack_eject *e) {
    ASHLAR_CHECK2(e->heap_count > 0);
    if (e->out_area < e->least_out_area) {
        e->least_out_area = e->out_area;
        e->least_at = e->moves;
    }
    return e->moves == ATTEMPT_MOVES || e->moves - e->least_at == VAIN_MOVES;
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

/* Place the heaviest item that is out. *is_stuck: it fits nowhere between the fixed items. */
static ashlar_status move(ashlar_pack_eject *e, bool *is_stuck) {
    const ashlar_pack_item *items = e->state->problem->items;
    const uint32_t item = take_heaviest(e);
    const size_t placed = find_placed(e, item);
    ashlar_pack_window w = {.begins = e->begins,
                            .ends = e->ends,
                            .scratch = e->scratch,
                            .placed_count = placed,
                            .bytes = items[item].bytes,
                            .capacity = e->capacity};
    size_t offset = 0;
    ASHLAR_TRY(ashlar__pack_movable_gaps(&e->movable, item, &w.gaps, &w.gap_count));
    const double cost = ashlar__pack_window_cheapest(&w, &offset);
    *is_stuck = cost == INFINITY;
    if (*is_stuck) {
        return ASHLAR_OK;
    }
    for (size_t k = 0; cost > 0 && k < placed; k++) {
        const uint32_t i = e->neighbours[k];
        if (e->offsets[i] < offset + w.bytes && offset < e->offsets[i] + items[i].bytes) {
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

/* Begin or end a phase or an attempt, or make a move. *moves: how many moves that counts as. */
static ashlar_status advance(ashlar_pack_eject *e, uint64_t *moves) {
    bool is_stuck = false;
    *moves = 1;
    if (!e->is_in_phase) {
        *moves += e->state->problem->count / ITEMS_OF_MOVE;
        return begin_phase(e);
    }
    if (!e->is_in_attempt) {
        e->is_in_phase = e->is_in_attempt = begin_attempt(e);
        return ASHLAR_OK;
    }
    if (e->heap_count == 0) {
        succeed(e);
        return ASHLAR_OK;
    }
    if (is_in_vain(e)) {
        fail(e);
        return ASHLAR_OK;
    }
    e->moves++;
    ASHLAR_TRY(move(e, &is_stuck));
    e->is_in_phase = e->is_in_attempt = !is_stuck;
    return ASHLAR_OK;
}

ashlar_status ashlar__pack_eject_run(ashlar_pack_eject *e, uint64_t move_count) {
    e->state->budget.now.strategy = "ejection";
    uint64_t done = e->ahead;
    for (uint64_t k = 0, moves; done < move_count && !is_over(e->state); done += moves) {
        if (e->state->plan_bytes != SIZE_MAX && k++ % LOOK_EVERY == 0 &&
            !ashlar__pack_budget_is_left(&e->state->budget)) {
            break;
        }
        ASHLAR_TRY(advance(e, &moves));
    }
    e->ahead = done > move_count ? done - move_count : 0;
    return ASHLAR_OK;
}

/* ---- making ---- */

static bool has_memory(ashlar_pack_eject *e, size_t count) {
    e->plan = ashlar__host_calloc(count, sizeof *e->plan);
    e->offsets = ashlar__host_calloc(count, sizeof *e->offsets);
    e->is_out = ashlar__host_calloc(count, sizeof *e->is_out);
    e->weights = ashlar__host_calloc(count, sizeof *e->weights);
    e->heap = ashlar__host_calloc(count, sizeof *e->heap);
    e->neighbours = ashlar__host_calloc(count + 1, sizeof *e->neighbours);
    e->begins = ashlar__host_calloc(count, sizeof *e->begins);
    e->ends = ashlar__host_calloc(count, sizeof *e->ends);
    e->scratch = ashlar__host_calloc(count, sizeof *e->scratch);
    return e->plan != NULL && e->offsets != NULL && e->is_out != NULL && e->weights != NULL &&
           e->heap != NULL && e->neighbours != NULL && e->begins != NULL && e->ends != NULL &&
           e->scratch != NULL;
}

ashlar_status ashlar__pack_eject_create(ashlar_pack_state *state, size_t unit,
                                        ashlar_pack_eject **out) {
    const ashlar_pack_items *p = state->problem;
    ashlar_pack_eject *e = ashlar__host_calloc(1, sizeof *e);
    if (e == NULL || !has_memory(e, p->count)) {
        ashlar__pack_eject_destroy(e);
        return ashlar__fail(ASHLAR_EHOSTMEM, "pack: no host memory for %zu buffers", p->count);
    }
    e->state = state;
    e->unit = unit;
    e->usual_life = ashlar__pack_movable_life(p, LIVE_COUNT);
    for (size_t i = 0; i < p->count; i++) {
        e->weights[i] = area_of(e, (uint32_t)i);
    }
    const ashlar_status status = ashlar__pack_movable_init(&e->movable, p);
    if (status != ASHLAR_OK) {
        ashlar__pack_eject_destroy(e);
        return status;
    }
    *out = e;
    return ASHLAR_OK;
}

void ashlar__pack_eject_destroy(ashlar_pack_eject *e) {
    if (e != NULL) {
        void *const all[] = {e->plan,       e->offsets, e->is_out, e->weights, e->heap,
                             e->neighbours, e->begins,  e->ends,   e->scratch};
        for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
            ashlar__host_free(all[k]);
        }
        ashlar__pack_movable_finish(&e->movable);
        ashlar__host_free(e);
    }
}
