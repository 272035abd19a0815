/* test_soft_capture_mode.c - which calls a capture forbids to which thread. */
#include "tests/allocator/soft/soft_fixture.h"

#include "tests/thread.h"

/* Every call that a capture cannot see, with what it needs. */
static cu_result call_unsafe(int i) {
    static cu_ptr ptr, plain;
    static cu_mem_handle handle;
    static void *pinned;
    static cu_event event;
    static cu_stream stream;
    switch (i) {
    case 0:
        return soft->mem_alloc(&plain, 1);
    case 1:
        return soft->mem_free(plain);
    case 2:
        return soft->mem_host_alloc(&pinned, 1, 0);
    case 3:
        return soft->mem_free_host(pinned);
    case 4:
        return soft->mem_create(&handle, PAGE, &prop, 0);
    case 5:
        return soft->mem_address_reserve(&ptr, PAGE, 0, 0, 0);
    case 6:
        return soft->mem_map(ptr, PAGE, 0, handle, 0);
    case 7:
        return soft->mem_set_access(ptr, PAGE, &access0, 1);
    case 8:
        return soft->mem_unmap(ptr, PAGE);
    case 9:
        return soft->mem_release(handle);
    case 10:
        return soft->mem_address_free(ptr, PAGE);
    case 11:
        event = new_event();
        return soft->event_query(event);
    case 12:
        return soft->event_synchronize(event);
    case 13:
        stream = new_stream(CU_STREAM_UNORDERED);
        return soft->stream_synchronize(stream);
    default:
        return soft->stream_synchronize(NULL);
    }
}
enum { UNSAFE_CALLS = 15 };

CASE_WITH(a_global_capture_forbids_unsafe_calls_and_is_spoilt_by_them,
          set_up_streams("memory=16MiB")) {
    for (int i = 0; i < UNSAFE_CALLS; i++) {
        begin(s, CU_CAPTURE_GLOBAL);
        CHECK(call_unsafe(i) == CU_STREAM_CAPTURE_UNSUPPORTED);
        check_spoilt(s);
        begin(s, CU_CAPTURE_THREAD_LOCAL); /* this thread's own, so this too */
        CHECK(call_unsafe(i) == CU_STREAM_CAPTURE_UNSUPPORTED);
        check_spoilt(s);
        begin(s, CU_CAPTURE_RELAXED);
        CHECK(call_unsafe(i) == CU_SUCCESS);
        CHECK(status_of(s) == CU_CAPTURE_ACTIVE);
        CHECK(soft->graph_exec_destroy(end(s)) == CU_SUCCESS);
    }
}

CASE_WITH(a_relaxed_thread_may_make_unsafe_calls, set_up_streams("memory=16MiB")) {
    unsigned int mode = CU_CAPTURE_RELAXED, wrong = 3;
    CHECK(soft->thread_exchange_capture_mode(&wrong) == CU_INVALID_VALUE);
    CHECK(soft->thread_exchange_capture_mode(NULL) == CU_INVALID_VALUE);
    begin(s, CU_CAPTURE_GLOBAL);
    CHECK(soft->thread_exchange_capture_mode(&mode) == CU_SUCCESS);
    CHECK(mode == CU_CAPTURE_GLOBAL);
    for (int i = 0; i < UNSAFE_CALLS; i++) {
        CHECK(call_unsafe(i) == CU_SUCCESS);
    }
    CHECK(soft->thread_exchange_capture_mode(&mode) == CU_SUCCESS);
    CHECK(mode == CU_CAPTURE_RELAXED);
    CHECK(status_of(s) == CU_CAPTURE_ACTIVE);
    CHECK(call_unsafe(0) == CU_STREAM_CAPTURE_UNSUPPORTED);
    check_spoilt(s);
}

CASE_WITH(a_thread_local_thread_minds_its_own_captures_alone, set_up_streams("memory=16MiB")) {
    unsigned int mode = CU_CAPTURE_THREAD_LOCAL;
    cu_ptr ptr;
    CHECK(soft->thread_exchange_capture_mode(&mode) == CU_SUCCESS);
    begin(s, CU_CAPTURE_RELAXED);
    CHECK(soft->mem_alloc(&ptr, 1) == CU_SUCCESS);
    CHECK(soft->graph_exec_destroy(end(s)) == CU_SUCCESS);
    begin(s, CU_CAPTURE_THREAD_LOCAL);
    CHECK(soft->mem_free(ptr) == CU_STREAM_CAPTURE_UNSUPPORTED);
    check_spoilt(s);
    CHECK(soft->thread_exchange_capture_mode(&mode) == CU_SUCCESS);
}

