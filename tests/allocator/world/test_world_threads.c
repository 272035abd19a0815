/*
 * test_world_threads.c - two allocators of one device on two threads at once: what is a fact of the
 * whole process, captures and who has idle memory, changes while the other one looks at it.
 *
 * The world's threads take turns (world_run.h), so these do not. Here no request has to be served;
 * but each is answered, no capture is lost, and nobody writes where another one reads.
 */
#include "tests/allocator/core/graph_pool_fixture.h"

#include "allocator/base/host.h"
#include "allocator/base/random.h"
#include "tests/thread.h"

#include <unistd.h>

enum {
    ROUNDS = CHECK_SANITIZED(4000, 800),
    HANG_SECONDS = 100,
};

static ashlar_allocator *second;
static ashlar_stream captured; /* not ordered with the legacy stream, which others use meanwhile */
static atomic_int running;     /* threads that run out of memory, while others go on */
static atomic_int wrong_count;

static void tear_down_second(void) {
    ashlar_allocator_destroy(second);
}

/* Calls for memory and on streams and events take a while, so that much comes between what a thread
 * has seen and what it then does. As in a driver, the thread is busy meanwhile. */
static void take_a_while(ashlar_driver_fn fn) {
    const ashlar_driver_kind kind = ashlar__driver_fn_kind(fn);
    const bool is_slow =
        kind == ASHLAR_DRIVER_MEMORY || kind == ASHLAR_DRIVER_WAIT || kind == ASHLAR_DRIVER_ORDER;
    const uint64_t begin_ns = ashlar__clock_ns();
    while (is_slow && ashlar__clock_ns() - begin_ns < 5000) {
    }
}

/* share: of the second, whose memory comes in segments then. */
static bool set_up_two(const char *spec, bool shares) {
    ashlar_config config = {0};
    config.cache_bytes = ASHLAR_CACHE_NONE;
    config.shares_memory = shares;
    (void)alarm(HANG_SECONDS);
    atomic_store(&wrong_count, 0);
    if (!set_up(spec) || ashlar__device_enter(device) != ASHLAR_OK) {
        return false;
    }
    driver->delay = take_a_while;
    const cu_result result = driver->table.stream_create(&captured, CU_STREAM_UNORDERED);
    ashlar__device_leave(device);
    return result == CU_SUCCESS &&
           ashlar_allocator_create_with(device, &config, &second) == ASHLAR_OK &&
           check_at_end(tear_down_second);
}

/* Threads make no checks of check.h's: those are one thread's. */
static void expect(bool is_right, int line) {
    if (!is_right && atomic_fetch_add(&wrong_count, 1) == 0) {
        printf("# line %d: %s\n", line, ashlar_error_detail());
    }
}
#define EXPECT(expr) expect((expr), __LINE__)

/* ---- one that runs out of memory, again and again ---- */

typedef struct hungry {
    ashlar_allocator *of;
    uint64_t random;
    int first_stream;
    int rounds;
} hungry;

static void take_and_write(hungry *h, void **ptr) {
    const uint64_t drawn = ashlar__random_step_below(&h->random, 4);
    const size_t bytes = (2 + 2 * ashlar__random_step_below(&h->random, 6)) * MIB;
    const ashlar_stream stream = drawn < 2 ? NULL : streams[h->first_stream + (int)(drawn % 2)];
    const ashlar_status status = ashlar_alloc(h->of, bytes, stream, ptr);
    EXPECT(status == ASHLAR_OK || status == ASHLAR_ENOMEM);
    if (status == ASHLAR_OK) {
        EXPECT(ashlar_fill(device, *ptr, 1, 512, stream) == ASHLAR_OK);
    }
}

static void *run_out(void *arg) {
    hungry *h = arg;
    void *ptrs[4] = {NULL};
    for (int i = 0; i < h->rounds; i++) {
        void **ptr = &ptrs[ashlar__random_step_below(&h->random, 4)];
        if (*ptr != NULL) {
            EXPECT(ashlar_free(h->of, *ptr) == ASHLAR_OK);
            *ptr = NULL;
        } else {
            take_and_write(h, ptr);
        }
    }
    for (int i = 0; i < 4; i++) {
        EXPECT(ashlar_free(h->of, ptrs[i]) == ASHLAR_OK);
    }
    atomic_fetch_sub(&running, 1);
    return NULL;
}

