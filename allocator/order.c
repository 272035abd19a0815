#include "order.h"

#include "check_level.h"

/*
 * Every call here runs in the device's context; the two calls that switch to it are counted for
 * the process but not for the allocator, since they ask nothing of the driver.
 */
static ashlar_status refuse(const ashlar_caller *caller, const char *what, cu_result result) {
    return ashlar_driver_error(caller->device->driver, what, result);
}

static ashlar_status record(ashlar_order *order, ashlar_caller *caller) {
    if (order->event == NULL) {
        const cu_result result =
            ASHLAR_CALL(caller, event_create, (&order->event, CU_EVENT_NO_TIMING));
        if (result != CU_SUCCESS) {
            return refuse(caller, "cuEventCreate", result);
        }
    }
    const cu_result result = ASHLAR_CALL(caller, event_record, (order->event, order->stream));
    if (result != CU_SUCCESS) {
        return refuse(caller, "cuEventRecord", result);
    }
    order->recorded++;
    return ASHLAR_OK;
}

ashlar_status ashlar_order_cover(ashlar_order *order, ashlar_caller *caller, uint64_t tick,
                                 uint64_t *recorded) {
    if (order->recorded > tick) {
        return ASHLAR_OK;
    }
    ashlar_status status = ashlar_device_enter(caller->device);
    if (status != ASHLAR_OK) {
        return status;
    }
    status = record(order, caller);
    ashlar_device_leave(caller->device);
    if (status == ASHLAR_OK) {
        order->recorded_at = ++*recorded;
    }
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

ashlar_status ashlar_order_wait_on(ashlar_order *order, ashlar_caller *caller,
                                   ashlar_stream waiter) {
    const ashlar_status status = ashlar_device_enter(caller->device);
    if (status != ASHLAR_OK) {
        return status;
    }
    const cu_result result = ASHLAR_CALL(caller, stream_wait_event, (waiter, order->event, 0));
    ashlar_device_leave(caller->device);
    return result == CU_SUCCESS ? ASHLAR_OK : refuse(caller, "cuStreamWaitEvent", result);
}

ashlar_status ashlar_order_synchronize(ashlar_order *order, ashlar_caller *caller,
                                       pthread_mutex_t *lock) {
    ASHLAR_ASSERT(order->completed < order->recorded);
    const uint64_t awaited = order->recorded;
    const ashlar_status status = ashlar_device_enter(caller->device);
    if (status != ASHLAR_OK) {
        return status;
    }
    caller->calls++; /* by hand: ASHLAR_CALL counts under the lock */
    pthread_mutex_unlock(lock);
    const cu_result result =
        ASHLAR_DRIVER_CALL(caller->device->driver, event_synchronize, (order->event));
    pthread_mutex_lock(lock);
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
