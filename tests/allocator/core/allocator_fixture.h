/*
 * allocator_fixture.h - the device fixture and an allocator on it, for tests.
 *
 * A case begins with set_up(spec); at its end, tear_down() checks that the device has all of its
 * memory back.
 */
#ifndef ASHLAR_ALLOCATOR_FIXTURE_H
#define ASHLAR_ALLOCATOR_FIXTURE_H

#include "tests/allocator/core/cache_option.h"
#include "tests/allocator/device/device_fixture.h"

#include <ashlar/allocator.h>

#include "tests/snapshot_sums.h"

static ashlar_allocator *allocator;

/* Every statistic is the sum over the snapshot; no other thread is at work. */
static inline void check_snapshot(ashlar_allocator *of) {
    const char *difference = allocator_difference(of);
    CHECK(difference == NULL);
    if (difference != NULL) {
        printf("# statistics and snapshot disagree: %s\n", difference);
    }
}

/* All that is always true of the case's allocator. */
static inline void check_all(void) {
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    check_snapshot(allocator);
}

static inline void tear_down(void) {
    check_all();
    ashlar_allocator_destroy(allocator);
    CHECK(driver->table.ctx_pop_current(NULL) == CU_INVALID_CONTEXT); /* as before the case */
    tear_down_device();
}

/* An allocator that keeps its newest events, and whose threads' caches hold so much. */
static inline bool set_up_traced(const char *spec, uint64_t cache_bytes, uint64_t event_count) {
    ashlar_config config = {0};
    config.cache_bytes = cache_option(cache_bytes);
    config.trace_events = event_count;
    atomic_store(&payload_bad_count, 0);
    return set_up_device(spec) &&
           ashlar_allocator_create_with(device, &config, &allocator) == ASHLAR_OK &&
           check_at_end(tear_down);
}

/* An allocator whose threads' caches hold so much. */
static inline bool set_up_cached(const char *spec, uint64_t cache_bytes) {
    return set_up_traced(spec, cache_bytes, 0);
}

/* Without caches: for what the heap and the ladder do with each single call. */
static inline bool set_up(const char *spec) {
    return set_up_cached(spec, 0);
}

static inline unsigned char *take(size_t bytes, ashlar_stream stream) {
    void *ptr = NULL;
    CHECK(ashlar_alloc(allocator, bytes, stream, &ptr) == ASHLAR_OK);
    check_all();
    return ptr;
}

static inline void give(void *ptr) {
    CHECK(ashlar_free(allocator, ptr) == ASHLAR_OK);
    check_all();
}

static inline void give_on(void *ptr, ashlar_stream stream) {
    CHECK(ashlar_free_on(allocator, ptr, stream) == ASHLAR_OK);
    check_all();
}

/* The equations of allocator.h. */
static inline void check_equations(const ashlar_stats *s) {
    uint64_t live = 0, at_peak = 0;
    CHECK(s->live_bytes <= s->block_bytes);
    CHECK(s->block_bytes + s->cached_bytes + s->planned_bytes + s->shared_bytes + s->spare_bytes <=
          s->reserved_bytes);
    CHECK(s->live_peak_bytes >= s->live_bytes && s->reserved_peak_bytes >= s->reserved_bytes);
    CHECK(s->alloc_count == s->served_planned + s->served_cached + s->served_same_stream +
                                s->served_idle + s->served_completed + s->served_waited +
                                s->served_mapped + s->served_drained + s->served_reclaimed +
                                s->served_after_sync + s->served_gathered);
    CHECK(s->live_blocks == s->alloc_count - s->free_count);
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        live += s->tags[tag].live_bytes;
        at_peak += s->tags[tag].at_peak_bytes;
        CHECK(s->tags[tag].peak_bytes >= s->tags[tag].live_bytes);
        CHECK(s->tags[tag].peak_bytes >= s->tags[tag].at_peak_bytes);
    }
    CHECK(live == s->live_bytes && at_peak == s->live_peak_bytes);
}

static inline ashlar_stats stats_now(void) {
    ashlar_stats stats;
    ashlar_allocator_get_stats(allocator, &stats);
    check_equations(&stats);
    return stats;
}

#endif /* ASHLAR_ALLOCATOR_FIXTURE_H */
