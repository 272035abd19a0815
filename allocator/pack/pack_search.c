/*
 * pack_search.c - the exact search for a plan within a capacity.
 *
 * A depth-first search that fills a skyline (below) with items from the bottom up. Each step looks
 * for the edge of a valley at which the fewest items could be placed next, and tries those in turn.
 * It is fast because
 *   - a part of the skyline that no unplaced item connects with the rest is a problem of its own: a
 *     failure there undoes nothing elsewhere;
 *   - it remembers parts that were found impossible, also for later searches;
 *   - after a number of steps it starts again, and tries items in another order.
 */
#include "allocator/pack/pack_internal.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/random.h"

/* ---- the unfinished plan ---- */

#define DONE SIZE_MAX   /* the floor of a section without unplaced items: a wall */
#define NONE UINT32_MAX /* no item */

/* A change that can be undone: an item placed, or sections [first, end) closed or raised. */
typedef struct sky_change {
    size_t floor; /* of these sections, before */
    uint32_t item, first, end;
    bool was_closed;
} sky_change;

/*
 * A plan that is filled from the bottom up. If there is a plan at all, there is one in which no
 * item can sink: each rests on another item or at offset 0. The floor of a section is where the
 * next item in it would rest. A valley is a run of sections with one floor that is lower than its
 * neighbours. On each section of that floor rests either an item that lies wholly inside the
 * valley, or nothing. At an edge of the valley, its first or last section, candidates are few: only
 * items that begin (or end) exactly there, and "nothing".
 *
 * Invariants, for each section s:
 *   rests[s] == sum of bytes of the unplaced items live in s
 *   floors[s] >= highest end of a placed item live in s, or DONE if and only if rests[s] == 0
 *   floors[s] + rests[s] <= capacity, unless DONE
 *   crossings[s] == number of unplaced items live in both s - 1 and s; 0 at either end
 *   is_closed[s]: no item will rest on floors[s] in section s
 */
typedef struct skyline {
    const ashlar_pack_items *problem;
    ashlar_pack_memory *memory;
    size_t capacity;
    size_t *floors, *rests;
    uint32_t *crossings; /* [section_count + 1] */
    bool *is_closed;
    bool *is_placed;     /* by item */
    size_t *offsets;     /* by item, for placed items */
    uint32_t *by_first;  /* all items, sorted by `first`; those of section s ... */
    uint32_t *first_at;  /* ... start at first_at[s] */
    sky_change *changes; /* all changes since the skyline was empty, oldest first */
    size_t change_count, change_capacity;
} skyline;

/* An edge of a valley, where the search continues. */
typedef struct sky_edge {
    uint32_t first, end;      /* a run of the valley's sections that are not closed */
    bool is_right;            /* the edge is section end - 1; false: section first */
    bool may_stay_empty;      /* "nothing rests there" is a candidate, too */
    uint32_t candidate_count; /* >= 1; "nothing" is counted, too */
} sky_edge;

typedef enum edge_result {
    EDGE,   /* there is a candidate */
    STUCK,  /* an edge has no candidate: no plan has these placements */
    FILLED, /* nothing is left to place */
} edge_result;

static inline uint32_t section_of(const sky_edge *edge) {
    return edge->is_right ? edge->end - 1 : edge->first;
}

/* Whether an item of the edge's sections is a candidate there. */
static inline bool may_rest(const skyline *b, const sky_edge *edge, uint32_t item) {
    const ashlar_pack_item *x = &b->problem->items[item];
    const bool is_there = edge->is_right ? x->end == edge->end : x->first == edge->first;
    return is_there && x->end <= edge->end && !b->is_placed[item];
}

/* The floor to the left of a section, or to the right of the one before `end`. DONE if no unplaced
 * item is live in both sections. */
static inline size_t wall_left(const skyline *b, uint32_t section) {
    return b->crossings[section] > 0 ? b->floors[section - 1] : DONE;
}

static inline size_t wall_right(const skyline *b, uint32_t end) {
    return b->crossings[end] > 0 ? b->floors[end] : DONE;
}

/* ---- changes ---- */

/* If host memory runs out, the change is lost and the skyline can no longer be undone. The search
 * sees memory->has_failed and ends. */
