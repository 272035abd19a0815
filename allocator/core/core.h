/*
 * core.h - the allocator: its fields, the lock that guards them, and the functions by which the
 * files of this folder call each other (internal).
 *
 * A `_locked` function is called with the allocator's lock held. `own` is the calling thread's
 * cache of the allocator, or NULL. The usual errors are ASHLAR_EHOSTMEM and ASHLAR_EDRIVER.
 */
#ifndef ASHLAR_CORE_H
#define ASHLAR_CORE_H

#include <limits.h>
#include <stddef.h>

#include <ashlar/allocator.h>
#include <ashlar/trace.h>

#include "allocator/base/check_level.h"
#include "allocator/base/threads.h"
#include "allocator/core/cache.h"
#include "allocator/guard/guard_fill.h"
#include "allocator/heap/heap.h"
#include "allocator/plan/planner.h"
#include "allocator/trace/trace.h"

/*
 * The constants that every hit reads. They share no cache line with data that is written after the
 * allocator's creation.
 */
typedef struct ashlar_hit_constants {
    uint64_t id; /* never 0, and unique among all allocators of the process */
    cu_ptr base; /* start of the heap's address range */
    size_t range_bytes;
    size_t unpublished_bytes; /* a thread publishes larger changes of live bytes: cache.h */
    ashlar_page_map map;      /* a copy of heap.map */
    unsigned char padding[ASHLAR_CACHE_LINE];
} ashlar_hit_constants;
_Static_assert(sizeof(ashlar_hit_constants) - offsetof(ashlar_hit_constants, padding) >=
                   ASHLAR_CACHE_LINE,
               "no line of the constants has fields behind them");

/* What other allocators hold of a device's memory. */
typedef struct ashlar_others {
    size_t count, reserved_bytes;
    size_t idle_bytes; /* of reserved_bytes, in no live block */
} ashlar_others;

struct ashlar_allocator {
    ashlar_hit_constants constants;
    ashlar_device *device;  /* const */
    size_t cache_bytes;     /* const; the most bytes of one thread's cache; 0: no caches */
    uint32_t fork_count;    /* const; ashlar__fork_count at the creation */
    ashlar_allocator *next; /* in the process's list. Lock: list_lock in allocators.c */
    size_t visitor_count;   /* threads that are making it give memory back. Lock: list_lock */
    ashlar_lock lock;       /* guards all fields below that are not const */
    ashlar_driver_client client;
    ashlar_heap heap;
    ashlar_planner planner;
    ashlar_others others; /* what the device's other allocators had when memory last ran out */

    /* Modes; see modes.c. */
    unsigned modes;                /* bits 1u << ashlar_mode_id that are on */
    ashlar_trace ring;             /* client.trace points here, or is NULL if nobody wants events */
    ashlar_nvtx_memory *nvtx;      /* const; receives the events of `ring`; NULL: none */
    ashlar_guard_fill *guard_fill; /* const; NULL: no guard */

    /* Streams; see streams.c. */
    ashlar_stream_state *stream_states; /* of all streams and graph pools, and `idle_stream_state`;
                                           newest first */
    ashlar_stream_state *buckets[ASHLAR_STREAM_BUCKETS]; /* stream_states, hashed by handle */
    ashlar_stream_state *recent; /* the state found last; the next call mostly wants it */
    ashlar_stream_state *idle_stream_state; /* of blocks that any stream may use; NULL at first */

    /* Caches and statistics; see owner.c and counters.c. */
    ashlar_cache *caches;       /* one for each thread that has allocated */
    bool are_hits_over;         /* membarrier(2) was refused: no thread enters its cache again */
    bool are_caches_taken_over; /* by whoever has the lock: no other thread enters its cache now */
    ashlar_counters counters;   /* of threads without a cache; published when a call ends */
    ashlar_stats stats;         /* the sums of what threads have published; the rest is added by
                                 * ashlar__stats_sum_locked() */

    /* Freed blocks that any stream may still use, oldest first; see deferred_free.c. */
    struct {
        ashlar_block *first, *last;
        size_t bytes;
    } deferred;
    _Atomic uint64_t release_count; /* how often such blocks became free; read without the lock */

    /* What the program asked for; see limits.c. Callbacks are called without the lock. */
    uint64_t calls_at_seal;
    ashlar_seal_policy seal;
    ashlar_warn_fn warn; /* NULL: none */
    void *warn_user;
    ashlar_reclaim_fn reclaim; /* NULL: none */
    void *reclaim_user;

    /* Reports; see reports.c. */
    ashlar_report_fn report; /* NULL: no reports */
    void *report_user;
    bool reports_leaks; /* const */
};

/* ---- creation: allocator.c, config.c ---- */

/* Like ashlar_allocator_create_with(), but `kind`, not the options, chooses the kind of memory. */
ASHLAR_MUST_CHECK ashlar_status ashlar__allocator_create_in(ashlar_device *device,
                                                            const ashlar_config *config,
                                                            ashlar_range_kind kind,
                                                            ashlar_allocator **out);

/* Let the allocator behave as if its device had only `bytes` bytes of memory, none of it in use. */
void ashlar__allocator_pretend(ashlar_allocator *allocator, size_t bytes);

