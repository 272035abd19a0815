/*
 * allocator.h - the stream-ordered caching allocator of one device.
 *
 * A block is taken for work on one stream and given back in that stream's order, without a wait.
 * Later work on the same stream may reuse the block at once. Another stream gets it only when an
 * event proves that the last use is over, or after a wait for that event is queued on it.
 *
 * THE CORE, fifteen functions: ashlar_device_open(), ashlar_device_close();
 * ashlar_allocator_create(), ashlar_allocator_destroy(); ashlar_alloc(), ashlar_free(),
 * ashlar_free_on(), ashlar_record_stream(); ashlar_allocator_get_stats(), ashlar_allocator_trim(),
 * ashlar_allocator_seal(); and for steps (plan.h) ashlar_allocator_warmup(), ashlar_warmup_key(),
 * ashlar_step_begin(), ashlar_step_end(). All else is for those who need it. What concerns a block
 * has a short name (ashlar_alloc, ashlar_usable_bytes); the rest begins with what it is about.
 *
 * NAMED STREAMS. These events are recorded late: when another stream wants the block or, if other
 * streams used it, at its free. So a stream that was passed to any function together with an
 * allocator must stay alive until ashlar_allocator_forget_stream(), which ashlar_stream_destroy()
 * calls itself. Such a stream is called "named" below. A program that cannot keep this rule uses
 * ashlar_allocator_watch_streams(). Using the handle of a destroyed stream is undefined in CUDA,
 * and no function of ashlar finds out. The default streams need not be forgotten.
 *
 * FREE MEMORY SERVES ALL. Idle memory of a device belongs to the process: if the driver refuses
 * memory to one allocator, the device's others give idle memory back, first what no work uses any
 * more, then the rest after a wait. (A sealed one with ASHLAR_SEAL_ERROR keeps its own.) And no
 * request waits for work queued after the memory was freed, while other memory would do:
 * ashlar_stream_synchronize() tells all allocators of the device what is over; once several streams
 * are known and less than 1/8 of the limit is left, a free of more than 512 KiB records an event; a
 * wait on the host ends when any stream is done. One case remains: at the limit, the first request
 * after frees that recorded no event (of smaller blocks, or while more was left) comes behind all
 * work queued on their stream by then. If that work itself waits for what the request is for (a
 * receive for a send), neither ends. To avoid that, call ashlar_stream_synchronize() before queuing
 * such work, or free on a separate stream.
 */
#ifndef ASHLAR_ALLOCATOR_H
#define ASHLAR_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/base.h>
#include <ashlar/device.h>
#include <ashlar/plan.h>

ASHLAR_BEGIN_DECLS

typedef struct ashlar_allocator ashlar_allocator;

/* What a block is for, so that reports can say where memory went. SAVED: kept for backward. */
#define ASHLAR_TAG_MAP(X)         \
    X(USER, "user")               \
    X(WEIGHTS, "weights")         \
    X(GRADIENTS, "gradients")     \
    X(MOMENTS, "moments")         \
    X(ACTIVATIONS, "activations") \
    X(SAVED, "saved")             \
    X(WORKSPACE, "workspace")     \
    X(BATCH, "batch")

#define ASHLAR_TAG_ENUM(name, text) ASHLAR_TAG_##name,
typedef enum ashlar_tag { ASHLAR_TAG_MAP(ASHLAR_TAG_ENUM) ASHLAR_TAG_COUNT } ashlar_tag;

/* "weights" and so on; "unknown" if the value is not a tag. Threads: any. */
ASHLAR_API const char *ashlar_tag_name(ashlar_tag tag);

typedef struct ashlar_tag_stats {
    uint64_t live_bytes;    /* requested bytes of blocks not yet freed */
    uint64_t peak_bytes;    /* largest live_bytes so far */
    uint64_t at_peak_bytes; /* live_bytes when the allocator's live_bytes was at its peak */
} ashlar_tag_stats;

/*
 * Invariants (tests/allocator/core/test_allocator.c):
 *   live_bytes <= block_bytes
 *   block_bytes + cached_bytes + planned_bytes + shared_bytes + spare_bytes <= reserved_bytes
 *   every peak >= its current value
 *   alloc_count == the sum of the served_ counts,  live_blocks == alloc_count - free_count
 *   live_bytes == sum of tags[].live_bytes,  live_peak_bytes == sum of tags[].at_peak_bytes
 */
