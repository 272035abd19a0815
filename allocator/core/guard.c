/* guard.c - what guard=fill does in a call: it fills the red zone of a new block, and puts a freed
 * one into quarantine. Every function is called with the allocator's lock held. */
#include "allocator/core/core.h"

#include "allocator/base/error.h"
#include "allocator/base/threads.h"

/* A pool's blocks are not guarded: the fill would become part of the graph. */
ashlar_status ashlar__guard_alloc(ashlar_allocator *a, ashlar_call *call) {
    const unsigned modes = call->modes;
    call->request.bytes = ashlar__guard_fill_block_bytes(call->bytes);
    ashlar_status status = call->next(a, call);
    if (status == ASHLAR_ENOMEM && a->guard_fill->count > 0) {
        ASHLAR_TRY(ashlar__guard_fill_release_locked(a->guard_fill, NULL));
        call->modes = modes;
        status = call->next(a, call);
        call->by = ASHLAR_RUNG_DRAINED;
    }
    ASHLAR_TRY(status);
    if (!call->block->stream_state->is_pool) {
        status =
            ashlar__guard_fill_take_locked(a->guard_fill, call->block, call->block->stream_state);
    }
    if (status != ASHLAR_OK) {
        ashlar__take_back_locked(a, call);
    }
    return status;
}

/* Whether to check a freed block: not a graph pool's, which has no red zone, nor one with a use
 * that no event can follow, since its memory is never reused. */
static bool is_guarded(const ashlar_block *block, const ashlar_stream_state *state) {
    const ashlar_stream_state *own = block->stream_state;
    return !own->is_pool && !state->is_lost && !(own->is_lost && block->covered_by == 0) &&
           !ashlar__shared_has_lost(ashlar__shared_uses(block));
}

/*
 * The free and the later release pass the stream of the block's last use to the driver. That is
 * impossible if the stream is gone or watched, or is a per-thread default stream, which only its
 * own thread can name. Then use the legacy default stream instead, and have it wait for the last
 * use. The legacy stream waits for a per-thread default stream by itself.
 */
static ashlar_status name_live_state(ashlar_allocator *a, ashlar_stream_state **state) {
    ashlar_stream_state *last = *state;
    const bool may_end = a->client.watches_streams && ashlar__stream_can_end(last->stream);
    if (!last->is_gone && !may_end && last->thread == 0) {
        return ASHLAR_OK;
    }
    const uint64_t tick = ashlar__stream_state_stamp(last);
    ashlar_status status = ASHLAR_OK;
    if (ashlar__stream_state_is_silent(last, &a->client)) {
        status = ashlar__watch_settle_locked(a);
    } else if (last->is_gone || may_end) {
        /* If the stream is gone, this records nothing, and fails if no event follows the use. */
        status = ashlar__stream_state_cover(last, &a->client, tick, &a->stats.events_recorded);
        ASHLAR_THEN(status, ashlar__stream_state_wait_on(last, &a->client, NULL, tick));
    }
    return status == ASHLAR_OK ? ashlar__stream_state_of_locked(a, NULL, state) : status;
}

/* Have `waiter` wait, in-stream, for the work of one stream up to `tick`. */
static ashlar_status wait_for_use(ashlar_allocator *a, ashlar_stream_state *of, uint64_t tick,
                                  ashlar_stream waiter) {
    of->caller_count++; /* keeps the state alive across the calls below */
    const ashlar_status status =
        ashlar__stream_state_cover(of, &a->client, tick, &a->stats.events_recorded);
    of->caller_count--;
    return status == ASHLAR_OK ? ashlar__stream_state_wait_on(of, &a->client, waiter, tick)
                               : status;
}

/* Have the stream that frees the block wait for the fill of its red zone and for all its uses. */
static ashlar_status join_uses(ashlar_allocator *a, ashlar_block *block,
                               ashlar_stream_state *state) {
    ashlar_stream_state *own = block->stream_state;
    ashlar_status status = ASHLAR_OK;
    if (own != state) {
        const uint64_t tick =
            block->covered_by > 0 ? block->covered_by - 1 : ashlar__stream_state_stamp(own);
        status = wait_for_use(a, own, tick, state->stream);
        /* The free queues work on this stream. If it then fails, the next free must wait for it. */
        ASHLAR_THEN(status, ashlar__cross_add_any_use(&a->heap, block, state));
    }
    for (ashlar_use *use = ashlar__shared_uses(block); use != NULL && status == ASHLAR_OK;
         use = use->next) {
        if (use->stream_state != state) {
            status = wait_for_use(a, use->stream_state,
                                  ashlar__stream_state_stamp(use->stream_state), state->stream);
        }
    }
    return status;
}

/* Check a freed block, and put it into the quarantine. */
ashlar_status ashlar__guard_free(ashlar_allocator *a, ashlar_call *call) {
    ASHLAR_TRY(ashlar__call_find_locked(a, call));
    ashlar_block *block = call->block;
    ashlar_stream_state *state = call->state;
    if (!is_guarded(block, state)) {
        return call->next(a, call);
    }
    const size_t requested = block->requested;
    ASHLAR_TRY(name_live_state(a, &state));
    ASHLAR_TRY(join_uses(a, block, state));
    const ashlar_status status = ashlar__guard_fill_free_locked(a->guard_fill, block, state);
    /* A free that fails may have queued work, and the next attempt must wait for this work. */
    block->covered_by = block->stream_state == state ? 0 : block->covered_by;
    ASHLAR_TRY(status);
    ashlar__cross_drop_uses(&a->heap, block); /* the stream of the free waits for all of them */
    ashlar__count_free_locked(a, NULL, requested, block->tag);
    block->requested = 0;
    ashlar__guard_fill_put_locked(a->guard_fill, block, requested, state,
                                  (ashlar_call_site){call->caller, ashlar__thread_number()});
    return ASHLAR_OK;
}

ashlar_status ashlar__guard_use(ashlar_allocator *a, ashlar_call *call) {
    ASHLAR_TRY(ashlar__call_find_locked(a, call));
    ashlar_block *block = call->block;
    if (call->state == block->stream_state) {
        block->covered_by = 0; /* a free on another stream must now wait for more than the fill */
        return ASHLAR_OK;
    }
    return call->next(a, call);
}
