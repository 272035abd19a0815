/* soft_capture_calls.c - the calls that begin a stream capture, end it, and ask about it. */
#include "allocator/soft/soft_state.h"

#include "allocator/base/check_level.h"
#include "allocator/base/host.h"

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
                              .thread = ashlar__soft_capture_thread(),
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
    if (capture->mode != CU_CAPTURE_RELAXED && capture->thread != ashlar__soft_capture_thread()) {
        return ashlar__soft_leave(CU_STREAM_CAPTURE_WRONG_THREAD);
    }
    ASHLAR_CHECK2(capture->graph->user_count == 1 && capture->graph->lane == found->serial);
    uintptr_t handle = 0;
    if (capture->is_invalid) {
        result = CU_STREAM_CAPTURE_INVALIDATED;
    } else if (!is_joined(capture)) {
        result = CU_STREAM_CAPTURE_UNJOINED;
    } else if (!ashlar__soft_handles_put(&ashlar__soft_state.graphs, SOFT_GRAPH, capture->graph,
                                         &handle)) {
        result = CU_OUT_OF_MEMORY;
    } else {
        capture->graph = NULL; /* the handle owns the graph now */
    }
    *graph = (cu_graph)handle;
    ashlar__soft_capture_finish(capture);
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
