/*
 * soft_stream_fixture.h - streams and events of a software device, and a log of what ran.
 *
 * Adversarial cases run under many seeds: what must hold holds for each of them, and what the
 * program left open goes both ways for some.
 */
#ifndef ASHLAR_SOFT_STREAM_FIXTURE_H
#define ASHLAR_SOFT_STREAM_FIXTURE_H

#include "tests/allocator/soft/soft_fixture.h"

enum { SEEDS = 24, LOG_MAX = 256 };

static inline bool set_up_adversarial(int seed) {
    char spec[64];
    (void)snprintf(spec, sizeof spec, "devices=2,memory=16MiB,mode=adversarial,seed=%d", seed);
    return set_up(spec);
}

/* What ran, in order: each host function adds its letter. */
static char ran[LOG_MAX];
static size_t ran_count;

static inline void note(void *letter) {
    if (ran_count < LOG_MAX - 1) {
        ran[ran_count++] = *(const char *)letter;
        ran[ran_count] = '\0';
    }
}

static inline void forget(void) {
    ran_count = 0;
    ran[0] = '\0';
}

/* Queue note(letter). */
static inline void queue(cu_stream stream, const char *letter) {
    CHECK(soft->launch_host_func(stream, note, (void *)(uintptr_t)letter) == CU_SUCCESS);
}

static inline bool ran_before(char first, char second) {
    const char *a = strchr(ran, first), *b = strchr(ran, second);
    return a != NULL && b != NULL && a < b;
}

static inline cu_stream new_stream(unsigned int flags) {
    cu_stream stream = NULL;
    CHECK(soft->stream_create(&stream, flags) == CU_SUCCESS);
    return stream;
}

static inline cu_event new_event(void) {
    cu_event event = NULL;
    CHECK(soft->event_create(&event, CU_EVENT_NO_TIMING) == CU_SUCCESS);
    return event;
}

#endif /* ASHLAR_SOFT_STREAM_FIXTURE_H */
