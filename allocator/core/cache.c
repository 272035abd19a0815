/*
 * cache.c - a thread's caches from their first use to the thread's end, giving their blocks back to
 * the heap, and shutting their owner out for another thread.
 */
#include "allocator/core/cache.h"

#include <pthread.h>
#include <sched.h>

#include "allocator/base/threads.h"
#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/core/allocator_impl.h"
#include "allocator/heap/away.h"

enum {
    SMALL_DIVISOR = 256,
    LISTS_AT_ONCE = 4, /* lists that find_filled() tests with one branch */
};
_Static_assert(ASHLAR_SC_COUNT % LISTS_AT_ONCE == 0, "whole groups");

/* Bytes of small blocks that a cache may hold, however small or large the device is. */
#define SMALL_MIN_BYTES ((size_t)1 << 20)
#define SMALL_MAX_BYTES ((size_t)16 << 20)

/*
 * A cache of no allocator, since no allocator has the id 0. Threads without a cache point here, so
 * that a hit need not test for NULL.
 */
static ashlar_cache no_cache;

ashlar_magazines ashlar__no_magazines;

_Thread_local ashlar_cache *ashlar__cache_recent = &no_cache;
static _Thread_local ashlar_cache *caches_of_thread ASHLAR_INITIAL_EXEC; /* linked by
                                                                          * next_of_thread */
static _Thread_local bool is_ending ASHLAR_INITIAL_EXEC;

/*
 * Guards ashlar_cache.allocator in all caches. A cache leaves its allocator when either its thread
 * or the allocator ends, and the two may happen at the same time.
 */
static ashlar_lock parting_lock = ASHLAR_LOCK(ASHLAR_RANK_CACHE_PARTING);

static pthread_key_t ending_key;
static bool has_ending_key;

/*
 * The bits of `attention` that say whether every call must take the lock, so that a trace or the
 * recording of a step sees it.
 */
static unsigned watched(const ashlar_allocator *a) {
    return a->bypasses_caches || a->planner.recording_count > 0 ? ASHLAR_CACHE_BYPASSED : 0;
}

/* ---- lists ---- */

static void link_locked(ashlar_allocator *a, ashlar_cache *cache) {
    ASHLAR_OWNS(&a->lock);
    ASHLAR_CHECK2(cache->allocator == a && cache->allocator_id == a->constants.id);
    cache->prev = NULL;
    cache->next = a->caches;
    if (a->caches != NULL) {
        a->caches->prev = cache;
    }
    a->caches = cache;
}

static void unlink_locked(ashlar_allocator *a, ashlar_cache *cache) {
    ASHLAR_OWNS(&a->lock);
    ashlar_cache **link = cache->prev != NULL ? &cache->prev->next : &a->caches;
    ASHLAR_CHECK2(*link == cache && (cache->next == NULL || cache->next->prev == cache));
    *link = cache->next;
    if (cache->next != NULL) {
        cache->next->prev = cache->prev;
    }
}

static void delete_cache(ashlar_cache *cache) {
    ASHLAR_CHECK2(cache != &no_cache && cache != ashlar__cache_recent);
    if (cache->own_replay != NULL) { /* the allocator is destroyed, and so the step is over */
        ashlar__recording_finish(&cache->own_replay->recording);
        ashlar__host_free(cache->own_replay);
    }
    while (cache->magazines != NULL) {
        ashlar_magazines *next = cache->magazines->next;
        ashlar__host_free(cache->magazines);
        cache->magazines = next;
    }
    ashlar__host_free(cache);
}

/* ---- the thread's end ---- */

/* End the step that the thread is in, if any, without keeping its recording. */
static void abandon_step_locked(ashlar_allocator *a, ashlar_cache *cache) {
    ASHLAR_OWNS(&a->lock);
    ashlar_replay *replay = cache->own_replay;
    if (replay == NULL) {
        return;
    }
    if (replay->depth > 0) {
        ASHLAR_CHECK2(a->planner.active_step_count > 0);
        a->planner.active_step_count--;
        if (replay->is_recorded) {
            ashlar__replay_stop_recording(replay, &a->planner);
            ashlar__caches_update_bypass_locked(a);
        } else if (replay->key != NULL) {
            ashlar__cache_end_replay(cache, &a->planner);
        }
    }
    ashlar__recording_finish(&replay->recording);
    ashlar__host_free(replay);
    cache->own_replay = NULL;
}

