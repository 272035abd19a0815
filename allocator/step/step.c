/* step.c - beginning and ending a step: recording it, replaying it or declining it. */
#include "allocator/step/step.h"

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/core/core.h"
#include "allocator/heap/heap.h"

/* How many streams a step asks, when it begins, whether blocks that wait for them can be reused. */
enum { ASKED_AT_BEGIN = 16 };

/* ---- beginning ---- */

/* The handle by which this thread's requests name the stream, or ASHLAR_NO_STREAM. */
static ashlar_stream name_of(const ashlar_stream_state *state) {
    const bool is_open = !state->is_gone && !state->is_ended && state->pool == NULL &&
                         !ashlar__stream_state_is_others(state);
    return is_open ? state->stream : ASHLAR_NO_STREAM;
}

static void begin_replay(ashlar_allocator *a, ashlar_cache *own, ashlar_plan *plan) {
    ashlar_replay *replay = own->own_replay;
    ASHLAR_CHECK2(!replay->is_recorded && !replay->key->is_busy && replay->key->plan == plan);
    for (uint32_t stream_idx = 0; stream_idx < plan->stream_count; stream_idx++) {
        ashlar_plan_memory *memory =
            ashlar__planner_memory(&a->planner, plan->stream_plans[stream_idx].stream_state);
        replay->streams[stream_idx] = name_of(plan->stream_plans[stream_idx].stream_state);
        replay->memories[stream_idx] = memory;
        ASHLAR_CHECK2(memory != NULL || plan->stream_plans[stream_idx].plan_bytes == 0);
        if (memory != NULL) {
            ASHLAR_CHECK2(!memory->is_busy); /* only one step at a time may use this memory */
            memory->is_busy = true;
            memory->used_at = ashlar__heap_count_use(&a->heap);
        }
    }
    ashlar__replay_start(replay, plan);
    replay->hits_before = own->counters.planned_count;
    ashlar__cache_set_replay(own, replay);
}

static void begin_recording(ashlar_allocator *a, ashlar_replay *replay) {
    ASHLAR_CHECK2(!replay->key->is_busy);
    ASHLAR_CHECK2(replay->recording.allocs == NULL && replay->recording.stream_count == 0);
    replay->is_recorded = true;
    replay->key->is_busy = true;
    if (replay->key->step_count == 0 || replay->key->is_stale) {
        replay->key->reserved_bytes = 0;
    }
    /* Now every allocation and free of every thread takes the lock, so that none is missed. */
    a->planner.recording_count++;
    ASHLAR_CHECK2(a->planner.recording_count <= a->planner.active_step_count);
    ashlar__caches_update_bypass_locked(a);
}

/* Give up those of the plan's memories that were used by a stream which ended before an event was
 * recorded behind its work: nothing will ever prove that this work is over. */
static void leave_lost(ashlar_allocator *a, const ashlar_plan *plan) {
    for (uint32_t stream_idx = 0; stream_idx < plan->stream_count; stream_idx++) {
        ashlar_plan_memory *memory =
            ashlar__planner_memory(&a->planner, plan->stream_plans[stream_idx].stream_state);
        if (memory != NULL && ashlar__shared_has_lost(ashlar__shared_uses(memory->block))) {
            memory->is_unused = true;
        }
    }
    ashlar__planner_tidy_locked(&a->planner, &a->heap);
}

/* Let the streams of a plan wait for the work that other streams did in the plan's memory in
 * earlier steps. False: one of the plan's streams cannot wait. A stream that no request of this
 * step can name need not wait. */
static bool join_uses(ashlar_allocator *a, const ashlar_plan *plan) {
    bool is_joined = true;
    for (uint32_t stream_idx = 0; stream_idx < plan->stream_count && is_joined; stream_idx++) {
        ashlar_stream_state *state = plan->stream_plans[stream_idx].stream_state;
        const ashlar_plan_memory *memory = ashlar__planner_memory(&a->planner, state);
        if (memory != NULL && name_of(state) != ASHLAR_NO_STREAM &&
            ashlar__cross_join(&a->heap, state, memory->block, &is_joined) != ASHLAR_OK) {
            is_joined = false;
        }
    }
    return is_joined;
}

