/* pack_search.c - the exact search for a plan: depth first, from the bottom up, with restarts, and
 * a record of what proved impossible. */
#include "allocator/pack/pack_search.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"

enum {
    /* How many keys of impossible parts are remembered: this many per item, rounded to a power of
     * two within the limits. A new key may overwrite an old one. */
    MEMORY_OF_ITEM = 4096,
    MEMORY_SHIFT_MIN = 12,
    MEMORY_SHIFT_MAX = 20,
    RUN_STEPS = 1000,       /* of the shortest run */
    LOOK_EVERY = 1024,      /* steps between two reads of the clock */
    WEIGHT_OF_FAILURE = 64, /* added to the weight of a section that could not be filled */
    WEIGHT_MIN = 64,
    FRACTION = 256, /* 1.0 in the fixed-point values of items, equal on every machine */
};
_Static_assert(MEMORY_SHIFT_MIN > 0 && MEMORY_SHIFT_MAX < 64, "a key has as many bits to index by");
_Static_assert(FRACTION == 1 << 8, "log_2() has eight bits behind the point");

/* A choice that the search has made, and its alternatives. */
typedef struct level {
    uint64_t key;                        /* of the part, before the choice */
    size_t change_count;                 /* of the skyline, before the choice */
    uint32_t first, end;                 /* the part's sections, connected by unplaced items */
    uint32_t section;                    /* the section at the edge */
    uint32_t choice_at, candidate_count; /* in search->candidates */
    uint32_t next;                       /* the first candidate not tried yet */
} level;

struct ashlar_pack_search {
    ashlar_pack_skyline skyline;
    uint64_t *memory; /* [1 << memory_shift], keys; 0: empty slot */
    unsigned memory_shift;
    size_t memory_capacity; /* of the last search: parts that fail at it fail at any smaller one */
    uint32_t *weights;      /* by section */
    int64_t *preferences;   /* by item: the higher, the earlier it is tried in this run */
    level *levels;
    size_t level_count, level_capacity;
    uint32_t *candidates; /* a stack: the candidates of all levels */
    size_t candidate_count, choice_capacity;
    uint64_t random;
    uint64_t run_count;
};

/* ---- memory of failures ---- */

static uint64_t *memory_slot(const ashlar_pack_search *search, uint64_t key) {
    ASHLAR_CHECK2(key != 0); /* 0 stands for an empty slot */
    return &search->memory[key >> (64 - search->memory_shift)];
}

static void blame(ashlar_pack_search *search, uint32_t section) {
    ASHLAR_CHECK2(section < search->skyline.problem->section_count);
    search->weights[section] += WEIGHT_OF_FAILURE;
}

/* Let older failures count less. */
static void forget_a_little(ashlar_pack_search *search) {
    enum { SHARE = 16 };
    for (size_t s = 0; s < search->skyline.problem->section_count; s++) {
        ASHLAR_CHECK2(search->weights[s] >= WEIGHT_MIN);
        search->weights[s] -= (search->weights[s] - WEIGHT_MIN) / SHARE;
    }
}

/* ---- the order of candidates ---- */

/* The logarithm to base 2, times FRACTION; linear between powers of two. */
static int64_t log_2(uint64_t x) {
    int64_t whole = 0;
    ASHLAR_CHECK2(x > 0);
    for (uint64_t rest = x; rest > 1; rest /= 2) {
        whole++;
    }
    const uint64_t part = whole >= 8 ? x >> (whole - 8) : x << (8 - whole);
    return whole * FRACTION + (int64_t)(part - FRACTION);
}

