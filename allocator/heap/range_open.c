/*
 * range_open.c - which kind of memory a new range has: virtual memory or segments.
 */
#include "allocator/heap/range.h"

#include "allocator/base/host.h"

static ashlar_status has_virtual_memory(const ashlar_range *range, bool *out) {
    int supported = 0;
    const cu_result result =
        ASHLAR_CALL(range->client, device_get_attribute,
                    (&supported, CU_ATTRIBUTE_VMM_SUPPORTED, range->client->device->info.ordinal));
    if (result != CU_SUCCESS) {
        return ashlar__range_refuse(range, "cuDeviceGetAttribute", result);
    }
    *out = supported != 0;
    return ASHLAR_OK;
}

ashlar_status ashlar__range_init(ashlar_range *range, ashlar_driver_client *client,
                                 ashlar_range_kind kind) {
    const size_t memory_bytes =
        kind == ASHLAR_RANGE_HOST ? ashlar__host_memory_bytes() : client->device->info.total_bytes;
    ashlar_range fresh = {
        .client = client, .kind = kind, .memory_bytes = memory_bytes, .limit_bytes = memory_bytes};
    bool use_vmm = false;
    ashlar_status status =
        kind == ASHLAR_RANGE_VIRTUAL ? has_virtual_memory(&fresh, &use_vmm) : ASHLAR_OK;
    if (status == ASHLAR_OK && use_vmm) {
        status = ashlar__range_vmm_init(&fresh);
    } else if (status == ASHLAR_OK) {
        ashlar__range_segments_init(&fresh);
    }
    if (status == ASHLAR_OK) {
        *range = fresh;
    }
    return status;
}
