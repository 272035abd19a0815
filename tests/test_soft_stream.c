/*
 * test_soft_stream.c - the software device's streams, events and copies, in both modes.
 *
 * Adversarial cases run under many seeds: what must hold holds for each of them, and what the
 * program left open goes both ways for some.
 */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#include "driver.h"
#include "host.h"
#include "soft.h"
#include "soft_state.h"

enum { SEEDS = 24, LOG_MAX = 256 };

static ashlar_driver *driver;
static const ashlar_driver_table *soft;

static void set_current(int ordinal) {
    cu_context context;
    CHECK(soft->primary_ctx_retain(&context, ordinal) == CU_SUCCESS);
    CHECK(soft->ctx_push_current(context) == CU_SUCCESS);
}

/* Fresh devices, with the context of device 0 current. */
static bool set_up(const char *spec) {
    if (ashlar_driver_open_soft(&driver) != ASHLAR_OK ||
        ashlar_soft_configure(spec) != ASHLAR_OK) {
        return false;
    }
    soft = &driver->table;
    set_current(0);
    return true;
}

static bool set_up_adversarial(int seed) {
    char spec[64];
    (void)snprintf(spec, sizeof spec, "devices=2,memory=16MiB,mode=adversarial,seed=%d", seed);
    return set_up(spec);
}

/* What ran, in order: each host function adds its letter. */
static char ran[LOG_MAX];
static size_t ran_count;

static void note(void *letter) {
    if (ran_count < LOG_MAX - 1) {
        ran[ran_count++] = *(const char *)letter;
        ran[ran_count] = '\0';
    }
}

static void forget(void) {
    ran_count = 0;
    ran[0] = '\0';
}

/* Queue note(letter). */
static void queue(cu_stream stream, const char *letter) {
    CHECK(soft->launch_host_func(stream, note, (void *)(uintptr_t)letter) == CU_SUCCESS);
}

static bool ran_before(char first, char second) {
    const char *a = strchr(ran, first), *b = strchr(ran, second);
    return a != NULL && b != NULL && a < b;
}

static cu_stream new_stream(unsigned int flags) {
    cu_stream stream = NULL;
    CHECK(soft->stream_create(&stream, flags) == CU_SUCCESS);
    return stream;
}

static cu_event new_event(void) {
    cu_event event = NULL;
    CHECK(soft->event_create(&event, CU_EVENT_NO_TIMING) == CU_SUCCESS);
    return event;
}

static unsigned char *bytes_at(cu_ptr ptr) {
    return (unsigned char *)(uintptr_t)ptr;
}

static size_t stream_count(void) {
    size_t count = 0;
    for (const soft_stream *s = ashlar_soft_state.first_stream; s != NULL; s = s->next) {
        count++;
    }
    return count;
}

static void eager_work_runs_at_the_call(void) {
    REQUIRE(set_up("devices=2"));
    const cu_stream s = new_stream(CU_STREAM_UNORDERED), t = new_stream(CU_STREAM_BLOCKING);
    forget();
    queue(s, "a");
    CHECK(strcmp(ran, "a") == 0);
    queue(t, "b");
    queue(NULL, "c");
    queue((cu_stream)1, "d"); /* the legacy stream by its other name */
    CHECK(strcmp(ran, "abcd") == 0);
    CHECK(soft->launch_host_func((cu_stream)2, note, ran) == CU_NOT_SUPPORTED);
    const cu_event event = new_event();
    CHECK(soft->event_record(event, s) == CU_SUCCESS);
    CHECK(soft->event_query(event) == CU_SUCCESS);
}

