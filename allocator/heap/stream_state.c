/* stream_state.c - recording a stream's events, querying them, and waiting for them. */
#include "allocator/heap/stream_state.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"

bool ashlar__stream_state_is_sound(const ashlar_stream_state *state) {
    uint64_t before = state->completed;
    if (state->pending_count > state->event_count || state->event_count > ASHLAR_EVENTS_MAX) {
        return false;
    }
    for (size_t i = 0; i < state->pending_count; i++) {
        if (state->events[i].number <= before || state->events[i].event == NULL) {
            return false;
        }
        before = state->events[i].number;
    }
    /* If a cache owns the stream, do not read last_tick, which its thread may be writing. */
    const bool is_owned = atomic_load_explicit(&state->owner_cache, memory_order_relaxed) != NULL;
    return before == state->recorded && (is_owned || state->last_tick <= state->recorded) &&
           (!state->is_gone || state->is_lost || state->last_tick < state->recorded) &&
           (!state->is_lost || state->is_gone);
}

/* The stream on which to record an event that comes after the state's work. If that is another
 * thread's default stream, this thread has no handle of it. But it is a blocking stream, and an
 * event on the legacy default stream (NULL) comes after the work of all blocking streams. */
static ashlar_stream recordable(const ashlar_stream_state *state) {
    return ashlar__stream_state_is_others(state) ? NULL : state->stream;
}

static bool is_capture_on(const ashlar_driver_client *client) {
    return atomic_load(&client->device->driver->capture_count) > 0;
}

bool ashlar__stream_state_is_closed(const ashlar_stream_state *state,
                                    const ashlar_driver_client *client) {
    return state->is_pool || state->pool != NULL || state->is_lost ||
           (ashlar__stream_state_is_others(state) && is_capture_on(client)) ||
           (ashlar__stream_state_is_silent(state, client) &&
            !ashlar__stream_state_is_covered(state));
}

bool ashlar__stream_state_can_wait(const ashlar_stream_state *state,
                                   const ashlar_driver_client *client) {
    return !state->is_gone && !state->is_ended && !state->is_idle &&
           !ashlar__stream_state_is_others(state) &&
           !ashlar__stream_state_is_closed(state, client) &&
           !(state->stream == NULL && is_capture_on(client));
}

/* Inside the device's context: whether work queued on a stream would become part of a capture. */
static ashlar_status is_captured(ashlar_driver_client *client, ashlar_stream stream, bool *out) {
    unsigned int capture = CU_CAPTURE_NONE;
    const cu_result result = ASHLAR_CALL(client, stream_is_capturing, (stream, &capture));
    *out = result == CU_STREAM_CAPTURE_IMPLICIT ||
           (result == CU_SUCCESS && capture != CU_CAPTURE_NONE);
    return *out ? ASHLAR_OK : ashlar__client_status(client, "cuStreamIsCapturing", result);
}

/* An event call on a stream under capture would join the graph, or invalidate the capture. */
ashlar_status ashlar__stream_refuse_captured(ashlar_driver_client *client, ashlar_stream stream) {
    bool is_any = false;
    const ashlar_status status = is_captured(client, stream, &is_any);
    return is_any ? ashlar__fail(ASHLAR_EINVAL,
                                 "a stream is being captured without a pool of its own; call "
                                 "ashlar_graph_pool_begin() before its capture")
                  : status;
}

/* Enter and leave the device's context, in which every driver call here runs. Entering is not
 * counted as a call of the allocator, since the driver does no work in it. No capture may begin
 * while the legacy stream is used, since that would invalidate it. */
static ashlar_status enter(const ashlar_stream_state *state, const ashlar_driver_client *client) {
    ASHLAR_TRY(ashlar__device_enter(client->device));
    if (recordable(state) == NULL) {
        ashlar__driver_hold_captures(client->device->driver);
    }
    return ASHLAR_OK;
}

static void leave(const ashlar_stream_state *state, const ashlar_driver_client *client) {
    if (recordable(state) == NULL) {
        ashlar__driver_release_captures(client->device->driver);
    }
    ashlar__device_leave(client->device);
}

