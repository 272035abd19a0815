/* test_streams_life.c - streams that end, handles that come again, and the default streams. */
#include "tests/allocator/core/streams_fixture.h"

#include <pthread.h>

#define PER_THREAD ((ashlar_stream)(uintptr_t)CU_STREAM_PER_THREAD)

static ashlar_stream new_stream(void) {
    ashlar_stream stream = NULL;
    CHECK(ashlar_stream_create(device, &stream) == ASHLAR_OK);
    return stream;
}

/* ---- streams that end ---- */

CASE_WITH(a_free_block_of_a_destroyed_stream_is_waited_for, set_up_streams("64MiB")) {
    const ashlar_stream doomed = new_stream();
    unsigned char *ptr = take(BIG, doomed);
    use(doomed, ptr, BIG, 1);
    give(ptr);
    order_calls before = order_calls_now();
    ashlar_stream_destroy(device, doomed);
    check_calls(&before, (order_calls){.created = 1, .recorded = 1});
    CHECK(take(BIG, streams[0]) == ptr);
    check_calls(&before, (order_calls){.queried = 1, .waited = 1});
    check_owned(streams[0], ptr, BIG);
}

CASE_WITH(a_live_block_of_a_destroyed_stream_stays_and_is_waited_for, set_up_streams("64MiB")) {
    const ashlar_stream doomed = new_stream();
    unsigned char *ptr = take(BIG, doomed);
    use(doomed, ptr, BIG, 1);
    ashlar_stream_destroy(device, doomed);
    order_calls before = order_calls_now();
    give(ptr); /* with its stream gone */
    CHECK(take(BIG, streams[0]) == ptr);
    check_calls(&before, (order_calls){.queried = 1, .waited = 1});
    check_owned(streams[0], ptr, BIG);
    give(ptr);
}

/* Neither block is large enough alone, so the record of the stream is met when all is merged. */
CASE_WITH(a_stream_that_is_gone_is_not_asked_when_blocks_are_merged,
          set_up("memory=64MiB," ALLOCATOR_ASKS_DEAD_STREAMS)) {
    ashlar_stream stream = new_stream();
    unsigned char *a = take(BIG, stream), *b = take(BIG, streams[1]);
    queue_write(stream, a, BIG, 1);
    queue_write(streams[1], b, BIG, 2);
    give(a);
    give(b);
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    CHECK(driver->table.stream_destroy(stream) == CU_SUCCESS); /* and nobody was told */
    ashlar__device_leave(device);
    unsigned char *whole = take(2 * BIG, streams[2]);
    CHECK(whole == a && stats_now().reserved_bytes == 2 * BIG);
    check_owned(streams[2], whole, 2 * BIG);
}

CASE_WITH(a_recycled_handle_is_another_stream, set_up_streams("64MiB," HANDLES_COME_BACK)) {
    ashlar_stream stream = new_stream();
    const ashlar_stream handle = stream;
    unsigned char *a = take(BIG, stream), *wall = take(2 * MIB, streams[3]);
    unsigned char *b = take(BIG, stream);
    use(stream, a, BIG, 1);
    use(stream, b, BIG, 2);
    give(a);
    ashlar_stream_destroy(device, stream);
    stream = new_stream();
    CHECK(stream == handle);
    give(b);
    order_calls before = order_calls_now();
    CHECK(take(BIG, stream) == a); /* by an in-stream wait, not as its own */
    CHECK(stats_now().served_same_stream == 0 && stats_now().served_waited == 1);
    CHECK(take(BIG, stream) == b);
    CHECK(stats_now().served_same_stream == 0 && stats_now().served_waited == 2);
    check_calls(&before, (order_calls){.queried = 2, .waited = 2});
    check_owned(stream, a, BIG);
    check_owned(stream, b, BIG);
    give(wall);
    ashlar_stream_destroy(device, stream);
}

/* As a program does that destroys streams by the driver, and does not say so. */
CASE_WITH(a_stream_that_ended_unannounced_is_found_out,
          set_up_streams("64MiB," HANDLES_COME_BACK)) {
    ashlar_stream stream = new_stream();
    const ashlar_stream handle = stream;
    unsigned char *a = take(BIG, stream);
    use(stream, a, BIG, 1);
    give(a);
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    CHECK(driver->table.stream_destroy(stream) == CU_SUCCESS);
    ashlar__device_leave(device);
    stream = new_stream();
    CHECK(stream == handle);
    const size_t waits = CALLS(ctx_synchronize);
    CHECK(take(BIG, streams[0]) == a);
    CHECK_ZU(CALLS(ctx_synchronize), waits + 1);
    check_owned(streams[0], a, BIG);
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_stream_get_id, 1, CU_UNKNOWN);
    void *out = NULL;
    CHECK(ashlar_alloc(allocator, BIG, stream, &out) == ASHLAR_EDRIVER); /* it is new here */
    CHECK(take(BIG, stream) != a);
    ashlar_stream_destroy(device, stream);
}

