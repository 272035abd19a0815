/*
 * plan.h - step plans: record what one step allocates, pack it, serve later steps from the plan.
 *
 *     ashlar_step_begin(allocator, stream, key);
 *     ...                                          allocate, queue work, free
 *     ashlar_step_end(allocator);
 *
 * In C++ a guard (step.hpp) makes a step of a scope; a program whose memory comes from cudaMalloc()
 * has steps, too (cuda_dropin.h).
 *
 * The first step of a key is recorded: the size, tag, stream and lifetime of each allocation. Then
 * the recording is packed: each allocation becomes a slot, an offset in memory that the plan holds,
 * and slots share addresses only if their lifetimes do not meet. In later steps of that key
 * allocation i is served from slot i in a few instructions.
 *
 * THE GUARANTEE. For its planned allocations, a replayed step calls no driver function, except for
 * the order of blocks that several streams use, and needs no byte beyond the plan's memory, if it
 * is dominated by the recorded step (or, after merging, by one of the merged steps). That is, if
 *   - one thread allocates, in the recorded order; it may stop early. If no steps were merged, it
 *     may also leave out recorded allocations whose tag and stream no later allocation of the step
 *     has, at most ASHLAR_PLAN_LOOK_AHEAD runs of ones alike in size, tag and stream in a row;
 *   - each allocation is no larger than the recorded one, and has the same tag and stream;
 *   - each block is freed, by any thread, before every allocation that came after the block's free
 *     in the recording;
 *   - it is freed on the stream it was allocated for, and ashlar_record_stream() was not called
 *     for another stream. If the recorded step did one or the other with that allocation's block,
 *     any streams may use the block, and it need be freed only before the step ends;
 *   - when the step began, no block of an earlier step was live in the same memory;
 *   - during the step none of its streams is destroyed or captured.
 * Steps that leave out more, as steps on shorter sequences do, should be recorded and merged: see
 * build_after and ashlar_plan_record_next().
 *
 * WHAT A PLAN COSTS. No more memory than it saves, to within a hundredth or a handle:
 *   - If the slots of the largest recorded step serve the others, too, as those of the longest
 *     sequence often do, only that step is planned; record it first. Otherwise recorded steps are
 *     merged if one plan for all of them needs at most 1/256 more than the largest step, or fits in
 *     as many handles. If not, the key is not planned, and steps_apart counts its steps. Give
 *     different tags to blocks of different purpose, or different keys to steps that are not alike.
 *   - A plan's memory is taken from what is reserved and free, for which a build may wait, and a
 *     plan is given up if the allocator would still reserve more than it did for the recorded
 *     steps. (After dry runs, which reserve nothing, only the rule for merging applies.)
 *   - A step that misses leaves its plan if more would be mapped while the plan's memory is idle.
 *     What is live stays where it is, and the rest serves the step and later ones: the ordinary
 *     path serves this key from now on, unless a step is recorded again that needs most of what is
 *     free. A step also leaves its plan before one of its requests fails.
 * ashlar_plan_stats.plans_left counts plans given up or left. A step that leaves its plan midway
 * finds free memory in pieces: of 12,000 runs of random loops over sequences, whose sizes did not
 * change with the length, 1 in 900 reserved two or three handles more than without plans; of 4,000
 * whose sizes did, 1 in 100 reserved up to half as much again; on average it was 0.9 % less
 * (tests/allocator/step/test_plan_cost.c).
 *
 * A block that several streams use, since it is marked by ashlar_record_stream() or freed on
 * another stream, keeps its slot until the step ends: no other allocation of the step has its
 * addresses. At the end of a step an event is recorded on each stream that used such blocks. When
 * the next step on the memory begins, the stream that owns the memory waits for these events in its
 * own order: at most one event and one wait for each pair of streams and step, and none on the
 * host. A step is declined if such a stream is captured when it begins. So a plan takes up to the
 * sum of all such blocks of a step, as a caching allocator does while the device is so far behind
 * that none of them is free again. Where the device keeps up, caching takes less: for 200 random
 * steps on two to four streams, plans took 9.8 times the peak of live bytes, caching 10.4 times
 * with a device far behind, and 2.7 times with one that keeps up. Such blocks are not planned if
 * there is no memory for so many slots, or the recorded steps needed less. After dry runs
 * ashlar_warmup_report.gap says how much it is. A steady step (see the warm-up, below) takes no
 * less without a plan, since it keeps such blocks to its end, too.
 *
 * Allocations that were live at the end of the recorded step are not planned: the ordinary path
 * serves them, in the recorded step and later. Nor are requests that the recorded step was refused
 * for lack of memory: if a replayed step makes one, the ordinary path serves it, which counts as no
 * miss, and the step's next allocation finds its slot all the same.
 *
 * When a step diverges, the ordinary path serves it until its allocations match the plan again.
 * Every allocation is checked: its slot must be large enough, be for the right stream, and overlap
 * nothing live. ashlar_plan_stats says how often this fails, and why.
 *
 * Each stream has plan memory of its own, since nothing proves an order between two streams before
 * the step runs.
 *
 * Plan memory that no step uses serves any request that finds no other memory, and a request of a
 * step before more is mapped. The next step on such a plan takes memory for it again, which calls
 * the driver only if the memory that the plan lent is not free; the slots keep their offsets. If
 * there is none, or more would be reserved than for the recorded steps, the step is declined.
 */
