/*
 * allocator_check.c - ashlar_allocator_check(): checks the invariants of heap, plan memories,
 * caches and guards, and compares the statistics with a walk of all blocks.
 */
#include "allocator/core/allocator_impl.h"

#include "allocator/base/error.h"
#include "allocator/core/forked.h"
#include "allocator/core/hold.h"
#include "allocator/core/report.h"
#include "allocator/heap/away.h"
#include "allocator/core/note.h"
#include "allocator/plan/planner.h"

static ashlar_status miscounted(const char *what, uint64_t counted, uint64_t found) {
    return counted == found
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EFORMAT, "allocator check: %s is counted as %llu, found %llu",
                              what, (unsigned long long)counted, (unsigned long long)found);
}

/* Check that the counters satisfy the equations in the comment on ashlar_stats. */
static ashlar_status check_equations(const ashlar_stats *s) {
    uint64_t live = 0, at_peak = 0;
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        const ashlar_tag_stats *t = &s->tags[tag];
        live += t->live_bytes;
        at_peak += t->at_peak_bytes;
        if (t->peak_bytes < t->live_bytes || t->peak_bytes < t->at_peak_bytes) {
            return miscounted("the peak of a tag", t->peak_bytes, t->live_bytes);
        }
    }
    if (s->live_bytes > s->live_peak_bytes || s->live_bytes > s->block_bytes ||
        s->reserved_bytes > s->reserved_peak_bytes ||
        s->block_bytes + s->cached_bytes + s->planned_bytes + s->shared_bytes + s->spare_bytes >
            s->reserved_bytes) {
        return ashlar__fail(ASHLAR_EFORMAT, "allocator check: a peak is below its value");
    }
    const uint64_t served = s->served_planned + s->served_cached + s->served_same_stream +
                            s->served_idle + s->served_completed + s->served_waited +
                            s->served_mapped + s->served_drained + s->served_reclaimed +
                            s->served_after_sync + s->served_gathered;
    ashlar_status status = miscounted("the bytes at the peak", at_peak, s->live_peak_bytes);
    if (status == ASHLAR_OK) {
        status = miscounted("the sum of the tags", live, s->live_bytes);
    }
    return status == ASHLAR_OK ? miscounted("the number of allocations", s->alloc_count, served)
                               : status;
}

/* What a walk of all blocks counts. */
typedef struct census {
    uint64_t live_bytes, live_blocks, block_bytes, cached_bytes, cached_blocks, free_blocks;
    uint64_t shared_bytes;
    uint64_t tags[ASHLAR_TAG_COUNT];
} census;

static void count_blocks(const ashlar_allocator *a, census *found) {
    for (const ashlar_block *block = ashlar__heap_first(&a->heap); block != NULL;
         block = ashlar__block_after(block)) {
        const size_t live_bytes = ashlar__block_live_bytes(block);
        if (block->state == ASHLAR_BLOCK_FREE) {
            found->free_blocks++;
        } else if (block->state == ASHLAR_BLOCK_PLAN_MEMORY) {
            continue;
        } else if (live_bytes == 0 && ashlar__block_is_shared(block)) {
            found->shared_bytes += block->bytes;
            found->cached_blocks++;
        } else if (live_bytes == 0) {
            found->cached_bytes += block->bytes;
            found->cached_blocks++;
        } else {
            found->live_bytes += live_bytes;
            found->block_bytes += block->bytes;
            found->live_blocks++;
            found->tags[block->tag] += live_bytes;
        }
    }
}

