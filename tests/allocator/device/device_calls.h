/*
 * device_calls.h - what tests of a device's calls share: notes of their order, and how they fail.
 */
#ifndef ASHLAR_DEVICE_CALLS_H
#define ASHLAR_DEVICE_CALLS_H

#include "tests/allocator/device/device_fixture.h"

#include "allocator/soft/soft_state.h"

/* No context is left current, and none was taken away. */
static inline void check_context_stack(void) {
    cu_context context;
    CHECK(driver->table.ctx_pop_current(&context) == CU_INVALID_CONTEXT);
}

static inline size_t live_events(void) {
    size_t count = 0;
    const soft_handles *events = &ashlar__soft_state.handles[SOFT_EVENT];
    for (size_t i = 0; i < events->count; i++) {
        count += events->entries[i].item != NULL;
    }
    return count;
}

static inline void note_value(void *args) {
    const struct { int *at, value; } *note = args;
    *note->at = *note->at * 10 + note->value;
}

/* note_value on `stream`: the digits say what ran in which order. */
static inline void queue_note(ashlar_stream stream, int *at, int value) {
    const struct { int *at, value; } note = {at, value};
    CHECK(ashlar_launch(device, stream, note_value, &note, sizeof note) == ASHLAR_OK);
}

/* A call of the device's, the driver's function that does it, and how a message names that. */
typedef struct refusable_call {
    ashlar_driver_fn fn;
    ashlar_status (*call)(void);
    const char *name;
} refusable_call;

static inline void check_refusals(const refusable_call *calls, size_t count) {
    for (size_t i = 0; i < count; i++) {
        ashlar__driver_fail_at(driver, (int)calls[i].fn, 1, CU_UNKNOWN);
        CHECK_FAILS(calls[i].call(), ASHLAR_EDRIVER, calls[i].name);
        ashlar__driver_fail_at(driver, (int)calls[i].fn, 1, CU_OUT_OF_MEMORY);
        CHECK(calls[i].call() == ASHLAR_ENOMEM);
        check_context_stack();
        ashlar__driver_fail_at(driver, ASHLAR_DRIVER_FN_ctx_push_current, 1, CU_INVALID_CONTEXT);
        CHECK_FAILS(calls[i].call(), ASHLAR_EDRIVER, "cuCtxPushCurrent on the soft device");
        check_context_stack();
        CHECK(calls[i].call() == ASHLAR_OK);
    }
}

#endif /* ASHLAR_DEVICE_CALLS_H */
