/*
 * test_soft_strict.c - what ends a process with strict=on, and with which line.
 *
 * Each mistake is made in a child, which is forked before this process has opened the device.
 */
#include "tests/allocator/soft/soft_fixture.h"

#include "tests/child.h"
#include "tests/thread.h"

static const char *spec_here;
static void (*act_here)(void);

static void act_on_device(void) {
    CHECK(set_up(spec_here));
    act_here();
}

static bool aborts(const char *spec, void (*act)(void)) {
    spec_here = spec;
    act_here = act;
    return child_aborts(act_on_device);
}

static bool passes(const char *spec, void (*act)(void)) {
    spec_here = spec;
    act_here = act;
    return child_passes(act_on_device);
}

/* One line, which names the call and says what is wrong. */
#define CHECK_ENDS(spec, act, call, what)                                          \
    do {                                                                           \
        CHECK(aborts("memory=64MiB,strict=on" spec, act));                         \
        CHECK_HAS(child_words, "ashlar: software device, strict: " call ": ");     \
        CHECK_HAS(child_words, what);                                              \
        CHECK(strchr(child_words, '\n') == child_words + strlen(child_words) - 1); \
    } while (0)

/* What one call does wrong. */
#define ACT(name, call)      \
    static void name(void) { \
        (void)(call);        \
    }

static cu_stream gone_stream(void) {
    const cu_stream stream = new_stream(CU_STREAM_UNORDERED);
    CHECK(soft->stream_destroy(stream) == CU_SUCCESS);
    return stream;
}

static cu_event gone_event(void) {
    const cu_event event = new_event();
    CHECK(soft->event_destroy(event) == CU_SUCCESS);
    return event;
}

ACT(record_on_gone_stream, soft->event_record(new_event(), gone_stream()))
ACT(destroy_stream_twice, soft->stream_destroy(gone_stream()))
ACT(launch_on_garbage, soft->launch_host_func((cu_stream)(uintptr_t)0x1230003, note, NULL))

CASE(a_dead_stream_s_handle_ends_the_process) {
    CHECK_ENDS("", record_on_gone_stream, "cuEventRecord", "stream 0x13 has been destroyed");
    CHECK_ENDS("", destroy_stream_twice, "cuStreamDestroy", "destroyed");
    CHECK_ENDS("", launch_on_garbage, "cuLaunchHostFunc", "stream 0x1230003 never existed");
}

ACT(record_gone_event, soft->event_record(gone_event(), NULL))
ACT(query_gone_event, soft->event_query(gone_event()))
ACT(query_a_stream, soft->event_query((cu_event)(void *)new_stream(CU_STREAM_UNORDERED)))

CASE(a_dead_event_s_handle_ends_the_process) {
    CHECK_ENDS("", record_gone_event, "cuEventRecord", "event 0x14 has been destroyed");
    CHECK_ENDS("", query_gone_event, "cuEventQuery", "event 0x14 has been destroyed");
    CHECK_ENDS("", query_a_stream, "cuEventQuery", "event 0x13 never existed");
}

static void destroy_graph_twice(void) {
    s = new_stream(CU_STREAM_UNORDERED);
    cu_graph graph = NULL;
    begin(s, CU_CAPTURE_RELAXED);
    CHECK(soft->stream_end_capture(s, &graph) == CU_SUCCESS);
    CHECK(soft->graph_destroy(graph) == CU_SUCCESS);
    (void)soft->graph_destroy(graph);
}
static void launch_gone_graph(void) {
    s = new_stream(CU_STREAM_UNORDERED);
    begin(s, CU_CAPTURE_RELAXED);
    const cu_graph_exec exec = end(s);
    CHECK(soft->graph_exec_destroy(exec) == CU_SUCCESS);
    (void)soft->graph_launch(exec, s);
}
static void map_gone_memory(void) {
    const cu_mem_handle handle = create(1);
    CHECK(soft->mem_release(handle) == CU_SUCCESS);
    (void)soft->mem_map(reserve(1), PAGE, 0, handle, 0);
}

CASE(other_dead_handles_end_it_too) {
    CHECK_ENDS("", destroy_graph_twice, "cuGraphDestroy", "graph");
    CHECK_ENDS("", launch_gone_graph, "cuGraphLaunch", "executable graph");
    CHECK_ENDS("", map_gone_memory, "cuMemMap", "memory handle 0x16 has been destroyed");
}

