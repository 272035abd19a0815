/* soft_capture.c - stream capture: what it records in its graph, which calls it forbids meanwhile,
 * and the calls that begin and end it. */
#include "allocator/soft/soft_state.h"

#include "allocator/base/host.h"

/* ---- captures ---- */

_Thread_local unsigned int ashlar__soft_capture_mode;

soft_capture *ashlar__soft_capture_find(uint64_t id) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    soft_capture *capture = ashlar__soft_state.captures;
    while (capture != NULL && capture->id != id) {
        capture = capture->next;
    }
    return capture;
}

cu_result ashlar__soft_capture_spoil(soft_capture *capture, cu_result result) {
    if (capture == NULL || capture->is_invalid) {
        return result;
    }
    capture->is_invalid = true;
    return capture->thread == ashlar__thread_number()
               ? result
               : ashlar__soft_undefined(result,
                                        "spoils the capture that another thread began on the "
                                        "stream with id %llu",
                                        (unsigned long long)capture->origin->serial);
}

/* ---- what a capture forbids ---- */

/* Invalidate every capture in which a stream of the device takes part; with `ordered`, only those
 * with a blocking stream of the device. False: there is no such capture. */
static bool spoil_all(const soft_device *device, bool ordered) {
    bool found = false;
    if (ashlar__soft_state.captures == NULL) { /* almost always, so spare the loop */
        return false;
    }
    for (soft_stream *s = ashlar__soft_state.first_stream; s != NULL; s = s->next) {
        if (s->device == device && s->capture != NULL && (s->is_ordered || !ordered)) {
            (void)ashlar__soft_capture_spoil(s->capture, CU_SUCCESS);
            found = true;
        }
    }
    return found;
}

cu_result ashlar__soft_capture_admit_work(const soft_stream *stream) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    if (stream->capture != NULL && stream->capture->is_invalid) {
        return CU_STREAM_CAPTURE_INVALIDATED;
    }
    return stream == stream->device->legacy && spoil_all(stream->device, true)
               ? CU_STREAM_CAPTURE_IMPLICIT
               : CU_SUCCESS;
}

cu_result ashlar__soft_capture_admit_wait(const soft_stream *stream) {
    SOFT_TRY(ashlar__soft_capture_admit_work(stream));
    return stream->capture != NULL
               ? ashlar__soft_capture_spoil(stream->capture, CU_STREAM_CAPTURE_UNSUPPORTED)
               : ashlar__soft_capture_admit_unsafe();
}

cu_result ashlar__soft_capture_admit_wait_all(const soft_device *device) {
    return spoil_all(device, false) ? CU_STREAM_CAPTURE_UNSUPPORTED
                                    : ashlar__soft_capture_admit_unsafe();
}

/* Whether this capture forbids the calling thread unsafe calls. A capture that this thread began
 * does, unless the capture is relaxed. A global capture of another thread does, if this thread's
 * mode is global. A thread in relaxed mode may make all calls. */
static bool forbids_unsafe(const soft_capture *capture) {
    switch (ashlar__soft_capture_mode) {
    case CU_CAPTURE_RELAXED:
        return false;
    case CU_CAPTURE_THREAD_LOCAL:
        return capture->thread == ashlar__thread_number() && capture->mode != CU_CAPTURE_RELAXED;
    default:
        return capture->mode == CU_CAPTURE_GLOBAL ||
               (capture->thread == ashlar__thread_number() && capture->mode != CU_CAPTURE_RELAXED);
    }
}

cu_result ashlar__soft_capture_admit_unsafe(void) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    cu_result result = CU_SUCCESS;
    for (soft_capture *c = ashlar__soft_state.captures; c != NULL; c = c->next) {
        if (forbids_unsafe(c)) {
            result = ashlar__soft_capture_spoil(c, CU_STREAM_CAPTURE_UNSUPPORTED);
        }
    }
    return result;
}

cu_result ashlar__soft_enter_unsafe(ashlar_driver_fn fn, soft_device **device) {
    SOFT_TRY(ashlar__soft_enter_context(fn, device));
    return ashlar__soft_go_on(ashlar__soft_capture_admit_unsafe());
}

cu_result ashlar__soft_enter_vmm(ashlar_driver_fn fn) {
    SOFT_TRY(ashlar__soft_enter(fn));
    return ashlar__soft_go_on(
        ashlar__soft_state.config.has_vmm ? ashlar__soft_capture_admit_unsafe() : CU_NOT_SUPPORTED);
}

/* ---- nodes ---- */

