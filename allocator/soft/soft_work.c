/* soft_work.c - the calls of the driver table that queue copies, fills and host functions. */
#include "allocator/soft/soft_state.h"

#include "allocator/base/check_level.h"
#include "allocator/base/host.h"
#include "allocator/soft/soft.h"

/* End a call: queue *model or, on a capturing stream, make it a node of the graph; it must then own
 * nothing. */
static cu_result leave_with_work(soft_stream *stream, const soft_op *model) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    return ashlar__soft_leave(stream->capture != NULL ? ashlar__soft_capture_op(stream, model)
                                                      : ashlar__soft_submit(stream, model));
}

cu_result ashlar__soft_launch_host_func(cu_stream stream, cu_host_fn fn, void *user_data) {
    soft_stream *found = NULL;
    SOFT_TRY(ashlar__soft_enter_work(ASHLAR_DRIVER_FN_launch_host_func, stream, &found));
    if (fn == NULL) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    const soft_op op = {.kind = SOFT_OP_HOST_FN, .fn = fn, .user_data = user_data};
    return leave_with_work(found, &op);
}

/* ---- what launches are given ---- */

bool ashlar__soft_is_for_work(int ordinal, const void *ptr, size_t bytes, const char *call,
                              const char *name) {
    const uintptr_t base = (uintptr_t)ptr;
    ashlar__lock_acquire(&ashlar__soft_state.lock);
    const soft_device *device = ashlar__soft_device_at(ordinal);
    const bool is_so = device != NULL && (ashlar__soft_may_access(device, base, bytes) ||
                                          ashlar__soft_ranges_over(&ashlar__soft_state.host_blocks,
                                                                   base, bytes) != NULL);
    if (!is_so) {
        ashlar__soft_call = ASHLAR_DRIVER_FN_launch_host_func;
        (void)ashlar__soft_undefined(CU_SUCCESS,
                                     "%s: %s, %zu bytes at %p, is not memory of the device", call,
                                     name, bytes, ptr);
    }
    ashlar__lock_release(&ashlar__soft_state.lock);
    return is_so;
}

bool ashlar__soft_is_for_host(const void *ptr, size_t bytes, const char *call, const char *name) {
    ashlar__lock_acquire(&ashlar__soft_state.lock);
    const bool is_so =
        !ashlar__soft_ranges_touch(&ashlar__soft_state.reservations, (uintptr_t)ptr, bytes);
    if (!is_so) {
        ashlar__soft_call = ASHLAR_DRIVER_FN_launch_host_func;
        (void)ashlar__soft_undefined(CU_SUCCESS,
                                     "%s: %s, %zu bytes at %p, is device memory, but the host "
                                     "reads it",
                                     call, name, bytes, ptr);
    }
    ashlar__lock_release(&ashlar__soft_state.lock);
    return is_so;
}

/* ---- copies ---- */

static soft_operand device_operand(const soft_device *device, cu_ptr ptr) {
    return (soft_operand){(void *)(uintptr_t)ptr, SOFT_PLACE_DEVICE, device};
}

static bool is_device_range(const soft_device *device, cu_ptr ptr, size_t bytes) {
    return ashlar__soft_may_access(device, (uintptr_t)ptr, bytes);
}

static soft_operand host_operand(const void *ptr, size_t bytes) {
    const bool is_pinned =
        ashlar__soft_ranges_over(&ashlar__soft_state.host_blocks, (uintptr_t)ptr, bytes) != NULL;
    return (soft_operand){(void *)(uintptr_t)ptr,
                          is_pinned ? SOFT_PLACE_PINNED : SOFT_PLACE_PAGEABLE, NULL};
}

/* End a call: queue the copy between device and host. CUDA says that one of pageable memory "might
 * be synchronous": with waits=on the call returns once it has run, unless it is captured. Otherwise
 * pageable memory is read and written when the copy runs, as page-locked memory is. */
