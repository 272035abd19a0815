/*
 * allocator_impl.h - what an allocator is inside the library (internal).
 */
#ifndef ASHLAR_ALLOCATOR_IMPL_H
#define ASHLAR_ALLOCATOR_IMPL_H

#include <pthread.h>

#include <ashlar/allocator.h>

#include "allocator/core/cache.h"
#include "allocator/guard/guard.h"
#include "allocator/heap/heap.h"
#include "allocator/plan/planner.h"
#include "allocator/trace/trace_ring.h"

/* What a hit reads: never written after creation, and on no line with what is. */
typedef struct ashlar_fixed {
    uint64_t id; /* of this allocator alone, also after its end; never 0 */
    cu_ptr base; /* of the heap's range */
    size_t range_bytes;
    ashlar_page_map map; /* the heap's */
    unsigned char apart[ASHLAR_CACHE_LINE];
} ashlar_fixed;

struct ashlar_allocator {
    ashlar_fixed fixed;
    ashlar_allocator *next;         /* of the process. Lock: that of the list; see streams.c */
    ashlar_device *device;          /* const */
    size_t cache_bytes;             /* const; what one thread's cache may hold, 0: there are none */
    ashlar_trace ring;              /* what caller.trace is, unless that is NULL */
    bool reports_leaks;             /* const */
    ashlar_guards guards;           /* const */
    ashlar_allocator *next_watched; /* Lock: that of leaks.c */
    pthread_mutex_t lock;           /* guards everything below */
    ashlar_report_fn report;        /* NULL: nobody is told */
    void *report_user;
    ashlar_caller caller;
    ashlar_heap heap;
    ashlar_order *orders; /* one for each stream seen; never removed, new ones in front */
    ashlar_order *recent; /* the one asked for last, as the next call mostly asks for it again */
    ashlar_cache *caches; /* one for each thread that allocates */
    bool is_watched;      /* every call is to take the slow path */
    ashlar_block *shared; /* freed, but several streams may not be done: see shared.h */
    ashlar_block *retired; /* freed, and any stream may not be done: see retired.h */
    size_t shared_bytes;
    ashlar_order *idle_order; /* one of `orders`; NULL until first wanted */
    /* Of threads without a cache. As the caches' ones after a publication, between two calls. */
    ashlar_counters counters;
    ashlar_planner planner;
    /* Published, but for what ashlar_stats_read fills in: some threads' changes are not in it. */
    ashlar_stats stats;
    uint64_t calls_at_seal;
    ashlar_seal_policy seal;
    ashlar_warn_fn warn; /* NULL: none; called with the lock dropped, as is `reclaim` */
    void *warn_user;
    ashlar_reclaim_fn reclaim; /* NULL: none */
    void *reclaim_user;
};

/* Which step of the ladder served a request: the counter to raise. */
typedef enum ashlar_step {
    ASHLAR_STEP_PLANNED,
    ASHLAR_STEP_CACHED,
    ASHLAR_STEP_SAME_STREAM,
    ASHLAR_STEP_IDLE,
    ASHLAR_STEP_COMPLETED,
    ASHLAR_STEP_WAITED,
    ASHLAR_STEP_MAPPED,
    ASHLAR_STEP_DRAINED,
    ASHLAR_STEP_RECLAIMED,
    ASHLAR_STEP_AFTER_SYNC,
    ASHLAR_STEP_GATHERED,
} ashlar_step;

/* CU_STREAM_LEGACY is another name of the default stream. */
static inline ashlar_stream ashlar_stream_named(ashlar_stream stream) {
    return (uintptr_t)stream == CU_STREAM_LEGACY ? NULL : stream;
}

/* As ashlar_allocator_create_with(), for memory of a kind; `virtual_memory` is not asked. */
ASHLAR_MUST_CHECK ashlar_status ashlar_allocator_create_in(ashlar_device *device,
                                                           const ashlar_config *config,
                                                           ashlar_range_kind kind,
                                                           ashlar_allocator **out);

/* As the public functions, for whatever the calling thread's cache does not settle. */
ASHLAR_MUST_CHECK ashlar_status ashlar_alloc_slow(ashlar_allocator *allocator, size_t bytes,
                                                  ashlar_tag tag, ashlar_stream stream, void **out);
/* The same for a request that the step under way was asked for already. */
ASHLAR_MUST_CHECK ashlar_status ashlar_alloc_unplanned(ashlar_allocator *allocator, size_t bytes,
                                                       ashlar_tag tag, ashlar_stream stream,
                                                       void **out);
ASHLAR_MUST_CHECK ashlar_status ashlar_free_slow(ashlar_allocator *allocator, void *ptr);
/* caller   where the public function returns to */
ASHLAR_MUST_CHECK ashlar_status ashlar_free_from(ashlar_allocator *allocator, void *ptr,
                                                 const void *caller);

