/*
 * test_allocator_check.c - what ashlar_allocator_check() notices: one number that is not as the
 * others say, in each part that it looks at. test_heap_check.c has the heap's parts.
 */
#include "tests/allocator/core/allocator_fixture.h"

#include "allocator/core/core.h"
#include "allocator/core/cache.h"
#include "allocator/heap/block.h"
#include "allocator/heap/page_map.h"

/* With another value, for so long. */
#define NOTICES(field, value, part)                                             \
    do {                                                                        \
        const __typeof__(field) kept_ = (field);                                \
        (field) = (value);                                                      \
        CHECK_FAILS(ashlar_allocator_check(allocator), ASHLAR_EFORMAT, (part)); \
        (field) = kept_;                                                        \
        CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);                  \
    } while (0)

/* Blocks that are live, cached and, behind the work of another stream, cross-stream. */
static bool set_up_used(void) {
    void *blocks[8];
    bool is_good = set_up_cached("memory=64MiB,mode=adversarial", 4 * MIB);
    for (int i = 0; i < 8 && is_good; i++) {
        is_good = ashlar_alloc(allocator, (size_t)1000 << i, streams[0], &blocks[i]) == ASHLAR_OK &&
                  ashlar_fill(device, blocks[i], 1, 1000, streams[1]) == ASHLAR_OK;
    }
    for (int i = 0; i < 6 && is_good; i++) {
        is_good = (i >= 3 || ashlar_record_stream(allocator, blocks[i], streams[1]) == ASHLAR_OK) &&
                  ashlar_free(allocator, blocks[i]) == ASHLAR_OK;
    }
    return is_good && ashlar_allocator_check(allocator) == ASHLAR_OK;
}

CASE_WITH(a_cache_that_is_miscounted_is_noticed, set_up_used()) {
    ashlar_cache *cache = allocator->caches;
    REQUIRE(cache != NULL && cache->weight[0] > 0);
    NOTICES(cache->weight[0], kept_ - 1, "its blocks are miscounted");
    NOTICES(cache->weight[1], kept_ + 1, "its blocks are miscounted");
    NOTICES(cache->pending_count, kept_ + 1, "its pending blocks are miscounted");
    NOTICES(cache->pending_bytes, kept_ + 512, "its pending blocks are miscounted");
    NOTICES(cache->remote.count, kept_ + 1, "its remote frees are miscounted");
    NOTICES(cache->remote.bytes, kept_ + 512, "its remote frees are miscounted");
    NOTICES(cache->limit[0], cache->weight[0] - 1, "more than its limits");
    ashlar_block *cached = NULL;
    for (size_t i = 0; i < ASHLAR_CACHE_LISTS && cached == NULL; i++) {
        cached = cache->magazines->lists[i];
    }
    REQUIRE(cached != NULL);
    NOTICES(cached->list, (uint16_t)(kept_ + 1), "a block is in the wrong magazine");
    NOTICES(cached->stream_state, NULL, "");
    NOTICES(cached->requested, 1, "");
}

CASE_WITH(a_stream_that_is_miscounted_is_noticed, set_up_used()) {
    for (ashlar_stream_state *s = allocator->stream_states; s != NULL; s = s->next) {
        NOTICES(s->completed, s->recorded + 1, "ahead of its recordings");
        NOTICES(s->last_tick, s->recorded + 1, "ahead of its recordings");
        NOTICES(s->cross_count, kept_ + 1, "cross-stream");
    }
}

/* Blocks that wait for the work of a stream that used them. */
CASE_WITH(a_deferred_block_in_the_wrong_queue_is_noticed, set_up_used()) {
    ashlar_stream_state *user = allocator->heap.awaited;
    REQUIRE(user != NULL && user->oldest_cross != NULL);
    ashlar_block *block = user->oldest_cross;
    NOTICES(user->is_awaited, false, "is in the wrong queue");
    NOTICES(user->newest_cross, NULL, "a queue does not end where it says");
    NOTICES(block->uses->stream_state, NULL, "is in the wrong queue");
    NOTICES(block->uses, NULL, "is in the wrong queue");
    NOTICES(block->requested, 1, "");
    NOTICES(allocator->heap.cross_bytes, kept_ + 512, "cross-stream");
}

/* A block in the page map where none begins, and a stray one among those that are free. */
CASE_WITH(an_index_with_a_stray_block_is_noticed, set_up_used()) {
    ashlar_heap *heap = &allocator->heap;
    ashlar_block stray = {.offset = 40 * MIB, .bytes = 512};
    ashlar__free_bins_insert(&heap->zones->gaps, &stray);
    CHECK_FAILS(ashlar_allocator_check(allocator), ASHLAR_EFORMAT, "free blocks in bins");
    ashlar__free_bins_remove(&heap->zones->gaps, &stray);
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    const size_t inside = heap->windows->first->offset + 512;
    REQUIRE(ashlar__page_map_reserve_page(&heap->map, inside) == ASHLAR_OK);
    REQUIRE(ashlar__page_map_get(&heap->map, inside) == NULL);
    ashlar__page_map_set(&heap->map, inside, heap->windows->first);
    CHECK_FAILS(ashlar_allocator_check(allocator), ASHLAR_EFORMAT, "blocks in the page map");
    ashlar__page_map_set(&heap->map, inside, NULL);
}

CASE_WITH(statistics_that_do_not_add_up_are_noticed, set_up_used()) {
    ashlar_stats *s = &allocator->stats;
    NOTICES(s->tags[ASHLAR_TAG_USER].live_bytes, kept_ + 1, "user");
    NOTICES(s->tags[ASHLAR_TAG_SAVED].live_bytes, kept_ + 1, "saved");
    NOTICES(s->live_bytes, kept_ + 1, "live bytes");
    NOTICES(s->live_bytes, kept_ - 1, "live bytes");
    NOTICES(s->free_count, kept_ + 1, "live blocks");
    NOTICES(s->alloc_count, kept_ + 1, "live blocks");
    NOTICES(s->tags[ASHLAR_TAG_USER].peak_bytes, kept_ - 1, "peak");
    NOTICES(s->live_peak_bytes, kept_ + 1, "the bytes at the peak");
    NOTICES(s->reserved_peak_bytes, 0, "a peak is below its value");
    NOTICES(s->served_mapped, kept_ + 1, "the number of allocations");
    NOTICES(s->served_gathered, kept_ + 1, "the number of allocations");
}

RUN_CASES()