/*
 * _keep_events: keep this many of the newest events, unless the allocator keeps some. _listen: tell
 * a listener of all events, in place of ring.listeners[place]. Call both before anybody allocates.
 * Errors: those of ashlar__trace_init().
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__allocator_keep_events(ashlar_allocator *allocator,
                                                              uint64_t event_count);
void ashlar__allocator_listen(ashlar_allocator *allocator, int place,
                              ashlar_trace_listener listener);

/* Read a program's options, with the default for each field that is 0. Errors: ASHLAR_EINVAL
 * (a field outside its range: the detail names it, its value and the allowed ones). */
ASHLAR_MUST_CHECK ashlar_status ashlar__config_take(ashlar_config *out,
                                                    const ashlar_config *config);

/* Refuse options that exclude each other. `kind`: of the memory. Errors: ASHLAR_EINVAL. */
ASHLAR_MUST_CHECK ashlar_status ashlar__modes_check(const ashlar_config *config,
                                                    ashlar_range_kind kind);

/* ---- segments: free.c ---- */

/* With share=on each segment's size is a multiple of this many bytes; 1: share=off. If new memory
 * is taken for a block of such a size, the block has the segment to itself. Threads: any. */
size_t ashlar__allocator_segment_granularity(const ashlar_allocator *allocator);

/* ---- forks: allocators.c ----
 *
 * A child of fork() has only the thread that forked. Locks that other threads held stay taken, data
 * that they were changing stays half changed, and CUDA does not work. So each public function first
 * asks in which process the allocator was made, and on a mismatch touches none of its data. Hits
 * need not ask, because a child starts without caches.
 */

/* The number of forks between the process that first called ashlar__forks_watch() and this one. */
extern _Atomic uint32_t ashlar__fork_count;

/* Count forks from now on. Called before an allocator is made. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__forks_watch(void);

/* Whether the allocator was made in a process that is an ancestor of this one. Needs no lock. */
static inline bool ashlar__is_of_parent(const ashlar_allocator *a) {
    return a->fork_count != atomic_load_explicit(&ashlar__fork_count, memory_order_relaxed);
}

ashlar_status ashlar__fail_of_parent(void); /* sets the error detail; ASHLAR_EDRIVER */

/* The first line of a public function that returns a status: refuse an allocator of the parent. */
#define ASHLAR_REFUSE_OF_PARENT(allocator)     \
    do {                                       \
        if (ashlar__is_of_parent(allocator)) { \
            return ashlar__fail_of_parent();   \
        }                                      \
    } while (0)

/* In the child of a fork, before any other call: forget the thread's caches. */
void ashlar__caches_begin_child(void);

/* ---- all allocators of the process: allocators.c ----
 *
 * If the driver refuses memory to one user of a device, the process's allocators give their idle
 * memory back: for an allocator's request that finds none, for other users of the device in
 * ashlar__device_has_room(), and for calls that the drop-ins pass on to the driver.
 */

/* _enlist: add the allocator to the process's list, whose leaks are reported when the process
 * exits. _delist: remove it; waits for threads that are making it give memory back. */
void ashlar__allocator_enlist(ashlar_allocator *allocator);
void ashlar__allocator_delist(ashlar_allocator *allocator);

/*
 * Have the allocators of a device, in all contexts, give at least `bytes` bytes of idle memory back
 * to the driver, if they have so much.
 *
 * except    an allocator that is not asked; NULL: ask all
 * may_wait  false: only memory that no work uses any more. true: also call the reclaim callbacks,
 *           wait on the host for work, and give up idle plans
 * others    if not NULL: set to what the asked ones hold afterwards
 *
 * Returns whether any memory was given back. A sealed allocator that may take no memory again keeps
 * what it has. Threads: any; the caller holds no lock.
 */
bool ashlar__allocators_give_back(const ashlar_driver *driver, int ordinal,
                                  const ashlar_allocator *except, size_t bytes, bool may_wait,
                                  ashlar_others *others);

/* What allocators.c does with each allocator of its list; allocator.c sets these functions. */
typedef struct ashlar_allocator_acts {
    void (*end_stream)(ashlar_allocator *allocator, ashlar_stream stream);
    void (*begin_wait)(ashlar_allocator *allocator, ashlar_stream stream, uint64_t wait);
    void (*end_wait)(ashlar_allocator *allocator, ashlar_stream stream, uint64_t wait);
    bool (*give_back)(ashlar_allocator *allocator, size_t bytes, bool may_wait,
                      ashlar_others *others); /* adds to *others */
    void (*report_leaks)(ashlar_allocator *allocator);
} ashlar_allocator_acts;

extern const ashlar_allocator_acts *ashlar__allocator_acts;

