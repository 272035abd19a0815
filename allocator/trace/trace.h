/*
 * trace.h - an allocator's trace: its newest events in a ring, listeners that hear of each event,
 * a log of them in RMM's format, and what NVTX's tools hear (internal). Lock: the allocator's, in
 * every function that takes an ashlar_trace or ashlar_nvtx_memory.
 */
#ifndef ASHLAR_ALLOCATOR_TRACE_H
#define ASHLAR_ALLOCATOR_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include <ashlar/base.h>

/* The actions. Columns: constant, our name (also in snapshots), RMM's name (NULL: RMM's log has no
 * such action). */
#define ASHLAR_TRACE_ACTION_MAP(X) \
    X(ALLOC, "alloc", "allocate")  \
    X(FREE, "free", "free")        \
    X(MAP, "map", NULL)            \
    X(UNMAP, "unmap", NULL)        \
    X(OOM, "oom", "allocate failure")

#define ASHLAR_TRACE_ACTION_ENUM(name, text, rmm) ASHLAR_TRACE_##name,
typedef enum ashlar_trace_action {
    ASHLAR_TRACE_ACTION_MAP(ASHLAR_TRACE_ACTION_ENUM) ASHLAR_TRACE_ACTION_COUNT
} ashlar_trace_action;

typedef struct ashlar_trace_event {
    uint64_t time_ns;   /* by the monotonic clock; ashlar__trace_put() sets it */
    uint64_t address;   /* of the block or, MAP and UNMAP, of the memory; OOM: 0 */
    uint64_t bytes;     /* of the block or the memory; OOM: what the device has free */
    uint64_t requested; /* bytes that the program asked for; MAP, UNMAP: 0 */
    uint64_t stream;    /* ALLOC, OOM: of the request; FREE: of the last use; MAP, UNMAP: 0 */
    uint32_t thread;    /* ashlar__trace_thread(); ashlar__trace_put() sets it */
    uint8_t action;     /* an ashlar_trace_action */
    uint8_t tag;        /* ALLOC, FREE, OOM: an ashlar_tag; MAP, UNMAP: 0 */
} ashlar_trace_event;

/* `tell` is called for each event that is put; NULL: nobody listens. */
typedef struct ashlar_trace_listener {
    void (*tell)(void *self, const ashlar_trace_event *event);
    void *self;
} ashlar_trace_listener;

enum { ASHLAR_TRACE_TO_NVTX, ASHLAR_TRACE_TO_LOG, ASHLAR_TRACE_LISTENERS };

/* Event number n lies in events[n % capacity]. capacity 0: events only go to the listeners. */
typedef struct ashlar_trace {
    ashlar_trace_event *events;
    size_t capacity;
    uint64_t count; /* of events put so far */
    ashlar_trace_listener listeners[ASHLAR_TRACE_LISTENERS];
    uint64_t (*now_ns)(void); /* NULL: ashlar__clock_ns(); or a test's clock */
} ashlar_trace;

/* Make room for the newest `capacity` events, 1 .. 2^32. Errors: ASHLAR_EINVAL, ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__trace_init(ashlar_trace *trace, size_t capacity);
void ashlar__trace_finish(ashlar_trace *trace);

/* Tell the listeners of an event, and keep it in place of the oldest. `trace` NULL: do nothing. */
void ashlar__trace_put(ashlar_trace *trace, const ashlar_trace_event *event);

/*
 * Copy the newest events, at most `capacity`, in their order. Returns their number.
 *
 * lost   how many older events are not among them
 */
size_t ashlar__trace_read(const ashlar_trace *trace, ashlar_trace_event *events, size_t capacity,
                          uint64_t *lost);

/* The calling thread's number: 0, 1, ... in the order of the threads' first calls. Threads: any. */
uint32_t ashlar__trace_thread(void);

/* ---- RMM's log ---- */

#define ASHLAR_TRACE_RMM_COLUMNS "Thread,Time,Action,Pointer,Size,Stream\n"
enum { ASHLAR_TRACE_ROW_BYTES = 160 };

/* Print an event as a row of such a log, with its end of line. Returns the row's bytes; 0: the log
 * does not have such events. */
size_t ashlar__trace_print_rmm(const ashlar_trace_event *event,
                               char row[static ASHLAR_TRACE_ROW_BYTES]);

/*
 * Write a log like that of RMM's logging adaptor. Size is the requested size, Time that of the
 * monotonic clock. Events that do not pair up are left out and counted in *left_out: a FREE without
 * an ALLOC before it, and an ALLOC whose address the next ALLOC takes without a FREE between.
 *
 * events   in their order
 *
 * Errors: ASHLAR_EHOSTMEM, and those of ashlar__file_buffer_create() and _commit(). The old file is
 *         then unchanged.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__trace_write_rmm(const ashlar_trace_event *events,
                                                        size_t count, const char *path,
                                                        uint64_t *left_out);

/* ---- NVTX's memory extension ----
 *
 * To the driver all blocks of a handle are one allocation. Compute Sanitizer's memcheck finds an
 * access between blocks, or to a freed block, only if it knows the blocks. Here each handle
 * (without virtual memory: each segment) is a heap of NVTX. Each block is a region, which has the
 * requested bytes and the name of the block's tag. A region lies in one heap, so a block over
 * several handles has a region in each.
 */

typedef struct ashlar_nvtx_memory ashlar_nvtx_memory;

/* handle_bytes: the size of a handle, of which a MAP or UNMAP event may cover several; 0: each such
 * event is of one segment. Errors: ASHLAR_ENOTSUP (built without NVTX's headers), ASHLAR_EHOSTMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__nvtx_memory_create(size_t handle_bytes,
                                                           ashlar_nvtx_memory **out);

/* Withdraw everything reported to a tool. Call it before unmapping the memory. NULL is allowed. */
void ashlar__nvtx_memory_destroy(ashlar_nvtx_memory *memory);

/* Report an event; `listener` is an ashlar_nvtx_memory. If host memory runs out, a handle and its
 * blocks stay unreported, and a tool finds no wrong accesses there. */
void ashlar__nvtx_memory_tell(void *listener, const ashlar_trace_event *event);

#endif /* ASHLAR_ALLOCATOR_TRACE_H */
