/*
 * libcuda_pointer.c - what the driver says about a pointer, and which memory can be exported to
 * another process (CUDA IPC).
 *
 * As a real driver's, the answers are about the driver's allocations: a mapping of cuMemMap, or
 * what cuMemAlloc has returned. Only the latter can be exported, and with it all of its pages,
 * which may hold other blocks ("CUDA IPC APIs will share the entire underlying memory block").
 */
#include "libcuda.h"

#include <string.h>

#include "allocator/soft/soft_state.h"

static soft_reservation *reservation_over(cu_ptr ptr) {
    return ashlar__soft_ranges_over(&ashlar__soft_state.reservations, (uintptr_t)ptr, 1);
}

/* NULL: there is no device memory. */
static const soft_mapping *mapping_over(cu_ptr ptr) {
    const soft_reservation *found = reservation_over(ptr);
    return found == NULL ? NULL : soft_mapping_at(found, (uintptr_t)ptr);
}

static bool is_of_blocks(const soft_reservation *reservation) {
    return reservation != NULL && reservation->plain_device != NULL;
}

/* The allocation: a block or, if it was mapped, a mapping. 0 bytes: there is none. */
static soft_range allocation_over(cu_ptr ptr) {
    const soft_mapping *mapping = mapping_over(ptr);
    if (is_of_blocks(reservation_over(ptr))) {
        const soft_range *block =
            ashlar__soft_ranges_over(&ashlar__soft_state.blocks, (uintptr_t)ptr, 1);
        return block == NULL ? (soft_range){0} : *block;
    }
    return mapping == NULL ? (soft_range){0} : (soft_range){mapping->base, mapping->bytes};
}

/* False: there is no memory that the driver knows. */
static bool find_device(cu_ptr ptr, cu_ptr *base, size_t *bytes) {
    if (ashlar__soft_enter(ASHLAR_DRIVER_FN_COUNT) != CU_SUCCESS) {
        return false;
    }
    const soft_range found = allocation_over(ptr);
    *base = found.base;
    *bytes = found.bytes;
    (void)ashlar__soft_leave(CU_SUCCESS);
    return *bytes > 0;
}

cu_result ashlar_fake_mem_get_address_range(cu_ptr *base, size_t *bytes, cu_ptr ptr) {
    cu_ptr found;
    size_t found_bytes;
    cu_device unused;
    const cu_result result = ashlar_fake_ctx_get_device(&unused);
    if (result != CU_SUCCESS) {
        return result;
    }
    if (!ashlar_fake_find_host(ptr, &found, &found_bytes) &&
        !find_device(ptr, &found, &found_bytes)) {
        return CU_NOT_FOUND;
    }
    if (base != NULL) {
        *base = found;
    }
    if (bytes != NULL) {
        *bytes = found_bytes;
    }
    return CU_SUCCESS;
}

/* ---- attributes ---- */

typedef struct pointer_facts {
    const soft_mapping *mapping; /* NULL: it is the host's */
    const soft_reservation *reservation;
    soft_range allocation;
    bool is_host;
} pointer_facts;

/* Write one attribute. Lock: the software device's. */
static cu_result tell(const pointer_facts *of, void *data, unsigned int attribute, cu_ptr ptr) {
    const unsigned int type = of->is_host ? CU_MEMORY_HOST : CU_MEMORY_DEVICE;
    const bool is_plain = is_of_blocks(of->reservation);
    const soft_device *device = of->mapping == NULL ? NULL : of->mapping->memory->device;
    const int ordinal = device == NULL ? 0 : device->ordinal;
    const cu_context context =
        !is_plain ? NULL : (cu_context)of->reservation->plain_device->context;
    const cu_ptr host = of->is_host ? ptr : 0;
    const cu_ptr base = of->is_host ? ptr : of->allocation.base;
    const size_t bytes = of->is_host ? 0 : of->allocation.bytes;
    const cu_ptr mapping_base = of->is_host ? ptr : of->mapping->base;
    const size_t mapping_bytes = of->is_host ? 0 : of->mapping->bytes;
    const unsigned long long none = 0;
    const unsigned long long types = of->is_host ? 0 : of->mapping->memory->handle_types;
    const struct {
        const void *value;
        size_t bytes;
    } known[] = {
        [FAKE_POINTER_CONTEXT] = {&context, sizeof context},
        [CU_POINTER_MEMORY_TYPE] = {&type, sizeof type},
        [FAKE_POINTER_DEVICE_POINTER] = {&ptr, sizeof ptr},
        [FAKE_POINTER_HOST_POINTER] = {&host, sizeof host},
        [FAKE_POINTER_IS_MANAGED] = {&none, sizeof(bool)},
        [FAKE_POINTER_ORDINAL] = {&ordinal, sizeof ordinal},
        [FAKE_POINTER_IS_IPC_CAPABLE] = {&is_plain, sizeof is_plain},
        [FAKE_POINTER_RANGE_START] = {&base, sizeof base},
        [FAKE_POINTER_RANGE_SIZE] = {&bytes, sizeof bytes},
        [FAKE_POINTER_HANDLE_TYPES] = {&types, sizeof types},
        [FAKE_POINTER_POOL] = {&none, sizeof(void *)},
        [FAKE_POINTER_MAPPING_SIZE] = {&mapping_bytes, sizeof mapping_bytes},
        [FAKE_POINTER_MAPPING_BASE] = {&mapping_base, sizeof mapping_base},
    };
    if (attribute >= sizeof known / sizeof known[0] || known[attribute].value == NULL) {
        return CU_NOT_SUPPORTED;
    }
    memcpy(data, known[attribute].value, known[attribute].bytes);
    return CU_SUCCESS;
}

