/* soft_event.c - the software device's events. Each names the point where it was last recorded. */
#include "allocator/soft/soft_state.h"

#include "allocator/base/host.h"

/* The flags for blocking waits and for no timing are allowed, and have no effect here. */
enum { EVENT_FLAGS_ALLOWED = 3, EVENT_INTERPROCESS = 4 };

typedef struct soft_event {
    soft_device *device;
    soft_point *point;   /* made by the newest record; NULL: none yet, so the event is complete */
    uint64_t capture;    /* id of the capture that holds the newest record; 0: in no capture */
    soft_clock captured; /* if in a capture: the nodes that the event stands for */
} soft_event;

static soft_event *find(cu_event event) {
    return ashlar__soft_handles_get(&ashlar__soft_state.events, SOFT_EVENT, (uintptr_t)event);
}

/* Begin a call on an event: like ashlar__soft_enter_context(), and find the event. */
static cu_result enter_event(ashlar_driver_fn fn, cu_event handle, soft_device **device,
                             soft_event **event) {
    SOFT_TRY(ashlar__soft_enter_context(fn, device));
    *event = find(handle);
    ASHLAR_CHECK2(*event == NULL || (*event)->capture == 0 || (*event)->point == NULL);
    return *event != NULL
               ? CU_SUCCESS
               : ashlar__soft_leave(ashlar__soft_undefined_handle(
                     CU_INVALID_HANDLE, &ashlar__soft_state.events, SOFT_EVENT, (uintptr_t)handle));
}

/* Begin a call that takes an event and a stream, and queues work on the stream. */
static cu_result enter_event_work(ashlar_driver_fn fn, cu_event handle, cu_stream stream_handle,
                                  soft_device **device, soft_event **event, soft_stream **stream) {
    SOFT_TRY(enter_event(fn, handle, device, event));
    cu_result result = ashlar__soft_stream_find(*device, stream_handle, stream);
    if (result == CU_SUCCESS) {
        result = ashlar__soft_capture_admit_work(*stream);
    }
    return result == CU_SUCCESS ? CU_SUCCESS : ashlar__soft_leave(result);
}

/* Begin a call that asks whether an event is complete. It fails for an event recorded in a
 * capture. */
static cu_result enter_event_wait(ashlar_driver_fn fn, cu_event handle, soft_device **device,
                                  soft_event **event) {
    SOFT_TRY(enter_event(fn, handle, device, event));
    const cu_result result =
        (*event)->capture != 0
            ? ashlar__soft_capture_spoil(ashlar__soft_capture_find((*event)->capture),
                                         CU_CAPTURED_EVENT)
            : ashlar__soft_capture_admit_unsafe();
    return result == CU_SUCCESS ? CU_SUCCESS : ashlar__soft_leave(result);
}

static void delete_event(soft_event *event) {
    ashlar__soft_point_drop(event->point);
    ashlar__soft_clock_clear(&event->captured);
    ashlar__host_free(event);
}

cu_result ashlar__soft_event_create(cu_event *event, unsigned int flags) {
    soft_device *device;
    SOFT_TRY(ashlar__soft_enter_context(ASHLAR_DRIVER_FN_event_create, &device));
    if (event == NULL || flags > EVENT_FLAGS_ALLOWED) {
        return ashlar__soft_leave((flags & EVENT_INTERPROCESS) != 0 ? CU_NOT_SUPPORTED
                                                                    : CU_INVALID_VALUE);
    }
    uintptr_t handle;
    soft_event *created = ashlar__host_calloc(1, sizeof *created);
    if (created == NULL ||
        !ashlar__soft_handles_put(&ashlar__soft_state.events, SOFT_EVENT, created, &handle)) {
        ashlar__host_free(created);
        return ashlar__soft_leave(CU_OUT_OF_MEMORY);
    }
    created->device = device;
    *event = (cu_event)handle;
    return ashlar__soft_leave(CU_SUCCESS);
}

cu_result ashlar__soft_event_destroy(cu_event event) {
    soft_device *device;
    soft_event *found;
    SOFT_TRY(enter_event(ASHLAR_DRIVER_FN_event_destroy, event, &device, &found));
    (void)ashlar__soft_handles_take(&ashlar__soft_state.events, SOFT_EVENT, (uintptr_t)event);
    delete_event(found);
    return ashlar__soft_leave(CU_SUCCESS);
}

void ashlar__soft_event_reset(const soft_device *device) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    soft_handles *handles = &ashlar__soft_state.events;
    for (size_t i = 0; i < handles->count; i++) {
        soft_event *event = handles->entries[i].item;
        if (event != NULL && (device == NULL || event->device == device)) {
            ashlar__soft_handles_drop(handles, i);
            delete_event(event);
        }
    }
}

/* Record an event on a capturing stream: nothing is queued, and the event now stands for the nodes
 * that the stream's next node would come after. */
static cu_result record_captured(soft_event *event, const soft_stream *stream) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    ASHLAR_CHECK2(stream->capture != NULL && stream->capture->id != 0);
    soft_clock captured = {0};
    if (!ashlar__soft_clock_join(&captured, &stream->captured)) {
        return CU_OUT_OF_MEMORY;
    }
    ashlar__soft_clock_clear(&event->captured);
    ashlar__soft_point_drop(event->point);
    event->point = NULL;
    event->captured = captured;
    event->capture = stream->capture->id;
    return CU_SUCCESS;
}

