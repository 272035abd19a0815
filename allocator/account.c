#include "account.h"

#include "compiler.h"

ASHLAR_NOINLINE void ashlar_count_peak(ashlar_counters *c) {
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        c->tags_at_peak[tag] = c->tags[tag].live;
    }
    c->is_at_peak = false;
}

/* Unsigned values and their changes: arithmetic modulo 2^64 gives the right sum. */
static uint64_t changed(uint64_t value, int64_t change) {
    return value + (uint64_t)change;
}

/*
 * Where a thread frees what another took, and publishes first, less than nothing is live for a
 * while: values are compared as signed ones.
 */
static bool is_below(uint64_t value, uint64_t other) {
    return (int64_t)value < (int64_t)other;
}

/* The peak is now: what is published of each tag, and `changes` to it. */
static void set_peak(ashlar_stats *stats, const int64_t *changes) {
    stats->live_peak_bytes = 0;
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        const uint64_t live = changed(stats->tags[tag].live_bytes, changes[tag]);
        stats->tags[tag].at_peak_bytes = is_below(live, 0) ? 0 : live;
        stats->live_peak_bytes += stats->tags[tag].at_peak_bytes;
    }
}

/* The largest total that this thread saw, in the changes' own terms. */
static void publish_peak(ashlar_counters *c, ashlar_stats *stats) {
    if (!c->has_peak ||
        !is_below(stats->live_peak_bytes, changed(stats->live_bytes, c->all.peak))) {
        return;
    }
    if (c->is_at_peak) {
        ashlar_count_peak(c);
    }
    set_peak(stats, c->tags_at_peak);
}

static void publish_tag(const ashlar_change *change, ashlar_tag_stats *total) {
    const uint64_t reached = changed(total->live_bytes, change->peak);
    total->live_bytes = changed(total->live_bytes, change->live);
    total->peak_bytes = is_below(total->peak_bytes, reached) ? reached : total->peak_bytes;
}

void ashlar_counters_publish(ashlar_counters *c, ashlar_stats *stats) {
    publish_peak(c, stats);
    stats->alloc_count += c->hit_count - c->hit_count_published;
    stats->served_cached += c->hit_count - c->hit_count_published;
    stats->free_count += c->free_count;
    stats->live_bytes = changed(stats->live_bytes, c->all.live);
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        publish_tag(&c->tags[tag], &stats->tags[tag]);
    }
    /* Other threads may have published meanwhile, and the sum be a peak that none saw alone. */
    if (is_below(stats->live_peak_bytes, stats->live_bytes)) {
        static const int64_t none[ASHLAR_TAG_COUNT];
        set_peak(stats, none);
    }
    *c = (ashlar_counters){
        .hit_count = c->hit_count,
        .hit_count_published = c->hit_count,
        .all.peak = (int64_t)(stats->live_peak_bytes - stats->live_bytes),
    };
}