static void unmap_a_part(void) {
    const cu_ptr ptr = reserve(2);
    place(ptr, 2, create(2));
    (void)soft->mem_unmap(ptr + PAGE, PAGE);
}
static void free_mapped_addresses(void) {
    const cu_ptr ptr = reserve(1);
    place(ptr, 1, create(1));
    (void)soft->mem_address_free(ptr, PAGE);
}

CASE(memory_that_is_not_there_ends_the_process) {
    CHECK_ENDS("", unmap_a_part, "cuMemUnmap", "not whole mappings");
    CHECK_ENDS("", free_mapped_addresses, "cuMemAddressFree", "without mappings");
}

static void unmap_under_a_fill(void) {
    const cu_ptr ptr = reserve(2);
    place(ptr, 1, create(1));
    place(ptr + PAGE, 1, create(1));
    CHECK(soft->memset_d8_async(ptr + PAGE - 1, 7, 2, NULL) == CU_SUCCESS);
    (void)soft->mem_unmap(ptr + PAGE, PAGE);
}
static void free_host_under_a_copy(void) {
    void *host = NULL;
    CHECK(soft->mem_host_alloc(&host, 64, 0) == CU_SUCCESS);
    const cu_ptr ptr = alloc(64);
    CHECK(soft->memcpy_htod_async(ptr, host, 64, NULL) == CU_SUCCESS);
    (void)soft->mem_free_host(host);
}
static void unmap_under_a_use(void) {
    s = new_stream(CU_STREAM_UNORDERED);
    const cu_ptr ptr = reserve(1);
    place(ptr, 1, create(1));
    CHECK(ashlar__soft_clock_use(ptr, 1, s) == ASHLAR_OK);
    (void)soft->mem_unmap(ptr, PAGE);
}
static void unmap_after_all_work(void) {
    s = new_stream(CU_STREAM_UNORDERED);
    const cu_ptr ptr = reserve(2);
    place(ptr, 2, create(2));
    CHECK(soft->memset_d8_async(ptr, 7, PAGE, s) == CU_SUCCESS);
    CHECK(ashlar__soft_clock_use(ptr, 1, s) == ASHLAR_OK);
    CHECK(soft->stream_synchronize(s) == CU_SUCCESS);
    CHECK(soft->mem_unmap(ptr, 2 * PAGE) == CU_SUCCESS);
}
static void launch_over_gone_memory(void) {
    s = new_stream(CU_STREAM_UNORDERED);
    const cu_ptr ptr = reserve(1);
    place(ptr, 1, create(1));
    begin(s, CU_CAPTURE_RELAXED);
    CHECK(soft->memset_d8_async(ptr, 7, PAGE, s) == CU_SUCCESS);
    const cu_graph_exec exec = end(s);
    CHECK(soft->mem_unmap(ptr, PAGE) == CU_SUCCESS);
    (void)soft->graph_launch(exec, s);
}

CASE(memory_that_queued_work_uses_is_not_to_go) {
    CHECK_ENDS(",mode=adversarial", unmap_under_a_fill, "cuMemUnmap", "in use by a fill");
    CHECK_ENDS(",mode=adversarial", free_host_under_a_copy, "cuMemFreeHost", "in use by a copy");
    CHECK_ENDS("", unmap_under_a_use, "cuMemUnmap", "has not seen finished");
    CHECK_ENDS("", launch_over_gone_memory, "cuGraphLaunch", "finds its memory gone");
    CHECK(passes("memory=64MiB,strict=on,mode=adversarial", unmap_after_all_work));
}

/* Run `act` in another thread while a stream of this one is captured in global mode. */
static void *call_act(void *act) {
    CHECK(make_current(0));
    (*(void (**)(void))act)();
    return NULL;
}

static void act_beside_a_capture(void (*act)(void)) {
    begin(new_stream(CU_STREAM_BLOCKING), CU_CAPTURE_GLOBAL);
    run_thread(call_act, &act);
}