/* False: the pointer is none that the driver knows. */
static bool find_facts(cu_ptr ptr, bool is_host, pointer_facts *out) {
    *out = (pointer_facts){.mapping = mapping_over(ptr),
                           .reservation = reservation_over(ptr),
                           .allocation = allocation_over(ptr),
                           .is_host = is_host};
    return is_host || out->allocation.bytes > 0;
}

cu_result ashlar_fake_pointer_get_attribute(void *data, unsigned int attribute, cu_ptr ptr) {
    pointer_facts facts;
    const bool is_host = ashlar_fake_is_host(ptr, 1);
    const cu_result result =
        data == NULL ? CU_INVALID_VALUE : ashlar__soft_enter(ASHLAR_DRIVER_FN_COUNT);
    if (result != CU_SUCCESS) {
        return result;
    }
    return ashlar__soft_leave(find_facts(ptr, is_host, &facts) ? tell(&facts, data, attribute, ptr)
                                                               : CU_INVALID_VALUE);
}

/* A pointer that is none is no error here: all about it is 0. What has no place is left out, since
 * nothing says that a driver would refuse it. */
cu_result ashlar_fake_pointer_get_attributes(unsigned int count, const unsigned int *attributes,
                                             void **data, cu_ptr ptr) {
    /* Those of 4 bytes, and those of 1; the others have 8. */
    const unsigned int words = 1u << CU_POINTER_MEMORY_TYPE | 1u << FAKE_POINTER_ORDINAL;
    const unsigned int bools = 1u << FAKE_POINTER_IS_MANAGED | 1u << FAKE_POINTER_IS_IPC_CAPABLE;
    pointer_facts facts;
    const bool is_host = ashlar_fake_is_host(ptr, 1);
    cu_result result = count > 0 && (attributes == NULL || data == NULL)
                           ? CU_INVALID_VALUE
                           : ashlar__soft_enter(ASHLAR_DRIVER_FN_COUNT);
    if (result != CU_SUCCESS) {
        return result;
    }
    const bool is_known = find_facts(ptr, is_host, &facts);
    for (unsigned int i = 0; i < count && result == CU_SUCCESS; i++) {
        const unsigned int bit = attributes[i] < 32 ? 1u << attributes[i] : 0;
        if (data[i] == NULL) {
            continue;
        }
        if (is_known) {
            result = tell(&facts, data[i], attributes[i], ptr);
        } else {
            memset(data[i], 0, (bit & bools) != 0 ? 1 : (bit & words) != 0 ? 4 : 8);
        }
    }
    return ashlar__soft_leave(result);
}

/* ---- memory for another process ---- */

/* Only memory that cuMemMap has mapped has a handle; no test asks for that of its own. */
cu_result ashlar_fake_mem_retain_handle(cu_mem_handle *handle, void *ptr) {
    (void)handle, (void)ptr;
    return CU_INVALID_VALUE;
}

/* Nothing opens it: the handle only says which block it is of. */
cu_result ashlar_fake_ipc_get_mem_handle(void *handle, cu_ptr ptr) {
    const bool is_of_pool = ashlar_fake_is_of_pool(ptr);
    const cu_result result = ashlar__soft_enter(ASHLAR_DRIVER_FN_COUNT);
    if (result != CU_SUCCESS) {
        return result;
    }
    const soft_range block = allocation_over(ptr);
    if (handle == NULL || !is_of_blocks(reservation_over(ptr)) || block.bytes == 0 || is_of_pool) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    memset(handle, 0, FAKE_IPC_HANDLE_BYTES);
    memcpy(handle, &block.base, sizeof block.base);
    return ashlar__soft_leave(CU_SUCCESS);
}
