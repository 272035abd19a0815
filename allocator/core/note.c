/*
 * note.c - who is told of an allocation and of a free: the counters, the trace, the recordings.
 */
#include "allocator/core/note.h"

/* ---- steps that are recorded ---- */

void ashlar_step_note_alloc_locked(ashlar_cache *own, size_t requested, ashlar_block *block) {
    /* What a captured stream is given is its graph's, and never a plan's. */
    if (own != NULL && own->run != NULL && own->run->is_recorded && !block->order->is_pool) {
        ashlar_recording_add(&own->run->recording, requested, block->tag, block->order, block);
    }
}

void ashlar_step_note_free_locked(ashlar_allocator *a, const ashlar_block *block, bool is_planned) {
    if (a->planner.recording_count == 0 || ashlar_block_is_seat(block)) {
        return;
    }
    for (ashlar_cache *cache = a->caches; cache != NULL; cache = cache->next) {
        if (cache->run != NULL && cache->run->is_recorded &&
            ashlar_recording_end(&cache->run->recording, block, is_planned)) {
            return;
        }
    }
}