/* ---- which cache owns a stream: owner.c ----
 *
 * A cache can own a stream: then its thread cuts blocks from the stream's zones, and puts them
 * back, without the lock, once it has entered the cache (cache.h). The first thread that asks for
 * memory of a stream gets it for its cache. If another thread asks, the stream passes to that
 * thread's cache. After a few handovers no cache owns the stream, and all its misses take the lock.
 *
 * So a stream's zones, last_used, last_tick, has_freed and stamp_count may be touched
 *   by the thread whose cache owns the stream   after entering the cache, or with the lock
 *   by any thread, if no cache owns the stream  with the lock
 *   by any thread                               with the lock, after taking the caches over
 *
 * A free is remote if another thread's cache owns the block's stream. The freeing thread collects
 * such blocks in its own cache, and appends several at once to the stream's list `remote_frees`.
 */

/*
 * Keep every other thread out of its cache until ashlar__allocator_leave(), or until the caches are
 * handed back before the lock is dropped for a while. Until then, a second call does nothing. Cost:
 * a system call if there are other caches.
 */
void ashlar__caches_take_over_locked(ashlar_allocator *allocator);
void ashlar__caches_hand_back_locked(ashlar_allocator *allocator);

/* _enter: take the lock, and the caches over. _leave: hand the caches back and release the lock;
 * also after functions that may have taken the caches over. */
void ashlar__allocator_enter(ashlar_allocator *allocator);
void ashlar__allocator_leave(ashlar_allocator *allocator);

/* The bits of `attention` that make every call take the lock: because a mode or a step's recording
 * must see the call. */
static inline unsigned ashlar__bypass_attention(const ashlar_allocator *a) {
    return a->modes != 0 || a->are_hits_over || a->planner.recording_count > 0
               ? ASHLAR_CACHE_BYPASSED
               : 0;
}

/* Call this after any change of what ashlar__bypass_attention() returns. Takes the caches over. */
void ashlar__caches_update_bypass_locked(ashlar_allocator *allocator);

static inline ashlar_cache *ashlar__owner_cache(const ashlar_stream_state *state) {
    return atomic_load_explicit(&state->owner_cache, memory_order_relaxed);
}

/*
 * Let the calling thread's cache own the stream, if it may. In any case no other cache owns the
 * stream afterwards, and the calling thread may touch its zones until it releases the lock.
 */
void ashlar__owner_cache_set_locked(ashlar_allocator *allocator, ashlar_cache *own,
                                    ashlar_stream_state *state);

/* From now on no cache owns the stream. The one that did is the calling thread's, or taken over. */
void ashlar__owner_cache_clear_locked(ashlar_allocator *allocator, ashlar_stream_state *state);

/* Whether the free of a block by the calling thread is remote. */
bool ashlar__is_remote(const ashlar_cache *own, const ashlar_block *block);

/* _free: collect a block, which was freed remotely, in the freeing thread's cache. _send: append
 * the collected blocks to their stream's list. Call both after entering the cache, or with the
 * lock. */
void ashlar__remote_free(ashlar_cache *own, ashlar_block *block);
void ashlar__remote_send(ashlar_cache *cache);

/* Append freed blocks of a stream, linked by `older`, to its remote frees. Any thread. */
void ashlar__remote_append(ashlar_stream_state *state, ashlar_block *newest, ashlar_block *oldest);

/* Put a stream's remote frees into its zones. The cache that owns the stream, if there is one, must
 * be taken over or the calling thread's. */
void ashlar__remote_put_locked(ashlar_allocator *allocator, ashlar_stream_state *state);

/* Put a stream's remote frees into its magazines of the cache that owns it or, when these are full,
 * into its zones. Call it after entering the cache, or with the lock. */
void ashlar__remote_receive(ashlar_cache *own, ashlar_magazines *magazines);

/* The bytes of all streams' `remote_frees`. All caches are taken over. O(blocks). */
size_t ashlar__remote_bytes_locked(const ashlar_allocator *allocator);

/* ---- streams: streams.c ---- */

/* The handle by which a stream is known here; CU_STREAM_LEGACY is another name of NULL. */
static inline ashlar_stream ashlar__stream_named(ashlar_stream stream) {
    return (uintptr_t)stream == CU_STREAM_LEGACY ? NULL : stream;
}

/* _of: the stream's own state, never that of its graph pool; its first use makes it. _new: make
 * one, at the head of the list. _idle: the one that belongs to no stream: blocks of
 * ashlar__alloc_idle() have it while they are live. It has no free blocks. Errors: ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_of_locked(ashlar_allocator *allocator,
                                                               ashlar_stream stream,
                                                               ashlar_stream_state **out);
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_new_locked(ashlar_allocator *allocator,
                                                                ashlar_stream stream,
                                                                ashlar_stream_state **out);
ASHLAR_MUST_CHECK ashlar_status ashlar__stream_state_idle_locked(ashlar_allocator *allocator,
                                                                 ashlar_stream_state **out);

/*
 * Whether the state can be deleted, as far as it tells by itself: its stream has ended, and no
 * pool, waiting thread, deferred free or cross-stream block needs it. A state with windows is not
 * over: another stream has yet to take them over.
 */
bool ashlar__stream_state_is_over(const ashlar_stream_state *state);

/* Delete a state that nothing refers to. */
void ashlar__stream_state_delete_locked(ashlar_allocator *allocator, ashlar_stream_state *state);

