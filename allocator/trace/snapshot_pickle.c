/* snapshot_pickle.c - writing a snapshot and a trace as PyTorch does, in Python's pickle format. */
#include "allocator/trace/snapshot.h"

#include <stdbool.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/file_buffer.h"
#include "allocator/base/pickle.h"

/* The strings of the format. */
#define WORD_MAP(X)                                 \
    X(SEGMENTS, "segments")                         \
    X(DEVICE_TRACES, "device_traces")               \
    X(ALLOCATOR_SETTINGS, "allocator_settings")     \
    X(EXTERNAL_ANNOTATIONS, "external_annotations") \
    X(DEVICE, "device")                             \
    X(ADDRESS, "address")                           \
    X(TOTAL_SIZE, "total_size")                     \
    X(ALLOCATED_SIZE, "allocated_size")             \
    X(ACTIVE_SIZE, "active_size")                   \
    X(REQUESTED_SIZE, "requested_size")             \
    X(STREAM, "stream")                             \
    X(SEGMENT_TYPE, "segment_type")                 \
    X(LARGE, "large")                               \
    X(SEGMENT_POOL_ID, "segment_pool_id")           \
    X(IS_EXPANDABLE, "is_expandable")               \
    X(FRAMES, "frames")                             \
    X(BLOCKS, "blocks")                             \
    X(SIZE, "size")                                 \
    X(STATE, "state")                               \
    X(ACTIVE_ALLOCATED, "active_allocated")         \
    X(INACTIVE, "inactive")                         \
    X(ACTION, "action")                             \
    X(ADDR, "addr")                                 \
    X(DEVICE_FREE, "device_free")                   \
    X(TIME_US, "time_us")                           \
    X(COMPILE_CONTEXT, "compile_context")           \
    X(USER_METADATA, "user_metadata")               \
    X(NOT_COMPILED, "N/A")                          \
    X(FREE_COMPLETED, "free_completed")

/* Words are numbered: those above, then the actions, then the tags. */
#define WORD_ENUM(name, text) WORD_##name,
#define ACTION_ENUM(name, pytorch, rmm) WORD_ACTION_##name,
#define TAG_ENUM(name, text) WORD_TAG_##name,
typedef enum word {
    WORD_MAP(WORD_ENUM)
    ASHLAR_TRACE_ACTION_MAP(ACTION_ENUM)
    ASHLAR_TAG_MAP(TAG_ENUM)
    WORD_COUNT
} word;
enum { FIRST_ACTION = WORD_ACTION_ALLOC, FIRST_TAG = WORD_TAG_USER };
_Static_assert((int)WORD_COUNT <= (int)ASHLAR_PICKLE_WORDS, "a word's index is one byte");
_Static_assert((int)FIRST_ACTION + (int)ASHLAR_TRACE_ACTION_COUNT == (int)FIRST_TAG &&
                   (int)FIRST_TAG + (int)ASHLAR_TAG_COUNT == (int)WORD_COUNT,
               "actions and tags are numbered as in their own enums");

#define WORD_TEXT(name, text) text,
#define ACTION_TEXT(name, pytorch, rmm) pytorch,
static const char *const words[] = {
    WORD_MAP(WORD_TEXT)
    ASHLAR_TRACE_ACTION_MAP(ACTION_TEXT)
    ASHLAR_TAG_MAP(WORD_TEXT)
};
ASHLAR_TABLE_IS_FULL(words, WORD_COUNT);

static void put(ashlar_pickle *p, word w) {
    ASHLAR_CHECK2((unsigned)w < WORD_COUNT);
    ashlar__pickle_put_word(p, w, words[w]);
}

static void put_words(ashlar_pickle *p, word key, word value) {
    put(p, key);
    put(p, value);
}

static void put_number(ashlar_pickle *p, word key, uint64_t value) {
    put(p, key);
    ashlar__pickle_put_uint64(p, value);
}

/* Write an empty call stack, since some viewers need the key. */
static void put_no_frames(ashlar_pickle *p) {
    put(p, WORD_FRAMES);
    ashlar__pickle_open_list(p);
    ashlar__pickle_close_list(p);
}

