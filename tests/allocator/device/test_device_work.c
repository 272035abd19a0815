/*
 * test_device_work.c - streams, copies, fills, launches and page-locked memory of a device.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

#include "tests/allocator/device/device_calls.h"

CASE_WITH(the_context_before_is_current_again_after_a_call, set_up_device("devices=2")) {
    ashlar_device *other = NULL;
    cu_context context = NULL;
    REQUIRE(ashlar_device_open("soft:1", &other) == ASHLAR_OK);
    CHECK(ashlar__device_enter(other) == ASHLAR_OK);
    wait_for(streams[0]);
    CHECK(driver->table.ctx_pop_current(&context) == CU_SUCCESS);
    CHECK(context == other->context);
    check_context_stack();
    ashlar_device_close(other);
}

CASE(a_stream_keeps_its_order_and_that_of_the_default_stream) {
    for (int seed = 1; seed <= 16; seed++) {
        REQUIRE(set_up_device(drawn_order("memory=16MiB", seed)));
        int seen = 0, other = 0;
        queue_note(streams[0], &seen, 1);
        queue_note(streams[1], &other, 9);
        queue_note(streams[0], &seen, 2);
        CHECK(seen == 0);
        wait_for(streams[0]);
        CHECK(seen == 12 && other == 0);
        queue_note(streams[0], &seen, 3);
        queue_note(NULL, &seen, 4);
        wait_for(NULL);
        CHECK(seen == 1234 && other == 9);
        tear_down_device();
    }
}

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

CASE_WITH(copies_and_fills_carry_the_bytes, set_up_device("memory=16MiB")) {
    unsigned char out[1000], in[1000] = {0};
    unsigned char *ptr = take_memory(device, 1000);
    for (size_t i = 0; i < sizeof out; i++) {
        out[i] = (unsigned char)(i * 7 + 3);
    }
    CHECK(ashlar_copy_to_device(device, ptr, out, 1000, streams[0]) == ASHLAR_OK);
    CHECK(ashlar_fill(device, ptr + 10, 0xAB, 20, streams[0]) == ASHLAR_OK);
    memset(out + 10, 0xAB, 20);
    CHECK(ashlar_copy_to_host(device, in, ptr, 1000, streams[0]) == ASHLAR_OK);
    CHECK(memcmp(in, out, 1000) == 0);
    give_memory(device, ptr);
    check_context_stack();
}

CASE_WITH(zero_bytes_are_no_call, set_up_device("")) {
    const ashlar_driver_counts before = counts_now();
    CHECK(ashlar_copy_to_device(device, NULL, NULL, 0, NULL) == ASHLAR_OK);
    CHECK(ashlar_copy_to_host(device, NULL, NULL, 0, NULL) == ASHLAR_OK);
    CHECK(ashlar_fill(device, NULL, 1, 0, NULL) == ASHLAR_OK);
    const ashlar_driver_counts after = counts_now();
    CHECK(memcmp(&before, &after, sizeof before) == 0);
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

static unsigned char copied_byte;

static void note_byte(void *args) {
    copied_byte = *(const unsigned char *)args;
}

CASE_WITH(one_byte_of_arguments_is_copied, set_up_device("mode=adversarial")) {
    unsigned char byte = 77;
    CHECK(ashlar_launch(device, streams[0], note_byte, &byte, 1) == ASHLAR_OK);
    byte = 0;
    wait_for(streams[0]);
    CHECK(copied_byte == 77);
}

static int bare_runs;

static void run_bare(void *unused) {
    (void)unused;
    bare_runs++;
}

CASE_WITH(a_launch_without_arguments_runs, set_up_device("")) {
    CHECK(ashlar_launch(device, NULL, run_bare, NULL, 0) == ASHLAR_OK);
    CHECK(bare_runs == 1);
}

CASE_WITH(arguments_too_large_to_copy_are_refused, set_up_device("")) {
    bare_runs = 0;
    CHECK_FAILS(ashlar_launch(device, NULL, run_bare, "", SIZE_MAX), ASHLAR_EHOSTMEM,
                "a launch of 18446744073709551615 bytes of arguments");
    HOST_FAILS_AT(1, CHECK(ashlar_launch(device, NULL, run_bare, "", 1) == ASHLAR_EHOSTMEM));
    CHECK(bare_runs == 0);
}

static cu_result host_alloc_plain(void **ptr, size_t bytes, unsigned int flags) {
    CHECK(flags == 0);
    return ashlar__soft_mem_host_alloc(ptr, bytes, flags);
}

CASE_WITH(page_locked_memory_has_no_special_flags, set_up_device("")) {
    void *ptr = NULL;
    const ashlar_driver_table table = driver->table;
    driver->table.mem_host_alloc = host_alloc_plain;
    CHECK(ashlar_device_host_alloc(device, 1, &ptr) == ASHLAR_OK);
    driver->table = table;
    ashlar_device_host_free(device, ptr);
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

CASE_WITH(every_refusal_of_the_driver_is_reported_by_name, set_up_device("memory=16MiB")) {
    static const refusable_call calls[] = {
        {ASHLAR_DRIVER_FN_stream_create, call_stream_create, "cuStreamCreate on"},
        {ASHLAR_DRIVER_FN_stream_synchronize, call_synchronize, "cuStreamSynchronize on"},
        {ASHLAR_DRIVER_FN_memcpy_htod_async, call_to_device, "cuMemcpyHtoDAsync on"},
        {ASHLAR_DRIVER_FN_memcpy_dtoh_async, call_to_host, "cuMemcpyDtoHAsync on"},
        {ASHLAR_DRIVER_FN_memset_d8_async, call_fill, "cuMemsetD8Async on"},
        {ASHLAR_DRIVER_FN_launch_host_func, call_launch, "cuLaunchHostFunc on"},
        {ASHLAR_DRIVER_FN_mem_host_alloc, call_host_alloc, "cuMemHostAlloc on"},
    };
    target = take_memory(device, 512);
    check_refusals(calls, sizeof calls / sizeof *calls);
    give_memory(device, target);
}

RUN_CASES()
