/* soft_memory.c - the device address space: what is reserved, what is mapped there. */
#include "allocator/soft/soft_state.h"

#include <sys/mman.h>

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/host.h"

enum { RESERVE_FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE };

/* A device address is a host address, so that host functions can work on device memory in place. */
static void *as_pointer(uintptr_t address) {
    return (void *)address;
}

/* Reserve addresses, with no memory behind them. Returns the first; 0 on failure. `align` is a
 * power of two >= SOFT_PAGE_BYTES. */
static uintptr_t reserve_addresses(size_t bytes, size_t align, uintptr_t hint) {
    ASHLAR_CHECK2(align >= SOFT_PAGE_BYTES && (align & (align - 1)) == 0);
    if (hint != 0 && hint % align == 0) {
        void *wanted =
            mmap(as_pointer(hint), bytes, PROT_NONE, RESERVE_FLAGS | MAP_FIXED_NOREPLACE, -1, 0);
        if (wanted != MAP_FAILED) {
            return (uintptr_t)wanted;
        }
    }
    size_t padded;
    if (!ashlar__add(bytes, align, &padded)) {
        return 0;
    }
    void *start = mmap(NULL, padded, PROT_NONE, RESERVE_FLAGS, -1, 0);
    if (start == MAP_FAILED) {
        return 0;
    }
    const uintptr_t low = (uintptr_t)start;
    const uintptr_t base = (low + align - 1) & ~(uintptr_t)(align - 1);
    if (base > low) {
        munmap(start, base - low);
    }
    if (low + padded > base + bytes) {
        munmap(as_pointer(base + bytes), low + padded - base - bytes);
    }
    return base;
}

cu_result ashlar__soft_reserve(size_t bytes, size_t align, uintptr_t hint, soft_reservation **out) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    soft_reservation *reservation = ashlar__host_calloc(1, sizeof *reservation);
    if (reservation == NULL) {
        return CU_OUT_OF_MEMORY;
    }
    const uintptr_t base = reserve_addresses(bytes, align, hint);
    if (base == 0) {
        ashlar__host_free(reservation);
        return CU_OUT_OF_MEMORY;
    }
    ASHLAR_CHECK2(base % align == 0);
    reservation->range = (soft_range){base, bytes};
    if (!ashlar__soft_ranges_insert(&ashlar__soft_state.reservations, &reservation->range)) {
        munmap(as_pointer(base), bytes);
        ashlar__host_free(reservation);
        return CU_OUT_OF_MEMORY;
    }
    *out = reservation;
    return CU_SUCCESS;
}

static void forget_mappings(soft_reservation *reservation, size_t first, size_t count) {
    for (size_t i = first; i < first + count; i++) {
        soft_mapping *mapping = soft_mapping_at(reservation, i);
        ASHLAR_CHECK2(mapping->memory->user_count > 0);
        ashlar__soft_memory_drop(mapping->memory);
        ashlar__host_free(mapping);
    }
    ashlar__soft_ranges_remove(&reservation->mappings, first, count);
}

void ashlar__soft_unreserve(soft_reservation *reservation) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    size_t idx;
    const soft_reservation *found =
        ashlar__soft_ranges_at(&ashlar__soft_state.reservations, reservation->range.base, &idx);
    ASHLAR_ASSERT(found == reservation);
    /* Unmap first: no page may be given to another user while it can still be reached here. */
    munmap(as_pointer(found->range.base), found->range.bytes);
    forget_mappings(reservation, 0, reservation->mappings.count);
    ashlar__soft_ranges_clear(&reservation->mappings);
    ashlar__soft_ranges_remove(&ashlar__soft_state.reservations, idx, 1);
    ashlar__host_free(reservation);
}