/* Mark the per-thread default stream of the calling thread as ended. */
static void end_own_streams_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    for (ashlar_stream_state *state = a->stream_states; state != NULL; state = state->next) {
        state->is_ended = state->is_ended || state->thread == ashlar__thread_number();
    }
    ashlar__planner_forget_stream_locked(&a->planner, &a->heap, NULL);
}

/* Give all that the cache holds back to the allocator, if that still exists. Lock: parting_lock. */
static void return_cache(ashlar_cache *cache) {
    ASHLAR_OWNS(&parting_lock);
    ashlar_allocator *a = cache->allocator;
    if (a == NULL) {
        return;
    }
    ashlar__lock_acquire(&a->lock);
    abandon_step_locked(a, cache);
    ashlar__cache_flush_locked(cache);
    ashlar__counters_publish(&cache->counters, &a->stats);
    end_own_streams_locked(a);
    unlink_locked(a, cache);
    ASHLAR_CHECK2(ashlar__cache_is_empty(cache) && cache->pending == NULL);
    ASHLAR_CHECK2(cache->own_replay == NULL && cache->counters.all.live == 0);
    ashlar__lock_release(&a->lock);
}

static void end_thread(void *unused) {
    (void)unused;
    is_ending = true;
    ashlar__cache_recent = &no_cache;
    ashlar__lock_acquire(&parting_lock);
    while (caches_of_thread != NULL) {
        ashlar_cache *next = caches_of_thread->next_of_thread;
        return_cache(caches_of_thread);
        delete_cache(caches_of_thread);
        caches_of_thread = next;
    }
    ashlar__lock_release(&parting_lock);
}

static void make_key(void) {
    has_ending_key = pthread_key_create(&ending_key, end_thread) == 0;
}

/* Have end_thread() called when this thread ends. */
static bool expect_end(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_key);
    /* Any value but NULL would do: end_thread() is called only for threads that have set one. */
    return has_ending_key && pthread_setspecific(ending_key, &no_cache) == 0;
}

void ashlar__caches_disown(ashlar_allocator *a) {
    ashlar__lock_acquire(&parting_lock);
    for (ashlar_cache *cache = a->caches; cache != NULL; cache = cache->next) {
        ASHLAR_CHECK2(cache->allocator == a);
        cache->allocator = NULL;
    }
    a->caches = NULL;
    ashlar__lock_release(&parting_lock);
}

/* Free the thread's caches whose allocators are gone. */
static void forget_disowned(void) {
    ashlar__lock_acquire(&parting_lock);
    for (ashlar_cache **link = &caches_of_thread; *link != NULL;) {
        ashlar_cache *cache = *link;
        if (cache->allocator != NULL) {
            link = &cache->next_of_thread;
            continue;
        }
        *link = cache->next_of_thread;
        if (ashlar__cache_recent == cache) {
            ashlar__cache_recent = &no_cache;
        }
        delete_cache(cache);
    }
    ashlar__lock_release(&parting_lock);
}

/* ---- finding and making ---- */

static void forget_recent(ashlar_cache *cache) {
    cache->recent = &ashlar__no_magazines;
    cache->stream = ASHLAR_NO_STREAM;
}

void ashlar__cache_set_replay(ashlar_cache *cache, ashlar_replay *replay) {
    ASHLAR_OWNS(&cache->allocator->lock);
    ASHLAR_MAY_TOUCH(cache);
    cache->active_replay = replay;
    forget_recent(cache);
}

void ashlar__cache_end_replay(ashlar_cache *cache, ashlar_planner *planner) {
    ashlar_replay *replay = cache->active_replay;
    ASHLAR_CHECK2(ashlar__cache_is_replaying(cache) && replay == cache->own_replay);
    ashlar__cache_count_planned(cache);
    ashlar__cache_set_replay(cache, &ashlar__no_replay);
    ashlar__replay_end_replay(replay, planner, cache->counters.planned_count);
}

/* While a step is replayed, `stream` matches no request, so that each one asks the step first. */
static void set_recent(ashlar_cache *cache, ashlar_magazines *m, ashlar_stream stream) {
    cache->recent = m;
    cache->stream = ashlar__cache_is_replaying(cache) ? ASHLAR_NO_STREAM : stream;
}

/*
 * How much a cache may hold. Large blocks: half of cache_bytes, since any miss gives them up. Small
 * blocks: half of cache_bytes, too, but no more than a share of the device's memory. Neither
 * depends on what was mapped before, so that a repeated step finds the same blocks in its cache.
 */
