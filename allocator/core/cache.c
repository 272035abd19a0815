/* cache.c - a thread's caches and their magazines, from their first use to the thread's end. */
#include "allocator/core/core.h"

#include <pthread.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/threads.h"

/* A cache's small blocks may take the device's memory over SMALL_DIVISOR, within these bounds. */
enum { SMALL_DIVISOR = 256 };
#define SMALL_MIN_BYTES ((size_t)1 << 20)
#define SMALL_MAX_BYTES ((size_t)16 << 20)

/* The cache of threads that have none, so that a hit need not test for NULL. */
static ashlar_cache no_cache;

ashlar_magazines ashlar__no_magazines;

_Thread_local ashlar_cache *ashlar__cache_recent = &no_cache;
static _Thread_local ashlar_cache *caches_of_thread ASHLAR_INITIAL_EXEC; /* linked by
                                                                          * next_of_thread */
static _Thread_local bool is_ending ASHLAR_INITIAL_EXEC;

/* Guards ashlar_cache.allocator: a cache's thread and its allocator may end at the same time. */
static ashlar_lock parting_lock = ASHLAR_LOCK(ASHLAR_LEVEL_CACHE_PARTING);

static pthread_key_t ending_key;
static bool has_ending_key;

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
    if (cache->own_replay != NULL) { /* the allocator is destroyed, so the step is over */
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

/* ---- the end of a thread ---- */

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
            ashlar__cache_end_replay(cache);
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

/* Give all that the cache has back to its allocator, if that still exists. */
static void return_cache(ashlar_cache *cache) {
    ASHLAR_OWNS(&parting_lock);
    ashlar_allocator *a = cache->allocator;
    if (a == NULL) {
        return;
    }
    ashlar__allocator_enter(a);
    abandon_step_locked(a, cache);
    ashlar__cache_flush(cache);
    ashlar__counters_publish(&cache->counters, &a->stats);
    for (ashlar_stream_state *state = a->stream_states; state != NULL; state = state->next) {
        if (ashlar__owner_cache(state) == cache) {
            ashlar__remote_put_locked(a, state);
            ashlar__owner_cache_clear_locked(a, state);
        }
    }
    end_own_streams_locked(a);
    unlink_locked(a, cache);
    ASHLAR_CHECK2(ashlar__cache_is_empty(cache) && cache->pending == NULL);
    ASHLAR_CHECK2(cache->own_replay == NULL && cache->counters.all.live == 0);
    ashlar__allocator_leave(a);
}

static void end_thread(void *unused) {
    (void)unused;
    is_ending = true;
    ashlar__lock_acquire(&parting_lock);
    while (caches_of_thread != NULL) {
        ashlar_cache *next = caches_of_thread->next_of_thread;
        ashlar__cache_recent = caches_of_thread; /* so that taking caches over leaves it out */
        return_cache(caches_of_thread);
        ashlar__cache_recent = &no_cache;
        delete_cache(caches_of_thread);
        caches_of_thread = next;
    }
    ashlar__lock_release(&parting_lock);
}

static void make_key(void) {
    has_ending_key = pthread_key_create(&ending_key, end_thread) == 0;
}

/* Arrange that end_thread() is called when this thread ends. */
static bool expect_end(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_key);
    /* Any value but NULL will do: the key's destructor runs only for threads that have set one. */
    return has_ending_key && pthread_setspecific(ending_key, &no_cache) == 0;
}

