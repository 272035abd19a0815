/* streams.c - a stream's state: making it at the stream's first use, finding it by the stream's
 * handle, and deleting it after the stream's end. */
#include "allocator/core/core.h"

#include "allocator/base/error.h"
#include "allocator/base/host.h"

/* When this many streams have ended, the states that nothing refers to are deleted. */
enum { GONE_MAX = 16 };

static bool is_per_thread(ashlar_stream stream) {
    return (uintptr_t)stream == CU_STREAM_PER_THREAD;
}

static bool answers_to(const ashlar_stream_state *state, ashlar_stream named) {
    return state->stream == named && !state->is_gone && !state->is_pool && !state->is_idle &&
           !state->is_replaced && !ashlar__stream_state_is_others(state);
}

static ashlar_stream_state *find_state(const ashlar_allocator *a, ashlar_stream named) {
    if (a->recent != NULL && answers_to(a->recent, named)) {
        return a->recent;
    }
    ashlar_stream_state *state = a->buckets[ashlar__stream_bucket(named)];
    while (state != NULL && !answers_to(state, named)) {
        state = state->next_in_bucket;
    }
    return state;
}

/* ---- the end of a state ---- */

static void mark_referenced(const ashlar_allocator *a) {
    for (ashlar_stream_state *state = a->stream_states; state != NULL; state = state->next) {
        state->is_referenced = false;
    }
    for (ashlar_stream_state *state = a->stream_states; state != NULL; state = state->next) {
        if (state->released_on != NULL) {
            state->released_on->is_referenced = true;
        }
    }
    ashlar__planner_mark_referenced(&a->planner);
    for (const ashlar_cache *cache = a->caches; cache != NULL; cache = cache->next) {
        if (cache->own_replay != NULL) {
            ashlar__recording_mark_referenced(&cache->own_replay->recording);
        }
    }
    for (const ashlar_block *block = ashlar__heap_first(&a->heap); block != NULL;
         block = ashlar__block_after(block)) {
        if (block->stream_state != NULL) {
            block->stream_state->is_referenced = true;
        }
        const bool is_shared = ashlar__block_is_shared(block);
        for (const ashlar_use *use = is_shared ? block->uses : NULL; use != NULL; use = use->next) {
            use->stream_state->is_referenced = true;
        }
    }
}

static bool has_windows(const ashlar_stream_state *state) {
    return state->zones[ASHLAR_ZONE_SMALL].windows != NULL ||
           state->zones[ASHLAR_ZONE_LARGE].windows != NULL;
}

/* Let guard=fill make no more comparisons on the stream. */
static void forget_checks_locked(ashlar_allocator *a, const ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    if (a->guard_fill != NULL) {
        ashlar__checker_forget(&a->guard_fill->checker, state);
    }
}

static void leave_bucket_locked(ashlar_allocator *a, ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    ashlar_stream_state **link = &a->buckets[ashlar__stream_bucket(state->stream)];
    while (*link != state) {
        link = &(*link)->next_in_bucket;
    }
    *link = state->next_in_bucket;
}

/* Set the stream that the state stands for, and enter the state into the hash table. */
static void enter_bucket_locked(ashlar_allocator *a, ashlar_stream_state *state,
                                ashlar_stream stream) {
    ASHLAR_OWNS(&a->lock);
    state->stream = stream;
    state->thread = is_per_thread(stream) ? ashlar__thread_number() : 0;
    ashlar_stream_state **bucket = &a->buckets[ashlar__stream_bucket(stream)];
    state->next_in_bucket = *bucket;
    *bucket = state;
}

void ashlar__stream_state_delete_locked(ashlar_allocator *a, ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    ASHLAR_CHECK2(state->waiter_count == 0 && !has_windows(state) && !state->is_awaited);
    ASHLAR_CHECK2(state != a->idle_stream_state && state->cross_count == 0);
    ASHLAR_CHECK2(ashlar__owner_cache(state) == NULL && atomic_load(&state->remote_frees) == NULL);
    ashlar__heap_return_nodes(&a->heap, state);
    ashlar_stream_state **link = &a->stream_states;
    while (*link != state) {
        link = &(*link)->next;
    }
    *link = state->next;
    leave_bucket_locked(a, state);
    a->recent = NULL;
    forget_checks_locked(a, state);
    ashlar__stream_state_finish(state, &a->client);
    ashlar__host_free(state);
}