static void record(skyline *b, sky_change change) {
    sky_change *changes = ashlar__pack_grow(b->memory, b->changes, &b->change_capacity,
                                            b->change_count + 1, sizeof *changes);
    if (changes != NULL) {
        b->changes = changes;
        b->changes[b->change_count++] = change;
    }
}

/* Place a candidate on the floor below it. */
static void place(skyline *b, uint32_t item) {
    const ashlar_pack_item *x = &b->problem->items[item];
    const size_t offset = b->floors[x->first];
    ASHLAR_CHECK2(!b->is_placed[item]);
    ASHLAR_CHECK2(offset != DONE && x->bytes <= b->capacity - offset);
    record(b, (sky_change){.floor = offset, .item = item});
    b->is_placed[item] = true;
    b->offsets[item] = offset;
    for (uint32_t s = x->first; s < x->end; s++) {
        ASHLAR_CHECK2(b->floors[s] == offset && !b->is_closed[s]); /* the item lies in one valley */
        ASHLAR_CHECK2(b->rests[s] >= x->bytes);
        b->rests[s] -= x->bytes;
        b->floors[s] = b->rests[s] == 0 ? DONE : offset + x->bytes;
        b->crossings[s] -= s > x->first;
    }
}

/* Decide that nothing rests in the section. */
static void close_section(skyline *b, uint32_t section) {
    ASHLAR_CHECK2(!b->is_closed[section] && b->floors[section] != DONE);
    record(b, (sky_change){
                  .floor = b->floors[section], .item = NONE, .first = section, .end = section + 1});
    b->is_closed[section] = true;
}

/* Raise the floor of a valley whose sections are all closed, which opens them again. */
static void raise_floor(skyline *b, uint32_t first, uint32_t end, size_t floor) {
    record(b, (sky_change){.floor = b->floors[first],
                           .item = NONE,
                           .first = first,
                           .end = end,
                           .was_closed = true});
    for (uint32_t s = first; s < end; s++) {
        ASHLAR_CHECK2(b->is_closed[s] && b->rests[s] > 0 && b->rests[s] <= b->capacity - floor);
        b->floors[s] = floor;
        b->is_closed[s] = false;
    }
}

/* Undo the newest changes until `change_count` are left. */
static void undo(skyline *b, size_t change_count) {
    ASHLAR_CHECK2(change_count <= b->change_count && b->change_count <= b->change_capacity);
    while (b->change_count > change_count) {
        const sky_change *change = &b->changes[--b->change_count];
        const bool is_item = change->item != NONE;
        const ashlar_pack_item *x = is_item ? &b->problem->items[change->item] : NULL;
        const uint32_t first = is_item ? x->first : change->first;
        const uint32_t end = is_item ? x->end : change->end;
        for (uint32_t s = first; s < end; s++) {
            b->floors[s] = change->floor;
            b->is_closed[s] = change->was_closed;
            b->rests[s] += is_item ? x->bytes : 0;
            b->crossings[s] += is_item && s > first;
            ASHLAR_CHECK2(b->rests[s] <= b->problem->loads[s]);
        }
        if (is_item) {
            b->is_placed[change->item] = false;
        }
    }
}

/* ---- parts ---- */

/* Widen [*first, *end) to all sections that unplaced items connect with it. */
static void widen(const skyline *b, uint32_t *first, uint32_t *end) {
    ASHLAR_CHECK2(*first < *end && *end <= b->problem->section_count);
    while (b->crossings[*first] > 0) {
        --*first;
    }
    while (b->crossings[*end] > 0) {
        ++*end;
    }
}

/* A hash, never 0, of everything on which filling the connected sections [first, end) depends. */
static uint64_t key_of(const skyline *b, uint32_t first, uint32_t end) {
    uint64_t key = 0;
    ASHLAR_CHECK2(b->crossings[first] == 0 && b->crossings[end] == 0); /* no item crosses */
    for (uint32_t s = first; s < end; s++) {
        key += ashlar__random_mix(b->floors[s] * 0x9e3779b97f4a7c15U + s * 0xda942042e4dd58b5U +
                                  b->is_closed[s]);
    }
    for (uint32_t k = b->first_at[first]; k < b->first_at[end]; k++) {
        key += b->is_placed[b->by_first[k]] ? 0 : ashlar__random_mix(~(uint64_t)b->by_first[k]);
    }
    return key | 1;
}

