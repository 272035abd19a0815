/* range_open.c - opening a range with the back end that its kind and its device ask for, and
 * closing it. */
#include "allocator/heap/range.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
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
                                 ashlar_range_kind kind, size_t handle_bytes) {
    const size_t memory_bytes =
        kind == ASHLAR_RANGE_HOST ? ashlar__host_memory_bytes() : client->device->info.total_bytes;
    ashlar_range fresh = {
        .client = client, .kind = kind, .memory_bytes = memory_bytes, .limit_bytes = memory_bytes};
    const bool is_virtual = kind == ASHLAR_RANGE_VIRTUAL || kind == ASHLAR_RANGE_SHARED;
    bool use_vmm = false;
    ashlar_status status = is_virtual ? has_virtual_memory(&fresh, &use_vmm) : ASHLAR_OK;
    if (status == ASHLAR_OK && kind == ASHLAR_RANGE_SHARED) {
        ashlar__range_segments_init(&fresh);
        status = use_vmm ? ashlar__range_shared_init(&fresh)
                         : ashlar__fail(ASHLAR_ENOTSUP,
                                        "share=on: device %d has no virtual memory management; "
                                        "leave it off",
                                        client->device->info.ordinal);
    } else if (status == ASHLAR_OK && use_vmm) {
        status = ashlar__range_vmm_init(&fresh, handle_bytes);
    } else if (status == ASHLAR_OK) {
        ashlar__range_segments_init(&fresh);
    }
    if (status == ASHLAR_OK) {
        fresh.handle_shift = (unsigned)__builtin_ctzll(fresh.handle_bytes);
        ASHLAR_CHECK2(fresh.handle_bytes == (size_t)1 << fresh.handle_shift &&
                      ashlar__range_is_sound(&fresh));
        *range = fresh;
    }
    return status;
}

void ashlar__range_finish(ashlar_range *range) {
    if (range->segments == NULL) {
        ashlar__range_vmm_finish(range);
    }
    ASHLAR_ASSERT(range->mapped_bytes == 0);
    ashlar__host_free(range->spare);
}
