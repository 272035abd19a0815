/*
 * trace_ring.h - the newest events of an allocator, in a ring that many threads write at once while
 * others read (internal).
 *
 * Event number n lies in entry n % capacity. Its writer takes the number, marks the entry as being
 * written, writes, and marks it as written. A reader copies the entry, and looks at the mark before
 * and after:
 *
 *     mark == 0          no event yet
 *     mark == 2 n + 1    event n is being written
 *     mark == 2 n + 2    event n is there
 *
 * No thread ever waits: a writer drops its event if another thread is still writing to the entry
 * (a whole lap behind), or if a writer of a later lap has taken the entry.
 */
#ifndef ASHLAR_TRACE_RING_H
#define ASHLAR_TRACE_RING_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/status.h>

/* The actions: our name, also in snapshots; the name in RMM's log (NULL: not in it). */
#define ASHLAR_TRACE_ACTION_MAP(X) \
    X(ALLOC, "alloc", "allocate")  \
    X(FREE, "free", "free")        \
    X(MAP, "map", NULL)            \
    X(UNMAP, "unmap", NULL)        \
    X(OOM, "oom", "allocate failure")

#define ASHLAR_TRACE_ACTION_ENUM(name, text, rmm) ASHLAR_TRACE_##name,
typedef enum ashlar_trace_action {
    ASHLAR_TRACE_ACTION_MAP(ASHLAR_TRACE_ACTION_ENUM)
    ASHLAR_TRACE_ACTION_COUNT
} ashlar_trace_action;

/* The thread that frees a block puts the FREE before any thread can take the block again. */
typedef struct ashlar_trace_event {
    uint64_t sequence;  /* set by put: 0 for the ring's first event */
    uint64_t time_ns;   /* set by put: of the monotonic clock */
    uint64_t address;   /* of the block or the memory; OOM: 0 */
    uint64_t bytes;     /* of the block or the memory; OOM: free on the device */
    uint64_t requested; /* ALLOC, FREE: of the block, 1 .. bytes; OOM: of the request; else 0 */
    uint64_t stream;    /* ALLOC, OOM: of the request; FREE: of the last use; else 0 */
    uint32_t thread;    /* set by put: ashlar__trace_thread() */
    uint8_t action;     /* an ashlar_trace_action */
    uint8_t tag;        /* ALLOC, FREE, OOM: an ashlar_tag; else 0 */
} ashlar_trace_event;

enum { ASHLAR_TRACE_WORDS = 6 };

typedef struct ashlar_trace_entry {
    _Atomic uint64_t mark;
    _Atomic uint64_t words[ASHLAR_TRACE_WORDS]; /* the event without its number */
} ashlar_trace_entry;

/* `tell` is called for each event that is put, before its sequence is set; NULL: nobody listens.
 * While anybody listens, all writers must hold the same lock; the ring has none. */
typedef struct ashlar_trace_listener {
    void (*tell)(void *self, const ashlar_trace_event *event);
    void *self;
} ashlar_trace_listener;

enum { ASHLAR_TRACE_TO_NVTX, ASHLAR_TRACE_TO_LOG, ASHLAR_TRACE_LISTENERS };

/* Invariant: capacity is a power of two, or 0: then events only go to the listeners. */
typedef struct ashlar_trace {
    ashlar_trace_entry *entries; /* const */
    size_t capacity;          /* const */
    ashlar_trace_listener listeners[ASHLAR_TRACE_LISTENERS];
    uint64_t (*now_ns)(void); /* NULL: ashlar__clock_ns(); or a test's clock */
    _Atomic uint64_t next;    /* the next event's number, and the number of events put so far */
} ashlar_trace;

/*
 * Make a ring for `capacity` events, 1 .. 2^32, rounded up to a power of two.
 *
 * Errors: ASHLAR_EINVAL (capacity), ASHLAR_EHOSTMEM. *trace is then unchanged.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__trace_init(ashlar_trace *trace, size_t capacity);

/* Return the host memory. Threads: no other call on this ring may be under way. */
void ashlar__trace_finish(ashlar_trace *trace);

/*
 * Append an event. If the ring is full, the event overwrites the oldest one.
 *
 * Threads: any; the call neither waits nor locks.  Cost: reads the clock, writes one entry.
 */
void ashlar__trace_put(ashlar_trace *trace, const ashlar_trace_event *event);

/* Like ashlar__trace_put(), but does nothing if `trace` is NULL (there is no ring). */
static inline void ashlar__trace_put_if(ashlar_trace *trace, const ashlar_trace_event *event) {
    if (trace != NULL) {
        ashlar__trace_put(trace, event);
    }
}

/*
 * Copy the newest events that are still in the ring, at most `capacity`. Returns their number.
 *
 * events  in ascending numbers. If an event is among them, so are all events put before it, by its
 *         own thread or by a thread whose put was ordered before (by a lock, say), except events
 *         overwritten or dropped. An event put during this call may be among them or not.
 * lost    how many of the events put before this call were not copied
 *
 * Threads: any, beside any number of writers.
 */
size_t ashlar__trace_read(const ashlar_trace *trace, ashlar_trace_event *events, size_t capacity,
                          uint64_t *lost);

/* The calling thread's number: 0, 1, ... in the order of the threads' first calls. Threads: any. */
uint32_t ashlar__trace_thread(void);

#endif /* ASHLAR_TRACE_RING_H */
