/*
 * zone.h - the windows of addresses that belong to one stream, and the gaps in them (internal).
 *
 * Each stream has two zones, one for blocks that have a size class and one for larger blocks, so
 * that a small block never keeps the memory around a large one. A zone takes windows of addresses
 * as it needs them. Blocks cover all of a window: used blocks, and FREE ones, called gaps, whether
 * or not memory is mapped behind them. A block's place depends on the gaps alone, never on what is
 * mapped. So a program that repeats itself gets the same addresses each time, and needs no more
 * memory the second time than the first.
 *
 * That is exact for a step on one stream, with nothing live before it, if the device is done with
 * freed memory when it is wanted elsewhere. While it is still at work, a request that finds no
 * memory to be mapped takes any gap that has some, rather than wait on the host: then the device's
 * speed decides where blocks go and what is left between them, already when the step first passes.
 * Of 2,000 drawn steps on the least device that they once passed on, 3 % failed in one of the next
 * 100 repetitions, 0.5 % with a handle more; of 1,000, one with two more, and none with four
 * (tests/allocator/step/test_repeated.c).
 *
 * Memory is mapped behind a window in handles; a segment always has all of its memory. A handle is
 * free if it lies wholly in a gap. Its memory can then be unmapped, and mapped in another window,
 * as soon as the device is done with it:
 *
 *     is_past(handle) == (owner->completed >= handle.covered_by)
 */
#ifndef ASHLAR_ZONE_H
#define ASHLAR_ZONE_H

#include "allocator/base/compiler.h"
#include "allocator/driver/driver.h"
#include "allocator/heap/free_bins.h"

typedef struct ashlar_zone ashlar_zone;

/* The memory behind the part of a window that one handle maps. */
typedef struct ashlar_backing {
    cu_mem_handle handle; /* 0 in a segment */
    uint64_t is_mapped : 1;
    uint64_t covered_by : 63; /* the number of the zone owner's recording that comes behind the last
                               * use; 0: not used since it was mapped */
} ashlar_backing;

/*
 * Whoever may touch the zone may write `first` and `last`, and covered_by of memory that it frees.
 * All other fields that are not const change under the lock, while nobody else may touch the zone.
 *
 * Invariants (ashlar__heap_check):
 *   first->offset == offset,  last->offset + last->bytes == offset + bytes
 *   block->next->offset == block->offset + block->bytes,  block->next->prev == block
 *   block->window == this,  two gaps are never neighbours
 *   a used block lies in mapped memory;  a gap's holes == handles in it that are not mapped
 *   mapped_count == handles that are mapped,  of each: covered_by <= zone->owner->last_tick + 1
 */
struct ashlar_window {
    ashlar_window *next;  /* next in the zone */
    ashlar_window *above; /* next in the heap, in address order */
    ashlar_zone *zone;
    size_t offset; /* const; a multiple of the handle's bytes, except for segments */
    size_t bytes;  /* const; a multiple of the handle's bytes */
    ashlar_block *first, *last;
    size_t mapped_count;
    ashlar_backing backing[]; /* [bytes / handle_bytes] */
};

enum {
    ASHLAR_ZONE_SMALL, /* blocks up to ASHLAR_SC_MAX_BYTES */
    ASHLAR_ZONE_LARGE,
    ASHLAR_ZONE_COUNT
};

/* Unused block nodes, linked by `next`. */
typedef struct ashlar_node_pool {
    ashlar_block *first;
    size_t count;
} ashlar_node_pool;

/* allocator/core/core.h says who may touch a zone. The lock guards the links `next`. */
struct ashlar_zone {
    ashlar_free_bins gaps;
    ashlar_node_pool nodes;     /* for the next blocks to be cut here */
    size_t used_bytes;          /* sum of the used blocks in the windows */
    ashlar_window *windows;     /* newest first */
    ashlar_stream_state *owner; /* const; the stream state that contains this zone */
    ashlar_zone *next;          /* in the heap's list of zones that have windows */
};

#endif /* ASHLAR_ZONE_H */
