/*
 * test_soft_stream.c - the order in which the software device runs its streams, in both modes,
 * and the life of handles.
 */
#include "tests/allocator/soft/soft_fixture.h"

#include "tests/child.h"

CASE_OF_SEEDS(adversarial_work_runs_only_when_waited_for) {
    queue(s, "a");
    queue(t, "x");
    queue(s, "b");
    CHECK(ran_count == 0);
    CHECK(soft->stream_synchronize(s) == CU_SUCCESS);
    CHECK(strcmp(ran, "ab") == 0); /* in order, and nothing of t */
    queue(s, "c");
    CHECK(soft->stream_synchronize(t) == CU_SUCCESS);
    CHECK(strcmp(ran, "abx") == 0);
    CHECK(soft->ctx_synchronize() == CU_SUCCESS);
    CHECK(strcmp(ran, "abxc") == 0);
}

CASE_OF_SEEDS(recording_again_does_not_move_an_earlier_wait) {
    const cu_event event = new_event();
    queue(s, "1");
    CHECK(soft->event_record(event, s) == CU_SUCCESS);
    CHECK(soft->stream_wait_event(t, event, 0) == CU_SUCCESS);
    queue(s, "2");
    CHECK(soft->event_record(event, s) == CU_SUCCESS);
    queue(t, "c");
    CHECK(soft->stream_synchronize(t) == CU_SUCCESS);
    CHECK(strcmp(ran, "1c") == 0);
    CHECK(soft->event_synchronize(event) == CU_SUCCESS);
    CHECK(strcmp(ran, "1c2") == 0);
    CHECK(soft->event_query(event) == CU_SUCCESS);
}

CASE_OF_SEEDS(chain_over_streams_and_devices_keeps_its_order) {
    const cu_stream a = new_stream(CU_STREAM_UNORDERED), b = new_stream(CU_STREAM_UNORDERED);
    const cu_event from_a = new_event(), from_b = new_event();
    CHECK(make_current(1));
    const cu_stream c = new_stream(CU_STREAM_UNORDERED);
    CHECK(soft->event_record(from_a, c) == CU_INVALID_HANDLE); /* the other device's event */
    queue(a, "a");
    CHECK(soft->event_record(from_a, a) == CU_SUCCESS);
    CHECK(soft->stream_wait_event(b, from_a, 0) == CU_SUCCESS);
    queue(b, "b");
    CHECK(soft->event_record(from_b, b) == CU_SUCCESS);
    CHECK(soft->stream_wait_event(c, from_b, 0) == CU_SUCCESS);
    queue(c, "c");
    CHECK(soft->ctx_synchronize() == CU_SUCCESS); /* of device 1 */
    CHECK(strcmp(ran, "abc") == 0);
}

CASE(query_is_not_ready_at_first_and_polling_ends) {
    int polls_sum = 0;
    for (int seed = 0; seed < SEEDS; seed++) {
        REQUIRE(set_up_adversarial(seed));
        const cu_event event = new_event();
        queue(s, "a");
        queue(t, "x");
        CHECK(soft->event_record(event, s) == CU_SUCCESS);
        int polls = 0;
        cu_result result;
        while ((result = soft->event_query(event)) == CU_NOT_READY && polls < 1000) {
            polls++;
        }
        CHECK(result == CU_SUCCESS);
        CHECK(polls >= 1); /* two ops must run, and a poll runs one at most */
        CHECK(strchr(ran, 'a') != NULL);
        polls_sum += polls;
    }
    CHECK(polls_sum > 4 * SEEDS); /* most polls run nothing */
}

