/*
 * free.c - freeing under the lock: blocks that a thread's cache does not accept.
 */
#include "allocator/core/allocator_impl.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/core/deferred_free.h"
#include "allocator/core/dry_run.h"
#include "allocator/core/forked.h"
#include "allocator/core/hold.h"
#include "allocator/core/miss.h"
#include "allocator/core/note.h"
#include "allocator/core/report.h"
#include "allocator/core/shared.h"
#include "allocator/heap/away.h"
#include "allocator/core/slow_path.h"
#include "allocator/core/streams.h"
#include "allocator/core/watch.h"
#include "allocator/plan/planner.h"
#include "allocator/trace/trace_ring.h"

/*
 * Do what a free without the lock does, so that an allocator whose caches are bypassed hands out
 * the same blocks. Give the block to the thread's cache. If the cache is full but holds the stream,
 * put the block back into its zone; otherwise let it wait for the next miss. False: the block is in
 * none of the three.
 */
static bool keep_locked(ashlar_allocator *a, ashlar_cache *own, ashlar_block *block) {
    ASHLAR_OWNS(&a->lock);
    ashlar_stream_state *state = block->stream_state;
    if (ashlar__outbox_wants(own, block)) {
        ashlar__outbox_add(own, block);
        return true;
    }
    /* A cache may give the block back late, when no event can be recorded behind it any more. */
    ashlar_magazines *m = ashlar__stream_state_is_recorded_at_calls(state, &a->client)
                              ? NULL
                              : ashlar__cache_need_locked(own, state);
    if (m == NULL || ashlar__cache_push(own, m, block)) {
        return m != NULL;
    }
    if (ashlar__miss_may_put(a, own, state)) {
        ashlar__miss_put(a, own, block);
        return true;
    }
    return ashlar__cache_add_pending(own, block);
}

/* Free a slot block that other streams use, if the block's plan knows of these uses. If streams may
 * end unannounced, an event cannot be recorded later, so no use may be left to the step's end. */
static bool vacate_shared_locked(ashlar_allocator *a, ashlar_block *block,
                                 ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    ashlar_plan_memory *memory = ashlar__planner_memory(&a->planner, ashlar__block_home(block));
    return memory != NULL && memory->block == block->prev && !a->client.watches_streams &&
           !a->client.records_at_calls &&
           ashlar__plan_memory_vacate_locked(memory, &a->heap, block, state);
}

/*
 * Give a freed block to the thread's cache or, if the cache is full, to the heap together with the
 * cache's pending blocks.
 */
static void give_locked(ashlar_allocator *a, ashlar_cache *own, ashlar_block *block,
                        ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    ASHLAR_CHECK2(block->requested == 0 || ashlar__block_is_of_slot(block));
    const bool is_of_slot = ashlar__block_is_of_slot(block);
    if (ashlar__block_is_shared(block) || ashlar__block_home(block) != state) {
        ashlar__shut_out_locked(a);
        if (is_of_slot && vacate_shared_locked(a, block, state)) {
            return;
        }
        if (is_of_slot) {
            atomic_store_explicit(&block->taken, ASHLAR_SLOT_BLOCK_AWAITED, memory_order_relaxed);
        }
        ashlar__release_block_locked(&a->heap, block, state);
        return;
    }
    if (is_of_slot) {
        ashlar__slot_block_vacate(block);
        return;
    }
    block->marks &= (unsigned char)~ASHLAR_BLOCK_BORROWED; /* its zone belongs to this stream now */
    block->stream_state = state;
    if (a->heap.is_near_limit && block->bytes > ASHLAR_SC_MAX_BYTES) {
        ashlar__shut_out_locked(a);
        ashlar__release_covered_locked(&a->heap, block, state);
        return;
    }
    if (own != NULL && keep_locked(a, own, block)) {
        return;
    }
    if (own != NULL) {
        ashlar__cache_flush_pending(own);
        if (block->bytes > ASHLAR_SC_MAX_BYTES) {
            ashlar__cache_flush_large(own);
        }
    }
    ashlar__cache_give_back_locked(a, block);
}

