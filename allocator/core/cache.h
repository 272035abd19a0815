/*
 * cache.h - what a hit touches: one thread's counters and its free blocks of one allocator, which
 * it hands out without a lock (internal).
 */
#ifndef ASHLAR_CACHE_H
#define ASHLAR_CACHE_H

#include <stdatomic.h>

#include <ashlar/allocator.h>

#include "allocator/base/check_level.h"
#include "allocator/base/compiler.h"
#include "allocator/heap/heap.h"
#include "allocator/heap/block.h"
#include "allocator/heap/stream_state.h"
#include "allocator/plan/plan_replay.h"

/* ---- counters ----
 *
 * Each thread counts its own calls and its own changes of live bytes. Now and then it publishes
 * them: it adds them to the allocator's statistics, under the lock, and begins again at zero. A
 * peak between two publications is not lost, because the thread keeps the largest value of its
 * change:
 *
 * peak = max over publications of (published live bytes + the thread's largest change of them)
 *
 * The peak is exact while one thread allocates, and with a trace, when each call publishes. With
 * several threads, it is off by at most what the others have not published. A thread publishes once
 * its changes exceed a 64th of the device's memory or half of what the cache may hold, whichever is
 * more. A thread that only allocates, or only frees what others allocated, publishes each MiB, or
 * the sum would swing between such threads: its own live bytes are above the peak, or below zero.
 * Reading the statistics publishes for all threads; until then a sum may be below zero.
 */

_Static_assert(ASHLAR_TAG_COUNT <= UINT8_MAX, "a block's tag is a byte");

/* The change of live bytes since the last publication, and the most that it has been. */
typedef struct ashlar_live_delta {
    int64_t live; /* requested bytes allocated less those freed */
    int64_t peak; /* the largest `live` so far; in `all` it starts at the value that `live` must
                     exceed for a new peak */
} ashlar_live_delta;

typedef struct ashlar_counters {
    uint64_t hit_count; /* allocations served by the thread's magazines since the cache was made */
    uint64_t hit_count_published;
    uint64_t miss_count; /* allocations served by zones of streams that the cache owns */
    uint64_t miss_count_published;
    uint64_t planned_count; /* allocations that plans served; see ashlar__cache_count_planned() */
    uint64_t planned_count_published;
    uint64_t free_count;
    int64_t published; /* the sum of all.live over all publications */
    ashlar_live_delta all;
    ashlar_live_delta tags[ASHLAR_TAG_COUNT];
    int64_t tags_at_peak[ASHLAR_TAG_COUNT]; /* tags[].live when all.live was all.peak */
    int64_t limit;   /* const; the change of live bytes at which the thread publishes */
    int64_t above;   /* publish if all.live is above this: the limit, or a MiB above the peak */
    int64_t below;   /* publish if all.live is below this: minus the limit, or a MiB below zero */
    bool has_peak;   /* all.live has exceeded the published peak */
    bool is_at_peak; /* has_peak, and nothing was freed since: tags_at_peak is not filled in yet */
} ashlar_counters;

static inline void ashlar__count_alloc(ashlar_counters *c, size_t requested, unsigned tag) {
    ASHLAR_CHECK2(requested > 0 && tag < ASHLAR_TAG_COUNT);
    ashlar_live_delta *const of_tag = &c->tags[tag];
    of_tag->live += (int64_t)requested;
    if (!ASHLAR_LIKELY(of_tag->live <= of_tag->peak)) {
        of_tag->peak = of_tag->live;
    }
    c->all.live += (int64_t)requested;
    if (!ASHLAR_LIKELY(c->all.live <= c->all.peak)) {
        c->all.peak = c->all.live;
        c->has_peak = true;
        c->is_at_peak = true;
    }
}

void ashlar__count_peak(ashlar_counters *c); /* fill in tags_at_peak from tags */

