/* tiers.c - the choice of tiers (tiers.h): candidates, in which what the backward needs first
 * stays; on small tables all. */
#include "rnn/engine/tiers.h"

#include <string.h>

#include "allocator/base/checked.h"
#include "allocator/base/host.h"
#include "rnn/engine/tiers_state.h"

/* ---- the table ---- */

static bool adds(size_t *sum, size_t a) {
    return ashlar__add(*sum, a, sum);
}

static ashlar_status check(const ashlar_tiers_table *t, uint64_t *compute_ns) {
    size_t bytes = 0, most = 0, ns = 0;
    bool fits = true;
    ASHLAR_FAIL_IF(t->out_bytes_per_us == 0 || t->back_bytes_per_us == 0, ASHLAR_EINVAL,
                   "tiers: copies at a rate of 0; give at least 1 byte in a microsecond");
    for (size_t k = 0; k < t->moment_count; k++) {
        fits = fits && adds(&ns, t->moments[k].ns);
        most = larger(most, t->moments[k].bytes);
    }
    *compute_ns = ns;
    for (size_t i = 0; i < t->item_count; i++) {
        const ashlar_tiers_item *item = &t->items[i];
        ASHLAR_FAIL_IF(item->first_forward > item->last_forward ||
                           item->last_forward >= item->first_backward ||
                           item->first_backward > item->last_backward ||
                           item->last_backward >= t->moment_count,
                       ASHLAR_EINVAL,
                       "tiers: item %zu is used in %zu .. %zu and %zu .. %zu of %zu moments; give "
                       "them in their order",
                       i, item->first_forward, item->last_forward, item->first_backward,
                       item->last_backward, t->moment_count);
        fits = fits && adds(&bytes, item->bytes) && adds(&ns, t->copy_ns) &&
               adds(&ns, t->copy_ns) && adds(&ns, item->again_ns);
    }
    fits = fits && adds(&most, bytes) && ashlar__mul(most, 2 * ASHLAR_TIERS_NS_PER_US, &bytes) &&
           adds(&ns, bytes); /* copies of 1 byte in a us are the slowest */
    ASHLAR_FAIL_IF(!fits || ns == SIZE_MAX, ASHLAR_EOVERFLOW,
                   "tiers: the sum of bytes or of times does not fit");
    return ASHLAR_OK;
}

/* Numbers of items by `key`, an offset of one of their moments; equal ones as they are. `begins`
 * [moments + 1] is scratch. */
static void sort_items(const ashlar_tiers_table *t, size_t key, size_t *begins, size_t *out) {
    memset(begins, 0, (t->moment_count + 1) * sizeof *begins);
    for (size_t i = 0; i < t->item_count; i++) {
        ++begins[*(const size_t *)((const char *)&t->items[i] + key) + 1];
    }
    for (size_t k = 0; k < t->moment_count; k++) {
        begins[k + 1] += begins[k];
    }
    for (size_t i = 0; i < t->item_count; i++) {
        out[begins[*(const size_t *)((const char *)&t->items[i] + key)]++] = i;
    }
}

static void finish(ashlar_tiers_state *s) {
    ashlar__host_free(s->words);
    ashlar__host_free(s->places);
    ashlar__host_free(s->idle);
}

/* The next `count` words of the block that begins at *at. */
static size_t *take(size_t **at, size_t count) {
    size_t *taken = *at;
    *at += count;
    return taken;
}