static bool hide(uintptr_t base, size_t bytes) {
    return mmap(as_pointer(base), bytes, PROT_NONE, RESERVE_FLAGS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

/* Map the memory's pages at `base`, with one call for pages that are neighbours in the file. */
static bool show(uintptr_t base, size_t bytes, const soft_memory *memory) {
    const size_t page_count = bytes / SOFT_PAGE_BYTES;
    for (size_t i = 0, run; i < page_count; i += run) {
        run = 1;
        while (i + run < page_count && memory->pages[i + run] == memory->pages[i] + run) {
            run++;
        }
        void *at = as_pointer(base + i * SOFT_PAGE_BYTES);
        const off_t offset = (off_t)((size_t)memory->pages[i] * SOFT_PAGE_BYTES);
        if (mmap(at, run * SOFT_PAGE_BYTES, PROT_NONE, MAP_SHARED | MAP_FIXED,
                 memory->device->memory_fd, offset) == MAP_FAILED) {
            return false;
        }
    }
    return true;
}

cu_result ashlar__soft_map(soft_reservation *reservation, uintptr_t base, size_t bytes,
                           soft_memory *memory) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    ASHLAR_CHECK2(base >= reservation->range.base &&
                  bytes <= reservation->range.base + reservation->range.bytes - base);
    ASHLAR_CHECK2(bytes % SOFT_PAGE_BYTES == 0 && bytes / SOFT_PAGE_BYTES <= memory->page_count);
    ASHLAR_CHECK2(memory->user_count > 0);
    soft_mapping *mapping = ashlar__host_calloc(1, sizeof *mapping);
    if (mapping == NULL) {
        return CU_OUT_OF_MEMORY;
    }
    mapping->range = (soft_range){base, bytes};
    mapping->memory = memory;
    if (!ashlar__soft_ranges_insert(&reservation->mappings, &mapping->range)) {
        ashlar__host_free(mapping);
        return CU_OUT_OF_MEMORY;
    }
    memory->user_count++;
    if (!show(base, bytes, memory)) { /* the process has no memory areas left */
        (void)hide(base, bytes);
        forget_mappings(reservation, ashlar__soft_ranges_find(&reservation->mappings, base), 1);
        return CU_OUT_OF_MEMORY;
    }
    return CU_SUCCESS;
}

/* The bytes that `count` > 0 contiguous mappings cover, from index `first` on; *base is their first
 * address. */
static size_t mapped_bytes(const soft_reservation *reservation, size_t first, size_t count,
                           uintptr_t *base) {
    ASHLAR_CHECK2(count > 0 && first + count <= reservation->mappings.count);
    const soft_mapping *last = soft_mapping_at(reservation, first + count - 1);
    *base = soft_mapping_at(reservation, first)->range.base;
    ASHLAR_CHECK2(last->range.base - *base >= (count - 1) * SOFT_PAGE_BYTES);
    return last->range.base + last->range.bytes - *base;
}

cu_result ashlar__soft_allow(soft_reservation *reservation, size_t first, size_t count,
                             uint32_t devices) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    ASHLAR_CHECK2(devices != 0);
    uintptr_t base;
    const size_t bytes = mapped_bytes(reservation, first, count, &base);
    if (mprotect(as_pointer(base), bytes, PROT_READ | PROT_WRITE) != 0) {
        return CU_OUT_OF_MEMORY;
    }
    for (size_t i = first; i < first + count; i++) {
        soft_mapping_at(reservation, i)->access |= devices;
    }
    return CU_SUCCESS;
}

cu_result ashlar__soft_unmap(soft_reservation *reservation, size_t first, size_t count) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    uintptr_t base;
    const size_t bytes = mapped_bytes(reservation, first, count, &base);
    if (!hide(base, bytes)) {
        return CU_OUT_OF_MEMORY;
    }
    forget_mappings(reservation, first, count);
    return CU_SUCCESS;
}

/* Whether every byte is in a mapping that one of `devices` (bit i: device i) may use. */
static bool is_covered(const soft_reservation *reservation, uintptr_t base, uintptr_t end,
                       uint32_t devices) {
    const size_t first = ashlar__soft_ranges_find(&reservation->mappings, base);
    for (size_t i = first; base < end; i++) {
        if (i == reservation->mappings.count) {
            return false;
        }
        const soft_mapping *mapping = soft_mapping_at(reservation, i);
        if (mapping->range.base > base || (mapping->access & devices) == 0) {
            return false;
        }
        base = mapping->range.base + mapping->range.bytes;
    }
    return true;
}

bool ashlar__soft_is_accessible(uintptr_t base, size_t bytes) {
    const soft_reservation *reservation =
        ashlar__soft_ranges_over(&ashlar__soft_state.reservations, base, bytes);
    return reservation != NULL && is_covered(reservation, base, base + bytes, UINT32_MAX);
}

bool ashlar__soft_may_access(const soft_device *device, uintptr_t base, size_t bytes) {
    ASHLAR_OWNS(&ashlar__soft_state.lock);
    const soft_reservation *reservation =
        ashlar__soft_ranges_over(&ashlar__soft_state.reservations, base, bytes);
    if (reservation == NULL) {
        return false;
    }
    uint32_t devices = (uint32_t)1 << device->ordinal;
    if (reservation->plain_device != NULL) { /* its mapping names the owner alone */
        devices |= device->peers;
    }
    return is_covered(reservation, base, base + bytes, devices);
}
