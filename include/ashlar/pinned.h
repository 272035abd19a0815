/*
 * pinned.h - a pool of page-locked host memory, whose blocks may be given back while queued copies
 * still use them.
 *
 * In a library of its own, ashlar-pinned: it stands on jemalloc, and a program linked with that
 * has jemalloc as its malloc as well. jemalloc's option `xmalloc` must be off, as it is by default.
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

/* Of a pool; a field that is 0 has its default. */
typedef struct ashlar_pinned_config {
    size_t limit_bytes; /* at most so much is held of the driver; default: no limit */
    size_t grow_bytes;  /* the least to take of the driver at once; default: 2 MiB */
} ashlar_pinned_config;

/*
 * Invariants (tests/allocator/pinned/test_pinned.c), in each reading:
 *   live_bytes + pending_bytes <= reserved_bytes <= limit_bytes (where there is one)
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
    uint64_t reserved_bytes;      /* held of the driver */
    uint64_t reserved_peak_bytes;
    uint64_t alloc_count;         /* successful calls */
    uint64_t free_count;          /* successful calls, of every kind */
    uint64_t deferred_count;      /* those of them that made a block pending */
    uint64_t released_count;      /* blocks no longer pending */
    uint64_t driver_alloc_count;  /* successful cuMemHostAlloc */
    uint64_t driver_free_count;   /* cuMemFreeHost */
    uint64_t events_recorded;
    uint64_t host_waits;          /* ashlar_pinned_alloc had to wait for an event */
} ashlar_pinned_stats;

/*
 * Make a pool. Takes no page-locked memory yet.
 *
 * config   NULL: every default
 *
 * Ownership: *out is the caller's; the device must outlive it.
 * Threads:   any.
 * Errors:    ASHLAR_ENOTSUP (a jemalloc older than 5.3), ASHLAR_EHOSTMEM (also where there are some
 *            500 pools at once).
 * Cost:      some 100 KiB of host memory; jemalloc keeps 2 MiB of address space, of which 4 KiB are
 *            memory, when the pool is gone.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_pinned_create(ashlar_device *device,
                                                                const ashlar_pinned_config *config,
                                                                ashlar_pinned **out);

/*
 * Wait on the host for the work that pending blocks wait for, then return all memory to the
 * driver, live blocks too. NULL is allowed.
 * Threads: no other call on this pool may be under way.
 */
ASHLAR_API void ashlar_pinned_destroy(ashlar_pinned *pool);

/*
 * Take a block of page-locked memory.
 *
 * bytes   from 1; above 64 bytes the block is less than 1/4 larger. jemalloc adds a page to blocks
 *         above 14 KiB that nobody can use.
 * out     aligned as by malloc, not cleared; unchanged on failure
 *
 * Served by the first of: memory at hand; blocks that were pending and are no longer; what thread
 * caches hold; more memory from the driver, unused memory of the pool being returned first where
 * that makes the room; and any of these after the host has waited for the oldest pending work.
 *
 * Ownership: the caller owns *out until it is given back.
 * Threads:   any.  Stream: none.
 * Errors:    ASHLAR_EINVAL (bytes is 0), ASHLAR_ENOMEM (the detail gives the account),
 *            ASHLAR_EHOSTMEM, ASHLAR_EDRIVER. Nothing is lost.
 * Cost:      a hit takes two locks that few threads share, and makes no driver call. No lock is
 *            held while the driver allocates or the host waits.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_pinned_alloc(ashlar_pinned *pool, size_t bytes,
                                                               void **out);

/*
 * Give a block back.
 *
 * ashlar_pinned_free       nothing queued uses it any more
 * ashlar_pinned_free_on    work queued on `stream` so far may use it: it is handed out again only
 *                          when an event recorded there after this call has completed
 * ashlar_pinned_free_on_all  the same for `count` streams, all of them; 0 is ashlar_pinned_free
 *
 * ptr      as returned by ashlar_pinned_alloc(); NULL is allowed and does nothing
 * stream   must live until ashlar_pinned_forget_stream(), since its event is recorded later, one
 *          for many blocks; not the per-thread default stream
 *
 * Threads: any.  Stream: never waits. A slow stream holds back its own blocks only.
 * Errors:  ASHLAR_EPOINTER (foreign, inside a block, or given back before; nothing changes),
 *          ASHLAR_ENOTSUP (the per-thread default stream; nothing changes),
 *          ASHLAR_EHOSTMEM (free_on; nothing changes).
 * Cost:    O(1), plus the number of streams in use for free_on. An event is recorded for 32 blocks
 *          or 1 MiB of a stream, or when ashlar_pinned_alloc() misses, under the one lock that
 *          free_on takes.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_pinned_free(ashlar_pinned *pool, void *ptr);
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_pinned_free_on(ashlar_pinned *pool, void *ptr,
                                                                 ashlar_stream stream);
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_pinned_free_on_all(ashlar_pinned *pool, void *ptr,
                                                                     const ashlar_stream *streams,
                                                                     size_t count);

/*
 * Name `stream` no more: record its event now, so that it may be destroyed. Its pending blocks stay
 * pending until then. A stream that was never named is fine.
 *
 * Threads: any.  Stream: no host wait.
 * Errors:  ASHLAR_EDRIVER, ASHLAR_ENOMEM: no event could be recorded, and the stream must live on.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_pinned_forget_stream(ashlar_pinned *pool,
                                                                       ashlar_stream stream);

/*
 * How many bytes the live block at `ptr` has; at least those asked for. Unchanged on failure.
 * Threads: any.  Errors: ASHLAR_EPOINTER (as for ashlar_pinned_free).  Cost: O(1), takes a lock.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_pinned_usable_bytes(ashlar_pinned *pool,
                                                                      const void *ptr, size_t *out);

/*
 * Return to the driver what it gave in one piece and of which no byte is live or pending. After
 * the last block was given back and its work is over, that is everything; what other threads give
 * back meanwhile may stay.
 *
 * Threads: any.  Stream: no host wait, but the driver may make one.
 * Errors:  ASHLAR_EDRIVER, ASHLAR_ENOMEM (an event could not be recorded or read; its blocks stay
 *          pending, the rest is done).
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_pinned_trim(ashlar_pinned *pool);

/* One consistent reading of all statistics. Threads: any. Cost: takes the pool's locks. */
ASHLAR_API void ashlar_pinned_get_stats(ashlar_pinned *pool, ashlar_pinned_stats *stats);

ASHLAR_END_DECLS

#endif /* ASHLAR_PINNED_H */
