/* soft_work.c - the calls of the driver table that queue copies, fills and host functions. */
#include "allocator/soft/soft_state.h"

#include "allocator/base/host.h"
#include "allocator/soft/soft.h"

/* End a call: queue *model or, on a capturing stream, make it a node of the graph; it must then own
 * nothing. */
static cu_result leave_with_work(soft_stream *stream, const soft_op *model) {
    return ashlar__soft_leave(stream->capture != NULL ? ashlar__soft_capture_op(stream, model)
                                                      : ashlar__soft_submit(stream, model));
}

static _Thread_local const char *next_name; /* of this thread's next host function */

void ashlar__soft_name(const char *name) {
    next_name = name;
}

void ashlar__soft_trace_bytes(ashlar_stream handle, const char *tier, size_t bytes, bool is_less) {
    if (!ashlar__soft_is_traced()) {
        return;
    }
    ashlar__lock_acquire(&ashlar__soft_state.lock);
    const soft_stream *stream = ashlar__soft_handle_get(SOFT_STREAM, (uintptr_t)handle);
    if (stream != NULL && stream->capture == NULL && bytes > 0) {
        ashlar__soft_trace_put(
            "{\"ph\":\"i\",\"s\":\"p\",\"cat\":\"tier\",\"name\":\"%s\",\"pid\":%d,"
            "\"tid\":%llu,\"ts\":" SOFT_US ",\"args\":{\"bytes\":%s%zu}}",
            tier, stream->device->ordinal, (unsigned long long)stream->serial,
            SOFT_US_OF(stream->tail_ns), is_less ? "-" : "", bytes);
    }
    ashlar__lock_release(&ashlar__soft_state.lock);
}

cu_result ashlar__soft_launch_host_func(cu_stream stream, cu_host_fn fn, void *user_data) {
    soft_stream *found = NULL;
    const char *name = next_name;
    next_name = NULL;
    SOFT_TRY(ashlar__soft_enter_work(ASHLAR_DRIVER_FN_launch_host_func, stream, &found));
    if (fn == NULL) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    const soft_op op = {.kind = SOFT_OP_HOST_FN, .fn = fn, .user_data = user_data, .name = name};
    return leave_with_work(found, &op);
}

/* ---- checks of the memory that launches are given ---- */

/* Drop the lock and return `is_right`; if that is false, with strict=on, end the process. */
static bool leave_judged(bool is_right, const char *wrong, const void *ptr, size_t bytes,
                         const char *call, const char *name) {
    if (!is_right) {
        ashlar__soft_call = ASHLAR_DRIVER_FN_launch_host_func;
        (void)ashlar__soft_undefined(CU_SUCCESS, "%s: %s, %zu bytes at %p, %s", call, name, bytes,
                                     ptr, wrong);
    }
    ashlar__lock_release(&ashlar__soft_state.lock);
    return is_right;
}

bool ashlar__soft_is_for_work(int ordinal, const void *ptr, size_t bytes, const char *call,
                              const char *name) {
    const uintptr_t base = (uintptr_t)ptr;
    ashlar__lock_acquire(&ashlar__soft_state.lock);
    const soft_device *device = ashlar__soft_device_at(ordinal);
    const bool is_so = device != NULL && (ashlar__soft_may_access(device, base, bytes) ||
                                          ashlar__soft_ranges_over(&ashlar__soft_state.host_blocks,
                                                                   base, bytes) != NULL);
    return leave_judged(is_so, "is not memory of the device", ptr, bytes, call, name);
}

bool ashlar__soft_is_for_host(const void *ptr, size_t bytes, const char *call, const char *name) {
    ashlar__lock_acquire(&ashlar__soft_state.lock);
    const bool is_so =
        !ashlar__soft_ranges_touch(&ashlar__soft_state.reservations, (uintptr_t)ptr, bytes);
    return leave_judged(is_so, "is device memory, but the host reads it", ptr, bytes, call, name);
}

/* ---- copies ---- */

static soft_operand on_device(cu_ptr ptr) {
    return (soft_operand){(void *)(uintptr_t)ptr, SOFT_PLACE_DEVICE, NULL};
}

static soft_operand on_host(const void *ptr) {
    return (soft_operand){(void *)(uintptr_t)ptr, SOFT_PLACE_PAGEABLE, NULL};
}

/* Complete an operand: page-locked memory, whose addresses are the device's, too; or memory to
 * which `device` must have access, unless the call names another. False: the memory is not there,
 * or the device has no access. */
