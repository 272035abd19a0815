/* step_key.c - the keys that a program gives its steps, one for each kind of step: finding a step's
 * key, joining two keys if one plan serves the steps of both, and making, dropping, re-recording
 * and counting plans at the program's request. */
#include <ashlar/plan.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/core/core.h"
#include "allocator/step/step.h"

static ashlar_step_key *find_locked(const ashlar_allocator *a, uint64_t key,
                                    const ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    ashlar_step_key *at = a->planner.keys;
    while (at != NULL && (!ashlar__step_key_has(at, key) || at->stream_state != state)) {
        at = at->next;
    }
    return at;
}

static ashlar_status new_key(ashlar_allocator *a, uint64_t number, ashlar_stream_state *state,
                             ashlar_step_key **out) {
    ASHLAR_CHECK2(find_locked(a, number, state) == NULL);
    ashlar_step_key *key;
    ASHLAR_HOST_NEW(key, 1, "no host memory for a key of steps");
    *key = (ashlar_step_key){
        .key = number, .number_count = 1, .stream_state = state, .next = a->planner.keys};
    a->planner.keys = key;
    *out = key;
    return ASHLAR_OK;
}

/* If a stream that is gone has a key of this number, which the program now uses on another stream,
 * forget all keys and plans of the stream that is gone. */
static void forget_gone(ashlar_allocator *a, uint64_t number) {
    const ashlar_step_key *at = a->planner.keys;
    while (at != NULL && (!ashlar__step_key_has(at, number) || !at->stream_state->is_gone)) {
        at = at->next;
    }
    if (at != NULL) {
        ashlar__planner_forget_stream_locked(&a->planner, &a->heap, at->stream_state);
    }
}

ashlar_status ashlar__step_key_of_locked(ashlar_allocator *a, uint64_t number,
                                         ashlar_stream_state *state, ashlar_step_key **out) {
    ASHLAR_OWNS(&a->lock);
    ASHLAR_CHECK2(!a->planner.is_installing && state->pool == NULL);
    *out = find_locked(a, number, state);
    if (*out != NULL) {
        return ASHLAR_OK;
    }
    forget_gone(a, number);
    return new_key(a, number, state, out);
}

/* ---- joining ---- */

/* A plan for several steps may need at most 1/256 more than the largest step on the stream, or as
 * many handles as that step. */
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

/* Whether a plan of a merged recording may need so much. `peaks`: its own, by stream_idx; its field
 * held_peaks has those of the largest of the merged steps. */
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
    ashlar_step_key *low = find_locked(a, number, state);
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
    return status == ASHLAR_EOVERFLOW ? ASHLAR_OK : status; /* they cannot be merged */
}

/* ---- what the program asks for ---- */

ashlar_status ashlar_plan_build(ashlar_allocator *a) {
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar_cache *own = ashlar__cache_get(a);
    ashlar__allocator_enter(a);
    ashlar_status status = ashlar__planner_refuse_busy_locked(&a->planner);
    ASHLAR_THEN(status, ashlar__planner_build_all_locked(a, own));
    ashlar__allocator_leave(a);
    return status;
}

ashlar_status ashlar_plan_drop(ashlar_allocator *a) {
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar__allocator_enter(a);
    const ashlar_status status = ashlar__planner_refuse_busy_locked(&a->planner);
    if (status == ASHLAR_OK) {
        ASHLAR_CHECK2(a->planner.recording_count == 0 && !a->planner.is_installing);
        ashlar__planner_free_keys(&a->planner);
        for (ashlar_plan_memory *memory = a->planner.memories; memory != NULL;
             memory = memory->next) {
            ASHLAR_CHECK2(!memory->is_busy);
            memory->is_unused = true;
        }
        ashlar__planner_tidy_locked(&a->planner, &a->heap);
    }
    ashlar__allocator_leave(a);
    return status;
}