static void adversarial_work_runs_only_when_waited_for(void) {
    for (int seed = 0; seed < SEEDS; seed++) {
        REQUIRE(set_up_adversarial(seed));
        const cu_stream s = new_stream(CU_STREAM_UNORDERED), t = new_stream(CU_STREAM_UNORDERED);
        forget();
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
}

static void event_wait_holds_the_consumer_until_the_producer_ran(void) {
    for (int seed = 0; seed < SEEDS; seed++) {
        REQUIRE(set_up_adversarial(seed));
        const cu_stream s = new_stream(CU_STREAM_UNORDERED), t = new_stream(CU_STREAM_UNORDERED);
        const cu_event event = new_event();
        forget();
        queue(s, "p");
        CHECK(soft->event_record(event, s) == CU_SUCCESS);
        queue(s, "q"); /* after the record: not needed by t */
        CHECK(soft->stream_wait_event(t, event, 0) == CU_SUCCESS);
        queue(t, "c");
        CHECK(soft->stream_synchronize(t) == CU_SUCCESS);
        CHECK(strcmp(ran, "pc") == 0);
    }
}

static void without_a_wait_the_consumer_runs_first_for_some_seed(void) {
    int producer_first = 0;
    for (int seed = 0; seed < SEEDS; seed++) {
        REQUIRE(set_up_adversarial(seed));
        const cu_stream s = new_stream(CU_STREAM_UNORDERED), t = new_stream(CU_STREAM_UNORDERED);
        forget();
        queue(s, "p");
        queue(t, "c");
        CHECK(soft->ctx_synchronize() == CU_SUCCESS);
        producer_first += ran_before('p', 'c');
    }
    CHECK(producer_first > 2 && producer_first < SEEDS - 2);
}

static void recording_again_does_not_move_an_earlier_wait(void) {
    for (int seed = 0; seed < SEEDS; seed++) {
        REQUIRE(set_up_adversarial(seed));
        const cu_stream s = new_stream(CU_STREAM_UNORDERED), t = new_stream(CU_STREAM_UNORDERED);
        const cu_event event = new_event();
        forget();
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
}

static void unrecorded_event_is_complete(void) {
    REQUIRE(set_up_adversarial(1));
    const cu_stream s = new_stream(CU_STREAM_UNORDERED);
    const cu_event event = new_event();
    CHECK(soft->event_query(event) == CU_SUCCESS);
    CHECK(soft->event_synchronize(event) == CU_SUCCESS);
    CHECK(soft->stream_wait_event(s, event, 0) == CU_SUCCESS);
    forget();
    queue(s, "a");
    CHECK(soft->stream_synchronize(s) == CU_SUCCESS);
    CHECK(strcmp(ran, "a") == 0);
}

static void chain_over_streams_and_devices_keeps_its_order(void) {
    for (int seed = 0; seed < SEEDS; seed++) {
        REQUIRE(set_up_adversarial(seed));
        const cu_stream a = new_stream(CU_STREAM_UNORDERED), b = new_stream(CU_STREAM_UNORDERED);
        const cu_event from_a = new_event(), from_b = new_event();
        set_current(1);
        const cu_stream c = new_stream(CU_STREAM_UNORDERED);
        CHECK(soft->event_record(from_a, c) == CU_INVALID_HANDLE); /* the other device's event */
        forget();
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
}

static void query_is_not_ready_at_first_and_polling_ends(void) {
    int polls_sum = 0;
    for (int seed = 0; seed < SEEDS; seed++) {
        REQUIRE(set_up_adversarial(seed));
        const cu_stream s = new_stream(CU_STREAM_UNORDERED), t = new_stream(CU_STREAM_UNORDERED);
        const cu_event event = new_event();
        forget();
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

static void legacy_stream_is_ordered_both_ways(void) {
    for (int seed = 0; seed < SEEDS; seed++) {
        REQUIRE(set_up_adversarial(seed));
        const cu_stream s = new_stream(CU_STREAM_BLOCKING), t = new_stream(CU_STREAM_BLOCKING);
        forget();
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
}

static void unordered_stream_and_other_device_ignore_the_legacy_stream(void) {
    int before = 0, after = 0;
    for (int seed = 0; seed < SEEDS; seed++) {
        REQUIRE(set_up_adversarial(seed));
        const cu_stream s = new_stream(CU_STREAM_BLOCKING), u = new_stream(CU_STREAM_UNORDERED);
        set_current(1);
        const cu_stream other = new_stream(CU_STREAM_BLOCKING);
        cu_context context;
        CHECK(soft->ctx_pop_current(&context) == CU_SUCCESS);
        forget();
        queue(u, "u");
        queue(NULL, "L");
        queue(u, "v");
        queue(other, "o");
        CHECK(soft->stream_synchronize(u) == CU_SUCCESS);
        CHECK(soft->stream_synchronize(other) == CU_SUCCESS);
        CHECK(strcmp(ran, "uvo") == 0); /* L was not needed */
        queue(u, "w");
        queue(s, "s");
        CHECK(soft->ctx_synchronize() == CU_SUCCESS);
        CHECK(ran_before('L', 's'));
        before += ran_before('w', 'L');
        after += ran_before('s', 'w');
    }
    CHECK(before > 0 && after > 0);
}

static void wait_on_the_legacy_stream_holds_blocking_streams(void) {
    for (int seed = 0; seed < SEEDS; seed++) {
        REQUIRE(set_up_adversarial(seed));
        const cu_stream u = new_stream(CU_STREAM_UNORDERED), s = new_stream(CU_STREAM_BLOCKING);
        const cu_event event = new_event();
        forget();
        queue(u, "u");
        CHECK(soft->event_record(event, u) == CU_SUCCESS);
        CHECK(soft->stream_wait_event(NULL, event, 0) == CU_SUCCESS);
        queue(s, "s");
        CHECK(soft->stream_synchronize(s) == CU_SUCCESS);
        CHECK(strcmp(ran, "us") == 0);
    }
}

static void copies_and_fills_run_in_stream_order(void) {
    for (int seed = 0; seed < SEEDS; seed++) {
        REQUIRE(set_up_adversarial(seed));
        const cu_stream s = new_stream(CU_STREAM_UNORDERED);
        cu_ptr a, b;
        unsigned char host[4] = {1, 2, 3, 4}, back[4] = {0};
        REQUIRE(soft->mem_alloc(&a, 100) == CU_SUCCESS);
        REQUIRE(soft->mem_alloc(&b, 100) == CU_SUCCESS);
        CHECK(soft->memcpy_htod_async(a, host, 4, s) == CU_SUCCESS);
        memset(host, 9, 4); /* pageable bytes were taken at the call */
        CHECK(soft->memset_d8_async(a + 1, 7, 2, s) == CU_SUCCESS);
        CHECK(soft->memcpy_dtod_async(b + 10, a, 4, s) == CU_SUCCESS);
        CHECK(bytes_at(a)[0] == 0); /* nothing has run */
        CHECK(soft->memcpy_dtoh_async(back, b + 10, 4, s) == CU_SUCCESS);
        CHECK(back[0] == 1 && back[1] == 7 && back[2] == 7 && back[3] == 4); /* no wait needed */
        CHECK(soft->mem_free(a) == CU_SUCCESS);
    }
}

static void pinned_copies_are_asynchronous(void) {
    REQUIRE(set_up_adversarial(3));
    const cu_stream s = new_stream(CU_STREAM_UNORDERED);
    cu_ptr ptr;
    void *memory;
    REQUIRE(soft->mem_alloc(&ptr, 100) == CU_SUCCESS);
    REQUIRE(soft->mem_host_alloc(&memory, 8, 0) == CU_SUCCESS);
    unsigned char *pinned = memory;
    pinned[0] = 1;
    CHECK(soft->memcpy_htod_async(ptr, pinned, 4, s) == CU_SUCCESS);
    CHECK(soft->memcpy_dtoh_async(pinned + 4, ptr, 4, s) == CU_SUCCESS);
    pinned[0] = 2; /* too late for a pageable copy, in time for this one */
    CHECK(pinned[4] == 0);
    CHECK(soft->stream_synchronize(s) == CU_SUCCESS);
    CHECK(pinned[4] == 2);
}

static void copies_check_their_ranges(void) {
    REQUIRE(set_up("memory=16MiB"));
    cu_ptr ptr;
    unsigned char host[8] = {0};
    REQUIRE(soft->mem_alloc(&ptr, 100) == CU_SUCCESS);
    const size_t bytes = (size_t)2 << 20; /* what the allocation really has */
    CHECK(soft->memcpy_htod_async(ptr + bytes - 4, host, 8, NULL) == CU_INVALID_VALUE);
    CHECK(soft->memcpy_htod_async(ptr, NULL, 8, NULL) == CU_INVALID_VALUE);
    CHECK(soft->memcpy_htod_async(0, host, 8, NULL) == CU_INVALID_VALUE);
    CHECK(soft->memcpy_dtoh_async(host, ptr - 4, 8, NULL) == CU_INVALID_VALUE);
    CHECK(soft->memcpy_dtoh_async(NULL, ptr, 8, NULL) == CU_INVALID_VALUE);
    CHECK(soft->memcpy_dtod_async(ptr, (cu_ptr)(uintptr_t)host, 8, NULL) == CU_INVALID_VALUE);
    CHECK(soft->memcpy_dtod_async((cu_ptr)(uintptr_t)host, ptr, 8, NULL) == CU_INVALID_VALUE);
    CHECK(soft->memset_d8_async(ptr, 0, SIZE_MAX, NULL) == CU_INVALID_VALUE);
    CHECK(soft->memset_d8_async(0, 0, 0, NULL) == CU_SUCCESS); /* nothing to do */
    CHECK(soft->memcpy_htod_async(0, NULL, 0, (cu_stream)77) == CU_INVALID_HANDLE);
    CHECK(soft->launch_host_func(NULL, NULL, NULL) == CU_INVALID_VALUE);
}

static void memory_taken_from_queued_work_is_an_illegal_address(void) {
    REQUIRE(set_up_adversarial(5));
    const cu_stream s = new_stream(CU_STREAM_UNORDERED);
    cu_ptr ptr;
    void *pinned;
    REQUIRE(soft->mem_alloc(&ptr, 100) == CU_SUCCESS);
    REQUIRE(soft->mem_host_alloc(&pinned, 8, 0) == CU_SUCCESS);
    CHECK(soft->memcpy_htod_async(ptr, pinned, 8, s) == CU_SUCCESS);
    forget();
    queue(s, "a");
    CHECK(soft->mem_free_host(pinned) == CU_SUCCESS);
    CHECK(soft->stream_synchronize(s) == CU_ILLEGAL_ADDRESS);
    CHECK(soft->ctx_synchronize() == CU_ILLEGAL_ADDRESS); /* and for good */
    CHECK(soft->mem_alloc(&ptr, 1) == CU_ILLEGAL_ADDRESS);
    CHECK(ran_count == 0); /* nothing runs after it */
    set_current(1); /* a healthy device's context does not help a stream of the other */
    CHECK(soft->stream_synchronize(s) == CU_ILLEGAL_ADDRESS);
    CHECK(soft->launch_host_func(s, note, ran) == CU_ILLEGAL_ADDRESS);
    CHECK(soft->ctx_synchronize() == CU_SUCCESS);
    CHECK(soft->primary_ctx_release(0) == CU_SUCCESS);
    set_current(0);
    CHECK(soft->ctx_synchronize() == CU_SUCCESS); /* a new context is a new start */
}

static void mem_free_waits_for_the_whole_device(void) {
    REQUIRE(set_up_adversarial(2));
    const cu_stream s = new_stream(CU_STREAM_UNORDERED);
    cu_ptr ptr, other;
    REQUIRE(soft->mem_alloc(&ptr, 100) == CU_SUCCESS);
    REQUIRE(soft->mem_alloc(&other, 100) == CU_SUCCESS);
    forget();
    CHECK(soft->memset_d8_async(ptr, 1, 100, s) == CU_SUCCESS);
    queue(s, "a");
    queue(NULL, "b");
    CHECK(soft->mem_free(other) == CU_SUCCESS);
    CHECK(ran_count == 2);
    CHECK(bytes_at(ptr)[99] == 1);
}

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
    CHECK(ashlar_soft_configure("") == ASHLAR_EINVAL);
}

static void host_functions_may_not_call_the_device(void) {
    REQUIRE(set_up("memory=16MiB"));
    const cu_stream s = new_stream(CU_STREAM_UNORDERED);
    CHECK(soft->launch_host_func(s, call_the_device, s) == CU_SUCCESS);
    CHECK(soft->stream_synchronize(s) == CU_SUCCESS);
    for (size_t i = 0; i < 6; i++) {
        CHECK(results_inside[i] == CU_NOT_PERMITTED);
    }
    CHECK(results_inside[6] == CU_SUCCESS && results_inside[7] == CU_SUCCESS);
    cu_ptr ptr;
    CHECK(soft->mem_alloc(&ptr, 1) == CU_SUCCESS); /* the ban ends with the function */
}

static void destroy_with_work_pending_is_legal(void) {
    for (int seed = 0; seed < SEEDS; seed++) {
        REQUIRE(set_up_adversarial(seed));
        const cu_stream s = new_stream(CU_STREAM_UNORDERED), t = new_stream(CU_STREAM_UNORDERED);
        const cu_event event = new_event();
        forget();
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
}

static void handles_are_reused_newest_first(void) {
    REQUIRE(set_up("memory=16MiB"));
    const cu_stream a = new_stream(0), b = new_stream(0), c = new_stream(0);
    CHECK(soft->stream_destroy(a) == CU_SUCCESS);
    CHECK(soft->stream_destroy(c) == CU_SUCCESS);
    CHECK(new_stream(0) == c);
    CHECK(new_stream(0) == a);
    CHECK(soft->stream_synchronize(b) == CU_SUCCESS);
}

static void last_context_release_waits_for_its_work(void) {
    REQUIRE(set_up_adversarial(8));
    const cu_stream s = new_stream(CU_STREAM_UNORDERED);
    forget();
    queue(s, "a");
    CHECK(soft->primary_ctx_release(0) == CU_SUCCESS);
    CHECK(strcmp(ran, "a") == 0);
    CHECK_ZU(stream_count(), 2);
}

static void destroyed_streams_work_runs_with_the_device(void) {
    REQUIRE(set_up_adversarial(4));
    const cu_stream s = new_stream(CU_STREAM_BLOCKING);
    forget();
    queue(s, "a");
    CHECK(soft->stream_destroy(s) == CU_SUCCESS);
    queue(NULL, "L"); /* still ordered after it */
    CHECK(soft->stream_synchronize(NULL) == CU_SUCCESS);
    CHECK(strcmp(ran, "aL") == 0);
}

static void dead_and_foreign_handles_are_refused(void) {
    REQUIRE(set_up("memory=16MiB"));
    const cu_event event = new_event();
    const cu_stream s = new_stream(CU_STREAM_BLOCKING);
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

static void failing_host_memory_is_reported_and_harmless(void) {
    REQUIRE(set_up_adversarial(6));
    const cu_stream s = new_stream(CU_STREAM_UNORDERED);
    const cu_event event = new_event();
    cu_ptr ptr;
    unsigned char host[8] = {5};
    REQUIRE(soft->mem_alloc(&ptr, 8) == CU_SUCCESS);
    CHECK(soft->event_record(event, s) == CU_SUCCESS);
    CHECK(soft->event_synchronize(event) == CU_SUCCESS);
    int failures = 0;
    for (unsigned long n = 1; n <= 10; n++) {
        ashlar_host_fail_at(n);
        const cu_result recorded = soft->event_record(event, s);
        failures += recorded == CU_OUT_OF_MEMORY;
        CHECK(recorded == CU_OUT_OF_MEMORY || n > 2);
        failures += soft->stream_wait_event(s, event, 0) == CU_OUT_OF_MEMORY;
        failures += soft->memcpy_htod_async(ptr, host, 8, s) == CU_OUT_OF_MEMORY;
        failures += soft->memcpy_dtoh_async(host, ptr, 8, s) == CU_OUT_OF_MEMORY;
        ashlar_host_fail_at(0);
        CHECK(soft->stream_synchronize(s) == CU_SUCCESS);
        CHECK(soft->event_query(event) == CU_SUCCESS);
    }
    CHECK(failures == 7); /* record 2, wait 1, staging copy 2, waiting copy 2 */
}

static void same_seed_gives_the_same_interleaving(void) {
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
            forget();
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

/* ---- threads ---- */

enum { THREADS = 4, ROUNDS = 150, CELLS = 64 };

typedef struct hammer {
    pthread_t thread;
    int idx;
    cu_ptr cells; /* CELLS bytes of this thread's own */
    cu_event done; /* recorded by this thread, waited for by the next */
    long bad_count;
    long counter; /* only touched by host functions of this thread's stream */
} hammer;

static hammer hammers[THREADS];

static void count_one(void *user_data) {
    ((hammer *)user_data)->counter++;
}

static void *hammer_run(void *user_data) {
    hammer *me = user_data;
    const hammer *neighbour = &hammers[(me->idx + 1) % THREADS];
    unsigned char host[CELLS];
    cu_context context;
    cu_stream stream;
    me->bad_count += soft->primary_ctx_retain(&context, 0) != CU_SUCCESS ||
                     soft->ctx_push_current(context) != CU_SUCCESS ||
                     soft->stream_create(&stream, (unsigned)me->idx % 2) != CU_SUCCESS;
    for (int round = 0; round < ROUNDS && me->bad_count == 0; round++) {
        memset(host, round, sizeof host);
        cu_ptr scratch;
        me->bad_count += soft->memcpy_htod_async(me->cells, host, CELLS, stream) != CU_SUCCESS;
        me->bad_count += soft->launch_host_func(stream, count_one, me) != CU_SUCCESS;
        me->bad_count += soft->event_record(me->done, stream) != CU_SUCCESS;
        me->bad_count += soft->stream_wait_event(stream, neighbour->done, 0) != CU_SUCCESS;
        me->bad_count += soft->memset_d8_async(me->cells, 200, 1, stream) != CU_SUCCESS;
        memset(host, 0, sizeof host);
        me->bad_count += soft->memcpy_dtoh_async(host, me->cells, CELLS, stream) != CU_SUCCESS;
        me->bad_count += host[0] != 200 || host[1] != round || host[CELLS - 1] != round;
        if (round % 16 == 0) {
            me->bad_count += soft->mem_alloc(&scratch, 10) != CU_SUCCESS ||
                             soft->memset_d8_async(scratch, 1, 10, NULL) != CU_SUCCESS ||
                             soft->mem_free(scratch) != CU_SUCCESS ||
                             soft->stream_destroy(stream) != CU_SUCCESS ||
                             soft->stream_create(&stream, (unsigned)round / 16 % 2) != CU_SUCCESS;
        }
        const cu_result state = soft->event_query(neighbour->done);
        me->bad_count += state != CU_SUCCESS && state != CU_NOT_READY;
    }
    me->bad_count += soft->stream_synchronize(stream) != CU_SUCCESS;
    me->bad_count += soft->ctx_synchronize() != CU_SUCCESS;
    return NULL;
}

static void hammer_all(void) {
    for (int i = 0; i < THREADS; i++) {
        hammers[i] = (hammer){.idx = i, .done = new_event()};
        REQUIRE(soft->mem_alloc(&hammers[i].cells, CELLS) == CU_SUCCESS);
    }
    for (int i = 0; i < THREADS; i++) {
        REQUIRE(pthread_create(&hammers[i].thread, NULL, hammer_run, &hammers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        REQUIRE(pthread_join(hammers[i].thread, NULL) == 0);
        CHECK(hammers[i].bad_count == 0);
        CHECK(hammers[i].counter == ROUNDS);
    }
}

static void four_threads_hammer_an_eager_device(void) {
    REQUIRE(set_up("memory=64MiB"));
    hammer_all();
}

static void four_threads_hammer_an_adversarial_device(void) {
    REQUIRE(set_up("memory=64MiB,mode=adversarial,seed=9"));
    hammer_all();
}

static atomic_int meeting;

/* Returns only when another thread's host function runs at the same time. */
static void meet(void *unused) {
    (void)unused;
    atomic_fetch_add(&meeting, 1);
    while (atomic_load(&meeting) < 2) {
    }
}

static void *meet_on_own_stream(void *unused) {
    (void)unused;
    cu_context context;
    cu_stream stream;
    if (soft->primary_ctx_retain(&context, 0) == CU_SUCCESS &&
        soft->ctx_push_current(context) == CU_SUCCESS &&
        soft->stream_create(&stream, CU_STREAM_UNORDERED) == CU_SUCCESS &&
        soft->launch_host_func(stream, meet, NULL) == CU_SUCCESS) {
        (void)soft->stream_synchronize(stream);
    }
    return NULL;
}

static void two_threads_run_their_streams_in_parallel(void) {
    REQUIRE(set_up("memory=16MiB"));
    pthread_t threads[2];
    atomic_store(&meeting, 0);
    for (int i = 0; i < 2; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, meet_on_own_stream, NULL) == 0);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0); /* a hang here is the failure */
    }
    CHECK(atomic_load(&meeting) == 2);
}

static atomic_int doze_state; /* 1: begun, 2: over */

static void doze(void *unused) {
    (void)unused;
    atomic_store(&doze_state, 1);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    atomic_store(&doze_state, 2);
}

static void *doze_on(void *stream) {
    cu_context context;
    if (soft->primary_ctx_retain(&context, 0) == CU_SUCCESS &&
        soft->ctx_push_current(context) == CU_SUCCESS) {
        (void)soft->launch_host_func(stream, doze, NULL);
    }
    return NULL;
}

static void wait_lasts_until_another_threads_op_is_over(void) {
    REQUIRE(set_up("memory=16MiB"));
    const cu_stream s = new_stream(CU_STREAM_UNORDERED);
    pthread_t thread;
    atomic_store(&doze_state, 0);
    REQUIRE(pthread_create(&thread, NULL, doze_on, s) == 0);
    while (atomic_load(&doze_state) == 0) {
    }
    CHECK(soft->stream_synchronize(s) == CU_SUCCESS);
    CHECK(atomic_load(&doze_state) == 2);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void armed_failure_reaches_a_stream_call(void) {
    REQUIRE(set_up("memory=16MiB"));
    const cu_stream s = new_stream(CU_STREAM_UNORDERED);
    const cu_event event = new_event();
    ashlar_driver_fail_at(driver, ASHLAR_DRIVER_FN_event_record, 1, CU_OUT_OF_MEMORY);
    CHECK(ASHLAR_DRIVER_CALL(driver, event_record, (event, s)) == CU_OUT_OF_MEMORY);
    CHECK(ASHLAR_DRIVER_CALL(driver, event_record, (event, s)) == CU_SUCCESS);
}

int main(void) {
    RUN(eager_work_runs_at_the_call);
    RUN(adversarial_work_runs_only_when_waited_for);
    RUN(event_wait_holds_the_consumer_until_the_producer_ran);
    RUN(without_a_wait_the_consumer_runs_first_for_some_seed);
    RUN(recording_again_does_not_move_an_earlier_wait);
    RUN(unrecorded_event_is_complete);
    RUN(chain_over_streams_and_devices_keeps_its_order);
    RUN(query_is_not_ready_at_first_and_polling_ends);
    RUN(legacy_stream_is_ordered_both_ways);
    RUN(unordered_stream_and_other_device_ignore_the_legacy_stream);
    RUN(wait_on_the_legacy_stream_holds_blocking_streams);
    RUN(copies_and_fills_run_in_stream_order);
    RUN(pinned_copies_are_asynchronous);
    RUN(copies_check_their_ranges);
    RUN(memory_taken_from_queued_work_is_an_illegal_address);
    RUN(mem_free_waits_for_the_whole_device);
    RUN(host_functions_may_not_call_the_device);
    RUN(destroy_with_work_pending_is_legal);
    RUN(handles_are_reused_newest_first);
    RUN(last_context_release_waits_for_its_work);
    RUN(destroyed_streams_work_runs_with_the_device);
    RUN(dead_and_foreign_handles_are_refused);
    RUN(failing_host_memory_is_reported_and_harmless);
    RUN(same_seed_gives_the_same_interleaving);
    RUN(four_threads_hammer_an_eager_device);
    RUN(four_threads_hammer_an_adversarial_device);
    RUN(two_threads_run_their_streams_in_parallel);
    RUN(wait_lasts_until_another_threads_op_is_over);
    RUN(armed_failure_reaches_a_stream_call);
    return check_report();
}
