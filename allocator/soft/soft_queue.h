/*
 * soft_queue.h - streams, their queued work, and what waits for it (internal).
 */
#ifndef ASHLAR_SOFT_QUEUE_H
#define ASHLAR_SOFT_QUEUE_H

#include "allocator/driver/driver.h"
#include "allocator/soft/soft_clock.h"

typedef struct soft_device soft_device;
typedef struct soft_stream soft_stream;
struct soft_capture;

/*
 * A completion point: what a record makes and waits refer to. Recording an event again makes a
 * new point, so those who wait for the old one are not disturbed.
 */
typedef struct soft_point {
    size_t user_count;
    bool is_done;
    soft_stream *stream; /* where its op is queued; not to be followed once is_done */
    uint64_t number;     /* of its op */
    soft_clock clock;    /* of its op, with it (soft_oracle.c) */
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
    const soft_device *device; /* DEVICE: who must have access */
} soft_operand;

/* One queued piece of work. Unused fields are zero. */
typedef struct soft_op {
    struct soft_op *next;
    soft_op_kind kind;
    uint64_t number;     /* place in the order of submission */
    soft_stream *stream; /* of a launch that is not queued yet */
    soft_point *point;   /* done with this op; owned reference, or NULL */
    soft_point *awaits;  /* WAIT: what must be done first; owned reference, or NULL */
    cu_host_fn fn;       /* HOST_FN */
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
    bool is_ordered;              /* takes part in the order with the legacy stream */
    bool is_busy;                 /* its head runs now */
    bool is_destroyed;            /* no handle names it; freed when its queue is empty */
    uint64_t serial;              /* never used twice, unlike the handle */
    uint64_t wanted;              /* some host wait needs all ops up to this number */
    uint64_t spread;              /* what they depend on is wanted too, up to this number */
    soft_clock clock;             /* of its newest op, with it (soft_oracle.c) */
    struct soft_capture *capture; /* NULL: not capturing (soft_graph.h) */
    soft_clock captured;          /* nodes that the next one comes after */
    soft_op *head;
    soft_op *tail;
};

/* Put a zeroed stream from ashlar__host_calloc() at the end of the list, which then owns it. */
void ashlar__soft_stream_join(soft_stream *stream, soft_device *device, bool is_ordered);
/* Leave the list, drop work that has not run, free. The stream is not busy. */
void ashlar__soft_stream_delete(soft_stream *stream);

/* A new point with one user; NULL: no host memory. */
soft_point *ashlar__soft_point_new(void);
void ashlar__soft_point_drop(soft_point *point); /* NULL is allowed */

/*
 * Queue a copy of *model and, in eager mode, run all that is ready: the lock may be dropped, so
 * the caller looks everything up again. Takes over model->point, ->awaits and ->staged, also on
 * failure. CU_OUT_OF_MEMORY.
 */
cu_result ashlar__soft_submit(soft_stream *stream, const soft_op *model);

/* The steps of a submission, for what must queue several ops or none: make the op (NULL: no host
 * memory; takes over what *model owns, also then), queue it, and in eager mode run. */
soft_op *ashlar__soft_op_new(const soft_op *model);
void ashlar__soft_op_free(soft_op *op);
void ashlar__soft_enqueue(soft_stream *stream, soft_op *op);
void ashlar__soft_run_ready(void);

/* Wait on the host; the lock is dropped meanwhile. The caller holds a reference to `point`. */
void ashlar__soft_wait_point(const soft_point *point);
/* All work queued so far on the device; serial != 0: only on that stream of it. What is on a
 * stream that was destroyed counts as the device's. */
void ashlar__soft_wait_device(const soft_device *device, uint64_t serial);

/* A number below `below` from the generator that the seed sets up. */
uint64_t ashlar__soft_draw(uint64_t below);

/* In adversarial mode, now and then run one ready op of any stream, so that polling ends. */
void ashlar__soft_poll(void);

/* ---- streams and events (soft_stream.c, soft_event.c) ---- */

/* The stream a caller means: CU_INVALID_HANDLE, CU_OUT_OF_MEMORY (the calling thread's default
 * stream, which is made at its first use). */
cu_result ashlar__soft_stream_find(soft_device *current, cu_stream handle, soft_stream **out);

/* Destroy every stream of the device but the legacy one; queued work still runs. */
void ashlar__soft_stream_reset(const soft_device *device);
/* Destroy every event of the device; NULL: of all. */
void ashlar__soft_event_reset(const soft_device *device);

#endif /* ASHLAR_SOFT_QUEUE_H */
