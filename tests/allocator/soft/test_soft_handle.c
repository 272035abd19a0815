/*
 * test_soft_handle.c - how streams and events of the software device come, go and are refused.
 */
#include "tests/allocator/soft/soft_stream_fixture.h"
#include "tests/child.h"

static cu_result results_inside[8];

static void call_the_device(void *stream) {
    const char *name = NULL;
    size_t left, total;
    cu_ptr ptr;
    int version;
    results_inside[0] = soft->mem_alloc(&ptr, 1);
    results_inside[1] = soft->stream_synchronize(stream);
    results_inside[2] = soft->launch_host_func(stream, note, ran);
    results_inside[3] = soft->mem_get_info(&left, &total);
    results_inside[4] = soft->mem_address_reserve(&ptr, (size_t)2 << 20, 0, 0, 0);
    results_inside[5] = soft->init(0);
    results_inside[6] = soft->get_error_name(CU_NOT_PERMITTED, &name);
    results_inside[7] = soft->driver_get_version(&version);
    CHECK(ashlar__soft_configure("") == ASHLAR_EINVAL);
}

CASE_WITH(host_functions_may_not_call_the_device, set_up_streams("memory=16MiB")) {
    CHECK(soft->launch_host_func(s, call_the_device, s) == CU_SUCCESS);
    CHECK(soft->stream_synchronize(s) == CU_SUCCESS);
    for (size_t i = 0; i < 6; i++) {
        CHECK(results_inside[i] == CU_NOT_PERMITTED);
    }
    CHECK(results_inside[6] == CU_SUCCESS && results_inside[7] == CU_SUCCESS);
    (void)alloc(1); /* the ban ends with the function */
}

CASE_OF_SEEDS(destroy_with_work_pending_is_legal) {
    const cu_event event = new_event();
    queue(s, "a");
    CHECK(soft->event_record(event, s) == CU_SUCCESS);
    CHECK(soft->stream_wait_event(t, event, 0) == CU_SUCCESS);
    queue(t, "b");
    CHECK(soft->event_destroy(event) == CU_SUCCESS);
    CHECK(soft->stream_destroy(s) == CU_SUCCESS);
    CHECK(ran_count == 0);
    CHECK(soft->event_query(event) == CU_INVALID_HANDLE);
    CHECK(soft->stream_synchronize(s) == CU_INVALID_HANDLE);
    CHECK(soft->stream_destroy(s) == CU_INVALID_HANDLE);
    CHECK(soft->event_destroy(event) == CU_INVALID_HANDLE);
    CHECK(new_stream(CU_STREAM_UNORDERED) == s); /* handles are used again, as CUDA's are */
    CHECK(soft->stream_synchronize(s) == CU_SUCCESS);
    CHECK(ran_count == 0); /* the old stream's work is not the new one's */
    CHECK(soft->stream_synchronize(t) == CU_SUCCESS);
    CHECK(strcmp(ran, "ab") == 0);
    CHECK_ZU(stream_count(), 4); /* t, the new s, two legacy streams: the old s is gone */
}

CASE_WITH(no_handle_outlives_a_configuration, set_up("memory=16MiB")) {
    cu_context context = NULL;
    const cu_stream stream = new_stream(0);
    const cu_event event = new_event();
    CHECK(soft->primary_ctx_retain(&context, 0) == CU_SUCCESS);
    CHECK(ashlar__soft_configure("memory=16MiB,strict=off") == ASHLAR_OK);
    CHECK(soft->init(0) == CU_SUCCESS);
    CHECK(soft->ctx_push_current(context) != CU_SUCCESS);
    REQUIRE(make_current(0));
    CHECK(soft->stream_synchronize(stream) == CU_INVALID_HANDLE);
    CHECK(soft->event_query(event) == CU_INVALID_HANDLE);
}

CASE_WITH(handles_are_reused_newest_first, set_up("memory=16MiB")) {
    const cu_stream a = new_stream(0), b = new_stream(0), c = new_stream(0);
    CHECK(soft->stream_destroy(a) == CU_SUCCESS);
    CHECK(soft->stream_destroy(c) == CU_SUCCESS);
    CHECK(new_stream(0) == c);
    CHECK(new_stream(0) == a);
    CHECK(soft->stream_synchronize(b) == CU_SUCCESS);
}

