/* shared.c - live blocks that several streams use, marked by ashlar_record_stream(). */
#include "allocator/core/shared.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/core/dry_run.h"
#include "allocator/core/forked.h"
#include "allocator/core/hold.h"
#include "allocator/core/note.h"
#include "allocator/core/slow_path.h"
#include "allocator/core/streams.h"
#include "allocator/core/watch.h"
#include "allocator/heap/away.h"
#include "allocator/plan/planner.h"

ashlar_status ashlar__shared_wait_locked(ashlar_allocator *a, ashlar_stream_state *of,
                                         uint64_t tick, ashlar_stream waiter) {
    ASHLAR_OWNS(&a->lock);
    of->caller_count++; /* keeps the state alive across the calls below */
    const ashlar_status status =
        ashlar__stream_state_cover(of, &a->client, tick, &a->stats.events_recorded);
    of->caller_count--;
    return status == ASHLAR_OK ? ashlar__stream_state_wait_on(of, &a->client, waiter, tick)
                               : status;
}

ashlar_status ashlar__shared_join_locked(ashlar_allocator *a, ashlar_use *uses,
                                         ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    ashlar_status status = ASHLAR_OK;
    for (ashlar_use *use = uses; use != NULL && status == ASHLAR_OK; use = use->next) {
        if (use->stream_state == state) {
            continue;
        }
        status = ashlar__shared_wait_locked(
            a, use->stream_state, ashlar__stream_state_stamp(use->stream_state), state->stream);
    }
    return status;
}

bool ashlar__shared_has_lost(const ashlar_use *uses) {
    while (uses != NULL && !uses->stream_state->is_lost) {
        uses = uses->next;
    }
    return uses != NULL;
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
            /*
             * `to` may then be noted twice. That does no harm: both uses become past at the same
             * time.
             */
            use->stream_state = to;
            use->tick =
                ashlar__block_live_bytes(block) == 0 ? ashlar__stream_state_next(to) - 1 : 0;
        }
    }
}

void ashlar__shared_finish(ashlar_allocator *a) {
    for (ashlar_block *block = ashlar__heap_first(&a->heap); block != NULL;
         block = ashlar__block_after(block)) {
        ashlar__away_drop_uses(&a->heap, block);
    }
}

/* ---- the public function ---- */

static ashlar_status mark_locked(ashlar_allocator *a, const void *ptr, ashlar_stream stream) {
    ASHLAR_OWNS(&a->lock);
    ashlar_block *block = NULL;
    ashlar_stream_state *state = NULL;
    ashlar_stream_state *named = NULL;
    ashlar_status status = ashlar__find_live_locked(a, ptr, &block);
    if (status == ASHLAR_OK) {
        status = ashlar__watch_begin_locked(a, stream, &named);
    }
    if (status == ASHLAR_OK) {
        status = ashlar__stream_state_of_locked(a, stream, &state);
    }
    if (status == ASHLAR_OK && state == block->stream_state && a->guard_fill != NULL) {
        block->covered_by = 0; /* a free on another stream must now wait for more than the fill */
    }
    if (status == ASHLAR_OK && state != block->stream_state && state->pool != block->stream_state) {
        status = a->guard_fill != NULL ? ashlar__away_add_any_use(&a->heap, block, state)
                                       : ashlar__away_add_use(&a->heap, block, state);
        ashlar__step_record_share_locked(a, block);
    }
    ashlar__watch_end_locked(named);
    return status;
}

ashlar_status ashlar_record_stream(ashlar_allocator *a, void *ptr, ashlar_stream stream) {
    ASHLAR_REFUSE_OF_PARENT(a);
    /* The thread's cache is needed only for an address of a dry run. */
    ashlar_cache *own = (uintptr_t)ptr >= ASHLAR_DRY_RUN_BASE ? ashlar__cache_get(a) : NULL;
    ashlar__lock_acquire(&a->lock);
    const ashlar_status status = ashlar__dry_run_has(own, ptr)
                                     ? ashlar__dry_run_mark_locked(a, own, ptr, stream)
                                     : mark_locked(a, ptr, stream);
    ashlar__allocator_leave(a);
    return status;
}
