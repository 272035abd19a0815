/* deferred_free.c - frees that wait for the work of all streams: the list of their blocks, and when
 * each of them becomes free. */
#include "allocator/core/core.h"

#include "allocator/base/error.h"

/* ---- the list ---- */

static void defer_locked(ashlar_allocator *a, ashlar_cache *own, ashlar_block *block) {
    ASHLAR_OWNS(&a->lock);
    ASHLAR_ASSERT(!ashlar__allocator_is_guarded(a) && !ashlar__block_is_of_slot(block));
    ASHLAR_CHECK2(block->state == ASHLAR_BLOCK_USED && block->requested != 0);
    ashlar__account_free_locked(a, own, block);
    ashlar__step_record_free_locked(a, block);
    ashlar__cross_drop_uses(&a->heap, block); /* it will wait for all work anyway */
    block->requested = 0;
    block->marks |= ASHLAR_BLOCK_SHARED;
    block->uses = NULL;
    block->older = NULL;
    block->covered_by = ++a->client.free_count;
    *(a->deferred.first == NULL ? &a->deferred.first : &a->deferred.last->older) = block;
    a->deferred.last = block;
    a->deferred.bytes += block->bytes;
}

ashlar_status ashlar__free_deferred(ashlar_allocator *a, void *ptr, bool *is_planned) {
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar_block *block = NULL;
    ashlar_cache *own = ashlar__cache_get(a);
    ashlar__lock_acquire(&a->lock);
    const ashlar_status status = ashlar__find_live_locked(a, ptr, &block);
    *is_planned = status == ASHLAR_OK && ashlar__block_is_of_slot(block);
    if (status == ASHLAR_OK && !*is_planned) {
        defer_locked(a, own, block);
    }
    ashlar__allocator_leave(a);
    return status;
}

bool ashlar__has_deferred(ashlar_allocator *a) {
    ashlar__lock_acquire(&a->lock);
    const bool has_any = a->deferred.first != NULL;
    ashlar__lock_release(&a->lock);
    return has_any;
}

bool ashlar__deferred_has_more(ashlar_allocator *a, uint64_t release_count) {
    return atomic_load(&a->release_count) != release_count || ashlar__has_deferred(a);
}

/* Free the blocks up to the free numbered `past`. */
static bool release_locked(ashlar_allocator *a, uint64_t past) {
    ASHLAR_OWNS(&a->lock);
    bool has_any = false;
    while (a->deferred.first != NULL && a->deferred.first->covered_by <= past) {
        ashlar__caches_take_over_locked(a);
        ashlar_block *block = a->deferred.first;
        a->deferred.first = block->older;
        ASHLAR_CHECK2(ashlar__block_is_shared(block) && block->uses == NULL);
        ASHLAR_CHECK2(block->requested == 0 && a->deferred.bytes >= block->bytes);
        a->deferred.bytes -= block->bytes;
        block->marks &= (unsigned char)~ASHLAR_BLOCK_SHARED;
        ashlar__heap_put_stamped(&a->heap, block, 0);
        has_any = true;
    }
    atomic_fetch_add(&a->release_count, has_any);
    return has_any;
}

bool ashlar__may_grow(ashlar_allocator *a, size_t bytes) {
    ashlar__lock_acquire(&a->lock);
    const bool may_grow = bytes <= ashlar__range_left(&a->heap.range);
    ashlar__lock_release(&a->lock);
    return may_grow;
}

/* ---- recording behind all work ---- */

ashlar_status ashlar__deferred_add_stream(ashlar_allocator *a, ashlar_stream stream) {
    ashlar_stream_state *state = NULL;
    ashlar__lock_acquire(&a->lock);
    const ashlar_status status = ashlar__stream_state_of_locked(a, stream, &state);
    if (status == ASHLAR_OK && !state->orders_frees) {
        state->orders_frees = true;
        state->free_past = a->client.free_count; /* it is new: earlier frees do not wait for it */
    }
    ashlar__allocator_leave(a);
    return status;
}

static ashlar_status cover_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    ashlar_status status = ASHLAR_OK;
    for (ashlar_stream_state *state = a->stream_states; state != NULL && status == ASHLAR_OK;
         state = state->next) {
        if (state->orders_frees) {
            status = ashlar__stream_state_cover_frees(state, &a->client, &a->stats.events_recorded);
        }
    }
    return status;
}

void ashlar__deferred_cover(ashlar_allocator *a) {
    ashlar__lock_acquire(&a->lock);
    if (a->deferred.first != NULL) {
        /* If this fails, the frees wait for the end of the capture, or for a request. */
        ASHLAR_IGNORE(cover_locked(a));
    }
    ashlar__lock_release(&a->lock);
}

/* ---- asking, and waiting ---- */

