/*
 * range_vmm.c - an allocator's memory with virtual memory management: reserving addresses, and
 * creating, mapping and unmapping handles.
 */
#include "allocator/heap/range.h"

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/error.h"

/*
 * Reserved addresses as a multiple of physical memory. Addresses cost nothing, and each stream has
 * windows of its own, in which the holes between live blocks may be many times its memory.
 */
enum { ADDRESS_FACTOR = 32 };

static cu_mem_prop memory_of(const ashlar_range *range) {
    return (cu_mem_prop){
        .type = CU_ALLOCATION_PINNED,
        .location = {.type = CU_LOCATION_DEVICE, .id = range->client->device->info.ordinal},
    };
}

/* ---- handles ---- */

ashlar_status ashlar__range_create(ashlar_range *range) {
    ASHLAR_ASSERT(range->spare_count < range->spare_capacity);
    const ashlar_status status = ashlar__range_allows(range, range->handle_bytes);
    if (status != ASHLAR_OK) {
        return status;
    }
    const cu_mem_prop memory = memory_of(range);
    cu_mem_handle handle = 0;
    const cu_result result =
        ASHLAR_CALL(range->client, mem_create, (&handle, range->handle_bytes, &memory, 0));
    if (result != CU_SUCCESS) {
        return ashlar__range_refuse(range, "cuMemCreate", result);
    }
    range->spare[range->spare_count++] = handle;
    range->mapped_bytes += range->handle_bytes;
    ASHLAR_CHECK2(ashlar__range_is_sound(range));
    return ASHLAR_OK;
}

ashlar_status ashlar__range_release(ashlar_range *range) {
    ASHLAR_ASSERT(range->spare_count > 0);
    const cu_result result =
        ASHLAR_CALL(range->client, mem_release, (range->spare[range->spare_count - 1]));
    if (result != CU_SUCCESS) {
        return ashlar__range_refuse(range, "cuMemRelease", result);
    }
    range->spare_count--;
    range->mapped_bytes -= range->handle_bytes;
    ASHLAR_CHECK2(ashlar__range_is_sound(range));
    return ASHLAR_OK;
}

cu_result ashlar__range_open_to_all(ashlar_range *range, size_t offset, size_t bytes) {
    ASHLAR_CHECK2(bytes > 0 && offset + bytes <= range->bytes);
    ASHLAR_CHECK2(range->peer_count <= ASHLAR_PEERS_MAX);
    cu_mem_access access[1 + ASHLAR_PEERS_MAX] = {
        {.location = memory_of(range).location, .flags = CU_ACCESS_READWRITE}};
    for (size_t i = 0; i < range->peer_count; i++) {
        access[1 + i] = access[0];
        access[1 + i].location.id = range->peers[i];
    }
    return ASHLAR_CALL(range->client, mem_set_access,
                       (range->base + offset, bytes, access, 1 + range->peer_count));
}

void ashlar__range_abandon(ashlar_range *range, size_t offset) {
    const cu_result result =
        ASHLAR_CALL(range->client, mem_unmap, (range->base + offset, range->handle_bytes));
    range->keeps_addresses = range->keeps_addresses || result != CU_SUCCESS;
}

ashlar_status ashlar__range_map(ashlar_range *range, size_t offset, size_t count) {
    ASHLAR_CHECK2(count > 0 && count <= range->spare_count && offset % range->handle_bytes == 0);
    const size_t bytes = range->handle_bytes;
    const cu_mem_handle *handles = &range->spare[range->spare_count - count];
    const char *call = "cuMemMap";
    cu_result result = CU_SUCCESS;
    size_t done = 0;
    while (result == CU_SUCCESS && done < count) {
        result = ASHLAR_CALL(range->client, mem_map,
                             (range->base + offset + done * bytes, bytes, 0, handles[done], 0));
        done += result == CU_SUCCESS;
    }
    if (result == CU_SUCCESS) {
        call = "cuMemSetAccess";
        result = ashlar__range_open_to_all(range, offset, count * bytes);
    }
    if (result != CU_SUCCESS) {
        const ashlar_status status = ashlar__range_refuse(range, call, result);
        while (done-- > 0) {
            ashlar__range_abandon(range, offset + done * bytes);
        }
        return status;
    }
    range->spare_count -= count;
    ashlar__range_trace(range, ASHLAR_TRACE_MAP, offset, count * bytes);
    return ASHLAR_OK;
}