CASE(a_cached_block_goes_with_its_stream) {
    REQUIRE(set_up_cached("memory=64MiB,mode=adversarial,seed=3," HANDLES_COME_BACK, 16 * MIB));
    ashlar_stream stream = new_stream();
    const ashlar_stream handle = stream;
    unsigned char *a = take(1000, stream);
    use(stream, a, 1000, 1);
    give(a);
    CHECK(stats_now().cached_bytes == 1024);
    ashlar_stream_destroy(device, stream);
    CHECK(stats_now().cached_bytes == 0);
    stream = new_stream();
    CHECK(stream == handle);
    CHECK(take(1000, stream) == a);
    CHECK(stats_now().served_cached == 0 && stats_now().served_waited == 1);
    check_owned(stream, a, 1000);
    ashlar_stream_destroy(device, stream);
}

CASE(streams_that_come_and_go_leave_no_records) {
    REQUIRE(set_up_cached("memory=64MiB,mode=adversarial,seed=3", 16 * MIB));
    unsigned char *last = NULL;
    size_t most = 0;
    for (int i = 0; i < 200; i++) {
        const ashlar_stream stream = new_stream();
        unsigned char *ptr = take(BIG, stream);
        use(stream, ptr, BIG, (unsigned char)i);
        give(ptr);
        CHECK(last == NULL || ptr == last);
        last = ptr;
        ashlar_stream_destroy(device, stream);
        most = order_count() > most ? order_count() : most;
    }
    CHECK(most > 2 && most < 30);
    CHECK(CALLS(event_create) - CALLS(event_destroy) < 30);
    CHECK(take(BIG, streams[0]) == last);
    check_owned(streams[0], last, BIG);
}

CASE_WITH(a_stream_is_forgotten_by_every_allocator_of_its_device, set_up_streams("64MiB")) {
    ashlar_device *again = NULL;
    ashlar_allocator *others[2] = {NULL};
    void *ptrs[2] = {NULL};
    REQUIRE(ashlar_device_open("soft", &again) == ASHLAR_OK);
    const ashlar_stream doomed = new_stream();
    for (int i = 0; i < 2; i++) {
        CHECK(ashlar_allocator_create(i == 0 ? device : again, &others[i]) == ASHLAR_OK);
        CHECK(ashlar_alloc(others[i], BIG, doomed, &ptrs[i]) == ASHLAR_OK);
    }
    order_calls before = order_calls_now();
    ashlar_stream_destroy(device, doomed);
    check_calls(&before, (order_calls){.created = 2, .recorded = 2});
    ashlar_allocator_destroy(others[0]); /* the first of the list goes last, and the other way */
    ashlar_stream_destroy(device, new_stream());
    ashlar_allocator_destroy(others[1]);
    ashlar_stream_destroy(device, new_stream());
    ashlar_device_close(again);
}

CASE_WITH(a_stream_that_cannot_be_forgotten_stays_as_it_was, set_up_streams("64MiB")) {
    unsigned char *ptr = take(BIG, streams[0]);
    give(ptr);
    static const ashlar_driver_fn calls[] = {
        ASHLAR_DRIVER_FN_ctx_push_current,
        ASHLAR_DRIVER_FN_stream_is_capturing,
        ASHLAR_DRIVER_FN_event_create,
        ASHLAR_DRIVER_FN_event_record,
    };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        ashlar__driver_fail_at(driver, (int)calls[i], 1, CU_UNKNOWN);
        CHECK(ashlar_allocator_forget_stream(allocator, streams[0]) == ASHLAR_EDRIVER);
        CHECK(atomic_load(&driver->fail_countdown) == 0);
        CHECK(take(BIG, streams[0]) == ptr);
        CHECK_ZU(stats_now().served_same_stream, i + 1);
        give(ptr);
    }
    CHECK(ashlar_allocator_forget_stream(allocator, streams[2]) == ASHLAR_OK); /* never seen */
}

/* ---- default streams ---- */

CASE_WITH(the_default_stream_has_one_record_by_three_names, set_up_streams("64MiB")) {
    unsigned char *ptr = take(BIG, NULL);
    give(ptr);
    CHECK(take(BIG, (ashlar_stream)(uintptr_t)CU_STREAM_LEGACY) == ptr);
    CHECK_ZU(order_count(), 1);
    give(ptr);
    CHECK(take(BIG, PER_THREAD) == ptr);
    CHECK(stats_now().served_waited == 1); /* that is another one */
    CHECK_ZU(order_count(), 2);
}

typedef struct thread_part {
    unsigned char *ptr; /* what the thread is to find, or got */
    bool gives;
} thread_part;

