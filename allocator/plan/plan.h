/*
 * plan.h - recordings of what steps allocate, and plans made of them: a slot, which is a place in a
 * plan memory (planner.h), for each allocation of a step (internal).
 *
 * Why a slot may be handed out. Time passes from slot to slot as requests are served, and never
 * goes back within a step. The slots with i <= t < slots[i].end were live at time t of the recorded
 * step, so they were packed without overlaps. Only a live block of some other slot can be in the
 * way. Such a block is *late*: its slot's end has passed, or it is left from an earlier step.
 * `expiry` lists the slots by their ends: as time passes, the replay looks at each slot whose end
 * has come, and puts its block, if still live, on the late list of the plan memory. A request gets
 * slot i if i <= t < slots[i].end and no late block overlaps the slot.
 *
 * Invariants of an ashlar_plan:
 *   i < slots[i].end <= count for every planned slot; slots[i].bytes == 0 for every other one
 *   slots[i].end == count if slots[i].is_shared
 *   expiry[k]->end <= expiry[k + 1]->end,  expired_to[count] == expiry_count <= count
 *   expired_to[i] == number of planned slots with end <= i
 *   i < next_kind[i] <= count,  landings[k] < landings[k + 1] < count
 *   of the planned slots of a stream: offsets[i] + slots[i].bytes <= plan_bytes,
 *     bound_bytes <= plan_bytes
 */
#ifndef ASHLAR_PLAN_INTERNAL_H
#define ASHLAR_PLAN_INTERNAL_H

#include <ashlar/allocator.h>

#include "allocator/heap/stream_state.h"

/* ---- recordings ---- */

/* How many of the slots that it passed over a replay remembers, for requests that come out of the
 * recorded order. */
enum { ASHLAR_REPLAY_SKIPPED_MAX = 16 };

/* `end` of an allocation that outlives its step. */
#define ASHLAR_NOT_PLANNED UINT32_MAX

/* The most allocations of one step. */
#define ASHLAR_RECORDING_MAX ((uint32_t)1 << 30)
_Static_assert(ASHLAR_RECORDING_MAX < UINT32_MAX / 2, "sums of counts fit, and are no NOT_PLANNED");

/*
 * A recording has the allocations of a step in their order. Time is counted in allocations of the
 * step: allocation i happens at time i, and its block lives in [i, e) if e allocations had been
 * made when it was freed. Two blocks are live at the same time exactly if each begins before the
 * other ends. A *shared* block, one that several streams use, keeps its slot to the end of the
 * step, since the next step begins behind all those uses.
 *
 * Invariants of a closed recording (ashlar__recording_is_sound):
 *   i < allocs[i].end <= count,  or  allocs[i].end == ASHLAR_NOT_PLANNED
 *   allocs[i].stream_idx < stream_count <= ASHLAR_PLAN_STREAMS_MAX
 *   allocs[i].bytes > 0,  allocs[i].tag < ASHLAR_TAG_COUNT
 *   allocs[i].end == ASHLAR_NOT_PLANNED if allocs[i].is_refused
 */
typedef struct ashlar_recorded {
    size_t bytes; /* requested; if is_refused: the smallest size that was refused */
    uint32_t end; /* allocations made before this one's block was freed, or ASHLAR_NOT_PLANNED */
    unsigned char tag;
    unsigned char stream_idx; /* the block's request was on stream_states[stream_idx] */
    bool is_landing : 1;      /* one of the merged steps leaves out the allocation before this one,
                               * and goes on here */
    bool is_shared : 1;       /* freed on a stream other than its own, or passed to
                               * ashlar_record_stream() for one */
    bool is_refused : 1; /* a request that was refused: it is not planned, and a replay expects it
                          * to be refused again */
} ashlar_recorded;

typedef struct ashlar_recording {
    ashlar_recorded *allocs;     /* [count] */
    const ashlar_block **blocks; /* [count], the live blocks, NULL where one was freed; the array is
                                  * gone once the recording is closed */
    uint32_t count;
    uint32_t capacity;
    ashlar_stream_state
        *stream_states[ASHLAR_PLAN_STREAMS_MAX]; /* in the order of their first allocations */
    uint32_t stream_count;
    size_t peaks[ASHLAR_PLAN_STREAMS_MAX]; /* by stream_idx: a step's peak of live bytes on that
                                            * stream, the highest of all merged steps; set once
                                            * the recording is measured or loaded */
    size_t held_peaks[ASHLAR_PLAN_STREAMS_MAX]; /* the same, but shared blocks count to the end of
                                                 * the step; 0 in a recording that was loaded */
    bool is_incomplete; /* host memory ran out: the recording is of no use */
} ashlar_recording;

void ashlar__recording_finish(ashlar_recording *recording);

/* Whether the invariants of a closed recording hold. O(count), for assertions. */
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
 * They return false if `block` is not a live block of this recording. */
bool ashlar__recording_end(ashlar_recording *recording, const ashlar_block *block);
bool ashlar__recording_share(ashlar_recording *recording, const ashlar_block *block);

/* The time from which the addresses of allocation i's slot may serve another allocation;
 * ASHLAR_NOT_PLANNED if it has no slot. */
static inline uint32_t ashlar__recording_held_to(const ashlar_recording *recording, uint32_t i) {
    const ashlar_recorded *a = &recording->allocs[i];
    return a->is_shared && a->end != ASHLAR_NOT_PLANNED ? recording->count : a->end;
}

/* Set is_referenced of the recording's stream states, so that they are not deleted. */
void ashlar__recording_mark_referenced(const ashlar_recording *recording);

/* End the recording: blocks that are still live outlive the step, and nothing can be added. */
void ashlar__recording_close(ashlar_recording *recording);