static ashlar_status set_up(ashlar_tiers_state *s, const ashlar_tiers_table *t) {
    const size_t n = t->item_count, m = t->moment_count;
    *s = (ashlar_tiers_state){.t = t,
                              .work_left = ASHLAR_TIERS_WORK + 8 * ASHLAR_TIERS_TRIES * (m + n),
                              .best_ns = UINT64_MAX,
                              .live = {.leaves = 1}};
    ASHLAR_TRY(check(t, &s->compute_ns));
    while (s->live.leaves < m) {
        s->live.leaves *= 2;
    }
    s->words = ashlar__host_calloc(4 * n + 3 * m + 1 + 4 * s->live.leaves, sizeof *s->words);
    s->places = ashlar__host_calloc(n + 1, sizeof *s->places);
    s->idle = ashlar__host_calloc(n + 1, sizeof *s->idle);
    ASHLAR_FAIL_IF(s->words == NULL || s->places == NULL || s->idle == NULL, ASHLAR_EHOSTMEM,
                   "no host memory to choose among the tiers of %zu items", n);
    size_t *at = s->words;
    s->by_out = take(&at, n);
    s->by_back = take(&at, n);
    s->out_at = take(&at, n);
    s->copied_ns = take(&at, n);
    s->load = take(&at, m + 1);
    s->least_load = take(&at, m);
    s->moment_ns = take(&at, m);
    s->live.most = take(&at, 2 * s->live.leaves);
    s->live.added = take(&at, 2 * s->live.leaves);
    sort_items(t, offsetof(ashlar_tiers_item, last_forward), s->load, s->by_out);
    sort_items(t, offsetof(ashlar_tiers_item, first_backward), s->load, s->by_back);
    for (size_t j = 0; j < n; j++) {
        s->out_at[s->by_out[j]] = j;
    }
    return ASHLAR_OK;
}

/* ---- candidates ---- */

/* Nothing stays: all is on the host or, if need be, what may is computed again. Returns the bytes.
 */
static size_t set_least(ashlar_tiers_state *s, bool recomputes) {
    for (size_t i = 0; i < s->t->item_count; i++) {
        s->places[i].tier =
            recomputes && s->t->items[i].may_recompute ? ASHLAR_TIER_RECOMPUTED : ASHLAR_TIER_HOST;
    }
    return ashlar__tiers_load(s, true);
}

/* Keep what fits below `limit`, what is needed first before all else. `settles`: also what saves no
 * memory on the host. */
static void fill(ashlar_tiers_state *s, size_t limit, bool settles) {
    ashlar__tiers_spend(s, 4);
    (void)ashlar__tiers_load(s, true);
    ashlar__tiers_live_build(s);
    for (size_t j = 0; j < s->t->item_count; j++) {
        const ashlar_tiers_item *item = &s->t->items[s->by_back[j]];
        ashlar_tiers_place *p = &s->places[s->by_back[j]];
        const bool is_nowhere = p->tier == ASHLAR_TIER_RECOMPUTED;
        const size_t first = is_nowhere ? item->first_forward : item->last_forward + 1;
        const size_t last = is_nowhere ? item->last_backward : item->first_backward - 1;
        if (p->tier == ASHLAR_TIER_HOST && !ashlar__tiers_can_leave(item)) {
            p->tier = settles ? ASHLAR_TIER_RESIDENT : ASHLAR_TIER_HOST;
        } else if (p->tier != ASHLAR_TIER_RESIDENT && item->bytes <= limit &&
                   ashlar__tiers_live_most(s, first, last) <= limit - item->bytes) {
            ashlar__tiers_live_add(s, first, last, item->bytes);
            p->tier = ASHLAR_TIER_RESIDENT;
        }
    }
}

/* Shares of a candidate, of 1024: of the memory above the least, that is left free for copies under
 * way; of what does not stay, that is computed again, evenly. */
enum { WHOLE = 1024 };
typedef struct shares {
    size_t reserve, again;
} shares;

static bool try_shares(ashlar_tiers_state *s, shares part, size_t least) {
    const size_t limit = s->budget - (s->budget - least) / WHOLE * part.reserve;
    size_t count = 0;
    (void)set_least(s, false);
    fill(s, limit, false);
    for (size_t j = 0; j < s->t->item_count; j++) {
        const size_t i = s->by_back[j];
        const ashlar_tiers_item *item = &s->t->items[i];
        if (s->places[i].tier == ASHLAR_TIER_HOST && item->may_recompute && item->bytes > 0) {
            const size_t before = count++ * part.again / WHOLE;
            s->places[i].tier =
                count * part.again / WHOLE > before ? ASHLAR_TIER_RECOMPUTED : ASHLAR_TIER_HOST;
        }
    }
    fill(s, limit, true);
    return ashlar__tiers_is_better(s);
}

/* Shares that are computed again in steps of a quarter, then both in smaller ones around the best.
 */
