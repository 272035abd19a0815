/* cache_flush.c - giving a cache's blocks back to the heap, also when the thread's live bytes show
 * that a step begins; and checking a cache's invariants. */
#include "allocator/core/core.h"

#include "allocator/base/error.h"
#include "allocator/base/threads.h"

enum { LISTS_AT_ONCE = 4 }; /* as many lists as find_filled() tests with one branch */
_Static_assert(ASHLAR_SC_COUNT % LISTS_AT_ONCE == 0, "whole groups");

bool ashlar__cache_add_pending(ashlar_cache *cache, ashlar_block *block) {
    ASHLAR_CHECK2(cache->thread == ashlar__thread_number());
    ASHLAR_CHECK2(cache->pending_count <= ASHLAR_CACHE_PENDING_MAX && block->marks == 0);
    ASHLAR_CHECK2((cache->pending == NULL) == (cache->pending_count == 0));
    const size_t bytes = cache->pending_bytes + block->bytes;
    cache->was_full |= block->bytes <= ASHLAR_SC_MAX_BYTES; /* as ashlar__miss_put() does */
    if (cache->pending_count == ASHLAR_CACHE_PENDING_MAX || bytes > cache->limit[1] ||
        (block->bytes > ASHLAR_SC_MAX_BYTES && cache->weight[1] != 0) ||
        /* Requests have waited for large blocks: an event should follow such a free at once. */
        (block->bytes > ASHLAR_SC_MAX_BYTES && ashlar__heap_has_waited(&cache->allocator->heap))) {
        return false;
    }
    block->older = cache->pending;
    cache->pending = block;
    cache->pending_count++;
    cache->pending_bytes = bytes;
    return true;
}

void ashlar__cache_give_back_locked(ashlar_allocator *a, ashlar_block *block) {
    ASHLAR_OWNS(&a->lock);
    ashlar_stream_state *state = block->stream_state;
    if (!a->are_caches_taken_over && ashlar__owner_cache(state) != NULL &&
        ashlar__owner_cache(state) != ashlar__cache_recent) {
        ashlar__remote_append(state, block, block);
    } else {
        ashlar__release_block_locked(&a->heap, block, state);
    }
}

/* Give a cached block to the heap, which stamps it with its stream's present tick: an event that is
 * recorded from now on comes behind the block's last use. */
static inline void give_up(ashlar_cache *cache, ashlar_block *block) {
    ashlar_allocator *a = cache->allocator;
    ASHLAR_CHECK2(block->requested == 0 && block->stream_state != NULL);
    if (ASHLAR_LIKELY(ashlar__miss_may_put(a, cache, block->stream_state))) {
        ashlar__heap_put(&a->heap, block);
    } else {
        ashlar__cache_give_back_locked(a, block);
    }
}

void ashlar__cache_flush_pending(ashlar_cache *cache) {
    ASHLAR_MAY_TOUCH(cache);
    if (atomic_load_explicit(&cache->is_busy, memory_order_relaxed) != 0) {
        return; /* entered without the lock, which these blocks need */
    }
    ashlar_block *list = cache->pending;
    cache->pending = NULL;
    cache->pending_count = 0;
    cache->pending_bytes = 0;
    for (ashlar_block *next; list != NULL; list = next) {
        next = list->older;
        give_up(cache, list);
    }
}

static void empty_list(ashlar_cache *cache, ashlar_magazines *m, size_t idx) {
    ASHLAR_MAY_TOUCH(cache);
    ashlar_block *block = m->lists[idx];
    size_t weight = 0;
    m->lists[idx] = NULL;
    for (ashlar_block *next; block != NULL; block = next) {
        ASHLAR_CHECK2(block->list == idx);
        next = block->older;
        weight += ashlar__cache_weight(block->bytes);
        give_up(cache, block);
    }
    ASHLAR_CHECK2(weight <= cache->weight[idx == ASHLAR_CACHE_LARGE_LIST]);
    cache->weight[idx == ASHLAR_CACHE_LARGE_LIST] -= weight;
}

/* Whether the stream's blocks may go to its zone: the cache owns it, or the thread has the lock. */
static bool may_flush(const ashlar_cache *cache, const ashlar_stream_state *state) {
    return ashlar__owner_cache(state) == cache ||
           atomic_load_explicit(&cache->is_busy, memory_order_relaxed) == 0;
}

/*
 * Find the lists for small blocks that are not empty. They are few, and a processor predicts their
 * places badly, so the search takes one branch per group of lists instead of one per list.
 */
static size_t find_filled(const ashlar_magazines *m, uint16_t filled[static ASHLAR_SC_COUNT]) {
    size_t count = 0;
    for (unsigned first = 0; first < ASHLAR_SC_COUNT; first += LISTS_AT_ONCE) {
        uintptr_t any = 0;
        for (unsigned i = 0; i < LISTS_AT_ONCE; i++) {
            any |= (uintptr_t)m->lists[first + i];
        }
        for (unsigned i = 0; any != 0 && i < LISTS_AT_ONCE; i++) {
            filled[count] = (uint16_t)(first + i);
            count += m->lists[first + i] != NULL;
        }
    }
    return count;
}

