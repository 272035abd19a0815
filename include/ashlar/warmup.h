/*
 * warmup.h - before training, reserve the memory that steps of every length need.
 *
 * A training step's allocations depend on the length of its sequences. The warm-up goes through all
 * lengths of a range, makes a plan (plan.h) of the largest sizes, takes the plan's memory, proves
 * the plan, and seals the allocator:
 *
 *     ashlar_warmup_options options = {.stream = stream, .min_length = 1, .max_length = 512,
 *                                      .step = step, .dry_run = dry_run, .user = model};
 *     ashlar_allocator_warmup(allocator, &options, NULL);
 *     ...
 *     ashlar_step_begin(allocator, stream, ashlar_warmup_key(&options, length));
 *     ...                                               a step of that length
 *     ashlar_step_end(allocator);
 *
 * THE GUARANTEE. If ashlar_allocator_warmup() succeeds and reports is_steady, then no later step of
 * any length from min_length to max_length takes memory from the driver, maps or unmaps any, or
 * needs more than is reserved then, in whatever order the lengths come and however far the device
 * is behind. That is, if
 *   - each step is between ashlar_step_begin() and ashlar_step_end(), also with without_plan, and
 *     begins on `stream` with the key of its length;
 *   - it allocates, frees and marks blocks (ashlar_record_stream()) as its dry run did at that
 *     length, on one thread, and nothing else allocates meanwhile;
 *   - none of its streams is destroyed or captured;
 *   - if plans do not serve all of its requests: the same blocks are live when it begins as when
 *     the warm-up ended; no memory was trimmed or limited since.
 * When a step begins, all blocks that earlier steps used on several streams can be reused: the
 * stream that such a block was taken for waits, in its own order, for those uses (see plan.h). If
 * plans do not serve all requests, the step also begins with an empty cache. If a program uses each
 * block on one stream only, the allocator calls no function of the driver at all.
 *
 * This is proven, not guessed: with the finished plans, every length has run from such a beginning,
 * and found all memory that it needs in memory that stays. If that does not prove the guarantee,
 * is_steady is false, and unsteady_because says why.
 */
#ifndef ASHLAR_WARMUP_H
#define ASHLAR_WARMUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/allocator.h>
#include <ashlar/export.h>
#include <ashlar/plan.h>
#include <ashlar/status.h>

ASHLAR_BEGIN_DECLS

/* The most passes over all lengths. */
enum { ASHLAR_WARMUP_PASSES_MAX = 16 };

/*
 * Allocate and free as a step of `length` does, in the same order, from the allocator that is
 * warmed up. A dry run frees everything that it takes, on the same thread. It may try more than
 * there is, as the step does: what would exceed the limit, or the device's memory, beside the
 * blocks that are live, is refused (ASHLAR_ENOMEM), in the dry run and later. A failure ends the
 * warm-up, which returns this status; give the reason by ashlar_error_set().
 */
typedef ashlar_status (*ashlar_warmup_fn)(void *user, size_t length);

typedef struct ashlar_warmup_options {
    ashlar_stream stream;       /* the steps' main stream, named from now on (top of allocator.h) */
    size_t min_length;          /* 1 .. max_length; 0 stands for 1 */
    size_t max_length;          /* must be given */
    size_t length_bucket_count; /* the lengths are cut into so many ranges of equal width, and no
                                 * plan serves lengths of two; 0 stands for 1. With a dry run, a
                                 * range has as many plans as are needed to keep their memory, which
                                 * they share, as small as the largest step allows; else one */
    uint64_t key;               /* of steps of min_length; the next length's is key + 1 */
    bool without_plan;          /* run all lengths without plans; later steps of these keys are not
                                 * recorded, unless ashlar_plan_record_next() asks for it */
    ashlar_warmup_fn step;      /* runs a real step, but without effects that may happen only once,
                                 * such as an update of weights. NULL: only the dry run */
    ashlar_warmup_fn dry_run;   /* makes a step's allocations without its work; called at least
                                 * twice for every length. At first it gets addresses without
                                 * memory, which must not be used. NULL: `step` is called instead,
                                 * but only for the longest length of each bucket; then that must
                                 * dominate (plan.h) the shorter ones */
    void *user;                 /* passed to `step` and `dry_run`, of which one must be given */
} ashlar_warmup_options;

