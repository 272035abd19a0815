/*
 * watch.c - streams that may end unannounced: asking whether a handle still means the same stream,
 * recording an event while it does, and otherwise waiting for the whole device.
 */
#include "allocator/core/core.h"

#include "allocator/base/error.h"

/* ---- the identity of a stream ---- */

/* Ask the driver for the id of a stream, which must be alive. Some drivers answer only if the
 * thread has a current context. */
static ashlar_status ask_id_locked(ashlar_allocator *a, ashlar_stream stream, uint64_t *out) {
    ASHLAR_OWNS(&a->lock);
    unsigned long long id = 0;
    cu_result result = ASHLAR_CALL(&a->client, stream_get_id, (stream, &id));
    if (result == CU_INVALID_CONTEXT) {
        const ashlar_status status = ashlar__device_enter(a->device);
        if (status != ASHLAR_OK) {
            return status;
        }
        result = ASHLAR_CALL(&a->client, stream_get_id, (stream, &id));
        ashlar__device_leave(a->device);
    }
    *out = id;
    return result == CU_SUCCESS ? ASHLAR_OK
                                : ashlar__driver_error(a->device->driver, "cuStreamGetId", result);
}

/* Note that the state's stream has ended unannounced: no request will name it again. From now on
 * calls that name a stream record an event, so that one that ends later has it. */
static void replace_locked(ashlar_allocator *a, ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    ASHLAR_CHECK2(state->pool == NULL && !state->is_gone);
    ashlar__caches_take_over_locked(a);
    ashlar__caches_forget_stream_locked(a, state);
    state->is_replaced = state->is_ended = true;
    a->recent = NULL;
    a->client.records_at_calls = true;
}

/* Whether the state belongs to the stream that the handle names now. */
static ashlar_status is_same_locked(ashlar_allocator *a, ashlar_stream_state *state, uint64_t id,
                                    bool *out) {
    ASHLAR_OWNS(&a->lock);
    *out = true;
    if (state->pool != NULL) {
        return ASHLAR_OK; /* a stream that is captured is alive */
    }
    if (a->client.has_stream_ids) {
        *out = state->has_id ? state->id == id : !state->has_freed;
        return ASHLAR_OK;
    }
    /* Without ids, the stream named now may stand for the old one, if it waits for the work that
     * uses what was freed on the old one. */
    if (ashlar__stream_state_is_quiet(state)) {
        return ASHLAR_OK;
    }
    *out = ashlar__stream_state_is_covered(state);
    return *out ? ashlar__stream_state_wait_on(state, &a->client, state->stream, state->last_tick)
                : ASHLAR_OK;
}

static ashlar_status find_named_locked(ashlar_allocator *a, ashlar_stream stream,
                                       ashlar_stream_state **out) {
    ASHLAR_OWNS(&a->lock);
    uint64_t id = 0;
    bool is_same = true;
    ashlar_status status = a->client.has_stream_ids ? ask_id_locked(a, stream, &id) : ASHLAR_OK;
    ASHLAR_THEN(status, ashlar__stream_state_of_locked(a, stream, out));
    ASHLAR_THEN(status, is_same_locked(a, *out, id, &is_same));
    if (status == ASHLAR_OK && !is_same) {
        replace_locked(a, *out);
        status = ashlar__stream_state_of_locked(a, stream, out);
    }
    if (status == ASHLAR_OK) {
        (*out)->id = id;
        (*out)->has_id = a->client.has_stream_ids;
    }
    return status;
}

/* ---- around calls that name a stream ---- */

ashlar_status ashlar__watch_begin_locked(ashlar_allocator *a, ashlar_stream stream,
                                         ashlar_stream_state **out) {
    ASHLAR_OWNS(&a->lock);
    *out = NULL;
    if (!a->client.watches_streams || !ashlar__stream_can_end(stream)) {
        return ASHLAR_OK;
    }
    ashlar_stream_state *state = NULL;
    ASHLAR_TRY(find_named_locked(a, stream, &state));
    state->caller_count++;
    *out = state;
    if (a->client.records_at_calls && !ashlar__stream_state_is_covered(state)) {
        /* This event covers blocks freed in calls that did not name the stream. If it cannot be
         * recorded, a thread that wants the memory waits for the device instead. */
        bool is_covered;
        ASHLAR_IGNORE(ashlar__stream_state_try_cover(state, &a->client, state->last_tick,
                                                     &a->stats.events_recorded, &is_covered));
    }
    return ASHLAR_OK;
}

