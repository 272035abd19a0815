/* soft_stream.c - streams, and the work that the driver table can put on them. */
#include "soft_state.h"

#include <string.h>

#include "host.h"

/* CUDA's reserved stream handles, besides NULL. */
enum { HANDLE_LEGACY = 1, HANDLE_PER_THREAD = 2 };

cu_result ashlar_soft_stream_find(soft_device *current, cu_stream handle, soft_stream **out) {
    const uintptr_t number = (uintptr_t)handle;
    if (number == HANDLE_PER_THREAD) {
        return CU_NOT_SUPPORTED;
    }
    soft_stream *stream =
        number == 0 || number == HANDLE_LEGACY
            ? current->legacy
            : ashlar_soft_slots_get(&ashlar_soft_state.streams, SOFT_STREAM, number);
    if (stream == NULL) {
        return CU_INVALID_HANDLE;
    }
    *out = stream;
    return CU_SUCCESS;
}

/* Begin a call on a stream: as ashlar_soft_enter_context(). */
static cu_result enter_stream(cu_stream handle, soft_stream **stream) {
    soft_device *device;
    cu_result result = ashlar_soft_enter_context(&device);
    if (result != CU_SUCCESS) {
        return result;
    }
    result = ashlar_soft_stream_find(device, handle, stream);
    if (result == CU_SUCCESS) {
        result = (*stream)->device->fault; /* a stream may be another device's than the context */
    }
    return result == CU_SUCCESS ? CU_SUCCESS : ashlar_soft_leave(result);
}

cu_result ashlar_soft_stream_create(cu_stream *stream, unsigned int flags) {
    soft_device *device;
    const cu_result result = ashlar_soft_enter_context(&device);
    if (result != CU_SUCCESS) {
        return result;
    }
    if (stream == NULL || flags > CU_STREAM_UNORDERED) {
        return ashlar_soft_leave(CU_INVALID_VALUE);
    }
    uintptr_t handle;
    soft_stream *created = ashlar_host_calloc(1, sizeof *created);
    if (created == NULL ||
        !ashlar_soft_slots_put(&ashlar_soft_state.streams, SOFT_STREAM, created, &handle)) {
        ashlar_host_free(created);
        return ashlar_soft_leave(CU_OUT_OF_MEMORY);
    }
    ashlar_soft_stream_join(created, device, flags == CU_STREAM_BLOCKING);
    *stream = (cu_stream)handle;
    return ashlar_soft_leave(CU_SUCCESS);
}

cu_result ashlar_soft_stream_get_id(cu_stream stream, unsigned long long *id) {
    soft_stream *found = NULL;
    const cu_result result = enter_stream(stream, &found);
    if (result != CU_SUCCESS) {
        return result;
    }
    if (id == NULL) {
        return ashlar_soft_leave(CU_INVALID_VALUE);
    }
    *id = found->serial;
    return ashlar_soft_leave(CU_SUCCESS);
}

/* Its handle is gone; its work still runs, and takes the stream with it. */
static void orphan(soft_stream *stream) {
    if (stream->head == NULL) {
        ashlar_soft_stream_delete(stream);
    } else {
        stream->is_destroyed = true;
    }
}

cu_result ashlar_soft_stream_destroy(cu_stream stream) {
    soft_device *device;
    const cu_result result = ashlar_soft_enter_context(&device);
    if (result != CU_SUCCESS) {
        return result;
    }
    soft_stream *found =
        ashlar_soft_slots_take(&ashlar_soft_state.streams, SOFT_STREAM, (uintptr_t)stream);
    if (found == NULL) {
        return ashlar_soft_leave(CU_INVALID_HANDLE);
    }
    orphan(found);
    return ashlar_soft_leave(CU_SUCCESS);
}

void ashlar_soft_stream_reset(const soft_device *device) {
    soft_slots *slots = &ashlar_soft_state.streams;
    for (size_t i = 0; i < slots->count; i++) {
        soft_stream *stream = slots->slots[i].item;
        if (stream != NULL && stream->device == device) {
            ashlar_soft_slots_drop(slots, i);
            orphan(stream);
        }
    }
}

cu_result ashlar_soft_stream_synchronize(cu_stream stream) {
    soft_stream *found = NULL;
    const cu_result result = enter_stream(stream, &found);
    if (result != CU_SUCCESS) {
        return result;
    }
    const soft_device *device = found->device; /* outlives the stream */
    ashlar_soft_wait_device(device, found->serial);
    return ashlar_soft_leave(device->fault);
}

cu_result ashlar_soft_launch_host_func(cu_stream stream, cu_host_fn fn, void *user_data) {
    soft_stream *found = NULL;
    const cu_result result = enter_stream(stream, &found);
    if (result != CU_SUCCESS) {
        return result;
    }
    if (fn == NULL) {
        return ashlar_soft_leave(CU_INVALID_VALUE);
    }
    const soft_op op = {.kind = SOFT_OP_HOST_FN, .fn = fn, .user_data = user_data};
    return ashlar_soft_leave(ashlar_soft_submit(found, &op));
}

