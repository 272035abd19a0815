/* tiers_all.c - the search of all tiers, and of all moments for their copies, for small tables. */
#include <string.h>

#include "rnn/engine/tiers_state.h"

/* Add to what is live in first .. end - 1, whatever is chosen for what follows. Returns whether
 * that fits. */
static bool branch_add(ashlar_tiers_state *s, size_t first, size_t end, size_t bytes) {
    bool fits = true;
    for (size_t k = first; k < end; k++) {
        s->least_load[k] += bytes;
        fits = fits && s->least_load[k] <= s->budget;
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

static void search_copies(ashlar_tiers_state *s, position p);

/* Try all copies back that moment k can begin, when its place is free. */
static void search_back(ashlar_tiers_state *s, position p, uint64_t is_free) {
    const ashlar_tiers_table *t = s->t;
    size_t *const live = s->live.most + s->live.leaves;
    while (p.back < t->item_count && s->places[s->by_back[p.back]].tier != ASHLAR_TIER_HOST) {
        p.back++;
    }
    if (p.back < t->item_count) {
        const size_t i = s->by_back[p.back], end = t->items[i].first_backward;
        const uint64_t out_ns = s->copied_ns[i];
        bool fits = s->out_at[i] < p.gone;
        for (size_t k = p.k; k < end; k++) {
            live[k] += t->items[i].bytes;
            fits = fits && live[k] + (k == p.k ? p.pending : 0) <= s->budget;
        }
        if (fits) {
            position next = p;
            next.back++;
            next.back_free = ashlar__tiers_copy_back(s, i, p.k, later(p.back_free, is_free));
            next.back_left_ns -= ashlar__tiers_copy_ns(t, t->items[i].bytes, t->back_bytes_per_us);
            search_back(s, next, is_free);
            s->copied_ns[i] = out_ns;
        }
        for (size_t k = p.k; k < end; k++) {
            live[k] -= t->items[i].bytes;
        }
        if (end == p.k) {
            return;
        }
    }
    if (live[p.k] + p.pending > s->budget) {
        return;
    }
    p.end = is_free;
    for (size_t j = 0; j < p.back && t->items[s->by_back[j]].first_backward <= p.k; j++) {
        if (s->places[s->by_back[j]].tier == ASHLAR_TIER_HOST) {
            p.end = later(p.end, s->copied_ns[s->by_back[j]]);
        }
    }
    p.end += s->moment_ns[p.k];
    p.left_ns -= s->moment_ns[p.k];
    for (; p.sent < t->item_count && t->items[s->by_out[p.sent]].last_forward == p.k; p.sent++) {
        p.out_free =
            ashlar__tiers_copy_out(s, s->by_out[p.sent], later(p.out_free, p.end), &p.pending);
    }
    p.k++;
    search_copies(s, p);
}

/* Try all numbers of copies out that the place of moment k waits for. */
static void search_copies(ashlar_tiers_state *s, position p) {
    if (later(p.end + p.left_ns, p.back_free + p.back_left_ns) >= s->best_ns || s->work_left == 0) {
        return;
    }
    ashlar__tiers_spend(s, 1);
    if (p.k == s->t->moment_count) {
        s->best_ns = p.end;
        memcpy(s->best, s->places, s->t->item_count * sizeof *s->best);
        return;
    }
    search_back(s, p, p.end);
    for (uint64_t is_free = p.end; p.gone < p.sent;) {
        const size_t i = s->by_out[p.gone++];
        if (s->places[i].tier == ASHLAR_TIER_HOST) {
            s->places[i].out_end = p.k - 1;
            is_free = later(is_free, s->copied_ns[i]);
            p.pending -= s->t->items[i].bytes;
            search_back(s, p, is_free);
        }
    }
}

/* The same for the moments that work with an item. */
static bool branch_add_own(ashlar_tiers_state *s, const ashlar_tiers_item *item, size_t bytes) {
    const bool fits = branch_add(s, item->first_forward, item->last_forward + 1, bytes);
    return branch_add(s, item->first_backward, item->last_backward + 1, bytes) && fits;
}

/* Try all tiers of item `at` and behind, unless they cannot be better: `ns` is the time of the work
 * so far, with what is computed again. */
static void branch(ashlar_tiers_state *s, size_t at, uint64_t ns, uint64_t back_ns) {
    const ashlar_tiers_table *t = s->t;
    const ashlar_tiers_item *item = &t->items[at];
    bool fits = true;
    if (ashlar__tiers_is_over(s) || later(ns, back_ns) >= s->best_ns) {
        return;
    }
    if (at == t->item_count) {
        (void)ashlar__tiers_is_better(s);
        if (ashlar__tiers_host_fits(s) && ashlar__tiers_bound(s, false) < s->best_ns &&
            ashlar__tiers_load(s, true) <= s->budget) {
            search_copies(s, (position){.left_ns = ns, .back_left_ns = back_ns});
        }
        return;
    }
    if (item->may_recompute) {
        s->places[at].tier = ASHLAR_TIER_RECOMPUTED;
        branch(s, at + 1, ns + item->again_ns, back_ns);
        fits = branch_add_own(s, item, item->bytes);
    }
    s->places[at].tier = ASHLAR_TIER_RESIDENT;
    if (branch_add(s, item->last_forward + 1, item->first_backward, item->bytes) && fits) {
        branch(s, at + 1, ns, back_ns);
    }
    (void)branch_add(s, item->last_forward + 1, item->first_backward, -item->bytes);
    if (ashlar__tiers_can_leave(item) && fits) {
        s->places[at].tier = ASHLAR_TIER_HOST;
        branch(s, at + 1, ns,
               back_ns + ashlar__tiers_copy_ns(t, item->bytes, t->back_bytes_per_us));
    }
    if (item->may_recompute) {
        (void)branch_add_own(s, item, -item->bytes);
    }
}

void ashlar__tiers_try_all(ashlar_tiers_state *s) {
    for (size_t k = 0; k < s->t->moment_count; k++) {
        s->least_load[k] = s->t->moments[k].bytes;
    }
    for (size_t i = 0; i < s->t->item_count; i++) {
        if (!s->t->items[i].may_recompute) {
            (void)branch_add_own(s, &s->t->items[i], s->t->items[i].bytes);
        }
    }
    branch(s, 0, s->compute_ns, 0);
}
