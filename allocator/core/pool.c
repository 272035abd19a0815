/*
 * pool.c - the blocks of a captured graph, from its capture to its end.
 *
 * A pool is a record like a stream's, without events: its free blocks are never past, so nobody but
 * a request of the same capture finds them, and they do not merge with idle memory.
 */
#include <ashlar/pool.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/core/allocator_impl.h"
#include "allocator/core/shared.h"
#include "allocator/core/streams.h"

/* Lock: the allocator's. */
struct ashlar_pool {
    ashlar_allocator *allocator; /* const */
    ashlar_order *order;         /* const; the pool's */
    ashlar_order *home;          /* the stream's, while it is captured; else NULL */
};

static ashlar_status begin_locked(ashlar_allocator *a, ashlar_stream stream, ashlar_pool *pool) {
    ashlar_order *home = NULL, *order = NULL;
    ashlar_status status = ashlar_order_of_locked(a, stream, &home);
    if (status == ASHLAR_OK && home->pool != NULL) {
        status = ashlar_fail(ASHLAR_EINVAL, "stream: it has a pool already; end that one first");
    }
    if (status == ASHLAR_OK) {
        status = ashlar_order_new_locked(a, home->stream, &order);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    ashlar_caches_forget_order_locked(a, home);
    order->is_pool = true;
    home->pool = order;
    atomic_fetch_add(&a->device->driver->capture_count, 1);
    *pool = (ashlar_pool){.allocator = a, .order = order, .home = home};
    return ASHLAR_OK;
}

ashlar_status ashlar_pool_begin(ashlar_allocator *a, ashlar_stream stream, ashlar_pool **out) {
    if (ashlar_stream_named(stream) == NULL) {
        return ashlar_fail(ASHLAR_EINVAL, "stream: the legacy default stream cannot be captured");
    }
    ashlar_pool *pool = ashlar_host_calloc(1, sizeof *pool);
    if (pool == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory for a pool");
    }
    pthread_mutex_lock(&a->lock);
    const ashlar_status status = begin_locked(a, stream, pool);
    pthread_mutex_unlock(&a->lock);
    if (status != ASHLAR_OK) {
        ashlar_host_free(pool);
        return status;
    }
    *out = pool;
    return ASHLAR_OK;
}

void ashlar_pool_end(ashlar_pool *pool) {
    ashlar_allocator *a = pool->allocator;
    pthread_mutex_lock(&a->lock);
    if (pool->home != NULL) {
        ashlar_caches_forget_order_locked(a, pool->order);
        pool->order->is_ended = true;
        pool->home->pool = NULL;
        pool->home = NULL;
        atomic_fetch_sub(&a->device->driver->capture_count, 1);
    }
    pthread_mutex_unlock(&a->lock);
}

/* The pool's blocks are `to`'s. Other threads' hits look at what is written here: shut them out. */
static void hand_over_locked(ashlar_allocator *a, ashlar_order *from, ashlar_order *to) {
    ashlar_caches_claim_locked(a, ashlar_cache_recent);
    ashlar_shared_rehome_locked(a, from, to);
    for (ashlar_block *block = a->heap.first; block != NULL; block = block->next) {
        if (block->order == from && block->state == ASHLAR_BLOCK_USED) {
            block->order = to;
        }
    }
    to->last_tick = ashlar_order_stamp(to);
    ashlar_heap_restamp(&a->heap, from, to, to->last_tick);
    ashlar_caches_release_locked(a, ashlar_cache_recent);
}

static ashlar_status release_locked(ashlar_pool *pool, ashlar_stream stream) {
    ashlar_allocator *a = pool->allocator;
    ashlar_order *to = NULL;
    if (pool->home != NULL) {
        return ashlar_fail(ASHLAR_EINVAL, "pool: its capture has not ended; ashlar_pool_end() it");
    }
    const ashlar_status status = ashlar_order_of_locked(a, stream, &to);
    if (status == ASHLAR_OK) {
        hand_over_locked(a, pool->order, to);
        ashlar_order_delete_locked(a, pool->order);
    }
    return status;
}

ashlar_status ashlar_pool_release(ashlar_pool *pool, ashlar_stream stream) {
    if (pool == NULL) {
        return ASHLAR_OK;
    }
    ashlar_allocator *a = pool->allocator;
    pthread_mutex_lock(&a->lock);
    const ashlar_status status = release_locked(pool, stream);
    pthread_mutex_unlock(&a->lock);
    if (status == ASHLAR_OK) {
        ashlar_host_free(pool);
    }
    return status;
}
