/* owner.c - taking over other threads' caches; which thread's cache owns a stream; remote frees. */
#include "allocator/core/core.h"

#include <sched.h>

/* After this many handovers no cache owns the stream any more, since its threads take turns. */
enum { HANDOVERS_MAX = 4 };

/* A thread sends its remote frees to their stream when they are so many blocks, or bytes. */
enum { REMOTE_BLOCKS = 32 };
#define REMOTE_BYTES ((size_t)1 << 20)

/* ---- taking caches over ---- */

static void set_attention(ashlar_allocator *a, const ashlar_cache *own, unsigned attention) {
    for (ashlar_cache *cache = a->caches; cache != NULL; cache = cache->next) {
        if (cache != own) {
            atomic_store_explicit(&cache->attention, attention, memory_order_release);
        }
    }
}

static bool is_alone(const ashlar_allocator *a, const ashlar_cache *own) {
    return a->caches == NULL || (a->caches == own && own->next == NULL);
}

/*
 * Put a barrier between the stores to `attention` and the loads of `is_busy`. If the kernel refuses
 * membarrier(2) from now on, this barrier still worked, by other means, but no thread may enter its
 * cache again. Then no later take-over needs a barrier: other threads see the `attention` stored
 * before this barrier, and the caller sees its own store.
 */
static void put_barrier_locked(ashlar_allocator *a, const ashlar_cache *own) {
    ASHLAR_OWNS(&a->lock);
    if (!a->are_hits_over && !ashlar__barrier_everywhere()) {
        a->are_hits_over = true;
        for (ashlar_cache *cache = a->caches; cache != NULL; cache = cache->next) {
            atomic_fetch_or_explicit(&cache->attention, ASHLAR_CACHE_BYPASSED,
                                     memory_order_release);
        }
    }
    ASHLAR_CHECK2(!a->are_hits_over || own == NULL || own->allocator != a ||
                  atomic_load(&own->attention) != 0);
}

/*
 * Why a cache's own thread (o) and one that takes the cache over (c) never use it at the same time,
 * however the processors reorder. The steps of one entry by o, and those of c:
 *
 *   o1  is_busy = 1                            c1  attention = TAKEN_OVER
 *   o2  load attention; not 0: o4, and stay    c2  a barrier in every thread
 *       out (acquire)                          c3  load is_busy until it is 0 (acquire)
 *   o3  touch the cache                        c4  touch the cache
 *   o4  is_busy = 0 (release)                  c5  attention = 0 (release)
 *
 * c2 puts a full fence at some point F of o's program, after c1 and before c3. c3 sees all that o
 * did before F, and all that o does after F sees c1. If o does not run at that time, the kernel's
 * context switch is its fence. Every entry of o is in one of two cases:
 *   - o2 lies after F. Then o2 reads c1's store, and o stays out; or it reads a later store to
 *     `attention`, such as c5's 0, and by release and acquire o3 comes after c4.
 *   - o2 lies before F, and so does o1. If o2 reads 0, o goes in. Then c3 reads o1's 1, or a later
 *     store of o's, and waits until it reads a 0. That 0 is the store of o4, in this entry or a
 *     later one, so by release and acquire c4 comes after o3.
 * A signal fence keeps the compiler from exchanging o1 and o2; the processor may exchange them.
 * Without c2, o may do o2 before o1 is visible: then both go in.
 * tests/orders runs this under every schedule, also with stores that are seen as late as can be.
 */
void ashlar__caches_take_over_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    const ashlar_cache *own = ashlar__cache_recent;
    if (a->are_caches_taken_over) {
        return;
    }
    a->are_caches_taken_over = true;
    if (!is_alone(a, own)) {
        set_attention(a, own, ASHLAR_CACHE_TAKEN_OVER | ashlar__bypass_attention(a));
        put_barrier_locked(a, own);
    }
    for (ashlar_cache *cache = a->caches; cache != NULL; cache = cache->next) {
        while (cache != own && atomic_load_explicit(&cache->is_busy, memory_order_acquire) != 0) {
            sched_yield(); /* the cache's thread is in a hit, and may wait for a processor: let it
                              have this one */
        }
        ashlar__heap_catch_up(&a->heap, cache->use_clock);
    }
}

void ashlar__caches_hand_back_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    if (a->are_caches_taken_over && !is_alone(a, ashlar__cache_recent)) {
        set_attention(a, ashlar__cache_recent, ashlar__bypass_attention(a));
    }
    a->are_caches_taken_over = false;
}

void ashlar__allocator_enter(ashlar_allocator *a) {
    ashlar__lock_acquire(&a->lock);
    ASHLAR_CHECK2(!a->are_caches_taken_over);
    ashlar__caches_take_over_locked(a);
}

void ashlar__allocator_leave(ashlar_allocator *a) {
    ashlar__caches_hand_back_locked(a);
    ashlar__lock_release(&a->lock);
}