CASE_WITH(last_context_release_waits_for_its_work, set_up_adversarial(8)) {
    queue(s, "a");
    CHECK(soft->primary_ctx_release(0) == CU_SUCCESS);
    CHECK(strcmp(ran, "a") == 0);
    CHECK_ZU(stream_count(), 2);
}

CASE_WITH(destroyed_streams_work_runs_with_the_device, set_up_adversarial(4)) {
    s = new_stream(CU_STREAM_BLOCKING);
    queue(s, "a");
    CHECK(soft->stream_destroy(s) == CU_SUCCESS);
    queue(NULL, "L"); /* still ordered after it */
    CHECK(soft->stream_synchronize(NULL) == CU_SUCCESS);
    CHECK(strcmp(ran, "aL") == 0);
}

CASE_WITH(dead_and_foreign_handles_are_refused, set_up("memory=16MiB")) {
    const cu_event event = new_event();
    s = new_stream(CU_STREAM_BLOCKING);
    cu_stream stream = NULL;
    cu_event unused = NULL;
    int on_stack = 0;
    CHECK(soft->stream_synchronize((cu_stream)(void *)&on_stack) == CU_INVALID_HANDLE);
    CHECK(soft->stream_synchronize((cu_stream)(void *)event) == CU_INVALID_HANDLE);
    CHECK(soft->event_query((cu_event)(void *)s) == CU_INVALID_HANDLE);
    CHECK(soft->event_query(NULL) == CU_INVALID_HANDLE);
    CHECK(soft->event_record(event, (cu_stream)99) == CU_INVALID_HANDLE);
    CHECK(soft->event_record(NULL, s) == CU_INVALID_HANDLE);
    CHECK(soft->stream_wait_event(s, NULL, 0) == CU_INVALID_HANDLE);
    CHECK(soft->stream_wait_event((cu_stream)99, event, 0) == CU_INVALID_HANDLE);
    CHECK(soft->stream_wait_event(s, event, 1) == CU_INVALID_VALUE);
    CHECK(soft->event_synchronize((cu_event)(void *)&on_stack) == CU_INVALID_HANDLE);
    CHECK(soft->stream_destroy(NULL) == CU_INVALID_HANDLE);
    CHECK(soft->stream_destroy((cu_stream)1) == CU_INVALID_HANDLE);
    CHECK(soft->stream_create(&stream, 2) == CU_INVALID_VALUE);
    CHECK(soft->stream_create(NULL, 0) == CU_INVALID_VALUE);
    CHECK(soft->event_create(&unused, 6) == CU_NOT_SUPPORTED);
    CHECK(soft->event_create(&unused, 8) == CU_INVALID_VALUE);
    CHECK(soft->event_create(NULL, 0) == CU_INVALID_VALUE);
    CHECK(stream == NULL && unused == NULL);
    cu_context context;
    CHECK(soft->ctx_pop_current(&context) == CU_SUCCESS);
    CHECK(soft->stream_create(&stream, 0) == CU_INVALID_CONTEXT);
    CHECK(soft->stream_synchronize(s) == CU_INVALID_CONTEXT);
    CHECK(soft->event_query(event) == CU_INVALID_CONTEXT);
    CHECK(soft->memset_d8_async(0, 0, 1, s) == CU_INVALID_CONTEXT);
}

CASE_WITH(armed_failure_reaches_a_stream_call, set_up_streams("memory=16MiB")) {
    const cu_event event = new_event();
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_event_record, 1, CU_OUT_OF_MEMORY);
    CHECK(ASHLAR_DRIVER_CALL(driver, event_record, (event, s)) == CU_OUT_OF_MEMORY);
    CHECK(ASHLAR_DRIVER_CALL(driver, event_record, (event, s)) == CU_SUCCESS);
}

static void find_no_device(void) {
    int count;
    cu_ptr ptr;
    CHECK(soft->mem_alloc(&ptr, 1) == CU_NOT_INITIALIZED);
    CHECK(soft->init(0) == CU_NOT_INITIALIZED);
    CHECK(soft->device_get_count(&count) == CU_NOT_INITIALIZED);
}

/* As with CUDA; and the memory is the parent's too, so the child must not hand it out. */
CASE_WITH(a_forked_child_has_no_device, set_up("memory=4MiB")) {
    CHECK(child_passes(find_no_device));
    CHECK(soft->mem_free(alloc(1)) == CU_SUCCESS); /* the parent goes on */
}

RUN_CASES()
