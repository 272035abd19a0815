/* soft_capture.c - stream capture: what begins and ends it, what it forbids. */
#include "allocator/soft/soft_graph.h"

#include "allocator/base/host.h"
#include "allocator/soft/soft_state.h"

/* How the calling thread takes the captures of other threads; a thread begins with GLOBAL. */
static _Thread_local unsigned int thread_mode;

/* Lock: the state's. Numbers, since the address of a thread may be used again. */
static uint64_t this_thread(void) {
    static uint64_t threads;
    static _Thread_local uint64_t number;
    if (number == 0) {
        number = ++threads;
    }
    return number;
}

soft_capture *ashlar_soft_capture_find(uint64_t id) {
    soft_capture *capture = ashlar_soft_state.captures;
    while (capture != NULL && capture->id != id) {
        capture = capture->next;
    }
    return capture;
}

cu_result ashlar_soft_capture_spoil(soft_capture *capture, cu_result result) {
    if (capture != NULL) {
        capture->is_invalid = true;
    }
    return result;
}

/* ---- what it forbids ---- */

/* Spoil each capture that a stream of the device is in; `ordered`: only blocking streams count.
 * False: there is none. */
static bool spoil_all(const soft_device *device, bool ordered) {
    bool found = false;
    if (ashlar_soft_state.captures == NULL) { /* as nearly always: no need to look */
        return false;
    }
    for (soft_stream *s = ashlar_soft_state.first_stream; s != NULL; s = s->next) {
        if (s->device == device && s->capture != NULL && (s->is_ordered || !ordered)) {
            s->capture->is_invalid = true;
            found = true;
        }
    }
    return found;
}

cu_result ashlar_soft_capture_admit_work(const soft_stream *stream) {
    if (stream->capture != NULL && stream->capture->is_invalid) {
        return CU_STREAM_CAPTURE_INVALIDATED;
    }
    return stream == stream->device->legacy && spoil_all(stream->device, true)
               ? CU_STREAM_CAPTURE_IMPLICIT
               : CU_SUCCESS;
}

cu_result ashlar_soft_capture_admit_wait(const soft_stream *stream) {
    const cu_result result = ashlar_soft_capture_admit_work(stream);
    if (result != CU_SUCCESS) {
        return result;
    }
    return stream->capture != NULL
               ? ashlar_soft_capture_spoil(stream->capture, CU_STREAM_CAPTURE_UNSUPPORTED)
               : ashlar_soft_capture_admit_unsafe();
}

cu_result ashlar_soft_capture_admit_wait_all(const soft_device *device) {
    return spoil_all(device, false) ? CU_STREAM_CAPTURE_UNSUPPORTED
                                    : ashlar_soft_capture_admit_unsafe();
}

/* A thread forbids itself, unless its capture is relaxed; a global capture forbids all threads
 * that have not opted out. */
static bool forbids_unsafe(const soft_capture *capture) {
    switch (thread_mode) {
    case CU_CAPTURE_RELAXED:
        return false;
    case CU_CAPTURE_THREAD_LOCAL:
        return capture->thread == this_thread() && capture->mode != CU_CAPTURE_RELAXED;
    default:
        return capture->mode == CU_CAPTURE_GLOBAL ||
               (capture->thread == this_thread() && capture->mode != CU_CAPTURE_RELAXED);
    }
}

cu_result ashlar_soft_capture_admit_unsafe(void) {
    cu_result result = CU_SUCCESS;
    for (soft_capture *c = ashlar_soft_state.captures; c != NULL; c = c->next) {
        if (forbids_unsafe(c)) {
            result = ashlar_soft_capture_spoil(c, CU_STREAM_CAPTURE_UNSUPPORTED);
        }
    }
    return result;
}

cu_result ashlar_soft_thread_exchange_capture_mode(unsigned int *mode) {
    const cu_result result = ashlar_soft_enter();
    if (result != CU_SUCCESS) {
        return result;
    }
    if (mode == NULL || *mode > CU_CAPTURE_RELAXED) {
        return ashlar_soft_leave(CU_INVALID_VALUE);
    }
    const unsigned int before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return ashlar_soft_leave(CU_SUCCESS);
}

