/*
 * page_heap.h - runs of pages inside page-locked segments taken from the driver (internal to
 * ashlar-pinned).
 *
 * The driver takes memory back only in the pieces that it handed out. So segments are returned as a
 * whole, and runs of different segments are never joined, even if they are adjacent. Within a
 * segment, adjacent free runs are always joined. A run can be freed without knowing its segment.
 */
#ifndef ASHLAR_PINNED_PAGE_HEAP_H
#define ASHLAR_PINNED_PAGE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/device.h>

#include "allocator/base/lock.h"

enum { PAGE_HEAP_BINS = 256 };

typedef struct ashlar_segment ashlar_segment;

/* One for each page. Only those of a free run's first and last page are used. */
typedef struct ashlar_page_run {
    struct ashlar_page_run *next; /* in its bin; used in the first page only */
    struct ashlar_page_run *before;
    ashlar_segment *segment;
    size_t page_count; /* pages of the free run that begins or ends here; 0: none does */
} ashlar_page_run;

struct ashlar_segment {
    unsigned char *base; /* what the driver returned */
    size_t page_count;
    size_t free_count;       /* free pages */
    ashlar_page_run pages[]; /* [page_count] */
};

/*
 * Invariants (ashlar__page_heap_holds):
 *   reserved_bytes == sum of page_count * page_bytes over all segments, also those being returned
 *   reserved_bytes + growing_bytes <= limit_bytes;  reserved_bytes <= reserved_peak_bytes
 *   segment_count + grower_count <= segment_capacity
 *   alloc_calls - free_calls == segment_count + number of segments being returned
 *   a bin holds only runs of its sizes; its bit is set exactly if the bin holds a run
 */
typedef struct ashlar_page_heap {
    ashlar_device *device;     /* const */
    size_t page_bytes;         /* const; jemalloc's, a power of two */
    size_t limit_bytes;        /* const; SIZE_MAX: none */
    size_t grow_bytes;         /* const */
    ashlar_lock lock;          /* for all fields below; not held during driver calls */
    ashlar_segment **segments; /* by address */
    size_t segment_count;
    size_t segment_capacity;
    size_t grower_count;  /* threads about to add a segment; `segments` has room for these */
    size_t growing_bytes; /* the most that those threads will add */
    size_t reserved_bytes;
    size_t reserved_peak_bytes;
    uint64_t alloc_calls;
    uint64_t free_calls;
    uint64_t bin_bits[PAGE_HEAP_BINS / 64];
    ashlar_page_run *bins[PAGE_HEAP_BINS];
} ashlar_page_heap;

/* `heap` must be zeroed, except for its constants. */
void ashlar__page_heap_init(ashlar_page_heap *heap);

/* Returns every segment to the driver, free or not. */
void ashlar__page_heap_finish(ashlar_page_heap *heap);

/* Take `bytes`, a multiple of page_bytes, from a free run. NULL: no run is long enough. */
void *ashlar__page_heap_take(ashlar_page_heap *heap, size_t bytes);

/* Take `bytes` from a new segment, even if a free run is long enough. Errors: ASHLAR_ENOMEM (limit,
 * driver), ASHLAR_EDRIVER, ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__page_heap_grow(ashlar_page_heap *heap, size_t bytes,
                                                       void **out);

/* Free whole pages: a run that was taken, or part of one. */
void ashlar__page_heap_give(ashlar_page_heap *heap, void *ptr, size_t bytes);

/* Return every segment that is wholly free to the driver. Returns whether there was one. */
bool ashlar__page_heap_trim(ashlar_page_heap *heap);

/*
 * Whether the invariants hold. No segment may be on its way back to the driver. For tests; takes
 * the lock.
 */
bool ashlar__page_heap_holds(ashlar_page_heap *heap);

#endif /* ASHLAR_PINNED_PAGE_HEAP_H */
