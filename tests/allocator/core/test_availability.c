/*
 * test_availability.c - memory that is free is served: to captures and after them, whoever holds
 * it, behind streams that have ended, and without waiting for work that was queued after it was
 * freed.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE
#include "tests/allocator/core/graph_pool_fixture.h"

#include <pthread.h>
#include <time.h>

/* ---- captures ---- */

/* Capture one request of `bytes` bytes that is freed again; the pool stays, its capture over. */
static ashlar_status capture_one(ashlar_stream stream, size_t bytes, ashlar_graph_pool **pool,
                                 cu_graph_exec *exec) {
    void *out = NULL;
    *pool = pool_begin(stream);
    capture_begin(stream);
    const ashlar_status status = ashlar_alloc(allocator, bytes, stream, &out);
    if (status == ASHLAR_OK) {
        give(out);
    }
    *exec = capture_end(stream);
    pool_end(*pool);
    return status;
}

static void serve_capture_after(ashlar_stream warmed_up) {
    ashlar_graph_pool *pool;
    cu_graph_exec exec;
    unsigned char *p = take(ALL, warmed_up);
    use(warmed_up, p, ALL, 1);
    give(p);
    wait_for(warmed_up);
    CHECK(capture_one(streams[0], BIG, &pool, &exec) == ASHLAR_OK);
    drop_graph(exec);
    pool_release(pool, streams[0]);
}

CASE_WITH(a_capture_has_what_its_stream_has_freed, set_up_streams("16MiB")) {
    serve_capture_after(streams[0]);
}

CASE_WITH(a_capture_has_what_the_default_stream_has_freed, set_up_streams("16MiB")) {
    serve_capture_after(NULL);
}

CASE_WITH(a_capture_has_what_lies_in_caches_of_the_default_stream,
          set_up_cached_streams("16MiB", 8 * MIB)) {
    serve_capture_after(NULL);
}

CASE_WITH(a_captures_memory_serves_the_next_one, set_up("memory=32MiB")) {
    for (int i = 0; i < 100; i++) {
        ashlar_graph_pool *pool;
        cu_graph_exec exec;
        CHECK(capture_one(streams[0], BIG, &pool, &exec) == ASHLAR_OK);
        launch_graph(exec, streams[0]);
        drop_graph(exec);
        pool_release(pool, streams[0]);
        wait_for(streams[0]);
        CHECK_ZU(stats_now().reserved_bytes, BIG);
    }
}

/* A graph's memory waits for the last launch, also where its pool was released before that. */
CASE_WITH(a_released_pool_waits_for_its_last_launch, set_up_streams("16MiB")) {
    ashlar_graph_pool *pool = pool_begin(streams[0]);
    static payload node;
    capture_begin(streams[0]);
    unsigned char *p = take(ALL, streams[0]);
    node = (payload){.ptr = p, .bytes = ALL, .value = 7};
    use_in_graph(streams[0], &node);
    give(p);
    cu_graph_exec exec = capture_end(streams[0]);
    pool_end(pool);
    launch_graph(exec, streams[1]);
    drop_graph(exec);
    pool_release(pool, streams[1]);
    unsigned char *q = take(ALL, streams[2]); /* after a wait */
    queue_write(streams[2], q, ALL, 9);
    wait_for(streams[2]);
    wait_for(streams[1]);
    queue_verify(streams[2], q, ALL, 9);
    wait_for(streams[2]);
    CHECK(atomic_load(&payload_bad_count) == 0);
}

static void capture_many(int rounds, bool waits) {
    for (int i = 0; i < rounds; i++) {
        ashlar_graph_pool *pool;
        cu_graph_exec exec;
        CHECK(capture_one(streams[0], 1 * MIB, &pool, &exec) == ASHLAR_OK);
        drop_graph(exec);
        pool_release(pool, streams[0]);
        if (waits) {
            wait_for(streams[0]);
        }
    }
    CHECK(stats_now().reserved_bytes <= 4 * MIB);
}

CASE_WITH(pools_leave_nothing_behind, set_up("memory=64MiB")) {
    capture_many(1000, false);
}

CASE_WITH(pools_leave_nothing_behind_after_waits, set_up("memory=64MiB")) {
    capture_many(1000, true);
}

CASE_WITH(pools_use_up_no_addresses, set_up("memory=80GiB")) {
    capture_many(1000, false);
}

