/*
 * libcuda_more.c - functions of the driver that programs call and the driver table lacks: devices,
 * contexts, streams.
 */
#include "libcuda.h"

#include <limits.h>

#include "allocator/base/checked.h"
#include "allocator/soft/soft_state.h"

/* What cuMemAllocPitch makes a row a multiple of. */
#define PITCH_ALIGN ((size_t)512)

/* ---- devices ---- */

/* What programs look at before they use a device: attribute, value. All others are 0. */
static const struct {
    unsigned int attribute;
    int value;
} attributes[] = {
    {1, 1024},                            /* threads in a block */
    {2, 1024},                            /* of it in each direction */
    {3, 1024},  {4, 64},    {5, INT_MAX}, /* blocks in a grid, in each direction */
    {6, 65535}, {7, 65535}, {10, 32},     /* threads in a warp */
    {16, 1},                              /* multiprocessors */
    {19, 1},                              /* host memory has device addresses */
    {31, 1},                              /* kernels at the same time */
    {39, 2048},                           /* threads on a multiprocessor */
    {41, 1},                              /* one space of addresses */
    {75, 8},                              /* the architecture's version */
    {76, 0},    {83, 1},                  /* managed memory */
    {115, 1},                             /* memory pools */
};
enum { ATTRIBUTES_END = 150 };

cu_result ashlar_fake_device_get_attribute(int *value, unsigned int attribute, cu_device device) {
    const cu_result result = ashlar__soft_device_get_attribute(value, attribute, device);
    if (result != CU_INVALID_VALUE || value == NULL || attribute == 0 ||
        attribute >= ATTRIBUTES_END) {
        return result;
    }
    *value = 0;
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
        *value = attributes[i].attribute == attribute ? attributes[i].value : *value;
    }
    return CU_SUCCESS;
}

cu_result ashlar_fake_device_get_uuid(cu_uuid *uuid, cu_device device) {
    int count = 0;
    const cu_result result = ashlar_fake_device_get_count(&count);
    if (result != CU_SUCCESS || uuid == NULL || device < 0 || device >= count) {
        return result == CU_SUCCESS ? CU_INVALID_DEVICE : result;
    }
    *uuid = (cu_uuid){.bytes = {'s', 'o', 'f', 't', (unsigned char)device}};
    return CU_SUCCESS;
}

/* ---- contexts ---- */

/* Contexts that programs make are further handles of the device's one: they share all there is, and
 * with the last of them it goes. */
static int made_contexts[SOFT_DEVICES_MAX]; /* Lock: the software device's */

cu_result ashlar_fake_ctx_create(cu_context *context, unsigned int flags, cu_device ordinal) {
    uintptr_t made = 0;
    (void)flags;
    const cu_result result = ashlar__soft_enter(ASHLAR_DRIVER_FN_COUNT);
    if (result != CU_SUCCESS) {
        return result;
    }
    soft_device *device = ashlar__soft_device_at(ordinal);
    if (device == NULL) {
        return ashlar__soft_leave(CU_INVALID_DEVICE);
    }
    if (!ashlar__soft_handles_put(&ashlar__soft_state.contexts, SOFT_CONTEXT, device, &made)) {
        return ashlar__soft_leave(CU_OUT_OF_MEMORY);
    }
    made_contexts[ordinal]++;
    (void)ashlar__soft_leave(CU_SUCCESS);
    *context = (cu_context)made;
    return ashlar__soft_ctx_push_current(*context);
}

/* As the end of the device's primary context, which need not have been there. */
static cu_result end_device(cu_device ordinal) {
    cu_context unused;
    ashlar_fake_pools_forget(ordinal);
    const cu_result result = ashlar__soft_primary_ctx_retain(&unused, ordinal);
    return result == CU_SUCCESS ? ashlar__soft_primary_ctx_release(ordinal) : result;
}

cu_result ashlar_fake_ctx_destroy(cu_context context) {
    cu_context current = NULL;
    cu_result result = ashlar_fake_ctx_get_current(&current);
    if (result == CU_SUCCESS && current == context) {
        result = ashlar__soft_ctx_pop_current(NULL);
    }
    if (result == CU_SUCCESS) {
        result = ashlar__soft_enter(ASHLAR_DRIVER_FN_COUNT);
    }
    if (result != CU_SUCCESS) {
        return result;
    }
    const soft_device *device = ashlar__soft_context_find(context);
    if (device == NULL || (device->retains > 0 && device->context == (uintptr_t)context)) {
        return ashlar__soft_leave(CU_INVALID_CONTEXT);
    }
    const cu_device ordinal = device->ordinal;
    (void)ashlar__soft_handles_take(&ashlar__soft_state.contexts, SOFT_CONTEXT, (uintptr_t)context);
    const bool is_last = --made_contexts[ordinal] == 0 && device->retains == 0;
    (void)ashlar__soft_leave(CU_SUCCESS);
    return is_last ? end_device(ordinal) : CU_SUCCESS;
}

cu_result ashlar_fake_ctx_get_current(cu_context *context) {
    *context = NULL;
    const cu_result popped = ashlar__soft_ctx_pop_current(context);
    if (popped != CU_SUCCESS) {
        return popped == CU_INVALID_CONTEXT ? CU_SUCCESS : popped;
    }
    const cu_result pushed = ashlar__soft_ctx_push_current(*context);
    if (pushed != CU_SUCCESS) {
        *context = NULL; /* it has ended */
    }
    return pushed == CU_INVALID_CONTEXT ? CU_SUCCESS : pushed;
}

