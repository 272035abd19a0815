/*
 * allocator.h - the stream-ordered caching allocator of one device.
 *
 * Blocks are taken for work on a stream and given back in its order, without waiting for it: what
 * is queued on that stream later may have the block at once, other streams get it only when an
 * event proves that its last use is over, or after a wait for that event on their own stream.
 */
#ifndef ASHLAR_ALLOCATOR_H
#define ASHLAR_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/config.h>
#include <ashlar/device.h>
#include <ashlar/export.h>
#include <ashlar/status.h>

ASHLAR_BEGIN_DECLS

typedef struct ashlar_allocator ashlar_allocator;

/*
 * What a block is for, so that reports can say where memory went. SAVED: by forward for backward.
 */
#define ASHLAR_TAG_MAP(X)            \
    X(USER, "user")                  \
    X(WEIGHTS, "weights")            \
    X(GRADIENTS, "gradients")        \
    X(MOMENTS, "moments")            \
    X(ACTIVATIONS, "activations")    \
    X(SAVED, "saved")                \
    X(WORKSPACE, "workspace")        \
    X(BATCH, "batch")

#define ASHLAR_TAG_ENUM(name, text) ASHLAR_TAG_##name,
typedef enum ashlar_tag {
    ASHLAR_TAG_MAP(ASHLAR_TAG_ENUM)
    ASHLAR_TAG_COUNT
} ashlar_tag;

/* "weights" and so on; "unknown" for a value that is no tag. Threads: any. */
ASHLAR_API const char *ashlar_tag_name(ashlar_tag tag);

typedef struct ashlar_tag_stats {
    uint64_t live_bytes;    /* requested, of blocks not yet freed */
    uint64_t peak_bytes;    /* largest live_bytes so far */
    uint64_t at_peak_bytes; /* live_bytes when the allocator's live_bytes was at its peak */
} ashlar_tag_stats;

/*
 * Invariants (tests/allocator/core/test_allocator.c):
 *   live_bytes <= block_bytes
 *   block_bytes + cached_bytes + planned_bytes + shared_bytes <= reserved_bytes
 *   every peak >= its current value
 *   alloc_count == the sum of the served_ counts,  live_blocks == alloc_count - free_count
 *   live_bytes == sum of tags[].live_bytes,  live_peak_bytes == sum of tags[].at_peak_bytes
 */
typedef struct ashlar_stats {
    uint64_t live_bytes;          /* requested by blocks not yet freed */
    uint64_t live_peak_bytes;
    uint64_t block_bytes;         /* the same blocks, rounding included */
    uint64_t cached_bytes;        /* free blocks that threads' caches, or guard=fill, hold */
    uint64_t planned_bytes;       /* plan memory that no block uses now */
    uint64_t shared_bytes;        /* freed blocks that several streams may not be done with yet */
    uint64_t reserved_bytes;      /* physical memory taken from the driver */
    uint64_t reserved_peak_bytes;
    uint64_t live_blocks;
    uint64_t alloc_count;         /* successful calls */
    uint64_t free_count;
    /* Which rung of the ladder served each allocation; see ashlar_alloc. */
    uint64_t served_planned;      /* the plan of the step; see plan.h */
    uint64_t served_cached;       /* the thread's own cache */
    uint64_t served_same_stream;  /* a block last used on the same stream */
    uint64_t served_idle;         /* a block that no queued work touches */
    uint64_t served_completed;    /* another stream's block whose event had completed */
    uint64_t served_waited;       /* another stream's block, after an in-stream wait */
    uint64_t served_mapped;       /* a miss: new physical memory */
    uint64_t served_drained;      /* memory was out: after every thread's cache was emptied */
    uint64_t served_reclaimed;    /* after a reclaim callback gave something back */
    uint64_t served_after_sync;   /* after the host had waited for work to end */
    uint64_t served_gathered;     /* after free physical memory was gathered into one hole */
    uint64_t events_recorded;
    uint64_t driver_calls;        /* of this allocator; choosing a context is not counted */
    uint64_t driver_calls_sealed; /* those since ashlar_allocator_seal() */
    bool is_sealed;
    ashlar_tag_stats tags[ASHLAR_TAG_COUNT];
} ashlar_stats;

