/*
 * cache.h - the free blocks that one thread keeps of one allocator, to hand out without a lock
 * (internal).
 *
 * A cache has magazines for each stream that its thread uses: a list of blocks for each size class,
 * and at most one larger block, which serves only requests of exactly its size. All blocks of a
 * stream's magazines were freed on that stream, so later work of the stream may use them.
 *
 * A cache may also hold streams: then its owner may touch their zones on the same terms as its
 * magazines. See hold.h.
 *
 * Two threads may touch a cache (ASHLAR_MAY_TOUCH):
 *   its owner      between ashlar__cache_enter() and ashlar__cache_leave(), or with the lock
 *   any other one  with the lock, between ashlar__caches_claim_locked() and _release_locked()
 *
 * Entering costs the owner a plain store and a load, without a barrier. The claimer pays for both,
 * since claims are rare: between its store to `attention` and its load of `is_busy` it has the
 * kernel put a full barrier into every running thread (membarrier(2)). So either the owner sees the
 * claim, or the claimer sees that the owner is inside and waits for it to leave, which takes one
 * hit, or one miss, at most.
 *
 * Invariants (ashlar__cache_check_locked):
 *   weight[0], weight[1] == weights of the small and of the large blocks in the magazines
 *   weight[i] <= limit[i];  pending_count <= ASHLAR_CACHE_PENDING_MAX;  pending_bytes <= limit[1]
 *   every block here counts as used in the heap, but no caller holds it (requested == 0)
 *   a block in magazines has the magazines' stream state and lies in the list of its size
 */
#ifndef ASHLAR_CACHE_H
#define ASHLAR_CACHE_H

#include <stdatomic.h>

#include "allocator/base/check_level.h"
#include "allocator/base/compiler.h"
#include "allocator/core/counters.h"
#include "allocator/heap/size_class.h"
#include "allocator/heap/stream_state.h"
#include "allocator/plan/plan_replay.h"

enum {
    ASHLAR_CACHE_LARGE_LIST = ASHLAR_SC_COUNT, /* holds one block at most, above the size classes */
    ASHLAR_CACHE_LISTS,
    ASHLAR_CACHE_PENDING_MAX = 16, /* freed blocks that wait to go to the heap together */
};
_Static_assert(ASHLAR_CACHE_LISTS <= UINT16_MAX, "a block's `list` holds the number of any list");

/*
 * Added to a block's bytes to give its weight. So one limit bounds both the bytes and the number of
 * blocks in a cache, and with that the time that emptying it takes.
 */
#define ASHLAR_CACHE_BLOCK_WEIGHT ((size_t)16 << 10)

static inline size_t ashlar__cache_weight(size_t block_bytes) {
    return block_bytes + ASHLAR_CACHE_BLOCK_WEIGHT;
}

/* Why the owner must leave its fast path: bits of ashlar_cache.attention. */
enum { ASHLAR_CACHE_CLAIMED = 1, ASHLAR_CACHE_BYPASSED = 2 };

/*
 * A hit writes to both structs. Padding keeps each of them a cache line away from its neighbours in
 * host memory, which other threads may be using.
 */
typedef struct ashlar_magazines ashlar_magazines;
struct ashlar_magazines {
    unsigned char before[ASHLAR_CACHE_LINE];
    ashlar_magazines *next;                  /* the next magazines of this cache */
    ashlar_magazines *next_in_bucket;        /* the next whose stream has the same bucket */
    ashlar_stream_state *stream_state;       /* const */
    ashlar_block *lists[ASHLAR_CACHE_LISTS]; /* linked by `older` */
    unsigned char behind[ASHLAR_CACHE_LINE];
};

/* Freed blocks that will be sent, together, to the thread that holds their stream; see hold.h. */
typedef struct ashlar_outbox {
    ashlar_block *newest, *oldest; /* of one stream, linked by `older` */
    size_t count, bytes;
} ashlar_outbox;