cu_result ashlar_fake_ctx_set_current(cu_context context) {
    const cu_result popped = ashlar__soft_ctx_pop_current(NULL);
    if (popped != CU_SUCCESS && popped != CU_INVALID_CONTEXT) {
        return popped;
    }
    return context == NULL ? CU_SUCCESS : ashlar__soft_ctx_push_current(context);
}

cu_result ashlar_fake_ctx_get_device(cu_device *ordinal) {
    soft_device *device;
    const cu_result result = ashlar__soft_enter_context(ASHLAR_DRIVER_FN_COUNT, &device);
    if (result != CU_SUCCESS) {
        return result;
    }
    *ordinal = device->ordinal;
    return ashlar__soft_leave(CU_SUCCESS);
}

/* Everything goes, whoever has retained it. */
cu_result ashlar_fake_primary_ctx_reset(cu_device ordinal) {
    const cu_result result = ashlar__soft_enter(ASHLAR_DRIVER_FN_COUNT);
    if (result != CU_SUCCESS) {
        return result;
    }
    soft_device *device = ashlar__soft_device_at(ordinal);
    if (device == NULL || device->retains == 0) {
        return ashlar__soft_leave(device == NULL ? CU_INVALID_DEVICE : CU_SUCCESS);
    }
    device->retains = 1;
    (void)ashlar__soft_leave(CU_SUCCESS);
    ashlar_fake_pools_forget(ordinal);
    return ashlar__soft_primary_ctx_release(ordinal);
}

cu_result ashlar_fake_ctx_synchronize(void) {
    cu_device ordinal;
    const cu_result result = ashlar__soft_ctx_synchronize();
    if (result == CU_SUCCESS && ashlar_fake_ctx_get_device(&ordinal) == CU_SUCCESS) {
        ashlar_fake_pools_settle(ordinal);
    }
    return result;
}

/* ---- memory ---- */

/* The host may use a software device's memory too. */
cu_result ashlar_fake_mem_alloc_managed(cu_ptr *ptr, size_t bytes, unsigned int flags) {
    return flags != 1 && flags != 2 ? CU_INVALID_VALUE : ashlar_fake_mem_alloc(ptr, bytes);
}

cu_result ashlar_fake_mem_alloc_pitch(cu_ptr *ptr, size_t *pitch, size_t width, size_t height,
                                      unsigned int element) {
    size_t row, bytes;
    if (pitch == NULL || (element != 4 && element != 8 && element != 16)) {
        return CU_INVALID_VALUE;
    }
    if (!ashlar__align_up(width, PITCH_ALIGN, &row) || !ashlar__mul(row, height, &bytes)) {
        return CU_OUT_OF_MEMORY;
    }
    const cu_result result = ashlar_fake_mem_alloc(ptr, bytes);
    if (result == CU_SUCCESS) {
        *pitch = row;
    }
    return result;
}

/* CUDA 13's: of any context. */
cu_result ashlar_fake_ctx_synchronize_v2(cu_context context) {
    cu_result result = context == NULL ? CU_SUCCESS : ashlar__soft_ctx_push_current(context);
    if (result != CU_SUCCESS) {
        return result;
    }
    result = ashlar_fake_ctx_synchronize();
    if (context != NULL) {
        (void)ashlar__soft_ctx_pop_current(NULL);
    }
    return result;
}

/* ---- streams and events ---- */

/* CUDA 10.0's. */
cu_result ashlar_fake_stream_begin_capture_v1(cu_stream stream) {
    return ashlar__soft_stream_begin_capture(stream, CU_CAPTURE_GLOBAL);
}

cu_result ashlar_fake_stream_create_with_priority(cu_stream *stream, unsigned int flags,
                                                  int priority) {
    (void)priority;
    return ashlar__soft_stream_create(stream, flags);
}

/* A stream that the caller names, and leave. */
static cu_result find_stream(cu_stream handle, const soft_stream **stream) {
    soft_stream *found = NULL;
    const cu_result result = ashlar__soft_enter_stream(ASHLAR_DRIVER_FN_COUNT, handle, &found);
    *stream = found;
    return result == CU_SUCCESS ? ashlar__soft_leave(CU_SUCCESS) : result;
}

cu_result ashlar_fake_stream_get_ctx(cu_stream stream, cu_context *context) {
    const soft_stream *found;
    const cu_result result = find_stream(stream, &found);
    if (result != CU_SUCCESS) {
        return result;
    }
    /* The device's contexts share their streams: it is whose the caller is in. */
    return ashlar_fake_ctx_get_current(context);
}

cu_result ashlar_fake_stream_get_flags(cu_stream stream, unsigned int *flags) {
    const soft_stream *found;
    const cu_result result = find_stream(stream, &found);
    if (result == CU_SUCCESS) {
        *flags = found->is_ordered ? CU_STREAM_BLOCKING : CU_STREAM_UNORDERED;
    }
    return result;
}

/* There is one priority. */
cu_result ashlar_fake_stream_priority_range(int *least, int *greatest) {
    if (least != NULL) {
        *least = 0;
    }
    if (greatest != NULL) {
        *greatest = 0;
    }
    return CU_SUCCESS;
}

cu_result ashlar_fake_stream_get_priority(cu_stream stream, int *priority) {
    const soft_stream *found;
    *priority = 0;
    return find_stream(stream, &found);
}

/* Events keep no time. */
cu_result ashlar_fake_event_elapsed_time(float *ms, cu_event start, cu_event end) {
    cu_result result = ashlar__soft_event_query(start);
    result = result == CU_SUCCESS ? ashlar__soft_event_query(end) : result;
    if (result == CU_SUCCESS) {
        *ms = 0;
    }
    return result;
}
