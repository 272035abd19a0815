/*
 * thread.h - a part of a test in other threads.
 */
#ifndef ASHLAR_TESTS_THREAD_H
#define ASHLAR_TESTS_THREAD_H

#include "tests/check.h"

#include <pthread.h>

enum { CHECK_THREADS_MAX = 16 };

/* `count` threads at once run `act`, each with one of `arguments`, which are `bytes` apart. */
static inline void run_threads(int count, void *(*act)(void *), void *arguments, size_t bytes) {
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
        joined += pthread_join(threads[i], NULL) == 0;
    }
    REQUIRE(started == count && joined == count);
}

static inline void run_thread(void *(*act)(void *), void *argument) {
    run_threads(1, act, argument, 0);
}

#endif /* ASHLAR_TESTS_THREAD_H */