/*
 * Find the peaks of live bytes of a closed recording: each planned allocation counts as much as its
 * slot, until it is freed, or if `is_held`, until ashlar__recording_held_to().
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
 * A replay looks for the next slot with the request's tag and stream. So a step of either recording
 * finds its own slots in a plan of both: what it leaves out right before one of its allocations
 * never has that one's tag and stream. If `more` is itself merged, this may fail; so does the call.
 *
 * Errors: ASHLAR_EHOSTMEM, ASHLAR_EOVERFLOW (too much, or refused); then *out is unchanged.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__recording_merge(const ashlar_recording *base,
                                                        const ashlar_recording *more,
                                                        ashlar_recording *out);

/* ---- plans ---- */

typedef struct ashlar_slot ashlar_slot;
struct ashlar_slot {
    size_t bytes; /* a multiple of ASHLAR_BLOCK_ALIGN; 0: not planned */
    union {
        ashlar_block *slot_block; /* describes the block that starts at this slot's offset */
        size_t unplanned;         /* if bytes == 0: the recorded size, of a refused request the
                                   * smallest that was refused; in slots[count]: 0 */
    };
    ashlar_block *before; /* slot block of the slot that ends when this one begins; it must be free
                           * before this slot is handed out. If no slot ends then:
                           * ashlar__no_slot_block; if several do: ashlar__many_slot_blocks */
    uintptr_t who;        /* ashlar__slot_who() of the requests that this slot serves */
    uint32_t end;         /* from allocation number `end` on, other slots may have its addresses */
    unsigned char tag;
    unsigned char stream_idx;
    bool is_shared;  /* its block's uses on other streams are noted in the plan memory */
    bool is_refused; /* a request that was refused when it was recorded; not planned */
};

_Static_assert(sizeof(ashlar_slot) == 40, "a step's slots stay in the nearest cache");

/* A request's stream and tag in one word, so that one comparison checks both. Different pairs give
 * different words, because the highest byte of every handle but ASHLAR_NO_STREAM is zero. */
static inline uintptr_t ashlar__slot_who(ashlar_stream stream, unsigned tag) {
    return (uintptr_t)stream ^ (uintptr_t)tag << 56;
}

/* The size of the largest request that the slot stands for; if is_refused, of the smallest. */
static inline size_t ashlar__slot_room(const ashlar_slot *slot) {
    return slot->bytes > 0 ? slot->bytes : slot->unplanned;
}

typedef struct ashlar_stream_plan {
    ashlar_stream_state *stream_state; /* the stream of the slots */
    size_t plan_bytes;                 /* the highest end of the stream's slots */
    size_t bound_bytes; /* the peak of the stream's live bytes in any one of the merged steps:
                         * memory that serves all of these cannot be smaller */
} ashlar_stream_plan;

typedef struct ashlar_plan {
    uint32_t count;
    ashlar_slot *slots;         /* [count + 1]; the last slot fits no request, so that searches end
                                 * there */
    size_t *offsets;            /* [count], by slot, in the plan memory of the slot's stream */
    uint32_t *next_kind;        /* [count + 1], by slot: the next slot of another size, tag or
                                 * stream */
    const ashlar_slot **expiry; /* [expiry_count], the planned slots by `end` */
    uint32_t expiry_count;
    uint32_t *expired_to; /* [count + 1]; expired_to[t]: number of planned slots with end <= t */
    uint32_t *landings;   /* [landing_count], ascending indices of the slots of landings: see
                           * ashlar_recorded.is_landing */
    uint32_t landing_count;
    ashlar_stream_plan stream_plans[ASHLAR_PLAN_STREAMS_MAX];
    ashlar_stream streams[ASHLAR_PLAN_STREAMS_MAX]; /* the streams that the slots' `who` names */
    bool has_streams;                               /* false: `who` is not set yet */
    uint32_t stream_count;
} ashlar_plan;

/*
 * Make a plan of a closed recording, whose peaks are known, by packing it. The slots have no slot
 * blocks yet. Lock: none is needed.
 *
 * room   [stream_count]: the first packing of a stream that fits in so many bytes is taken; 0: the
 *        smallest packing is searched for
 *
 * Errors: ASHLAR_EHOSTMEM, ASHLAR_EOVERFLOW.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__plan_make(const ashlar_recording *recording,
                                                  uint64_t search_ms, const size_t *room,
                                                  ashlar_plan **out);

/* Make a plan without packing it: its slots have no offsets, but show what would serve a step. */
ASHLAR_MUST_CHECK ashlar_status ashlar__plan_outline(const ashlar_recording *recording,
                                                     ashlar_plan **out);

void ashlar__plan_free(ashlar_plan *plan); /* NULL is allowed */

/* From now on a slot serves requests on streams[stream_idx], or no requests if that is
 * ASHLAR_NO_STREAM.
 * Cost: O(slots), or O(streams) if no stream has changed. */
void ashlar__plan_name_streams(ashlar_plan *plan, const ashlar_stream *streams);

/* Stand-ins in ashlar_slot.before where no slot ends, or several do. The first is never taken. The
 * second always is, so that a request takes the slow path, which looks at each slot block. */
extern ashlar_block ashlar__no_slot_block, ashlar__many_slot_blocks;

/* Whether a plan has slots in the plan memory of a stream. False if `plan` is NULL. */
bool ashlar__plan_uses(const ashlar_plan *plan, const ashlar_stream_state *state);

/* Whether a plan has slots for a stream that has ended. False if `plan` is NULL. */
bool ashlar__plan_has_ended(const ashlar_plan *plan);

/* Set `before` of every slot. Every planned slot must have its slot block. */
void ashlar__plan_link(ashlar_plan *plan);

#endif /* ASHLAR_PLAN_INTERNAL_H */
