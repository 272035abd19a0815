/* trace_snapshot.c - an allocator's trace and its memory at one moment, as files, for
 * tools/viewer.html, tools/memory_viz.py and ashlar-replay. */
#include "allocator/core/core.h"

#include <ashlar/trace.h>

#include "allocator/base/error.h"
#include "allocator/base/file.h"
#include "allocator/base/host.h"
#include "allocator/base/json.h"
#include "allocator/plan/planner.h"

/* ---- the trace ---- */

/* A copy of the events that the ring still holds; empty if there is no ring. */
typedef struct event_copy {
    ashlar_trace_event *events;
    size_t count;
    uint64_t lost;
} event_copy;

static ashlar_status reserve_events(const ashlar_allocator *a, event_copy *e) {
    *e = (event_copy){0};
    if (a->ring.capacity > 0) {
        ASHLAR_HOST_NEW(e->events, a->ring.capacity, "no host memory to copy a trace of %zu events",
                        a->ring.capacity);
    }
    return ASHLAR_OK;
}

static void read_events_locked(const ashlar_allocator *a, event_copy *e) {
    ASHLAR_OWNS(&a->lock);
    if (a->ring.capacity > 0) {
        e->count = ashlar__trace_read(&a->ring, e->events, a->ring.capacity, &e->lost);
    }
}

ashlar_status ashlar_allocator_write_trace(ashlar_allocator *a, const char *path,
                                           uint64_t *missing) {
    event_copy e;
    uint64_t left_out = 0;
    ASHLAR_REFUSE_OF_PARENT(a);
    ASHLAR_FAIL_IF(a->ring.capacity == 0, ASHLAR_EINVAL,
                   "this allocator keeps no trace; make it with the option trace=N, the number of "
                   "events to keep");
    ASHLAR_TRY(reserve_events(a, &e));
    ashlar__lock_acquire(&a->lock);
    read_events_locked(a, &e);
    ashlar__lock_release(&a->lock);
    const ashlar_status status = ashlar__trace_write_rmm(e.events, e.count, path, &left_out);
    ashlar__host_free(e.events);
    if (status == ASHLAR_OK && missing != NULL) {
        *missing = e.lost + left_out;
    }
    return status;
}

/* ---- a snapshot ---- */

/* A snapshot that grows by one block after another. */
typedef struct filling {
    const ashlar_heap *heap;
    ashlar_snapshot *snapshot;
    size_t segment_capacity, block_capacity;
} filling;

static ashlar_status add_block(filling *f, const ashlar_snapshot_block *block) {
    ashlar_snapshot *s = f->snapshot;
    ASHLAR_HOST_GROW(s->blocks, &f->block_capacity, s->block_count,
                     "no host memory for a snapshot of more than %zu blocks", s->block_count);
    s->blocks[s->block_count++] = *block;
    return ASHLAR_OK;
}

static ashlar_status add_used(filling *f, const ashlar_block *block) {
    const size_t live_bytes = ashlar__block_live_bytes(block);
    return add_block(f, &(ashlar_snapshot_block){
                            .address = f->heap->range.base + block->offset,
                            .bytes = block->bytes,
                            .requested_bytes = live_bytes,
                            .stream = block->stream_state->stream,
                            .tag = live_bytes != 0 ? (ashlar_tag)block->tag : ASHLAR_TAG_USER,
                            .state = live_bytes != 0                  ? ASHLAR_SNAPSHOT_LIVE
                                     : ashlar__block_is_shared(block) ? ASHLAR_SNAPSHOT_PENDING
                                                                      : ASHLAR_SNAPSHOT_CACHED,
                        });
}

static ashlar_status add_free(filling *f, size_t offset, size_t bytes, ashlar_snapshot_state state,
                              ashlar_stream stream) {
    return add_block(f, &(ashlar_snapshot_block){.address = f->heap->range.base + offset,
                                                 .bytes = bytes,
                                                 .stream = stream,
                                                 .tag = ASHLAR_TAG_USER,
                                                 .state = state});
}