bool ashlar__stream_state_is_over(const ashlar_stream_state *state) {
    return (state->is_gone || state->is_ended) && !state->is_pool && !state->is_idle &&
           (!state->orders_frees || ashlar__stream_state_free_past(state) == UINT64_MAX) &&
           state->pool == NULL && state->waiter_count == 0 && !state->is_awaited &&
           state->cross_count == 0 && !has_windows(state);
}

/* If many streams have ended, delete those of their states that nothing refers to any more. */
static void drop_gone_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    size_t gone = 0;
    for (ashlar_stream_state *state = a->stream_states; state != NULL; state = state->next) {
        if (state->orders_frees && state->is_gone && state->pending_count > 0) {
            /* If this fails, it is done again when the next stream is made. */
            ASHLAR_IGNORE(ashlar__stream_state_query(state, &a->client));
        }
        gone += ashlar__stream_state_is_over(state);
    }
    if (gone < GONE_MAX) {
        return;
    }
    ashlar__caches_take_over_locked(a);
    mark_referenced(a);
    for (ashlar_stream_state *next, *state = a->stream_states; state != NULL; state = next) {
        next = state->next;
        if (ashlar__stream_state_is_over(state) && !state->is_referenced) {
            ashlar__stream_state_delete_locked(a, state);
        }
    }
}

/* ---- finding and making ---- */

ashlar_status ashlar__stream_state_new_locked(ashlar_allocator *a, ashlar_stream stream,
                                              ashlar_stream_state **out) {
    ASHLAR_OWNS(&a->lock);
    drop_gone_locked(a);
    ashlar_stream_state *state;
    ASHLAR_HOST_NEW(state, 1, "no host memory for the record of a stream");
    for (size_t kind = 0; kind < ASHLAR_ZONE_COUNT; kind++) {
        state->zones[kind].owner = state;
    }
    enter_bucket_locked(a, state, stream);
    state->next = a->stream_states;
    a->stream_states = state;
    *out = state;
    return ASHLAR_OK;
}

void ashlar__stream_state_rename_locked(ashlar_allocator *a, ashlar_stream_state *state,
                                        ashlar_stream stream) {
    ASHLAR_CHECK2(state->is_ended);
    if (state->stream != stream || is_per_thread(stream)) {
        leave_bucket_locked(a, state);
        enter_bucket_locked(a, state, stream);
    }
}

ashlar_status ashlar__stream_state_of_locked(ashlar_allocator *a, ashlar_stream stream,
                                             ashlar_stream_state **out) {
    ASHLAR_OWNS(&a->lock);
    const ashlar_stream named = ashlar__stream_named(stream);
    ashlar_stream_state *state = find_state(a, named);
    if (state == NULL) {
        const ashlar_status status = ashlar__stream_state_new_locked(a, named, &state);
        if (status != ASHLAR_OK) {
            return status;
        }
    }
    ASHLAR_CHECK2(answers_to(state, named));
    a->recent = state;
    *out = state;
    return ASHLAR_OK;
}

ashlar_status ashlar__stream_state_idle_locked(ashlar_allocator *a, ashlar_stream_state **out) {
    ASHLAR_OWNS(&a->lock);
    ashlar_status status = ASHLAR_OK;
    if (a->idle_stream_state == NULL) {
        status = ashlar__stream_state_new_locked(a, NULL, &a->idle_stream_state);
    }
    if (status == ASHLAR_OK) {
        ashlar_stream_state *state = a->idle_stream_state;
        state->is_idle = state->is_gone = true;
        state->recorded = state->completed = 1; /* a use by the idle state counts as past at once */
        *out = state;
    }
    return status;
}

void ashlar__caches_forget_stream_locked(ashlar_allocator *a, ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    ashlar__caches_take_over_locked(a);
    for (ashlar_cache *cache = a->caches; cache != NULL; cache = cache->next) {
        ashlar__cache_forget_locked(cache, state);
    }
    ashlar__owner_cache_clear_locked(a, state);
    ashlar__remote_put_locked(a, state);
}

static ashlar_status forget_state_locked(ashlar_allocator *a, ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    ASHLAR_FAIL_IF(state->pool != NULL, ASHLAR_EINVAL,
                   "stream: it is being captured; end its pool first");
    ashlar__caches_forget_stream_locked(a, state);
    ashlar_status status = ASHLAR_OK;
    if (a->guard_fill != NULL) {
        /* Compare the blocks in quarantine once more on their stream, while it still exists. */
        status = ashlar__guard_fill_release_locked(a->guard_fill, state);
    }
    /* This event also comes after the stream's uses of blocks that are still live. */
    ASHLAR_THEN(status, ashlar__stream_state_cover(state, &a->client, state->recorded,
                                                   &a->stats.events_recorded));
    if (status == ASHLAR_OK) {
        ASHLAR_CHECK2(state->recorded > 0); /* without any event no use could ever count as past */
        state->is_gone = true;
        a->recent = NULL;
        forget_checks_locked(a, state);
    }
    return status;
}

