/* counters.c - adding a thread's counters, and the peak that it saw, to the statistics. */
#include "allocator/core/core.h"

ASHLAR_NOINLINE void ashlar__count_peak(ashlar_counters *c) {
    ASHLAR_CHECK2(c->has_peak && c->all.live == c->all.peak);
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        c->tags_at_peak[tag] = c->tags[tag].live;
    }
    c->is_at_peak = false;
}

/* Add a signed change to an unsigned value: arithmetic modulo 2^64 gives the right sum. */
static uint64_t changed(uint64_t value, int64_t change) {
    return value + (uint64_t)change;
}

/* Compare as signed numbers, since a published sum may be below zero; see cache.h. */
static bool is_above(uint64_t value, uint64_t other) {
    return (int64_t)value > (int64_t)other;
}

/* Set the peak: published live bytes plus `ahead`, what a thread had not published at its peak. */
static void set_peak(ashlar_stats *stats, const int64_t *ahead) {
    stats->live_peak_bytes = 0;
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        ashlar_tag_stats *of_tag = &stats->tags[tag];
        const uint64_t then = changed(of_tag->live_bytes, ahead[tag]);
        of_tag->at_peak_bytes = is_above(then, 0) ? then : 0;
        stats->live_peak_bytes += of_tag->at_peak_bytes;
    }
}

/* Publish the largest total that the thread saw, unless publishing the present sum does so. */
static void publish_peak(const ashlar_counters *c, ashlar_stats *stats) {
    if (c->has_peak && !c->is_at_peak &&
        is_above(changed(stats->live_bytes, c->all.peak), stats->live_peak_bytes)) {
        set_peak(stats, c->tags_at_peak);
    }
}

static void publish_tag(const ashlar_live_delta *change, ashlar_tag_stats *total) {
    const uint64_t reached = changed(total->live_bytes, change->peak);
    total->live_bytes = changed(total->live_bytes, change->live);
    total->peak_bytes = is_above(reached, total->peak_bytes) ? reached : total->peak_bytes;
}

/* Unpublished bytes allowed to a thread that only allocates or only frees. */
enum { ONE_SIDED_BYTES = 1 << 20 };

static int64_t lesser(int64_t a, int64_t b) {
    return a < b ? a : b;
}

void ashlar__counters_publish(ashlar_counters *c, ashlar_stats *stats) {
    static const int64_t nothing[ASHLAR_TAG_COUNT];
    ASHLAR_CHECK2(c->hit_count >= c->hit_count_published);
    ASHLAR_CHECK2(c->miss_count >= c->miss_count_published);
    ASHLAR_CHECK2(c->planned_count >= c->planned_count_published);
    publish_peak(c, stats);
    stats->alloc_count += c->hit_count - c->hit_count_published;
    stats->served_cached += c->hit_count - c->hit_count_published;
    stats->alloc_count += c->miss_count - c->miss_count_published;
    stats->served_same_stream += c->miss_count - c->miss_count_published;
    stats->alloc_count += c->planned_count - c->planned_count_published;
    stats->served_planned += c->planned_count - c->planned_count_published;
    stats->free_count += c->free_count;
    stats->live_bytes = changed(stats->live_bytes, c->all.live);
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        publish_tag(&c->tags[tag], &stats->tags[tag]);
    }
    /* The sum with other threads' changes may be a peak that no thread saw by itself. */
    if (is_above(stats->live_bytes, stats->live_peak_bytes)) {
        set_peak(stats, nothing);
    }
    ASHLAR_CHECK2(!is_above(stats->live_bytes, stats->live_peak_bytes));
    const int64_t peak = (int64_t)stats->live_peak_bytes, own = c->published + c->all.live;
    *c = (ashlar_counters){
        .limit = c->limit,
        .above = lesser(c->limit, (peak > own ? peak - own : 0) + ONE_SIDED_BYTES),
        .below = -lesser(c->limit, (own > 0 ? own : 0) + ONE_SIDED_BYTES),
        .hit_count = c->hit_count,
        .hit_count_published = c->hit_count,
        .miss_count = c->miss_count,
        .miss_count_published = c->miss_count,
        .planned_count = c->planned_count,
        .planned_count_published = c->planned_count,
        .published = c->published + c->all.live,
        .all.peak = (int64_t)(stats->live_peak_bytes - stats->live_bytes),
    };
}
