/*
 * test_replay.c - that a log is done again as it was, on its threads and streams and in its order,
 * and that what goes wrong is found and named by its line.
 */
#include "bench/replay/replay.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "allocator/device/device_impl.h"
#include "allocator/driver/driver.h"
#include "tests/bench/replay/rmm_fixture.h"

#define MIB ((size_t)1 << 20)

enum { MAX_CALLS = 64 };

/* A call that the replay made. */
typedef struct call {
    char what; /* a: alloc, f: free, o: free_on, c: check */
    size_t bytes;
    ashlar_stream stream;
    pthread_t thread;
} call;

/* An allocator with faults: what was called, and what is to go wrong. */
static call calls[MAX_CALLS];
static size_t call_count;
static size_t bad_call;           /* from 1; 0: none goes wrong */
static ashlar_status bad_status;  /* what the bad call returns without doing anything; or */
static const ptrdiff_t *bad_move; /* the bad alloc moves its block by this */

static bool note(char what, size_t bytes, ashlar_stream stream) {
    if (call_count < MAX_CALLS) {
        calls[call_count] = (call){what, bytes, stream, pthread_self()};
    }
    call_count++;
    return call_count == bad_call;
}

static ashlar_status go_wrong(void) {
    return bad_status == ASHLAR_OK ? ASHLAR_OK : ashlar__fail(bad_status, "as the test wants it");
}

static ashlar_status test_alloc(ashlar_allocator *a, size_t bytes, ashlar_stream stream,
                                void **out) {
    const bool is_bad = note('a', bytes, stream);
    if (is_bad && bad_move == NULL) {
        return go_wrong();
    }
    const ashlar_status status = ashlar_alloc(a, bytes, stream, out);
    if (is_bad && bad_move != NULL && status == ASHLAR_OK) {
        *out = (char *)*out + *bad_move;
    }
    return status;
}

static ashlar_status test_free(ashlar_allocator *a, void *ptr) {
    return note('f', 0, NULL) ? go_wrong() : ashlar_free(a, ptr);
}

static ashlar_status test_free_on(ashlar_allocator *a, void *ptr, ashlar_stream stream) {
    return note('o', 0, stream) ? go_wrong() : ashlar_free_on(a, ptr, stream);
}

static ashlar_status test_check(ashlar_allocator *a) {
    return note('c', 0, NULL) ? go_wrong() : ashlar_allocator_check(a);
}

static const ashlar_replay_calls test_calls = {
    .alloc = test_alloc,
    .free = test_free,
    .free_on = test_free_on,
    .check = test_check,
};

static ashlar_replay_config config = {.passes = 1};
static ashlar_replay_result result;

/* Parse a log and replay it on a device of 64 MiB. */
static ashlar_status replay(const char *text) {
    call_count = 0;
    result = (ashlar_replay_result){.allocations = 99};
    if (parse(text) != ASHLAR_OK) {
        return ASHLAR_STATUS_COUNT;
    }
    config.calls = &test_calls;
    config.memory_bytes = 64 * MIB;
    return ashlar__replay_run(log_of, &config, &result);
}

static ashlar_status replay_wrong(const char *text, size_t at_call, ashlar_status with) {
    bad_call = at_call;
    bad_status = with;
    const ashlar_status status = replay(text);
    bad_call = 0;
    return status;
}

static bool calls_were(const char *want) {
    bool same = call_count == strlen(want);
    for (size_t i = 0; same && i < call_count; i++) {
        same = calls[i].what == want[i];
    }
    return same;
}

/* ---- figures ---- */

CASE(figures_are_those_of_the_log) {
    REQUIRE(replay(HEADER "1,0,allocate,0x10,3000000,0\n1,0,allocate,0x20,1000,0\n"
                          "1,0,free,0x10,3000000,0\n1,0,allocate,0x30,2000000,0\n"
                          "1,0,allocate failure,,5000000,0\n") == ASHLAR_OK);
    CHECK(calls_were("aafaffc"));
    CHECK(result.peak_live == 3001000);
    CHECK(result.peak_reserved == (4 + 2) * MIB);
    CHECK_ZU(result.allocations, 3);
    CHECK_ZU(result.failures, 0);
    CHECK(strcmp(result.failure, "") == 0);
    /* The first block maps memory, and the second, which is small, some of its own; the third
     * takes the first's place. */
    CHECK_NEAR(result.hit_rate, 1.0 / 3.0, 0, 1e-15);
    CHECK(result.driver_calls >= 3 && result.driver_calls < 20);
}

