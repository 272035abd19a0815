/* soft_vmm.c - the calls for virtual memory management: reserve, create, map, give access. */
#include "allocator/soft/soft_state.h"

/* ---- physical memory ---- */

/* The checks shared by the two calls that take a cu_mem_prop. */
static cu_result check_prop(const cu_mem_prop *prop, soft_device **device) {
    if (prop == NULL || prop->type != CU_ALLOCATION_PINNED ||
        prop->location.type != CU_LOCATION_DEVICE) {
        return CU_INVALID_VALUE;
    }
    if ((prop->handle_types & ~(unsigned int)CU_HANDLE_FILE) != 0) {
        return CU_NOT_SUPPORTED;
    }
    *device = ashlar__soft_device_at(prop->location.id);
    return *device == NULL ? CU_INVALID_DEVICE : CU_SUCCESS;
}

cu_result ashlar__soft_mem_get_allocation_granularity(size_t *bytes, const cu_mem_prop *prop,
                                                      unsigned int option) {
    SOFT_TRY(ashlar__soft_enter(ASHLAR_DRIVER_FN_mem_get_allocation_granularity));
    if (!ashlar__soft_state.config.has_vmm) {
        return ashlar__soft_leave(CU_NOT_SUPPORTED);
    }
    soft_device *device;
    cu_result result = check_prop(prop, &device);
    if (result == CU_SUCCESS && (bytes == NULL || (option != CU_GRANULARITY_MINIMUM &&
                                                   option != CU_GRANULARITY_RECOMMENDED))) {
        result = CU_INVALID_VALUE;
    }
    if (result == CU_SUCCESS) {
        *bytes = SOFT_PAGE_BYTES;
    }
    return ashlar__soft_leave(result);
}

cu_result ashlar__soft_mem_create(cu_mem_handle *handle, size_t bytes, const cu_mem_prop *prop,
                                  unsigned long long flags) {
    SOFT_TRY(ashlar__soft_enter_vmm(ASHLAR_DRIVER_FN_mem_create));
    soft_device *device;
    soft_memory *memory;
    cu_result result = check_prop(prop, &device);
    if (result == CU_SUCCESS &&
        (handle == NULL || flags != 0 || bytes == 0 || bytes % SOFT_PAGE_BYTES != 0)) {
        result = CU_INVALID_VALUE;
    }
    if (result == CU_SUCCESS) {
        result = ashlar__soft_memory_create(device, bytes, &memory);
    }
    if (result != CU_SUCCESS) {
        return ashlar__soft_leave(result);
    }
    memory->handle_types = prop->handle_types;
    uintptr_t number;
    if (!ashlar__soft_handle_put(SOFT_MEMORY, memory, &number)) {
        ashlar__soft_memory_drop(memory);
        return ashlar__soft_leave(CU_OUT_OF_MEMORY);
    }
    *handle = number;
    return ashlar__soft_leave(CU_SUCCESS);
}

cu_result ashlar__soft_mem_release(cu_mem_handle handle) {
    SOFT_TRY(ashlar__soft_enter_vmm(ASHLAR_DRIVER_FN_mem_release));
    soft_memory *memory = ashlar__soft_handle_end(SOFT_MEMORY, (const void *)(uintptr_t)handle);
    ashlar__soft_memory_drop(memory);
    return ashlar__soft_leave(memory == NULL ? CU_INVALID_VALUE : CU_SUCCESS);
}

cu_result ashlar__soft_mem_get_info(size_t *free_bytes, size_t *total_bytes) {
    soft_device *device;
    SOFT_TRY(ashlar__soft_enter_context(ASHLAR_DRIVER_FN_mem_get_info, &device));
    if (free_bytes != NULL) {
        *free_bytes = (device->of->page_count - device->of->pages_used) * SOFT_PAGE_BYTES;
    }
    if (total_bytes != NULL) {
        *total_bytes = device->of->page_count * SOFT_PAGE_BYTES;
    }
    return ashlar__soft_leave(CU_SUCCESS);
}

/* ---- addresses ---- */

static bool is_page_multiple(uintptr_t number) {
    return number % SOFT_PAGE_BYTES == 0;
}

cu_result ashlar__soft_mem_address_reserve(cu_ptr *ptr, size_t bytes, size_t align, cu_ptr hint,
                                           unsigned long long flags) {
    SOFT_TRY(ashlar__soft_enter_vmm(ASHLAR_DRIVER_FN_mem_address_reserve));
    if (ptr == NULL || bytes == 0 || !is_page_multiple(bytes) || (align & (align - 1)) != 0 ||
        flags != 0) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    soft_reservation *reservation;
    const cu_result result = ashlar__soft_reserve(
        bytes, align < SOFT_PAGE_BYTES ? SOFT_PAGE_BYTES : align, (uintptr_t)hint, &reservation);
    if (result == CU_SUCCESS) {
        *ptr = reservation->range.base;
    }
    return ashlar__soft_leave(result);
}

cu_result ashlar__soft_mem_address_free(cu_ptr ptr, size_t bytes) {
    SOFT_TRY(ashlar__soft_enter_vmm(ASHLAR_DRIVER_FN_mem_address_free));
    size_t idx;
    soft_reservation *reservation =
        ashlar__soft_ranges_at(&ashlar__soft_state.reservations, (uintptr_t)ptr, &idx);
    if (reservation == NULL || reservation->range.bytes != bytes ||
        reservation->mapping_count != 0) { /* always so for memory of cuMemAlloc */
        return ashlar__soft_leave(ashlar__soft_undefined(
            CU_INVALID_VALUE, "%zu bytes at %#zx are no whole reservation without mappings", bytes,
            (size_t)ptr));
    }
    ashlar__soft_unreserve(reservation);
    return ashlar__soft_leave(CU_SUCCESS);
}

