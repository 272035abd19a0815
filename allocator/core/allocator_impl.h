/*
 * allocator_impl.h - the fields of an allocator and the locks that guard them (internal).
 */
#ifndef ASHLAR_ALLOCATOR_IMPL_H
#define ASHLAR_ALLOCATOR_IMPL_H

#include <stddef.h>

#include <ashlar/allocator.h>

#include "allocator/base/lock.h"
#include "allocator/core/cache.h"
#include "allocator/guard/guard_fill.h"
#include "allocator/heap/heap.h"
#include "allocator/plan/planner.h"
#include "allocator/trace/nvtx_memory.h"
#include "allocator/trace/trace_ring.h"

/*
 * The constants that every hit reads. They share no cache line with data that is written after the
 * allocator's creation.
 */
typedef struct ashlar_hit_constants {
    uint64_t id; /* never 0, and unique among all allocators of the process */
    cu_ptr base; /* start of the heap's address range */
    size_t range_bytes;
    size_t unpublished_bytes; /* a thread publishes larger changes of live bytes; counters.h */
    ashlar_page_map map;      /* a copy of heap.map */
    unsigned char padding[ASHLAR_CACHE_LINE];
} ashlar_hit_constants;
_Static_assert(sizeof(ashlar_hit_constants) - offsetof(ashlar_hit_constants, padding) >=
                   ASHLAR_CACHE_LINE,
               "no line of the constants has fields behind them");

typedef struct ashlar_allocator_acts ashlar_allocator_acts;

/* What other allocators hold of a device's memory. */
typedef struct ashlar_others {
    size_t count, reserved_bytes;
    size_t idle_bytes; /* of them, in no block */
} ashlar_others;

struct ashlar_allocator {
    ashlar_hit_constants constants;
    ashlar_allocator *next;          /* next in the process's list. Lock: list_lock in
                                      * allocators.c */
    const ashlar_allocator_acts *acts; /* const; for allocators.c */
    size_t visitor_count;            /* threads that have it give memory back. Lock: list_lock */
    ashlar_device *device;           /* const */
    size_t cache_bytes;              /* const; the most bytes of one thread's cache; 0: no caches */
    ashlar_trace ring;               /* client.trace points here, or is NULL if nobody wants
                                      * events */
    ashlar_nvtx_memory *nvtx;        /* const; receives the events of `ring`; NULL: none */
    bool reports_leaks;              /* const */
    bool zeroes_blocks;              /* const; clears each block before handing it out */
    uint32_t fork_count;             /* const; ashlar__fork_count at the creation; see forked.h */
    ashlar_guard_fill *guard_fill;   /* const; NULL: no guard */
    ashlar_allocator *next_reported; /* next in the list of leaks.c. Lock: watch_lock in leaks.c */
    ashlar_lock lock;                /* guards all fields below */
    ashlar_report_fn report;         /* NULL: no reports */
    void *report_user;
    ashlar_driver_client client;
    ashlar_heap heap;
    ashlar_stream_state *stream_states; /* of all streams and graph pools, and `idle_stream_state`;
                                           newest first */
    ashlar_stream_state *buckets[ASHLAR_STREAM_BUCKETS]; /* stream_states, hashed by handle */
    ashlar_stream_state *recent;            /* found last; the next call mostly wants the same
                                               one */
    ashlar_stream_state *idle_stream_state; /* of blocks that any stream may use (deferred_free.h);
                                               NULL before the first one */
    ashlar_cache *caches;                   /* one for each thread that has allocated */
    bool bypasses_caches;                   /* every call takes the slow path */
    bool are_hits_over;                     /* no thread enters its cache again, since the kernel
                                             * now refuses barriers */
    unsigned claim_depth;                   /* > 0: other threads are shut out of their caches */
    bool is_shut_to_end;                    /* one claim lasts until the lock is released */
    ashlar_block *deferred; /* freed blocks that any stream may still use, oldest first; see
                             * deferred_free.h */
    ashlar_block *newest_deferred;
    size_t deferred_bytes;
    _Atomic uint64_t
        release_count;        /* how often deferred blocks became free; read without the lock */
    ashlar_counters counters; /* of threads without a cache; published when a call ends */
    ashlar_planner planner;
    /*
     * The sums of what threads have published; ashlar__stats_sum_claimed() adds the other fields.
     */
    ashlar_stats stats;
    uint64_t calls_at_seal;
    ashlar_seal_policy seal;
    ashlar_warn_fn warn; /* NULL: none; called without the lock, like `reclaim` */
    void *warn_user;
    ashlar_others others; /* what the device's other allocators held when memory last ran out */
    ashlar_reclaim_fn reclaim; /* NULL: none */
    void *reclaim_user;
};

/*
 * The handle by which a stream is known here: NULL for the default stream, which CU_STREAM_LEGACY
 * also names, and otherwise the given one.
 */
static inline ashlar_stream ashlar__stream_named(ashlar_stream stream) {
    return (uintptr_t)stream == CU_STREAM_LEGACY ? NULL : stream;
}

/* Like ashlar_allocator_create_with(), but `kind`, not the options, chooses the kind of memory. */
ASHLAR_MUST_CHECK ashlar_status ashlar__allocator_create_in(ashlar_device *device,
                                                            const ashlar_config *config,
                                                            ashlar_range_kind kind,
                                                            ashlar_allocator **out);

/*
 * Behave as if the device had only `bytes` of memory and none were in use: the limit and the thread
 * caches become those of such a device.
 */
void ashlar__allocator_pretend(ashlar_allocator *allocator, size_t bytes);

/*
 * _keep_events: from now on keep this many of the newest events, unless the allocator keeps some.
 * _listen: from now on tell a listener of all events, instead of the one that has its place in
 * `ring`. Call both before anybody allocates.
 *
 * Lock: held, unless nobody else knows the allocator yet. Errors: those of ashlar__trace_init().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__allocator_keep_events(ashlar_allocator *allocator,
                                                              uint64_t event_count);
void ashlar__allocator_listen(ashlar_allocator *allocator, int place,
                              ashlar_trace_listener listener);

/* Read a program's options, with the default for each field that is 0. Errors: those of
 * ashlar_config_check(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__config_take(ashlar_config *out,
                                                    const ashlar_config *config);

#endif /* ASHLAR_ALLOCATOR_IMPL_H */
