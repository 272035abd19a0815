/* soft_stream.c - the software device's streams: those that a program creates, and the default ones
 * of each thread. */
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
    if (stream == NULL ||
        !ashlar__soft_handles_put(&ashlar__soft_state.streams, SOFT_STREAM, stream, handle)) {
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
    ashlar__soft_oracle_end(stream);
    if (stream->head == NULL) {
        ashlar__soft_stream_delete(stream);
    } else {
        stream->is_destroyed = true;
    }
}

/* NULL: it has ended, or there was none. */
static soft_stream *stream_of(const thread_stream *mine) {
    soft_stream *stream =
        ashlar__soft_handles_get(&ashlar__soft_state.streams, SOFT_STREAM, mine->handle);
    return stream != NULL && stream->serial == mine->serial ? stream : NULL;
}

static pthread_key_t thread_end_key;
static bool has_thread_end_key;

/* Lock: not held. */
static void end_thread(void *unused) {
    (void)unused;
    ashlar__lock_acquire(&ashlar__soft_state.lock);
    const thread_stream *mine = ashlar__thread_data_if_any(ASHLAR_THREAD_SOFT_STREAMS);
    const bool has_any = mine != NULL && !ashlar__soft_state.is_forked;
    for (int i = 0; has_any && i < THREAD_STREAMS_MAX; i++) {
        soft_stream *stream = stream_of(&mine[i]);
        if (stream != NULL) {
            (void)ashlar__soft_handles_take(&ashlar__soft_state.streams, SOFT_STREAM,
                                            mine[i].handle);
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

cu_result ashlar__soft_stream_find(soft_device *current, cu_stream handle, soft_stream **out) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
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
        stream = ashlar__soft_handles_get(&ashlar__soft_state.streams, SOFT_STREAM, number);
    }
    if (stream == NULL) {
        return ashlar__soft_undefined_handle(CU_INVALID_HANDLE, &ashlar__soft_state.streams,
                                             SOFT_STREAM, number);
    }
    ASHLAR_CHECK2(stream->device != NULL && !stream->is_destroyed);
    *out = stream;
    return CU_SUCCESS;
}

cu_result ashlar__soft_enter_stream(ashlar_driver_fn fn, cu_stream handle, soft_stream **stream) {
    soft_device *device;
    SOFT_TRY(ashlar__soft_enter_context(fn, &device));
    cu_result result = ashlar__soft_stream_find(device, handle, stream);
    if (result == CU_SUCCESS) {
        result = (*stream)->device->fault; /* the stream's device may not be the context's */
    }
    return result == CU_SUCCESS ? CU_SUCCESS : ashlar__soft_leave(result);
}

cu_result ashlar__soft_enter_work(ashlar_driver_fn fn, cu_stream handle, soft_stream **stream) {
    SOFT_TRY(ashlar__soft_enter_stream(fn, handle, stream));
    const cu_result result = ashlar__soft_capture_admit_work(*stream);
    return result == CU_SUCCESS ? CU_SUCCESS : ashlar__soft_leave(result);
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
    soft_handles *streams = &ashlar__soft_state.streams;
    soft_stream *found = ashlar__soft_handles_get(streams, SOFT_STREAM, (uintptr_t)stream);
    if (found == NULL) {
        return ashlar__soft_leave(ashlar__soft_undefined_handle(CU_INVALID_HANDLE, streams,
                                                                SOFT_STREAM, (uintptr_t)stream));
    }
    if (found->capture != NULL) {
        (void)ashlar__soft_undefined(CU_SUCCESS, "stream %#zx is being captured", (size_t)stream);
        return ashlar__soft_leave(
            ashlar__soft_capture_spoil(found->capture, CU_STREAM_CAPTURE_UNSUPPORTED));
    }
    (void)ashlar__soft_handles_take(streams, SOFT_STREAM, (uintptr_t)stream);
    orphan(found);
    return ashlar__soft_leave(CU_SUCCESS);
}

void ashlar__soft_stream_reset(const soft_device *device) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    soft_handles *handles = &ashlar__soft_state.streams;
    for (size_t i = 0; i < handles->count; i++) {
        soft_stream *stream = handles->entries[i].item;
        if (stream != NULL && stream->device == device) {
            ashlar__soft_handles_drop(handles, i);
            orphan(stream);
        }
    }
}

/* Enter a call that tells the host how far a stream is, if no capture forbids that. */
static cu_result enter_host_wait(ashlar_driver_fn fn, cu_stream stream, soft_stream **found) {
    SOFT_TRY(ashlar__soft_enter_stream(fn, stream, found));
    const cu_result result = ashlar__soft_capture_admit_wait(*found);
    return result == CU_SUCCESS ? CU_SUCCESS : ashlar__soft_leave(result);
}

cu_result ashlar__soft_stream_query(cu_stream stream) {
    soft_stream *found = NULL;
    const cu_result result = enter_host_wait(ASHLAR_DRIVER_FN_stream_query, stream, &found);
    if (result != CU_SUCCESS) {
        return result;
    }
    const soft_device *device = found->device; /* outlives the stream */
    if (found->head != NULL && ashlar__soft_chosen_is_done()) {
        ashlar__soft_wait_device(device, found->serial);
    }
    if (found->head != NULL || !ashlar__soft_time_is_past(found->tail_ns)) {
        ashlar__soft_poll();
        return ashlar__soft_leave(CU_NOT_READY);
    }
    soft_clock seen = {0};
    ashlar__soft_oracle_snapshot(device, found->serial, &seen);
    ashlar__soft_oracle_see(&seen);
    ashlar__soft_clock_clear(&seen);
    return ashlar__soft_leave(device->fault);
}

cu_result ashlar__soft_stream_synchronize(cu_stream stream) {
    soft_stream *found = NULL;
    SOFT_TRY(enter_host_wait(ASHLAR_DRIVER_FN_stream_synchronize, stream, &found));
    const soft_device *device = found->device; /* outlives the stream */
    ashlar__soft_wait_device(device, found->serial);
    ashlar__soft_gather();
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
    ashlar__soft_gather();
    return ashlar__soft_leave(device->fault);
}