ashlar_status ashlar__range_unmap(ashlar_range *range, size_t offset, cu_mem_handle handle) {
    ASHLAR_CHECK2(offset % range->handle_bytes == 0);
    ASHLAR_ASSERT(range->spare_count < range->spare_capacity);
    const cu_result result =
        ASHLAR_CALL(range->client, mem_unmap, (range->base + offset, range->handle_bytes));
    if (result != CU_SUCCESS) {
        return ashlar__range_refuse(range, "cuMemUnmap", result);
    }
    range->spare[range->spare_count++] = handle;
    ashlar__range_trace(range, ASHLAR_TRACE_UNMAP, offset, range->handle_bytes);
    return ASHLAR_OK;
}

/* ---- peers ---- */

static cu_result set_access(ashlar_range *range, size_t offset, size_t bytes, int ordinal,
                            unsigned flags) {
    cu_mem_access access = {.location = memory_of(range).location, .flags = flags};
    access.location.id = ordinal;
    return ASHLAR_CALL(range->client, mem_set_access, (range->base + offset, bytes, &access, 1));
}

ashlar_status ashlar__range_open(ashlar_range *range, size_t offset, size_t bytes, int ordinal) {
    const cu_result result = set_access(range, offset, bytes, ordinal, CU_ACCESS_READWRITE);
    return result == CU_SUCCESS ? ASHLAR_OK : ashlar__range_refuse(range, "cuMemSetAccess", result);
}

void ashlar__range_close(ashlar_range *range, size_t offset, size_t bytes, int ordinal) {
    (void)set_access(range, offset, bytes, ordinal, CU_ACCESS_NONE);
}

/* ---- the ends ---- */

void ashlar__range_vmm_finish(ashlar_range *range) {
    while (range->spare_count > 0) {
        (void)ASHLAR_CALL(range->client, mem_release, (range->spare[--range->spare_count]));
        range->mapped_bytes -= range->handle_bytes;
    }
    if (!range->keeps_addresses) {
        (void)ASHLAR_CALL(range->client, mem_address_free, (range->base, range->bytes));
    }
}

/* Reserve addresses. If they are scarce (ulimit -v, a virtual machine), reserve fewer. Which result
 * says so is documented nowhere. */
static ashlar_status reserve_addresses(ashlar_range *range) {
    cu_result result = CU_OUT_OF_MEMORY;
    for (size_t factor = ADDRESS_FACTOR; factor > 0 && result != CU_SUCCESS; factor /= 2) {
        if (!ashlar__mul(range->memory_bytes, factor, &range->bytes) ||
            !ashlar__align_up(range->bytes, range->handle_bytes, &range->bytes)) {
            return ashlar__fail(ASHLAR_EOVERFLOW, "the device's %zu bytes are too many to address",
                                range->memory_bytes);
        }
        result = ASHLAR_CALL(range->client, mem_address_reserve,
                             (&range->base, range->bytes, range->handle_bytes, 0, 0));
    }
    return result == CU_SUCCESS ? ASHLAR_OK
                                : ashlar__range_refuse(range, "cuMemAddressReserve", result);
}

ashlar_status ashlar__range_vmm_init(ashlar_range *range, size_t handle_bytes) {
    const cu_mem_prop memory = memory_of(range);
    size_t granularity = 0;
    const cu_result result = ASHLAR_CALL(range->client, mem_get_allocation_granularity,
                                         (&granularity, &memory, CU_GRANULARITY_MINIMUM));
    if (result != CU_SUCCESS) {
        return ashlar__range_refuse(range, "cuMemGetAllocationGranularity", result);
    }
    ASHLAR_ASSERT(granularity > 0 && (granularity & (granularity - 1)) == 0);
    const size_t wanted = handle_bytes != 0 ? handle_bytes : ASHLAR_HANDLE_BYTES;
    range->handle_bytes = granularity;
    while (range->handle_bytes < wanted && range->handle_bytes <= SIZE_MAX / 2) {
        range->handle_bytes *= 2;
    }
    return reserve_addresses(range);
}