/* ---- threads and streams ---- */

CASE(streams_are_those_of_the_log) {
    REQUIRE(replay(HEADER "1,0,allocate,0x10,1,0\n1,0,allocate,0x20,2,0x50\n"
                          "1,0,allocate,0x30,3,0x60\n1,0,allocate,0x40,4,0x50\n"
                          "1,0,free,0x10,1,0\n1,0,free,0x20,2,0x50\n1,0,free,0x30,3,0x50\n"
                          "1,0,free,0x40,4,0\n") == ASHLAR_OK);
    CHECK(calls_were("aaaaffooc"));
    const ashlar_stream second = calls[1].stream, third = calls[2].stream;
    CHECK(calls[0].stream == NULL);
    CHECK(second != NULL && third != NULL && second != third);
    CHECK(calls[3].stream == second);
    CHECK(calls[6].stream == second && calls[7].stream == NULL);
    ashlar_driver *driver = NULL;
    REQUIRE(ashlar__driver_open_soft(&driver) == ASHLAR_OK);
    const uint64_t made = atomic_load(&driver->calls[ASHLAR_DRIVER_FN_stream_create]);
    CHECK(made >= 2 && made == atomic_load(&driver->calls[ASHLAR_DRIVER_FN_stream_destroy]));
}

CASE(threads_take_turns_in_the_order_of_the_log) {
    static const int threads[] = {0, 1, 0, 0, 2, 1, 1, 2, 0, 1};
    REQUIRE(replay(HEADER "70,0,allocate,0x1,1,0\n80,0,allocate,0x2,2,0\n70,0,allocate,0x3,3,0\n"
                          "70,0,allocate,0x4,4,0\n90,0,allocate,0x5,5,0\n80,0,allocate,0x6,6,0\n"
                          "80,0,allocate,0x7,7,0\n90,0,allocate,0x8,8,0\n70,0,allocate,0x9,9,0\n"
                          "80,0,allocate,0x10,10,0\n") == ASHLAR_OK);
    CHECK(calls_were("aaaaaaaaaaffffffffffc"));
    for (size_t i = 0; i < 10; i++) {
        CHECK_ZU(calls[i].bytes, i + 1);
        CHECK(!pthread_equal(calls[i].thread, pthread_self()));
        for (size_t j = 0; j < i; j++) {
            CHECK((threads[i] == threads[j]) ==
                  (pthread_equal(calls[i].thread, calls[j].thread) != 0));
        }
    }
}

/* The thread in the middle fails while the others wait for turns that will not come. */
static const char three_threads[] =
    HEADER "7,0,allocate,0x1,1,0\n8,0,allocate,0x2,1,0\n9,0,allocate,0x3,1,0\n"
           "8,0,free,0x2,1,0\n7,0,free,0x1,1,0\n9,0,free,0x3,1,0\n";

CASE(a_failure_ends_every_thread) {
    CHECK(replay_wrong(three_threads, 4, ASHLAR_EPOINTER) == ASHLAR_EPOINTER);
    CHECK(calls_were("aaaf"));
    CHECK_HAS(ashlar_error_detail(), "stone.csv:5: as the test wants it");
}

/* ---- passes ---- */

static ashlar_status replay_passes(const char *text, size_t passes, uint64_t *reserved) {
    config.passes = passes;
    config.reserved = reserved;
    const ashlar_status status = replay(text);
    config.passes = 1;
    config.reserved = NULL;
    return status;
}