/* Add a plan's memory: its live slot blocks, and the gaps between them. */
static ashlar_status add_plan_memory(filling *f, const ashlar_block *memory) {
    const size_t end = memory->offset + memory->bytes;
    size_t at = memory->offset;
    for (const ashlar_block *next = ashlar__block_after(memory); at < end;
         next = ashlar__block_after(next)) {
        const bool is_slot_block = next != ashlar__heap_next(memory);
        const size_t begin = is_slot_block ? next->offset : end;
        ASHLAR_CHECK2(at <= begin && begin <= end); /* live slot blocks do not overlap */
        if (begin > at) {
            ASHLAR_TRY(
                add_free(f, at, begin - at, ASHLAR_SNAPSHOT_PLANNED, memory->stream_state->stream));
        }
        if (!is_slot_block) {
            return ASHLAR_OK;
        }
        ASHLAR_TRY(add_used(f, next));
        at = begin + next->bytes;
    }
    return ASHLAR_OK;
}

static ashlar_status add_piece(filling *f, const ashlar_heap_piece *piece) {
    const ashlar_block *block = piece->block;
    if (block->state == ASHLAR_BLOCK_PLAN_MEMORY) {
        return add_plan_memory(f, block);
    }
    if (block->state != ASHLAR_BLOCK_FREE) {
        return add_used(f, block);
    }
    const bool is_past =
        ashlar__heap_is_past_at(f->heap, block->window, piece->offset, piece->bytes);
    return add_free(f, piece->offset, piece->bytes,
                    is_past ? ASHLAR_SNAPSHOT_IDLE : ASHLAR_SNAPSHOT_PENDING,
                    is_past ? NULL : block->window->zone->owner->stream);
}

/* A segment is a maximal run of memory in one window. */
static ashlar_status fill_locked(filling *f) {
    ashlar_snapshot *s = f->snapshot;
    const ashlar_window *window = NULL; /* of the previous piece, if that has memory */
    for (ashlar_heap_piece at = {0}; ashlar__heap_next_piece(f->heap, &at);) {
        if (at.is_mapped && at.block->window != window) {
            ASHLAR_HOST_GROW(s->segments, &f->segment_capacity, s->segment_count,
                             "no host memory for a snapshot of more than %zu segments",
                             s->segment_count);
            s->segments[s->segment_count++] =
                (ashlar_snapshot_segment){.address = f->heap->range.base + at.offset};
        }
        window = at.is_mapped ? at.block->window : NULL;
        if (at.is_mapped) {
            s->segments[s->segment_count - 1].bytes += at.bytes;
            ASHLAR_TRY(add_piece(f, &at));
        }
    }
    return ASHLAR_OK;
}

/* Take a snapshot and, if `e` is not NULL, the trace of the same moment. */
static ashlar_status take(ashlar_allocator *a, ashlar_snapshot **out, event_copy *e) {
    filling f = {.heap = &a->heap};
    ASHLAR_HOST_NEW(f.snapshot, 1, "no host memory for a snapshot");
    f.snapshot->device_ordinal = a->device->info.ordinal;
    ashlar__allocator_enter(a);
    const ashlar_status status = fill_locked(&f);
    if (e != NULL) {
        read_events_locked(a, e);
    }
    ashlar__allocator_leave(a);
    if (status != ASHLAR_OK) {
        ashlar_snapshot_free(f.snapshot);
        return status;
    }
    *out = f.snapshot;
    return ASHLAR_OK;
}

ashlar_status ashlar_allocator_take_snapshot(ashlar_allocator *a, ashlar_snapshot **out) {
    ASHLAR_REFUSE_OF_PARENT(a);
    return take(a, out, NULL);
}

void ashlar_snapshot_free(ashlar_snapshot *snapshot) {
    if (snapshot != NULL) {
        ashlar__host_free(snapshot->segments);
        ashlar__host_free(snapshot->blocks);
        ashlar__host_free(snapshot);
    }
}

/* ---- its file ---- */

static const char *const state_names[] = {
    [ASHLAR_SNAPSHOT_LIVE] = "live",       [ASHLAR_SNAPSHOT_CACHED] = "cached",
    [ASHLAR_SNAPSHOT_PENDING] = "pending", [ASHLAR_SNAPSHOT_PLANNED] = "planned",
    [ASHLAR_SNAPSHOT_IDLE] = "idle",
};
ASHLAR_TABLE_IS_FULL(state_names, ASHLAR_SNAPSHOT_STATE_COUNT);

