/* miss.c - serving a request, or a free, from the zones that the thread's cache holds. */
#include "allocator/core/miss.h"

#include "allocator/base/check_level.h"
#include "allocator/core/cycle.h"
#include "allocator/core/hand_out.h"
#include "allocator/core/note.h"
#include "allocator/core/slow_path.h"
#include "allocator/heap/away.h"

ashlar_block *ashlar__gap_of_own(const ashlar_zone *zone, ashlar_cache *own, size_t bytes) {
    ashlar_block *gap = ashlar__free_bins_best_fit(&zone->gaps, bytes);
    const bool is_at_end = gap == NULL || gap->next == NULL;
    if (is_at_end && own != NULL && own->weight[bytes > ASHLAR_SC_MAX_BYTES] != 0) {
        ashlar__cache_flush_stream(own, zone->owner, bytes);
        gap = ashlar__free_bins_best_fit(&zone->gaps, bytes);
    }
    return gap;
}

void ashlar__miss_put(ashlar_allocator *a, ashlar_cache *own, ashlar_block *block) {
    ASHLAR_CHECK2(ashlar__holder_of(block->stream_state) == own && block->requested == 0);
    if (block->bytes <= ASHLAR_SC_MAX_BYTES) {
        own->was_full = true;
    } else if (own->weight[1] != 0) {
        ashlar__cache_flush_large(own);
    }
    ashlar__heap_put(&a->heap, block);
}

void ashlar__miss_take_returned(ashlar_cache *own, ashlar_magazines *m) {
    ashlar_allocator *a = own->allocator;
    for (ashlar_block *next, *block = ashlar__returned_take(m->stream_state); block != NULL;
         block = next) {
        next = block->older;
        block->list = (uint16_t)ashlar__cache_list(block->bytes);
        if (block->list == ASHLAR_CACHE_LARGE_LIST || !ashlar__cache_push(own, m, block)) {
            ashlar__release_own_block(&a->heap, block);
        }
    }
}

/* Count a use of a stream that the cache holds. */
static inline void count_use(const ashlar_allocator *a, ashlar_cache *own,
                             ashlar_stream_state *state) {
    const uint64_t clock = ashlar__heap_clock(&a->heap);
    own->use_clock = (own->use_clock > clock ? own->use_clock : clock) + 1;
    state->last_used = own->use_clock;
}

/* A block of what other threads have freed of the stream; NULL: none serves. */
static ASHLAR_NOINLINE ashlar_block *take_returned(ashlar_cache *own, size_t bytes) {
    ashlar__miss_take_returned(own, own->recent);
    ashlar_block *cached = ashlar__cache_pop(own, own->recent, bytes);
    own->misses += cached != NULL;
    return cached;
}

/*
 * Publish the thread's counters, which is due, if nobody has the lock just now. Inside, the thread
 * must not wait for it: whoever has it may wait for the thread to leave.
 */
static ASHLAR_NOINLINE bool try_publish(ashlar_allocator *a, ashlar_cache *own) {
    if (!ashlar__lock_try_acquire(&a->lock)) {
        return false;
    }
    ashlar__publish_locked(a, own);
    ashlar__lock_release(&a->lock);
    return true;
}

static inline ashlar_block *take_held(ashlar_allocator *a, ashlar_cache *own, size_t bytes) {
    ashlar_stream_state *state = own->recent->stream_state;
    if (state == NULL || !ashlar__miss_may_put(a, own, state) ||
        bytes - 1 >= a->heap.range.memory_bytes ||
        (ashlar__counters_are_due(&own->counters, a->constants.unpublished_bytes) &&
         !try_publish(a, own))) {
        return NULL;
    }
    ASHLAR_CHECK2(state->pool == NULL && !ashlar__stream_state_has_ended(state));
    if (!ASHLAR_LIKELY(atomic_load_explicit(&state->returned, memory_order_relaxed) == NULL)) {
        ashlar_block *cached = take_returned(own, bytes);
        if (cached != NULL) {
            return cached;
        }
    }
    const bool is_large = bytes > ASHLAR_SC_MAX_BYTES;
    const size_t block_bytes = is_large
                                   ? (bytes + ASHLAR_BLOCK_ALIGN - 1) & ~(ASHLAR_BLOCK_ALIGN - 1)
                                   : ashlar__small_block_bytes(bytes);
    count_use(a, own, state);
    ashlar__cycle_count_miss(own);
    ashlar_block *gap = ashlar__gap_of_own(ashlar__zone_of(state, block_bytes), own, block_bytes);
    if (gap == NULL || (gap->holes > 0 && !ashlar__heap_is_backed(&a->heap, gap, block_bytes)) ||
        !ashlar__heap_can_take(&a->heap, gap) ||
        ashlar__heap_take(&a->heap, gap, block_bytes) != ASHLAR_OK) {
        own->misses--;
        return NULL;
    }
    gap->stream_state = state;
    gap->list = (uint16_t)ashlar__cache_list(block_bytes);
    own->last_large = is_large ? gap : own->last_large;
    return gap;
}

ASHLAR_NOINLINE ashlar_status ashlar__alloc_miss(ashlar_allocator *a, size_t bytes, ashlar_tag tag,
                                                 ashlar_stream stream, void **out) {
    ashlar_cache *own = ashlar__cache_recent;
    ashlar_block *block = take_held(a, own, bytes);
    if (ASHLAR_LIKELY(block != NULL)) {
        ashlar__hand_out(a, own, block, bytes, tag, &own->counters.miss_count, out);
        return ASHLAR_OK;
    }
    ashlar__cache_leave(own);
    return ashlar__alloc_unplanned(a, bytes, tag, stream, out);
}