static void try_all_shares(ashlar_tiers_state *s, size_t least) {
    enum { STEP = WHOLE / 4 };
    shares best = {.again = WHOLE};
    (void)try_shares(s, best, least); /* which has room */
    for (shares part = {0}; part.again < WHOLE && !ashlar__tiers_is_over(s); part.again += STEP) {
        best = try_shares(s, part, least) ? part : best;
    }
    for (size_t step = STEP; step > 0; step /= 2) {
        for (size_t i = 0; i < 4 && !ashlar__tiers_is_over(s); i++) {
            shares part = best;
            size_t *share = i < 2 ? &part.reserve : &part.again;
            if (i % 2 == 0 ? *share + step <= WHOLE : *share >= step) {
                *share = i % 2 == 0 ? *share + step : *share - step;
                best = try_shares(s, part, least) ? part : best;
            }
        }
    }
}

/* ---- the choice ---- */

enum {
    MOMENTS_SMALL = 1024, /* the search of all goes so deep ... */
    ITEMS_TINY = 12,      /* ... and with so few items so long */
    TINY_WORK = 16 * ASHLAR_TIERS_WORK
};

static ashlar_status find_least(ashlar_tiers_state *s, const ashlar_tiers_table *t, size_t *out) {
    ASHLAR_TRY(set_up(s, t));
    *out = set_least(s, true);
    return ASHLAR_OK;
}

ashlar_status ashlar__tiers_least(const ashlar_tiers_table *table, size_t *out) {
    ashlar_tiers_state s;
    const ashlar_status status = find_least(&s, table, out);
    finish(&s);
    return status;
}

/* The best places, and what is to be said of them. */
static void hand_out(ashlar_tiers_state *s, bool is_best, ashlar_tiers_place *places,
                     ashlar_tiers_choice *out) {
    const size_t count = s->t->item_count;
    memcpy(s->places, s->best, count * sizeof *s->places);
    ASHLAR_CHECK2(s->best_ns >= s->bound_ns && s->best_ns < UINT64_MAX);
    *out = (ashlar_tiers_choice){.ns = s->best_ns,
                                 .bound_ns = is_best ? s->best_ns : s->bound_ns,
                                 .compute_ns = s->compute_ns,
                                 .peak_bytes = ashlar__tiers_load(s, false),
                                 .is_best = is_best};
    for (size_t i = 0; i < count; i++) {
        places[i] = s->places[i];
        out->bytes[places[i].tier] += s->t->items[i].bytes;
    }
}

static ashlar_status choose(ashlar_tiers_state *s, const ashlar_tiers_table *t, size_t budget,
                            ashlar_tiers_place *places, ashlar_tiers_choice *out) {
    size_t least = 0;
    ASHLAR_TRY(find_least(s, t, &least));
    ASHLAR_FAIL_IF(budget < least, ASHLAR_ENOMEM,
                   "tiers: a budget of %zu bytes, but the step needs at least %zu", budget, least);
    s->budget = budget;
    s->best = ashlar__host_calloc(t->item_count + 1, sizeof *s->best);
    ASHLAR_FAIL_IF(s->best == NULL, ASHLAR_EHOSTMEM,
                   "no host memory to choose among the tiers of %zu items", t->item_count);
    (void)set_least(s, false);
    s->bound_ns = ashlar__tiers_bound(s, true);
    try_all_shares(s, least);
    bool is_best = s->best_ns <= s->bound_ns;
    if (!is_best && t->item_count <= ASHLAR_TIERS_SMALL && t->moment_count <= MOMENTS_SMALL) {
        s->work_left = t->item_count <= ITEMS_TINY ? TINY_WORK : ASHLAR_TIERS_WORK;
        ashlar__tiers_try_all(s);
        is_best = s->best_ns <= s->bound_ns || s->work_left > 0;
    }
    hand_out(s, is_best, places, out);
    return ASHLAR_OK;
}

ashlar_status ashlar__tiers_choose(const ashlar_tiers_table *table, size_t budget,
                                   ashlar_tiers_place *places, ashlar_tiers_choice *out) {
    ashlar_tiers_state s;
    const ashlar_status status = choose(&s, table, budget, places, out);
    ashlar__host_free(s.best);
    finish(&s);
    return status;
}