#ifndef ASHLAR_PLAN_H
#define ASHLAR_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/base.h>
#include <ashlar/device.h>

ASHLAR_BEGIN_DECLS

typedef struct ashlar_allocator ashlar_allocator; /* allocator.h */

enum {
    ASHLAR_PLAN_LOOK_AHEAD = 64,   /* a request may skip as many runs of equal slots: of one size,
                                    * tag and stream */
    ASHLAR_PLAN_STREAMS_MAX = 128, /* per step; allocations on further streams are not planned */
};

#define ASHLAR_PLAN_SEARCH_NONE UINT64_MAX /* a value of search_ms */
#define ASHLAR_PLAN_BUILD_NEVER UINT32_MAX /* a value of build_after */

typedef struct ashlar_plan_options {
    uint64_t search_ms;      /* most milliseconds to search for the packings of one call, and then
                              * to wait (a second at most) for work that uses free memory, before
                              * more is mapped; 0 stands for 200. ASHLAR_PLAN_SEARCH_NONE: try only
                              * the greedy orders, and do not wait */
    uint32_t build_after;    /* plan a key once this many of its steps are recorded; 0 stands for 1.
                              * ASHLAR_PLAN_BUILD_NEVER: only when ashlar_plan_build() is called */
    uint32_t rerecord_after; /* record a key anew after this many steps in a row with a miss;
                              * 0: never */
} ashlar_plan_options;

/* Why a request of a replayed step was served from the ordinary path. */
#define ASHLAR_PLAN_MISS_MAP(X)                             \
    X(BYTES, "larger than recorded")                        \
    X(TAG, "another tag than recorded")                     \
    X(STREAM, "another stream than recorded")               \
    X(LIVE, "its slot overlaps a block that is still live") \
    X(EXTRA, "behind the last recorded allocation")

#define ASHLAR_PLAN_MISS_ENUM(name, text) ASHLAR_PLAN_MISS_##name,
typedef enum ashlar_plan_miss {
    ASHLAR_PLAN_MISS_MAP(ASHLAR_PLAN_MISS_ENUM) ASHLAR_PLAN_MISS_COUNT
} ashlar_plan_miss;
#undef ASHLAR_PLAN_MISS_ENUM

