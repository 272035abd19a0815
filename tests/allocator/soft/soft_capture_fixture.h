/*
 * soft_capture_fixture.h - streams that capture, and the graphs that come of it, for tests.
 */
#ifndef ASHLAR_SOFT_CAPTURE_FIXTURE_H
#define ASHLAR_SOFT_CAPTURE_FIXTURE_H

#include "tests/allocator/soft/soft_stream_fixture.h"

static inline void begin(cu_stream stream, unsigned int mode) {
    CHECK(soft->stream_begin_capture(stream, mode) == CU_SUCCESS);
}

static inline unsigned int status_of(cu_stream stream) {
    unsigned int status = 99;
    CHECK(soft->stream_is_capturing(stream, &status) == CU_SUCCESS);
    return status;
}

/* End the capture with success, and make the graph ready to launch. */
static inline cu_graph_exec end(cu_stream stream) {
    cu_graph graph = NULL;
    cu_graph_exec exec = NULL;
    CHECK(soft->stream_end_capture(stream, &graph) == CU_SUCCESS);
    CHECK(soft->graph_instantiate(&exec, graph, 0) == CU_SUCCESS);
    CHECK(soft->graph_destroy(graph) == CU_SUCCESS); /* the executable copy stands alone */
    return exec;
}

/* End a capture that has been spoilt. */
static inline void check_spoilt(cu_stream stream) {
    cu_graph graph = (cu_graph)(uintptr_t)99;
    CHECK(status_of(stream) == CU_CAPTURE_INVALIDATED);
    CHECK(soft->launch_host_func(stream, note, &ran) == CU_STREAM_CAPTURE_INVALIDATED);
    CHECK(soft->stream_end_capture(stream, &graph) == CU_STREAM_CAPTURE_INVALIDATED);
    CHECK(graph == NULL);
    CHECK(status_of(stream) == CU_CAPTURE_NONE);
}

/* `to` waits in-stream for what `from` has so far. */
static inline cu_result follow(cu_stream to, cu_stream from) {
    const cu_event event = new_event();
    CHECK(soft->event_record(event, from) == CU_SUCCESS);
    const cu_result result = soft->stream_wait_event(to, event, 0);
    CHECK(soft->event_destroy(event) == CU_SUCCESS);
    return result;
}

#endif /* ASHLAR_SOFT_CAPTURE_FIXTURE_H */