static ashlar_status forget_locked(ashlar_allocator *a, ashlar_stream stream) {
    ASHLAR_OWNS(&a->lock);
    ashlar_stream_state *named = NULL;
    if (find_state(a, ashlar__stream_named(stream)) == NULL) {
        return ASHLAR_OK;
    }
    ashlar_status status = ashlar__watch_begin_locked(a, stream, &named);
    if (status == ASHLAR_OK) {
        status = forget_state_locked(a, find_state(a, ashlar__stream_named(stream)));
        ashlar__watch_end_locked(named);
    }
    return status;
}

ashlar_status ashlar_allocator_forget_stream(ashlar_allocator *a, ashlar_stream stream) {
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar__allocator_enter(a);
    const ashlar_status status = forget_locked(a, stream);
    ashlar__allocator_leave(a);
    return status;
}

/* ---- waits on the host ---- */

/* The state of a stream that somebody waits for; NULL: the wait would prove nothing. */
static ashlar_stream_state *awaited_state_locked(ashlar_allocator *a, ashlar_stream stream) {
    ASHLAR_OWNS(&a->lock);
    const bool may_be_another = a->client.watches_streams && ashlar__stream_can_end(stream);
    return may_be_another ? NULL : find_state(a, ashlar__stream_named(stream));
}

static ashlar_cache *own_cache(const ashlar_allocator *a) {
    return ashlar__cache_switch(a->constants.id) ? ashlar__cache_recent : NULL;
}

/* Put cached blocks that another stream may want into their zone, where they get stamps: large
 * ones, and while memory is short all. False: another thread's cache owns the stream, and keeps
 * them. */
static bool stamp_all_locked(ashlar_allocator *a, ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    if (ashlar__heap_is_short(&a->heap)) {
        ashlar__caches_take_over_locked(a);
        ashlar__caches_forget_stream_locked(a, state);
        return true;
    }
    ashlar_cache *own = own_cache(a);
    const ashlar_cache *owner_cache = ashlar__owner_cache(state);
    if (owner_cache != NULL && owner_cache != own) {
        return false;
    }
    if (own != NULL) {
        ashlar__cache_flush_pending(own);
        ashlar__cache_flush_large(own);
    }
    return true;
}

void ashlar__allocator_begin_wait(ashlar_allocator *a, ashlar_stream stream, uint64_t wait) {
    ashlar__lock_acquire(&a->lock);
    ashlar_stream_state *state = awaited_state_locked(a, stream);
    if (state != NULL && stamp_all_locked(a, state)) {
        /* The legacy stream stands for others, too, which may still be busy. */
        ashlar__stream_state_begin_settling(
            state, wait, state->stream == NULL ? state->free_past : a->client.free_count);
    }
    ashlar__allocator_leave(a);
}

void ashlar__allocator_end_wait(ashlar_allocator *a, ashlar_stream stream, uint64_t wait) {
    ashlar__lock_acquire(&a->lock);
    ashlar_stream_state *state = awaited_state_locked(a, stream);
    const ashlar_cache *owner_cache = state != NULL ? ashlar__owner_cache(state) : NULL;
    if (state != NULL && (owner_cache == NULL || owner_cache == own_cache(a))) {
        ashlar__stream_state_settle(state, wait);
    }
    ashlar__lock_release(&a->lock);
}

static void lose_locked(ashlar_allocator *a, ashlar_stream stream) {
    ASHLAR_OWNS(&a->lock);
    ashlar_stream_state *state = find_state(a, ashlar__stream_named(stream));
    ASHLAR_CHECK2(state != NULL); /* forget_locked() fails only for a known stream */
    ashlar__caches_forget_stream_locked(a, state);
    state->is_gone = state->is_lost = true;
    a->recent = NULL;
    ASHLAR_CHECK2(ashlar__stream_state_is_sound(state));
}

void ashlar__allocator_end_stream(ashlar_allocator *a, ashlar_stream stream) {
    ashlar__allocator_enter(a);
    if (forget_locked(a, stream) != ASHLAR_OK) {
        lose_locked(a, stream);
    }
    ashlar__allocator_leave(a);
}
