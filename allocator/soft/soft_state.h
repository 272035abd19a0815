/*
 * soft_state.h - the software device's state, and what its files share (internal).
 *
 *   soft_calls.c    the state, begin and end of calls
 *   soft_config.c   the ASHLAR_SOFT line              soft_index.c    handles, address ranges
 *   soft_device.c   devices, set-up                   soft_context.c  contexts
 *   soft_pages.c    physical memory                   soft_memory.c   reservations and mappings
 *   soft_vmm.c      virtual memory management
 *   soft_alloc.c    plain and pinned memory           soft_peer.c     access to other devices
 *   soft_queue.c    the scheduler                     soft_stream.c   streams
 *   soft_work.c     copies, fills, host functions     soft_event.c    events
 *   soft_capture.c  stream capture, whose calls are in soft_capture_calls.c
 *   soft_graph.c    graphs
 *   soft_launch.c   launches of graphs                soft_clock.c    vector clocks
 *   soft_oracle.c   clocks=on, whose calls are in soft_oracle_calls.c
 *   soft_module.c   kernels: there are none
 *   driver_soft.c   the driver table
 *
 * LOCK: one mutex, ashlar__soft_state.lock, guards all of it. Every function of these files
 * expects it held unless its header says otherwise. Functions of the table take it in
 * ashlar__soft_enter() and drop it in ashlar__soft_leave(); the scheduler drops it while the body
 * of an op runs.
 */
#ifndef ASHLAR_SOFT_STATE_H
#define ASHLAR_SOFT_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/status.h>

#include "allocator/base/lock.h"
#include "allocator/driver/driver.h"
#include "allocator/soft/soft_clock.h"
#include "allocator/soft/soft_config.h"
#include "allocator/soft/soft_graph.h"
#include "allocator/soft/soft_index.h"
#include "allocator/soft/soft_memory.h"
#include "allocator/soft/soft_oracle.h"
#include "allocator/soft/soft_queue.h"

struct soft_device {
    int ordinal;
    unsigned retains;    /* of the primary context; 0: it does not exist */
    uintptr_t context;   /* its handle, while it exists */
    cu_result fault;     /* sticky, like a CUDA context after an illegal access */
    uint32_t peers;      /* bit i: may use what cuMemAlloc gave to device i's context */
    soft_stream *legacy; /* the default stream, always there */
    soft_clock ended[2]; /* clocks of its destroyed streams, [is_ordered] */
    int memory_fd;       /* all of its memory, sparse */
    size_t page_count;
    size_t pages_used;      /* number of 1 bits in page_bits */
    uint64_t *page_bits;    /* [page_count], 1: taken */
    size_t first_free_word; /* every word of page_bits before it is full */
};
_Static_assert(SOFT_DEVICES_MAX <= 32, "a set of devices is 32 bits");

typedef struct soft_state {
    ashlar_lock lock;
    pthread_cond_t op_finished;
    bool is_initialized; /* cuInit has been called; survives a new configuration */
    bool is_forked;      /* a child of a process that had it called: no device here */
    uint64_t generation; /* configurations so far; 0: there are no devices yet */
    soft_config config;
    uint64_t random;      /* state of the generator */
    uint64_t submitted;   /* number of the newest op; one sequence for all devices */
    size_t running_count; /* op bodies that run now, with the lock dropped */
    soft_device devices[SOFT_DEVICES_MAX];
    soft_stream *first_stream; /* every stream, legacy ones included, oldest first */
    soft_stream *last_stream;
    soft_capture *captures; /* under way */
    soft_oracle oracle;
    soft_handles contexts; /* soft_device, while it has a primary context */
    soft_handles streams;  /* soft_stream; not the legacy ones, nor lanes of graphs */
    soft_handles events;
    soft_handles memories;    /* soft_memory */
    soft_handles graphs;      /* soft_graph */
    soft_handles execs;       /* executable graphs */
    soft_ranges reservations; /* soft_reservation */
    soft_ranges host_blocks;  /* pinned host memory, soft_host_block */
} soft_state;

extern soft_state ashlar__soft_state;

/* The configuration's, where every call of the table reads them without the lock. */
extern _Atomic uint32_t ashlar__soft_latency_ns[ASHLAR_DRIVER_FN_COUNT];

/* True while this thread runs a host function, where CUDA forbids every call to the device. */
extern _Thread_local bool ashlar__soft_in_host_fn;

/*
 * Begin a call of the table: take the lock and check what every call checks first. On failure
 * the lock is not held and the result is the call's.
 *   enter          nothing more
 *   enter_context  wants a current context, writes its device, reports the device's sticky fault
 *   enter_vmm      wants virtual memory management, for a call that is unsafe while capturing
 *   enter_stream   as enter_context, for a call on the stream that the caller means
 *   enter_work     as enter_stream, for a call that queues work there
 * ashlar__soft_leave() drops the lock and passes `result` through.
 */
cu_result ashlar__soft_enter(void);
cu_result ashlar__soft_enter_context(soft_device **device);
cu_result ashlar__soft_enter_vmm(void);
cu_result ashlar__soft_enter_stream(cu_stream handle, soft_stream **stream);
cu_result ashlar__soft_enter_work(cu_stream handle, soft_stream **stream);
cu_result ashlar__soft_leave(cu_result result);

/* Set the devices up from the environment, unless they have been set up. Lock: not held. */
ASHLAR_MUST_CHECK ashlar_status ashlar__soft_ensure(void);

/* NULL: no such device. */
soft_device *ashlar__soft_device_at(cu_device ordinal);

/* The device whose context this is, or NULL; the calling thread's current one, or NULL. */
soft_device *ashlar__soft_context_find(cu_context context);
soft_device *ashlar__soft_context_current(void);

/* ---- the functions of the table, ashlar__soft_mem_create() and so on; each takes the lock ---- */

#define X(field, symbol, version, kind, params) cu_result ashlar__soft_##field params;
ASHLAR_DRIVER_MAP(X)
#undef X

#endif /* ASHLAR_SOFT_STATE_H */
