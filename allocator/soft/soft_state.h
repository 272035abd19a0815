/*
 * soft_state.h - the software device's state, and the functions that its files share (internal).
 *
 * Each file calls only those above it:
 *
 *   soft_config.c         the ASHLAR_SOFT line
 *   soft_state.c          the state
 *   soft_clock.c          vector clocks
 *   soft_index.c          handles, address ranges
 *   soft_pages.c          physical memory
 *   soft_memory.c         reservations and mappings
 *   soft_huge.c           huge pages of the host
 *   soft_oracle.c         clocks=on
 *   soft_time.c           time=on
 *   soft_strict.c         strict=on
 *   soft_calls.c          how each call begins and ends
 *   soft_context.c        contexts
 *   soft_choose.c         choosing what runs next, for tests that go through all orders
 *   soft_queue.c          queues: what runs next, and who waits for it
 *   soft_workers.c        mode=overlap: threads that run work beside the program
 *   soft_capture.c        graphs, stream capture
 *   soft_stream.c         streams
 *   soft_event.c          events
 *   soft_work.c           copies, fills, host functions
 *   soft_launch.c         launches of graphs; kernels: there are none
 *   soft_capture_calls.c  calls that begin and end captures
 *   soft_oracle_calls.c   calls with clocks=on
 *   soft_time_calls.c     calls with time=on
 *   soft_vmm.c            virtual memory management
 *   soft_alloc.c          plain and pinned memory
 *   soft_device.c         devices: set-up, tear-down, access to each other
 *   driver_soft.c         the driver table
 *
 * LOCK: ashlar__soft_state.lock guards the whole state. The caller of every function of these files
 * must hold the lock, unless the function's comment says otherwise. Functions of the driver table
 * take it in ashlar__soft_enter() and drop it in ashlar__soft_leave(); soft_queue.c drops it while
 * the body of an op runs.
 */
#ifndef ASHLAR_SOFT_STATE_H
#define ASHLAR_SOFT_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/status.h>

#include "allocator/base/compiler.h"
#include "allocator/base/lock.h"
#include "allocator/driver/driver.h"
#include "allocator/soft/soft_clock.h"
#include "allocator/soft/soft_config.h"
#include "allocator/soft/soft_graph.h"
#include "allocator/soft/soft_index.h"
#include "allocator/soft/soft_memory.h"
#include "allocator/soft/soft_oracle.h"
#include "allocator/soft/soft_queue.h"
#include "allocator/soft/soft_time.h"

/*
 * A device with its primary context. A further context of the device (cuCtxCreate, which only the
 * tests' libcuda has) is one more of these: streams, events and memory of cuMemAlloc are its own;
 * physical memory and mappings are those of the device `of`.
 */
struct soft_device {
    int ordinal;
    soft_device *of;       /* whose physical memory it uses: itself, unless a further context */
    soft_memory *overhead; /* what the context itself takes, while it exists; NULL: nothing */
    unsigned retains;      /* references to the primary context; 0: it does not exist */
    uintptr_t context;   /* its handle, while it exists */
    cu_result fault;     /* sticky, like a CUDA context after an illegal access */
    uint32_t peers;      /* bit i: this device may use memory of cuMemAlloc on device i */
    soft_stream *legacy; /* the default stream, always there */
    soft_clock ended[2]; /* clocks of its destroyed streams, [is_ordered] */
    uint64_t end_ns;     /* time=on: the latest end of work queued on it (soft_time.h) */
    uint64_t blocking_ns; /* the same for its blocking streams only, without the legacy one */
    uint64_t wait_count;  /* in-stream waits that moved a tail, ... */
    uint64_t wait_ns;     /* ... and by how much */
    int memory_fd;       /* a sparse file: all of the device's memory */
    size_t page_count;
    size_t pages_used;      /* number of 1 bits in page_bits */
    size_t pages_peak;      /* the most that pages_used has been */
    uint64_t *page_bits;    /* [page_count], 1: taken */
    size_t first_free_word; /* every word of page_bits before it is full */
};
_Static_assert(SOFT_DEVICES_MAX <= 32, "a set of devices is 32 bits");