/* Let a graph pool's state, or that of a released one, stand for another stream from now on. */
void ashlar__stream_state_rename_locked(ashlar_allocator *allocator, ashlar_stream_state *state,
                                        ashlar_stream stream);

/* Give the blocks of one stream in all caches to the heap, and forget its magazines. */
void ashlar__caches_forget_stream_locked(ashlar_allocator *allocator, ashlar_stream_state *state);

/* Like ashlar_allocator_forget_stream(), but the stream ends even if this fails: then no event
 * follows its work, and free memory that it used last is never reused. */
void ashlar__allocator_end_stream(ashlar_allocator *allocator, ashlar_stream stream);

/* Around a wait on the host for a stream: after it, no work uses memory that was freed on the
 * stream before _begin_wait. Without effect on a watched stream, whose handle may mean another one
 * now. */
void ashlar__allocator_begin_wait(ashlar_allocator *allocator, ashlar_stream stream, uint64_t wait);
void ashlar__allocator_end_wait(ashlar_allocator *allocator, ashlar_stream stream, uint64_t wait);

/* ---- calls that take the lock: modes.c ---- */

typedef enum ashlar_call_kind {
    ASHLAR_CALL_ALLOC,
    ASHLAR_CALL_FREE,
    ASHLAR_CALL_USE, /* ashlar_record_stream() */
    ASHLAR_CALL_KIND_COUNT
} ashlar_call_kind;

/* The rung that served a request, which decides the counter to raise. */
typedef enum ashlar_rung {
    ASHLAR_RUNG_PLANNED,
    ASHLAR_RUNG_CACHED,
    ASHLAR_RUNG_SAME_STREAM,
    ASHLAR_RUNG_IDLE,
    ASHLAR_RUNG_COMPLETED,
    ASHLAR_RUNG_WAITED,
    ASHLAR_RUNG_MAPPED,
    ASHLAR_RUNG_DRAINED,
    ASHLAR_RUNG_RECLAIMED,
    ASHLAR_RUNG_AFTER_SYNC,
    ASHLAR_RUNG_GATHERED,
    ASHLAR_RUNG_COUNT
} ashlar_rung;

/* A request for a block that is not in the thread's own cache. */
typedef struct ashlar_request {
    ashlar_stream_state *stream_state; /* of the stream that will use the block */
    size_t bytes;                      /* bytes of the block, a multiple of ASHLAR_BLOCK_ALIGN */
    ashlar_cache *own;
    bool is_unplanned; /* do not ask the current step for a block of its plan */
    bool is_idle;      /* use only memory that no queued work uses: all streams may use the block */
    bool is_at_hand;   /* use only memory that is reserved and free now */
    unsigned percent;  /* with is_at_hand: 0: map nothing; else as ashlar__alloc_idle() says */
} ashlar_request;

/*
 * A call on its way from the public function through the modes that are on to the core, which
 * serves it. A mode does its part, and passes the call on by `next`.
 */
typedef struct ashlar_call ashlar_call;
typedef ashlar_status ashlar_call_fn(ashlar_allocator *allocator, ashlar_call *call);
struct ashlar_call {
    ashlar_call_kind kind;
    unsigned modes; /* bits of those that the call has yet to go through */
    ashlar_call_fn *next;
    ashlar_request request; /* ALLOC; its `own` is set for all kinds */
    size_t bytes;           /* ALLOC: as the program asked */
    ashlar_tag tag;         /* ALLOC */
    ashlar_rung by;         /* ALLOC: the result */
    bool names_stream;      /* FREE: the last use was on `stream`; false: on the block's own */
    ashlar_stream stream;
    const void *caller;  /* FREE: the public function's return address, which guards report */
    void *ptr;           /* ALLOC: the result */
    ashlar_block *block; /* ALLOC: the result; FREE, USE: see ashlar__call_find_locked() */
    ashlar_stream_state *state; /* FREE: of the stream of the last use; USE: of `stream` */
};

/* The modes, outermost first. While one is on, every call takes the lock, and the mode sees it. */
typedef enum ashlar_mode_id {
    ASHLAR_MODE_WATCH,   /* streams may end unannounced: watch.c */
    ASHLAR_MODE_HOST,    /* page-locked memory, which the host may write to at once */
    ASHLAR_MODE_DRY_RUN, /* only for threads whose step is a dry run: dry_run.c */
    ASHLAR_MODE_ZERO,
    ASHLAR_MODE_TRACE, /* NVTX listens to it, too */
    ASHLAR_MODE_GUARD, /* guard.c */
    ASHLAR_MODE_COUNT
} ashlar_mode_id;

static inline bool ashlar__has_mode(const ashlar_allocator *a, ashlar_mode_id mode) {
    return (a->modes & 1u << mode) != 0;
}

/* What the modes with a file of their own do with a call. Lock: held. */
ashlar_call_fn ashlar__watch_call;
ashlar_call_fn ashlar__dry_run_alloc, ashlar__dry_run_free, ashlar__dry_run_use;
ashlar_call_fn ashlar__guard_alloc, ashlar__guard_free, ashlar__guard_use;

