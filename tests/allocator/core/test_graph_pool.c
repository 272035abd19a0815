/* test_graph_pool.c - the memory of captured graphs: whose it is, and when. */
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

CASE(a_pools_memory_is_nobody_elses_while_it_lives) {
    for (int cached = 0; cached < 2; cached++) {
        REQUIRE(set_up_cached_streams("32MiB", cached == 0 ? 0 : 16 * MIB));
        ashlar_graph_pool *pool = NULL;
        payload p;
        const cu_graph_exec exec = capture_one(BIG, &p, &pool);
        void *out = NULL;
        unsigned char *others[8];
        size_t count = 0;
        /* Everything there is, for the stream itself and another: all steps of the ladder. */
        while (count < 8 && ashlar_alloc(allocator, BIG, streams[count % 2], &out) == ASHLAR_OK) {
            others[count++] = out;
        }
        CHECK_ZU(count, 7);
        CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
        CHECK(stats_now().reserved_bytes == 32 * MIB);
        for (size_t i = 0; i < count; i++) {
            CHECK(others[i] + BIG <= p.ptr || p.ptr + BIG <= others[i]);
            queue_write(streams[1], others[i], BIG, (unsigned char)(i + 1));
        }
        for (int i = 0; i < 3; i++) {
            launch_graph(exec, streams[i]);
        }
        for (size_t i = 0; i < count; i++) {
            queue_verify(streams[1], others[i], BIG, (unsigned char)(i + 1));
        }
        for (int i = 0; i < STREAMS; i++) {
            wait_for(streams[i]);
        }
        CHECK(atomic_load(&payload_bad_count) == 0);
        for (size_t i = 0; i < count; i++) {
            give(others[i]);
        }
        CHECK(ashlar_allocator_trim(allocator, 0) ==
              ASHLAR_OK); /* records; the next one sees it done */
        wait_for(streams[0]);
        wait_for(streams[1]);
        CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
        CHECK_ZU(stats_now().reserved_bytes, BIG); /* no idle memory became the pool's */
        pool_release(pool, streams[2]);
        drop_graph(exec);
        tear_down();
    }
}

CASE_WITH(a_released_pools_memory_comes_after_the_last_launch, set_up_streams("16MiB")) {
    ashlar_graph_pool *pool = NULL;
    payload p;
    see_recordings();
    const cu_graph_exec exec = capture_one(4 * BIG, &p, &pool);
    launch_graph(exec, streams[1]);
    order_calls before = order_calls_now();
    pool_release(pool, streams[1]);
    drop_graph(exec);
    check_calls(&before, (order_calls){.created = 1, .recorded = 1});
    CHECK(take(4 * BIG, streams[2]) == p.ptr);
    check_calls(&before, (order_calls){.queried = 2, .waited = 1});
    check_owned(streams[2], p.ptr, 4 * BIG);
    give(p.ptr);
}

/* ---- graphs that share a pool ---- */

/* A further graph of the pool, on `stream`, with a block that it frees. */
static cu_graph_exec capture_another(ashlar_graph_pool *pool, ashlar_stream stream, size_t bytes,
                                     payload *p) {
    CHECK(ashlar_graph_pool_continue(pool, stream) == ASHLAR_OK);
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

CASE_WITH(a_pool_that_cannot_go_on_is_as_before, set_up_streams("16MiB")) {
    ashlar_graph_pool *pool = pool_begin(streams[0]), *other = pool_begin(streams[1]);
    CHECK(ashlar_graph_pool_continue(pool, streams[2]) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "ashlar_graph_pool_end()");
    pool_end(pool);
    CHECK(ashlar_graph_pool_continue(pool, streams[1]) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "has a pool already");
    CHECK(ashlar_graph_pool_continue(pool, NULL) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "legacy");
    CHECK(captures_now() == 1);
    pool_end(other);
    pool_release(pool, streams[0]);
    pool_release(other, streams[0]);
}

CASE(live_blocks_outlive_their_pool) {
    for (int freed_first = 0; freed_first < 2; freed_first++) {
        REQUIRE(set_up_streams("16MiB"));
        ashlar_graph_pool *pool = pool_begin(streams[0]);
        capture_begin(streams[0]);
        payload p = {take(4 * BIG, streams[0]), 4 * BIG, 5};
        use_in_graph(streams[0], &p);
        const cu_graph_exec exec = capture_end(streams[0]);
        pool_end(pool);
        launch_graph(exec, streams[1]);
        if (freed_first == 1) {
            give_on(p.ptr, streams[3]); /* the pool's all the same: the graph may run again */
            wait_for(streams[3]);
            void *out = NULL;
            CHECK(ashlar_alloc(allocator, BIG, streams[3], &out) == ASHLAR_ENOMEM);
            CHECK(ashlar_alloc(allocator, BIG, streams[0], &out) == ASHLAR_ENOMEM);
        }
        pool_release(pool, streams[1]);
        drop_graph(exec);
        if (freed_first == 0) {
            queue_verify(streams[1], p.ptr, p.bytes, 5);
            use(streams[1], p.ptr, p.bytes, 6);
            give(p.ptr); /* after its use on stream 1 */
        }
        CHECK(take(4 * BIG, streams[2]) == p.ptr);
        CHECK(stats_now().served_waited + stats_now().served_after_sync == 1);
        check_owned(streams[2], p.ptr, p.bytes);
        tear_down();
    }
}

RUN_CASES()
