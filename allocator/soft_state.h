/*
 * soft_state.h - what the files of the software device share (internal to allocator/soft_*.c).
 *
 *   soft_config.c   the ASHLAR_SOFT line              soft_index.c   handles, address ranges
 *   soft_device.c   devices, contexts, set-up         soft_pages.c   physical memory
 *   soft_memory.c   reservations and mappings         soft_alloc.c   plain and pinned memory
 *   soft_queue.c    the scheduler                     soft_stream.c  streams and their work
 *   soft_event.c    events                            driver_soft.c  the driver table
 *
 * LOCK: one mutex, ashlar_soft_state.lock, guards all of it. Every function below expects it
 * held unless it says otherwise. Functions of the table take it in ashlar_soft_enter() and drop
 * it in ashlar_soft_leave(); the scheduler drops it while the body of an op runs.
 */
#ifndef ASHLAR_SOFT_STATE_H
#define ASHLAR_SOFT_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/status.h>

#include "driver.h"

enum { SOFT_DEVICES_MAX = 16 };
#define SOFT_PAGE_BYTES ((size_t)2 << 20) /* the granularity of physical memory */

/* ---- configuration (soft_config.c) ---- */

typedef enum soft_mode { SOFT_EAGER, SOFT_ADVERSARIAL } soft_mode;

typedef struct soft_config {
    int device_count;    /* 1 .. SOFT_DEVICES_MAX */
    size_t memory_bytes; /* of each device; a multiple of SOFT_PAGE_BYTES */
    soft_mode mode;
    uint64_t seed;
} soft_config;

/* Read a line as soft.h describes it. ASHLAR_EINVAL names ASHLAR_SOFT, key, value and remedy.
 * Lock: not needed. */
ASHLAR_MUST_CHECK ashlar_status ashlar_soft_parse(const char *spec, soft_config *out);

/* ---- handles and ranges (soft_index.c) ---- */

/*
 * What a handle names. A handle is (index + 1) * 16 + kind: a number that is looked up, never an
 * address that is followed, so a dead, foreign or random handle is only an error. The most
 * recently freed handle is given out again first, because CUDA too uses them again.
 */
typedef enum soft_kind { SOFT_STREAM = 3, SOFT_EVENT, SOFT_CONTEXT, SOFT_MEMORY } soft_kind;

typedef struct soft_slot {
    void *item;       /* NULL: free */
    size_t next_free; /* index + 1 of the next free slot; 0: none */
} soft_slot;

typedef struct soft_slots {
    soft_slot *slots;
    size_t count; /* slots ever used; <= capacity */
    size_t capacity;
    size_t first_free; /* index + 1; 0: none */
} soft_slots;

bool ashlar_soft_slots_put(soft_slots *slots, soft_kind kind, void *item, uintptr_t *handle);
void *ashlar_soft_slots_get(const soft_slots *slots, soft_kind kind, uintptr_t handle);
void *ashlar_soft_slots_take(soft_slots *slots, soft_kind kind, uintptr_t handle);
void ashlar_soft_slots_drop(soft_slots *slots, size_t idx); /* free one that is in use */
void ashlar_soft_slots_clear(soft_slots *slots); /* the items are the caller's */

/* An address range; the first member of everything that is found by address. */
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
size_t ashlar_soft_ranges_find(const soft_ranges *ranges, uintptr_t address);
/* The range that starts at `address`, with its index; NULL if none does. */
void *ashlar_soft_ranges_at(const soft_ranges *ranges, uintptr_t address, size_t *idx);
/* The range that holds all of [address, address + bytes), bytes > 0; NULL if none does. */
void *ashlar_soft_ranges_over(const soft_ranges *ranges, uintptr_t address, size_t bytes);
bool ashlar_soft_ranges_insert(soft_ranges *ranges, soft_range *item);
void ashlar_soft_ranges_remove(soft_ranges *ranges, size_t idx, size_t count);
void ashlar_soft_ranges_clear(soft_ranges *ranges); /* the items are the caller's */

/* ---- devices and contexts (soft_device.c) ---- */

typedef struct soft_stream soft_stream;

typedef struct soft_device {
    int ordinal;
    unsigned retains;    /* of the primary context; 0: it does not exist */
    uintptr_t context;   /* its handle, while it exists */
    cu_result fault;     /* sticky, like a CUDA context after an illegal access */
    soft_stream *legacy; /* the default stream, always there */
    int memory_fd;       /* all of its memory, sparse */
    size_t page_count;
    size_t pages_used;      /* number of 1 bits in page_bits */
    uint64_t *page_bits;    /* [page_count], 1: taken */
    size_t first_free_word; /* every word of page_bits before it is full */
} soft_device;

