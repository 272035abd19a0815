/*
 * trace.h - what an allocator did and what it holds, in files for people and programs.
 *
 * A trace has the newest events of an allocator made with the option `trace`: blocks taken and
 * given back, memory mapped and unmapped, requests refused. Tracing changes no address, but makes
 * every allocation and free take the lock and read the clock. A snapshot is the allocator's memory
 * at one moment, with or without a trace.
 */
#ifndef ASHLAR_TRACE_H
#define ASHLAR_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include <ashlar/allocator.h>
#include <ashlar/device.h>
#include <ashlar/export.h>
#include <ashlar/status.h>

ASHLAR_BEGIN_DECLS

typedef enum ashlar_trace_format {
    /*
     * The log of RMM's logging adaptor, Thread,Time,Action,Pointer,Size,Stream: for ashlar-replay
     * and RMM's own replay. Sizes are as requested; Time is the host's monotonic clock.
     */
    ASHLAR_TRACE_RMM_CSV,
    /*
     * A packing problem for MiniMalloc, id,lower,upper,size: sizes of blocks with their rounding,
     * lifetimes [lower, upper) in positions of the trace. It does not know streams.
     */
    ASHLAR_TRACE_MINIMALLOC_CSV,
    /*
     * A picture for a browser: time in positions of the trace across, address up, a rectangle with
     * a tooltip for each block, coloured by tag. Sizes as above; wide ranges without any block are
     * left out. Legible up to some 10,000 blocks.
     */
    ASHLAR_TRACE_SVG,
    ASHLAR_TRACE_FORMAT_COUNT
} ashlar_trace_format;

/*
 * Write the trace to a file. Blocks that are live now are live at its end.
 *
 * path     replaced as a whole; on failure it stays as it was
 * missing  how many events since the allocator was made are not in the file: those that newer ones
 *          overwrote, and those of blocks whose beginning or end was among them; unchanged on
 *          failure. NULL is allowed
 *
 * Threads: any, also beside other calls on this allocator, whose events may be in the file or not.
 * Errors:  ASHLAR_EINVAL (the allocator keeps no trace; format; path is no regular file),
 *          ASHLAR_EIO, ASHLAR_EHOSTMEM.
 * Cost:    O(n log n) in the events kept, some 70 bytes of host memory for each, 170 for a picture;
 *          no driver call.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_allocator_write_trace(ashlar_allocator *allocator,
                                                                        ashlar_trace_format format,
                                                                        const char *path,
                                                                        uint64_t *missing);

typedef enum ashlar_snapshot_state {
    ASHLAR_SNAPSHOT_LIVE,    /* the caller's */
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
    ashlar_stream stream;     /* LIVE: taken for; CACHED, PENDING: last used on; IDLE: NULL */
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
 *   live_blocks == number of LIVE blocks,  block_bytes == sum of their bytes,
 *   live_bytes == sum of their requested_bytes, and by tag tags[].live_bytes
 */
typedef struct ashlar_snapshot {
    int device_ordinal;
    size_t segment_count;
    size_t block_count;
    ashlar_snapshot_segment *segments;
    ashlar_snapshot_block *blocks;
} ashlar_snapshot;

/*
 * Copy what the allocator holds at this moment.
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
 * Write a snapshot, and the trace where there is one, as PyTorch's torch.cuda.memory._snapshot()
 * pickled: for its viewer (pytorch.org/memory_viz: drop the file there) and torch.cuda._memory_viz.
 * Python reads it without PyTorch too; it holds plain values only.
 *
 * In the file a block that is not LIVE is inactive, whatever its last use; an event's tag is its
 * `user_metadata`; there are no call stacks.
 *
 * path   replaced as a whole; on failure it stays as it was
 *
 * Threads: any.
 * Errors:  ASHLAR_EINVAL (path is no regular file), ASHLAR_EIO, ASHLAR_EHOSTMEM.
 * Cost:    as ashlar_allocator_take_snapshot(), and some 60 bytes of host memory for each event
 *          kept; the file has less than 100 bytes for each block and each event.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_allocator_write_snapshot(ashlar_allocator *allocator, const char *path);

ASHLAR_END_DECLS

#endif /* ASHLAR_TRACE_H */
