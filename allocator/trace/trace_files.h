/*
 * trace_files.h - a trace as files: lists of allocations for other programs, and a picture
 * (internal).
 *
 * Each shows blocks. A block is an ALLOC and the next FREE of its address, or an ALLOC alone, which
 * is live at the end. Where the trace lacks one of the two, the block's beginning or end is not
 * known: a FREE without an ALLOC before it, and an ALLOC whose address is taken again without a
 * FREE, are left out and counted.
 *
 * events    in ascending numbers, as ashlar__trace_read() has them
 * left_out  how many events could not be paired
 *
 * Errors:   ASHLAR_EHOSTMEM, and as ashlar__file_create() and ashlar__file_commit(); the old file
 *           is then as it was.
 * Cost:     O(count log count), two words of host memory for each event.
 */
#ifndef ASHLAR_TRACE_FILES_H
#define ASHLAR_TRACE_FILES_H

#include "allocator/trace/trace_ring.h"

/*
 * Write what RMM's logging adaptor would: Thread,Time,Action,Pointer,Size,Stream. Size is the
 * requested one, Time is that of the monotonic clock. An OOM is a row too: an allocate failure.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__trace_write_rmm(const ashlar_trace_event *events,
                                                        size_t count, const char *path,
                                                        uint64_t *left_out);

/*
 * Write what MiniMalloc reads: id,lower,upper,size. Block `id` is live in [lower, upper); times are
 * positions in the trace, whose end is `count`. Size is the block's, since that is what needs room.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__trace_write_minimalloc(const ashlar_trace_event *events,
                                                               size_t count, const char *path,
                                                               uint64_t *left_out);

/*
 * Draw the blocks of a trace. Times are positions in it; addresses count from the lowest one, and
 * gaps of 1 GiB or more where no block ever was are left out.
 *
 * events    in ascending numbers, as ashlar__trace_read() has them
 * path      is replaced as a whole, or on failure left as it was
 * left_out  how many events could not be paired
 *
 * Errors: as ashlar__picture_write().
 * Cost:   O(count log count), some 110 bytes of host memory for each event.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__trace_write_svg(const ashlar_trace_event *events,
                                                        size_t count, const char *path,
                                                        uint64_t *left_out);

#endif /* ASHLAR_TRACE_FILES_H */
