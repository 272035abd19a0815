/*
 * frees_fixture.h - memory freed for all streams, on a software device: its streams, two of them
 * not blocking and two the default ones.
 */
#ifndef ASHLAR_TESTS_FREES_FIXTURE_H
#define ASHLAR_TESTS_FREES_FIXTURE_H

#include "tests/check.h"
#include "tests/strict.h"

#include <stdlib.h>

#include "allocator/device/device_impl.h"
#include "allocator/dropin/devices.h"
#include "allocator/dropin/frees.h"
#include "allocator/base/host.h"
#include "tests/allocator/soft/soft_probe.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum { OWN_STREAMS = 4, STREAMS = OWN_STREAMS + 2 };

static ashlar_driver *driver;
static ashlar_frees *frees;
static ashlar_device *device;
static ashlar_allocator *allocator;
static ashlar_stream streams[STREAMS]; /* the first two not blocking, the last two defaults */

#define CALLS(field) ((size_t)atomic_load(&driver->calls[ASHLAR_DRIVER_FN_##field]))

/* All that is always true of the allocator. */
#define CHECK_SOUND()                                                          \
    do {                                                                       \
        const bool is_sound_ = ashlar_allocator_check(allocator) == ASHLAR_OK; \
        CHECK(is_sound_);                                                      \
        if (!is_sound_) {                                                      \
            printf("# %s\n", ashlar_error_detail());                           \
        }                                                                      \
    } while (0)

static bool is_known(size_t i) {
    return i < 2;
}

static bool make_stream(size_t i) {
    if (driver->table.stream_create(&streams[i], is_known(i) ? CU_STREAM_UNORDERED
                                                             : CU_STREAM_BLOCKING) != CU_SUCCESS) {
        return false;
    }
    if (is_known(i)) {
        ashlar__frees_add_stream(frees, streams[i]);
    }
    return true;
}

static inline void end_stream(size_t i) {
    ashlar__frees_end_stream(frees, streams[i]);
    CHECK(driver->table.stream_destroy(streams[i]) == CU_SUCCESS);
}

static void tear_down(void) {
    check_forget(tear_down);
    CHECK_SOUND();
    ashlar__device_leave(device);
    ashlar_allocator_destroy(allocator);
    ashlar_device_close(device);
    ashlar__dropin_forget();
    ashlar__frees_forget();
}

/* Without thread caches, so that the heap tells all. */
static bool set_up(const char *spec, const char *conf) {
    setenv("ASHLAR_DEVICE", "soft", 1);
    setenv("ASHLAR_CONF", conf, 1);
    ashlar__dropin_forget();
    ashlar__frees_forget();
    if (ashlar__soft_configure(spec) != ASHLAR_OK ||
        ashlar__driver_open_soft(&driver) != ASHLAR_OK ||
        ashlar__frees_of(0, &frees) != ASHLAR_OK) {
        return false;
    }
    device = frees->device;
    allocator = frees->allocator;
    streams[OWN_STREAMS] = NULL;
    streams[OWN_STREAMS + 1] = (ashlar_stream)(uintptr_t)CU_STREAM_PER_THREAD;
    bool is_made = ashlar__device_enter(device) == ASHLAR_OK;
    for (size_t i = 0; i < OWN_STREAMS && is_made; i++) {
        is_made = make_stream(i);
    }
    return is_made && check_at_end(tear_down);
}

static inline void *take(size_t bytes) {
    void *ptr = NULL;
    CHECK(ashlar__frees_alloc(frees, bytes, &ptr) == ASHLAR_OK);
    return ptr;
}

static inline void give(void *ptr) {
    CHECK(ashlar__frees_free(frees, ptr) == ASHLAR_OK);
    CHECK_SOUND();
}

/* So much work that asking for its end, which may run one piece at a time, does not finish it. */
static inline void use(void *ptr, size_t bytes, ashlar_stream stream) {
    for (int i = 0; i < 1000; i++) {
        CHECK(ashlar_fill(device, ptr, 1, i == 0 ? bytes : 64, stream) == ASHLAR_OK);
    }
}

static inline ashlar_stats stats_now(void) {
    ashlar_stats stats;
    ashlar_allocator_get_stats(allocator, &stats);
    return stats;
}

#endif /* ASHLAR_TESTS_FREES_FIXTURE_H */
