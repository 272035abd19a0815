/*
 * test_pool.c - the memory of captured graphs: whose it is and when, and that nothing which the
 * allocator does meanwhile spoils a capture.
 */
#include "streams_fixture.h"

#include <pthread.h>

#include <ashlar/pool.h>

#include "allocator_impl.h"

static ashlar_pool *pool_begin(ashlar_stream stream) {
    ashlar_pool *pool = NULL;
    CHECK(ashlar_pool_begin(allocator, stream, &pool) == ASHLAR_OK);
    check_all();
    return pool;
}

static void pool_end(ashlar_pool *pool) {
    ashlar_pool_end(pool);
    check_all();
}

static void pool_release(ashlar_pool *pool, ashlar_stream stream) {
    CHECK(ashlar_pool_release(pool, stream) == ASHLAR_OK);
    check_all();
}

static void capture_begin(ashlar_stream stream) {
    CHECK(ashlar_device_enter(device) == ASHLAR_OK);
    CHECK(driver->table.stream_begin_capture(stream, CU_CAPTURE_GLOBAL) == CU_SUCCESS);
    ashlar_device_leave(device);
}

/* With success, which it does not have once anything illegal was called. */
static cu_graph_exec capture_end(ashlar_stream stream) {
    cu_graph graph = NULL;
    cu_graph_exec exec = NULL;
    CHECK(ashlar_device_enter(device) == ASHLAR_OK);
    CHECK(driver->table.stream_end_capture(stream, &graph) == CU_SUCCESS);
    CHECK(driver->table.graph_instantiate(&exec, graph, 0) == CU_SUCCESS);
    CHECK(driver->table.graph_destroy(graph) == CU_SUCCESS);
    ashlar_device_leave(device);
    return exec;
}

static void launch_graph(cu_graph_exec exec, ashlar_stream stream) {
    CHECK(ashlar_device_enter(device) == ASHLAR_OK);
    CHECK(driver->table.graph_launch(exec, stream) == CU_SUCCESS);
    ashlar_device_leave(device);
}

static void drop_graph(cu_graph_exec exec) {
    CHECK(ashlar_device_enter(device) == ASHLAR_OK);
    CHECK(driver->table.graph_exec_destroy(exec) == CU_SUCCESS);
    ashlar_device_leave(device);
}

/* A node of a graph runs as often as that is launched: its arguments are not ashlar_launch()'s. */
static void queue_node(ashlar_stream stream, void (*fn)(void *), payload *p) {
    CHECK(ashlar_device_enter(device) == ASHLAR_OK);
    CHECK(driver->table.launch_host_func(stream, fn, p) == CU_SUCCESS);
    ashlar_device_leave(device);
}

static void use_in_graph(ashlar_stream stream, payload *p) {
    queue_node(stream, payload_write, p);
    queue_node(stream, payload_verify, p);
}

static size_t order_count(void) {
    size_t count = 0;
    for (const ashlar_order *order = allocator->orders; order != NULL; order = order->next) {
        count++;
    }
    return count;
}

/* Have an event of each stream recorded and seen to be over, as it is later in a program's life. */
static void see_recordings(void) {
    unsigned char *ptrs[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        ptrs[i] = take(2 * MIB, streams[i]);
    }
    for (int i = 0; i < STREAMS; i++) {
        give(ptrs[i]);
    }
    CHECK(ashlar_trim(allocator, 0) == ASHLAR_OK);
    for (int i = 0; i < STREAMS; i++) {
        wait_for(streams[i]);
    }
    CHECK(ashlar_trim(allocator, 0) == ASHLAR_OK);
    CHECK(stats_now().reserved_bytes == 0 && stats_now().events_recorded == STREAMS);
}

static uint64_t captures_now(void) {
    return atomic_load(&driver->capture_count);
}

/* ---- whose memory it is ---- */

