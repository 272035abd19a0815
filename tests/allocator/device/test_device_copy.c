/*
 * test_device_copy.c - copies inside a device, between devices, and many in one call.
 */
#include "tests/allocator/device/device_fixture.h"

#include "allocator/soft/soft_state.h"

enum { BYTES = 64, SPANS = 5 };

static unsigned char *src, *dst; /* of the case */

static void tear_down_buffers(void) {
    give_memory(device, src);
    give_memory(device, dst);
    tear_down_device();
}

/* A device with two buffers of which src holds 0, 1, 2 .. and dst 0xEE. */
static bool set_up_buffers(const char *spec) {
    if (!set_up_device(spec)) {
        return false;
    }
    unsigned char values[BYTES];
    for (int i = 0; i < BYTES; i++) {
        values[i] = (unsigned char)i;
    }
    src = take_memory(device, BYTES);
    dst = take_memory(device, BYTES);
    return ashlar_copy_to_device(device, src, values, BYTES, streams[0]) == ASHLAR_OK &&
           ashlar_fill(device, dst, 0xEE, BYTES, streams[0]) == ASHLAR_OK &&
           ashlar_stream_synchronize(device, streams[0]) == ASHLAR_OK &&
           check_at_end(tear_down_buffers);
}

CASE(a_peer_copy_needs_no_access_and_follows_an_event) {
    REQUIRE(set_up_buffers("devices=2,memory=16MiB,mode=adversarial,peers=off"));
    ashlar_device *other = NULL;
    ashlar_stream stream = NULL;
    ashlar_event event = NULL;
    REQUIRE(ashlar_device_open("soft:1", &other) == ASHLAR_OK);
    REQUIRE(ashlar_stream_create(other, &stream) == ASHLAR_OK);
    REQUIRE(ashlar_event_create(device, &event) == ASHLAR_OK);
    unsigned char *ptr = take_memory(other, BYTES);
    CHECK(ashlar_copy(other, ptr, src, BYTES, stream) == ASHLAR_EDRIVER); /* out of reach */
    CHECK(ashlar_fill(device, src, 33, 2, streams[2]) == ASHLAR_OK);
    CHECK(ashlar_event_record(device, event, streams[2]) == ASHLAR_OK);
    CHECK(ashlar_stream_wait(other, stream, event) == ASHLAR_OK);
    CHECK(ashlar_copy_peer(other, ptr, device, src, BYTES, stream) == ASHLAR_OK);
    unsigned char back[BYTES];
    CHECK(ashlar_copy_to_host(other, back, ptr, BYTES, stream) == ASHLAR_OK);
    CHECK(ashlar_stream_synchronize(other, stream) == ASHLAR_OK);
    CHECK(back[0] == 33 && back[1] == 33 && back[2] == 2 && back[BYTES - 1] == BYTES - 1);
    CHECK(ashlar_copy_peer(device, dst, device, src + 1, 2, streams[2]) == ASHLAR_OK);
    wait_for(streams[2]);
    CHECK(dst[0] == 33 && dst[1] == 2 && dst[2] == 0xEE);
    CHECK(driver->table.ctx_pop_current(NULL) == CU_INVALID_CONTEXT);
    give_memory(other, ptr);
    ashlar_event_destroy(device, event);
    ashlar_stream_destroy(other, stream);
    ashlar_device_close(other);
}

CASE_WITH(devices_of_two_kinds_are_no_peers, set_up_buffers("memory=16MiB")) {
    ashlar_driver cuda = {.name = "cuda"};
    ashlar_device other = {.driver = &cuda, .context = device->context};
    CHECK_FAILS(ashlar_copy_peer(device, dst, &other, src, 1, NULL), ASHLAR_EINVAL,
                "src_device: a soft device cannot copy from a cuda device");
    CHECK(ashlar_copy_peer(&other, dst, device, src, 1, NULL) == ASHLAR_EINVAL);
    CHECK(dst[0] == 0xEE);
}

/* The bytes 0 .. BYTES - 1 in reverse order of spans, with empty ones between. */
static void fill_spans(ashlar_copy_span spans[SPANS]) {
    static const size_t at[SPANS] = {0, 10, 10, 30, 63}, bytes[SPANS] = {10, 0, 20, 33, 1};
    for (int i = 0; i < SPANS; i++) {
        spans[i] = (ashlar_copy_span){dst + at[i], src + at[i], bytes[i]};
    }
}

/* How one batch of SPANS spans is queued. */
static ashlar_status copy_spans(ashlar_stream stream) {
    ashlar_copy_span spans[SPANS];
    fill_spans(spans);
    const ashlar_status status = ashlar__copy_batch(device, spans, SPANS, stream);
    memset(spans, 0xFF, sizeof spans); /* the call keeps nothing of them */
    return status;
}

