/*
 * pack_search.c - the exact search for a plan within a capacity.
 *
 * A depth-first search over the candidates at the edges of a skyline; edges with the fewest
 * candidates come first. It is fast because
 *   - a part of the skyline that no unplaced item connects with the rest is a problem of its own: a
 *     failure there undoes nothing elsewhere;
 *   - it remembers parts that were found impossible, also for later searches;
 *   - after a number of steps it starts again with other preferences among items, and turns first
 *     to the sections where it has failed most.
 */
#include "allocator/pack/pack_internal.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/random.h"

enum {
    MEMORY_SHIFT = 18,      /* 2^18 keys of impossible parts; a new one may overwrite an old one */
    RUN_STEPS = 1000,       /* of the shortest run */
    LOOK_EVERY = 1024,      /* steps between two reads of the clock */
    WEIGHT_OF_FAILURE = 64, /* added to the weight of a section that could not be filled */
    WEIGHT_MIN = 64,
    FORGET_SHARE = 16, /* after each run the weights lose 1/16 of what failures have added */
};

/* A choice that the search has made. */
typedef struct level {
    uint64_t key;          /* of the part, before the choice */
    size_t change_count;   /* of the skyline, before the choice */
    uint32_t first, end;   /* the part's sections, connected by unplaced items */
    ashlar_pack_edge edge; /* where it chooses */
    bool has_item;         /* an item has been tried */
    bool is_empty;         /* nothing rests there, which is tried last */
    uint32_t item;         /* the last one tried */
    double value;          /* of that item */
} level;

struct ashlar_pack_search {
    ashlar_pack_state *state;
    ashlar_pack_skyline skyline;
    uint64_t *memory;       /* [1 << MEMORY_SHIFT], keys; 0: empty slot */
    size_t memory_capacity; /* of the last search: parts that fail at it fail at any smaller one */
    uint32_t *weights;      /* by section */
    double *preferences;    /* by item: the higher, the earlier it is tried in this run */
    level *levels;
    size_t level_count, level_capacity;
    uint64_t random;
    uint64_t run_count;
};

static uint64_t *memory_slot(const ashlar_pack_search *search, uint64_t key) {
    ASHLAR_CHECK2(key != 0); /* 0 stands for an empty slot */
    return &search->memory[key >> (64 - MEMORY_SHIFT)];
}

/* ---- choices ---- */

/* Prefer long-lived and large items. After the first run, weight size at random, and add noise. */
static void draw_preferences(ashlar_pack_search *search) {
    const ashlar_pack_items *p = search->state->problem;
    const bool is_first = search->run_count == 0;
    const unsigned eighths = (unsigned)ashlar__random_step_below(&search->random, 9);
    for (size_t i = 0; i < p->count; i++) {
        const ashlar_pack_item *x = &p->items[i];
        const double noise = 1 + 2 * ashlar__random_step_uniform(&search->random);
        search->preferences[i] = (is_first ? 1 : noise) * ashlar__pack_life(x) *
                                 ashlar__pack_power((double)x->bytes, is_first ? 8 : eighths);
    }
}

/* Prefer items that make the skyline simpler. */
static double value_of(const ashlar_pack_search *search, uint32_t item) {
    const ashlar_pack_skyline *b = &search->skyline;
    const ashlar_pack_item *x = &b->problem->items[item];
    const size_t floor = b->floors[x->first], top = floor + x->bytes;
    const size_t left = ashlar__pack_wall_left(b, x->first);
    const size_t right = ashlar__pack_wall_right(b, x->end);
    double value = search->preferences[item];
    value *= top == left || top == right ? 2 : 1;
    value *= top == left && top == right ? 2 : 1;
    return value * (left > floor && right > floor ? 2 : 1);
}

/* Make the top level's next choice: the candidate of the highest value below the last one's; of
 * equal values, the lower index comes first. False: there is none. */
