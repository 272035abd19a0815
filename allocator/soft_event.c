/* soft_event.c - events: names for completion points. */
#include "soft_state.h"

#include "host.h"

enum { EVENT_FLAGS_ALLOWED = 3, EVENT_INTERPROCESS = 4 }; /* blocking wait, no timing: all same */

typedef struct soft_event {
    soft_device *device;
    soft_point *point; /* of the newest record; NULL: never recorded, and so complete */
} soft_event;

static soft_event *find(cu_event event) {
    return ashlar_soft_slots_get(&ashlar_soft_state.events, SOFT_EVENT, (uintptr_t)event);
}

/* Begin a call on an event: as ashlar_soft_enter_context(). */
static cu_result enter_event(cu_event handle, soft_device **device, soft_event **event) {
    const cu_result result = ashlar_soft_enter_context(device);
    if (result != CU_SUCCESS) {
        return result;
    }
    *event = find(handle);
    return *event == NULL ? ashlar_soft_leave(CU_INVALID_HANDLE) : CU_SUCCESS;
}

static void delete_event(soft_event *event) {
    ashlar_soft_point_drop(event->point);
    ashlar_host_free(event);
}

cu_result ashlar_soft_event_create(cu_event *event, unsigned int flags) {
    soft_device *device;
    const cu_result result = ashlar_soft_enter_context(&device);
    if (result != CU_SUCCESS) {
        return result;
    }
    if (event == NULL || flags > EVENT_FLAGS_ALLOWED) {
        return ashlar_soft_leave((flags & EVENT_INTERPROCESS) != 0 ? CU_NOT_SUPPORTED
                                                                   : CU_INVALID_VALUE);
    }
    uintptr_t handle;
    soft_event *created = ashlar_host_calloc(1, sizeof *created);
    if (created == NULL ||
        !ashlar_soft_slots_put(&ashlar_soft_state.events, SOFT_EVENT, created, &handle)) {
        ashlar_host_free(created);
        return ashlar_soft_leave(CU_OUT_OF_MEMORY);
    }
    created->device = device;
    *event = (cu_event)handle;
    return ashlar_soft_leave(CU_SUCCESS);
}

cu_result ashlar_soft_event_destroy(cu_event event) {
    soft_device *device;
    soft_event *found;
    const cu_result result = enter_event(event, &device, &found);
    if (result != CU_SUCCESS) {
        return result;
    }
    (void)ashlar_soft_slots_take(&ashlar_soft_state.events, SOFT_EVENT, (uintptr_t)event);
    delete_event(found);
    return ashlar_soft_leave(CU_SUCCESS);
}

void ashlar_soft_event_reset(const soft_device *device) {
    soft_slots *slots = &ashlar_soft_state.events;
    for (size_t i = 0; i < slots->count; i++) {
        soft_event *event = slots->slots[i].item;
        if (event != NULL && (device == NULL || event->device == device)) {
            ashlar_soft_slots_drop(slots, i);
            delete_event(event);
        }
    }
}

cu_result ashlar_soft_event_record(cu_event event, cu_stream stream) {
    soft_device *device;
    soft_event *found;
    cu_result result = enter_event(event, &device, &found);
    if (result != CU_SUCCESS) {
        return result;
    }
    soft_stream *queue;
    result = ashlar_soft_stream_find(device, stream, &queue);
    if (result == CU_SUCCESS && queue->device != found->device) {
        result = CU_INVALID_HANDLE;
    }
    soft_point *point = result == CU_SUCCESS ? ashlar_soft_point_new() : NULL;
    if (point == NULL) {
        return ashlar_soft_leave(result == CU_SUCCESS ? CU_OUT_OF_MEMORY : result);
    }
    point->user_count++; /* one for the event, one for the op */
    const soft_op op = {.kind = SOFT_OP_RECORD, .point = point};
    /* The event gets its point first: once the op is queued the lock may be dropped, and the
     * event destroyed. A submission that fails has not dropped it. */
    soft_point *before = found->point;
    found->point = point;
    result = ashlar_soft_submit(queue, &op);
    if (result != CU_SUCCESS) {
        found->point = before;
        before = point;
    }
    ashlar_soft_point_drop(before);
    return ashlar_soft_leave(result);
}

/* Waits for the newest record before this call; a later one does not move it. */
cu_result ashlar_soft_stream_wait_event(cu_stream stream, cu_event event, unsigned int flags) {
    soft_device *device;
    soft_event *found;
    cu_result result = enter_event(event, &device, &found);
    if (result != CU_SUCCESS) {
        return result;
    }
    soft_stream *queue;
    result = flags != 0 ? CU_INVALID_VALUE : ashlar_soft_stream_find(device, stream, &queue);
    if (result != CU_SUCCESS) {
        return ashlar_soft_leave(result);
    }
    const soft_op op = {.kind = SOFT_OP_WAIT, .awaits = found->point};
    if (op.awaits != NULL) {
        op.awaits->user_count++;
    }
    return ashlar_soft_leave(ashlar_soft_submit(queue, &op));
}

/* Ends a query or a wait that held on to `point`. */
static cu_result leave_point(const soft_device *device, soft_point *point) {
    const cu_result result = !point->is_done ? CU_NOT_READY : device->fault;
    ashlar_soft_point_drop(point);
    return ashlar_soft_leave(result);
}

cu_result ashlar_soft_event_query(cu_event event) {
    soft_device *device;
    soft_event *found;
    const cu_result result = enter_event(event, &device, &found);
    if (result != CU_SUCCESS) {
        return result;
    }
    soft_point *point = found->point;
    if (point == NULL) {
        return ashlar_soft_leave(CU_SUCCESS);
    }
    point->user_count++;
    ashlar_soft_poll();
    return leave_point(device, point);
}

cu_result ashlar_soft_event_synchronize(cu_event event) {
    soft_device *device;
    soft_event *found;
    const cu_result result = enter_event(event, &device, &found);
    if (result != CU_SUCCESS) {
        return result;
    }
    soft_point *point = found->point;
    if (point == NULL) {
        return ashlar_soft_leave(CU_SUCCESS);
    }
    point->user_count++;
    ashlar_soft_wait_point(point);
    return leave_point(device, point);
}