/* ---- the edges of valleys ---- */

/* Sections [first, end) of one floor, lower than the walls on both sides. */
typedef struct valley {
    uint32_t first, end;
    size_t depth; /* to the lower wall; SIZE_MAX if both walls are DONE */
} valley;

typedef struct edge_search {
    skyline *skyline;
    sky_edge *edge; /* the best edge so far */
    bool has_edge;
    uint32_t *stuck;
} edge_search;

/* The bytes that section s can still leave empty, below the capacity. */
static size_t slack(const skyline *b, uint32_t s) {
    ASHLAR_CHECK2(b->floors[s] <= b->capacity && b->rests[s] <= b->capacity - b->floors[s]);
    return b->capacity - b->floors[s] - b->rests[s];
}

/* Count the candidates of an edge. "Nothing" is one if the section has the slack for it: its floor
 * then rises at least to a wall, or by the smallest item of the valley that is not live there. */
static void count_candidates(const skyline *b, const valley *h, sky_edge *edge) {
    size_t least = h->depth;
    for (uint32_t k = b->first_at[edge->first]; k < b->first_at[edge->end]; k++) {
        const ashlar_pack_item *x = &b->problem->items[b->by_first[k]];
        if (may_rest(b, edge, b->by_first[k])) {
            edge->candidate_count++;
        } else if (!b->is_placed[b->by_first[k]] && x->end <= edge->end) {
            least = x->bytes < least ? x->bytes : least;
        }
    }
    edge->may_stay_empty = least <= slack(b, section_of(edge));
    edge->candidate_count += edge->may_stay_empty;
}

/* Keep the edge if it is better than the best one so far. False: it has no candidate at all. */
static bool consider(edge_search *l, const valley *h, sky_edge edge) {
    count_candidates(l->skyline, h, &edge);
    if (edge.candidate_count == 0) {
        *l->stuck = section_of(&edge);
        return false;
    }
    if (!l->has_edge || edge.candidate_count < l->edge->candidate_count) {
        *l->edge = edge;
        l->has_edge = true;
    }
    return true;
}

/* Consider both edges of each run of open sections. False: one has no candidate. */
static bool search_valley(edge_search *l, const valley *h, bool *is_open) {
    const skyline *b = l->skyline;
    for (uint32_t first = h->first, end; first < h->end; first = end) {
        end = first + 1;
        if (b->is_closed[first]) {
            continue;
        }
        while (end < h->end && !b->is_closed[end]) {
            end++;
        }
        *is_open = true;
        if (!consider(l, h, (sky_edge){.first = first, .end = end}) ||
            !consider(l, h, (sky_edge){.first = first, .end = end, .is_right = true})) {
            return false;
        }
    }
    return true;
}

/* Nothing more can rest in the valley: raise it to its lower wall. False: it has too little
 * slack. */
static bool fill_up(edge_search *l, const valley *h) {
    for (uint32_t s = h->first; s < h->end; s++) {
        if (h->depth == SIZE_MAX || h->depth > slack(l->skyline, s)) {
            *l->stuck = s;
            return false;
        }
    }
    raise_floor(l->skyline, h->first, h->end, l->skyline->floors[h->first] + h->depth);
    return true;
}

/* The run of sections with one floor that begins at *at; moves *at behind it. False: no valley. */
static bool next_run(const skyline *b, uint32_t *at, uint32_t end, valley *out) {
    const uint32_t first = *at;
    const size_t floor = b->floors[first];
    uint32_t stop = first + 1;
    while (stop < end && b->floors[stop] == floor && b->crossings[stop] > 0) {
        stop++;
    }
    *at = stop;
    const size_t left = wall_left(b, first), right = wall_right(b, stop);
    const size_t wall = left < right ? left : right;
    if (floor == DONE || wall < floor) {
        return false;
    }
    ASHLAR_CHECK2(wall > floor); /* a floor of this height would be part of the run */
    *out = (valley){first, stop, wall == DONE ? SIZE_MAX : wall - floor};
    return true;
}

/*
 * Find the edge with the fewest candidates in the sections [first, end). No unplaced item may cross
 * the ends of this run. On the way, a valley in which nothing more can rest is filled up: its floor
 * rises to the lower neighbour.
 *
 * stuck     if the result is STUCK: the section that cannot be filled
 */