/* ---- copies and fills ---- */

static soft_operand device_operand(cu_ptr ptr) {
    return (soft_operand){(void *)(uintptr_t)ptr, SOFT_PLACE_DEVICE};
}

static bool is_device_range(cu_ptr ptr, size_t bytes) {
    return ashlar_soft_is_accessible((uintptr_t)ptr, bytes);
}

static soft_place host_place(const void *ptr, size_t bytes) {
    return ashlar_soft_ranges_over(&ashlar_soft_state.host_blocks, (uintptr_t)ptr, bytes) != NULL
               ? SOFT_PLACE_PINNED
               : SOFT_PLACE_PAGEABLE;
}

/* Pageable bytes are taken over at the call: the caller may change them at once. */
cu_result ashlar_soft_memcpy_htod_async(cu_ptr dst, const void *src, size_t bytes,
                                        cu_stream stream) {
    soft_stream *found = NULL;
    const cu_result result = enter_stream(stream, &found);
    if (result != CU_SUCCESS || bytes == 0) {
        return result != CU_SUCCESS ? result : ashlar_soft_leave(CU_SUCCESS);
    }
    if (src == NULL || !is_device_range(dst, bytes)) {
        return ashlar_soft_leave(CU_INVALID_VALUE);
    }
    soft_op op = {.kind = SOFT_OP_COPY, .dst = device_operand(dst), .bytes = bytes};
    op.src = (soft_operand){(void *)(uintptr_t)src, host_place(src, bytes)};
    if (op.src.place == SOFT_PLACE_PAGEABLE) {
        op.staged = ashlar_host_calloc(1, bytes);
        if (op.staged == NULL) {
            return ashlar_soft_leave(CU_OUT_OF_MEMORY);
        }
        memcpy(op.staged, src, bytes);
        op.src.ptr = op.staged;
    }
    return ashlar_soft_leave(ashlar_soft_submit(found, &op));
}

/* Into pageable memory the call returns only when the bytes are there. */
cu_result ashlar_soft_memcpy_dtoh_async(void *dst, cu_ptr src, size_t bytes, cu_stream stream) {
    soft_stream *found = NULL;
    cu_result result = enter_stream(stream, &found);
    if (result != CU_SUCCESS || bytes == 0) {
        return result != CU_SUCCESS ? result : ashlar_soft_leave(CU_SUCCESS);
    }
    if (dst == NULL || !is_device_range(src, bytes)) {
        return ashlar_soft_leave(CU_INVALID_VALUE);
    }
    soft_op op = {.kind = SOFT_OP_COPY, .src = device_operand(src), .bytes = bytes};
    op.dst = (soft_operand){dst, host_place(dst, bytes)};
    if (op.dst.place == SOFT_PLACE_PINNED) {
        return ashlar_soft_leave(ashlar_soft_submit(found, &op));
    }
    const soft_device *device = found->device;
    soft_point *point = ashlar_soft_point_new();
    if (point == NULL) {
        return ashlar_soft_leave(CU_OUT_OF_MEMORY);
    }
    point->user_count++;
    op.point = point;
    result = ashlar_soft_submit(found, &op);
    if (result == CU_SUCCESS) {
        ashlar_soft_wait_point(point);
        result = device->fault;
    }
    ashlar_soft_point_drop(point);
    return ashlar_soft_leave(result);
}

cu_result ashlar_soft_memcpy_dtod_async(cu_ptr dst, cu_ptr src, size_t bytes, cu_stream stream) {
    soft_stream *found = NULL;
    const cu_result result = enter_stream(stream, &found);
    if (result != CU_SUCCESS || bytes == 0) {
        return result != CU_SUCCESS ? result : ashlar_soft_leave(CU_SUCCESS);
    }
    if (!is_device_range(dst, bytes) || !is_device_range(src, bytes)) {
        return ashlar_soft_leave(CU_INVALID_VALUE);
    }
    const soft_op op = {.kind = SOFT_OP_COPY,
                        .dst = device_operand(dst),
                        .src = device_operand(src),
                        .bytes = bytes};
    return ashlar_soft_leave(ashlar_soft_submit(found, &op));
}

cu_result ashlar_soft_memset_d8_async(cu_ptr dst, unsigned char value, size_t bytes,
                                      cu_stream stream) {
    soft_stream *found = NULL;
    const cu_result result = enter_stream(stream, &found);
    if (result != CU_SUCCESS || bytes == 0) {
        return result != CU_SUCCESS ? result : ashlar_soft_leave(CU_SUCCESS);
    }
    if (!is_device_range(dst, bytes)) {
        return ashlar_soft_leave(CU_INVALID_VALUE);
    }
    const soft_op op = {
        .kind = SOFT_OP_FILL, .dst = device_operand(dst), .bytes = bytes, .value = value};
    return ashlar_soft_leave(ashlar_soft_submit(found, &op));
}