cu_result ashlar_soft_enter_vmm(void) {
    cu_result result = ashlar_soft_enter();
    if (result != CU_SUCCESS) {
        return result;
    }
    result =
        ashlar_soft_state.config.has_vmm ? ashlar_soft_capture_admit_unsafe() : CU_NOT_SUPPORTED;
    return result == CU_SUCCESS ? CU_SUCCESS : ashlar_soft_leave(result);
}

/* ---- nodes ---- */

cu_result ashlar_soft_capture_op(soft_stream *stream, const soft_op *model) {
    soft_graph *graph = stream->capture->graph;
    if (graph->count == graph->capacity) {
        const size_t more = graph->capacity == 0 ? 16 : graph->capacity * 2;
        soft_node *nodes = ashlar_host_realloc(graph->nodes, more, sizeof *nodes);
        if (nodes == NULL) {
            return CU_OUT_OF_MEMORY;
        }
        graph->nodes = nodes;
        graph->capacity = more;
    }
    soft_node node = {.op = *model, .device = stream->device, .lane = stream->serial};
    node.op.number = graph->count + 1;
    if (!ashlar_soft_clock_join(&node.after, &stream->captured) ||
        !ashlar_soft_clock_raise(&stream->captured, node.lane, node.op.number)) {
        ashlar_soft_clock_clear(&node.after);
        return CU_OUT_OF_MEMORY;
    }
    graph->nodes[graph->count++] = node;
    return CU_SUCCESS;
}

cu_result ashlar_soft_capture_join(soft_stream *stream, uint64_t id, const soft_clock *captured) {
    soft_capture *capture = ashlar_soft_capture_find(id);
    if (capture == NULL) { /* it has ended: the event stands for no work */
        return stream->capture == NULL
                   ? CU_CAPTURED_EVENT
                   : ashlar_soft_capture_spoil(stream->capture, CU_STREAM_CAPTURE_ISOLATION);
    }
    if (stream->capture != NULL && stream->capture != capture) {
        capture->is_invalid = true;
        return ashlar_soft_capture_spoil(stream->capture, CU_STREAM_CAPTURE_MERGE);
    }
    if (capture->is_invalid) {
        return CU_STREAM_CAPTURE_INVALIDATED;
    }
    if (stream == stream->device->legacy) {
        return ashlar_soft_capture_spoil(capture, CU_STREAM_CAPTURE_UNSUPPORTED);
    }
    if (!ashlar_soft_clock_join(&stream->captured, captured)) {
        return CU_OUT_OF_MEMORY;
    }
    stream->capture = capture;
    return CU_SUCCESS;
}

/* ---- begin and end ---- */

/* Let all its streams go; the graph, if it is still there, goes too. */
static void finish(soft_capture *capture) {
    for (soft_stream *s = ashlar_soft_state.first_stream; s != NULL; s = s->next) {
        if (s->capture == capture) {
            s->capture = NULL;
            ashlar_soft_clock_clear(&s->captured);
        }
    }
    soft_capture **link = &ashlar_soft_state.captures;
    while (*link != capture) {
        link = &(*link)->next;
    }
    *link = capture->next;
    ashlar_soft_graph_drop(capture->graph);
    ashlar_host_free(capture);
}

void ashlar_soft_capture_leave(soft_stream *stream) {
    soft_capture *capture = stream->capture;
    if (capture != NULL && capture->origin == stream) {
        finish(capture);
    } else if (capture != NULL) {
        capture->is_invalid = true;
        stream->capture = NULL;
    }
}

void ashlar_soft_capture_reset(void) {
    while (ashlar_soft_state.captures != NULL) {
        finish(ashlar_soft_state.captures);
    }
}

