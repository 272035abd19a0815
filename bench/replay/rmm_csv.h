/* rmm_csv.h - reads a log of allocations as RMM's logging adaptor writes it (internal).
 *
 * A header and a row for each event, for example
 *     Thread,Time,Action,Pointer,Size,Stream
 *     2342727,15:47:02.841961,allocate,0x10012400000,1048576,0
 * Columns are found by name, in any order; Time and unknown columns are ignored. The rows are in
 * the order of the events. The action is "allocate", "free" or "allocate failure". There is a
 * further one that RMM does not write: at "step" a step of the program begins, and
 * Pointer is not read.
 *
 * Numbers in Thread, Pointer and Stream are only names, and RMM's versions write them in different
 * ways: 0x7f00, 7f00, decimal, and (nil) or 0 for none. A number with 0x is hexadecimal. The other
 * numbers of a column are decimal, unless one of them has a letter: then all are hexadecimal. Size
 * is decimal.
 *
 * Streams are CUDA's handles: 0 and 1 are the default stream, 2 is each thread's own. */
#ifndef ASHLAR_RMM_CSV_H
#define ASHLAR_RMM_CSV_H

#include <stddef.h>
#include <stdint.h>

#include <ashlar/status.h>

typedef enum ashlar_rmm_action {
    ASHLAR_RMM_ALLOCATE,
    ASHLAR_RMM_FREE,
    ASHLAR_RMM_STEP,    /* a step begins here */
    ASHLAR_RMM_NOTHING, /* a recorded failure, or a block of 0 bytes: not replayed */
} ashlar_rmm_action;

/* One row. Indexes count from 0 in the order of first appearance. */
typedef struct ashlar_rmm_event {
    ashlar_rmm_action action;
    size_t line; /* of the file; the first one is 1 */
    size_t thread;
    size_t stream; /* 0 is always the default stream */
    size_t block;  /* ALLOCATE and FREE: number of the allocation */
    size_t bytes;  /* ALLOCATE: at least 1 */
} ashlar_rmm_event;

/* Invariants: block < block_count of ALLOCATE and FREE; each block is allocated by one event below
 * event_count and freed by one later event below closed_count; thread < thread_count, stream <
 * stream_count. The frees from event_count on are in the order of the allocations, on the
 * allocation's thread and stream, and have the last row's line. */
typedef struct ashlar_rmm_log {
    char *name; /* of the file, for messages */
    ashlar_rmm_event *events;
    size_t event_count;  /* at least 1 */
    size_t closed_count; /* event_count, and a free for each block that these events leave live */
    size_t event_capacity;
    size_t block_count;
    size_t thread_count;
    size_t stream_count;
    size_t recorded_failures;
    size_t needed_bytes; /* the most that was live at a recorded failure, with its request;
                          * SIZE_MAX: more than that; 0: nothing failed */
} ashlar_rmm_log;

/* Read a log.
 *
 * Ownership: the caller frees *out with ashlar__rmm_log_free().
 * Errors:    ASHLAR_EIO, ASHLAR_EFORMAT (the detail begins with FILE:LINE: and names the column;
 *            also for a free of a block that is not live, an allocation at the address of a live
 *            block, a log without events, and one packed by gzip), ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rmm_log_read(const char *path, ashlar_rmm_log **out);

/* The same from memory. `name` replaces the file's name in messages; it is copied. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rmm_log_parse(const char *name, const char *text,
                                                      size_t bytes, ashlar_rmm_log **out);

void ashlar__rmm_log_free(ashlar_rmm_log *log); /* NULL is allowed */

#endif /* ASHLAR_RMM_CSV_H */
