/*
 * test_device_work.c - streams, copies, fills, launches, page-locked memory and events of a device.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

#include "tests/allocator/device/device_calls.h"

static size_t live_streams(void) {
    size_t count = 0;
    for (const soft_stream *s = ashlar__soft_state.first_stream; s != NULL; s = s->next) {
        count++;
    }
    return count;
}

CASE_WITH(destroying_a_stream_gives_it_back, set_up_device("mode=adversarial," STRICT_NOT_HERE)) {
    ashlar_stream stream = NULL;
    int seen = 0;
    const size_t before = live_streams();
    CHECK(ashlar_stream_create(device, &stream) == ASHLAR_OK);
    CHECK_ZU(live_streams(), before + 1);
    queue_note(stream, &seen, 5);
    ashlar_stream_destroy(device, stream);
    CHECK_FAILS(ashlar_stream_synchronize(device, stream), ASHLAR_EDRIVER,
                "cuStreamSynchronize on the soft device");
    queue_note(NULL, &seen, 6);
    wait_for(NULL);
    CHECK(seen == 56); /* its work was let finish */
    CHECK_ZU(live_streams(), before);
    const ashlar_driver_counts counts = counts_now();
    ashlar_stream_destroy(device, NULL);
    CHECK(counts_now().order == counts.order);
}

/* On the stream they name: nothing happens until that stream is waited for. */
CASE_WITH(work_goes_to_the_stream_it_names, set_up_device("memory=16MiB,mode=adversarial")) {
    void *pinned = NULL;
    REQUIRE(ashlar_device_host_alloc(device, 64, &pinned) == ASHLAR_OK);
    unsigned char *ptr = take_memory(device, 512), *host = pinned;
    for (int i = 0; i < STREAMS; i++) {
        memset(host, i + 1, 64);
        CHECK(ashlar_fill(device, ptr, 0xEE, 64, streams[i]) == ASHLAR_OK);
        CHECK(ashlar_copy_to_device(device, ptr, host, 32, streams[i]) == ASHLAR_OK);
        CHECK(ashlar_copy_to_host(device, host + 32, ptr + 16, 32, streams[i]) == ASHLAR_OK);
        wait_for(streams[(i + 1) % STREAMS]);
        CHECK(host[32] == i + 1 && host[63] == i + 1); /* page-locked: not yet */
        wait_for(streams[i]);
        CHECK(host[32] == i + 1 && host[47] == i + 1);
        CHECK(host[48] == 0xEE && host[63] == 0xEE);
        CHECK(ptr[31] == i + 1 && ptr[32] == 0xEE && ptr[63] == 0xEE);
    }
    ashlar_device_host_free(device, pinned);
    give_memory(device, ptr);
}

static unsigned char copied_args[3000];
static bool are_args_aligned;

static void note_args(void *args) {
    memcpy(copied_args, args, sizeof copied_args);
    are_args_aligned = (uintptr_t)args % _Alignof(max_align_t) == 0;
}

CASE_WITH(a_launch_takes_a_copy_of_its_arguments, set_up_device("mode=adversarial")) {
    unsigned char args[3000];
    for (size_t i = 0; i < sizeof args; i++) {
        args[i] = (unsigned char)(i * 13 + 1);
    }
    CHECK(ashlar_launch(device, streams[0], note_args, args, sizeof args) == ASHLAR_OK);
    memset(args, 0, sizeof args);
    wait_for(streams[0]);
    size_t wrong = 0;
    for (size_t i = 0; i < sizeof args; i++) {
        wrong += copied_args[i] != (unsigned char)(i * 13 + 1);
    }
    CHECK_ZU(wrong, 0);
    CHECK(are_args_aligned);
}

static int bare_runs;

static void run_bare(void *unused) {
    (void)unused;
    bare_runs++;
}

CASE_WITH(arguments_too_large_to_copy_are_refused, set_up_device("")) {
    bare_runs = 0;
    CHECK_FAILS(ashlar_launch(device, NULL, run_bare, "", SIZE_MAX), ASHLAR_EHOSTMEM,
                "a launch of 18446744073709551615 bytes of arguments");
    HOST_FAILS_AT(1, CHECK(ashlar_launch(device, NULL, run_bare, "", 1) == ASHLAR_EHOSTMEM));
    CHECK(bare_runs == 0);
}

CASE_WITH(page_locked_memory_is_usable_and_given_back, set_up_device("memory=16MiB")) {
    void *ptr = NULL;
    const ashlar_driver_counts before = counts_now();
    CHECK(ashlar_device_host_alloc(device, 5000, &ptr) == ASHLAR_OK);
    REQUIRE(ptr != NULL);
    memset(ptr, 1, 5000);
    CHECK_ZU(ashlar__soft_state.host_blocks.count, 1);
    CHECK(ashlar__soft_state.host_blocks.items[0]->bytes >= 5000);
    ashlar_device_host_free(device, ptr);
    CHECK_ZU(ashlar__soft_state.host_blocks.count, 0);
    ashlar_device_host_free(device, NULL);
    CHECK(counts_now().memory == before.memory + 2);
    CHECK_FAILS(ashlar_device_host_alloc(device, 0, &ptr), ASHLAR_EINVAL,
                "bytes: 0 bytes of page-locked memory");
    check_context_stack();
}