typedef struct ashlar_stats {
    uint64_t live_bytes; /* requested bytes of blocks not yet freed */
    uint64_t live_peak_bytes;
    uint64_t block_bytes;    /* bytes of these blocks, including rounding */
    uint64_t cached_bytes;   /* free blocks that threads' caches, or guard=fill, hold */
    uint64_t planned_bytes;  /* plan memory that no block uses now */
    uint64_t shared_bytes;   /* freed blocks that several streams may still use */
    uint64_t spare_bytes;    /* memory ready to be mapped, see ashlar_allocator_reserve() */
    uint64_t reserved_bytes; /* physical memory taken from the driver */
    uint64_t reserved_peak_bytes;
    uint64_t limit_bytes; /* the most that may be: ashlar_allocator_set_limit(), or the device's */
    uint64_t live_blocks;
    uint64_t alloc_count; /* successful calls */
    uint64_t free_count;
    /* How each allocation was served; see ashlar_alloc(). */
    uint64_t served_planned;     /* the plan of the step; see plan.h */
    uint64_t served_cached;      /* the thread's own cache */
    uint64_t served_same_stream; /* memory of the same stream */
    uint64_t served_idle;        /* other streams' uses of it were over, or its stream has ended */
    uint64_t served_mapped;      /* a miss: new physical memory, or spare memory */
    uint64_t served_completed;   /* another stream's memory, whose last use was over */
    uint64_t served_waited;      /* another stream's memory, after an in-stream wait */
    uint64_t served_gathered;    /* free memory, unmapped elsewhere and mapped for the request */
    uint64_t served_drained;     /* after caches were emptied, or with memory of plans */
    uint64_t served_reclaimed;   /* after a reclaim callback freed memory */
    uint64_t served_after_sync;  /* after the host waited for work to end */
    uint64_t events_recorded;
    uint64_t driver_calls;        /* made by this allocator, except to choose a context */
    uint64_t driver_calls_sealed; /* calls made since ashlar_allocator_seal() */
    bool is_sealed;
    ashlar_tag_stats tags[ASHLAR_TAG_COUNT];
} ashlar_stats;

/* ---- the core ---- */

/*
 * Make an allocator on `device`, with the default options, changed by ASHLAR_CONF in the
 * environment. It reserves addresses, but takes memory only if the option `reserve` asks for it.
 * If the device has no virtual memory management, memory comes in segments from cuMemAlloc.
 *
 * A child of fork() cannot use its parent's allocators, since CUDA does not survive a fork. There,
 * calls on them never wait: they return ASHLAR_EDRIVER; frees return ASHLAR_OK and do nothing, as
 * does ashlar_allocator_destroy(); and statistics are 0.
 *
 * Ownership: the caller owns *out; the device must outlive it.
 * Threads:   any.
 * Errors:    ASHLAR_EINVAL (ASHLAR_CONF), ASHLAR_ENOMEM (no addresses left, or too little memory
 *            for `reserve`), ASHLAR_EOVERFLOW (more memory than can be addressed), ASHLAR_EDRIVER,
 *            ASHLAR_EHOSTMEM.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_allocator_create(ashlar_device *device,
                                                                   ashlar_allocator **out);

/*
 * Wait for the device and return all memory to the driver, including live blocks. NULL is allowed.
 * Threads: no other call on this allocator may be under way.
 */
ASHLAR_API void ashlar_allocator_destroy(ashlar_allocator *allocator);

