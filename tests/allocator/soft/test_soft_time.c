/*
 * test_soft_time.c - the software device's virtual clock: what calls and work cost, and who waits.
 */
#include "tests/allocator/soft/soft_fixture.h"

#include <unistd.h>

#include "allocator/soft/soft.h"
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

/* ---- traces ---- */

static char trace[32];

static const char *new_trace(void) {
    (void)snprintf(trace, sizeof trace, "/tmp/ashlar-trace-XXXXXX");
    const int fd = mkstemp(trace);
    CHECK(fd >= 0 && close(fd) == 0);
    return trace;
}

static bool set_up_trace(void) {
    char spec[128];
    (void)snprintf(spec, sizeof spec,
                   "time=on,costs=off,copy_rate=1000,memory=64MiB,touch=off,trace=%s", new_trace());
    return set_up_streams(spec);
}

/* The file, without its end. */
static const char *read_trace(void) {
    static char text[4096];
    FILE *file = fopen(trace, "r");
    const size_t bytes = file != NULL ? fread(text, 1, sizeof text - 1, file) : 0;
    CHECK(file != NULL && fclose(file) == 0);
    CHECK(bytes > 2 && memcmp(text + bytes - 2, "\n]", 2) == 0); /* whole at any time */
    text[bytes > 2 ? bytes - 2 : 0] = '\0';
    return text;
}

typedef struct event {
    const char *category, *name;
    cu_stream stream;
    const char *ts, *dur;
    size_t bytes;
} event;

static void check_traced(const event *events, size_t count) {
    char want[4096] = "";
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        const event *e = &events[i];
        unsigned long long id = 0;
        CHECK(soft->stream_get_id(e->stream, &id) == CU_SUCCESS);
        at += (size_t)snprintf(want + at, sizeof want - at,
                               "%s\n{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":0,"
                               "\"tid\":%llu,\"ts\":%s,\"dur\":%s,\"args\":{"
                               "\"stream\":%llu,\"bytes\":%zu}}",
                               i == 0 ? "[" : ",", e->category, e->name, id, e->ts, e->dur, id,
                               e->bytes);
    }
    if (strcmp(read_trace(), want) != 0) {
        printf("# %s\n", read_trace());
    }
    CHECK(strcmp(read_trace(), want) == 0);
}

/* 1 MB takes 1 ms. */
CASE_WITH(a_trace_has_what_each_stream_did_when, set_up_trace()) {
    enum { BYTES = 1000000 };
    const cu_ptr here = alloc(BYTES);
    void *host = alloc_host(BYTES);
    ashlar__soft_name("product");
    CHECK(soft->launch_host_func(s, note, "a") == CU_SUCCESS);
    CHECK(soft->launch_host_func(s, note, "b") == CU_SUCCESS); /* a name is for one */
    work(s, 5 * MS + 250);
    const event events[] = {
        {"kernel", "product", s, "0.000", "0.000", 0},
        {"kernel", "host function", s, "0.000", "0.000", 0},
        {"kernel", "work", s, "0.000", "5000.250", 0},
        {"gpu_memcpy", "Memcpy DtoH", s, "5000.250", "1000.000", BYTES},
        {"gpu_memcpy", "Memcpy DtoH", t, "6000.250", "1000.000", BYTES},
        {"gpu_memset", "Memset", s, "6000.250", "0.000", 7},
        {"cuda_sync", "Stream Wait Event", s, "6000.250", "1000.000", 0},
        {"gpu_memcpy", "Memcpy HtoD", s, "7000.250", "1000.000", BYTES},
        {"gpu_memcpy", "Memcpy DtoD", s, "8000.250", "0.000", 8},
    };
    check_traced(events, 3);
    to_host(host, here, BYTES, s);
    to_host(host, here, BYTES, t); /* waits for the engine */
    CHECK(soft->memset_d8_async(here, 0, 7, s) == CU_SUCCESS);
    const cu_event sent = record(t);
    CHECK(soft->stream_wait_event(s, sent, 0) == CU_SUCCESS);
    CHECK(soft->stream_wait_event(s, sent, 0) == CU_SUCCESS); /* past: no wait */
    to_device(here, host, BYTES, s);
    CHECK(soft->memcpy_dtod_async(here, here + 8, 8, s) == CU_SUCCESS);
    check_traced(events, sizeof events / sizeof events[0]);
    CHECK(unlink(trace) == 0);
}

CASE_WITH(a_trace_has_what_calls_cost_and_wait, set_up_streams("memory=64MiB")) {
    char spec[64];
    (void)snprintf(spec, sizeof spec, "time=on,trace=%s", new_trace());
    REQUIRE(set_up_streams(spec));
    const uint64_t begin_ns = ashlar__soft_host_ns();
    CHECK(soft->launch_host_func(s, note, "a") == CU_SUCCESS);
    CHECK(soft->stream_synchronize(s) == CU_SUCCESS);
    char want[256];
    (void)snprintf(want, sizeof want, "\"ts\":%.3f,\"dur\":4.000}", (double)begin_ns / 1000);
    CHECK_HAS(read_trace(), want); /* the launch */
    CHECK_HAS(read_trace(), "\"cuda_driver\",\"name\":\"cuLaunchHostFunc\"");
    CHECK_HAS(read_trace(), "\"dur\":3.000}"); /* the call that waits, and its wait: */
    CHECK_HAS(read_trace(), "\"dur\":7.000}");
    CHECK(unlink(trace) == 0);
}

CASE_WITH(bytes_of_tiers_are_dated_behind_the_work_before, set_up_trace()) {
    work(s, 2 * MS);
    ashlar__soft_trace_bytes(s, "host", 4096, false);
    ashlar__soft_trace_bytes(s, "resident", 4096, true);
    ashlar__soft_trace_bytes(NULL, "nowhere", 1, true);
    CHECK_HAS(read_trace(), "\"cat\":\"tier\",\"name\":\"host\"");
    CHECK_HAS(read_trace(), "\"ts\":2000.000,\"args\":{\"bytes\":4096}}");
    CHECK_HAS(read_trace(), "\"ts\":2000.000,\"args\":{\"bytes\":-4096}}");
    CHECK(strstr(read_trace(), "nowhere") == NULL);
    CHECK(unlink(trace) == 0);
}

CASE(traces_that_cannot_be_written_are_refused) {
    CHECK(ashlar__soft_configure("trace=/tmp/t.json") == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "trace=/tmp/t.json without time=on");
    CHECK(ashlar__soft_configure("time=on,trace=") == ASHLAR_EINVAL);
    CHECK(ashlar__soft_configure("time=on,trace=/none/t.json") == ASHLAR_EIO);
    CHECK_HAS(ashlar_error_detail(), "trace=/none/t.json: No such file");
}

RUN_CASES()