void ashlar__watch_end_locked(ashlar_stream_state *state) {
    if (state != NULL) {
        ASHLAR_CHECK2(state->caller_count > 0);
        state->caller_count--;
    }
}

ashlar_status ashlar__watch_call(ashlar_allocator *a, ashlar_call *call) {
    ashlar_stream_state *named = NULL;
    if (call->kind == ASHLAR_CALL_ALLOC ? !call->request.is_idle : call->names_stream) {
        ASHLAR_TRY(ashlar__watch_begin_locked(a, call->stream, &named));
    }
    const ashlar_status status = call->next(a, call);
    ashlar__watch_end_locked(named);
    return status;
}

/* ---- watching ---- */

/* Put all cached blocks into zones, which know whether an event must still follow a block's last
 * use; and let no cache own a stream. */
static void empty_caches_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    ashlar__caches_flush_locked(a);
    for (ashlar_stream_state *state = a->stream_states; state != NULL; state = state->next) {
        ashlar__owner_cache_clear_locked(a, state);
    }
}

static void watch_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    uint64_t id = 0;
    empty_caches_locked(a);
    if (a->guard_fill != NULL) { /* a block for which this fails is released later, unchecked */
        ASHLAR_IGNORE(ashlar__guard_fill_release_locked(a->guard_fill, NULL));
    }
    a->client.has_stream_ids = ask_id_locked(a, NULL, &id) == ASHLAR_OK;
    a->client.records_at_calls = !a->client.has_stream_ids;
    a->client.watches_streams = true;
    a->modes |= 1u << ASHLAR_MODE_WATCH;
    ashlar__caches_update_bypass_locked(a);
    for (ashlar_stream_state *state = a->stream_states; state != NULL; state = state->next) {
        /* The driver may see these handles: until now the program had to keep its streams alive. */
        if (ashlar__stream_can_end(state->stream) && !state->is_gone && !state->is_pool &&
            !state->is_idle) {
            state->has_id = a->client.has_stream_ids &&
                            ask_id_locked(a, state->stream, &state->id) == ASHLAR_OK;
        }
    }
}

void ashlar_allocator_watch_streams(ashlar_allocator *a) {
    if (ashlar__is_of_parent(a)) {
        return;
    }
    ashlar__allocator_enter(a);
    if (!a->client.watches_streams) {
        watch_locked(a);
    }
    ashlar__allocator_leave(a);
}

/* ---- a wait for the device ---- */

/* Whether a wait for the device frees the state's memory for others. A pool's belongs to its graph,
 * and the idle state has none. */
static bool can_settle(const ashlar_stream_state *state) {
    return !state->is_pool && !state->is_idle && !state->is_lost;
}

uint64_t ashlar__watch_begin_wait_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    const uint64_t wait = ashlar__next_wait();
    for (ashlar_stream_state *state = a->stream_states; state != NULL; state = state->next) {
        ashlar__stream_state_begin_settling(state, wait, a->client.free_count);
    }
    return wait;
}

void ashlar__watch_end_wait_locked(ashlar_allocator *a, uint64_t wait) {
    ASHLAR_OWNS(&a->lock);
    for (ashlar_stream_state *state = a->stream_states; state != NULL; state = state->next) {
        if (can_settle(state)) {
            ashlar__stream_state_settle(state, wait);
        }
    }
    (void)ashlar__cross_settle(&a->heap);
}

ashlar_status ashlar__watch_settle_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    const uint64_t wait = ashlar__watch_begin_wait_locked(a);
    a->client.records_at_calls = a->client.watches_streams;
    a->client.calls += 2; /* to ask whether there are captures, and to wait */
    ashlar__allocator_leave(a);
    const ashlar_status status = ashlar__device_try_synchronize(a->device);
    ashlar__allocator_enter(a);
    if (status == ASHLAR_OK) {
        ashlar__watch_end_wait_locked(a, wait);
    }
    return status;
}

ashlar_status ashlar__watch_settle(ashlar_allocator *a) {
    ashlar__allocator_enter(a);
    const ashlar_status status = ashlar__watch_settle_locked(a);
    ashlar__allocator_leave(a);
    return status;
}

bool ashlar__watch_wait_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    bool is_awaited = false;
    for (const ashlar_stream_state *state = a->stream_states; state != NULL && !is_awaited;
         state = state->next) {
        is_awaited = can_settle(state) && ashlar__stream_state_is_silent(state, &a->client) &&
                     !ashlar__stream_state_is_quiet(state) &&
                     !ashlar__stream_state_is_covered(state);
    }
    return is_awaited && ashlar__watch_settle_locked(a) == ASHLAR_OK;
}
