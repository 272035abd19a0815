/*
 * test_allocator.c - what is reserved, statistics, tags and the seal, on one stream.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

#include "tests/allocator/core/allocator_fixture.h"

#include "allocator/core/core.h"

CASE_WITH(a_new_allocator_has_taken_no_memory, set_up("memory=16MiB")) {
    ashlar_stats expected = {.driver_calls = 3}; /* attribute, granularity, reservation */
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

/* The option is rounded up to a power of two. */
CASE_WITH(memory_comes_in_handles_of_the_size_that_was_asked_for, set_up_device("memory=64MiB")) {
    ashlar_config config;
    ashlar_config_init(&config);
    config.cache_bytes = ASHLAR_CACHE_NONE;
    config.handle_bytes = 5 * MIB;
    config.reserve_bytes = 9 * MIB;
    REQUIRE(ashlar_allocator_create_with(device, &config, &allocator) == ASHLAR_OK);
    CHECK(stats_now().reserved_bytes == 16 * MIB && stats_now().spare_bytes == 16 * MIB);
    CHECK_ZU(stats_now().driver_calls, 3 + 2);
    unsigned char *small = take(512, streams[0]), *large = take(7 * MIB, streams[0]);
    CHECK(stats_now().reserved_bytes == 16 * MIB && stats_now().spare_bytes == 0);
    CHECK_ZU(stats_now().driver_calls, 3 + 2 + 2 * 2); /* each mapped and opened alone */
    unsigned char *rest = take(MIB, streams[0]);
    CHECK(rest == large + 7 * MIB && stats_now().served_same_stream == 1);
    CHECK_ZU(stats_now().served_mapped, 2);
    give(small);
    give(large);
    CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
    CHECK_ZU(stats_now().reserved_bytes, 8 * MIB); /* a handle goes only as a whole */
    give(rest);
    check_all();
    ashlar_allocator_destroy(allocator);
    allocator = NULL;
}

CASE_WITH(the_smallest_hole_that_fits_is_used, set_up("memory=64MiB")) {
    unsigned char *large = take(6 * MIB, streams[0]), *wall = take(2 * MIB, streams[0]);
    unsigned char *small = take(4 * MIB, streams[0]), *top = take(2 * MIB, streams[0]);
    give(large);
    give(small);
    CHECK(take(3 * MIB, streams[0]) == small);
    CHECK(take(5 * MIB, streams[0]) == large);
    give(small);
    give(large);
    give(wall);
    give(top);
}

CASE_WITH(counters_say_what_happened, set_up("memory=16MiB")) {
    unsigned char *a = take(1000, streams[0]);
    ashlar_stats s = stats_now();
    CHECK(s.served_mapped == 1 && s.alloc_count == 1 && s.live_blocks == 1);
    CHECK(s.live_bytes == 1000 && s.block_bytes == 1024 && s.live_peak_bytes == 1000);
    CHECK(s.driver_calls == 6);               /* and created, mapped, opened */
    unsigned char *b = take(500, streams[0]); /* what is mapped is the stream's own */
    s = stats_now();
    CHECK(s.served_same_stream == 1 && s.alloc_count == 2 && s.live_bytes == 1500);
    give(a);
    s = stats_now();
    CHECK(s.free_count == 1 && s.live_blocks == 1 && s.live_bytes == 500 && s.block_bytes == 512);
    CHECK(s.live_peak_bytes == 1500);
    unsigned char *c = take(700, streams[0]);
    CHECK(c == a);
    s = stats_now();
    CHECK(s.served_same_stream == 2 && s.alloc_count == 3 && s.live_peak_bytes == 1500);
    CHECK(s.served_idle + s.served_gathered == 0);
    CHECK(s.served_completed + s.served_waited + s.served_after_sync + s.events_recorded == 0);
    CHECK(s.driver_calls == 6);
    CHECK(!s.is_sealed && s.driver_calls_sealed == 0);
    give(NULL);
    give_on(NULL, streams[1]);
    CHECK(stats_now().free_count == 1);
    give(b);
    give(c);
    CHECK(stats_now().live_bytes == 0 && stats_now().block_bytes == 0);
}

static void *take_tagged(size_t bytes, ashlar_tag tag) {
    void *ptr = NULL;
    CHECK(ashlar_alloc_tagged(allocator, bytes, tag, streams[0], &ptr) == ASHLAR_OK);
    return ptr;
}

CASE_WITH(tags_at_peak_are_those_of_the_highest_moment, set_up("memory=16MiB")) {
    void *weights = take_tagged(5000, ASHLAR_TAG_WEIGHTS);
    CHECK_ZU(stats_now().tags[ASHLAR_TAG_WEIGHTS].at_peak_bytes, 5000);
    void *batch = take_tagged(3000, ASHLAR_TAG_BATCH);
    ashlar_stats s = stats_now(); /* read at the peak itself */
    CHECK_ZU(s.live_peak_bytes, 8000);
    CHECK_ZU(s.tags[ASHLAR_TAG_WEIGHTS].at_peak_bytes, 5000);
    CHECK_ZU(s.tags[ASHLAR_TAG_BATCH].at_peak_bytes, 3000);
    give(weights);
    void *moments = take_tagged(4999, ASHLAR_TAG_MOMENTS); /* one byte below the peak */
    s = stats_now();
    CHECK_ZU(s.live_peak_bytes, 8000);
    CHECK_ZU(s.tags[ASHLAR_TAG_WEIGHTS].at_peak_bytes, 5000);
    CHECK_ZU(s.tags[ASHLAR_TAG_BATCH].at_peak_bytes, 3000);
    CHECK_ZU(s.tags[ASHLAR_TAG_MOMENTS].at_peak_bytes, 0);
    CHECK_ZU(s.tags[ASHLAR_TAG_MOMENTS].peak_bytes, 4999);
    give(batch);
    give(moments);
    moments = take_tagged(8000, ASHLAR_TAG_MOMENTS); /* the same height: the first one counts */
    give(moments);
    CHECK_ZU(stats_now().tags[ASHLAR_TAG_MOMENTS].at_peak_bytes, 0);
    moments = take_tagged(8001, ASHLAR_TAG_MOMENTS);
    give(moments);
    s = stats_now();
    CHECK_ZU(s.tags[ASHLAR_TAG_MOMENTS].at_peak_bytes, 8001);
    CHECK_ZU(s.tags[ASHLAR_TAG_WEIGHTS].at_peak_bytes, 0);
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

CASE_WITH(the_seal_counts_driver_calls_from_then_on, set_up("memory=16MiB")) {
    unsigned char *a = take(1000, streams[0]);
    CHECK(stats_now().driver_calls_sealed == 0);
    ashlar_allocator_seal(allocator);
    ashlar_stats s = stats_now();
    CHECK(s.is_sealed && s.driver_calls_sealed == 0 && s.driver_calls == 6);
    give(a);
    give(take(900, streams[0]));
    CHECK(stats_now().driver_calls_sealed == 0);
    unsigned char *b = take(3 * MIB, streams[0]);
    s = stats_now();
    CHECK(s.driver_calls_sealed == 5 && s.driver_calls == 11); /* two handles, opened together */
    ashlar_allocator_seal(allocator);
    CHECK(stats_now().is_sealed && stats_now().driver_calls_sealed == 0);
    give(b);
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