static void empty_small_lists(ashlar_cache *cache, ashlar_magazines *m) {
    uint16_t filled[ASHLAR_SC_COUNT];
    const size_t count = find_filled(m, filled);
    for (size_t i = 0; i < count; i++) {
        empty_list(cache, m, filled[i]);
    }
}

void ashlar__cache_flush_magazines(ashlar_cache *cache, ashlar_magazines *m) {
    empty_small_lists(cache, m);
    empty_list(cache, m, ASHLAR_CACHE_LARGE_LIST);
}

void ashlar__cache_flush(ashlar_cache *cache) {
    ashlar__cache_flush_pending(cache);
    for (ashlar_magazines *m = cache->magazines; m != NULL && !ashlar__cache_is_empty(cache);
         m = m->next) {
        if (may_flush(cache, m->stream_state)) {
            ashlar__cache_flush_magazines(cache, m);
        }
    }
    ashlar__remote_send(cache);
}

void ashlar__cache_flush_stream(ashlar_cache *cache, const ashlar_stream_state *state,
                                size_t bytes) {
    ashlar__cache_flush_pending(cache);
    ashlar_magazines *m = ashlar__magazines_of(cache, state);
    if (m == NULL) {
        return;
    }
    ASHLAR_CHECK2(may_flush(cache, state));
    if (bytes > ASHLAR_SC_MAX_BYTES) {
        empty_list(cache, m, ASHLAR_CACHE_LARGE_LIST);
    } else {
        empty_small_lists(cache, m);
    }
}

void ashlar__cache_flush_large(ashlar_cache *cache) {
    for (ashlar_magazines *m = cache->magazines; m != NULL && cache->weight[1] > 0; m = m->next) {
        if (may_flush(cache, m->stream_state)) {
            empty_list(cache, m, ASHLAR_CACHE_LARGE_LIST);
        }
    }
}

size_t ashlar__cache_bytes(const ashlar_cache *cache) {
    ASHLAR_MAY_TOUCH(cache);
    size_t bytes = cache->pending_bytes + cache->remote.bytes;
    if (ashlar__cache_is_empty(cache)) {
        return bytes;
    }
    for (const ashlar_magazines *m = cache->magazines; m != NULL; m = m->next) {
        for (size_t i = 0; i < ASHLAR_CACHE_LISTS; i++) {
            for (const ashlar_block *block = m->lists[i]; block != NULL; block = block->older) {
                bytes += block->bytes;
            }
        }
    }
    return bytes;
}

void ashlar__caches_flush_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    ashlar__caches_take_over_locked(a);
    for (ashlar_cache *cache = a->caches; cache != NULL; cache = cache->next) {
        ashlar__cache_flush(cache);
    }
    for (ashlar_stream_state *state = a->stream_states; state != NULL; state = state->next) {
        ashlar__remote_put_locked(a, state);
    }
}

/* ---- a program's steps ---- */

/*
 * Live bytes are at a low if they lie in the lowest eighth of this cycle's range. The range goes
 * from the cycle's fewest to its most live bytes, and must be larger than an eighth of the most.
 */
enum { LOW_DIVISOR = 8 };

/* The thread's live bytes; 0 if it freed more than it allocated. */
static uint64_t live_bytes(const ashlar_cache *own) {
    const int64_t live = own->counters.published + own->counters.all.live;
    return live < 0 ? 0 : (uint64_t)live;
}

static void begin_cycle(ashlar_cache *own) {
    own->low = own->high = own->quiet = live_bytes(own);
    own->hits_before = own->counters.hit_count;
    own->misses = 0;
}

static bool is_at_low(ashlar_cache *own) {
    const uint64_t live = live_bytes(own);
    own->low = live < own->low ? live : own->low;
    ASHLAR_CHECK2(own->low <= live && live <= own->high);
    const uint64_t range = own->high - own->low;
    const bool is_wide = range > own->high / LOW_DIVISOR;
    own->quiet = own->low + (is_wide ? range / LOW_DIVISOR : 0);
    return live < own->quiet;
}

/*
 * Whether the cycle that ends had as many requests as the one before, and the same most live bytes.
 * Only misses look at live bytes, so a cycle with more hits may seem to have had fewer, by at most
 * the bytes of a full cache.
 */
static bool is_like_the_last(ashlar_cache *own) {
    ASHLAR_CHECK2(own->counters.hit_count >= own->hits_before);
    const uint64_t hits = own->counters.hit_count - own->hits_before;
    const uint64_t requests = hits + own->misses - 1; /* the last miss belongs to the next cycle */
    const bool is_higher = own->high > own->last_high;
    const uint64_t difference = is_higher ? own->high - own->last_high : own->last_high - own->high;
    const bool is_explained = is_higher ? hits < own->last_hits : hits > own->last_hits;
    const bool is_alike = requests == own->last_requests &&
                          (difference == 0 || (is_explained && difference <= own->limit[0]));
    own->last_high = own->high;
    own->last_requests = requests;
    own->last_hits = hits;
    return is_alike;
}

