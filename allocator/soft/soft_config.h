/*
 * soft_config.h - the ASHLAR_SOFT line as a struct (internal to the software device).
 */
#ifndef ASHLAR_SOFT_CONFIG_H
#define ASHLAR_SOFT_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/status.h>

#include "allocator/driver/driver.h"

enum { SOFT_DEVICES_MAX = 16 };
#define SOFT_PAGE_BYTES ((size_t)2 << 20) /* the granularity of physical memory */

typedef enum soft_mode { SOFT_EAGER, SOFT_ADVERSARIAL, SOFT_OVERLAP } soft_mode;
typedef enum soft_recycle { SOFT_RECYCLE_ON, SOFT_RECYCLE_OFF, SOFT_RECYCLE_UNSAID } soft_recycle;

/* How memory can be shared with other processes: not at all; by file descriptors; or by these and
 * with network cards, while fabric handles are promised but not permitted (share= in soft.h). */
typedef enum soft_sharing {
    SOFT_SHARING_NONE,
    SOFT_SHARING_FILE,
    SOFT_SHARING_FABRIC
} soft_sharing;

typedef struct soft_config {
    int device_count;    /* 1 .. SOFT_DEVICES_MAX */
    size_t memory_bytes; /* of each device; a multiple of SOFT_PAGE_BYTES */
    soft_mode mode;
    uint64_t seed;
    bool has_peers;  /* each device can be given access to the others' memory */
    bool has_vmm;    /* virtual memory management */
    bool has_batch;  /* batched copies */
    soft_sharing sharing;
    bool has_clocks; /* soft_oracle.c records the order of work */
    bool is_untouched; /* copies and fills move no bytes */
    bool has_waits;    /* calls that may wait, by CUDA's rules, do wait */
    bool is_strict;    /* undefined behaviour ends the process (soft_strict.c) */
    size_t overhead_bytes; /* of each context; in tests also each module and graph; whole pages */
    soft_recycle recycle;  /* ON: a new item gets the handle that was freed last */
    bool has_time;        /* soft_time.c dates calls and work */
    bool has_costs;       /* copies, fills and host functions take time on the virtual clock */
    uint32_t latency_ns[ASHLAR_DRIVER_FN_COUNT]; /* [fn]: added to each call; at most 10^9 */
    uint32_t cost_ns[ASHLAR_DRIVER_FN_COUNT];    /* [fn]: of each call on the virtual clock */
} soft_config;

/* Read a line in the format of soft.h, after the line in ASHLAR_SOFT_DEFAULTS. Errors:
 * ASHLAR_EINVAL; the detail names ASHLAR_SOFT, the key, the value and the remedy. Lock: not
 * needed. */
ASHLAR_MUST_CHECK ashlar_status ashlar__soft_parse(const char *spec, soft_config *out);

#endif /* ASHLAR_SOFT_CONFIG_H */
