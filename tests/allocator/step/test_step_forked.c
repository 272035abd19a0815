/*
 * test_step_forked.c - what a child of fork() can do with its parent's allocators, whatever the
 * parent's threads did at the fork: call them, be told, and end.
 */
#include "tests/allocator/core/allocator_fixture.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ashlar/base.h>
#include <ashlar/plan.h>
#include <ashlar/trace.h>

enum { FORKS = 200, THREADS = 4, KEPT = 8, SECONDS = 20 };

static ashlar_allocator *second; /* of the same device */
static void *kept[KEPT];
static ashlar_graph_pool *pool;
static atomic_bool is_over;
static atomic_int bad_count; /* calls of the parent's threads that failed */

/* ---- the child ---- */

/* Every call that it may make on an allocator, and what it must be told. Nothing here prints, or
 * takes anything that the parent's threads may have held. */
static int forked_line; /* of the first call that was not answered as it should be; 0: none */

#define FORKED_EXPECT(expr) (forked_line = forked_line == 0 && !(expr) ? __LINE__ : forked_line)
#define FORKED_IS_REFUSED(call) \
    FORKED_EXPECT((call) == ASHLAR_EDRIVER && strstr(ashlar_error_detail(), "forked") != NULL)

static ashlar_status forked_step(void *unused, size_t length) {
    (void)unused;
    FORKED_EXPECT(length == 0); /* it is never called */
    return ASHLAR_OK;
}

static void forked_call_plans(ashlar_allocator *a, ashlar_stream stream) {
    ashlar_plan_stats stats;
    ashlar_warmup_report report;
    const ashlar_warmup_options warmup = {
        .max_length = 1, .step = forked_step, .without_plan = true};
    FORKED_IS_REFUSED(ashlar_step_begin(a, stream, 1));
    FORKED_IS_REFUSED(ashlar_step_end(a));
    FORKED_IS_REFUSED(ashlar_plan_build(a));
    FORKED_IS_REFUSED(ashlar_plan_drop(a));
    FORKED_IS_REFUSED(ashlar_allocator_warmup(a, &warmup, &report));
    FORKED_IS_REFUSED(ashlar_plan_set_options(a, NULL));
    ashlar_plan_record_next(a, 1);
    ashlar_plan_get_stats(a, &stats);
    FORKED_EXPECT(stats.plan_count == 0);
}

static void forked_call_limits(ashlar_allocator *a) {
    FORKED_IS_REFUSED(ashlar_allocator_trim(a, 0));
    FORKED_IS_REFUSED(ashlar_allocator_set_limit(a, (size_t)1 << 20));
    FORKED_IS_REFUSED(ashlar_allocator_reserve(a, (size_t)1 << 20));
    FORKED_IS_REFUSED(ashlar_allocator_allow_peer(a, 0));
    ashlar_allocator_seal(a);
    ashlar_allocator_reset_peaks(a);
    ashlar_allocator_watch_streams(a);
    FORKED_IS_REFUSED(ashlar_allocator_set_seal_policy(a, ASHLAR_SEAL_COUNT, NULL, NULL));
    ashlar_allocator_set_reclaim(a, NULL, NULL);
    ashlar_allocator_set_report(a, NULL, NULL);
}

static void forked_call_pools(ashlar_allocator *a, ashlar_stream stream) {
    ashlar_graph_pool *new_pool = NULL;
    FORKED_IS_REFUSED(ashlar_graph_pool_begin(a, stream, NULL, &new_pool));
    FORKED_EXPECT(new_pool == NULL);
    FORKED_IS_REFUSED(ashlar_graph_pool_begin(allocator, stream, pool, &pool));
    ashlar_graph_pool_end(pool);
    FORKED_IS_REFUSED(ashlar_graph_pool_release(pool, stream));
}

static void forked_call_all(ashlar_allocator *a, void *block, ashlar_stream stream) {
    ashlar_stats stats = {.live_blocks = 1};
    ashlar_snapshot *snapshot = NULL;
    void *ptr = NULL;
    size_t bytes = 0;
    FORKED_IS_REFUSED(ashlar_alloc(a, 4096, stream, &ptr));
    FORKED_IS_REFUSED(ashlar_alloc(a, (size_t)9 << 20, NULL, &ptr));
    FORKED_IS_REFUSED(ashlar_record_stream(a, block, stream));
    FORKED_IS_REFUSED(ashlar_usable_bytes(a, block, &bytes));
    FORKED_IS_REFUSED(ashlar_allocator_check(a));
    FORKED_IS_REFUSED(ashlar_allocator_forget_stream(a, stream));
    FORKED_IS_REFUSED(ashlar_allocator_take_snapshot(a, &snapshot));
    FORKED_IS_REFUSED(ashlar_allocator_write_snapshot(a, "/dev/null"));
    FORKED_IS_REFUSED(ashlar_allocator_write_trace(a, "/dev/null", NULL));
    ashlar_allocator_get_stats(a, &stats);
    FORKED_EXPECT(stats.live_blocks == 0 && ptr == NULL);
    FORKED_EXPECT(ashlar_free(a, block) == ASHLAR_OK);
    FORKED_EXPECT(ashlar_free_on(a, block, stream) == ASHLAR_OK);
    forked_call_limits(a);
    forked_call_plans(a, stream);
    forked_call_pools(a, stream);
}

