/*
 * soft_queue.h - the software device's streams, the work queued on them, and waiting for that work
 * (internal).
 */
#ifndef ASHLAR_SOFT_QUEUE_H
#define ASHLAR_SOFT_QUEUE_H

#include "allocator/driver/driver.h"
#include "allocator/soft/soft_clock.h"

typedef struct soft_device soft_device;
typedef struct soft_stream soft_stream;
struct soft_capture;

/*
 * A completion point: cuEventRecord makes one, and waits for the event refer to it. Recording the
 * event again makes a new point, and so does not disturb waits for the old one.
 */
typedef struct soft_point {
    size_t user_count;
    bool is_done;
    soft_stream *stream; /* where its op is queued; once is_done, the stream may be gone */
    uint64_t number;     /* of its op */
    soft_clock clock;    /* clocks=on: its op, and the work that op comes after (soft_oracle.c) */
    uint64_t time_ns;    /* time=on: when it is done (soft_time.h) */
} soft_point;

typedef enum soft_op_kind {
    SOFT_OP_HOST_FN,
    SOFT_OP_COPY,
    SOFT_OP_FILL,
    SOFT_OP_WORK, /* nothing to do, but it takes time: ashlar__soft_work() */
    SOFT_OP_RECORD,
    SOFT_OP_WAIT
} soft_op_kind;

typedef enum soft_place { SOFT_PLACE_DEVICE, SOFT_PLACE_PINNED, SOFT_PLACE_PAGEABLE } soft_place;

typedef struct soft_operand {
    void *ptr;
    soft_place place;
    const soft_device *device; /* if place is DEVICE: the device that must have access */
} soft_operand;

/* One queued piece of work. Unused fields are zero. */
typedef struct soft_op {
    struct soft_op *next;
    soft_op_kind kind;
    uint64_t number;     /* place in the order of submission */
    soft_stream *stream; /* where to queue it; only in a launch that is not queued yet */
    soft_point *point;   /* becomes done when this op has run; owned reference, or NULL */
    soft_point *awaits;  /* WAIT: must be done before this op runs; owned reference, or NULL */
    cu_host_fn fn;       /* HOST_FN */
    void *user_data;
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
    uint64_t wanted;              /* some wait on the host needs all ops up to this number */
    uint64_t spread;              /* dependencies of ops up to this number are marked as wanted */
    soft_clock clock;             /* clocks=on: its newest op, and the work that comes before */
    struct soft_capture *capture; /* NULL: not capturing (soft_graph.h) */
    soft_clock captured;          /* capturing: the nodes that the next node comes after */
    uint64_t tail_ns;             /* time=on: when all its work is over (soft_time.h) */
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
 * Queue a copy of *model and, in eager mode, run all work that is ready. That may drop the lock for
 * a while, so afterwards the caller must look everything up again. Takes ownership of model->point
 * and model->awaits, also on failure. Errors: CU_OUT_OF_MEMORY.
 */
cu_result ashlar__soft_submit(soft_stream *stream, const soft_op *model);

/* The steps of ashlar__soft_submit(), for callers that queue several ops or none.
 * _op_new: make an op; takes ownership as above; NULL: no host memory. _op_free: free an op that
 * is in no queue. _enqueue: queue an op. _run_ready: in eager mode, run all work that is ready. */
soft_op *ashlar__soft_op_new(const soft_op *model);
void ashlar__soft_op_free(soft_op *op);
void ashlar__soft_enqueue(soft_stream *stream, soft_op *op);
void ashlar__soft_run_ready(void);
/* Run the oldest op that is ready; false: there is none. The lock is dropped meanwhile. */
bool ashlar__soft_run_oldest(void);

/* ---- mode=overlap (soft_workers.c) ---- */

/* Wake the threads, since there may be work; the first call makes them. False: there are none. */
bool ashlar__soft_workers_wake(void);
/* Before a new configuration: let the threads begin no more work, and wait for what they run. */
void ashlar__soft_workers_halt(void);

/* Wait on the host until the point is done; the lock is dropped meanwhile. The caller must hold a
 * reference to `point`. */
void ashlar__soft_wait_point(soft_point *point);

/* Like ashlar__soft_wait_point(), but until one of several points is done. */
void ashlar__soft_wait_points(soft_point *const *points, size_t count);
/* Wait on the host for all work queued so far on the device, destroyed streams included, or only on
 * the stream with this serial, if it is not 0. The lock is dropped meanwhile. */
void ashlar__soft_wait_device(const soft_device *device, uint64_t serial);

/* Whether the stream's oldest op may run now. */
bool ashlar__soft_is_ready(const soft_stream *stream);

/*
 * ---- ashlar__soft_choose_by() (soft_choose.c) ----
 * has_chooser     whether a test chooses
 * choose_begin    the host begins to wait
 * pick_chosen     the stream whose head runs next; NULL: none is ready
 * chosen_is_done  what to answer if the host asks whether unfinished work is finished by now
 */
bool ashlar__soft_has_chooser(void);
void ashlar__soft_choose_begin(void);
soft_stream *ashlar__soft_pick_chosen(void);
bool ashlar__soft_chosen_is_done(void);

/* A random number in 0 .. below-1, from the generator that `seed` sets up. */
uint64_t ashlar__soft_draw(uint64_t below);

/* In adversarial mode, run a ready op of any stream now and then, so that polling ends. */
void ashlar__soft_poll(void);

/* ---- streams and events (soft_stream.c, soft_event.c) ---- */

/* Find the stream that `handle` means in a call on device `current`. Errors: CU_INVALID_HANDLE;
 * CU_OUT_OF_MEMORY (the thread's default stream is made at its first use). */
cu_result ashlar__soft_stream_find(soft_device *current, cu_stream handle, soft_stream **out);

/* The software device's `wait_any` (driver.h). */
cu_result ashlar__soft_wait_any(const cu_event *events, size_t count);

/* Destroy every stream of the device except the legacy one. Queued work still runs. */
void ashlar__soft_stream_reset(const soft_device *device);
/* Destroy every event of `device`; NULL: those of all devices. */
void ashlar__soft_event_reset(const soft_device *device);

#endif /* ASHLAR_SOFT_QUEUE_H */
