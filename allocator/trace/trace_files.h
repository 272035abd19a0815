/*
 * trace_files.h - a trace as files: lists of allocations for other programs (internal).
 *
 * Each file shows blocks. A block is an ALLOC and the next FREE of its address, or an ALLOC without
 * a FREE, which is live until the end of the trace. Two kinds of events are left out, and counted,
 * because their partner is missing from the trace: a FREE without an ALLOC before it, and an ALLOC
 * followed by another ALLOC of the same address without a FREE between them.
 *
 * events    in ascending numbers, as ashlar__trace_read() returns them
 * left_out  the number of events left out
 *
 * Errors:   ASHLAR_EHOSTMEM, and those of ashlar__file_create() and ashlar__file_commit(). The old
 *           file is then unchanged.
 * Cost:     O(count log count), two words of host memory for each event.
 */
#ifndef ASHLAR_TRACE_FILES_H
#define ASHLAR_TRACE_FILES_H

#include "allocator/trace/trace_ring.h"

#define ASHLAR_TRACE_RMM_COLUMNS "Thread,Time,Action,Pointer,Size,Stream\n"
enum { ASHLAR_TRACE_ROW_BYTES = 160 };

/* Print an event as a row of such a log, with its end of line. Returns the row's bytes; 0: the log
 * does not have such events. */
size_t ashlar__trace_print_rmm(const ashlar_trace_event *event,
                               char row[static ASHLAR_TRACE_ROW_BYTES]);

/* Write a log like that of RMM's logging adaptor, with columns
 * Thread,Time,Action,Pointer,Size,Stream. Size is the requested size, Time that of the monotonic
 * clock. An OOM is an allocate failure. */
ASHLAR_MUST_CHECK ashlar_status ashlar__trace_write_rmm(const ashlar_trace_event *events,
                                                        size_t count, const char *path,
                                                        uint64_t *left_out);

/* Write a packing problem for MiniMalloc, with columns id,lower,upper,size. Block `id` is live in
 * [lower, upper), in positions of the trace; a block that is never freed ends at `count`. Size is
 * the rounded size of the block, not the requested one, since that is the room it takes. */
ASHLAR_MUST_CHECK ashlar_status ashlar__trace_write_minimalloc(const ashlar_trace_event *events,
                                                               size_t count, const char *path,
                                                               uint64_t *left_out);

#endif /* ASHLAR_TRACE_FILES_H */
