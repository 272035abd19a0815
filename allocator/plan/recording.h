/*
 * recording.h - what a step allocated, in order: what a plan is made of (internal).
 *
 * Time is counted in allocations of the step: allocation i happens at time i, and a block that is
 * freed when e allocations have been made lives in [i, e). Two of them are live at the same time
 * exactly if each begins before the other ends.
 *
 * Invariants of a closed recording (ashlar__recording_is_sound):
 *   i < allocs[i].end <= count,  or  allocs[i].end == ASHLAR_NOT_PLANNED
 *   allocs[i].stream_idx < stream_count <= ASHLAR_PLAN_STREAMS_MAX
 *   allocs[i].bytes > 0,  allocs[i].tag < ASHLAR_TAG_COUNT
 */
#ifndef ASHLAR_RECORDING_H
#define ASHLAR_RECORDING_H

#include <ashlar/plan.h>

#include "allocator/heap/stream_state.h"

/* `end` of an allocation that outlives its step, or was used on further streams. */
#define ASHLAR_NOT_PLANNED UINT32_MAX

/* The most allocations of one step. */
#define ASHLAR_RECORDING_MAX ((uint32_t)1 << 30)
_Static_assert(ASHLAR_RECORDING_MAX < UINT32_MAX / 2, "sums of counts fit, and are no NOT_PLANNED");

typedef struct ashlar_recorded {
    size_t bytes; /* asked for */
    uint32_t end; /* allocations made before it was freed */
    unsigned char tag;
    unsigned char stream_idx; /* it is for the stream stream_states[stream_idx] */
    bool is_landing; /* one of the steps merged came here otherwise than from the one before */
} ashlar_recorded;

typedef struct ashlar_recording {
    ashlar_recorded *allocs;     /* [count] */
    const ashlar_block **blocks; /* [count] until closed: what is not freed yet; else NULL */
    uint32_t count;
    uint32_t capacity;
    ashlar_stream_state
        *stream_states[ASHLAR_PLAN_STREAMS_MAX]; /* in the order in which they came */
    uint32_t stream_count;
    bool is_incomplete; /* host memory ran out: the recording is of no use */
} ashlar_recording;

void ashlar__recording_finish(ashlar_recording *recording);

/* Whether the invariants hold. O(count), for assertions. */
bool ashlar__recording_is_sound(const ashlar_recording *recording);

/*
 * Record the next allocation. Where host memory runs out, the recording is incomplete.
 *
 * bytes   > 0
 */
void ashlar__recording_add(ashlar_recording *recording, size_t bytes, unsigned tag,
                           ashlar_stream_state *state, ashlar_block *block);

/*
 * Record that `block` is freed, or, with is_planned false, used by further streams from now on.
 * False: it is not a live block of this recording.
 */
bool ashlar__recording_end(ashlar_recording *recording, const ashlar_block *block, bool is_planned);

/* Mark the states of its streams as referenced. */
void ashlar__recording_mark_referenced(const ashlar_recording *recording);

/* The step is over, and what is still live outlives it: nothing is added any more. */
void ashlar__recording_close(ashlar_recording *recording);

/*
 * Merge `from` into `into`, both closed, so that the result dominates both. Each allocation of
 * `from` is paired with the next one of `into` that has its tag and stream, or, where there is
 * none, put in between. A pair has the larger size and the longer lifetime, and is planned only if
 * both are.
 *
 * A step of either leaves out allocations of the other. But none of those right before one of its
 * own has the tag and stream of that one: so whoever looks for the next allocation of a tag and
 * stream finds the step's own.
 *
 * Errors: ASHLAR_EHOSTMEM, ASHLAR_EOVERFLOW; then `into` is as before.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__recording_merge(ashlar_recording *into,
                                                        const ashlar_recording *from);

#endif /* ASHLAR_RECORDING_H */
