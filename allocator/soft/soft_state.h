/*
 * soft_state.h - the software device's structures and state, and the functions that its files share
 * (internal). From soft_config.c, soft_index.c, soft_memory.c, soft_trace.c, soft_time.c,
 * soft_call.c, soft_queue.c, soft_capture.c, soft_stream.c, soft_work.c, soft_graph.c, soft_vmm.c
 * and soft_alloc.c to soft_device.c, each file calls only those before it.
 *
 * LOCK: ashlar__soft_state.lock guards the whole state. The caller of every function of these files
 * must hold the lock, unless the function's comment says otherwise. Functions of the driver table
 * take it in ashlar__soft_enter() and drop it in ashlar__soft_leave(); soft_queue.c drops it while
 * the body of an op runs.
 */
#ifndef ASHLAR_SOFT_STATE_H
#define ASHLAR_SOFT_STATE_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/base.h>

#include "allocator/base/check_level.h"
#include "allocator/base/compiler.h"
#include "allocator/base/threads.h"
#include "allocator/driver/driver.h"

typedef struct soft_device soft_device;
typedef struct soft_stream soft_stream;

enum { SOFT_DEVICES_MAX = 16 };
#define SOFT_PAGE_BYTES ((size_t)2 << 20) /* the granularity of physical memory */

/* ashlar__host_grow(), but returns the array; NULL: no host memory, and nothing has changed. */
void *ashlar__soft_grow(void *items, size_t count, size_t *capacity, size_t bytes);

/* ---- address ranges (soft_index.c) ---- */

/* Each struct that is found by address has this as its first member. */
typedef struct soft_range {
    uintptr_t base;
    size_t bytes; /* > 0; base + bytes does not wrap */
} soft_range;

/* Ranges that do not overlap, in address order. */
typedef struct soft_ranges {
    soft_range **items;
    size_t count;
    size_t capacity;
} soft_ranges;

/* Index of the first range that ends after `address`; count if there is none. */
size_t ashlar__soft_ranges_after(const soft_ranges *ranges, uintptr_t address);
/* The range that starts at `address`, with its index; NULL if none does. */
void *ashlar__soft_ranges_at(const soft_ranges *ranges, uintptr_t address, size_t *idx);
/* The range that holds all of [address, address + bytes), bytes > 0; NULL if none does. */
void *ashlar__soft_ranges_over(const soft_ranges *ranges, uintptr_t address, size_t bytes);
/* Whether a range holds any byte of [address, address + bytes). */
bool ashlar__soft_ranges_touch(const soft_ranges *ranges, uintptr_t address, size_t bytes);
/* Add a range, which may overlap none; it stays the caller's. False: no host memory. */
bool ashlar__soft_ranges_insert(soft_ranges *ranges, soft_range *item);
void ashlar__soft_ranges_remove(soft_ranges *ranges, size_t idx, size_t count);
void ashlar__soft_ranges_clear(soft_ranges *ranges); /* frees the array, not the items */

/* ---- vector clocks (soft_index.c) ---- */

/*
 * A set of ops that come before its owner, an op or a node of a graph. It maps serial numbers of
 * streams to numbers of ops: the entry {s: n} says that every op of stream s with a number up to n
 * comes before the owner. Captures use clocks, and tests, to prove that uses of memory are ordered.
 *   times[i].serial < times[i + 1].serial; count <= capacity; every number > 0
 */
typedef struct soft_clock {
    struct soft_time {
        uint64_t serial;
        uint64_t number;
    } * times;
    size_t count;
    size_t capacity;
} soft_clock;

/* Whether the clock has an entry {serial: n} with n >= number. Always true for number 0. */
bool ashlar__soft_clock_covers(const soft_clock *clock, uint64_t serial, uint64_t number);
bool ashlar__soft_clock_covers_all(const soft_clock *clock, const soft_clock *part);
/* _raise: raise the entry of stream `serial` to at least `number`. _join: raise each entry to at
 * least that of `other`. False: no host memory, and `clock` is unchanged. */
bool ashlar__soft_clock_raise(soft_clock *clock, uint64_t serial, uint64_t number);
bool ashlar__soft_clock_join(soft_clock *clock, const soft_clock *other);
void ashlar__soft_clock_clear(soft_clock *clock);

