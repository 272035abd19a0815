/*
 * libcuda_more.c - functions of the driver that programs call and the driver table lacks: devices,
 * streams.
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
    if (result == CU_SUCCESS && context != NULL) {
        *context = (cu_context)found->device->context;
    }
    return result == CU_SUCCESS && context == NULL ? CU_INVALID_VALUE : result;
}

cu_result ashlar_fake_stream_get_flags(cu_stream stream, unsigned int *flags) {
    const soft_stream *found;
    const cu_result result = find_stream(stream, &found);
    if (result == CU_SUCCESS && flags != NULL) {
        *flags = found->is_ordered ? CU_STREAM_BLOCKING : CU_STREAM_UNORDERED;
    }
    return result == CU_SUCCESS && flags == NULL ? CU_INVALID_VALUE : result;
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
    if (priority == NULL) {
        return CU_INVALID_VALUE;
    }
    *priority = 0;
    return find_stream(stream, &found);
}

/* CUDA 10.1's. */
cu_result ashlar_fake_stream_get_capture_info(cu_stream stream, unsigned int *status,
                                              unsigned long long *id) {
    soft_stream *found;
    cu_result result = ashlar__soft_stream_is_capturing(stream, status);
    if (result != CU_SUCCESS || *status == CU_CAPTURE_NONE || id == NULL) {
        return result;
    }
    result = ashlar__soft_enter_stream(ASHLAR_DRIVER_FN_COUNT, stream, &found);
    if (result == CU_SUCCESS) {
        *id = found->capture != NULL ? found->capture->id : 0; /* it may have ended meanwhile */
        result = ashlar__soft_leave(CU_SUCCESS);
    }
    return result;
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
