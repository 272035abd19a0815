/*
 * graph_pool.c - the blocks of a captured graph, from its capture to its end.
 *
 * A pool is a stream state that never gets an event. So the last uses of its free blocks never
 * count as past: only requests of the same capture find these blocks, and they do not merge with
 * idle memory.
 */
#include "allocator/core/core.h"

#include <ashlar/allocator.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"

/* Lock: the allocator's. */
struct ashlar_graph_pool {
    ashlar_allocator *allocator;       /* const */
    ashlar_stream_state *stream_state; /* const; the pool's */
    ashlar_stream_state *captured;     /* the state of the captured stream; NULL once the capture
                                        * has ended */
};

static ashlar_status refuse_captured(const ashlar_graph_pool *pool) {
    return pool->captured == NULL
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_EINVAL,
                              "pool: its capture has not ended; ashlar_graph_pool_end() it");
}

/* Before the capture, while the driver may still be asked: find out which free memory of the stream
 * no work uses any more, since that may serve the capture or, meanwhile, other streams. */
static void ask_before_locked(ashlar_allocator *a, ashlar_stream_state *captured) {
    ASHLAR_OWNS(&a->lock);
    ashlar__caches_forget_stream_locked(a, captured);
    if (!ashlar__stream_state_is_quiet(captured) || captured->oldest_cross != NULL) {
        ASHLAR_IGNORE(
            ashlar__stream_state_ask_idle(captured, &a->client, &a->stats.events_recorded));
        (void)ashlar__cross_settle(&a->heap);
    }
}