/* S writes p, T comes behind that and reads p, p is freed on T, and S asks again. */
CASE_WITH(a_last_use_that_was_named_is_kept_in_a_capture,
          set_up("mode=adversarial,seed=3,memory=16MiB")) {
    static payload write_p, verify_p, write_q;
    const ashlar_stream s = streams[0], t = streams[1];
    ashlar_event forked = NULL, joined = NULL;
    CHECK(ashlar_event_create(device, &forked) == ASHLAR_OK);
    CHECK(ashlar_event_create(device, &joined) == ASHLAR_OK);
    ashlar_graph_pool *pool = pool_begin(s);
    capture_begin(s);
    unsigned char *p = take(4096, s);
    write_p = (payload){.ptr = p, .bytes = 4096, .value = 1};
    verify_p = write_p;
    queue_node(s, payload_write, &write_p);
    CHECK(ashlar_event_record(device, forked, s) == ASHLAR_OK);
    CHECK(ashlar_stream_wait(device, t, forked) == ASHLAR_OK);
    queue_node(t, payload_verify, &verify_p);
    give_on(p, t);
    unsigned char *q = take(4096, s);
    CHECK(q != p);
    write_q = (payload){.ptr = q, .bytes = 4096, .value = 2};
    queue_node(s, payload_write, &write_q);
    CHECK(ashlar_event_record(device, joined, t) == ASHLAR_OK);
    CHECK(ashlar_stream_wait(device, s, joined) == ASHLAR_OK);
    cu_graph_exec exec = capture_end(s);
    pool_end(pool);
    for (int i = 0; i < 20; i++) {
        launch_graph(exec, s);
        wait_for(s);
    }
    CHECK(atomic_load(&payload_bad_count) == 0);
    drop_graph(exec);
    give(q);
    pool_release(pool, s);
    ashlar_event_destroy(device, forked);
    ashlar_event_destroy(device, joined);
}

/* ---- several allocators of one device ---- */

static ashlar_allocator *make_second(bool shares) {
    ashlar_config config;
    ashlar_allocator *second = NULL;
    ashlar_config_init(&config);
    config.shares_memory = shares;
    CHECK(ashlar_allocator_create_with(device, &config, &second) == ASHLAR_OK);
    return second;
}

static void *take_of(ashlar_allocator *a, size_t bytes, ashlar_stream stream) {
    void *out = NULL;
    CHECK(ashlar_alloc(a, bytes, stream, &out) == ASHLAR_OK);
    return out;
}

static void have_given_by_first(bool shares) {
    ashlar_allocator *second = make_second(shares);
    give(take(ALL, streams[0]));
    wait_for(streams[0]);
    CHECK(take_of(second, BIG, streams[1]) != NULL);
    CHECK(stats_now().reserved_bytes >= ALL - 2 * BIG); /* no more than was wanted */
    ashlar_allocator_destroy(second);
}

CASE_WITH(an_allocator_has_what_another_leaves_idle, set_up("memory=16MiB")) {
    have_given_by_first(false);
}

CASE_WITH(an_allocator_that_shares_has_what_another_leaves_idle, set_up("memory=16MiB")) {
    have_given_by_first(true);
}

CASE_WITH(an_allocator_has_what_one_that_shares_leaves_idle, set_up("memory=16MiB")) {
    ashlar_allocator *second = make_second(true);
    CHECK(ashlar_free(second, take_of(second, ALL, streams[1])) == ASHLAR_OK);
    wait_for(streams[1]);
    CHECK(take(BIG, streams[0]) != NULL);
    ashlar_allocator_destroy(second);
}

/* The first has freed all of the device, behind work. */
static ashlar_allocator *make_second_behind_work(void) {
    ashlar_allocator *second = make_second(false);
    unsigned char *p = take(ALL, streams[0]);
    use(streams[0], p, ALL, 1);
    give(p);
    return second;
}

CASE_WITH(an_allocator_waits_for_what_another_has_freed, set_up_streams("16MiB")) {
    ashlar_allocator *second = make_second_behind_work();
    CHECK(take_of(second, BIG, streams[1]) != NULL);
    CHECK(atomic_load(&payload_bad_count) == 0);
    ashlar_allocator_destroy(second);
}

CASE_WITH(a_reservation_has_what_another_leaves_idle, set_up_streams("16MiB")) {
    ashlar_allocator *second = make_second_behind_work();
    CHECK(ashlar_allocator_reserve(second, BIG) == ASHLAR_OK);
    CHECK_FAILS(ashlar_allocator_reserve(second, 2 * ALL), ASHLAR_ENOMEM, "");
    ashlar_allocator_destroy(second);
}

CASE_WITH(two_allocators_by_turns_never_fail, set_up_cached("memory=16MiB", 8 * MIB)) {
    ashlar_allocator *second = make_second(false);
    for (int i = 0; i < 100; i++) {
        ashlar_allocator *a = i % 2 == 0 ? allocator : second;
        void *small = take_of(a, 4096, streams[i % 3]);
        CHECK(ashlar_free(a, take_of(a, ALL - 2 * MIB, streams[i % STREAMS])) == ASHLAR_OK);
        CHECK(ashlar_free(a, small) == ASHLAR_OK);
    }
    ashlar_allocator_destroy(second);
}

