/*
 * test_device_event.c - events of a device: what they wait for, and who waits for them.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

#include "tests/allocator/device/device_calls.h"

static bool is_done(ashlar_event event) {
    bool done = false;
    CHECK(ashlar_event_query(device, event, &done) == ASHLAR_OK);
    return done;
}

static ashlar_event make_event(void) {
    ashlar_event event = NULL;
    CHECK(ashlar_event_create(device, &event) == ASHLAR_OK && event != NULL);
    return event;
}

static void record(ashlar_event event, ashlar_stream stream) {
    CHECK(ashlar_event_record(device, event, stream) == ASHLAR_OK);
}

CASE_WITH(an_event_is_done_when_the_work_before_it_is, set_up_device("mode=adversarial")) {
    int seen = 0;
    const ashlar_event event = make_event();
    CHECK(is_done(event)); /* never recorded */
    queue_note(streams[0], &seen, 1);
    record(event, streams[0]);
    queue_note(streams[0], &seen, 2);
    CHECK(!is_done(event) && seen == 0);
    wait_for(streams[1]);
    CHECK(!is_done(event) && seen == 0);
    CHECK(ashlar_event_synchronize(device, event) == ASHLAR_OK);
    CHECK(is_done(event) && seen == 1);
    record(event, streams[0]);
    CHECK(!is_done(event)); /* a new record moves it */
    wait_for(streams[0]);
    CHECK(is_done(event) && seen == 12);
    ashlar_event_destroy(device, event);
}

CASE(a_stream_waits_for_the_event_as_it_is_now) {
    for (int seed = 1; seed <= 16; seed++) {
        REQUIRE(set_up_device(drawn_order("memory=16MiB", seed)));
        int seen = 0, later = 0;
        const ashlar_event event = make_event();
        queue_note(streams[0], &seen, 1);
        record(event, streams[0]);
        CHECK(ashlar_stream_wait(device, streams[1], event) == ASHLAR_OK);
        queue_note(streams[2], &later, 5);
        record(event, streams[2]);
        queue_note(streams[1], &seen, 2);
        ashlar_event_destroy(device, event);
        CHECK(seen == 0);
        wait_for(streams[1]);
        CHECK(seen == 12 && later == 0);
        tear_down_device();
    }
}

CASE_WITH(an_event_may_stand_on_the_default_stream, set_up_device("mode=adversarial")) {
    int seen = 0;
    const ashlar_event event = make_event();
    queue_note(streams[3], &seen, 1);
    queue_note(NULL, &seen, 2);
    record(event, NULL);
    CHECK(ashlar_event_synchronize(device, event) == ASHLAR_OK);
    CHECK(seen == 12);
    ashlar_event_destroy(device, event);
}

CASE_WITH(an_event_is_given_back_once_destroyed,
          set_up_device("mode=adversarial," STRICT_NOT_HERE)) {
    bool done = true;
    int seen = 0;
    const ashlar_event event = make_event();
    CHECK_ZU(live_events(), 1);
    queue_note(streams[0], &seen, 3);
    record(event, streams[0]);
    ashlar_event_destroy(device, event); /* before its point has come */
    CHECK_ZU(live_events(), 0);
    CHECK(ashlar_event_query(device, event, &done) == ASHLAR_EDRIVER);
    CHECK(done); /* unchanged */
    wait_for(streams[0]);
    CHECK(seen == 3);
    const size_t calls = CALLS(event_destroy);
    ashlar_event_destroy(device, NULL);
    CHECK_ZU(CALLS(event_destroy), calls);
}

static cu_result create_plain(cu_event *event, unsigned int flags) {
    CHECK(flags == CU_EVENT_NO_TIMING);
    return ashlar__soft_event_create(event, flags);
}

CASE_WITH(events_keep_no_time, set_up_device("")) {
    const ashlar_driver_table table = driver->table;
    driver->table.event_create = create_plain;
    ashlar_event_destroy(device, make_event());
    driver->table = table;
}

CASE_WITH(waits_of_the_host_are_counted_apart_from_order, set_up_device("")) {
    const ashlar_driver_counts before = counts_now();
    const ashlar_event event = make_event();
    record(event, NULL);
    CHECK(is_done(event));
    CHECK(ashlar_stream_wait(device, streams[0], event) == ASHLAR_OK);
    CHECK(ashlar_event_synchronize(device, event) == ASHLAR_OK);
    ashlar_event_destroy(device, event);
    const ashlar_driver_counts after = counts_now();
    CHECK(after.order == before.order + 5 && after.wait == before.wait + 1);
    CHECK(after.work == before.work && after.memory == before.memory);
}

/* ---- failures ---- */

static ashlar_event target;

static ashlar_status call_create(void) {
    ashlar_event event = NULL;
    const ashlar_status status = ashlar_event_create(device, &event);
    CHECK((event != NULL) == (status == ASHLAR_OK));
    ashlar_event_destroy(device, event);
    return status;
}
static ashlar_status call_record(void) {
    return ashlar_event_record(device, target, streams[0]);
}
static ashlar_status call_query(void) {
    bool done = false;
    const ashlar_status status = ashlar_event_query(device, target, &done);
    CHECK(done == (status == ASHLAR_OK));
    return status;
}
static ashlar_status call_synchronize(void) {
    return ashlar_event_synchronize(device, target);
}
static ashlar_status call_wait(void) {
    return ashlar_stream_wait(device, streams[0], target);
}

CASE_WITH(every_refusal_of_the_driver_is_reported_by_name, set_up_device("")) {
    static const refusable_call calls[] = {
        {ASHLAR_DRIVER_FN_event_create, call_create, "cuEventCreate on"},
        {ASHLAR_DRIVER_FN_event_record, call_record, "cuEventRecord on"},
        {ASHLAR_DRIVER_FN_event_query, call_query, "cuEventQuery on"},
        {ASHLAR_DRIVER_FN_event_synchronize, call_synchronize, "cuEventSynchronize on"},
        {ASHLAR_DRIVER_FN_stream_wait_event, call_wait, "cuStreamWaitEvent on"},
    };
    target = make_event();
    check_refusals(calls, sizeof calls / sizeof *calls);
    ashlar_event_destroy(device, target);
    CHECK_ZU(live_events(), 0);
}

RUN_CASES()