static edge_result find_edge(skyline *b, uint32_t first, uint32_t end, sky_edge *edge,
                             uint32_t *stuck) {
    edge_search l = {.skyline = b, .edge = edge, .stuck = stuck};
    ASHLAR_CHECK2(first < end && end <= b->problem->section_count);
    for (uint32_t at = first; at < end;) {
        valley h;
        bool is_open = false;
        if (!next_run(b, &at, end, &h)) {
            continue;
        }
        if (!search_valley(&l, &h, &is_open) || (!is_open && !fill_up(&l, &h))) {
            return STUCK;
        }
        if (!is_open) {
            at = first; /* the skyline has changed: look again */
            l.has_edge = false;
        }
    }
    return l.has_edge ? EDGE : FILLED;
}

/* ---- making ---- */

static ashlar_status init_skyline(skyline *out, ashlar_pack_memory *memory,
                                  const ashlar_pack_items *p) {
    const size_t count = p->count, sections = p->section_count;
    skyline b = {
        .problem = p,
        .memory = memory,
        .floors = ashlar__pack_alloc(memory, sections, sizeof *b.floors),
        .rests = ashlar__pack_alloc(memory, sections, sizeof *b.rests),
        .crossings = ashlar__pack_alloc(memory, sections + 1, sizeof *b.crossings),
        .is_closed = ashlar__pack_alloc(memory, sections, sizeof *b.is_closed),
        .is_placed = ashlar__pack_alloc(memory, count, sizeof *b.is_placed),
        .offsets = ashlar__pack_alloc(memory, count, sizeof *b.offsets),
        .by_first = ashlar__pack_alloc(memory, count, sizeof *b.by_first),
        .first_at = ashlar__pack_alloc(memory, sections + 2, sizeof *b.first_at),
    };
    ASHLAR_TRY(ashlar__pack_memory_check(memory));
    memcpy(b.rests, p->loads, sections * sizeof *b.rests);
    /* first_at[s + 1] is the next index of `by_first` to write to, which ends up where s + 1
     * starts. */
    for (size_t i = 0; i < count; i++) {
        b.first_at[p->items[i].first + 2]++;
        for (uint32_t s = p->items[i].first + 1; s < p->items[i].end; s++) {
            b.crossings[s]++;
        }
    }
    for (size_t s = 1; s < sections + 1; s++) {
        b.first_at[s + 1] += b.first_at[s];
    }
    for (uint32_t i = 0; i < count; i++) {
        b.by_first[b.first_at[p->items[i].first + 1]++] = i;
    }
    ASHLAR_CHECK2(b.first_at[0] == 0 && b.first_at[sections] == count);
    *out = b;
    return ASHLAR_OK;
}

/* ---- the search ---- */

enum {
    MEMORY_SHIFT = 18, /* room for 2^18 keys of impossible parts; new ones may overwrite old ones */
    RUN_STEPS = 1000,  /* steps of the shortest run */
    LOOK_EVERY = 1024, /* steps between two reads of the clock */
};

/* A choice that the search has made. */
typedef struct level {
    uint64_t key;        /* key_of() the part, before the choice */
    size_t change_count; /* of the skyline, before the choice */
    uint32_t first, end; /* the part's sections, connected by unplaced items */
    sky_edge edge;       /* where the choice is made */
    bool has_item;       /* an item has been tried */
    bool is_empty;       /* nothing rests there, which is tried last */
    uint32_t item;       /* the last item tried */
    double value;        /* its value_of() */
} level;