/* Check the counters against a walk of all blocks. */
static ashlar_status check_census(const ashlar_allocator *a, const ashlar_stats *stats) {
    census found = {0};
    count_blocks(a, &found);
    const uint64_t in_page_map = found.live_blocks + found.cached_blocks +
                                 ashlar__plan_memories_idle_blocks(a->planner.memories);
    uint64_t in_bins = 0;
    for (const ashlar_zone *zone = a->heap.zones; zone != NULL; zone = zone->next) {
        in_bins += ashlar__free_bins_count(&zone->gaps);
    }
    ashlar_status status = ASHLAR_OK;
    for (int tag = 0; tag < ASHLAR_TAG_COUNT && status == ASHLAR_OK; tag++) {
        status = miscounted(ashlar_tag_name((ashlar_tag)tag), stats->tags[tag].live_bytes,
                            found.tags[tag]);
    }
    const struct {
        const char *what;
        uint64_t counted, found;
    } rest[] = {
        {"live bytes", stats->live_bytes, found.live_bytes},
        {"live blocks", stats->live_blocks, found.live_blocks},
        {"block bytes", stats->block_bytes, found.block_bytes},
        {"cached bytes", stats->cached_bytes, found.cached_bytes},
        {"shared bytes", stats->shared_bytes, found.shared_bytes},
        {"free blocks in bins", in_bins, found.free_blocks},
        {"blocks in the page map", ashlar__page_map_count(&a->heap.map), in_page_map},
    };
    for (size_t i = 0; i < sizeof rest / sizeof rest[0] && status == ASHLAR_OK; i++) {
        status = miscounted(rest[i].what, rest[i].counted, rest[i].found);
    }
    return status;
}

/* The number of blocks, in all streams' queues of blocks away (away.h), whose home is this
 * stream. */
static uint64_t count_away_of(const ashlar_allocator *a, const ashlar_stream_state *home) {
    uint64_t count = 0;
    for (const ashlar_stream_state *user = a->heap.awaited; user != NULL;
         user = user->next_awaited) {
        for (const ashlar_block *block = user->oldest_away; block != NULL; block = block->older) {
            count += ashlar__block_home(block) == home;
        }
    }
    return count;
}

static ashlar_status check_streams(const ashlar_allocator *a) {
    ASHLAR_TRY(ashlar__away_check(&a->heap));
    for (const ashlar_stream_state *state = a->stream_states; state != NULL; state = state->next) {
        ASHLAR_FAIL_IF(state->completed > state->recorded || state->last_tick > state->recorded,
                       ASHLAR_EFORMAT, "allocator check: a stream is ahead of its recordings");
        ASHLAR_TRY(miscounted("a stream's blocks that are away", state->away_count,
                              count_away_of(a, state)));
    }
    return ASHLAR_OK;
}

static ashlar_status check_guard(const ashlar_allocator *a) {
    return a->guard_fill != NULL ? ashlar__guard_fill_check_locked(a->guard_fill) : ASHLAR_OK;
}

static ashlar_status check_caches(const ashlar_allocator *a) {
    for (const ashlar_cache *cache = a->caches; cache != NULL; cache = cache->next) {
        ASHLAR_TRY(ashlar__cache_check_locked(cache));
    }
    return ASHLAR_OK;
}

ashlar_status ashlar_allocator_check(ashlar_allocator *a) {
    ashlar_stats stats;
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar__lock_acquire(&a->lock);
    ashlar__caches_claim_locked(a, ashlar__cache_recent);
    ashlar__stats_sum_claimed(a, &stats);
    ashlar_status status = ashlar__heap_check(&a->heap);
    if (status == ASHLAR_OK) {
        status = check_streams(a);
    }
    if (status == ASHLAR_OK) {
        status = ashlar__plan_memories_check_locked(a->planner.memories, &a->heap.map);
    }
    if (status == ASHLAR_OK) {
        status = check_caches(a);
    }
    if (status == ASHLAR_OK) {
        status = check_guard(a);
    }
    if (status == ASHLAR_OK) {
        status = check_census(a, &stats);
    }
    if (status == ASHLAR_OK) {
        status = check_equations(&stats);
    }
    ashlar__caches_release_locked(a, ashlar__cache_recent);
    ashlar__lock_release(&a->lock);
    return status == ASHLAR_OK ? ashlar__guard_take_finding(a) : status;
}