/*
 * Take a block of at least `bytes` bytes for work queued on `stream` from now on.
 *
 * bytes    1 .. the device's memory. Blocks are multiples of 512 B. Requests of 32 to 512 KiB are
 *          rounded up by less than 1/32, all others to the next multiple
 * tag      what the block is for; ashlar_alloc() uses ASHLAR_TAG_USER
 * stream   any stream of the device; named from now on (see the top of this file)
 * out      the block's device address, a multiple of 512; unchanged on failure
 *
 * These are tried in order until one serves the request; ashlar_stats counts each:
 *
 *   1. the plan of the step that the calling thread is in (plan.h), or the thread's cache
 *   2. the free memory of `stream` itself; then blocks of it that other streams were using, if
 *      their events have completed, and the memory of streams that have ended
 *   3. newly mapped memory, if the limit and the seal allow it: no stream is made to wait for
 *   another one while memory can be mapped
 *   4. another stream's free memory, if its last use is over; then another stream's after a wait
 *   queued on `stream`; then free memory from anywhere, unmapped there and mapped for this request
 *   5. any of the above after every thread's cache was emptied, then with the memory of plans that
 *      no step is in, then after the program's callback (ashlar_allocator_set_reclaim()), then
 *      after the host has waited for work that holds free memory
 *
 * Ownership: the caller owns *out until ashlar_free().
 * Threads:   any.  Stream: may queue one event wait on `stream`.
 * Errors:    ASHLAR_EINVAL (bytes; tag; a stream that is captured without a pool, see
 *            below), ASHLAR_ENOMEM (the detail gives the bytes requested, live and reserved,
 *            the largest hole, and the driver's error), ASHLAR_EHOSTMEM, ASHLAR_EDRIVER. A call
 *            that fails loses no memory.
 * Cost:      a hit in the thread's cache takes no lock, makes no call out of the library and writes
 *            nothing that another thread writes; a miss finds a block in O(log n), for n gaps of
 *            about its size, or calls the driver. It takes a lock if other threads use the stream,
 *            or memory is short. The lock is not held while the host waits.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_alloc(ashlar_allocator *allocator, size_t bytes,
                                                        ashlar_stream stream, void **out);
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_alloc_tagged(ashlar_allocator *allocator,
                                                               size_t bytes, ashlar_tag tag,
                                                               ashlar_stream stream, void **out);

/*
 * Give a block back. Work queued so far on the stream that allocated it may still use it. Later
 * work on that stream may reuse the block at once; other streams get it only once they provably
 * come after the earlier work.
 *
 * ptr      as returned by ashlar_alloc(); NULL is allowed and does nothing
 * stream   ashlar_free_on: the stream of the block's last use, named from now on. Its work must be
 *          ordered after the ashlar_alloc() of this block on the stream that allocated it, for
 *          example by a wait for an event recorded there, even if nothing was queued there since:
 *          only that stream is ordered after the block's earlier owner. Uses on further streams
 *          must be ordered before this free. A block of a graph pool (below) goes back to
 *          its pool, whatever the stream.
 *
 * Threads: any.
 * Errors:  ASHLAR_EPOINTER (foreign, inside a block, or freed before; nothing changes),
 *          ASHLAR_EHOSTMEM (ashlar_free_on, first use of that stream; nothing changes).
 *          In a guard mode (ashlar_guard) also ASHLAR_EDRIVER, ASHLAR_ENOMEM and ASHLAR_EHOSTMEM
 *          (nothing changes), and ASHLAR_EDAMAGE: the block is freed, and the detail describes
 *          damage found by now, to this block or an earlier one.
 * Cost:    O(1) to find the block, no driver call; a block that other streams used has an event
 *          recorded behind each such use, small blocks together. In a guard mode see ashlar_guard.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_free(ashlar_allocator *allocator, void *ptr);
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_free_on(ashlar_allocator *allocator, void *ptr,
                                                          ashlar_stream stream);

/*
 * Tell the allocator that work on a further stream uses the block. Once the block is freed, its
 * next use comes after all work that was queued on that stream before the free.
 *
 * ptr      the address of a live block
 * stream   any stream of the device, named from now on; the one the block was taken for changes
 *          nothing
 *
 * Threads: any.
 * Errors:  ASHLAR_EPOINTER (as for ashlar_free), ASHLAR_EHOSTMEM; nothing changes then.
 * Cost:    O(streams of the block), takes the lock; an event is recorded when the block is freed,
 *          or one for many small blocks.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_record_stream(ashlar_allocator *allocator,
                                                                void *ptr, ashlar_stream stream);

/*
 * Call this after queuing the last work on `stream` and before destroying the stream: a named
 * stream must be forgotten, by each allocator it was passed to. ashlar_stream_destroy() does so
 * itself. Blocks used on the stream stay valid, live ones too, and their next use comes after all
 * of the stream's work. The same handle may then be passed again, as another stream.
 *
 * Threads: any; no thread may use the stream any more.
 * Stream:  records an event on it, if the allocator has seen it at all.
 * Errors:  ASHLAR_EINVAL (the stream is being captured), ASHLAR_EDRIVER, ASHLAR_ENOMEM; nothing
 *          changes.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_allocator_forget_stream(ashlar_allocator *allocator, ashlar_stream stream);

/*
 * Read all statistics at one moment. Live and reserved bytes are exact, and so is the peak of
 * reserved bytes. Peaks of live bytes are exact while one thread allocates. With several threads
 * they may be wrong. Each other thread adds at most what its cache may hold, plus a 64th of the
 * device's memory or half of what the cache may hold, whichever is more; a thread that only
 * allocates or only frees adds at most 1 MiB.
 *
 * Threads: any.  Cost: takes the lock, a system call if several threads have caches, and
 * O(blocks in caches); while a step is replayed, O(slots of its stream's plans).
 */
ASHLAR_API void ashlar_allocator_get_stats(ashlar_allocator *allocator, ashlar_stats *stats);