static void alloc_one(void) {
    cu_ptr ptr = 0;
    (void)soft->mem_alloc(&ptr, 1);
}
static void alloc_one_relaxed(void) {
    unsigned int mode = CU_CAPTURE_RELAXED;
    CHECK(soft->thread_exchange_capture_mode(&mode) == CU_SUCCESS);
    alloc_one();
}
ACT(use_the_legacy_stream, soft->launch_host_func(NULL, note, NULL))
ACT(synchronize_all, soft->ctx_synchronize())
ACT(alloc_beside_a_capture, act_beside_a_capture(alloc_one))
ACT(alloc_relaxed_beside_a_capture, act_beside_a_capture(alloc_one_relaxed))
ACT(legacy_beside_a_capture, act_beside_a_capture(use_the_legacy_stream))
ACT(synchronize_beside_a_capture, act_beside_a_capture(synchronize_all))
static void alloc_in_an_own_capture(void) {
    begin(new_stream(CU_STREAM_UNORDERED), CU_CAPTURE_GLOBAL);
    alloc_one();
}
static void destroy_while_captured(void) {
    s = new_stream(CU_STREAM_UNORDERED);
    begin(s, CU_CAPTURE_RELAXED);
    (void)soft->stream_destroy(s);
}

CASE(another_thread_s_capture_is_not_to_be_spoilt) {
    CHECK_ENDS("", alloc_beside_a_capture, "cuMemAlloc", "spoils the capture that another thread");
    CHECK_ENDS("", legacy_beside_a_capture, "cuLaunchHostFunc", "spoils the capture");
    CHECK_ENDS("", synchronize_beside_a_capture, "cuCtxSynchronize", "spoils the capture");
    CHECK(passes("strict=on", alloc_relaxed_beside_a_capture));
    CHECK(passes("strict=on", alloc_in_an_own_capture)); /* CUDA has an error for that */
    CHECK_ENDS("", destroy_while_captured, "cuStreamDestroy", "is being captured");
}

static void call_the_device(void *unused) {
    (void)unused;
    (void)soft->event_query(NULL);
}
ACT(call_in_a_host_function, soft->launch_host_func(NULL, call_the_device, NULL))

CASE(a_host_function_is_not_to_call_the_device) {
    CHECK_ENDS("", call_in_a_host_function, "cuEventQuery", "inside a host function");
}

static void make_handles_again(void) {
    const cu_stream a = gone_stream(), b = new_stream(CU_STREAM_UNORDERED);
    const cu_event c = gone_event(), d = new_event();
    CHECK(a != b && c != d);
}
static void get_handles_again(void) {
    const cu_stream a = new_stream(CU_STREAM_UNORDERED), b = new_stream(CU_STREAM_UNORDERED);
    CHECK(soft->stream_destroy(a) == CU_SUCCESS && soft->stream_destroy(b) == CU_SUCCESS);
    CHECK(new_stream(CU_STREAM_UNORDERED) == b); /* the last first */
    CHECK(new_stream(CU_STREAM_UNORDERED) == a);
    CHECK(gone_event() == new_event());
    CHECK(soft->stream_synchronize(a) == CU_SUCCESS); /* which names the new stream */
}
static void have_errors_that_cuda_documents(void) {
    cu_context context = NULL;
    void *host = NULL;
    const cu_ptr ptr = alloc(100);
    CHECK(soft->mem_free(ptr + 4) == CU_INVALID_VALUE);
    CHECK(soft->mem_free(ptr) == CU_SUCCESS);
    CHECK(soft->mem_free(ptr) == CU_INVALID_VALUE);
    CHECK(soft->mem_host_alloc(&host, 64, 0) == CU_SUCCESS);
    CHECK(soft->mem_free_host(host) == CU_SUCCESS);
    CHECK(soft->mem_free_host(host) == CU_INVALID_VALUE);
    CHECK(soft->ctx_pop_current(&context) == CU_SUCCESS);
    CHECK(soft->primary_ctx_release(0) == CU_SUCCESS);
    CHECK(soft->ctx_push_current(context) == CU_INVALID_CONTEXT);
    CHECK(make_current(0)); /* the same one again */
    CHECK(soft->ctx_push_current(context) == CU_SUCCESS);
}
static void have_an_error(void) {
    CHECK(soft->stream_synchronize(gone_stream()) == CU_INVALID_HANDLE);
}

CASE(handles_come_back_only_where_they_are_to) {
    CHECK(passes("strict=on", make_handles_again));
    CHECK(passes("recycle=off", make_handles_again));
    CHECK(passes("strict=on,recycle=on", get_handles_again));
    CHECK(passes("strict=off", get_handles_again));
    CHECK(passes("strict=off", have_an_error));
}

CASE(what_has_an_error_of_its_own_does_not_end_the_process) {
    CHECK(passes("strict=on", have_errors_that_cuda_documents));
}

RUN_CASES()