cu_result ashlar_soft_stream_begin_capture(cu_stream stream, unsigned int mode) {
    static uint64_t ids; /* Lock: the state's; goes on through new configurations */
    soft_stream *found = NULL;
    const cu_result result = ashlar_soft_enter_stream(stream, &found);
    if (result != CU_SUCCESS) {
        return result;
    }
    if (mode > CU_CAPTURE_RELAXED) {
        return ashlar_soft_leave(CU_INVALID_VALUE);
    }
    if (found == found->device->legacy || found->capture != NULL) {
        return ashlar_soft_leave(found->capture != NULL ? CU_ILLEGAL_STATE
                                                        : CU_STREAM_CAPTURE_UNSUPPORTED);
    }
    soft_capture *capture = ashlar_host_calloc(1, sizeof *capture);
    soft_graph *graph = capture == NULL ? NULL : ashlar_soft_graph_new(found->serial);
    if (graph == NULL) {
        ashlar_host_free(capture);
        return ashlar_soft_leave(CU_OUT_OF_MEMORY);
    }
    *capture = (soft_capture){.next = ashlar_soft_state.captures,
                              .id = ++ids,
                              .thread = this_thread(),
                              .mode = mode,
                              .origin = found,
                              .graph = graph};
    ashlar_soft_state.captures = capture;
    found->capture = capture;
    return ashlar_soft_leave(CU_SUCCESS);
}

static bool is_joined(const soft_capture *capture) {
    bool joined = true;
    for (const soft_stream *s = ashlar_soft_state.first_stream; s != NULL; s = s->next) {
        joined = joined && (s->capture != capture ||
                            ashlar_soft_clock_covers_all(&capture->origin->captured, &s->captured));
    }
    return joined;
}

/* Whatever the result, but for a wrong stream or thread, the capture is over. */
cu_result ashlar_soft_stream_end_capture(cu_stream stream, cu_graph *graph) {
    soft_stream *found = NULL;
    cu_result result = ashlar_soft_enter_stream(stream, &found);
    if (result != CU_SUCCESS) {
        return result;
    }
    soft_capture *capture = found->capture;
    if (graph == NULL || capture == NULL) {
        return ashlar_soft_leave(graph == NULL ? CU_INVALID_VALUE : CU_ILLEGAL_STATE);
    }
    if (capture->origin != found) {
        return ashlar_soft_leave(ashlar_soft_capture_spoil(capture, CU_STREAM_CAPTURE_UNMATCHED));
    }
    if (capture->mode != CU_CAPTURE_RELAXED && capture->thread != this_thread()) {
        return ashlar_soft_leave(CU_STREAM_CAPTURE_WRONG_THREAD);
    }
    uintptr_t handle = 0;
    if (capture->is_invalid) {
        result = CU_STREAM_CAPTURE_INVALIDATED;
    } else if (!is_joined(capture)) {
        result = CU_STREAM_CAPTURE_UNJOINED;
    } else if (!ashlar_soft_slots_put(&ashlar_soft_state.graphs, SOFT_GRAPH, capture->graph,
                                      &handle)) {
        result = CU_OUT_OF_MEMORY;
    } else {
        capture->graph = NULL; /* the handle's now */
    }
    *graph = (cu_graph)handle;
    finish(capture);
    return ashlar_soft_leave(result);
}

/* The one question that the legacy stream may be asked without harm while another captures. */
cu_result ashlar_soft_stream_is_capturing(cu_stream stream, unsigned int *status) {
    soft_stream *found = NULL;
    const cu_result result = ashlar_soft_enter_stream(stream, &found);
    if (result != CU_SUCCESS) {
        return result;
    }
    if (status == NULL) {
        return ashlar_soft_leave(CU_INVALID_VALUE);
    }
    for (const soft_stream *s = ashlar_soft_state.first_stream; s != NULL; s = s->next) {
        if (found == s->device->legacy && s->is_ordered && s->capture != NULL) {
            return ashlar_soft_leave(CU_STREAM_CAPTURE_IMPLICIT);
        }
    }
    *status = found->capture == NULL       ? CU_CAPTURE_NONE
              : found->capture->is_invalid ? CU_CAPTURE_INVALIDATED
                                           : CU_CAPTURE_ACTIVE;
    return ashlar_soft_leave(CU_SUCCESS);
}
