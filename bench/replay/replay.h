/* replay.h - logs of RMM: reading them, replaying them, also on a plan (internal). */
#ifndef ASHLAR_REPLAY_H
#define ASHLAR_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <ashlar/allocator.h>
#include <ashlar/plan.h>
#include <ashlar/base.h>

#include "allocator/base/json.h"

/* Bytes in MiB, to print. */
static inline double ashlar__mib(uint64_t bytes) {
    return (double)bytes / (double)(1 << 20);
}

/* Reads a log of allocations as RMM's logging adaptor writes it.
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
 * ways: 0x7f00, 7f00, decimal, and (nil) or 0 for none. All are read as hexadecimal. Size is
 * decimal.
 *
 * Streams are CUDA's handles: 0 and 1 are the default stream, 2 is each thread's own. */

typedef enum ashlar_rmm_action {
    ASHLAR_RMM_ALLOCATE,
    ASHLAR_RMM_FREE,
    ASHLAR_RMM_STEP,    /* a step begins here */
    ASHLAR_RMM_NOTHING, /* a recorded failure, or a block of 0 bytes: not replayed */
} ashlar_rmm_action;

/* One row. Indexes count from 0 in the order of first appearance. */
typedef struct ashlar_rmm_event {
    ashlar_rmm_action action;
    size_t line; /* its line in the file; the first is 1 */
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
    char *name; /* the file's name, for messages */
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

/* Read a log from text in memory. `name` stands for the file's name in messages; it is copied. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rmm_log_parse(const char *name, const char *text,
                                                      size_t bytes, ashlar_rmm_log **out);

/* Append frees of all blocks that the events, at least one, leave live. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rmm_log_close(ashlar_rmm_log *log);

void ashlar__rmm_log_free(ashlar_rmm_log *log); /* NULL is allowed */

/* Finds the steps of a log, so that a replay can serve them from a plan, and
 * reports how well that went.
 *
 * Each row of action "step" begins a step; what follows the last one is a step if it allocates. The
 * first step is recorded, and all others, those of further passes included, are replayed on its
 * plan. A log without two steps is one step as a whole, and is replayed in two passes or more.
 *
 * Steps belong to the thread that allocates most in them. They begin and end at that thread's first
 * event after a boundary; other threads allocate by the ordinary path. */

/* Step k has the events boundaries[k] .. boundaries[k + 1] - 1. Boundaries ascend strictly. */
typedef struct ashlar_steps {
    size_t *boundaries; /* [count + 1] */
    size_t count;
} ashlar_steps;

typedef struct ashlar_replay_plan {
    ashlar_steps steps;      /* of one pass over the log */
    size_t passes;           /* at least 1 */
    bool is_whole_log;       /* the log has no two steps of its own: each pass is one */
    size_t thread;           /* the thread whose steps these are */
    size_t stream;           /* the stream of this thread's first allocation in the steps */
    size_t step_allocations; /* all threads' allocations in the first step */
} ashlar_replay_plan;

/* Find the steps of a log that is to be replayed `passes` times. Ownership: the caller ends *out
 * with ashlar__replay_plan_finish(). Errors: ASHLAR_EHOSTMEM; *out is then as it was. */
ASHLAR_MUST_CHECK ashlar_status ashlar__replay_plan_init(const ashlar_rmm_log *log, size_t passes,
                                                         ashlar_replay_plan *out);
void ashlar__replay_plan_finish(ashlar_replay_plan *plan);

/* Replays a recorded log of allocations on a software device.
 *
 * Each thread and stream of the log gets a thread or stream of its own; a thread lives to its
 * last event. Threads take turns in the order of the log, so that every replay is the
 * same, and each stream sees its allocations and frees in that order. Memory is never touched, so
 * the device may be larger than the host.
 *
 * A replay is one pass or several passes over the log, by the same threads with the same allocator,
 * which keeps its memory. A pass ends with frees of all blocks that the log leaves live. */

/* Capacities are multiples of the software device's granularity. */
#define ASHLAR_REPLAY_GRAIN_BYTES ((size_t)2 << 20)

/* The allocator's functions; a test can replace them by faulty ones. */
typedef struct ashlar_replay_calls {
    ashlar_status (*alloc)(ashlar_allocator *allocator, size_t bytes, ashlar_stream stream,
                           void **out);
    ashlar_status (*free)(ashlar_allocator *allocator, void *ptr);
    ashlar_status (*free_on)(ashlar_allocator *allocator, void *ptr, ashlar_stream stream);
    ashlar_status (*check)(ashlar_allocator *allocator);
    ashlar_status (*step_begin)(ashlar_allocator *allocator, ashlar_stream stream, uint64_t key);
    ashlar_status (*step_end)(ashlar_allocator *allocator);
} ashlar_replay_calls;

extern const ashlar_replay_calls ashlar__replay_calls_of_ashlar;

typedef struct ashlar_replay_config {
    const ashlar_replay_calls *calls;
    size_t memory_bytes;     /* of the device; a multiple of ASHLAR_REPLAY_GRAIN_BYTES, not 0 */
    size_t passes;           /* over the log, at least 1; with a plan, as many as it has */
    bool stops_at_a_failure; /* otherwise a failed allocation is counted, and its free skipped */
    uintptr_t *addresses;    /* NULL, or [block_count]: each block's last address; unchanged if
                                all its allocations failed */
    uint64_t *reserved;      /* NULL, or [passes]: bytes taken from the driver as each pass ends */
    const ashlar_replay_plan *plan; /* of the log; NULL: without steps */
    ashlar_report_fn report;        /* gets reports of damage and leaks; NULL: none */
} ashlar_replay_config;

enum { ASHLAR_REPLAY_TEXT_BYTES = 1024 };

typedef struct ashlar_replay_result {
    uint64_t peak_live;        /* the most live bytes at a time, as requested */
    uint64_t peak_reserved;    /* bytes taken from the driver */
    uint64_t reserved_at_peak; /* of live bytes */
    uint64_t driver_calls;     /* made by the allocator, up to the last event */
    size_t allocations;        /* allocations tried */
    size_t failures;           /* allocations that failed for lack of memory */
    double hit_rate;           /* share of successful allocations for which no memory was mapped, no
                                  caches were emptied and the host did not wait; NaN: there are none */
    ashlar_plan_stats plan;    /* how the plan served the steps; zeros if there are none */
    char failure[ASHLAR_REPLAY_TEXT_BYTES]; /* the first failure, as FILE:LINE: detail; or "" */
} ashlar_replay_result;

/* Replay a log on a fresh software device, then check the allocator.
 *
 * result   figures of all passes. Even on success it may count failed allocations.
 *
 * Threads: no other thread may use a software device meanwhile.
 * Errors:  ASHLAR_EFORMAT (a block that overlaps a live one, an allocator that fails its check; the
 *          detail begins with FILE:LINE:), ASHLAR_EHOSTMEM, and those of the allocator, except
 *          ASHLAR_ENOMEM of an allocation, which is counted. */
ASHLAR_MUST_CHECK ashlar_status ashlar__replay_run(const ashlar_rmm_log *log,
                                                   const ashlar_replay_config *config,
                                                   ashlar_replay_result *result);

/* Find, by bisection between the peaks of live and reserved memory, a capacity with which all
 * passes over the log succeed, while with one grain less an allocation fails. (A still smaller
 * capacity might succeed, by luck in fragmentation.)
 *
 * config     with the memory_bytes and passes that `result` was measured with
 * result     of a run without failed allocations
 * capacity   bytes, a multiple of ASHLAR_REPLAY_GRAIN_BYTES
 *
 * Errors: as ashlar__replay_run(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__replay_find_capacity(const ashlar_rmm_log *log,
                                                             const ashlar_replay_config *config,
                                                             const ashlar_replay_result *result,
                                                             size_t *capacity);

/* Open a table `blocks` in a JSON object, with begins and ends in this unit; put a row of it. */
void ashlar__replay_open_blocks(ashlar_json_writer *w, const char *time);
void ashlar__replay_put_block(ashlar_json_writer *w, uint64_t address, uint64_t bytes,
                              uint64_t begin, uint64_t end);

/* What is to be done with a log. */
typedef struct ashlar_replay_job {
    size_t memory_bytes; /* of the device; a multiple of ASHLAR_REPLAY_GRAIN_BYTES, not 0 */
    size_t passes;       /* at least 1 */
    bool finds_capacity;
    bool has_plan;
    bool lists_blocks; /* the report has a table `blocks`, whose times are events of the log */
    ashlar_report_fn report;
} ashlar_replay_job;

/* Read a log of RMM and replay it; print the figures, and put a JSON object. Errors: those of
 * ashlar__rmm_log_read() and ashlar__replay_run(), and ASHLAR_ENOMEM if allocations failed: then
 * the figures are there even so. */
ASHLAR_MUST_CHECK ashlar_status ashlar__replay_log_run(const ashlar_replay_job *job,
                                                       const char *path, FILE *out,
                                                       ashlar_json_writer *w);

#endif /* ASHLAR_REPLAY_H */
