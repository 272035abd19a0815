/* shared.c - live blocks that several streams use, marked by ashlar_record_stream(). */
#include "allocator/core/shared.h"

#include "allocator/base/check_level.h"
#include "allocator/core/dry_run.h"
#include "allocator/core/hold.h"
#include "allocator/core/note.h"
#include "allocator/core/slow_path.h"
#include "allocator/core/streams.h"
#include "allocator/core/watch.h"
#include "allocator/heap/away.h"
#include "allocator/plan/plan_memory.h"

ashlar_status ashlar__shared_join_locked(ashlar_allocator *a, ashlar_block *block,
                                         ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    ashlar_status status = ASHLAR_OK;
    for (ashlar_use *use = ashlar__block_is_shared(block) ? block->uses : NULL;
         use != NULL && status == ASHLAR_OK; use = use->next) {
        if (use->stream_state == state) {
            continue;
        }
        use->tick = ashlar__stream_state_stamp(use->stream_state);
        use->stream_state->caller_count++; /* it lives until the block's free */
        status = ashlar__stream_state_cover(use->stream_state, &a->client, use->tick,
                                            &a->stats.events_recorded);
        use->stream_state->caller_count--;
        if (status == ASHLAR_OK) {
            status = ashlar__stream_state_wait_on(use->stream_state, &a->client, state->stream,
                                                  use->tick);
        }
    }
    if (status == ASHLAR_OK) {
        ashlar__away_drop_uses(block);
    }
    return status;
}

void ashlar__shared_rehome_locked(ashlar_allocator *a, ashlar_stream_state *from,
                                  ashlar_stream_state *to) {
    ASHLAR_OWNS(&a->lock);
    ASHLAR_CHECK2(from != to);
    ashlar__away_move_queue(&a->heap, from, to);
    for (ashlar_block *block = ashlar__heap_first(&a->heap); block != NULL;
         block = ashlar__block_after(block)) {
        ashlar_use *use = ashlar__away_find_use(block, from);
        if (use != NULL) {
            /* A second use by `to`, if it has one, is past as soon as the first. */
            use->stream_state = to;
            use->tick =
                ashlar__block_live_bytes(block) == 0 ? ashlar__stream_state_next(to) - 1 : 0;
        }
    }
}

void ashlar__shared_finish(ashlar_allocator *a) {
    for (ashlar_block *block = ashlar__heap_first(&a->heap); block != NULL;
         block = ashlar__block_after(block)) {
        ashlar__away_drop_uses(block);
    }
}

/* ---- the public function ---- */

ashlar_status ashlar_record_stream(ashlar_allocator *a, void *ptr, ashlar_stream stream) {
    ashlar_block *block = NULL;
    ashlar_stream_state *state = NULL;
    /* The thread's cache is needed only for an address of a dry run. */
    ashlar_cache *own = (uintptr_t)ptr >= ASHLAR_DRY_RUN_BASE ? ashlar__cache_get(a) : NULL;
    ashlar__lock_acquire(&a->lock);
    if (ashlar__dry_run_has(own, ptr)) {
        const ashlar_status marked = ashlar__dry_run_mark_locked(a, own, ptr, stream);
        ashlar__lock_release(&a->lock);
        return marked;
    }
    ashlar_stream_state *named = NULL;
    ashlar_status status = ashlar__find_live_locked(a, ptr, &block);
    if (status == ASHLAR_OK) {
        status = ashlar__watch_begin_locked(a, stream, &named);
    }
    if (status == ASHLAR_OK) {
        status = ashlar__stream_state_of_locked(a, stream, &state);
    }
    if (status == ASHLAR_OK && state != block->stream_state && state->pool != block->stream_state) {
        status = ashlar__away_add_use(block, state);
        ashlar__step_record_free_locked(a, block, false);
    }
    ashlar__watch_end_locked(named);
    ashlar__allocator_leave(a);
    return status;
}
