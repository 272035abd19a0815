/* driver.c - what every call goes through, of CUDA's driver or the software device's: counting it,
 * keeping it from invalidating captures, making it fail in tests, explaining its error. */
#include "allocator/driver/driver.h"

#include <time.h>

#include "allocator/base/check_level.h"
#include "allocator/base/host.h"
#include "allocator/base/compiler.h"
#include "allocator/base/error.h"

/* How long ashlar__driver_begin_capture() waits at most for threads that hold captures off. */
enum { HELD_MOST_S = 1 };

bool ashlar__driver_admit(ashlar_driver *driver, ashlar_driver_fn fn) {
    ASHLAR_CHECK2(fn < ASHLAR_DRIVER_FN_COUNT);
    atomic_fetch_add_explicit(&driver->calls[fn], 1, memory_order_relaxed);
    if (driver->delay != NULL) {
        driver->delay(fn);
    }
    if (atomic_load_explicit(&driver->fail_countdown, memory_order_relaxed) == 0) {
        return true;
    }
    const int fail_fn = atomic_load(&driver->fail_fn);
    /* Of any function (-1): the capture mode is exchanged only as a part of some other call. */
    const bool may_fail =
        fail_fn >= 0 ? fail_fn == (int)fn : fn != ASHLAR_DRIVER_FN_thread_exchange_capture_mode;
    if (!may_fail) {
        return true;
    }
    uint64_t left = atomic_load(&driver->fail_countdown);
    while (left != 0 && !atomic_compare_exchange_weak(&driver->fail_countdown, &left, left - 1)) {
    }
    return left != 1;
}

/* ---- captures ---- */

/* The calling thread's calls of ashlar__driver_relax() without their _unrelax(). Every unsafe call
 * is relaxed, since some thread or library may begin a capture at any moment, unknown to us. */
static _Thread_local struct {
    unsigned int pairs;
    unsigned int before; /* the mode to restore */
} relaxed ASHLAR_INITIAL_EXEC;

/* If the driver refuses to change the mode, the call that follows is made all the same, and most
 * likely fails, too. */
void ashlar__driver_relax(ashlar_driver *driver) {
    if (relaxed.pairs++ == 0) {
        relaxed.before = CU_CAPTURE_RELAXED;
        if (ASHLAR_DRIVER_CALL(driver, thread_exchange_capture_mode, (&relaxed.before)) !=
            CU_SUCCESS) {
            relaxed.before = CU_CAPTURE_RELAXED;
        }
    }
}

void ashlar__driver_unrelax(ashlar_driver *driver) {
    ASHLAR_CHECK2(relaxed.pairs > 0);
    if (--relaxed.pairs == 0 && relaxed.before != CU_CAPTURE_RELAXED) {
        (void)ASHLAR_DRIVER_CALL(driver, thread_exchange_capture_mode, (&relaxed.before));
    }
}

void ashlar__driver_hold_captures(ashlar_driver *driver) {
    (void)pthread_rwlock_rdlock(&driver->beginnings);
}

void ashlar__driver_release_captures(ashlar_driver *driver) {
    (void)pthread_rwlock_unlock(&driver->beginnings);
}

/* The capture is counted first, so a thread that takes the read lock later sees it, and does not
 * wait for the device. A thread that holds the read lock may wait for work that depends on this
 * thread, so do not wait for it for ever. After a second it is safe to go on, since CUDA looks for
 * captures only when a wait for the device begins. */
void ashlar__driver_begin_capture(ashlar_driver *driver) {
    struct timespec until;
    atomic_fetch_add(&driver->capture_count, 1);
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += HELD_MOST_S;
    if (pthread_rwlock_timedwrlock(&driver->beginnings, &until) == 0) {
        (void)pthread_rwlock_unlock(&driver->beginnings);
    }
}

void ashlar__driver_end_capture(ashlar_driver *driver) {
    const uint64_t before = atomic_fetch_sub(&driver->capture_count, 1);
    ASHLAR_CHECK2(before > 0);
    (void)before;
}

/* A capture that other libraries began is not counted. cuStreamIsCapturing on the legacy stream
 * tells of it, if its stream is a blocking one. */
cu_result ashlar__driver_try_synchronize(ashlar_driver *driver) {
    unsigned int unused = CU_CAPTURE_NONE;
    cu_result result = CU_STREAM_CAPTURE_UNSUPPORTED;
    ashlar__driver_hold_captures(driver);
    if (atomic_load(&driver->capture_count) == 0) {
        result = ASHLAR_DRIVER_CALL(driver, stream_is_capturing, (NULL, &unused));
    }
    if (result == CU_SUCCESS) {
        result = ASHLAR_DRIVER_CALL(driver, ctx_synchronize, ());
    }
    ashlar__driver_release_captures(driver);
    return result;
}