/*
 * Make an allocator on `device`, with the default options as ASHLAR_CONF in the environment changes
 * them. It reserves addresses, and takes memory only if the option `reserve` says so. A device
 * without virtual memory management is served in segments of cuMemAlloc.
 *
 * Ownership: the caller owns *out; the device must outlive it.
 * Threads:   any.
 * Errors:    ASHLAR_EINVAL (ASHLAR_CONF), ASHLAR_ENOMEM (no addresses, or not the memory to
 *            reserve), ASHLAR_EOVERFLOW (more memory than can be addressed), ASHLAR_EDRIVER,
 *            ASHLAR_EHOSTMEM.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_allocator_create(ashlar_device *device,
                                                                   ashlar_allocator **out);

/* The same with these options; ASHLAR_CONF is ignored. Errors: also ASHLAR_EINVAL (config). */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_allocator_create_with(
    ashlar_device *device, const ashlar_config *config, ashlar_allocator **out);

/*
 * Receives what an allocator finds by itself, one line at a time without a newline; the library
 * never prints. It must not call this allocator. There are two kinds of reports:
 *
 *   damage (guard=fill)   from the thread whose call returns ASHLAR_EDAMAGE, or that destroys the
 *                         allocator
 *   leaks (leaks=on)      all live blocks by tag and size, those with the most bytes first: by
 *                         ashlar_allocator_destroy(), or for an allocator that is never destroyed,
 *                         when the process exits or the library is unloaded. That last report makes
 *                         no driver call, since the driver may be gone, and leaves out an allocator
 *                         that another thread is in
 */
typedef void (*ashlar_report_fn)(const char *line, void *user);

/*
 * Call `report` with `user` from now on. NULL, the default: nobody is told.
 *
 * Ownership: `user` is the caller's, and must live as long as the allocator, or the process.
 * Threads:   any.
 */
ASHLAR_API void ashlar_allocator_set_report(ashlar_allocator *allocator, ashlar_report_fn report,
                                            void *user);

/*
 * Wait for the device and return all memory to the driver, live blocks too. NULL is allowed.
 * Threads: no other call on this allocator may be under way.
 */
ASHLAR_API void ashlar_allocator_destroy(ashlar_allocator *allocator);

/* The device that the allocator was made on. Threads: any. */
ASHLAR_API ashlar_device *ashlar_allocator_device(const ashlar_allocator *allocator);

