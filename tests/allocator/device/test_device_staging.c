/*
 * test_device_staging.c - copies from pageable host memory, which a device may read as late as it
 * runs them: their bytes have been read on return all the same.
 */
#include "tests/allocator/device/device_calls.h"

#include "allocator/device/device_impl.h"
#include "tests/thread.h"

enum { BUFFERS = 8, BUFFER_BYTES = 64 << 10, ROOM = 1 << 20 };

static unsigned char *room; /* on the device */

static void close_room(void) {
    check_forget(close_room);
    CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
    give_memory(device, room);
    tear_down_device();
}

static bool set_up_room(const char *spec) {
    if (!set_up_device(spec)) {
        return false;
    }
    room = take_memory(device, ROOM);
    return check_at_end(close_room);
}

/* Copy `bytes` bytes of that value from the heap, which is gone on return. */
static ashlar_status copy_heap(size_t bytes, unsigned char value, ashlar_stream stream) {
    unsigned char *from = malloc(bytes);
    if (from == NULL) {
        return ASHLAR_EHOSTMEM;
    }
    memset(from, value, bytes);
    const ashlar_status status = ashlar_copy_to_device(device, room, from, bytes, stream);
    memset(from, ~value, bytes);
    free(from);
    return status;
}

static void check_room(size_t bytes, unsigned char value) {
    CHECK(room[0] == value && room[bytes / 2] == value && room[bytes - 1] == value);
}

CASE(pageable_bytes_have_been_read_on_return) {
    static const size_t sizes[] = {1, 64, BUFFER_BYTES, BUFFER_BYTES + 1, ROOM};
    for (int seed = 0; seed < 4; seed++) {
        REQUIRE(set_up_room(drawn_order(seed % 2 == 0 ? "memory=64MiB" : "waits=on", seed)));
        for (unsigned char i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            CHECK(copy_heap(sizes[i], 10 + i, streams[0]) == ASHLAR_OK);
            wait_for(streams[0]);
            check_room(sizes[i], 10 + i);
        }
        close_room();
    }
}

CASE_WITH(small_copies_do_not_wait_and_take_memory_once, set_up_room("mode=adversarial,seed=1")) {
    const size_t blocks = CALLS(mem_host_alloc), events = CALLS(event_create);
    for (unsigned char round = 0; round < 20; round++) {
        const uint64_t waits = counts_now().wait;
        for (unsigned char i = 0; i < BUFFERS; i++) {
            CHECK(copy_heap(BUFFER_BYTES, round + i, streams[0]) == ASHLAR_OK);
        }
        CHECK(counts_now().wait == waits);
        wait_for(streams[0]);
        check_room(BUFFER_BYTES, round + BUFFERS - 1);
    }
    CHECK_ZU(CALLS(mem_host_alloc) - blocks, 1);
    CHECK_ZU(CALLS(event_create) - events, BUFFERS);
}

CASE_WITH(others_wait_for_their_stream, set_up_room("mode=adversarial,seed=1")) {
    const uint64_t waits = counts_now().wait;
    CHECK(copy_heap(BUFFER_BYTES + 1, 1, streams[0]) == ASHLAR_OK);
    CHECK(counts_now().wait == waits + 1);
    check_room(BUFFER_BYTES + 1, 1);
    for (int i = 0; i < 10 * BUFFERS; i++) {
        CHECK(copy_heap(1, 2, streams[0]) == ASHLAR_OK);
    }
    CHECK(counts_now().wait > waits + 2); /* behind eight that have not run */
}

/* ---- failures ---- */

/* Any small copy is right, too, where the n-th call of that function fails. */
static void check_without(ashlar_driver_fn fn, uint64_t n) {
    REQUIRE(set_up_room("mode=adversarial,seed=4"));
    const uint64_t waits = counts_now().wait;
    DRIVER_FAILS_AT(fn, n, CU_UNKNOWN, CHECK(copy_heap(64, 6, streams[0]) == ASHLAR_OK));
    CHECK(counts_now().wait > waits);
    check_room(64, 6);
    CHECK(copy_heap(64, 7, streams[0]) == ASHLAR_OK);
    wait_for(streams[0]);
    check_room(64, 7);
    close_room();
}

