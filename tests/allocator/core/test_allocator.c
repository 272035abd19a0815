/*
 * test_allocator.c - what is reserved, statistics, tags and the seal, on one stream.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

#include "tests/allocator/core/allocator_fixture.h"

#include "allocator/core/core.h"

CASE_WITH(a_new_allocator_has_taken_no_memory, set_up("memory=16MiB")) {
    ashlar_stats expected = {.driver_calls = 3, /* attribute, granularity, reservation */
                             .limit_bytes = 16 * MIB};
    const ashlar_stats stats = stats_now();
    CHECK(memcmp(&stats, &expected, sizeof stats) == 0);
    CHECK_ZU(free_memory_of(device), 16 * MIB);
    CHECK(ashlar_allocator_device(allocator) == device);
    ashlar_allocator_destroy(NULL);
}

CASE_WITH(no_more_is_reserved_than_the_peak_needs, set_up("memory=64MiB")) {
    unsigned char *a = take(3 * MIB, streams[0]); /* 4 MiB in handles of 2 */
    CHECK_ZU(stats_now().reserved_bytes, 4 * MIB);
    unsigned char *b = take(MIB, streams[0]); /* from what is left of the 4 */
    CHECK_ZU(stats_now().reserved_bytes, 4 * MIB);
    unsigned char *c = take(5 * MIB, streams[0]);
    CHECK_ZU(stats_now().reserved_bytes, 10 * MIB);
    give(a);
    give(c);
    unsigned char *d = take(5 * MIB, streams[0]);
    CHECK(d == c);
    give(d);
    unsigned char *e = take(8 * MIB, streams[0]); /* 6 are free at the top: 2 more do */
    CHECK(e == c);
    const ashlar_stats stats = stats_now();
    CHECK_ZU(stats.reserved_bytes, 12 * MIB);
    CHECK_ZU(stats.reserved_peak_bytes, 12 * MIB);
    CHECK_ZU(free_memory_of(device), 52 * MIB);
    give(b);
    give(e);
    CHECK_ZU(stats_now().reserved_bytes, 12 * MIB); /* kept, for the next ones */
}

static void *take_tagged(size_t bytes, ashlar_tag tag) {
    void *ptr = NULL;
    CHECK(ashlar_alloc_tagged(allocator, bytes, tag, streams[0], &ptr) == ASHLAR_OK);
    return ptr;
}

CASE_WITH(peaks_begin_anew, set_up("memory=16MiB")) {
    give(take_tagged(5 * MIB, ASHLAR_TAG_WEIGHTS));
    void *batch = take_tagged(3000, ASHLAR_TAG_BATCH);
    CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
    ashlar_allocator_reset_peaks(allocator);
    ashlar_stats s = stats_now();
    CHECK_ZU(s.live_peak_bytes, 3000);
    CHECK(s.reserved_peak_bytes == s.reserved_bytes && s.reserved_bytes < 5 * MIB);
    CHECK_ZU(s.tags[ASHLAR_TAG_BATCH].at_peak_bytes, 3000);
    CHECK_ZU(s.tags[ASHLAR_TAG_WEIGHTS].peak_bytes, 0);
    CHECK_ZU(s.tags[ASHLAR_TAG_WEIGHTS].at_peak_bytes, 0);
    give(take_tagged(1000, ASHLAR_TAG_WEIGHTS));
    CHECK_ZU(stats_now().live_peak_bytes, 4000);
    CHECK_ZU(stats_now().tags[ASHLAR_TAG_WEIGHTS].at_peak_bytes, 1000);
    give(batch);
}

static atomic_int run_count;

static void count_run(void *unused) {
    (void)unused;
    atomic_fetch_add(&run_count, 1);
}

CASE_WITH(destroying_waits_for_the_device, set_up("memory=16MiB,mode=adversarial")) {
    for (int i = 0; i < STREAMS; i++) {
        unsigned char *ptr = take(1000, streams[i]);
        queue_write(streams[i], ptr, 1000, 1);
        CHECK(ashlar_launch(device, streams[i], count_run, NULL, 0) == ASHLAR_OK);
    }
    CHECK(atomic_load(&run_count) == 0);
    tear_down();
    CHECK(atomic_load(&run_count) == STREAMS);
}

RUN_CASES()
