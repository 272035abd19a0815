/* test_streams_life.c - streams that end, handles that come again, and the default streams. */
#include "tests/allocator/core/streams_fixture.h"

#include <pthread.h>

#define PER_THREAD ((ashlar_stream)(uintptr_t)CU_STREAM_PER_THREAD)

/* Streams that are gone, too. */
static void wait_for_all(void) {
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    CHECK(driver->table.ctx_synchronize() == CU_SUCCESS);
    ashlar__device_leave(device);
}

/* ---- streams that end ---- */

CASE(memory_of_a_destroyed_stream_is_waited_for_on_a_full_device) {
    for (int is_live = 0; is_live < 2; is_live++) {
        REQUIRE(set_up_streams("16MiB"));
        const ashlar_stream doomed = new_stream();
        unsigned char *ptr = take(ALL, doomed);
        use(doomed, ptr, ALL, 1);
        if (!is_live) {
            give(ptr);
        }
        order_calls before = order_calls_now();
        ashlar_stream_destroy(device, doomed);
        check_calls(&before, (order_calls){.created = 1, .recorded = 1});
        if (is_live) {
            queue_verify(streams[0], ptr, 0, 1); /* it stays valid */
            give(ptr);                           /* with its stream gone */
        }
        CHECK(take(ALL, streams[0]) == ptr);
        CHECK(stats_now().served_waited == 1 && stats_now().events_recorded == 1);
        check_owned(streams[0], ptr, ALL);
        tear_down();
    }
}

/* The driver refuses an event behind the last work: it must never be asked for the handle again. */
CASE_WITH(memory_of_a_stream_that_ended_without_an_event_stays_out,
          set_up_streams("16MiB," HANDLES_COME_BACK)) {
    ashlar_stream stream = new_stream();
    const ashlar_stream handle = stream;
    unsigned char *a = take(BIG, stream), *b = take(BIG, stream);
    use(stream, a, BIG, 1);
    use(stream, b, BIG, 2);
    give(a);
    ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_event_record, 1, CU_UNKNOWN);
    ashlar_stream_destroy(device, stream);
    CHECK(atomic_load(&driver->fail_countdown) == 0);
    stream = new_stream();
    CHECK(stream == handle);
    give(b);
    order_calls before = order_calls_now();
    void *out = NULL;
    unsigned char *c = take(2 * BIG, stream); /* what is left of the device */
    CHECK(ashlar_alloc(allocator, BIG, streams[0], &out) == ASHLAR_ENOMEM);
    CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
    check_calls(&before, (order_calls){0});
    CHECK(stats_now().reserved_bytes == ALL);
    use(stream, c, 2 * BIG, 3);
    ashlar_stream_destroy(device, stream);
    give(c);
    CHECK(take(2 * BIG, streams[0]) == c); /* that one ended as it should */
    check_owned(streams[0], c, 2 * BIG);
}

/* Each stream's work is over when the next one comes, as in a program that waits once a step. */
CASE(an_ended_streams_memory_serves_the_next_one_without_a_memory_call) {
    for (int caches = 0; caches < 2; caches++) {
        REQUIRE(set_up_cached_streams("64MiB", caches ? 16 * MIB : 0));
        unsigned char *small = NULL, *large = NULL;
        size_t calls = 0, most = 0, events = CALLS(event_create) - CALLS(event_destroy);
        for (int i = 0; i < 200; i++) {
            const ashlar_stream stream = new_stream();
            unsigned char *ptrs[2] = {take(1000, stream), take(BIG, stream)};
            CHECK(i == 0 || (ptrs[0] == small && ptrs[1] == large));
            small = ptrs[0];
            large = ptrs[1];
            calls = i == 0 ? memory_calls() : calls;
            check_ordered(stream, large, BIG);
            use(stream, small, 1000, (unsigned char)i);
            use(stream, large, BIG, (unsigned char)i);
            give(small);
            give(large);
            ashlar_stream_destroy(device, stream);
            wait_for_all();
            most = order_count() > most ? order_count() : most;
        }
        CHECK_ZU(memory_calls() - calls, 0);
        CHECK_ZU(stats_now().reserved_bytes, BIG + 2 * MIB);
        CHECK(most < 40 && CALLS(event_create) - CALLS(event_destroy) < events + 30);
        check_owned(streams[0], take(BIG, streams[0]), BIG);
        tear_down();
    }
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

/* ---- default streams ---- */

CASE_WITH(the_default_stream_has_one_record_by_three_names, set_up_streams("16MiB")) {
    const ashlar_stream legacy = (ashlar_stream)(uintptr_t)CU_STREAM_LEGACY;
    order_calls before = order_calls_now();
    unsigned char *ptr = take(ALL, legacy);
    give(ptr);
    CHECK(take(ALL, NULL) == ptr);
    give_on(ptr, NULL);
    CHECK(take(ALL, legacy) == ptr);
    CHECK(stats_now().served_same_stream == 2);
    check_calls(&before, (order_calls){0});
    CHECK_ZU(order_count(), 1);
    give_on(ptr, legacy);
    CHECK(take(ALL, PER_THREAD) == ptr);
    CHECK(stats_now().served_waited == 1); /* that is another one */
    CHECK_ZU(order_count(), 2);
}

typedef struct thread_part {
    unsigned char *ptr; /* what the thread is to find, or got */
    bool gives;
} thread_part;

RUN_CASES()