static bool place(soft_operand *operand, const soft_device *device, size_t bytes) {
    if (operand->ptr != NULL && ashlar__soft_ranges_over(&ashlar__soft_state.host_blocks,
                                                         (uintptr_t)operand->ptr, bytes) != NULL) {
        operand->place = SOFT_PLACE_PINNED;
    } else if (operand->place == SOFT_PLACE_DEVICE) {
        operand->device = operand->device == NULL ? device : operand->device;
    }
    return operand->ptr != NULL && ashlar__soft_is_valid(operand, bytes);
}

/* Queue the copy, and end the call. CUDA says that a copy of pageable memory "might be
 * synchronous": with waits=on the call returns once it has run, unless it is captured. Otherwise
 * pageable memory is read and written when the copy runs, as page-locked memory is. */
static cu_result leave_with_copy(soft_stream *stream, soft_operand dst, soft_operand src,
                                 size_t bytes) {
    const soft_device *device = stream->device;
    soft_op op = {.kind = SOFT_OP_COPY, .dst = dst, .src = src, .bytes = bytes};
    if (bytes == 0) {
        return ashlar__soft_leave(CU_SUCCESS);
    }
    if (!place(&op.dst, device, bytes) || !place(&op.src, device, bytes)) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    const bool is_pageable =
        op.src.place == SOFT_PLACE_PAGEABLE || op.dst.place == SOFT_PLACE_PAGEABLE;
    if (!is_pageable || stream->capture != NULL || !ashlar__soft_state.config.has_waits) {
        return leave_with_work(stream, &op);
    }
    soft_point *point = ashlar__soft_point_new();
    if (point == NULL) {
        return ashlar__soft_leave(CU_OUT_OF_MEMORY);
    }
    point->user_count++;
    op.point = point;
    cu_result result = ashlar__soft_submit(stream, &op);
    if (result == CU_SUCCESS) {
        ashlar__soft_wait_points(&point, 1);
        result = device->fault;
    }
    ashlar__soft_point_drop(point);
    return ashlar__soft_leave(result);
}

cu_result ashlar__soft_memcpy_htod_async(cu_ptr dst, const void *src, size_t bytes,
                                         cu_stream stream) {
    soft_stream *found = NULL;
    SOFT_TRY(ashlar__soft_enter_work(ASHLAR_DRIVER_FN_memcpy_htod_async, stream, &found));
    return leave_with_copy(found, on_device(dst), on_host(src), bytes);
}

cu_result ashlar__soft_memcpy_dtoh_async(void *dst, cu_ptr src, size_t bytes, cu_stream stream) {
    soft_stream *found = NULL;
    SOFT_TRY(ashlar__soft_enter_work(ASHLAR_DRIVER_FN_memcpy_dtoh_async, stream, &found));
    return leave_with_copy(found, on_host(dst), on_device(src), bytes);
}

cu_result ashlar__soft_memcpy_dtod_async(cu_ptr dst, cu_ptr src, size_t bytes, cu_stream stream) {
    soft_stream *found = NULL;
    SOFT_TRY(ashlar__soft_enter_work(ASHLAR_DRIVER_FN_memcpy_dtod_async, stream, &found));
    return leave_with_copy(found, on_device(dst), on_device(src), bytes);
}

/* Each side of the copy is accessed by its own device, so no peer access is needed. */
cu_result ashlar__soft_memcpy_peer_async(cu_ptr dst, cu_context dst_context, cu_ptr src,
                                         cu_context src_context, size_t bytes, cu_stream stream) {
    soft_stream *found = NULL;
    SOFT_TRY(ashlar__soft_enter_work(ASHLAR_DRIVER_FN_memcpy_peer_async, stream, &found));
    soft_operand to = on_device(dst), from = on_device(src);
    to.device = ashlar__soft_context_find(dst_context);
    from.device = ashlar__soft_context_find(src_context);
    return to.device == NULL || from.device == NULL ? ashlar__soft_leave(CU_INVALID_CONTEXT)
                                                    : leave_with_copy(found, to, from, bytes);
}

cu_result ashlar__soft_memset_d8_async(cu_ptr dst, unsigned char value, size_t bytes,
                                       cu_stream stream) {
    soft_stream *found = NULL;
    SOFT_TRY(ashlar__soft_enter_work(ASHLAR_DRIVER_FN_memset_d8_async, stream, &found));
    soft_op op = {.kind = SOFT_OP_FILL, .dst = on_device(dst), .bytes = bytes, .value = value};
    if (bytes == 0 || !place(&op.dst, found->device, bytes)) {
        return ashlar__soft_leave(bytes == 0 ? CU_SUCCESS : CU_INVALID_VALUE);
    }
    return leave_with_work(found, &op);
}
