/* step_key.c - the keys that a program gives its steps, one for each kind of step: finding a step's
 * key, passing the keys of an ended stream on to another stream, and joining two keys if one plan
 * serves the steps of both. */
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/step/step.h"

ashlar_step_key *ashlar__step_key_find_locked(const ashlar_allocator *a, uint64_t key,
                                              const ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    ashlar_step_key *at = a->planner.keys;
    while (at != NULL && (!ashlar__step_key_has(at, key) || at->stream_state != state)) {
        at = at->next;
    }
    return at;
}

/* A key of this number whose stream is gone, so that another stream may continue its steps. */
static ashlar_step_key *find_orphan(const ashlar_allocator *a, uint64_t key) {
    ashlar_step_key *at = a->planner.keys;
    while (at != NULL && (!ashlar__step_key_has(at, key) || !at->stream_state->is_gone)) {
        at = at->next;
    }
    return at;
}

/* Whether the key has steps or allocations on the stream. */
static bool knows(const ashlar_step_key *key, const ashlar_stream_state *state) {
    bool is_known = key->stream_state == state;
    for (uint32_t stream_idx = 0; stream_idx < key->recording.stream_count; stream_idx++) {
        is_known |= key->recording.stream_states[stream_idx] == state;
    }
    return is_known;
}

/*
 * Whether some key with steps or allocations on the stream is being recorded, planned or replayed.
 */
static bool is_stream_busy(const ashlar_allocator *a, const ashlar_stream_state *state) {
    const ashlar_plan_memory *memory = ashlar__planner_memory(&a->planner, state);
    const ashlar_step_key *at = a->planner.keys;
    while (at != NULL && (!ashlar__step_key_is_in_use(at) || !knows(at, state))) {
        at = at->next;
    }
    return at != NULL || (memory != NULL && memory->is_busy);
}

/* Whether the stream has keys, a plan memory, or slots of a plan whose memory was given up. */
static bool has_steps(const ashlar_allocator *a, const ashlar_stream_state *state) {
    const ashlar_step_key *at = a->planner.keys;
    while (at != NULL && at->stream_state != state && !ashlar__plan_uses(at->plan, state)) {
        at = at->next;
    }
    return at != NULL || ashlar__planner_memory(&a->planner, state) != NULL;
}

/*
 * Whether some key has steps or allocations on both streams. The streams cannot be merged then,
 * because the key's plan would still pack them as two streams.
 */
static bool share_key(const ashlar_allocator *a, const ashlar_stream_state *one,
                      const ashlar_stream_state *other) {
    const ashlar_step_key *at = a->planner.keys;
    while (at != NULL && (!knows(at, one) || !knows(at, other))) {
        at = at->next;
    }
    return at != NULL;
}

/*
 * Write only to places that hold `from`. The keys that have `from` are at rest. Others may be
 * packed or replayed at the moment, which reads their streams without the lock.
 */
static void replace_state(ashlar_stream_state **at, const ashlar_stream_state *from,
                          ashlar_stream_state *to) {
    if (*at == from) {
        *at = to;
    }
}

/*
 * Give all keys and the plan memory of `from`, whose stream is gone, to `to`. Later work on `to`
 * waits for the work of `from`.
 */
