/*
 * hit.c - allocating from and freeing into the calling thread's own cache: the path that takes no
 * lock, makes no call out of the library and writes nothing that another thread writes; and, where
 * the cache cannot serve, from and into the zones that it owns, still without the lock.
 *
 * tests/shell/shell_hit_path.sh checks the hit in the machine code. Code that takes the lock lies
 * behind ashlar__alloc_slow(), ashlar__alloc_unplanned(), ashlar__free_slow() and
 * ashlar__free_from().
 */
#include "allocator/core/core.h"

/* ---- the last act of a call ---- */

/*
 * Hand out a block without the lock, and leave the cache.
 *
 * count   the counter to raise; NULL for a block of a plan, see ashlar__replay_served()
 *
 * The public functions call other functions only as their last act. So they need not save registers
 * on the stack, which would make a hit a fifth longer.
 */
static inline void hand_out(const ashlar_allocator *a, ashlar_cache *cache, ashlar_block *block,
                            size_t bytes, ashlar_tag tag, uint64_t *count, void **out) {
    ASHLAR_CHECK2(bytes > 0 && bytes <= block->bytes && block->state == ASHLAR_BLOCK_USED);
    ASHLAR_CHECK2(block->taken == 0 && block->offset < a->constants.range_bytes);
    /* Atomic because other threads read `taken` of slot blocks. */
    atomic_store_explicit(&block->taken, bytes, memory_order_relaxed);
    block->tag = (unsigned char)tag;
    if (count != NULL) {
        ++*count;
    }
    ashlar__count_alloc(&cache->counters, bytes, (unsigned)tag);
    *out = ashlar__ptr_out(a->constants.base + block->offset);
    ashlar__cache_leave(cache);
}

/* Count the free of a block, and mark it as freed. */
static inline void count_back(ashlar_cache *cache, ashlar_block *block) {
    ASHLAR_CHECK2(block->requested <= block->bytes && block->marks == 0);
    cache->counters.free_count++;
    ashlar__count_free(&cache->counters, block->requested, block->tag);
    block->requested = 0;
}

static inline void take_back(ashlar_cache *cache, ashlar_block *block) {
    count_back(cache, block);
    ashlar__cache_leave(cache);
}

/* ---- the zones that the cache owns ---- */

static inline ashlar_status free_to_zone(ashlar_allocator *a, ashlar_cache *own,
                                         ashlar_block *block) {
    count_back(own, block);
    ashlar__miss_put(a, own, block);
    ashlar__cache_leave(own);
    return ASHLAR_OK;
}

/* Whether to record an event behind the free of a block, since another stream may soon want it. */
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
        take_back(own, block);
        return ASHLAR_OK;
    }
    ashlar__cache_leave(own);
    return ashlar__free_slow(a, ptr);
}

/* Free a block that does not fit into its magazines. The caller has entered the cache; this
 * function leaves it. */
static ASHLAR_NOINLINE ashlar_status free_miss(ashlar_allocator *a, void *ptr,
                                               ashlar_block *block) {
    ashlar_cache *own = ashlar__cache_recent;
    return ASHLAR_LIKELY(ashlar__miss_may_put(a, own, block->stream_state) &&
                         !own->counters.is_at_peak && !wants_event(a, block))
               ? free_to_zone(a, own, block)
               : free_pending(a, own, ptr, block);
}

/* Note that the stream is used now: others borrow first from the stream used longest ago. */
static inline void count_use(const ashlar_allocator *a, ashlar_cache *own,
                             ashlar_stream_state *state) {
    const uint64_t clock = ashlar__heap_clock(&a->heap);
    own->use_clock = (own->use_clock > clock ? own->use_clock : clock) + 1;
    state->last_used = own->use_clock;
}

