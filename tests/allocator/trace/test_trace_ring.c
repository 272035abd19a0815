/*
 * test_trace_ring.c - that the ring keeps the newest events, whole and in order, while other
 * threads write and read.
 */
#include "allocator/trace/trace_ring.h"

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
    for (uint64_t n = atomic_load(&ring.next); n < end; n++) {
        ashlar__trace_put(&ring, &(ashlar_trace_event){.address = n});
    }
}

static size_t read_all(void) {
    return ashlar__trace_read(&ring, events, sizeof events / sizeof *events, &lost);
}

/* What was read is [first, first + count) without the one number `hole`. */
static void check_read(uint64_t first, size_t count, uint64_t hole) {
    const uint64_t end = atomic_load(&ring.next);
    CHECK_ZU(read_all(), count);
    CHECK_ZU(lost, end - count);
    for (size_t i = 0; i < count; i++) {
        const uint64_t want = first + i + (first + i >= hole);
        CHECK(events[i].sequence == want && events[i].address == want);
    }
}

CASE(a_field_comes_back_as_it_was) {
    const ashlar_trace_event want = {
        .sequence = 999,
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
    CHECK(got.sequence == 0 && got.time_ns == 42 && got.thread == ashlar__trace_thread());
    CHECK(got.address == want.address && got.bytes == want.bytes);
    CHECK(got.requested == want.requested && got.stream == want.stream);
    CHECK(got.action == want.action && got.tag == want.tag);
    ashlar__trace_finish(&ring);
    CHECK(ring.entries == NULL);
}

CASE(a_capacity_is_rounded_up) {
    static const size_t pairs[][2] = {{1, 1}, {2, 2}, {3, 4}, {8, 8}, {9, 16}, {1000, 1024}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        REQUIRE(ashlar__trace_init(&ring, pairs[i][0]) == ASHLAR_OK);
        CHECK_ZU(ring.capacity, pairs[i][1]);
        ashlar__trace_finish(&ring);
    }
    CHECK_FAILS(ashlar__trace_init(&ring, 0), ASHLAR_EINVAL, "0 events; give 1 .. 4294967296");
    CHECK(ashlar__trace_init(&ring, ((size_t)1 << 32) + 1) == ASHLAR_EINVAL);
    CHECK(ashlar__trace_init(&ring, SIZE_MAX) == ASHLAR_EINVAL);
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

/* A thread that stopped inside its put, here by hand. */
CASE_WITH(an_unfinished_event_is_left_out_and_its_slot_waited_for_by_nobody, set_up()) {
    put_to(6);
    atomic_store(&ring.entries[4].mark, 2 * 4 + 1);
    check_read(0, 5, 4);
    put_to(12);
    check_read(5, 7, UINT64_MAX);
    put_to(15); /* number 12 finds the entry taken */
    check_read(7, 7, 12);
    atomic_store(&ring.entries[4].mark, 2 * 4 + 2); /* the thread goes on */
    check_read(7, 7, 12);
    put_to(21); /* and number 20 finds it free */
    check_read(13, 8, UINT64_MAX);
}

CASE_WITH(what_is_overwritten_meanwhile_ends_the_gapless_part, set_up()) {
    put_to(CAPACITY);
    atomic_store(&ring.entries[2].mark, 2 * (2 + CAPACITY) + 1); /* while it is being read */
    check_read(3, 5, UINT64_MAX);
    atomic_store(&ring.entries[2].mark, 2 * (2 + CAPACITY) + 2);
    check_read(3, 5, UINT64_MAX);
}

CASE(a_ring_without_host_memory_is_none) {
    ashlar_trace before = {.capacity = 5};
    HOST_FAILS_AT(1, CHECK(ashlar__trace_init(&before, 100) == ASHLAR_EHOSTMEM));
    CHECK_HAS(ashlar_error_detail(), "128 events");
    CHECK(before.capacity == 5 && before.entries == NULL);
}

/* ---- threads ---- */

enum { WRITERS = 3, PUTS = 30000 };

static atomic_uint numbers[WRITERS]; /* each writer's own, plus 1; 0: not told yet */
static atomic_uint writers_left;
static long bad_reads, good_reads; /* the reader's, until it has ended */

/* All fields follow from the address, so that a torn event shows. */
static ashlar_trace_event make_event(uint64_t writer, uint64_t count) {
    const uint64_t address = writer << 32 | count;
    return (ashlar_trace_event){
        .address = address,
        .bytes = address * 3,
        .requested = ~address,
        .stream = address + 7,
        .action = (uint8_t)(address % 251),
        .tag = (uint8_t)(address % 241),
    };
}

static bool is_whole(const ashlar_trace_event *e) {
    const uint64_t writer = e->address >> 32;
    const ashlar_trace_event want = make_event(writer, e->address & UINT32_MAX);
    return writer < WRITERS && e->bytes == want.bytes && e->requested == want.requested &&
           e->stream == want.stream && e->action == want.action && e->tag == want.tag &&
           e->thread + 1 == atomic_load(&numbers[writer]);
}

/* Ascending numbers, and each writer's events in its own order. */
static bool is_in_order(size_t count) {
    uint64_t next[WRITERS] = {0};
    for (size_t i = 0; i < count; i++) {
        if (!is_whole(&events[i]) || (i > 0 && events[i].sequence <= events[i - 1].sequence)) {
            return false;
        }
        const uint64_t writer = events[i].address >> 32;
        const uint64_t number = events[i].address & UINT32_MAX;
        if (number < next[writer]) {
            return false;
        }
        next[writer] = number + 1;
    }
    return true;
}

static void *write_events(void *arg) {
    const size_t idx = *(const size_t *)arg;
    atomic_store(&numbers[idx], ashlar__trace_thread() + 1);
    for (uint64_t i = 0; i < PUTS; i++) {
        const ashlar_trace_event event = make_event(idx, i);
        ashlar__trace_put(&ring, &event);
    }
    atomic_fetch_sub(&writers_left, 1);
    return NULL;
}

static void *read_events(void *arg) {
    (void)arg;
    while (atomic_load(&writers_left) > 0) {
        const size_t count = read_all();
        bad_reads += count > CAPACITY || !is_in_order(count);
        good_reads += count > 0;
    }
    return NULL;
}

CASE_WITH(many_writers_and_a_reader_tear_nothing, set_up()) {
    static size_t idx[WRITERS] = {0, 1, 2};
    pthread_t reader;
    atomic_store(&writers_left, WRITERS);
    REQUIRE(pthread_create(&reader, NULL, read_events, NULL) == 0);
    run_threads(WRITERS, write_events, idx, sizeof *idx);
    CHECK(pthread_join(reader, NULL) == 0);
    CHECK(bad_reads == 0);
    printf("# %ld readings beside the writers\n", good_reads);
    const size_t count = read_all();
    CHECK(count > 0 && count <= CAPACITY && is_in_order(count));
    CHECK_ZU(lost + count, WRITERS * PUTS);
}

RUN_CASES()