static inline void ashlar__count_free(ashlar_counters *c, size_t requested, unsigned tag) {
    ASHLAR_CHECK2(requested > 0 && tag < ASHLAR_TAG_COUNT);
    if (c->is_at_peak) {
        ashlar__count_peak(c);
    }
    c->tags[tag].live -= (int64_t)requested;
    c->all.live -= (int64_t)requested;
}

/* Add the changes to `stats`, and begin again at zero. Lock: the allocator's. */
void ashlar__counters_publish(ashlar_counters *c, ashlar_stats *stats);

/* Whether the thread must publish now. Publishing costs more than finding a block. */
static inline bool ashlar__counters_are_due(const ashlar_counters *c) {
    return c->all.live > c->above || c->all.live < c->below;
}

/* ---- the cache ----
 *
 * A cache has magazines for each stream that its thread uses: a list of blocks for each size class,
 * and at most one larger block, which serves only requests of exactly its size. All blocks of a
 * stream's magazines were freed on that stream, so later work of the stream may use them.
 *
 * A cache, and the zones of the streams that it owns (core.h), may be touched (ASHLAR_MAY_TOUCH) by
 *   its thread        between ashlar__cache_enter() and ashlar__cache_leave(), or with the lock
 *   any other thread  with the lock, after ashlar__caches_take_over_locked()
 *
 * To enter its cache, a thread stores to `is_busy` and loads `attention`, without a barrier. The
 * thread that takes the cache over pays for both, since that is rare: between its store to
 * `attention` and its load of `is_busy` it has the kernel put a full barrier into every running
 * thread (membarrier(2)). So either the cache's thread sees the change, or the other one sees that
 * the cache is in use, and waits.
 *
 * Invariants (ashlar__cache_check_locked):
 * weight[0], weight[1] == weights of the small and of the large blocks in the magazines
 * weight[i] <= limit[i];  pending_count <= ASHLAR_CACHE_PENDING_MAX;  pending_bytes <= limit[1]
 * every block here counts as used in the heap, but no caller holds it (requested == 0)
 * a block in magazines has the magazines' stream state and lies in the list of its size
 */

enum {
    ASHLAR_CACHE_LARGE_LIST = ASHLAR_SC_COUNT, /* the list behind those of the size classes;
                                                  holds at most one block */
    ASHLAR_CACHE_LISTS,
    ASHLAR_CACHE_PENDING_MAX = 16, /* the most freed blocks that may wait to go to the heap
                                    * together */
};
_Static_assert(ASHLAR_CACHE_LISTS <= UINT16_MAX, "a block's `list` holds the number of any list");

/* Added to a block's bytes, so that one limit bounds both the bytes and the number of blocks. */
#define ASHLAR_CACHE_BLOCK_WEIGHT ((size_t)16 << 10)

static inline size_t ashlar__cache_weight(size_t block_bytes) {
    return block_bytes + ASHLAR_CACHE_BLOCK_WEIGHT;
}

/* Bits of ashlar_cache.attention, the reasons for a cache's thread to take the lock: another thread
 * has taken the cache over; or a mode or a recording must see every call. */
enum { ASHLAR_CACHE_TAKEN_OVER = 1, ASHLAR_CACHE_BYPASSED = 2 };

/* Padding keeps what a hit writes a cache line away from other threads' host memory. */
typedef struct ashlar_magazines ashlar_magazines;
struct ashlar_magazines {
    unsigned char before[ASHLAR_CACHE_LINE];
    ashlar_magazines *next;                  /* those of another stream, in the same cache */
    ashlar_magazines *next_in_bucket;        /* the next in this bucket of the cache's hash table */
    ashlar_stream_state *stream_state;       /* const */
    ashlar_block *lists[ASHLAR_CACHE_LISTS]; /* linked by `older` */
    unsigned char behind[ASHLAR_CACHE_LINE];
};

/* Blocks that a cache's thread has freed remotely and will send together; see core.h. */
typedef struct ashlar_remote_frees {
    ashlar_block *newest, *oldest; /* all of one stream, linked by `older` */
    size_t count, bytes;
} ashlar_remote_frees;

