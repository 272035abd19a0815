/*
 * slow_path.h - what public functions do if the thread's cache cannot serve them: finding a block
 * for a request, taking more memory from the device, and finding the block of an address
 * (internal).
 */
#ifndef ASHLAR_SLOW_PATH_H
#define ASHLAR_SLOW_PATH_H

#include "allocator/core/allocator_impl.h"

/* _alloc_slow, _free_slow: do the work of ashlar_alloc_tagged() and ashlar_free() if the calling
 * thread's cache cannot. */
ASHLAR_MUST_CHECK ashlar_status ashlar__alloc_slow(ashlar_allocator *allocator, size_t bytes,
                                                   ashlar_tag tag, ashlar_stream stream,
                                                   void **out);
/* Like ashlar__alloc_slow(), after the current step's plan has declined the request. */
ASHLAR_MUST_CHECK ashlar_status ashlar__alloc_unplanned(ashlar_allocator *allocator, size_t bytes,
                                                        ashlar_tag tag, ashlar_stream stream,
                                                        void **out);
ASHLAR_MUST_CHECK ashlar_status ashlar__free_slow(ashlar_allocator *allocator, void *ptr);
/* Like ashlar__free_slow(). caller: the public function's return address, which guard modes
 * report. */
ASHLAR_MUST_CHECK ashlar_status ashlar__free_from(ashlar_allocator *allocator, void *ptr,
                                                  const void *caller);

/* ---- from a request to a block ---- */

/* The rung of the ladder that served a request, which decides the counter to raise. */
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

/* A request that climbs the ladder, rung by rung. */
typedef struct ashlar_request {
    ashlar_stream_state *stream_state; /* of the stream that will use the block */
    size_t bytes;                      /* bytes of the block, a multiple of ASHLAR_BLOCK_ALIGN */
    ashlar_cache *own;                 /* the calling thread's cache, or NULL */
    bool is_unplanned;                 /* do not ask the current step for a block of its plan */
    bool is_idle;     /* use only memory that no queued work uses; see deferred_free.h */
    bool is_at_hand;  /* use only memory that is reserved and free now */
    unsigned percent; /* is_at_hand, but map as ashlar__alloc_idle() says; 0: nothing */
} ashlar_request;

/*
 * Take a block for the request; it may be larger than requested. The caller must set the block's
 * stream_state, requested and tag. Lock: held; may be dropped and taken again meanwhile.
 *
 * Errors: ASHLAR_ENOMEM (the detail is the driver's text), ASHLAR_EDRIVER, ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__ladder_take_locked(ashlar_allocator *allocator,
                                                           const ashlar_request *request,
                                                           ashlar_block **out, ashlar_rung *rung);

/* ---- more memory of the device ---- */

/* Whether the seal permits mapping more memory. Lock: held. Errors: ASHLAR_ENOMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__may_map_locked(ashlar_allocator *allocator);

/*
 * The most that a request could get if all work were over and all free memory in one place: what
 * the limit leaves beside live blocks and the plan memories of steps under way. The program's
 * reclaim callback may free more. Lock: held. Cost: claims all caches.
 */
size_t ashlar__room_locked(ashlar_allocator *allocator);

/* As ashlar_allocator_trim(). Lock: held. */
ASHLAR_MUST_CHECK ashlar_status ashlar__trim_locked(ashlar_allocator *allocator,
                                                    size_t target_bytes);

/* Raise the peak of reserved bytes. Call it after mapping memory, also if that failed. */
void ashlar__update_reserved_peak_locked(ashlar_allocator *allocator);

/* As ashlar__allocators_give_back(), for this allocator. Lock: held, but dropped meanwhile. */
bool ashlar__others_give_back_locked(ashlar_allocator *allocator, size_t bytes, bool may_wait,
                                     ashlar_others *others);

/*
 * Wait on the host, without the lock, until some stream has got further whose work keeps memory
 * from being used. *waited false: there is none.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__wait_for_any_locked(ashlar_allocator *allocator,
                                                            bool *waited);

/*
 * Call the program's reclaim callback, which frees blocks. False: it freed nothing, or was not
 * called. Lock: held, but dropped during the callback.
 */
bool ashlar__reclaim_locked(ashlar_allocator *allocator, size_t bytes);

/* ---- from an address to its block ---- */

/* Whether ashlar__heap_check() passes; for assertions. A hit must not call it. O(blocks). */
bool ashlar__is_sound_locked(ashlar_allocator *allocator, const ashlar_cache *own);

/* The live block that begins at `ptr`. Lock: held. Errors: ASHLAR_EPOINTER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__find_live_locked(ashlar_allocator *allocator,
                                                         const void *ptr, ashlar_block **out);

/*
 * Find the live block that `ptr` points into: its start, and its requested bytes. Lock: not held.
 * Errors: ASHLAR_EPOINTER. Cost: O(log(blocks)), claims all caches.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__find_around(ashlar_allocator *allocator, const void *ptr,
                                                    void **base, size_t *bytes);

/* Whether `ptr` points into the heap's reserved memory, even outside live blocks. Lock: not held.
 * Cost: O(windows). */
bool ashlar__has_reserved(ashlar_allocator *allocator, const void *ptr);

#endif /* ASHLAR_SLOW_PATH_H */