/* From now on, requests for the stream find the pool. A new pool gets its stream state here. */
static ashlar_status begin_locked(ashlar_graph_pool *pool, ashlar_stream stream) {
    ashlar_allocator *a = pool->allocator;
    ashlar_stream_state *captured = NULL;
    ASHLAR_OWNS(&a->lock);
    ASHLAR_TRY(refuse_captured(pool));
    ashlar_status status = ashlar__stream_state_of_locked(a, stream, &captured);
    if (status == ASHLAR_OK && captured->pool != NULL) {
        status = ashlar__fail(ASHLAR_EINVAL, "stream: it has a pool already; end that one first");
    }
    if (status == ASHLAR_OK && pool->stream_state == NULL) {
        status = ashlar__stream_state_new_locked(a, captured->stream, &pool->stream_state);
    } else if (status == ASHLAR_OK) {
        ashlar__stream_state_rename_locked(a, pool->stream_state, captured->stream);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    ask_before_locked(a, captured);
    ASHLAR_CHECK2(pool->stream_state != captured && captured->pool == NULL);
    pool->stream_state->is_pool = true;
    pool->stream_state->is_ended = false;
    pool->captured = captured;
    captured->pool = pool->stream_state;
    return ASHLAR_OK;
}

static ashlar_status begin(ashlar_graph_pool *pool, ashlar_stream stream) {
    ashlar_allocator *a = pool->allocator;
    ashlar_stream_state *named = NULL;
    ASHLAR_FAIL_IF(ashlar__stream_named(stream) == NULL, ASHLAR_EINVAL,
                   "stream: the legacy default stream cannot be captured");
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar__driver_begin_capture(a->device->driver);
    ashlar__allocator_enter(a);
    ashlar_status status = ashlar__watch_begin_locked(a, stream, &named);
    if (status == ASHLAR_OK) {
        status = begin_locked(pool, stream);
        ashlar__watch_end_locked(named);
    }
    ashlar__allocator_leave(a);
    if (status != ASHLAR_OK) {
        ashlar__driver_end_capture(a->device->driver);
    }
    return status;
}

static ashlar_status begin_new(ashlar_allocator *a, ashlar_stream stream, ashlar_graph_pool **out) {
    ashlar_graph_pool *pool;
    ASHLAR_HOST_NEW(pool, 1, "no host memory for a pool");
    pool->allocator = a;
    ASHLAR_HAND_OUT(begin(pool, stream), pool, ashlar__host_free, out);
}

ashlar_status ashlar_graph_pool_begin(ashlar_allocator *a, ashlar_stream stream,
                                      ashlar_graph_pool *pool, ashlar_graph_pool **out) {
    if (pool == NULL) {
        return begin_new(a, stream, out);
    }
    ASHLAR_FAIL_IF(pool->allocator != a, ASHLAR_EINVAL, "pool: it is another allocator's");
    ASHLAR_TRY(begin(pool, stream));
    *out = pool;
    return ASHLAR_OK;
}

void ashlar_graph_pool_end(ashlar_graph_pool *pool) {
    ashlar_allocator *a = pool->allocator;
    if (ashlar__is_of_parent(a)) {
        return;
    }
    ashlar__allocator_enter(a);
    if (pool->captured != NULL) {
        ASHLAR_CHECK2(pool->captured->pool == pool->stream_state);
        ashlar__caches_forget_stream_locked(a, pool->stream_state);
        pool->stream_state->is_ended = true;
        pool->captured->pool = NULL;
        pool->captured = NULL;
        ashlar__driver_end_capture(a->device->driver);
    }
    ashlar__allocator_leave(a);
}

/* Turn the pool's state into that of a stream that has ended: one event, on the stream of `to`,
 * comes behind all uses of its memory. False: none can be recorded now. */
static bool end_like_stream_locked(ashlar_allocator *a, ashlar_stream_state *state,
                                   ashlar_stream_state *to) {
    ASHLAR_OWNS(&a->lock);
    bool is_covered = false;
    if (to->pool != NULL) {
        return false;
    }
    state->is_pool = false;
    ashlar__stream_state_rename_locked(a, state, to->stream);
    state->caller_count++; /* the call names the stream, so it is alive */
    if (ashlar__stream_state_try_cover(state, &a->client, state->recorded,
                                       &a->stats.events_recorded, &is_covered) != ASHLAR_OK) {
        is_covered = false;
    }
    state->caller_count--;
    state->is_pool = !is_covered;
    state->is_gone = is_covered;
    state->released_on = is_covered ? to : NULL;
    return is_covered;
}

/* Turn every use by `from` into a use by `to` that lasts until now. */
static void move_uses_locked(ashlar_allocator *a, ashlar_stream_state *from,
                             ashlar_stream_state *to) {
    ASHLAR_OWNS(&a->lock);
    ASHLAR_CHECK2(from != to);
    ashlar__cross_move_queue(&a->heap, from, to);
    for (ashlar_block *block = ashlar__heap_first(&a->heap); block != NULL;
         block = ashlar__block_after(block)) {
        ashlar_use *use = ashlar__cross_find_use(block, from);
        if (use != NULL) {
            /* `to` may then be noted twice: both uses become past at the same time. */
            use->stream_state = to;
            use->tick =
                ashlar__block_live_bytes(block) == 0 ? ashlar__stream_state_next(to) - 1 : 0;
        }
    }
}

/*
 * Let the pool's live blocks count as taken for the stream of `to`. The pool's free memory waits
 * for that stream's work, and then serves whoever adopts it first, like that of a stream that has
 * ended; or, if no event can be recorded now, it becomes that stream's. The caches are taken
 * over, since hits read the fields that this function writes.
 */
static void hand_over_locked(ashlar_allocator *a, ashlar_stream_state *from,
                             ashlar_stream_state *to) {
    ASHLAR_OWNS(&a->lock);
    ASHLAR_CHECK2(from->is_pool && from->is_ended && from->event_count == 0 && !to->is_pool);
    ashlar__caches_take_over_locked(a);
    move_uses_locked(a, from, to);
    const bool has_event = end_like_stream_locked(a, from, to);
    for (ashlar_block *block = ashlar__heap_first(&a->heap); block != NULL;
         block = ashlar__heap_next(block)) {
        if (block->stream_state == from && block->state == ASHLAR_BLOCK_USED) {
            block->stream_state = to;
            block->marks |= has_event && ashlar__block_owner(block) == from
                                ? (unsigned char)ASHLAR_BLOCK_BORROWED
                                : 0;
        }
    }
    if (!has_event) {
        (void)ashlar__stream_state_next(to);
    }
    for (size_t kind = 0; kind < ASHLAR_ZONE_COUNT && !has_event; kind++) {
        if (from->zones[kind].windows != NULL) {
            ashlar__zone_move(&a->heap, &from->zones[kind], &to->zones[kind], false);
        }
    }
}

/* Guard the pool's live blocks like all others, now that a stream takes them over. */
static ashlar_status fill_red_zones_locked(ashlar_allocator *a, const ashlar_stream_state *from,
                                           ashlar_stream_state *to) {
    ASHLAR_OWNS(&a->lock);
    ashlar_block *block = a->guard_fill != NULL ? ashlar__heap_first(&a->heap) : NULL;
    for (; block != NULL; block = ashlar__heap_next(block)) {
        if (block->stream_state == from && block->state == ASHLAR_BLOCK_USED &&
            block->requested != 0) {
            ASHLAR_TRY(ashlar__guard_fill_take_locked(a->guard_fill, block, to));
        }
    }
    return ASHLAR_OK;
}

static ashlar_status release_locked(ashlar_graph_pool *pool, ashlar_stream stream) {
    ashlar_allocator *a = pool->allocator;
    ashlar_stream_state *to = NULL;
    ASHLAR_TRY(refuse_captured(pool));
    ashlar_status status = ashlar__stream_state_of_locked(a, stream, &to);
    ASHLAR_THEN(status, fill_red_zones_locked(a, pool->stream_state, to));
    if (status == ASHLAR_OK) {
        hand_over_locked(a, pool->stream_state, to);
        if (pool->stream_state->released_on == NULL ||
            ashlar__stream_state_is_over(pool->stream_state)) {
            ashlar__stream_state_delete_locked(a, pool->stream_state);
        }
    }
    return status;
}

ashlar_status ashlar_graph_pool_release(ashlar_graph_pool *pool, ashlar_stream stream) {
    if (pool == NULL) {
        return ASHLAR_OK;
    }
    ashlar_allocator *a = pool->allocator;
    ashlar_stream_state *named = NULL;
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar__allocator_enter(a);
    ashlar_status status = ashlar__watch_begin_locked(a, stream, &named);
    if (status == ASHLAR_OK) {
        status = release_locked(pool, stream);
        ashlar__watch_end_locked(named);
    }
    ashlar__allocator_leave(a);
    if (status == ASHLAR_OK) {
        ashlar__host_free(pool);
    }
    return status;
}