/* What a call does behind all modes: miss.c, free.c. Errors: the usual ones; _alloc_:
 * ASHLAR_ENOMEM, too, with the driver's text as detail. The lock may be dropped and taken again
 * meanwhile. */
ashlar_call_fn ashlar__core_alloc_locked, ashlar__core_free_locked, ashlar__core_use_locked;

/* _alloc_slow, _free_slow: do the work of ashlar_alloc_tagged() and ashlar_free() if the calling
 * thread's cache cannot. _alloc_unplanned: after the current step's plan has declined the request.
 * _free_from: with the caller that guards report. */
ASHLAR_MUST_CHECK ashlar_status ashlar__alloc_slow(ashlar_allocator *allocator, size_t bytes,
                                                   ashlar_tag tag, ashlar_stream stream,
                                                   void **out);
ASHLAR_MUST_CHECK ashlar_status ashlar__alloc_unplanned(ashlar_allocator *allocator, size_t bytes,
                                                        ashlar_tag tag, ashlar_stream stream,
                                                        void **out);
ASHLAR_MUST_CHECK ashlar_status ashlar__free_slow(ashlar_allocator *allocator, void *ptr);
ASHLAR_MUST_CHECK ashlar_status ashlar__free_from(ashlar_allocator *allocator, void *ptr,
                                                  const void *caller);

#define ASHLAR_BY_ALL_MEANS UINT_MAX /* a percent: without a bound, and wait if that helps */

/*
 * Like ashlar_alloc(), but all streams may use the block at once. Not with a guard, which would
 * queue work on the block.
 *
 * percent   0: use only memory that is reserved and free now. Above: also move free memory to where
 *           the request fits, and take more from the device, up to this percentage of the peak of
 *           live bytes, or a few handles. Neither waits for anything.
 *
 * Errors: as for ashlar_alloc(); below ASHLAR_BY_ALL_MEANS, ASHLAR_ENOMEM comes without a report.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__alloc_idle(ashlar_allocator *allocator, size_t bytes,
                                                   unsigned percent, void **out);

/* Like ashlar_alloc(), but uses only memory that is reserved and free now. */
ASHLAR_MUST_CHECK ashlar_status ashlar__alloc_at_hand(ashlar_allocator *allocator, size_t bytes,
                                                      ashlar_stream stream, void **out);

/* _take_back: put the block back of a request that fails after the core has handed it out.
 * _account_alloc: count a request that has not failed, and add it to the step that is recorded. */
void ashlar__take_back_locked(ashlar_allocator *allocator, const ashlar_call *call);
void ashlar__account_alloc_locked(ashlar_allocator *allocator, const ashlar_call *call);

/* Write into the error detail what the memory is used for, trace the refusal, and return
 * ASHLAR_ENOMEM. */
ashlar_status ashlar__no_memory_locked(ashlar_allocator *allocator, const ashlar_call *call);

/* Set call->block and call->state, if they are NULL. Errors: ASHLAR_EPOINTER, ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__call_find_locked(ashlar_allocator *a, ashlar_call *call);

/* The live block that begins at `ptr`. Errors: ASHLAR_EPOINTER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__find_live_locked(ashlar_allocator *allocator,
                                                         const void *ptr, ashlar_block **out);

/*
 * Find the live block that `ptr` points into: its start, and its requested bytes. Lock: not held.
 * Errors: ASHLAR_EPOINTER. Cost: O(log(blocks)), takes all caches over.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__find_around(ashlar_allocator *allocator, const void *ptr,
                                                    void **base, size_t *bytes);

/* Whether `ptr` points into the heap's reserved memory, even outside live blocks. Lock: not held.
 * Cost: O(windows). */
bool ashlar__has_reserved(ashlar_allocator *allocator, const void *ptr);

/* Whether ashlar__heap_check() passes; for assertions. A hit must not call it. O(blocks). */
bool ashlar__is_sound_locked(ashlar_allocator *allocator);

/* ---- the search for memory: miss.c; its rungs: rungs.c ---- */

/* Take a block for the request; it may be larger than requested. The caller sets its stream_state,
 * requested and tag. Errors and lock: as for ashlar__core_alloc_locked(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__ladder_take_locked(ashlar_allocator *allocator,
                                                           const ashlar_request *request,
                                                           ashlar_block **out, ashlar_rung *rung);

/* Wait on the host, without the lock, until some stream that keeps memory from being used has got
 * further. *waited false: there is none. */
ASHLAR_MUST_CHECK ashlar_status ashlar__wait_for_any_locked(ashlar_allocator *allocator,
                                                            bool *waited);

/* The best fit among the gaps of a zone, with memory behind it or not, so that a repeated step
 * repeats its addresses. Before choosing the gap at a window's end, the thread puts its cached
 * blocks into the zone, since they may make a gap that fits. NULL: no gap fits. */
ashlar_block *ashlar__gap_of_own(const ashlar_zone *zone, ashlar_cache *own, size_t bytes);

/* A rung looks for memory in one way. If it finds nothing, *out stays NULL. From the second rung
 * on, all caches are taken over. */
typedef ashlar_status ashlar_rung_fn(ashlar_allocator *a, const ashlar_request *r,
                                     ashlar_block **out);