/* The caches themselves stay in the child's memory, unreachable: their blocks are the parent's. */
void ashlar__caches_begin_child(void) {
    ashlar__lock_init(&parting_lock, ASHLAR_LEVEL_CACHE_PARTING);
    ashlar__cache_recent = &no_cache;
    caches_of_thread = NULL;
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

/* Record an event behind other streams' work in a step's plan memory. If none can be recorded now,
 * the beginning of the next step tries again. */
static void cover_uses(ashlar_heap *heap, const ashlar_replay *replay) {
    for (uint32_t stream_idx = 0; stream_idx < replay->plan->stream_count; stream_idx++) {
        if (replay->memories[stream_idx] != NULL) {
            ashlar__cross_try_cover(heap, replay->memories[stream_idx]->block);
        }
    }
}

void ashlar__cache_end_replay(ashlar_cache *cache) {
    ashlar_allocator *a = cache->allocator;
    ashlar_replay *replay = cache->active_replay;
    ASHLAR_CHECK2(ashlar__cache_is_replaying(cache) && replay == cache->own_replay);
    ashlar__cache_count_planned(cache);
    ashlar__cache_set_replay(cache, &ashlar__no_replay);
    ashlar__replay_end_replay(replay, &a->planner, cache->counters.planned_count);
    cover_uses(&a->heap, replay);
    if (replay->key->is_retired) {
        ashlar__planner_retire_plan_locked(&a->planner, &a->heap, replay->key);
    }
    replay->key = NULL;
}

/*
 * Make these the magazines that serve hits. While a step is replayed, `cache->stream` is set to
 * match no request, so that each one asks the replay first; and so it is once memory was short, so
 * that each request checks whether a step begins (ashlar__cycle_is_tight()).
 */
static void set_recent(ashlar_cache *cache, ashlar_magazines *m, ashlar_stream stream) {
    const bool is_asked = ashlar__cache_is_replaying(cache) || cache->allocator->heap.was_short;
    cache->recent = m;
    cache->stream = is_asked ? ASHLAR_NO_STREAM : stream;
}

/*
 * Set the most that a cache may hold: half of cache_bytes in large blocks, which the next miss
 * gives up, and half in small ones. These are also limited to a part of the device's memory, 1 to
 * 16 MiB. Neither limit depends on what was mapped before, so a repeated step finds the same blocks
 * in its cache.
 */
static void set_limits(ashlar_cache *cache, size_t cache_bytes, size_t memory_bytes) {
    const size_t half = cache_bytes / 2, share = memory_bytes / SMALL_DIVISOR;
    size_t small = share > SMALL_MIN_BYTES ? share : SMALL_MIN_BYTES;
    small = small < SMALL_MAX_BYTES ? small : SMALL_MAX_BYTES;
    /* Weights, which exceed the bytes, so that one block of exactly so many bytes fits. */
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
    cache->counters.limit = (int64_t)a->constants.unpublished_bytes;
    atomic_store(&cache->attention, ashlar__bypass_attention(a));
    /* This only sets all.peak, the value that a new peak must exceed. */
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

ashlar_magazines *ashlar__magazines_of(const ashlar_cache *cache,
                                       const ashlar_stream_state *state) {
    ashlar_magazines *m = cache->buckets[ashlar__stream_bucket(state->stream)];
    while (m != NULL && m->stream_state != state) {
        m = m->next_in_bucket;
    }
    return m;
}

ASHLAR_NOINLINE ashlar_magazines *ashlar__cache_find_state(ashlar_cache *cache,
                                                           const ashlar_stream_state *state) {
    ashlar_magazines *m = ashlar__magazines_of(cache, state);
    if (m != NULL) {
        set_recent(cache, m, state->stream);
    }
    return m;
}

static ashlar_magazines *add_magazines_locked(ashlar_cache *cache, ashlar_stream_state *state) {
    ASHLAR_OWNS(&cache->allocator->lock);
    ASHLAR_CHECK2(cache->thread == ashlar__thread_number());
    ASHLAR_CHECK2(ashlar__magazines_of(cache, state) == NULL);
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

ashlar_magazines *ashlar__cache_need_locked(ashlar_cache *cache, ashlar_stream_state *state) {
    if (!ashlar__may_cache(state)) {
        return NULL;
    }
    ashlar_magazines *m = ashlar__cache_find_state(cache, state);
    return m != NULL ? m : add_magazines_locked(cache, state);
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

static void leave_bucket(ashlar_cache *cache, const ashlar_magazines *m) {
    ashlar_magazines **link = &cache->buckets[ashlar__stream_bucket(m->stream_state->stream)];
    while (*link != m) {
        link = &(*link)->next_in_bucket;
    }
    *link = m->next_in_bucket;
}

void ashlar__cache_forget_locked(ashlar_cache *cache, const ashlar_stream_state *state) {
    ASHLAR_OWNS(&cache->allocator->lock);
    ASHLAR_MAY_TOUCH(cache);
    if (ashlar__cache_is_replaying(cache)) {
        ashlar__replay_forget_stream(cache->active_replay, state);
    }
    ashlar__cache_flush_pending(cache);
    ashlar__remote_send(cache);
    for (ashlar_magazines **link = &cache->magazines; *link != NULL;) {
        ashlar_magazines *m = *link;
        if (m->stream_state != state) {
            link = &m->next;
            continue;
        }
        ashlar__cache_flush_magazines(cache, m);
        *link = m->next;
        leave_bucket(cache, m);
        ashlar__host_free(m);
    }
    forget_recent(cache);
}
