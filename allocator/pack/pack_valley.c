/*
 * pack_valley.c - plans that are filled from the bottom up, always at the lowest floor.
 *
 * A valley is a run of sections with one floor between higher neighbours. Of the items that lie
 * wholly inside the lowest valley, the one with the largest key is placed on its floor; if there is
 * none, the floor rises to the lower neighbour, and the bytes between are wasted. Waste costs
 * something only where the load is near the peak. So a key is a product of powers of an item's
 * size, its lifetime and the highest load during its life. Which powers are best is found by
 * trying.
 */
#include "allocator/pack/pack_internal.h"

#include <math.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/random.h"

#define NONE UINT32_MAX

/* What an item's key is made of. */
typedef struct recipe {
    unsigned bytes_eighths, life_eighths; /* powers of size and lifetime, in eighths */
    unsigned load_squarings;              /* n: the highest load has the power 2^n */
    unsigned edge_eighths;                /* factor of items at the valley's edges, in eighths */
} recipe;

struct ashlar_pack_valley {
    ashlar_pack_state *state;
    double *loads;      /* [count], by item: highest load during its life / peak */
    uint32_t *after;    /* [count], by item: the next unplaced one with the same `first` */
    uint32_t *unplaced; /* [section_count], the first unplaced item that begins there */
    size_t *floors;     /* [section_count] */
    bool is_begun;      /* the first recipe has been tried */
    uint64_t random;
};

/* ---- filling ---- */

/* The lowest valley: the first of the sections with the lowest floor, and those beside it. */
static uint32_t find_valley(const ashlar_pack_valley *v, uint32_t *end) {
    const uint32_t count = (uint32_t)v->state->problem->section_count;
    uint32_t first = 0;
    for (uint32_t s = 1; s < count; s++) {
        first = v->floors[s] < v->floors[first] ? s : first;
    }
    *end = first + 1;
    while (*end < count && v->floors[*end] == v->floors[first]) {
        ++*end;
    }
    return first;
}

static void set_floors(ashlar_pack_valley *v, uint32_t first, uint32_t end, size_t floor) {
    for (uint32_t s = first; s < end; s++) {
        ASHLAR_CHECK2(v->floors[s] < floor);
        v->floors[s] = floor;
    }
}

/* The link to the unplaced item with the largest key inside the valley; NULL: there is none. */
static uint32_t *choose(ashlar_pack_valley *v, uint32_t first, uint32_t end, double edge) {
    const ashlar_pack_item *items = v->state->problem->items;
    uint32_t *best = NULL;
    double most = -1;
    for (uint32_t s = first; s < end; s++) {
        for (uint32_t *link = &v->unplaced[s]; *link != NONE; link = &v->after[*link]) {
            const ashlar_pack_item *x = &items[*link];
            const double key = v->state->keys[*link] * (s == first || x->end == end ? edge : 1);
            if (x->end <= end && key > most) {
                most = key;
                best = link;
            }
        }
    }
    return best;
}

/* Nothing fits into the valley: raise its floor to the lower neighbour. */
static void raise_floor(ashlar_pack_valley *v, uint32_t first, uint32_t end) {
    const size_t left = first > 0 ? v->floors[first - 1] : SIZE_MAX;
    const size_t right = end < v->state->problem->section_count ? v->floors[end] : SIZE_MAX;
    ASHLAR_CHECK2(left != SIZE_MAX || right != SIZE_MAX); /* else each item fits in the valley */
    set_floors(v, first, end, left < right ? left : right);
}

static void empty_plan(ashlar_pack_valley *v) {
    const ashlar_pack_items *p = v->state->problem;
    memset(v->unplaced, 0xff, p->section_count * sizeof *v->unplaced);
    memset(v->floors, 0, p->section_count * sizeof *v->floors);
    for (uint32_t i = (uint32_t)p->count; i-- > 0;) {
        v->after[i] = v->unplaced[p->items[i].first];
        v->unplaced[p->items[i].first] = i;
    }
}