/* ---- events ---- */

static void note_free_past(ashlar_stream_state *state, uint64_t free_number) {
    state->free_past = state->free_past > free_number ? state->free_past : free_number;
}

/* Note that all recordings up to `number` have completed: their events become spare. */
static void complete(ashlar_stream_state *state, uint64_t number) {
    ASHLAR_CHECK2(number <= state->recorded);
    ashlar_numbered_event *events = state->events;
    size_t done = 0;
    while (done < state->pending_count && events[done].number <= number) {
        note_free_past(state, events[done].free_number);
        done++;
    }
    for (size_t i = done; done > 0 && i < state->pending_count; i++) {
        const ashlar_numbered_event spare = events[i - done];
        events[i - done] = events[i];
        events[i] = spare;
    }
    state->pending_count -= done;
    state->completed = state->completed > number ? state->completed : number;
    ASHLAR_CHECK2(ashlar__stream_state_is_sound(state));
}

/* The oldest pending recording after `tick`; NULL: such a recording is known to have completed. */
static const ashlar_numbered_event *oldest_after(const ashlar_stream_state *state, uint64_t tick) {
    ASHLAR_CHECK2(state->recorded > tick && ashlar__stream_state_is_sound(state));
    if (state->completed > tick) {
        return NULL;
    }
    const ashlar_numbered_event *at = state->events;
    while (at->number <= tick) {
        at++;
    }
    ASHLAR_CHECK2(at < state->events + state->pending_count);
    return at;
}

bool ashlar__stream_state_is_prompt(const ashlar_stream_state *state, uint64_t tick) {
    const ashlar_numbered_event *awaited =
        state->recorded > tick ? oldest_after(state, tick) : NULL;
    return awaited != NULL ? !awaited->is_late : state->completed > tick;
}

/* Call this function, and those below up to the next heading, inside the device's context. */
static ashlar_status query(ashlar_stream_state *state, ashlar_driver_client *client) {
    cu_result result = CU_SUCCESS;
    while (result == CU_SUCCESS && state->pending_count > 0) {
        result = ASHLAR_CALL(client, event_query, (state->events[0].event));
        if (result == CU_SUCCESS) {
            complete(state, state->events[0].number);
        }
    }
    return result == CU_NOT_READY ? ASHLAR_OK
                                  : ashlar__client_status(client, "cuEventQuery", result);
}

/* Make sure that an event is spare, unless ASHLAR_EVENTS_MAX are pending. Before creating one when
 * many are pending, ask which of them have completed. */
static ashlar_status find_spare(ashlar_stream_state *state, ashlar_driver_client *client) {
    if (state->pending_count >= ASHLAR_EVENTS_FEW && state->pending_count == state->event_count) {
        ASHLAR_TRY(query(state, client));
    }
    if (state->pending_count < state->event_count || state->event_count == ASHLAR_EVENTS_MAX) {
        return ASHLAR_OK;
    }
    cu_event event = NULL;
    ASHLAR_TRY(ashlar__client_status(
        client, "cuEventCreate", ASHLAR_CALL(client, event_create, (&event, CU_EVENT_NO_TIMING))));
    state->events[state->event_count++] = (ashlar_numbered_event){.event = event};
    return ASHLAR_OK;
}

static ashlar_status record(ashlar_stream_state *state, ashlar_driver_client *client,
                            ashlar_stream stream, uint64_t *recorded) {
    ASHLAR_TRY(find_spare(state, client));
    /* If no event is spare, record the newest recording's event again. Never reuse the oldest one:
     * whoever waits for it would then wait for all later work, too. */
    const bool is_full = state->pending_count == ASHLAR_EVENTS_MAX;
    const size_t idx = is_full ? ASHLAR_EVENTS_MAX - 1 : state->pending_count;
    ASHLAR_TRY(ashlar__client_status(
        client, "cuEventRecord",
        ASHLAR_CALL(client, event_record, (state->events[idx].event, stream))));
    state->events[idx].number = ++state->recorded;
    state->events[idx].is_late = client->is_wanting;
    /* When an event on `beside_legacy` completes, other blocking streams may still be busy. So it
     * proves no more about deferred frees than the event before it did. */
    state->events[idx].free_number =
        stream == client->beside_legacy && stream != NULL
            ? (idx > 0 ? state->events[idx - 1].free_number : state->free_past)
            : client->free_count;
    state->pending_count = idx + 1;
    state->recorded_at = ++*recorded;
    ASHLAR_CHECK2(ashlar__stream_state_is_sound(state) && state->completed < state->recorded);
    return ASHLAR_OK;
}