/* ---- the ASHLAR_SOFT line (soft_config.c) ---- */

typedef enum soft_mode { SOFT_EAGER, SOFT_ADVERSARIAL, SOFT_OVERLAP } soft_mode;
typedef enum soft_recycle { SOFT_RECYCLE_OFF, SOFT_RECYCLE_ON, SOFT_RECYCLE_UNSAID } soft_recycle;
/* The values of the keys that soft.h describes. */
typedef struct soft_config {
    int device_count;    /* 1 .. SOFT_DEVICES_MAX */
    size_t memory_bytes; /* of each device; a multiple of SOFT_PAGE_BYTES */
    soft_mode mode;
    uint64_t seed;
    size_t overhead_bytes; /* of each context; in tests also each module and graph; whole pages */
    soft_recycle recycle;  /* ON: a new item gets the handle that was freed last */
    bool has_peers;
    bool has_vmm;
    bool has_waits;
    bool is_strict;
    bool has_time;
    bool has_costs;
    bool has_touch;
    uint64_t launch_ns, kernel_ns;
    uint64_t copy_rate;   /* bytes in a microsecond; 0: unsaid */
    char trace[PATH_MAX]; /* "": none */
} soft_config;

/* Read a line in the format of soft.h, after the line in ASHLAR_SOFT_DEFAULTS. Errors:
 * ASHLAR_EINVAL; the detail names ASHLAR_SOFT, the key, the value and the remedy. Lock: not
 * needed. */
ASHLAR_MUST_CHECK ashlar_status ashlar__soft_parse(const char *spec, soft_config *out);

/* ---- physical memory, reservations and mappings (soft_memory.c) ---- */

/* Pages that were taken together, such as by one cuMemCreate; freed at 0 users. */
typedef struct soft_memory {
    soft_device *device;
    size_t user_count;         /* 1 for its handle or its context, and 1 for each mapping */
    unsigned int handle_types; /* CU_HANDLE_...: the kinds of handle it may be exported as */
    size_t page_count;
    uint32_t pages[]; /* indexes into the device's memory; in general not contiguous */
} soft_memory;

typedef struct soft_mapping {
    uintptr_t base;
    size_t bytes;
    soft_memory *memory; /* what is mapped: its first page lies at `base` */
    uint32_t access;     /* bit i: device i may use the mapping */
} soft_mapping;

typedef struct soft_reservation {
    soft_range range;     /* whole pages */
    soft_mapping **pages; /* [range.bytes / SOFT_PAGE_BYTES]: the mapping there, or NULL */
    size_t mapping_count;
    soft_device *plain_device; /* whose blocks of cuMemAlloc lie here, and nothing else; or NULL */
    size_t gap_bytes;          /* no gap between these blocks is larger; 0: no room for another */
} soft_reservation;

typedef struct soft_host_block {
    soft_range range;
    soft_device *device; /* the device in whose context it was allocated */
} soft_host_block;

/* The mapping that holds this address of the reservation; NULL: none. */
static inline soft_mapping *soft_mapping_at(const soft_reservation *reservation,
                                            uintptr_t address) {
    return reservation->pages[(address - reservation->range.base) / SOFT_PAGE_BYTES];
}

/* Make the memory of a device. Lock: not needed, if no other thread knows `device`. */
ASHLAR_MUST_CHECK ashlar_status ashlar__soft_pages_init(soft_device *device, size_t bytes);
void ashlar__soft_pages_finish(soft_device *device);

/* Take pages of `bytes` bytes in all, > 0 and a multiple of SOFT_PAGE_BYTES. *out has one user, the
 * caller, who drops it with ashlar__soft_memory_drop(). */
cu_result ashlar__soft_memory_create(soft_device *device, size_t bytes, soft_memory **out);
void ashlar__soft_memory_drop(soft_memory *memory); /* NULL is allowed */
/* Take the memory that a context needs for itself; *out is NULL with overhead=0B. */
cu_result ashlar__soft_overhead_take(soft_device *device, soft_memory **out);

