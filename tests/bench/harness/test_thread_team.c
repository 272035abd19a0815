/*
 * test_thread_team.c - that a team's threads work together, and what fails in one is heard of.
 */
#include "bench/harness/thread_team.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "tests/check.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

enum { THREADS = 3 };

static pthread_barrier_t barrier;
static atomic_int calls[THREADS];
static pthread_t ids[THREADS];

/* Ends only if all threads are in it at once. */
static ashlar_status meet(void *arg, size_t thread) {
    atomic_fetch_add(&calls[thread], arg == &barrier);
    ids[thread] = pthread_self();
    pthread_barrier_wait(&barrier);
    return ASHLAR_OK;
}

CASE(threads_work_at_the_same_time_and_stay_the_same) {
    ashlar_thread_team *team = NULL;
    pthread_t before[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    REQUIRE(ashlar__thread_team_create(THREADS, &team) == ASHLAR_OK);
    for (int turn = 1; turn <= 20; turn++) {
        double wall_ns = -1;
        CHECK(ashlar__thread_team_run(team, meet, &barrier, &wall_ns) == ASHLAR_OK);
        CHECK(wall_ns > 0);
        for (int i = 0; i < THREADS; i++) {
            CHECK(atomic_load(&calls[i]) == turn);
            CHECK(turn == 1 || pthread_equal(before[i], ids[i]));
            CHECK(!pthread_equal(ids[i], pthread_self()));
            before[i] = ids[i];
        }
        CHECK(!pthread_equal(ids[0], ids[1]) && !pthread_equal(ids[1], ids[2]));
    }
    ashlar__thread_team_destroy(team);
    pthread_barrier_destroy(&barrier);
}

static ashlar_status fail_but_first(void *arg, size_t thread) {
    (void)arg;
    return thread == 0 ? ASHLAR_OK : ashlar__fail(ASHLAR_ENOMEM, "thread %zu has none", thread);
}

static ashlar_status succeed(void *arg, size_t thread) {
    (void)arg;
    (void)thread;
    return ASHLAR_OK;
}

CASE(a_failure_comes_with_its_detail) {
    ashlar_thread_team *team = NULL;
    double wall_ns = -1;
    REQUIRE(ashlar__thread_team_create(THREADS, &team) == ASHLAR_OK);
    CHECK(ashlar__thread_team_run(team, fail_but_first, NULL, &wall_ns) == ASHLAR_ENOMEM);
    CHECK(strcmp(ashlar_error_detail(), "thread 1 has none") == 0);
    CHECK(wall_ns < 0);
    CHECK(ashlar__thread_team_run(team, succeed, NULL, &wall_ns) == ASHLAR_OK);
    CHECK(wall_ns >= 0);
    ashlar__thread_team_destroy(team);
    ashlar__thread_team_destroy(NULL);
}

static ashlar_status sleep_on_first(void *arg, size_t thread) {
    (void)arg;
    if (thread == 0) {
        usleep(20000);
    }
    return ASHLAR_OK;
}

/* The first thread ends last here, and a sleep is never shorter than asked for. */
CASE(the_time_reaches_to_the_last_end) {
    ashlar_thread_team *team = NULL;
    double wall_ns = 0;
    REQUIRE(ashlar__thread_team_create(THREADS, &team) == ASHLAR_OK);
    CHECK(ashlar__thread_team_run(team, sleep_on_first, NULL, &wall_ns) == ASHLAR_OK);
    CHECK(wall_ns >= 2e7);
    ashlar__thread_team_destroy(team);
}

CASE(one_without_work_can_be_ended) {
    ashlar_thread_team *team = NULL;
    CHECK(ashlar__thread_team_create(1, &team) == ASHLAR_OK);
    ashlar__thread_team_destroy(team);
}

CASE(without_host_memory_there_is_none) {
    ashlar_thread_team *team = NULL;
    HOST_FAILS_AT(1, CHECK(ashlar__thread_team_create(1, &team) == ASHLAR_EHOSTMEM));
    CHECK(team == NULL);
}

RUN_CASES()
