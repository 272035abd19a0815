/* tiers.c - the choice of tiers (tiers.h): the time that tiers take, by going through the moments
 * once; a bound; candidates, in which what the backward needs first stays; on small tables all. */
#include "rnn/engine/tiers.h"

#include <stdlib.h>
#include <string.h>

#include "allocator/base/checked.h"
#include "allocator/base/host.h"

/* How much work a choice may be: moments and items that are gone through. */
static const uint64_t WORK_MAX = UINT64_C(40000000);
static const uint64_t NO_ROOM = UINT64_MAX; /* as a time: these tiers do not fit */
enum { NS_PER_US = 1000, BRANCH_ITEMS_MAX = 64 };

typedef const ashlar_tiers_item item_of;

/* Bytes that are live in each moment, as a tree over ranges of moments. */
typedef struct profile {
    size_t leaves; /* a power of two; the children of node n are 2n and 2n + 1, the root is 1 */
    size_t *most;  /* [2 * leaves] in the node's range, without what is added to nodes above it */
    size_t *added; /* [2 * leaves] to the whole range */
} profile;

/* Of a group: what is idle in a moment, and computing it again. */
typedef struct away {
    double bytes, ns;
} away;

typedef struct choosing {
    const ashlar_tiers_table *t;
    size_t budget;
    bool copies;
    uint64_t work_left;
    size_t *by_out, *by_back, *by_group; /* [items] numbers of items in these orders */
    size_t *out_at;                      /* [items] places in by_out */
    size_t *group_first;                 /* [groups + 1] places in by_group */
    size_t *rerun;                       /* [groups] the moment before which it is computed again */
    size_t *group_order;                 /* [groups] by `rerun`: the first that is needed first */
    size_t *candidates;                  /* [groups] scratch */
    size_t *load;                        /* [moments + 1] bytes without what simulate() adds */
    size_t *least_load;                  /* [moments] bytes in tiers that branch() has begun */
    uint64_t *moment_ns;                 /* [moments] with what is computed again */
    uint64_t *copied_ns;                 /* [items] when the last copy is over */
    ashlar_tiers_place *places;          /* of the last tiers that were looked at */
    ashlar_tiers_place *best;
    size_t *words; /* the block of the arrays above */
    away *away;    /* [groups] scratch */
    profile live;
    uint64_t best_ns, bound_ns, compute_ns;
    size_t best_moved; /* bytes that do not stay */
} choosing;

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