/*
 * Give memory back to the device, in whole handles or segments, until at most `target_bytes` are
 * reserved. Memory of live blocks, or that queued work may use, stays. After a synchronisation no
 * work is queued, so all free memory goes back. There are two exceptions. Memory last used on
 * another thread's own default stream goes back in a later call, once an event that this call
 * records has completed. Memory last used on a watched stream (ashlar_allocator_watch_streams())
 * stays unless an event was recorded behind that use, since nobody may ask about such a stream.
 * Empties all threads' caches.
 *
 * Threads: any.  Stream: queries streams, records and queries events, does not wait.
 * Errors:  ASHLAR_EDRIVER, ASHLAR_EHOSTMEM; what was given back before the failure is not retaken.
 * Cost:    O(blocks), and two driver calls for each handle; the driver may wait for the device.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_allocator_trim(ashlar_allocator *allocator,
                                                                 size_t target_bytes);

/*
 * Declare the warm-up over. From now on ashlar_stats.driver_calls_sealed counts, and the seal
 * policy decides what happens when more memory is needed. A second call restarts the count at 0.
 * Threads: any.
 */
ASHLAR_API void ashlar_allocator_seal(ashlar_allocator *allocator);

/* ---- options ---- */

/*
 * An allocator's options are plain fields of ashlar_config, and one line of text can set them.
 *
 * A program fills the fields; whoever runs the program can change them in the environment:
 *     ASHLAR_CONF=limit=20GiB,seal=error
 *
 * A program with more rights than its caller (setuid) ignores every variable of ashlar's.
 */

/* What happens when memory is taken from the driver after ashlar_allocator_seal(). */
typedef enum ashlar_seal_policy {
    ASHLAR_SEAL_COUNT, /* counted */
    ASHLAR_SEAL_WARN,  /* counted and warned about */
    ASHLAR_SEAL_ERROR, /* refused: the allocation fails */
} ashlar_seal_policy;

/*
 * How stray accesses are found. This is for debugging: there are no thread caches, and most calls
 * make driver calls. Blocks of a captured graph's pool are not guarded before
 * ashlar_graph_pool_release(). A free that would have to queue work on a stream under capture fails
 * with ASHLAR_EINVAL, as does, with FILL, a request for a captured stream that has no pool.
 *
 * FILL   Behind every block lies a red zone of 512 to 1023 bytes, filled when the block is taken
 *        and compared when it is freed. A freed block is filled with 0xFF (no number in any
 *        floating-point type), kept in quarantine for a while (at most 64 blocks and 1/16 of the
 *        device's memory; larger blocks are not kept), and compared before it is reused. Fills and
 *        comparisons are queued in stream order, and the host does not wait for them. Once damage
 *        is found, the next ashlar_free(), ashlar_free_on() or ashlar_allocator_check() returns
 *        ASHLAR_EDAMAGE, once for each finding, and the callback of ashlar_allocator_set_report()
 *        is called. ashlar_allocator_destroy() makes all remaining comparisons, also of the red
 *        zones of live blocks, and only calls the callback.
 *        Cost: a fill and an event at ashlar_alloc(); at ashlar_free() a copy of the red zone to
 *        the host, a host function and a fill; for a block that leaves the quarantine, a copy and a
 *        host function for each 256 KiB. The stream stops during host functions. Each stream takes
 *        256 KiB of page-locked memory. A block for a per-thread default stream is compared on the
 *        legacy default stream, which waits for all blocking streams.
 */
typedef enum ashlar_guard {
    ASHLAR_GUARD_OFF,
    ASHLAR_GUARD_FILL, /* freed memory is filled, red zones are compared at free */
} ashlar_guard;

/*
 * zero=on: no owner of a block can read data that an earlier owner left in it, whether that was
 * another part of the program, another tenant of its process or, in memory fresh from the driver,
 * another process. Each allocation queues a fill of the whole block with zeros on its stream,
 * wherever the block comes from: thread caches, plans, graph pools (the graph then contains the
 * fill, and each launch clears the block), new memory. A block for all streams, as cudaMalloc()
 * gives it, is cleared before the call returns. Not cleared: freed memory that nobody gets, and
 * page-locked host memory (ashlar_allocator_create_host()).
 * Cost: every call takes the lock, as with a trace; a driver call and a fill at each allocation, in
 * steps on their plans too.
 */

/*
 * nvtx=on: NVIDIA's tools see blocks rather than the memory that they lie in. Each piece of memory
 * taken from the driver becomes a heap of NVTX's memory extension. Each live block becomes a region
 * of that heap, as large as was requested and named after its tag (ashlar_tag_name()); a block over
 * several pieces is a region in each. compute-sanitizer then reports an access between blocks, or
 * to a freed one. A free is reported to the tool when it is called, so launch kernels one at a time
 * (CUDA_LAUNCH_BLOCKING=1): otherwise work queued before the free looks like a use after it. Not
 * for page-locked memory, nor with a guard, whose own accesses would be reported: ASHLAR_EINVAL. A
 * build without NVTX's headers: ASHLAR_ENOTSUP. Not yet run under a tool of NVIDIA's. Cost: every
 * call takes the lock, as with a trace; a call or two of the tool's for each block.
 */