ashlar_rung_fn ashlar__rung_take_own;      /* the best gap of the stream's own zone */
ashlar_rung_fn ashlar__rung_take_mapped;   /* another gap there that has memory */
ashlar_rung_fn ashlar__rung_take_cross;    /* cross-stream blocks, or an ended stream's zone */
ashlar_rung_fn ashlar__rung_leave_plan;    /* in a step: what its plan leaves idle */
ashlar_rung_fn ashlar__rung_map_new;       /* map new memory */
ashlar_rung_fn ashlar__rung_map_free;      /* move free memory of any zone to the request's */
ashlar_rung_fn ashlar__rung_borrow_ended;  /* a gap of an ended stream, where memory cannot move */
ashlar_rung_fn ashlar__rung_borrow_past;   /* a gap of another stream whose last use is over */
ashlar_rung_fn ashlar__rung_take_anywhere; /* where the request needs the fewest handles */

/* A gap of another stream, after an in-stream wait. prompt: only if that wait is for no work that
 * was queued after the gap was freed. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rung_borrow_waited(ashlar_allocator *a,
                                                           const ashlar_request *r, bool prompt,
                                                           ashlar_block **out);

/* When all else has failed: the step that makes the request leaves its plan, so that what its slots
 * leave idle can serve the request. False: the request comes from no step with a plan. */
bool ashlar__rung_leave_own_plan(ashlar_allocator *a, const ashlar_request *r);

/* Find out how far the work on every stream has come. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rung_ask_all(ashlar_allocator *a);

/* Map memory behind a place by moving free handles that the device is done with. *is_there false:
 * there are too few. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rung_move_to(ashlar_allocator *a,
                                                     const ashlar_heap_place *place,
                                                     bool *is_there);

/*
 * Find a place with memory for the request in one of a zone's best few gaps; if is_past_only, one
 * whose last use is over. False: there is none.
 */
bool ashlar__rung_find_place(const ashlar_allocator *a, const ashlar_zone *zone,
                             const ashlar_request *r, bool is_past_only, ashlar_heap_place *out);

/* Take the request's bytes at a place. All their memory must be mapped. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rung_take_place(ashlar_allocator *a,
                                                        const ashlar_request *r,
                                                        const ashlar_heap_place *place,
                                                        ashlar_block **out);

/* ASHLAR_MAY_CREATE, or 0 if the seal forbids to take new memory of the driver. */
unsigned ashlar__rung_may_create(ashlar_allocator *a);

/* ---- freed blocks that do not fit into the magazines ---- */

/* Whether a freed block that does not fit into the magazines can go to its zone now. Call it after
 * entering the cache, or with the lock. */
static inline bool ashlar__miss_may_put(const ashlar_allocator *a, const ashlar_cache *own,
                                        const ashlar_stream_state *state) {
    return ashlar__owner_cache(state) == own && !ashlar__heap_is_short(&a->heap);
}

/* Put a block for which ashlar__miss_may_put() is true into its zone. */
static inline void ashlar__miss_put(ashlar_allocator *a, ashlar_cache *own, ashlar_block *block) {
    ASHLAR_CHECK2(ashlar__owner_cache(block->stream_state) == own && block->requested == 0);
    if (block->bytes <= ASHLAR_SC_MAX_BYTES) {
        own->was_full = true;
    } else if (own->weight[1] != 0) {
        ashlar__cache_flush_large(own);
    }
    ashlar__heap_put(&a->heap, block);
}

/* ---- counting and recording: account.c ---- */

/* _count_free: count the free of a block whose request was for `requested` bytes. _account_free:
 * also trace it, on the stream that the block was allocated for. */
void ashlar__count_free_locked(ashlar_allocator *allocator, ashlar_cache *own, size_t requested,
                               unsigned tag);
void ashlar__account_free_locked(ashlar_allocator *allocator, ashlar_cache *own,
                                 const ashlar_block *block);

/* _counters_of: the counters that the calling thread raises. _publish_locked: publish them if they
 * are due (ashlar__counters_are_due()), or at once for a thread without a cache. */
ashlar_counters *ashlar__counters_of(ashlar_allocator *allocator, ashlar_cache *own);
void ashlar__publish_locked(ashlar_allocator *allocator, ashlar_cache *own);

/* An event about a block, for ashlar__trace_put(). */
ashlar_trace_event ashlar__trace_event_of(const ashlar_allocator *allocator,
                                          ashlar_trace_action action, const ashlar_block *block,
                                          ashlar_stream stream);

/* Sum every thread's counters at one moment. Takes the caches over. */
void ashlar__stats_sum_locked(ashlar_allocator *allocator, ashlar_stats *stats);

/* As ashlar_allocator_reset_peaks(), but only those of live bytes, or of reserved bytes. */
void ashlar__allocator_reset_peaks(ashlar_allocator *allocator, bool of_live, bool of_reserved);

/* Raise the peak of reserved bytes. Call it after mapping memory, also if that failed. */
void ashlar__update_reserved_peak_locked(ashlar_allocator *allocator);