/* Statistics of all plans of an allocator. Counts are of steps that have ended. */
typedef struct ashlar_plan_stats {
    uint64_t memory_bytes; /* held by plans now; plans of one stream share memory. Less while plan
                            * memory serves other requests */
    uint64_t plan_bytes;   /* each stream's largest plan, summed over streams with plan memory */
    uint64_t bound_bytes;  /* each stream's highest peak of live bytes in any recorded step, summed
                            * in the same way: no memory for these steps can be smaller */
    uint64_t plan_count;
    uint64_t slot_count; /* of all plans */
    uint64_t steps_recorded;
    uint64_t steps_replayed;
    uint64_t steps_declined; /* served by the ordinary path: because another thread's step used the
                              * plan's memory or key, or was taking memory for a plan; or because
                              * there was no memory for the plan, or the stream was captured */
    uint64_t hits;           /* requests of replayed steps served from their slots */
    uint64_t unplanned;      /* requests of replayed steps for allocations that are not planned, or
                              * that the recorded step was refused */
    uint64_t misses[ASHLAR_PLAN_MISS_COUNT];
    uint64_t miss_count;  /* the sum of misses[] */
    uint64_t steps_apart; /* recorded steps that were not merged: one plan would need more memory
                           * than the largest step, so their key has none */
    uint64_t plans_left;  /* plans given up, or left in a step, since they cost more memory than
                           * they saved: the ordinary path serves their keys */
} ashlar_plan_stats;

/*
 * Begin a step of the calling thread. The step is recorded if `key` has no plan on this stream, and
 * replayed otherwise. Allocations of other threads are not part of it; each thread may be in a step
 * of its own. A step begun within another is part of the outer step, and its key is ignored. In a
 * guard mode, without thread caches, or after ashlar_allocator_watch_streams(), steps are neither
 * recorded nor replayed.
 *
 * stream   the step's main stream, named from now on (see the top of allocator.h). If one of the
 *          key's streams was forgotten, the key is recorded anew. Plans on a thread's own default
 *          stream are forgotten when the thread ends
 * key      a number for steps that are alike, say those of one range of lengths
 *
 * Threads: any.  Stream: may queue a wait for other streams' uses of the plan's memory.
 * Errors:  ASHLAR_EHOSTMEM, ASHLAR_EDRIVER, ASHLAR_EINVAL (a stream that would have to wait is
 *          captured without a pool); then the step has not begun.
 * Cost:    takes the lock. While any step is recorded, each allocation and free takes the lock,
 *          too.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_step_begin(ashlar_allocator *allocator,
                                                             ashlar_stream stream, uint64_t key);

/*
 * End the calling thread's step. If it was recorded and build_after is reached, the key is planned:
 * its recording is packed, and memory may be taken for the plan.
 *
 * Threads: the one that began the step.
 * Errors:  ASHLAR_EINVAL (this thread is in no step; in a guard mode, or without thread caches,
 *          that goes unnoticed), ASHLAR_EHOSTMEM (the recording is lost),
 *          ASHLAR_ENOMEM, ASHLAR_EDRIVER (no memory for the plan). The step has ended all the same.
 *          The ordinary path then serves the key's steps until ashlar_plan_build() finds memory, or
 *          a step of the key is recorded again. Other keys keep their plans.
 * Cost:    takes the lock. A packing takes up to search_ms, or longer for thousands of allocations.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_step_end(ashlar_allocator *allocator);

/*
 * Set the options for all keys, from now on; NULL: the defaults.
 *
 * Threads: any.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_plan_set_options(ashlar_allocator *allocator, const ashlar_plan_options *options);

/*
 * Plan every key that was recorded since it was last planned, or has no plan, unless its steps are
 * too different (WHAT A PLAN COSTS, above). Steps recorded under one key are merged, with the
 * largest sizes and longest lifetimes, so that the plan dominates each of the steps. Merging pairs
 * allocations by tag and stream. Steps that together are on more than ASHLAR_PLAN_STREAMS_MAX
 * streams are not merged: the newest one is kept.
 *
 * Threads: any; not while a step is under way (ASHLAR_EINVAL).
 * Errors:  ASHLAR_EHOSTMEM, ASHLAR_ENOMEM, ASHLAR_EDRIVER; keys for which there was no memory stay
 *          unplanned.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_plan_build(ashlar_allocator *allocator);

/*
 * Record the key's next step even if the key has a plan or a recording. The step is merged into the
 * recording, so that the next plan serves old and new steps.
 *
 * Threads: any.
 */
ASHLAR_API void ashlar_plan_record_next(ashlar_allocator *allocator, uint64_t key);

