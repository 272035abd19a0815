/*
 * allocator_impl.h - the fields of an allocator and the locks that guard them (internal).
 */
#ifndef ASHLAR_ALLOCATOR_IMPL_H
#define ASHLAR_ALLOCATOR_IMPL_H

#include <stddef.h>

#include <ashlar/allocator.h>

#include "allocator/base/lock.h"
#include "allocator/core/cache.h"
#include "allocator/guard/guard.h"
#include "allocator/heap/heap.h"
#include "allocator/plan/planner.h"
#include "allocator/trace/nvtx_memory.h"
#include "allocator/trace/trace_ring.h"

/* The constants that every hit reads. They share no cache line with data that is written later. */
typedef struct ashlar_hit_constants {
    uint64_t id; /* never 0; no other allocator of the process ever has it */
    cu_ptr base; /* of the heap's range */
    size_t range_bytes;
    size_t unpublished_bytes; /* a thread whose live bytes changed by more publishes; counters.h */
    ashlar_page_map map;      /* a copy of heap.map */
    unsigned char padding[ASHLAR_CACHE_LINE];
} ashlar_hit_constants;
_Static_assert(sizeof(ashlar_hit_constants) - offsetof(ashlar_hit_constants, padding) >=
                   ASHLAR_CACHE_LINE,
               "no line of the constants has fields behind them");

struct ashlar_allocator {
    ashlar_hit_constants constants;
    ashlar_allocator *next;          /* in the process's list. Lock: the list's, in streams.c */
    ashlar_device *device;           /* const */
    size_t cache_bytes;              /* const; the most one thread's cache may hold; 0: no caches */
    ashlar_trace ring;               /* client.trace points here; it is NULL if nobody is told */
    ashlar_nvtx_memory *nvtx;        /* const; the ring's listener; NULL: there is none */
    bool reports_leaks;              /* const */
    bool zeroes_blocks;              /* const; each block is cleared before it is handed out */
    uint32_t fork_count;             /* const; forks before the allocator was made; forked.h */
    ashlar_guards guards;            /* const */
    ashlar_allocator *next_reported; /* Lock: the list's, in leaks.c */
    ashlar_lock lock;                /* guards everything below */
    ashlar_report_fn report;         /* NULL: nothing is reported */
    void *report_user;
    ashlar_driver_client client;
    ashlar_heap heap;
    ashlar_stream_state *stream_states; /* of streams, pools and idle blocks; newest first */
    ashlar_stream_state *buckets[ASHLAR_STREAM_BUCKETS]; /* the same, by their handles */
    ashlar_stream_state *recent;            /* found last: the next call mostly wants it again */
    ashlar_stream_state *idle_stream_state; /* one of stream_states; NULL until first wanted */
    ashlar_cache *caches;                   /* one for each thread that allocates */
    bool bypasses_caches;                   /* every call takes the slow path */
    bool are_hits_over;                     /* for good: the kernel refuses barriers from now on */
    unsigned claim_depth;                   /* > 0: other threads are shut out of their caches */
    bool is_shut_to_end;    /* one of these claims lasts until the lock is released */
    uint64_t settle_count;  /* waits for the whole device that have begun */
    ashlar_block *deferred; /* freed, but any stream may still use them; see deferred_free.h */
    size_t deferred_bytes;
    ashlar_counters counters; /* of threads without a cache; published at the end of every call */
    ashlar_planner planner;
    /* The sums that threads have published; ashlar__stats_sum_claimed() adds the other fields. */
    ashlar_stats stats;
    uint64_t calls_at_seal;
    ashlar_seal_policy seal;
    ashlar_warn_fn warn; /* NULL: none; called without the lock, as is `reclaim` */
    void *warn_user;
    ashlar_reclaim_fn reclaim; /* NULL: none */
    void *reclaim_user;
};

/* The one handle that stands for a stream: CU_STREAM_LEGACY also names the default stream, NULL. */
static inline ashlar_stream ashlar__stream_named(ashlar_stream stream) {
    return (uintptr_t)stream == CU_STREAM_LEGACY ? NULL : stream;
}

/*
 * Like ashlar_allocator_create_with(), but `kind` chooses the memory, and not the options.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__allocator_create_in(ashlar_device *device,
                                                            const ashlar_config *config,
                                                            ashlar_range_kind kind,
                                                            ashlar_allocator **out);

/*
 * Go on as if the device had no more than `bytes` of memory, of which none is taken yet: limit and
 * thread caches are those of such a device.
 */
void ashlar__allocator_pretend(ashlar_allocator *allocator, size_t bytes);

/* Read a program's options, with the default for each field that is 0. Errors: those of
 * ashlar_config_check(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__config_take(ashlar_config *out, const ashlar_config *config,
                                                    size_t config_bytes);

#endif /* ASHLAR_ALLOCATOR_IMPL_H */