/* Two streams and two threads; the first block stays, two are freed on the other's stream. */
static const char two_streams[] =
    HEADER "1,0,allocate,0x10,1,0\n1,0,allocate,0x20,2,0x50\n2,0,allocate,0x30,3,0x50\n"
           "1,0,free,0x20,2,0\n2,0,allocate,0x20,4,0\n2,0,free,0x30,3,0x50\n1,0,free,0x20,0,0x50\n";

CASE(every_pass_keeps_the_order_of_each_stream_and_thread) {
    enum { PASS = 9 };
    REQUIRE(replay_passes(two_streams, 3, NULL) == ASHLAR_OK);
    CHECK(calls_were("aaaoafofc"
                     "aaaoafofc"
                     "aaaoafofc"));
    CHECK_ZU(result.allocations, 12);
    const ashlar_stream second = calls[1].stream;
    static const bool is_second[] = {false, true, true, false, false, true, true};
    static const size_t threads[] = {0, 0, 2, 0, 2, 2, 0, 0};
    CHECK(calls[0].stream == NULL && second != NULL);
    for (size_t i = 0; i < (size_t)3 * PASS; i++) {
        const size_t in_pass = i % PASS;
        CHECK(calls[i].what == 'c' ||
              pthread_equal(calls[i].thread, calls[threads[in_pass]].thread));
        CHECK(calls[i].bytes == calls[in_pass].bytes);
        CHECK(calls[i].what == 'f' || calls[i].what == 'c' ||
              calls[i].stream == (is_second[in_pass] ? second : NULL));
    }
}

/* ---- failures ---- */

static const char too_large[] =
    HEADER "1,0,allocate,0x10,60000000,0\n\n1,0,allocate,0x20,60000000,0\n"
           "1,0,allocate,0x30,50000000,0\n1,0,free,0x20,60000000,0\n"
           "1,0,free,0x10,60000000,0\n1,0,allocate,0x20,2000000,0\n";

CASE(failed_allocations_are_counted_and_their_frees_left_out) {
    REQUIRE(replay(too_large) == ASHLAR_OK);
    CHECK(calls_were("aaafafc"));
    CHECK_ZU(result.failures, 2);
    CHECK_ZU(result.allocations, 4);
    CHECK(result.peak_live == 60000000);
    CHECK_HAS(result.failure, "stone.csv:4: ");
    CHECK_HAS(result.failure, "60000000 bytes asked for");
    CHECK_NEAR(result.hit_rate, 0.5, 0, 1e-15);
}

CASE(a_failed_allocation_stops_it_where_that_is_asked_for) {
    config.stops_at_a_failure = true;
    const ashlar_status status = replay(too_large);
    config.stops_at_a_failure = false;
    CHECK(status == ASHLAR_ENOMEM);
    CHECK(calls_were("aa"));
    CHECK_HAS(ashlar_error_detail(), "stone.csv:4: ");
    CHECK_ZU(result.allocations, 99); /* the result is as it was */
}

static const char pair[] = HEADER "1,0,allocate,0x10,4096,0\n1,0,allocate,0x20,4096,0\n"
                                  "1,0,free,0x10,4096,0\n1,0,free,0x20,4096,0x7\n";

CASE(an_overlapping_block_is_found) {
    static const ptrdiff_t moves[] = {-4096, -1};
    for (size_t i = 0; i < 2; i++) {
        bad_move = &moves[i];
        CHECK(replay_wrong(pair, 2, ASHLAR_OK) == ASHLAR_EFORMAT);
        bad_move = NULL;
        CHECK(calls_were("aa"));
        CHECK_HAS(ashlar_error_detail(), "stone.csv:3: ");
        CHECK_HAS(ashlar_error_detail(), "overlaps a live one of 4096");
    }
    CHECK(replay(pair) == ASHLAR_OK); /* the control */
}