struct ashlar_cache {
    unsigned char before[ASHLAR_CACHE_LINE];
    _Atomic unsigned is_busy;     /* written by the owner only */
    _Atomic unsigned attention;   /* written under the allocator's lock only */
    uint64_t allocator_id;        /* const; 0: of no allocator */
    ashlar_stream stream;         /* the last request's stream, or ASHLAR_NO_STREAM, ... */
    ashlar_magazines *recent;     /* ... and its magazines, or ashlar__no_magazines; never NULL */
    ashlar_replay *active_replay; /* the step being replayed (`stream` is ASHLAR_NO_STREAM then),
                                   * or ashlar__no_replay; never NULL */
    size_t weight[2]; /* sum of weights: [0] of blocks up to ASHLAR_SC_MAX_BYTES, [1] of larger */
    size_t limit[2];  /* const; the most that weight[] may be */
    const ashlar_block *last_large; /* the large block taken last, if no other was freed since */
    ashlar_counters counters;
    ashlar_block *pending;    /* freed, on their way to the heap; linked by `older` */
    size_t pending_count;
    size_t pending_bytes;
    bool was_full;           /* since the last miss, the magazines had no room for a small block */
    uint64_t hits_when_full; /* counters.hit_count at the last miss with was_full */
    ashlar_outbox outbox;
    uint64_t use_clock; /* of this thread's newest use that it counted without the lock */
    ashlar_magazines *magazines;
    ashlar_magazines *buckets[ASHLAR_STREAM_BUCKETS]; /* the same, by the streams' handles */
    ashlar_replay *own_replay; /* for the thread's steps, one at a time; NULL before the first */
    /* For cycle.c: the cycle since the last trough of live bytes, and the cycle before it. */
    uint64_t trough, crest; /* the fewest and most live bytes that a miss saw in this cycle */
    uint64_t quiet;         /* with live bytes from here to `crest` a miss is not at a trough */
    uint64_t misses;
    uint64_t hits_before; /* counters.hit_count when the cycle began */
    uint64_t last_crest, last_requests, last_hits;
    ashlar_cache *next, *prev;    /* in the allocator's list of caches. Lock: the allocator's */
    ashlar_cache *next_of_thread; /* in the thread's list of caches */
    ashlar_allocator *allocator;  /* NULL once it is destroyed. Lock: parting_lock, in cache.c */
    uint64_t thread;              /* const; the owner's ashlar__thread_number() */
    unsigned char behind[ASHLAR_CACHE_LINE];
};

/*
 * Magazines of no stream, always empty. `recent` points here instead of being NULL, so that a hit
 * need not test it.
 */
extern ashlar_magazines ashlar__no_magazines;

/* The calling thread's cache of the allocator that it used last; at first, one of no allocator. */
extern _Thread_local ashlar_cache *ashlar__cache_recent ASHLAR_INITIAL_EXEC;

/*
 * Check at level 2 that the calling thread owns the cache or has claimed it. If it holds the lock,
 * a claim is its own, since only the lock's holder can claim.
 */
#define ASHLAR_MAY_TOUCH(cache) ASHLAR_CHECK2(ashlar__cache_may_touch(cache))

static inline bool ashlar__cache_may_touch(const ashlar_cache *cache) {
    return cache->thread == ashlar__thread_number() ||
           (atomic_load_explicit(&cache->attention, memory_order_relaxed) & ASHLAR_CACHE_CLAIMED) !=
               0;
}

static inline bool ashlar__cache_is_replaying(const ashlar_cache *cache) {
    return cache->active_replay != &ashlar__no_replay;
}

/* Bring counters.planned_count up to date: a hit on a plan only advances the replay. */
static inline void ashlar__cache_count_planned(ashlar_cache *cache) {
    if (ashlar__cache_is_replaying(cache)) {
        cache->counters.planned_count = ashlar__replay_served(cache->active_replay);
    }
}

/* Begin a hit. False: it did not begin, and the owner has to take the lock. */
static inline bool ashlar__cache_enter(ashlar_cache *cache) {
    ASHLAR_CHECK2(cache->thread == ashlar__thread_number());
    ASHLAR_CHECK2(atomic_load_explicit(&cache->is_busy, memory_order_relaxed) == 0);
    atomic_store_explicit(&cache->is_busy, 1, memory_order_relaxed);
    /* This fence binds the compiler only. The claimer orders the processor, by membarrier(2). */
    atomic_signal_fence(memory_order_seq_cst);
    if (ASHLAR_LIKELY(atomic_load_explicit(&cache->attention, memory_order_acquire) == 0)) {
        return true;
    }
    atomic_store_explicit(&cache->is_busy, 0, memory_order_release);
    return false;
}

