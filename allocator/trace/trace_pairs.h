/*
 * trace_pairs.h - which allocation and free of a trace are one block's (internal).
 */
#ifndef ASHLAR_TRACE_PAIRS_H
#define ASHLAR_TRACE_PAIRS_H

#include <stddef.h>
#include <stdint.h>

#include "allocator/trace/trace_ring.h"

/*
 * What belongs to an event, by positions:
 *     ALLOC: its FREE, LIVE where there is none, UNPAIRED where it is missing
 *     FREE: its ALLOC, or UNPAIRED
 *     others: UNPAIRED, and not counted
 */
#define ASHLAR_TRACE_LIVE (SIZE_MAX - 1)
#define ASHLAR_TRACE_UNPAIRED SIZE_MAX

typedef struct ashlar_trace_pairs {
    size_t *partners; /* [count] */
    uint64_t unpaired_count;
} ashlar_trace_pairs;

/*
 * Pair each ALLOC with the next FREE of its address.
 *
 * events  in ascending numbers, as ashlar__trace_read() has them
 *
 * Ownership: the caller ends *out with ashlar__trace_pairs_finish().
 * Errors:    ASHLAR_EHOSTMEM.
 * Cost:      O(count log count), two words of host memory for each event.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__trace_pairs_find(const ashlar_trace_event *events,
                                                         size_t count, ashlar_trace_pairs *out);

void ashlar__trace_pairs_finish(ashlar_trace_pairs *pairs);

#endif /* ASHLAR_TRACE_PAIRS_H */
