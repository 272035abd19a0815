#include "range.h"

#include "check_level.h"
#include "checked.h"
#include "error.h"
#include "host.h"

/*
 * Reserved addresses as a multiple of physical memory. Room to move pages to fresh addresses
 * instead of compacting; address space costs nothing.
 */
enum { ADDRESS_FACTOR = 4 };

/*
 * A growth step is 1/64 of what is mapped, within bounds: few driver calls for a large model, and
 * never more than 1/64 of the memory reserved in vain.
 */
enum { STEP_DIVISOR = 64 };
#define STEP_MAX_BYTES ((size_t)64 << 20)

static cu_mem_prop memory_of(const ashlar_range *range) {
    return (cu_mem_prop){
        .type = CU_ALLOCATION_PINNED,
        .location = {.type = CU_LOCATION_DEVICE, .id = range->caller->device->info.ordinal},
    };
}

static ashlar_status refuse(const ashlar_range *range, const char *what, cu_result result) {
    return ashlar_driver_error(range->caller->device->driver, what, result);
}

static ashlar_status require_virtual_memory(ashlar_caller *caller) {
    int supported = 0;
    const cu_result result =
        ASHLAR_CALL(caller, device_get_attribute,
                    (&supported, CU_ATTRIBUTE_VMM_SUPPORTED, caller->device->info.ordinal));
    if (result != CU_SUCCESS) {
        return ashlar_driver_error(caller->device->driver, "cuDeviceGetAttribute", result);
    }
    if (!supported) {
        return ashlar_fail(ASHLAR_ENOTSUP,
                           "device %d has no virtual memory management, which ashlar needs",
                           caller->device->info.ordinal);
    }
    return ASHLAR_OK;
}

/* Where addresses are scarce (ulimit -v, a virtual machine), fewer of them do as well. */
static ashlar_status reserve_addresses(ashlar_range *range) {
    cu_result result = CU_OUT_OF_MEMORY;
    for (size_t factor = ADDRESS_FACTOR; factor > 0 && result == CU_OUT_OF_MEMORY; factor /= 2) {
        if (!ashlar_mul(range->device_bytes, factor, &range->bytes) ||
            !ashlar_align_up(range->bytes, range->granularity, &range->bytes)) {
            return ashlar_fail(ASHLAR_EOVERFLOW, "the device's %zu bytes are too many to address",
                               range->device_bytes);
        }
        result = ASHLAR_CALL(range->caller, mem_address_reserve,
                             (&range->base, range->bytes, 0, 0, 0));
    }
    return result == CU_SUCCESS ? ASHLAR_OK : refuse(range, "cuMemAddressReserve", result);
}

ashlar_status ashlar_range_init(ashlar_range *range, ashlar_caller *caller) {
    ashlar_status status = require_virtual_memory(caller);
    if (status != ASHLAR_OK) {
        return status;
    }
    ashlar_range fresh = {.caller = caller, .device_bytes = caller->device->info.total_bytes};
    const cu_mem_prop memory = memory_of(&fresh);
    cu_result result = ASHLAR_CALL(caller, mem_get_allocation_granularity,
                                   (&fresh.granularity, &memory, CU_GRANULARITY_MINIMUM));
    if (result != CU_SUCCESS) {
        return refuse(&fresh, "cuMemGetAllocationGranularity", result);
    }
    ASHLAR_ASSERT(fresh.granularity > 0 && (fresh.granularity & (fresh.granularity - 1)) == 0);
    status = reserve_addresses(&fresh);
    if (status == ASHLAR_OK) {
        *range = fresh;
    }
    return status;
}

void ashlar_range_finish(ashlar_range *range) {
    size_t offset = 0;
    for (size_t i = 0; i < range->mapping_count; i++) {
        const ashlar_mapping *mapping = &range->mappings[i];
        (void)ASHLAR_CALL(range->caller, mem_unmap, (range->base + offset, mapping->bytes));
        (void)ASHLAR_CALL(range->caller, mem_release, (mapping->handle));
        offset += mapping->bytes;
    }
    ASHLAR_ASSERT(offset == range->mapped_bytes);
    (void)ASHLAR_CALL(range->caller, mem_address_free, (range->base, range->bytes));
    ashlar_host_free(range->mappings);
}

static size_t step_bytes(const ashlar_range *range) {
    const size_t step = range->mapped_bytes / STEP_DIVISOR;
    return step > STEP_MAX_BYTES ? STEP_MAX_BYTES : step;
}

/* Room for one more entry, so that recording a mapping cannot fail once it is made. */
static ashlar_status reserve_entry(ashlar_range *range) {
    if (range->mapping_count < range->mapping_capacity) {
        return ASHLAR_OK;
    }
    const size_t capacity = range->mapping_capacity == 0 ? 16 : 2 * range->mapping_capacity;
    ashlar_mapping *grown = ashlar_host_realloc(range->mappings, capacity, sizeof *grown);
    if (grown == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory for a list of %zu mappings", capacity);
    }
    range->mappings = grown;
    range->mapping_capacity = capacity;
    return ASHLAR_OK;
}

/* Create, map and open `bytes`, or undo what was done of it. */
static ashlar_status map_at_top(ashlar_range *range, size_t bytes) {
    ashlar_caller *caller = range->caller;
    const cu_mem_prop memory = memory_of(range);
    const cu_ptr top = range->base + range->mapped_bytes;
    cu_mem_handle handle = 0;
    cu_result result = ASHLAR_CALL(caller, mem_create, (&handle, bytes, &memory, 0));
    if (result != CU_SUCCESS) {
        return refuse(range, "cuMemCreate", result);
    }
    result = ASHLAR_CALL(caller, mem_map, (top, bytes, 0, handle, 0));
    if (result != CU_SUCCESS) {
        (void)ASHLAR_CALL(caller, mem_release, (handle));
        return refuse(range, "cuMemMap", result);
    }
    const cu_mem_access access = {.location = memory.location, .flags = CU_ACCESS_READWRITE};
    result = ASHLAR_CALL(caller, mem_set_access, (top, bytes, &access, 1));
    if (result != CU_SUCCESS) {
        (void)ASHLAR_CALL(caller, mem_unmap, (top, bytes));
        (void)ASHLAR_CALL(caller, mem_release, (handle));
        return refuse(range, "cuMemSetAccess", result);
    }
    range->mappings[range->mapping_count++] = (ashlar_mapping){.handle = handle, .bytes = bytes};
    range->mapped_bytes += bytes;
    ashlar_trace_note(
        caller->trace,
        &(ashlar_trace_event){.action = ASHLAR_TRACE_MAP, .address = top, .bytes = bytes});
    return ASHLAR_OK;
}

ashlar_status ashlar_range_grow(ashlar_range *range, size_t bytes, size_t *grown) {
    size_t need;
    if (!ashlar_align_up(bytes, range->granularity, &need) ||
        need > range->bytes - range->mapped_bytes) {
        return ashlar_fail(ASHLAR_ENOMEM, "%zu bytes exceed the reserved address range", bytes);
    }
    ashlar_status status = reserve_entry(range);
    if (status != ASHLAR_OK) {
        return status;
    }
    size_t step = step_bytes(range) & ~(range->granularity - 1);
    if (step > need && step <= range->bytes - range->mapped_bytes) {
        status = map_at_top(range, step);
        if (status == ASHLAR_OK) {
            *grown = step;
            return ASHLAR_OK;
        }
        if (status != ASHLAR_ENOMEM) {
            return status;
        }
    }
    status = map_at_top(range, need);
    if (status == ASHLAR_OK) {
        *grown = need;
    }
    return status;
}