static inline void ashlar__cache_leave(ashlar_cache *cache) {
    ASHLAR_CHECK2(atomic_load_explicit(&cache->is_busy, memory_order_relaxed) == 1);
    atomic_store_explicit(&cache->is_busy, 0, memory_order_release);
}

/* ---- for the owner, inside: after ashlar__cache_enter(), or with the lock ---- */

/* The magazines of a stream, by handle or by state; NULL: none yet. Makes them the recent ones. */
ashlar_magazines *ashlar__cache_find(ashlar_cache *cache, ashlar_stream stream);
ashlar_magazines *ashlar__cache_find_state(ashlar_cache *cache, const ashlar_stream_state *state);

/* The index of the list that a block of this size goes to. */
static inline size_t ashlar__cache_list(size_t block_bytes) {
    return block_bytes <= ASHLAR_SC_MAX_BYTES ? ashlar__sc_of_bytes(block_bytes).idx
                                              : (size_t)ASHLAR_CACHE_LARGE_LIST;
}

/* Take the cached block of more than ASHLAR_SC_MAX_BYTES, if it has exactly this size. */
static inline ashlar_block *ashlar__cache_pop_large(ashlar_cache *cache, ashlar_magazines *m,
                                                    size_t bytes) {
    const size_t want = (bytes + ASHLAR_BLOCK_ALIGN - 1) & ~(ASHLAR_BLOCK_ALIGN - 1);
    ashlar_block *block = m->lists[ASHLAR_CACHE_LARGE_LIST];
    if (block == NULL || block->bytes != want) {
        return NULL;
    }
    ASHLAR_CHECK2(block->older == NULL && cache->weight[1] == ashlar__cache_weight(want));
    m->lists[ASHLAR_CACHE_LARGE_LIST] = NULL;
    cache->weight[1] = 0;
    return block;
}

/* Take a block of the size that serves `bytes`. NULL if there is none, and always for 0 bytes. */
static inline ashlar_block *ashlar__cache_pop(ashlar_cache *cache, ashlar_magazines *m,
                                              size_t bytes) {
    if (!ASHLAR_LIKELY(bytes - 1 < ASHLAR_SC_MAX_BYTES)) {
        return ashlar__cache_pop_large(cache, m, bytes);
    }
    ashlar_block **link = &m->lists[ashlar__sc_of_bytes(bytes).idx];
    ashlar_block *block = *link;
    if (ASHLAR_LIKELY(block != NULL)) {
        ASHLAR_CHECK2(block->requested == 0 && block->marks == 0 && block->bytes >= bytes);
        ASHLAR_CHECK2(cache->weight[0] >= ashlar__cache_weight(block->bytes));
        *link = block->older;
        cache->weight[0] -= ashlar__cache_weight(block->bytes);
    }
    return block;
}

/* Put a freed block into its list. False if the cache is full. */
static inline bool ashlar__cache_push(ashlar_cache *cache, ashlar_magazines *m,
                                      ashlar_block *block) {
    ASHLAR_CHECK2(block->list == ashlar__cache_list(block->bytes) && block->marks == 0);
    ASHLAR_CHECK2(block->stream_state == m->stream_state);
    const bool is_large = block->list == ASHLAR_CACHE_LARGE_LIST;
    const size_t weight = cache->weight[is_large] + ashlar__cache_weight(block->bytes);
    /*
     * The cache holds one large block at most, and only one that was freed right after it was
     * taken: the heap would hand out the same block again. So caching does not change where large
     * blocks lie, and a repeated step finds them where they were. The next miss gives the block up.
     */
    if (weight > cache->limit[is_large] || (is_large && block != cache->last_large)) {
        cache->last_large = is_large ? NULL : cache->last_large;
        return false;
    }
    cache->weight[is_large] = weight;
    block->older = m->lists[block->list];
    m->lists[block->list] = block;
    return true;
}

/* Keep a block that the magazines have no room for until the next miss. False: too many wait. */
bool ashlar__cache_add_pending(ashlar_cache *cache, ashlar_block *block);

/* ---- for the owner, outside: before ashlar__cache_enter() ---- */