typedef struct soft_state {
    pthread_mutex_t lock;
    pthread_cond_t op_finished;
    bool is_initialized;  /* cuInit has been called; survives a new configuration */
    bool is_forked;       /* a child of a process that had it called: no device here */
    uint64_t generation;  /* configurations so far; 0: there are no devices yet */
    soft_config config;
    uint64_t random;      /* state of the generator */
    uint64_t submitted;   /* number of the newest op; one sequence for all devices */
    size_t running_count; /* op bodies that run now, with the lock dropped */
    soft_device devices[SOFT_DEVICES_MAX];
    soft_stream *first_stream; /* every stream, legacy ones included, oldest first */
    soft_stream *last_stream;
    soft_slots contexts;       /* soft_device, while it has a primary context */
    soft_slots streams;        /* soft_stream, legacy ones not included */
    soft_slots events;
    soft_slots memories;       /* soft_memory */
    soft_ranges reservations; /* soft_reservation */
    soft_ranges host_blocks;  /* pinned host memory, soft_host_block */
} soft_state;

extern soft_state ashlar_soft_state;

/* True while this thread runs a host function, where CUDA forbids every call to the device. */
extern _Thread_local bool ashlar_soft_in_host_fn;

/*
 * Begin a call of the table: take the lock and check what every call checks first. On failure
 * the lock is not held and the result is the call's. ashlar_soft_enter_context() also wants a
 * current context, writes its device, and reports the device's sticky fault.
 * ashlar_soft_leave() drops the lock and passes `result` through.
 */
cu_result ashlar_soft_enter(void);
cu_result ashlar_soft_enter_context(soft_device **device);
cu_result ashlar_soft_leave(cu_result result);

/* Set the devices up from the environment, unless they have been set up. Lock: not held. */
ASHLAR_MUST_CHECK ashlar_status ashlar_soft_ensure(void);

/* NULL: no such device. */
soft_device *ashlar_soft_device_at(cu_device ordinal);

/* ---- physical memory (soft_pages.c) ---- */

/* Pages that belong together: what cuMemCreate makes. Freed, and its pages with it, at 0 users. */
typedef struct soft_memory {
    soft_device *device;
    size_t user_count; /* 1 while its handle lives, and 1 for each mapping */
    size_t page_count;
    uint32_t pages[]; /* indexes into the device's memory; in general not contiguous */
} soft_memory;

/* Lock: not needed; `device` is not shared yet, or no longer. */
ASHLAR_MUST_CHECK ashlar_status ashlar_soft_pages_init(soft_device *device, size_t bytes);
void ashlar_soft_pages_finish(soft_device *device);

/* `bytes` > 0, a multiple of SOFT_PAGE_BYTES. One user: the caller. */
cu_result ashlar_soft_memory_create(soft_device *device, size_t bytes, soft_memory **out);
void ashlar_soft_memory_drop(soft_memory *memory);

/* ---- reservations and mappings (soft_memory.c) ---- */

typedef struct soft_mapping {
    soft_range range;
    soft_memory *memory; /* is used from its first page on */
    bool is_accessible;  /* cuMemSetAccess has been called */
} soft_mapping;

typedef struct soft_reservation {
    soft_range range;
    soft_ranges mappings;      /* soft_mapping */
    soft_device *plain_device; /* of a cuMemAlloc allocation; else NULL */
} soft_reservation;

cu_result ashlar_soft_reserve(size_t bytes, size_t align, uintptr_t hint, soft_reservation **out);
/* Unmap whatever is mapped, and give the addresses back. */
void ashlar_soft_unreserve(soft_reservation *reservation);
/* Map the first `bytes` of `memory`, inaccessible; the mapping becomes one of its users. */
cu_result ashlar_soft_map(soft_reservation *reservation, uintptr_t base, size_t bytes,
                          soft_memory *memory);
/* Make `count` mappings accessible from the `first` on; they are contiguous. */
cu_result ashlar_soft_allow(soft_reservation *reservation, size_t first, size_t count);
/* Every byte is mapped and accessible. */
bool ashlar_soft_is_accessible(uintptr_t base, size_t bytes);

/* ---- plain and pinned memory (soft_alloc.c) ---- */

typedef struct soft_host_block {
    soft_range range;
    soft_device *device; /* whose context it was allocated in */
} soft_host_block;

/* Free every plain allocation and pinned block of a device; NULL: of all, and every reservation
 * with what is mapped there. */
void ashlar_soft_alloc_reset(const soft_device *device);

/* ---- the scheduler (soft_queue.c) ---- */