static uint64_t later(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static uint64_t copy_ns(const ashlar_tiers_table *t, size_t bytes, uint64_t rate) {
    return t->copy_ns + (bytes * NS_PER_US + rate - 1) / rate;
}

/* Whether memory is saved by sending it away. */
static bool can_leave(item_of *item) {
    return item->bytes > 0 && item->last_forward + 1 < item->first_backward;
}

/* ---- the profile ---- */

static void profile_add(profile *p, size_t node, size_t begin, size_t end, size_t first,
                        size_t last, size_t bytes) {
    if (last < begin || end <= first) {
        return;
    }
    if (first <= begin && end <= last + 1) {
        p->most[node] += bytes;
        p->added[node] += bytes;
        return;
    }
    const size_t middle = begin + (end - begin) / 2;
    profile_add(p, 2 * node, begin, middle, first, last, bytes);
    profile_add(p, 2 * node + 1, middle, end, first, last, bytes);
    p->most[node] = larger(p->most[2 * node], p->most[2 * node + 1]) + p->added[node];
}

static size_t profile_most(const profile *p, size_t node, size_t begin, size_t end, size_t first,
                           size_t last) {
    if (last < begin || end <= first) {
        return 0;
    }
    if (first <= begin && end <= last + 1) {
        return p->most[node];
    }
    const size_t middle = begin + (end - begin) / 2;
    return larger(profile_most(p, 2 * node, begin, middle, first, last),
                  profile_most(p, 2 * node + 1, middle, end, first, last)) +
           p->added[node];
}

static void live_add(choosing *c, size_t first, size_t last, size_t bytes) {
    profile_add(&c->live, 1, 0, c->live.leaves, first, last, bytes);
}

static size_t live_most(const choosing *c, size_t first, size_t last) {
    return profile_most(&c->live, 1, 0, c->live.leaves, first, last);
}

static void load_add(choosing *c, size_t first, size_t last, size_t bytes) {
    c->load[first] += bytes; /* differences, until load_all() sums them */
    c->load[last + 1] -= bytes;
}

/* Bytes and times of the moments by what `places` say; with is_least by their tiers, and no copy
 * under way longer than it must be. Returns the most bytes of a moment. */
static size_t load_all(choosing *c, bool is_least) {
    const ashlar_tiers_table *t = c->t;
    memset(c->load, 0, (t->moment_count + 1) * sizeof *c->load);
    for (size_t i = 0; i < t->item_count; i++) {
        item_of *item = &t->items[i];
        ashlar_tiers_place *p = &c->places[i];
        if (p->tier == ASHLAR_TIER_RESIDENT) {
            p->out_end = p->back_begin = item->last_backward;
        } else if (is_least) {
            p->out_end = item->last_forward;
            p->back_begin =
                p->tier == ASHLAR_TIER_HOST ? item->first_backward : c->rerun[item->group];
        }
        load_add(c, item->first_forward, p->out_end, item->bytes);
        if (p->tier != ASHLAR_TIER_RESIDENT) {
            load_add(c, p->back_begin, item->last_backward, item->bytes);
        }
    }
    size_t *own = c->live.most + c->live.leaves; /* all but items; becomes the sum */
    for (size_t k = 0; k < t->moment_count; k++) {
        c->moment_ns[k] = t->moments[k].ns;
        own[k] = t->moments[k].bytes;
    }
    for (size_t g = 0; g < t->group_count; g++) {
        if (c->group_first[g] < c->group_first[g + 1] &&
            c->places[c->by_group[c->group_first[g]]].tier == ASHLAR_TIER_RECOMPUTED) {
            c->moment_ns[c->rerun[g]] += t->groups[g].ns;
            own[c->rerun[g]] = larger(own[c->rerun[g]], t->groups[g].bytes);
        }
    }
    size_t items = 0, most = 0;
    for (size_t k = 0; k < t->moment_count; k++) {
        items += c->load[k];
        own[k] += items;
        most = larger(most, own[k]);
    }
    return most;
}

/* Make the tree of what load_all() has put in its leaves. */
static void live_build(choosing *c) {
    profile *p = &c->live;
    memset(p->added, 0, 2 * p->leaves * sizeof *p->added);
    for (size_t n = p->leaves; n-- > 1;) {
        p->most[n] = larger(p->most[2 * n], p->most[2 * n + 1]);
    }
}

/* ---- the time that tiers take ---- */

/* Take from `work_left` what going through the table so many times costs. */
static void spend(choosing *c, uint64_t times) {
    const uint64_t work = (c->t->moment_count + c->t->item_count) * times;
    c->work_left -= work < c->work_left ? work : c->work_left;
}

/* Begin a copy back in moment k, at this time. Returns when it is over. */
static uint64_t come_back(choosing *c, size_t i, size_t k, uint64_t ns) {
    if (c->places[i].tier != ASHLAR_TIER_HOST) {
        return ns;
    }
    c->places[i].back_begin = k;
    c->copied_ns[i] = ns + copy_ns(c->t, c->t->items[i].bytes, c->t->back_bytes_per_us);
    return c->copied_ns[i];
}

/* Begin a copy out at this time. Returns when it is over. */
static uint64_t go_out(choosing *c, size_t i, uint64_t ns, size_t *pending) {
    if (c->places[i].tier != ASHLAR_TIER_HOST) {
        return ns;
    }
    *pending += c->t->items[i].bytes;
    c->copied_ns[i] = ns + copy_ns(c->t, c->t->items[i].bytes, c->t->out_bytes_per_us);
    return c->copied_ns[i];
}

/* Go through the moments. A copy out keeps its place as long as nobody needs it; a copy back begins
 * in the first moment in which its engine would be idle and it fits. Returns the step's time, or
 * NO_ROOM. */
static uint64_t simulate(choosing *c) {
    const ashlar_tiers_table *t = c->t;
    const size_t count = t->item_count;
    uint64_t end = 0, out_free = 0, back_free = 0;
    size_t gone = 0, sent = 0, pending = 0; /* of by_out: over, begun; bytes of those between */
    size_t back = 0, needed = 0;            /* of by_back: begun, over before a moment */
    spend(c, 4);
    if (load_all(c, true) > c->budget) {
        return NO_ROOM;
    }
    live_build(c);
    for (size_t k = 0; k < t->moment_count; k++) {
        size_t must = 0; /* so many of by_out have to be over */
        for (size_t j = back; j < count && t->items[c->by_back[j]].first_backward <= k; j++) {
            if (c->places[c->by_back[j]].tier == ASHLAR_TIER_HOST) {
                must = larger(must, c->out_at[c->by_back[j]] + 1);
            }
        }
        uint64_t is_free = end;
        const size_t here = pending > 0 ? live_most(c, k, k) : 0;
        for (; gone < sent; gone++) {
            const size_t i = c->by_out[gone];
            if (c->places[i].tier != ASHLAR_TIER_HOST) {
                continue;
            }
            if (gone >= must && c->copied_ns[i] > is_free && pending <= c->budget - here) {
                break;
            }
            is_free = later(is_free, c->copied_ns[i]);
            c->places[i].out_end = k - 1;
            pending -= t->items[i].bytes;
        }
        if (pending > 0) {
            live_add(c, k, k, pending);
        }
        uint64_t begin = is_free;
        for (; back < count && t->items[c->by_back[back]].first_backward <= k; back++) {
            back_free = come_back(c, c->by_back[back], k, later(back_free, is_free));
        }
        for (; needed < back && t->items[c->by_back[needed]].first_backward <= k; needed++) {
            if (c->places[c->by_back[needed]].tier == ASHLAR_TIER_HOST) {
                begin = later(begin, c->copied_ns[c->by_back[needed]]);
            }
        }
        for (; back < count && back_free < begin + c->moment_ns[k]; back++) {
            const size_t i = c->by_back[back], last = t->items[i].first_backward - 1;
            if (c->places[i].tier == ASHLAR_TIER_HOST) {
                if (c->out_at[i] >= gone || live_most(c, k, last) > c->budget - t->items[i].bytes) {
                    break;
                }
                live_add(c, k, last, t->items[i].bytes);
                back_free = come_back(c, i, k, later(back_free, is_free));
            }
        }
        end = begin + c->moment_ns[k];
        for (; sent < count && t->items[c->by_out[sent]].last_forward == k; sent++) {
            out_free = go_out(c, c->by_out[sent], later(out_free, end), &pending);
        }
    }
    return end;
}

/* ---- a bound ---- */

static int by_price(const void *a, const void *b) {
    const away *x = a, *y = b;
    if (x->bytes == 0 || y->bytes == 0) { /* groups with nothing idle at the end */
        return (x->bytes == 0) - (y->bytes == 0);
    }
    const double left = x->ns * y->bytes, right = y->ns * x->bytes;
    return (left > right) - (left < right);
}

/* What does not fit in a moment is away then: x bytes on the host, y computed again, at the least
 * price by parts of groups. Copies out are over before the moment, copies back begin behind it; so
 * this is at least what is before it and what is behind it. It is convex in x. */
typedef struct around {
    double before_ns, out_ns, after_ns, back_ns; /* without what is away */
} around;

static double around_ns(const choosing *c, around a, double x, double y) {
    for (size_t g = 0; g < c->t->group_count && y > 0; g++) {
        const away *group = &c->away[g];
        const double part = y < group->bytes ? y : group->bytes;
        a.after_ns += part > 0 ? group->ns * (part / group->bytes) : 0;
        y -= part;
    }
    if (x > 0) {
        a.out_ns += x * NS_PER_US / (double)c->t->out_bytes_per_us;
        a.back_ns += x * NS_PER_US / (double)c->t->back_bytes_per_us;
    }
    return (a.out_ns > a.before_ns ? a.out_ns : a.before_ns) +
           (a.back_ns > a.after_ns ? a.back_ns : a.after_ns);
}

/* By what is away in moment k; `before` [moments + 1] is the work before each. */
static uint64_t bound_in(choosing *c, size_t k, bool is_open, const uint64_t *before) {
    const ashlar_tiers_table *t = c->t;
    size_t first = t->moment_count, last = 0, idle = 0, again = 0;
    for (size_t i = 0; i < t->item_count; i++) {
        item_of *item = &t->items[i];
        if (c->places[i].tier == ASHLAR_TIER_HOST && item->last_forward < k &&
            k < item->first_backward) {
            first = item->last_forward < first ? item->last_forward : first;
            last = larger(last, item->first_backward);
            idle += item->bytes;
        }
    }
    const size_t live = c->live.most[c->live.leaves + k] + idle;
    if (live <= c->budget) {
        return 0;
    }
    memset(c->away, 0, t->group_count * sizeof *c->away);
    for (size_t i = 0; i < t->item_count && is_open; i++) {
        item_of *item = &t->items[i];
        if (t->groups[item->group].may_recompute && item->last_forward < k &&
            k < c->rerun[item->group]) {
            c->away[item->group].bytes += (double)item->bytes;
            c->away[item->group].ns = (double)t->groups[item->group].ns;
            again += item->bytes;
        }
    }
    if (again > 0) {
        qsort(c->away, t->group_count, sizeof *c->away, by_price);
    }
    const size_t need = live - c->budget;
    const around a = {.before_ns = (double)before[k],
                      .out_ns = (double)before[first + 1],
                      .after_ns = (double)(before[t->moment_count] - before[k + 1]),
                      .back_ns = (double)(before[t->moment_count] - before[last])};
    double low = need > again ? (double)(need - again) : 0;
    double high = !c->copies ? 0 : (double)(need < idle ? need : idle);
    for (int i = 0; i < 100 && again > 0 && low < high; i++) {
        const double x = low + (high - low) / 3, y = high - (high - low) / 3;
        const bool is_left =
            around_ns(c, a, x, (double)need - x) < around_ns(c, a, y, (double)need - y);
        *(is_left ? &high : &low) = is_left ? y : x;
    }
    const double rounding = 1 - 1e-9;
    return c->moment_ns[k] + (uint64_t)(rounding * around_ns(c, a, low, (double)need - low));
}

/* No choice takes less time than this; without is_open, none with the tiers in `places`. */
static uint64_t bound(choosing *c, bool is_open) {
    const size_t count = c->t->moment_count, cost = 1 + c->t->item_count + c->t->group_count;
    const size_t stride = 1 + count / (WORK_MAX / 16 / cost + 1);
    spend(c, count / stride / 4);
    (void)load_all(c, true);
    uint64_t *before = c->load; /* which has done its work */
    before[0] = 0;
    for (size_t k = 0; k < count; k++) {
        before[k + 1] = before[k] + c->moment_ns[k];
    }
    uint64_t ns = before[count];
    for (size_t k = count / 2 % stride; k < count; k += stride) {
        ns = later(ns, bound_in(c, k, is_open, before));
    }
    return ns;
}

/* ---- candidates ---- */

static void set_group(choosing *c, size_t group, ashlar_tier tier) {
    for (size_t j = c->group_first[group]; j < c->group_first[group + 1]; j++) {
        c->places[c->by_group[j]].tier = tier;
    }
}

static bool is_recomputed(const choosing *c, size_t group) {
    return c->group_first[group] < c->group_first[group + 1] &&
           c->places[c->by_group[c->group_first[group]]].tier == ASHLAR_TIER_RECOMPUTED;
}

/* The tiers that need the least memory; returns how much that is. Without copies: computing a group
 * again needs less than keeping it, except in the moment before which that is done. The largest
 * that is too much there has to be kept, until a budget is enough or what is kept is too much. */
static size_t set_least(choosing *c, size_t budget) {
    const ashlar_tiers_table *t = c->t;
    for (size_t i = 0; i < t->item_count; i++) {
        c->places[i].tier = c->copies ? ASHLAR_TIER_HOST : ASHLAR_TIER_RESIDENT;
    }
    for (size_t g = 0; g < t->group_count && !c->copies; g++) {
        if (t->groups[g].may_recompute) {
            set_group(c, g, ASHLAR_TIER_RECOMPUTED);
        }
    }
    for (size_t least = SIZE_MAX;;) {
        const size_t most = load_all(c, true);
        size_t kept = 0, items = 0, largest = t->group_count;
        least = most < least ? most : least;
        for (size_t k = 0; k < t->moment_count; k++) {
            items += c->load[k];
            kept = larger(kept, items + t->moments[k].bytes);
        }
        for (size_t g = 0; g < t->group_count && !c->copies; g++) {
            if (is_recomputed(c, g) && c->live.most[c->live.leaves + c->rerun[g]] == most &&
                t->groups[g].bytes > t->moments[c->rerun[g]].bytes &&
                (largest == t->group_count || t->groups[g].bytes > t->groups[largest].bytes)) {
                largest = g;
            }
        }
        if (most <= budget || kept >= least || largest == t->group_count) {
            return least;
        }
        set_group(c, largest, ASHLAR_TIER_RESIDENT);
    }
}

/* Keep a group's items that are away, or one of them, if they fit below `limit`. */
static void keep_resident(choosing *c, const size_t *items, size_t count, size_t limit) {
    bool fits = true;
    for (size_t undo = 0; undo < 2 && (undo == 0 || !fits); undo++) {
        for (size_t j = 0; j < count; j++) {
            item_of *item = &c->t->items[items[j]];
            const size_t end = c->places[items[j]].tier == ASHLAR_TIER_RECOMPUTED
                                   ? c->rerun[item->group]
                                   : item->first_backward;
            if (can_leave(item)) {
                live_add(c, item->last_forward + 1, end - 1,
                         undo == 0 ? item->bytes : -item->bytes);
                fits = fits && live_most(c, item->last_forward + 1, end - 1) <= limit;
            }
        }
    }
    for (size_t j = 0; j < count && fits; j++) {
        c->places[items[j]].tier = ASHLAR_TIER_RESIDENT;
    }
}

/* Keep what fits below `limit`, what is needed first before all else. */
static void fill(choosing *c, size_t limit) {
    spend(c, 4);
    (void)load_all(c, true);
    live_build(c);
    for (size_t j = 0; j < c->t->item_count && c->copies; j++) {
        if (c->places[c->by_back[j]].tier == ASHLAR_TIER_HOST) {
            keep_resident(c, &c->by_back[j], 1, limit);
        }
    }
    for (size_t j = 0; j < c->t->group_count && !c->copies; j++) {
        const size_t g = c->group_order[j], first = c->group_first[g];
        if (is_recomputed(c, g)) {
            keep_resident(c, &c->by_group[first], c->group_first[g + 1] - first, limit);
        }
    }
}

/* Whether the tiers in `places` are the best so far; then they are kept. */
static bool is_better(choosing *c) {
    const uint64_t ns = simulate(c);
    size_t moved = 0;
    for (size_t i = 0; i < c->t->item_count; i++) {
        moved += c->places[i].tier == ASHLAR_TIER_RESIDENT ? 0 : c->t->items[i].bytes;
    }
    if (ns > c->best_ns || (ns == c->best_ns && moved >= c->best_moved)) {
        return false;
    }
    c->best_ns = ns;
    c->best_moved = moved;
    memcpy(c->best, c->places, c->t->item_count * sizeof *c->best);
    return true;
}

/* Shares of a candidate, of 1024: of the memory that is left free for copies under way, and of the
 * groups that do not stay that are computed again; and which groups these are. */
enum { WHOLE = 1024, LAYOUTS = 3 };
typedef struct shares {
    size_t reserve, again, layout;
} shares;

static size_t part_of(size_t whole, size_t share) {
    return whole / WHOLE * share + whole % WHOLE * share / WHOLE;
}

static bool try_shares(choosing *c, shares s, size_t least) {
    const size_t limit = c->budget - part_of(c->budget - least, s.reserve);
    size_t count = 0;
    (void)set_least(c, c->budget);
    fill(c, limit);
    for (size_t j = 0; j < c->t->group_count && c->copies; j++) {
        const size_t g = c->group_order[j];
        bool is_away = false;
        for (size_t i = c->group_first[g]; i < c->group_first[g + 1]; i++) {
            is_away |= c->places[c->by_group[i]].tier == ASHLAR_TIER_HOST;
        }
        if (is_away && c->t->groups[g].may_recompute) {
            c->candidates[count++] = g;
        }
    }
    const size_t again = part_of(count, s.again);
    for (size_t j = 0; j < count; j++) {
        const bool is_one = s.layout == 0   ? (j + 1) * again / count > j * again / count
                            : s.layout == 1 ? j < again
                                            : j >= count - again;
        if (is_one) {
            set_group(c, c->candidates[j], ASHLAR_TIER_RECOMPUTED);
        }
    }
    if (again > 0) {
        fill(c, limit);
    }
    return is_better(c);
}

/* Whether to look no further; large tables' last part in a thousand is not looked for. */
static bool is_over(const choosing *c) {
    const uint64_t slack = c->t->item_count > BRANCH_ITEMS_MAX ? c->bound_ns / 1000 : 0;
    return c->best_ns <= c->bound_ns + slack || c->work_left == 0;
}

/* Shares of groups in steps of a quarter, then both in smaller ones around the best. */
static void try_all_shares(choosing *c, size_t least) {
    enum { STEP = WHOLE / 4 };
    shares best = {0};
    for (shares s = {0}; s.again <= WHOLE; s.again += STEP) {
        const size_t layouts = s.again == 0 || s.again == WHOLE ? 1 : LAYOUTS;
        for (s.layout = 0; s.layout < layouts && !is_over(c); s.layout++) {
            best = try_shares(c, s, least) ? s : best;
        }
    }
    for (size_t step = STEP; step > 0 && !is_over(c); step /= 2) {
        for (size_t i = 0; i < 4 && !is_over(c); i++) {
            shares s = best;
            size_t *share = i < 2 ? &s.reserve : &s.again;
            if (i % 2 == 0 ? *share + step <= WHOLE : *share >= step) {
                *share = i % 2 == 0 ? *share + step : *share - step;
                best = try_shares(c, s, least) ? s : best;
            }
        }
    }
}

/* ---- all tiers, for small tables ---- */

/* Add to what is live in first .. end - 1, whatever is chosen for what follows. Returns whether
 * that fits. */
static bool branch_add(choosing *c, size_t first, size_t end, size_t bytes) {
    bool fits = true;
    for (size_t k = first; k < end; k++) {
        c->least_load[k] += bytes;
        fits = fits && c->least_load[k] <= c->budget;
    }
    return fits;
}

/* A position in the search for the moments of copies: before moment k, with the state that
 * simulate() has there. */
typedef struct position {
    size_t k, gone, sent, back, pending;
    uint64_t end, left_ns;                      /* left_ns: of the work from k on */
    uint64_t out_free, back_free, back_left_ns; /* back_left_ns: of the copies from `back` on */
} position;

static void search_copies(choosing *c, position p);

/* Try all copies back that moment k can begin, when its place is free. */
static void search_back(choosing *c, position p, uint64_t is_free) {
    const ashlar_tiers_table *t = c->t;
    size_t *const live = c->live.most + c->live.leaves;
    while (p.back < t->item_count && c->places[c->by_back[p.back]].tier != ASHLAR_TIER_HOST) {
        p.back++;
    }
    if (p.back < t->item_count) {
        const size_t i = c->by_back[p.back], end = t->items[i].first_backward;
        const uint64_t out_ns = c->copied_ns[i];
        bool fits = c->out_at[i] < p.gone;
        for (size_t k = p.k; k < end; k++) {
            live[k] += t->items[i].bytes;
            fits = fits && live[k] + (k == p.k ? p.pending : 0) <= c->budget;
        }
        if (fits) {
            position next = p;
            next.back++;
            next.back_free = come_back(c, i, p.k, later(p.back_free, is_free));
            next.back_left_ns -= copy_ns(t, t->items[i].bytes, t->back_bytes_per_us);
            search_back(c, next, is_free);
            c->copied_ns[i] = out_ns;
        }
        for (size_t k = p.k; k < end; k++) {
            live[k] -= t->items[i].bytes;
        }
        if (end == p.k) {
            return;
        }
    }
    if (live[p.k] + p.pending > c->budget) {
        return;
    }
    p.end = is_free;
    for (size_t j = 0; j < p.back && t->items[c->by_back[j]].first_backward <= p.k; j++) {
        if (c->places[c->by_back[j]].tier == ASHLAR_TIER_HOST) {
            p.end = later(p.end, c->copied_ns[c->by_back[j]]);
        }
    }
    p.end += c->moment_ns[p.k];
    p.left_ns -= c->moment_ns[p.k];
    for (; p.sent < t->item_count && t->items[c->by_out[p.sent]].last_forward == p.k; p.sent++) {
        p.out_free = go_out(c, c->by_out[p.sent], later(p.out_free, p.end), &p.pending);
    }
    p.k++;
    search_copies(c, p);
}

/* Try all numbers of copies out that the place of moment k waits for. */
static void search_copies(choosing *c, position p) {
    if (later(p.end + p.left_ns, p.back_free + p.back_left_ns) >= c->best_ns || c->work_left == 0) {
        return;
    }
    spend(c, 1);
    if (p.k == c->t->moment_count) {
        c->best_ns = p.end;
        memcpy(c->best, c->places, c->t->item_count * sizeof *c->best);
        return;
    }
    search_back(c, p, p.end);
    for (uint64_t is_free = p.end; p.gone < p.sent;) {
        const size_t i = c->by_out[p.gone++];
        if (c->places[i].tier == ASHLAR_TIER_HOST) {
            c->places[i].out_end = p.k - 1;
            is_free = later(is_free, c->copied_ns[i]);
            p.pending -= c->t->items[i].bytes;
            search_back(c, p, is_free);
        }
    }
}

/* Try all tiers of by_group[at] and behind, unless they cannot be better: `ns` is the time of the
 * work so far, with what is computed again. */
static void branch(choosing *c, size_t at, uint64_t ns, uint64_t back_ns) {
    const ashlar_tiers_table *t = c->t;
    if (is_over(c) || later(ns, back_ns) >= c->best_ns) {
        return;
    }
    if (at == t->item_count) {
        (void)is_better(c);
        if (bound(c, false) < c->best_ns && load_all(c, true) <= c->budget) {
            search_copies(c, (position){.left_ns = ns, .back_left_ns = back_ns});
        }
        return;
    }
    const size_t i = c->by_group[at], g = t->items[i].group, end = c->group_first[g + 1];
    item_of *item = &t->items[i];
    if (at == c->group_first[g] && t->groups[g].may_recompute) {
        bool fits = true;
        set_group(c, g, ASHLAR_TIER_RECOMPUTED);
        for (size_t j = at; j < end; j++) {
            item_of *other = &t->items[c->by_group[j]];
            fits &= branch_add(c, c->rerun[g], other->first_backward, other->bytes);
        }
        if (fits) {
            branch(c, end, ns + t->groups[g].ns, back_ns);
        }
        for (size_t j = at; j < end; j++) {
            item_of *other = &t->items[c->by_group[j]];
            (void)branch_add(c, c->rerun[g], other->first_backward, -other->bytes);
        }
    }
    c->places[i].tier = ASHLAR_TIER_RESIDENT;
    if (branch_add(c, item->last_forward + 1, item->first_backward, item->bytes)) {
        branch(c, at + 1, ns, back_ns);
    }
    (void)branch_add(c, item->last_forward + 1, item->first_backward, -item->bytes);
    if (c->copies && can_leave(item)) {
        c->places[i].tier = ASHLAR_TIER_HOST;
        branch(c, at + 1, ns, back_ns + copy_ns(t, item->bytes, t->back_bytes_per_us));
    }
}

static void try_all(choosing *c) {
    for (size_t k = 0; k < c->t->moment_count; k++) {
        c->least_load[k] = c->t->moments[k].bytes;
    }
    for (size_t i = 0; i < c->t->item_count; i++) {
        item_of *item = &c->t->items[i];
        (void)branch_add(c, item->first_forward, item->last_forward + 1, item->bytes);
        (void)branch_add(c, item->first_backward, item->last_backward + 1, item->bytes);
    }
    branch(c, 0, c->compute_ns, 0);
}

/* ---- the table ---- */

static bool adds(size_t *sum, size_t a) {
    return ashlar__add(*sum, a, sum);
}

static ashlar_status check(const ashlar_tiers_table *t, uint64_t *compute_ns) {
    size_t bytes = 0, most = 0, ns = 0;
    bool fits = true;
    for (size_t k = 0; k < t->moment_count; k++) {
        fits = fits && adds(&ns, t->moments[k].ns);
        most = larger(most, t->moments[k].bytes);
    }
    *compute_ns = ns;
    for (size_t g = 0; g < t->group_count; g++) {
        fits = fits && adds(&ns, t->groups[g].ns);
        most = larger(most, t->groups[g].bytes);
    }
    for (size_t i = 0; i < t->item_count; i++) {
        item_of *item = &t->items[i];
        ASHLAR_FAIL_IF(item->group >= t->group_count, ASHLAR_EINVAL,
                       "tiers: item %zu is of group %zu; there are %zu", i, item->group,
                       t->group_count);
        ASHLAR_FAIL_IF(item->first_forward > item->last_forward ||
                           item->last_forward >= item->first_backward ||
                           item->first_backward > item->last_backward ||
                           item->last_backward >= t->moment_count,
                       ASHLAR_EINVAL,
                       "tiers: item %zu is used in %zu .. %zu and %zu .. %zu of %zu moments; give "
                       "them in their order",
                       i, item->first_forward, item->last_forward, item->first_backward,
                       item->last_backward, t->moment_count);
        fits = fits && adds(&bytes, item->bytes) && adds(&ns, t->copy_ns) && adds(&ns, t->copy_ns);
    }
    fits = fits && adds(&most, bytes) && ashlar__mul(most, 2 * NS_PER_US, &bytes) &&
           adds(&ns, bytes); /* copies of 1 byte in a us are the slowest */
    ASHLAR_FAIL_IF(!fits || ns == SIZE_MAX, ASHLAR_EOVERFLOW,
                   "tiers: the sum of bytes or of times does not fit");
    return ASHLAR_OK;
}

/* Numbers of items by `key`, an offset of one of their fields; equal ones as they are. `begins`
 * [key_count + 1] receives where each key's begin. */
static void sort_items(const ashlar_tiers_table *t, size_t key, size_t key_count, size_t *begins,
                       size_t *out) {
    memset(begins, 0, (key_count + 1) * sizeof *begins);
    for (size_t i = 0; i < t->item_count; i++) {
        ++begins[*(const size_t *)((const char *)&t->items[i] + key) + 1];
    }
    for (size_t k = 0; k < key_count; k++) {
        begins[k + 1] += begins[k];
    }
    for (size_t i = 0; i < t->item_count; i++) {
        out[begins[*(const size_t *)((const char *)&t->items[i] + key)]++] = i;
    }
    for (size_t k = key_count; k > 0; k--) {
        begins[k] = begins[k - 1];
    }
    begins[0] = 0;
}

static ashlar_status check_groups(const choosing *c) {
    for (size_t i = 0; i < c->t->item_count; i++) {
        item_of *item = &c->t->items[i];
        ASHLAR_FAIL_IF(c->t->groups[item->group].may_recompute &&
                           item->last_forward >= c->rerun[item->group],
                       ASHLAR_EINVAL,
                       "tiers: group %zu is used backward from moment %zu on, before its forward "
                       "ends in %zu; it cannot be computed again",
                       item->group, c->rerun[item->group], item->last_forward);
    }
    return ASHLAR_OK;
}

static void finish(choosing *c) {
    ashlar__host_free(c->words);
    ashlar__host_free(c->places);
    ashlar__host_free(c->away);
}

/* The next `count` words of the block that begins at *at. */
static size_t *take(size_t **at, size_t count) {
    size_t *taken = *at;
    *at += count;
    return taken;
}

static ashlar_status set_up(choosing *c, const ashlar_tiers_table *t) {
    const size_t n = t->item_count, m = t->moment_count, groups = t->group_count;
    *c = (choosing){.t = t,
                    .copies = t->out_bytes_per_us > 0 && t->back_bytes_per_us > 0,
                    .work_left = WORK_MAX,
                    .best_ns = NO_ROOM,
                    .live = {.leaves = 1}};
    ASHLAR_TRY(check(t, &c->compute_ns));
    while (c->live.leaves < m) {
        c->live.leaves *= 2;
    }
    c->words =
        ashlar__host_calloc(5 * n + 4 * groups + 3 * m + 2 + 4 * c->live.leaves, sizeof *c->words);
    c->places = ashlar__host_calloc(n + 1, sizeof *c->places);
    c->away = ashlar__host_calloc(groups + 1, sizeof *c->away);
    ASHLAR_FAIL_IF(c->words == NULL || c->places == NULL || c->away == NULL, ASHLAR_EHOSTMEM,
                   "no host memory to choose among the tiers of %zu items", n);
    size_t *at = c->words;
    c->by_out = take(&at, n);
    c->by_back = take(&at, n);
    c->by_group = take(&at, n);
    c->out_at = take(&at, n);
    c->copied_ns = take(&at, n);
    c->group_first = take(&at, groups + 1);
    c->rerun = take(&at, groups);
    c->group_order = take(&at, groups);
    c->candidates = take(&at, groups);
    c->load = take(&at, m + 1);
    c->least_load = take(&at, m);
    c->moment_ns = take(&at, m);
    c->live.most = take(&at, 2 * c->live.leaves);
    c->live.added = take(&at, 2 * c->live.leaves);
    sort_items(t, offsetof(ashlar_tiers_item, last_forward), m, c->load, c->by_out);
    sort_items(t, offsetof(ashlar_tiers_item, first_backward), m, c->load, c->by_back);
    sort_items(t, offsetof(ashlar_tiers_item, group), groups, c->group_first, c->by_group);
    size_t order = 0;
    memset(c->rerun, 0xff, groups * sizeof *c->rerun);
    for (size_t j = 0; j < n; j++) {
        c->out_at[c->by_out[j]] = j;
        const ashlar_tiers_item *item = &t->items[c->by_back[j]];
        if (c->rerun[item->group] == SIZE_MAX) {
            c->rerun[item->group] = item->first_backward;
            c->group_order[order++] = item->group;
        }
    }
    while (order < groups) { /* groups without items are nobody's candidates */
        c->group_order[order++] = 0;
    }
    return check_groups(c);
}

static ashlar_status find_least(choosing *c, const ashlar_tiers_table *t, size_t *out) {
    ASHLAR_TRY(set_up(c, t));
    *out = set_least(c, 0);
    return ASHLAR_OK;
}

ashlar_status ashlar__tiers_least(const ashlar_tiers_table *table, size_t *out) {
    choosing c;
    const ashlar_status status = find_least(&c, table, out);
    finish(&c);
    return status;
}

/* The best places, and what is to be said of them. */
static void hand_out(choosing *c, bool is_best, ashlar_tiers_place *places,
                     ashlar_tiers_choice *out) {
    const size_t count = c->t->item_count;
    memcpy(c->places, c->best, count * sizeof *c->places);
    ASHLAR_ASSERT(c->best_ns >= c->bound_ns);
    *out = (ashlar_tiers_choice){.ns = c->best_ns,
                                 .bound_ns = is_best ? c->best_ns : c->bound_ns,
                                 .compute_ns = c->compute_ns,
                                 .peak_bytes = load_all(c, false),
                                 .is_best = is_best};
    for (size_t i = 0; i < count; i++) {
        places[i] = c->places[i];
        out->bytes[places[i].tier] += c->t->items[i].bytes;
    }
}

static ashlar_status choose(choosing *c, const ashlar_tiers_table *t, size_t budget,
                            ashlar_tiers_place *places, ashlar_tiers_choice *out) {
    size_t least = 0;
    ASHLAR_TRY(find_least(c, t, &least));
    ASHLAR_FAIL_IF(budget < least, ASHLAR_ENOMEM,
                   "tiers: a budget of %zu bytes, but the step needs at least %zu", budget, least);
    c->budget = budget;
    c->best = ashlar__host_calloc(t->item_count + 1, sizeof *c->best);
    ASHLAR_FAIL_IF(c->best == NULL, ASHLAR_EHOSTMEM,
                   "no host memory to choose among the tiers of %zu items", t->item_count);
    for (size_t i = 0; i < t->item_count; i++) {
        c->places[i].tier = ASHLAR_TIER_HOST;
    }
    c->bound_ns = bound(c, true);
    try_all_shares(c, least);
    bool is_best = c->best_ns <= c->bound_ns;
    if (!is_best && t->item_count <= BRANCH_ITEMS_MAX) {
        c->work_left = WORK_MAX;
        try_all(c);
        is_best = c->best_ns <= c->bound_ns || c->work_left > 0;
    }
    hand_out(c, is_best, places, out);
    return ASHLAR_OK;
}

ashlar_status ashlar__tiers_choose(const ashlar_tiers_table *table, size_t budget,
                                   ashlar_tiers_place *places, ashlar_tiers_choice *out) {
    choosing c;
    const ashlar_status status = choose(&c, table, budget, places, out);
    ashlar__host_free(c.best);
    finish(&c);
    return status;
}
