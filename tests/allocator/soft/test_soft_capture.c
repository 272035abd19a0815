/* test_soft_capture.c - stream capture on the software device: what it records and forbids. */
#include "tests/allocator/soft/soft_fixture.h"

#include "allocator/base/host.h"

CASE_WITH(captured_work_does_not_run, set_up_streams("memory=16MiB")) {
    CHECK(status_of(s) == CU_CAPTURE_NONE);
    begin(s, CU_CAPTURE_GLOBAL);
    CHECK(status_of(s) == CU_CAPTURE_ACTIVE);
    CHECK(status_of(t) == CU_CAPTURE_NONE);
    queue(s, "a");
    CHECK(ran_count == 0);
    queue(t, "x"); /* another stream works on */
    CHECK(strcmp(ran, "x") == 0);
    cu_graph graph = NULL;
    CHECK(soft->stream_end_capture(s, &graph) == CU_SUCCESS);
    CHECK(graph != NULL);
    CHECK(status_of(s) == CU_CAPTURE_NONE);
    CHECK(strcmp(ran, "x") == 0);
    queue(s, "b");
    CHECK(strcmp(ran, "xb") == 0);
    CHECK(soft->graph_destroy(graph) == CU_SUCCESS);
    CHECK(soft->graph_destroy(graph) == CU_INVALID_VALUE);
}