cu_result ashlar__soft_capture_op(soft_stream *stream, const soft_op *model) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    ASHLAR_CHECK2(stream->capture != NULL);
    ASHLAR_CHECK2(model->point == NULL && model->awaits == NULL);
    soft_graph *graph = stream->capture->graph;
    soft_node *nodes =
        ashlar__soft_grow(graph->nodes, graph->count, &graph->capacity, sizeof *nodes);
    if (nodes == NULL) {
        return CU_OUT_OF_MEMORY;
    }
    graph->nodes = nodes;
    soft_node node = {.op = *model, .device = stream->device, .lane = stream->serial};
    node.op.number = graph->count + 1;
    if (!ashlar__soft_clock_join(&node.after, &stream->captured) ||
        !ashlar__soft_clock_raise(&stream->captured, node.lane, node.op.number)) {
        ashlar__soft_clock_clear(&node.after);
        return CU_OUT_OF_MEMORY;
    }
    ASHLAR_CHECK2(!ashlar__soft_clock_covers(&node.after, node.lane, node.op.number));
    graph->nodes[graph->count++] = node;
    ASHLAR_CHECK2(graph->count <= graph->capacity && graph->user_count == 1);
    return CU_SUCCESS;
}

cu_result ashlar__soft_capture_join(soft_stream *stream, uint64_t id, const soft_clock *captured) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    soft_capture *capture = ashlar__soft_capture_find(id);
    if (capture == NULL) { /* the event's capture has ended: the event stands for no work */
        return stream->capture == NULL
                   ? CU_CAPTURED_EVENT
                   : ashlar__soft_capture_spoil(stream->capture, CU_STREAM_CAPTURE_ISOLATION);
    }
    if (stream->capture != NULL && stream->capture != capture) {
        (void)ashlar__soft_capture_spoil(capture, CU_SUCCESS);
        return ashlar__soft_capture_spoil(stream->capture, CU_STREAM_CAPTURE_MERGE);
    }
    if (capture->is_invalid) {
        return CU_STREAM_CAPTURE_INVALIDATED;
    }
    if (stream == stream->device->legacy) {
        return ashlar__soft_capture_spoil(capture, CU_STREAM_CAPTURE_UNSUPPORTED);
    }
    if (!ashlar__soft_clock_join(&stream->captured, captured)) {
        return CU_OUT_OF_MEMORY;
    }
    stream->capture = capture;
    return CU_SUCCESS;
}

/* ---- the end ---- */

/* End the capture and free it: its streams no longer capture. Its graph is dropped unless
 * capture->graph is NULL. */
static void finish(soft_capture *capture) {
    ASHLAR_CHECK2(ashlar__soft_capture_find(capture->id) == capture);
    for (soft_stream *s = ashlar__soft_state.first_stream; s != NULL; s = s->next) {
        if (s->capture == capture) {
            s->capture = NULL;
            ashlar__soft_clock_clear(&s->captured);
        }
    }
    soft_capture **link = &ashlar__soft_state.captures;
    while (*link != capture) {
        link = &(*link)->next;
    }
    *link = capture->next;
    ashlar__soft_graph_drop(capture->graph);
    ashlar__host_free(capture);
}

void ashlar__soft_capture_leave(soft_stream *stream) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    soft_capture *capture = stream->capture;
    if (capture != NULL && capture->origin == stream) {
        finish(capture);
    } else if (capture != NULL) {
        capture->is_invalid = true;
        stream->capture = NULL;
    }
}

void ashlar__soft_capture_reset(void) {
    const soft_handles *graphs = &ashlar__soft_state.handles[SOFT_GRAPH];
    const soft_handles *execs = &ashlar__soft_state.handles[SOFT_GRAPH_EXEC];
    while (ashlar__soft_state.captures != NULL) {
        finish(ashlar__soft_state.captures);
    }
    for (size_t i = 0; i < graphs->count; i++) {
        ashlar__soft_graph_drop(graphs->entries[i].item);
    }
    for (size_t i = 0; i < execs->count; i++) {
        ashlar__soft_exec_delete(execs->entries[i].item);
    }
}

/* ---- the calls ---- */

cu_result ashlar__soft_thread_exchange_capture_mode(unsigned int *mode) {
    SOFT_TRY(ashlar__soft_enter(ASHLAR_DRIVER_FN_thread_exchange_capture_mode));
    if (mode == NULL || *mode > CU_CAPTURE_RELAXED) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    const unsigned int before = ashlar__soft_capture_mode;
    ashlar__soft_capture_mode = *mode;
    *mode = before;
    return ashlar__soft_leave(CU_SUCCESS);
}