/* Prefer long-lived and large items. After the first run, weight size at random, and add noise. */
static void draw_preferences(ashlar_pack_search *search) {
    const ashlar_pack_items *p = search->skyline.problem;
    const bool is_first = search->run_count == 0;
    const double weight = ashlar__random_step_uniform(&search->random);
    const int64_t bytes_weight = is_first ? FRACTION : (int64_t)(weight * FRACTION);
    const double noise = 1.5 * FRACTION;
    for (size_t i = 0; i < p->count; i++) {
        const ashlar_pack_item *x = &p->items[i];
        search->preferences[i] =
            log_2(x->bytes) * bytes_weight / FRACTION + log_2(x->end - x->first);
        if (!is_first) {
            search->preferences[i] +=
                (int64_t)(noise * ashlar__random_step_uniform(&search->random));
        }
    }
}

/* Prefer items that make the skyline simpler. */
static int64_t value_of(const ashlar_pack_search *search, uint32_t item) {
    const ashlar_pack_skyline *b = &search->skyline;
    const ashlar_pack_item *x = &b->problem->items[item];
    ASHLAR_CHECK2(!b->is_placed[item] && b->floors[x->first] != ASHLAR_PACK_DONE);
    const size_t floor = b->floors[x->first], top = floor + x->bytes;
    const size_t left = b->crossings[x->first] > 0 ? b->floors[x->first - 1] : ASHLAR_PACK_DONE;
    const size_t right = b->crossings[x->end] > 0 ? b->floors[x->end] : ASHLAR_PACK_DONE;
    const int is_flush = (top == left || top == right) + (top == left && top == right);
    const int is_wide = left > floor && right > floor;
    return search->preferences[item] + (is_flush + is_wide) * FRACTION;
}

static void sort_candidates(const ashlar_pack_search *search, uint32_t *candidates,
                            uint32_t count) {
    for (uint32_t i = 1; i < count; i++) {
        const uint32_t item = candidates[i];
        const int64_t value = value_of(search, item);
        uint32_t to = i;
        for (; to > 0 && value_of(search, candidates[to - 1]) < value; to--) {
            candidates[to] = candidates[to - 1];
        }
        candidates[to] = item;
    }
}

/* ---- levels ---- */

static bool reserve(void **array, size_t *capacity, size_t needed, size_t bytes) {
    if (needed <= *capacity) {
        return true;
    }
    void *grown = ashlar__host_realloc(*array, 2 * needed, bytes);
    if (grown == NULL) {
        return false;
    }
    *array = grown;
    *capacity = 2 * needed;
    return true;
}

/* Push a level with the candidates at `edge`. False: no host memory. */
static bool push_level(ashlar_pack_search *search, const ashlar_pack_edge *edge, level new) {
    void *levels = search->levels, *candidates = search->candidates;
    const bool is_ok =
        reserve(&levels, &search->level_capacity, search->level_count + 1, sizeof(level)) &&
        reserve(&candidates, &search->choice_capacity,
                search->candidate_count + edge->candidate_count, sizeof(uint32_t));
    search->levels = levels;
    search->candidates = candidates;
    if (!is_ok) {
        return false;
    }
    ASHLAR_CHECK2(new.first <= new.section && new.section < new.end);
    uint32_t *const mine = &search->candidates[search->candidate_count];
    uint32_t count = ashlar__pack_skyline_candidates(&search->skyline, edge, mine);
    sort_candidates(search, mine, count);
    if (edge->may_stay_empty) {
        mine[count++] = ASHLAR_PACK_NONE;
    }
    ASHLAR_CHECK2(count > 0 && count == edge->candidate_count); /* there is room for no more */
    new.choice_at = (uint32_t)search->candidate_count;
    new.candidate_count = count;
    search->candidate_count += count;
    search->levels[search->level_count++] = new;
    return true;
}

static void pop_level(ashlar_pack_search *search) {
    ASHLAR_CHECK2(search->level_count > 0);
    const level *top = &search->levels[--search->level_count];
    ASHLAR_CHECK2(top->choice_at + top->candidate_count == search->candidate_count); /* it is a
                                                                                      * stack */
    ashlar__pack_skyline_undo(&search->skyline, top->change_count);
    search->candidate_count = top->choice_at;
}

