/* soft_stream.c - the software device's streams, those that a program creates and the default ones
 * of each thread; and its events, each of which names the point where it was last recorded. */
#include "allocator/soft/soft_state.h"

#include "allocator/base/host.h"
#include "allocator/base/threads.h"

/*
 * A default stream of the calling thread, which has one per context. The serial tells whether the
 * handle still names this stream: handles are reused once a context is released or the devices are
 * configured anew.
 */
typedef struct thread_stream {
    const soft_device *device;
    uintptr_t handle;
    uint64_t serial;
} thread_stream;

enum { THREAD_STREAMS_MAX = 2 * SOFT_DEVICES_MAX };

/* Make a stream with a handle; NULL: no host memory. */
static soft_stream *make_stream(soft_device *device, bool is_ordered, uintptr_t *handle) {
    soft_stream *stream = ashlar__host_calloc(1, sizeof *stream);
    if (stream == NULL || !ashlar__soft_handle_put(SOFT_STREAM, stream, handle)) {
        ashlar__host_free(stream);
        return NULL;
    }
    ashlar__soft_stream_join(stream, device, is_ordered);
    return stream;
}

/* End a stream whose handle is gone. Its queued ops still run, and the last one deletes the
 * stream. */
static void orphan(soft_stream *stream) {
    ASHLAR_CHECK2(!stream->is_destroyed);
    ashlar__soft_capture_leave(stream);
    ASHLAR_CHECK2(stream->capture == NULL);
    if (ashlar__soft_hooks.end != NULL) {
        ashlar__soft_hooks.end(stream);
    }
    if (stream->head == NULL) {
        ashlar__soft_stream_delete(stream);
    } else {
        stream->is_destroyed = true;
    }
}

/* The stream that *mine stands for; NULL: it has ended, or was never made. */
static soft_stream *stream_of(const thread_stream *mine) {
    soft_stream *stream = ashlar__soft_handle_get(SOFT_STREAM, mine->handle);
    return stream != NULL && stream->serial == mine->serial ? stream : NULL;
}

static pthread_key_t thread_end_key;
static bool has_thread_end_key;

/* A thread ends: destroy its default streams. Lock: not held. */
static void end_thread(void *unused) {
    (void)unused;
    ashlar__lock_acquire(&ashlar__soft_state.lock);
    const thread_stream *mine = ashlar__thread_data_if_any(ASHLAR_THREAD_SOFT_STREAMS);
    const bool has_any = mine != NULL && !ashlar__soft_state.is_forked;
    for (int i = 0; has_any && i < THREAD_STREAMS_MAX; i++) {
        soft_stream *stream = stream_of(&mine[i]);
        if (stream != NULL) {
            (void)ashlar__soft_handle_take(SOFT_STREAM, mine[i].handle);
            orphan(stream);
        }
    }
    ashlar__lock_release(&ashlar__soft_state.lock);
}

static void make_thread_end_key(void) {
    has_thread_end_key = pthread_key_create(&thread_end_key, end_thread) == 0;
}

/* The calling thread's default stream, made at its first use; NULL: no host memory. */
static soft_stream *need_thread_stream(soft_device *device) {
    static pthread_once_t key_once = PTHREAD_ONCE_INIT;
    thread_stream *mine =
        ashlar__thread_data(ASHLAR_THREAD_SOFT_STREAMS, THREAD_STREAMS_MAX * sizeof *mine);
    pthread_once(&key_once, make_thread_end_key);
    if (mine == NULL || !has_thread_end_key || pthread_setspecific(thread_end_key, mine) != 0) {
        return NULL;
    }
    thread_stream *vacant = NULL;
    for (int i = 0; i < THREAD_STREAMS_MAX; i++) {
        soft_stream *stream = stream_of(&mine[i]);
        if (stream != NULL && mine[i].device == device) {
            return stream;
        }
        vacant = vacant == NULL && stream == NULL ? &mine[i] : vacant;
    }
    soft_stream *made = vacant == NULL ? NULL : make_stream(device, true, &vacant->handle);
    if (made != NULL) {
        vacant->device = device;
        vacant->serial = made->serial;
    }
    return made;
}

/* Find the stream that `handle` means in a call on device `current`. The thread's default stream is
 * made at its first use. */
static cu_result find_stream(soft_device *current, cu_stream handle, soft_stream **out) {
    const uintptr_t number = (uintptr_t)handle;
    soft_stream *stream;
    if (number == CU_STREAM_PER_THREAD) {
        stream = need_thread_stream(current);
        if (stream == NULL) {
            return CU_OUT_OF_MEMORY;
        }
    } else if (number == 0 || number == CU_STREAM_LEGACY) {
        stream = current->legacy;
    } else {
        stream = ashlar__soft_handle_find(SOFT_STREAM, handle);
        if (stream == NULL) {
            return CU_INVALID_HANDLE;
        }
    }
    ASHLAR_CHECK2(stream->device != NULL && !stream->is_destroyed);
    *out = stream;
    return CU_SUCCESS;
}