static bool choose(ashlar_pack_search *search) {
    ashlar_pack_skyline *b = &search->skyline;
    level *top = &search->levels[search->level_count - 1];
    const level last = *top;
    bool is_found = false;
    for (uint32_t k = b->first_at[last.edge.first]; k < b->first_at[last.edge.end]; k++) {
        const uint32_t i = b->by_first[k];
        if (last.is_empty || !ashlar__pack_skyline_may_rest(b, &last.edge, i)) {
            continue;
        }
        const double value = value_of(search, i);
        const bool is_new =
            !last.has_item || value < last.value || (value == last.value && i > last.item);
        if (is_new && (!is_found || value > top->value)) {
            *top = last;
            top->has_item = is_found = true;
            top->item = i;
            top->value = value;
        }
    }
    if (is_found) {
        ashlar__pack_skyline_place(b, top->item);
    } else if (last.edge.may_stay_empty && !last.is_empty) {
        top->is_empty = is_found = true;
        ashlar__pack_skyline_close(b, ashlar__pack_edge_section(&last.edge));
    }
    return is_found;
}

/*
 * Section `stuck` cannot be filled: go back to the last choice that may be the cause, and make
 * another one. Parts only ever split, so the part of a level either contains the section or is
 * independent of it. If such a choice has no alternative left, its whole part is impossible. False:
 * no level is left, so there is no plan.
 */
static bool go_back(ashlar_pack_search *search, uint32_t stuck) {
    for (; search->level_count > 0; search->level_count--) {
        const level *top = &search->levels[search->level_count - 1];
        ashlar__pack_skyline_undo(&search->skyline, top->change_count);
        if (top->first <= stuck && stuck < top->end) {
            ASHLAR_CHECK3(top->key ==
                          ashlar__pack_skyline_key(&search->skyline, top->first, top->end));
            if (choose(search)) {
                return true;
            }
            *memory_slot(search, top->key) = top->key;
        }
    }
    return false;
}

/* ---- runs ---- */

/* Find the next edge: in the part of the last choice or, if that is filled, anywhere. */
static ashlar_pack_edge_result look(ashlar_pack_search *search, ashlar_pack_edge *edge,
                                    uint32_t *stuck) {
    const uint32_t all = (uint32_t)search->state->problem->section_count;
    ashlar_pack_edge_result view = ASHLAR_PACK_FILLED;
    if (search->level_count > 0) {
        const level *top = &search->levels[search->level_count - 1];
        view = ashlar__pack_skyline_find_edge(&search->skyline, top->first, top->end,
                                              search->weights, edge, stuck);
    }
    return view != ASHLAR_PACK_FILLED ? view
                                      : ashlar__pack_skyline_find_edge(
                                            &search->skyline, 0, all, search->weights, edge, stuck);
}

/* Make a step forward, to a new level, or find that there is none. */
static ashlar_pack_edge_result advance(ashlar_pack_search *search, uint32_t *stuck) {
    level new = {0};
    const ashlar_pack_edge_result view = look(search, &new.edge, stuck);
    if (view != ASHLAR_PACK_EDGE) {
        return view;
    }
    new.change_count = search->skyline.change_count; /* going back keeps what look() has raised */
    new.first = ashlar__pack_edge_section(&new.edge);
    new.end = new.first + 1;
    *stuck = new.first;
    ashlar__pack_skyline_connect(&search->skyline, &new.first, &new.end);
    new.key = ashlar__pack_skyline_key(&search->skyline, new.first, new.end);
    if (*memory_slot(search, new.key) == new.key) {
        return ASHLAR_PACK_STUCK;
    }
    level *levels = ashlar__pack_grow(search->state->memory, search->levels,
                                      &search->level_capacity, search->level_count + 1, sizeof new);
    if (levels == NULL) {
        return ASHLAR_PACK_STUCK; /* the caller looks at has_failed */
    }
    search->levels = levels;
    search->levels[search->level_count++] = new;
    const bool has_choice = choose(search);
    ASHLAR_CHECK2(has_choice); /* an edge has a candidate */
    (void)has_choice;
    return ASHLAR_PACK_EDGE;
}

