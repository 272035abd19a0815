/*
 * test_crew.c - that a crew's threads work together, and what fails in one is heard of.
 */
#include "bench/harness/crew.h"

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
    ashlar_crew *crew = NULL;
    pthread_t before[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    REQUIRE(ashlar_crew_create(THREADS, &crew) == ASHLAR_OK);
    for (int turn = 1; turn <= 20; turn++) {
        double wall_ns = -1;
        CHECK(ashlar_crew_run(crew, meet, &barrier, &wall_ns) == ASHLAR_OK);
        CHECK(wall_ns > 0);
        for (int i = 0; i < THREADS; i++) {
            CHECK(atomic_load(&calls[i]) == turn);
            CHECK(turn == 1 || pthread_equal(before[i], ids[i]));
            CHECK(!pthread_equal(ids[i], pthread_self()));
            before[i] = ids[i];
        }
        CHECK(!pthread_equal(ids[0], ids[1]) && !pthread_equal(ids[1], ids[2]));
    }
    ashlar_crew_destroy(crew);
    pthread_barrier_destroy(&barrier);
}

static ashlar_status fail_but_first(void *arg, size_t thread) {
    (void)arg;
    return thread == 0 ? ASHLAR_OK : ashlar_fail(ASHLAR_ENOMEM, "thread %zu has none", thread);
}

static ashlar_status succeed(void *arg, size_t thread) {
    (void)arg;
    (void)thread;
    return ASHLAR_OK;
}

CASE(a_failure_comes_with_its_detail) {
    ashlar_crew *crew = NULL;
    double wall_ns = -1;
    REQUIRE(ashlar_crew_create(THREADS, &crew) == ASHLAR_OK);
    CHECK(ashlar_crew_run(crew, fail_but_first, NULL, &wall_ns) == ASHLAR_ENOMEM);
    CHECK(strcmp(ashlar_error_detail(), "thread 1 has none") == 0);
    CHECK(wall_ns < 0);
    CHECK(ashlar_crew_run(crew, succeed, NULL, &wall_ns) == ASHLAR_OK);
    CHECK(wall_ns >= 0);
    ashlar_crew_destroy(crew);
    ashlar_crew_destroy(NULL);
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
    ashlar_crew *crew = NULL;
    double wall_ns = 0;
    REQUIRE(ashlar_crew_create(THREADS, &crew) == ASHLAR_OK);
    CHECK(ashlar_crew_run(crew, sleep_on_first, NULL, &wall_ns) == ASHLAR_OK);
    CHECK(wall_ns >= 2e7);
    ashlar_crew_destroy(crew);
}

CASE(one_without_work_can_be_ended) {
    ashlar_crew *crew = NULL;
    CHECK(ashlar_crew_create(1, &crew) == ASHLAR_OK);
    ashlar_crew_destroy(crew);
}

CASE(without_host_memory_there_is_none) {
    ashlar_crew *crew = NULL;
    ashlar_host_fail_at(1);
    CHECK(ashlar_crew_create(1, &crew) == ASHLAR_EHOSTMEM);
    ashlar_host_fail_at(0);
    CHECK(crew == NULL);
}

RUN_CASES()