/*
 * Take a block of at least `bytes` bytes for work queued on `stream` from now on.
 *
 * bytes    1 .. the device's memory. Blocks are multiples of 512 B: from 32 to 512 KiB less than
 *          1/32 larger than asked, otherwise rounded up to the next multiple
 * tag      what the block is for; ashlar_alloc() takes ASHLAR_TAG_USER
 * stream   any of the device's; call ashlar_allocator_forget_stream() before destroying it
 * out      the block's device address, a multiple of 512; unchanged on failure
 *
 * The first of these serves the request; ashlar_stats counts each:
 *
 *   1. the plan of the step that the calling thread is in (plan.h), or the thread's cache
 *   2. a free block last used on the same stream, or an idle one, which no queued work touches;
 *      either again after the thread's cache was emptied
 *   3. another stream's block whose event has completed, or after a wait queued on `stream`; or
 *      several such blocks merged, once their work is over
 *   4. newly mapped memory, within limit and seal
 *   5. any of the above after every thread's cache was emptied, then after the program's callback
 *      (ashlar_allocator_set_reclaim()), then after the host has waited for work that holds free
 *      blocks
 *   6. free memory gathered from anywhere into one block
 *
 * Ownership: the caller owns *out until ashlar_free().
 * Threads:   any.  Stream: may queue one event wait on `stream`.
 * Errors:    ASHLAR_EINVAL (bytes; tag; a stream that is captured without a pool, see
 *            graph_pool.h), ASHLAR_ENOMEM (the detail says how much was asked for, is live and is
 *            reserved, the largest hole, and what the driver said), ASHLAR_EHOSTMEM,
 *            ASHLAR_EDRIVER. Nothing is lost.
 * Cost:      a hit in the thread's cache takes no lock, makes no call out of the library and writes
 *            nothing that another thread writes; a miss takes one lock and finds a block in O(1),
 *            or calls the driver. The lock is not held while the host waits.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_alloc(ashlar_allocator *allocator, size_t bytes,
                                                        ashlar_stream stream, void **out);
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_alloc_tagged(ashlar_allocator *allocator,
                                                               size_t bytes, ashlar_tag tag,
                                                               ashlar_stream stream, void **out);

/*
 * Give a block back. Work queued so far on the stream it was taken for may still use it: later work
 * on that stream may have the block at once, other streams get it only in a proven order.
 *
 * ptr      as returned by ashlar_alloc(); NULL is allowed and does nothing
 * stream   ashlar_free_on: the stream of the block's last use. It must come after the
 *          ashlar_alloc() of this block on the stream it was taken for, say by waiting for an event
 *          recorded there, even if nothing was queued there since: only that stream is ordered
 *          after the block's earlier owner. Uses on further streams must come before, too. A block
 *          of a graph pool (graph_pool.h) goes back to its pool, whatever the stream.
 *
 * Threads: any.
 * Errors:  ASHLAR_EPOINTER (foreign, inside a block, or freed before; nothing changes),
 *          ASHLAR_EHOSTMEM (ashlar_free_on, first use of that stream; nothing changes).
 *          In a guard mode (ashlar_guard) also ASHLAR_EDRIVER, ASHLAR_ENOMEM and ASHLAR_EHOSTMEM,
 *          and nothing changes; and ASHLAR_EDAMAGE: the block is freed, and the detail describes
 *          damage found by now, to this block or an earlier one. With ASHLAR_EPOINTER the detail
 *          then says where this free was called from, and where the pointer was freed before, if
 *          that is among the last 1024 frees.
 * Cost:    O(1) to find the block, no driver call; in a guard mode see ashlar_guard.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_free(ashlar_allocator *allocator, void *ptr);
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_free_on(ashlar_allocator *allocator, void *ptr,
                                                          ashlar_stream stream);

/*
 * Tell the allocator that work on a further stream uses the block. After the free, nobody gets the
 * block before the work that had been queued on that stream until then.
 *
 * ptr      of a live block
 * stream   any of the device's; the one the block was taken for changes nothing
 *
 * Threads: any.
 * Errors:  ASHLAR_EPOINTER (as for ashlar_free), ASHLAR_EHOSTMEM; nothing changes then.
 * Cost:    O(streams of the block), takes the lock; records no event until another stream wants
 *          the block.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_record_stream(ashlar_allocator *allocator,
                                                                void *ptr, ashlar_stream stream);

/*
 * Call it after queuing the last work on `stream`, before destroying the stream: afterwards its
 * handle may name another one. ashlar_stream_destroy() calls it itself. Blocks used on the stream,
 * live ones too, stay valid, and whoever gets them next comes after all of its work.
 *
 * Threads: any; none may use the stream any more.
 * Stream:  records an event on it, if the allocator has seen it at all.
 * Errors:  ASHLAR_EINVAL (it is being captured), ASHLAR_EDRIVER, ASHLAR_ENOMEM; nothing changes.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_allocator_forget_stream(ashlar_allocator *allocator, ashlar_stream stream);

/*
 * How many bytes the live block at `ptr` has: at least as many as asked for, in a guard mode just
 * those. *out is unchanged on failure.
 * Threads: any.  Errors: ASHLAR_EPOINTER (as for ashlar_free).  Cost: O(1), takes the lock.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_allocator_usable_bytes(ashlar_allocator *allocator, const void *ptr, size_t *out);

/*
 * Read all statistics at one moment. Live and reserved bytes are exact, and so is the peak of
 * reserved bytes. Peaks of live bytes are exact while one thread allocates; with several they are
 * wrong by at most what other threads' caches had handed out or taken back since they last took
 * the lock.
 *
 * Threads: any.  Cost: takes the lock, a system call where several threads have caches, and
 * O(blocks in caches); while a step is replayed, O(slots of its stream's plans).
 */
ASHLAR_API void ashlar_allocator_get_stats(ashlar_allocator *allocator, ashlar_stats *stats);

/* ---- limits ---- */

