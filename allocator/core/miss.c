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

static inline ashlar_status free_to_zone(ashlar_allocator *a, ashlar_cache *own,
                                         ashlar_block *block) {
    ashlar__count_back(own, block);
    ashlar__miss_put(a, own, block);
    ashlar__cache_leave(own);
    return ASHLAR_OK;
}

/* Whether an event should follow the free of a block. */
static inline bool wants_event(const ashlar_allocator *a, const ashlar_block *block) {
    return a->heap.is_near_limit && block->bytes > ASHLAR_SC_MAX_BYTES;
}

/* Free a block that cannot go to its zone now, or whose free is the first one after a peak. */
static ASHLAR_NOINLINE ashlar_status free_pending(ashlar_allocator *a, ashlar_cache *own, void *ptr,
                                                  ashlar_block *block) {
    if (ashlar__miss_may_put(a, own, block->stream_state) && !wants_event(a, block)) {
        return free_to_zone(a, own, block);
    }
    if (!wants_event(a, block) && ashlar__cache_add_pending(own, block)) {
        ashlar__take_back(own, block);
        return ASHLAR_OK;
    }
    ashlar__cache_leave(own);
    return ashlar__free_slow(a, ptr);
}

ASHLAR_NOINLINE ashlar_status ashlar__free_miss(ashlar_allocator *a, void *ptr,
                                                ashlar_block *block) {
    ashlar_cache *own = ashlar__cache_recent;
    return ASHLAR_LIKELY(ashlar__miss_may_put(a, own, block->stream_state) &&
                         !own->counters.is_at_peak && !wants_event(a, block))
               ? free_to_zone(a, own, block)
               : free_pending(a, own, ptr, block);
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

/* Take one of the stream's blocks that other threads have freed; NULL: none fits. */
static ASHLAR_NOINLINE ashlar_block *take_returned(ashlar_cache *own, size_t bytes) {
    ashlar__miss_take_returned(own, own->recent);
    ashlar_block *cached = ashlar__cache_pop(own, own->recent, bytes);
    own->misses += cached != NULL;
    return cached;
}

/*
 * Publish the thread's counters, which are due, if nobody holds the lock now. The thread is inside
 * its cache, and so must not wait for the lock: its holder may wait for the thread to leave.
 */
static ASHLAR_NOINLINE bool try_publish(ashlar_allocator *a, ashlar_cache *own) {
    if (!ashlar__lock_try_acquire(&a->lock)) {
        return false;
    }
    ashlar__publish_locked(a, own);
    ashlar__lock_release(&a->lock);
    return true;
}

/*
 * Take a gap at a window's end only after giving the cached blocks up, since one of those may fit.
 */
static ASHLAR_NOINLINE ashlar_block *take_last(ashlar_allocator *a, ashlar_cache *own,
                                               ashlar_zone *zone, size_t block_bytes) {
    if (own->weight[block_bytes > ASHLAR_SC_MAX_BYTES] == 0) {
        return NULL;
    }
    (void)ashlar__gap_of_own(zone, own, block_bytes);
    return ashlar__heap_take_fit(&a->heap, zone, block_bytes, true);
}

static inline ashlar_block *take_held(ashlar_allocator *a, ashlar_cache *own, size_t bytes) {
    ashlar_stream_state *state = own->recent->stream_state;
    if (state == NULL || !ashlar__miss_may_put(a, own, state) ||
        bytes - 1 >= a->heap.range.memory_bytes ||
        (ashlar__counters_are_due(&own->counters) && !try_publish(a, own))) {
        return NULL;
    }
    ASHLAR_CHECK2(state->pool == NULL && !ashlar__stream_state_has_ended(state));
    if (!ASHLAR_LIKELY(atomic_load_explicit(&state->returned, memory_order_relaxed) == NULL)) {
        ashlar_block *cached = take_returned(own, bytes);
        if (cached != NULL) {
            return cached;
        }
    }
    count_use(a, own, state);
    if (!ASHLAR_LIKELY(!ashlar__cycle_is_tight(&a->heap, own))) {
        ashlar__cycle_restart(own);
    }
    ashlar__cycle_count_miss(own);
    const bool is_large = bytes > ASHLAR_SC_MAX_BYTES;
    size_t block_bytes;
    ashlar_zone *zone;
    if (is_large) {
        block_bytes = (bytes + ASHLAR_BLOCK_ALIGN - 1) & ~(ASHLAR_BLOCK_ALIGN - 1);
        zone = &state->zones[ASHLAR_ZONE_LARGE];
    } else {
        block_bytes = ashlar__small_block_bytes(bytes);
        zone = &state->zones[ASHLAR_ZONE_SMALL];
    }
    ASHLAR_CHECK2(zone == ashlar__zone_of(state, block_bytes));
    ashlar_block *block =
        ashlar__heap_take_fit(&a->heap, zone, block_bytes, own->weight[is_large] == 0);
    if (!ASHLAR_LIKELY(block != NULL)) {
        block = take_last(a, own, zone, block_bytes);
        if (block == NULL) {
            own->misses--;
            return NULL;
        }
    }
    block->stream_state = state;
    if (is_large) {
        block->list = ASHLAR_CACHE_LARGE_LIST;
        own->last_large = wants_event(a, block) ? NULL : block;
    } else {
        block->list = ashlar__sc_of_bytes(bytes).idx;
    }
    return block;
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