/* Make the calling thread's cache of this allocator the recent one. False: there is none yet. */
bool ashlar__cache_switch(uint64_t allocator_id);

/*
 * The calling thread's cache of this allocator, made by the first call. It becomes the recent one.
 * NULL if there can be none: no host memory, a kernel without membarrier(2), a thread that is
 * ending, an allocator without caches. Lock: not held.
 */
ashlar_cache *ashlar__cache_get(ashlar_allocator *allocator);

/*
 * Whether blocks of this state may go to magazines. A request finds magazines by its stream's
 * handle, so a state has none if the handle may mean another stream to this thread: if the stream
 * is gone or has ended, if it is another thread's default stream, or while it is captured.
 */
static inline bool ashlar__may_cache(const ashlar_stream_state *state) {
    return !state->is_gone && !state->is_ended && !ashlar__stream_state_is_others(state) &&
           state->pool == NULL;
}

/*
 * The magazines of a stream, made if there are none yet. They become the recent ones. NULL: the
 * stream may have none, or there is no host memory. Lock: held.
 */
ashlar_magazines *ashlar__cache_need_locked(ashlar_cache *cache, ashlar_stream_state *state);

/* Have the thread's requests ask this step first, or none: &ashlar__no_replay. Lock: held. */
void ashlar__cache_set_replay(ashlar_cache *cache, ashlar_replay *replay);

/* End the replay of the step that the cache's thread is in. Lock: held. */
void ashlar__cache_end_replay(ashlar_cache *cache, ashlar_planner *planner);

/* ---- for whoever holds the lock ---- */

/* The magazines of a stream, by its state; NULL: none. Does not change the recent ones. */
ashlar_magazines *ashlar__magazines_of(const ashlar_cache *cache, const ashlar_stream_state *state);

/*
 * ---- for the owner, inside, or for whoever holds the lock ----
 *
 * Inside, only blocks of streams that the cache holds go to the heap, and pending blocks wait.
 */

/* Give the pending blocks, all blocks, or the large ones to the heap. */
void ashlar__cache_flush_pending(ashlar_cache *cache);
void ashlar__cache_flush(ashlar_cache *cache);
void ashlar__cache_flush_large(ashlar_cache *cache);
void ashlar__cache_flush_magazines(ashlar_cache *cache, ashlar_magazines *magazines);

/*
 * Give to the heap all cached blocks of one stream whose sizes lie in the same zone as a block of
 * `bytes` bytes.
 */
void ashlar__cache_flush_stream(ashlar_cache *cache, const ashlar_stream_state *state,
                                size_t bytes);

/* ---- for whoever holds the lock ---- */

/* Give a block that was freed on its own stream to the heap; if another thread holds the stream,
 * give it to that thread. */
void ashlar__cache_give_back_locked(ashlar_allocator *allocator, ashlar_block *block);

/*
 * Give all blocks of all caches to the heap, also those that are being sent to another thread.
 * `own`: as for ashlar__caches_claim_locked().
 */
void ashlar__caches_flush_locked(ashlar_allocator *allocator, const ashlar_cache *own);

/* Give all blocks of one stream to the heap and drop its magazines. */
void ashlar__cache_drop_locked(ashlar_cache *cache, const ashlar_stream_state *state);

/* The same for a stream that ends: from now on no replayed step serves it. */
void ashlar__cache_forget_locked(ashlar_cache *cache, const ashlar_stream_state *state);

/* The bytes of the cache's free blocks, with pending ones and those in the outbox. O(blocks). */
size_t ashlar__cache_bytes(const ashlar_cache *cache);

/* Whether the magazines are empty. */
static inline bool ashlar__cache_is_empty(const ashlar_cache *cache) {
    return cache->weight[0] == 0 && cache->weight[1] == 0;
}

/* Check the invariants above. Errors: ASHLAR_EFORMAT, naming the one that does not hold. */
ASHLAR_MUST_CHECK ashlar_status ashlar__cache_check_locked(const ashlar_cache *cache);

/*
 * Detach every cache from the allocator, which is being destroyed; its own thread frees each one
 * later. No call on the allocator may be under way.
 */
void ashlar__caches_disown(ashlar_allocator *allocator);

#endif /* ASHLAR_CACHE_H */