static void *run_thread(void *user) {
    thread_part *part = user;
    void *ptr = NULL;
    CHECK(ashlar_alloc(allocator, BIG, PER_THREAD, &ptr) == ASHLAR_OK);
    use(PER_THREAD, ptr, BIG, 7);
    CHECK(part->ptr == NULL || ptr == part->ptr);
    part->ptr = ptr;
    if (part->gives) {
        CHECK(ashlar_free(allocator, ptr) == ASHLAR_OK);
    }
    return NULL;
}

static void in_a_thread(thread_part *part) {
    pthread_t thread;
    /* No check in between: the thread's own are not counted beside them. */
    const bool ran =
        pthread_create(&thread, NULL, run_thread, part) == 0 && pthread_join(thread, NULL) == 0;
    CHECK(ran);
}

CASE(the_default_streams_of_two_threads_are_two) {
    for (int caches = 0; caches < 2; caches++) {
        atomic_store(&payload_bad_count, 0);
        REQUIRE(set_up_cached("memory=64MiB,mode=adversarial,seed=3", caches == 0 ? 0 : 16 * MIB));
        unsigned char *ptr = take(BIG, PER_THREAD);
        use(PER_THREAD, ptr, BIG, 1);
        give(ptr);
        if (caches == 1) {
            CHECK(ashlar_allocator_trim(allocator, 64 * MIB) == ASHLAR_OK);
            CHECK(take(BIG, PER_THREAD) == ptr); /* out of the cache */
            CHECK(ashlar_free_on(allocator, ptr, streams[1]) == ASHLAR_OK);
            CHECK(take(BIG, streams[1]) == ptr);
            give_on(ptr, PER_THREAD);
        }
        thread_part part = {.gives = true};
        in_a_thread(&part);
        if (caches == 0) {
            CHECK(part.ptr == ptr && stats_now().served_waited == 1);
        }
        wait_for(PER_THREAD);
        CHECK(take(BIG, streams[0]) != NULL); /* after the work of a thread that is no more */
        check_owned(streams[0], part.ptr, 1);
        tear_down();
    }
}

CASE_WITH(a_block_of_an_ended_threads_stream_is_waited_for, set_up_streams("64MiB")) {
    thread_part part = {.gives = false};
    in_a_thread(&part);
    give(part.ptr);
    CHECK(take(BIG, streams[0]) == part.ptr);
    CHECK(stats_now().served_waited == 1);
    check_owned(streams[0], part.ptr, BIG);
}

CASE(threads_that_come_and_go_leave_no_records) {
    REQUIRE(set_up_cached("memory=64MiB,mode=adversarial,seed=3", 16 * MIB));
    size_t most = 0;
    thread_part part = {.gives = true};
    for (int i = 0; i < 100; i++) {
        in_a_thread(&part);
        most = order_count() > most ? order_count() : most;
        check_all();
    }
    CHECK(most > 2 && most < 30);
}

CASE_WITH(a_stream_apart_from_the_default_one_is_waited_for, set_up_streams("64MiB")) {
    cu_stream apart = NULL;
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    REQUIRE(driver->table.stream_create(&apart, CU_STREAM_UNORDERED) == CU_SUCCESS);
    ashlar__device_leave(device);
    unsigned char *ptr = take(BIG, apart);
    use(apart, ptr, BIG, 1);
    give(ptr);
    CHECK(take(BIG, NULL) == ptr); /* the default stream does not wait for it by itself */
    CHECK(stats_now().served_waited == 1);
    queue_write(NULL, ptr, BIG, 0xC3);
    wait_for(NULL);
    wait_for(apart);
    queue_verify(NULL, ptr, BIG, 0xC3);
    wait_for(NULL);
    CHECK(atomic_load(&payload_bad_count) == 0);
    ashlar_stream_destroy(device, apart);
    give(ptr);
}

static void *free_and_take(void *user) {
    thread_part *part = user;
    void *ptr = NULL;
    CHECK(ashlar_free(allocator, part->ptr) == ASHLAR_OK);
    CHECK(ashlar_alloc(allocator, 1000, PER_THREAD, &ptr) == ASHLAR_OK);
    queue_write(PER_THREAD, ptr, 1000, 0xC3);
    wait_for(PER_THREAD); /* of this thread; the other's work comes after it, if not before */
    part->ptr = ptr;
    return NULL;
}

CASE(anothers_default_streams_block_is_not_cached_for_the_own) {
    REQUIRE(set_up_cached("memory=64MiB,mode=adversarial,seed=3", 16 * MIB));
    thread_part part = {.ptr = take(1000, PER_THREAD)};
    pthread_t thread;
    queue_write(PER_THREAD, part.ptr, 1000, 1);
    const bool ran =
        pthread_create(&thread, NULL, free_and_take, &part) == 0 && pthread_join(thread, NULL) == 0;
    CHECK(ran && stats_now().served_cached == 0);
    wait_for(PER_THREAD);
    queue_verify(NULL, part.ptr, 1000, 0xC3);
    wait_for(NULL);
    CHECK(atomic_load(&payload_bad_count) == 0);
}

RUN_CASES()