/*
 * share=on: memory comes in segments that NCCL can register (attach in ashlar/reduce.h): each is
 * one handle of the driver's that was made to be shared, by a file descriptor and, where the device
 * can, with network cards (GPUDirect RDMA). A block lies in one segment (ashlar_segment()). New
 * memory that is taken for a block above 16 MiB, or for a multiple of 2 MiB (as the regions of an
 * arena then are), is a segment for that block alone. Not with vmm=off: ASHLAR_EINVAL; on a device
 * without virtual memory management or file descriptors: ASHLAR_ENOTSUP. Cost: memory of freed
 * blocks cannot be mapped elsewhere in pieces. So it is best to make one allocator with share=on
 * for an arena and other long-lived blocks, and another one without it for the rest: what one
 * leaves idle, the other gets. Drivers of series 525 have been slow with such handles (PyTorch pull
 * request 130890).
 */

#define ASHLAR_CONFIG_BYTES_MIN ((uint64_t)2 << 20)  /* the least limit: one handle */
#define ASHLAR_CONFIG_BYTES_MAX ((uint64_t)64 << 40) /* the most that an option in bytes may be */
#define ASHLAR_CONFIG_EVENTS_MAX ((uint64_t)1 << 26)
#define ASHLAR_CACHE_NONE UINT64_MAX /* a value of cache_bytes: no thread caches */

/*
 * One row per option: type, field, key, kind, lowest, highest, default, words, description.
 *
 *   kind   BYTES     a number, as 1.5, and a unit B, KiB, MiB, GiB or TiB; 0 needs no unit
 *          COUNT     digits
 *          FRACTION  a decimal number above the lowest, up to the highest
 *          CHOICE    one of the words; word i stands for value i
 *   words  CHOICE: the words; BYTES: what stands in the text for the default, 0 in the field. If
 *          that is not "0" (but "auto"), a 0 in the text is UINT64_MAX in the field, and means none
 *
 * In a field, 0 stands for the default.
 */
#define ASHLAR_CONFIG_MAP(X)                                                                      \
    X(uint64_t, limit_bytes, "limit", BYTES, ASHLAR_CONFIG_BYTES_MIN, ASHLAR_CONFIG_BYTES_MAX, 0, \
      "0", "most memory taken from the driver; 0: as much as the device has")                     \
    X(double, limit_fraction, "fraction", FRACTION, 0, 1, 1, NULL,                                \
      "the same as a part of the device's memory; the smaller of the two binds")                  \
    X(uint64_t, reserve_bytes, "reserve", BYTES, 0, ASHLAR_CONFIG_BYTES_MAX, 0, NULL,             \
      "memory taken when the allocator is made")                                                  \
    X(uint64_t, cache_bytes, "cache", BYTES, 0, ASHLAR_CONFIG_BYTES_MAX, 0, "auto",               \
      "most that one thread's cache holds; 0: no thread caches")                                  \
    X(uint64_t, trace_events, "trace", COUNT, 0, ASHLAR_CONFIG_EVENTS_MAX, 0, NULL,               \
      "how many events the trace holds; 0: no trace")                                             \
    X(ashlar_seal_policy, seal, "seal", CHOICE, 0, ASHLAR_SEAL_ERROR, ASHLAR_SEAL_COUNT,          \
      "count|warn|error", "what a driver allocation after sealing is")                            \
    X(ashlar_guard, guard, "guard", CHOICE, 0, ASHLAR_GUARD_FILL, ASHLAR_GUARD_OFF, "off|fill",   \
      "what is done to freed memory to find stray accesses")                                      \
    X(bool, without_virtual_memory, "vmm", CHOICE, 0, 1, false, "on|off",                         \
      "virtual memory management where there is any; off: plain segments")                        \
    X(bool, report_leaks, "leaks", CHOICE, 0, 1, false, "off|on",                                 \
      "a report of the live blocks when the allocator, or the process, ends")                     \
    X(bool, zero_blocks, "zero", CHOICE, 0, 1, false, "off|on",                                   \
      "clear each block, in its stream's order, before it is handed out")                         \
    X(uint64_t, handle_bytes, "handle", BYTES, UINT64_C(2) << 20, UINT64_C(1) << 30,              \
      UINT64_C(2) << 20, NULL, "memory that is mapped and moved as one; rounded up to 2^n")       \
    X(bool, tells_nvtx, "nvtx", CHOICE, 0, 1, false, "off|on",                                    \
      "tell compute-sanitizer and others that listen to NVTX of each block")                      \
    X(bool, shares_memory, "share", CHOICE, 0, 1, false, "off|on",                                \
      "memory that other processes, NCCL and network cards can use")