/*
 * _alloc_: add an allocation to the step that the calling thread is recording. _refusal_: add a
 * request that was refused; state: NULL if that is unknown. _free_, _share_: note the free of a
 * block, or its use on another stream, in the recording that has the block, whichever thread makes
 * it. Each does nothing if there is no such recording.
 */
void ashlar__step_record_alloc_locked(ashlar_cache *own, size_t requested, ashlar_block *block);
void ashlar__step_record_refusal_locked(ashlar_cache *own, size_t requested, ashlar_tag tag,
                                        ashlar_stream_state *state);
void ashlar__step_record_free_locked(ashlar_allocator *allocator, const ashlar_block *block);
void ashlar__step_record_share_locked(ashlar_allocator *allocator, const ashlar_block *block);

/* ---- limits, seal and callbacks: limits.c ---- */

/* Whether the seal permits mapping more memory. Errors: ASHLAR_ENOMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__may_map_locked(ashlar_allocator *allocator);

/*
 * The most that a request could get if all work were over and all free memory in one place: what
 * the limit leaves beside live blocks and the plan memories of steps under way. The program's
 * reclaim callback may free more.
 */
size_t ashlar__room_locked(ashlar_allocator *allocator);

/* Whether the limit allows to map so much more memory. Lock: not held. */
bool ashlar__may_grow(ashlar_allocator *allocator, size_t bytes);

/* As ashlar_allocator_trim(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__trim_locked(ashlar_allocator *allocator,
                                                    size_t target_bytes);

/* Have the device's other allocators give memory back. Lock: held, but dropped meanwhile. */
bool ashlar__others_give_back_locked(ashlar_allocator *allocator, size_t bytes, bool may_wait,
                                     ashlar_others *others);

/* Call the program's reclaim callback. False: it freed nothing, or was not called. Lock: held, but
 * dropped during the callback. */
bool ashlar__reclaim_locked(ashlar_allocator *allocator, size_t bytes);

/* ---- reports: reports.c ---- */

/* Report the guard's oldest finding, if there is one: to the callback, and as ASHLAR_EDAMAGE. Lock:
 * not held. */
ASHLAR_MUST_CHECK ashlar_status ashlar__guard_take_finding(ashlar_allocator *allocator);

/* Report the live blocks, if there are any. No driver call. */
void ashlar__leaks_report_locked(ashlar_allocator *allocator);

/* ---- blocks that several streams use: free.c ---- */

/* Whether some use has no event after it and can never get one, because its stream was lost. */
bool ashlar__shared_has_lost(const ashlar_use *uses);

/* The uses of a live block by other streams than its own; NULL: there are none. */
static inline ashlar_use *ashlar__shared_uses(const ashlar_block *block) {
    return ashlar__block_is_shared(block) ? block->uses : NULL;
}

/* ---- watched streams: watch.c ----
 *
 * A stream of a watched allocator is known to be alive only during a call that names it. So in such
 * a call
 *   - the driver says whether the handle still means the same stream; if not, the old stream has
 *     ended
 *   - an event is recorded behind the stream's frees, if another stream has wanted such memory or a
 *     stream has ended. Before that, an event per free would be a driver call for nothing.
 * If no event follows the use of some memory, and no call names its stream, the memory is reused
 * after a wait for the whole device, which needs no handle and covers destroyed streams.
 */

/*
 * Begin a call that names `stream`. Pass *out, which is NULL for a default stream, to
 * ashlar__watch_end_locked(). Drivers older than CUDA 12 cannot identify streams: then `stream` is
 * made to wait for the work of everything freed under its handle. After an error no call has begun.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__watch_begin_locked(ashlar_allocator *allocator,
                                                           ashlar_stream stream,
                                                           ashlar_stream_state **out);
void ashlar__watch_end_locked(ashlar_stream_state *state);

/*
 * Wait on the host for all work of the device; then none uses memory freed before. _settle: the
 * lock is not held. _settle_locked: it is, but dropped during the wait. Errors: ASHLAR_EINVAL (a
 * stream is being captured), ASHLAR_EDRIVER.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__watch_settle_locked(ashlar_allocator *allocator);
ASHLAR_MUST_CHECK ashlar_status ashlar__watch_settle(ashlar_allocator *allocator);

/* Around a wait for the device that the caller makes, with all caches taken over. Call _end_wait
 * only if the wait succeeded. */
uint64_t ashlar__watch_begin_wait_locked(ashlar_allocator *allocator);
void ashlar__watch_end_wait_locked(ashlar_allocator *allocator, uint64_t wait);

/* Wait for the device, if some free memory can become usable only by that. False: no memory needs
 * it, or the wait failed. Lock: held, but dropped during the wait. */
bool ashlar__watch_wait_locked(ashlar_allocator *allocator);

/* ---- dry runs: dry_run.c ----
 *
 * A dry run allocates and frees the same blocks as its step, but uses none of them. So its requests
 * get addresses with no memory behind them, far above any that a process can have. What would
 * exceed the limit beside the live blocks is refused, as in the step.
 */

#define ASHLAR_DRY_RUN_BASE ((uintptr_t)1 << 62)