/* The record of a stream, not of its pool, made at its first use. Lock: held. Errors:
 * ASHLAR_EHOSTMEM, ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar_order_of_locked(ashlar_allocator *allocator,
                                                       ashlar_stream stream, ashlar_order **out);

/* Count and trace that a block is freed, on the stream that it was taken for. Lock: held. */
void ashlar_note_free_locked(ashlar_allocator *allocator, ashlar_cache *own,
                             const ashlar_block *block);

/* Where the calling thread counts, and its publication if that is due. Lock: held. */
ashlar_counters *ashlar_counters_of(ashlar_allocator *allocator, ashlar_cache *own);
void ashlar_publish_locked(ashlar_allocator *allocator, ashlar_cache *own);

/* Tell the trace, if there is one, of a block. Lock: held. */
void ashlar_note_block_locked(ashlar_allocator *allocator, ashlar_trace_action action,
                              const ashlar_block *block, const ashlar_order *order);

/* The heap's check where the calling thread's cache is in the middle of nothing. O(blocks). */
bool ashlar_is_sound_locked(ashlar_allocator *allocator, const ashlar_cache *own);

/* One consistent sum of every thread's counters. Lock: held; _claimed: and every cache claimed. */
void ashlar_stats_sum_claimed(ashlar_allocator *allocator, ashlar_stats *stats);
void ashlar_stats_sum_locked(ashlar_allocator *allocator, ashlar_stats *stats);

/*
 * The report of a request that cannot be served: ASHLAR_ENOMEM. Lock: held.
 *
 * cause   the last step's own words
 */
ashlar_status ashlar_no_memory_locked(ashlar_allocator *allocator, size_t bytes, ashlar_tag tag,
                                      const char *cause);

/*
 * Tell the oldest finding of the guard mode, if there is one: to the callback, and as
 * ASHLAR_EDAMAGE. Lock: not held.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_guard_take_finding(ashlar_allocator *allocator);

/* Delete a record that nothing refers to. Lock: held. */
void ashlar_order_delete_locked(ashlar_allocator *allocator, ashlar_order *order);

/* Enter the allocator into the process's list, for ashlar_stream_destroy(), and take it out. */
void ashlar_allocator_enlist(ashlar_allocator *allocator);
void ashlar_allocator_delist(ashlar_allocator *allocator);

/* A new record, first of the list. Lock: held. Errors: ASHLAR_EHOSTMEM, ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar_order_new_locked(ashlar_allocator *allocator,
                                                        ashlar_stream stream, ashlar_order **out);

/* Give the blocks of one stream in all caches to the heap, and forget its magazines. Lock: held. */
void ashlar_caches_forget_order_locked(ashlar_allocator *allocator, const ashlar_order *order);

/* The block that `ptr` is the address of. Lock: held. Errors: ASHLAR_EPOINTER. */
ASHLAR_MUST_CHECK ashlar_status ashlar_find_live_locked(ashlar_allocator *allocator,
                                                        const void *ptr, ashlar_block **out);

/*
 * The live block that `ptr` points into: where it begins, and the bytes asked for. Not guard=unmap.
 * Lock: not held. Errors: ASHLAR_EPOINTER. Cost: O(log(blocks)), all caches claimed.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_find_around(ashlar_allocator *allocator, const void *ptr,
                                                   void **base, size_t *bytes);

/*
 * Whether `ptr` points into memory that is reserved, live or not. Not what guard=unmap has mapped.
 * Lock: not held.  Cost: O(chunks).
 */
bool ashlar_has_reserved(ashlar_allocator *allocator, const void *ptr);

/* Whether the seal lets memory be taken. Lock: held. Errors: ASHLAR_ENOMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar_may_map_locked(ashlar_allocator *allocator);

/* To be called after memory was mapped, whatever came of it: the peak of reserved bytes. */
void ashlar_note_mapped_locked(ashlar_allocator *allocator);

/* Have the program's callback give something back. The lock is dropped meanwhile. False: nothing.
 */
bool ashlar_reclaim_locked(ashlar_allocator *allocator, size_t bytes);

/* A request on its way down the ladder. */
typedef struct ashlar_request {
    ashlar_order *order; /* work queued there from now on is to use the block */
    size_t bytes;        /* of the block */
    ashlar_cache *own;   /* the calling thread's cache, or NULL */
    bool is_unplanned;   /* the step under way was asked already */
    bool is_idle;        /* for any streams: of memory that no work uses; see retired.h */
    bool is_at_hand;     /* of what is reserved and free by now */
} ashlar_request;

/*
 * Find a free block that serves the request; it is still free and in its index. Lock: held; may be
 * dropped and taken again meanwhile.
 *
 * Errors: ASHLAR_ENOMEM (the driver's own words in the detail), ASHLAR_EDRIVER, ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_ladder_find_locked(ashlar_allocator *allocator,
                                                          const ashlar_request *request,
                                                          ashlar_block **out, ashlar_step *step);

#endif /* ASHLAR_ALLOCATOR_IMPL_H */