cu_result ashlar__soft_stream_begin_capture(cu_stream stream, unsigned int mode) {
    static uint64_t ids; /* the last id given; guarded by the state's lock; never reset */
    soft_stream *found = NULL;
    SOFT_TRY(ashlar__soft_enter_stream(ASHLAR_DRIVER_FN_stream_begin_capture, stream, &found));
    if (mode > CU_CAPTURE_RELAXED) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    if (found == found->device->legacy || found->capture != NULL) {
        return ashlar__soft_leave(found->capture != NULL ? CU_ILLEGAL_STATE
                                                         : CU_STREAM_CAPTURE_UNSUPPORTED);
    }
    soft_capture *capture = ashlar__host_calloc(1, sizeof *capture);
    soft_graph *graph = capture == NULL ? NULL : ashlar__soft_graph_new(found->serial);
    if (graph == NULL) {
        ashlar__host_free(capture);
        return ashlar__soft_leave(CU_OUT_OF_MEMORY);
    }
    *capture = (soft_capture){.next = ashlar__soft_state.captures,
                              .id = ++ids,
                              .thread = ashlar__thread_number(),
                              .mode = mode,
                              .origin = found,
                              .graph = graph};
    ASHLAR_CHECK2(ashlar__soft_capture_find(capture->id) == NULL && capture->id != 0);
    ashlar__soft_state.captures = capture;
    found->capture = capture;
    return ashlar__soft_leave(CU_SUCCESS);
}

static bool is_joined(const soft_capture *capture) {
    bool joined = true;
    for (const soft_stream *s = ashlar__soft_state.first_stream; s != NULL; s = s->next) {
        joined = joined && (s->capture != capture || ashlar__soft_clock_covers_all(
                                                         &capture->origin->captured, &s->captured));
    }
    return joined;
}

/* The capture is over even on failure, unless the stream or the thread was the wrong one. */
cu_result ashlar__soft_stream_end_capture(cu_stream stream, cu_graph *graph) {
    soft_stream *found = NULL;
    cu_result result =
        ashlar__soft_enter_stream(ASHLAR_DRIVER_FN_stream_end_capture, stream, &found);
    if (result != CU_SUCCESS) {
        return result;
    }
    soft_capture *capture = found->capture;
    if (graph == NULL || capture == NULL) {
        return ashlar__soft_leave(graph == NULL ? CU_INVALID_VALUE : CU_ILLEGAL_STATE);
    }
    if (capture->origin != found) {
        return ashlar__soft_leave(ashlar__soft_capture_spoil(capture, CU_STREAM_CAPTURE_UNMATCHED));
    }
    if (capture->mode != CU_CAPTURE_RELAXED && capture->thread != ashlar__thread_number()) {
        return ashlar__soft_leave(CU_STREAM_CAPTURE_WRONG_THREAD);
    }
    ASHLAR_CHECK2(capture->graph->user_count == 1 && capture->graph->lane == found->serial);
    uintptr_t handle = 0;
    if (capture->is_invalid) {
        result = CU_STREAM_CAPTURE_INVALIDATED;
    } else if (!is_joined(capture)) {
        result = CU_STREAM_CAPTURE_UNJOINED;
    } else if (!ashlar__soft_handle_put(SOFT_GRAPH, capture->graph, &handle)) {
        result = CU_OUT_OF_MEMORY;
    } else {
        capture->graph = NULL; /* the handle owns the graph now */
    }
    *graph = (cu_graph)handle;
    finish(capture);
    ASHLAR_CHECK2(found->capture == NULL);
    return ashlar__soft_leave(result);
}

/* The only call on the legacy stream that does not invalidate another stream's capture. */
cu_result ashlar__soft_stream_is_capturing(cu_stream stream, unsigned int *status) {
    soft_stream *found = NULL;
    SOFT_TRY(ashlar__soft_enter_stream(ASHLAR_DRIVER_FN_stream_is_capturing, stream, &found));
    if (status == NULL) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    for (const soft_stream *s = ashlar__soft_state.first_stream; s != NULL; s = s->next) {
        if (found == s->device->legacy && s->is_ordered && s->capture != NULL) {
            return ashlar__soft_leave(CU_STREAM_CAPTURE_IMPLICIT);
        }
    }
    *status = found->capture == NULL       ? CU_CAPTURE_NONE
              : found->capture->is_invalid ? CU_CAPTURE_INVALIDATED
                                           : CU_CAPTURE_ACTIVE;
    return ashlar__soft_leave(CU_SUCCESS);
}
