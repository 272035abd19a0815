/* pack_valley.c - makes plans from the bottom up: always fills the lowest valley, with the item of
 * the largest key, and finds by trying what makes good keys. */
#include "allocator/pack/pack_valley.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"

#define NONE UINT32_MAX

enum { LOOK_EVERY = 64, EDGE_LEAST = 8 };

/* What an item's key is made of. */
typedef struct recipe {
    unsigned bytes_eighths, life_eighths; /* powers of size and lifetime, in eighths */
    unsigned load_squarings;              /* power 2^n of the highest load */
    unsigned edge_eighths;                /* factor of items at an edge of the valley, in eighths */
} recipe;

/* most: the largest value of each field. usual: the recipe to begin with. */
static const recipe most = {8, 8, 8, 32};
static const recipe usual = {2, 8, 5, 8};

/*
 * A run is a run of sections with one floor, named by its first section. Arrays are by section.
 *
 * Invariants: the runs cover all sections; neighbours have different floors;
 *             heap[0] is the lowest run;  heap[heap_at[s]] == s for each run s
 */
struct ashlar_pack_valley {
    ashlar_pack_state *state;
    double *loads;      /* [count], by item: highest load during its life / peak */
    uint32_t *sorted;   /* [count], by first section, the longest-lived first */
    uint32_t *after;    /* [count], by item: the next unplaced one with the same `first` */
    uint32_t *unplaced; /* first unplaced item that begins in a section */
    uint32_t *next, *before, *end; /* by run: its neighbours, and its end */
    size_t *floors;
    uint32_t *heap, *heap_at, heap_count;
    recipe best;
    size_t best_bytes; /* of the plan of that recipe; SIZE_MAX: no plan yet */
    uint64_t random;
};

/* ---- the heap of runs ---- */

static bool is_lower(const ashlar_pack_valley *v, uint32_t a, uint32_t b) {
    return v->floors[a] != v->floors[b] ? v->floors[a] < v->floors[b] : a < b;
}

static void put_at(ashlar_pack_valley *v, uint32_t at, uint32_t run) {
    v->heap[at] = run;
    v->heap_at[run] = at;
}

static void sift_up(ashlar_pack_valley *v, uint32_t at) {
    const uint32_t run = v->heap[at];
    for (; at > 0 && is_lower(v, run, v->heap[(at - 1) / 2]); at = (at - 1) / 2) {
        put_at(v, at, v->heap[(at - 1) / 2]);
    }
    put_at(v, at, run);
}

static void sift_down(ashlar_pack_valley *v, uint32_t at) {
    const uint32_t run = v->heap[at];
    for (;;) {
        uint32_t child = 2 * at + 1;
        child += child + 1 < v->heap_count && is_lower(v, v->heap[child + 1], v->heap[child]);
        if (child >= v->heap_count || !is_lower(v, v->heap[child], run)) {
            break;
        }
        put_at(v, at, v->heap[child]);
        at = child;
    }
    put_at(v, at, run);
}

/* ---- runs of one floor ---- */

static void add_run(ashlar_pack_valley *v, uint32_t first, uint32_t end, size_t floor,
                    uint32_t before, uint32_t next) {
    ASHLAR_CHECK2(first < end);
    v->end[first] = end;
    v->floors[first] = floor;
    v->before[first] = before;
    v->next[first] = next;
    if (before != NONE) {
        v->next[before] = first;
    }
    if (next != NONE) {
        v->before[next] = first;
    }
    put_at(v, v->heap_count++, first);
    sift_up(v, v->heap_at[first]);
}

static void remove_run(ashlar_pack_valley *v, uint32_t run) {
    const uint32_t at = v->heap_at[run], before = v->before[run], next = v->next[run];
    const uint32_t last = v->heap[--v->heap_count];
    if (last != run) {
        put_at(v, at, last);
        sift_up(v, at);
        sift_down(v, v->heap_at[last]);
    }
    if (before != NONE) {
        v->next[before] = next;
    }
    if (next != NONE) {
        v->before[next] = before;
    }
}

/* Make one run of a run and those neighbours that have its floor. */
static void merge(ashlar_pack_valley *v, uint32_t run) {
    const uint32_t before = v->before[run];
    if (before != NONE && v->floors[before] == v->floors[run]) {
        v->end[before] = v->end[run];
        remove_run(v, run);
        run = before;
    }
    const uint32_t next = v->next[run];
    if (next != NONE && v->floors[next] == v->floors[run]) {
        v->end[run] = v->end[next];
        remove_run(v, next);
    }
}

