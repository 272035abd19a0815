/*
 * range_segments.c - an allocator's memory without virtual memory management: segments, each from
 * one cuMemAlloc or cuMemHostAlloc.
 */
#include "allocator/heap/range.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/heap/size_class.h"

/* The driver takes memory in multiples of this, and would waste the rest of the last multiple. */
#define SEGMENT_ALIGN ((size_t)2 << 20)
_Static_assert((size_t)(2 << 20) % ASHLAR_BLOCK_ALIGN == 0, "a segment is whole blocks");

/* More addresses than any device has, so that every address is an offset in the range. */
#define ADDRESSES ((size_t)1 << 48)

/* Called in the device's context. Entering the context counts for the process but not for the
 * allocator, since it does no work in the driver. */
static cu_result take_device(ashlar_range *range, cu_ptr *ptr, size_t bytes, const char **call) {
    *call = "cuMemAlloc";
    return ASHLAR_CALL(range->client, mem_alloc, (ptr, bytes));
}

static cu_result free_device(ashlar_range *range, cu_ptr ptr, size_t bytes, const char **call) {
    (void)bytes;
    *call = "cuMemFree";
    return ASHLAR_CALL(range->client, mem_free, (ptr));
}

static cu_result take_host(ashlar_range *range, cu_ptr *ptr, size_t bytes, const char **call) {
    *call = "cuMemHostAlloc";
    void *memory = NULL;
    const cu_result result =
        ASHLAR_CALL(range->client, mem_host_alloc, (&memory, bytes, CU_HOST_PORTABLE));
    *ptr = ashlar__ptr_in(memory);
    return result;
}

static cu_result free_host(ashlar_range *range, cu_ptr ptr, size_t bytes, const char **call) {
    (void)bytes;
    *call = "cuMemFreeHost";
    return ASHLAR_CALL(range->client, mem_free_host, (ashlar__ptr_out(ptr)));
}

ashlar_status ashlar__range_take_segment(ashlar_range *range, size_t bytes, size_t *offset) {
    ASHLAR_CHECK2(bytes > 0 && bytes % range->handle_bytes == 0);
    ashlar_status status = ashlar__range_allows(range, bytes);
    if (status == ASHLAR_OK) {
        status = ashlar__device_enter(range->client->device);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    cu_ptr ptr = 0;
    const char *call = "", *undo;
    const ashlar_segment_calls *calls = range->segments;
    const cu_result result = calls->take(range, &ptr, bytes, &call);
    const bool is_fit =
        ptr % ASHLAR_BLOCK_ALIGN == 0 && ptr < ADDRESSES && bytes <= ADDRESSES - ptr;
    if (result == CU_SUCCESS && !is_fit) {
        (void)calls->free(range, ptr, bytes, &undo);
    }
    ashlar__device_leave(range->client->device);
    if (result != CU_SUCCESS) {
        return ashlar__range_refuse(range, call, result);
    }
    if (!is_fit) {
        return ashlar__fail(ASHLAR_EDRIVER, "%s: address %llu is no multiple of %zu below 2^48",
                            call, ptr, ASHLAR_BLOCK_ALIGN);
    }
    range->mapped_bytes += bytes;
    ashlar__range_trace(range, ASHLAR_TRACE_MAP, (size_t)ptr, bytes);
    *offset = (size_t)ptr;
    return ASHLAR_OK;
}

ashlar_status ashlar__range_free_segment(ashlar_range *range, size_t offset, size_t bytes) {
    const ashlar_status status = ashlar__device_enter(range->client->device);
    if (status != ASHLAR_OK) {
        return status;
    }
    ASHLAR_CHECK2(range->base == 0 && bytes <= range->mapped_bytes);
    const char *call = "";
    const cu_result result = range->segments->free(range, offset, bytes, &call);
    ashlar__device_leave(range->client->device);
    if (result != CU_SUCCESS) {
        return ashlar__range_refuse(range, call, result);
    }
    range->mapped_bytes -= bytes;
    ashlar__range_trace(range, ASHLAR_TRACE_UNMAP, offset, bytes);
    return ASHLAR_OK;
}

void ashlar__range_segments_init(ashlar_range *range) {
    static const ashlar_segment_calls device = {take_device, free_device};
    static const ashlar_segment_calls host = {take_host, free_host};
    range->segments = range->kind == ASHLAR_RANGE_HOST ? &host : &device;
    range->bytes = ADDRESSES;
    range->handle_bytes = SEGMENT_ALIGN;
}
