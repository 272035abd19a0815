/* plan_list.c - recording a step that was never run, from a list of events or of lifetimes. */
#include <ashlar/plan_list.h>

#include <stdlib.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/core/streams.h"
#include "allocator/step/step.h"
#include "allocator/core/forked.h"
#include "allocator/core/hold.h"

/* Add a recording that belongs to no stream yet to key `key`, as a step on `stream`. Finishes the
 * recording, also on failure. */
static ashlar_status keep(ashlar_allocator *a, ashlar_stream stream, uint64_t key,
                          ashlar_recording *recording) {
    ashlar_stream_state *state = NULL;
    ashlar_cache *own = ashlar__cache_get(a);
    ASHLAR_CHECK2(recording->stream_count == 0 && !recording->is_incomplete);
    ashlar__allocator_enter(a);
    ashlar_status status = ashlar__stream_state_of_locked(a, stream, &state);
    if (status == ASHLAR_OK && state->pool != NULL) {
        status = ashlar__fail(ASHLAR_EINVAL, "stream: it is being captured; record before");
    }
    if (status == ASHLAR_OK) {
        recording->stream_states[recording->stream_count++] = state;
        status = ashlar__step_keep_locked(a, own, state, key, recording);
    } else {
        ashlar__recording_finish(recording);
    }
    ashlar__allocator_leave(a);
    return status;
}

static ashlar_status begin(size_t count, ashlar_recording *out) {
    *out = (ashlar_recording){0};
    if (count > ASHLAR_RECORDING_MAX) {
        return ashlar__fail(ASHLAR_EOVERFLOW, "a step of %zu allocations; give at most %u", count,
                            ASHLAR_RECORDING_MAX);
    }
    out->allocs = ashlar__host_calloc(count + 1, sizeof *out->allocs);
    return out->allocs != NULL
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a step of %zu allocations",
                              count);
}

static ashlar_status check_alloc(const char *what, size_t i, size_t bytes, ashlar_tag tag) {
    if (bytes == 0) {
        return ashlar__fail(ASHLAR_EINVAL, "%s[%zu]: 0 bytes; give at least 1", what, i);
    }
    if ((unsigned)tag >= (unsigned)ASHLAR_TAG_COUNT) {
        return ashlar__fail(ASHLAR_EINVAL, "%s[%zu]: %d is no ashlar_tag", what, i, (int)tag);
    }
    return ASHLAR_OK;
}

/* live   [count], indexed by block number: 1 + the index of the block's allocation; 0: not live */
static ashlar_status add_event(const ashlar_plan_event *events, size_t count, size_t i,
                               uint32_t *live, ashlar_recording *out) {
    const ashlar_plan_event *e = &events[i];
    if (e->block >= count || (live[e->block] != 0) != e->is_free) {
        return ashlar__fail(ASHLAR_EINVAL, "events[%zu]: block %zu is %s; number blocks below %zu",
                            i, e->block,
                            e->block >= count ? "out of range"
                            : e->is_free      ? "not live"
                                              : "live already",
                            count);
    }
    if (e->is_free) {
        ASHLAR_CHECK2(live[e->block] <= out->count);
        out->allocs[live[e->block] - 1].end = out->count;
        live[e->block] = 0;
        return ASHLAR_OK;
    }
    const ashlar_status status = check_alloc("events", i, e->bytes, e->tag);
    if (status == ASHLAR_OK) {
        out->allocs[out->count++] = (ashlar_recorded){
            .bytes = e->bytes, .end = ASHLAR_NOT_PLANNED, .tag = (unsigned char)e->tag};
        live[e->block] = out->count;
    }
    return status;
}

static ashlar_status of_events(const ashlar_plan_event *events, size_t count,
                               ashlar_recording *out) {
    ashlar_status status = begin(count, out);
    uint32_t *live = ashlar__host_calloc(count + 1, sizeof *live);
    if (status == ASHLAR_OK && live == NULL) {
        status = ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a step of %zu events", count);
    }
    for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
        status = add_event(events, count, i, live, out);
    }
    ashlar__host_free(live);
    ASHLAR_CHECK2(out->count <= count);
    return status;
}

ashlar_status ashlar_plan_record_events(ashlar_allocator *a, ashlar_stream stream, uint64_t key,
                                        const ashlar_plan_event *events, size_t count) {
    ashlar_recording recording;
    ASHLAR_REFUSE_OF_PARENT(a);
    const ashlar_status status = of_events(events, count, &recording);
    if (status != ASHLAR_OK || a->cache_bytes == 0) {
        ashlar__recording_finish(&recording);
        return status;
    }
    return keep(a, stream, key, &recording);
}

static int by_begin(const void *left, const void *right) {
    const ashlar_pack_buffer *a = *(const ashlar_pack_buffer *const *)left;
    const ashlar_pack_buffer *b = *(const ashlar_pack_buffer *const *)right;
    if (a->begin != b->begin) {
        return a->begin < b->begin ? -1 : 1;
    }
    return a < b ? -1 : a > b;
}

/* The number of buffers, which are sorted by `begin`, that begin before `time`. */
static size_t begun_before(const ashlar_pack_buffer *const *sorted, size_t count, uint64_t time) {
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (sorted[middle]->begin < time) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static ashlar_status sort_buffers(const ashlar_pack_buffer *buffers, size_t count, ashlar_tag tag,
                                  const ashlar_pack_buffer **sorted) {
    for (size_t i = 0; i < count; i++) {
        const ashlar_status status = check_alloc("buffers", i, buffers[i].bytes, tag);
        if (status != ASHLAR_OK) {
            return status;
        }
        if (buffers[i].begin >= buffers[i].end) {
            return ashlar__fail(ASHLAR_EINVAL, "buffers[%zu]: it ends before it begins, or then",
                                i);
        }
        sorted[i] = &buffers[i];
    }
    qsort((void *)sorted, count, sizeof(ashlar_pack_buffer *), by_begin);
    return ASHLAR_OK;
}

static ashlar_status of_buffers(const ashlar_pack_buffer *buffers, size_t count, ashlar_tag tag,
                                ashlar_recording *out) {
    ashlar_status status = begin(count, out);
    const ashlar_pack_buffer **sorted =
        ashlar__host_calloc(count + 1, sizeof(ashlar_pack_buffer *));
    if (status == ASHLAR_OK && sorted == NULL) {
        status = ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a step of %zu buffers", count);
    }
    if (status == ASHLAR_OK) {
        status = sort_buffers(buffers, count, tag, sorted);
    }
    for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
        out->allocs[out->count++] =
            (ashlar_recorded){.bytes = sorted[i]->bytes,
                              .end = (uint32_t)begun_before(sorted, count, sorted[i]->end),
                              .tag = (unsigned char)tag};
        ASHLAR_CHECK2(out->allocs[i].end > i && out->allocs[i].end <= count);
    }
    ashlar__host_free((void *)sorted);
    return status;
}

ashlar_status ashlar_plan_record_buffers(ashlar_allocator *a, ashlar_stream stream, uint64_t key,
                                         const ashlar_pack_buffer *buffers, size_t count,
                                         ashlar_tag tag) {
    ashlar_recording recording;
    ASHLAR_REFUSE_OF_PARENT(a);
    const ashlar_status status = of_buffers(buffers, count, tag, &recording);
    if (status != ASHLAR_OK || a->cache_bytes == 0) {
        ashlar__recording_finish(&recording);
        return status;
    }
    return keep(a, stream, key, &recording);
}