/*
 * Forget all plans and recordings, and give their memory to the ordinary path, but for blocks that
 * are live. (ashlar_allocator_trim() takes no memory from plans that are not dropped.)
 *
 * Threads: any; not while a step is under way (ASHLAR_EINVAL).
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_plan_drop(ashlar_allocator *allocator);

/* Read the statistics of all plans. Threads: any.  Cost: takes the lock. */
ASHLAR_API void ashlar_plan_get_stats(ashlar_allocator *allocator, ashlar_plan_stats *out);

/* ---- warm-up ---- */

/*
 * Before training, a warm-up reserves the memory that steps of every length need.
 *
 * A training step's allocations depend on the length of its sequences. The warm-up goes through all
 * lengths of a range, makes plans of them, takes the plans' memory, proves that they suffice, and
 * seals the allocator:
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
 * stream that such a block was taken for waits, in its own order, for those uses (WHAT A PLAN
 * COSTS, above). If plans do not serve all requests, the step also begins with an empty cache. If a
 * program uses each block on one stream only, the allocator calls no function of the driver at all.
 *
 * This is proven, not guessed: with the finished plans, every length has run from such a beginning,
 * and found all memory that it needs in memory that stays reserved. If that does not prove the
 * guarantee, is_steady is false, and unsteady_because says why.
 */

enum { ASHLAR_WARMUP_PASSES_MAX = 16 }; /* the most passes of a warm-up over all lengths */

/*
 * Allocate and free as a step of `length` does, in the same order, from the allocator that is
 * warmed up. A dry run frees everything that it takes, on the same thread. Like the step it may
 * request more than there is: what would exceed the limit, or the device's memory, beside the
 * blocks that are live, is refused (ASHLAR_ENOMEM), in the dry run and later. If this function
 * fails, the warm-up ends and returns its status; give the reason by ashlar_error_set().
 */
typedef ashlar_status (*ashlar_warmup_fn)(void *user, size_t length);

