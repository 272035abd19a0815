/*
 * test_workers_process.c - the workers of processes of their own: what the environment says, forks,
 * and a system that has no thread left.
 */
#include "arena/compute/workers.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ashlar/base.h>

#include "tests/child.h"

static atomic_size_t calls, foreign_calls;
static pthread_t caller;
static pthread_barrier_t all_here;

static void count_call(void *context, size_t i) {
    (void)i;
    if (context != NULL) {
        pthread_barrier_wait(context);
    }
    atomic_fetch_add(&calls, 1);
    atomic_fetch_add(&foreign_calls, !pthread_equal(caller, pthread_self()));
}

/* Calls by other threads among `count`, all of which are made; 99 where they are not. */
static int work(size_t count, pthread_barrier_t *barrier) {
    atomic_store(&calls, 0);
    atomic_store(&foreign_calls, 0);
    caller = pthread_self();
    ashlar__workers_run(count, count_call, barrier);
    return atomic_load(&calls) == count ? (int)atomic_load(&foreign_calls) : 99;
}

/* Two calls at once: the other one is made elsewhere. */
static int work_in_two(void) {
    pthread_barrier_init(&all_here, NULL, 2);
    ashlar__workers_set_count(2);
    return work(2, &all_here);
}

/* ---- the environment ---- */

static int count_by_environment(const void *text) {
    if (text != NULL) {
        setenv("ASHLAR_THREADS", text, 1);
    } else {
        unsetenv("ASHLAR_THREADS");
    }
    return ashlar__workers_check() == ASHLAR_OK ? (int)ashlar__workers_count() : 0;
}

CASE(the_environment_says_how_many) {
    CHECK(child_returns(count_by_environment, "1") == 1);
    CHECK(child_returns(count_by_environment, "7") == 7);
    CHECK(child_returns(count_by_environment, "255") == 255);
}

static int bad_environment(const void *text) {
    setenv("ASHLAR_THREADS", text, 1);
    if (ashlar__workers_check() != ASHLAR_EINVAL ||
        strstr(ashlar_error_detail(), "ASHLAR_THREADS") == NULL ||
        strstr(ashlar_error_detail(), "1 to 256") == NULL) {
        return 1;
    }
    return ashlar__workers_count() == 1 && work(10, NULL) == 0 ? 0 : 2;
}

CASE(a_bad_environment_is_reported_and_work_done_alone) {
    static const char *const texts[] = {"0", "257", "", "two", "-1", "2 ", "99999999999999999999"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        CHECK(child_returns(bad_environment, texts[i]) == 0);
    }
    CHECK(child_returns(bad_environment, "256") == 1); /* is none */
}

static int count_on_one_processor(const void *unused) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((unsigned)sched_getcpu(), &set);
    return sched_setaffinity(0, sizeof set, &set) == 0 ? count_by_environment(unused) : 99;
}

CASE(without_it_they_are_as_many_as_the_process_may_run_on) {
    cpu_set_t set;
    REQUIRE(sched_getaffinity(0, sizeof set, &set) == 0);
    const int want = CPU_COUNT(&set) < ASHLAR_WORKERS_MAX ? CPU_COUNT(&set) : ASHLAR_WORKERS_MAX;
    CHECK(child_returns(count_by_environment, NULL) == want);
    CHECK(child_returns(count_on_one_processor, NULL) == 1);
}

/* ---- forks, and no threads ---- */

static int work_there(const void *unused) {
    (void)unused;
    return work_in_two();
}

/*
 * There where AddressSanitizer is. Its own locks stay taken in a child of a process that was just
 * starting a thread, so there the forks wait until all threads run.
 */
extern void __asan_init(void) __attribute__((weak));

static void *work_for_long(void *stop) {
    caller = pthread_self();
    while (!atomic_load((atomic_bool *)stop)) {
        ashlar__workers_run(64, count_call, NULL);
    }
    return NULL;
}

/* Whatever another thread of the parent holds at that moment. */
static int fork_amid_work(const void *unused) {
    static atomic_bool stop;
    pthread_t thread;
    int good = 0;
    ashlar__workers_set_count(2);
    atomic_store(&foreign_calls, 0);
    if (pthread_create(&thread, NULL, work_for_long, &stop) != 0) {
        return 10;
    }
    while (__asan_init != NULL && atomic_load(&foreign_calls) == 0) {
        sched_yield();
    }
    for (int i = 0; i < 50; i++) {
        good += child_returns(work_there, unused) == 1;
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    return good;
}

CASE(a_fork_amid_work_leaves_the_child_able_to_work) {
    CHECK(child_returns(fork_amid_work, NULL) == 50);
}

static int work_without_threads(const void *unused) {
    (void)unused;
    ashlar__workers_set_count(4);
    ashlar__workers_refuse_start(1);
    return work(100, NULL);
}

/* Of four threads the system gives one. */
static int work_with_fewer_threads(const void *unused) {
    (void)unused;
    if (work_in_two() != 1) {
        return 10;
    }
    ashlar__workers_set_count(4);
    ashlar__workers_refuse_start(1);
    return work(100, NULL) != 99 && work_in_two() == 1 ? 0 : 20;
}

CASE(without_threads_the_caller_does_everything) {
    CHECK(child_returns(work_without_threads, NULL) == 0);
    CHECK(child_returns(work_with_fewer_threads, NULL) == 0);
}

static int exit_with_threads(const void *unused) {
    (void)unused;
    const int status = work_in_two() == 1 ? 7 : 8;
    exit(status);
}

CASE(a_process_may_end_while_they_are_there) {
    for (int i = 0; i < 20; i++) {
        CHECK(child_returns(exit_with_threads, NULL) == 7);
    }
}

RUN_CASES()
