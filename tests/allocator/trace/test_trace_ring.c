/*
 * test_trace_ring.c - that the ring keeps the newest events, whole and in order.
 */
#include "allocator/trace/trace.h"

#include "tests/thread.h"
#include "allocator/base/host.h"

enum { CAPACITY = 8 };

static ashlar_trace ring;
static ashlar_trace_event events[4 * CAPACITY];
static uint64_t lost;

static uint64_t fake_now_ns(void) {
    static uint64_t now = 41;
    return ++now;
}

static void tear_down(void) {
    ashlar__trace_finish(&ring);
}

static bool set_up(void) {
    return ashlar__trace_init(&ring, CAPACITY) == ASHLAR_OK && check_at_end(tear_down);
}

/* Event number n, told by its address. */
static void put_to(uint64_t end) {
    for (uint64_t n = ring.count; n < end; n++) {
        ashlar__trace_put(&ring, &(ashlar_trace_event){.address = n});
    }
}

static size_t read_all(void) {
    return ashlar__trace_read(&ring, events, sizeof events / sizeof *events, &lost);
}

/* What was read is [first, first + count). */
static void check_read(uint64_t first, size_t count) {
    CHECK_ZU(read_all(), count);
    CHECK_ZU(lost, ring.count - count);
    for (size_t i = 0; i < count; i++) {
        CHECK(events[i].address == first + i);
    }
}

CASE(a_field_comes_back_as_it_was) {
    const ashlar_trace_event want = {
        .time_ns = 999,
        .address = UINT64_MAX,
        .bytes = UINT64_MAX - 1,
        .requested = UINT64_MAX - 2,
        .stream = UINT64_MAX - 3,
        .thread = 999,
        .action = 0xa5,
        .tag = 0xc3,
    };
    REQUIRE(set_up());
    ring.now_ns = fake_now_ns;
    ashlar__trace_put(&ring, &want);
    CHECK_ZU(read_all(), 1);
    const ashlar_trace_event got = events[0];
    CHECK(got.time_ns == 42 && got.thread == ashlar__trace_thread());
    CHECK(got.address == want.address && got.bytes == want.bytes);
    CHECK(got.requested == want.requested && got.stream == want.stream);
    CHECK(got.action == want.action && got.tag == want.tag);
    ashlar__trace_finish(&ring);
    CHECK(ring.events == NULL);
}

CASE(a_capacity_has_bounds) {
    CHECK_FAILS(ashlar__trace_init(&ring, 0), ASHLAR_EINVAL, "0 events; give 1 .. 4294967296");
    CHECK(ashlar__trace_init(&ring, ((size_t)1 << 32) + 1) == ASHLAR_EINVAL);
    CHECK(ashlar__trace_init(&ring, SIZE_MAX) == ASHLAR_EINVAL);
}

CASE_WITH(a_ring_that_is_not_full_has_everything, set_up()) {
    check_read(0, 0);
    put_to(1);
    check_read(0, 1);
    put_to(CAPACITY);
    check_read(0, CAPACITY);
}

CASE_WITH(a_full_ring_has_the_newest, set_up()) {
    for (uint64_t end = CAPACITY + 1; end < 4 * CAPACITY; end++) {
        put_to(end);
        check_read(end - CAPACITY, CAPACITY);
    }
}

CASE_WITH(a_small_array_gets_the_newest, set_up()) {
    put_to(11);
    events[3].address = 77;
    CHECK_ZU(ashlar__trace_read(&ring, events, 3, &lost), 3);
    CHECK(events[0].address == 8 && events[2].address == 10 && events[3].address == 77);
    CHECK_ZU(lost, 8);
    CHECK_ZU(ashlar__trace_read(&ring, NULL, 0, &lost), 0);
    CHECK_ZU(lost, 11);
}

CASE(a_ring_without_host_memory_is_none) {
    ashlar_trace before = {.capacity = 5};
    HOST_FAILS_AT(1, CHECK(ashlar__trace_init(&before, 100) == ASHLAR_EHOSTMEM));
    CHECK_HAS(ashlar_error_detail(), "100 events");
    CHECK(before.capacity == 5);
}

/* ---- threads ---- */

enum { THREADS = 3 };

static void *number_thread(void *out) {
    *(uint32_t *)out = ashlar__trace_thread();
    return NULL;
}

CASE(each_thread_has_its_own_number_below_their_count) {
    uint32_t numbers[THREADS];
    bool seen[THREADS + 1] = {false};
    seen[ashlar__trace_thread()] = true;
    run_threads(THREADS, number_thread, numbers, sizeof *numbers);
    for (size_t i = 0; i < THREADS; i++) {
        REQUIRE(numbers[i] <= THREADS);
        CHECK(!seen[numbers[i]]);
        seen[numbers[i]] = true;
    }
}

RUN_CASES()