CASE_WITH(a_sealed_allocator_keeps_its_memory, set_up("memory=16MiB")) {
    ashlar_allocator *second = make_second(false);
    void *out = NULL;
    give(take(ALL, streams[0]));
    wait_for(streams[0]);
    CHECK(ashlar_allocator_set_seal_policy(allocator, ASHLAR_SEAL_ERROR, NULL, NULL) == ASHLAR_OK);
    ashlar_allocator_seal(allocator);
    CHECK_FAILS(ashlar_alloc(second, BIG, streams[1], &out), ASHLAR_ENOMEM,
                "1 other allocator of the device holds 16777216 bytes, 16777216 of them idle");
    CHECK(take(ALL, streams[0]) != NULL);
    ashlar_allocator_destroy(second);
}

static atomic_bool is_over;
static atomic_int failure_count; /* of the other thread, which makes no checks */

static void *begin_and_end_pools(void *a) {
    while (!atomic_load(&is_over)) {
        ashlar_graph_pool *pool = NULL;
        if (ashlar_graph_pool_begin(a, streams[0], &pool) != ASHLAR_OK) {
            atomic_fetch_add(&failure_count, 1);
            return NULL;
        }
        ashlar_graph_pool_end(pool);
        if (ashlar_graph_pool_release(pool, streams[0]) != ASHLAR_OK) {
            atomic_fetch_add(&failure_count, 1);
        }
    }
    return NULL;
}

/* A request asks all streams while another allocator's captures come and go. */
CASE_WITH(captures_of_another_allocator_disturb_no_request, set_up("memory=16MiB")) {
    enum { ROUNDS = 2000 };
    ashlar_allocator *second = make_second(false);
    pthread_t thread;
    atomic_store(&is_over, false);
    CHECK(pthread_create(&thread, NULL, begin_and_end_pools, second) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        give(take(8 * MIB, NULL));
        give(take(8 * MIB, streams[2]));
        give(take(ALL, streams[3]));
    }
    atomic_store(&is_over, true);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(atomic_load(&failure_count) == 0);
    ashlar_allocator_destroy(second);
}

/* ---- streams that are stuck until a later work of another one ---- */

/* A gate keeps its stream busy until it is opened; if that takes so long, the test has failed. */
enum { GATE_MS = 3000 };
static atomic_bool is_open, was_stuck;

static void stand_at_gate(void *unused) {
    (void)unused;
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int ms = 0; !atomic_load(&is_open); ms++) {
        if (ms == GATE_MS) {
            atomic_store(&was_stuck, true);
            return;
        }
        (void)nanosleep(&pause, NULL);
    }
}

static void open_gate(void *unused) {
    (void)unused;
    atomic_store(&is_open, true);
}

/* Post a receive on `stream`, which ends once what is sent has come. */
static void receive(ashlar_stream stream) {
    atomic_store(&is_open, false);
    atomic_store(&was_stuck, false);
    CHECK(ashlar_launch(device, stream, stand_at_gate, NULL, 0) == ASHLAR_OK);
}

static void send_and_check(ashlar_stream stream, ashlar_stream receiver) {
    CHECK(ashlar_launch(device, stream, open_gate, NULL, 0) == ASHLAR_OK);
    wait_for(stream);
    CHECK(!atomic_load(&was_stuck));
    wait_for(receiver);
}

#define OVERLAPPING "mode=overlap,memory=16MiB"

CASE_WITH(no_request_waits_for_what_a_synchronized_stream_did_later, set_up(OVERLAPPING)) {
    const ashlar_stream receiver = streams[1], compute = streams[2];
    unsigned char *p = take(ALL, receiver);
    queue_write(receiver, p, ALL, 1);
    give(p);
    wait_for(receiver);
    receive(receiver);
    CHECK(take(BIG, compute) != NULL);
    send_and_check(compute, receiver);
}

static void sleep_ms(void *args) {
    const int *ms = args;
    (void)nanosleep(&(struct timespec){.tv_nsec = *ms * 1000000L}, NULL);
}

static void be_slow(ashlar_stream stream, int ms) {
    CHECK(ashlar_launch(device, stream, sleep_ms, &ms, sizeof ms) == ASHLAR_OK);
}

CASE_WITH(a_wait_in_stream_is_for_the_free_and_not_for_what_came_later, set_up(OVERLAPPING)) {
    const ashlar_stream receiver = streams[1], compute = streams[2];
    unsigned char *p = take(8 * MIB, receiver), *q = take(8 * MIB, streams[3]);
    be_slow(receiver, 50);
    be_slow(streams[3], 50);
    give(p);
    receive(receiver);
    give(q);
    CHECK(take(8 * MIB, compute) != NULL);
    send_and_check(compute, receiver);
}