/* One graph that uses a block of `bytes`, freed within, on stream 0; and its pool. */
static cu_graph_exec capture_one(size_t bytes, payload *p, ashlar_pool **pool) {
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

static void a_pools_memory_is_nobody_elses_while_it_lives(void) {
    for (int cached = 0; cached < 2; cached++) {
        REQUIRE(set_up_cached("memory=32MiB,mode=adversarial,seed=3", cached == 0 ? 0 : 16 * MIB));
        ashlar_pool *pool = NULL;
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
        CHECK(ashlar_trim(allocator, 0) == ASHLAR_OK);
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
        CHECK(ashlar_trim(allocator, 0) == ASHLAR_OK); /* records; the next one sees it done */
        wait_for(streams[0]);
        wait_for(streams[1]);
        CHECK(ashlar_trim(allocator, 0) == ASHLAR_OK);
        CHECK_ZU(stats_now().reserved_bytes, BIG); /* no idle memory became the pool's */
        pool_release(pool, streams[2]);
        drop_graph(exec);
        tear_down();
    }
}

static void a_released_pools_memory_comes_after_the_last_launch(void) {
    REQUIRE(set_up_streams("16MiB"));
    ashlar_pool *pool = NULL;
    payload p;
    see_recordings();
    const cu_graph_exec exec = capture_one(4 * BIG, &p, &pool);
    launch_graph(exec, streams[1]);
    order_calls before = order_calls_now();
    pool_release(pool, streams[1]);
    drop_graph(exec);
    check_calls(&before, (order_calls){0});
    CHECK(take(4 * BIG, streams[2]) == p.ptr);
    check_calls(&before, (order_calls){.recorded = 1, .waited = 1});
    check_owned(streams[2], p.ptr, 4 * BIG);
    give(p.ptr);
    tear_down();
}

static void a_released_pools_memory_is_at_once_the_last_streams(void) {
    REQUIRE(set_up_streams("16MiB"));
    ashlar_pool *pool = NULL;
    payload p;
    const cu_graph_exec exec = capture_one(2 * BIG, &p, &pool);
    launch_graph(exec, streams[1]);
    unsigned char *rest = take(2 * BIG, streams[1]);
    give(rest);
    const size_t count = order_count();
    pool_release(pool, streams[1]);
    CHECK_ZU(order_count(), count - 1);
    drop_graph(exec);
    CHECK(take(4 * BIG, streams[1]) == p.ptr); /* merged with what lies beside */
    CHECK(stats_now().served_same_stream == 2);
    check_owned(streams[1], p.ptr, 4 * BIG);
    tear_down();
}

static void live_blocks_outlive_their_pool(void) {
    for (int freed_first = 0; freed_first < 2; freed_first++) {
        REQUIRE(set_up_streams("16MiB"));
        ashlar_pool *pool = pool_begin(streams[0]);
        capture_begin(streams[0]);
        payload p = {take(4 * BIG, streams[0]), 4 * BIG, 5};
        use_in_graph(streams[0], &p);
        const cu_graph_exec exec = capture_end(streams[0]);
        pool_end(pool);
        launch_graph(exec, streams[1]);
        if (freed_first == 1) {
            give_on(p.ptr, streams[3]); /* the pool's all the same: the graph may run again */
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
        CHECK(stats_now().served_waited == 1);
        check_owned(streams[2], p.ptr, p.bytes);
        tear_down();
    }
}

static void blocks_with_further_users_outlive_their_pool(void) {
    for (int variant = 0; variant < 8; variant++) {
        const bool gives_first = (variant & 1) != 0, is_user_the_last = (variant & 2) != 0;
        REQUIRE(set_up_streams("16MiB"));
        see_recordings();
        ashlar_pool *pool = pool_begin(streams[0]);
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

static void a_pools_marked_block_is_its_own_again_at_once_or_not_at_all(void) {
    REQUIRE(set_up_streams("16MiB"));
    ashlar_pool *pool = pool_begin(streams[0]);
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
    tear_down();
}

static void a_pool_grows_beside_its_own_free_block(void) {
    REQUIRE(set_up_streams("64MiB"));
    ashlar_pool *pool = pool_begin(streams[0]);
    capture_begin(streams[0]);
    unsigned char *a = take(BIG, streams[0]);
    give(a);
    unsigned char *b = take(3 * BIG, streams[0]); /* of new memory alone, which is idle before */
    CHECK(b == a + BIG);
    CHECK(stats_now().served_mapped == 2 && stats_now().reserved_bytes == 4 * BIG);
    give(b);
    CHECK(take(4 * BIG, streams[0]) == a); /* two of the pool's do merge */
    drop_graph(capture_end(streams[0]));
    pool_end(pool);
    pool_release(pool, streams[0]);
    tear_down();
}

static void a_pool_without_blocks_stays_among_streams_that_go(void) {
    REQUIRE(set_up_streams("16MiB"));
    ashlar_pool *pool = pool_begin(streams[0]);
    pool_end(pool);
    for (int i = 0; i < 40; i++) {
        ashlar_stream stream = NULL;
        CHECK(ashlar_stream_create(device, &stream) == ASHLAR_OK);
        give(take(BIG, stream));
        ashlar_stream_destroy(device, stream);
    }
    pool_release(pool, streams[0]);
    tear_down();
}

static void blocks_from_outside_do_not_become_the_pools(void) {
    REQUIRE(set_up_cached("memory=16MiB,mode=adversarial,seed=3", 16 * MIB));
    unsigned char *a = take(2 * BIG, streams[0]), *b = take(2 * BIG, streams[1]);
    void *out = NULL;
    use(streams[0], a, 2 * BIG, 1);
    use(streams[1], b, 2 * BIG, 1);
    ashlar_pool *pool = pool_begin(streams[0]);
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
    tear_down();
}

static void what_a_thread_has_cached_of_the_stream_is_not_the_pools(void) {
    REQUIRE(set_up_cached("memory=16MiB,mode=adversarial,seed=3", 16 * MIB));
    unsigned char *a = take(1000, streams[0]);
    use(streams[0], a, 1000, 1);
    give(a);
    CHECK(stats_now().cached_bytes == 1024);
    ashlar_pool *pool = pool_begin(streams[0]);
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
    tear_down();
}

static void two_captures_at_a_time_have_two_pools(void) {
    REQUIRE(set_up_streams("64MiB"));
    ashlar_pool *pools[2];
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
    tear_down();
}

/* ---- nothing illegal ---- */

static bool give_back_block(void *user, size_t bytes) {
    void **ptr = user;
    (void)bytes;
    const bool has_one = *ptr != NULL;
    if (has_one) {
        CHECK(ashlar_free(allocator, *ptr) == ASHLAR_OK);
        *ptr = NULL;
    }
    return has_one;
}

static void the_pools_requests_take_every_step_that_is_legal(void) {
    REQUIRE(set_up_cached("memory=32MiB,mode=adversarial,seed=3", 16 * MIB));
    unsigned char *a = take(BIG, streams[1]), *b = take(BIG, streams[2]);
    void *c = take(BIG, streams[3]), *out = NULL;
    use(streams[1], a, BIG, 1);
    use(streams[2], b, BIG, 2);
    ashlar_pool *pool = pool_begin(streams[0]);
    capture_begin(streams[0]);
    unsigned char *first = take(BIG, streams[0]);
    CHECK(first != NULL);
    while (ashlar_alloc(allocator, BIG, streams[0], &out) == ASHLAR_OK) {
    }
    ashlar_stats s = stats_now();
    CHECK(s.served_mapped + s.served_idle == 8 && s.served_waited == 0);
    give(a); /* into a cache, and busy: a host wait */
    unsigned char *again = take(BIG, streams[0]);
    CHECK(again == a && stats_now().served_after_sync == 1);
    ashlar_set_reclaim(allocator, give_back_block, &c);
    CHECK(take(BIG, streams[0]) != NULL);
    CHECK(c == NULL && stats_now().served_after_sync + stats_now().served_reclaimed == 2);
    give(first);
    CHECK(take(BIG, streams[0]) == first); /* own */
    drop_graph(capture_end(streams[0]));
    pool_end(pool);
    ashlar_set_reclaim(allocator, NULL, NULL);
    pool_release(pool, streams[0]);
    check_owned(streams[2], b, BIG);
    tear_down();
}

static void a_pool_has_memory_gathered(void) {
    REQUIRE(set_up_streams("16MiB"));
    unsigned char *blocks[8];
    for (int i = 0; i < 8; i++) {
        blocks[i] = take(2 * MIB, streams[1]);
    }
    ashlar_pool *pool = pool_begin(streams[0]);
    capture_begin(streams[0]);
    for (int i = 0; i < 8; i += 2) {
        give(blocks[i]);
    }
    CHECK(take(8 * MIB, streams[0]) != NULL);
    CHECK(stats_now().served_gathered == 1);
    drop_graph(capture_end(streams[0]));
    pool_end(pool);
    pool_release(pool, streams[0]);
    tear_down();
}

/* What ordinary streams, the default one among them, do while another stream is captured. */
static void ordinary_requests_go_on_during_a_capture(void) {
    for (int cached = 0; cached < 2; cached++) {
        REQUIRE(set_up_cached("memory=32MiB,mode=adversarial,seed=3", cached == 0 ? 0 : 4 * MIB));
        unsigned char *on_legacy = take(BIG, NULL), *on_one = take(BIG, streams[1]);
        unsigned char *ours = take(BIG, streams[0]);
        queue_write(NULL, on_legacy, BIG, 1);
        use(streams[1], on_one, BIG, 2);
        ashlar_pool *pool = pool_begin(streams[0]);
        capture_begin(streams[0]);
        give(on_legacy);
        give(on_one);
        give(ours);
        CHECK(take(BIG, streams[2]) == on_one); /* the only one that is open */
        CHECK(stats_now().served_waited == 1);
        unsigned char *more = take(BIG, NULL), *most = take(BIG, NULL);
        CHECK((more == on_legacy) != (most == on_legacy)); /* its own, and new memory */
        give(more);
        CHECK(ashlar_trim(allocator, 0) == ASHLAR_OK);
        CHECK(ashlar_set_limit(allocator, 24 * MIB) == ASHLAR_OK);
        CHECK(ashlar_reserve(allocator, 24 * MIB) == ASHLAR_OK);
        void *out = NULL;
        CHECK(ashlar_alloc(allocator, 24 * MIB, streams[3], &out) == ASHLAR_ENOMEM);
        CHECK(ashlar_alloc(allocator, 24 * MIB, NULL, &out) == ASHLAR_ENOMEM);
        CHECK(ashlar_forget_stream(allocator, streams[3]) == ASHLAR_OK);
        drop_graph(capture_end(streams[0]));
        pool_end(pool);
        pool_release(pool, streams[0]);
        CHECK(take(BIG, streams[2]) != NULL);
        CHECK(atomic_load(&payload_bad_count) == 0);
        tear_down();
    }
}

/* Beside the checks of the other thread: failures are counted. */
static void *allocate_beside(void *user) {
    size_t *failed = user;
    void *ptrs[6] = {NULL};
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < 6; i++) {
            *failed += ashlar_alloc(allocator, (i + 1) << 20, streams[2], &ptrs[i]) != ASHLAR_OK;
        }
        for (size_t i = 0; i < 6; i++) {
            *failed += ashlar_free_on(allocator, ptrs[i], streams[i % 2 + 2]) != ASHLAR_OK;
        }
        *failed += ashlar_trim(allocator, 0) != ASHLAR_OK;
    }
    return NULL;
}

static void other_threads_do_not_spoil_a_capture(void) {
    REQUIRE(set_up_cached("memory=64MiB,mode=adversarial,seed=3", 4 * MIB));
    pthread_t thread;
    size_t failed = 0;
    ashlar_pool *pool = pool_begin(streams[0]);
    capture_begin(streams[0]);
    CHECK(pthread_create(&thread, NULL, allocate_beside, &failed) == 0);
    for (int i = 0; i < 40; i++) {
        void *ptr = NULL;
        CHECK(ashlar_alloc(allocator, (size_t)(i % 8 + 1) * 100000, streams[0], &ptr) == ASHLAR_OK);
        CHECK(ashlar_free(allocator, ptr) == ASHLAR_OK);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_ZU(failed, 0);
    drop_graph(capture_end(streams[0]));
    pool_end(pool);
    pool_release(pool, streams[0]);
    unsigned int mode = CU_CAPTURE_GLOBAL;
    CHECK(driver->table.thread_exchange_capture_mode(&mode) == CU_SUCCESS);
    CHECK(mode == CU_CAPTURE_GLOBAL); /* the thread's own way is back */
    tear_down();
}

static void without_a_capture_no_mode_is_set(void) {
    REQUIRE(set_up_streams("64MiB"));
    const size_t calls = CALLS(thread_exchange_capture_mode);
    give(take(BIG, streams[0]));
    CHECK(take(2 * BIG, streams[1]) != NULL);
    CHECK(ashlar_trim(allocator, 0) == ASHLAR_OK);
    CHECK_ZU(CALLS(thread_exchange_capture_mode), calls);
    tear_down();
}

/* ---- mistakes and failures ---- */

static void a_capture_without_a_pool_is_refused_not_spoilt(void) {
    REQUIRE(set_up_streams("16MiB"));
    unsigned char *a = take(2 * BIG, streams[0]), *b = take(2 * BIG, streams[1]);
    void *out = NULL;
    use(streams[1], b, BIG, 1);
    give(a);
    capture_begin(streams[0]);
    CHECK(ashlar_alloc(allocator, 2 * BIG, streams[1], &out) == ASHLAR_EINVAL); /* an event */
    CHECK_HAS(ashlar_error_detail(), "ashlar_pool_begin");
    CHECK(take(2 * BIG, streams[0]) == a); /* nothing has to be asked for it */
    give(b);
    CHECK(ashlar_alloc(allocator, 2 * BIG, streams[0], &out) == ASHLAR_EINVAL); /* a wait */
    CHECK_HAS(ashlar_error_detail(), "ashlar_pool_begin");
    give(a);
    drop_graph(capture_end(streams[0]));
    CHECK(take(4 * BIG, streams[1]) == a);
    tear_down();
}

static void a_legacy_stream_beside_a_capture_without_a_pool_is_refused_too(void) {
    REQUIRE(set_up_streams("16MiB"));
    unsigned char *a = take(4 * BIG, NULL);
    void *out = NULL;
    give(a);
    capture_begin(streams[0]);
    CHECK(ashlar_alloc(allocator, 4 * BIG, streams[1], &out) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "ashlar_pool_begin");
    drop_graph(capture_end(streams[0]));
    CHECK(take(4 * BIG, streams[1]) == a);
    tear_down();
}

/* The remedy for such a stream is to wait for the whole device, which a capture does not allow. */
static void a_stream_that_ended_unannounced_waits_for_the_captures_end(void) {
    REQUIRE(set_up_streams("16MiB"));
    ashlar_stream doomed = NULL;
    void *out = NULL;
    CHECK(ashlar_stream_create(device, &doomed) == ASHLAR_OK);
    unsigned char *a = take(4 * BIG, doomed);
    give(a);
    CHECK(ashlar_device_enter(device) == ASHLAR_OK);
    CHECK(driver->table.stream_destroy(doomed) == CU_SUCCESS);
    ashlar_device_leave(device);
    ashlar_pool *pool = pool_begin(streams[0]);
    capture_begin(streams[0]);
    CHECK(ashlar_alloc(allocator, 4 * BIG, streams[1], &out) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "ashlar_forget_stream");
    drop_graph(capture_end(streams[0]));
    pool_end(pool);
    CHECK(take(4 * BIG, streams[1]) == a);
    pool_release(pool, streams[0]);
    tear_down();
}

static void mistakes_are_named(void) {
    REQUIRE(set_up_streams("16MiB"));
    ashlar_pool *pool = NULL, *other = NULL;
    const ashlar_stream legacy = (ashlar_stream)(uintptr_t)CU_STREAM_LEGACY;
    CHECK(ashlar_pool_begin(allocator, NULL, &other) == ASHLAR_EINVAL);
    CHECK(ashlar_pool_begin(allocator, legacy, &other) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "default stream");
    pool = pool_begin(streams[0]);
    CHECK(ashlar_forget_stream(allocator, streams[0]) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "end its pool first");
    CHECK(ashlar_pool_begin(allocator, streams[0], &other) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "a pool already");
    CHECK(ashlar_pool_release(pool, streams[0]) == ASHLAR_EINVAL);
    CHECK_HAS(ashlar_error_detail(), "has not ended");
    CHECK(other == NULL);
    CHECK_ZU(captures_now(), 1);
    pool_end(pool);
    pool_end(pool); /* again changes nothing */
    CHECK_ZU(captures_now(), 0);
    CHECK(ashlar_pool_release(NULL, NULL) == ASHLAR_OK);
    pool_release(pool, legacy);
    tear_down();
}

static void a_capture_of_a_threads_default_stream_has_a_pool(void) {
    const ashlar_stream mine = (ashlar_stream)(uintptr_t)CU_STREAM_PER_THREAD;
    REQUIRE(set_up_cached("memory=16MiB,mode=adversarial,seed=3", 4 * MIB));
    ashlar_pool *pool = pool_begin(mine);
    capture_begin(mine);
    unsigned char *ptr = take(1000, mine);
    give(ptr);
    CHECK(take(1000, mine) == ptr && stats_now().served_cached == 1);
    give(ptr);
    drop_graph(capture_end(mine));
    pool_end(pool);
    CHECK(take(1000, mine) != ptr);
    pool_release(pool, mine);
    CHECK(take(1000, mine) == ptr);
    tear_down();
}

static void a_failed_begin_or_release_changes_nothing(void) {
    REQUIRE(set_up_streams("16MiB"));
    ashlar_pool *pool = NULL;
    for (unsigned long n = 1; n <= 3; n++) { /* the pool, and two records */
        ashlar_host_fail_at(n);
        CHECK(ashlar_pool_begin(allocator, streams[n], &pool) == ASHLAR_EHOSTMEM);
        ashlar_host_fail_at(0);
        CHECK(pool == NULL && captures_now() == 0);
        check_all();
    }
    ashlar_driver_fail_at(driver, ASHLAR_DRIVER_FN_stream_get_id, 2, CU_UNKNOWN);
    CHECK(ashlar_pool_begin(allocator, streams[0], &pool) == ASHLAR_EDRIVER);
    CHECK(pool == NULL && captures_now() == 0);
    pool = pool_begin(streams[0]);
    unsigned char *ptr = take(BIG, streams[0]);
    give(ptr);
    pool_end(pool);
    ashlar_host_fail_at(1);
    CHECK(ashlar_pool_release(pool, streams[1]) == ASHLAR_EHOSTMEM);
    ashlar_host_fail_at(0);
    ashlar_driver_fail_at(driver, ASHLAR_DRIVER_FN_stream_get_id, 1, CU_UNKNOWN);
    CHECK(ashlar_pool_release(pool, streams[1]) == ASHLAR_EDRIVER);
    check_all();
    CHECK(take(2 * BIG, streams[0]) != ptr); /* still the pool's */
    pool_release(pool, streams[0]);
    tear_down();
}

/* A call that cannot be made in a way that spoils nothing is not made. */
static void no_call_is_made_where_the_mode_cannot_be_set(void) {
    REQUIRE(set_up_streams("16MiB"));
    void *out = NULL;
    ashlar_pool *pool = pool_begin(streams[0]);
    capture_begin(streams[0]);
    for (uint64_t n = 1; n <= 5; n += 2) { /* the odd calls set it */
        ashlar_driver_fail_at(driver, ASHLAR_DRIVER_FN_thread_exchange_capture_mode, n, CU_UNKNOWN);
        CHECK(ashlar_alloc(allocator, BIG, streams[0], &out) == ASHLAR_EDRIVER);
        CHECK(out == NULL && atomic_load(&driver->fail_countdown) == 0);
        check_all();
    }
    CHECK(take(BIG, streams[0]) != NULL);
    drop_graph(capture_end(streams[0]));
    pool_end(pool);
    pool_release(pool, streams[0]);
    tear_down();
}

int main(void) {
    RUN(a_pools_memory_is_nobody_elses_while_it_lives);
    RUN(a_released_pools_memory_comes_after_the_last_launch);
    RUN(a_released_pools_memory_is_at_once_the_last_streams);
    RUN(live_blocks_outlive_their_pool);
    RUN(blocks_with_further_users_outlive_their_pool);
    RUN(a_pools_marked_block_is_its_own_again_at_once_or_not_at_all);
    RUN(a_pool_grows_beside_its_own_free_block);
    RUN(a_pool_without_blocks_stays_among_streams_that_go);
    RUN(blocks_from_outside_do_not_become_the_pools);
    RUN(what_a_thread_has_cached_of_the_stream_is_not_the_pools);
    RUN(two_captures_at_a_time_have_two_pools);
    RUN(the_pools_requests_take_every_step_that_is_legal);
    RUN(a_pool_has_memory_gathered);
    RUN(ordinary_requests_go_on_during_a_capture);
    RUN(other_threads_do_not_spoil_a_capture);
    RUN(without_a_capture_no_mode_is_set);
    RUN(a_capture_without_a_pool_is_refused_not_spoilt);
    RUN(a_legacy_stream_beside_a_capture_without_a_pool_is_refused_too);
    RUN(a_stream_that_ended_unannounced_waits_for_the_captures_end);
    RUN(mistakes_are_named);
    RUN(a_capture_of_a_threads_default_stream_has_a_pool);
    RUN(a_failed_begin_or_release_changes_nothing);
    RUN(no_call_is_made_where_the_mode_cannot_be_set);
    return check_report();
}
