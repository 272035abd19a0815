/*
 * test_allocator.c - sizes, statistics, tags, coalescing and the seal, on one stream.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

#include "tests/allocator/core/allocator_fixture.h"

#include "allocator/core/allocator_impl.h"
#include "allocator/heap/size_class.h"

CASE_WITH(a_new_allocator_has_taken_no_memory, set_up("memory=16MiB")) {
    ashlar_stats expected = {.driver_calls = 3}; /* attribute, granularity, reservation */
    const ashlar_stats stats = stats_now();
    CHECK(memcmp(&stats, &expected, sizeof stats) == 0);
    CHECK_ZU(free_memory_of(device), 16 * MIB);
    CHECK(ashlar_allocator_device(allocator) == device);
    ashlar_allocator_destroy(NULL);
}

CASE(every_size_gets_its_block_size_and_alignment) {
    static const size_t sizes[] = {1,       2,       511,     512,     513,    4096,    4097,
                                   4608,    5000,    65536,   65537,   1048575, 1048576, 1048577,
                                   3000000, 8388608};
    REQUIRE(set_up("memory=32MiB"));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t block_bytes = 0;
        const ashlar_stats before = stats_now();
        unsigned char *ptr = take(sizes[i], streams[0]);
        const ashlar_stats after = stats_now();
        REQUIRE(ptr != NULL);
        CHECK(ashlar__block_bytes(sizes[i], &block_bytes));
        CHECK_ZU((uintptr_t)ptr % 512, 0);
        CHECK_ZU(after.live_bytes - before.live_bytes, sizes[i]);
        CHECK_ZU(after.block_bytes - before.block_bytes, block_bytes);
        queue_write(streams[0], ptr, sizes[i], 1); /* all of it is there */
        give(ptr);
    }
}

CASE(blocks_that_are_live_together_do_not_overlap) {
    enum { COUNT = 200 };
    unsigned char *ptrs[COUNT];
    REQUIRE(set_up("memory=32MiB"));
    atomic_store(&payload_bad_count, 0);
    for (size_t i = 0; i < COUNT; i++) {
        ptrs[i] = take(1 + i * i, streams[0]);
        queue_write(streams[0], ptrs[i], 1 + i * i, (unsigned char)i);
    }
    for (size_t i = 0; i < COUNT; i++) {
        queue_verify(streams[0], ptrs[i], 1 + i * i, (unsigned char)i);
    }
    CHECK(atomic_load(&payload_bad_count) == 0);
    for (size_t i = 0; i < COUNT; i++) {
        give(ptrs[i]);
    }
}

CASE(everything_freed_becomes_one_block_again) {
    enum { COUNT = 64 };
    unsigned char *ptrs[COUNT];
    REQUIRE(set_up("memory=16MiB"));
    for (size_t i = 0; i < COUNT; i++) {
        ptrs[i] = take(100 + 3000 * i, streams[0]);
    }
    const size_t reserved = stats_now().reserved_bytes;
    for (size_t i = 0; i < COUNT; i++) {
        give(ptrs[i * 27 % COUNT]); /* 27 has no divisor in common with 64 */
    }
    const ashlar_window *window = allocator->heap.windows;
    CHECK(window != NULL && window->first == window->last && window->above == NULL);
    CHECK_ZU(window->mapped_count * allocator->heap.range.handle_bytes, reserved);
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

CASE_WITH(each_tag_has_its_own_account, set_up("memory=16MiB")) {
    void *ptrs[ASHLAR_TAG_COUNT];
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        ptrs[tag] = take_tagged((size_t)(tag + 1) * 1000, (ashlar_tag)tag);
    }
    ashlar_stats s = stats_now();
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        CHECK_ZU(s.tags[tag].live_bytes, (size_t)(tag + 1) * 1000);
        CHECK(ashlar_free(allocator, ptrs[tag]) == ASHLAR_OK);
    }
    s = stats_now();
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        CHECK_ZU(s.tags[tag].live_bytes, 0);
        CHECK_ZU(s.tags[tag].peak_bytes, (size_t)(tag + 1) * 1000);
    }
    give(take(10, streams[0]));
    CHECK_ZU(stats_now().tags[ASHLAR_TAG_USER].peak_bytes, 1000); /* a take() without a tag */
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

CASE_WITH(the_usable_bytes_are_the_blocks, set_up("memory=16MiB")) {
    size_t bytes = 77;
    unsigned char *ptr = take(4097, streams[0]);
    CHECK(ashlar_allocator_usable_bytes(allocator, ptr, &bytes) == ASHLAR_OK);
    CHECK_ZU(bytes, 4608);
    bytes = 77;
    CHECK_FAILS(ashlar_allocator_usable_bytes(allocator, ptr + 512, &bytes), ASHLAR_EPOINTER,
                ": 512 bytes inside a block");
    give(ptr);
    CHECK_FAILS(ashlar_allocator_usable_bytes(allocator, ptr, &bytes), ASHLAR_EPOINTER,
                "freed before");
    CHECK(ashlar_allocator_usable_bytes(allocator, NULL, &bytes) == ASHLAR_EPOINTER);
    CHECK_ZU(bytes, 77);
}

CASE(every_tag_has_a_name) {
    static const char *const names[] = {
#define X(name, text) text,
        ASHLAR_TAG_MAP(X)
#undef X
    };
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        CHECK(strcmp(ashlar_tag_name((ashlar_tag)tag), names[tag]) == 0);
    }
    CHECK(strcmp(ashlar_tag_name(ASHLAR_TAG_WEIGHTS), "weights") == 0);
    CHECK(strcmp(ashlar_tag_name(ASHLAR_TAG_COUNT), "unknown") == 0);
    CHECK(strcmp(ashlar_tag_name((ashlar_tag)-1), "unknown") == 0);
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

CASE_WITH(destroying_returns_live_blocks_too, set_up("memory=16MiB")) {
    (void)take(5 * MIB, streams[0]); /* three handles of 2 MiB */
    (void)take(1000, streams[1]);    /* one of its own */
    CHECK_ZU(free_memory_of(device), 8 * MIB);
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

CASE_WITH(two_allocators_on_one_device_keep_apart, set_up("memory=16MiB")) {
    ashlar_allocator *other = NULL;
    void *ptr = NULL;
    unsigned char *mine = take(1000, streams[0]);
    REQUIRE(ashlar_allocator_create(device, &other) == ASHLAR_OK);
    CHECK(ashlar_alloc(other, 1000, streams[0], &ptr) == ASHLAR_OK);
    CHECK(ptr != mine);
    CHECK(ashlar_free(allocator, ptr) == ASHLAR_EPOINTER);
    CHECK(ashlar_free(other, mine) == ASHLAR_EPOINTER);
    CHECK(ashlar_free(other, ptr) == ASHLAR_OK);
    CHECK(stats_now().alloc_count == 1);
    ashlar_allocator_destroy(other);
    queue_write(streams[0], mine, 1000, 1);
    give(mine);
}

RUN_CASES()