cu_result ashlar__soft_enter_stream(ashlar_driver_fn fn, cu_stream handle, soft_stream **stream) {
    soft_device *device;
    SOFT_TRY(ashlar__soft_enter_context(fn, &device));
    cu_result result = find_stream(device, handle, stream);
    if (result == CU_SUCCESS) {
        result = (*stream)->device->fault; /* the stream's device may not be the context's */
    }
    return ashlar__soft_go_on(result);
}

cu_result ashlar__soft_enter_work(ashlar_driver_fn fn, cu_stream handle, soft_stream **stream) {
    SOFT_TRY(ashlar__soft_enter_stream(fn, handle, stream));
    return ashlar__soft_go_on(ashlar__soft_capture_admit_work(*stream));
}

cu_result ashlar__soft_stream_create(cu_stream *stream, unsigned int flags) {
    soft_device *device;
    SOFT_TRY(ashlar__soft_enter_context(ASHLAR_DRIVER_FN_stream_create, &device));
    if (stream == NULL || flags > CU_STREAM_UNORDERED) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    uintptr_t handle;
    if (make_stream(device, flags == CU_STREAM_BLOCKING, &handle) == NULL) {
        return ashlar__soft_leave(CU_OUT_OF_MEMORY);
    }
    *stream = (cu_stream)handle;
    return ashlar__soft_leave(CU_SUCCESS);
}

cu_result ashlar__soft_stream_get_id(cu_stream stream, unsigned long long *id) {
    soft_stream *found = NULL;
    SOFT_TRY(ashlar__soft_enter_stream(ASHLAR_DRIVER_FN_stream_get_id, stream, &found));
    if (id == NULL) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    *id = found->serial;
    return ashlar__soft_leave(CU_SUCCESS);
}

cu_result ashlar__soft_stream_destroy(cu_stream stream) {
    soft_device *device;
    SOFT_TRY(ashlar__soft_enter_context(ASHLAR_DRIVER_FN_stream_destroy, &device));
    soft_stream *found = ashlar__soft_handle_find(SOFT_STREAM, stream);
    if (found == NULL) {
        return ashlar__soft_leave(CU_INVALID_HANDLE);
    }
    if (found->capture != NULL) {
        (void)ashlar__soft_undefined(CU_SUCCESS, "stream %#zx is being captured", (size_t)stream);
        return ashlar__soft_leave(
            ashlar__soft_capture_spoil(found->capture, CU_STREAM_CAPTURE_UNSUPPORTED));
    }
    (void)ashlar__soft_handle_take(SOFT_STREAM, (uintptr_t)stream);
    orphan(found);
    return ashlar__soft_leave(CU_SUCCESS);
}

void ashlar__soft_stream_reset(const soft_device *device) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    const soft_handles *streams = &ashlar__soft_state.handles[SOFT_STREAM];
    for (size_t i = 0; i < streams->count; i++) {
        soft_stream *stream = streams->entries[i].item;
        if (stream != NULL && stream->device == device) {
            ashlar__soft_handle_drop(SOFT_STREAM, i);
            orphan(stream);
        }
    }
}

/* Enter a call that tells the host how far a stream is, if no capture forbids that. */
static cu_result enter_host_wait(ashlar_driver_fn fn, cu_stream stream, soft_stream **found) {
    SOFT_TRY(ashlar__soft_enter_stream(fn, stream, found));
    return ashlar__soft_go_on(ashlar__soft_capture_admit_wait(*found));
}

cu_result ashlar__soft_stream_query(cu_stream stream) {
    soft_stream *found = NULL;
    SOFT_TRY(enter_host_wait(ASHLAR_DRIVER_FN_stream_query, stream, &found));
    const soft_device *device = found->device; /* outlives the stream */
    const bool is_over = found->head == NULL && ashlar__soft_time_is_past(found->tail_ns);
    const uint64_t serial = found->serial;
    if (!is_over) {
        ashlar__soft_poll();
        return ashlar__soft_leave(CU_NOT_READY);
    }
    ashlar__soft_wait_device(device, serial);
    return ashlar__soft_leave(device->fault);
}

cu_result ashlar__soft_stream_synchronize(cu_stream stream) {
    soft_stream *found = NULL;
    SOFT_TRY(enter_host_wait(ASHLAR_DRIVER_FN_stream_synchronize, stream, &found));
    const soft_device *device = found->device; /* outlives the stream */
    ashlar__soft_wait_device(device, found->serial);
    return ashlar__soft_leave(device->fault);
}

cu_result ashlar__soft_ctx_synchronize(void) {
    soft_device *device = NULL;
    SOFT_TRY(ashlar__soft_enter_context(ASHLAR_DRIVER_FN_ctx_synchronize, &device));
    const cu_result result = ashlar__soft_capture_admit_wait_all(device);
    if (result != CU_SUCCESS) {
        return ashlar__soft_leave(result);
    }
    ashlar__soft_wait_device(device, 0);
    return ashlar__soft_leave(device->fault);
}

/* ---- events ---- */