#define ACTION_NAME(name, text, rmm) text,
static const char *const action_names[] = {ASHLAR_TRACE_ACTION_MAP(ACTION_NAME)};
ASHLAR_TABLE_IS_FULL(action_names, ASHLAR_TRACE_ACTION_COUNT);

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static void put_segments(ashlar_json_writer *w, const ashlar_snapshot *snapshot) {
    static const char *const columns[] = {"address", "bytes"};
    ashlar__json_put_key(w, "segments");
    ashlar__json_open_table(w, columns, COUNT(columns));
    for (size_t i = 0; i < snapshot->segment_count; i++) {
        ashlar__json_open_row(w);
        ashlar__json_put_uint64(w, snapshot->segments[i].address);
        ashlar__json_put_uint64(w, snapshot->segments[i].bytes);
        ashlar__json_close_array(w);
    }
    ashlar__json_close_table(w);
}

static void put_blocks(ashlar_json_writer *w, const ashlar_snapshot *snapshot) {
    static const char *const columns[] = {"address", "bytes", "requested",
                                          "stream",  "tag",   "state"};
    ashlar__json_put_key(w, "blocks");
    ashlar__json_open_table(w, columns, COUNT(columns));
    for (size_t i = 0; i < snapshot->block_count; i++) {
        const ashlar_snapshot_block *block = &snapshot->blocks[i];
        ashlar__json_open_row(w);
        ashlar__json_put_uint64(w, block->address);
        ashlar__json_put_uint64(w, block->bytes);
        ashlar__json_put_uint64(w, block->requested_bytes);
        ashlar__json_put_uint64(w, (uintptr_t)block->stream);
        ashlar__json_put_string(w, ashlar_tag_name(block->tag));
        ashlar__json_put_string(w, state_names[block->state]);
        ashlar__json_close_array(w);
    }
    ashlar__json_close_table(w);
}

static void put_events(ashlar_json_writer *w, const ashlar_trace_event *events, size_t count) {
    static const char *const columns[] = {"action", "address", "bytes",   "requested",
                                          "stream", "tag",     "time_ns", "thread"};
    ashlar__json_put_key(w, "events");
    ashlar__json_open_table(w, columns, COUNT(columns));
    for (size_t i = 0; i < count; i++) {
        const ashlar_trace_event *e = &events[i];
        ASHLAR_CHECK2(e->action < ASHLAR_TRACE_ACTION_COUNT && e->tag < ASHLAR_TAG_COUNT);
        ashlar__json_open_row(w);
        ashlar__json_put_string(w, action_names[e->action]);
        ashlar__json_put_uint64(w, e->address);
        ashlar__json_put_uint64(w, e->bytes);
        ashlar__json_put_uint64(w, e->requested);
        ashlar__json_put_uint64(w, e->stream);
        ashlar__json_put_string(w, ashlar_tag_name((ashlar_tag)e->tag));
        ashlar__json_put_uint64(w, e->time_ns);
        ashlar__json_put_uint64(w, e->thread);
        ashlar__json_close_array(w);
    }
    ashlar__json_close_table(w);
}

static ashlar_status write_text(ashlar_json_writer *w, const char *path) {
    const char *text;
    size_t bytes;
    ASHLAR_TRY(ashlar__json_writer_text(w, &text, &bytes));
    return ashlar__file_write_line(path, text, bytes);
}

/* Viewers play the trace backwards from the snapshot, so each block in it must lie in memory that
 * the snapshot has or that a later event unmaps. */
static ashlar_status write_snapshot(const ashlar_snapshot *snapshot,
                                    const ashlar_trace_event *events, size_t count,
                                    const char *path) {
    ashlar_json_writer w;
    ashlar__json_writer_init(&w, 1);
    ashlar__json_open_document(&w, "ashlar-memory/1");
    ashlar__json_add_uint64(&w, "device_ordinal", (uint64_t)snapshot->device_ordinal);
    put_segments(&w, snapshot);
    put_blocks(&w, snapshot);
    put_events(&w, events, count);
    ashlar__json_close_object(&w);
    const ashlar_status status = write_text(&w, path);
    ashlar__json_writer_finish(&w);
    return status;
}

ashlar_status ashlar_allocator_write_snapshot(ashlar_allocator *a, const char *path) {
    event_copy e;
    ashlar_snapshot *snapshot = NULL;
    ASHLAR_REFUSE_OF_PARENT(a);
    ASHLAR_TRY(reserve_events(a, &e));
    ashlar_status status = take(a, &snapshot, &e);
    ASHLAR_THEN(status, write_snapshot(snapshot, e.events, e.count, path));
    ashlar_snapshot_free(snapshot);
    ashlar__host_free(e.events);
    return status;
}
