/*
 * test_soft_time.c - the software device's virtual clock: what calls and work cost, and who waits.
 */
#include "tests/allocator/soft/soft_fixture.h"

#include "tests/thread.h"

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define FREE "time=on,costs=off,memory=64MiB" /* only what a case says takes time */

static uint64_t tail_of(cu_stream stream) {
    uint64_t ns = UINT64_MAX;
    CHECK(ashlar__soft_stream_ns(stream, &ns) == ASHLAR_OK);
    return ns;
}

static soft_figures figures(void) {
    soft_figures got = {0};
    CHECK(ashlar__soft_get_figures(0, &got) == ASHLAR_OK);
    return got;
}

static void work(cu_stream stream, uint64_t ns) {
    CHECK(ashlar__soft_work(stream, ns) == ASHLAR_OK);
}

CASE_WITH(work_of_a_stream_adds_up_and_streams_overlap, set_up_streams(FREE)) {
    work(s, 3 * MS);
    work(t, 2 * MS);
    work(s, 4 * MS);
    CHECK_ZU(tail_of(s), 7 * MS);
    CHECK_ZU(tail_of(t), 2 * MS);
    CHECK_ZU(figures().end_ns, 7 * MS);
    CHECK_ZU(ashlar__soft_host_ns(), 0);
}

CASE_WITH(a_wait_for_a_later_event_moves_the_tail_and_is_counted, set_up_streams(FREE)) {
    work(s, 8 * MS);
    const cu_event event = record(s);
    work(s, 8 * MS); /* after the record: nobody waits for it */
    work(t, 3 * MS);
    CHECK(soft->stream_wait_event(t, event, 0) == CU_SUCCESS);
    CHECK_ZU(tail_of(t), 8 * MS);
    work(t, 1 * MS);
    CHECK_ZU(tail_of(t), 9 * MS);
    CHECK(soft->stream_wait_event(t, event, 0) == CU_SUCCESS); /* past by now */
    CHECK_ZU(tail_of(t), 9 * MS);
    CHECK_ZU(figures().wait_count, 1);
    CHECK_ZU(figures().wait_ns, 5 * MS);
}

CASE_WITH(host_waits_move_the_host, set_up_streams(FREE)) {
    work(s, 2 * MS);
    const cu_event event = record(s);
    work(s, 3 * MS);
    work(t, 9 * MS);
    CHECK(soft->event_synchronize(event) == CU_SUCCESS);
    CHECK_ZU(ashlar__soft_host_ns(), 2 * MS);
    CHECK(soft->stream_synchronize(s) == CU_SUCCESS);
    CHECK_ZU(ashlar__soft_host_ns(), 5 * MS);
    CHECK(soft->stream_synchronize(s) == CU_SUCCESS);
    CHECK(soft->ctx_synchronize() == CU_SUCCESS);
    CHECK_ZU(ashlar__soft_host_ns(), 9 * MS);
    CHECK_ZU(figures().host_wait_count, 3);
    CHECK_ZU(figures().host_wait_ns, 9 * MS);
}

CASE_WITH(queries_go_by_virtual_time_and_polling_ends, set_up_streams(FREE)) {
    work(s, 10 * US);
    const cu_event event = record(s);
    int polls = 0;
    while (soft->event_query(event) == CU_NOT_READY && polls < 100) {
        polls++;
    }
    CHECK(polls == 9); /* each costs 1 us, and the tenth ends when the work does */
    CHECK_ZU(ashlar__soft_host_ns(), 10 * US);
    work(s, 10 * US);
    for (polls = 0; soft->stream_query(s) == CU_NOT_READY && polls < 100; polls++) {
    }
    CHECK(polls == 9);
    CHECK_ZU(ashlar__soft_host_ns(), 20 * US);
    CHECK_ZU(figures().host_wait_count, 0);
}

CASE_WITH(the_legacy_stream_is_ordered_with_blocking_streams, set_up(FREE)) {
    const cu_stream a = new_stream(CU_STREAM_BLOCKING), b = new_stream(CU_STREAM_BLOCKING);
    const cu_stream free = new_stream(CU_STREAM_UNORDERED);
    work(a, 2 * MS);
    work(b, 3 * MS);
    work(free, 50 * MS);
    work(NULL, 1 * MS);
    CHECK_ZU(tail_of(NULL), 4 * MS);
    work(a, 1 * MS);
    CHECK_ZU(tail_of(a), 5 * MS);
    CHECK_ZU(tail_of(b), 3 * MS);        /* nothing was queued there since */
    const cu_event event = record(NULL); /* after a and b, not after free */
    CHECK(soft->event_synchronize(event) == CU_SUCCESS);
    CHECK_ZU(ashlar__soft_host_ns(), 5 * MS);
    CHECK_ZU(figures().wait_count, 0);
}

CASE_WITH(calls_cost_the_host_time, set_up("time=on")) {
    const uint64_t begin_ns = ashlar__soft_host_ns();
    (void)alloc(1);
    CHECK_ZU(ashlar__soft_host_ns() - begin_ns, 100 * US);
}

static void check_takes(cu_result result, uint64_t ns) {
    CHECK(result == CU_SUCCESS);
    CHECK_ZU(tail_of(s) - ashlar__soft_host_ns(), ns);
    CHECK(soft->stream_synchronize(s) == CU_SUCCESS);
}