static cu_result record(soft_event *found, soft_stream *queue) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    soft_point *point = ashlar__soft_point_new();
    if (point == NULL) {
        return CU_OUT_OF_MEMORY;
    }
    point->user_count++; /* one for the event, one for the op */
    const soft_op op = {.kind = SOFT_OP_RECORD, .point = point};
    /* Give the event its point before queueing the op: once the op is queued, ashlar__soft_submit()
     * may drop the lock, and another thread may destroy the event. A failing ashlar__soft_submit()
     * does not drop the lock. */
    soft_point *before = found->point;
    const uint64_t capture = found->capture;
    found->point = point;
    found->capture = 0;
    const cu_result result = ashlar__soft_submit(queue, &op);
    if (result != CU_SUCCESS) {
        found->point = before;
        found->capture = capture;
        before = point;
    }
    ashlar__soft_point_drop(before);
    return result;
}

cu_result ashlar__soft_event_record(cu_event event, cu_stream stream) {
    soft_device *device;
    soft_event *found;
    soft_stream *queue;
    SOFT_TRY(
        enter_event_work(ASHLAR_DRIVER_FN_event_record, event, stream, &device, &found, &queue));
    if (queue->device != found->device) {
        return ashlar__soft_leave(CU_INVALID_HANDLE);
    }
    const cu_result result =
        queue->capture != NULL ? record_captured(found, queue) : record(found, queue);
    return ashlar__soft_leave(result);
}

/* The stream waits for the newest record made before this call, whatever is recorded later. */
cu_result ashlar__soft_stream_wait_event(cu_stream stream, cu_event event, unsigned int flags) {
    soft_device *device;
    soft_event *found;
    soft_stream *queue;
    SOFT_TRY(enter_event_work(ASHLAR_DRIVER_FN_stream_wait_event, event, stream, &device, &found,
                              &queue));
    if (flags != 0) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    if (found->capture != 0) {
        return ashlar__soft_leave(
            ashlar__soft_capture_join(queue, found->capture, &found->captured));
    }
    if (queue->capture != NULL) { /* an event that was never recorded adds no dependency */
        return ashlar__soft_leave(
            found->point == NULL
                ? CU_SUCCESS
                : ashlar__soft_capture_spoil(queue->capture, CU_STREAM_CAPTURE_ISOLATION));
    }
    const soft_op op = {.kind = SOFT_OP_WAIT, .awaits = found->point};
    if (op.awaits != NULL) {
        op.awaits->user_count++;
    }
    ashlar__soft_time_count_wait(queue, op.awaits);
    return ashlar__soft_leave(ashlar__soft_submit(queue, &op));
}

/* End a query or a wait, and drop the reference to `point` that it took. */
static cu_result leave_point(const soft_device *device, soft_point *point) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    const bool is_over = point->is_done && ashlar__soft_time_is_past(point->time_ns);
    const cu_result result = is_over ? device->fault : CU_NOT_READY;
    if (result == CU_SUCCESS) {
        ashlar__soft_oracle_see(&point->clock);
    }
    ashlar__soft_point_drop(point);
    return ashlar__soft_leave(result);
}

cu_result ashlar__soft_event_query(cu_event event) {
    soft_device *device;
    soft_event *found;
    SOFT_TRY(enter_event_wait(ASHLAR_DRIVER_FN_event_query, event, &device, &found));
    soft_point *point = found->point;
    if (point == NULL) {
        return ashlar__soft_leave(CU_SUCCESS);
    }
    point->user_count++;
    if (!point->is_done && ashlar__soft_chosen_is_done()) {
        ashlar__soft_wait_point(point);
    } else {
        ashlar__soft_poll();
    }
    return leave_point(device, point);
}

/* Not a function of CUDA's: polling would cost neither virtual time nor, in adversarial mode, have
 * the work run that is awaited. */
cu_result ashlar__soft_wait_any(const cu_event *events, size_t count) {
    soft_device *device;
    soft_event *found;
    soft_point *points[ASHLAR_AWAITED_MAX];
    size_t point_count = 0;
    ASHLAR_CHECK2(count > 0 && count <= ASHLAR_AWAITED_MAX);
    SOFT_TRY(enter_event_wait(ASHLAR_DRIVER_FN_event_synchronize, events[0], &device, &found));
    for (size_t i = 0; i < count; i++) {
        found = find(events[i]);
        if (found == NULL || found->point == NULL) { /* nothing to wait for */
            return ashlar__soft_leave(CU_SUCCESS);
        }
        points[point_count++] = found->point;
    }
    for (size_t i = 0; i < point_count; i++) {
        points[i]->user_count++;
    }
    ashlar__soft_wait_points(points, point_count);
    for (size_t i = 0; i < point_count; i++) {
        ashlar__soft_point_drop(points[i]);
    }
    return ashlar__soft_leave(device->fault);
}

cu_result ashlar__soft_event_synchronize(cu_event event) {
    soft_device *device;
    soft_event *found;
    SOFT_TRY(enter_event_wait(ASHLAR_DRIVER_FN_event_synchronize, event, &device, &found));
    soft_point *point = found->point;
    if (point == NULL) {
        return ashlar__soft_leave(CU_SUCCESS);
    }
    point->user_count++;
    ashlar__soft_wait_point(point);
    ashlar__soft_gather();
    return leave_point(device, point);
}
