/*
 * counters.h - counters that one thread raises without a lock, and their sum (internal).
 *
 * Each thread counts its own calls and its own changes of live bytes. Now and then it publishes
 * them: it adds them to the allocator's statistics, under the lock, and begins again at zero. A
 * peak between two publications is not lost, because the thread keeps the largest value of its
 * change:
 *
 *   peak = max over publications of (published live bytes + the thread's largest change of them)
 *
 * The peak is exact while one thread allocates, and with a trace, when each call publishes. With
 * several threads, it is off by at most what the others have not published: too low by what they
 * took, too high by what they freed. A thread publishes once its changes exceed a 64th of the
 * device's memory or half of what the cache may hold, whichever is more; the hits in between add at
 * most what the cache holds.
 *
 * A thread that only allocates, or only frees what others allocated, publishes each MiB. Otherwise
 * the sum would swing between such threads. A thread recognizes this case by its own live bytes:
 * they are above the peak, or below zero. The live bytes of a thread that frees its own blocks stay
 * between the two. Reading the statistics publishes for all threads. Until all have published, a
 * sum may be below zero, if one thread freed what another one allocated.
 */
#ifndef ASHLAR_COUNTERS_H
#define ASHLAR_COUNTERS_H

#include <ashlar/allocator.h>

#include "allocator/base/check_level.h"
#include "allocator/base/compiler.h"

_Static_assert(ASHLAR_TAG_COUNT <= UINT8_MAX, "a block's tag is a byte");

/* Changes since the last publication, and the value that a new peak must exceed. */
typedef struct ashlar_live_delta {
    int64_t live; /* requested bytes allocated less those freed */
    int64_t peak; /* the largest `live` so far; in `all` it starts at the value that `live` must
                     exceed for a new peak */
} ashlar_live_delta;

typedef struct ashlar_counters {
    uint64_t hit_count; /* allocations served by the thread's magazines since the cache was made */
    uint64_t hit_count_published;
    uint64_t miss_count; /* allocations served by zones that the cache holds */
    uint64_t miss_count_published;
    uint64_t planned_count; /* allocations that plans served; see ashlar__cache_count_planned() */
    uint64_t planned_count_published;
    uint64_t free_count;
    int64_t published; /* the sum of all.live over all publications */
    ashlar_live_delta all;
    ashlar_live_delta tags[ASHLAR_TAG_COUNT];
    int64_t tags_at_peak[ASHLAR_TAG_COUNT]; /* tags[].live when all.live was all.peak */
    int64_t limit;   /* const; the change of live bytes at which the thread publishes */
    int64_t above;   /* publish if all.live is above this: the limit, or a MiB above the peak */
    int64_t below;   /* publish if all.live is below this: minus the limit, or a MiB below zero */
    bool has_peak;   /* all.live has exceeded the published peak */
    bool is_at_peak; /* has_peak, and nothing was freed since: tags_at_peak is not filled in yet */
} ashlar_counters;

static inline void ashlar__count_alloc(ashlar_counters *c, size_t requested, unsigned tag) {
    ASHLAR_CHECK2(requested > 0 && tag < ASHLAR_TAG_COUNT);
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

void ashlar__count_peak(ashlar_counters *c); /* fill in tags_at_peak from tags */

static inline void ashlar__count_free(ashlar_counters *c, size_t requested, unsigned tag) {
    ASHLAR_CHECK2(requested > 0 && tag < ASHLAR_TAG_COUNT);
    if (c->is_at_peak) {
        ashlar__count_peak(c);
    }
    c->tags[tag].live -= (int64_t)requested;
    c->all.live -= (int64_t)requested;
}

/* Add the changes to `stats`, and begin again at zero. Lock: the allocator's. */
void ashlar__counters_publish(ashlar_counters *c, ashlar_stats *stats);

/*
 * Whether the thread must publish now. Small changes wait, because publishing costs more than
 * finding a block.
 */
static inline bool ashlar__counters_are_due(const ashlar_counters *c) {
    return c->all.live > c->above || c->all.live < c->below;
}

/* Publish if ashlar__counters_are_due(). */
static inline void ashlar__counters_settle(ashlar_counters *c, ashlar_stats *stats) {
    if (ashlar__counters_are_due(c)) {
        ashlar__counters_publish(c, stats);
    }
}

#endif /* ASHLAR_COUNTERS_H */