/*
 * Limit the memory that the allocator holds. Whatever is reserved above the limit goes back to the
 * device at once as far as it is idle, and nothing is mapped beyond it from then on.
 *
 * bytes   0, or more than the device has: all of the device's memory
 *
 * Threads: any.  Stream: queries events, does not wait.
 * Errors:  ASHLAR_ENOMEM (more is in use; the limit holds all the same), ASHLAR_EDRIVER.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_allocator_set_limit(ashlar_allocator *allocator,
                                                                      size_t bytes);

/*
 * Take memory from the device until `bytes` are reserved, in one piece as far as possible, so that
 * a loop whose need is known does not take it little by little.
 *
 * Threads: any.  Errors: ASHLAR_ENOMEM (device, limit or seal), ASHLAR_EDRIVER, ASHLAR_EHOSTMEM.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_allocator_reserve(ashlar_allocator *allocator,
                                                                    size_t bytes);

/*
 * Give memory back to the device until at most `target_bytes` are reserved, as far as no live block
 * and no queued work is in the way, in pieces of at most 32 MiB. Empties all threads' caches.
 *
 * Threads: any.  Stream: queries events, does not wait.
 * Errors:  ASHLAR_EDRIVER, ASHLAR_EHOSTMEM; what was given back before stays so.
 * Cost:    O(blocks), and two driver calls for each piece; the driver may wait for the device.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_allocator_trim(ashlar_allocator *allocator,
                                                                 size_t target_bytes);

/*
 * Declare the warm-up over: from here on driver_calls_sealed counts, and the seal policy decides
 * what happens when more memory is needed. Calling it again starts the count at 0. Threads: any.
 */
ASHLAR_API void ashlar_allocator_seal(ashlar_allocator *allocator);

/*
 * `line` says what happened, and is valid during the call. Called without a lock: may call ashlar.
 */
typedef void (*ashlar_warn_fn)(void *user, const char *line);

/*
 * Choose what happens when the sealed allocator needs more memory; at first the option `seal` says.
 *
 * policy   ASHLAR_SEAL_COUNT   take it, and count
 *          ASHLAR_SEAL_WARN    the same, and call `warn` from the thread that needed it
 *          ASHLAR_SEAL_ERROR   refuse: serve the request from what is reserved, or fail with
 *                              ASHLAR_ENOMEM
 * warn     NULL: nobody is told
 *
 * Threads: any.
 */
ASHLAR_API void ashlar_allocator_set_seal_policy(ashlar_allocator *allocator,
                                                 ashlar_seal_policy policy, ashlar_warn_fn warn,
                                                 void *user);

/*
 * Give memory back that the program can do without; true: it did, so search again. May call ashlar.
 */
typedef bool (*ashlar_reclaim_fn)(void *user, size_t bytes);

/*
 * Call `reclaim` when a request of `bytes` finds no free block and no more memory can be mapped.
 * It is called without a lock by the thread that asks, so by several at a time, and not for
 * requests that it makes itself. NULL, the default: nothing is called.
 *
 * Threads: any.
 */
ASHLAR_API void ashlar_allocator_set_reclaim(ashlar_allocator *allocator, ashlar_reclaim_fn reclaim,
                                             void *user);

/*
 * Give another device access to all memory of the allocator, present and future.
 *
 * ordinal   of the other device, of the same kind
 *
 * Threads: any.
 * Errors:  ASHLAR_ENOTSUP (it cannot reach the memory; too many peers; or memory comes in segments,
 *          which a peer reaches by its own cuCtxEnablePeerAccess), ASHLAR_EDRIVER, ASHLAR_ENOMEM;
 *          nothing changes then.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_allocator_allow_peer(ashlar_allocator *allocator,
                                                                       int ordinal);

/*
 * Walk all blocks, and compare them with the invariants above and with every index: for tests, and
 * for hunting stray writes.
 *
 * Threads: any.
 * Errors:  ASHLAR_EFORMAT with what is wrong, which would be a defect of ashlar's; ASHLAR_EDAMAGE
 *          (guard=fill): the program wrote where it must not, each finding once. Comparisons that
 *          are still queued have found nothing yet: synchronise the streams before.
 * Cost:    O(blocks), under the lock.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_allocator_check(ashlar_allocator *allocator);

ASHLAR_END_DECLS

#endif /* ASHLAR_ALLOCATOR_H */
