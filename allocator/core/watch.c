/*
 * watch.c - an allocator whose streams may end without a word: is a handle still the same stream,
 * an event while it is, and a wait for the device where it may not be.
 */
#include "allocator/core/watch.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/core/hold.h"
#include "allocator/core/streams.h"
#include "allocator/heap/away.h"

/* ---- the identity of a stream ---- */

/* The stream is alive. A thread that has no current context may not ask in some drivers. */
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

/*
 * The stream of a state has ended, and no request will name it. Its memory goes over to other
 * streams when it is past; from here on such streams leave an event behind.
 */
static void replace_locked(ashlar_allocator *a, ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    ASHLAR_CHECK2(state->pool == NULL && !state->is_gone);
    ashlar__shut_out_locked(a);
    ashlar__caches_forget_stream_locked(a, state);
    state->is_replaced = state->is_ended = true;
    a->recent = NULL;
    a->client.records_at_calls = true;
}

/* Whether the state is that of the stream which has the handle now. */
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
    /* If the handle's stream waits for what was freed under the handle, both are in one order. */
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
    if (status == ASHLAR_OK) {
        status = ashlar__stream_state_of_locked(a, stream, out);
    }
    if (status == ASHLAR_OK) {
        status = is_same_locked(a, *out, id, &is_same);
    }
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

/* ---- calls that name a stream ---- */

ashlar_status ashlar__watch_begin_slow_locked(ashlar_allocator *a, ashlar_stream stream,
                                              ashlar_stream_state **out) {
    ASHLAR_OWNS(&a->lock);
    ashlar_stream_state *state = NULL;
    if (!ashlar__stream_can_end(stream)) {
        return ASHLAR_OK;
    }
    const ashlar_status status = find_named_locked(a, stream, &state);
    if (status != ASHLAR_OK) {
        return status;
    }
    state->caller_count++;
    *out = state;
    if (a->client.records_at_calls && !ashlar__stream_state_is_covered(state) &&
        !ashlar__stream_state_is_closed(state, &a->client)) {
        /* For what was freed in calls that did not name it. If this fails, the device is waited
         * for when the memory is wanted. */
        const ashlar_status unused = ashlar__stream_state_cover(state, &a->client, state->last_tick,
                                                                &a->stats.events_recorded);
        (void)unused;
    }
    return ASHLAR_OK;
}

/*
 * What was freed so far is in the zones, with its stamp: a block that is cached, or on its way to a
 * holder, does not tell that its stream has work behind which no event comes. And nobody holds a
 * stream any more.
 */
static void collect_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    ashlar__caches_flush_locked(a, ashlar__cache_recent);
    for (ashlar_stream_state *state = a->stream_states; state != NULL; state = state->next) {
        ashlar__hold_drop_locked(a, state);
    }
}

static void watch_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    uint64_t id = 0;
    collect_locked(a);
    if (a->guards.fill != NULL) { /* what is refused is released later, without a comparison */
        const ashlar_status unused = ashlar__guard_fill_release_locked(a->guards.fill, NULL);
        (void)unused;
    }
    a->client.has_stream_ids = ask_id_locked(a, NULL, &id) == ASHLAR_OK;
    a->client.records_at_calls = !a->client.has_stream_ids;
    a->client.watches_streams = true;
    ashlar__caches_update_bypass_locked(a);
    for (ashlar_stream_state *state = a->stream_states; state != NULL; state = state->next) {
        /* Until now the program had to keep its streams alive. */
        if (ashlar__stream_can_end(state->stream) && !state->is_gone && !state->is_pool &&
            !state->is_idle) {
            state->has_id = a->client.has_stream_ids &&
                            ask_id_locked(a, state->stream, &state->id) == ASHLAR_OK;
        }
    }
}

void ashlar_allocator_watch_streams(ashlar_allocator *a) {
    ashlar__allocator_enter(a);
    if (!a->client.watches_streams) {
        watch_locked(a);
    }
    ashlar__allocator_leave(a);
}

/* ---- a wait for the device ---- */

/* A pool's memory is its graph's, and no memory is the idle state's. */
static bool can_settle(const ashlar_stream_state *state) {
    return !state->is_pool && !state->is_idle && !state->is_lost;
}

/* Drops the lock meanwhile. A capture that was begun without a pool is seen if its stream is
 * ordered with the legacy stream; the wait would invalidate it. */
static ashlar_status synchronize_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    unsigned int unused = CU_CAPTURE_NONE;
    const ashlar_status status = ashlar__device_enter(a->device);
    if (status != ASHLAR_OK) {
        return status;
    }
    cu_result result = ASHLAR_CALL(&a->client, stream_is_capturing, (NULL, &unused));
    if (result == CU_SUCCESS) {
        a->client.calls++;
        ashlar__allocator_leave(a);
        result = ASHLAR_DRIVER_CALL(a->device->driver, ctx_synchronize, ());
        ashlar__allocator_enter(a);
    }
    ashlar__device_leave(a->device);
    return result == CU_SUCCESS
               ? ASHLAR_OK
               : ashlar__driver_error(a->device->driver, "cuCtxSynchronize", result);
}

ashlar_status ashlar__watch_settle_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    if (atomic_load(&a->device->driver->capture_count) > 0) {
        return ashlar__fail(ASHLAR_EINVAL, "the device cannot be waited for during a capture");
    }
    const uint64_t wait = ++a->settle_count;
    a->client.records_at_calls = a->client.watches_streams;
    for (ashlar_stream_state *state = a->stream_states; state != NULL; state = state->next) {
        ashlar__stream_state_begin_settling(state, wait);
    }
    const ashlar_status status = synchronize_locked(a);
    for (ashlar_stream_state *state = a->stream_states; state != NULL && status == ASHLAR_OK;
         state = state->next) {
        if (can_settle(state)) {
            ashlar__stream_state_settle(state, wait);
        }
    }
    (void)ashlar__away_settle(&a->heap);
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
