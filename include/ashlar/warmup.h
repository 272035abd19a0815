/*
 * warmup.h - size the memory of steps of every length before the first one is taken.
 *
 * A training step's allocations depend on the length of its sequences. The warm-up goes through
 * every length there will be, makes a plan (plan.h) of the largest sizes, takes the plan's memory,
 * proves the plan, and seals the allocator:
 *
 *     ashlar_warmup_options options = {.stream = stream, .min_length = 1, .max_length = 512,
 *                                      .step = step, .dry_run = dry_run, .user = model};
 *     ashlar_allocator_warmup(allocator, &options, NULL);
 *     ...
 *     ashlar_step_begin(allocator, stream, ashlar_warmup_key(&options, length));
 *     ...                                               a step of that length
 *     ashlar_step_end(allocator);
 *
 * THE GUARANTEE. If ashlar_allocator_warmup() succeeds and reports is_steady, no later step of any
 * length from min_length to max_length makes the allocator call the driver, or needs a byte beyond
 * what is reserved then: as long as each step allocates as its dry run did at its length, and
 * whatever is allocated between steps is as during the warm-up. This is checked, not concluded:
 * every length has gone through the finished plans once, and each of its requests was served from
 * a plan or from free blocks of its own stream.
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

/* Most passes over all lengths until one changes nothing; see is_steady. */
enum { ASHLAR_WARMUP_PASSES_MAX = 16 };

/*
 * Allocate and free what a step of `length` does, in its order, from the allocator that is warmed
 * up. A dry run frees all that it takes, on the same thread. A failure ends the warm-up, which
 * returns it; say why by ashlar_error_set().
 */
typedef ashlar_status (*ashlar_warmup_fn)(void *user, size_t length);

typedef struct ashlar_warmup_options {
    ashlar_stream stream; /* the steps' main one */
    size_t min_length;    /* 1 .. max_length */
    size_t max_length;
    size_t length_bucket_count; /* plans, each for a range of lengths, the ranges equally wide; they
                                 * share one memory. 0: one. More may help where longer steps make
                                 * more allocations */
    uint64_t key;               /* of steps in the shortest bucket; the others' count up from it */
    bool without_plan;          /* only go through the lengths, on the ordinary path */
    ashlar_warmup_fn step;      /* a real step, without what may happen only once, such as an update
                                 * of weights. NULL: only the dry run */
    ashlar_warmup_fn dry_run;   /* its allocations without its work, called at least twice for every
                                 * length. At first they get addresses without memory, which nothing
                                 * may use. NULL: `step` is called instead, but only for the longest
                                 * length of each bucket; then sizes must grow with the length */
    void *user;                 /* of `step` and `dry_run` */
    const char *plan_file;      /* where plans are kept; NULL: nowhere. If the file exists, its
                                 * plans replace recording and packing; otherwise plans are saved
                                 * there. See plan_file.h. For steps on one stream */
    const char *fingerprint;    /* what the plans depend on, besides lengths and buckets */
} ashlar_warmup_options;

typedef struct ashlar_warmup_report {
    bool is_planned;         /* there are plans; see ashlar_allocator_warmup() */
    bool is_loaded;          /* ... from plan_file */
    bool is_steady;          /* false: the last of ASHLAR_WARMUP_PASSES_MAX passes still took memory
                              * from the driver or from another stream, as each later one may */
    size_t length_count;     /* lengths that a pass goes through */
    size_t pass_count;       /* of those on the finished plan */
    double gap;              /* of the plans: plan_bytes / bound_bytes - 1 */
    ashlar_plan_stats plan;  /* of all plans of the allocator */
    uint64_t reserved_bytes; /* physical memory after it */
    uint64_t driver_calls;   /* of the allocator, made by the warm-up */
} ashlar_warmup_report;

/*
 * Warm up:
 *
 *   1. record the allocations of every length, the longest first, merged for each bucket; where
 *      there is a dry run, without taking memory
 *   2. wait for the device, and give back all that is free
 *   3. pack the plans, and take their memory
 *   4. run `step` at the maximum length
 *   5. go through all lengths once more, until a pass finds all it needs in place
 *   6. wait for the device, and seal the allocator
 *
 * Afterwards the reserved memory is what was live before, the plans' memory, and that of
 * allocations that are not planned (see plan.h), in whole pieces of the device's granularity. In a
 * guard mode or without thread caches there are no plans, and the warm-up is steps 4 to 6.
 *
 * options   pass the same to ashlar_warmup_key(). Plans and recordings that the keys had before are
 *           replaced
 * report    NULL: not wanted; unchanged on failure
 *
 * Threads: any; meanwhile no other thread allocates, and no step or capture is under way.
 * Errors:  ASHLAR_EINVAL (options; a step is under way; a dry run keeps a block; `step` or
 *          `dry_run` does not allocate the second time as it did the first, and the detail says
 *          at which length, and how),
 *          ASHLAR_ENOMEM (the device, or the limit, is too small for the step or its plan), those
 *          of ashlar_plan_load() and ashlar_plan_save() (a plan_file of another fingerprint,
 *          damaged or not to be written: delete it, or name another one), ASHLAR_EHOSTMEM,
 *          ASHLAR_EOVERFLOW, ASHLAR_EDRIVER, and what `step` and `dry_run` return. Then the
 *          allocator is not sealed by this call, the keys have no plans, and the plans' memory is
 *          given back.
 * Cost:    O(lengths x allocations), a packing for each bucket, two waits for the device.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_allocator_warmup(ashlar_allocator *allocator, const ashlar_warmup_options *options,
                        ashlar_warmup_report *report);

/*
 * The key of steps of a length, which is that of its bucket; out of range, of the nearest bucket.
 * Threads: any.
 */
ASHLAR_API uint64_t ashlar_warmup_key(const ashlar_warmup_options *options, size_t length);

ASHLAR_END_DECLS

#endif /* ASHLAR_WARMUP_H */
