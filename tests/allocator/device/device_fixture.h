/*
 * device_fixture.h - a software device with four streams, for tests.
 *
 * A case begins with set_up_device(spec); tear_down_device() runs at its end and checks that the
 * device has all of its memory back. Payloads are written and verified by queued work, so that in
 * adversarial mode memory that is handed out too early is really overwritten.
 */
#ifndef ASHLAR_DEVICE_FIXTURE_H
#define ASHLAR_DEVICE_FIXTURE_H

#include "tests/check.h"
#include "tests/strict.h"

#include <stdatomic.h>
#include <stdint.h>

#include "allocator/base/host.h"
#include "allocator/device/device_impl.h"
#include "allocator/soft/soft.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum { STREAMS = 4 };

static ashlar_driver *driver;
static ashlar_device *device;
static ashlar_stream streams[STREAMS]; /* ordered with the default stream, not with each other */

/* Calls of one function of the driver's table so far. */
#define CALLS(field) ((size_t)atomic_load(&driver->calls[ASHLAR_DRIVER_FN_##field]))

/* A statement during which the n-th call of a driver's function fails with `result`. */
#define DRIVER_FAILS_AT(fn, n, result, statement)               \
    do {                                                        \
        ashlar__driver_fail_at(driver, (int)(fn), (n), result); \
        statement;                                              \
        ashlar__driver_fail_at(driver, -1, 0, CU_SUCCESS);      \
    } while (0)

/* As FOR_HOST_FAILURES: with the n-th call of a function of the driver failing. */
#define FOR_DRIVER_FAILURES(n, status, fn, call)                                \
    unsigned long n = 0;                                                        \
    for (ashlar_status status = ASHLAR_OK;                                      \
         check_tries_again(status == ASHLAR_EDRIVER, status == ASHLAR_OK, n) && \
         (ashlar__driver_fail_at(driver, (int)(fn), ++n, CU_UNKNOWN),           \
          status = (call), ashlar__driver_fail_at(driver, -1, 0, CU_SUCCESS), true);)

static inline ashlar_driver_counts counts_now(void) {
    const ashlar_driver_counts counts = ashlar_device_get_info(device).calls;
    return counts;
}

/* Calls that a step on its plan has none of. */
static inline uint64_t management_calls(void) {
    const ashlar_driver_counts counts = counts_now();
    return counts.memory + counts.order + counts.query;
}

/* A device's line with an order of execution drawn from `seed`; good until the next call. */
static inline const char *drawn_order(const char *line, int seed) {
    static char whole[128];
    (void)snprintf(whole, sizeof whole, "%s,mode=adversarial,seed=%d", line, seed);
    return whole;
}

static inline size_t free_memory_of(ashlar_device *of) {
    size_t free_bytes = 0, total_bytes = 0;
    CHECK(ashlar__device_enter(of) == ASHLAR_OK);
    CHECK(of->driver->table.mem_get_info(&free_bytes, &total_bytes) == CU_SUCCESS);
    ashlar__device_leave(of);
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
        return ashlar__driver_open_cuda(&driver) == ASHLAR_OK &&
               ashlar_device_open("cuda", &device) == ASHLAR_OK;
    }
    return ashlar__soft_configure(spec) == ASHLAR_OK &&
           ashlar__driver_open_soft(&driver) == ASHLAR_OK &&
           ashlar_device_open("soft", &device) == ASHLAR_OK;
}

static inline void tear_down_device(void) {
    check_forget(tear_down_device);
    CHECK_ZU(free_memory_of(device), device->info.total_bytes);
    for (int i = 0; i < STREAMS; i++) {
        ashlar_stream_destroy(device, streams[i]);
    }
    ashlar_device_close(device);
}

static inline bool set_up_device(const char *spec) {
    if (!open_test_device(spec)) {
        return false;
    }
    for (int i = 0; i < STREAMS; i++) {
        if (ashlar_stream_create(device, &streams[i]) != ASHLAR_OK) {
            return false;
        }
    }
    return check_at_end(tear_down_device);
}

/* Memory of a device, as the driver gives it; for the device's own tests. */
static inline unsigned char *take_memory(ashlar_device *of, size_t bytes) {
    cu_ptr ptr = 0;
    CHECK(ashlar__device_enter(of) == ASHLAR_OK);
    CHECK(of->driver->table.mem_alloc(&ptr, bytes) == CU_SUCCESS);
    ashlar__device_leave(of);
    return ashlar__ptr_out(ptr);
}

static inline void give_memory(ashlar_device *of, void *ptr) {
    CHECK(ashlar__device_enter(of) == ASHLAR_OK);
    CHECK(of->driver->table.mem_free(ashlar__ptr_in(ptr)) == CU_SUCCESS);
    ashlar__device_leave(of);
}

/* An armed host failure that has not come yet; it is disarmed. */
static inline bool is_still_armed(unsigned long n) {
    bool was_armed = false;
    for (unsigned long i = 0; i < n && !was_armed; i++) {
        void *probe = ashlar__host_calloc(1, 1);
        was_armed = probe == NULL;
        ashlar__host_free(probe);
    }
    ashlar__host_fail_at(0);
    return was_armed;
}

static inline void wait_for(ashlar_stream stream) {
    CHECK(ashlar_stream_synchronize(device, stream) == ASHLAR_OK);
}

/* ---- payloads ---- */

typedef struct payload {
    unsigned char *ptr;
    size_t bytes;
    unsigned char value;
} payload;

static atomic_long payload_bad_count; /* verifications that found another value */

/* Have later work on `to` wait for what was queued on `from`. */
static inline void order_behind(ashlar_stream from, ashlar_stream to) {
    ashlar_event event = NULL;
    CHECK(ashlar_event_create(device, &event) == ASHLAR_OK);
    CHECK(ashlar_event_record(device, event, from) == ASHLAR_OK);
    CHECK(ashlar_stream_wait(device, to, event) == ASHLAR_OK);
    ashlar_event_destroy(device, event);
}

static inline void payload_write(void *args) {
    const payload *p = args;
    memset(p->ptr, p->value, p->bytes);
}

static inline void payload_verify(void *args) {
    const payload *p = args;
    /* Each byte is as the one before it. A loop, at -O0, would be most of some tests' time. */
    const bool is_right =
        p->bytes == 0 || (p->ptr[0] == p->value && memcmp(p->ptr, p->ptr + 1, p->bytes - 1) == 0);
    atomic_fetch_add(&payload_bad_count, !is_right);
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

#endif /* ASHLAR_DEVICE_FIXTURE_H */
