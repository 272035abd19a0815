/*
 * counters.h - counters that one thread raises without a lock, and their sum (internal).
 *
 * A thread counts the changes since its last publication. To publish is to add them to the
 * allocator's statistics, under the lock, and to begin again at zero. A peak between two
 * publications is seen by the thread that reaches it:
 *
 *   peak = max over publications of (published live bytes + the thread's largest change of them)
 *
 * which is exact while one thread allocates. With several, a peak is wrong by at most what the
 * other threads have not published: too low by what they have taken, too high by what they have
 * freed. Each publishes when a call that takes the lock finds that to be more than half of what its
 * cache may hold; the calls in between, which do not take it, change it by no more than the cache
 * holds. Everyone publishes when the statistics are read. A published sum may be below zero
 * meanwhile; once all have published it is not.
 */
#ifndef ASHLAR_COUNTERS_H
#define ASHLAR_COUNTERS_H

#include <ashlar/allocator.h>

#include "allocator/base/compiler.h"

/* Changes since the last publication, and the value at which a change is a new peak. */
typedef struct ashlar_live_delta {
    int64_t live; /* requested bytes of blocks not yet freed */
    int64_t peak; /* largest `live` since; for `all` at least what it takes to be a new peak */
} ashlar_live_delta;

typedef struct ashlar_counters {
    uint64_t hit_count; /* allocations that the thread's cache served, since it was made */
    uint64_t hit_count_published;
    uint64_t planned_count; /* the same, by plans */
    uint64_t planned_count_published;
    uint64_t free_count;
    ashlar_live_delta all;
    ashlar_live_delta tags[ASHLAR_TAG_COUNT];
    int64_t tags_at_peak[ASHLAR_TAG_COUNT]; /* tags[].live when all.live was all.peak */
    bool has_peak;                          /* all.live has been above the published peak */
    bool is_at_peak; /* ... and nothing was freed since: tags_at_peak is not written yet */
} ashlar_counters;

static inline void ashlar__count_alloc(ashlar_counters *c, size_t requested, unsigned tag) {
    ashlar_live_delta *const of_tag = &c->tags[tag];
    of_tag->live += (int64_t)requested;
    if (!ASHLAR_LIKELY(of_tag->live <= of_tag->peak)) {
        of_tag->peak = of_tag->live;
    }
    c->all.live += (int64_t)requested;
    if (!ASHLAR_LIKELY(c->all.live <= c->all.peak)) {
        c->all.peak = c->all.live;
        c->has_peak = true;
        c->is_at_peak = true;
    }
}

void ashlar__count_peak(ashlar_counters *c); /* tags_at_peak from tags */

static inline void ashlar__count_free(ashlar_counters *c, size_t requested, unsigned tag) {
    if (c->is_at_peak) {
        ashlar__count_peak(c);
    }
    c->tags[tag].live -= (int64_t)requested;
    c->all.live -= (int64_t)requested;
}

/* Add the changes to `stats` and begin again. Lock: the allocator's. */
void ashlar__counters_publish(ashlar_counters *c, ashlar_stats *stats);

/* The same only where live bytes have changed by more than `limit`: it costs more than a search. */
static inline void ashlar__counters_settle(ashlar_counters *c, ashlar_stats *stats, size_t limit) {
    if (c->all.live > (int64_t)limit || -c->all.live > (int64_t)limit) {
        ashlar__counters_publish(c, stats);
    }
}

#endif /* ASHLAR_COUNTERS_H */