static void check_copied(ashlar_stream stream) {
    wait_for(stream);
    CHECK(memcmp(src, dst, BYTES) == 0 && dst[1] == 1);
}

CASE_WITH(a_batch_is_one_call_for_each_span_with_bytes,
          set_up_buffers("memory=16MiB,mode=adversarial")) {
    const size_t singles = CALLS(memcpy_dtod_async);
    CHECK(copy_spans(streams[0]) == ASHLAR_OK);
    CHECK(dst[0] == 0xEE);
    CHECK_ZU(CALLS(memcpy_dtod_async), singles + SPANS - 1); /* one is empty */
    check_copied(streams[0]);
}

CASE_WITH(a_captured_batch_is_captured_copy_by_copy, set_up_buffers("memory=16MiB")) {
    cu_graph graph = NULL;
    cu_graph_exec exec = NULL;
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    REQUIRE(driver->table.stream_begin_capture(streams[0], CU_CAPTURE_RELAXED) == CU_SUCCESS);
    CHECK(copy_spans(streams[0]) == ASHLAR_OK);
    REQUIRE(driver->table.stream_end_capture(streams[0], &graph) == CU_SUCCESS);
    REQUIRE(driver->table.graph_instantiate(&exec, graph, 0) == CU_SUCCESS);
    CHECK(dst[0] == 0xEE);
    CHECK(driver->table.graph_launch(exec, streams[0]) == CU_SUCCESS);
    check_copied(streams[0]);
    CHECK(driver->table.graph_exec_destroy(exec) == CU_SUCCESS);
    CHECK(driver->table.graph_destroy(graph) == CU_SUCCESS);
    ashlar__device_leave(device);
}

CASE_WITH(nothing_to_copy_is_no_call, set_up_buffers("memory=16MiB")) {
    const ashlar_copy_span empty[2] = {{dst, src, 0}, {NULL, NULL, 0}};
    const size_t before = CALLS(memcpy_dtod_async) + CALLS(memcpy_peer_async);
    CHECK(ashlar_copy(device, dst, src, 0, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_copy_peer(device, dst, device, src, 0, streams[0]) == ASHLAR_OK);
    CHECK(ashlar__copy_batch(device, empty, 2, streams[0]) == ASHLAR_OK);
    CHECK(ashlar__copy_batch(device, NULL, 0, streams[0]) == ASHLAR_OK);
    CHECK_ZU(CALLS(memcpy_dtod_async) + CALLS(memcpy_peer_async), before);
}

/* ---- failures ---- */

static ashlar_status call_copy(void) {
    return ashlar_copy(device, dst, src, 1, streams[0]);
}
static ashlar_status call_peer(void) {
    return ashlar_copy_peer(device, dst, device, src, 1, streams[0]);
}
static ashlar_status call_batch(void) {
    return copy_spans(streams[0]);
}

CASE(every_refusal_of_the_driver_is_reported_by_name) {
    static const struct {
        ashlar_driver_fn fn;
        ashlar_status (*call)(void);
        uint64_t n;
        const char *name;
    } rows[] = {
        {ASHLAR_DRIVER_FN_memcpy_dtod_async, call_copy, 1, "cuMemcpyDtoDAsync on"},
        {ASHLAR_DRIVER_FN_memcpy_peer_async, call_peer, 1, "cuMemcpyPeerAsync on"},
        {ASHLAR_DRIVER_FN_memcpy_dtod_async, call_batch, 1, "cuMemcpyDtoDAsync on"},
        {ASHLAR_DRIVER_FN_memcpy_dtod_async, call_batch, SPANS - 1, "cuMemcpyDtoDAsync on"},
    };
    REQUIRE(set_up_buffers("memory=16MiB"));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ashlar__driver_fail_at(driver, (int)rows[i].fn, rows[i].n, CU_UNKNOWN);
        CHECK_FAILS(rows[i].call(), ASHLAR_EDRIVER, rows[i].name);
        ashlar__driver_fail_at(driver, (int)rows[i].fn, rows[i].n, CU_OUT_OF_MEMORY);
        CHECK(rows[i].call() == ASHLAR_ENOMEM);
        CHECK(driver->table.ctx_pop_current(NULL) == CU_INVALID_CONTEXT);
        ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_ctx_push_current, 1, CU_INVALID_CONTEXT);
        CHECK_FAILS(rows[i].call(), ASHLAR_EDRIVER, "cuCtxPushCurrent on the soft device");
        CHECK(driver->table.ctx_pop_current(NULL) == CU_INVALID_CONTEXT);
        CHECK(rows[i].call() == ASHLAR_OK);
    }
}

RUN_CASES()