struct ashlar_cache {
    unsigned char before[ASHLAR_CACHE_LINE];
    _Atomic unsigned is_busy;     /* the thread has entered; written by this thread only */
    _Atomic unsigned attention;   /* bits, see above; written under the allocator's lock */
    uint64_t allocator_id;        /* const; 0: belongs to no allocator */
    ashlar_stream stream;         /* the stream whose requests `recent` serves, or
                                   * ASHLAR_NO_STREAM */
    ashlar_magazines *recent;     /* the magazines used last, or ashlar__no_magazines; never NULL */
    ashlar_replay *active_replay; /* the step being replayed (`stream` is ASHLAR_NO_STREAM then),
                                   * or ashlar__no_replay; never NULL */
    size_t weight[2]; /* sums of weights: [0] of blocks up to ASHLAR_SC_MAX_BYTES, [1] of larger
                         blocks */
    size_t limit[2];  /* const; the most that weight[] may be */
    const ashlar_block *last_large; /* the large block taken last, unless another one was freed
                                       since */
    ashlar_counters counters;
    ashlar_block *pending; /* freed blocks that wait to go to the heap; linked by `older` */
    size_t pending_count;
    size_t pending_bytes;
    bool was_full;           /* the magazines had no room for some small block since the last
                                miss */
    uint64_t hits_when_full; /* counters.hit_count at the last miss that found was_full set */
    ashlar_remote_frees remote;
    uint64_t use_clock; /* the thread's clock (ashlar__heap_clock()) at its newest use without the
                         * lock */
    ashlar_magazines *magazines;
    ashlar_magazines *buckets[ASHLAR_STREAM_BUCKETS]; /* the same magazines, hashed by their
                                                         streams' handles */
    ashlar_replay *own_replay; /* replays the thread's steps, one at a time; NULL before the
                                  first step */
    /* For cache_flush.c: this cycle, which began at a low of live bytes, and the last one. */
    uint64_t low, high; /* the fewest and most live bytes that a miss saw in this cycle */
    uint64_t quiet;     /* a miss with live bytes from here to `high` is not at a low */
    uint64_t misses;
    uint64_t hits_before; /* counters.hit_count when the cycle began */
    uint64_t last_high, last_requests, last_hits;
    ashlar_cache *next, *prev;    /* in the allocator's list of caches. Lock: the allocator's */
    ashlar_cache *next_of_thread; /* in the thread's list of caches */
    ashlar_allocator *allocator;  /* NULL once the allocator is destroyed. Lock: parting_lock, in
                                     cache.c */
    uint64_t thread;              /* const; the ashlar__thread_number() of its thread */
    unsigned char behind[ASHLAR_CACHE_LINE];
};

/* Magazines of no stream, always empty, so that a hit need not test `recent` for NULL. */
extern ashlar_magazines ashlar__no_magazines;

/* The calling thread's cache of the allocator used last; at first, that of no allocator. */
extern _Thread_local ashlar_cache *ashlar__cache_recent ASHLAR_INITIAL_EXEC;

/* Check at level 2 that the cache is the calling thread's, or taken over. */
#define ASHLAR_MAY_TOUCH(cache) ASHLAR_CHECK2(ashlar__cache_may_touch(cache))

