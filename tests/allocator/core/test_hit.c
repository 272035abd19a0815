/*
 * test_hit.c - what a thread's cache hands out, for which stream, and what it refuses.
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

CASE(each_stream_gets_its_own_blocks_back) {
    unsigned char *ptrs[STREAMS];
    SET_UP("memory=32MiB", ROOM);
    for (int i = 0; i < STREAMS; i++) {
        ptrs[i] = take(4096, streams[i]);
    }
    for (int i = 0; i < STREAMS; i++) {
        give(ptrs[i]);
    }
    for (int round = 0; round < 3; round++) {
        for (int i = STREAMS - 1; i >= 0; i--) {
            CHECK(take_only(4096, streams[i]) == ptrs[i]);
        }
        for (int i = 0; i < STREAMS; i++) {
            give(ptrs[(i + round) % STREAMS]);
        }
    }
    CHECK_ZU(stats_now().served_cached, 3 * STREAMS);
    CHECK_ZU(stats_now().events_recorded, 0);
}

CASE(the_legacy_stream_is_the_default_stream) {
    const ashlar_stream legacy = (ashlar_stream)(uintptr_t)CU_STREAM_LEGACY;
    SET_UP("memory=32MiB", ROOM);
    unsigned char *ptr = take(4096, NULL);
    give(ptr);
    for (int i = 0; i < 4; i++) {
        CHECK(take_only(4096, i % 2 == 0 ? legacy : NULL) == ptr);
        give_only(ptr);
    }
    CHECK_ZU(stats_now().served_cached, 4);
}

/* It may serve that stream meanwhile; but a cache keeps only what lies in its stream's own zone. */
CASE(a_block_freed_on_another_stream_is_in_no_cache_until_it_is_home) {
    SET_UP("memory=32MiB,mode=adversarial,seed=1", ROOM);
    unsigned char *ptr = take(2 * MIB, streams[0]);
    wait_for(streams[0]);
    queue_write(streams[1], ptr, 4096, 1);
    give_on(ptr, streams[1]);
    CHECK_ZU(stats_now().cached_bytes, 0);
    CHECK_ZU(stats_now().shared_bytes, 2 * MIB);
    unsigned char *other = take(2 * MIB, streams[0]);
    CHECK(other != ptr);
    CHECK(take_only(2 * MIB, streams[1]) == ptr);
    give(ptr);
    CHECK(stats_now().served_idle == 1 && stats_now().cached_bytes == 0);
    wait_for(streams[1]);
    CHECK(take(2 * MIB, streams[0]) == ptr);
    CHECK(stats_now().served_idle == 2 && stats_now().served_cached == 0);
    give(ptr);
    CHECK(take_only(2 * MIB, streams[0]) == ptr);
    CHECK_ZU(stats_now().served_cached, 1);
    give(ptr);
    give(other);
}

/* Several bad calls, each with a block's twin in the cache that it might damage. */
CASE(a_wrong_call_is_refused_and_changes_nothing) {
    void *out = &out;
    size_t bytes = 7;
    SET_UP("memory=32MiB", ROOM);
    unsigned char *held = take(4096, streams[0]), *freed = take(4096, streams[0]);
    give(freed);
    const ashlar_stats before = stats_now();
    CHECK_FAILS(ashlar_free(allocator, freed), ASHLAR_EPOINTER, "freed before");
    CHECK(ashlar_free_on(allocator, freed, streams[1]) == ASHLAR_EPOINTER);
    CHECK(ashlar_allocator_usable_bytes(allocator, freed, &bytes) == ASHLAR_EPOINTER && bytes == 7);
    CHECK_FAILS(ashlar_free(allocator, held + 1), ASHLAR_EPOINTER, "inside a block");
    CHECK(ashlar_free(allocator, held + 512) == ASHLAR_EPOINTER);
    CHECK(ashlar_free(allocator, freed + 512) == ASHLAR_EPOINTER);
    CHECK_FAILS(ashlar_free(allocator, &out), ASHLAR_EPOINTER, "not a block");
    CHECK(ashlar_free(allocator, NULL) == ASHLAR_OK);
    CHECK(ashlar_alloc(allocator, 0, streams[0], &out) == ASHLAR_EINVAL);
    CHECK(ashlar_alloc(allocator, SIZE_MAX, streams[0], &out) == ASHLAR_ENOMEM);
    CHECK(ashlar_alloc_tagged(allocator, 4096, ASHLAR_TAG_COUNT, streams[0], &out) ==
          ASHLAR_EINVAL);
    CHECK(ashlar_alloc_tagged(allocator, 4096, (ashlar_tag)-1, streams[0], &out) == ASHLAR_EINVAL);
    CHECK(out == &out);
    const ashlar_stats after = stats_now();
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    give(held);
}

CASE(a_block_that_waits_for_the_heap_cannot_be_freed_again) {
    SET_UP("memory=32MiB", 64 * KIB); /* room for a block of 4 KiB twice */
    unsigned char *ptrs[4];
    for (int i = 0; i < 4; i++) {
        ptrs[i] = take(4096, streams[0]);
    }
    share(streams[0]); /* if the thread held the stream, its blocks would not wait */
    for (int i = 0; i < 4; i++) {
        give(ptrs[i]);
    }
    CHECK(ashlar__cache_recent->pending_count > 0);
    for (int i = 0; i < 4; i++) {
        CHECK(ashlar_free(allocator, ptrs[i]) == ASHLAR_EPOINTER);
    }
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
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

/* Of its own zone: large blocks lie in a zone of their own. */
CASE(a_bigger_request_gets_what_many_small_ones_left) {
    enum { COUNT = 100 };
    unsigned char *ptrs[COUNT];
    SET_UP("memory=8MiB", ROOM);
    for (int i = 0; i < COUNT; i++) {
        ptrs[i] = take(4096, streams[0]);
    }
    for (int i = 0; i < COUNT; i++) {
        give(ptrs[i]);
    }
    CHECK(stats_now().cached_bytes >= COUNT / 2 * (size_t)4096);
    unsigned char *big = take(512 * KIB, streams[0]);
    const ashlar_stats s = stats_now();
    CHECK(big == ptrs[0]);
    CHECK_ZU(s.reserved_bytes, 2 * MIB);
    CHECK_ZU(s.cached_bytes, 0);
    CHECK_ZU(s.served_mapped, 1);
    give(big);
}

/* Not even where no other memory is left: then only after a wait queued on the other stream. */
CASE(another_stream_gets_cached_memory_only_in_order) {
    SET_UP("memory=2MiB,mode=adversarial,seed=3", 4 * MIB);
    unsigned char *first = take(2 * MIB, streams[0]);
    queue_write(streams[0], first, 2 * MIB, 1);
    queue_verify(streams[0], first, 2 * MIB, 1);
    give(first);
    CHECK_ZU(stats_now().cached_bytes, 2 * MIB);
    unsigned char *second = take(2 * MIB, streams[1]);
    CHECK(second == first);
    CHECK_ZU(stats_now().served_waited, 1);
    CHECK_ZU(stats_now().served_cached, 0);
    queue_write(streams[1], second, 2 * MIB, 2);
    queue_verify(streams[1], second, 2 * MIB, 2);
    wait_for(streams[1]);
    wait_for(streams[0]);
    CHECK(atomic_load(&payload_bad_count) == 0);
    give(second);
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

RUN_CASES()