/* One call made by another thread, which first takes a mode. */
typedef struct other_thread {
    unsigned int mode;
    cu_stream ends; /* NULL: cuMemAlloc, else end the capture of this stream */
    cu_result result;
} other_thread;

static void *other_run(void *user_data) {
    other_thread *me = user_data;
    cu_ptr ptr;
    cu_graph graph;
    unsigned int mode = me->mode;
    const bool is_ready =
        make_current(0) && soft->thread_exchange_capture_mode(&mode) == CU_SUCCESS;
    me->result = !is_ready          ? CU_UNKNOWN
                 : me->ends != NULL ? soft->stream_end_capture(me->ends, &graph)
                                    : soft->mem_alloc(&ptr, 1);
    return NULL;
}

static cu_result in_other_thread(unsigned int mode, cu_stream ends) {
    other_thread other = {.mode = mode, .ends = ends, .result = CU_UNKNOWN};
    run_thread(other_run, &other);
    return other.result;
}

CASE_WITH(other_threads_are_forbidden_by_a_global_capture_alone, set_up_streams("memory=64MiB")) {
    for (unsigned int mode = CU_CAPTURE_GLOBAL; mode <= CU_CAPTURE_RELAXED; mode++) {
        begin(s, mode);
        CHECK(in_other_thread(CU_CAPTURE_THREAD_LOCAL, NULL) == CU_SUCCESS);
        CHECK(in_other_thread(CU_CAPTURE_RELAXED, NULL) == CU_SUCCESS);
        CHECK(status_of(s) == CU_CAPTURE_ACTIVE);
        if (mode == CU_CAPTURE_GLOBAL) {
            CHECK(in_other_thread(CU_CAPTURE_GLOBAL, NULL) == CU_STREAM_CAPTURE_UNSUPPORTED);
            check_spoilt(s);
        } else {
            CHECK(in_other_thread(CU_CAPTURE_GLOBAL, NULL) == CU_SUCCESS);
            CHECK(soft->graph_exec_destroy(end(s)) == CU_SUCCESS);
        }
    }
}

CASE_WITH(only_a_relaxed_capture_is_ended_by_another_thread, set_up_streams("memory=16MiB")) {
    begin(s, CU_CAPTURE_THREAD_LOCAL);
    CHECK(in_other_thread(CU_CAPTURE_GLOBAL, s) == CU_STREAM_CAPTURE_WRONG_THREAD);
    CHECK(status_of(s) == CU_CAPTURE_ACTIVE);
    CHECK(soft->graph_exec_destroy(end(s)) == CU_SUCCESS);
    begin(s, CU_CAPTURE_RELAXED);
    CHECK(in_other_thread(CU_CAPTURE_GLOBAL, s) == CU_SUCCESS);
    CHECK(status_of(s) == CU_CAPTURE_NONE);
}

CASE_WITH(waiting_for_another_device_is_unsafe_too, set_up_streams("devices=2,memory=16MiB")) {
    for (unsigned int mode = CU_CAPTURE_GLOBAL; mode <= CU_CAPTURE_RELAXED; mode++) {
        const bool is_relaxed = mode == CU_CAPTURE_RELAXED;
        begin(s, mode);
        REQUIRE(make_current(1));
        CHECK(soft->ctx_synchronize() == (is_relaxed ? CU_SUCCESS : CU_STREAM_CAPTURE_UNSUPPORTED));
        REQUIRE(make_current(0));
        CHECK(status_of(s) == (is_relaxed ? CU_CAPTURE_ACTIVE : CU_CAPTURE_INVALIDATED));
        cu_graph graph;
        CHECK(soft->stream_end_capture(s, &graph) ==
              (is_relaxed ? CU_SUCCESS : CU_STREAM_CAPTURE_INVALIDATED));
    }
}

RUN_CASES()