CASE_WITH(begin_and_end_refuse_what_cuda_refuses, set_up_streams("memory=16MiB")) {
    cu_graph graph = NULL;
    unsigned int status = 99;
    CHECK(soft->stream_begin_capture(s, 3) == CU_INVALID_VALUE);
    CHECK(soft->stream_begin_capture(NULL, 0) == CU_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(soft->stream_begin_capture((cu_stream)1, 0) == CU_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(soft->stream_begin_capture((cu_stream)99, 0) == CU_INVALID_HANDLE);
    CHECK(soft->stream_end_capture(s, &graph) == CU_ILLEGAL_STATE);
    CHECK(soft->stream_is_capturing(s, NULL) == CU_INVALID_VALUE);
    CHECK(soft->stream_is_capturing((cu_stream)99, &status) == CU_INVALID_HANDLE);
    begin(s, CU_CAPTURE_RELAXED);
    CHECK(soft->stream_begin_capture(s, 0) == CU_ILLEGAL_STATE);
    CHECK(soft->stream_end_capture(s, NULL) == CU_INVALID_VALUE);
    CHECK(status_of(s) == CU_CAPTURE_ACTIVE);
    CHECK(follow(t, s) == CU_SUCCESS);
    CHECK(status_of(t) == CU_CAPTURE_ACTIVE);
    CHECK(soft->stream_begin_capture(t, 0) == CU_ILLEGAL_STATE);
    CHECK(soft->stream_end_capture(t, &graph) == CU_STREAM_CAPTURE_UNMATCHED);
    check_spoilt(s);
    CHECK(status_of(t) == CU_CAPTURE_NONE); /* with the capture, each of its streams is free */
    begin((cu_stream)2, CU_CAPTURE_GLOBAL); /* the thread's own default stream may */
    CHECK(soft->graph_exec_destroy(end((cu_stream)2)) == CU_SUCCESS);
}

CASE_WITH(a_forked_stream_must_be_joined, set_up_streams("memory=16MiB")) {
    cu_graph graph = NULL;
    for (int joins = 0; joins < 2; joins++) {
        begin(s, CU_CAPTURE_GLOBAL);
        queue(s, "a");
        CHECK(follow(t, s) == CU_SUCCESS);
        queue(t, "b");
        if (joins != 0) {
            CHECK(follow(s, t) == CU_SUCCESS);
        }
        graph = (cu_graph)(uintptr_t)99;
        CHECK(soft->stream_end_capture(s, &graph) ==
              (joins != 0 ? CU_SUCCESS : CU_STREAM_CAPTURE_UNJOINED));
        CHECK((graph != NULL) == (joins != 0));
        CHECK(status_of(s) == CU_CAPTURE_NONE && status_of(t) == CU_CAPTURE_NONE);
    }
    begin(s, CU_CAPTURE_GLOBAL); /* without work of its own a fork has nothing to join */
    queue(s, "a");
    CHECK(follow(t, s) == CU_SUCCESS);
    CHECK(soft->stream_end_capture(s, &graph) == CU_SUCCESS);
    begin(s, CU_CAPTURE_GLOBAL); /* joined, and then worked on */
    queue(s, "a");
    CHECK(follow(t, s) == CU_SUCCESS);
    CHECK(follow(s, t) == CU_SUCCESS);
    queue(t, "b");
    CHECK(soft->stream_end_capture(s, &graph) == CU_STREAM_CAPTURE_UNJOINED);
}

CASE_WITH(two_captures_cannot_be_merged, set_up_streams("memory=16MiB")) {
    begin(s, CU_CAPTURE_RELAXED);
    begin(t, CU_CAPTURE_RELAXED);
    CHECK(follow(t, s) == CU_STREAM_CAPTURE_MERGE);
    check_spoilt(s);
    check_spoilt(t);
}

CASE_WITH(waits_do_not_cross_the_border_of_a_capture, set_up_streams("memory=16MiB")) {
    const cu_event outside = new_event(), inside = new_event();
    begin(s, CU_CAPTURE_GLOBAL); /* an event without a record is no dependency */
    CHECK(soft->stream_wait_event(s, outside, 0) == CU_SUCCESS);
    CHECK(status_of(s) == CU_CAPTURE_ACTIVE);
    CHECK(soft->event_record(outside, t) == CU_SUCCESS);
    CHECK(soft->stream_wait_event(s, outside, 0) == CU_STREAM_CAPTURE_ISOLATION);
    check_spoilt(s);
    begin(s, CU_CAPTURE_GLOBAL);
    CHECK(soft->event_record(inside, s) == CU_SUCCESS);
    CHECK(soft->graph_exec_destroy(end(s)) == CU_SUCCESS);
    CHECK(soft->stream_wait_event(t, inside, 0) == CU_CAPTURED_EVENT); /* it stands for no work */
    begin(s, CU_CAPTURE_GLOBAL);
    CHECK(soft->stream_wait_event(s, inside, 0) == CU_STREAM_CAPTURE_ISOLATION);
    check_spoilt(s);
    CHECK(soft->event_record(inside, t) == CU_SUCCESS); /* outside: it is an event again */
    CHECK(soft->stream_wait_event(s, inside, 0) == CU_SUCCESS);
    CHECK(soft->event_query(inside) == CU_SUCCESS);
}

CASE_WITH(a_spoilt_capture_takes_no_new_stream, set_up_streams("memory=16MiB")) {
    const cu_event event = new_event();
    begin(s, CU_CAPTURE_GLOBAL);
    CHECK(soft->event_record(event, s) == CU_SUCCESS);
    CHECK(soft->stream_synchronize(s) == CU_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(soft->stream_wait_event(t, event, 0) == CU_STREAM_CAPTURE_INVALIDATED);
    CHECK(status_of(t) == CU_CAPTURE_NONE);
    CHECK(soft->event_record(event, s) == CU_STREAM_CAPTURE_INVALIDATED);
    check_spoilt(s);
}

/* Each of these asks about work that a capture has not queued. */
CASE_WITH(the_host_cannot_wait_for_captured_work, set_up_streams("memory=16MiB")) {
    unsigned int relaxed = CU_CAPTURE_RELAXED; /* permits none of them */
    CHECK(soft->thread_exchange_capture_mode(&relaxed) == CU_SUCCESS);
    const cu_event event = new_event();
    for (int i = 0; i < 6; i++) {
        begin(s, CU_CAPTURE_RELAXED);
        CHECK(soft->event_record(event, s) == CU_SUCCESS);
        CHECK(i != 0 || soft->event_query(event) == CU_CAPTURED_EVENT);
        CHECK(i != 1 || soft->event_synchronize(event) == CU_CAPTURED_EVENT);
        CHECK(i != 2 || soft->stream_synchronize(s) == CU_STREAM_CAPTURE_UNSUPPORTED);
        CHECK(i != 3 || soft->ctx_synchronize() == CU_STREAM_CAPTURE_UNSUPPORTED);
        CHECK(i != 4 || soft->stream_destroy(s) == CU_STREAM_CAPTURE_UNSUPPORTED);
        CHECK(i != 5 || soft->stream_query(s) == CU_STREAM_CAPTURE_UNSUPPORTED);
        check_spoilt(s);
        CHECK(soft->event_query(event) == CU_CAPTURED_EVENT); /* also once it is over */
    }
    CHECK(soft->thread_exchange_capture_mode(&relaxed) == CU_SUCCESS);
}

CASE(the_legacy_stream_is_unusable_while_a_blocking_stream_captures) {
    REQUIRE(set_up("devices=2,memory=16MiB"));
    const cu_stream blocking = new_stream(CU_STREAM_BLOCKING);
    const cu_stream unordered = new_stream(CU_STREAM_UNORDERED);
    const cu_event event = new_event();
    unsigned int status;
    for (int i = 0; i < 4; i++) {
        begin(blocking, CU_CAPTURE_RELAXED);
        CHECK(soft->stream_is_capturing(NULL, &status) == CU_STREAM_CAPTURE_IMPLICIT);
        CHECK(status_of(blocking) == CU_CAPTURE_ACTIVE); /* that question does no harm */
        CHECK(i != 0 || soft->launch_host_func(NULL, note, ran) == CU_STREAM_CAPTURE_IMPLICIT);
        CHECK(i != 1 || soft->event_record(event, NULL) == CU_STREAM_CAPTURE_IMPLICIT);
        CHECK(i != 2 || soft->stream_wait_event(NULL, event, 0) == CU_STREAM_CAPTURE_IMPLICIT);
        CHECK(i != 3 || soft->stream_synchronize((cu_stream)1) == CU_STREAM_CAPTURE_IMPLICIT);
        check_spoilt(blocking);
    }
    forget();
    begin(unordered, CU_CAPTURE_RELAXED); /* this one is not ordered with it */
    CHECK(status_of(NULL) == CU_CAPTURE_NONE);
    queue(NULL, "a");
    CHECK(strcmp(ran, "a") == 0);
    CHECK(follow(NULL, unordered) == CU_STREAM_CAPTURE_UNSUPPORTED); /* nor may it join */
    check_spoilt(unordered);
    REQUIRE(make_current(1));
    const cu_stream other = new_stream(CU_STREAM_BLOCKING);
    begin(other, CU_CAPTURE_RELAXED);
    REQUIRE(make_current(0));
    queue(NULL, "b"); /* another device's legacy stream */
    CHECK(strcmp(ran, "ab") == 0);
}

CASE_WITH(a_capture_ends_with_its_context, set_up_streams("devices=2,memory=16MiB")) {
    REQUIRE(make_current(1));
    t = new_stream(CU_STREAM_UNORDERED);
    const cu_stream u = new_stream(CU_STREAM_UNORDERED);
    begin(t, CU_CAPTURE_GLOBAL);
    begin(u, CU_CAPTURE_RELAXED);
    CHECK(follow(s, t) == CU_SUCCESS);
    CHECK(soft->primary_ctx_release(1) == CU_SUCCESS);
    REQUIRE(make_current(0));
    CHECK(ashlar__soft_state.captures == NULL);
    CHECK(status_of(s) == CU_CAPTURE_NONE);
    begin(s, CU_CAPTURE_GLOBAL); /* a stream that joined goes: the capture stays, and is spoilt */
    const cu_event event = record(s);
    REQUIRE(make_current(1));
    CHECK(soft->stream_wait_event(new_stream(CU_STREAM_UNORDERED), event, 0) == CU_SUCCESS);
    CHECK(soft->primary_ctx_release(1) == CU_SUCCESS);
    REQUIRE(make_current(0));
    check_spoilt(s);
    begin(s, CU_CAPTURE_GLOBAL);
    REQUIRE(set_up("memory=16MiB")); /* nor does it outlive a new configuration */
    CHECK(ashlar__soft_state.captures == NULL);
    CHECK(soft->ctx_synchronize() == CU_SUCCESS);
}

RUN_CASES()