/* Nothing fits into the valley: raise its floor to the lower neighbour. */
static void raise_floor(ashlar_pack_valley *v, uint32_t run) {
    const uint32_t before = v->before[run], next = v->next[run];
    size_t floor = before != NONE ? v->floors[before] : SIZE_MAX;
    floor = next != NONE && v->floors[next] < floor ? v->floors[next] : floor;
    /* A run of all sections has no neighbour, but every item fits into it. */
    ASHLAR_CHECK2(floor != SIZE_MAX && floor > v->floors[run]);
    v->floors[run] = floor;
    sift_down(v, v->heap_at[run]);
    merge(v, run);
}

static void place(ashlar_pack_valley *v, uint32_t run, const ashlar_pack_item *item) {
    const uint32_t end = v->end[run], next = v->next[run];
    const size_t floor = v->floors[run];
    uint32_t before = v->before[run];
    remove_run(v, run);
    if (run < item->first) {
        add_run(v, run, item->first, floor, before, next);
        before = run;
    }
    add_run(v, item->first, item->end, floor + item->bytes, before, next);
    if (item->end < end) {
        add_run(v, item->end, end, floor, item->first, next);
    }
    merge(v, item->first);
}

/* ---- filling ---- */

/* The link to the unplaced item with the largest key inside a run; NULL: there is none. */
static uint32_t *choose(ashlar_pack_valley *v, uint32_t run, double edge) {
    const ashlar_pack_item *items = v->state->problem->items;
    const uint32_t end = v->end[run];
    uint32_t *best = NULL;
    double most_key = -1;
    for (uint32_t s = run; s < end; s++) {
        for (uint32_t *link = &v->unplaced[s]; *link != NONE; link = &v->after[*link]) {
            const uint32_t i = *link;
            double key = v->state->keys[i];
            if (items[i].end > end) {
                continue;
            }
            key *= s == run || items[i].end == end ? edge : 1;
            if (key > most_key) {
                most_key = key;
                best = link;
            }
        }
    }
    return best;
}

static void empty_plan(ashlar_pack_valley *v) {
    const ashlar_pack_items *p = v->state->problem;
    memset(v->unplaced, 0xff, p->section_count * sizeof *v->unplaced);
    for (size_t k = p->count; k-- > 0;) {
        const uint32_t i = v->sorted[k];
        v->after[i] = v->unplaced[p->items[i].first];
        v->unplaced[p->items[i].first] = i;
    }
    v->heap_count = 0;
    add_run(v, 0, (uint32_t)p->section_count, 0, NONE, NONE);
}

/* Place all items into `trial`. Returns the highest end, or SIZE_MAX if the budget ran out. */
static size_t fill(ashlar_pack_valley *v, double edge) {
    ashlar_pack_state *state = v->state;
    const ashlar_pack_items *p = state->problem;
    size_t top = 0, left = p->count;
    empty_plan(v);
    while (left > 0) {
        const uint32_t run = v->heap[0];
        uint32_t *link = choose(v, run, edge);
        if (link == NULL) {
            raise_floor(v, run);
            continue;
        }
        const uint32_t i = *link;
        const size_t floor = v->floors[run], end = floor + p->items[i].bytes;
        *link = v->after[i];
        state->trial[i] = floor;
        top = end > top ? end : top;
        place(v, run, &p->items[i]);
        if (--left % LOOK_EVERY == 0 && !ashlar__pack_budget_is_left(&state->budget)) {
            return SIZE_MAX;
        }
    }
    return top;
}

/* ---- keys ---- */

/* base^(eighths / 8). By square roots, which every machine rounds alike, unlike pow(). */
static double power(double base, unsigned eighths) {
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
        v->state->keys[i] = load * power((double)x->bytes, by->bytes_eighths) *
                            power((double)(x->end - x->first), by->life_eighths);
    }
}

static unsigned draw(ashlar_pack_valley *v, unsigned first, unsigned last) {
    return first + (unsigned)ashlar__random_step_below(&v->random, last - first + 1);
}

/* A number near `x`, in [least, most_x]. */
static unsigned near(ashlar_pack_valley *v, unsigned x, unsigned least, unsigned most_x) {
    const unsigned low = x > least ? x - 1 : x, high = x < most_x ? x + 1 : x;
    return draw(v, low, high);
}

/* First the usual recipe; then recipes near the best one and, now and then, a random one. */
static recipe next_recipe(ashlar_pack_valley *v) {
    const recipe b = v->best;
    if (v->best_bytes == SIZE_MAX) {
        return usual;
    }
    if (draw(v, 0, 2) == 0) {
        return (recipe){draw(v, 0, most.bytes_eighths), draw(v, 2, most.life_eighths),
                        draw(v, 0, most.load_squarings), draw(v, EDGE_LEAST, most.edge_eighths)};
    }
    return (recipe){near(v, b.bytes_eighths, 0, most.bytes_eighths),
                    near(v, b.life_eighths, 1, most.life_eighths),
                    near(v, b.load_squarings, 0, most.load_squarings),
                    near(v, b.edge_eighths, EDGE_LEAST, most.edge_eighths)};
}

