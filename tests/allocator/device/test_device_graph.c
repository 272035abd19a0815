/*
 * test_device_graph.c - graphs of captured work: they run when they are launched, as often as that
 * is, with the arguments of the capture; what cannot be captured leaves nothing behind.
 */
#include "tests/allocator/device/device_calls.h"

#include "allocator/device/device_impl.h"

#define SPEC "memory=16MiB"

static ashlar_graph *capture_note(int *at, int value) {
    ashlar_graph *graph = NULL;
    CHECK(ashlar_graph_begin(device, streams[0], &graph) == ASHLAR_OK);
    queue_note(streams[0], at, value);
    CHECK(ashlar_graph_end(graph) == ASHLAR_OK);
    return graph;
}

/* A copy on a stream of its own, between the work that it waits for and that which waits for it. */
CASE(streams_that_wait_for_the_captured_one_are_part_of_it) {
    for (int seed = 1; seed <= 8; seed++) {
        REQUIRE(set_up_device(drawn_order(SPEC, seed)));
        ashlar_event forked = NULL, joined = NULL;
        ashlar_graph *graph = NULL;
        int seen = 0;
        CHECK(ashlar_event_create(device, &forked) == ASHLAR_OK);
        CHECK(ashlar_event_create(device, &joined) == ASHLAR_OK);
        CHECK(ashlar_graph_begin(device, streams[0], &graph) == ASHLAR_OK);
        queue_note(streams[0], &seen, 1);
        CHECK(ashlar_event_record(device, forked, streams[0]) == ASHLAR_OK);
        CHECK(ashlar_stream_wait(device, streams[1], forked) == ASHLAR_OK);
        queue_note(streams[1], &seen, 2);
        CHECK(ashlar_event_record(device, joined, streams[1]) == ASHLAR_OK);
        CHECK(ashlar_stream_wait(device, streams[0], joined) == ASHLAR_OK);
        queue_note(streams[0], &seen, 3);
        CHECK(ashlar_graph_end(graph) == ASHLAR_OK);
        CHECK(ashlar_graph_launch(graph) == ASHLAR_OK);
        CHECK(ashlar_graph_launch(graph) == ASHLAR_OK);
        wait_for(streams[0]);
        CHECK(seen == 123123);
        ashlar_graph_destroy(graph);
        ashlar_event_destroy(device, forked);
        ashlar_event_destroy(device, joined);
        tear_down_device();
    }
}

/* A wait of the host spoils the capture. The stream can be used again, and captured. */
CASE_WITH(a_spoiled_capture_is_an_error_and_is_over, set_up_device(SPEC)) {
    ashlar_graph *graph = NULL;
    int seen = 0;
    CHECK(ashlar_graph_begin(device, streams[0], &graph) == ASHLAR_OK);
    queue_note(streams[0], &seen, 1);
    CHECK(ashlar_stream_synchronize(device, streams[0]) == ASHLAR_EDRIVER);
    CHECK_FAILS(ashlar_graph_end(graph), ASHLAR_EDRIVER, "cuStreamEndCapture");
    ashlar_graph_destroy(graph);
    queue_note(streams[0], &seen, 5);
    wait_for(streams[0]);
    CHECK(seen == 5);
    ashlar_graph_destroy(capture_note(&seen, 6));
    CHECK(seen == 5);
}

CASE_WITH(a_capture_can_be_given_up, set_up_device(SPEC)) {
    ashlar_graph *graph = NULL;
    int seen = 0;
    CHECK(ashlar_graph_begin(device, streams[0], &graph) == ASHLAR_OK);
    queue_note(streams[0], &seen, 1);
    ashlar_graph_destroy(graph);
    queue_note(streams[0], &seen, 2);
    wait_for(streams[0]);
    CHECK(seen == 2);
    ashlar_graph_destroy(NULL);
}

static ashlar_status capture_again(void) {
    static int seen;
    const struct { int *at, value; } note = {&seen, 1};
    ashlar_graph *graph = NULL;
    ashlar_status status = ashlar_graph_begin(device, streams[0], &graph);
    if (status != ASHLAR_OK) {
        CHECK(graph == NULL);
        return status;
    }
    status = ashlar_launch(device, streams[0], note_value, &note, sizeof note);
    if (status == ASHLAR_OK) {
        status = ashlar_graph_end(graph);
    }
    ashlar_graph_destroy(graph);
    return status;
}

CASE_WITH(refusals_of_the_driver_are_handed_on, set_up_device(SPEC)) {
    static const refusable_call calls[] = {
        {ASHLAR_DRIVER_FN_stream_begin_capture, capture_again, "cuStreamBeginCapture"},
        {ASHLAR_DRIVER_FN_launch_host_func, capture_again, "cuLaunchHostFunc"},
        {ASHLAR_DRIVER_FN_graph_instantiate, capture_again, "cuGraphInstantiateWithFlags"}};
    check_refusals(calls, sizeof calls / sizeof *calls);
}

/* The software device's lack is the driver's to report. */
static ashlar_status capture_in_little_memory(void) {
    const ashlar_status status = capture_again();
    return status == ASHLAR_ENOMEM ? ASHLAR_EHOSTMEM : status;
}

CASE_WITH(so_is_a_lack_of_host_memory, set_up_device(SPEC)) {
    FOR_HOST_FAILURES(n, status, capture_in_little_memory()) {
        check_context_stack();
    }
}

RUN_CASES()