/* Whether events follow all work before the oldest free that is not known to be over. */
static bool is_awaited_locked(const ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    const ashlar_stream_state *state = a->stream_states;
    while (state != NULL && (!state->orders_frees || ashlar__stream_state_covers_free(
                                                         state, a->deferred.first->covered_by))) {
        state = state->next;
    }
    return state == NULL;
}

/* Events become due when deferred bytes exceed this many times the free bytes. With a smaller
 * factor, programs that take and free block by block need many more events; with a larger one,
 * steps of drawn lengths reserve more (tests/preload/program_drawn.c). */
enum { DUE_FACTOR = 2 };

static bool fills_handle_locked(const ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    return a->deferred.first != NULL && a->deferred.bytes >= a->heap.range.handle_bytes;
}

bool ashlar__deferred_fills_handle(ashlar_allocator *a) {
    ashlar__lock_acquire(&a->lock);
    const bool fills_one = fills_handle_locked(a);
    ashlar__lock_release(&a->lock);
    return fills_one;
}

bool ashlar__deferred_is_due(ashlar_allocator *a) {
    ashlar__lock_acquire(&a->lock);
    const bool is_due = fills_handle_locked(a) &&
                        a->deferred.bytes / DUE_FACTOR > ashlar__heap_free_bytes(&a->heap) &&
                        !is_awaited_locked(a);
    ashlar__lock_release(&a->lock);
    return is_due;
}

/* Free what no work uses any more. Queries only streams of which less is known than of those
 * before, and stops at one that still has work from before the oldest free. */
static ashlar_status ask_locked(ashlar_allocator *a, bool *has_any) {
    ASHLAR_OWNS(&a->lock);
    uint64_t past = a->client.free_count;
    *has_any = a->deferred.first == NULL;
    if (!*has_any && !is_awaited_locked(a)) {
        ASHLAR_TRY(cover_locked(a));
    }
    for (ashlar_stream_state *state = a->stream_states;
         state != NULL && !*has_any && past >= a->deferred.first->covered_by; state = state->next) {
        if (!state->orders_frees) {
            continue;
        }
        if (state->pending_count > 0 && ashlar__stream_state_free_past(state) < past) {
            /* If this fails, no more is known than before. */
            ASHLAR_IGNORE(ashlar__stream_state_query(state, &a->client));
        }
        const uint64_t known = ashlar__stream_state_free_past(state);
        past = known < past ? known : past;
    }
    *has_any = *has_any || release_locked(a, past);
    return ASHLAR_OK;
}

ashlar_status ashlar__deferred_ask(ashlar_allocator *a, bool *has_any) {
    ashlar__lock_acquire(&a->lock);
    const ashlar_status status = ask_locked(a, has_any);
    ashlar__allocator_leave(a);
    return status;
}

/* Collect the streams with pending events that the oldest free waits for; returns their number. */
static size_t awaited_locked(const ashlar_allocator *a,
                             ashlar_stream_state *states[static ASHLAR_AWAITED_MAX]) {
    ASHLAR_OWNS(&a->lock);
    size_t count = 0;
    for (ashlar_stream_state *state = a->stream_states; state != NULL && count < ASHLAR_AWAITED_MAX;
         state = state->next) {
        if (state->orders_frees && state->pending_count > 0 &&
            ashlar__stream_state_free_past(state) < a->deferred.first->covered_by) {
            states[count++] = state;
        }
    }
    return count;
}

bool ashlar__deferred_wait(ashlar_allocator *a) {
    ashlar__lock_acquire(&a->lock);
    bool has_any = false;
    ashlar_status status = ask_locked(a, &has_any);
    while (status == ASHLAR_OK && !has_any) {
        ashlar_stream_state *states[ASHLAR_AWAITED_MAX];
        const size_t count = awaited_locked(a, states);
        status = ashlar__stream_states_wait(states, count, &a->client, &a->lock);
        status = status == ASHLAR_OK ? ask_locked(a, &has_any) : status;
    }
    ashlar__allocator_leave(a);
    return has_any;
}

/* ---- waits for the whole device ---- */

ashlar_device_wait ashlar__deferred_begin_wait(ashlar_allocator *a) {
    ashlar_device_wait wait = {0};
    ashlar__lock_acquire(&a->lock);
    if (a->deferred.first != NULL || a->heap.awaited != NULL) {
        ashlar__caches_take_over_locked(a);
        wait = (ashlar_device_wait){ashlar__watch_begin_wait_locked(a), a->client.free_count};
    }
    ashlar__allocator_leave(a);
    return wait;
}

bool ashlar__deferred_end_wait(ashlar_allocator *a, ashlar_device_wait wait) {
    if (wait.number == 0) {
        return false;
    }
    ashlar__allocator_enter(a);
    ashlar__watch_end_wait_locked(a, wait.number);
    const bool has_any = release_locked(a, wait.free_number);
    ashlar__allocator_leave(a);
    return has_any;
}
