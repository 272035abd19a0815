/*
 * soft_memory.h - memory: pages, the ranges they are mapped in, who may use them (internal).
 */
#ifndef ASHLAR_SOFT_MEMORY_H
#define ASHLAR_SOFT_MEMORY_H

#include "allocator/soft/soft_config.h"
#include "allocator/soft/soft_index.h"

typedef struct soft_device soft_device;

/* ---- physical memory (soft_pages.c) ---- */

/* Pages that belong together: what cuMemCreate makes. Freed, and its pages with it, at 0 users. */
typedef struct soft_memory {
    soft_device *device;
    size_t user_count; /* 1 while its handle lives, and 1 for each mapping */
    size_t page_count;
    uint32_t pages[]; /* indexes into the device's memory; in general not contiguous */
} soft_memory;

/* Lock: not needed; `device` is not shared yet, or no longer. */
ASHLAR_MUST_CHECK ashlar_status ashlar__soft_pages_init(soft_device *device, size_t bytes);
void ashlar__soft_pages_finish(soft_device *device);

/* `bytes` > 0, a multiple of SOFT_PAGE_BYTES. One user: the caller. */
cu_result ashlar__soft_memory_create(soft_device *device, size_t bytes, soft_memory **out);
void ashlar__soft_memory_drop(soft_memory *memory);

/* ---- reservations and mappings (soft_memory.c) ---- */

typedef struct soft_mapping {
    soft_range range;
    soft_memory *memory; /* is used from its first page on */
    uint32_t access;     /* bit i: device i may use it */
} soft_mapping;

typedef struct soft_reservation {
    soft_range range;
    soft_ranges mappings;      /* soft_mapping */
    soft_device *plain_device; /* of a cuMemAlloc allocation; else NULL */
} soft_reservation;

static inline soft_mapping *soft_mapping_at(const soft_reservation *reservation, size_t idx) {
    return (soft_mapping *)reservation->mappings.items[idx];
}

cu_result ashlar__soft_reserve(size_t bytes, size_t align, uintptr_t hint, soft_reservation **out);
/* Unmap whatever is mapped, and give the addresses back. */
void ashlar__soft_unreserve(soft_reservation *reservation);
/* Map the first `bytes` of `memory`, inaccessible; the mapping becomes one of its users. */
cu_result ashlar__soft_map(soft_reservation *reservation, uintptr_t base, size_t bytes,
                           soft_memory *memory);
/* Unmap `count` mappings, contiguous from the `first` on. */
cu_result ashlar__soft_unmap(soft_reservation *reservation, size_t first, size_t count);
/* Make `count` mappings, contiguous from the `first` on, accessible to `devices` (bits) too. */
cu_result ashlar__soft_allow(soft_reservation *reservation, size_t first, size_t count,
                             uint32_t devices);
/* Every byte is mapped, and some device may use it. */
bool ashlar__soft_is_accessible(uintptr_t base, size_t bytes);
/* Every byte is mapped, and this device may use it. */
bool ashlar__soft_may_access(const soft_device *device, uintptr_t base, size_t bytes);

/* ---- plain and pinned memory (soft_alloc.c) ---- */

typedef struct soft_host_block {
    soft_range range;
    soft_device *device; /* whose context it was allocated in */
} soft_host_block;

/* Free every plain allocation and pinned block of a device; NULL: of all, and every reservation
 * with what is mapped there. */
void ashlar__soft_alloc_reset(const soft_device *device);

/* ---- access to other devices (soft_peer.c) ---- */

/* The device's context is released: who was given access to it loses that. */
void ashlar__soft_peer_reset(const soft_device *device);

#endif /* ASHLAR_SOFT_MEMORY_H */
