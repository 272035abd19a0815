/*
 * range_shared.c - segments that other processes, NCCL and network cards can use: each is one
 * handle of cuMemCreate, mapped at addresses of its own.
 *
 * The handle is released once it is mapped. The memory lives as long as the mapping, and whoever
 * exports the segment asks the driver for the handle again.
 */
#include "allocator/heap/range.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"

static ashlar_status ask(const ashlar_range *range, unsigned int attribute, bool *out) {
    int value = 0;
    const cu_result result = ASHLAR_CALL(range->client, device_get_attribute,
                                         (&value, attribute, range->client->device->info.ordinal));
    if (result != CU_SUCCESS && result != CU_INVALID_VALUE) { /* older drivers know fewer
                                                               * attributes */
        return ashlar__range_refuse(range, "cuDeviceGetAttribute", result);
    }
    *out = result == CU_SUCCESS && value != 0;
    return ASHLAR_OK;
}

/* Give up what the driver may have refused, the rarest first. False: there is nothing left. */
static bool ask_for_less(cu_mem_prop *memory) {
    if ((memory->handle_types & CU_HANDLE_FABRIC) != 0) {
        memory->handle_types &= ~(unsigned int)CU_HANDLE_FABRIC;
        return true;
    }
    const bool was_rdma = memory->flags.rdma_capable != 0;
    memory->flags.rdma_capable = 0;
    return was_rdma;
}

/* A device may promise what its driver then refuses: fabric handles need a service that most
 * machines lack. What was refused once is not asked for again. */
static cu_result create(ashlar_range *range, size_t bytes, cu_mem_handle *handle) {
    cu_result result;
    do {
        result = ASHLAR_CALL(range->client, mem_create, (handle, bytes, &range->shared, 0));
    } while (result != CU_SUCCESS && result != CU_OUT_OF_MEMORY && ask_for_less(&range->shared));
    return result;
}

static cu_result map(ashlar_range *range, cu_ptr ptr, size_t bytes, cu_mem_handle handle,
                     const char **call) {
    *call = "cuMemMap";
    cu_result result = ASHLAR_CALL(range->client, mem_map, (ptr, bytes, 0, handle, 0));
    if (result != CU_SUCCESS) {
        return result;
    }
    *call = "cuMemSetAccess";
    result = ashlar__range_open_to_all(range, (size_t)ptr, bytes);
    if (result != CU_SUCCESS) {
        (void)ASHLAR_CALL(range->client, mem_unmap, (ptr, bytes));
    }
    return result;
}

static cu_result take(ashlar_range *range, cu_ptr *ptr, size_t bytes, const char **call) {
    cu_mem_handle handle = 0;
    *call = "cuMemAddressReserve";
    cu_result result =
        ASHLAR_CALL(range->client, mem_address_reserve, (ptr, bytes, range->handle_bytes, 0, 0));
    if (result != CU_SUCCESS) {
        return result;
    }
    *call = "cuMemCreate";
    result = create(range, bytes, &handle);
    if (result == CU_SUCCESS) {
        result = map(range, *ptr, bytes, handle, call);
        (void)ASHLAR_CALL(range->client, mem_release, (handle));
    }
    if (result != CU_SUCCESS) {
        (void)ASHLAR_CALL(range->client, mem_address_free, (*ptr, bytes));
    }
    return result;
}

static cu_result give(ashlar_range *range, cu_ptr ptr, size_t bytes, const char **call) {
    *call = "cuMemUnmap";
    const cu_result result = ASHLAR_CALL(range->client, mem_unmap, (ptr, bytes));
    if (result == CU_SUCCESS) {
        (void)ASHLAR_CALL(range->client, mem_address_free, (ptr, bytes));
    }
    return result;
}

/* Choose what handles are to be capable of, by what the device says it has. */
static ashlar_status choose(ashlar_range *range) {
    bool has_files, has_fabric, has_rdma;
    ASHLAR_TRY(ask(range, CU_ATTRIBUTE_HANDLE_FILE, &has_files));
    ASHLAR_TRY(ask(range, CU_ATTRIBUTE_HANDLE_FABRIC, &has_fabric));
    ASHLAR_TRY(ask(range, CU_ATTRIBUTE_RDMA, &has_rdma));
    ASHLAR_FAIL_IF(!has_files, ASHLAR_ENOTSUP,
                   "share=on: device %d cannot share memory by file descriptors; leave it off",
                   range->client->device->info.ordinal);
    range->shared = (cu_mem_prop){
        .type = CU_ALLOCATION_PINNED,
        .handle_types = CU_HANDLE_FILE | (has_fabric ? (unsigned int)CU_HANDLE_FABRIC : 0),
        .location = {.type = CU_LOCATION_DEVICE, .id = range->client->device->info.ordinal},
        .flags = {.rdma_capable = has_rdma},
    };
    return ASHLAR_OK;
}

ashlar_status ashlar__range_shared_init(ashlar_range *range) {
    static const ashlar_segment_calls shared = {take, give};
    size_t granularity = 0;
    ASHLAR_TRY(choose(range));
    cu_mem_prop plain = range->shared;
    plain.handle_types = CU_HANDLE_FILE;
    plain.flags.rdma_capable = 0;
    /* The recommended granularity, which NCCL expects of memory that it registers. */
    const cu_result result = ASHLAR_CALL(range->client, mem_get_allocation_granularity,
                                         (&granularity, &plain, CU_GRANULARITY_RECOMMENDED));
    if (result != CU_SUCCESS) {
        return ashlar__range_refuse(range, "cuMemGetAllocationGranularity", result);
    }
    ASHLAR_ASSERT(granularity > 0 && (granularity & (granularity - 1)) == 0);
    range->segments = &shared;
    range->handle_bytes = granularity > range->handle_bytes ? granularity : range->handle_bytes;
    return ASHLAR_OK;
}