void ashlar__caches_update_bypass_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    ashlar__caches_take_over_locked(a); /* handing them back informs the other threads */
    if (ashlar__cache_recent->allocator == a) {
        atomic_store_explicit(&ashlar__cache_recent->attention, ashlar__bypass_attention(a),
                              memory_order_release);
    }
}

/* ---- owning a stream ---- */

/* No cache may own a watched stream: blocks freed on it must be stamped while it is alive. */
static bool may_be_owned(const ashlar_allocator *a, const ashlar_stream_state *state) {
    return state->handovers < HANDOVERS_MAX && a->heap.range.segments == NULL &&
           !a->client.watches_streams && !state->is_pool && !state->is_idle &&
           state->pool == NULL && !ashlar__stream_state_has_ended(state);
}

void ashlar__owner_cache_clear_locked(ashlar_allocator *a, ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    const ashlar_cache *owner_cache = ashlar__owner_cache(state);
    ASHLAR_CHECK2(owner_cache == NULL || ashlar__cache_may_touch(owner_cache));
    atomic_store_explicit(&state->owner_cache, NULL, memory_order_relaxed);
}

void ashlar__owner_cache_set_locked(ashlar_allocator *a, ashlar_cache *own,
                                    ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    const ashlar_cache *owner_cache = ashlar__owner_cache(state);
    if (owner_cache == own) {
        return;
    }
    if (owner_cache != NULL) {
        ashlar__caches_take_over_locked(a);
        ashlar__owner_cache_clear_locked(a, state);
        state->handovers++;
    }
    if (own != NULL && may_be_owned(a, state)) {
        atomic_store_explicit(&state->owner_cache, own, memory_order_relaxed);
    }
}

/* ---- remote frees: blocks freed by threads other than their stream's ---- */

void ashlar__remote_append(ashlar_stream_state *state, ashlar_block *newest, ashlar_block *oldest) {
    oldest->older = atomic_load_explicit(&state->remote_frees, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&state->remote_frees, &oldest->older, newest,
                                                  memory_order_release, memory_order_relaxed)) {
    }
}

void ashlar__remote_send(ashlar_cache *cache) {
    ASHLAR_MAY_TOUCH(cache);
    const ashlar_remote_frees remote = cache->remote;
    if (remote.count > 0) {
        cache->remote = (ashlar_remote_frees){0};
        ashlar__remote_append(remote.newest->stream_state, remote.newest, remote.oldest);
    }
}

bool ashlar__is_remote(const ashlar_cache *own, const ashlar_block *block) {
    const ashlar_cache *owner_cache = ashlar__owner_cache(block->stream_state);
    return owner_cache != NULL && owner_cache != own;
}

void ashlar__remote_free(ashlar_cache *own, ashlar_block *block) {
    ASHLAR_CHECK2(own->thread == ashlar__thread_number() && block->marks == 0);
    ASHLAR_CHECK2(block->requested == 0);
    ashlar_remote_frees *remote = &own->remote;
    if (remote->count > 0 && remote->newest->stream_state != block->stream_state) {
        ashlar__remote_send(own);
    }
    remote->oldest = remote->count == 0 ? block : remote->oldest;
    block->older = remote->newest;
    remote->newest = block;
    remote->count++;
    remote->bytes += block->bytes;
    if (remote->count == REMOTE_BLOCKS || remote->bytes >= REMOTE_BYTES) {
        ashlar__remote_send(own);
    }
}

/* Take all remote frees of a stream, linked by `older`. */
static ashlar_block *take_remote_frees(ashlar_stream_state *state) {
    return atomic_load_explicit(&state->remote_frees, memory_order_relaxed) != NULL
               ? atomic_exchange_explicit(&state->remote_frees, NULL, memory_order_acquire)
               : NULL;
}

void ashlar__remote_receive(ashlar_cache *own, ashlar_magazines *m) {
    ashlar_allocator *a = own->allocator;
    for (ashlar_block *next, *block = take_remote_frees(m->stream_state); block != NULL;
         block = next) {
        next = block->older;
        block->list = (uint16_t)ashlar__cache_list(block->bytes);
        if (block->list == ASHLAR_CACHE_LARGE_LIST || !ashlar__cache_push(own, m, block)) {
            ashlar__release_own_block(&a->heap, block);
        }
    }
}

void ashlar__remote_put_locked(ashlar_allocator *a, ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    for (ashlar_block *next, *block = take_remote_frees(state); block != NULL; block = next) {
        next = block->older;
        ashlar__release_block_locked(&a->heap, block, state);
    }
}

size_t ashlar__remote_bytes_locked(const ashlar_allocator *a) {
    size_t bytes = 0;
    for (const ashlar_stream_state *state = a->stream_states; state != NULL; state = state->next) {
        const ashlar_block *block =
            atomic_load_explicit(&state->remote_frees, memory_order_acquire);
        for (; block != NULL; block = block->older) {
            bytes += block->bytes;
        }
    }
    return bytes;
}