static void set_limits(ashlar_cache *cache, size_t cache_bytes, size_t memory_bytes) {
    const size_t half = cache_bytes / 2, share = memory_bytes / SMALL_DIVISOR;
    size_t small = share > SMALL_MIN_BYTES ? share : SMALL_MIN_BYTES;
    small = small < SMALL_MAX_BYTES ? small : SMALL_MAX_BYTES;
    /*
     * ashlar__cache_weight() adds the weight of one block, so that a block of just that size fits.
     */
    cache->limit[0] = ashlar__cache_weight(small < half ? small : half);
    cache->limit[1] = ashlar__cache_weight(half);
}

static ashlar_cache *new_cache(ashlar_allocator *a) {
    ashlar_cache *cache = ashlar__host_calloc(1, sizeof *cache);
    if (cache == NULL) {
        return NULL;
    }
    cache->allocator_id = a->constants.id;
    cache->allocator = a;
    cache->thread = ashlar__thread_number();
    cache->next_of_thread = caches_of_thread;
    caches_of_thread = cache;
    ashlar__lock_acquire(&a->lock);
    ashlar__cache_set_replay(cache, &ashlar__no_replay);
    set_limits(cache, a->cache_bytes, a->heap.range.memory_bytes);
    atomic_store(&cache->attention, watched(a));
    /*
     * Nothing has been counted yet: this only sets all.peak, which a new peak must exceed.
     */
    ashlar__counters_publish(&cache->counters, &a->stats);
    link_locked(a, cache);
    ashlar__lock_release(&a->lock);
    return cache;
}

static ashlar_cache *find_cache(uint64_t allocator_id) {
    ashlar_cache *cache = caches_of_thread;
    while (cache != NULL && cache->allocator_id != allocator_id) {
        cache = cache->next_of_thread;
    }
    return cache;
}

ASHLAR_NOINLINE bool ashlar__cache_switch(uint64_t allocator_id) {
    ashlar_cache *cache = find_cache(allocator_id);
    if (cache != NULL) {
        ashlar__cache_recent = cache;
    }
    return cache != NULL;
}

static ASHLAR_NOINLINE ashlar_cache *find_or_make(ashlar_allocator *a) {
    if (a->cache_bytes == 0 || is_ending) {
        return NULL;
    }
    ashlar_cache *cache = find_cache(a->constants.id);
    if (cache == NULL && ashlar__barrier_init() && expect_end()) {
        forget_disowned();
        cache = new_cache(a);
    }
    if (cache != NULL) {
        ashlar__cache_recent = cache;
    }
    return cache;
}

ashlar_cache *ashlar__cache_get(ashlar_allocator *a) {
    ashlar_cache *recent = ashlar__cache_recent;
    return ASHLAR_LIKELY(recent->allocator_id == a->constants.id) ? recent : find_or_make(a);
}

static ashlar_magazines *magazines_of(const ashlar_cache *cache, const ashlar_stream_state *state) {
    ashlar_magazines *m = cache->buckets[ashlar__stream_bucket(state->stream)];
    while (m != NULL && m->stream_state != state) {
        m = m->next_in_bucket;
    }
    return m;
}

ashlar_magazines *ashlar__cache_add_locked(ashlar_cache *cache, ashlar_stream_state *state) {
    ASHLAR_OWNS(&cache->allocator->lock);
    ASHLAR_CHECK2(cache->thread == ashlar__thread_number());
    ASHLAR_CHECK2(magazines_of(cache, state) == NULL);
    ashlar_magazines *m = ashlar__host_calloc(1, sizeof *m);
    if (m != NULL) {
        m->stream_state = state;
        m->next = cache->magazines;
        cache->magazines = m;
        ashlar_magazines **bucket = &cache->buckets[ashlar__stream_bucket(state->stream)];
        m->next_in_bucket = *bucket;
        *bucket = m;
    }
    return m;
}

ASHLAR_NOINLINE ashlar_magazines *ashlar__cache_find_state(ashlar_cache *cache,
                                                           const ashlar_stream_state *state) {
    ashlar_magazines *m = magazines_of(cache, state);
    if (m != NULL) {
        set_recent(cache, m, state->stream);
    }
    return m;
}

ASHLAR_NOINLINE ashlar_magazines *ashlar__cache_find(ashlar_cache *cache, ashlar_stream stream) {
    const ashlar_stream named = ashlar__stream_named(stream);
    ashlar_magazines *m = cache->buckets[ashlar__stream_bucket(named)];
    while (m != NULL && m->stream_state->stream != named) {
        m = m->next_in_bucket;
    }
    if (m != NULL) {
        set_recent(cache, m, stream);
    }
    return m;
}