/* A stream of our own that is ordered with the legacy default stream and is never captured. While
 * another stream is captured, nothing may be recorded on the legacy stream; but an event on this
 * one comes after all work that the legacy stream has got so far. */
static ashlar_status beside_legacy(ashlar_driver_client *client, ashlar_stream *out) {
    if (client->beside_legacy == NULL) {
        ashlar_stream made = NULL;
        ASHLAR_TRY(
            ashlar__client_status(client, "cuStreamCreate",
                                  ASHLAR_CALL(client, stream_create, (&made, CU_STREAM_BLOCKING))));
        client->beside_legacy = made;
    }
    *out = client->beside_legacy;
    return ASHLAR_OK;
}

/* Find the stream on which to record an event behind the state's work. *is_refused: there is none,
 * since the state's stream is part of a capture. */
static ashlar_status find_recordable(const ashlar_stream_state *state, ashlar_driver_client *client,
                                     ashlar_stream *out, bool *is_refused) {
    const bool may_go_beside = state->stream == NULL;
    *out = recordable(state);
    *is_refused = may_go_beside && is_capture_on(client);
    ashlar_status status = *is_refused ? ASHLAR_OK : is_captured(client, *out, is_refused);
    if (status == ASHLAR_OK && *is_refused && may_go_beside) {
        status = beside_legacy(client, out);
        *is_refused = status != ASHLAR_OK;
    }
    return status;
}

/* ---- for the allocator ---- */

/* Captures belong to the process, and other threads begin and end them meanwhile. So whether an
 * event can be recorded is decided here, once, at the moment of recording. */
ashlar_status ashlar__stream_state_try_cover(ashlar_stream_state *state,
                                             ashlar_driver_client *client, uint64_t tick,
                                             uint64_t *recorded, bool *is_covered) {
    bool is_refused = true;
    *is_covered = state->recorded > tick;
    if (*is_covered || ashlar__stream_state_is_closed(state, client)) {
        return ASHLAR_OK;
    }
    ASHLAR_ASSERT(!state->is_gone);
    ashlar_stream stream = NULL;
    ASHLAR_TRY(enter(state, client));
    ashlar_status status = find_recordable(state, client, &stream, &is_refused);
    if (status == ASHLAR_OK && !is_refused) {
        status = record(state, client, stream, recorded);
    }
    leave(state, client);
    *is_covered = status == ASHLAR_OK && !is_refused;
    ASHLAR_CHECK2(!*is_covered || state->recorded > tick);
    return status;
}

ashlar_status ashlar__stream_state_cover(ashlar_stream_state *state, ashlar_driver_client *client,
                                         uint64_t tick, uint64_t *recorded) {
    bool is_covered = false;
    ASHLAR_TRY(ashlar__stream_state_try_cover(state, client, tick, recorded, &is_covered));
    return is_covered ? ASHLAR_OK
           : state->is_lost
               ? ashlar__fail(ASHLAR_EINVAL, "a stream was destroyed when no event could be "
                                             "recorded behind its work")
           : ashlar__stream_state_is_silent(state, client)
               ? ashlar__fail(ASHLAR_EINVAL, "a stream that may have been destroyed has no event "
                                             "behind its work")
               : ashlar__fail(ASHLAR_EINVAL,
                              "a stream is being captured without a pool of its own, so no event "
                              "can be recorded behind its work; call ashlar_graph_pool_begin() "
                              "before its capture");
}

ashlar_status ashlar__stream_state_query(ashlar_stream_state *state, ashlar_driver_client *client) {
    if (state->pending_count == 0) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(ashlar__device_enter(client->device));
    const ashlar_status status = query(state, client);
    ashlar__device_leave(client->device);
    return status;
}