CASE(without_buffers_a_copy_waits) {
    check_without(ASHLAR_DRIVER_FN_mem_host_alloc, 1);
    for (uint64_t n = 1; n <= BUFFERS; n++) {
        check_without(ASHLAR_DRIVER_FN_event_create, n);
    }
    check_without(ASHLAR_DRIVER_FN_event_query, 1);
    check_without(ASHLAR_DRIVER_FN_event_record, 1);
    REQUIRE(set_up_room(""));
    HOST_FAILS_AT(1, CHECK(copy_heap(64, 8, streams[0]) == ASHLAR_OK));
    check_room(64, 8);
}

static ashlar_status call_small(void) {
    return copy_heap(64, 1, streams[0]);
}
static ashlar_status call_large(void) {
    return copy_heap(BUFFER_BYTES + 1, 1, streams[0]);
}

CASE_WITH(every_refusal_is_reported_by_name, set_up_room("")) {
    static const refusable_call calls[] = {
        {ASHLAR_DRIVER_FN_stream_is_capturing, call_small, "cuStreamIsCapturing on"},
        {ASHLAR_DRIVER_FN_memcpy_htod_async, call_small, "cuMemcpyHtoDAsync on"},
        {ASHLAR_DRIVER_FN_memcpy_htod_async, call_large, "cuMemcpyHtoDAsync on"},
        {ASHLAR_DRIVER_FN_stream_synchronize, call_large, "cuStreamSynchronize on"},
    };
    check_refusals(calls, sizeof calls / sizeof *calls);
    CHECK_FAILS(ashlar_copy_to_device(device, room, NULL, 8, streams[0]), ASHLAR_EINVAL, "src");
    for (int i = 0; i < 2 * BUFFERS; i++) { /* no buffer is lost */
        const uint64_t waits = counts_now().wait;
        CHECK(call_small() == ASHLAR_OK && counts_now().wait == waits);
        wait_for(streams[0]);
    }
}

/* A launch would read it long after this function has returned. */
CASE_WITH(a_captured_copy_of_pageable_memory_is_refused, set_up_room("mode=adversarial,seed=5")) {
    int seen = 0;
    unsigned char from[8] = {0};
    ashlar_graph *graph = NULL;
    CHECK(ashlar_graph_begin(device, streams[0], &graph) == ASHLAR_OK);
    CHECK_FAILS(ashlar_copy_to_device(device, room, from, sizeof from, streams[0]), ASHLAR_EINVAL,
                "page-locked");
    CHECK(copy_heap(64, 9, streams[1]) == ASHLAR_OK); /* a stream that is not captured */
    queue_note(streams[0], &seen, 4);
    CHECK(ashlar_graph_end(graph) == ASHLAR_OK); /* it was not spoiled */
    CHECK(ashlar_graph_launch(graph) == ASHLAR_OK);
    wait_for(streams[0]);
    wait_for(streams[1]);
    CHECK(seen == 4);
    check_room(64, 9);
    ashlar_graph_destroy(graph);
}

/* ---- ends and threads ---- */

enum { THREADS = 4, COPIES = 300, SHARE = 4096 };

typedef struct copier {
    int idx;
    int bad_count;
} copier;

static void *copy_often(void *user) {
    copier *me = user;
    unsigned char *to = room + (size_t)me->idx * SHARE, back[SHARE];
    for (int i = 0; i < COPIES; i++) {
        unsigned char from[SHARE];
        memset(from, i, sizeof from);
        me->bad_count +=
            ashlar_copy_to_device(device, to, from, SHARE, streams[me->idx]) != ASHLAR_OK;
        memset(from, 255, sizeof from);
        if (i % 5 == 0) {
            me->bad_count +=
                ashlar_copy_to_host(device, back, to, SHARE, streams[me->idx]) != ASHLAR_OK ||
                ashlar_stream_synchronize(device, streams[me->idx]) != ASHLAR_OK ||
                back[0] != (unsigned char)i || back[SHARE - 1] != (unsigned char)i;
        }
    }
    return NULL;
}

CASE(threads_share_the_buffers) {
    static const char *const specs[] = {"mode=overlap", "mode=adversarial,seed=7"};
    for (int i = 0; i < 2; i++) {
        copier copiers[THREADS];
        REQUIRE(set_up_room(specs[i]));
        for (int k = 0; k < THREADS; k++) {
            copiers[k] = (copier){.idx = k};
        }
        run_threads(THREADS, copy_often, copiers, sizeof *copiers);
        for (int k = 0; k < THREADS; k++) {
            CHECK(copiers[k].bad_count == 0);
        }
        close_room();
    }
}

RUN_CASES()
