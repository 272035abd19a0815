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
    CHECK(ashlar_usable_bytes(allocator, freed, &bytes) == ASHLAR_EPOINTER && bytes == 7);
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

static void flush(void (*how)(ashlar_cache *)) {
    ashlar__lock_acquire(&allocator->lock);
    how(ashlar__cache_recent);
    ashlar__lock_release(&allocator->lock);
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

/* It would keep memory of a size that hardly any request has from all others. */
CASE_WITH(a_miss_gives_up_the_large_block_alone, set_up_cached("memory=32MiB", 8 * MIB)) {
    unsigned char *rest = take(4 * MIB, streams[0]); /* nothing like the end of a step */
    unsigned char *small = take(4096, streams[1]), *large = take(2 * MIB, streams[1]);
    give(small);
    give(large);
    CHECK_ZU(own_stats().cached_bytes, 4096 + 2 * MIB);
    unsigned char *ptr = take(1024, streams[0]);
    CHECK_ZU(own_stats().cached_bytes, 4096);
    give(ptr);
    give(rest);
}

/* Of the request's stream alone, and of its kind: memory merges only inside a zone. */
CASE_WITH(a_zone_grows_only_after_its_stream_s_cache_is_empty,
          set_up_cached("memory=32MiB", 8 * MIB)) {
    unsigned char *rest = take(4 * MIB, streams[0]);
    unsigned char *below = take(512, streams[0]), *above = take(1024, streams[0]);
    unsigned char *others = take(4096, streams[1]);
    give(below);
    give(above);
    give(others);
    CHECK_ZU(own_stats().cached_bytes, 512 + 1024 + 4096);
    unsigned char *ptr = take(1536, streams[0]);
    CHECK(ptr == below);
    CHECK_ZU(own_stats().cached_bytes, 4096);
    give(ptr);
    give(rest);
}

/* A block in each list, then in each but one: none may be overlooked. */
CASE_WITH(a_flush_finds_the_blocks_of_every_class, set_up_cached("memory=256MiB", 512 * MIB)) {
    unsigned char *ptrs[ASHLAR_SC_COUNT];
    for (size_t without = ASHLAR_SC_COUNT; without > 0; without = without < 5 ? 0 : without - 5) {
        for (unsigned i = 0; i < ASHLAR_SC_COUNT; i++) {
            ptrs[i] = take(ashlar__sc_bytes((ashlar_sc){.idx = (uint16_t)i}), streams[0]);
        }
        ashlar_cache *own = ashlar__cache_recent;
        own->limit[0] = SIZE_MAX;
        for (size_t i = 0; i < ASHLAR_SC_COUNT; i++) {
            if (i != without) {
                give(ptrs[i]);
            }
        }
        CHECK(own->pending_count == 0 && own->weight[0] > 0);
        flush(ashlar__cache_flush);
        CHECK(ashlar__cache_is_empty(own));
        if (without < ASHLAR_SC_COUNT) {
            give(ptrs[without]);
            flush(ashlar__cache_flush);
        }
        CHECK_ZU(ashlar__heap_used_bytes(&allocator->heap), 0);
    }
}

/* What a hit writes, on lines where no other thread's hit writes. */
CASE(nothing_that_a_hit_writes_shares_a_line) {
    enum { LINE = ASHLAR_CACHE_LINE };
    CHECK(offsetof(ashlar_cache, is_busy) >= LINE);
    CHECK(sizeof(ashlar_cache) - offsetof(ashlar_cache, thread) > LINE);
    CHECK(offsetof(ashlar_magazines, lists) >= LINE);
    CHECK(sizeof(ashlar_magazines) - sizeof((ashlar_magazines *)NULL)->lists >= 2 * (size_t)LINE);
}

/* Zones take nodes by whole lines. */
CASE_WITH(blocks_of_two_streams_share_no_line, set_up_cached("memory=32MiB", 8 * MIB)) {
    enum { LINE = ASHLAR_CACHE_LINE, EACH = 9 };
    unsigned char *ptrs[2][EACH];
    for (size_t i = 0; i < EACH; i++) {
        ptrs[0][i] = take(4096, streams[0]);
        ptrs[1][i] = take(4096, streams[1]);
    }
    for (const ashlar_block *a = ashlar__heap_first(&allocator->heap); a != NULL;
         a = ashlar__heap_next(a)) {
        for (const ashlar_block *b = a; b != NULL; b = ashlar__heap_next(b)) {
            CHECK(a->window == b->window || (uintptr_t)(a + 1) - 1 < (uintptr_t)b / LINE * LINE ||
                  (uintptr_t)(b + 1) - 1 < (uintptr_t)a / LINE * LINE);
        }
    }
    for (size_t i = 0; i < EACH; i++) {
        give(ptrs[0][i]);
        give(ptrs[1][i]);
    }
}

CASE_WITH(a_thread_keeps_one_cache_of_each_allocator, set_up_cached("memory=32MiB", 8 * MIB)) {
    ashlar_allocator *second = NULL;
    REQUIRE(ashlar_allocator_create(device, &second) == ASHLAR_OK);
    ashlar_cache *of_first = ashlar__cache_get(allocator);
    ashlar_cache *of_second = ashlar__cache_get(second);
    REQUIRE(of_first != NULL && of_second != NULL);
    CHECK(of_first != of_second && ashlar__cache_recent == of_second);
    CHECK(ashlar__cache_get(allocator) == of_first && ashlar__cache_recent == of_first);
    CHECK(of_first->allocator == allocator && allocator->caches == of_first);
    CHECK_ZU(of_first->limit[0], ashlar__cache_weight(MIB)); /* the least, on a small device */
    CHECK_ZU(of_first->limit[1], ashlar__cache_weight(4 * MIB));
    /* 1/32 of the device, where nobody says. */
    CHECK_ZU(of_second->limit[0], ashlar__cache_weight(512 * KIB));
    ashlar_allocator_destroy(second);
    CHECK(of_second->allocator == NULL);
    CHECK(ashlar__cache_get(allocator) == of_first);
    /* The next one made frees those that no allocator has. */
    REQUIRE(ashlar_allocator_create(device, &second) == ASHLAR_OK);
    CHECK(ashlar__cache_get(second) != NULL);
    CHECK(ashlar__cache_get(second)->next_of_thread == of_first);
    CHECK(of_first->next_of_thread == NULL);
    ashlar_allocator_destroy(second);
}

/* ---- steps: before one that is unlike the last the cache is emptied ---- */

enum { SMALL = 4, LARGE = 600 * KIB };

static size_t last_bytes; /* of the last large block */

static bool set_up_steps(void) {
    last_bytes = 700 * KIB;
    return set_up_cached("memory=128MiB", 8 * MIB);
}

/* How much is cached behind a step's first request, a miss: of large blocks only the one taken last
 * stays. */
static size_t step(size_t small_bytes, size_t small_count) {
    unsigned char *blocks[2 * SMALL], *large = take(LARGE, streams[0]);
    const size_t kept = ashlar__cache_get(allocator)->weight[0];
    unsigned char *last = take(last_bytes, streams[0]);
    for (size_t i = 0; i < small_count; i++) {
        blocks[i] = take(small_bytes, streams[0]);
    }
    for (size_t i = 0; i < small_count; i++) {
        give(blocks[i]);
    }
    give(large);
    give(last);
    return kept;
}

CASE_WITH(steps_that_are_alike_keep_the_cache, set_up_steps()) {
    CHECK_ZU(step(40 * KIB, SMALL), 0);
    CHECK_ZU(step(40 * KIB, SMALL), 0); /* there was no step before the first */
    for (int i = 0; i < 3; i++) {
        CHECK_ZU(step(40 * KIB, SMALL), SMALL * ashlar__cache_weight(40 * KIB));
    }
}

static void check_unlike(void) {
    const size_t sizes[] = {40 * KIB, 40 * KIB, 10 * KIB, 10 * KIB, 40 * KIB, 40 * KIB};
    for (size_t i = 0; i < 6; i++) {
        CHECK((step(sizes[i], SMALL) > 0) == (i == 2 || i == 4)); /* behind two that are alike */
    }
}

CASE_WITH(a_step_with_other_bytes_is_unlike, set_up_steps()) {
    check_unlike();
}

CASE_WITH(a_step_with_more_requests_is_unlike, set_up_steps()) {
    for (int i = 0; i < 3; i++) {
        (void)step(40 * KIB, SMALL);
    }
    (void)step(40 * KIB, SMALL + 1);
    CHECK_ZU(step(40 * KIB, SMALL + 1), 0);
    CHECK(step(40 * KIB, SMALL + 1) > 0);
}

RUN_CASES()
