/* tiers_state.h - what the files of the choice of tiers share (internal). From tiers_time.c by
 * tiers_all.c to tiers.c, each calls only those before it. */
#ifndef ASHLAR_TIERS_STATE_H
#define ASHLAR_TIERS_STATE_H

#include "rnn/engine/tiers.h"

enum {
    ASHLAR_TIERS_WORK = 4000000, /* of a choice: moments and items that are gone through; ... */
    ASHLAR_TIERS_TRIES = 20,     /* ... or more, for so many candidates */
    ASHLAR_TIERS_SMALL = 64,     /* so many items: all tiers are tried */
    ASHLAR_TIERS_NS_PER_US = 1000
};

/* Bytes that are live in each moment, as a tree over ranges of moments. */
typedef struct ashlar_tiers_live {
    size_t leaves; /* a power of two; the children of node n are 2n and 2n + 1, the root is 1 */
    size_t *most;  /* [2 * leaves] in the node's range, without what is added to nodes above it */
    size_t *added; /* [2 * leaves] to the whole range */
} ashlar_tiers_live;

/* Of an item: what is idle in a moment, and computing it again. */
typedef struct ashlar_tiers_idle {
    double bytes, ns;
} ashlar_tiers_idle;

typedef struct ashlar_tiers_state {
    const ashlar_tiers_table *t;
    size_t budget;
    uint64_t work_left;
    size_t *words;            /* the block of the arrays: */
    size_t *by_out, *by_back; /* [items] numbers of items by last_forward, by first_backward */
    size_t *out_at;           /* [items] places in by_out */
    size_t *load;             /* [moments + 1] differences of items' bytes, scratch */
    size_t *least_load;  /* [moments] of the tiers that are decided (tiers_all.c) */
    uint64_t *moment_ns; /* [moments] with what is computed again */
    uint64_t *copied_ns; /* [items] when the last copy is over */
    ashlar_tiers_live live;
    ashlar_tiers_idle *idle;    /* [items] scratch */
    ashlar_tiers_place *places; /* [items] that are looked at */
    ashlar_tiers_place *best;   /* [items] so far, their time, ... */
    uint64_t best_ns;
    size_t best_moved; /* ... and bytes that do not stay */
    uint64_t bound_ns, compute_ns;
} ashlar_tiers_state;

static inline uint64_t ashlar__tiers_copy_ns(const ashlar_tiers_table *t, size_t bytes,
                                             uint64_t rate) {
    return t->copy_ns + (bytes * ASHLAR_TIERS_NS_PER_US + rate - 1) / rate;
}

/* Whether memory is saved by sending it away. */
static inline bool ashlar__tiers_can_leave(const ashlar_tiers_item *item) {
    return item->bytes > 0 && item->last_forward + 1 < item->first_backward;
}

static inline size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

static inline uint64_t later(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* Take from `work_left` what going through the table so many times costs. */
void ashlar__tiers_spend(ashlar_tiers_state *s, uint64_t times);

/* Bytes and times of the moments by what `places` say; with is_least by their tiers, and no copy
 * under way longer than it must be. Leaves the bytes in the tree's leaves; returns the most. */
size_t ashlar__tiers_load(ashlar_tiers_state *s, bool is_least);

/* The tree above these leaves; bytes that are live in first .. last; the most there. */
void ashlar__tiers_live_build(ashlar_tiers_state *s);
void ashlar__tiers_live_add(ashlar_tiers_state *s, size_t first, size_t last, size_t bytes);
size_t ashlar__tiers_live_most(const ashlar_tiers_state *s, size_t first, size_t last);

/* Begin a copy of item i at this time, back in moment k. Returns when it is over. */
uint64_t ashlar__tiers_copy_back(ashlar_tiers_state *s, size_t i, size_t k, uint64_t ns);
uint64_t ashlar__tiers_copy_out(ashlar_tiers_state *s, size_t i, uint64_t ns, size_t *pending);

/* Whether the host has room for these tiers. */
bool ashlar__tiers_host_fits(const ashlar_tiers_state *s);

/* Whether the tiers in `places` are the best so far; then they are kept. */
bool ashlar__tiers_is_better(ashlar_tiers_state *s);

/* No choice takes less time than this; without is_open, none with the tiers in `places`. */
uint64_t ashlar__tiers_bound(ashlar_tiers_state *s, bool is_open);

/* Whether to look no further. */
bool ashlar__tiers_is_over(const ashlar_tiers_state *s);

/* Try all tiers, unless they cannot be better. */
void ashlar__tiers_try_all(ashlar_tiers_state *s);

#endif /* ASHLAR_TIERS_STATE_H */
