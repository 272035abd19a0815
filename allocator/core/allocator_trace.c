/* allocator_trace.c - collecting an allocator's trace and snapshot for their writers. */
#include "allocator/core/allocator_impl.h"

#include <ashlar/trace.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/core/forked.h"
#include "allocator/core/hold.h"
#include "allocator/base/host.h"
#include "allocator/plan/planner.h"
#include "allocator/trace/snapshot.h"
#include "allocator/trace/trace_files.h"

/* A copy of the events that the ring still holds; empty if there is no ring. */
typedef struct events {
    ashlar_trace_event *events;
    size_t count;
    uint64_t lost;
} events;

static ashlar_status reserve_events(const ashlar_allocator *a, events *e) {
    *e = (events){0};
    if (a->ring.capacity == 0) {
        return ASHLAR_OK;
    }
    e->events = ashlar__host_calloc(a->ring.capacity, sizeof *e->events);
    return e->events != NULL
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EHOSTMEM, "no host memory to copy a trace of %zu events",
                              a->ring.capacity);
}

static void read_events(const ashlar_allocator *a, events *e) {
    if (a->ring.capacity > 0) {
        e->count = ashlar__trace_read(&a->ring, e->events, a->ring.capacity, &e->lost);
    }
}

ashlar_status ashlar_allocator_write_trace(ashlar_allocator *a, ashlar_trace_format format,
                                           const char *path, uint64_t *missing) {
    static ashlar_status (*const writers[])(const ashlar_trace_event *, size_t, const char *,
                                            uint64_t *) = {
        [ASHLAR_TRACE_RMM_CSV] = ashlar__trace_write_rmm,
        [ASHLAR_TRACE_MINIMALLOC_CSV] = ashlar__trace_write_minimalloc,
    };
    ASHLAR_TABLE_IS_FULL(writers, ASHLAR_TRACE_FORMAT_COUNT);
    events e;
    uint64_t left_out = 0;
    ASHLAR_REFUSE_OF_PARENT(a);
    if ((unsigned)format >= (unsigned)ASHLAR_TRACE_FORMAT_COUNT) {
        return ashlar__fail(ASHLAR_EINVAL, "format: %d is no ashlar_trace_format", (int)format);
    }
    if (a->ring.capacity == 0) {
        return ashlar__fail(ASHLAR_EINVAL, "this allocator keeps no trace; make it with the option "
                                           "trace=N, the number of events to keep");
    }
    ashlar_status status = reserve_events(a, &e);
    if (status != ASHLAR_OK) {
        return status;
    }
    read_events(a, &e);
    status = writers[format](e.events, e.count, path, &left_out);
    ashlar__host_free(e.events);
    if (status == ASHLAR_OK && missing != NULL) {
        *missing = e.lost + left_out;
    }
    return status;
}

static ashlar_snapshot_state state_of(const ashlar_block *block) {
    return ashlar__block_live_bytes(block) != 0 ? ASHLAR_SNAPSHOT_LIVE
           : ashlar__block_is_shared(block)     ? ASHLAR_SNAPSHOT_PENDING
                                                : ASHLAR_SNAPSHOT_CACHED;
}

static ashlar_snapshot_block copy_block(const ashlar_heap *heap, const ashlar_block *block) {
    const ashlar_snapshot_state state = state_of(block);
    return (ashlar_snapshot_block){
        .address = heap->range.base + block->offset,
        .bytes = block->bytes,
        .requested_bytes = ashlar__block_live_bytes(block),
        .stream = block->stream_state->stream,
        .tag = state == ASHLAR_SNAPSHOT_LIVE ? (ashlar_tag)block->tag : ASHLAR_TAG_USER,
        .state = state,
    };
}

/* Copy the part of a gap that `part` describes, which has memory. */
static ashlar_snapshot_block copy_part(const ashlar_heap *heap, const ashlar_heap_piece *part) {
    const bool is_past =
        ashlar__heap_is_past_at(heap, part->block->window, part->offset, part->bytes);
    return (ashlar_snapshot_block){
        .address = heap->range.base + part->offset,
        .bytes = part->bytes,
        .stream = is_past ? NULL : part->block->window->zone->owner->stream,
        .tag = ASHLAR_TAG_USER,
        .state = is_past ? ASHLAR_SNAPSHOT_IDLE : ASHLAR_SNAPSHOT_PENDING,
    };
}

/*
 * Copy a plan's memory to `out` as several blocks: the plan's live slot blocks, and the gaps
 * between them. Returns the number of blocks; if `out` is NULL, only counts them.
 */
