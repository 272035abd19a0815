/*
 * test_step_forked.c - what a child of fork() can do with its parent's allocators, whatever the
 * parent's threads did at the fork: call them, be told, and end.
 */
#include "tests/allocator/core/allocator_fixture.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ashlar/graph_pool.h>
#include <ashlar/plan.h>
#include <ashlar/plan_list.h>
#include <ashlar/trace.h>
#include <ashlar/warmup.h>

#include "allocator/core/slow_path.h"

enum { FORKS = 200, THREADS = 4, KEPT = 8, SECONDS = 20 };

static ashlar_allocator *second; /* of the same device */
static void *kept[KEPT];
static ashlar_graph_pool *pool;
static atomic_bool is_over;
static atomic_int bad_count; /* calls of the parent's threads that failed */

/* ---- the child ---- */

static int failed_line; /* of the first call that was not answered as it should be */

#define EXPECT(expr) (failed_line = failed_line == 0 && !(expr) ? __LINE__ : failed_line)
#define IS_REFUSED(call) \
    EXPECT((call) == ASHLAR_EDRIVER && strstr(ashlar_error_detail(), "forked") != NULL)

static void call_plans(ashlar_allocator *a) {
    ashlar_plan_stats stats;
    const ashlar_warmup_options warmup = {.max_length = 1, .min_length = 1, .without_plan = true};
    IS_REFUSED(ashlar_step_begin(a, streams[0], 1));
    IS_REFUSED(ashlar_step_end(a));
    IS_REFUSED(ashlar_plan_build(a));
    IS_REFUSED(ashlar_plan_drop(a));
    IS_REFUSED(ashlar_plan_record_events(a, streams[0], 1, NULL, 0));
    IS_REFUSED(ashlar_plan_record_buffers(a, streams[0], 1, NULL, 0, ASHLAR_TAG_USER));
    IS_REFUSED(ashlar_plan_write_svg(a, streams[0], 1, streams[0], "/dev/null"));
    EXPECT(ashlar_allocator_warmup(a, &warmup, NULL) != ASHLAR_OK);
    IS_REFUSED(ashlar_plan_set_options(a, NULL));
    ashlar_plan_record_next(a, 1);
    ashlar_plan_get_stats(a, &stats);
    EXPECT(stats.plan_count == 0);
}

static void call_limits(ashlar_allocator *a) {
    IS_REFUSED(ashlar_allocator_trim(a, 0));
    IS_REFUSED(ashlar_allocator_set_limit(a, MIB));
    IS_REFUSED(ashlar_allocator_reserve(a, MIB));
    IS_REFUSED(ashlar_allocator_allow_peer(a, 0));
    ashlar_allocator_seal(a);
    IS_REFUSED(ashlar_allocator_set_seal_policy(a, ASHLAR_SEAL_COUNT, NULL, NULL));
    ashlar_allocator_set_reclaim(a, NULL, NULL);
    ashlar_allocator_set_report(a, NULL, NULL);
}

static void call_all(ashlar_allocator *a) {
    ashlar_stats stats = {.live_blocks = 1};
    ashlar_snapshot *snapshot = NULL;
    void *ptr = NULL;
    size_t bytes = 0;
    for (int i = 0; i < STREAMS; i++) {
        IS_REFUSED(ashlar_alloc(a, 4096, streams[i], &ptr));
    }
    IS_REFUSED(ashlar_record_stream(a, kept[1], streams[1]));
    IS_REFUSED(ashlar_allocator_usable_bytes(a, kept[1], &bytes));
    IS_REFUSED(ashlar_allocator_check(a));
    IS_REFUSED(ashlar_allocator_forget_stream(a, streams[1]));
    IS_REFUSED(ashlar_allocator_take_snapshot(a, &snapshot));
    IS_REFUSED(ashlar_allocator_write_snapshot(a, "/dev/null"));
    IS_REFUSED(ashlar_allocator_write_trace(a, ASHLAR_TRACE_SVG, "/dev/null", NULL));
    IS_REFUSED(ashlar_graph_pool_begin(a, streams[2], &pool));
    ashlar_allocator_get_stats(a, &stats);
    EXPECT(stats.live_blocks == 0 && ptr == NULL);
    EXPECT(ashlar_free(a, kept[0]) == ASHLAR_OK);
    EXPECT(ashlar_free_on(a, kept[1], streams[0]) == ASHLAR_OK);
    call_limits(a);
    call_plans(a);
}

/* It ends as a program does: with its exit handlers, or with its last thread. */
static void be_child(bool ends_thread) {
    ashlar_device *own = NULL;
    (void)alarm(SECONDS);
    call_all(allocator);
    call_all(second);
    EXPECT(ashlar_device_open("soft", &own) == ASHLAR_EDRIVER);
    ashlar_stream_destroy(device, streams[3]);
    ashlar_allocator_destroy(second);
    ashlar_allocator_destroy(allocator);
    ashlar_device_close(device);
    if (failed_line != 0) {
        _exit(failed_line % 255 + 1);
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
    ashlar_config config;
    bool is_good =
        setenv("ASHLAR_CONF", "leaks=on", 1) == 0 && set_up_cached("memory=256MiB", 4 * MIB);
    ashlar_config_init(&config);
    config.report_leaks = true;
    is_good = is_good && ashlar_allocator_create_with(device, &config, &second) == ASHLAR_OK;
    for (int i = 0; i < KEPT && is_good; i++) {
        is_good = ashlar_alloc(allocator, 1000, streams[0], &kept[i]) == ASHLAR_OK;
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

CASE(a_child_is_told_that_the_allocator_is_its_parents) {
    REQUIRE(set_up_two());
    CHECK(child_ends_well(false));
    CHECK(child_ends_well(true));
    tear_down_two();
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

CASE(the_parent_goes_on_behind_a_fork) {
    REQUIRE(set_up_two());
    CHECK(child_ends_well(false));
    void *ptr = NULL;
    CHECK(ashlar_alloc(allocator, 1000, streams[0], &ptr) == ASHLAR_OK);
    CHECK(ptr == kept[KEPT - 1]);
    CHECK(ashlar_free(allocator, ptr) == ASHLAR_OK);
    tear_down_two();
}

RUN_CASES()
