#include "allocator/heap/order.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"

/*
 * Every call here runs in the device's context; the two calls that switch to it are counted for
 * the process but not for the allocator, since they ask nothing of the driver.
 */
static ashlar_status refuse(const ashlar_caller *caller, const char *what, cu_result result) {
    return ashlar_driver_error(caller->device->driver, what, result);
}

/*
 * Where the order's work can be recorded from here. The per-thread default stream of another thread
 * has no name here; but the legacy default stream comes after all blocking streams, and that is
 * one.
 */
static ashlar_stream recordable(const ashlar_order *order) {
    return ashlar_order_is_others(order) ? NULL : order->stream;
}

static bool is_capture_on(const ashlar_caller *caller) {
    return atomic_load(&caller->device->driver->capture_count) > 0;
}

bool ashlar_order_is_closed(const ashlar_order *order, const ashlar_caller *caller) {
    return order->is_pool || order->pool != NULL ||
           (recordable(order) == NULL && is_capture_on(caller));
}

/* Recording or waiting on a stream that is captured would spoil the capture: ask first. */
static ashlar_status refuse_captured(ashlar_caller *caller, ashlar_stream stream) {
    unsigned int status = CU_CAPTURE_NONE;
    const cu_result result = ASHLAR_CALL(caller, stream_is_capturing, (stream, &status));
    if (result == CU_STREAM_CAPTURE_IMPLICIT ||
        (result == CU_SUCCESS && status != CU_CAPTURE_NONE)) {
        return ashlar_fail(ASHLAR_EINVAL, "a stream is being captured without a pool of its own; "
                                          "call ashlar_pool_begin() before its capture");
    }
    return result == CU_SUCCESS ? ASHLAR_OK : refuse(caller, "cuStreamIsCapturing", result);
}

ashlar_status ashlar_order_identify(ashlar_order *order, ashlar_caller *caller) {
    unsigned long long id = 0;
    const ashlar_status status = ashlar_device_enter(caller->device);
    if (status != ASHLAR_OK) {
        return status;
    }
    const cu_result result = ASHLAR_CALL(caller, stream_get_id, (order->stream, &id));
    ashlar_device_leave(caller->device);
    if (result != CU_SUCCESS && result != CU_NOT_SUPPORTED) {
        return refuse(caller, "cuStreamGetId", result);
    }
    order->stream_id = id;
    return ASHLAR_OK;
}

/* Whether the handle is known to name another stream than it did, or none. */
static bool is_lost(const ashlar_order *order, ashlar_caller *caller) {
    unsigned long long id = 0;
    if (order->stream_id == 0) {
        return false;
    }
    const cu_result result = ASHLAR_CALL(caller, stream_get_id, (order->stream, &id));
    return result == CU_INVALID_HANDLE || (result == CU_SUCCESS && id != order->stream_id);
}

/* The end of a stream whose last event was missed: everything on the device comes before now. */
static ashlar_status end_lost(ashlar_order *order, ashlar_caller *caller) {
    if (is_capture_on(caller)) {
        return ashlar_fail(ASHLAR_EINVAL, "a stream was destroyed without ashlar_forget_stream(), "
                                          "and the device cannot be waited for during a capture");
    }
    const cu_result result = ASHLAR_CALL(caller, ctx_synchronize, ());
    if (result != CU_SUCCESS) {
        return refuse(caller, "cuCtxSynchronize", result);
    }
    order->recorded++;
    order->completed = order->recorded;
    order->is_gone = true;
    return ASHLAR_OK;
}

static ashlar_status record(ashlar_order *order, ashlar_caller *caller, uint64_t *recorded) {
    if (is_lost(order, caller)) {
        return end_lost(order, caller);
    }
    const ashlar_status status = refuse_captured(caller, recordable(order));
    if (status != ASHLAR_OK) {
        return status;
    }
    if (order->event == NULL) {
        const cu_result result =
            ASHLAR_CALL(caller, event_create, (&order->event, CU_EVENT_NO_TIMING));
        if (result != CU_SUCCESS) {
            return refuse(caller, "cuEventCreate", result);
        }
    }
    const cu_result result = ASHLAR_CALL(caller, event_record, (order->event, recordable(order)));
    if (result != CU_SUCCESS) {
        return refuse(caller, "cuEventRecord", result);
    }
    order->recorded++;
    order->recorded_at = ++*recorded;
    return ASHLAR_OK;
}