ashlar_status ashlar__stream_state_ask(ashlar_stream_state *state, ashlar_driver_client *client,
                                       uint64_t tick, uint64_t *recorded) {
    bool unused;
    if (ashlar__stream_state_is_past(state, tick)) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(ashlar__stream_state_try_cover(state, client, tick, recorded, &unused));
    return ashlar__stream_state_query(state, client);
}

/* Inside the device's context. An idle stream counts as a recording that has completed. */
static ashlar_status query_stream(ashlar_stream_state *state, ashlar_driver_client *client,
                                  bool *is_idle) {
    bool is_refused = false;
    const ashlar_status status = is_captured(client, state->stream, &is_refused);
    if (status != ASHLAR_OK || is_refused) {
        return status;
    }
    const cu_result result = ASHLAR_CALL(client, stream_query, (state->stream));
    *is_idle = result == CU_SUCCESS;
    if (*is_idle) {
        complete(state, state->recorded);
        if (state->stream != NULL) { /* the legacy stream may be idle while others are not */
            note_free_past(state, client->free_count);
        }
        state->completed = ++state->recorded;
        ASHLAR_CHECK2(ashlar__stream_state_is_sound(state));
    }
    return result == CU_NOT_READY ? ASHLAR_OK
                                  : ashlar__client_status(client, "cuStreamQuery", result);
}

ashlar_status ashlar__stream_state_ask_idle(ashlar_stream_state *state,
                                            ashlar_driver_client *client, uint64_t *recorded) {
    bool is_idle = false;
    if (!state->is_gone && !ashlar__stream_state_is_others(state) &&
        !ashlar__stream_state_is_silent(state, client) &&
        !ashlar__stream_state_is_closed(state, client) &&
        !(state->stream == NULL && is_capture_on(client))) {
        ASHLAR_TRY(enter(state, client));
        const ashlar_status status = query_stream(state, client, &is_idle);
        leave(state, client);
        ASHLAR_TRY(status);
    }
    return is_idle ? ASHLAR_OK
                   : ashlar__stream_state_ask(state, client, state->last_tick, recorded);
}

/* Call this inside the device's context. */
static ashlar_status cover_frees(ashlar_stream_state *state, ashlar_driver_client *client,
                                 uint64_t *recorded) {
    bool is_idle = false;
    ashlar_status status = ashlar__stream_refuse_captured(client, state->stream);
    /* That the legacy stream is idle does not prove that the streams it waits for are. */
    if (status == ASHLAR_OK && state->stream != NULL) {
        status = query_stream(state, client, &is_idle);
    }
    return status == ASHLAR_OK && !is_idle ? record(state, client, recordable(state), recorded)
                                           : status;
}

ashlar_status ashlar__stream_state_cover_frees(ashlar_stream_state *state,
                                               ashlar_driver_client *client, uint64_t *recorded) {
    if (ashlar__stream_state_covers_free(state, client->free_count)) {
        return ASHLAR_OK;
    }
    if (state->is_gone && !state->is_lost) { /* its newest event follows all its work */
        if (state->pending_count > 0) {
            state->events[state->pending_count - 1].free_number = client->free_count;
        }
        return ASHLAR_OK;
    }
    ASHLAR_FAIL_IF(state->is_lost || ashlar__stream_state_is_silent(state, client), ASHLAR_EDRIVER,
                   "no event follows the work of a stream that has ended");
    ASHLAR_FAIL_IF(is_capture_on(client) || ashlar__stream_state_is_closed(state, client),
                   ASHLAR_EINVAL, "a stream is being captured");
    ASHLAR_TRY(enter(state, client));
    const ashlar_status status = cover_frees(state, client, recorded);
    leave(state, client);
    return status;
}

