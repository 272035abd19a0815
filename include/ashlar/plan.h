/*
 * plan.h - steps: record what one allocates, pack it, and serve the later ones from the plan.
 *
 *     ashlar_step_begin(allocator, stream, key);
 *     ...                                          allocate, queue work, free
 *     ashlar_step_end(allocator);
 *
 * The first step of a key is recorded: of each allocation its size, tag, stream and lifetime. The
 * recording is packed: each allocation becomes a slot, an offset in memory that the
 * plan holds, so that slots share addresses only where their lifetimes do not meet. In later steps
 * of that key allocation i is served from slot i in a few instructions.
 *
 * THE GUARANTEE. A step replayed on a plan calls the driver for no planned allocation and needs no
 * byte beyond the plan's memory for them, if it is dominated by the step that was recorded, or by
 * one of those merged into the recording:
 *   - one thread allocates, in the recorded order, to the end or not. Where no steps were merged,
 *     allocations may be left out on the way if none that follows in the step has their tag and
 *     stream, and no more in a row than ASHLAR_PLAN_LOOK_AHEAD runs of alike ones;
 *   - each allocation is no larger than the recorded one, and has its tag and stream;
 *   - each is freed, by any thread, before any of the allocations that came after its free when
 *     it was recorded;
 *   - it is freed on the stream it was allocated for, and was not marked for others;
 *   - when the step began, no block of an earlier step in the same memory was still live;
 *   - meanwhile none of its streams is destroyed or captured.
 * Steps that leave out more, as shorter sequences do, are to be recorded and merged: see
 * build_after and ashlar_plan_record_next().
 *
 * Allocations that were still live at the end of the recorded step, or were used on several
 * streams, are not planned: they take the ordinary path, in the recorded step and later.
 *
 * A step that diverges is served from the ordinary path where it does, and finds back into the
 * plan: a slot is given only where it is large enough, of the right stream, and overlaps nothing
 * live, which is checked at every allocation. ashlar_plan_stats says how often and why.
 *
 * Streams are never mixed: each has memory of its own, since nothing proves an order between two
 * streams before the step runs.
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
    ASHLAR_PLAN_LOOK_AHEAD = 64,  /* runs of alike slots that a request may skip */
    ASHLAR_PLAN_STREAMS_MAX = 16, /* of one step; allocations on further ones are not planned */
};

typedef struct ashlar_plan_options {
    uint64_t search_ms;      /* spent at most on one packing, beyond the fast orders; 200 */
    uint32_t build_after;    /* plan a key when so many of its steps are recorded; 1.
                              * 0: when ashlar_plan_build() is called */
    uint32_t rerecord_after; /* record a key anew after so many steps in a row with a miss;
                              * 0: never */
} ashlar_plan_options;

/* Why a request of a replayed step was served from the ordinary path. */
#define ASHLAR_PLAN_MISS_MAP(X)                                              \
    X(BYTES, "larger than recorded")                                         \
    X(TAG, "another tag than recorded")                                      \
    X(STREAM, "another stream than recorded")                                \
    X(LIVE, "its slot overlaps a block that is still live")                  \
    X(EXTRA, "behind the last recorded allocation")

#define ASHLAR_PLAN_MISS_ENUM(name, text) ASHLAR_PLAN_MISS_##name,
typedef enum ashlar_plan_miss {
    ASHLAR_PLAN_MISS_MAP(ASHLAR_PLAN_MISS_ENUM)
    ASHLAR_PLAN_MISS_COUNT
} ashlar_plan_miss;
#undef ASHLAR_PLAN_MISS_ENUM

/* "larger than recorded" and so on; "unknown" for a value that is none. Threads: any. */
ASHLAR_API const char *ashlar_plan_miss_text(ashlar_plan_miss miss);

