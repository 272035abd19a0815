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
 *     has, at most ASHLAR_PLAN_LOOK_AHEAD runs of alike ones in a row;
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
 * WHAT A PLAN COSTS. No more memory than it saves, to a hundredth or a handle:
 *   - Where the slots of the largest recorded step serve the others, too, as those of the longest
 *     sequence often do, it alone is planned; record it first.
 *     Otherwise recorded steps are merged if one plan for all of them needs at most 1/256 more than
 *     the largest, or fits in as many handles. If not, the key is not planned, and steps_apart
 *     counts them. Give different tags to blocks of different purpose, or different
 *     keys to steps that are not alike.
 *   - A plan's memory is taken from what is reserved and free, for which a build may wait, and a
 *     plan is given up if the allocator would still reserve more than it did for the recorded
 *     steps. (Dry runs reserve nothing; there the rule for merging is all.)
 *   - A step that misses leaves its plan if more would be mapped while the plan's memory is idle.
 *     What is live stays where it is, and the rest serves the step and later ones: the ordinary
 * path serves this key from now on, unless a step is recorded again that needs most of what is
 * free. Before a request in a step fails, the step leaves its plan, too.
 * ashlar_plan_stats.plans_left counts both. A step that leaves its plan in the midst finds free
 * memory in pieces: of 12,000 runs of drawn loops over sequences, whose sizes did not change with
 * the length, 1 in 900 reserved two or three handles more than without plans; of 4,000 whose sizes
 * did, 1 in 100 reserved up to half as much again; on average it was 0.9 % less
 * (tests/allocator/step/test_plan_cost.c).
 *
 * A block that several streams use, since it is marked by ashlar_record_stream() or freed on
 * another stream, keeps its slot until the step ends: no other allocation of the step has its
 * addresses. At the end of a step an event is recorded on each stream that used such blocks. When
 * the next step on the memory begins, the stream that owns the memory waits for it in its own
 * order: one event and one wait for each pair of streams and step at most, and no wait on the host.
 * A step is declined if such a stream is captured when it begins. So a plan takes up to the sum of
 * all such blocks of a step, as the cache does while the device is so far behind that none of them
 * is free again. Where the device keeps up, the cache takes less: for 200 drawn steps on two to
 * four streams, plans took 9.8 times the peak of live bytes, the cache 10.4 times and 2.7 times.
 * Such blocks are not planned if there is no memory for so many slots, or the recorded steps did
 * with less. ashlar_warmup_report.gap says how much it is after dry runs. Without plans a steady
 * step (warmup.h) takes no less, since it holds such blocks, too.
 *
 * Allocations that were live at the end of the recorded step are not planned: the ordinary path
 * serves them, in the recorded step and later. Nor are requests that the recorded step was refused
 * for lack of memory: a replayed step that makes them, too, goes by the ordinary path, which is no
 * miss, and it finds its next slot all the same.
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
 * the driver only if what it gave up is not free any more; the slots keep their offsets. If there
 * is no memory then, or more would be reserved than for the recorded steps, the step is declined.
 */
#ifndef ASHLAR_PLAN_H
#define ASHLAR_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/allocator.h>
#include <ashlar/export.h>
#include <ashlar/status.h>

ASHLAR_BEGIN_DECLS

enum {
    ASHLAR_PLAN_LOOK_AHEAD = 64,   /* runs of alike slots that a request may skip */
    ASHLAR_PLAN_STREAMS_MAX = 128, /* per step; allocations on further streams are not planned */
};

#define ASHLAR_PLAN_SEARCH_NONE UINT64_MAX /* of search_ms */
#define ASHLAR_PLAN_BUILD_NEVER UINT32_MAX /* of build_after */

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

/* "larger than recorded" and so on; "unknown" if the value is not a miss. Threads: any. */
ASHLAR_API const char *ashlar_plan_miss_text(ashlar_plan_miss miss);

/* Counts are of steps that have ended. */
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
    uint64_t steps_apart; /* recorded steps that were not merged: one plan would need more memory
                           * than the largest step, so their key has none */
    uint64_t plans_left;  /* plans that cost more than they saved: so the ordinary path serves their
                           * keys */
} ashlar_plan_stats;

/* The sum of all misses, whatever their reason. Threads: any. */
ASHLAR_API uint64_t ashlar_plan_miss_total(const ashlar_plan_stats *stats);

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

ASHLAR_END_DECLS

#endif /* ASHLAR_PLAN_H */