cu_result ashlar__soft_reserve(size_t bytes, size_t align, uintptr_t hint, soft_reservation **out);
void ashlar__soft_unreserve(soft_reservation *reservation); /* with what is mapped there */
/*
 * map    the first `bytes` bytes of `memory` at `base`, where nothing may be mapped: one more user
 *        of `memory`. No device may use the mapping yet
 * unmap  these bytes, which are whole mappings
 * allow  `devices` (bit i: device i) to use these bytes, which are whole mappings, too
 *
 * Errors: CU_OPERATING_SYSTEM: the kernel allows the process no more mappings (vm.max_map_count).
 * Pages that are neighbours both in the memory file and in address count as one of these.
 * CU_OUT_OF_MEMORY: no host memory.
 */
cu_result ashlar__soft_map(soft_reservation *reservation, uintptr_t base, size_t bytes,
                           soft_memory *memory);
cu_result ashlar__soft_unmap(soft_reservation *reservation, uintptr_t base, size_t bytes);
cu_result ashlar__soft_allow(soft_reservation *reservation, uintptr_t base, size_t bytes,
                             uint32_t devices);
/* Whether every byte is mapped and some device may use it. Memory of cuMemAlloc must lie in one
 * block. Lock: not needed in tests. */
bool ashlar__soft_is_accessible(uintptr_t base, size_t bytes);
/* Whether every byte is mapped and `device` may use it; otherwise the same. Lock: held. */
bool ashlar__soft_may_access(const soft_device *device, uintptr_t base, size_t bytes);

/* ---- plain and pinned memory (soft_alloc.c) ---- */

/* Free every plain allocation and pinned block of `device`. NULL: free those of all devices, and
 * every other reservation with its mappings. */
void ashlar__soft_alloc_reset(const soft_device *device);

/* ---- queues (soft_queue.c) ---- */

/*
 * A completion point: cuEventRecord makes one, and waits for the event refer to it. Recording the
 * event again makes a new point, and so does not disturb waits for the old one.
 */
typedef struct soft_point {
    size_t user_count;
    bool is_done;
    soft_stream *stream; /* where its op is queued; once is_done, the stream may be gone */
    uint64_t number;     /* that of its op */
    soft_clock clock;    /* for tests (soft_hooks): its op, and all work that the op comes after */
    uint64_t time_ns;    /* time=on: when it is done */
} soft_point;

typedef enum soft_op_kind {
    SOFT_OP_HOST_FN,
    SOFT_OP_COPY,
    SOFT_OP_FILL,
    SOFT_OP_WORK, /* only tests queue it: does nothing, but takes virtual time */
    SOFT_OP_RECORD,
    SOFT_OP_WAIT
} soft_op_kind;

typedef enum soft_place { SOFT_PLACE_DEVICE, SOFT_PLACE_PINNED, SOFT_PLACE_PAGEABLE } soft_place;

typedef struct soft_operand {
    void *ptr;
    soft_place place;
    const soft_device *device; /* if place is DEVICE: the device that must have access */
} soft_operand;

/* One queued piece of work. A field with kinds in capitals is zero in ops of other kinds. */
typedef struct soft_op {
    struct soft_op *next;
    soft_op_kind kind;
    uint64_t number;    /* place in the order of submission */
    soft_point *point;  /* becomes done when this op has run; owned reference, or NULL */
    soft_point *awaits; /* WAIT: must be done before this op runs; owned reference, or NULL */
    cu_host_fn fn;      /* HOST_FN */
    void *user_data;
    const char *name; /* for traces, of static storage; NULL: none was given */
    soft_operand dst; /* COPY, FILL */
    soft_operand src; /* COPY */
    size_t bytes;
    uint64_t duration_ns; /* WORK */
    unsigned char value;  /* FILL */
} soft_op;

/*
 * A stream is a queue of ops. The head stays in the queue while it runs, so `head` is always the
 * oldest unfinished op. The order between streams:
 *   an op of the legacy stream runs after all ops of the device's blocking streams that have a
 *   smaller number; an op of a blocking stream runs after all ops of the legacy stream that have a
 *   smaller number; other streams (CU_STREAM_UNORDERED) take no part in this
 * Every op waits only for ops with smaller numbers, so there is no cycle, and the unfinished op
 * with the smallest number can always run.
 */