/* ---- giving back ---- */

bool ashlar__cache_add_pending(ashlar_cache *cache, ashlar_block *block) {
    ASHLAR_CHECK2(cache->thread == ashlar__thread_number());
    ASHLAR_CHECK2(cache->pending_count <= ASHLAR_CACHE_PENDING_MAX && block->marks == 0);
    ASHLAR_CHECK2((cache->pending == NULL) == (cache->pending_count == 0));
    const size_t bytes = cache->pending_bytes + block->bytes;
    if (cache->pending_count == ASHLAR_CACHE_PENDING_MAX || bytes > cache->limit[1] ||
        (block->bytes > ASHLAR_SC_MAX_BYTES && cache->weight[1] != 0) ||
        (block->bytes > ASHLAR_SC_MAX_BYTES && cache->sends_large_at_once)) {
        return false;
    }
    block->older = cache->pending;
    cache->pending = block;
    cache->pending_count++;
    cache->pending_bytes = bytes;
    return true;
}

/*
 * Give a list of blocks to the heap, stamped with their stream's present tick. It may be later than
 * the tick at the free, but never earlier, so that an event recorded after the present tick also
 * comes after the last use.
 */
static void put_list_locked(ashlar_allocator *a, ashlar_block *list) {
    ASHLAR_OWNS(&a->lock);
    while (list != NULL) {
        ashlar_block *next = list->older;
        ASHLAR_CHECK2(list->requested == 0 && list->stream_state != NULL);
        ashlar__release_block_locked(&a->heap, list, list->stream_state);
        list = next;
    }
}

void ashlar__cache_flush_pending_locked(ashlar_cache *cache) {
    ASHLAR_OWNS(&cache->allocator->lock);
    ASHLAR_MAY_TOUCH(cache);
    ashlar_block *list = cache->pending;
    cache->pending = NULL;
    cache->pending_count = 0;
    cache->pending_bytes = 0;
    put_list_locked(cache->allocator, list);
}

static void empty_list_locked(ashlar_cache *cache, ashlar_magazines *m, size_t idx) {
    ASHLAR_MAY_TOUCH(cache);
    ashlar_block *list = m->lists[idx];
    size_t *const total = &cache->weight[idx == ASHLAR_CACHE_LARGE_LIST];
    m->lists[idx] = NULL;
    for (const ashlar_block *block = list; block != NULL; block = block->older) {
        const size_t weight = ashlar__cache_weight(block->bytes);
        ASHLAR_CHECK2(block->list == idx && weight <= *total);
        *total -= weight;
    }
    put_list_locked(cache->allocator, list);
}

/*
 * Find the lists for small blocks that are not empty. They are few, and in no pattern that a
 * processor could predict, so there is one branch for each group of lists and none for each list.
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

static void empty_lists_locked(ashlar_cache *cache, ashlar_magazines *m) {
    uint16_t filled[ASHLAR_SC_COUNT];
    const size_t count = find_filled(m, filled);
    for (size_t i = 0; i < count; i++) {
        empty_list_locked(cache, m, filled[i]);
    }
    empty_list_locked(cache, m, ASHLAR_CACHE_LARGE_LIST);
}

void ashlar__cache_flush_locked(ashlar_cache *cache) {
    ashlar__cache_flush_pending_locked(cache);
    for (ashlar_magazines *m = cache->magazines; m != NULL && !ashlar__cache_is_empty(cache);
         m = m->next) {
        empty_lists_locked(cache, m);
    }
    ASHLAR_CHECK2(ashlar__cache_is_empty(cache) && cache->pending_bytes == 0);
}

void ashlar__cache_flush_stream_locked(ashlar_cache *cache, const ashlar_stream_state *state,
                                       size_t bytes) {
    ashlar__cache_flush_pending_locked(cache);
    ashlar_magazines *m = magazines_of(cache, state);
    if (m == NULL) {
        return;
    }
    if (bytes > ASHLAR_SC_MAX_BYTES) {
        empty_list_locked(cache, m, ASHLAR_CACHE_LARGE_LIST);
    } else {
        uint16_t filled[ASHLAR_SC_COUNT];
        const size_t count = find_filled(m, filled);
        for (size_t i = 0; i < count; i++) {
            empty_list_locked(cache, m, filled[i]);
        }
    }
}

void ashlar__cache_flush_large_locked(ashlar_cache *cache) {
    for (ashlar_magazines *m = cache->magazines; m != NULL && cache->weight[1] > 0; m = m->next) {
        empty_list_locked(cache, m, ASHLAR_CACHE_LARGE_LIST);
    }
    ASHLAR_CHECK2(cache->weight[1] == 0);
}

static void leave_bucket(ashlar_cache *cache, const ashlar_magazines *m) {
    ashlar_magazines **link = &cache->buckets[ashlar__stream_bucket(m->stream_state->stream)];
    while (*link != m) {
        link = &(*link)->next_in_bucket;
    }
    *link = m->next_in_bucket;
}

void ashlar__cache_forget_locked(ashlar_cache *cache, const ashlar_stream_state *state) {
    ashlar__cache_flush_pending_locked(cache);
    if (ashlar__cache_is_replaying(cache)) {
        ashlar__replay_forget_stream(cache->active_replay, state);
    }
    for (ashlar_magazines **link = &cache->magazines; *link != NULL;) {
        ashlar_magazines *m = *link;
        if (m->stream_state != state) {
            link = &m->next;
            continue;
        }
        empty_lists_locked(cache, m);
        *link = m->next;
        leave_bucket(cache, m);
        ashlar__host_free(m);
    }
    forget_recent(cache);
}

size_t ashlar__cache_bytes(const ashlar_cache *cache) {
    ASHLAR_MAY_TOUCH(cache);
    size_t bytes = cache->pending_bytes;
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

/* ---- shutting out ---- */