CASE(the_end_of_the_log_is_checked) {
    static const char left[] = HEADER "1,0,allocate,0x10,4096,0\n1,0,allocate failure,,1,0\n";
    CHECK(replay_wrong(left, 3, ASHLAR_EFORMAT) == ASHLAR_EFORMAT); /* the check */
    CHECK_HAS(ashlar_error_detail(), "stone.csv:3: at the end: as the test");
    CHECK(replay_wrong(left, 2, ASHLAR_EPOINTER) == ASHLAR_EPOINTER); /* the free of what is left */
    CHECK_HAS(ashlar_error_detail(), "stone.csv:3: at the end: as the test");
    CHECK(calls_were("af"));
    CHECK(replay_wrong(left, 2, ASHLAR_OK) == ASHLAR_EFORMAT); /* a free that frees nothing */
    CHECK_HAS(ashlar_error_detail(), "1 blocks live after the last was freed");
}

/* ---- capacity ---- */

static void check_capacity(const char *text, size_t want) {
    size_t capacity = 0;
    REQUIRE(parse(text) == ASHLAR_OK);
    config.calls = &ashlar__replay_calls_of_ashlar;
    config.memory_bytes = 64 * MIB;
    REQUIRE(ashlar__replay_run(log_of, &config, &result) == ASHLAR_OK && result.failures == 0);
    CHECK(ashlar__replay_find_capacity(log_of, &config, &result, &capacity) == ASHLAR_OK);
    CHECK_ZU(capacity, want);
    /* By trying them all. */
    size_t least = 0;
    do {
        least += ASHLAR_REPLAY_GRAIN_BYTES;
        config.memory_bytes = least;
        REQUIRE(ashlar__replay_run(log_of, &config, &result) == ASHLAR_OK);
    } while (result.failures > 0);
    CHECK_ZU(capacity, least);
}

CASE(the_smallest_capacity_is_found) {
    check_capacity(HEADER "1,0,allocate,0x10,1,0\n", 2 * MIB);
    check_capacity(HEADER "1,0,allocate failure,,1,0\n", 2 * MIB);
    check_capacity(HEADER "1,0,allocate,0x10,4194304,0\n", 4 * MIB);
    check_capacity(HEADER "1,0,allocate,0x10,4194305,0\n", 6 * MIB);
    check_capacity(HEADER "1,0,allocate,0x10,67108864,0\n", 64 * MIB);
    /* A hole of 4 MiB that nothing fits into: its memory is moved behind the block of 6 MiB. */
    check_capacity(HEADER "1,0,allocate,0x10,4194304,0\n1,0,allocate,0x20,2097152,0\n"
                          "1,0,free,0x10,0,0\n1,0,allocate,0x30,6291456,0\n",
                   8 * MIB);
}

/* ---- where blocks were ---- */

enum { BLOCKS = 3 };

static const char three_blocks[] = HEADER "1,0,allocate,0x10,1048576,0\n1,0,allocate failure,,5,0\n"
                                          "1,0,allocate,0x20,2097152,0\n1,0,free,0x10,0,0\n"
                                          "1,0,allocate,0x10,1048576,0\n1,0,free,0x20,0,0\n";

/* The second block does not fit; the search for a capacity, of other replays, changes nothing. */
CASE(a_replay_says_where_each_block_was) {
    uintptr_t addresses[BLOCKS] = {1, 1, 1};
    ashlar_replay_config own = {.calls = &ashlar__replay_calls_of_ashlar,
                                .passes = 1,
                                .memory_bytes = 2 * MIB,
                                .addresses = addresses};
    ashlar_replay_result got;
    size_t capacity;
    REQUIRE(parse(three_blocks) == ASHLAR_OK);
    CHECK(ashlar__replay_run(log_of, &own, &got) == ASHLAR_OK && got.failures == 1);
    CHECK(addresses[0] > 1 && addresses[1] == 1 && addresses[2] == addresses[0]);
    own.memory_bytes = 64 * MIB;
    CHECK(ashlar__replay_run(log_of, &own, &got) == ASHLAR_OK && got.failures == 0);
    CHECK(addresses[0] > 1 && addresses[1] > 1 && addresses[1] != addresses[0]);
    memset(addresses, 0, sizeof addresses);
    CHECK(ashlar__replay_find_capacity(log_of, &own, &got, &capacity) == ASHLAR_OK);
    CHECK(addresses[0] == 0 && addresses[1] == 0 && addresses[2] == 0);
}

RUN_CASES()