/* ---- mappings ---- */

/* CUDA says that `offset` "currently must be zero". Allowing more here would hide programs that
 * fail on a GPU. */
cu_result ashlar__soft_mem_map(cu_ptr ptr, size_t bytes, size_t offset, cu_mem_handle handle,
                               unsigned long long flags) {
    SOFT_TRY(ashlar__soft_enter_vmm(ASHLAR_DRIVER_FN_mem_map));
    soft_memory *memory = ashlar__soft_handle_find(SOFT_MEMORY, (const void *)(uintptr_t)handle);
    if (memory == NULL || offset != 0 || flags != 0 || bytes == 0 || !is_page_multiple(bytes) ||
        !is_page_multiple((uintptr_t)ptr) || bytes / SOFT_PAGE_BYTES > memory->page_count) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    const uintptr_t base = (uintptr_t)ptr;
    soft_reservation *reservation =
        ashlar__soft_ranges_over(&ashlar__soft_state.reservations, base, bytes);
    if (reservation == NULL) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    for (uintptr_t at = base; at < base + bytes; at += SOFT_PAGE_BYTES) {
        if (soft_mapping_at(reservation, at) != NULL) {
            return ashlar__soft_leave(CU_INVALID_VALUE);
        }
    }
    return ashlar__soft_leave(ashlar__soft_map(reservation, base, bytes, memory));
}

/* Find the reservation in which whole mappings fill exactly [base, base + bytes), without a gap.
 * NULL: there is none, or it belongs to cuMemAlloc. */
static soft_reservation *whole_mappings(uintptr_t base, size_t bytes) {
    if (bytes == 0) {
        return NULL;
    }
    soft_reservation *reservation =
        ashlar__soft_ranges_over(&ashlar__soft_state.reservations, base, bytes);
    if (reservation == NULL || reservation->plain_device != NULL) {
        return NULL;
    }
    for (uintptr_t at = base; at < base + bytes;) {
        const soft_mapping *mapping = soft_mapping_at(reservation, at);
        if (mapping == NULL || mapping->base != at || mapping->bytes > base + bytes - at) {
            return NULL;
        }
        at += mapping->bytes;
    }
    return reservation;
}

/* With waits=on, wait for the device whose memory is mapped at `ptr`. Call this before looking
 * anything up, since other threads may change it during the wait. */
static void wait_if_asked(cu_ptr ptr) {
    const soft_reservation *found =
        ashlar__soft_ranges_over(&ashlar__soft_state.reservations, (uintptr_t)ptr, 1);
    const soft_mapping *mapping = found == NULL ? NULL : soft_mapping_at(found, (uintptr_t)ptr);
    if (ashlar__soft_state.config.has_waits && mapping != NULL) {
        ashlar__soft_wait_device(mapping->memory->device, 0);
    }
}

cu_result ashlar__soft_mem_unmap(cu_ptr ptr, size_t bytes) {
    SOFT_TRY(ashlar__soft_enter_vmm(ASHLAR_DRIVER_FN_mem_unmap));
    wait_if_asked(ptr);
    soft_reservation *reservation = whole_mappings((uintptr_t)ptr, bytes);
    if (reservation == NULL) {
        return ashlar__soft_leave(ashlar__soft_undefined(
            CU_INVALID_VALUE, "%zu bytes at %#zx are not whole mappings side by side", bytes,
            (size_t)ptr));
    }
    ashlar__soft_let_go((uintptr_t)ptr, bytes);
    /* CUDA may wait for the device here, so time=on counts it as a wait. No program may rely on
     * that, so without waits=on no queued work is run here. */
    ashlar__soft_time_see(soft_mapping_at(reservation, (uintptr_t)ptr)->memory->device->end_ns);
    return ashlar__soft_leave(ashlar__soft_unmap(reservation, (uintptr_t)ptr, bytes));
}

/* A device may be given access to its own memory and, with peers=on, to another device's. */
static cu_result check_access(const soft_reservation *reservation, uintptr_t base, size_t bytes,
                              const cu_mem_access *access) {
    if (access->location.type != CU_LOCATION_DEVICE) {
        return CU_INVALID_VALUE;
    }
    const soft_device *device = ashlar__soft_device_at(access->location.id);
    if (device == NULL) {
        return CU_INVALID_DEVICE;
    }
    if (access->flags != CU_ACCESS_READWRITE) {
        return CU_NOT_SUPPORTED;
    }
    for (uintptr_t at = base; at < base + bytes;) {
        const soft_mapping *mapping = soft_mapping_at(reservation, at);
        if (mapping->memory->device != device && !ashlar__soft_state.config.has_peers) {
            return CU_NOT_SUPPORTED;
        }
        at += mapping->bytes;
    }
    return CU_SUCCESS;
}

cu_result ashlar__soft_mem_set_access(cu_ptr ptr, size_t bytes, const cu_mem_access *access,
                                      size_t count) {
    SOFT_TRY(ashlar__soft_enter_vmm(ASHLAR_DRIVER_FN_mem_set_access));
    wait_if_asked(ptr);
    soft_reservation *reservation = whole_mappings((uintptr_t)ptr, bytes);
    if (reservation == NULL || access == NULL || count == 0) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    uint32_t devices = 0;
    cu_result result = CU_SUCCESS;
    for (size_t i = 0; i < count && result == CU_SUCCESS; i++) {
        result = check_access(reservation, (uintptr_t)ptr, bytes, &access[i]);
        if (result == CU_SUCCESS) {
            devices |= (uint32_t)1 << access[i].location.id;
        }
    }
    if (result == CU_SUCCESS) {
        result = ashlar__soft_allow(reservation, (uintptr_t)ptr, bytes, devices);
    }
    return ashlar__soft_leave(result);
}