/* It ends as a program does: with its exit handlers, or with its last thread. */
static void be_child(bool ends_thread) {
    ashlar_device *own = NULL;
    (void)alarm(SECONDS);
    for (int i = 0; i < STREAMS - 1; i++) { /* what a hit would serve from, and others */
        forked_call_all(allocator, kept[i], streams[i]);
        forked_call_all(second, kept[i], streams[i]);
    }
    FORKED_EXPECT(ashlar_device_open("soft", &own) == ASHLAR_EDRIVER);
    ashlar_stream_destroy(device, streams[3]);
    ashlar_allocator_destroy(second);
    ashlar_allocator_destroy(allocator);
    ashlar_device_close(device);
    if (forked_line != 0) {
        _exit(forked_line % 255 + 1);
    }
#if defined(__SANITIZE_ADDRESS__)
    _exit(0); /* exit() looks for leaks, and takes the memory of the parent's other threads for some
               */
#endif
    if (ends_thread) {
        pthread_exit(NULL);
    }
    exit(0);
}

static bool child_ends_well(bool ends_thread) {
    int status = -1;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        be_child(ends_thread);
    }
    const bool is_good = child > 0 && waitpid(child, &status, 0) == child && status == 0;
    if (!is_good) {
        printf("# the child ended with status 0x%x\n", (unsigned)status);
    }
    return is_good;
}

/* ---- the parent ---- */

static void *work(void *of) {
    ashlar_allocator *a = of;
    ashlar_stats stats;
    for (size_t i = 0; !atomic_load(&is_over); i++) {
        void *ptr = NULL;
        const ashlar_stream stream = streams[i % (STREAMS - 1)];
        bool is_good = ashlar_alloc(a, 512 + (i * 7919) % (3 * MIB), stream, &ptr) == ASHLAR_OK &&
                       ashlar_free_on(a, ptr, streams[i / 2 % (STREAMS - 1)]) == ASHLAR_OK;
        if (i % 16 == 0) {
            ashlar_allocator_get_stats(a, &stats);
            is_good = is_good && ashlar_allocator_trim(a, 8 * MIB) == ASHLAR_OK;
        }
        bad_count += !is_good;
        if (i % 64 == 0) { /* takes the locks of the lists of allocators */
            ashlar_allocator *third = NULL;
            if (ashlar_allocator_create(device, &third) == ASHLAR_OK) {
                ashlar_allocator_destroy(third);
            }
        }
    }
    return NULL;
}

static bool set_up_two(void) {
    ashlar_config config = {0};
    bool is_good =
        setenv("ASHLAR_CONF", "leaks=on", 1) == 0 && set_up_cached("memory=256MiB", 4 * MIB);
    config.report_leaks = true;
    is_good = is_good && ashlar_allocator_create_with(device, &config, &second) == ASHLAR_OK;
    for (int i = 0; i < KEPT && is_good; i++) {
        is_good = ashlar_alloc(allocator, 1000, streams[0], &kept[i]) == ASHLAR_OK;
    }
    is_good = is_good && ashlar_graph_pool_begin(allocator, streams[2], NULL, &pool) == ASHLAR_OK;
    if (is_good) {
        ashlar_graph_pool_end(pool);
    }
    for (int i = KEPT / 2; i < KEPT && is_good; i++) { /* which a hit would hand out again */
        is_good = ashlar_free(allocator, kept[i]) == ASHLAR_OK;
    }
    return is_good;
}

static void tear_down_two(void) {
    for (int i = 0; i < KEPT / 2; i++) {
        CHECK(ashlar_free(allocator, kept[i]) == ASHLAR_OK);
    }
    CHECK(ashlar_graph_pool_release(pool, streams[2]) == ASHLAR_OK);
    ashlar_allocator_destroy(second);
    (void)unsetenv("ASHLAR_CONF");
}

/* ---- cases ---- */

static bool uses_its_own(void) {
    void *ptr = NULL;
    if (ashlar_device_open("soft", &device) != ASHLAR_OK ||
        ashlar_allocator_create(device, &allocator) != ASHLAR_OK ||
        ashlar_alloc(allocator, 4096, NULL, &ptr) != ASHLAR_OK ||
        ashlar_free(allocator, ptr) != ASHLAR_OK ||
        ashlar_allocator_check(allocator) != ASHLAR_OK) {
        return false;
    }
    ashlar_allocator_destroy(allocator);
    ashlar_device_close(device);
    return true;
}

CASE(a_child_forked_before_any_device_was_opened_has_its_own) {
    int status = -1;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        (void)alarm(SECONDS);
        _exit(uses_its_own() ? 0 : 1);
    }
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

CASE(a_child_does_not_hang_on_what_other_threads_had_at_the_fork) {
    pthread_t threads[THREADS];
    int good = 0;
    REQUIRE(set_up_two());
    atomic_store(&is_over, false);
    for (int i = 0; i < THREADS; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, work, i % 2 == 0 ? allocator : second) == 0);
    }
    for (int i = 0; i < FORKS && good == i; i++) {
        good += child_ends_well(i % 4 == 3);
    }
    atomic_store(&is_over, true);
    for (int i = 0; i < THREADS; i++) {
        REQUIRE(pthread_join(threads[i], NULL) == 0);
    }
    CHECK(good == FORKS && atomic_load(&bad_count) == 0);
    tear_down_two();
}

RUN_CASES()