static cu_result leave_with_host_copy(soft_stream *stream, soft_op *op) {
    const soft_device *device = stream->device;
    const bool is_pageable =
        op->src.place == SOFT_PLACE_PAGEABLE || op->dst.place == SOFT_PLACE_PAGEABLE;
    if (!is_pageable || stream->capture != NULL || !ashlar__soft_state.config.has_waits) {
        return leave_with_work(stream, op);
    }
    soft_point *point = ashlar__soft_point_new();
    if (point == NULL) {
        return ashlar__soft_leave(CU_OUT_OF_MEMORY);
    }
    point->user_count++;
    op->point = point;
    cu_result result = ashlar__soft_submit(stream, op);
    if (result == CU_SUCCESS) {
        ashlar__soft_wait_point(point);
        result = device->fault;
    }
    ashlar__soft_point_drop(point);
    return ashlar__soft_leave(result);
}

cu_result ashlar__soft_memcpy_htod_async(cu_ptr dst, const void *src, size_t bytes,
                                         cu_stream stream) {
    soft_stream *found = NULL;
    cu_result result = ashlar__soft_enter_work(ASHLAR_DRIVER_FN_memcpy_htod_async, stream, &found);
    if (result != CU_SUCCESS || bytes == 0) {
        return result != CU_SUCCESS ? result : ashlar__soft_leave(CU_SUCCESS);
    }
    if (src == NULL || !is_device_range(found->device, dst, bytes)) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    soft_op op = {.kind = SOFT_OP_COPY,
                  .dst = device_operand(found->device, dst),
                  .src = host_operand(src, bytes),
                  .bytes = bytes};
    return leave_with_host_copy(found, &op);
}

cu_result ashlar__soft_memcpy_dtoh_async(void *dst, cu_ptr src, size_t bytes, cu_stream stream) {
    soft_stream *found = NULL;
    cu_result result = ashlar__soft_enter_work(ASHLAR_DRIVER_FN_memcpy_dtoh_async, stream, &found);
    if (result != CU_SUCCESS || bytes == 0) {
        return result != CU_SUCCESS ? result : ashlar__soft_leave(CU_SUCCESS);
    }
    if (dst == NULL || !is_device_range(found->device, src, bytes)) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    soft_op op = {.kind = SOFT_OP_COPY,
                  .dst = host_operand(dst, bytes),
                  .src = device_operand(found->device, src),
                  .bytes = bytes};
    return leave_with_host_copy(found, &op);
}

static cu_result leave_with_copy(soft_stream *stream, soft_operand dst, soft_operand src,
                                 size_t bytes) {
    if (!ashlar__soft_may_access(dst.device, (uintptr_t)dst.ptr, bytes) ||
        !ashlar__soft_may_access(src.device, (uintptr_t)src.ptr, bytes)) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    const soft_op op = {.kind = SOFT_OP_COPY, .dst = dst, .src = src, .bytes = bytes};
    return leave_with_work(stream, &op);
}

cu_result ashlar__soft_memcpy_dtod_async(cu_ptr dst, cu_ptr src, size_t bytes, cu_stream stream) {
    soft_stream *found = NULL;
    const cu_result result =
        ashlar__soft_enter_work(ASHLAR_DRIVER_FN_memcpy_dtod_async, stream, &found);
    if (result != CU_SUCCESS || bytes == 0) {
        return result != CU_SUCCESS ? result : ashlar__soft_leave(CU_SUCCESS);
    }
    return leave_with_copy(found, device_operand(found->device, dst),
                           device_operand(found->device, src), bytes);
}

/* Each side of the copy is accessed by its own device, so no peer access is needed. */
cu_result ashlar__soft_memcpy_peer_async(cu_ptr dst, cu_context dst_context, cu_ptr src,
                                         cu_context src_context, size_t bytes, cu_stream stream) {
    soft_stream *found = NULL;
    SOFT_TRY(ashlar__soft_enter_work(ASHLAR_DRIVER_FN_memcpy_peer_async, stream, &found));
    const soft_device *dst_device = ashlar__soft_context_find(dst_context);
    const soft_device *src_device = ashlar__soft_context_find(src_context);
    if (dst_device == NULL || src_device == NULL) {
        return ashlar__soft_leave(CU_INVALID_CONTEXT);
    }
    return bytes == 0 ? ashlar__soft_leave(CU_SUCCESS)
                      : leave_with_copy(found, device_operand(dst_device, dst),
                                        device_operand(src_device, src), bytes);
}

/* ---- batches ---- */

/* The copies of a batch have no order among themselves; in adversarial mode the seed draws one. */
static void shuffle(soft_op **ops, size_t count) {
    for (size_t left = count; ashlar__soft_state.config.mode == SOFT_ADVERSARIAL && left > 1;
         left--) {
        const size_t drawn = (size_t)ashlar__soft_draw(left);
        soft_op *last = ops[left - 1];
        ops[left - 1] = ops[drawn];
        ops[drawn] = last;
    }
}