/* One field for each row: uint64_t limit_bytes; and so on. */
#define ASHLAR_CONFIG_FIELD(type, field, key, kind, low, high, initial, words, text) type field;
typedef struct ashlar_config {
    ASHLAR_CONFIG_MAP(ASHLAR_CONFIG_FIELD)
} ashlar_config;
#undef ASHLAR_CONFIG_FIELD

#define ASHLAR_CONFIG_ONE(...) +1
enum { ASHLAR_CONFIG_COUNT = ASHLAR_CONFIG_MAP(ASHLAR_CONFIG_ONE) }; /* number of options */
#undef ASHLAR_CONFIG_ONE

/*
 * Set the options that `text` names, as in "key=value,key=value". Options that it does not name
 * keep their values.
 *
 * text     NULL: that of ASHLAR_CONF in the environment, if it is set
 * source   where the text comes from, for messages; for ASHLAR_CONF not used
 *
 * Threads: any; with ASHLAR_CONF while no thread changes the environment.
 * Errors:  ASHLAR_EINVAL (an unknown key, a key given twice, a value outside its range; the
 *          detail names source, key, value and the allowed values). *config is then unchanged.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_config_parse(ashlar_config *config,
                                                               const char *text,
                                                               const char *source);

/* ---- what else an allocator can do ---- */

/*
 * Like ashlar_allocator_create(), with the options in `config`; ASHLAR_CONF is ignored. Errors:
 * also ASHLAR_EINVAL (config).
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_allocator_create_with(ashlar_device *device,
                                                                        const ashlar_config *config,
                                                                        ashlar_allocator **out);

/*
 * Make an allocator of page-locked host memory, in segments from cuMemHostAlloc, which every device
 * may use. What this header says of blocks holds for its blocks, too, with these differences:
 *
 *   the host   may use a block as soon as it has it: no queued work uses the memory that is handed
 *              out. If all free memory is still in use by queued work, the request waits for that
 *   stream     of ashlar_alloc(): it counts as a user of the block, as by ashlar_record_stream().
 *              So a freed block is reused after what was queued there, such as a copy from it
 *   steps      plan nothing, and there are no thread caches
 *
 * config    NULL: all options are 0. Those of device memory (guard, zero, nvtx, share) are refused;
 *           reserve and limit count host memory, and the host's memory is the highest limit
 *
 * Ownership: the caller owns *out; the device must outlive it.  Threads: any.
 * Errors:    as for ashlar_allocator_create_with().
 * Cost:      of a request and of a free: the lock. An event for each stream and batch of small
 *            blocks, or for each large one; cuMemHostAlloc where nothing fits.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_allocator_create_host(ashlar_device *device,
                                                                        const ashlar_config *config,
                                                                        ashlar_allocator **out);

/*
 * Receives an allocator's reports, one line per call, without a newline; the library itself never
 * prints. The function must not call this allocator. There are two kinds of reports:
 *
 *   damage (guard=fill)   made in the thread whose call returns ASHLAR_EDAMAGE, or in the thread
 *                         that destroys the allocator
 *   leaks (leaks=on)      all live blocks by tag and size, most bytes first. Made by
 *                         ashlar_allocator_destroy(); for an allocator that is never destroyed,
 *                         when the process exits, without a driver call, since the driver may be
 *                         gone, and only if no other thread is in a call of the allocator
 */
typedef void (*ashlar_report_fn)(const char *line, void *user);

/*
 * Call `report` with `user` from now on. With NULL, the default, there are no reports.
 *
 * Ownership: `user` is the caller's, and must live as long as the allocator, or the process.
 * Threads:   any.
 */
ASHLAR_API void ashlar_allocator_set_report(ashlar_allocator *allocator, ashlar_report_fn report,
                                            void *user);

/* The device that the allocator was made on. Threads: any. */
ASHLAR_API ashlar_device *ashlar_allocator_device(const ashlar_allocator *allocator);

/*
 * For a program that cannot say when its streams end. From now on, a stream that is passed to a
 * function with this allocator need be alive only during that call; one passed to
 * ashlar_record_stream(), until the block's free. No stream need be forgotten. All streams named
 * before this call must be alive or forgotten.
 *
 * The price: every call takes the lock, and a call that names a stream asks the driver whether the
 * handle still means the same stream. Once a stream has ended unannounced, or another stream needed
 * memory, each such call also records an event on the stream. If memory is found only with streams
 * that no call names, or was freed without naming its stream, the host waits for the whole device.
 * It does not wait while a stream is captured for a pool, and ashlar_graph_pool_begin() lets a wait
 * under way end first; but the wait invalidates any other capture. Steps (plan.h) are neither
 * recorded nor replayed.
 *
 * Threads: any. A second call does nothing.
 */
ASHLAR_API void ashlar_allocator_watch_streams(ashlar_allocator *allocator);