/* ---- waiting ---- */

/* CUDA has no call that waits for any of several events, so they are queried by turns, at first
 * without pauses: so many rounds. */
enum { POLLS_AT_ONCE = 64 };

static cu_result poll_any(ashlar_driver *driver, const cu_event *events, size_t count) {
    long pause_ns = ASHLAR_PAUSE_NS_MIN;
    for (size_t round = 0;; round++) {
        for (size_t i = 0; i < count; i++) {
            const cu_result result = ASHLAR_DRIVER_CALL(driver, event_query, (events[i]));
            if (result != CU_NOT_READY) {
                return result;
            }
        }
        if (round >= POLLS_AT_ONCE) {
            ashlar__clock_pause(&pause_ns);
        }
    }
}

cu_result ashlar__driver_wait_any(ashlar_driver *driver, const cu_event *events, size_t count) {
    ASHLAR_CHECK2(count > 0 && count <= ASHLAR_AWAITED_MAX);
    if (count == 1) {
        return ASHLAR_DRIVER_CALL(driver, event_synchronize, (events[0]));
    }
    if (driver->wait_any == NULL) {
        return poll_any(driver, events, count);
    }
    return ashlar__driver_begin(driver, ASHLAR_DRIVER_FN_event_query, ASHLAR_DRIVER_UNSAFE)
               ? ashlar__driver_end(driver, ASHLAR_DRIVER_UNSAFE, driver->wait_any(events, count))
               : atomic_load(&driver->fail_result);
}

/* ---- tests and reports ---- */

void ashlar__driver_fail_at(ashlar_driver *driver, int fn, uint64_t n, cu_result result) {
    ASHLAR_CHECK2(fn >= -1 && fn < ASHLAR_DRIVER_FN_COUNT);
    atomic_store(&driver->fail_fn, fn);
    atomic_store(&driver->fail_result, result);
    atomic_store(&driver->fail_countdown, n);
}

uint64_t ashlar__driver_calls(const ashlar_driver *driver, ashlar_driver_kind kind) {
    ASHLAR_CHECK2(kind < ASHLAR_DRIVER_KIND_COUNT);
    uint64_t sum = 0;
    for (int fn = 0; fn < ASHLAR_DRIVER_FN_COUNT; fn++) {
        if (fn != ASHLAR_DRIVER_FN_thread_exchange_capture_mode &&
            ashlar__driver_fn_kind((ashlar_driver_fn)fn) == kind) {
            sum += atomic_load_explicit(&driver->calls[fn], memory_order_relaxed);
        }
    }
    return sum;
}

const char *ashlar__driver_fn_name(ashlar_driver_fn fn) {
    static const char *const names[] = {
#define X(field, symbol, version, kind, safety, params) [ASHLAR_DRIVER_FN_##field] = #symbol,
        ASHLAR_DRIVER_MAP(X)
#undef X
    };
    ASHLAR_TABLE_IS_FULL(names, ASHLAR_DRIVER_FN_COUNT);
    ASHLAR_ASSERT(fn < ASHLAR_DRIVER_FN_COUNT);
    return names[fn];
}

ashlar_driver_kind ashlar__driver_fn_kind(ashlar_driver_fn fn) {
    static const ashlar_driver_kind kinds[] = {
#define X(field, symbol, version, kind, safety, params) \
    [ASHLAR_DRIVER_FN_##field] = ASHLAR_DRIVER_##kind,
        ASHLAR_DRIVER_MAP(X)
#undef X
    };
    ASHLAR_TABLE_IS_FULL(kinds, ASHLAR_DRIVER_FN_COUNT);
    ASHLAR_ASSERT(fn < ASHLAR_DRIVER_FN_COUNT);
    return kinds[fn];
}

ashlar_status ashlar__driver_error(ashlar_driver *driver, const char *what, cu_result result) {
    ASHLAR_CHECK2(result != CU_SUCCESS && what != NULL);
    const char *name = NULL, *text = NULL;
    /* Not through ASHLAR_DRIVER_CALL: these two calls must not be counted, or fail in a test. */
    if (driver->table.get_error_name(result, &name) != CU_SUCCESS || name == NULL) {
        name = "unknown error";
    }
    if (driver->table.get_error_string(result, &text) != CU_SUCCESS || text == NULL) {
        text = "no description";
    }
    return ashlar__fail_driver(result == CU_OUT_OF_MEMORY ? ASHLAR_ENOMEM : ASHLAR_EDRIVER,
                               (int)result, "%s on the %s device: %s (%u): %s", what, driver->name,
                               name, result, text);
}
