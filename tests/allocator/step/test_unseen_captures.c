/*
 * test_unseen_captures.c - a capture that another thread has begun in global mode, without a word
 * to ashlar: no call of the allocator or the device may spoil it.
 */
#include "tests/allocator/core/streams_fixture.h"
#include "tests/allocator/device/planted_capture.h"

#include <ashlar/plan.h>

enum { BLOCKS = 6 };

/* More than there is, so that every rung is tried; work is queued on all blocks. */
static void run_out_of_memory(void) {
    unsigned char *blocks[BLOCKS];
    void *out = NULL;
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = take(BIG, streams[i % 3]);
        use(streams[i % 3], blocks[i], BIG, (unsigned char)i);
    }
    CHECK(ashlar_record_stream(allocator, blocks[0], streams[3]) == ASHLAR_OK);
    for (size_t i = 0; i < BLOCKS; i++) {
        give_on(blocks[i], streams[(i + 1) % 3]);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = take(BIG, streams[2]);
    }
    CHECK(ashlar_alloc(allocator, 2 * BIG, streams[1], &out) == ASHLAR_ENOMEM);
    for (size_t i = 0; i < BLOCKS; i++) {
        give(blocks[i]);
    }
}

static void run_steps(void) {
    for (int i = 0; i < 3; i++) {
        CHECK(ashlar_step_begin(allocator, streams[0], 7) == ASHLAR_OK);
        unsigned char *a = take(BIG, streams[0]), *b = take(900, streams[0]);
        give(a);
        give(b);
        CHECK(ashlar_step_end(allocator) == ASHLAR_OK);
    }
    CHECK(ashlar_plan_drop(allocator) == ASHLAR_OK);
}

static void manage(void) {
    CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
    CHECK(ashlar_allocator_reserve(allocator, 2 * BIG) == ASHLAR_OK);
    CHECK(ashlar_allocator_forget_stream(allocator, streams[3]) == ASHLAR_OK);
    CHECK(stats_now().driver_calls > 0);
}

CASE(no_request_spoils_a_capture_that_nobody_told_of) {
    planted other;
    for (int seed = 1; seed <= 8; seed++) {
        char line[96];
        (void)snprintf(line, sizeof line, "mode=adversarial,memory=%dMiB,seed=%d,waits=%s",
                       4 * BLOCKS + 4, seed, seed % 2 == 0 ? "on" : "off");
        REQUIRE(set_up_cached(line, 4 * MIB));
        plant(&other);
        run_out_of_memory();
        run_steps();
        manage();
        CHECK(dig_up(&other) == CU_SUCCESS);
        tear_down();
    }
}

/* Every call of device.h but those that name the legacy default stream, which CUDA refuses. */
static void call_the_device(void) {
    const ashlar_copy_span spans[] = {{NULL, NULL, 0}};
    ashlar_stream stream = NULL;
    ashlar_event event = NULL;
    bool is_done = false;
    void *pinned = NULL;
    unsigned char *block = take(BIG, streams[0]);
    CHECK(ashlar_device_host_alloc(device, MIB, &pinned) == ASHLAR_OK);
    CHECK(ashlar_stream_create(device, &stream) == ASHLAR_OK);
    CHECK(ashlar_event_create(device, &event) == ASHLAR_OK);
    CHECK(ashlar_copy_to_device(device, block, pinned, MIB, stream) == ASHLAR_OK);
    CHECK(ashlar__copy_batch(device, spans, 1, stream) == ASHLAR_OK);
    CHECK(ashlar_event_record(device, event, stream) == ASHLAR_OK);
    CHECK(ashlar_stream_wait(device, streams[0], event) == ASHLAR_OK);
    CHECK(ashlar_event_query(device, event, &is_done) == ASHLAR_OK);
    CHECK(ashlar_event_synchronize(device, event) == ASHLAR_OK);
    CHECK(ashlar_stream_synchronize(device, stream) == ASHLAR_OK);
    ashlar_event_destroy(device, event);
    ashlar_stream_destroy(device, stream);
    ashlar_device_host_free(device, pinned);
    give(block);
}

CASE_WITH(no_call_of_a_device_spoils_a_capture_that_nobody_told_of, set_up_streams("16MiB")) {
    planted other;
    plant(&other);
    call_the_device();
    CHECK(dig_up(&other) == CU_SUCCESS);
}

static unsigned int mode_of_this_thread(void) {
    unsigned int mode = CU_CAPTURE_RELAXED, back;
    CHECK(driver->table.thread_exchange_capture_mode(&mode) == CU_SUCCESS);
    back = mode;
    CHECK(driver->table.thread_exchange_capture_mode(&back) == CU_SUCCESS);
    return mode;
}

/* A driver that does not change the mode gets the calls all the same. */
CASE_WITH(no_call_fails_since_the_mode_cannot_be_changed, set_up_streams("16MiB")) {
    void *pinned = NULL;
    DRIVER_FAILS_AT(ASHLAR_DRIVER_FN_thread_exchange_capture_mode, 1, CU_UNKNOWN,
                    CHECK(ashlar_device_host_alloc(device, MIB, &pinned) == ASHLAR_OK));
    CHECK(mode_of_this_thread() == CU_CAPTURE_GLOBAL);
    ashlar_device_host_free(device, pinned);
}

/* That the cases above could fail. */
CASE_WITH(one_unsafe_call_would_spoil_it, set_up_streams("16MiB," STRICT_NOT_HERE)) {
    planted other;
    cu_event event = NULL;
    CHECK(driver->table.ctx_push_current(device->context) == CU_SUCCESS);
    CHECK(driver->table.event_create(&event, CU_EVENT_NO_TIMING) == CU_SUCCESS);
    plant(&other);
    CHECK(driver->table.event_query(event) == CU_STREAM_CAPTURE_UNSUPPORTED);
    CHECK(dig_up(&other) == CU_STREAM_CAPTURE_INVALIDATED);
    CHECK(driver->table.event_destroy(event) == CU_SUCCESS);
    CHECK(driver->table.ctx_pop_current(NULL) == CU_SUCCESS);
}

RUN_CASES()
