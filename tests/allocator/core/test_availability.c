/*
 * test_availability.c - memory that is free is served: to captures, and to another allocator. The
 * world (test_world.c) has the whole law.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE
#include "tests/allocator/core/graph_pool_fixture.h"

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

CASE_WITH(a_capture_has_what_lies_in_caches_of_the_default_stream,
          set_up_cached_streams("16MiB", 8 * MIB)) {
    serve_capture_after(NULL);
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

CASE_WITH(an_allocator_that_shares_has_what_another_leaves_idle, set_up("memory=16MiB")) {
    have_given_by_first(true);
}

/* The first has freed all of the device, behind work. */
static ashlar_allocator *make_second_behind_work(void) {
    ashlar_allocator *second = make_second(false);
    unsigned char *p = take(ALL, streams[0]);
    use(streams[0], p, ALL, 1);
    give(p);
    return second;
}

CASE_WITH(a_reservation_has_what_another_leaves_idle, set_up_streams("16MiB")) {
    ashlar_allocator *second = make_second_behind_work();
    CHECK(ashlar_allocator_reserve(second, BIG) == ASHLAR_OK);
    CHECK_FAILS(ashlar_allocator_reserve(second, 2 * ALL), ASHLAR_ENOMEM, "");
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

RUN_CASES()