static size_t copy_plan_memory(const ashlar_heap *heap, const ashlar_block *memory,
                               ashlar_snapshot_block *out) {
    const size_t end = memory->offset + memory->bytes;
    size_t at = memory->offset, count = 0;
    const ashlar_block *next = ashlar__block_after(memory);
    while (at < end) {
        const bool is_slot_block = next != ashlar__heap_next(memory);
        const size_t begin = is_slot_block ? next->offset : end;
        ASHLAR_CHECK2(at <= begin && begin <= end); /* live slot blocks do not overlap */
        if (begin > at) {
            if (out != NULL) {
                out[count] = (ashlar_snapshot_block){.address = heap->range.base + at,
                                                     .bytes = begin - at,
                                                     .stream = memory->stream_state->stream,
                                                     .tag = ASHLAR_TAG_USER,
                                                     .state = ASHLAR_SNAPSHOT_PLANNED};
            }
            count++;
            at = begin;
        }
        if (is_slot_block) {
            if (out != NULL) {
                out[count] = copy_block(heap, next);
            }
            count++;
            at += next->bytes;
            next = ashlar__block_after(next);
        }
    }
    return count;
}

/*
 * Copy a piece that has memory to `out`; a plan's memory becomes several blocks. Returns the number
 * of blocks; if `out` is NULL, only counts them.
 */
static size_t copy_piece(const ashlar_heap *heap, const ashlar_heap_piece *piece,
                         ashlar_snapshot_block *out) {
    if (piece->block->state == ASHLAR_BLOCK_PLAN_MEMORY) {
        return copy_plan_memory(heap, piece->block, out);
    }
    if (out != NULL) {
        *out = piece->block->state == ASHLAR_BLOCK_FREE ? copy_part(heap, piece)
                                                        : copy_block(heap, piece->block);
    }
    return 1;
}

/*
 * Copy all segments and blocks, appending them to those counted so far; if `snapshot` is NULL, only
 * count them. A segment is a maximal run of memory in one window.
 */
static void copy_pieces(const ashlar_heap *heap, ashlar_snapshot *snapshot, size_t *segment_count,
                        size_t *block_count) {
    const ashlar_window *window = NULL; /* the window of the previous piece, if that piece has
                                           memory */
    for (ashlar_heap_piece at = {0}; ashlar__heap_next_piece(heap, &at);) {
        if (!at.is_mapped) {
            window = NULL;
            continue;
        }
        if (at.block->window != window) {
            window = at.block->window;
            if (snapshot != NULL) {
                snapshot->segments[*segment_count] =
                    (ashlar_snapshot_segment){.address = heap->range.base + at.offset};
            }
            ++*segment_count;
        }
        if (snapshot != NULL) {
            snapshot->segments[*segment_count - 1].bytes += at.bytes;
        }
        *block_count +=
            copy_piece(heap, &at, snapshot != NULL ? &snapshot->blocks[*block_count] : NULL);
    }
}

static ashlar_status take_claimed(const ashlar_allocator *a, ashlar_snapshot **out) {
    ASHLAR_OWNS(&a->lock);
    size_t segment_count = 0, block_count = 0;
    copy_pieces(&a->heap, NULL, &segment_count, &block_count);
    ashlar_snapshot *snapshot = NULL;
    const ashlar_status status = ashlar__snapshot_create(segment_count, block_count, &snapshot);
    if (status == ASHLAR_OK) {
        snapshot->device_ordinal = a->device->info.ordinal;
        segment_count = block_count = 0;
        copy_pieces(&a->heap, snapshot, &segment_count, &block_count);
        *out = snapshot;
    }
    return status;
}

ashlar_status ashlar_allocator_take_snapshot(ashlar_allocator *a, ashlar_snapshot **out) {
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar__lock_acquire(&a->lock);
    ashlar__caches_claim_locked(a, ashlar__cache_recent);
    const ashlar_status status = take_claimed(a, out);
    ashlar__caches_release_locked(a, ashlar__cache_recent);
    ashlar__lock_release(&a->lock);
    return status;
}

ashlar_status ashlar_allocator_write_snapshot(ashlar_allocator *a, const char *path) {
    events e;
    ashlar_snapshot *snapshot = NULL;
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar_status status = reserve_events(a, &e);
    if (status != ASHLAR_OK) {
        return status;
    }
    ashlar__lock_acquire(&a->lock); /* events and snapshot show one moment */
    ashlar__caches_claim_locked(a, ashlar__cache_recent);
    status = take_claimed(a, &snapshot);
    if (status == ASHLAR_OK) {
        read_events(a, &e);
    }
    ashlar__caches_release_locked(a, ashlar__cache_recent);
    ashlar__lock_release(&a->lock);
    if (status == ASHLAR_OK) {
        status = ashlar__snapshot_write(snapshot, e.events, e.count, path);
    }
    ashlar_snapshot_free(snapshot);
    ashlar__host_free(e.events);
    return status;
}