/* Make the top level's next choice. */
static void choose(ashlar_pack_search *search) {
    ASHLAR_CHECK2(search->level_count > 0);
    level *top = &search->levels[search->level_count - 1];
    ASHLAR_CHECK2(top->next < top->candidate_count);
    const uint32_t item = search->candidates[top->choice_at + top->next++];
    if (item == ASHLAR_PACK_NONE) {
        ashlar__pack_skyline_close(&search->skyline, top->section);
    } else {
        ashlar__pack_skyline_place(&search->skyline, item);
    }
}

/*
 * Section `stuck` cannot be filled: go back to the last choice that may be the cause and has an
 * alternative. Parts only ever split, so the part of a level either contains the section or is
 * independent of it. If such a choice has no alternative left, its whole part is impossible. False:
 * no level is left, so there is no plan.
 */
static bool go_back(ashlar_pack_search *search, uint32_t stuck) {
    while (search->level_count > 0) {
        level *top = &search->levels[search->level_count - 1];
        const bool is_to_blame = top->first <= stuck && stuck < top->end;
        if (is_to_blame && top->next < top->candidate_count) {
            ashlar__pack_skyline_undo(&search->skyline, top->change_count);
            ASHLAR_CHECK3(top->key ==
                          ashlar__pack_skyline_key(&search->skyline, top->first, top->end));
            return true;
        }
        if (is_to_blame) {
            *memory_slot(search, top->key) = top->key;
        }
        pop_level(search);
    }
    return false;
}

/* ---- runs ---- */

static void start_again(ashlar_pack_search *search) {
    search->level_count = 0;
    search->candidate_count = 0;
    ashlar__pack_skyline_undo(&search->skyline, 0);
    ASHLAR_CHECK2(search->skyline.rests[0] == search->skyline.problem->loads[0]); /* nothing is
                                                                                   * placed */
    draw_preferences(search);
}

