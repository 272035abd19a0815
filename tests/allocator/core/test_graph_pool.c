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

CASE_WITH(a_released_pools_memory_is_at_once_the_last_streams, set_up_streams("16MiB")) {
    ashlar_graph_pool *pool = NULL;
    payload p;
    const cu_graph_exec exec = capture_one(2 * BIG, &p, &pool);
    launch_graph(exec, streams[1]);
    unsigned char *rest = take(2 * BIG, streams[1]);
    pool_release(pool, streams[1]);
    drop_graph(exec);
    order_calls before = order_calls_now();
    CHECK(take(2 * BIG, streams[1]) == p.ptr);
    check_calls(&before, (order_calls){.queried = 1}); /* no wait */
    check_owned(streams[1], p.ptr, 2 * BIG);
    give(rest);
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

CASE_WITH(results_of_one_graph_are_not_another_ones_of_the_pool, set_up_streams("16MiB")) {
    ashlar_graph_pool *pool = pool_begin(streams[0]);
    capture_begin(streams[0]);
    payload result = {take(BIG, streams[0]), BIG, 5}, p;
    use_in_graph(streams[0], &result);
    const cu_graph_exec first = capture_end(streams[0]);
    pool_end(pool);
    const cu_graph_exec second = capture_another(pool, streams[1], BIG, &p);
    CHECK(p.ptr + BIG <= result.ptr || result.ptr + BIG <= p.ptr);
    launch_graph(first, streams[2]);
    launch_graph(second, streams[2]);
    queue_verify(streams[2], result.ptr, BIG, 5);
    wait_for(streams[2]);
    CHECK(atomic_load(&payload_bad_count) == 0);
    give(result.ptr);
    pool_release(pool, streams[2]);
    drop_graph(first);
    drop_graph(second);
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

CASE(blocks_with_further_users_outlive_their_pool) {
    for (int variant = 0; variant < 8; variant++) {
        const bool gives_first = (variant & 1) != 0, is_user_the_last = (variant & 2) != 0;
        REQUIRE(set_up_streams("16MiB"));
        see_recordings();
        ashlar_graph_pool *pool = pool_begin(streams[0]);
        unsigned char *ptr = take(4 * BIG, streams[0]);
        CHECK(ashlar_record_stream(allocator, ptr, streams[0]) == ASHLAR_OK); /* its own */
        CHECK(ashlar_record_stream(allocator, ptr, streams[1]) == ASHLAR_OK);
        if ((variant & 4) != 0) {
            CHECK(ashlar_record_stream(allocator, ptr, streams[2]) == ASHLAR_OK);
        }
        pool_end(pool);
        queue_write(streams[1], ptr, 4 * BIG, 1);
        queue_write(streams[2], ptr, 4 * BIG, 2);
        const ashlar_stream last = is_user_the_last ? streams[1] : streams[2];
        if (gives_first) {
            give(ptr);
        }
        pool_release(pool, last);
        if (!gives_first) {
            give(ptr);
        }
        if (is_user_the_last && (variant & 4) == 0) {
            wait_for(streams[2]); /* not said to use it */
            CHECK(take(4 * BIG, streams[1]) == ptr);
            check_owned(streams[1], ptr, 4 * BIG);
        } else {
            CHECK(take(4 * BIG, streams[3]) == ptr);
            check_owned(streams[3], ptr, 4 * BIG);
        }
        tear_down();
    }
}

CASE_WITH(a_pools_marked_block_is_its_own_again_at_once_or_not_at_all, set_up_streams("16MiB")) {
    ashlar_graph_pool *pool = pool_begin(streams[0]);
    capture_begin(streams[0]);
    void *out = NULL;
    unsigned char *ptr = take(4 * BIG, streams[0]);
    CHECK(ashlar_record_stream(allocator, ptr, streams[0]) == ASHLAR_OK);
    give(ptr);
    CHECK(stats_now().shared_bytes == 0);
    CHECK(take(4 * BIG, streams[0]) == ptr); /* marked for the stream that it is of */
    CHECK(ashlar_record_stream(allocator, ptr, streams[1]) == ASHLAR_OK);
    give(ptr);
    CHECK(stats_now().shared_bytes == 4 * BIG);
    CHECK(ashlar_alloc(allocator, 4 * BIG, streams[1], &out) == ASHLAR_ENOMEM);
    CHECK(ashlar_alloc(allocator, 4 * BIG, streams[2], &out) == ASHLAR_ENOMEM);
    drop_graph(capture_end(streams[0]));
    pool_end(pool);
    CHECK(ashlar_alloc(allocator, 4 * BIG, streams[1], &out) == ASHLAR_ENOMEM);
    pool_release(pool, streams[0]);
    CHECK(take(4 * BIG, streams[1]) == ptr);
}

CASE_WITH(a_pool_grows_by_new_memory_alone, set_up_streams("64MiB")) {
    unsigned char *past = take(4 * BIG, streams[1]);
    give(past);
    ashlar_graph_pool *pool = pool_begin(streams[0]);
    capture_begin(streams[0]);
    unsigned char *a = take(BIG, streams[0]);
    give(a);
    order_calls before = order_calls_now();
    CHECK(take(3 * BIG, streams[0]) == a);  /* its own block, and new memory behind it */
    check_calls(&before, (order_calls){0}); /* a capture waits for nothing, and asks nobody */
    CHECK(stats_now().served_mapped == 3 && stats_now().reserved_bytes == 7 * BIG);
    give(a);
    drop_graph(capture_end(streams[0]));
    pool_end(pool);
    pool_release(pool, streams[0]);
}

CASE_WITH(a_pool_without_blocks_stays_among_streams_that_go, set_up_streams("16MiB")) {
    ashlar_graph_pool *pool = pool_begin(streams[0]);
    pool_end(pool);
    for (int i = 0; i < 40; i++) {
        ashlar_stream stream = NULL;
        CHECK(ashlar_stream_create(device, &stream) == ASHLAR_OK);
        give(take(BIG, stream));
        ashlar_stream_destroy(device, stream);
    }
    size_t pools = 0;
    for (const ashlar_stream_state *state = allocator->stream_states; state != NULL;
         state = state->next) {
        pools += state->is_pool;
    }
    CHECK_ZU(pools, 1);
    pool_release(pool, streams[0]);
}

CASE(blocks_from_outside_do_not_become_the_pools) {
    REQUIRE(set_up_cached_streams("16MiB", 16 * MIB));
    unsigned char *a = take(2 * BIG, streams[0]), *b = take(2 * BIG, streams[1]);
    void *out = NULL;
    use(streams[0], a, 2 * BIG, 1);
    use(streams[1], b, 2 * BIG, 1);
    ashlar_graph_pool *pool = pool_begin(streams[0]);
    capture_begin(streams[0]);
    give(a);
    CHECK(ashlar_alloc(allocator, 2 * BIG, streams[0], &out) == ASHLAR_ENOMEM);
    CHECK(ashlar_alloc(allocator, 2 * BIG, streams[2], &out) == ASHLAR_ENOMEM); /* no event */
    give_on(b, streams[0]);
    CHECK(ashlar_alloc(allocator, 2 * BIG, streams[0], &out) == ASHLAR_ENOMEM);
    drop_graph(capture_end(streams[0]));
    pool_end(pool);
    CHECK(take(4 * BIG, streams[0]) == a); /* both are the stream's */
    check_owned(streams[0], a, BIG);
    pool_release(pool, streams[0]);
}

CASE(what_a_thread_has_cached_of_the_stream_is_not_the_pools) {
    REQUIRE(set_up_cached_streams("16MiB", 16 * MIB));
    unsigned char *a = take(1000, streams[0]);
    use(streams[0], a, 1000, 1);
    give(a);
    CHECK(stats_now().cached_bytes == 1024);
    ashlar_graph_pool *pool = pool_begin(streams[0]);
    CHECK(stats_now().cached_bytes == 0);
    capture_begin(streams[0]);
    unsigned char *b = take(1000, streams[0]), *late = take(1000, streams[0]);
    CHECK(b != a);
    give(b);
    CHECK(stats_now().cached_bytes == 1024);
    CHECK(take(1000, streams[0]) == b); /* a hit: the cache works for the pool */
    CHECK(stats_now().served_cached == 1);
    give(b);
    drop_graph(capture_end(streams[0]));
    pool_end(pool);
    give(late); /* the pool's, for which nobody asks any more */
    CHECK(stats_now().cached_bytes == 0);
    unsigned char *c = take(1000, streams[0]);
    CHECK(c != b && c != late);
    give(c);
    pool_release(pool, streams[0]);
}

CASE_WITH(two_captures_at_a_time_have_two_pools, set_up_streams("64MiB")) {
    ashlar_graph_pool *pools[2];
    payload p[2];
    cu_graph_exec graphs[2];
    for (int i = 0; i < 2; i++) {
        pools[i] = pool_begin(streams[i]);
        CHECK_ZU(captures_now(), (size_t)i + 1);
        capture_begin(streams[i]);
    }
    for (int i = 0; i < 2; i++) {
        p[i] = (payload){take(BIG, streams[i]), BIG, (unsigned char)(i + 1)};
        use_in_graph(streams[i], &p[i]);
        give(p[i].ptr);
    }
    CHECK(p[0].ptr != p[1].ptr);
    for (int i = 0; i < 2; i++) {
        CHECK(take(BIG, streams[i]) == p[i].ptr);
        give(p[i].ptr);
        graphs[i] = capture_end(streams[i]);
        pool_end(pools[i]);
    }
    CHECK_ZU(captures_now(), 0);
    for (int i = 0; i < 4; i++) {
        launch_graph(graphs[i % 2], streams[i]);
    }
    for (int i = 0; i < STREAMS; i++) {
        wait_for(streams[i]);
    }
    CHECK(atomic_load(&payload_bad_count) == 0);
    for (int i = 0; i < 2; i++) {
        pool_release(pools[i], streams[i + 2]);
        drop_graph(graphs[i]);
    }
}

/* On a full device a capture gets what others are done with; but it waits for none of them. */
CASE_WITH(a_captured_stream_gets_only_what_is_past, set_up_streams("16MiB")) {
    unsigned char *done = take(2 * BIG, streams[1]), *busy = take(2 * BIG, streams[3]);
    use(streams[1], done, 2 * BIG, 1);
    use(streams[3], busy, 2 * BIG, 2);
    give(busy);
    give(done);
    CHECK(ashlar_allocator_trim(allocator, ALL - 1) == ASHLAR_OK); /* records */
    wait_for(streams[1]);
    ashlar_graph_pool *pool = pool_begin(streams[2]);
    capture_begin(streams[2]);
    unsigned char *ptr = take(2 * BIG, streams[2]);
    CHECK(ptr == done && stats_now().served_completed == 1);
    CHECK(stats_now().served_waited == 0 && stats_now().served_after_sync == 0);
    drop_graph(capture_end(streams[2]));
    pool_end(pool);
    pool_release(pool, streams[2]);
}

RUN_CASES()