CASE_WITH(every_call_is_counted_by_its_purpose, set_up_device("memory=16MiB")) {
    unsigned char *ptr = take_memory(device, 512);
    void *byte = NULL;
    ashlar_stream stream;
    CHECK(ashlar_device_host_alloc(device, 1, &byte) == ASHLAR_OK);
    ashlar_driver_counts before = counts_now();
    CHECK(ashlar_stream_create(device, &stream) == ASHLAR_OK);
    ashlar_stream_destroy(device, stream);
    CHECK(counts_now().order == before.order + 2);
    CHECK(counts_now().context == before.context + 4);
    wait_for(NULL);
    CHECK(counts_now().wait == before.wait + 1);
    CHECK(ashlar_fill(device, ptr, 1, 1, NULL) == ASHLAR_OK);
    CHECK(ashlar_copy_to_host(device, byte, ptr, 1, NULL) == ASHLAR_OK);
    CHECK(ashlar_copy_to_device(device, ptr, byte, 1, NULL) == ASHLAR_OK); /* it asks, too */
    CHECK(ashlar_launch(device, NULL, run_bare, NULL, 0) == ASHLAR_OK);
    CHECK(counts_now().work == before.work + 5);
    CHECK(counts_now().query == before.query && counts_now().memory == before.memory);
    wait_for(NULL);
    ashlar_device_host_free(device, byte);
    give_memory(device, ptr);
}

/* ---- events ---- */

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

/* ---- failures ---- */

static unsigned char *target; /* device memory for the calls below */

static ashlar_status call_stream_create(void) {
    ashlar_stream stream;
    return ashlar_stream_create(device, &stream);
}
static ashlar_status call_synchronize(void) {
    return ashlar_stream_synchronize(device, NULL);
}
static ashlar_status call_to_device(void) {
    return ashlar_copy_to_device(device, target, "a", 1, NULL);
}
static ashlar_status call_to_host(void) {
    char byte;
    return ashlar_copy_to_host(device, &byte, target, 1, NULL);
}
static ashlar_status call_fill(void) {
    return ashlar_fill(device, target, 1, 1, NULL);
}
static ashlar_status call_launch(void) {
    return ashlar_launch(device, NULL, run_bare, "a", 1);
}
static ashlar_status call_host_alloc(void) {
    void *ptr;
    return ashlar_device_host_alloc(device, 1, &ptr);
}

static ashlar_event awaited;

static ashlar_status call_create(void) {
    ashlar_event event = NULL;
    const ashlar_status status = ashlar_event_create(device, &event);
    CHECK((event != NULL) == (status == ASHLAR_OK));
    ashlar_event_destroy(device, event);
    return status;
}
static ashlar_status call_record(void) {
    return ashlar_event_record(device, awaited, streams[0]);
}
static ashlar_status call_query(void) {
    bool done = false;
    const ashlar_status status = ashlar_event_query(device, awaited, &done);
    CHECK(done == (status == ASHLAR_OK));
    return status;
}
static ashlar_status call_event_synchronize(void) {
    return ashlar_event_synchronize(device, awaited);
}
static ashlar_status call_wait(void) {
    return ashlar_stream_wait(device, streams[0], awaited);
}

CASE_WITH(every_refusal_of_the_driver_is_reported_by_name, set_up_device("memory=16MiB")) {
    static const refusable_call calls[] = {
        {ASHLAR_DRIVER_FN_stream_create, call_stream_create, "cuStreamCreate on"},
        {ASHLAR_DRIVER_FN_stream_synchronize, call_synchronize, "cuStreamSynchronize on"},
        {ASHLAR_DRIVER_FN_memcpy_htod_async, call_to_device, "cuMemcpyHtoDAsync on"},
        {ASHLAR_DRIVER_FN_memcpy_dtoh_async, call_to_host, "cuMemcpyDtoHAsync on"},
        {ASHLAR_DRIVER_FN_memset_d8_async, call_fill, "cuMemsetD8Async on"},
        {ASHLAR_DRIVER_FN_launch_host_func, call_launch, "cuLaunchHostFunc on"},
        {ASHLAR_DRIVER_FN_mem_host_alloc, call_host_alloc, "cuMemHostAlloc on"},
        {ASHLAR_DRIVER_FN_event_create, call_create, "cuEventCreate on"},
        {ASHLAR_DRIVER_FN_event_record, call_record, "cuEventRecord on"},
        {ASHLAR_DRIVER_FN_event_query, call_query, "cuEventQuery on"},
        {ASHLAR_DRIVER_FN_event_synchronize, call_event_synchronize, "cuEventSynchronize on"},
        {ASHLAR_DRIVER_FN_stream_wait_event, call_wait, "cuStreamWaitEvent on"},
    };
    target = take_memory(device, 512);
    awaited = make_event();
    check_refusals(calls, sizeof calls / sizeof *calls);
    give_memory(device, target);
    ashlar_event_destroy(device, awaited);
}

RUN_CASES()
