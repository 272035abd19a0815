/*
 * planted_capture.h - a capture that another thread has begun in global mode, without a word to
 * ashlar, as CUDA programs do: for tests of calls that must not spoil it. A strict device ends the
 * process in the call that would, and names it.
 */
#ifndef ASHLAR_PLANTED_CAPTURE_H
#define ASHLAR_PLANTED_CAPTURE_H

#include "tests/allocator/device/device_fixture.h"

#include <pthread.h>
#include <semaphore.h>

/* A thread with a capture of its own, on a stream that nobody else sees. */
typedef struct planted {
    pthread_t thread;
    sem_t begun, may_end;
    cu_result begin, end;
} planted;

static inline void *hold_a_capture(void *user) {
    planted *p = user;
    const ashlar_driver_table *table = &driver->table;
    cu_stream stream = NULL;
    cu_graph graph = NULL;
    p->begin = table->ctx_push_current(device->context);
    if (p->begin == CU_SUCCESS) {
        p->begin = table->stream_create(&stream, CU_STREAM_UNORDERED);
    }
    if (p->begin == CU_SUCCESS) {
        p->begin = table->stream_begin_capture(stream, CU_CAPTURE_GLOBAL);
    }
    sem_post(&p->begun);
    sem_wait(&p->may_end);
    p->end = table->stream_end_capture(stream, &graph);
    if (graph != NULL) {
        (void)table->graph_destroy(graph);
    }
    (void)table->stream_destroy(stream);
    (void)table->ctx_pop_current(NULL);
    return NULL;
}

static inline void plant(planted *p) {
    *p = (planted){.begin = CU_UNKNOWN, .end = CU_UNKNOWN};
    sem_init(&p->begun, 0, 0);
    sem_init(&p->may_end, 0, 0);
    REQUIRE(pthread_create(&p->thread, NULL, hold_a_capture, p) == 0);
    sem_wait(&p->begun);
    CHECK(p->begin == CU_SUCCESS);
}

/* How the capture has ended. */
static inline cu_result dig_up(planted *p) {
    sem_post(&p->may_end);
    pthread_join(p->thread, NULL);
    sem_destroy(&p->begun);
    sem_destroy(&p->may_end);
    return p->end;
}

#endif /* ASHLAR_PLANTED_CAPTURE_H */
