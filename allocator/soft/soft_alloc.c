/* soft_alloc.c - the software device's cuMemAlloc, built on pages and mappings, and its pinned host
 * memory. */
#include "allocator/soft/soft_state.h"

#include <sys/mman.h>

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/host.h"

enum { HOST_FLAGS_ALLOWED = 7 }; /* portable, device-mapped, write-combined: no difference here */

/* Like ashlar__soft_enter_context(), for a call that is unsafe while a stream captures. */
static cu_result enter_unsafe(ashlar_driver_fn fn, soft_device **device) {
    SOFT_TRY(ashlar__soft_enter_context(fn, device));
    const cu_result result = ashlar__soft_capture_admit_unsafe();
    return result == CU_SUCCESS ? CU_SUCCESS : ashlar__soft_leave(result);
}

static cu_result plain_alloc(soft_device *device, size_t bytes, cu_ptr *ptr) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    size_t rounded;
    soft_memory *memory;
    if (!ashlar__align_up(bytes, SOFT_PAGE_BYTES, &rounded)) {
        return CU_OUT_OF_MEMORY;
    }
    SOFT_TRY(ashlar__soft_memory_create(device, rounded, &memory));
    soft_reservation *reservation;
    cu_result result = ashlar__soft_reserve(rounded, SOFT_PAGE_BYTES, 0, &reservation);
    if (result == CU_SUCCESS) {
        result = ashlar__soft_map(reservation, reservation->range.base, rounded, memory);
        if (result == CU_SUCCESS) {
            result = ashlar__soft_allow(reservation, reservation->range.base, rounded,
                                        (uint32_t)1 << device->ordinal);
        }
        if (result != CU_SUCCESS) {
            ashlar__soft_unreserve(reservation);
        }
    }
    ashlar__soft_memory_drop(memory); /* from here on the mappings alone keep the memory */
    if (result == CU_SUCCESS) {
        ASHLAR_CHECK2(memory->user_count == 1 && reservation->mapping_count == 1);
        reservation->plain_device = device;
        *ptr = reservation->range.base;
    }
    return result;
}

cu_result ashlar__soft_mem_alloc(cu_ptr *ptr, size_t bytes) {
    soft_device *device;
    SOFT_TRY(enter_unsafe(ASHLAR_DRIVER_FN_mem_alloc, &device));
    if (ptr == NULL || bytes == 0) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    return ashlar__soft_leave(plain_alloc(device, bytes, ptr));
}

static soft_reservation *find_plain(cu_ptr ptr) {
    size_t idx;
    soft_reservation *reservation =
        ashlar__soft_ranges_at(&ashlar__soft_state.reservations, (uintptr_t)ptr, &idx);
    return reservation != NULL && reservation->plain_device != NULL ? reservation : NULL;
}

cu_result ashlar__soft_mem_free(cu_ptr ptr) {
    soft_device *device;
    SOFT_TRY(enter_unsafe(ASHLAR_DRIVER_FN_mem_free, &device));
    soft_reservation *reservation = find_plain(ptr);
    if (reservation == NULL) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    ashlar__soft_wait_device(reservation->plain_device, 0);
    reservation = find_plain(ptr); /* the lock was dropped: another thread may have freed it */
    if (reservation == NULL) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    ashlar__soft_unreserve(reservation);
    return ashlar__soft_leave(device->fault);
}

cu_result ashlar__soft_mem_host_alloc(void **ptr, size_t bytes, unsigned int flags) {
    soft_device *device;
    SOFT_TRY(enter_unsafe(ASHLAR_DRIVER_FN_mem_host_alloc, &device));
    if (ptr == NULL || bytes == 0 || flags > HOST_FLAGS_ALLOWED) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    soft_host_block *block = ashlar__host_calloc(1, sizeof *block);
    if (block == NULL) {
        return ashlar__soft_leave(CU_OUT_OF_MEMORY);
    }
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        ashlar__host_free(block);
        return ashlar__soft_leave(CU_OUT_OF_MEMORY);
    }
    block->range = (soft_range){(uintptr_t)memory, bytes};
    block->device = device;
    if (!ashlar__soft_ranges_insert(&ashlar__soft_state.host_blocks, &block->range)) {
        munmap(memory, bytes);
        ashlar__host_free(block);
        return ashlar__soft_leave(CU_OUT_OF_MEMORY);
    }
    *ptr = memory;
    return ashlar__soft_leave(CU_SUCCESS);
}

static void free_host_block(size_t idx) {
    ASHLAR_CHECK2(idx < ashlar__soft_state.host_blocks.count);
    soft_host_block *block = (soft_host_block *)ashlar__soft_state.host_blocks.items[idx];
    munmap((void *)block->range.base, block->range.bytes);
    ashlar__soft_ranges_remove(&ashlar__soft_state.host_blocks, idx, 1);
    ashlar__host_free(block);
}

/* Does not wait for queued work: a queued copy that still needs the block faults when it runs. CUDA
 * does not promise more. */
cu_result ashlar__soft_mem_free_host(void *ptr) {
    soft_device *device;
    SOFT_TRY(enter_unsafe(ASHLAR_DRIVER_FN_mem_free_host, &device));
    size_t idx;
    if (ashlar__soft_ranges_at(&ashlar__soft_state.host_blocks, (uintptr_t)ptr, &idx) == NULL) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    const soft_range *range = ashlar__soft_state.host_blocks.items[idx];
    ashlar__soft_strict_let_go(range->base, range->bytes);
    free_host_block(idx);
    return ashlar__soft_leave(CU_SUCCESS);
}

void ashlar__soft_alloc_reset(const soft_device *device) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    /* Backwards, since each step removes the item it looks at. */
    for (size_t i = ashlar__soft_state.reservations.count; i-- > 0;) {
        soft_reservation *item = (soft_reservation *)ashlar__soft_state.reservations.items[i];
        if (device == NULL || item->plain_device == device) {
            ashlar__soft_unreserve(item);
        }
    }
    for (size_t i = ashlar__soft_state.host_blocks.count; i-- > 0;) {
        const soft_host_block *item =
            (const soft_host_block *)ashlar__soft_state.host_blocks.items[i];
        if (device == NULL || item->device == device) {
            free_host_block(i);
        }
    }
}