void ashlar__cycle_restart(ashlar_cache *own) {
    ashlar__cache_flush(own);
    begin_cycle(own);
    own->last_high = own->last_requests = own->last_hits = 0;
    own->was_full = false;
    own->hits_when_full = own->counters.hit_count;
    own->last_large = NULL;
    ASHLAR_CHECK2(atomic_load(&own->is_busy) != 0 ||
                  (ashlar__cache_is_empty(own) && own->pending_count == 0));
}

/* Whether the magazines had no room for a block since the last miss, and have served nothing since
 * they were last found full. */
static bool is_full_of_what_nobody_wants(ashlar_cache *own) {
    if (!own->was_full) {
        return false;
    }
    const bool is_useless = own->counters.hit_count == own->hits_when_full;
    own->was_full = false;
    own->hits_when_full = own->counters.hit_count;
    return is_useless;
}

ASHLAR_NOINLINE void ashlar__cycle_look(ashlar_cache *own) {
    ASHLAR_CHECK2(own->thread == ashlar__thread_number());
    const bool is_useless = is_full_of_what_nobody_wants(own);
    if (own->pending != NULL) {
        ashlar__cache_flush_pending(own);
    }
    const bool is_new_cycle = is_at_low(own);
    if (is_new_cycle ? !is_like_the_last(own) : is_useless) {
        ashlar__cache_flush(own);
    }
    if (own->weight[1] > 0) {
        ashlar__cache_flush_large(own);
    }
    if (is_new_cycle) {
        begin_cycle(own);
        own->misses = 1;
    }
    ASHLAR_CHECK2(atomic_load(&own->is_busy) != 0 ||
                  (own->pending_count == 0 && own->weight[1] == 0));
}

/* ---- checks ---- */

static ashlar_status broken(const ashlar_cache *cache, const char *what) {
    return ashlar__fail(ASHLAR_EFORMAT, "cache check: cache of thread %llu: %s",
                        (unsigned long long)cache->thread, what);
}

static bool is_cached_here(const ashlar_block *block, const ashlar_stream_state *state) {
    return block->state == ASHLAR_BLOCK_USED && block->requested == 0 &&
           (state == NULL || block->stream_state == state);
}

static ashlar_status check_magazines(const ashlar_cache *cache, size_t weight[static 2]) {
    for (const ashlar_magazines *m = cache->magazines; m != NULL; m = m->next) {
        for (size_t i = 0; i < ASHLAR_CACHE_LISTS; i++) {
            for (const ashlar_block *block = m->lists[i]; block != NULL; block = block->older) {
                if (!is_cached_here(block, m->stream_state) || block->list != i ||
                    ashlar__cache_list(block->bytes) != i) {
                    return broken(cache, "a block is in the wrong magazine");
                }
                weight[block->bytes > ASHLAR_SC_MAX_BYTES] += ashlar__cache_weight(block->bytes);
            }
        }
    }
    return ASHLAR_OK;
}

/* Whether a list has exactly `count` blocks of `bytes` bytes in total, which are all marked as
 * cached and, unless `state` is NULL, belong to that stream. */
static bool is_list_of(const ashlar_block *list, const ashlar_stream_state *state, size_t count,
                       size_t bytes) {
    for (; list != NULL && is_cached_here(list, state) && list->bytes <= bytes;
         list = list->older) {
        bytes -= list->bytes;
        count--;
    }
    return list == NULL && count == 0 && bytes == 0;
}

ashlar_status ashlar__cache_check_locked(const ashlar_cache *cache) {
    ASHLAR_MAY_TOUCH(cache);
    const ashlar_remote_frees *remote = &cache->remote;
    size_t weight[2] = {0};
    ASHLAR_TRY(check_magazines(cache, weight));
    if (weight[0] != cache->weight[0] || weight[1] != cache->weight[1]) {
        return broken(cache, "its blocks are miscounted");
    }
    if (!is_list_of(cache->pending, NULL, cache->pending_count, cache->pending_bytes)) {
        return broken(cache, "its pending blocks are miscounted, or one is not marked as cached");
    }
    if (!is_list_of(remote->newest, remote->newest != NULL ? remote->newest->stream_state : NULL,
                    remote->count, remote->bytes)) {
        return broken(cache, "its remote frees are miscounted, or one is of another stream");
    }
    if (weight[0] > cache->limit[0] || weight[1] > cache->limit[1] ||
        cache->pending_count > ASHLAR_CACHE_PENDING_MAX || cache->pending_bytes > cache->limit[1]) {
        return broken(cache, "it holds more than its limits");
    }
    return ASHLAR_OK;
}