ashlar_status ashlar__planner_forget_keys(ashlar_allocator *a, uint64_t first, uint64_t count) {
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar__allocator_enter(a);
    const ashlar_status status = ashlar__planner_refuse_busy_locked(&a->planner);
    for (ashlar_step_key **link = &a->planner.keys; *link != NULL && status == ASHLAR_OK;) {
        ashlar_step_key *key = *link;
        const bool is_warmed = key->is_warmed && key->warmup_key == first;
        if (key->key - first >= count && !ashlar__step_key_has(key, first) && !is_warmed) {
            /* a number below `first` wraps around to a large difference */
            link = &key->next;
            continue;
        }
        ASHLAR_CHECK2(!ashlar__step_key_is_in_use(key));
        *link = key->next;
        ashlar__planner_free_key(key);
    }
    if (status == ASHLAR_OK) {
        ashlar__planner_drop_unused_locked(&a->planner, &a->heap);
    }
    ashlar__allocator_leave(a);
    return status;
}

ashlar_status ashlar_plan_set_options(ashlar_allocator *a, const ashlar_plan_options *options) {
    ashlar_plan_options chosen = ASHLAR_OR_ZERO(ashlar_plan_options, options);
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar__allocator_enter(a);
    a->planner.options = ashlar__plan_options_chosen(chosen);
    ashlar__allocator_leave(a);
    return ASHLAR_OK;
}

void ashlar_plan_record_next(ashlar_allocator *a, uint64_t key) {
    if (ashlar__is_of_parent(a)) {
        return;
    }
    ashlar__allocator_enter(a);
    for (ashlar_step_key *at = a->planner.keys; at != NULL; at = at->next) {
        at->is_wanted = at->is_wanted || ashlar__step_key_has(at, key);
    }
    ashlar__allocator_leave(a);
}

/* Add to *out the bytes of a plan memory, and the largest size and the largest lower bound among
 * the plans of its stream. */
static void add_stream(const ashlar_allocator *a, const ashlar_plan_memory *memory,
                       ashlar_plan_stats *out) {
    uint64_t plan_bytes = 0, bound_bytes = 0;
    for (const ashlar_step_key *key = a->planner.keys; key != NULL; key = key->next) {
        for (uint32_t stream_idx = 0; key->plan != NULL && stream_idx < key->plan->stream_count;
             stream_idx++) {
            const ashlar_stream_plan *p = &key->plan->stream_plans[stream_idx];
            ASHLAR_CHECK2(p->bound_bytes <= p->plan_bytes);
            if (p->stream_state == memory->stream_state && !memory->is_unused) {
                plan_bytes = p->plan_bytes > plan_bytes ? p->plan_bytes : plan_bytes;
                bound_bytes = p->bound_bytes > bound_bytes ? p->bound_bytes : bound_bytes;
            }
        }
    }
    /* a plan that is being installed may be larger than the present memory */
    ASHLAR_CHECK2(a->planner.is_installing || plan_bytes <= memory->block->bytes);
    out->memory_bytes += memory->block->bytes;
    out->plan_bytes += plan_bytes;
    out->bound_bytes += bound_bytes;
}

static void sum_stats(ashlar_allocator *a, ashlar_plan_stats *out) {
    ashlar__allocator_enter(a);
    *out = a->planner.stats;
    for (const ashlar_plan_memory *memory = a->planner.memories; memory != NULL;
         memory = memory->next) {
        add_stream(a, memory, out);
    }
    for (const ashlar_step_key *key = a->planner.keys; key != NULL; key = key->next) {
        out->plan_count += key->plan != NULL;
        out->slot_count += key->plan != NULL ? key->plan->expiry_count : 0;
    }
    ashlar__allocator_leave(a);
}

void ashlar_plan_get_stats(ashlar_allocator *a, ashlar_plan_stats *out) {
    ashlar_plan_stats sums = {0};
    if (!ashlar__is_of_parent(a)) {
        sum_stats(a, &sums);
    }
    *out = sums;
}
