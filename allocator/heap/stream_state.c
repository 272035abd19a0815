/* stream_state.c - recording, asking and awaiting a stream's event, and noticing a lost stream. */
#include "allocator/heap/stream_state.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"

/*
 * Every call here runs in the device's context. Entering and leaving it is counted for the process
 * but not for the allocator, since that does no work in the driver.
 */
static ashlar_status refuse(const ashlar_driver_client *client, const char *what,
                            cu_result result) {
    return ashlar__driver_error(client->device->driver, what, result);
}

/*
 * The stream on which to record an event that comes after the state's work. This thread has no
 * handle of another thread's default stream. But such a stream is a blocking one, and an event on
 * the legacy default stream (NULL) comes after the work of all blocking streams.
 */
static ashlar_stream recordable(const ashlar_stream_state *state) {
    return ashlar__stream_state_is_others(state) ? NULL : state->stream;
}

static bool is_capture_on(const ashlar_driver_client *client) {
    return atomic_load(&client->device->driver->capture_count) > 0;
}

bool ashlar__stream_state_is_closed(const ashlar_stream_state *state,
                                    const ashlar_driver_client *client) {
    return state->is_pool || state->pool != NULL ||
           (recordable(state) == NULL && is_capture_on(client));
}

/* Fail if a stream is under capture: recording or waiting on it would invalidate the capture. */
static ashlar_status refuse_captured(ashlar_driver_client *client, ashlar_stream stream) {
    unsigned int status = CU_CAPTURE_NONE;
    const cu_result result = ASHLAR_CALL(client, stream_is_capturing, (stream, &status));
    if (result == CU_STREAM_CAPTURE_IMPLICIT ||
        (result == CU_SUCCESS && status != CU_CAPTURE_NONE)) {
        return ashlar__fail(ASHLAR_EINVAL, "a stream is being captured without a pool of its own; "
                                           "call ashlar_graph_pool_begin() before its capture");
    }
    return result == CU_SUCCESS ? ASHLAR_OK : refuse(client, "cuStreamIsCapturing", result);
}

ashlar_status ashlar__stream_state_identify(ashlar_stream_state *state,
                                            ashlar_driver_client *client) {
    unsigned long long id = 0;
    const ashlar_status status = ashlar__device_enter(client->device);
    if (status != ASHLAR_OK) {
        return status;
    }
    const cu_result result = ASHLAR_CALL(client, stream_get_id, (state->stream, &id));
    ashlar__device_leave(client->device);
    if (result != CU_SUCCESS && result != CU_NOT_SUPPORTED) {
        return refuse(client, "cuStreamGetId", result);
    }
    state->stream_id = id;
    return ASHLAR_OK;
}

/* Whether the driver says that the handle now names another stream, or none. */
static bool is_lost(const ashlar_stream_state *state, ashlar_driver_client *client) {
    unsigned long long id = 0;
    if (state->stream_id == 0) {
        return false;
    }
    const cu_result result = ASHLAR_CALL(client, stream_get_id, (state->stream, &id));
    return result == CU_INVALID_HANDLE || (result == CU_SUCCESS && id != state->stream_id);
}

/* A stream was destroyed before an event could be recorded: wait for all work instead. */
static ashlar_status end_lost(ashlar_stream_state *state, ashlar_driver_client *client) {
    if (is_capture_on(client)) {
        return ashlar__fail(ASHLAR_EINVAL,
                            "a stream was destroyed without ashlar_allocator_forget_stream(), "
                            "and the device cannot be waited for during a capture");
    }
    const cu_result result = ASHLAR_CALL(client, ctx_synchronize, ());
    if (result != CU_SUCCESS) {
        return refuse(client, "cuCtxSynchronize", result);
    }
    state->recorded++;
    state->completed = state->recorded;
    state->is_gone = true;
    ASHLAR_CHECK2(ashlar__stream_state_is_sound(state));
    return ASHLAR_OK;
}

static ashlar_status record(ashlar_stream_state *state, ashlar_driver_client *client,
                            uint64_t *recorded) {
    ASHLAR_CHECK2(!ashlar__stream_state_is_closed(state, client));
    if (is_lost(state, client)) {
        return end_lost(state, client);
    }
    const ashlar_status status = refuse_captured(client, recordable(state));
    if (status != ASHLAR_OK) {
        return status;
    }
    if (state->event == NULL) {
        const cu_result result =
            ASHLAR_CALL(client, event_create, (&state->event, CU_EVENT_NO_TIMING));
        if (result != CU_SUCCESS) {
            return refuse(client, "cuEventCreate", result);
        }
    }
    const cu_result result = ASHLAR_CALL(client, event_record, (state->event, recordable(state)));
    if (result != CU_SUCCESS) {
        return refuse(client, "cuEventRecord", result);
    }
    state->recorded++;
    state->recorded_at = ++*recorded;
    ASHLAR_CHECK2(ashlar__stream_state_is_sound(state) && state->completed < state->recorded);
    return ASHLAR_OK;
}