/* ---- segments ---- */

/* PENDING blocks are written as inactive, not as active_pending_free. In PyTorch no stream may take
 * a block in active_pending_free yet, and the viewer draws it as taken until its free_completed
 * event. But the owner's stream may take our PENDING blocks again. */
static void put_block(ashlar_pickle *p, const ashlar_snapshot_block *block) {
    const bool is_live = block->state == ASHLAR_SNAPSHOT_LIVE;
    ashlar__pickle_open_dict(p);
    put_number(p, WORD_ADDRESS, block->address);
    put_number(p, WORD_SIZE, block->bytes);
    put_number(p, WORD_REQUESTED_SIZE, block->requested_bytes);
    put_words(p, WORD_STATE, is_live ? WORD_ACTIVE_ALLOCATED : WORD_INACTIVE);
    put_no_frames(p);
    ashlar__pickle_close_dict(p);
}

/* Write a segment, whose first block is blocks[0]. Returns the number of its blocks. */
static size_t put_segment(ashlar_pickle *p, int device, const ashlar_snapshot_segment *segment,
                          const ashlar_snapshot_block *blocks) {
    uint64_t live = 0, requested = 0;
    size_t count = 0;
    for (uint64_t filled = 0; filled < segment->bytes; filled += blocks[count++].bytes) {
        live += blocks[count].state == ASHLAR_SNAPSHOT_LIVE ? blocks[count].bytes : 0;
        requested += blocks[count].requested_bytes;
    }
    ASHLAR_CHECK2(requested <= live && live <= segment->bytes);
    ashlar__pickle_open_dict(p);
    put_number(p, WORD_DEVICE, (unsigned)device);
    put_number(p, WORD_ADDRESS, segment->address);
    put_number(p, WORD_TOTAL_SIZE, segment->bytes);
    put_number(p, WORD_ALLOCATED_SIZE, live);
    put_number(p, WORD_ACTIVE_SIZE, live);
    put_number(p, WORD_REQUESTED_SIZE, requested);
    put_number(p, WORD_STREAM, 0); /* a segment serves all streams */
    put_words(p, WORD_SEGMENT_TYPE, WORD_LARGE);
    put(p, WORD_SEGMENT_POOL_ID);
    ashlar__pickle_put_pair(p, 0, 0);
    put(p, WORD_IS_EXPANDABLE);
    ashlar__pickle_put_bool(p, true);
    put_no_frames(p);
    put(p, WORD_BLOCKS);
    ashlar__pickle_open_list(p);
    for (size_t i = 0; i < count; i++) {
        put_block(p, &blocks[i]);
    }
    ashlar__pickle_close_list(p);
    ashlar__pickle_close_dict(p);
    return count;
}

static void put_segments(ashlar_pickle *p, const ashlar_snapshot *snapshot) {
    const ashlar_snapshot_block *blocks = snapshot->blocks;
    put(p, WORD_SEGMENTS);
    ASHLAR_CHECK2(snapshot->device_ordinal >= 0);
    ashlar__pickle_open_list(p);
    for (size_t i = 0; i < snapshot->segment_count; i++) {
        blocks += put_segment(p, snapshot->device_ordinal, &snapshot->segments[i], blocks);
    }
    ASHLAR_CHECK2(blocks == snapshot->blocks + snapshot->block_count);
    ashlar__pickle_close_list(p);
}

/* ---- traces ---- */

static void put_event(ashlar_pickle *p, word action, const ashlar_trace_event *event) {
    ASHLAR_CHECK2(event->tag < ASHLAR_TAG_COUNT);
    const bool is_memory = event->action == ASHLAR_TRACE_MAP || event->action == ASHLAR_TRACE_UNMAP;
    ashlar__pickle_open_dict(p);
    put_words(p, WORD_ACTION, action);
    if (event->action == ASHLAR_TRACE_OOM) {
        put_number(p, WORD_DEVICE_FREE, event->bytes);
    } else {
        put_number(p, WORD_ADDR, event->address);
    }
    put_number(p, WORD_SIZE, is_memory ? event->bytes : event->requested);
    /* A viewer joins mapped memory only with a segment of the same stream. */
    put_number(p, WORD_STREAM, is_memory ? 0 : event->stream);
    put_number(p, WORD_TIME_US, event->time_ns / 1000);
    put_words(p, WORD_COMPILE_CONTEXT, WORD_NOT_COMPILED);
    put_words(p, WORD_USER_METADATA, (word)(FIRST_TAG + event->tag));
    put_no_frames(p);
    ashlar__pickle_close_dict(p);
}