/* Receive the recent stream's remote frees, and take one of them; NULL: none fits. */
static ASHLAR_NOINLINE ashlar_block *pop_remote_free(ashlar_cache *own, size_t bytes) {
    ashlar__remote_receive(own, own->recent);
    ashlar_block *cached = ashlar__cache_pop(own, own->recent, bytes);
    own->misses += cached != NULL;
    return cached;
}

/*
 * Publish the thread's counters, if nobody has the lock now. The thread has entered its cache, and
 * so must not wait for the lock: whoever has it may be waiting for the thread to leave the cache.
 */
static ASHLAR_NOINLINE bool try_publish(ashlar_allocator *a, ashlar_cache *own) {
    if (!ashlar__lock_try_acquire(&a->lock)) {
        return false;
    }
    ashlar__publish_locked(a, own);
    ashlar__lock_release(&a->lock);
    return true;
}

/* Take a gap at a window's end, but put the cached blocks into the zone first: a gap that these
 * make may fit. */
static ASHLAR_NOINLINE ashlar_block *take_last(ashlar_allocator *a, ashlar_cache *own,
                                               ashlar_zone *zone, size_t block_bytes) {
    if (own->weight[block_bytes > ASHLAR_SC_MAX_BYTES] == 0) {
        return NULL;
    }
    (void)ashlar__gap_of_own(zone, own, block_bytes);
    return ashlar__heap_take_fit(&a->heap, zone, block_bytes, true);
}

