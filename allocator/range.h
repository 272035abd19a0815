/*
 * range.h - one reserved range of device addresses, physical memory mapped into it from the
 * bottom up (internal).
 *
 * Invariants:
 *   mapped_bytes == sum of the handles' bytes, a multiple of granularity
 *   [base, base + mapped_bytes) is mapped and accessible; above it nothing is
 */
#ifndef ASHLAR_RANGE_H
#define ASHLAR_RANGE_H

#include "device_impl.h"
#include "trace_ring.h"

/* The driver as one allocator sees it: every call counted twice, for the process and for it. */
typedef struct ashlar_caller {
    ashlar_device *device; /* const */
    ashlar_trace *trace;   /* const; told of what is mapped and unmapped; NULL: none is kept */
    uint64_t calls;        /* Lock: the allocator's */
} ashlar_caller;

#define ASHLAR_CALL(caller, field, args) \
    ((caller)->calls++, ASHLAR_DRIVER_CALL((caller)->device->driver, field, args))

typedef struct ashlar_mapping {
    cu_mem_handle handle;
    size_t bytes;
} ashlar_mapping;

/* Lock: the allocator's guards every field except those marked const. */
typedef struct ashlar_range {
    ashlar_caller *caller;    /* const */
    cu_ptr base;              /* const */
    size_t bytes;             /* const; reserved addresses */
    size_t granularity;       /* const; of physical memory */
    size_t device_bytes;      /* const; physical memory of the device */
    size_t mapped_bytes;
    ashlar_mapping *mappings; /* in address order */
    size_t mapping_count;
    size_t mapping_capacity;
} ashlar_range;

/* Reserve addresses, several times the device's memory. Errors: as ashlar_allocator_create(). */
ASHLAR_MUST_CHECK ashlar_status ashlar_range_init(ashlar_range *range, ashlar_caller *caller);

/* Unmap and return everything. The device must be done with it. */
void ashlar_range_finish(ashlar_range *range);

/*
 * Map at least `bytes` more at the top; *grown says how many it were. All or nothing.
 * Errors: ASHLAR_ENOMEM (the device or the range is full), ASHLAR_EDRIVER, ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar_range_grow(ashlar_range *range, size_t bytes,
                                                  size_t *grown);

#endif /* ASHLAR_RANGE_H */