static inline bool ashlar__cache_may_touch(const ashlar_cache *cache) {
    return cache->thread == ashlar__thread_number() ||
           (atomic_load_explicit(&cache->attention, memory_order_relaxed) &
            ASHLAR_CACHE_TAKEN_OVER) != 0;
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

/* Enter the calling thread's cache. False: it is not entered, and the thread must take the lock. */
static inline bool ashlar__cache_enter(ashlar_cache *cache) {
    ASHLAR_CHECK2(cache->thread == ashlar__thread_number());
    ASHLAR_CHECK2(atomic_load_explicit(&cache->is_busy, memory_order_relaxed) == 0);
    atomic_store_explicit(&cache->is_busy, 1, memory_order_relaxed);
    /* For the compiler only. The thread that takes the cache over uses membarrier(2) instead. */
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

/* ---- for the cache's thread, after ashlar__cache_enter() or with the lock ---- */

/* Find the magazines of a stream, by handle or by state, and make them the recent ones; NULL: there
 * are none. ashlar__magazines_of() leaves the recent ones as they are. */
ashlar_magazines *ashlar__magazines_of(const ashlar_cache *cache, const ashlar_stream_state *state);
ashlar_magazines *ashlar__cache_find(ashlar_cache *cache, ashlar_stream stream);
ashlar_magazines *ashlar__cache_find_state(ashlar_cache *cache, const ashlar_stream_state *state);

/* The index of the list for blocks of this size. */
static inline size_t ashlar__cache_list(size_t block_bytes) {
    return block_bytes <= ASHLAR_SC_MAX_BYTES ? ashlar__sc_of_bytes(block_bytes).idx
                                              : (size_t)ASHLAR_CACHE_LARGE_LIST;
}

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

/* Put a freed block into the list of its size. False if the cache is full. */
static inline bool ashlar__cache_push(ashlar_cache *cache, ashlar_magazines *m,
                                      ashlar_block *block) {
    ASHLAR_CHECK2(block->list == ashlar__cache_list(block->bytes) && block->marks == 0);
    ASHLAR_CHECK2(block->stream_state == m->stream_state);
    const bool is_large = block->list == ASHLAR_CACHE_LARGE_LIST;
    const size_t weight = cache->weight[is_large] + ashlar__cache_weight(block->bytes);
    /* A large block only if it was freed right after it was taken: then the heap would hand out the
     * same one again. So caching does not change where large blocks lie, and a repeated step finds
     * them where they were. */
    if (weight > cache->limit[is_large] || (is_large && block != cache->last_large)) {
        cache->last_large = is_large ? NULL : cache->last_large;
        return false;
    }
    cache->weight[is_large] = weight;
    block->older = m->lists[block->list];
    m->lists[block->list] = block;
    return true;
}

/* Keep a freed block pending until the next miss. False: too much is pending, or an event should
 * follow the free at once. */
bool ashlar__cache_add_pending(ashlar_cache *cache, ashlar_block *block);

/* ---- for the cache's thread, before ashlar__cache_enter() ---- */

/* Make the thread's cache of this allocator the recent one. False: it has none yet. */
bool ashlar__cache_switch(uint64_t allocator_id);

/* Find the thread's cache of the allocator, or make it, and make it the recent one. NULL: the
 * thread cannot have one. Lock: not held. */
ashlar_cache *ashlar__cache_get(ashlar_allocator *allocator);

/* Whether blocks of this state may go to magazines, which requests find by their stream's handle:
 * it must not mean another stream to this thread. */
static inline bool ashlar__may_cache(const ashlar_stream_state *state) {
    return !state->is_gone && !state->is_ended && !ashlar__stream_state_is_others(state) &&
           state->pool == NULL;
}

/* Find or make the magazines of a stream, and make them the recent ones. NULL: it can have none. */
ashlar_magazines *ashlar__cache_need_locked(ashlar_cache *cache, ashlar_stream_state *state);

/* From now on serve the thread's requests from this replay of a step, if it can; or from none, with
 * &ashlar__no_replay. Lock: held. */
void ashlar__cache_set_replay(ashlar_cache *cache, ashlar_replay *replay);

/* End the replay of the step that the cache's thread is in: by its end, or because the ordinary
 * path serves the rest of it. Lock: held. */
void ashlar__cache_end_replay(ashlar_cache *cache);

/* ---- for the cache's thread after ashlar__cache_enter(), or for whoever has the lock ---- */

/* Give blocks to the heap. _pending: those that are pending. _flush: all. _large: the large ones.
 * _magazines: those of one stream's magazines. _stream: of one stream, those that lie in the same
 * zone as a block of `bytes` bytes. Without the lock, pending blocks stay, and so do blocks of
 * streams that the cache does not own; _magazines and _stream must not be called for such streams.
 */
void ashlar__cache_flush_pending(ashlar_cache *cache);
void ashlar__cache_flush(ashlar_cache *cache);
void ashlar__cache_flush_large(ashlar_cache *cache);
void ashlar__cache_flush_magazines(ashlar_cache *cache, ashlar_magazines *magazines);
void ashlar__cache_flush_stream(ashlar_cache *cache, const ashlar_stream_state *state,
                                size_t bytes);

/* ---- for whoever has the lock ---- */

/* Give a block that was freed on its own stream to the heap or, if another thread's cache owns the
 * stream and is not taken over, append it to the stream's remote frees. */
void ashlar__cache_give_back_locked(ashlar_allocator *allocator, ashlar_block *block);

/* Give all blocks of all caches to the heap, also all remote frees. */
void ashlar__caches_flush_locked(ashlar_allocator *allocator);

/* For a stream that ends: give its blocks to the heap, drop its magazines, replay no step on it. */
void ashlar__cache_forget_locked(ashlar_cache *cache, const ashlar_stream_state *state);

/* The bytes of the cache's free blocks, also of pending ones and unsent remote frees. O(blocks). */
size_t ashlar__cache_bytes(const ashlar_cache *cache);

/* Whether the magazines are empty. */
static inline bool ashlar__cache_is_empty(const ashlar_cache *cache) {
    return cache->weight[0] == 0 && cache->weight[1] == 0;
}

/* Check the invariants above. Errors: ASHLAR_EFORMAT, naming the one that does not hold. */
ASHLAR_MUST_CHECK ashlar_status ashlar__cache_check_locked(const ashlar_cache *cache);

/* For an allocator that is being destroyed: leave each cache to its thread, which frees it later.
 */
void ashlar__caches_disown(ashlar_allocator *allocator);

/* ---- a program's steps, as a thread's cache sees them ---- */

/* The rest of ashlar__cycle_count_miss(), for a miss that may have to give cached blocks up. */
void ashlar__cycle_look(ashlar_cache *own);

/*
 * Whether memory was short once, and a step may begin: the thread has no more live bytes than when
 * its cycle began, and had more since. Then the cache is emptied even if the steps are alike, since
 * which cached block serves which request differs from step to step, and so do the gaps between
 * blocks; but a step that just fits into memory needs the addresses that it had before.
 */
static inline bool ashlar__cycle_is_tight(const ashlar_heap *heap, const ashlar_cache *own) {
    const int64_t live = own->counters.published + own->counters.all.live;
    return heap->was_short && live >= 0 && (uint64_t)live <= own->low && own->low < own->high &&
           !ashlar__cache_is_empty(own);
}

/*
 * Count a miss, before the search for a block, and give up cached blocks that may keep free memory
 * from merging. Call it with the lock, or after entering the cache; then blocks of streams that the
 * cache does not own stay in it.
 *
 * In a program that works in steps, live bytes are fewest between two steps. Cached blocks keep the
 * free memory around them from merging, so the next step's blocks would lie further apart than the
 * last step's. Therefore each step empties the cache once, unless the steps are alike: then the
 * cached blocks lie where the next step wants them. A large block is always given up.
 *
 * The cache is also emptied if it is full of sizes that nobody asks for: it had no room for a freed
 * block, and has had no hit since it was last full.
 */
static inline void ashlar__cycle_count_miss(ashlar_cache *own) {
    const int64_t live = own->counters.published + own->counters.all.live;
    own->misses++;
    if (live > (int64_t)own->high) {
        own->high = own->quiet = (uint64_t)live; /* the next miss with fewer live bytes looks for a
                                                  * low */
    }
    if (!ASHLAR_LIKELY(live >= (int64_t)own->quiet && own->pending == NULL && own->weight[1] == 0 &&
                       !own->was_full)) {
        ashlar__cycle_look(own);
    }
}

/* Empty the cache, and forget the cycles so far. Call it as ashlar__cycle_count_miss(). */
void ashlar__cycle_restart(ashlar_cache *own);

#endif /* ASHLAR_CACHE_H */