void ashlar__pack_valley_run(ashlar_pack_valley *v, uint64_t plan_count) {
    ashlar_pack_state *state = v->state;
    for (uint64_t k = 0; k < plan_count; k++) {
        const recipe r = next_recipe(v);
        if (state->plan_bytes <= state->target_bytes ||
            !ashlar__pack_budget_is_left(&state->budget)) {
            break;
        }
        set_keys(v, &r);
        const size_t bytes = fill(v, r.edge_eighths / 8.0);
        if (bytes == SIZE_MAX) {
            break;
        }
        if (bytes <= v->best_bytes) {
            v->best_bytes = bytes;
            v->best = r;
        }
        ashlar__pack_keep_trial(state, bytes);
    }
}

/* ---- making ---- */

static int compare(const void *a, const void *b, void *context) {
    const ashlar_pack_item *items = context;
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    if (items[i].first != items[j].first) {
        return items[i].first < items[j].first ? -1 : 1;
    }
    if (items[i].end != items[j].end) {
        return items[i].end > items[j].end ? -1 : 1;
    }
    return (i > j) - (i < j);
}

/* Find the highest load during each item's life, by a tree of maxima over the S sections.
 * tree: [2 S], scratch. */
static void find_loads(ashlar_pack_valley *v, size_t *tree) {
    const ashlar_pack_items *p = v->state->problem;
    const size_t sections = p->section_count;
    memcpy(tree + sections, p->loads, sections * sizeof *tree);
    for (size_t n = sections; n-- > 1;) {
        tree[n] = tree[2 * n] > tree[2 * n + 1] ? tree[2 * n] : tree[2 * n + 1];
    }
    for (size_t i = 0; i < p->count; i++) {
        size_t highest = 0;
        for (size_t low = p->items[i].first + sections, high = p->items[i].end + sections;
             low < high; low = (low + 1) / 2, high /= 2) {
            const size_t left = low % 2 != 0 ? tree[low] : 0;
            const size_t right = high % 2 != 0 ? tree[high - 1] : 0;
            highest = left > highest ? left : highest;
            highest = right > highest ? right : highest;
        }
        v->loads[i] = (double)highest / (double)p->peak_bytes;
    }
}

static bool has_memory(ashlar_pack_valley *v) {
    const size_t count = v->state->problem->count, sections = v->state->problem->section_count;
    v->loads = ashlar__host_calloc(count, sizeof *v->loads);
    v->sorted = ashlar__host_calloc(count, sizeof *v->sorted);
    v->after = ashlar__host_calloc(count, sizeof *v->after);
    v->unplaced = ashlar__host_calloc(sections, sizeof *v->unplaced);
    v->next = ashlar__host_calloc(sections, sizeof *v->next);
    v->before = ashlar__host_calloc(sections, sizeof *v->before);
    v->end = ashlar__host_calloc(sections, sizeof *v->end);
    v->floors = ashlar__host_calloc(2 * sections, sizeof *v->floors); /* also find_loads()'s tree */
    v->heap = ashlar__host_calloc(sections, sizeof *v->heap);
    v->heap_at = ashlar__host_calloc(sections, sizeof *v->heap_at);
    return v->loads != NULL && v->sorted != NULL && v->after != NULL && v->unplaced != NULL &&
           v->next != NULL && v->before != NULL && v->end != NULL && v->floors != NULL &&
           v->heap != NULL && v->heap_at != NULL;
}

ashlar_status ashlar__pack_valley_create(ashlar_pack_state *state, ashlar_pack_valley **out) {
    const ashlar_pack_items *p = state->problem;
    ashlar_pack_valley *v = ashlar__host_calloc(1, sizeof *v);
    if (v != NULL) {
        v->state = state;
        v->best_bytes = SIZE_MAX;
    }
    if (v == NULL || !has_memory(v)) {
        ashlar__pack_valley_destroy(v);
        return ashlar__fail(ASHLAR_EHOSTMEM, "pack: no host memory for %zu buffers", p->count);
    }
    for (uint32_t i = 0; i < p->count; i++) {
        v->sorted[i] = i;
    }
    qsort_r(v->sorted, p->count, sizeof *v->sorted, compare, p->items);
    find_loads(v, v->floors);
    *out = v;
    return ASHLAR_OK;
}

void ashlar__pack_valley_destroy(ashlar_pack_valley *v) {
    if (v != NULL) {
        void *const all[] = {v->loads,  v->sorted, v->after,  v->unplaced, v->next,
                             v->before, v->end,    v->floors, v->heap,     v->heap_at};
        for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
            ashlar__host_free(all[k]);
        }
        ashlar__host_free(v);
    }
}