ashlar_status ashlar_order_cover(ashlar_order *order, ashlar_caller *caller, uint64_t tick,
                                 uint64_t *recorded) {
    if (order->recorded > tick) {
        return ASHLAR_OK;
    }
    ASHLAR_ASSERT(!order->is_gone);
    ashlar_status status = ashlar_device_enter(caller->device);
    if (status != ASHLAR_OK) {
        return status;
    }
    status = record(order, caller, recorded);
    ashlar_device_leave(caller->device);
    return status;
}

ashlar_status ashlar_order_query(ashlar_order *order, ashlar_caller *caller) {
    ASHLAR_ASSERT(order->completed < order->recorded);
    const ashlar_status status = ashlar_device_enter(caller->device);
    if (status != ASHLAR_OK) {
        return status;
    }
    const cu_result result = ASHLAR_CALL(caller, event_query, (order->event));
    ashlar_device_leave(caller->device);
    if (result == CU_SUCCESS) {
        order->completed = order->recorded;
    }
    return result == CU_SUCCESS || result == CU_NOT_READY ? ASHLAR_OK
                                                          : refuse(caller, "cuEventQuery", result);
}

/* Events of a stream complete in order: one recorded now would take the place of one that is to
 * complete sooner, and so on for ever where the stream is always asked while it is busy. */
ashlar_status ashlar_order_ask(ashlar_order *order, ashlar_caller *caller, uint64_t tick,
                               uint64_t *recorded) {
    ashlar_status status = ASHLAR_OK;
    if (order->completed < order->recorded) {
        status = ashlar_order_query(order, caller);
        if (status != ASHLAR_OK || order->completed < order->recorded) {
            return status;
        }
    }
    status = ashlar_order_cover(order, caller, tick, recorded);
    return status != ASHLAR_OK || ashlar_order_is_past(order, tick)
               ? status
               : ashlar_order_query(order, caller);
}

ashlar_status ashlar_order_wait_on(ashlar_order *order, ashlar_caller *caller,
                                   ashlar_stream waiter) {
    /* Past already, perhaps without an event: a stream that was found to be gone. */
    if (order->completed == order->recorded) {
        return ASHLAR_OK;
    }
    ashlar_status status = ashlar_device_enter(caller->device);
    if (status != ASHLAR_OK) {
        return status;
    }
    status = refuse_captured(caller, waiter);
    cu_result result = CU_SUCCESS;
    if (status == ASHLAR_OK) {
        result = ASHLAR_CALL(caller, stream_wait_event, (waiter, order->event, 0));
    }
    ashlar_device_leave(caller->device);
    return result == CU_SUCCESS ? status : refuse(caller, "cuStreamWaitEvent", result);
}

ashlar_status ashlar_order_synchronize(ashlar_order *order, ashlar_caller *caller,
                                       pthread_mutex_t *lock) {
    ASHLAR_ASSERT(order->completed < order->recorded);
    const uint64_t awaited = order->recorded;
    ashlar_driver *driver = caller->device->driver;
    const ashlar_status status = ashlar_device_enter(caller->device);
    if (status != ASHLAR_OK) {
        return status;
    }
    caller->calls++; /* by hand: ASHLAR_CALL is for calls under the lock */
    order->waiter_count++;
    pthread_mutex_unlock(lock);
    unsigned int mode = CU_CAPTURE_RELAXED;
    cu_result result = ashlar_driver_relax(driver, &mode);
    if (result == CU_SUCCESS) {
        result = ASHLAR_DRIVER_CALL(driver, event_synchronize, (order->event));
        ashlar_driver_unrelax(driver, mode);
    }
    pthread_mutex_lock(lock);
    order->waiter_count--;
    ashlar_device_leave(caller->device);
    if (result != CU_SUCCESS) {
        return refuse(caller, "cuEventSynchronize", result);
    }
    /* Another thread may have seen a later recording complete meanwhile. */
    order->completed = order->completed > awaited ? order->completed : awaited;
    return ASHLAR_OK;
}

void ashlar_order_finish(ashlar_order *order, ashlar_caller *caller) {
    if (order->event != NULL && ashlar_device_enter(caller->device) == ASHLAR_OK) {
        (void)ASHLAR_CALL(caller, event_destroy, (order->event));
        ashlar_device_leave(caller->device);
    }
}