struct ashlar_pack_search {
    ashlar_pack_state *state;
    skyline skyline;
    uint64_t *memory;       /* [1 << MEMORY_SHIFT], keys; 0: empty slot */
    size_t memory_capacity; /* of the last search; `memory` holds for smaller ones, too */
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

/* Prefer items that simplify the skyline: they reach a wall's height, or fill a valley's width. */
static double value_of(const ashlar_pack_search *search, uint32_t item) {
    const skyline *b = &search->skyline;
    const ashlar_pack_item *x = &b->problem->items[item];
    const size_t floor = b->floors[x->first], top = floor + x->bytes;
    const size_t left = wall_left(b, x->first);
    const size_t right = wall_right(b, x->end);
    double value = search->preferences[item];
    value *= top == left || top == right ? 2 : 1;
    value *= top == left && top == right ? 2 : 1;
    return value * (left > floor && right > floor ? 2 : 1);
}

/* Make the top level's next choice: of the candidates with a lower value than the last one tried,
 * the highest; of equal values, the lower index comes first. False: there is none. */
static bool choose(ashlar_pack_search *search) {
    skyline *b = &search->skyline;
    level *top = &search->levels[search->level_count - 1];
    const level last = *top;
    bool is_found = false;
    for (uint32_t k = b->first_at[last.edge.first]; k < b->first_at[last.edge.end]; k++) {
        const uint32_t i = b->by_first[k];
        if (last.is_empty || !may_rest(b, &last.edge, i)) {
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
        place(b, top->item);
    } else if (last.edge.may_stay_empty && !last.is_empty) {
        top->is_empty = is_found = true;
        close_section(b, section_of(&last.edge));
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
        undo(&search->skyline, top->change_count);
        if (top->first <= stuck && stuck < top->end) {
            ASHLAR_CHECK3(top->key == key_of(&search->skyline, top->first, top->end));
            if (choose(search)) {
                return true;
            }
            *memory_slot(search, top->key) = top->key;
        }
    }
    return false;
}

/* ---- runs ---- */

/* Find the next edge to choose at: in the last choice's part or, if that is filled, anywhere. */
static edge_result look(ashlar_pack_search *search, sky_edge *edge, uint32_t *stuck) {
    const uint32_t all = (uint32_t)search->state->problem->section_count;
    edge_result view = FILLED;
    if (search->level_count > 0) {
        const level *top = &search->levels[search->level_count - 1];
        view = find_edge(&search->skyline, top->first, top->end, edge, stuck);
    }
    return view != FILLED ? view : find_edge(&search->skyline, 0, all, edge, stuck);
}

/* Make a choice, on a new level. STUCK, FILLED: there is none to make. */
static edge_result advance(ashlar_pack_search *search, uint32_t *stuck) {
    level new = {0};
    const edge_result view = look(search, &new.edge, stuck);
    if (view != EDGE) {
        return view;
    }
    new.change_count = search->skyline.change_count; /* going back keeps what look() has raised */
    new.first = section_of(&new.edge);
    new.end = new.first + 1;
    *stuck = new.first;
    widen(&search->skyline, &new.first, &new.end);
    new.key = key_of(&search->skyline, new.first, new.end);
    if (*memory_slot(search, new.key) == new.key) {
        return STUCK;
    }
    level *levels = ashlar__pack_grow(search->state->memory, search->levels,
                                      &search->level_capacity, search->level_count + 1, sizeof new);
    if (levels == NULL) {
        return STUCK; /* the caller checks memory->has_failed */
    }
    search->levels = levels;
    search->levels[search->level_count++] = new;
    const bool has_choice = choose(search);
    ASHLAR_CHECK2(has_choice); /* an edge has a candidate */
    (void)has_choice;
    return EDGE;
}

/* Make a run of at most `steps` steps. */
static ashlar_status run(ashlar_pack_search *search, uint64_t steps, ashlar_pack_outcome *outcome) {
    search->level_count = 0;
    undo(&search->skyline, 0);
    draw_preferences(search);
    for (; steps > 0 && *outcome == ASHLAR_PACK_UNDECIDED; steps--) {
        uint32_t stuck = 0;
        const edge_result view = advance(search, &stuck);
        ASHLAR_TRY(ashlar__pack_memory_check(search->state->memory));
        if (view == FILLED) {
            *outcome = ASHLAR_PACK_FOUND;
        } else if (view == STUCK) {
            *outcome = go_back(search, stuck) ? ASHLAR_PACK_UNDECIDED : ASHLAR_PACK_IMPOSSIBLE;
        }
        if (steps % LOOK_EVERY == 0 && !ashlar__pack_has_time(search->state)) {
            break;
        }
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
    search->preferences = ashlar__pack_alloc(m, p->count, sizeof *search->preferences);
    ASHLAR_TRY(ashlar__pack_memory_check(m));
    *out = search;
    return init_skyline(&search->skyline, m, p);
}
