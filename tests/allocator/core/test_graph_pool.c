/*
 * test_graph_pool.c - the memory of captured graphs: whose it is, and when; that nothing that the
 * allocator does during a capture spoils it; mistakes and failures about pools.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE
#include "tests/allocator/core/graph_pool_fixture.h"

/* One graph that uses a block of `bytes`, freed within, on stream 0; and its pool. */
static cu_graph_exec capture_one(size_t bytes, payload *p, ashlar_graph_pool **pool) {
    *pool = pool_begin(streams[0]);
    capture_begin(streams[0]);
    *p = (payload){take(bytes, streams[0]), bytes, 5};
    use_in_graph(streams[0], p);
    give(p->ptr);
    CHECK(take(bytes, streams[0]) == p->ptr); /* again at once, in the graph */
    give(p->ptr);
    const cu_graph_exec exec = capture_end(streams[0]);
    pool_end(*pool);
    return exec;
}

/* ---- graphs that share a pool ---- */

/* A further graph of the pool, on `stream`, with a block that it frees. */
static cu_graph_exec capture_another(ashlar_graph_pool *pool, ashlar_stream stream, size_t bytes,
                                     payload *p) {
    CHECK(ashlar_graph_pool_begin(allocator, stream, pool, &pool) == ASHLAR_OK);
    capture_begin(stream);
    *p = (payload){take(bytes, stream), bytes, 9};
    use_in_graph(stream, p);
    give(p->ptr);
    const cu_graph_exec exec = capture_end(stream);
    pool_end(pool);
    return exec;
}

CASE(graphs_of_one_pool_share_its_memory) {
    for (int stream = 0; stream < 2; stream++) {
        REQUIRE(set_up_streams("16MiB"));
        ashlar_graph_pool *pool = NULL;
        payload p, q;
        const cu_graph_exec first = capture_one(2 * BIG, &p, &pool);
        unsigned char *foreign = take(BIG, streams[stream]);
        const cu_graph_exec second = capture_another(pool, streams[stream], 2 * BIG, &q);
        CHECK(q.ptr == p.ptr);
        CHECK(captures_now() == 0);
        check_owned(streams[stream], foreign, BIG);
        give(foreign);
        for (int i = 0; i < 6; i++) {
            launch_graph(i % 2 == 0 ? first : second, streams[3]);
        }
        wait_for(streams[3]);
        CHECK(atomic_load(&payload_bad_count) == 0);
        pool_release(pool, streams[3]);
        drop_graph(first);
        drop_graph(second);
        CHECK(take(2 * BIG, streams[3]) == p.ptr);
        give(p.ptr);
        tear_down();
    }
}

CASE_WITH(a_pool_of_another_allocator_is_refused, set_up_streams("16MiB")) {
    ashlar_allocator *other = NULL;
    ashlar_graph_pool *pool = pool_begin(streams[0]);
    pool_end(pool);
    REQUIRE(ashlar_allocator_create(device, &other) == ASHLAR_OK);
    CHECK_FAILS(ashlar_graph_pool_begin(other, streams[0], pool, &pool), ASHLAR_EINVAL,
                "another allocator's");
    pool_release(pool, streams[0]);
    ashlar_allocator_destroy(other);
}

CASE_WITH(a_pool_that_cannot_go_on_is_as_before, set_up_streams("16MiB")) {
    ashlar_graph_pool *pool = pool_begin(streams[0]), *other = pool_begin(streams[1]);
    CHECK(ashlar_graph_pool_begin(allocator, streams[2], pool, &pool) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "ashlar_graph_pool_end()");
    pool_end(pool);
    CHECK(ashlar_graph_pool_begin(allocator, streams[1], pool, &pool) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "has a pool already");
    CHECK(ashlar_graph_pool_begin(allocator, NULL, pool, &pool) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "legacy");
    CHECK(captures_now() == 1);
    pool_end(other);
    pool_release(pool, streams[0]);
    pool_release(other, streams[0]);
}

/* ---- mistakes and failures ---- */