struct soft_stream {
    soft_stream *prev;
    soft_stream *next;
    soft_device *device;
    bool is_ordered;              /* takes part in the order with the legacy stream */
    bool is_busy;                 /* a thread is running its head now */
    bool is_destroyed;            /* no handle names it; freed when its queue is empty */
    uint64_t serial;              /* never reused, unlike the handle */
    uint64_t wanted;              /* the host waits for all ops up to this number */
    uint64_t spread;              /* what ops up to this number depend on is marked as wanted */
    soft_clock clock;             /* for tests: its newest op, and all work before that */
    struct soft_capture *capture; /* NULL: not capturing */
    soft_clock captured;          /* capturing: the nodes that the next node comes after */
    uint64_t tail_ns;             /* time=on: when all its work is over */
    soft_op *head;
    soft_op *tail;
};

/* Put a zeroed stream from ashlar__host_calloc() at the end of the list, which then owns it. */
void ashlar__soft_stream_join(soft_stream *stream, soft_device *device, bool is_ordered);
/* Take the stream, which must not be busy, out of the list; drop its work that has not run; free
 * it. */
void ashlar__soft_stream_delete(soft_stream *stream);

/* A new point with one user; NULL: no host memory. */
soft_point *ashlar__soft_point_new(void);
void ashlar__soft_point_drop(soft_point *point); /* NULL is allowed */

/*
 * Queue a copy of *model. Takes ownership of model->point and model->awaits, also on failure.
 * Errors: CU_OUT_OF_MEMORY.
 *   enqueue  no more than that
 *   submit   and, in eager mode, run all work that is ready. That may drop the lock for a while, so
 *            afterwards the caller must look everything up again
 */
cu_result ashlar__soft_enqueue(soft_stream *stream, const soft_op *model);
cu_result ashlar__soft_submit(soft_stream *stream, const soft_op *model);
/* In eager mode, run all work that is ready; in mode=overlap, let the threads do so. */
void ashlar__soft_run_ready(void);

/* Before a new configuration: let the threads of mode=overlap begin no more work, and wait for what
 * they run. */
void ashlar__soft_workers_halt(void);

/* Whether the operand's memory is there, and its device may use it. */
bool ashlar__soft_is_valid(const soft_operand *operand, size_t bytes);

/* Wait on the host until one of the points is done; the lock is dropped meanwhile. The caller must
 * hold a reference to each. */
void ashlar__soft_wait_points(soft_point *const *points, size_t count);
/* Wait on the host for all work queued so far on the device, destroyed streams included, or only on
 * the stream with this serial, if it is not 0. The lock is dropped meanwhile. */
void ashlar__soft_wait_device(const soft_device *device, uint64_t serial);
/* The host asks whether unfinished work is finished by now. In adversarial mode, run a ready op of
 * any stream now and then, so that polling ends. */
void ashlar__soft_poll(void);

/* ---- streams and events (soft_stream.c) ---- */

/* The software device's `wait_any` (driver.h). */
cu_result ashlar__soft_wait_any(const cu_event *events, size_t count);

/* Destroy every stream of the device except the legacy one. Queued work still runs. */
void ashlar__soft_stream_reset(const soft_device *device);
/* Destroy every event of `device`; NULL: those of all devices. */
void ashlar__soft_event_reset(const soft_device *device);

/* ---- stream capture (soft_capture.c) ---- */

/*
 * While a stream captures, the work queued on it does not run: it becomes nodes of a graph. A lane
 * is all nodes of a capture that one stream has queued; the stream's serial number names the lane.
 * A node's number is its place in the order of capture, from 1. The nodes that a node comes after
 * are a clock with entries {lane: number of a node}.
 *
 *   graph->nodes[i].op.number == i + 1
 *   node->after covers every node that `node` depends on, directly or not, and not `node` itself
 *   stream->captured covers every node that the next node of that stream will come after
 *   a capture may end once origin->captured covers the `captured` of each stream in the capture
 */
typedef struct soft_node {
    soft_op op;          /* owns nothing: its owned references are NULL */
    soft_device *device; /* that of the stream that was captured */
    uint64_t lane;
    soft_clock after; /* the nodes that this one comes after */
} soft_node;

typedef struct soft_graph {
    size_t user_count; /* 1 for its capture or handle, and 1 for each executable copy */
    uint64_t lane;     /* the lane of the stream on which the capture began */
    soft_node *nodes;
    size_t count;
    size_t capacity;
} soft_graph;

/* An executable graph. It shares the graph that it was made from, which no longer changes, since
 * its capture has ended. */