static ashlar_status rehome(ashlar_allocator *a, ashlar_stream_state *from,
                            ashlar_stream_state *to) {
    ashlar_plan_memory *memory = ashlar__planner_memory(&a->planner, from);
    ASHLAR_CHECK2(from->is_gone && !to->is_gone && !to->is_ended);
    ASHLAR_CHECK2(memory == NULL || !memory->is_busy);
    ASHLAR_CHECK3(!is_stream_busy(a, from));
    /* a stream has at most one plan memory */
    ASHLAR_CHECK2(ashlar__planner_memory(&a->planner, to) == NULL);
    ASHLAR_CHECK3(!share_key(a, from, to));
    if (memory != NULL && !ashlar__stream_state_is_past(from, ashlar__stream_state_stamp(from))) {
        const ashlar_status status = ashlar__stream_state_wait_on(from, &a->client, to->stream,
                                                                  ashlar__stream_state_stamp(from));
        if (status != ASHLAR_OK) {
            return status;
        }
    }
    if (memory != NULL) {
        ashlar__plan_memory_rehome_locked(memory, to);
    }
    for (ashlar_step_key *key = a->planner.keys; key != NULL; key = key->next) {
        replace_state(&key->stream_state, from, to);
        for (uint32_t stream_idx = 0; stream_idx < key->recording.stream_count; stream_idx++) {
            replace_state(&key->recording.stream_states[stream_idx], from, to);
        }
        for (uint32_t stream_idx = 0; key->plan != NULL && stream_idx < key->plan->stream_count;
             stream_idx++) {
            replace_state(&key->plan->stream_plans[stream_idx].stream_state, from, to);
        }
    }
    ASHLAR_CHECK3(!has_steps(a, from));
    return ASHLAR_OK;
}

static ashlar_status new_key(ashlar_allocator *a, uint64_t number, ashlar_stream_state *state,
                             ashlar_step_key **out) {
    ASHLAR_CHECK2(ashlar__step_key_find_locked(a, number, state) == NULL);
    ashlar_step_key *key = ashlar__host_calloc(1, sizeof *key);
    if (key == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a key of steps");
    }
    *key = (ashlar_step_key){
        .key = number, .number_count = 1, .stream_state = state, .next = a->planner.keys};
    a->planner.keys = key;
    *out = key;
    return ASHLAR_OK;
}

/*
 * Let `state` continue the steps of `orphan`, whose stream is gone. If the two streams cannot be
 * merged, forget the old stream's steps and begin a new key. *out is unchanged while the old
 * stream's steps are busy.
 */
static ashlar_status adopt(ashlar_allocator *a, ashlar_step_key *orphan, ashlar_stream_state *state,
                           ashlar_step_key **out) {
    const uint64_t number = orphan->key;
    if (is_stream_busy(a, orphan->stream_state)) {
        return ASHLAR_OK;
    }
    if (has_steps(a, state) || share_key(a, orphan->stream_state, state) ||
        orphan->stream_state->is_lost) {
        /*
         * Record the steps anew in two cases. The streams cannot be merged, since a stream has only
         * one plan memory and occurs only once in a plan. Or the old stream is lost, since nothing
         * can wait for its work.
         */
        ashlar__planner_forget_stream_locked(&a->planner, &a->heap, orphan->stream_state);
        return new_key(a, number, state, out);
    }
    const ashlar_status status = rehome(a, orphan->stream_state, state);
    if (status == ASHLAR_OK) {
        ASHLAR_CHECK2(orphan->stream_state == state);
        *out = orphan;
    }
    return status;
}

ashlar_status ashlar__step_key_of_locked(ashlar_allocator *a, uint64_t number,
                                         ashlar_stream_state *state, ashlar_step_key **out) {
    ASHLAR_OWNS(&a->lock);
    ashlar_step_key *key = ashlar__step_key_find_locked(a, number, state);
    ashlar_step_key *orphan = key == NULL ? find_orphan(a, number) : NULL;
    ASHLAR_CHECK2(!a->planner.is_installing && state->pool == NULL);
    if (orphan != NULL) {
        return adopt(a, orphan, state, out);
    }
    if (key == NULL) {
        return new_key(a, number, state, out);
    }
    *out = key;
    return ASHLAR_OK;
}

/* ---- joining ---- */

/* A plan for several steps may need at most 1/256 more than the largest step on the stream, or what
 * the largest step's handles hold. */
enum { JOINED_PART_MORE = 256 };