static void free_locked(ashlar_allocator *a, ashlar_cache *own, ashlar_block *block,
                        ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    ashlar__count_free_locked(a, own, block->requested, block->tag);
    ashlar__trace_block_locked(a, ASHLAR_TRACE_FREE, block, state);
    if (state != block->stream_state) {
        ashlar__step_record_share_locked(a, block);
    }
    ashlar__step_record_free_locked(a, block);
    ASHLAR_CHECK2(block->state == ASHLAR_BLOCK_USED && ashlar__block_live_bytes(block) > 0);
    if (!ashlar__block_is_of_slot(block)) {
        block->requested = 0;
    }
    give_locked(a, own, block, state);
    ASHLAR_CHECK3(ashlar__is_sound_locked(a, own));
}

/*
 * Have the stream that frees the block wait for the fill of the block's red zone, and for all uses.
 */
static ashlar_status join_filled_locked(ashlar_allocator *a, ashlar_block *block,
                                        ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    ashlar_stream_state *own = block->stream_state;
    ashlar_status status = ASHLAR_OK;
    if (own != state) {
        const uint64_t tick =
            block->covered_by > 0 ? block->covered_by - 1 : ashlar__stream_state_stamp(own);
        status = ashlar__shared_wait_locked(a, own, tick, state->stream);
    }
    if (status == ASHLAR_OK && own != state) {
        /* The free queues work on this stream. If it then fails, the next free must wait for that
         * work. */
        status = ashlar__away_add_any_use(&a->heap, block, state);
    }
    return status == ASHLAR_OK ? ashlar__shared_join_locked(a, ashlar__shared_uses(block), state)
                               : status;
}

/* Free a block with guard=fill: into the quarantine. */
static ashlar_status free_filled_locked(ashlar_allocator *a, ashlar_block *block,
                                        ashlar_stream_state *state, ashlar_call_site place) {
    ASHLAR_OWNS(&a->lock);
    const size_t requested = block->requested;
    ashlar_status status = join_filled_locked(a, block, state);
    if (status == ASHLAR_OK) {
        status = ashlar__guard_fill_free_locked(a->guard_fill, block, state);
        /* A free that fails may have queued work, and the next attempt must wait for this work. */
        block->covered_by = block->stream_state == state ? 0 : block->covered_by;
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    ashlar__away_drop_uses(&a->heap, block); /* the stream of the free waits for all of them */
    ashlar__count_free_locked(a, NULL, requested, block->tag);
    ashlar__trace_block_locked(a, ASHLAR_TRACE_FREE, block, state);
    block->requested = 0;
    ashlar__guard_fill_put_locked(a->guard_fill, block, requested, state, place);
    return ASHLAR_OK;
}

/*
 * The state of the stream that used the block last: that of *stream or, if `stream` is NULL, that
 * of the stream that the block was allocated for.
 */
static ashlar_status last_state_locked(ashlar_allocator *a, const ashlar_stream *stream,
                                       ashlar_stream_state *taken_for, ashlar_stream_state **out) {
    ASHLAR_OWNS(&a->lock);
    *out = taken_for;
    return stream != NULL ? ashlar__stream_state_of_locked(a, *stream, out) : ASHLAR_OK;
}

/*
 * In a guard mode, a free and the later release pass the stream of the block's last use to the
 * driver. That is impossible if the stream is gone or watched, or is a per-thread default stream,
 * which only its own thread can name. Then use the legacy default stream instead, and have it wait
 * for the last use. The legacy stream waits for a per-thread default stream by itself.
 */
static ashlar_status name_live_state_locked(ashlar_allocator *a, ashlar_stream_state **state) {
    ASHLAR_OWNS(&a->lock);
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
        /*
         * If the stream is gone, this call records nothing, and fails if no event follows the use.
         */
        status = ashlar__stream_state_cover(last, &a->client, tick, &a->stats.events_recorded);
        if (status == ASHLAR_OK) {
            status = ashlar__stream_state_wait_on(last, &a->client, NULL, tick);
        }
    }
    return status == ASHLAR_OK ? ashlar__stream_state_of_locked(a, NULL, state) : status;
}

/*
 * Whether guard=fill checks a block that is freed on `state`. It skips blocks of graph pools. It
 * also skips blocks with a use that no event follows, since these are never used again.
 */
static bool guards_block(const ashlar_allocator *a, const ashlar_block *block,
                         const ashlar_stream_state *state) {
    const ashlar_stream_state *own = block->stream_state;
    return a->guard_fill != NULL && !own->is_pool && !state->is_lost &&
           !(own->is_lost && block->covered_by == 0) &&
           !ashlar__shared_has_lost(ashlar__shared_uses(block));
}