/* Queue all copies or, if host memory runs out, none. */
static cu_result submit_batch(soft_stream *stream, const cu_ptr *dsts, const cu_ptr *srcs,
                              const size_t *sizes, size_t count) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    ASHLAR_CHECK2(count > 0 && stream->capture == NULL && stream != stream->device->legacy);
    soft_op **ops = ashlar__host_calloc(count, sizeof(soft_op *));
    size_t made = 0;
    while (ops != NULL && made < count) {
        const soft_op model = {.kind = SOFT_OP_COPY,
                               .dst = device_operand(stream->device, dsts[made]),
                               .src = device_operand(stream->device, srcs[made]),
                               .bytes = sizes[made]};
        ops[made] = ashlar__soft_op_new(&model);
        if (ops[made] == NULL) {
            break;
        }
        made++;
    }
    if (ops == NULL || made < count) {
        while (made > 0) {
            ashlar__soft_op_free(ops[--made]);
        }
        ashlar__host_free(ops);
        return CU_OUT_OF_MEMORY;
    }
    shuffle(ops, count);
    for (size_t i = 0; i < count; i++) {
        ashlar__soft_enqueue(stream, ops[i]);
    }
    ashlar__host_free(ops);
    ashlar__soft_run_ready();
    return CU_SUCCESS;
}

static bool may_batch(const soft_device *device, cu_ptr dst, cu_ptr src, size_t bytes) {
    return bytes > 0 && is_device_range(device, dst, bytes) && is_device_range(device, src, bytes);
}

/* Copies between ranges of one device, in stream order, with one set of attributes. Like CUDA, this
 * refuses the legacy stream. It is stricter than CUDA's documentation: it refuses empty copies, and
 * batches on a capturing stream (which CUDA allows from 13.1 on). */
cu_result ashlar__soft_memcpy_batch_async(cu_ptr *dsts, cu_ptr *srcs, size_t *sizes, size_t count,
                                          cu_copy_attributes *attributes, size_t *attribute_starts,
                                          size_t attribute_count, size_t *failed_index,
                                          cu_stream stream) {
    soft_stream *found = NULL;
    SOFT_TRY(ashlar__soft_enter_work(ASHLAR_DRIVER_FN_memcpy_batch_async, stream, &found));
    if (!ashlar__soft_state.config.has_batch) {
        return ashlar__soft_leave(CU_NOT_SUPPORTED);
    }
    if (dsts == NULL || srcs == NULL || sizes == NULL || count == 0 || attributes == NULL ||
        attribute_starts == NULL || attribute_count != 1 || attribute_starts[0] != 0 ||
        attributes->order != CU_COPY_STREAM_ORDER || attributes->flags != 0 ||
        failed_index == NULL || found == found->device->legacy) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    *failed_index = SIZE_MAX;
    if (found->capture != NULL) {
        return ashlar__soft_leave(
            ashlar__soft_capture_spoil(found->capture, CU_STREAM_CAPTURE_UNSUPPORTED));
    }
    for (size_t i = 0; i < count; i++) {
        if (!may_batch(found->device, dsts[i], srcs[i], sizes[i])) {
            *failed_index = i;
            return ashlar__soft_leave(CU_INVALID_VALUE);
        }
    }
    return ashlar__soft_leave(submit_batch(found, dsts, srcs, sizes, count));
}

/* ---- fills ---- */

cu_result ashlar__soft_memset_d8_async(cu_ptr dst, unsigned char value, size_t bytes,
                                       cu_stream stream) {
    soft_stream *found = NULL;
    const cu_result result =
        ashlar__soft_enter_work(ASHLAR_DRIVER_FN_memset_d8_async, stream, &found);
    if (result != CU_SUCCESS || bytes == 0) {
        return result != CU_SUCCESS ? result : ashlar__soft_leave(CU_SUCCESS);
    }
    if (!is_device_range(found->device, dst, bytes)) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    const soft_op op = {.kind = SOFT_OP_FILL,
                        .dst = device_operand(found->device, dst),
                        .bytes = bytes,
                        .value = value};
    return leave_with_work(found, &op);
}
