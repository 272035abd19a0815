/*
 * range.c - what both back ends of a range share: opening, the limit, spare handles, the trace.
 */
#include "allocator/heap/range.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

ashlar_status ashlar__range_refuse(const ashlar_range *range, const char *what, cu_result result) {
    return ashlar__driver_error(range->client->device->driver, what, result);
}

bool ashlar__range_is_sound(const ashlar_range *range) {
    return range->mapped_bytes <= range->memory_bytes && range->next_offset <= range->bytes &&
           range->spare_count <= range->spare_capacity &&
           range->spare_count * range->handle_bytes <= range->mapped_bytes;
}

/* ---- the ends ---- */

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

/* ---- the limit ---- */

size_t ashlar__range_left(const ashlar_range *range) {
    return range->limit_bytes > range->mapped_bytes ? range->limit_bytes - range->mapped_bytes : 0;
}

ashlar_status ashlar__range_allows(const ashlar_range *range, size_t bytes) {
    return bytes <= ashlar__range_left(range)
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_ENOMEM,
                              "%zu bytes more than the %zu mapped would exceed the limit of %zu",
                              bytes, range->mapped_bytes, range->limit_bytes);
}

ashlar_status ashlar__range_reserve_spare(ashlar_range *range, size_t count) {
    size_t capacity = range->spare_capacity == 0 ? 16 : range->spare_capacity;
    while (capacity < count) {
        capacity *= 2; /* cannot overflow: a count of handles is far below SIZE_MAX */
    }
    if (capacity == range->spare_capacity) {
        return ASHLAR_OK;
    }
    cu_mem_handle *grown = ashlar__host_realloc(range->spare, capacity, sizeof *grown);
    if (grown == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a list of %zu handles", capacity);
    }
    range->spare = grown;
    range->spare_capacity = capacity;
    return ASHLAR_OK;
}

void ashlar__range_trace(const ashlar_range *range, ashlar_trace_action action, size_t offset,
                         size_t bytes) {
    ashlar__trace_put_if(range->client->trace,
                         &(ashlar_trace_event){.action = (uint8_t)action,
                                               .address = range->base + offset,
                                               .bytes = bytes});
}
