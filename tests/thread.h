/*
 * thread.h - a part of a test in other threads.
 */
#ifndef ASHLAR_TESTS_THREAD_H
#define ASHLAR_TESTS_THREAD_H

#include "tests/check.h"

#include <pthread.h>

enum { CHECK_THREADS_MAX = 16 };

/* As run_threads(); *null_count: how many of them returned NULL. */
static inline void run_and_count(int count, void *(*act)(void *), void *arguments, size_t bytes,
                                 int *null_count) {
    pthread_t threads[CHECK_THREADS_MAX];
    REQUIRE(count <= CHECK_THREADS_MAX);
    int started = 0, joined = 0;
    while (started < count) { /* no check here: a thread that runs may be at one */
        void *argument = arguments == NULL ? NULL : (char *)arguments + (size_t)started * bytes;
        if (pthread_create(&threads[started], NULL, act, argument) != 0) {
            break;
        }
        started++;
    }
    for (int i = 0; i < started; i++) {
        void *result = NULL;
        joined += pthread_join(threads[i], &result) == 0;
        *null_count += result == NULL;
    }
    REQUIRE(started == count && joined == count);
}

/* `count` threads at once run `act`, each with one of `arguments`, which are `bytes` apart. */
static inline void run_threads(int count, void *(*act)(void *), void *arguments, size_t bytes) {
    int unused = 0;
    run_and_count(count, act, arguments, bytes, &unused);
}

/* The same. A thread that finds something wrong returns something else than NULL. */
static inline void run_judging_threads(int count, void *(*act)(void *), void *arguments,
                                       size_t bytes) {
    int null_count = 0;
    run_and_count(count, act, arguments, bytes, &null_count);
    CHECK(null_count == count);
}

static inline void run_thread(void *(*act)(void *), void *argument) {
    run_threads(1, act, argument, 0);
}

#endif /* ASHLAR_TESTS_THREAD_H */