static size_t largest_peak(const ashlar_allocator *a, const ashlar_stream_state *state) {
    size_t largest = 0;
    for (const ashlar_step_key *key = a->planner.keys; key != NULL; key = key->next) {
        for (uint32_t stream_idx = 0; stream_idx < key->recording.stream_count; stream_idx++) {
            const size_t peak = key->recording.held_peaks[stream_idx];
            if (key->recording.stream_states[stream_idx] == state && peak > largest) {
                largest = peak;
            }
        }
    }
    return largest;
}

static size_t whole_handles(const ashlar_allocator *a, size_t bytes) {
    const size_t handle = a->heap.range.handle_bytes;
    return bytes / handle + (bytes % handle != 0);
}

/* `peaks`: by stream_idx, those of all merged steps together. */
static bool is_small_enough(const ashlar_allocator *a, const ashlar_recording *merged,
                            const size_t *peaks) {
    bool is_so = true;
    for (uint32_t stream_idx = 0; stream_idx < merged->stream_count; stream_idx++) {
        const size_t others = largest_peak(a, merged->stream_states[stream_idx]);
        const size_t own = merged->held_peaks[stream_idx], peak = peaks[stream_idx];
        const size_t largest = own > others ? own : others;
        is_so = is_so && (peak <= largest || peak - largest <= largest / JOINED_PART_MORE ||
                          whole_handles(a, peak) == whole_handles(a, largest));
    }
    return is_so;
}

ashlar_status ashlar__step_merge_locked(const ashlar_allocator *a, const ashlar_recording *base,
                                        const ashlar_recording *more, ashlar_recording *out,
                                        bool *is_merged) {
    size_t peaks[ASHLAR_PLAN_STREAMS_MAX];
    *is_merged = false;
    ASHLAR_TRY(ashlar__recording_merge(base, more, out));
    const ashlar_status status = ashlar__recording_find_peaks(out, true, peaks);
    *is_merged = status == ASHLAR_OK && is_small_enough(a, out, peaks);
    if (!*is_merged) {
        ashlar__recording_finish(out);
    }
    return status == ASHLAR_EOVERFLOW ? ASHLAR_OK : status;
}

/* The key on the stream whose first number is directly above the last one of `low`. */
static ashlar_step_key *find_above(const ashlar_allocator *a, const ashlar_step_key *low) {
    ashlar_step_key *at = a->planner.keys;
    while (at != NULL &&
           (at->key - low->key != low->number_count || at->stream_state != low->stream_state)) {
        at = at->next;
    }
    return at;
}

static void join(ashlar_allocator *a, ashlar_step_key *low, ashlar_step_key *high,
                 const ashlar_recording *merged) {
    ashlar__recording_finish(&high->recording);
    high->recording = *merged;
    high->key = low->key;
    high->number_count += low->number_count;
    high->step_count += low->step_count;
    high->reserved_bytes =
        low->reserved_bytes > high->reserved_bytes ? low->reserved_bytes : high->reserved_bytes;
    ashlar__planner_unlink_key(&a->planner, low);
    ashlar__planner_free_key(low);
}

ashlar_status ashlar__step_key_join_locked(ashlar_allocator *a, uint64_t number, uint64_t last,
                                           const ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    ashlar_recording merged;
    bool is_merged = false;
    ashlar_step_key *low = ashlar__step_key_find_locked(a, number, state);
    ashlar_step_key *high =
        low != NULL && !ashlar__step_key_has(low, last) ? find_above(a, low) : NULL;
    if (high == NULL || low->step_count == 0 || high->step_count == 0) {
        return ASHLAR_OK;
    }
    ASHLAR_CHECK2(low->plan == NULL && high->plan == NULL && !low->is_busy && !high->is_busy);
    const ashlar_status status =
        ashlar__step_merge_locked(a, &high->recording, &low->recording, &merged, &is_merged);
    if (is_merged) {
        join(a, low, high, &merged);
    }
    return status == ASHLAR_EOVERFLOW ? ASHLAR_OK : status; /* too many streams for one plan */
}
