/*
 * allocator_impl.h - what an allocator is inside the library (internal).
 */
#ifndef ASHLAR_ALLOCATOR_IMPL_H
#define ASHLAR_ALLOCATOR_IMPL_H

#include <ashlar/allocator.h>

#include "allocator/base/lock.h"
#include "allocator/core/cache.h"
#include "allocator/guard/guard.h"
#include "allocator/heap/heap.h"
#include "allocator/plan/planner.h"
#include "allocator/trace/trace_ring.h"

/* What a hit reads: never written after creation, and on no line with what is. */
typedef struct ashlar_hit_constants {
    uint64_t id; /* of this allocator alone, also after its end; never 0 */
    cu_ptr base; /* of the heap's range */
    size_t range_bytes;
    ashlar_page_map map; /* the heap's */
    unsigned char padding[ASHLAR_CACHE_LINE];
} ashlar_hit_constants;

struct ashlar_allocator {
    ashlar_hit_constants constants;
    ashlar_allocator *next;         /* of the process. Lock: that of the list; see streams.c */
    ashlar_device *device;          /* const */
    size_t cache_bytes;             /* const; what one thread's cache may hold, 0: there are none */
    ashlar_trace ring;              /* what caller.trace is, unless that is NULL */
    bool reports_leaks;             /* const */
    ashlar_guards guards;           /* const */
    ashlar_allocator *next_reported; /* Lock: that of leaks.c */
    ashlar_lock lock;               /* guards everything below */
    ashlar_report_fn report;        /* NULL: nobody is told */
    void *report_user;
    ashlar_driver_client client;
    ashlar_heap heap;
    ashlar_stream_state
        *stream_states; /* one for each stream seen; never removed, new ones in front */
    ashlar_stream_state
        *recent;          /* the one asked for last, as the next call mostly asks for it again */
    ashlar_cache *caches; /* one for each thread that allocates */
    bool bypasses_caches; /* every call is to take the slow path */
    ashlar_block *shared; /* freed, but several streams may not be done: see shared.h */
    ashlar_block *deferred; /* freed, and any stream may not be done: see deferred_free.h */
    size_t shared_bytes;
    ashlar_stream_state *idle_stream_state; /* one of `states`; NULL until first wanted */
    /* Of threads without a cache. As the caches' ones after a publication, between two calls. */
    ashlar_counters counters;
    ashlar_planner planner;
    /* Published, but for what ashlar_allocator_get_stats fills in: some threads' changes are not in
     * it. */
    ashlar_stats stats;
    uint64_t calls_at_seal;
    ashlar_seal_policy seal;
    ashlar_warn_fn warn; /* NULL: none; called with the lock dropped, as is `reclaim` */
    void *warn_user;
    ashlar_reclaim_fn reclaim; /* NULL: none */
    void *reclaim_user;
};

/* CU_STREAM_LEGACY is another name of the default stream. */
static inline ashlar_stream ashlar__stream_named(ashlar_stream stream) {
    return (uintptr_t)stream == CU_STREAM_LEGACY ? NULL : stream;
}

/* As ashlar_allocator_create_with(), for memory of a kind; `virtual_memory` is not asked. */
ASHLAR_MUST_CHECK ashlar_status ashlar__allocator_create_in(ashlar_device *device,
                                                            const ashlar_config *config,
                                                            ashlar_range_kind kind,
                                                            ashlar_allocator **out);

#endif /* ASHLAR_ALLOCATOR_IMPL_H */
