/*
 * allocator.h - the stream-ordered caching allocator of one device.
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

/* What a block is for, so that an account can say where memory went. */
#define ASHLAR_TAG_MAP(X)            \
    X(USER, "user")                  \
    X(WEIGHTS, "weights")            \
    X(GRADIENTS, "gradients")        \
    X(MOMENTS, "moments")            \
    X(ACTIVATIONS, "activations")    \
    X(SAVED, "saved")            \
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
 *   live_bytes <= block_bytes,  block_bytes + cached_bytes + planned_bytes + shared_bytes <=
 *     reserved_bytes
 *   every peak >= its current value
 *   alloc_count == the sum of the served_ counts,  live_blocks == alloc_count - free_count
 *   live_bytes == sum of tags[].live_bytes,  live_peak_bytes == sum of tags[].at_peak_bytes
 */
typedef struct ashlar_stats {
    uint64_t live_bytes;          /* requested by blocks not yet freed */
    uint64_t live_peak_bytes;
    uint64_t block_bytes;         /* the same blocks, rounding included */
    uint64_t cached_bytes;        /* free blocks that threads' caches, or guard=fill, hold */
    uint64_t planned_bytes;       /* of plans' memory, in no block now */
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
 * Make an allocator on `device`: reserves address space, takes no memory yet. Its options are the
 * defaults, changed by the environment's ASHLAR_CONF.
 *
 * Ownership: *out is the caller's; the device must outlive it.
 * Threads:   any.
 * Errors:    ASHLAR_ENOTSUP (a device without virtual memory management), ASHLAR_ENOMEM (no
 *            address space), ASHLAR_EOVERFLOW, ASHLAR_EDRIVER, ASHLAR_EHOSTMEM.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_allocator_create(ashlar_device *device,
                                                                   ashlar_allocator **out);

/* The same with these options; the environment is not asked. Errors: also those of `config`. */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_allocator_create_with(
    ashlar_device *device, const ashlar_config *config, ashlar_allocator **out);

/*
 * What an allocator reports by itself, one line without a newline at a time, for the library never
 * prints: damage (guard=fill), from the thread that is told of it by ASHLAR_EDAMAGE, or that
 * destroys the allocator; and leaks (leaks=on): all live blocks, grouped by tag and size, those
 * with the most bytes first.
 *
 * Leaks are reported by ashlar_allocator_destroy(); for an allocator that is never destroyed, when
 * the process exits or the library is unloaded. That report makes no driver call, since the driver
 * may be gone by then, and leaves out an allocator that another thread is in.
 *
 * The function must call nothing of this allocator.
 */
typedef void (*ashlar_report_fn)(const char *line, void *user);

/*
 * Have `report` called with `user` from now on; NULL: nobody is told, as at first.
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
 * bytes    1 .. the device's memory. Blocks are multiples of 512 B; from 32 KiB to 1 MiB they are
 *          less than 1/32 larger than asked, everywhere else exact to 512 B.
 * stream   any of the device's; see ashlar_allocator_forget_stream() for its end
 * out      the block's device address, a multiple of 512; unchanged on failure
 *
 * Served by the first of: the plan of the step that the calling thread is in (plan.h); its cache; a
 * block last used on the same stream; an idle block; either again, after the thread's cache was
 * emptied; another stream's block whose event has completed; another stream's block after a wait
 * queued on `stream`; an idle block again, after free blocks of other streams whose work is over
 * were merged; newly mapped memory. When there is no more
 * of it, any of these after all threads' caches were emptied, after the program's callback
 * (ashlar_allocator_set_reclaim), after the host has waited for the work that still holds free
 * blocks; and at last memory that was gathered from everywhere into one block.
 *
 * Ownership: the caller owns *out until ashlar_free().
 * Threads:   any.  Stream: may queue one event wait on `stream`.
 * Errors:    ASHLAR_EINVAL (bytes, tag),
 *            ASHLAR_EINVAL also for a stream that is captured without a pool (graph_pool.h),
 *            ASHLAR_ENOMEM (the detail says what was asked, live, reserved, the largest hole, and
 *            what the driver said), ASHLAR_EHOSTMEM, ASHLAR_EDRIVER. Nothing is lost.
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
 * Give a block back. Work queued so far on the stream it was taken for may still use it: there the
 * block is at once reusable, since later work runs after; other streams get it only in a proven
 * order.
 *
 * ptr      as returned by ashlar_alloc(); NULL is allowed and does nothing
 * stream   ashlar_free_on: the stream of the block's last use. It must be ordered after the
 *          ashlar_alloc() of this block on its own stream (say, by waiting for an event recorded
 *          there), even if nothing was queued there since: only that stream knows the block's
 *          earlier owner. Uses on further streams must be ordered before it likewise. A block of
 *          a graph's pool (graph_pool.h) goes back to its pool, whatever the stream.
 *
 * Threads: any.
 * Errors:  ASHLAR_EPOINTER (foreign, inside a block, or freed before; nothing changes),
 *          ASHLAR_EHOSTMEM (ashlar_free_on, first use of that stream; nothing changes).
 *          In a guard mode also ASHLAR_EDRIVER, ASHLAR_ENOMEM and ASHLAR_EHOSTMEM, nothing
 *          changes; and ASHLAR_EDAMAGE: the block is freed, and the detail tells of damage that
 *          was found by now, to this block or to one freed earlier (see ashlar_guard). For
 *          ASHLAR_EPOINTER the detail then says where this free was called from, and where the
 *          pointer was freed before, if that is one of the last 1024 frees.
 * Cost:    O(1) to find the block, no driver call; in a guard mode see ashlar_guard.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_free(ashlar_allocator *allocator, void *ptr);
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_free_on(ashlar_allocator *allocator, void *ptr,
                                                          ashlar_stream stream);

/*
 * Say that work on a further stream uses the block: once it is freed, it is given out again only
 * when the work queued on that stream until then is over, or in an order after it.
 *
 * ptr      of a live block
 * stream   any; the block's own changes nothing
 *
 * Threads: any.
 * Errors:  ASHLAR_EPOINTER (as for ashlar_free), ASHLAR_EHOSTMEM; nothing changes then.
 * Cost:    O(streams of the block), takes the lock. No event until another stream wants the block.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_record_stream(ashlar_allocator *allocator,
                                                                void *ptr, ashlar_stream stream);

/*
 * Say that `stream` is about to be destroyed: its handle may then name another stream. To be called
 * before, after the last work on it was queued; ashlar_stream_destroy() does so itself. Blocks that
 * were used there, live ones too, stay as they are, and are ordered after all of its work.
 *
 * Threads: any; none may use the stream any more.
 * Stream:  an event is recorded on it, where the allocator has seen it at all.
 * Errors:  ASHLAR_EINVAL (it is being captured), ASHLAR_EDRIVER, ASHLAR_ENOMEM; nothing changes.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_allocator_forget_stream(ashlar_allocator *allocator, ashlar_stream stream);

/*
 * How many bytes the live block at `ptr` has; at least those asked for, in a guard mode just those.
 * Unchanged on failure.
 * Threads: any.  Errors: ASHLAR_EPOINTER (as for ashlar_free).  Cost: O(1), takes the lock.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_allocator_usable_bytes(ashlar_allocator *allocator, const void *ptr, size_t *out);

/*
 * One consistent reading of all statistics. Reserved bytes and their peak are exact at all times;
 * so are live bytes; their peaks are exact while one thread allocates, and with several wrong by at
 * most what the others' caches had handed out or taken back since they last took the lock.
 *
 * Threads: any.  Cost: takes the lock, a system call where several threads have caches, and
 * O(blocks in caches); while a step is replayed, O(slots of its stream's plans).
 */
ASHLAR_API void ashlar_allocator_get_stats(ashlar_allocator *allocator, ashlar_stats *stats);

/* ---- limits ---- */

/*
 * Bound the memory that the allocator has of the device. It binds at once and exactly: what is
 * reserved above it is given back as far as it is idle, and from then on nothing is mapped beyond.
 *
 * bytes   0, or more than the device has: the device's memory
 *
 * Threads: any.  Stream: asks events, does not wait.
 * Errors:  ASHLAR_ENOMEM (more is in use; the limit holds all the same), ASHLAR_EDRIVER.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_allocator_set_limit(ashlar_allocator *allocator,
                                                                      size_t bytes);

/*
 * Take memory from the device until `bytes` are reserved, in one piece as far as it goes: so that a
 * loop whose need is known does not take it in steps.
 *
 * Threads: any.  Errors: ASHLAR_ENOMEM (device, limit or seal), ASHLAR_EDRIVER, ASHLAR_EHOSTMEM.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_allocator_reserve(ashlar_allocator *allocator,
                                                                    size_t bytes);

/*
 * Give memory back to the device until at most `target_bytes` are reserved, as far as no live block
 * and no queued work is in the way; in pieces of at most 32 MiB. All threads' caches are emptied.
 *
 * Threads: any.  Stream: asks events, does not wait.
 * Errors:  ASHLAR_EDRIVER, ASHLAR_EHOSTMEM; what was given back before stays so.
 * Cost:    O(blocks), and two driver calls for each piece; the driver may wait for the device.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_allocator_trim(ashlar_allocator *allocator,
                                                                 size_t target_bytes);

/*
 * Declare the warm-up over: from here on driver_calls_sealed counts, and taking memory from the
 * driver is what the policy says. Calling it again starts the count afresh. Threads: any.
 */
ASHLAR_API void ashlar_allocator_seal(ashlar_allocator *allocator);

/* `line` says what happened; valid during the call. It may call ashlar, and is given no lock. */
typedef void (*ashlar_warn_fn)(void *user, const char *line);

/*
 * What taking memory after the seal is: ASHLAR_SEAL_COUNT, counted; ASHLAR_SEAL_WARN, counted, and
 * `warn` called by the thread that needed it; ASHLAR_SEAL_ERROR, refused: the request is served
 * from what there is, or fails with ASHLAR_ENOMEM. At first the option `seal` says which.
 *
 * warn   NULL: nobody is told
 *
 * Threads: any.
 */
ASHLAR_API void ashlar_allocator_set_seal_policy(ashlar_allocator *allocator,
                                                 ashlar_seal_policy policy, ashlar_warn_fn warn,
                                                 void *user);

/* True: something was freed, so that another search is worth it. It may call ashlar. */
typedef bool (*ashlar_reclaim_fn)(void *user, size_t bytes);

/*
 * Have `reclaim` called, with no lock held and by the thread that asks, when a request of `bytes`
 * finds nothing and no more can be mapped: for programs that hold memory they could do without.
 * Requests that it makes itself do not call it. NULL: nothing is called.
 *
 * Threads: any; it may be called by several threads at a time.
 */
ASHLAR_API void ashlar_allocator_set_reclaim(ashlar_allocator *allocator, ashlar_reclaim_fn reclaim,
                                             void *user);

/*
 * Let another device use all memory of the allocator, what there is and what will be.
 *
 * ordinal   of the other device, of the same kind
 *
 * Threads: any.
 * Errors:  ASHLAR_ENOTSUP (it cannot; or memory comes in segments, which a peer sees through its
 *          own cuCtxEnablePeerAccess), ASHLAR_EDRIVER, ASHLAR_ENOMEM; nothing changes then.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_allocator_allow_peer(ashlar_allocator *allocator,
                                                                       int ordinal);

/*
 * Walk every block and compare with the invariants above and with every index.
 * Errors: ASHLAR_EFORMAT with what is wrong; it would be a defect of ashlar's. ASHLAR_EDAMAGE: all
 *         is well with ashlar, but the program wrote where it must not (guard=fill), each finding
 *         once. What is still queued on streams has found nothing yet: synchronise them before.
 * Cost:   O(blocks), under the lock; for tests and for hunting stray writes.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_allocator_check(ashlar_allocator *allocator);

ASHLAR_END_DECLS

#endif /* ASHLAR_ALLOCATOR_H */