static void put_trace(ashlar_pickle *p, const ashlar_trace_event *events, size_t count) {
    ashlar__pickle_open_list(p);
    for (size_t i = 0; i < count; i++) {
        ASHLAR_CHECK2(events[i].action < ASHLAR_TRACE_ACTION_COUNT);
        put_event(p, (word)(FIRST_ACTION + events[i].action), &events[i]);
        if (events[i].action == ASHLAR_TRACE_FREE) { /* at once, so that viewers join the two
                                                      * events */
            put_event(p, WORD_FREE_COMPLETED, &events[i]);
        }
    }
    ashlar__pickle_close_list(p);
}

/* Write one list of events for each device up to `device`. The lists of the other devices are
 * empty, since the snapshot is of one device. */
static void put_traces(ashlar_pickle *p, int device, const ashlar_trace_event *events,
                       size_t count) {
    put(p, WORD_DEVICE_TRACES);
    ashlar__pickle_open_list(p);
    for (int i = 0; i < device; i++) {
        put_trace(p, NULL, 0);
    }
    put_trace(p, events, count);
    ashlar__pickle_close_list(p);
}

/* ---- settings ---- */

static void put_switch(ashlar_pickle *p, const char *key, bool value) {
    ashlar__pickle_put_text(p, key);
    ashlar__pickle_put_bool(p, value);
}

/* The settings with which PyTorch's allocator would behave like ours. */
static void put_settings(ashlar_pickle *p) {
    put(p, WORD_ALLOCATOR_SETTINGS);
    ashlar__pickle_open_dict(p);
    ashlar__pickle_put_text(p, "PYTORCH_CUDA_ALLOC_CONF");
    ashlar__pickle_put_text(p, "");
    ashlar__pickle_put_text(p, "max_split_size");
    ashlar__pickle_put_int32(p, -1); /* no limit */
    ashlar__pickle_put_text(p, "garbage_collection_threshold");
    ashlar__pickle_put_double(p, 0.0);
    put_switch(p, "expandable_segments", true);
    ashlar__pickle_put_text(p, "pinned_num_register_threads");
    ashlar__pickle_put_uint64(p, 1);
    put_switch(p, "release_lock_on_cudamalloc", false);
    put_switch(p, "pinned_use_cuda_host_register", false);
    put_switch(p, "graph_capture_record_stream_reuse", false);
    ashlar__pickle_put_text(p, "roundup_power2_divisions");
    ashlar__pickle_open_dict(p);
    ashlar__pickle_close_dict(p);
    ashlar__pickle_close_dict(p);
}

ashlar_status ashlar__snapshot_write_pickle(const ashlar_snapshot *snapshot,
                                            const ashlar_trace_event *events, size_t count,
                                            const char *path) {
    ashlar_pickle p;
    ashlar_file_buffer *file = NULL;
    ashlar_status status = ashlar__snapshot_check(snapshot);
    ASHLAR_THEN(status, ashlar__file_buffer_create(path, &file));
    if (status != ASHLAR_OK) {
        return status;
    }
    ashlar__pickle_begin(&p, file);
    ashlar__pickle_open_dict(&p);
    put_segments(&p, snapshot);
    put_traces(&p, snapshot->device_ordinal, events, count);
    put_settings(&p);
    put(&p, WORD_EXTERNAL_ANNOTATIONS);
    ashlar__pickle_open_list(&p);
    ashlar__pickle_close_list(&p);
    ashlar__pickle_close_dict(&p);
    ashlar__pickle_end(&p);
    return ashlar__file_buffer_commit(file);
}