/* What is free lies in pieces, so the request waits on the host: two streams of three will do. */
static void wait_on_host(int receiver_at, int one, int two) {
    const ashlar_stream receiver = streams[receiver_at], compute = streams[3];
    unsigned char *pieces[8];
    for (int i = 0; i < 8; i++) {
        const ashlar_stream stream = i > 5 ? receiver : streams[i % 2 != 0 ? one : two];
        pieces[i] = take(2 * MIB, stream);
        queue_write(stream, pieces[i], 2 * MIB, (unsigned char)i);
    }
    receive(receiver);
    give(pieces[6]); /* behind it */
    give(pieces[0]);
    give(pieces[4]);
    give(pieces[1]);
    give(pieces[5]);
    CHECK(take(8 * MIB, compute) != NULL);
    send_and_check(compute, receiver);
}

/*
 * The gap of streams[0] begins where memory has gone to streams[1], and ends in a part of a handle;
 * streams[2] has too little. `left` bytes are left of the device when `bytes` are asked for, which
 * then fit there.
 */
static void take_in_the_midst(size_t left, size_t bytes) {
    unsigned char *front = take(4 * MIB, streams[0]), *midst = take(3 * MIB / 2, streams[0]);
    unsigned char *live = take(5 * MIB / 2, streams[0]);
    unsigned char *small = take(MIB, streams[2]), *pending = take(MIB, streams[2]);
    CHECK(ashlar_allocator_set_limit(allocator, 12 * MIB) == ASHLAR_OK);
    give(front);
    give(midst);
    wait_for(streams[0]);
    unsigned char *gathered = take(6 * MIB, streams[1]);
    use(streams[2], pending, MIB, 1);
    give(pending);
    CHECK(ashlar_allocator_set_limit(allocator, 12 * MIB + left) == ASHLAR_OK);
    const size_t waits = CALLS(event_synchronize);
    give(take(bytes, streams[1]));
    CHECK_ZU(CALLS(event_synchronize), waits);
    give(gathered);
    give(small);
    give(live);
}

CASE_WITH(what_is_left_in_the_midst_of_a_gap_comes_before_a_wait, set_up_streams("14MiB")) {
    take_in_the_midst(2 * MIB, 3 * MIB);
}

CASE_WITH(so_it_does_with_no_memory_left, set_up_streams("12MiB")) {
    take_in_the_midst(0, 3 * MIB / 2);
}

CASE_WITH(the_host_waits_for_whichever_stream_is_done, set_up(OVERLAPPING)) {
    wait_on_host(0, 1, 2);
}

CASE_WITH(the_host_waits_for_whichever_stream_is_done_in_another_order, set_up(OVERLAPPING)) {
    wait_on_host(2, 0, 1);
}

/* Of this allocator, what is freed is behind the receiver. */
CASE_WITH(the_host_waits_for_another_allocators_streams_too, set_up(OVERLAPPING)) {
    ashlar_allocator *second = make_second(false);
    const ashlar_stream receiver = streams[1], compute = streams[3];
    unsigned char *p = take(6 * MIB, receiver);
    void *q = take_of(second, 10 * MIB, streams[2]);
    be_slow(streams[2], 300);
    receive(receiver);
    give(p);
    CHECK(ashlar_free(second, q) == ASHLAR_OK);
    CHECK(take(8 * MIB, compute) != NULL);
    send_and_check(compute, receiver);
    ashlar_allocator_destroy(second);
}

/* ---- streams that end ---- */

static void use_short_lived_streams(bool marks, bool waits) {
    for (int i = 0; i < 200; i++) {
        ashlar_stream stream = new_stream();
        unsigned char *p = take(1 * MIB, stream);
        if (marks) {
            CHECK(ashlar_record_stream(allocator, p, streams[0]) == ASHLAR_OK);
            give(p);
        } else {
            give_on(p, streams[0]);
        }
        if (waits) {
            CHECK(ashlar__device_synchronize(device) == ASHLAR_OK);
        }
        ashlar_stream_destroy(device, stream);
    }
    CHECK(stats_now().reserved_bytes <= 8 * MIB);
}

CASE_WITH(blocks_marked_for_another_stream_outlive_no_stream, set_up("memory=256MiB")) {
    use_short_lived_streams(true, true);
}

CASE_WITH(blocks_marked_for_another_stream_need_no_wait, set_up("memory=256MiB")) {
    use_short_lived_streams(true, false);
}

CASE_WITH(blocks_freed_on_another_stream_outlive_no_stream, set_up("memory=256MiB")) {
    use_short_lived_streams(false, true);
}

CASE_WITH(blocks_freed_on_another_stream_outlive_no_stream_with_caches,
          set_up_cached("memory=256MiB", 16 * MIB)) {
    use_short_lived_streams(false, true);
}

RUN_CASES()