CASE_WITH(a_capture_without_a_pool_is_refused_not_spoilt, set_up_streams("16MiB")) {
    unsigned char *a = take(2 * BIG, streams[0]), *b = take(2 * BIG, streams[1]);
    void *out = NULL;
    use(streams[1], b, BIG, 1);
    capture_begin(streams[0]);
    give(a);
    CHECK(ashlar_alloc(allocator, 2 * BIG, streams[1], &out) == ASHLAR_ENOMEM); /* an event */
    CHECK_HAS(ashlar_error_detail(), "ashlar_graph_pool_begin");
    CHECK(take(2 * BIG, streams[0]) == a); /* nothing has to be asked for it */
    give(b);
    CHECK(ashlar_alloc(allocator, 2 * BIG, streams[0], &out) == ASHLAR_EINVAL); /* a wait */
    CHECK_HAS(ashlar_error_detail(), "ashlar_graph_pool_begin");
    give(a);
    drop_graph(capture_end(streams[0]));
    CHECK(take(ALL, streams[1]) != NULL);
}

CASE_WITH(memory_of_the_legacy_stream_serves_others_beside_a_capture, set_up_streams("16MiB")) {
    unsigned char *a = take(4 * BIG, NULL);
    use(NULL, a, BIG, 1);
    give(a);
    capture_begin(streams[0]); /* without a pool, so that only the driver knows of it */
    CHECK(take(4 * BIG, streams[1]) == a);
    drop_graph(capture_end(streams[0]));
    check_owned(streams[1], a, BIG);
}

CASE_WITH(mistakes_are_named, set_up_streams("16MiB")) {
    ashlar_graph_pool *pool = NULL, *other = NULL;
    const ashlar_stream legacy = (ashlar_stream)(uintptr_t)CU_STREAM_LEGACY;
    CHECK(ashlar_graph_pool_begin(allocator, NULL, NULL, &other) == ASHLAR_EINVAL);
    CHECK_FAILS(ashlar_graph_pool_begin(allocator, legacy, NULL, &other), ASHLAR_EINVAL,
                "default stream");
    pool = pool_begin(streams[0]);
    CHECK_FAILS(ashlar_allocator_forget_stream(allocator, streams[0]), ASHLAR_EINVAL,
                "end its pool first");
    CHECK_FAILS(ashlar_graph_pool_begin(allocator, streams[0], NULL, &other), ASHLAR_EINVAL,
                "a pool already");
    CHECK_FAILS(ashlar_graph_pool_release(pool, streams[0]), ASHLAR_EINVAL, "has not ended");
    CHECK(other == NULL);
    CHECK_ZU(captures_now(), 1);
    pool_end(pool);
    pool_end(pool); /* again changes nothing */
    CHECK_ZU(captures_now(), 0);
    CHECK(ashlar_graph_pool_release(NULL, NULL) == ASHLAR_OK);
    pool_release(pool, legacy);
}

CASE_WITH(a_capture_of_a_threads_default_stream_has_a_pool,
          set_up_cached_streams("16MiB", 1 * MIB)) {
    const ashlar_stream mine = (ashlar_stream)(uintptr_t)CU_STREAM_PER_THREAD;
    void *out = NULL;
    ashlar_graph_pool *pool = pool_begin(mine);
    capture_begin(mine);
    unsigned char *ptr = take(1000, mine);
    give(ptr);
    CHECK(take(1000, mine) == ptr && stats_now().served_cached == 1);
    give(ptr);
    unsigned char *large = take(ALL - 2 * MIB, mine); /* all but the small one's handle */
    give(large);
    drop_graph(capture_end(mine));
    pool_end(pool);
    CHECK(ashlar_alloc(allocator, BIG, mine, &out) == ASHLAR_ENOMEM);
    pool_release(pool, mine);
    CHECK(take(1000, mine) == ptr && take(ALL - 2 * MIB, mine) == large);
    CHECK(stats_now().served_waited == 0);
}

CASE_WITH(a_failed_begin_or_release_changes_nothing, set_up_streams("16MiB")) {
    ashlar_graph_pool *pool = NULL;
    for (unsigned long n = 1; n <= 3; n++) { /* the pool, and two records */
        HOST_FAILS_AT(n, CHECK(ashlar_graph_pool_begin(allocator, streams[n], NULL, &pool) ==
                               ASHLAR_EHOSTMEM));
        CHECK(pool == NULL && captures_now() == 0);
        check_all();
    }
    pool = pool_begin(streams[0]);
    unsigned char *ptr = take(BIG, streams[0]);
    give(ptr);
    pool_end(pool);
    HOST_FAILS_AT(1, CHECK(ashlar_graph_pool_release(pool, streams[1]) == ASHLAR_EHOSTMEM));
    check_all();
    CHECK(take(2 * BIG, streams[0]) != ptr); /* still the pool's */
    pool_release(pool, streams[0]);
}

RUN_CASES()
