/*
 * test_hit.c - what a thread's cache hands out and what it refuses; when it is given up, where it
 * lies, how many a thread has.
 */
#include "tests/allocator/core/hit_fixture.h"

static uint64_t all_calls(void) {
    uint64_t calls = 0;
    for (int fn = 0; fn < ASHLAR_DRIVER_FN_COUNT; fn++) {
        calls += atomic_load(&driver->calls[fn]);
    }
    return calls;
}

CASE(a_freed_block_is_handed_out_again_without_a_driver_call) {
    SET_UP("memory=32MiB", ROOM);
    unsigned char *small = take(5000, streams[0]), *large = take(3 * MIB, streams[0]);
    give_only(small);
    give_only(large);
    const uint64_t calls = all_calls();
    for (int i = 0; i < 100; i++) {
        unsigned char *again = take_only(5100, streams[0]);
        CHECK(again == small);
        CHECK(take_only(3 * MIB - 100, streams[0]) == large);
        give_only(again);
        give_only(large);
    }
    CHECK(all_calls() == calls);
    const ashlar_stats s = stats_now();
    CHECK_ZU(s.served_cached, 200);
    CHECK_ZU(s.alloc_count, 202);
    CHECK_ZU(s.free_count, 202);
    CHECK_ZU(s.cached_bytes, 5120 + 3 * MIB);
    CHECK_ZU(s.live_peak_bytes, 5000 + 3 * MIB);
}

CASE(what_a_cache_holds_is_bounded) {
    enum { COUNT = 100 };
    const size_t room = 256 * KIB;
    unsigned char *ptrs[COUNT];
    size_t most = 0;
    SET_UP("memory=64MiB", room);
    for (size_t i = 0; i < COUNT; i++) {
        ptrs[i] = take(512 * (1 + i), streams[i % STREAMS]);
    }
    for (size_t i = 0; i < COUNT; i++) {
        give(ptrs[i]);
        const size_t cached = stats_now().cached_bytes;
        most = cached > most ? cached : most;
    }
    CHECK(most > room / 32 && most <= room / 2); /* each block weighs 16 KiB more */
    unsigned char *large = take(MIB + 512, streams[0]);
    give(large); /* alone too large for the cache: straight to the heap */
    CHECK(stats_now().cached_bytes <= room / 2);
}

/* A cache of the one never serves the other, whichever was used last. */
CASE(allocators_do_not_mix) {
    ashlar_allocator *second = NULL;
    void *theirs = NULL, *again = NULL;
    SET_UP("memory=32MiB", ROOM);
    REQUIRE(ashlar_allocator_create(device, &second) == ASHLAR_OK);
    unsigned char *ours = take(4096, streams[0]);
    CHECK(ashlar_alloc(second, 4096, streams[0], &theirs) == ASHLAR_OK);
    CHECK(ashlar_free(second, ours) == ASHLAR_EPOINTER);
    CHECK(ashlar_free(allocator, theirs) == ASHLAR_EPOINTER);
    CHECK(ashlar_free(second, theirs) == ASHLAR_OK);
    give(ours);
    for (int i = 0; i < 3; i++) {
        CHECK(ashlar_alloc(second, 4096, streams[0], &again) == ASHLAR_OK && again == theirs);
        CHECK(take_only(4096, streams[0]) == ours);
        CHECK(ashlar_free(second, theirs) == ASHLAR_OK);
        give(ours);
    }
    CHECK_ZU(stats_now().served_cached, 3);
    CHECK(ashlar_allocator_check(second) == ASHLAR_OK);
    ashlar_allocator_destroy(second);
}

/* ---- when a cache is given up, where it lies ---- */

static ashlar_stats own_stats(void) {
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    return stats_now();
}

/* Else caching would change where later blocks lie. */
CASE_WITH(a_large_block_is_cached_only_right_after_it_was_taken,
          set_up_cached("memory=32MiB", 8 * MIB)) {
    unsigned char *first = take(2 * MIB, streams[0]), *second = take(3 * MIB, streams[0]);
    give(first); /* another one was taken since */
    CHECK_ZU(own_stats().cached_bytes, 0);
    give(second); /* and one was freed since */
    CHECK_ZU(own_stats().cached_bytes, 0);
    give(take(2 * MIB, streams[0]));
    CHECK_ZU(own_stats().cached_bytes, 2 * MIB);
}

RUN_CASES()
