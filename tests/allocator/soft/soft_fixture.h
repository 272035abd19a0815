/*
 * soft_fixture.h - fresh software devices, called through the driver's table, for tests: their
 * memory, counted in pages; their streams and events, with a log of what ran; captures.
 *
 * Adversarial cases run under many seeds: what must hold holds for each of them, and what the
 * program left open goes both ways for some.
 */
#ifndef ASHLAR_SOFT_FIXTURE_H
#define ASHLAR_SOFT_FIXTURE_H

/* These tests also look at what the device answers to mistakes, so it ends none of them. */
#define CHECK_SOFT_DEFAULTS ""
#include "tests/check.h"

#include <stdint.h>

#include "allocator/driver/driver.h"
#include "tests/allocator/soft/soft_probe.h"

static ashlar_driver *driver;
static const ashlar_driver_table *soft;

static inline bool make_current(int ordinal) {
    cu_context context;
    return soft->primary_ctx_retain(&context, ordinal) == CU_SUCCESS &&
           soft->ctx_push_current(context) == CU_SUCCESS;
}

/* Fresh devices, with the context of device 0 current. */
static inline bool set_up(const char *spec) {
    if (ashlar__driver_open_soft(&driver) != ASHLAR_OK ||
        ashlar__soft_configure(spec) != ASHLAR_OK) {
        return false;
    }
    soft = &driver->table;
    return make_current(0);
}

static inline cu_ptr alloc(size_t bytes) {
    cu_ptr ptr = 0;
    CHECK(soft->mem_alloc(&ptr, bytes) == CU_SUCCESS);
    return ptr;
}

static inline void *alloc_host(size_t bytes) {
    void *ptr = NULL;
    CHECK(soft->mem_host_alloc(&ptr, bytes, 0) == CU_SUCCESS);
    return ptr;
}

static inline unsigned char *bytes_at(cu_ptr ptr) {
    return (unsigned char *)(uintptr_t)ptr;
}

/* ---- memory ---- */

#define PAGE ((size_t)2 << 20)

static const cu_mem_prop prop = {.type = CU_ALLOCATION_PINNED,
                                 .location = {.type = CU_LOCATION_DEVICE, .id = 0}};
static const cu_mem_access access0 = {.location = {.type = CU_LOCATION_DEVICE, .id = 0},
                                      .flags = CU_ACCESS_READWRITE};

static inline size_t free_pages(void) {
    size_t left = 0, total = 0;
    CHECK(soft->mem_get_info(&left, &total) == CU_SUCCESS);
    CHECK_ZU(left % PAGE, 0);
    return left / PAGE;
}

static inline cu_ptr reserve(size_t page_count) {
    cu_ptr ptr = 0;
    CHECK(soft->mem_address_reserve(&ptr, page_count * PAGE, 0, 0, 0) == CU_SUCCESS);
    return ptr;
}

static inline cu_mem_handle create(size_t page_count) {
    cu_mem_handle handle = 0;
    CHECK(soft->mem_create(&handle, page_count * PAGE, &prop, 0) == CU_SUCCESS);
    return handle;
}

/* Map and make accessible. */
static inline void place(cu_ptr ptr, size_t page_count, cu_mem_handle handle) {
    CHECK(soft->mem_map(ptr, page_count * PAGE, 0, handle, 0) == CU_SUCCESS);
    CHECK(soft->mem_set_access(ptr, page_count * PAGE, &access0, 1) == CU_SUCCESS);
}

/* ---- streams ---- */

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

/* ---- captures ---- */

static inline void begin(cu_stream stream, unsigned int mode) {
    CHECK(soft->stream_begin_capture(stream, mode) == CU_SUCCESS);
}

static inline unsigned int status_of(cu_stream stream) {
    unsigned int status = 99;
    CHECK(soft->stream_is_capturing(stream, &status) == CU_SUCCESS);
    return status;
}

/* End the capture with success, and make the graph ready to launch. */
static inline cu_graph_exec end(cu_stream stream) {
    cu_graph graph = NULL;
    cu_graph_exec exec = NULL;
    CHECK(soft->stream_end_capture(stream, &graph) == CU_SUCCESS);
    CHECK(soft->graph_instantiate(&exec, graph, 0) == CU_SUCCESS);
    CHECK(soft->graph_destroy(graph) == CU_SUCCESS); /* the executable copy stands alone */
    return exec;
}

/* End a capture that has been spoilt. */
static inline void check_spoilt(cu_stream stream) {
    cu_graph graph = (cu_graph)(uintptr_t)99;
    CHECK(status_of(stream) == CU_CAPTURE_INVALIDATED);
    CHECK(soft->launch_host_func(stream, note, &ran) == CU_STREAM_CAPTURE_INVALIDATED);
    CHECK(soft->stream_end_capture(stream, &graph) == CU_STREAM_CAPTURE_INVALIDATED);
    CHECK(graph == NULL);
    CHECK(status_of(stream) == CU_CAPTURE_NONE);
}

/* `to` waits in-stream for what `from` has so far. */
static inline cu_result follow(cu_stream to, cu_stream from) {
    const cu_event event = new_event();
    CHECK(soft->event_record(event, from) == CU_SUCCESS);
    const cu_result result = soft->stream_wait_event(to, event, 0);
    CHECK(soft->event_destroy(event) == CU_SUCCESS);
    return result;
}

#endif /* ASHLAR_SOFT_FIXTURE_H */