typedef struct ashlar_warmup_options {
    ashlar_stream stream;       /* the steps' main stream, named from now on (top of allocator.h) */
    size_t min_length;          /* 1 .. max_length; 0 stands for 1 */
    size_t max_length;          /* must be given */
    size_t length_range_count;  /* the lengths are cut into so many ranges of equal width, and no
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
                                 * but only for the longest length of each range; then that must
                                 * dominate the shorter ones, as a recorded step its replays (THE
                                 * GUARANTEE at the top of this file) */
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
 * allocations that are not planned, in units of the device's granularity. In a guard mode or
 * without thread caches there are no plans, and only steps 4 to 6 are done.
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
 * Cost:    O(lengths x allocations), a packing for each plan, two waits for the device.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status
ashlar_allocator_warmup(ashlar_allocator *allocator, const ashlar_warmup_options *options,
                        ashlar_warmup_report *report);

/* The key of steps of `length`, or of the nearest length if it is out of range. Threads: any. */
ASHLAR_API uint64_t ashlar_warmup_key(const ashlar_warmup_options *options, size_t length);

/* ---- the largest size that fits ---- */

/*
 * ashlar_fit() finds how large a program may be on a device of a given size, without such a device.
 *
 *     static ashlar_status try_batch(void *user, ashlar_allocator *memory, size_t batch) {
 *         ... take what outlives steps from `memory`, warm up with a dry run, give all back
 *     }
 *     ashlar_fit_options options = {.run = try_batch, .max_value = 4096, .device_bytes = 24 << 30};
 *     ashlar_fit(device, &options, &fit);    a software device of 24 GiB or more
 *
 * The callback does all that takes memory, and none of the work: ashlar_allocator_warmup() with a
 * dry run goes through every length that way. So a trial takes milliseconds, and the memory need
 * not be there: open the software device with ASHLAR_SOFT=memory=1TiB,touch=off.
 *
 * The result is exact for what an allocator takes, in units of its memory handles. For a CUDA
 * device with cuDNN, whose work spaces have other sizes than on the CPU, it is an estimate.
 */

/*
 * Try a size: take from `allocator` what the program takes at that size, and give all of it back,
 * after a failure too. Return ASHLAR_OK, or ASHLAR_ENOMEM where the memory does not suffice; any
 * other status ends the search.
 */
typedef ashlar_status (*ashlar_fit_fn)(void *user, ashlar_allocator *allocator, size_t value);

typedef struct ashlar_fit_options {
    ashlar_fit_fn run;   /* must be given */
    void *user;          /* passed to `run` */
    size_t min_value;    /* 0 stands for 1 */
    size_t max_value;    /* min_value .. ; must be given */
    size_t device_bytes; /* memory of the device to fit on, rounded down to 2 MiB; no more than
                          * `device` has. 0: all that `device` has */
} ashlar_fit_options;

typedef struct ashlar_fit_result {
    size_t value;      /* the largest that runs; the next one, unless it is max_value, does not */
    size_t trials;     /* calls of `run` */
    size_t need_bytes; /* the value runs on a device of this size, and not on one 2 MiB smaller */
} ashlar_fit_result;

/*
 * Find the largest value that runs on a device of device_bytes, and what it needs. The search
 * assumes that a larger value needs more. Where that is not so, the value that is found still runs
 * and the next one does not, but a larger one may.
 *
 * To learn what one value needs, give it as min_value and max_value, and a large device.
 *
 * device   a software device, whose memory is not touched; each trial has an allocator of its own
 *          there, with the options of ASHLAR_CONF
 *
 * Threads: any; no other thread may use the device's memory meanwhile.
 * Errors:  ASHLAR_ENOMEM (min_value does not run; the detail is that of its refusal),
 *          ASHLAR_EINVAL (options), ASHLAR_ENOTSUP (no software device), ASHLAR_EHOSTMEM, and what
 *          `run` returns.
 * Cost:    O(log of value and need) calls of `run`.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_fit(ashlar_device *device,
                                                      const ashlar_fit_options *options,
                                                      ashlar_fit_result *out);

/* ---- packing by itself ---- */

/*
 * ashlar_pack() finds offsets for buffers whose sizes and lifetimes are known in advance.
 *
 * Buffers that are live at the same time must not overlap, and all together should need as few
 * bytes as possible. It is a pure function: it takes no device memory, and the same buffers with
 * the same options, and time enough, give the same offsets on every machine.
 *
 *     const ashlar_pack_buffer buffers[] = {{4096, 0, 3}, {1024, 1, 2}, {2048, 3, 5}};
 *     const ashlar_pack_options options = {.alignment = 256, .time_budget_ms = 1000};
 *     size_t offsets[3];
 *     ashlar_pack_result result;
 *     status = ashlar_pack(buffers, 3, &options, offsets, &result);
 */

/* A buffer to place. Times are in any unit; only their order counts. */
typedef struct ashlar_pack_buffer {
    size_t bytes;        /* at least 1 */
    uint64_t begin, end; /* live in [begin, end); begin < end */
} ashlar_pack_buffer;

/* The packer's progress. */
typedef struct ashlar_pack_progress {
    size_t plan_bytes;    /* size of the best plan so far; 0 before the first one */
    size_t bound_bytes;   /* no plan can be smaller */
    uint64_t elapsed_ms;  /* since the call began */
    const char *strategy; /* the method being tried; never NULL */
} ashlar_pack_progress;

typedef struct ashlar_pack_options {
    size_t alignment;        /* bytes; every offset is a multiple. A power of two; 0 stands for 1 */
    size_t capacity_bytes;   /* stop at the first plan that fits in it; 0: find the smallest plan */
    uint64_t time_budget_ms; /* until the search ends, the greedy orders included; 0: no search */
    /* Called at most ten times a second; false: stop, and keep the best plan. NULL: not wanted. */
    bool (*progress)(void *user, const ashlar_pack_progress *now);
    void *user; /* passed to `progress` */
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
 * all. There, a budget too short for the search (milliseconds) can give a larger plan than a budget
 * of 0.
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

#endif /* ASHLAR_PLAN_H */