static void set_attention(ashlar_allocator *a, const ashlar_cache *own, unsigned attention) {
    for (ashlar_cache *cache = a->caches; cache != NULL; cache = cache->next) {
        if (cache != own) {
            atomic_store_explicit(&cache->attention, attention, memory_order_release);
        }
    }
}

/* Whether the calling thread may touch every cache; for assertions. */
static bool are_all_touchable(const ashlar_allocator *a) {
    const ashlar_cache *cache = a->caches;
    while (cache != NULL && ashlar__cache_may_touch(cache)) {
        cache = cache->next;
    }
    return cache == NULL;
}

void ashlar__caches_claim_locked(ashlar_allocator *a, const ashlar_cache *own) {
    ASHLAR_OWNS(&a->lock);
    if (a->caches == NULL || (a->caches == own && own->next == NULL)) {
        return;
    }
    set_attention(a, own, ASHLAR_CACHE_CLAIMED | watched(a));
    ashlar__barrier_everywhere();
    for (ashlar_cache *cache = a->caches; cache != NULL; cache = cache->next) {
        while (cache != own && atomic_load_explicit(&cache->is_busy, memory_order_acquire) != 0) {
            sched_yield(); /* the owner is in the middle of a hit, perhaps without a core */
        }
    }
    ASHLAR_CHECK3(are_all_touchable(a));
}

void ashlar__caches_release_locked(ashlar_allocator *a, const ashlar_cache *own) {
    ASHLAR_OWNS(&a->lock);
    set_attention(a, own, watched(a));
}

void ashlar__caches_update_bypass_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    ashlar__caches_claim_locked(a, ashlar__cache_recent);
    set_attention(a, NULL, watched(a));
}

void ashlar__caches_flush_locked(ashlar_allocator *a, const ashlar_cache *own) {
    ASHLAR_OWNS(&a->lock);
    ashlar__caches_claim_locked(a, own);
    for (ashlar_cache *cache = a->caches; cache != NULL; cache = cache->next) {
        ashlar__cache_flush_locked(cache);
    }
    ashlar__caches_release_locked(a, own);
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

ashlar_status ashlar__cache_check_locked(const ashlar_cache *cache) {
    ASHLAR_MAY_TOUCH(cache);
    size_t weight[2] = {0}, pending = 0, pending_bytes = 0;
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
    for (const ashlar_block *block = cache->pending; block != NULL; block = block->older) {
        if (!is_cached_here(block, NULL)) {
            return broken(cache, "a pending block is not marked as cached");
        }
        pending++;
        pending_bytes += block->bytes;
    }
    if (weight[0] != cache->weight[0] || weight[1] != cache->weight[1] ||
        pending != cache->pending_count || pending_bytes != cache->pending_bytes) {
        return broken(cache, "its blocks are miscounted");
    }
    if (weight[0] > cache->limit[0] || weight[1] > cache->limit[1] ||
        pending > ASHLAR_CACHE_PENDING_MAX || pending_bytes > cache->limit[1]) {
        return broken(cache, "it holds more than its limits");
    }
    return ASHLAR_OK;
}
