/* soft_capture.c - making and freeing graphs and their executable copies; what a stream capture
 * records in its graph, and which calls it forbids meanwhile. */
#include "allocator/soft/soft_graph.h"

#include "allocator/base/check_level.h"
#include "allocator/base/host.h"
#include "allocator/soft/soft_state.h"

soft_graph *ashlar__soft_graph_new(uint64_t lane) {
    soft_graph *graph = ashlar__host_calloc(1, sizeof *graph);
    if (graph != NULL) {
        graph->user_count = 1;
        graph->lane = lane;
    }
    return graph;
}

void ashlar__soft_graph_drop(soft_graph *graph) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    ASHLAR_CHECK2(graph == NULL || graph->user_count > 0);
    if (graph == NULL || --graph->user_count > 0) {
        return;
    }
    for (size_t i = 0; i < graph->count; i++) {
        ashlar__soft_clock_clear(&graph->nodes[i].after);
    }
    ashlar__host_free(graph->nodes);
    ashlar__host_free(graph);
}

void ashlar__soft_exec_delete(soft_exec *exec) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    ashlar__soft_graph_drop(exec->graph);
    ashlar__soft_point_drop(exec->last);
    ashlar__host_free(exec);
}

void ashlar__soft_graph_reset(void) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    soft_handles *graphs = &ashlar__soft_state.graphs, *execs = &ashlar__soft_state.execs;
    for (size_t i = 0; i < graphs->count; i++) {
        ashlar__soft_graph_drop(graphs->entries[i].item);
    }
    for (size_t i = 0; i < execs->count; i++) {
        if (execs->entries[i].item != NULL) {
            ashlar__soft_exec_delete(execs->entries[i].item);
        }
    }
    ashlar__soft_handles_clear(graphs);
    ashlar__soft_handles_clear(execs);
}

/* ---- captures ---- */

_Thread_local unsigned int ashlar__soft_capture_mode;

uint64_t ashlar__soft_capture_thread(void) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    static uint64_t threads;
    static _Thread_local uint64_t number;
    if (number == 0) {
        number = ++threads;
    }
    return number;
}

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
    return capture->thread == ashlar__soft_capture_thread()
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
    if (ashlar__soft_state.captures == NULL) { /* true almost always */
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
        return capture->thread == ashlar__soft_capture_thread() &&
               capture->mode != CU_CAPTURE_RELAXED;
    default:
        return capture->mode == CU_CAPTURE_GLOBAL ||
               (capture->thread == ashlar__soft_capture_thread() &&
                capture->mode != CU_CAPTURE_RELAXED);
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

cu_result ashlar__soft_enter_vmm(ashlar_driver_fn fn) {
    cu_result result = ashlar__soft_enter(fn);
    if (result != CU_SUCCESS) {
        return result;
    }
    result =
        ashlar__soft_state.config.has_vmm ? ashlar__soft_capture_admit_unsafe() : CU_NOT_SUPPORTED;
    return result == CU_SUCCESS ? CU_SUCCESS : ashlar__soft_leave(result);
}

/* ---- nodes ---- */

cu_result ashlar__soft_capture_op(soft_stream *stream, const soft_op *model) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    ASHLAR_CHECK2(stream->capture != NULL);
    ASHLAR_CHECK2(model->point == NULL && model->awaits == NULL);
    soft_graph *graph = stream->capture->graph;
    if (graph->count == graph->capacity) {
        const size_t more = graph->capacity == 0 ? 16 : graph->capacity * 2;
        soft_node *nodes = ashlar__host_realloc(graph->nodes, more, sizeof *nodes);
        if (nodes == NULL) {
            return CU_OUT_OF_MEMORY;
        }
        graph->nodes = nodes;
        graph->capacity = more;
    }
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

void ashlar__soft_capture_finish(soft_capture *capture) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
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
        ashlar__soft_capture_finish(capture);
    } else if (capture != NULL) {
        capture->is_invalid = true;
        stream->capture = NULL;
    }
}

void ashlar__soft_capture_reset(void) {
    while (ashlar__soft_state.captures != NULL) {
        ashlar__soft_capture_finish(ashlar__soft_state.captures);
    }
}