/*
 * A block of a graph's pool returns to the pool, whichever stream used it last. While a stream is
 * captured, its pool stands for it: what the pool hands out next comes behind the captured work.
 * That is not so for other streams, so the block waits for a last use there.
 */
static ashlar_status return_to_pool_locked(ashlar_allocator *a, ashlar_block *block,
                                           ashlar_stream_state **state) {
    ASHLAR_OWNS(&a->lock);
    ashlar_stream_state *pool = block->stream_state, *last = *state;
    *state = pool;
    return last == pool || last->pool == pool ? ASHLAR_OK
                                              : ashlar__away_add_any_use(&a->heap, block, last);
}

static ashlar_status free_block_locked(ashlar_allocator *a, ashlar_cache *own, const void *ptr,
                                       const ashlar_stream *stream, ashlar_call_site place) {
    ASHLAR_OWNS(&a->lock);
    ashlar_block *block = NULL;
    ashlar_stream_state *state = NULL;
    ashlar_status status = ashlar__find_live_locked(a, ptr, &block);
    if (status == ASHLAR_OK) {
        status = last_state_locked(a, stream, block->stream_state, &state);
    }
    if (status == ASHLAR_OK && guards_block(a, block, state)) {
        status = name_live_state_locked(a, &state);
        return status == ASHLAR_OK ? free_filled_locked(a, block, state, place) : status;
    }
    if (status == ASHLAR_OK && block->stream_state->is_pool) {
        status = return_to_pool_locked(a, block, &state);
    }
    if (status == ASHLAR_OK) {
        free_locked(a, own, block, state);
    }
    return status;
}

static ashlar_status free_from(ashlar_allocator *a, const void *ptr, const ashlar_stream *stream,
                               const void *caller) {
    if (ptr == NULL || ashlar__is_of_parent(a)) {
        return ASHLAR_OK;
    }
    const ashlar_call_site place = {caller, ashlar__thread_number()};
    ashlar_cache *own = ashlar__cache_get(a);
    /* guards need every call: no caches */
    ASHLAR_CHECK2(own == NULL || !ashlar__allocator_is_guarded(a));
    ashlar_stream_state *named = NULL;
    ashlar__lock_acquire(&a->lock);
    ashlar_status status =
        stream != NULL ? ashlar__watch_begin_locked(a, *stream, &named) : ASHLAR_OK;
    if (status == ASHLAR_OK) {
        status = ashlar__dry_run_has(own, ptr) ? ashlar__dry_run_free_locked(a, own, ptr, stream)
                                               : free_block_locked(a, own, ptr, stream, place);
        ashlar__watch_end_locked(named);
    }
    ashlar__allocator_leave(a);
    return status == ASHLAR_OK ? ashlar__guard_take_finding(a) : status;
}

ashlar_status ashlar__free_from(ashlar_allocator *a, void *ptr, const void *caller) {
    return free_from(a, ptr, NULL, caller);
}

ashlar_status ashlar__free_slow(ashlar_allocator *a, void *ptr) {
    return free_from(a, ptr, NULL, NULL);
}

ashlar_status ashlar_free_on(ashlar_allocator *a, void *ptr, ashlar_stream stream) {
    return free_from(a, ptr, &stream, ASHLAR_RETURN_ADDRESS());
}

/* In a guard mode only the requested bytes are usable: an access beyond them is a mistake. */
static ashlar_status usable_bytes_locked(ashlar_allocator *a, const void *ptr, size_t *out) {
    ASHLAR_OWNS(&a->lock);
    ashlar_block *block = NULL;
    const ashlar_status status = ashlar__find_live_locked(a, ptr, &block);
    if (status == ASHLAR_OK) {
        *out = a->guard_fill != NULL ? block->requested : block->bytes;
    }
    return status;
}

ashlar_status ashlar_allocator_usable_bytes(ashlar_allocator *a, const void *ptr, size_t *out) {
    ASHLAR_REFUSE_OF_PARENT(a);
    /* The thread's cache is needed only for an address of a dry run. */
    const ashlar_cache *own = (uintptr_t)ptr >= ASHLAR_DRY_RUN_BASE ? ashlar__cache_get(a) : NULL;
    ashlar__lock_acquire(&a->lock);
    const ashlar_status status = ashlar__dry_run_has(own, ptr)
                                     ? ashlar__dry_run_bytes_locked(a, own, ptr, out)
                                     : usable_bytes_locked(a, ptr, out);
    ashlar__lock_release(&a->lock);
    return status;
}