ashlar_status ashlar__stream_state_wait_on(ashlar_stream_state *state, ashlar_driver_client *client,
                                           ashlar_stream waiter, uint64_t tick) {
    const ashlar_numbered_event *awaited = oldest_after(state, tick);
    if (awaited == NULL) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(ashlar__device_enter(client->device));
    ashlar_status status = ashlar__stream_refuse_captured(client, waiter);
    ASHLAR_THEN(status, ashlar__client_status(
                            client, "cuStreamWaitEvent",
                            ASHLAR_CALL(client, stream_wait_event, (waiter, awaited->event, 0))));
    ashlar__device_leave(client->device);
    return status;
}

/* While the lock is dropped, another thread may record an event again. Then the event follows more
 * work of the same stream, so waiting for it still proves enough. */
ashlar_status ashlar__stream_states_wait(ashlar_stream_state *const *states, size_t count,
                                         ashlar_driver_client *client, ashlar_lock *lock) {
    cu_event events[ASHLAR_AWAITED_MAX];
    ASHLAR_CHECK2(count > 0 && count <= ASHLAR_AWAITED_MAX);
    const uint64_t first = states[0]->pending_count > 0 ? states[0]->events[0].number : 0;
    ASHLAR_TRY(ashlar__device_enter(client->device));
    for (size_t i = 0; i < count; i++) {
        ASHLAR_ASSERT(states[i]->pending_count > 0);
        events[i] = states[i]->events[0].event;
        states[i]->waiter_count++;
    }
    client->calls++; /* counted here, since ASHLAR_CALL may count only under the lock */
    ashlar__lock_release(lock);
    const cu_result result = ashlar__driver_wait_any(client->device->driver, events, count);
    ashlar__lock_acquire(lock);
    for (size_t i = 0; i < count; i++) {
        ASHLAR_CHECK2(states[i]->waiter_count > 0);
        states[i]->waiter_count--;
    }
    ashlar_status status = ashlar__client_status(client, "cuEventSynchronize", result);
    if (status == ASHLAR_OK && count == 1) {
        complete(states[0], first); /* no change if a later one is known by now */
    }
    for (size_t i = 0; count > 1 && i < count && status == ASHLAR_OK; i++) {
        status = query(states[i], client);
    }
    ashlar__device_leave(client->device);
    return status;
}

uint64_t ashlar__next_wait(void) {
    static _Atomic uint64_t newest;
    return atomic_fetch_add(&newest, 1) + 1;
}

void ashlar__stream_state_begin_settling(ashlar_stream_state *state, uint64_t wait,
                                         uint64_t free_number) {
    if (wait < state->settling.wait) {
        return; /* another thread's wait has overtaken this one, and covers at least as much */
    }
    state->settling = (ashlar_settlement){wait, state->recorded, state->stamp_count, free_number};
}

void ashlar__stream_state_settle(ashlar_stream_state *state, uint64_t wait) {
    if (state->settling.wait != wait) {
        return;
    }
    /* Nothing was freed during the wait, so work with no event behind it is past as well. Count it
     * as a recording that has completed and whose event is spare. */
    if (state->settling.stamp_count == state->stamp_count &&
        !ashlar__stream_state_is_covered(state)) {
        ASHLAR_CHECK2(state->recorded == state->settling.recorded);
        state->settling.recorded = ++state->recorded;
    }
    if (state->settling.recorded > state->completed) {
        complete(state, state->settling.recorded);
    }
    note_free_past(state, state->settling.free_number);
}

void ashlar__stream_states_end(ashlar_driver_client *client) {
    if (client->beside_legacy != NULL && ashlar__device_enter(client->device) == ASHLAR_OK) {
        (void)ASHLAR_CALL(client, stream_destroy, (client->beside_legacy));
        ashlar__device_leave(client->device);
        client->beside_legacy = NULL;
    }
}

void ashlar__stream_state_finish(ashlar_stream_state *state, ashlar_driver_client *client) {
    ASHLAR_CHECK2(state->waiter_count == 0);
    if (state->event_count > 0 && ashlar__device_enter(client->device) == ASHLAR_OK) {
        for (size_t i = 0; i < state->event_count; i++) {
            (void)ASHLAR_CALL(client, event_destroy, (state->events[i].event));
        }
        ashlar__device_leave(client->device);
    }
    state->event_count = state->pending_count = 0;
}