/* Counts are of steps that have ended. */
typedef struct ashlar_plan_stats {
    uint64_t memory_bytes;   /* memory that plans hold now: plans of one stream share it */
    uint64_t plan_bytes;     /* sum over streams of the largest plan there; <= memory_bytes */
    uint64_t bound_bytes;    /* sum over streams of the largest peak of live bytes of a plan */
    uint64_t plan_count;
    uint64_t slot_count;     /* of all plans */
    uint64_t steps_recorded;
    uint64_t steps_replayed;
    uint64_t steps_declined; /* served from the ordinary path: another thread was in that memory or
                              * at the key, no memory could be had, or the stream is captured */
    uint64_t hits;           /* requests of replayed steps served from their slots */
    uint64_t unplanned;      /* served from the ordinary path as they were when recorded */
    uint64_t misses[ASHLAR_PLAN_MISS_COUNT];
} ashlar_plan_stats;

/* The misses of all reasons together. Threads: any. */
ASHLAR_API uint64_t ashlar_plan_miss_total(const ashlar_plan_stats *stats);

/*
 * Begin a step of the calling thread: recorded if `key` has no plan on this stream, else replayed.
 * What other threads allocate meanwhile is not part of it; each may be in a step of its own. A step
 * begun within another is part of that one, and its key is of no matter.
 *
 * stream   the step's main one: if it is another than when the key was recorded, and that one is
 *          destroyed, the plan moves to this one. Steps on a thread's own default stream are
 *          forgotten when the thread ends; a key that has lost another of its streams is recorded
 *          anew
 * key      names steps that are alike, say those of one range of lengths
 *
 * Threads: any.  Stream: may queue a wait for a stream that is gone.
 * Errors:  ASHLAR_EHOSTMEM, ASHLAR_EDRIVER, ASHLAR_EINVAL (a stream that would have to wait is
 *          captured without a pool); the step has not begun then.
 * Cost:    takes the lock. While a step is recorded, no thread's cache serves without it.
 * In a guard mode, or without thread caches, steps are neither recorded nor replayed.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_step_begin(ashlar_allocator *allocator,
                                                             ashlar_stream stream, uint64_t key);

/*
 * End the calling thread's step. If it was recorded and build_after is reached, the key is planned:
 * that packs, and may take memory.
 *
 * Errors:  ASHLAR_EINVAL (no step of this thread), ASHLAR_EHOSTMEM (the recording is lost),
 *          ASHLAR_ENOMEM, ASHLAR_EDRIVER (the plan's memory); the step has ended all the same, and
 *          its key is served from the ordinary path until ashlar_plan_build() finds memory for it,
 *          or a step of it is recorded again. Other keys' plans stay as they are if they can.
 * Cost:    takes the lock; with a packing, up to search_ms and more for thousands of allocations.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_step_end(ashlar_allocator *allocator);

/* NULL: the defaults. Threads: any. */
ASHLAR_API void ashlar_plan_set_options(ashlar_allocator *allocator,
                                        const ashlar_plan_options *options);

/*
 * Plan every key that was recorded since it was last planned, or has no plan. Steps recorded under
 * one key are merged: largest sizes, longest lifetimes; so that each of them is dominated. What is
 * paired has the same tag and stream: tags keep things of different sizes apart.
 *
 * Threads: any; not while a step is under way (ASHLAR_EINVAL).
 * Errors:  ASHLAR_EHOSTMEM, ASHLAR_ENOMEM, ASHLAR_EDRIVER; keys without memory stay unplanned.
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_plan_build(ashlar_allocator *allocator);

/*
 * Have the next step of a key recorded even if the key has a plan or a recording: merged into it,
 * so that the next plan serves both.
 *
 * Threads: any.
 */
ASHLAR_API void ashlar_plan_record_next(ashlar_allocator *allocator, uint64_t key);

/*
 * Forget all plans and recordings, and let the ordinary path have their memory: at once, or where a
 * block of a plan is still live, when it is freed and a step begins or ends. Nothing else takes it
 * from the plans, neither ashlar_allocator_trim() nor a request that finds no other.
 *
 * Threads: any; not while a step is under way (ASHLAR_EINVAL).
 */
ASHLAR_API ASHLAR_MUST_CHECK ashlar_status ashlar_plan_drop(ashlar_allocator *allocator);

/* Threads: any.  Cost: takes the lock. */
ASHLAR_API void ashlar_plan_get_stats(ashlar_allocator *allocator, ashlar_plan_stats *out);

ASHLAR_END_DECLS

#endif /* ASHLAR_PLAN_H */