typedef struct soft_exec {
    soft_graph *graph;
    soft_point *last; /* the end of the newest launch, which the next launch waits for; or NULL */
} soft_exec;

typedef struct soft_capture {
    struct soft_capture *next;
    uint64_t id;         /* never used twice */
    uint64_t thread;     /* number of the thread that began the capture */
    unsigned int mode;   /* CU_CAPTURE_GLOBAL .. CU_CAPTURE_RELAXED */
    bool is_invalid;     /* a forbidden call has invalidated it: it can only be ended */
    soft_stream *origin; /* the stream on which the capture began and must end */
    soft_graph *graph;
} soft_capture;

/* The calling thread's mode, set by cuThreadExchangeStreamCaptureMode. It decides which captures
 * forbid the thread to make unsafe calls. At first CU_CAPTURE_GLOBAL. */
extern _Thread_local unsigned int ashlar__soft_capture_mode;

/* The capture with this id; NULL: it has ended. */
soft_capture *ashlar__soft_capture_find(uint64_t id);

/* Append a node made from *model, which owns nothing, to the lane of the capturing stream. */
cu_result ashlar__soft_capture_op(soft_stream *stream, const soft_op *model);

/* Have the next node of `stream` come after `captured`, the nodes of capture `id` that an event
 * stands for. A stream that is not capturing joins that capture. */
cu_result ashlar__soft_capture_join(soft_stream *stream, uint64_t id, const soft_clock *captured);

/* Invalidate the capture, unless it is NULL, and return `result`. */
cu_result ashlar__soft_capture_spoil(soft_capture *capture, cu_result result);

/* The stream is going away. A capture that began on it ends; any other is invalidated. */
void ashlar__soft_capture_leave(soft_stream *stream);

/* End every capture, and drop all graphs and executable copies that have handles. */
void ashlar__soft_capture_reset(void);

/*
 * Whether the calling thread may do this now. If not, the captures that forbid it are invalidated.
 *   work      queue work on this stream, or ask for its status
 *   wait      wait on the host for this stream
 *   wait_all  wait on the host for this device
 *   unsafe    a call that no capture can record, by the rules of cuThreadExchangeStreamCaptureMode
 *
 * Where CUDA's documentation leaves a rule open, the stricter reading applies here, so that a
 * program that passes here passes with CUDA too:
 *   - all calls that take, map or return memory are unsafe (cuMemAddressReserve and cuMemRelease
 *     too), and so are all calls that ask whether work is done;
 *   - a capturing stream cannot be destroyed;
 *   - an event recorded in a capture stays captured after its end, until it is recorded anew.
 */
cu_result ashlar__soft_capture_admit_work(const soft_stream *stream);
cu_result ashlar__soft_capture_admit_wait(const soft_stream *stream);
cu_result ashlar__soft_capture_admit_wait_all(const soft_device *device);
cu_result ashlar__soft_capture_admit_unsafe(void);

/* A new graph with one user; NULL: no host memory. */
soft_graph *ashlar__soft_graph_new(uint64_t lane);
void ashlar__soft_graph_drop(soft_graph *graph); /* NULL is allowed */
void ashlar__soft_exec_delete(soft_exec *exec);

/* ---- handles (soft_call.c) ---- */

/*
 * The kinds of items that handles name. A handle is (index + 1) * 16 + 3 + kind, and is looked up,
 * and never followed as an address, so a dead, foreign or random one is only an error.
 */
typedef enum soft_kind {
    SOFT_STREAM, /* except legacy streams and lanes of graphs */
    SOFT_EVENT,
    SOFT_CONTEXT, /* soft_device, while it has a context */
    SOFT_MEMORY,
    SOFT_GRAPH,
    SOFT_GRAPH_EXEC,
    SOFT_KINDS_END
} soft_kind;

typedef struct soft_handles {
    struct soft_handle {
        void *item;       /* NULL: free */
        size_t next_free; /* index + 1 of the next free entry; 0: none */
    } * entries;
    size_t count; /* entries ever used; <= capacity */
    size_t capacity;
    size_t first_free; /* index + 1; 0: none */
} soft_handles;

/* _put gives an item a handle; false: no host memory. _get finds the item of a handle, NULL if
 * there is none; _take also frees the handle. _find is like _get, and _end is like _take, but with
 * strict=on they end the process if there is none. _drop frees entry `idx`, which is in use. */
