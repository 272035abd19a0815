/*
 * test_graph_pool_capture.c - nothing that the allocator does during a capture spoils it; mistakes
 * and failures about pools.
 */
#define CHECK_SOFT_DEFAULTS CHECK_SOFT_AT_ONCE

#include "tests/allocator/core/graph_pool_fixture.h"

#include <pthread.h>

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

CASE(the_pools_requests_take_every_step_that_is_legal) {
    REQUIRE(set_up_cached_streams("32MiB", 16 * MIB));
    unsigned char *a = take(BIG, streams[1]), *b = take(BIG, streams[2]);
    void *c = take(BIG, streams[3]), *out = NULL;
    use(streams[1], a, BIG, 1);
    use(streams[2], b, BIG, 2);
    ashlar_graph_pool *pool = pool_begin(streams[0]);
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
    ashlar_allocator_set_reclaim(allocator, give_back_block, &c);
    CHECK(take(BIG, streams[0]) != NULL);
    CHECK(c == NULL && stats_now().served_after_sync + stats_now().served_reclaimed == 2);
    give(first);
    CHECK(take(BIG, streams[0]) == first); /* own */
    drop_graph(capture_end(streams[0]));
    pool_end(pool);
    ashlar_allocator_set_reclaim(allocator, NULL, NULL);
    pool_release(pool, streams[0]);
    check_owned(streams[2], b, BIG);
}

CASE_WITH(a_pool_has_memory_gathered, set_up("memory=16MiB")) {
    unsigned char *blocks[8];
    for (int i = 0; i < 8; i++) {
        blocks[i] = take(2 * MIB, streams[1]);
    }
    ashlar_graph_pool *pool = pool_begin(streams[0]);
    capture_begin(streams[0]);
    for (int i = 0; i < 8; i += 2) {
        give(blocks[i]);
    }
    CHECK(take(8 * MIB, streams[0]) != NULL);
    CHECK(stats_now().served_gathered == 1);
    drop_graph(capture_end(streams[0]));
    pool_end(pool);
    pool_release(pool, streams[0]);
}

CASE_WITH(a_pool_lends_not_even_what_it_never_touched, set_up_streams("16MiB")) {
    void *out = NULL;
    unsigned char *rest = take(ALL - 2 * MIB, streams[1]);
    ashlar_graph_pool *pool = pool_begin(streams[0]);
    unsigned char *ptr = take(1000, streams[0]);
    CHECK(ashlar_alloc(allocator, 512, streams[1], &out) == ASHLAR_ENOMEM);
    CHECK(take(512, streams[0]) == ptr + 1024); /* the pool's own request */
    pool_end(pool);
    CHECK(ashlar_alloc(allocator, 512, streams[0], &out) == ASHLAR_ENOMEM);
    pool_release(pool, streams[0]);
    CHECK(take(512, streams[0]) == ptr + 1536);
    give(rest);
}

/* What ordinary streams, the default one among them, do while another stream is captured. */
CASE(ordinary_requests_go_on_during_a_capture) {
    for (int cached = 0; cached < 2; cached++) {
        REQUIRE(set_up_cached_streams("16MiB", cached == 0 ? 0 : 2 * MIB));
        unsigned char *on_legacy = take(BIG, NULL), *on_one = take(BIG, streams[1]);
        unsigned char *ours = take(BIG, streams[0]), *rest = take(BIG, streams[3]);
        queue_write(NULL, on_legacy, BIG, 1);
        use(streams[1], on_one, BIG, 2);
        ashlar_graph_pool *pool = pool_begin(streams[0]);
        capture_begin(streams[0]);
        give(on_legacy);
        give(on_one);
        give(ours);
        unsigned char *first = take(BIG, streams[2]), *second = take(BIG, streams[2]);
        CHECK(first == on_one || first == on_legacy); /* captures lend nothing */
        CHECK(second != first && (second == on_one || second == on_legacy));
        CHECK(stats_now().served_waited == 2);
        check_ordered(streams[2], on_one, BIG);
        check_ordered(streams[2], on_legacy, BIG);
        void *out = NULL;
        CHECK(ashlar_alloc(allocator, BIG, NULL, &out) == ASHLAR_ENOMEM);
        CHECK(ashlar_alloc(allocator, BIG, streams[3], &out) == ASHLAR_ENOMEM);
        give(rest);
        CHECK(ashlar_allocator_trim(allocator, 0) == ASHLAR_OK);
        CHECK(ashlar_allocator_set_limit(allocator, ALL) == ASHLAR_OK);
        CHECK(ashlar_allocator_reserve(allocator, ALL) == ASHLAR_OK);
        CHECK(ashlar_allocator_forget_stream(allocator, streams[3]) == ASHLAR_OK);
        drop_graph(capture_end(streams[0]));
        pool_end(pool);
        pool_release(pool, streams[0]);
        CHECK(take(BIG, streams[0]) == ours);
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
        *failed += ashlar_allocator_trim(allocator, 0) != ASHLAR_OK;
    }
    return NULL;
}

CASE(other_threads_do_not_spoil_a_capture) {
    REQUIRE(set_up_cached_streams("64MiB", 4 * MIB));
    pthread_t thread;
    size_t failed = 0;
    ashlar_graph_pool *pool = pool_begin(streams[0]);
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
    CHECK(ashlar_graph_pool_begin(allocator, NULL, &other) == ASHLAR_EINVAL);
    CHECK_FAILS(ashlar_graph_pool_begin(allocator, legacy, &other), ASHLAR_EINVAL,
                "default stream");
    pool = pool_begin(streams[0]);
    CHECK_FAILS(ashlar_allocator_forget_stream(allocator, streams[0]), ASHLAR_EINVAL,
                "end its pool first");
    CHECK_FAILS(ashlar_graph_pool_begin(allocator, streams[0], &other), ASHLAR_EINVAL,
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
        HOST_FAILS_AT(
            n, CHECK(ashlar_graph_pool_begin(allocator, streams[n], &pool) == ASHLAR_EHOSTMEM));
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
