/*
 * trace.h - files, for people and programs, of an allocator's events (a trace) and of its memory at
 * one moment (a snapshot).
 *
 * A trace has the newest events of an allocator made with the option `trace`: blocks taken and
 * given back, memory mapped and unmapped, requests refused. Tracing changes no address, but makes
 * every allocation and free take the lock and read the clock. A snapshot needs no trace.
 */
#ifndef ASHLAR_TRACE_H
#define ASHLAR_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/allocator.h>

ASHLAR_BEGIN_DECLS

/*
 * Write the trace as a log like that of RMM's logging adaptor,
 * Thread,Time,Action,Pointer,Size,Stream: for ashlar-replay and RMM's own replay. Sizes are as
 * requested; Time is the host's monotonic clock.
 *
 * path     the file; it is replaced as a whole, and on failure stays as it was
 * missing  the number of events since the allocator was made that are not in the file: those that
 *          newer events overwrote, and the remaining event of a block whose other one was
 *          overwritten; unchanged on failure. NULL is allowed
 *
 * Threads: any, also beside other calls on this allocator, whose events may be in the file or not.
 * Errors:  ASHLAR_EINVAL (the allocator keeps no trace; `path` is not a regular file),
 *          ASHLAR_EIO, ASHLAR_EHOSTMEM.
 * Cost:    O(n log n) in the events kept, and some 70 bytes of host memory for each event; no
 *          driver call.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_allocator_write_trace(ashlar_allocator *allocator,
                                                                        const char *path,
                                                                        uint64_t *missing);

typedef enum ashlar_snapshot_state {
    ASHLAR_SNAPSHOT_LIVE,    /* owned by the program */
    ASHLAR_SNAPSHOT_CACHED,  /* free, in a thread's cache, for its stream */
    ASHLAR_SNAPSHOT_PENDING, /* free for its stream; its last use there may not be over */
    ASHLAR_SNAPSHOT_PLANNED, /* plan memory that no block uses now */
    ASHLAR_SNAPSHOT_IDLE,    /* free; no queued work touches it */
    ASHLAR_SNAPSHOT_STATE_COUNT
} ashlar_snapshot_state;

/* A contiguous range of device addresses with memory behind all of it. */
typedef struct ashlar_snapshot_segment {
    uint64_t address;
    uint64_t bytes; /* > 0 */
} ashlar_snapshot_segment;

typedef struct ashlar_snapshot_block {
    uint64_t address;
    uint64_t bytes;           /* > 0; rounding included */
    uint64_t requested_bytes; /* LIVE: 1 .. bytes; else 0 */
    ashlar_stream stream;     /* LIVE: the stream that allocated it; CACHED, PENDING: the last
                               * user */
    ashlar_tag tag;           /* LIVE; else ASHLAR_TAG_USER */
    ashlar_snapshot_state state;
} ashlar_snapshot_block;

/*
 * Invariants:
 *   segments are in the order of their addresses and do not overlap
 *   the blocks, in the order of their addresses, fill the segments exactly; none crosses a
 *   segment's end
 * and of the ashlar_stats of the same moment:
 *   reserved_bytes == sum of segments' bytes
 *   live_blocks == number of LIVE blocks,  block_bytes == sum of the LIVE blocks' bytes,
 *   live_bytes == sum of their requested_bytes,  tags[].live_bytes likewise for each tag
 */
typedef struct ashlar_snapshot {
    int device_ordinal;
    size_t segment_count;
    size_t block_count;
    ashlar_snapshot_segment *segments;
    ashlar_snapshot_block *blocks;
} ashlar_snapshot;

/*
 * Copy the state of the allocator's memory at this moment.
 *
 * Ownership: *out is the caller's until ashlar_snapshot_free(); unchanged on failure.
 * Threads:   any.
 * Errors:    ASHLAR_EHOSTMEM.
 * Cost:      takes the allocator's lock, O(blocks); no driver call, so that a block whose last use
 *            is over may still be PENDING.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_allocator_take_snapshot(ashlar_allocator *allocator, ashlar_snapshot **out);

ASHLAR_API void ashlar_snapshot_free(ashlar_snapshot *snapshot); /* NULL is allowed */

/*
 * Write a snapshot, and the trace if there is one, as JSON: for tools/viewer.html, which draws both
 * in a browser, and for tools/memory_viz.py, which makes of it what PyTorch's viewers read. The
 * document has the tables `segments`, `blocks` and `events`, each with the names of its `columns`
 * and an array of `rows`; sizes are bytes, times are nanoseconds of the monotonic clock.
 *
 * path   the file; it is replaced as a whole, and on failure stays as it was
 *
 * Threads: any.
 * Errors:  ASHLAR_EINVAL (`path` is not a regular file), ASHLAR_EIO, ASHLAR_EHOSTMEM.
 * Cost:    as ashlar_allocator_take_snapshot(), and some 300 bytes of host memory for each block
 *          and each event kept; the file has less than 130 bytes for each.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_allocator_write_snapshot(ashlar_allocator *allocator, const char *path);

ASHLAR_END_DECLS

#endif /* ASHLAR_TRACE_H */