/* Whether the key's plan can be replayed now. Takes memory again if the plan's was given up. */
static bool can_replay(ashlar_allocator *a, ashlar_cache *own, ashlar_step_key *key) {
    if (key->plan == NULL || key->is_retired || ashlar__plan_is_busy_locked(a, key->plan)) {
        return false;
    }
    leave_lost(a, key->plan);
    return (!ashlar__planner_lacks_memory(&a->planner, key->plan) ||
            (ashlar__planner_take_again_locked(a, own, key) == ASHLAR_OK &&
             !ashlar__planner_lacks_memory(&a->planner, key->plan))) &&
           join_uses(a, key->plan);
}

/* Make the addresses of a step depend only on the step: see ashlar_step_key.is_held. */
static ashlar_status hold(ashlar_allocator *a, ashlar_cache *own) {
    for (ashlar_stream_state *state = a->stream_states; state != NULL; state = state->next) {
        ashlar__remote_put_locked(a, state);
    }
    ashlar__cycle_restart(own);
    const ashlar_status status = ashlar__cross_return_all(&a->heap);
    own->own_replay->is_held = status == ASHLAR_OK;
    return status;
}

/* Record the step, or replay it, or decline it if neither is possible. */
static void choose(ashlar_allocator *a, ashlar_cache *own, ashlar_step_key *key) {
    const bool is_free = key != NULL && !key->is_busy;
    const bool is_unknown = is_free && key->plan == NULL && !key->is_current && !key->is_ordinary;
    ASHLAR_CHECK2(own->own_replay->depth == 1 && own->own_replay->key == NULL);
    if (is_free && ashlar__plan_has_ended(key->plan)) {
        key->is_stale = true;
    }
    if (is_free && (is_unknown || key->is_wanted || key->is_stale)) {
        own->own_replay->key = key;
        begin_recording(a, own->own_replay);
    } else if (is_free && can_replay(a, own, key)) {
        own->own_replay->key = key;
        key->replay_count++;
        begin_replay(a, own, key->plan);
    } else if (key == NULL || key->plan != NULL || !key->is_ordinary) {
        a->planner.stats.steps_declined++;
    }
}

/* Find the step's key. *out is unchanged if the step is to be declined. Errors: ASHLAR_EHOSTMEM,
 * ASHLAR_EDRIVER. */
static ashlar_status prepare(ashlar_allocator *a, ashlar_stream stream, uint64_t number,
                             ashlar_step_key **out) {
    ashlar_stream_state *state = NULL;
    ASHLAR_TRY(ashlar__stream_state_of_locked(a, stream, &state));
    /* Decline the step in three cases: while a plan is being installed, since no key may change; if
     * the stream is captured, since it cannot wait; and if streams are watched, since plans must
     * know which streams are alive. */
    if (!a->planner.is_installing && state->pool == NULL && !a->client.watches_streams) {
        ashlar__planner_forget_stream_locked(&a->planner, &a->heap, NULL);
        ASHLAR_TRY(ashlar__step_key_of_locked(a, number, state, out));
    }
    return ashlar__cross_ask(&a->heap, ASKED_AT_BEGIN);
}

static ashlar_status begin_locked(ashlar_allocator *a, ashlar_cache *own, ashlar_stream stream,
                                  uint64_t number) {
    ASHLAR_OWNS(&a->lock);
    ashlar_replay *replay = own->own_replay;
    ashlar_step_key *key = NULL;
    ASHLAR_CHECK2(!replay->is_held);
    ASHLAR_TRY(prepare(a, stream, number, &key));
    if (key != NULL && key->is_held) {
        ASHLAR_TRY(hold(a, own));
    }
    ashlar__planner_tidy_locked(&a->planner, &a->heap);
    ASHLAR_CHECK2(replay->key == NULL && replay->dry_block_count == 0); /* the thread's last step
                                                                         * has ended */
    replay->depth = 1;
    replay->stream = ashlar__stream_named(stream);
    replay->is_recorded = false;
    a->planner.active_step_count++;
    choose(a, own, key);
    return ASHLAR_OK;
}

/* Lock: held, because any thread that frees a block may read every cache's own_replay. */
static ashlar_status enter_locked(ashlar_allocator *a, ashlar_cache *own, ashlar_stream stream,
                                  uint64_t key) {
    ASHLAR_OWNS(&a->lock);
    if (own->own_replay == NULL) {
        ASHLAR_HOST_NEW(own->own_replay, 1, "no host memory for a step");
    }
    if (own->own_replay->depth > 0) {
        ASHLAR_CHECK2(a->planner.active_step_count > 0);
        own->own_replay->depth++;
        if (own->own_replay->stream != ashlar__stream_named(stream)) {
            own->own_replay->stream = ASHLAR_NO_STREAM;
        }
        return ASHLAR_OK;
    }
    return begin_locked(a, own, stream, key);
}