/* Find the next edge: in the part of the last choice or, if that is filled, anywhere. */
static ashlar_pack_edge_result look(ashlar_pack_search *search, ashlar_pack_edge *edge,
                                    uint32_t *stuck) {
    const uint32_t all = (uint32_t)search->skyline.problem->section_count;
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

/* Make one move forward; *view tells its outcome. False: no host memory. */
static bool move(ashlar_pack_search *search, ashlar_pack_edge_result *view, uint32_t *stuck) {
    ashlar_pack_edge edge;
    level new = {0};
    *view = look(search, &edge, stuck);
    if (*view != ASHLAR_PACK_EDGE) {
        return !search->skyline.has_failed;
    }
    new.change_count = search->skyline.change_count; /* going back keeps what look() has levelled */
    new.section = ashlar__pack_edge_section(&edge);
    new.first = new.section;
    new.end = new.section + 1;
    ashlar__pack_skyline_connect(&search->skyline, &new.first, &new.end);
    new.key = ashlar__pack_skyline_key(&search->skyline, new.first, new.end);
    if (*memory_slot(search, new.key) == new.key) {
        *stuck = new.section;
        *view = ASHLAR_PACK_STUCK;
        return true;
    }
    return push_level(search, &edge, new) && !search->skyline.has_failed;
}

/* Make a run of at most *steps steps, and subtract the steps made. */
static ashlar_status run(ashlar_pack_search *search, uint64_t *steps, ashlar_pack_budget *budget,
                         ashlar_pack_outcome *outcome) {
    *outcome = ASHLAR_PACK_UNDECIDED;
    start_again(search);
    for (; *steps > 0; --*steps) {
        ashlar_pack_edge_result view;
        uint32_t stuck = 0;
        if (!move(search, &view, &stuck)) {
            return ashlar__fail(ASHLAR_EHOSTMEM, "pack: no host memory to search on");
        }
        if (view == ASHLAR_PACK_FILLED) {
            ASHLAR_CHECK2(search->skyline.rests[0] == 0);
            *outcome = ASHLAR_PACK_FOUND;
            return ASHLAR_OK;
        }
        if (view == ASHLAR_PACK_STUCK) {
            blame(search, stuck);
            if (!go_back(search, stuck)) {
                *outcome = ASHLAR_PACK_IMPOSSIBLE;
                return ASHLAR_OK;
            }
        }
        choose(search);
        if (*steps % LOOK_EVERY == 0 && !ashlar__pack_budget_is_left(budget)) {
            return ASHLAR_OK;
        }
    }
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

static bool fits(const ashlar_pack_search *search) {
    const ashlar_pack_items *p = search->skyline.problem;
    return p->peak_bytes <= search->skyline.capacity;
}

ashlar_status ashlar__pack_search_run(ashlar_pack_search *search, size_t capacity,
                                      uint64_t node_limit, ashlar_pack_budget *budget,
                                      size_t *offsets, ashlar_pack_outcome *outcome) {
    ashlar_pack_outcome found = ASHLAR_PACK_UNDECIDED;
    if (capacity > search->memory_capacity) {
        memset(search->memory, 0, sizeof(uint64_t) << search->memory_shift);
    }
    search->memory_capacity = capacity;
    search->skyline.capacity = capacity;
    if (!fits(search)) {
        *outcome = ASHLAR_PACK_IMPOSSIBLE;
        return ASHLAR_OK;
    }
    while (found == ASHLAR_PACK_UNDECIDED && node_limit > 0 && !budget->is_stopped) {
        uint64_t length = length_of_run(search->run_count);
        length = length < node_limit ? length : node_limit;
        node_limit -= length;
        ASHLAR_TRY(run(search, &length, budget, &found));
        search->run_count++;
        forget_a_little(search);
    }
    if (found == ASHLAR_PACK_FOUND) {
        memcpy(offsets, search->skyline.offsets, search->skyline.problem->count * sizeof *offsets);
    }
    *outcome = found;
    return ASHLAR_OK;
}

/* ---- making ---- */

ashlar_status ashlar__pack_search_create(const ashlar_pack_items *problem,
                                         ashlar_pack_search **out) {
    ashlar_pack_search *search = ashlar__host_calloc(1, sizeof *search);
    if (search != NULL) {
        search->memory_shift = MEMORY_SHIFT_MIN;
        while (search->memory_shift < MEMORY_SHIFT_MAX &&
               (size_t)1 << search->memory_shift < MEMORY_OF_ITEM * problem->count) {
            search->memory_shift++;
        }
        search->memory =
            ashlar__host_calloc((size_t)1 << search->memory_shift, sizeof *search->memory);
        search->weights = ashlar__host_calloc(problem->section_count, sizeof *search->weights);
        search->preferences = ashlar__host_calloc(problem->count, sizeof *search->preferences);
    }
    if (search == NULL || search->memory == NULL || search->weights == NULL ||
        search->preferences == NULL) {
        ashlar__pack_search_destroy(search);
        return ashlar__fail(ASHLAR_EHOSTMEM, "pack: no host memory to search with %zu buffers",
                            problem->count);
    }
    for (size_t s = 0; s < problem->section_count; s++) {
        search->weights[s] = WEIGHT_MIN;
    }
    const ashlar_status status = ashlar__pack_skyline_init(&search->skyline, problem);
    if (status != ASHLAR_OK) {
        ashlar__pack_search_destroy(search);
        return status;
    }
    *out = search;
    return ASHLAR_OK;
}

void ashlar__pack_search_destroy(ashlar_pack_search *search) {
    if (search == NULL) {
        return;
    }
    if (search->skyline.problem != NULL) {
        ashlar__pack_skyline_finish(&search->skyline);
    }
    ashlar__host_free(search->memory);
    ashlar__host_free(search->weights);
    ashlar__host_free(search->preferences);
    ashlar__host_free(search->levels);
    ashlar__host_free(search->candidates);
    ashlar__host_free(search);
}
