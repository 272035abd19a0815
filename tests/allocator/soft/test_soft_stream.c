/*
 * test_soft_stream.c - the order in which the software device runs its streams, in both modes,
 * and the life of handles.
 */
#include "tests/allocator/soft/soft_fixture.h"

#include "tests/child.h"

CASE_WITH(eager_work_runs_at_the_call, set_up_streams("devices=2")) {
    t = new_stream(CU_STREAM_BLOCKING);
    queue(s, "a");
    CHECK(strcmp(ran, "a") == 0);
    queue(t, "b");
    queue(NULL, "c");
    queue((cu_stream)1, "d"); /* the legacy stream by its other name */
    CHECK(strcmp(ran, "abcd") == 0);
    const cu_event event = record(s);
    CHECK(soft->event_query(event) == CU_SUCCESS);
}

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

CASE_OF_SEEDS(a_stream_is_idle_when_its_own_work_is_over) {
    CHECK(soft->stream_query(s) == CU_SUCCESS);
    queue(s, "a");
    queue(t, "x");
    CHECK(soft->stream_query(s) == CU_NOT_READY); /* which may let any work run */
    CHECK(soft->stream_synchronize(s) == CU_SUCCESS);
    CHECK(soft->stream_query(s) == CU_SUCCESS); /* at once: nothing was recorded behind it */
    int polls = 0;
    while (soft->stream_query(t) == CU_NOT_READY && polls < 1000) {
        polls++;
    }
    CHECK(polls < 1000 && ran_count == 2);
    CHECK(soft->stream_query((cu_stream)99) == CU_INVALID_HANDLE);
}

CASE_OF_SEEDS(event_wait_holds_the_consumer_until_the_producer_ran) {
    const cu_event event = new_event();
    queue(s, "p");
    CHECK(soft->event_record(event, s) == CU_SUCCESS);
    queue(s, "q"); /* after the record: not needed by t */
    CHECK(soft->stream_wait_event(t, event, 0) == CU_SUCCESS);
    queue(t, "c");
    CHECK(soft->stream_synchronize(t) == CU_SUCCESS);
    CHECK(strcmp(ran, "pc") == 0);
}

CASE(without_a_wait_the_consumer_runs_first_for_some_seed) {
    int producer_first = 0;
    for (int seed = 0; seed < SEEDS; seed++) {
        REQUIRE(set_up_adversarial(seed));
        queue(s, "p");
        queue(t, "c");
        CHECK(soft->ctx_synchronize() == CU_SUCCESS);
        producer_first += ran_before('p', 'c');
    }
    CHECK(producer_first > 2 && producer_first < SEEDS - 2);
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

/* ---- whoever chooses ---- */

static size_t choice_count;

static size_t choose_last(size_t ways) {
    choice_count++;
    return ways - 1;
}

static void fill(cu_ptr ptr, cu_stream stream) {
    CHECK(soft->memset_d8_async(ptr, 1, 512, stream) == CU_SUCCESS);
}

/* How often the order of what is queued was asked for. */
static size_t choices(void) {
    choice_count = 0;
    CHECK(soft->ctx_synchronize() == CU_SUCCESS);
    return choice_count;
}

CASE_WITH(whoever_chooses_is_asked_where_work_may_meet, set_up_adversarial(1)) {
    cu_ptr a = 0, b = 0;
    CHECK(soft->mem_alloc(&a, 512) == CU_SUCCESS && soft->mem_alloc(&b, 512) == CU_SUCCESS);
    ashlar__soft_choose_by(choose_last);
    fill(a, s);
    fill(b, t);
    CHECK_ZU(choices(), 0);
    fill(a, s);
    fill(a, t);
    CHECK_ZU(choices(), 1);
    queue(s, "x"); /* a function of the host's may touch any memory */
    fill(b, t);
    CHECK_ZU(choices(), 1);
    queue(s, "y");
    queue(t, "z");
    CHECK_ZU(choices(), 1);
    CHECK(strcmp(ran, "xzy") == 0);
    ashlar__soft_choose_by(NULL);
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