bool ashlar__soft_handle_put(soft_kind kind, void *item, uintptr_t *handle);
void *ashlar__soft_handle_get(soft_kind kind, uintptr_t handle);
void *ashlar__soft_handle_take(soft_kind kind, uintptr_t handle);
void *ashlar__soft_handle_find(soft_kind kind, const void *handle);
void *ashlar__soft_handle_end(soft_kind kind, const void *handle);
void ashlar__soft_handle_drop(soft_kind kind, size_t idx);

/* ---- the state (soft_call.c) ---- */

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
    uintptr_t context;     /* its handle, while it exists */
    cu_result fault;       /* sticky, like a CUDA context after an illegal access */
    uint32_t peers;        /* bit i: this device may use memory of cuMemAlloc on device i */
    soft_stream *legacy;   /* the default stream, always there */
    uint64_t end_ns;       /* time=on: the latest end of work queued on it */
    uint64_t blocking_ns;  /* the latest end of work on its blocking streams but the legacy one */
    uint64_t copies_ns[2]; /* the end of copies from the host, and to it (soft_time.c) */
    uint64_t wait_count;   /* in-stream waits that made a stream's end later ... */
    uint64_t wait_ns;      /* ... and by how much in all */
    int memory_fd;         /* a sparse file: all of the device's memory */
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
    uint64_t random;          /* state of the generator */
    uint64_t submitted;       /* number of the newest op; one sequence for all devices */
    uint64_t host_ns;         /* time=on: the latest of all threads' clocks */
    uint64_t host_wait_count; /* waits that made a thread's clock later ... */
    uint64_t host_wait_ns;    /* ... and by how much in all */
    size_t running_count;     /* op bodies that run now, with the lock dropped */
    soft_device devices[SOFT_DEVICES_MAX];
    soft_stream *first_stream; /* every stream, legacy ones included, oldest first */
    soft_stream *last_stream;
    soft_capture *captures;               /* the list of those that are under way */
    soft_handles handles[SOFT_KINDS_END]; /* [kind] */
    soft_ranges reservations;             /* soft_reservation */
    soft_ranges blocks;                   /* what cuMemAlloc has given out, to the byte */
    soft_ranges host_blocks;              /* pinned host memory, soft_host_block */
} soft_state;

extern soft_state ashlar__soft_state;

/*
 * Functions that tests have the device call (tests/allocator/soft/soft_probe.h), to prove that uses
 * of memory are ordered; NULL in programs. The lock is held meanwhile.
 */
typedef struct soft_hooks {
    void (*submit)(soft_stream *stream, const soft_op *op); /* `op` was queued */
    void (*end)(const soft_stream *stream);                 /* the stream's handle is gone */
    /* Add to *out all work queued on the device or, if serial is not 0, on that stream. */
    void (*snapshot)(const soft_device *device, uint64_t serial, soft_clock *out);
    void (*see)(const soft_clock *clock); /* the host knows that the work in `clock` is over */
    bool (*is_used)(uintptr_t base, size_t bytes); /* might work still use this memory? */
    void (*reset)(void);                           /* all devices are destroyed */
} soft_hooks;

extern soft_hooks ashlar__soft_hooks;

/* True while this thread runs a host function, where CUDA forbids every call to the device. */
extern _Thread_local bool ashlar__soft_in_host_fn;
extern _Thread_local const char *ashlar__soft_mistake; /* found in it; NULL: none */
extern const char *_Atomic ashlar__soft_fault_text;    /* of the last mistake */

/* The call of the driver table that this thread is in, or was in last. ASHLAR_DRIVER_FN_COUNT: a
 * function outside the table. */
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
 * result. `fn` is the call, or ASHLAR_DRIVER_FN_COUNT for one outside the table.
 *   enter          checks nothing more
 *   enter_context  needs a current context, sets *device to its device, and fails if the device has
 *                  a sticky fault
 *   enter_unsafe   like enter_context, for a call that is unsafe while a stream captures
 *   enter_vmm      needs virtual memory management, and no capture that forbids unsafe calls
 *   enter_stream   like enter_context, and finds the stream that the caller's handle means
 *   enter_work     like enter_stream, for a call that queues work on the stream
 * ashlar__soft_leave() drops the lock and returns `result`.
 */
