/*
 * recording.h - what a step allocated, in order: what a plan is made of (internal).
 *
 * Time is counted in allocations of the step: allocation i happens at time i, and a block freed
 * when e allocations had been made lives in [i, e). So two of them meet exactly where each begins
 * before the other ends.
 *
 * Invariants:
 *   i < end of allocation i <= count, or it is ASHLAR_NOT_PLANNED;  stream_idx < stream_count;
 *   bytes > 0
 */
#ifndef ASHLAR_RECORDING_H
#define ASHLAR_RECORDING_H

#include <ashlar/plan.h>

#include "allocator/heap/stream_state.h"

/* `end` of an allocation that outlives its step, or was used on further streams. */
#define ASHLAR_NOT_PLANNED UINT32_MAX

/* Allocations of one step at most: an index and one more have to fit. */
#define ASHLAR_RECORDING_MAX ((uint32_t)1 << 30)

typedef struct ashlar_recorded {
    size_t bytes; /* asked for */
    uint32_t end; /* allocations made before it was freed */
    unsigned char tag;
    unsigned char stream_idx; /* whose stream it is for: stream_states[stream_idx] */
    bool is_landing; /* a step of those merged came here from elsewhere than the one before */
} ashlar_recorded;

typedef struct ashlar_recording {
    ashlar_recorded *allocs;     /* [count] */
    const ashlar_block **blocks; /* [count], while it is recorded: not freed yet, else NULL */
    uint32_t count;
    uint32_t capacity;
    ashlar_stream_state
        *stream_states[ASHLAR_PLAN_STREAMS_MAX]; /* in the order in which they came */
    uint32_t stream_count;
    bool is_incomplete; /* host memory was out: the recording is of no use */
} ashlar_recording;

void ashlar__recording_finish(ashlar_recording *recording);

/* The next allocation. Where there is no host memory, the recording is incomplete. */
void ashlar__recording_add(ashlar_recording *recording, size_t bytes, unsigned tag,
                           ashlar_stream_state *state, ashlar_block *block);

/* `block` is freed, or is from now on used by further streams. False: not of this recording. */
bool ashlar__recording_end(ashlar_recording *recording, const ashlar_block *block, bool is_planned);

/* Mark the records of its streams as referenced. */
void ashlar__recording_mark_referenced(const ashlar_recording *recording);

/* The step is over: what is still live outlives it. */
void ashlar__recording_close(ashlar_recording *recording);

/*
 * Make `into` a recording that dominates both: its own allocations and those of `from`, each paired
 * with the next one of the same tag and stream, or, where there is none, put in between. Largest
 * sizes, longest lifetimes; what one of them does not plan is not planned.
 *
 * So of the allocations that a step of either leaves out before one of its own, none has that one's
 * tag and stream: whoever looks for the next one that has finds the step's own.
 *
 * Errors: ASHLAR_EHOSTMEM, ASHLAR_EOVERFLOW; then `into` is as before.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__recording_merge(ashlar_recording *into,
                                                        const ashlar_recording *from);

#endif /* ASHLAR_RECORDING_H */