typedef struct ashlar_warmup_report {
    bool is_planned;              /* there are plans; see ashlar_allocator_warmup() */
    bool is_steady;               /* the guarantee above holds */
    const char *unsteady_because; /* NULL if is_steady; else a constant text that says why not:
                                   * memory is short, so that every pass took some from another
                                   * stream; or plans do not serve all requests, and not every
                                   * length has run (dry_run is NULL); or blocks are used on
                                   * several streams, and there are no thread caches; or a step's
                                   * blocks are taken on other streams from run to run; or a guard
                                   * mode is on */
    size_t length_count;          /* lengths that a pass goes through */
    size_t pass_count;            /* passes over all lengths with the finished plans */
    double gap;                   /* plan_bytes / bound_bytes - 1: how much more the plans take
                                   * than the largest step of any length has live at once */
    uint64_t reserved_bytes;      /* physical memory after the warm-up */
    uint64_t driver_calls;        /* driver calls that the allocator made during the warm-up */
    ashlar_plan_stats plan;       /* statistics of all plans of the allocator */
} ashlar_warmup_report;

/*
 * Warm up:
 *
 *   1. record the allocations of every length, the longest first; with a dry run this takes no
 *      memory, and neighbouring lengths of a range are merged where a plan for both needs at most
 *      0.4 % more than the largest step of all, or fits in as many handles
 *   2. wait for the device, and give all free memory back to the driver
 *   3. pack the plans, and take their memory
 *   4. run `step` at the maximum length; on a CUDA device then at half of it, a quarter and so on,
 *      down to the minimum, for libraries that take memory of their own when they are first used
 *   5. run all lengths, again and again, until a pass takes no memory from the driver or another
 *      stream: at most ASHLAR_WARMUP_PASSES_MAX times
 *   6. wait for the device, and seal the allocator
 *
 * Afterwards the reserved memory holds the blocks that were live before, the plans, and the
 * allocations that are not planned (see plan.h), in units of the device's granularity. In a guard
 * mode or without thread caches there are no plans, and only steps 4 to 6 are done.
 *
 * options   pass the same to ashlar_warmup_key(). Earlier plans and recordings of the keys are
 *           replaced, as are those of an earlier warm-up with the same `key`
 * report    may be NULL; unchanged on failure
 *
 * Threads: any; during the call no other thread may allocate, and no step or capture may be under
 *          way.
 * Errors:  ASHLAR_EINVAL (options; a step is under way; a dry run keeps a block; `step` or
 *          `dry_run` allocates differently the second time; the detail says at which length, and
 *          how), ASHLAR_ENOMEM (the device, or the limit, is too small for the step or its plan),
 *          ASHLAR_EHOSTMEM, ASHLAR_EOVERFLOW, ASHLAR_EDRIVER, and those of `step` and `dry_run`.
 *          After an error the keys have no plans, the plans' memory is given back, and this call
 *          has not sealed the allocator.
 * Cost:    O(lengths x allocations), a packing for each bucket, two waits for the device.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_allocator_warmup(ashlar_allocator *allocator, const ashlar_warmup_options *options,
                        ashlar_warmup_report *report);

/*
 * The key of steps of `length`, or of the nearest length if it is out of range.
 * Threads: any.
 */
ASHLAR_API uint64_t ashlar_warmup_key(const ashlar_warmup_options *options, size_t length);

/* Lengths that one plan serves. */
typedef struct ashlar_warmup_bucket {
    size_t first_length, last_length;
    uint64_t plan_bytes; /* bytes of its plan, on all streams; 0: no plan, so that the ordinary path
                          * serves its steps. The plans of a stream share one memory */
    uint64_t peak_bytes; /* the most that its recorded steps have live at once on each stream, in
                          * multiples of 512 B, summed over the streams; 0: none is recorded */
    uint64_t steps;      /* steps of the key that have ended since the warm-up */
    uint64_t calls;      /* driver calls of all threads while these steps were under way, without
                          * those that pick a device */
    uint64_t own_calls;  /* of these calls, the number made by the allocator */
    uint64_t room[9];    /* for fields of later versions; 0 */
} ashlar_warmup_bucket;

/*
 * List the buckets of the last warm-up with these options, the shortest lengths first: what each
 * bucket needs, and how many driver calls its steps have made so far.
 *
 * out       [capacity]; NULL: only count the buckets
 * count     receives the number of buckets; those that `out` has no room for are left out
 *
 * Threads: any.  Errors: ASHLAR_EHOSTMEM.
 * Cost:    takes the lock. O(keys^2).
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_warmup_list_buckets(ashlar_allocator *allocator, const ashlar_warmup_options *options,
                           ashlar_warmup_bucket *out, size_t capacity, size_t *count);

ASHLAR_END_DECLS

#endif /* ASHLAR_WARMUP_H */
