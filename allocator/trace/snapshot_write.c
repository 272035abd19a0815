/* snapshot_write.c - writing a snapshot and a trace as JSON, for tools/viewer.html and
 * tools/memory_viz.py. */
#include "allocator/trace/snapshot.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/file_buffer.h"
#include "allocator/base/json.h"

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

ashlar_status ashlar__snapshot_write(const ashlar_snapshot *snapshot,
                                     const ashlar_trace_event *events, size_t count,
                                     const char *path) {
    ashlar_json_writer w;
    ASHLAR_TRY(ashlar__snapshot_check(snapshot));
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
