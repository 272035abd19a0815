/*
 * allocator_fixture.h - a software device with four streams and an allocator, for tests.
 *
 * A case is set_up(spec) ... tear_down(); the latter checks that the device has all of its memory
 * back. Payloads are written and verified by queued work, so that in adversarial mode memory that
 * is handed out too early is really overwritten.
 */
#ifndef ASHLAR_ALLOCATOR_FIXTURE_H
#define ASHLAR_ALLOCATOR_FIXTURE_H

#include "tests/check.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include <ashlar/allocator.h>

#include "allocator/device/device_impl.h"
#include "allocator/base/host.h"
#include "tests/snapshot_sums.h"
#include "allocator/soft/soft.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum { STREAMS = 4 };

static ashlar_driver *driver;
static ashlar_device *device;
static ashlar_allocator *allocator;
static ashlar_stream streams[STREAMS]; /* ordered with the default stream, not with each other */

/* Calls of one function of the driver's table so far. */
#define CALLS(field) ((size_t)atomic_load(&driver->calls[ASHLAR_DRIVER_FN_##field]))

static inline size_t free_memory_of(ashlar_device *of) {
    size_t free_bytes = 0, total_bytes = 0;
    CHECK(ashlar_device_enter(of) == ASHLAR_OK);
    CHECK(of->driver->table.mem_get_info(&free_bytes, &total_bytes) == CU_SUCCESS);
    ashlar_device_leave(of);
    return free_bytes;
}

/*
 * The device that `spec` describes. With ASHLAR_TEST_DEVICE=cuda, the one of the fake libcuda
 * instead, which has a software device of its own (ASHLAR_SOFT), so that its memory can be looked
 * into all the same.
 */
static inline bool open_test_device(const char *spec) {
    const char *name = getenv("ASHLAR_TEST_DEVICE");
    if (name != NULL && strcmp(name, "cuda") == 0) {
        return ashlar_driver_open_cuda(&driver) == ASHLAR_OK &&
               ashlar_device_open("cuda", &device) == ASHLAR_OK;
    }
    return ashlar_soft_configure(spec) == ASHLAR_OK &&
           ashlar_driver_open_soft(&driver) == ASHLAR_OK &&
           ashlar_device_open("soft", &device) == ASHLAR_OK;
}

/* Device, streams; the allocator is left to the case. */
static inline bool set_up_device(const char *spec) {
    if (!open_test_device(spec)) {
        return false;
    }
    for (int i = 0; i < STREAMS; i++) {
        if (ashlar_stream_create(device, &streams[i]) != ASHLAR_OK) {
            return false;
        }
    }
    return true;
}

/* An allocator that keeps its newest events, and whose threads' caches hold so much. */
static inline bool set_up_traced(const char *spec, uint64_t cache_bytes, uint64_t event_count) {
    ashlar_config config;
    ashlar_config_init(&config);
    config.cache_bytes = cache_bytes;
    config.trace_events = event_count;
    return set_up_device(spec) &&
           ashlar_allocator_create_with(device, &config, &allocator) == ASHLAR_OK;
}

/* An allocator whose threads' caches hold so much. */
static inline bool set_up_cached(const char *spec, uint64_t cache_bytes) {
    return set_up_traced(spec, cache_bytes, 0);
}

/* Without caches: for what the heap and the ladder do with each single call. */
static inline bool set_up(const char *spec) {
    return set_up_cached(spec, 0);
}

static inline void tear_down_device(void) {
    CHECK_ZU(free_memory_of(device), device->info.total_bytes);
    for (int i = 0; i < STREAMS; i++) {
        ashlar_stream_destroy(device, streams[i]);
    }
    ashlar_device_close(device);
}

/* Every statistic is the sum over the snapshot; no other thread is at work. */
static inline void check_snapshot(ashlar_allocator *of) {
    const char *difference = allocator_difference(of);
    CHECK(difference == NULL);
    if (difference != NULL) {
        printf("# statistics and snapshot disagree: %s\n", difference);
    }
}

/* All that is always true of the case's allocator. */
static inline void check_all(void) {
    CHECK(ashlar_allocator_check(allocator) == ASHLAR_OK);
    check_snapshot(allocator);
}

