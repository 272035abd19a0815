/*
 * hold.c - shutting threads out of their caches, choosing the thread that holds a stream, and
 * sending freed blocks to that thread.
 */
#include "allocator/core/core.h"

#include <sched.h>

/* After this many handovers nobody holds the stream any more, since its threads take turns. */
enum { HANDOVERS_MAX = 4 };

/* An outbox with this many blocks, or this many bytes, is sent. */
enum { OUTBOX_BLOCKS = 32 };
#define OUTBOX_BYTES ((size_t)1 << 20)

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

static bool is_alone(const ashlar_allocator *a, const ashlar_cache *own) {
    return a->caches == NULL || (a->caches == own && own->next == NULL);
}

/*
 * Put a barrier between the stores to `attention` and the loads of `is_busy`. If the kernel refuses
 * cheap barriers from now on, this barrier still worked, but no thread may enter its cache again.
 * Then no later claim needs a barrier: other threads see the `attention` stored before this
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
 * Why an owner and a claimer are never in one cache at the same time, however the processors
 * reorder. The steps of one entry by the owner, and those of the claimer:
 *
 *   o1  is_busy = 1                            c1  attention = CLAIMED
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
void ashlar__caches_claim_locked(ashlar_allocator *a, const ashlar_cache *own) {
    ASHLAR_OWNS(&a->lock);
    if (a->claim_depth++ > 0) {
        return;
    }
    if (!is_alone(a, own)) {
        set_attention(a, own, ASHLAR_CACHE_CLAIMED | ashlar__cache_watched(a));
        put_barrier_locked(a, own);
    }
    for (ashlar_cache *cache = a->caches; cache != NULL; cache = cache->next) {
        while (cache != own && atomic_load_explicit(&cache->is_busy, memory_order_acquire) != 0) {
            sched_yield(); /* the owner is in the middle of a hit, and may have lost its core */
        }
        ashlar__heap_catch_up(&a->heap, cache->use_clock);
    }
    ASHLAR_CHECK3(are_all_touchable(a));
}

void ashlar__caches_release_locked(ashlar_allocator *a, const ashlar_cache *own) {
    ASHLAR_OWNS(&a->lock);
    ASHLAR_CHECK2(a->claim_depth > 0);
    if (--a->claim_depth == 0 && !is_alone(a, own)) {
        set_attention(a, own, ashlar__cache_watched(a));
    }
}

void ashlar__shut_out_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    if (!a->is_shut_to_end) {
        a->is_shut_to_end = true;
        ashlar__caches_claim_locked(a, ashlar__cache_recent);
    }
}

void ashlar__allocator_enter(ashlar_allocator *a) {
    ashlar__lock_acquire(&a->lock);
    ashlar__shut_out_locked(a);
}

void ashlar__let_in_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    if (a->is_shut_to_end) {
        a->is_shut_to_end = false;
        ashlar__caches_release_locked(a, ashlar__cache_recent);
    }
    ASHLAR_CHECK2(a->claim_depth == 0);
}

void ashlar__allocator_leave(ashlar_allocator *a) {
    ashlar__let_in_locked(a);
    ashlar__lock_release(&a->lock);
}

void ashlar__caches_update_bypass_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    /* The outermost release informs the other threads. */
    ashlar__caches_claim_locked(a, ashlar__cache_recent);
    if (ashlar__cache_recent->allocator == a) {
        atomic_store_explicit(&ashlar__cache_recent->attention, ashlar__cache_watched(a),
                              memory_order_release);
    }
    ashlar__caches_release_locked(a, ashlar__cache_recent);
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
        ashlar__shut_out_locked(a);
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

void ashlar__outbox_send(ashlar_cache *cache) {
    ASHLAR_MAY_TOUCH(cache);
    const ashlar_outbox outbox = cache->outbox;
    if (outbox.count > 0) {
        cache->outbox = (ashlar_outbox){0};
        ashlar__returned_add(outbox.newest->stream_state, outbox.newest, outbox.oldest);
    }
}

bool ashlar__outbox_wants(const ashlar_cache *own, const ashlar_block *block) {
    const ashlar_cache *holder = ashlar__holder_of(block->stream_state);
    return holder != NULL && holder != own;
}

void ashlar__outbox_add(ashlar_cache *own, ashlar_block *block) {
    ASHLAR_CHECK2(own->thread == ashlar__thread_number() && block->marks == 0);
    ASHLAR_CHECK2(block->requested == 0);
    ashlar_outbox *outbox = &own->outbox;
    if (outbox->count > 0 && outbox->newest->stream_state != block->stream_state) {
        ashlar__outbox_send(own);
    }
    outbox->oldest = outbox->count == 0 ? block : outbox->oldest;
    block->older = outbox->newest;
    outbox->newest = block;
    outbox->count++;
    outbox->bytes += block->bytes;
    if (outbox->count == OUTBOX_BLOCKS || outbox->bytes >= OUTBOX_BYTES) {
        ashlar__outbox_send(own);
    }
}

ashlar_block *ashlar__returned_take(ashlar_stream_state *state) {
    return atomic_load_explicit(&state->returned, memory_order_relaxed) != NULL
               ? atomic_exchange_explicit(&state->returned, NULL, memory_order_acquire)
               : NULL;
}

void ashlar__returned_take_in(ashlar_cache *own, ashlar_magazines *m) {
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

void ashlar__returned_put_locked(ashlar_allocator *a, ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    for (ashlar_block *next, *block = ashlar__returned_take(state); block != NULL; block = next) {
        next = block->older;
        ashlar__release_block_locked(&a->heap, block, state);
    }
}

size_t ashlar__returned_bytes_claimed(const ashlar_allocator *a) {
    size_t bytes = 0;
    for (const ashlar_stream_state *state = a->stream_states; state != NULL; state = state->next) {
        const ashlar_block *block = atomic_load_explicit(&state->returned, memory_order_acquire);
        for (; block != NULL; block = block->older) {
            bytes += block->bytes;
        }
    }
    return bytes;
}
