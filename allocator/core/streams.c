/*
 * streams.c - which record belongs to a stream handle, from its first use to its end.
 */
#include "allocator/core/streams.h"

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/core/shared.h"

/*
 * Every allocator of the process, so that ashlar_stream_destroy() can tell those of its device.
 * The list's lock is taken before an allocator's.
 */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static ashlar_allocator *allocators;

/* Records of streams that are gone are looked through for ones without blocks when so many are. */
enum { GONE_MAX = 16 };

static bool is_per_thread(ashlar_stream stream) {
    return (uintptr_t)stream == CU_STREAM_PER_THREAD;
}

static bool answers_to(const ashlar_order *order, ashlar_stream named) {
    return order->stream == named && !order->is_gone && !order->is_pool && !order->is_idle &&
           !ashlar_order_is_others(order);
}

static ashlar_order *find_order(const ashlar_allocator *a, ashlar_stream named) {
    if (a->recent != NULL && answers_to(a->recent, named)) {
        return a->recent;
    }
    ashlar_order *order = a->orders;
    while (order != NULL && !answers_to(order, named)) {
        order = order->next;
    }
    return order;
}

/* ---- the end of a record ---- */

static void mark_referenced(const ashlar_allocator *a) {
    for (ashlar_order *order = a->orders; order != NULL; order = order->next) {
        order->is_referenced = false;
    }
    ashlar_planner_mark_referenced(&a->planner);
    for (const ashlar_cache *cache = a->caches; cache != NULL; cache = cache->next) {
        if (cache->run != NULL) {
            ashlar_recording_mark_referenced(&cache->run->recording);
        }
    }
    for (const ashlar_block *block = a->heap.first; block != NULL;
         block = ashlar_block_after(block)) {
        if (block->order != NULL) {
            block->order->is_referenced = true;
        }
        const bool is_shared = ashlar_block_is_shared(block);
        for (const ashlar_use *use = is_shared ? block->uses : NULL; use != NULL;
             use = use->next) {
            use->order->is_referenced = true;
        }
    }
}

void ashlar_order_delete_locked(ashlar_allocator *a, ashlar_order *order) {
    ashlar_order **link = &a->orders;
    while (*link != order) {
        link = &(*link)->next;
    }
    *link = order->next;
    a->recent = NULL;
    ashlar_order_finish(order, &a->caller);
    ashlar_host_free(order);
}

/* No request will name it, nor will its pool end. */
static bool is_over(const ashlar_order *order) {
    return (order->is_gone || order->is_ended) && !order->is_pool && order->pool == NULL &&
           order->waiter_count == 0;
}

/* Delete records of streams that are gone and whose last block is gone too. */
static void drop_gone_locked(ashlar_allocator *a) {
    size_t gone = 0;
    for (const ashlar_order *order = a->orders; order != NULL; order = order->next) {
        gone += is_over(order);
    }
    if (gone < GONE_MAX) {
        return;
    }
    mark_referenced(a);
    for (ashlar_order *next, *order = a->orders; order != NULL; order = next) {
        next = order->next;
        if (is_over(order) && !order->is_referenced) {
            /* Of a stream that was found to be gone there may be empty magazines. */
            ashlar_caches_forget_order_locked(a, order);
            ashlar_order_delete_locked(a, order);
        }
    }
}

/* ---- finding and making ---- */

ashlar_status ashlar_order_new_locked(ashlar_allocator *a, ashlar_stream stream,
                                      ashlar_order **out) {
    drop_gone_locked(a);
    ashlar_order *order = ashlar_host_calloc(1, sizeof *order);
    if (order == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory for the record of a stream");
    }
    order->stream = stream;
    if (is_per_thread(stream)) {
        order->thread = ashlar_thread_number();
    } else if (stream != NULL) {
        const ashlar_status status = ashlar_order_identify(order, &a->caller);
        if (status != ASHLAR_OK) {
            ashlar_host_free(order);
            return status;
        }
    }
    order->next = a->orders;
    a->orders = order;
    *out = order;
    return ASHLAR_OK;
}

ashlar_status ashlar_order_of_locked(ashlar_allocator *a, ashlar_stream stream,
                                     ashlar_order **out) {
    const ashlar_stream named = ashlar_stream_named(stream);
    ashlar_order *order = find_order(a, named);
    if (order == NULL) {
        const ashlar_status status = ashlar_order_new_locked(a, named, &order);
        if (status != ASHLAR_OK) {
            return status;
        }
    }
    a->recent = order;
    *out = order;
    return ASHLAR_OK;
}

ashlar_status ashlar_order_idle_locked(ashlar_allocator *a, ashlar_order **out) {
    ashlar_status status = ASHLAR_OK;
    if (a->idle_order == NULL) {
        status = ashlar_order_new_locked(a, NULL, &a->idle_order);
    }
    if (status == ASHLAR_OK) {
        a->idle_order->is_idle = true;
        *out = a->idle_order;
    }
    return status;
}

void ashlar_caches_forget_order_locked(ashlar_allocator *a, const ashlar_order *order) {
    ashlar_caches_claim_locked(a, ashlar_cache_recent);
    for (ashlar_cache *cache = a->caches; cache != NULL; cache = cache->next) {
        ashlar_cache_forget_locked(cache, order);
    }
    ashlar_caches_release_locked(a, ashlar_cache_recent);
}

static ashlar_status forget_locked(ashlar_allocator *a, ashlar_stream stream) {
    ashlar_order *order = find_order(a, ashlar_stream_named(stream));
    if (order == NULL) {
        return ASHLAR_OK;
    }
    if (order->pool != NULL) {
        return ashlar_fail(ASHLAR_EINVAL, "stream: it is being captured; end its pool first");
    }
    ashlar_caches_forget_order_locked(a, order);
    /* Also for blocks that are still live: what they were used for on the stream comes before. */
    const ashlar_status status =
        ashlar_order_cover(order, &a->caller, order->recorded, &a->stats.events_recorded);
    if (status == ASHLAR_OK) {
        order->is_gone = true;
        a->recent = NULL;
    }
    return status;
}

ashlar_status ashlar_forget_stream(ashlar_allocator *a, ashlar_stream stream) {
    pthread_mutex_lock(&a->lock);
    const ashlar_status status = forget_locked(a, stream);
    pthread_mutex_unlock(&a->lock);
    return status;
}

/* ---- every allocator ---- */

/* Tell every allocator of the device that a stream is about to be destroyed. */
static void forget_everywhere(const ashlar_device *device, ashlar_stream stream) {
    pthread_mutex_lock(&list_lock);
    for (ashlar_allocator *a = allocators; a != NULL; a = a->next) {
        if (a->device->context == device->context) {
            /* Where no event can be recorded, the stream's absence is found out later. */
            const ashlar_status unused = ashlar_forget_stream(a, stream);
            (void)unused;
        }
    }
    pthread_mutex_unlock(&list_lock);
}

void ashlar_allocator_enlist(ashlar_allocator *a) {
    ashlar_device_on_stream_end(forget_everywhere);
    pthread_mutex_lock(&list_lock);
    a->next = allocators;
    allocators = a;
    pthread_mutex_unlock(&list_lock);
}

void ashlar_allocator_delist(ashlar_allocator *a) {
    pthread_mutex_lock(&list_lock);
    ashlar_allocator **link = &allocators;
    while (*link != NULL && *link != a) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = a->next;
    }
    pthread_mutex_unlock(&list_lock);
}
