/* replay.h - replays a recorded log of allocations on a software device (internal).
 *
 * Each thread and stream of the log gets a thread or stream of its own; a thread lives from its
 * first event to its last. Threads take turns in the order of the log, so that every replay is the
 * same, and each stream sees its allocations and frees in that order. Memory is never touched, so
 * the device may be larger than the host.
 *
 * A replay is one pass or several passes over the log, by the same threads with the same allocator,
 * which keeps its memory. A pass ends with frees of all blocks that the log leaves live. */
#ifndef ASHLAR_REPLAY_H
#define ASHLAR_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/allocator.h>

#include "allocator/base/json.h"
#include "bench/replay/replay_plan.h"
#include "bench/replay/rmm_csv.h"

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
    ashlar_report_fn report; /* gets reports of damage and leaks; NULL: none */
} ashlar_replay_config;

enum { ASHLAR_REPLAY_TEXT_BYTES = 1024 };

typedef struct ashlar_replay_result {
    uint64_t peak_live;     /* of the requested bytes */
    uint64_t peak_reserved; /* bytes taken from the driver */
    uint64_t driver_calls;  /* made by the allocator, up to the last event */
    size_t allocations;     /* tried */
    size_t failures;        /* allocations that failed for lack of memory */
    size_t cross_frees;     /* frees on another stream than the allocation's */
    double hit_rate;        /* share of successful allocations for which no memory was mapped, no
                               caches were emptied and the host did not wait; NaN: there are none */
    double ns_per_op;       /* of allocations and frees only; NaN if there are none */
    ashlar_plan_stats plan; /* of the steps; zeros if there are none */
    char failure[ASHLAR_REPLAY_TEXT_BYTES]; /* the first one, as FILE:LINE: detail; or "" */
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

/* Find, by bisection between the peaks of live and reserved memory, a capacity at which all passes
 * over the log succeed while one fails with one grain less. (A smaller one might still do, by luck
 * in fragmentation.)
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

/* Add the blocks of a replayed log to an open JSON object: a table `blocks`, whose times are events
 * of the log, and whose sizes are as requested.
 *
 * addresses  [block_count], as set by the replay; 0: the block was never allocated
 *
 * Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__replay_put_blocks(ashlar_json_writer *writer,
                                                          const ashlar_rmm_log *log,
                                                          const uintptr_t *addresses);

#endif /* ASHLAR_REPLAY_H */
