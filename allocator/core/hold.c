/* hold.c - taking caches over; which thread holds a stream; sending it blocks freed remotely. */
#include "allocator/core/core.h"

#include <sched.h>

/* After this many handovers nobody holds the stream any more, since its threads take turns. */
enum { HANDOVERS_MAX = 4 };

/* So many blocks, or bytes, of remote frees are sent together. */
enum { REMOTE_BLOCKS = 32 };
#define REMOTE_BYTES ((size_t)1 << 20)

/* ---- shutting out ---- */

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
 * cheap barriers from now on, this barrier still worked, but no thread may enter its cache again.
 * Then no later take-over needs a barrier: other threads see the `attention` stored before this
 * barrier, and the caller sees its own store.
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
 * Why an owner and a thread that takes over are never in one cache at the same time, however the
 * processors reorder. The steps of one entry by the owner, and those of the other:
 *
 *   o1  is_busy = 1                            c1  attention = TAKEN_OVER
 *   o2  load attention; not 0: o4, and stay    c2  a barrier in every thread
 *       out (acquire)                          c3  load is_busy until it is 0 (acquire)
 *   o3  touch the cache                        c4  touch the cache
 *   o4  is_busy = 0 (release)                  c5  attention = 0 (release)
 *
 * c2 puts a full fence at some point F of the owner's program, after c1 and before c3. c3 sees all
 * that the owner did before F, and all that the owner does after F sees c1. If the thread does not
 * run at that time, the kernel's context switch is its fence. Every entry of the owner is in one of
 * two cases:
 *   - o2 lies after F. Then o2 reads c1's store, and the owner stays out; or it reads a later store
 *     to `attention`, such as c5's 0, and by release and acquire o3 comes after c4.
 *   - o2 lies before F, and so does o1. If o2 reads 0, the owner goes in. Then c3 reads o1's 1, or
 *     a later store of the owner's, and waits until it reads a 0. That 0 is the store of o4, in
 *     this entry or a later one, so by release and acquire c4 comes after o3.
 * A signal fence keeps the compiler from exchanging o1 and o2; the processor may exchange them.
 * Without c2, the owner may do o2 before o1 is visible: then both go in.
 * tests/orders runs it under every schedule, also with stores that are seen as late as can be.
 */
void ashlar__caches_take_over_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    const ashlar_cache *own = ashlar__cache_recent;
    if (a->are_caches_taken_over) {
        return;
    }
    a->are_caches_taken_over = true;
    if (!is_alone(a, own)) {
        set_attention(a, own, ASHLAR_CACHE_TAKEN_OVER | ashlar__cache_watched(a));
        put_barrier_locked(a, own);
    }
    for (ashlar_cache *cache = a->caches; cache != NULL; cache = cache->next) {
        while (cache != own && atomic_load_explicit(&cache->is_busy, memory_order_acquire) != 0) {
            sched_yield(); /* the owner is inside a hit, and may wait for a processor: let it have
                              this one */
        }
        ashlar__heap_catch_up(&a->heap, cache->use_clock);
    }
}

void ashlar__caches_hand_back_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    if (a->are_caches_taken_over && !is_alone(a, ashlar__cache_recent)) {
        set_attention(a, ashlar__cache_recent, ashlar__cache_watched(a));
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
        atomic_store_explicit(&ashlar__cache_recent->attention, ashlar__cache_watched(a),
                              memory_order_release);
    }
}

/* ---- holding a stream ---- */

/* Nobody may hold a watched stream: blocks freed on it must get their stamps while it is alive. */
static bool may_be_held(const ashlar_allocator *a, const ashlar_stream_state *state) {
    return state->handovers < HANDOVERS_MAX && a->heap.range.segments == NULL &&
           !a->client.watches_streams && !state->is_pool && !state->is_idle &&
           state->pool == NULL && !ashlar__stream_state_has_ended(state);
}

void ashlar__hold_drop_locked(ashlar_allocator *a, ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    const ashlar_cache *holder = ashlar__holder_of(state);
    ASHLAR_CHECK2(holder == NULL || ashlar__cache_may_touch(holder));
    atomic_store_explicit(&state->holder, NULL, memory_order_relaxed);
}

void ashlar__hold_locked(ashlar_allocator *a, ashlar_cache *own, ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    const ashlar_cache *holder = ashlar__holder_of(state);
    if (holder == own) {
        return;
    }
    if (holder != NULL) {
        ashlar__caches_take_over_locked(a);
        ashlar__hold_drop_locked(a, state);
        state->handovers++;
    }
    if (own != NULL && may_be_held(a, state)) {
        atomic_store_explicit(&state->holder, own, memory_order_relaxed);
    }
}

/* ---- blocks of a stream that other threads have freed ---- */

void ashlar__returned_add(ashlar_stream_state *state, ashlar_block *newest, ashlar_block *oldest) {
    oldest->older = atomic_load_explicit(&state->returned, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&state->returned, &oldest->older, newest,
                                                  memory_order_release, memory_order_relaxed)) {
    }
}

void ashlar__remote_send(ashlar_cache *cache) {
    ASHLAR_MAY_TOUCH(cache);
    const ashlar_remote_frees remote = cache->remote;
    if (remote.count > 0) {
        cache->remote = (ashlar_remote_frees){0};
        ashlar__returned_add(remote.newest->stream_state, remote.newest, remote.oldest);
    }
}

bool ashlar__is_remote(const ashlar_cache *own, const ashlar_block *block) {
    const ashlar_cache *holder = ashlar__holder_of(block->stream_state);
    return holder != NULL && holder != own;
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

/* Take the blocks that were sent to a stream, linked by `older`. */
static ashlar_block *take_returned(ashlar_stream_state *state) {
    return atomic_load_explicit(&state->returned, memory_order_relaxed) != NULL
               ? atomic_exchange_explicit(&state->returned, NULL, memory_order_acquire)
               : NULL;
}

void ashlar__returned_take_in(ashlar_cache *own, ashlar_magazines *m) {
    ashlar_allocator *a = own->allocator;
    for (ashlar_block *next, *block = take_returned(m->stream_state); block != NULL; block = next) {
        next = block->older;
        block->list = (uint16_t)ashlar__cache_list(block->bytes);
        if (block->list == ASHLAR_CACHE_LARGE_LIST || !ashlar__cache_push(own, m, block)) {
            ashlar__release_own_block(&a->heap, block);
        }
    }
}

void ashlar__returned_put_locked(ashlar_allocator *a, ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    for (ashlar_block *next, *block = take_returned(state); block != NULL; block = next) {
        next = block->older;
        ashlar__release_block_locked(&a->heap, block, state);
    }
}

size_t ashlar__returned_bytes_locked(const ashlar_allocator *a) {
    size_t bytes = 0;
    for (const ashlar_stream_state *state = a->stream_states; state != NULL; state = state->next) {
        const ashlar_block *block = atomic_load_explicit(&state->returned, memory_order_acquire);
        for (; block != NULL; block = block->older) {
            bytes += block->bytes;
        }
    }
    return bytes;
}