/*
 * The size of the live block at `ptr` in bytes: at least the size requested, and in a guard mode
 * and a dry run exactly that. *out is unchanged on failure.
 * Threads: any.  Errors: ASHLAR_EPOINTER (as for ashlar_free).  Cost: O(1), takes the lock.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_usable_bytes(ashlar_allocator *allocator,
                                                               const void *ptr, size_t *out);

/*
 * With share=on: the whole segment that a live block lies in, which is what NCCL registers.
 *
 * ptr           the block, or an address in it
 * base, bytes   unchanged on failure; multiples of 2 MiB, and of CUDA's recommended granularity
 *
 * Threads: any.  Cost: a lock and a search; no driver call.
 * Errors:  ASHLAR_EPOINTER (no live block), ASHLAR_ENOTSUP (share=off).
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_segment(ashlar_allocator *allocator,
                                                          const void *ptr, void **base,
                                                          size_t *bytes);

/*
 * Let all peaks begin anew at the present values: live_peak_bytes, reserved_peak_bytes, and each
 * tag's peak_bytes and at_peak_bytes.
 * Threads: any.  Cost: that of ashlar_allocator_get_stats().
 */
ASHLAR_API void ashlar_allocator_reset_peaks(ashlar_allocator *allocator);

/*
 * Limit the memory that the allocator holds. If more is reserved now, idle memory goes back to the
 * device at once; from then on nothing is mapped beyond the limit.
 *
 * bytes   0, or more than the device has, stands for all of the device's memory
 *
 * Threads: any.  Stream: records and queries events, does not wait.
 * Errors:  ASHLAR_ENOMEM (more than the limit is in use; the limit is set all the same),
 *          ASHLAR_EDRIVER.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_allocator_set_limit(ashlar_allocator *allocator,
                                                                      size_t bytes);

/*
 * Take memory from the device until `bytes` bytes are reserved, so that a loop whose need is known
 * does not take memory little by little. The memory is mapped when a stream first needs it, with
 * two driver calls for each handle, none of which takes memory. Without virtual memory it is a
 * segment that goes to the first stream that needs memory. What the device's other allocators leave
 * idle comes back for it, after a wait on the host if need be.
 *
 * Threads: any.  Errors: ASHLAR_ENOMEM (device, limit or seal), ASHLAR_EDRIVER, ASHLAR_EHOSTMEM.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_allocator_reserve(ashlar_allocator *allocator,
                                                                    size_t bytes);

/*
 * Receives a warning of a sealed allocator (ASHLAR_SEAL_WARN). `line` says what happened; it is
 * valid only during the call. No lock is held, so the function may call ashlar.
 */
typedef void (*ashlar_warn_fn)(void *user, const char *line);

/*
 * Choose what happens when the sealed allocator needs more memory. Until this is called, the option
 * `seal` decides.
 *
 * policy   ASHLAR_SEAL_COUNT   take the memory, and count it
 *          ASHLAR_SEAL_WARN    the same, and call `warn` in the thread that needed the memory
 *          ASHLAR_SEAL_ERROR   take none: serve the request from reserved memory, or fail with
 *                              ASHLAR_ENOMEM
 * warn     called with `user`; NULL: no warning
 *
 * Threads: any.  Errors: ASHLAR_EINVAL (policy); nothing changes.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_allocator_set_seal_policy(
    ashlar_allocator *allocator, ashlar_seal_policy policy, ashlar_warn_fn warn, void *user);

/*
 * Free memory that the program can do without. Return whether any was freed; then the allocator
 * searches again. The function may call ashlar.
 */
typedef bool (*ashlar_reclaim_fn)(void *user, size_t bytes);

/*
 * Call `reclaim` when a request of `bytes` finds no free block and no more memory can be mapped.
 * The requesting thread calls it, and holds no lock; so several threads may be in it at a time. It
 * is not called for its own requests. With NULL, the default, nothing is called.
 *
 * Threads: any.
 */
ASHLAR_API void ashlar_allocator_set_reclaim(ashlar_allocator *allocator, ashlar_reclaim_fn reclaim,
                                             void *user);

/*
 * Give another device access to all memory of the allocator, present and future.
 *
 * ordinal   the other device's; it must be of the same kind
 *
 * Threads: any.
 * Errors:  ASHLAR_ENOTSUP (the other device cannot reach the memory; too many peers; or memory
 *          comes in segments, without share=on, for which the other device needs
 *          cuCtxEnablePeerAccess), ASHLAR_EDRIVER, ASHLAR_ENOMEM; nothing changes then.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_allocator_allow_peer(ashlar_allocator *allocator,
                                                                       int ordinal);

/*
 * Walk all blocks, and compare them with the invariants of ashlar_stats and with every index. For
 * tests, and for hunting stray writes.
 *
 * Threads: any.
 * Errors:  ASHLAR_EFORMAT (an invariant is broken, a defect of ashlar; the detail says which),
 *          ASHLAR_EDAMAGE (guard=fill: the program wrote where it must not; each finding is
 *          returned once). Comparisons still queued have found nothing yet: synchronise the
 *          streams before the call.
 * Cost:    O(blocks), under the lock.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_allocator_check(ashlar_allocator *allocator);

/* ---- graph pools ---- */