/* Place all items into `trial`. Returns the highest end, or SIZE_MAX if the budget ran out. */
static size_t fill(ashlar_pack_valley *v, double edge) {
    enum { LOOK_EVERY = 64 };
    const ashlar_pack_items *p = v->state->problem;
    size_t top = 0, left = p->count;
    empty_plan(v);
    while (left > 0) {
        uint32_t end;
        const uint32_t first = find_valley(v, &end);
        uint32_t *link = choose(v, first, end, edge);
        if (link == NULL) {
            raise_floor(v, first, end);
            continue;
        }
        const uint32_t i = *link;
        const size_t floor = v->floors[first], item_end = floor + p->items[i].bytes;
        *link = v->after[i];
        v->state->trial[i] = floor;
        set_floors(v, p->items[i].first, p->items[i].end, item_end);
        top = item_end > top ? item_end : top;
        if (--left % LOOK_EVERY == 0 && !ashlar__pack_has_time(v->state)) {
            return SIZE_MAX;
        }
    }
    return top;
}

/* ---- keys ---- */

double ashlar__pack_power(double base, unsigned eighths) {
    double result = 1, root = base;
    for (unsigned weight = 8; weight > 0; weight /= 2, root = sqrt(root)) {
        result *= (eighths & weight) != 0 ? root : 1;
    }
    return result;
}

static void set_keys(ashlar_pack_valley *v, const recipe *by) {
    const ashlar_pack_items *p = v->state->problem;
    for (size_t i = 0; i < p->count; i++) {
        const ashlar_pack_item *x = &p->items[i];
        double load = v->loads[i];
        for (unsigned n = 0; n < by->load_squarings; n++) {
            load *= load;
        }
        v->state->keys[i] = load * ashlar__pack_power((double)x->bytes, by->bytes_eighths) *
                            ashlar__pack_power(ashlar__pack_life(x), by->life_eighths);
    }
}

static unsigned draw(ashlar_pack_valley *v, unsigned first, unsigned last) {
    return first + (unsigned)ashlar__random_step_below(&v->random, last - first + 1);
}

static recipe next_recipe(ashlar_pack_valley *v) {
    recipe r = {.bytes_eighths = 2, .life_eighths = 8, .load_squarings = 5, .edge_eighths = 8};
    if (v->is_begun) {
        r.bytes_eighths = draw(v, 0, 8);
        r.life_eighths = draw(v, 1, 8);
        r.load_squarings = draw(v, 0, 8);
        r.edge_eighths = draw(v, 8, 32);
    }
    v->is_begun = true;
    return r;
}

void ashlar__pack_valley_run(ashlar_pack_valley *v, uint64_t plan_count) {
    ashlar_pack_state *state = v->state;
    state->budget.now.strategy = "lowest valley first";
    for (uint64_t k = 0; k < plan_count && state->plan_bytes > state->target_bytes; k++) {
        const recipe r = next_recipe(v);
        set_keys(v, &r);
        const size_t bytes =
            ashlar__pack_has_time(state) ? fill(v, r.edge_eighths / 8.0) : SIZE_MAX;
        if (bytes == SIZE_MAX) {
            break;
        }
        ashlar__pack_keep_trial(state, bytes);
    }
}

/* ---- making ---- */

ashlar_pack_valley *ashlar__pack_valley_create(ashlar_pack_state *state) {
    const ashlar_pack_items *p = state->problem;
    ashlar_pack_memory *m = state->memory;
    ashlar_pack_valley *v = ashlar__pack_alloc(m, 1, sizeof *v);
    if (v == NULL) {
        return NULL;
    }
    *v = (ashlar_pack_valley){
        .state = state,
        .loads = ashlar__pack_alloc(m, p->count, sizeof *v->loads),
        .after = ashlar__pack_alloc(m, p->count, sizeof *v->after),
        .unplaced = ashlar__pack_alloc(m, p->section_count, sizeof *v->unplaced),
        .floors = ashlar__pack_alloc(m, p->section_count, sizeof *v->floors),
    };
    for (size_t i = 0; i < p->count && !m->has_failed; i++) {
        size_t highest = 0;
        for (uint32_t s = p->items[i].first; s < p->items[i].end; s++) {
            highest = p->loads[s] > highest ? p->loads[s] : highest;
        }
        v->loads[i] = (double)highest / (double)p->peak_bytes;
    }
    return m->has_failed ? NULL : v;
}
