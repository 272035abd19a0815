/*
 * soft_stream_fixture.h - streams and events of a software device, and a log of what ran.
 *
 * Adversarial cases run under many seeds: what must hold holds for each of them, and what the
 * program left open goes both ways for some.
 */
#ifndef ASHLAR_SOFT_STREAM_FIXTURE_H
#define ASHLAR_SOFT_STREAM_FIXTURE_H

#include "tests/allocator/soft/soft_fixture.h"

#include "tests/allocator/soft/soft_probe.h"

enum { SEEDS = 24, LOG_MAX = 256 };

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

static inline size_t stream_count(void) {
    size_t count = 0;
    for (const soft_stream *at = ashlar__soft_state.first_stream; at != NULL; at = at->next) {
        count++;
    }
    return count;
}

static inline cu_event new_event(void) {
    cu_event event = NULL;
    CHECK(soft->event_create(&event, CU_EVENT_NO_TIMING) == CU_SUCCESS);
    return event;
}

static inline cu_event record(cu_stream stream) {
    const cu_event event = new_event();
    CHECK(soft->event_record(event, stream) == CU_SUCCESS);
    return event;
}

static cu_stream s, t; /* unordered ones of the case */

/* Fresh devices with two streams, and an empty log. */
static inline bool set_up_streams(const char *spec) {
    if (!set_up(spec)) {
        return false;
    }
    s = new_stream(CU_STREAM_UNORDERED);
    t = new_stream(CU_STREAM_UNORDERED);
    forget();
    return true;
}

static inline bool set_up_adversarial(int seed) {
    char spec[64];
    (void)snprintf(spec, sizeof spec, "devices=2,memory=16MiB,mode=adversarial,seed=%d", seed);
    return set_up_streams(spec);
}

/* The case once for each seed. */
#define CASE_OF_SEEDS(test)                        \
    static void test##_body(void);                 \
    CASE(test) {                                   \
        for (int seed = 0; seed < SEEDS; seed++) { \
            REQUIRE(set_up_adversarial(seed));     \
            test##_body();                         \
        }                                          \
    }                                              \
    static void test##_body(void)

#endif /* ASHLAR_SOFT_STREAM_FIXTURE_H */