/* As soft_time.c estimates them; so many bytes that the nearest other rates take other times. */
CASE_WITH(work_takes_the_time_of_its_path,
          set_up_streams("time=on,devices=2,memory=256MiB,touch=off")) {
    enum { BYTES = 48000000 };
    const cu_ptr from = alloc(BYTES), to = alloc(BYTES);
    void *host = alloc_host(BYTES);
    check_takes(soft->memcpy_htod_async(to, host, BYTES, s), 2 * US + BYTES / 25 * US / 1000);
    check_takes(soft->memcpy_dtoh_async(host, to, BYTES, s), 2 * US + BYTES / 25 * US / 1000);
    check_takes(soft->memcpy_dtod_async(to, from, BYTES, s), 2 * US + BYTES / 600 * US / 1000);
    check_takes(soft->memset_d8_async(to, 0, BYTES, s), 2 * US + BYTES / 1200 * US / 1000);
    check_takes(soft->launch_host_func(s, note, "a"), 10 * US);
    cu_context here, there;
    CHECK(soft->primary_ctx_retain(&here, 0) == CU_SUCCESS);
    CHECK(soft->primary_ctx_retain(&there, 1) == CU_SUCCESS && make_current(1));
    const cu_ptr far = alloc(BYTES);
    CHECK(make_current(0));
    check_takes(soft->memcpy_peer_async(far, there, to, here, BYTES, s),
                2 * US + BYTES / 100 * US / 1000);
}

CASE_WITH(launches_and_kernels_take_the_time_that_is_given,
          set_up_streams("time=on,launch=7000,kernel=20000")) {
    const uint64_t begin_ns = ashlar__soft_host_ns();
    uint64_t now_ns = 0;
    check_takes(soft->launch_host_func(s, note, "a"), 20 * US);
    CHECK(ashlar__soft_virtual_ns(&now_ns));
    CHECK_ZU(now_ns - begin_ns, (7 + 20) * US);
}

CASE_WITH(without_time_there_is_no_clock, set_up_streams("memory=64MiB")) {
    uint64_t now_ns = 1;
    CHECK(!ashlar__soft_virtual_ns(&now_ns) && now_ns == 0);
}

static void to_host(void *host, cu_ptr from, size_t bytes, cu_stream stream) {
    CHECK(soft->memcpy_dtoh_async(host, from, bytes, stream) == CU_SUCCESS);
}

static void to_device(cu_ptr to, const void *host, size_t bytes, cu_stream stream) {
    CHECK(soft->memcpy_htod_async(to, host, bytes, stream) == CU_SUCCESS);
}

/* 1 MB takes 1 ms. */
CASE_WITH(copies_of_a_direction_are_one_after_another_on_all_streams,
          set_up_streams("time=on,costs=off,copy_rate=1000,devices=2,memory=64MiB,touch=off")) {
    enum { BYTES = 1000000 };
    const cu_ptr here = alloc(3 * BYTES);
    char *host = alloc_host(3 * BYTES);
    to_host(host, here, BYTES, s);
    to_host(host, here, 2 * BYTES, t); /* t is idle, the engine is not */
    CHECK_ZU(tail_of(s), 1 * MS);
    CHECK_ZU(tail_of(t), 3 * MS);
    to_device(here, host, BYTES, s); /* the other engine */
    CHECK_ZU(tail_of(s), 2 * MS);
    work(s, 5 * MS); /* beside both */
    CHECK_ZU(tail_of(s), 7 * MS);
    to_device(here, host, BYTES, t); /* its stream is later than the engine */
    CHECK_ZU(tail_of(t), 4 * MS);
    CHECK(soft->memcpy_dtod_async(here, here + BYTES, BYTES, t) == CU_SUCCESS); /* by no engine */
    CHECK_ZU(tail_of(t), 4 * MS);
    CHECK(make_current(1)); /* another device has its own */
    const cu_stream far = new_stream(CU_STREAM_UNORDERED);
    to_device(alloc(BYTES), host, BYTES, far);
    CHECK_ZU(tail_of(far), 1 * MS);
}

/* A copy that waits for work keeps the later ones of its direction waiting, as on a device. */
CASE_WITH(a_copy_that_waits_holds_its_engine,
          set_up_streams("time=on,costs=off,copy_rate=1000,memory=64MiB,touch=off")) {
    enum { BYTES = 1000000 };
    const cu_ptr here = alloc(BYTES);
    void *host = alloc_host(BYTES);
    work(s, 5 * MS);
    to_host(host, here, BYTES, s);
    to_host(host, here, BYTES, t);
    CHECK_ZU(tail_of(s), 6 * MS);
    CHECK_ZU(tail_of(t), 7 * MS);
}

CASE_WITH(copies_take_the_rate_that_is_said_and_their_start,
          set_up_streams("time=on,copy_rate=50000,memory=64MiB,touch=off")) {
    enum { BYTES = 48000000 };
    const cu_ptr here = alloc(BYTES);
    void *host = alloc_host(BYTES);
    check_takes(soft->memcpy_htod_async(here, host, BYTES, s), 2 * US + BYTES / 50 * US / 1000);
}

RUN_CASES()