CASE_OF_SEEDS(legacy_stream_is_ordered_both_ways) {
    s = new_stream(CU_STREAM_BLOCKING);
    t = new_stream(CU_STREAM_BLOCKING);
    queue(s, "a");
    queue(t, "b");
    queue(NULL, "L");
    queue(s, "c");
    queue(t, "d");
    CHECK(soft->stream_synchronize(t) == CU_SUCCESS);
    CHECK(ran_count == 4); /* all but c */
    CHECK(ran_before('a', 'L') && ran_before('b', 'L') && ran_before('L', 'd'));
    queue(NULL, "M");
    CHECK(soft->stream_synchronize(NULL) == CU_SUCCESS);
    CHECK(ran_before('c', 'M') && ran_before('L', 'c'));
}

CASE(unordered_stream_and_other_device_ignore_the_legacy_stream) {
    int before = 0, after = 0;
    for (int seed = 0; seed < SEEDS; seed++) {
        REQUIRE(set_up_adversarial(seed));
        s = new_stream(CU_STREAM_BLOCKING);
        CHECK(make_current(1));
        const cu_stream other = new_stream(CU_STREAM_BLOCKING);
        cu_context context;
        CHECK(soft->ctx_pop_current(&context) == CU_SUCCESS);
        queue(t, "u");
        queue(NULL, "L");
        queue(t, "v");
        queue(other, "o");
        CHECK(soft->stream_synchronize(t) == CU_SUCCESS);
        CHECK(soft->stream_synchronize(other) == CU_SUCCESS);
        CHECK(strcmp(ran, "uvo") == 0); /* L was not needed */
        queue(t, "w");
        queue(s, "s");
        CHECK(soft->ctx_synchronize() == CU_SUCCESS);
        CHECK(ran_before('L', 's'));
        before += ran_before('w', 'L');
        after += ran_before('s', 'w');
    }
    CHECK(before > 0 && after > 0);
}

CASE(same_seed_gives_the_same_interleaving) {
    enum { STREAMS = 4, ROUNDS = 12 };
    static const char letters[STREAMS + 1] = "abcd";
    char first[LOG_MAX] = "";
    int other_count = 0;
    for (int i = 0; i < SEEDS; i++) {
        for (int again = 0; again < 2; again++) {
            REQUIRE(set_up_adversarial(i));
            cu_stream streams[STREAMS];
            const cu_event event = new_event();
            for (int k = 0; k < STREAMS; k++) {
                streams[k] = new_stream(CU_STREAM_UNORDERED);
            }
            for (int k = 0; k < STREAMS * ROUNDS; k++) {
                queue(streams[k % STREAMS], &letters[k % STREAMS]);
            }
            CHECK(soft->event_record(event, streams[0]) == CU_SUCCESS);
            for (int k = 0; k < 20; k++) {
                CHECK(soft->event_query(event) == CU_NOT_READY);
            }
            CHECK(soft->ctx_synchronize() == CU_SUCCESS);
            CHECK_ZU(ran_count, STREAMS * ROUNDS);
            CHECK(again == 0 || strcmp(ran, first) == 0);
            other_count += again == 0 && strcmp(ran, first) != 0;
            memcpy(first, ran, sizeof first);
        }
    }
    CHECK(other_count == SEEDS); /* and another seed another one */
}

/* ---- handles ---- */

static cu_result results_inside[3];

static void call_the_device(void *stream) {
    int version;
    results_inside[0] = soft->stream_synchronize(stream);
    results_inside[1] = soft->init(0);
    results_inside[2] = soft->driver_get_version(&version);
    CHECK(ashlar__soft_configure("") == ASHLAR_EINVAL);
}

CASE_WITH(host_functions_may_not_call_the_device, set_up_streams("memory=16MiB")) {
    CHECK(soft->launch_host_func(s, call_the_device, s) == CU_SUCCESS);
    CHECK(soft->stream_synchronize(s) == CU_SUCCESS);
    CHECK(results_inside[0] == CU_NOT_PERMITTED && results_inside[1] == CU_NOT_PERMITTED);
    CHECK(results_inside[2] == CU_SUCCESS); /* touches no device */
    (void)alloc(1);                         /* the ban ends with the function */
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
