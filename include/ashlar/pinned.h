/*
 * pinned.h - pools of page-locked host memory, whose blocks may be given back while queued copies
 * still use them.
 *
 * The pools are a separate library, ashlar-pinned, which is built on jemalloc: a program linked
 * with ashlar-pinned has jemalloc as its malloc, too. jemalloc's option `xmalloc` must be off,
 * which is the default.
 */
#ifndef ASHLAR_PINNED_H
#define ASHLAR_PINNED_H

#include <stddef.h>
#include <stdint.h>

#include <ashlar/device.h>
#include <ashlar/export.h>
#include <ashlar/status.h>

ASHLAR_BEGIN_DECLS

typedef struct ashlar_pinned ashlar_pinned;

/* Options of a pool; 0 stands for the default. */
typedef struct ashlar_pinned_config {
    size_t limit_bytes; /* most memory taken from the driver; default: no limit */
    size_t grow_bytes;  /* least memory taken at once; default: 2 MiB */
} ashlar_pinned_config;

/*
 * Invariants of each reading (tests/allocator/pinned/test_pinned.c):
 *   live_bytes + pending_bytes <= reserved_bytes <= limit_bytes (if there is a limit)
 *   every peak >= its current value
 *   live_blocks == alloc_count - free_count,  pending_blocks == deferred_count - released_count
 *   deferred_count <= free_count,  driver_free_count <= driver_alloc_count
 */
typedef struct ashlar_pinned_stats {
    uint64_t live_bytes;          /* of blocks not given back, rounding included */
    uint64_t live_peak_bytes;
    uint64_t live_blocks;
    uint64_t pending_bytes;       /* of blocks given back that queued work may still use */
    uint64_t pending_blocks;
    uint64_t reserved_bytes;      /* taken from the driver */
    uint64_t reserved_peak_bytes;
    uint64_t alloc_count;         /* successful calls */
    uint64_t free_count;          /* successful calls, of every kind */
    uint64_t deferred_count;      /* successful frees that made a block pending */
    uint64_t released_count;      /* blocks that were pending and no longer are */
    uint64_t driver_alloc_count;  /* successful calls of cuMemHostAlloc */
    uint64_t driver_free_count;   /* calls of cuMemFreeHost */
    uint64_t events_recorded;
    uint64_t host_waits;          /* how often ashlar_pinned_alloc() waited for an event */
} ashlar_pinned_stats;

/*
 * Make a pool. Takes no page-locked memory yet.
 *
 * config   NULL: every default
 *
 * Ownership: *out is the caller's; the device must outlive it.
 * Threads:   any.
 * Errors:    ASHLAR_ENOTSUP (a jemalloc older than 5.3), ASHLAR_EHOSTMEM (also at some 500 pools at
 *            once).
 * Cost:      some 100 KiB of host memory. After the pool is destroyed, jemalloc still keeps 2 MiB
 *            of address space, of which 4 KiB are memory.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_pinned_create(ashlar_device *device,
                                                                const ashlar_pinned_config *config,
                                                                ashlar_pinned **out);

/*
 * Wait on the host until pending blocks are no longer used, then return all memory to the driver,
 * including live blocks. NULL is allowed.
 * Threads: no other call on this pool may be under way.
 */
ASHLAR_API void ashlar_pinned_destroy(ashlar_pinned *pool);

/*
 * Take a block of page-locked memory.
 *
 * bytes   at least 1. Above 64 bytes the block is less than 1/4 larger than requested. Above 14 KiB
 *         jemalloc adds a page that nobody can use
 * out     the block, aligned as by malloc, not cleared; unchanged on failure
 *
 * These are tried in order until one serves the request: free memory; pending blocks whose work is
 * over; memory in thread caches; more memory from the driver (if the limit or the driver refuses,
 * unused memory is returned first); all of these again after the host has waited for the oldest
 * pending work.
 *
 * Ownership: the caller owns *out until it is given back.
 * Threads:   any.  Stream: none.
 * Errors:    ASHLAR_EINVAL (bytes is 0), ASHLAR_ENOMEM (the detail says what the memory is used
 *            for), ASHLAR_EHOSTMEM, ASHLAR_EDRIVER. A call that fails loses no memory.
 * Cost:      a hit takes two locks that few threads share, and makes no driver call. No lock is
 *            held while the driver allocates or the host waits.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_pinned_alloc(ashlar_pinned *pool, size_t bytes,
                                                               void **out);

/*
 * Give a block back.
 *
 * ashlar_pinned_free         no queued work may use the block any more
 * ashlar_pinned_free_on      work queued on `stream` so far may use the block: it is reused only
 *                            when an event recorded there after this call has completed
 * ashlar_pinned_free_on_all  the same for each of `count` streams; 0: as ashlar_pinned_free
 *
 * ptr      as returned by ashlar_pinned_alloc(); NULL is allowed and does nothing
 * stream   must live until ashlar_pinned_forget_stream(), since an event is recorded on it later,
 *          one for many blocks; not the per-thread default stream
 *
 * Threads: any.  Stream: never waits. A slow stream delays only the reuse of its own blocks.
 * Errors:  ASHLAR_EPOINTER (foreign, inside a block, or given back before; nothing changes),
 *          ASHLAR_ENOTSUP (the per-thread default stream; nothing changes),
 *          ASHLAR_EHOSTMEM (free_on; nothing changes).
 * Cost:    O(1); for free_on, O(streams in use). A stream's event is recorded, under the one lock
 *          that free_on takes, for every 32 blocks or 1 MiB freed on it, or when
 *          ashlar_pinned_alloc() misses.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_pinned_free(ashlar_pinned *pool, void *ptr);
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_pinned_free_on(ashlar_pinned *pool, void *ptr,
                                                                 ashlar_stream stream);
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_pinned_free_on_all(ashlar_pinned *pool, void *ptr,
                                                                     const ashlar_stream *streams,
                                                                     size_t count);

/*
 * Call this before destroying `stream`; no later call may name the stream. Records its event now.
 * Blocks freed on the stream stay pending until that event has completed. A stream that was never
 * named before is allowed.
 *
 * Threads: any.  Stream: no host wait.
 * Errors:  ASHLAR_EDRIVER, ASHLAR_ENOMEM: no event was recorded, so the stream must live on.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_pinned_forget_stream(ashlar_pinned *pool,
                                                                       ashlar_stream stream);

/*
 * The size of the live block at `ptr` in bytes: at least the size requested. *out is unchanged on
 * failure.
 * Threads: any.  Errors: ASHLAR_EPOINTER (as for ashlar_pinned_free).  Cost: O(1), takes a lock.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_pinned_usable_bytes(ashlar_pinned *pool,
                                                                      const void *ptr, size_t *out);

/*
 * Return to the driver every piece of memory in which no byte is live or pending. Once all blocks
 * are given back and their work is over, that is all memory. Memory of blocks that other threads
 * give back during the call may stay.
 *
 * Threads: any.  Stream: does not wait on the host itself, but the driver may.
 * Errors:  ASHLAR_EDRIVER, ASHLAR_ENOMEM (an event could not be recorded or read; its blocks stay
 *          pending, the rest is done).
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_pinned_trim(ashlar_pinned *pool);

/* Read all statistics at one moment. Threads: any. Cost: takes the pool's locks. */
ASHLAR_API void ashlar_pinned_get_stats(ashlar_pinned *pool, ashlar_pinned_stats *stats);

ASHLAR_END_DECLS

#endif /* ASHLAR_PINNED_H */
