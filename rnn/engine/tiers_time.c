/* tiers_time.c - what tiers take: the bytes that are live in each moment, the time, by going
 * through the moments once, and a time below which there is none. */
#include <stdlib.h>
#include <string.h>

#include "rnn/engine/tiers_state.h"

/* ---- bytes ---- */

static void profile_add(ashlar_tiers_live *p, size_t node, size_t begin, size_t end, size_t first,
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

static size_t profile_most(const ashlar_tiers_live *p, size_t node, size_t begin, size_t end,
                           size_t first, size_t last) {
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

void ashlar__tiers_live_add(ashlar_tiers_state *s, size_t first, size_t last, size_t bytes) {
    profile_add(&s->live, 1, 0, s->live.leaves, first, last, bytes);
}

size_t ashlar__tiers_live_most(const ashlar_tiers_state *s, size_t first, size_t last) {
    return profile_most(&s->live, 1, 0, s->live.leaves, first, last);
}

static void load_add(ashlar_tiers_state *s, size_t first, size_t last, size_t bytes) {
    s->load[first] += bytes; /* differences, until ashlar__tiers_load() sums them */
    s->load[last + 1] -= bytes;
}

size_t ashlar__tiers_load(ashlar_tiers_state *s, bool is_least) {
    const ashlar_tiers_table *t = s->t;
    size_t *own = s->live.most + s->live.leaves; /* all but items; becomes the sum */
    memset(s->load, 0, (t->moment_count + 1) * sizeof *s->load);
    for (size_t k = 0; k < t->moment_count; k++) {
        s->moment_ns[k] = t->moments[k].ns;
        own[k] = t->moments[k].bytes;
    }
    for (size_t i = 0; i < t->item_count; i++) {
        const ashlar_tiers_item *item = &t->items[i];
        ashlar_tiers_place *p = &s->places[i];
        if (p->tier == ASHLAR_TIER_RECOMPUTED) {
            s->moment_ns[item->first_backward] += item->again_ns;
        } else if (p->tier == ASHLAR_TIER_RESIDENT) {
            load_add(s, item->first_forward, item->last_backward, item->bytes);
        } else {
            p->out_end = is_least ? item->last_forward : p->out_end;
            p->back_begin = is_least ? item->first_backward : p->back_begin;
            load_add(s, item->first_forward, p->out_end, item->bytes);
            load_add(s, p->back_begin, item->last_backward, item->bytes);
        }
    }
    size_t items = 0, most = 0;
    for (size_t k = 0; k < t->moment_count; k++) {
        items += s->load[k];
        own[k] += items;
        most = larger(most, own[k]);
    }
    return most;
}

void ashlar__tiers_live_build(ashlar_tiers_state *s) {
    ashlar_tiers_live *p = &s->live;
    memset(p->added, 0, 2 * p->leaves * sizeof *p->added);
    for (size_t n = p->leaves; n-- > 1;) {
        p->most[n] = larger(p->most[2 * n], p->most[2 * n + 1]);
    }
}

/* ---- the time that tiers take ---- */

void ashlar__tiers_spend(ashlar_tiers_state *s, uint64_t times) {
    const uint64_t work = (s->t->moment_count + s->t->item_count) * times;
    s->work_left -= work < s->work_left ? work : s->work_left;
}

uint64_t ashlar__tiers_copy_back(ashlar_tiers_state *s, size_t i, size_t k, uint64_t ns) {
    if (s->places[i].tier != ASHLAR_TIER_HOST) {
        return ns;
    }
    s->places[i].back_begin = k;
    s->copied_ns[i] =
        ns + ashlar__tiers_copy_ns(s->t, s->t->items[i].bytes, s->t->back_bytes_per_us);
    return s->copied_ns[i];
}

uint64_t ashlar__tiers_copy_out(ashlar_tiers_state *s, size_t i, uint64_t ns, size_t *pending) {
    if (s->places[i].tier != ASHLAR_TIER_HOST) {
        return ns;
    }
    *pending += s->t->items[i].bytes;
    s->copied_ns[i] =
        ns + ashlar__tiers_copy_ns(s->t, s->t->items[i].bytes, s->t->out_bytes_per_us);
    return s->copied_ns[i];
}

/* Go through the moments. A copy out keeps its place as long as nobody needs it; a copy back begins
 * in the first moment in which its engine would be idle and it fits. Returns the step's time, or
 * UINT64_MAX. */
static uint64_t simulate(ashlar_tiers_state *s) {
    const ashlar_tiers_table *t = s->t;
    const size_t count = t->item_count;
    uint64_t end = 0, out_free = 0, back_free = 0;
    size_t gone = 0, sent = 0, pending = 0; /* of by_out: over, begun; bytes of those between */
    size_t back = 0, needed = 0;            /* of by_back: begun, over before a moment */
    ashlar__tiers_spend(s, 4);
    if (ashlar__tiers_load(s, true) > s->budget) {
        return UINT64_MAX;
    }
    ashlar__tiers_live_build(s);
    for (size_t k = 0; k < t->moment_count; k++) {
        size_t must = 0; /* so many of by_out have to be over */
        for (size_t j = back; j < count && t->items[s->by_back[j]].first_backward <= k; j++) {
            if (s->places[s->by_back[j]].tier == ASHLAR_TIER_HOST) {
                must = larger(must, s->out_at[s->by_back[j]] + 1);
            }
        }
        uint64_t is_free = end;
        const size_t here = pending > 0 ? ashlar__tiers_live_most(s, k, k) : 0;
        for (; gone < sent; gone++) {
            const size_t i = s->by_out[gone];
            if (s->places[i].tier != ASHLAR_TIER_HOST) {
                continue;
            }
            if (gone >= must && s->copied_ns[i] > is_free && pending <= s->budget - here) {
                break;
            }
            is_free = later(is_free, s->copied_ns[i]);
            s->places[i].out_end = k - 1;
            pending -= t->items[i].bytes;
        }
        if (pending > 0) {
            ashlar__tiers_live_add(s, k, k, pending);
        }
        uint64_t begin = is_free;
        for (; back < count && t->items[s->by_back[back]].first_backward <= k; back++) {
            back_free = ashlar__tiers_copy_back(s, s->by_back[back], k, later(back_free, is_free));
        }
        for (; needed < back && t->items[s->by_back[needed]].first_backward <= k; needed++) {
            if (s->places[s->by_back[needed]].tier == ASHLAR_TIER_HOST) {
                begin = later(begin, s->copied_ns[s->by_back[needed]]);
            }
        }
        for (; back < count && back_free < begin + s->moment_ns[k]; back++) {
            const size_t i = s->by_back[back], last = t->items[i].first_backward - 1;
            if (s->places[i].tier == ASHLAR_TIER_HOST) {
                if (s->out_at[i] >= gone ||
                    ashlar__tiers_live_most(s, k, last) > s->budget - t->items[i].bytes) {
                    break;
                }
                ashlar__tiers_live_add(s, k, last, t->items[i].bytes);
                back_free = ashlar__tiers_copy_back(s, i, k, later(back_free, is_free));
            }
        }
        end = begin + s->moment_ns[k];
        for (; sent < count && t->items[s->by_out[sent]].last_forward == k; sent++) {
            out_free = ashlar__tiers_copy_out(s, s->by_out[sent], later(out_free, end), &pending);
        }
    }
    return end;
}

bool ashlar__tiers_host_fits(const ashlar_tiers_state *s) {
    size_t bytes = 0;
    for (size_t i = 0; i < s->t->item_count; i++) {
        bytes += s->places[i].tier == ASHLAR_TIER_HOST ? s->t->items[i].bytes : 0;
    }
    return s->t->host_bytes == 0 || bytes <= s->t->host_bytes;
}

bool ashlar__tiers_is_better(ashlar_tiers_state *s) {
    const uint64_t ns = ashlar__tiers_host_fits(s) ? simulate(s) : UINT64_MAX;
    size_t moved = 0;
    for (size_t i = 0; i < s->t->item_count; i++) {
        moved += s->places[i].tier == ASHLAR_TIER_RESIDENT ? 0 : s->t->items[i].bytes;
    }
    if (ns > s->best_ns || (ns == s->best_ns && moved >= s->best_moved)) {
        return false;
    }
    s->best_ns = ns;
    s->best_moved = moved;
    memcpy(s->best, s->places, s->t->item_count * sizeof *s->best);
    return true;
}

bool ashlar__tiers_is_over(const ashlar_tiers_state *s) {
    const uint64_t slack = s->t->item_count > ASHLAR_TIERS_SMALL ? s->bound_ns / 1000 : 0;
    return s->best_ns <= s->bound_ns + slack || s->work_left == 0;
}

/* ---- a bound ---- */

static int by_price(const void *a, const void *b) {
    const ashlar_tiers_idle *x = a, *y = b;
    if (x->bytes == 0 || y->bytes == 0) { /* those with nothing idle at the end */
        return (x->bytes == 0) - (y->bytes == 0);
    }
    const double left = x->ns * y->bytes, right = y->ns * x->bytes;
    return (left > right) - (left < right);
}

/* What does not fit in a moment is away then: x bytes on the host, y computed again, at the least
 * price by parts of items. Copies out are over before the moment, copies back begin behind it; so
 * this is at least what is before it and what is behind it. It is convex in x. */
typedef struct around {
    double before_ns, out_ns, after_ns, back_ns; /* without what is away */
} around;

static double around_ns(const ashlar_tiers_state *s, around a, double x, double y) {
    for (size_t i = 0; i < s->t->item_count && y > 0; i++) {
        const ashlar_tiers_idle *item = &s->idle[i];
        const double part = y < item->bytes ? y : item->bytes;
        a.after_ns += part > 0 ? item->ns * (part / item->bytes) : 0;
        y -= part;
    }
    if (x > 0) {
        a.out_ns += x * ASHLAR_TIERS_NS_PER_US / (double)s->t->out_bytes_per_us;
        a.back_ns += x * ASHLAR_TIERS_NS_PER_US / (double)s->t->back_bytes_per_us;
    }
    return (a.out_ns > a.before_ns ? a.out_ns : a.before_ns) +
           (a.back_ns > a.after_ns ? a.back_ns : a.after_ns);
}

/* By what is away in moment k; `before` [moments + 1] is the work before each. */
static uint64_t bound_in(ashlar_tiers_state *s, size_t k, bool is_open, const uint64_t *before) {
    const ashlar_tiers_table *t = s->t;
    size_t first = t->moment_count, last = 0, idle = 0, again = 0;
    for (size_t i = 0; i < t->item_count; i++) {
        const ashlar_tiers_item *item = &t->items[i];
        if (s->places[i].tier == ASHLAR_TIER_HOST && item->last_forward < k &&
            k < item->first_backward) {
            first = item->last_forward < first ? item->last_forward : first;
            last = larger(last, item->first_backward);
            idle += item->bytes;
        }
    }
    size_t live = s->live.most[s->live.leaves + k] + idle;
    memset(s->idle, 0, t->item_count * sizeof *s->idle);
    for (size_t i = 0; i < t->item_count && is_open; i++) {
        const ashlar_tiers_item *item = &t->items[i];
        const bool is_idle = item->last_forward < k && k < item->first_backward;
        if (item->may_recompute && is_idle) {
            s->idle[i] = (ashlar_tiers_idle){(double)item->bytes, (double)item->again_ns};
            again += item->bytes;
        } else if (item->may_recompute && item->first_forward <= k && k <= item->last_backward) {
            live -= item->bytes; /* computed again, it would not be there */
        }
    }
    if (live <= s->budget) {
        return 0;
    }
    if (again > 0) {
        qsort(s->idle, t->item_count, sizeof *s->idle, by_price);
    }
    const size_t need = live - s->budget;
    const around a = {.before_ns = (double)before[k],
                      .out_ns = (double)before[first + 1],
                      .after_ns = (double)(before[t->moment_count] - before[k + 1]),
                      .back_ns = (double)(before[t->moment_count] - before[last])};
    double low = need > again ? (double)(need - again) : 0;
    double high = (double)(need < idle ? need : idle);
    for (int i = 0; i < 100 && again > 0 && low < high; i++) {
        const double x = low + (high - low) / 3, y = high - (high - low) / 3;
        const bool is_left =
            around_ns(s, a, x, (double)need - x) < around_ns(s, a, y, (double)need - y);
        *(is_left ? &high : &low) = is_left ? y : x;
    }
    const double rounding = 1 - 1e-9;
    return s->moment_ns[k] + (uint64_t)(rounding * around_ns(s, a, low, (double)need - low));
}

uint64_t ashlar__tiers_bound(ashlar_tiers_state *s, bool is_open) {
    const size_t count = s->t->moment_count, cost = 1 + 2 * s->t->item_count;
    const size_t stride = 1 + count / (ASHLAR_TIERS_WORK / 16 / cost + 1);
    ashlar__tiers_spend(s, 1 + count / stride * cost / (4 * (count + s->t->item_count) + 1));
    (void)ashlar__tiers_load(s, true);
    uint64_t *before = s->load; /* which has done its work */
    before[0] = 0;
    for (size_t k = 0; k < count; k++) {
        before[k + 1] = before[k] + s->moment_ns[k];
    }
    uint64_t ns = before[count];
    for (size_t k = count / 2 % stride; k < count; k += stride) {
        ns = later(ns, bound_in(s, k, is_open, before));
    }
    return ns;
}
