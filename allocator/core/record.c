/*
 * record.c - ashlar_record_stream(): a block is used on a further stream.
 */
#include "allocator/core/allocator_impl.h"

#include "allocator/core/lookup.h"
#include "allocator/core/note.h"
#include "allocator/core/dry_run.h"
#include "allocator/core/shared.h"
#include "allocator/core/streams.h"

ashlar_status ashlar_record_stream(ashlar_allocator *a, void *ptr, ashlar_stream stream) {
    ashlar_block *block = NULL;
    ashlar_stream_state *state = NULL;
    /* No other address needs the thread's cache. */
    ashlar_cache *own = (uintptr_t)ptr >= ASHLAR_DRY_RUN_BASE ? ashlar__cache_get(a) : NULL;
    ashlar__lock_acquire(&a->lock);
    if (ashlar__dry_run_has(own, ptr)) {
        const ashlar_status marked = ashlar__dry_run_mark_locked(a, own, ptr, stream);
        ashlar__lock_release(&a->lock);
        return marked;
    }
    ashlar_status status = ashlar__find_live_locked(a, ptr, &block);
    if (status == ASHLAR_OK) {
        status = ashlar__stream_state_of_locked(a, stream, &state);
    }
    if (status == ASHLAR_OK && state != block->stream_state && state->pool != block->stream_state) {
        status = ashlar__shared_add_use_locked(block, state);
        ashlar__step_record_free_locked(a, block, false);
    }
    ashlar__lock_release(&a->lock);
    return status;
}