ashlar_status ashlar_step_begin(ashlar_allocator *a, ashlar_stream stream, uint64_t key) {
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar_cache *own = ashlar__cache_get(a);
    if (own == NULL) {
        return ASHLAR_OK;
    }
    ashlar__allocator_enter(a);
    const ashlar_status status = enter_locked(a, own, stream, key);
    ashlar__allocator_leave(a);
    return status;
}

/* ---- ending ---- */

/* Replace a key's recording by `recording`, which is empty afterwards. */
static void replace(ashlar_step_key *key, ashlar_recording *recording) {
    ashlar__recording_finish(&key->recording);
    key->recording = *recording;
    *recording = (ashlar_recording){0};
    key->is_current = false;
}

/* Keep only the larger of two recordings if its slots serve the other one's step, too. */
static ashlar_status keep_larger(ashlar_step_key *key, ashlar_recording *recording, bool *is_kept) {
    const bool is_larger =
        ashlar__recording_held_bytes(recording) > ashlar__recording_held_bytes(&key->recording);
    const ashlar_recording *large = is_larger ? recording : &key->recording;
    const ashlar_recording *small = is_larger ? &key->recording : recording;
    ASHLAR_TRY(ashlar__replay_find_served(large, small, is_kept));
    if (*is_kept && is_larger) {
        replace(key, recording);
    }
    return ASHLAR_OK;
}

/* Leave the key without a plan: one for all its steps would need more than the largest step. */
static void set_apart(ashlar_allocator *a, ashlar_step_key *key) {
    a->planner.stats.steps_apart++;
    key->has_apart = key->is_ordinary = true;
    ashlar__planner_retire_plan_locked(&a->planner, &a->heap, key);
}

/* Add a recorded step to its key's recording. If they cannot be merged, for example because they
 * use too many streams, some of which may be gone, the newer one is kept. */
static ashlar_status merge(ashlar_allocator *a, ashlar_step_key *key, ashlar_recording *recording) {
    ashlar_recording merged;
    bool is_kept = false, is_merged = false;
    ASHLAR_TRY(keep_larger(key, recording, &is_kept));
    if (is_kept) {
        return ASHLAR_OK;
    }
    const ashlar_status status =
        ashlar__step_merge_locked(a, &key->recording, recording, &merged, &is_merged);
    if (status == ASHLAR_EOVERFLOW) {
        key->step_count = 0;
        replace(key, recording);
        return ASHLAR_OK;
    }
    if (is_merged) {
        replace(key, &merged);
    } else if (status == ASHLAR_OK) {
        set_apart(a, key);
    }
    return status;
}

/* Keep a recording for its key's next plan. Finishes `recording`, also on failure. */
static ashlar_status keep(ashlar_allocator *a, ashlar_step_key *key, ashlar_recording *recording) {
    ASHLAR_CHECK2(recording != &key->recording && !key->is_busy);
    ashlar_status status =
        recording->is_incomplete
            ? ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for the recording of a step")
            : ashlar__recording_find_peaks(recording, false, recording->peaks);
    ASHLAR_THEN(status, ashlar__recording_find_peaks(recording, true, recording->held_peaks));
    if (status == ASHLAR_OK && key->step_count > 0 && !key->is_stale) {
        status = merge(a, key, recording);
    } else if (status == ASHLAR_OK) {
        key->step_count = 0;
        key->has_apart = false;
        replace(key, recording);
    }
    ashlar__recording_finish(recording);
    if (status == ASHLAR_OK) {
        key->step_count++;
        key->is_wanted = key->is_stale = false;
        key->diverged = 0;
        ASHLAR_CHECK2(!key->recording.is_incomplete);
    }
    return status;
}

static ashlar_status end_recording(ashlar_allocator *a, ashlar_replay *replay) {
    ASHLAR_CHECK2(replay->key->is_busy && a->planner.recording_count > 0);
    ashlar__replay_stop_recording(replay, &a->planner);
    ashlar__caches_update_bypass_locked(a);
    ashlar__recording_close(&replay->recording);
    const size_t reserved = a->heap.range.mapped_bytes;
    ashlar_step_key *key = replay->key;
    key->reserved_bytes = reserved > key->reserved_bytes ? reserved : key->reserved_bytes;
    const ashlar_status status = keep(a, key, &replay->recording);
    a->planner.stats.steps_recorded += status == ASHLAR_OK;
    return status;
}