cu_result ashlar__soft_enter(ashlar_driver_fn fn);
cu_result ashlar__soft_enter_context(ashlar_driver_fn fn, soft_device **device);
cu_result ashlar__soft_enter_unsafe(ashlar_driver_fn fn, soft_device **device);
cu_result ashlar__soft_enter_vmm(ashlar_driver_fn fn);
cu_result ashlar__soft_enter_stream(ashlar_driver_fn fn, cu_stream handle, soft_stream **stream);
cu_result ashlar__soft_enter_work(ashlar_driver_fn fn, cu_stream handle, soft_stream **stream);
cu_result ashlar__soft_leave(cu_result result);
/* A further check in a call that was entered: leave the call unless `result` is CU_SUCCESS. Returns
 * `result`. */
cu_result ashlar__soft_go_on(cu_result result);

/* The device with this ordinal, or that the context belongs to; NULL: there is none. */
soft_device *ashlar__soft_device_at(cu_device ordinal);
soft_device *ashlar__soft_context_find(cu_context context);

/* Destroy all that belongs to a context. Its work must be over. */
void ashlar__soft_context_reset(soft_device *context);

/* The call asks for something that CUDA leaves undefined. With strict=on: print one line, which
 * begins with the name of the call, and end the process. Else return `result`. Lock: not needed. */
cu_result ashlar__soft_undefined(cu_result result, const char *format, ...) ASHLAR_PRINTF(2, 3);

/* The memory at these addresses is about to be unmapped or freed. That is undefined if work that
 * may still run is known to use it: a copy or a fill that has not run, or by the hook is_used(). */
void ashlar__soft_let_go(uintptr_t base, size_t bytes);

/* ---- virtual time (soft_time.c): without time=on each does nothing ---- */

/* Charge the calling thread for a call of `fn`; ASHLAR_DRIVER_FN_COUNT costs nothing. */
void ashlar__soft_time_charge(ashlar_driver_fn fn);

/* Date an op that is queued now: raise the stream's tail_ns, and set the time of the op's point. */
void ashlar__soft_time_submit(soft_stream *stream, const soft_op *op);

/* Count an in-stream wait that the program queues now, if it will raise the stream's tail_ns. */
void ashlar__soft_time_count_wait(const soft_stream *stream, const soft_point *point);

/* The calling thread waits for the device until `ns`. Counts the wait if it takes time. */
void ashlar__soft_time_see(uint64_t ns);

/* The calling thread's clock. A thread that calls for the first time since the devices were
 * configured begins where the latest thread is. */
uint64_t ashlar__soft_time_host(void);
/* Set the calling thread's clock to `ns`, unless it is later already. */
void ashlar__soft_time_advance(uint64_t ns);

/* Whether `ns` is past for the calling thread. */
bool ashlar__soft_time_is_past(uint64_t ns);

/* ---- the trace of virtual time (soft_trace.c): without trace=FILE each does nothing ---- */

/* Write to this file from now on, "": to none. Errors: ASHLAR_EIO. */
ASHLAR_MUST_CHECK ashlar_status ashlar__soft_trace_open(const char *path);

/* The op, which has just been dated, begins at `begin_ns` and ends at the stream's tail_ns. */
void ashlar__soft_trace_work(const soft_stream *stream, const soft_op *op, uint64_t begin_ns);
/* This thread is in a call, or waits in it. */
void ashlar__soft_trace_call(ashlar_driver_fn fn, uint64_t begin_ns, uint64_t end_ns);
/* An event in JSON, at most 500 bytes. */
void ashlar__soft_trace_put(const char *format, ...) ASHLAR_PRINTF(1, 2);

/* Nanoseconds as microseconds, with a point in every locale. */
#define SOFT_US "%llu.%03u"
#define SOFT_US_OF(ns) (unsigned long long)((ns) / 1000), (unsigned)((ns) % 1000)

/* ---- the functions of the table, ashlar__soft_mem_create() and so on; each takes the lock ---- */

#define X(field, symbol, version, kind, safety, params) cu_result ashlar__soft_##field params;
ASHLAR_DRIVER_DEVICE_MAP(X)
#undef X

#endif /* ASHLAR_SOFT_STATE_H */