/* CU_EVENT_BLOCKING_SYNC and _DISABLE_TIMING are allowed, and have no effect here. */
enum { EVENT_FLAGS_ALLOWED = 3, EVENT_INTERPROCESS = 4 };

typedef struct soft_event {
    soft_device *device;
    soft_point *point;   /* made by the newest record; NULL: none yet, so the event is complete */
    uint64_t capture;    /* id of the capture that holds the newest record; 0: in no capture */
    soft_clock captured; /* if `capture` is not 0: the nodes that the event stands for */
} soft_event;

/* Begin a call on an event: like ashlar__soft_enter_context(), and find the event. */
static cu_result enter_event(ashlar_driver_fn fn, cu_event handle, soft_device **device,
                             soft_event **event) {
    SOFT_TRY(ashlar__soft_enter_context(fn, device));
    *event = ashlar__soft_handle_find(SOFT_EVENT, handle);
    ASHLAR_CHECK2(*event == NULL || (*event)->capture == 0 || (*event)->point == NULL);
    return ashlar__soft_go_on(*event == NULL ? CU_INVALID_HANDLE : CU_SUCCESS);
}

/* Begin a call that takes an event and a stream, and queues work on the stream. */
static cu_result enter_event_work(ashlar_driver_fn fn, cu_event handle, cu_stream stream_handle,
                                  soft_device **device, soft_event **event, soft_stream **stream) {
    SOFT_TRY(enter_event(fn, handle, device, event));
    cu_result result = find_stream(*device, stream_handle, stream);
    if (result == CU_SUCCESS) {
        result = ashlar__soft_capture_admit_work(*stream);
    }
    return ashlar__soft_go_on(result);
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
    return ashlar__soft_go_on(result);
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
    if (created == NULL || !ashlar__soft_handle_put(SOFT_EVENT, created, &handle)) {
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
    (void)ashlar__soft_handle_take(SOFT_EVENT, (uintptr_t)event);
    delete_event(found);
    return ashlar__soft_leave(CU_SUCCESS);
}

void ashlar__soft_event_reset(const soft_device *device) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    const soft_handles *events = &ashlar__soft_state.handles[SOFT_EVENT];
    for (size_t i = 0; i < events->count; i++) {
        soft_event *event = events->entries[i].item;
        if (event != NULL && (device == NULL || event->device == device)) {
            ashlar__soft_handle_drop(SOFT_EVENT, i);
            delete_event(event);
        }
    }
}

/* Record an event on a capturing stream: nothing is queued, and the event now stands for the nodes
 * that the stream's next node would come after. */
static cu_result record_captured(soft_event *event, const soft_stream *stream) {
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
    soft_stream *queue = NULL;
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
    soft_stream *queue = NULL;
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

/* End a query or a wait: wait until one of the points is done, which drops the lock meanwhile. */
static cu_result leave_with_wait(const soft_device *device, soft_point **points, size_t count) {
    for (size_t i = 0; i < count; i++) {
        points[i]->user_count++;
    }
    ashlar__soft_wait_points(points, count);
    for (size_t i = 0; i < count; i++) {
        ashlar__soft_point_drop(points[i]);
    }
    return ashlar__soft_leave(device->fault);
}

cu_result ashlar__soft_event_query(cu_event event) {
    soft_device *device;
    soft_event *found;
    SOFT_TRY(enter_event_wait(ASHLAR_DRIVER_FN_event_query, event, &device, &found));
    soft_point *point = found->point;
    if (point == NULL) {
        return ashlar__soft_leave(CU_SUCCESS);
    }
    const bool is_over = point->is_done && ashlar__soft_time_is_past(point->time_ns);
    if (is_over) {
        return leave_with_wait(device, &point, 1);
    }
    ashlar__soft_poll();
    return ashlar__soft_leave(CU_NOT_READY);
}

/* CUDA has no such function. Polling instead would not count as a wait in virtual time and, in
 * adversarial mode, would run any ready work rather than what is awaited. */
cu_result ashlar__soft_wait_any(const cu_event *events, size_t count) {
    soft_device *device;
    soft_event *found;
    soft_point *points[ASHLAR_AWAITED_MAX];
    ASHLAR_CHECK2(count > 0 && count <= ASHLAR_AWAITED_MAX);
    SOFT_TRY(enter_event_wait(ASHLAR_DRIVER_FN_event_synchronize, events[0], &device, &found));
    for (size_t i = 0; i < count; i++) {
        found = ashlar__soft_handle_get(SOFT_EVENT, (uintptr_t)events[i]);
        if (found == NULL || found->point == NULL) { /* nothing to wait for */
            return ashlar__soft_leave(CU_SUCCESS);
        }
        points[i] = found->point;
    }
    return leave_with_wait(device, points, count);
}

cu_result ashlar__soft_event_synchronize(cu_event event) {
    soft_device *device;
    soft_event *found;
    SOFT_TRY(enter_event_wait(ASHLAR_DRIVER_FN_event_synchronize, event, &device, &found));
    soft_point *point = found->point;
    return point == NULL ? ashlar__soft_leave(CU_SUCCESS) : leave_with_wait(device, &point, 1);
}
