/*
 * test_cache.c - one thread's cache: when it is given up, where it lies, how many a thread has.
 */
#include "tests/allocator/core/allocator_fixture.h"

#include "allocator/core/hold.h"

static ashlar_stats own_stats(void) {
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    return stats_now();
}

static void flush(void (*how)(ashlar_cache *)) {
    ashlar__lock_acquire(&allocator->lock);
    how(ashlar__cache_recent);
    ashlar__lock_release(&allocator->lock);
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

RUN_CASES()
