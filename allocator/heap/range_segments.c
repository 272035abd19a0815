/*
 * range_segments.c - the range without virtual memory management: a chunk is one cuMemAlloc, or one
 * cuMemHostAlloc.
 */
#include "allocator/heap/range.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/heap/size_class.h"

/* The driver itself takes memory in multiples of this. It would waste the rest of the last one. */
#define SEGMENT_ALIGN ((size_t)2 << 20)
_Static_assert((size_t)(2 << 20) % ASHLAR_BLOCK_ALIGN == 0, "a segment is whole blocks");

/* More addresses than any device has, so that every address is an offset in the range. */
#define ADDRESSES ((size_t)1 << 48)

/*
 * Entering and leaving the device's context are counted for the process but not for the allocator,
 * since they do no work in the driver.
 */
static cu_result take_device(ashlar_range *range, cu_ptr *ptr, size_t bytes) {
    return ASHLAR_CALL(range->client, mem_alloc, (ptr, bytes));
}

static cu_result free_device(ashlar_range *range, cu_ptr ptr) {
    return ASHLAR_CALL(range->client, mem_free, (ptr));
}

static cu_result take_host(ashlar_range *range, cu_ptr *ptr, size_t bytes) {
    void *memory = NULL;
    const cu_result result =
        ASHLAR_CALL(range->client, mem_host_alloc, (&memory, bytes, CU_HOST_PORTABLE));
    *ptr = ashlar__ptr_in(memory);
    return result;
}

static cu_result free_host(ashlar_range *range, cu_ptr ptr) {
    return ASHLAR_CALL(range->client, mem_free_host, (ashlar__ptr_out(ptr)));
}

static ashlar_status segments_map(ashlar_range *range, size_t *offset, size_t bytes) {
    const ashlar_status status = ashlar__device_enter(range->client->device);
    if (status != ASHLAR_OK) {
        return status;
    }
    cu_ptr ptr = 0;
    const ashlar_segment_calls *calls = range->segments;
    const cu_result result = calls->take(range, &ptr, bytes);
    const bool is_fit =
        ptr % ASHLAR_BLOCK_ALIGN == 0 && ptr < ADDRESSES && bytes <= ADDRESSES - ptr;
    if (result == CU_SUCCESS && !is_fit) {
        (void)calls->free(range, ptr);
    }
    ashlar__device_leave(range->client->device);
    if (result != CU_SUCCESS) {
        return ashlar__range_refuse(range, calls->take_name, result);
    }
    if (!is_fit) {
        return ashlar__fail(ASHLAR_EDRIVER, "%s: address %llu is no multiple of %zu below 2^48",
                            calls->take_name, ptr, ASHLAR_BLOCK_ALIGN);
    }
    ashlar__range_add(range, (size_t)ptr, bytes, 0);
    *offset = (size_t)ptr;
    return ASHLAR_OK;
}

static ashlar_status segments_unmap(ashlar_range *range, ashlar_chunk *chunk) {
    const ashlar_status status = ashlar__device_enter(range->client->device);
    if (status != ASHLAR_OK) {
        return status;
    }
    ASHLAR_CHECK2(chunk->handle == 0 && range->base == 0);
    const cu_result result = range->segments->free(range, chunk->offset);
    ashlar__device_leave(range->client->device);
    if (result != CU_SUCCESS) {
        return ashlar__range_refuse(range, range->segments->free_name, result);
    }
    ashlar__range_lose(range, chunk);
    return ASHLAR_OK;
}

static ashlar_status segments_allow_peer(ashlar_range *range, int ordinal) {
    return ashlar__fail(ASHLAR_ENOTSUP,
                        "peer %d: device %d has no virtual memory management; copy between them "
                        "instead",
                        ordinal, range->client->device->info.ordinal);
}

static void segments_finish(ashlar_range *range) {
    if (ashlar__device_enter(range->client->device) == ASHLAR_OK) {
        for (size_t i = 0; i < range->chunk_count; i++) {
            (void)range->segments->free(range, range->chunks[i].offset);
        }
        ashlar__device_leave(range->client->device);
    }
}

void ashlar__range_segments_init(ashlar_range *range) {
    static const ashlar_range_ops ops = {
        .growth_divisor = 16, /* large steps: a segment never grows, so it needs room to share */
        .map = segments_map,
        .unmap = segments_unmap,
        .allow_peer = segments_allow_peer,
        .finish = segments_finish,
    };
    static const ashlar_segment_calls device = {"cuMemAlloc", "cuMemFree", take_device,
                                                free_device};
    static const ashlar_segment_calls host = {"cuMemHostAlloc", "cuMemFreeHost", take_host,
                                              free_host};
    range->ops = &ops;
    range->segments = range->kind == ASHLAR_RANGE_HOST ? &host : &device;
    range->bytes = ADDRESSES;
    range->granularity = SEGMENT_ALIGN;
}