/* Make a run of at most `steps` steps. */
static ashlar_status run(ashlar_pack_search *search, uint64_t steps, ashlar_pack_outcome *outcome) {
    search->level_count = 0;
    ashlar__pack_skyline_undo(&search->skyline, 0);
    draw_preferences(search);
    for (; steps > 0 && *outcome == ASHLAR_PACK_UNDECIDED; steps--) {
        uint32_t stuck = 0;
        const ashlar_pack_edge_result view = advance(search, &stuck);
        ASHLAR_TRY(ashlar__pack_memory_check(search->state->memory));
        if (view == ASHLAR_PACK_FILLED) {
            *outcome = ASHLAR_PACK_FOUND;
        } else if (view == ASHLAR_PACK_STUCK) {
            search->weights[stuck] += WEIGHT_OF_FAILURE;
            *outcome = go_back(search, stuck) ? ASHLAR_PACK_UNDECIDED : ASHLAR_PACK_IMPOSSIBLE;
        }
        if (steps % LOOK_EVERY == 0 && !ashlar__pack_has_time(search->state)) {
            break;
        }
    }
    for (size_t s = 0; s < search->state->problem->section_count; s++) {
        search->weights[s] -= (search->weights[s] - WEIGHT_MIN) / FORGET_SHARE;
    }
    search->run_count++;
    return ASHLAR_OK;
}

/* Luby's sequence, 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 ...: if it is unknown how long runs should
 * be, it is within a logarithmic factor of the best sequence. */
static uint64_t length_of_run(uint64_t idx) {
    uint64_t size = 1, length = 1; /* the sequence's first `length` numbers end in `size` */
    while (length < idx + 1) {
        length = 2 * length + 1;
        size *= 2;
    }
    while (length != idx + 1) {
        length /= 2;
        size /= 2;
        idx = idx >= length ? idx - length : idx;
    }
    ASHLAR_CHECK2(size > 0 && (size & (size - 1)) == 0);
    return size * RUN_STEPS;
}

ashlar_status ashlar__pack_search_run(ashlar_pack_search *search, size_t capacity, uint64_t steps,
                                      ashlar_pack_outcome *outcome) {
    ashlar_pack_state *state = search->state;
    const ashlar_pack_items *p = state->problem;
    if (capacity > search->memory_capacity) {
        memset(search->memory, 0, sizeof(uint64_t) << MEMORY_SHIFT);
    }
    search->memory_capacity = capacity;
    search->skyline.capacity = capacity;
    *outcome = p->peak_bytes <= capacity ? ASHLAR_PACK_UNDECIDED : ASHLAR_PACK_IMPOSSIBLE;
    while (*outcome == ASHLAR_PACK_UNDECIDED && steps > 0 && !state->budget.is_stopped) {
        const uint64_t usual = length_of_run(search->run_count);
        const uint64_t length = usual < steps ? usual : steps;
        steps -= length;
        ASHLAR_TRY(run(search, length, outcome));
    }
    if (*outcome == ASHLAR_PACK_FOUND) {
        memcpy(state->trial, search->skyline.offsets, p->count * sizeof *state->trial);
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__pack_search_create(ashlar_pack_state *state, ashlar_pack_search **out) {
    const ashlar_pack_items *p = state->problem;
    ashlar_pack_memory *m = state->memory;
    ashlar_pack_search *search = ashlar__pack_alloc(m, 1, sizeof *search);
    ASHLAR_TRY(ashlar__pack_memory_check(m));
    search->state = state;
    search->memory = ashlar__pack_alloc(m, (size_t)1 << MEMORY_SHIFT, sizeof *search->memory);
    search->weights = ashlar__pack_alloc(m, p->section_count, sizeof *search->weights);
    search->preferences = ashlar__pack_alloc(m, p->count, sizeof *search->preferences);
    ASHLAR_TRY(ashlar__pack_memory_check(m));
    for (size_t s = 0; s < p->section_count; s++) {
        search->weights[s] = WEIGHT_MIN;
    }
    *out = search;
    return ashlar__pack_skyline_init(&search->skyline, m, p);
}