/* ---- one that captures meanwhile ---- */

static void begin_mode(ashlar_stream stream, unsigned mode) {
    EXPECT(ashlar__device_enter(device) == ASHLAR_OK);
    EXPECT(driver->table.stream_begin_capture(stream, mode) == CU_SUCCESS);
    ashlar__device_leave(device);
}

static void end_and_drop(ashlar_stream stream) {
    cu_graph graph = NULL;
    EXPECT(ashlar__device_enter(device) == ASHLAR_OK);
    EXPECT(driver->table.stream_end_capture(stream, &graph) == CU_SUCCESS); /* else it was spoilt */
    EXPECT(graph == NULL || driver->table.graph_destroy(graph) == CU_SUCCESS);
    ashlar__device_leave(device);
}

static void capture_block(unsigned mode) {
    void *ptr = NULL;
    begin_mode(captured, mode);
    const ashlar_status status = ashlar_alloc(second, MIB, captured, &ptr);
    EXPECT(status == ASHLAR_OK || status == ASHLAR_ENOMEM);
    EXPECT(ptr == NULL || ashlar_fill(device, ptr, 2, 512, captured) == ASHLAR_OK);
    EXPECT(ashlar_free(second, ptr) == ASHLAR_OK);
    end_and_drop(captured);
}

/* captures: there is one with each pool; else pools only begin and end. */
static void *begin_and_end(void *captures) {
    static const unsigned modes[] = {CU_CAPTURE_GLOBAL, CU_CAPTURE_THREAD_LOCAL,
                                     CU_CAPTURE_RELAXED};
    for (unsigned i = 0; atomic_load(&running) > 0; i++) {
        ashlar_graph_pool *pool = NULL;
        if (ashlar_graph_pool_begin(second, captured, NULL, &pool) != ASHLAR_OK) {
            EXPECT(false);
            break;
        }
        if (captures != NULL) {
            capture_block(modes[i % 3]);
        }
        ashlar_graph_pool_end(pool);
        EXPECT(ashlar_graph_pool_release(pool, captured) == ASHLAR_OK);
    }
    return NULL;
}

static void run_beside(hungry *h, int count, void *captures) {
    pthread_t thread;
    atomic_store(&running, count);
    REQUIRE(pthread_create(&thread, NULL, begin_and_end, captures) == 0);
    run_threads(count, run_out, h, sizeof *h);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(atomic_load(&wrong_count) == 0);
    CHECK(ashlar_allocator_check(second) == ASHLAR_OK);
}

CASE_WITH(pools_begin_and_end_while_another_allocator_runs_out, set_up_two("memory=16MiB", false)) {
    hungry h = {allocator, 1, 1, ROUNDS};
    run_beside(&h, 1, NULL);
}

CASE_WITH(captures_hold_while_another_allocator_runs_out, set_up_two("memory=16MiB", false)) {
    hungry h = {allocator, 2, 1, ROUNDS};
    run_beside(&h, 1, &h);
}

CASE_WITH(captures_hold_while_their_own_allocator_runs_out, set_up_two("memory=16MiB", false)) {
    hungry h = {second, 3, 1, ROUNDS};
    run_beside(&h, 1, &h);
}

CASE_WITH(captures_hold_while_an_allocator_that_watches_streams_runs_out,
          set_up_two("memory=16MiB", false)) {
    hungry h = {allocator, 6, 1, ROUNDS};
    ashlar_allocator_watch_streams(allocator);
    run_beside(&h, 1, &h);
}

/* ---- two that have each other's memory ---- */

static void run_both(void) {
    hungry both[] = {{allocator, 4, 0, ROUNDS}, {second, 5, 2, ROUNDS}};
    atomic_store(&running, 2);
    run_threads(2, run_out, both, sizeof both[0]);
    CHECK(atomic_load(&wrong_count) == 0);
    CHECK(ashlar_allocator_check(second) == ASHLAR_OK);
}

CASE_WITH(two_allocators_run_out_at_once, set_up_two("memory=16MiB", false)) {
    run_both();
}

CASE_WITH(two_allocators_run_out_while_work_runs, set_up_two("memory=16MiB,mode=overlap", false)) {
    run_both();
}

CASE_WITH(one_that_shares_and_another_run_out_at_once, set_up_two("memory=16MiB", true)) {
    run_both();
}

RUN_CASES()
