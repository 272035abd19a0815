/*
 * recording.h - the allocations of a step in their order, which a plan is made from (internal).
 *
 * Time is counted in allocations of the step: allocation i happens at time i, and its block lives
 * in [i, e) if e allocations had been made when it was freed. Two blocks are live at the same time
 * exactly if each begins before the other ends. The slot of a *shared* block, which several streams
 * use, is held to the end of the step: the next step begins behind all those uses.
 *
 * Invariants of a closed recording (ashlar__recording_is_sound):
 *   i < allocs[i].end <= count,  or  allocs[i].end == ASHLAR_NOT_PLANNED
 *   allocs[i].stream_idx < stream_count <= ASHLAR_PLAN_STREAMS_MAX
 *   allocs[i].bytes > 0,  allocs[i].tag < ASHLAR_TAG_COUNT
 *   allocs[i].end == ASHLAR_NOT_PLANNED if allocs[i].is_refused
 *   peaks[] <= ashlar__recording_find_peaks(), for as many steps as are merged
 */
#ifndef ASHLAR_RECORDING_H
#define ASHLAR_RECORDING_H

#include <ashlar/plan.h>

#include "allocator/heap/stream_state.h"

/* How many slots that were passed over a replay keeps for requests that come out of order. */
enum { ASHLAR_REPLAY_SKIPPED_MAX = 16 };

/* `end` of an allocation that outlives its step. */
#define ASHLAR_NOT_PLANNED UINT32_MAX

/* The most allocations of one step. */
#define ASHLAR_RECORDING_MAX ((uint32_t)1 << 30)
_Static_assert(ASHLAR_RECORDING_MAX < UINT32_MAX / 2, "sums of counts fit, and are no NOT_PLANNED");

typedef struct ashlar_recorded {
    size_t bytes; /* asked for; of a refusal, the least that was refused */
    uint32_t end; /* allocations made before this one's block was freed, or ASHLAR_NOT_PLANNED */
    unsigned char tag;
    unsigned char stream_idx; /* the block's request was on stream_states[stream_idx] */
    bool is_landing : 1;      /* in one of the merged steps, the allocation before this one was left
                               * out */
    bool is_shared : 1;       /* freed on a stream other than its own, or passed to
                               * ashlar_record_stream() for one */
    bool is_refused : 1; /* a request that was refused: it is not planned, and a replay expects it
                          * to be refused again */
} ashlar_recorded;

typedef struct ashlar_recording {
    ashlar_recorded *allocs;     /* [count] */
    const ashlar_block **blocks; /* [count], NULL for freed ones; no array once the recording is
                                  * closed */
    uint32_t count;
    uint32_t capacity;
    ashlar_stream_state
        *stream_states[ASHLAR_PLAN_STREAMS_MAX]; /* in the order of their first allocations */
    uint32_t stream_count;
    size_t peaks[ASHLAR_PLAN_STREAMS_MAX]; /* by stream_idx: a step's peak of live bytes on that
                                            * stream, the highest of all merged steps; set once
                                            * the recording is measured or loaded */
    size_t held_peaks[ASHLAR_PLAN_STREAMS_MAX]; /* the same, but each slot counts for as long as it
                                                 * is held; 0 in a recording that was loaded */
    bool is_incomplete; /* host memory ran out: the recording is of no use */
} ashlar_recording;

void ashlar__recording_finish(ashlar_recording *recording);

/* Whether the invariants hold. O(count), for assertions. */
bool ashlar__recording_is_sound(const ashlar_recording *recording);

/*
 * Record the next allocation. If host memory runs out, the recording becomes incomplete.
 *
 * bytes   > 0
 * block   NULL: the request was refused
 */
void ashlar__recording_add(ashlar_recording *recording, size_t bytes, unsigned tag,
                           ashlar_stream_state *state, ashlar_block *block);

/* _end: record that `block` is freed now. _share: record that more streams than its own use it.
 * False: it is not a live block of this recording. */
bool ashlar__recording_end(ashlar_recording *recording, const ashlar_block *block);
bool ashlar__recording_share(ashlar_recording *recording, const ashlar_block *block);

/* The time from which the addresses of allocation i's slot may serve another allocation;
 * ASHLAR_NOT_PLANNED if it has no slot. */
static inline uint32_t ashlar__recording_held_to(const ashlar_recording *recording, uint32_t i) {
    const ashlar_recorded *a = &recording->allocs[i];
    return a->is_shared && a->end != ASHLAR_NOT_PLANNED ? recording->count : a->end;
}

/* Set is_referenced of the recording's stream states. */
void ashlar__recording_mark_referenced(const ashlar_recording *recording);

/* End the recording: blocks that are still live outlive the step, and nothing can be added. */
void ashlar__recording_close(ashlar_recording *recording);

/*
 * Find the peaks of live bytes of a closed recording: each planned allocation counts as much as its
 * slot, from its beginning to its free, or if `is_held`, for as long as its slot is held.
 *
 * peaks   by stream_idx; unchanged on failure
 *
 * Errors: ASHLAR_EHOSTMEM, ASHLAR_EOVERFLOW.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__recording_find_peaks(
    const ashlar_recording *recording, bool is_held, size_t peaks[static ASHLAR_PLAN_STREAMS_MAX]);

/* The sum of held_peaks over the streams. */
static inline size_t ashlar__recording_held_bytes(const ashlar_recording *recording) {
    size_t bytes = 0;
    for (uint32_t stream_idx = 0; stream_idx < recording->stream_count; stream_idx++) {
        bytes += recording->held_peaks[stream_idx];
    }
    return bytes;
}

/*
 * Merge two closed recordings into a new one, which has room for a step of either. Each allocation
 * of `more` is paired with the next allocation of `base` with the same tag and stream; if there is
 * none, it is added between the others. A pair has the larger size and the longer lifetime of the
 * two, is planned only if both are, and shared if one is. Refusals are paired only with refusals,
 * and such a pair has the smaller size. The streams of `base` keep their indices.
 *
 * A step of one recording then leaves out allocations of the other. But allocations that are left
 * out right before one of the step's own never have the same tag and stream as that one. So a
 * search for the next allocation with that tag and stream finds the step's own. If `more` consists
 * of several merged steps, this may not hold for each of them: then `more` is refused. A single
 * step is never refused.
 *
 * Errors: ASHLAR_EHOSTMEM, ASHLAR_EOVERFLOW (too much, or refused); then *out is unchanged.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__recording_merge(const ashlar_recording *base,
                                                        const ashlar_recording *more,
                                                        ashlar_recording *out);

#endif /* ASHLAR_RECORDING_H */
