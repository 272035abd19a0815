/*
 * soft_memory.h - the software device's memory: pages, the address ranges that they are mapped to,
 * and which devices may use them (internal).
 */
#ifndef ASHLAR_SOFT_MEMORY_H
#define ASHLAR_SOFT_MEMORY_H

#include "allocator/soft/soft_config.h"
#include "allocator/soft/soft_index.h"

typedef struct soft_device soft_device;

/* ---- physical memory (soft_pages.c) ---- */

/* The pages of one cuMemCreate. The struct and its pages are freed at 0 users. */
typedef struct soft_memory {
    soft_device *device;
    size_t user_count; /* 1 while its handle lives, and 1 for each mapping */
    unsigned int handle_types; /* CU_HANDLE_...: for which it was made */
    bool is_foreign;           /* of another process (CUDA IPC, in tests): `pages` is empty */
    size_t page_count;
    uint32_t pages[]; /* indexes into the device's memory; in general not contiguous */
} soft_memory;

/* Lock: not needed, but no other thread may know `device`. */
ASHLAR_MUST_CHECK ashlar_status ashlar__soft_pages_init(soft_device *device, size_t bytes);
void ashlar__soft_pages_finish(soft_device *device);

/* Take pages of `bytes` bytes in all, > 0 and a multiple of SOFT_PAGE_BYTES. *out has one user, the
 * caller, who drops it with ashlar__soft_memory_drop(). */
cu_result ashlar__soft_memory_create(soft_device *device, size_t bytes, soft_memory **out);
void ashlar__soft_memory_drop(soft_memory *memory);
/* Take the memory that a context needs for itself; *out is NULL with overhead=0B. */
cu_result ashlar__soft_overhead_take(soft_device *device, soft_memory **out);

/* ---- reservations and mappings (soft_memory.c) ---- */

typedef struct soft_mapping {
    uintptr_t base;
    size_t bytes;
    soft_memory *memory; /* its first page lies at base */
    uint32_t access;     /* bit i: device i may use the mapping */
    uint64_t busy_ns;    /* strict=on and time=on: when the last copy or fill queued here ends */
} soft_mapping;

typedef struct soft_reservation {
    soft_range range;     /* whole pages */
    soft_mapping **pages; /* [range.bytes / SOFT_PAGE_BYTES]: the mapping there, or NULL */
    size_t mapping_count;
    soft_device *plain_device; /* whose blocks of cuMemAlloc lie here, and nothing else; or NULL */
    size_t gap_bytes;          /* no gap between these blocks is larger; 0: for one block alone */
} soft_reservation;

/* The mapping that holds this address of the reservation; NULL: none. */
static inline soft_mapping *soft_mapping_at(const soft_reservation *reservation,
                                            uintptr_t address) {
    return reservation->pages[(address - reservation->range.base) / SOFT_PAGE_BYTES];
}

cu_result ashlar__soft_reserve(size_t bytes, size_t align, uintptr_t hint, soft_reservation **out);
/* Unmap whatever is mapped, and give the addresses back. */
void ashlar__soft_unreserve(soft_reservation *reservation);
/*
 * Map the first `bytes` bytes of `memory` at `base`, where nothing may be mapped. No device may use
 * the mapping yet. The mapping is one more user of `memory`.
 *
 * Errors of this and the next two: CU_OPERATING_SYSTEM: the kernel allows the process no more
 * mappings (vm.max_map_count). Pages that are neighbours both in the memory file and in address
 * count as one of these. CU_OUT_OF_MEMORY: no host memory.
 */
cu_result ashlar__soft_map(soft_reservation *reservation, uintptr_t base, size_t bytes,
                           soft_memory *memory);
/* Unmap these bytes, which are whole mappings. */
cu_result ashlar__soft_unmap(soft_reservation *reservation, uintptr_t base, size_t bytes);
/* Let `devices` (bit i: device i) use these bytes too, which are whole mappings. */
cu_result ashlar__soft_allow(soft_reservation *reservation, uintptr_t base, size_t bytes,
                             uint32_t devices);
/* _mark_busy: note that queued work uses the memory mapped in these bytes until `ns`. _busy_ns: the
 * latest time noted for any of them. */
void ashlar__soft_mark_busy(uintptr_t base, size_t bytes, uint64_t ns);
uint64_t ashlar__soft_busy_ns(uintptr_t base, size_t bytes);
/* Whether every byte is mapped and some device may use it. Memory of cuMemAlloc must be one
 * block's. For tests. Lock: not needed. */
bool ashlar__soft_is_accessible(uintptr_t base, size_t bytes);
/* The same for this device. */
bool ashlar__soft_may_access(const soft_device *device, uintptr_t base, size_t bytes);

/* ---- huge pages (soft_huge.c) ---- */

/* Called by each call in which the host has waited for a device: now and then, let the kernel put
 * huge pages behind the memory that is in use. */
void ashlar__soft_gather(void);

/* ---- plain and pinned memory (soft_alloc.c) ---- */

typedef struct soft_host_block {
    soft_range range;
    soft_device *device; /* the device in whose context it was allocated */
} soft_host_block;

/* Give out a block at these addresses, which have a plain_device. False: no host memory. */
ASHLAR_MUST_CHECK bool ashlar__soft_block_put(uintptr_t base, size_t bytes);
/* Take block `idx` back, and with the last block of a reservation that, too. */
void ashlar__soft_block_drop(size_t idx);
/* Free every plain allocation and pinned block of `device`. NULL: free those of all devices, and
 * every other reservation with its mappings. */
void ashlar__soft_alloc_reset(const soft_device *device);

/* ---- access to other devices (soft_device.c) ---- */

/* Take back other devices' access to the plain memory of `device`, whose context is released. */
void ashlar__soft_peer_reset(const soft_device *device);

#endif /* ASHLAR_SOFT_MEMORY_H */