enum {
    ASHLAR_DRY_RUN_STRIDE_LOG2 = 40,            /* log2 of the distance between two addresses */
    ASHLAR_DRY_RUN_BLOCKS_MAX = 1 << (62 - 40), /* the most allocations of one step */
};
_Static_assert((uintptr_t)ASHLAR_DRY_RUN_BLOCKS_MAX << ASHLAR_DRY_RUN_STRIDE_LOG2 <=
                   UINTPTR_MAX - ASHLAR_DRY_RUN_BASE,
               "the last address does not wrap");

/* Whether this thread's requests get addresses without memory. */
static inline bool ashlar__dry_run_is_on(const ashlar_cache *own) {
    return own != NULL && own->own_replay != NULL && own->own_replay->is_dry_run &&
           own->own_replay->is_recorded;
}

/* Whether an address comes from a dry run of this thread. */
static inline bool ashlar__dry_run_has(const ashlar_cache *own, const void *ptr) {
    return ashlar__dry_run_is_on(own) && (uintptr_t)ptr >= ASHLAR_DRY_RUN_BASE;
}

/* The size of a live block of a dry run: that of the request. Errors: ASHLAR_EPOINTER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__dry_run_bytes(const ashlar_cache *own, const void *ptr,
                                                      size_t *out);

/* ---- frees that wait for all streams: deferred_free.c ----
 *
 * The free of a block for all streams, as cudaFree() does, is deferred until all work submitted
 * before it is over, on any stream. Until then it stays a used block, marked as shared (block.h),
 * but without a note of who uses it.
 *
 * Deferred frees are numbered and wait in one list, oldest first. Some streams order them: the
 * legacy default stream, whose events come behind the work of all blocking streams, and each
 * non-blocking stream that the caller tells of. A block is free once `free_past` of all of them
 * (stream_state.h) has reached its number. An event on the legacy stream is a barrier between
 * blocking streams, so none is recorded before memory is wanted.
 *
 * Invariants (ashlar_allocator_check):
 *   shared_bytes == heap.cross_bytes + deferred.bytes
 *   deferred.bytes == sum of the blocks in the list, whose numbers grow up to client.free_count
 *
 * The functions take the lock themselves.
 */

/*
 * Free a live block, whichever function allocated it. Not with a guard.
 *
 * is_planned   whether the block is the slot of a plan, whose steps reuse it in their own order.
 *              Then nothing has changed: the caller must wait for all work, and call ashlar_free()
 *
 * Errors: ASHLAR_EPOINTER (as for ashlar_free); then nothing has changed.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__free_deferred(ashlar_allocator *allocator, void *ptr,
                                                      bool *is_planned);

bool ashlar__has_deferred(ashlar_allocator *allocator); /* whether there are deferred blocks */

/* Whether the deferred blocks fill a handle. If not, mapping a handle for a request takes no longer
 * than recording and querying the events that free these blocks. */
bool ashlar__deferred_fills_handle(ashlar_allocator *allocator);

/*
 * Whether to call ashlar__deferred_ask() before a request, even if free memory can serve it: no
 * events are recorded behind the oldest free, and the deferred blocks fill a handle and are more
 * than twice what is free. Events recorded later would follow the request's work, too. O(zones).
 */
bool ashlar__deferred_is_due(ashlar_allocator *allocator);

/* Whether deferred blocks became free since `release_count` was read, or there are some. */
bool ashlar__deferred_has_more(ashlar_allocator *allocator, uint64_t release_count);

/* From now on, let deferred frees wait for this stream, too: NULL, or a non-blocking one. */
ASHLAR_MUST_CHECK ashlar_status ashlar__deferred_add_stream(ashlar_allocator *allocator,
                                                            ashlar_stream stream);

/* Call this before a capture begins and the driver counts it. It records events behind all work
 * submitted before the frees; during the capture they can be queried, but none can be recorded. */
void ashlar__deferred_cover(ashlar_allocator *allocator);

/*
 * Free the deferred blocks that no work uses any more; does not wait. Records events behind all
 * work, if none follow the work before the oldest free. *has_any: blocks became free, or none wait.
 *
 * Errors: ASHLAR_EINVAL (not during a capture), ASHLAR_EDRIVER (a stream ended unannounced).
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__deferred_ask(ashlar_allocator *allocator, bool *has_any);

/* Like ashlar__deferred_ask(), but wait on the host for the oldest free. Returns its *has_any. */
bool ashlar__deferred_wait(ashlar_allocator *allocator);

/* Around a wait for the whole device. _end_wait, only if that succeeded, frees the blocks that were
 * deferred before _begin_wait, and returns whether there were any. */
typedef struct ashlar_device_wait {
    uint64_t number; /* 0: no block waits for any work */
    uint64_t free_number;
} ashlar_device_wait;

ashlar_device_wait ashlar__deferred_begin_wait(ashlar_allocator *allocator);
bool ashlar__deferred_end_wait(ashlar_allocator *allocator, ashlar_device_wait wait);

/* Whether the allocator has a guard. */
static inline bool ashlar__allocator_is_guarded(const ashlar_allocator *a) {
    return a->guard_fill != NULL;
}

#endif /* ASHLAR_CORE_H */
