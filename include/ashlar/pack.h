/*
 * pack.h - offsets for buffers whose sizes and lifetimes are known in advance.
 *
 * Buffers that are live at the same time must not overlap, and together need as few bytes as
 * possible. The packer is a pure function: it takes no device memory, and the same buffers with the
 * same options, and time enough, give the same offsets on every machine.
 *
 *     const ashlar_pack_buffer buffers[] = {{4096, 0, 3}, {1024, 1, 2}, {2048, 3, 5}};
 *     const ashlar_pack_options options = {.alignment = 256, .time_budget_ms = 1000};
 *     size_t offsets[3];
 *     ashlar_pack_result result;
 *     status = ashlar_pack(buffers, 3, &options, offsets, &result);
 */
#ifndef ASHLAR_PACK_H
#define ASHLAR_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/status.h>

ASHLAR_BEGIN_DECLS

/* A buffer to place. Times are in any unit; only their order counts. */
typedef struct ashlar_pack_buffer {
    size_t bytes;        /* at least 1 */
    uint64_t begin, end; /* live in [begin, end); begin < end */
} ashlar_pack_buffer;

/* The packer's progress. */
typedef struct ashlar_pack_progress {
    size_t plan_bytes;    /* of the best plan so far; 0 before the first one */
    size_t bound_bytes;   /* no plan is smaller */
    uint64_t elapsed_ms;  /* since the call began */
    const char *strategy; /* the method being tried; never NULL */
} ashlar_pack_progress;

typedef struct ashlar_pack_options {
    size_t alignment;        /* of every offset, in bytes; a power of two; 0 stands for 1 */
    size_t capacity_bytes;   /* stop at the first plan that fits in it; 0: find the smallest plan */
    uint64_t time_budget_ms; /* until the search ends, the greedy orders included; 0: no search */
    /* Called at most ten times a second; false: stop, and keep the best plan. NULL: not wanted. */
    bool (*progress)(void *user, const ashlar_pack_progress *now);
    void *user; /* of `progress` */
} ashlar_pack_options;

typedef struct ashlar_pack_result {
    size_t plan_bytes;  /* highest end of a buffer, rounded up to the alignment */
    size_t bound_bytes; /* no plan is smaller: the peak of live bytes, each buffer rounded up to the
                         * alignment, or more if the search proved it */
    bool is_optimal;    /* no plan is smaller than this one: plan_bytes == bound_bytes */
    bool was_stopped;   /* by `progress`, or by the end of the time budget */
    const char *strategy; /* the method that found the plan, static text, for example "largest
                           * area first" */
} ashlar_pack_result;

/*
 * Place `count` buffers. Tries several greedy orders and keeps the best plan. If there is a time
 * budget, and that plan is more than 0.5 % above the bound, or above the capacity, a search
 * follows, which only ever replaces a plan by a better one. With more than 10,900 buffers, the time
 * budget is spent on the search instead of some of the orders; with more than 32,768, instead of
 * all. There, a budget too short for the search (milliseconds) can give a larger plan than none.
 *
 * buffers   [count]; may be NULL if count is 0, which gives a plan of 0 bytes
 * options   NULL: all options are 0
 * offsets   [count], multiples of the alignment; unchanged on failure
 * out       unchanged on failure. A plan that exceeds the capacity is no failure: plan_bytes tells.
 *
 * Threads: any; nothing is shared.  Stream: none.
 * Errors:  ASHLAR_EINVAL (a buffer of 0 bytes or without a lifetime, an alignment that is not a
 *          power of two), ASHLAR_EOVERFLOW (the sum of the sizes does not fit into size_t, or more
 *          than 2^30 buffers), ASHLAR_EHOSTMEM.
 * Cost:    the first plan, or without a time budget all greedy orders: near O(count log count),
 *          20,000 buffers in less than a second. A search ends with the time budget.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_pack(const ashlar_pack_buffer *buffers,
                                                       size_t count,
                                                       const ashlar_pack_options *options,
                                                       size_t *offsets, ashlar_pack_result *out);

ASHLAR_END_DECLS

#endif /* ASHLAR_PACK_H */