/*
 * A pool holds the blocks of a captured CUDA graph as long as the graph can be launched.
 *
 * Every launch of a captured graph uses the addresses that were captured. So allocations during the
 * capture come from a pool, and nobody else gets this memory until the pool is released:
 *
 *     ashlar_graph_pool_begin(allocator, stream, NULL, &pool);
 *     cuStreamBeginCapture(stream, mode);
 *     ... allocate for `stream`, queue work on it, free ...
 *     cuStreamEndCapture(stream, &graph);
 *     ashlar_graph_pool_end(pool);
 *     ... instantiate, launch, destroy the graph ...
 *     ashlar_graph_pool_release(pool, stream of the last launch);
 *
 * Blocks freed during the capture are reused in the same capture, except those whose last use is on
 * another stream (ashlar_free_on(), ashlar_record_stream()); blocks still live when it ends are the
 * graph's results. A block from outside the capture must stay live while a graph uses it.
 */

typedef struct ashlar_graph_pool ashlar_graph_pool;

/*
 * Serve requests for `stream` from a pool until ashlar_graph_pool_end(). Until then no function
 * of ashlar invalidates a capture of any thread or mode, except what names the legacy default
 * stream, waits for a stream or event of the capture, and what waits for the whole device:
 * warm-ups, and functions that destroy an allocator or an object with CUDA kernels. The allocator
 * queues no wait on the stream nor on the legacy default stream, and a block last used on it goes
 * to another stream only if that use is known to be over. So this function asks, before the
 * capture, how far the stream is: what it has freed, and is done with, may serve the capture.
 *
 * stream   the stream that is about to be captured, named from now on (see the top of this file);
 *          end its pool before forgetting the stream. The legacy default stream cannot be captured.
 *          If a capture spans several streams, each stream that memory is taken for needs its own
 *          pool
 * pool     NULL: a new one. Or one of the allocator that ashlar_graph_pool_end() was called for: a
 *          further graph uses the memory that the pool's earlier graphs have freed. Then no two of
 *          them may run at a time, and what one of them has computed in a freed block is lost when
 *          another one runs
 * out      the pool; unchanged on failure
 *
 * Ownership: the caller owns the pool, and must call ashlar_graph_pool_release() before destroying
 *            the allocator.
 * Threads:   any; no call that names `stream` may be under way. If another thread waits for the
 *            whole device meanwhile (ashlar_allocator_watch_streams()), that ends first, or a
 *            second passes.
 * Errors:    ASHLAR_EINVAL (the default stream, or one that has a pool; a pool of another
 *            allocator, or whose capture has not ended), ASHLAR_EHOSTMEM. `pool` is as it was then.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_graph_pool_begin(ashlar_allocator *allocator,
                                                                   ashlar_stream stream,
                                                                   ashlar_graph_pool *pool,
                                                                   ashlar_graph_pool **out);

/*
 * Call this when the capture is over, whether it succeeded or not: requests for the stream are
 * ordinary again. Blocks of the pool that are freed later go back to the pool, by ashlar_free_on()
 * once the work on that stream is over.
 * Threads: any; no call that names the stream may be under way.
 */
ASHLAR_API void ashlar_graph_pool_end(ashlar_graph_pool *pool);

/*
 * Call this when neither the graph nor a copy of it will be launched any more. The pool's free
 * blocks then count as freed on `stream` just now: that stream may have them at once, others, and
 * later captures, when its work is over. Its live blocks count as taken for `stream`; they stay
 * valid, and are freed as usual.
 *
 * pool     a pool that ashlar_graph_pool_end() was called for; NULL is allowed and does nothing
 * stream   the stream of the last launch, or any stream whose later work comes after all uses of
 *          the pool's blocks; named from now on (see the top of this file)
 *
 * Ownership: `pool` is destroyed; on failure nothing changes.
 * Threads:   any.  Stream: an event is recorded.
 * Errors:    ASHLAR_EINVAL (the capture has not ended), ASHLAR_EHOSTMEM (only if `stream` is new to
 *            the allocator).
 * Cost:      O(blocks).
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_graph_pool_release(ashlar_graph_pool *pool,
                                                                     ashlar_stream stream);

ASHLAR_END_DECLS

#endif /* ASHLAR_ALLOCATOR_H */