typedef struct soft_state {
    ashlar_lock lock;
    pthread_cond_t op_finished;
    bool is_initialized; /* cuInit has been called; survives a new configuration */
    bool is_forked;      /* this process was forked after cuInit: it has no device */
    uint64_t generation; /* number of configurations so far; 0: there are no devices yet */
    soft_config config;
    uint64_t random;      /* state of the generator */
    uint64_t submitted;   /* number of the newest op; one sequence for all devices */
    uint64_t host_ns;     /* time=on: the latest clock of a thread */
    uint64_t host_wait_count; /* waits of a thread that moved its clock, ... */
    uint64_t host_wait_ns;    /* ... and by how much */
    uint64_t wait_count;   /* waits of the host, ... */
    uintptr_t gather_from; /* ... and where the next of them gathers pages; 0: nowhere */
    size_t running_count; /* op bodies that run now, with the lock dropped */
    soft_device devices[SOFT_DEVICES_MAX];
    soft_stream *first_stream; /* every stream, legacy ones included, oldest first */
    soft_stream *last_stream;
    soft_capture *captures; /* under way */
    soft_oracle oracle;
    soft_handles contexts; /* items: soft_device, while it has a primary context */
    soft_handles streams;  /* soft_stream, except legacy streams and lanes of graphs */
    soft_handles events;
    soft_handles memories;    /* soft_memory */
    soft_handles graphs;      /* soft_graph */
    soft_handles execs;       /* executable graphs */
    soft_ranges reservations; /* soft_reservation */
    soft_ranges blocks;       /* what cuMemAlloc has given out, soft_range, to the byte */
    soft_ranges host_blocks;  /* pinned host memory, soft_host_block */
} soft_state;

extern soft_state ashlar__soft_state;

/* [fn]: a copy of config.latency_ns that calls can read without the lock. */
extern _Atomic uint32_t ashlar__soft_latency_ns[ASHLAR_DRIVER_FN_COUNT];

/* True while this thread runs a host function, where CUDA forbids every call to the device. */
extern _Thread_local bool ashlar__soft_in_host_fn;

/* The call of the driver table that this thread is in, or was in last. ASHLAR_DRIVER_FN_COUNT: a
 * function of soft.h. */
extern _Thread_local ashlar_driver_fn ashlar__soft_call;

/* Make the call; if its result is not CU_SUCCESS, return that result from the enclosing function,
 * which must have nothing to undo: it has not entered a call of the table yet. */
#define SOFT_TRY(call)                    \
    do {                                  \
        const cu_result result_ = (call); \
        if (result_ != CU_SUCCESS) {      \
            return result_;               \
        }                                 \
    } while (0)

/*
 * Begin a call of the driver table: take the lock, and fail unless cuInit has been called and the
 * caller is not a host function. On failure the lock is not held, and the call must return the
 * result. `fn` is the call, or ASHLAR_DRIVER_FN_COUNT for one of soft.h.
 *   enter          checks nothing more
 *   enter_context  needs a current context, sets *device to its device, and fails if the device has
 *                  a sticky fault
 *   enter_vmm      needs virtual memory management, and no capture that forbids unsafe calls
 *   enter_stream   like enter_context, and finds the stream that the caller's handle means
 *   enter_work     like enter_stream, for a call that queues work on the stream
 * ashlar__soft_leave() drops the lock and returns `result`.
 */
cu_result ashlar__soft_enter(ashlar_driver_fn fn);
cu_result ashlar__soft_enter_context(ashlar_driver_fn fn, soft_device **device);
cu_result ashlar__soft_enter_vmm(ashlar_driver_fn fn);
cu_result ashlar__soft_enter_stream(ashlar_driver_fn fn, cu_stream handle, soft_stream **stream);
cu_result ashlar__soft_enter_work(ashlar_driver_fn fn, cu_stream handle, soft_stream **stream);
cu_result ashlar__soft_leave(cu_result result);

/* Set up the devices from the environment, unless there are devices already. Lock: not held. */
ASHLAR_MUST_CHECK ashlar_status ashlar__soft_ensure(void);

/* NULL: no such device. */
soft_device *ashlar__soft_device_at(cu_device ordinal);

/* The device that a context belongs to; NULL: no such context. */
soft_device *ashlar__soft_context_find(cu_context context);

/* Destroy all that belongs to a context. Its work must be over. */
void ashlar__soft_context_reset(soft_device *context);

/* ---- strict=on: what CUDA leaves undefined ends the process (soft_strict.c) ---- */

/* The call asks for something that CUDA leaves undefined. With strict=on: print one line, which
 * begins with the name of the call, and end the process. Else return `result`. Lock: not needed. */
cu_result ashlar__soft_undefined(cu_result result, const char *format, ...) ASHLAR_PRINTF(2, 3);

/* The same, for a handle that should be of `kind` and names nothing. */
cu_result ashlar__soft_undefined_handle(cu_result result, const soft_handles *handles,
                                        soft_kind kind, uintptr_t handle);

/* The memory at these addresses is about to be unmapped or freed. That is undefined if work that
 * may still run is known to use it: a copy or a fill that has not run or, by the virtual clock, not
 * ended; and with clocks=on each use that the host has not seen finished. */
void ashlar__soft_strict_let_go(uintptr_t base, size_t bytes);

/* ---- the functions of the table, ashlar__soft_mem_create() and so on; each takes the lock ---- */

#define X(field, symbol, version, kind, safety, params) cu_result ashlar__soft_##field params;
ASHLAR_DRIVER_MAP(X)
#undef X

#endif /* ASHLAR_SOFT_STATE_H */