ashlar_status ashlar__stream_state_cover(ashlar_stream_state *state, ashlar_driver_client *client,
                                         uint64_t tick, uint64_t *recorded) {
    if (state->recorded > tick) {
        return ASHLAR_OK;
    }
    ASHLAR_ASSERT(!state->is_gone);
    ashlar_status status = ashlar__device_enter(client->device);
    if (status != ASHLAR_OK) {
        return status;
    }
    status = record(state, client, recorded);
    ashlar__device_leave(client->device);
    ASHLAR_CHECK2(status != ASHLAR_OK || state->recorded > tick);
    return status;
}

ashlar_status ashlar__stream_state_query(ashlar_stream_state *state, ashlar_driver_client *client) {
    ASHLAR_ASSERT(state->completed < state->recorded);
    ASHLAR_CHECK2(state->event != NULL);
    const ashlar_status status = ashlar__device_enter(client->device);
    if (status != ASHLAR_OK) {
        return status;
    }
    const cu_result result = ASHLAR_CALL(client, event_query, (state->event));
    ashlar__device_leave(client->device);
    if (result == CU_SUCCESS) {
        state->completed = state->recorded;
    }
    return result == CU_SUCCESS || result == CU_NOT_READY ? ASHLAR_OK
                                                          : refuse(client, "cuEventQuery", result);
}

/* A stream has one event. Recording it again while it is pending would give up a recording that
 * completes sooner. On a stream that is always busy, no recording would then ever complete. */
ashlar_status ashlar__stream_state_ask(ashlar_stream_state *state, ashlar_driver_client *client,
                                       uint64_t tick, uint64_t *recorded) {
    ashlar_status status = ASHLAR_OK;
    if (state->completed < state->recorded) {
        status = ashlar__stream_state_query(state, client);
        if (status != ASHLAR_OK || state->completed < state->recorded) {
            return status;
        }
    }
    status = ashlar__stream_state_cover(state, client, tick, recorded);
    return status != ASHLAR_OK || ashlar__stream_state_is_past(state, tick)
               ? status
               : ashlar__stream_state_query(state, client);
}

ashlar_status ashlar__stream_state_wait_on(ashlar_stream_state *state, ashlar_driver_client *client,
                                           ashlar_stream waiter) {
    /* Nothing to wait for. There may be no event either, if the stream was found to be gone. */
    if (state->completed == state->recorded) {
        return ASHLAR_OK;
    }
    ASHLAR_CHECK2(state->event != NULL && ashlar__stream_state_is_sound(state));
    ashlar_status status = ashlar__device_enter(client->device);
    if (status != ASHLAR_OK) {
        return status;
    }
    status = refuse_captured(client, waiter);
    cu_result result = CU_SUCCESS;
    if (status == ASHLAR_OK) {
        result = ASHLAR_CALL(client, stream_wait_event, (waiter, state->event, 0));
    }
    ashlar__device_leave(client->device);
    return result == CU_SUCCESS ? status : refuse(client, "cuStreamWaitEvent", result);
}

ashlar_status ashlar__stream_state_synchronize(ashlar_stream_state *state,
                                               ashlar_driver_client *client,
                                               ashlar_lock *lock) {
    ASHLAR_ASSERT(state->completed < state->recorded);
    ASHLAR_CHECK2(state->event != NULL && ashlar__stream_state_is_sound(state));
    const uint64_t awaited = state->recorded;
    ashlar_driver *driver = client->device->driver;
    const ashlar_status status = ashlar__device_enter(client->device);
    if (status != ASHLAR_OK) {
        return status;
    }
    client->calls++; /* counted here: ASHLAR_CALL counts too, but only under the lock */
    state->waiter_count++;
    ashlar__lock_release(lock);
    unsigned int mode = CU_CAPTURE_RELAXED;
    cu_result result = ashlar__driver_relax(driver, &mode);
    if (result == CU_SUCCESS) {
        result = ASHLAR_DRIVER_CALL(driver, event_synchronize, (state->event));
        ashlar__driver_unrelax(driver, mode);
    }
    ashlar__lock_acquire(lock);
    ASHLAR_CHECK2(state->waiter_count > 0 && state->recorded >= awaited);
    state->waiter_count--;
    ashlar__device_leave(client->device);
    if (result != CU_SUCCESS) {
        return refuse(client, "cuEventSynchronize", result);
    }
    /* Another thread may have seen a later recording complete meanwhile. */
    state->completed = state->completed > awaited ? state->completed : awaited;
    ASHLAR_CHECK2(ashlar__stream_state_is_sound(state));
    return ASHLAR_OK;
}

void ashlar__stream_state_finish(ashlar_stream_state *state, ashlar_driver_client *client) {
    ASHLAR_CHECK2(state->waiter_count == 0);
    if (state->event != NULL && ashlar__device_enter(client->device) == ASHLAR_OK) {
        (void)ASHLAR_CALL(client, event_destroy, (state->event));
        ashlar__device_leave(client->device);
    }
}