/* Whether the option build_after asks for the key to be planned now. */
static bool is_due(const ashlar_allocator *a, const ashlar_step_key *key) {
    const uint32_t after = a->planner.options.build_after;
    return after != ASHLAR_PLAN_BUILD_NEVER && key->step_count >= after && !key->is_current &&
           !key->is_wanted && !key->is_stale && !key->is_busy;
}

static ashlar_status end_locked(ashlar_allocator *a, ashlar_cache *own) {
    ASHLAR_OWNS(&a->lock);
    ashlar_replay *replay = own->own_replay;
    ashlar_step_key *key = replay->key;
    ashlar_status status = ASHLAR_OK;
    ASHLAR_CHECK2(replay->depth > 0 && a->planner.active_step_count > 0);
    if (--replay->depth > 0) {
        return ASHLAR_OK;
    }
    a->planner.active_step_count--;
    replay->is_held = false;
    if (replay->is_recorded) {
        status = end_recording(a, replay);
    } else if (key != NULL) {
        ashlar__cache_end_replay(own);
    }
    replay->key = NULL;
    ASHLAR_CHECK2(!replay->is_recorded &&
                  a->planner.recording_count <= a->planner.active_step_count);
    ashlar__planner_tidy_locked(&a->planner, &a->heap);
    if (status == ASHLAR_OK && key != NULL && is_due(a, key)) {
        status = ashlar__planner_build_locked(a, own, key);
    }
    return status;
}

ashlar_status ashlar_step_end(ashlar_allocator *a) {
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar_cache *own = ashlar__cache_get(a);
    if (own == NULL) {
        return ASHLAR_OK;
    }
    if (own->own_replay == NULL || own->own_replay->depth == 0) {
        return ashlar__fail(ASHLAR_EINVAL, "no step of this thread is under way; begin one");
    }
    ashlar__allocator_enter(a);
    const ashlar_status status = end_locked(a, own);
    ashlar__allocator_leave(a);
    return status;
}

/* ---- requests that name no stream ---- */

/* Without the lock: only this thread writes what is read here. */
bool ashlar__step_stream(ashlar_allocator *a, ashlar_stream *out) {
    const ashlar_cache *own = ashlar__cache_get(a);
    const ashlar_replay *replay = own != NULL ? own->own_replay : NULL;
    if (replay == NULL || replay->depth == 0 || replay->stream == ASHLAR_NO_STREAM) {
        return false;
    }
    *out = replay->stream;
    return true;
}

bool ashlar__step_has(ashlar_allocator *a, const void *ptr, ashlar_stream stream) {
    const ashlar_cache *own = ashlar__cache_get(a);
    ashlar_stream_state *state = NULL;
    ashlar_block *block = NULL;
    ashlar__lock_acquire(&a->lock);
    const bool has_it = ashlar__dry_run_has(own, ptr) ||
                        (ashlar__find_live_locked(a, ptr, &block) == ASHLAR_OK &&
                         ashlar__stream_state_of_locked(a, stream, &state) == ASHLAR_OK &&
                         block->stream_state == state);
    ashlar__allocator_leave(a);
    return has_it;
}

/* ---- dry runs ---- */

ashlar_status ashlar__dry_run_begin(ashlar_allocator *a, ashlar_stream stream, uint64_t key) {
    const ashlar_status status = ashlar_step_begin(a, stream, key);
    ashlar_cache *own = ashlar__cache_get(a);
    if (status == ASHLAR_OK && own != NULL) {
        ASHLAR_CHECK2(own->own_replay->depth > 0);
        ashlar__allocator_enter(a);
        own->own_replay->dry_bytes = ashlar__room_locked(a);
        ashlar__allocator_leave(a);
        own->own_replay->is_dry_run = true;
        if (own->own_replay->is_recorded) {
            own->own_replay->key->reserved_bytes = SIZE_MAX;
        }
    }
    return status;
}

ashlar_status ashlar__dry_run_end(ashlar_allocator *a) {
    ashlar_cache *own = ashlar__cache_get(a);
    uint32_t left_count = 0;
    if (own != NULL && own->own_replay != NULL) {
        left_count = own->own_replay->dry_block_count;
        own->own_replay->is_dry_run = false;
        own->own_replay->dry_block_count = 0;
    }
    const ashlar_status status = ashlar_step_end(a);
    return status != ASHLAR_OK || left_count == 0
               ? status
               : ashlar__fail(ASHLAR_EINVAL,
                              "a dry run left %u of its blocks live; it must free what it takes",
                              left_count);
}