static inline ashlar_block *take_from_zone(ashlar_allocator *a, ashlar_cache *own, size_t bytes) {
    ashlar_stream_state *state = own->recent->stream_state;
    if (state == NULL || !ashlar__miss_may_put(a, own, state) ||
        bytes - 1 >= a->heap.range.memory_bytes ||
        (ashlar__counters_are_due(&own->counters) && !try_publish(a, own))) {
        return NULL;
    }
    ASHLAR_CHECK2(state->pool == NULL && !ashlar__stream_state_has_ended(state));
    if (!ASHLAR_LIKELY(atomic_load_explicit(&state->remote_frees, memory_order_relaxed) == NULL)) {
        ashlar_block *cached = pop_remote_free(own, bytes);
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

/* Allocate from a zone that the cache owns, else with the lock. The caller has entered the cache,
 * which this function leaves. */
static ASHLAR_NOINLINE ashlar_status alloc_miss(ashlar_allocator *a, size_t bytes, ashlar_tag tag,
                                                ashlar_stream stream, void **out) {
    ashlar_cache *own = ashlar__cache_recent;
    ashlar_block *block = take_from_zone(a, own, bytes);
    if (ASHLAR_LIKELY(block != NULL)) {
        hand_out(a, own, block, bytes, tag, &own->counters.miss_count, out);
        return ASHLAR_OK;
    }
    ashlar__cache_leave(own);
    return ashlar__alloc_unplanned(a, bytes, tag, stream, out);
}

/* ---- the cache ---- */

/* Serve a request for another stream than last time, or one that the step's plan did not expect.
 * The caller has entered the cache, which this function leaves. */
static ASHLAR_NOINLINE ashlar_status alloc_unexpected(ashlar_allocator *a, size_t bytes,
                                                      ashlar_tag tag, ashlar_stream stream,
                                                      void **out) {
    ashlar_cache *cache = ashlar__cache_recent;
    const ashlar_stream named = ashlar__stream_named(stream);
    ashlar_block *block =
        ashlar__cache_is_replaying(cache)
            ? ashlar__replay_serve_otherwise(cache->active_replay, bytes, (unsigned)tag, named)
            : NULL;
    if (block != NULL) {
        hand_out(a, cache, block, bytes, tag, NULL, out);
        return ASHLAR_OK;
    }
    ashlar_magazines *m = ashlar__cache_find(cache, stream);
    block = m != NULL && !ashlar__cycle_is_tight(&a->heap, cache)
                ? ashlar__cache_pop(cache, m, bytes)
                : NULL;
    if (block != NULL) {
        hand_out(a, cache, block, bytes, tag, &cache->counters.hit_count, out);
        return ASHLAR_OK;
    }
    if (m != NULL) {
        return alloc_miss(a, bytes, tag, stream, out);
    }
    ashlar__cache_leave(cache);
    return ashlar__alloc_unplanned(a, bytes, tag, stream, out);
}

/* Serve a request for another stream than last time, or in a replayed step. The caller has entered
 * the cache, which this function leaves. */
static inline ashlar_status alloc_otherwise(ashlar_allocator *a, ashlar_cache *cache, size_t bytes,
                                            ashlar_tag tag, ashlar_stream stream, void **out) {
    ashlar_block *block = ashlar__replay_serve(cache->active_replay, bytes, (unsigned)tag, stream);
    if (!ASHLAR_LIKELY(block != NULL)) {
        return alloc_unexpected(a, bytes, tag, stream, out);
    }
    hand_out(a, cache, block, bytes, tag, NULL, out);
    return ASHLAR_OK;
}

/* Serve a request to an allocator other than the one that the thread used last. */
static ASHLAR_NOINLINE ashlar_status alloc_of_other(ashlar_allocator *a, size_t bytes,
                                                    ashlar_tag tag, ashlar_stream stream,
                                                    void **out) {
    if ((unsigned)tag < (unsigned)ASHLAR_TAG_COUNT && ashlar__cache_switch(a->constants.id) &&
        ashlar__cache_enter(ashlar__cache_recent)) {
        return alloc_otherwise(a, ashlar__cache_recent, bytes, tag, stream, out);
    }
    return ashlar__alloc_slow(a, bytes, tag, stream, out);
}

static inline ashlar_status allocate(ashlar_allocator *a, size_t bytes, ashlar_tag tag,
                                     ashlar_stream stream, void **out) {
    ashlar_cache *cache = ashlar__cache_recent;
    if (!ASHLAR_LIKELY(cache->allocator_id == a->constants.id)) {
        return alloc_of_other(a, bytes, tag, stream, out);
    }
    if (ASHLAR_LIKELY((unsigned)tag < (unsigned)ASHLAR_TAG_COUNT && ashlar__cache_enter(cache))) {
        if (!ASHLAR_LIKELY(cache->stream == stream)) {
            return alloc_otherwise(a, cache, bytes, tag, stream, out);
        }
        ashlar_block *block = ashlar__cache_pop(cache, cache->recent, bytes);
        if (ASHLAR_LIKELY(block != NULL)) {
            hand_out(a, cache, block, bytes, tag, &cache->counters.hit_count, out);
            return ASHLAR_OK;
        }
        return alloc_miss(a, bytes, tag, stream, out);
    }
    return ashlar__alloc_slow(a, bytes, tag, stream, out);
}

ashlar_status ashlar_alloc(ashlar_allocator *a, size_t bytes, ashlar_stream stream, void **out) {
    return allocate(a, bytes, ASHLAR_TAG_USER, stream, out);
}

ashlar_status ashlar_alloc_tagged(ashlar_allocator *a, size_t bytes, ashlar_tag tag,
                                  ashlar_stream stream, void **out) {
    return allocate(a, bytes, tag, stream, out);
}

static inline ashlar_status free_slot_block(ashlar_cache *cache, ashlar_block *block) {
    ASHLAR_CHECK2(ashlar__block_is_of_slot(block) && block->requested <= block->bytes);
    cache->counters.free_count++;
    ashlar__count_free(&cache->counters, block->requested, block->tag);
    ashlar__slot_block_vacate(block);
    ashlar__cache_leave(cache);
    return ASHLAR_OK;
}

/* Free a slot block as the first free after a peak, which records what was live at the peak. Out of
 * line, since such frees are rare. */
static ASHLAR_NOINLINE ashlar_status free_slot_block_at_peak(ashlar_cache *cache,
                                                             ashlar_block *block) {
    return free_slot_block(cache, block);
}

/* Free a block with marks: one that several streams use, or that belongs to a plan. */
static inline ashlar_status free_marked(ashlar_allocator *a, void *ptr, ashlar_cache *cache,
                                        ashlar_block *block) {
    if (!ASHLAR_LIKELY(block->marks == ASHLAR_BLOCK_OF_SLOT && ashlar__cache_enter(cache))) {
        return ashlar__free_slow(a, ptr);
    }
    return ASHLAR_LIKELY(!cache->counters.is_at_peak) ? free_slot_block(cache, block)
                                                      : free_slot_block_at_peak(cache, block);
}

/*
 * Free a block in one of three cases: its stream is not that of the recent magazines, the free is
 * remote, or it is the first one after a peak. The caller has entered the cache; this leaves it.
 */
static ASHLAR_NOINLINE ashlar_status free_otherwise(ashlar_allocator *a, void *ptr,
                                                    ashlar_block *block) {
    ashlar_cache *cache = ashlar__cache_recent;
    ashlar_magazines *m = ashlar__cache_find_state(cache, block->stream_state);
    if (m != NULL && !ashlar__cache_push(cache, m, block)) {
        return free_miss(a, ptr, block);
    }
    if (m != NULL) {
        take_back(cache, block);
        return ASHLAR_OK;
    }
    if (ashlar__is_remote(cache, block) && !ashlar__counters_are_due(&cache->counters)) {
        count_back(cache, block);
        ashlar__remote_free(cache, block);
        ashlar__cache_leave(cache);
        return ASHLAR_OK;
    }
    ashlar__cache_leave(cache);
    return ashlar__free_slow(a, ptr);
}

/*
 * Free a block of an allocator other than the one that the thread used last, or refuse a pointer
 * that is not a block. Guard modes have no caches, so all their frees come here; only they use
 * `caller`.
 */
static ASHLAR_NOINLINE ashlar_status free_of_other(ashlar_allocator *a, void *ptr,
                                                   const void *caller) {
    const size_t offset = (size_t)(ashlar__ptr_in(ptr) - a->constants.base);
    if (offset < a->constants.range_bytes && ashlar__cache_switch(a->constants.id)) {
        ashlar_block *block = ashlar__page_map_get(&a->constants.map, offset);
        if (block != NULL && block->requested != 0 && block->marks == 0 &&
            ashlar__cache_enter(ashlar__cache_recent)) {
            return free_otherwise(a, ptr, block);
        }
    }
    return ashlar__free_from(a, ptr, caller);
}

ashlar_status ashlar_free(ashlar_allocator *a, void *ptr) {
    ashlar_cache *cache = ashlar__cache_recent;
    /* An address below the base wraps around to a huge offset. */
    const size_t offset = (size_t)(ashlar__ptr_in(ptr) - a->constants.base);
    if (!ASHLAR_LIKELY(cache->allocator_id == a->constants.id &&
                       offset < a->constants.range_bytes)) {
        return free_of_other(a, ptr, ASHLAR_RETURN_ADDRESS());
    }
    ashlar_block *block = ashlar__page_map_get(&a->constants.map, offset);
    if (!ASHLAR_LIKELY(block != NULL && block->requested != 0)) {
        return ashlar__free_slow(a, ptr);
    }
    if (!ASHLAR_LIKELY(block->marks == 0)) {
        return free_marked(a, ptr, cache, block);
    }
    if (!ASHLAR_LIKELY(ashlar__cache_enter(cache))) {
        return ashlar__free_slow(a, ptr);
    }
    ashlar_magazines *m = cache->recent;
    if (!ASHLAR_LIKELY(m->stream_state == block->stream_state && !cache->counters.is_at_peak)) {
        return free_otherwise(a, ptr, block);
    }
    if (!ASHLAR_LIKELY(ashlar__cache_push(cache, m, block))) {
        return free_miss(a, ptr, block);
    }
    take_back(cache, block);
    return ASHLAR_OK;
}