static inline void tear_down(void) {
    check_all();
    ashlar_allocator_destroy(allocator);
    CHECK(driver->table.ctx_pop_current(NULL) == CU_INVALID_CONTEXT); /* as before the case */
    tear_down_device();
}

static inline unsigned char *take(size_t bytes, ashlar_stream stream) {
    void *ptr = NULL;
    CHECK(ashlar_alloc(allocator, bytes, stream, &ptr) == ASHLAR_OK);
    check_all();
    return ptr;
}

static inline void give(void *ptr) {
    CHECK(ashlar_free(allocator, ptr) == ASHLAR_OK);
    check_all();
}

static inline void give_on(void *ptr, ashlar_stream stream) {
    CHECK(ashlar_free_on(allocator, ptr, stream) == ASHLAR_OK);
    check_all();
}

/* An armed host failure that has not come yet; it is disarmed. */
static inline bool is_still_armed(unsigned long n) {
    bool was_armed = false;
    for (unsigned long i = 0; i < n && !was_armed; i++) {
        void *probe = ashlar_host_calloc(1, 1);
        was_armed = probe == NULL;
        ashlar_host_free(probe);
    }
    ashlar_host_fail_at(0);
    return was_armed;
}

static inline void wait_for(ashlar_stream stream) {
    CHECK(ashlar_stream_synchronize(device, stream) == ASHLAR_OK);
}

/* The equations of allocator.h. */
static inline void check_equations(const ashlar_stats *s) {
    uint64_t live = 0, at_peak = 0;
    CHECK(s->live_bytes <= s->block_bytes);
    CHECK(s->block_bytes + s->cached_bytes + s->planned_bytes + s->shared_bytes <=
          s->reserved_bytes);
    CHECK(s->live_peak_bytes >= s->live_bytes && s->reserved_peak_bytes >= s->reserved_bytes);
    CHECK(s->alloc_count == s->served_planned + s->served_cached + s->served_same_stream +
                                s->served_idle + s->served_completed + s->served_waited +
                                s->served_mapped + s->served_drained + s->served_reclaimed +
                                s->served_after_sync + s->served_gathered);
    CHECK(s->live_blocks == s->alloc_count - s->free_count);
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        live += s->tags[tag].live_bytes;
        at_peak += s->tags[tag].at_peak_bytes;
        CHECK(s->tags[tag].peak_bytes >= s->tags[tag].live_bytes);
        CHECK(s->tags[tag].peak_bytes >= s->tags[tag].at_peak_bytes);
    }
    CHECK(live == s->live_bytes && at_peak == s->live_peak_bytes);
}

static inline ashlar_stats stats_now(void) {
    ashlar_stats stats;
    ashlar_stats_read(allocator, &stats);
    check_equations(&stats);
    return stats;
}

/* ---- payloads ---- */

typedef struct payload {
    unsigned char *ptr;
    size_t bytes;
    unsigned char value;
} payload;

static atomic_long payload_bad_count; /* verifications that found another value */

static inline void payload_write(void *args) {
    const payload *p = args;
    memset(p->ptr, p->value, p->bytes);
}

static inline void payload_verify(void *args) {
    const payload *p = args;
    size_t wrong = 0;
    for (size_t i = 0; i < p->bytes; i++) {
        wrong += p->ptr[i] != p->value;
    }
    atomic_fetch_add(&payload_bad_count, wrong != 0);
}

static inline void queue_write(ashlar_stream stream, unsigned char *ptr, size_t bytes,
                               unsigned char value) {
    const payload p = {ptr, bytes, value};
    CHECK(ashlar_launch(device, stream, payload_write, &p, sizeof p) == ASHLAR_OK);
}

static inline void queue_verify(ashlar_stream stream, unsigned char *ptr, size_t bytes,
                                unsigned char value) {
    const payload p = {ptr, bytes, value};
    CHECK(ashlar_launch(device, stream, payload_verify, &p, sizeof p) == ASHLAR_OK);
}

#endif /* ASHLAR_ALLOCATOR_FIXTURE_H */
