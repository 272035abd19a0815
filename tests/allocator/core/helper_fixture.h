/*
 * helper_fixture.h - a second thread that does what a case tells it, one thing at a time, and
 * lives on in between, with its cache.
 *
 * The case waits for each thing, so that what the helper does may use the check macros.
 */
#ifndef ASHLAR_HELPER_FIXTURE_H
#define ASHLAR_HELPER_FIXTURE_H

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

typedef struct helper {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    void (*task)(void); /* NULL: nothing to do */
    bool may_end;
} helper;

static helper one_helper = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static inline void *helper_run(void *arg) {
    helper *me = arg;
    pthread_mutex_lock(&me->lock);
    while (!me->may_end) {
        if (me->task == NULL) {
            pthread_cond_wait(&me->changed, &me->lock);
            continue;
        }
        void (*task)(void) = me->task;
        pthread_mutex_unlock(&me->lock);
        task();
        pthread_mutex_lock(&me->lock);
        me->task = NULL;
        pthread_cond_broadcast(&me->changed);
    }
    pthread_mutex_unlock(&me->lock);
    return NULL;
}

static inline bool helper_start(void) {
    one_helper.may_end = false;
    one_helper.task = NULL;
    return pthread_create(&one_helper.thread, NULL, helper_run, &one_helper) == 0;
}

/* False: the task has not ended after a time that is far too long. */
static inline bool helper_do(void (*task)(void)) {
    enum { TOO_LONG_S = 30 };
    struct timespec end;
    (void)clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += TOO_LONG_S;
    pthread_mutex_lock(&one_helper.lock);
    one_helper.task = task;
    pthread_cond_broadcast(&one_helper.changed);
    int waited = 0;
    while (one_helper.task != NULL && waited == 0) {
        waited = pthread_cond_timedwait(&one_helper.changed, &one_helper.lock, &end);
    }
    const bool is_done = one_helper.task == NULL;
    pthread_mutex_unlock(&one_helper.lock);
    return is_done;
}

/* Its thread is over when this returns. */
static inline void helper_end(void) {
    pthread_mutex_lock(&one_helper.lock);
    one_helper.may_end = true;
    pthread_cond_broadcast(&one_helper.changed);
    pthread_mutex_unlock(&one_helper.lock);
    (void)pthread_join(one_helper.thread, NULL);
}

#endif /* ASHLAR_HELPER_FIXTURE_H */
