/*
 * trace_picture.h - a trace as a picture of the heap: the blocks that were taken, over the events
 * (internal).
 */
#ifndef ASHLAR_TRACE_PICTURE_H
#define ASHLAR_TRACE_PICTURE_H

#include "allocator/trace/trace_ring.h"

/*
 * Draw the blocks of a trace. Time is positions in it; addresses count from the lowest one, and
 * ranges of 1 GiB and more where no block was are left out.
 *
 * events    in ascending numbers, as ashlar__trace_read() has them
 * path      is replaced as a whole, or on failure left as it was
 * left_out  how many events could not be paired, as in trace_csv.h
 *
 * Errors: as ashlar__picture_write().
 * Cost:   O(count log count), some 110 bytes of host memory for each event.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__trace_write_svg(const ashlar_trace_event *events,
                                                        size_t count, const char *path,
                                                        uint64_t *left_out);

#endif /* ASHLAR_TRACE_PICTURE_H */