/*
 * A completion point: what a record makes and waits refer to. Recording an event again makes a
 * new point, so those who wait for the old one are not disturbed.
 */
typedef struct soft_point {
    size_t user_count;
    bool is_done;
    soft_stream *stream; /* where its op is queued; not to be followed once is_done */
    uint64_t number;     /* of its op */
} soft_point;

typedef enum soft_op_kind {
    SOFT_OP_HOST_FN,
    SOFT_OP_COPY,
    SOFT_OP_FILL,
    SOFT_OP_RECORD,
    SOFT_OP_WAIT
} soft_op_kind;

typedef enum soft_place { SOFT_PLACE_DEVICE, SOFT_PLACE_PINNED, SOFT_PLACE_PAGEABLE } soft_place;

typedef struct soft_operand {
    void *ptr;
    soft_place place;
} soft_operand;

/* One queued piece of work. Unused fields are zero. */
typedef struct soft_op {
    struct soft_op *next;
    soft_op_kind kind;
    uint64_t number;    /* place in the order of submission */
    soft_point *point;  /* done with this op; owned reference, or NULL */
    soft_point *awaits; /* WAIT: what must be done first; owned reference, or NULL */
    cu_host_fn fn;      /* HOST_FN */
    void *user_data;
    soft_operand dst; /* COPY, FILL */
    soft_operand src; /* COPY */
    size_t bytes;
    unsigned char value; /* FILL */
    void *staged;        /* owned copy of pageable bytes, which src then points to; or NULL */
} soft_op;

/*
 * A stream is a queue; its head stays in it while it runs, so that `head->number` is the oldest
 * unfinished work. The order between streams, with n(op) the number of an op:
 *   an op of the legacy stream runs after every op of the device's blocking streams with smaller n
 *   an op of a blocking stream runs after every op of the legacy stream with smaller n
 *   an UNORDERED stream takes no part in either
 * All edges point to smaller numbers, so there is no cycle and some unfinished op is always ready.
 */
struct soft_stream {
    soft_stream *prev;
    soft_stream *next;
    soft_device *device;
    bool is_ordered;   /* takes part in the order with the legacy stream */
    bool is_busy;      /* its head runs now */
    bool is_destroyed; /* no handle names it; freed when its queue is empty */
    uint64_t serial;   /* never used twice, unlike the handle */
    uint64_t wanted;   /* some host wait needs all ops up to this number */
    uint64_t spread;   /* what they depend on is wanted too, up to this number */
    soft_op *head;
    soft_op *tail;
};

/* Put a zeroed stream from ashlar_host_calloc() at the end of the list, which then owns it. */
void ashlar_soft_stream_join(soft_stream *stream, soft_device *device, bool is_ordered);
/* Leave the list, drop work that has not run, free. The stream is not busy. */
void ashlar_soft_stream_delete(soft_stream *stream);

/* A new point with one user; NULL: no host memory. */
soft_point *ashlar_soft_point_new(void);
void ashlar_soft_point_drop(soft_point *point); /* NULL is allowed */

/*
 * Queue a copy of *model and, in eager mode, run all that is ready: the lock may be dropped, so
 * the caller looks everything up again. Takes over model->point, ->awaits and ->staged, also on
 * failure. CU_OUT_OF_MEMORY.
 */
cu_result ashlar_soft_submit(soft_stream *stream, const soft_op *model);

/* Wait on the host; the lock is dropped meanwhile. The caller holds a reference to `point`. */
void ashlar_soft_wait_point(const soft_point *point);
/* All work queued so far on the device; serial != 0: only on that stream of it. */
void ashlar_soft_wait_device(const soft_device *device, uint64_t serial);

/* In adversarial mode, now and then run one ready op of any stream, so that polling ends. */
void ashlar_soft_poll(void);

/* ---- streams and events (soft_stream.c, soft_event.c) ---- */

/* The stream a caller means: CU_INVALID_HANDLE, CU_NOT_SUPPORTED (per-thread default stream). */
cu_result ashlar_soft_stream_find(soft_device *current, cu_stream handle, soft_stream **out);

/* Destroy every stream of the device but the legacy one; queued work still runs. */
void ashlar_soft_stream_reset(const soft_device *device);
/* Destroy every event of the device; NULL: of all. */
void ashlar_soft_event_reset(const soft_device *device);

/* ---- the functions of the table, ashlar_soft_mem_create() and so on; each takes the lock ---- */

#define X(field, symbol, version, kind, params) cu_result ashlar_soft_##field params;
ASHLAR_DRIVER_MAP(X)
#undef X

#endif /* ASHLAR_SOFT_STATE_H */
