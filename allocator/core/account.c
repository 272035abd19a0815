/* account.c - entering allocations and frees into the counters, the statistics, the trace and the
 * recordings of steps. */
#include "allocator/core/core.h"

/* ---- statistics ---- */

ashlar_counters *ashlar__counters_of(ashlar_allocator *a, ashlar_cache *own) {
    return own != NULL ? &own->counters : &a->counters;
}

void ashlar__publish_locked(ashlar_allocator *a, ashlar_cache *own) {
    ASHLAR_OWNS(&a->lock);
    if (own == NULL) {
        ashlar__counters_publish(&a->counters, &a->stats);
    } else {
        ashlar__cache_count_planned(own);
        if (ashlar__counters_are_due(&own->counters)) {
            ashlar__counters_publish(&own->counters, &a->stats);
        }
    }
}

void ashlar__count_free_locked(ashlar_allocator *a, ashlar_cache *own, size_t requested,
                               unsigned tag) {
    ASHLAR_OWNS(&a->lock);
    ashlar_counters *counters = ashlar__counters_of(a, own);
    counters->free_count++;
    ashlar__count_free(counters, requested, tag);
    ashlar__publish_locked(a, own);
}

void ashlar__stats_sum_locked(ashlar_allocator *a, ashlar_stats *stats) {
    ASHLAR_OWNS(&a->lock);
    ashlar__caches_take_over_locked(a);
    size_t cached_bytes = ashlar__remote_bytes_locked(a);
    const size_t used_bytes = ashlar__heap_used_bytes(&a->heap);
    for (ashlar_cache *cache = a->caches; cache != NULL; cache = cache->next) {
        ASHLAR_MAY_TOUCH(cache);
        ashlar__cache_count_planned(cache);
        ashlar__counters_publish(&cache->counters, &a->stats);
        cached_bytes += ashlar__cache_bytes(cache);
    }
    if (a->guard_fill != NULL) {
        cached_bytes += a->guard_fill->bytes;
    }
    /* Now every thread has published. ashlar_allocator_check() verifies the sums. */
    ASHLAR_CHECK2(a->counters.all.live == 0 && a->counters.free_count == 0);
    *stats = a->stats;
    stats->cached_bytes = cached_bytes;
    stats->shared_bytes = a->heap.cross_bytes + a->deferred.bytes;
    stats->planned_bytes = ashlar__plan_memories_idle_bytes(a->planner.memories);
    ASHLAR_CHECK2(used_bytes >= cached_bytes + stats->shared_bytes + stats->planned_bytes);
    stats->block_bytes = used_bytes - cached_bytes - stats->shared_bytes - stats->planned_bytes;
    stats->live_blocks = stats->alloc_count - stats->free_count;
    stats->spare_bytes = a->heap.range.spare_count * a->heap.range.handle_bytes;
    stats->reserved_bytes = a->heap.range.mapped_bytes;
    stats->limit_bytes = a->heap.range.limit_bytes;
    stats->driver_calls = a->client.calls;
    stats->driver_calls_sealed = stats->is_sealed ? a->client.calls - a->calls_at_seal : 0;
}

ashlar_trace_event ashlar__trace_event_of(const ashlar_allocator *a, ashlar_trace_action action,
                                          const ashlar_block *block, ashlar_stream stream) {
    return (ashlar_trace_event){
        .action = (uint8_t)action,
        .address = a->constants.base + block->offset,
        .bytes = block->bytes,
        .requested = block->requested,
        .stream = (uintptr_t)stream,
        .tag = block->tag,
    };
}

void ashlar__account_free_locked(ashlar_allocator *a, ashlar_cache *own,
                                 const ashlar_block *block) {
    ASHLAR_OWNS(&a->lock);
    ashlar__count_free_locked(a, own, block->requested, block->tag);
    const ashlar_trace_event event =
        ashlar__trace_event_of(a, ASHLAR_TRACE_FREE, block, block->stream_state->stream);
    ashlar__trace_put(a->client.trace, &event);
}

/* ---- steps that are being recorded ---- */

void ashlar__step_record_alloc_locked(ashlar_cache *own, size_t requested, ashlar_block *block) {
    ASHLAR_CHECK2(requested <= block->bytes && block->stream_state != NULL);
    /* A plan never serves blocks for a captured stream, which belong to its graph's pool, nor
     * those that any stream may use. */
    if (own != NULL && own->own_replay != NULL && own->own_replay->is_recorded &&
        !block->stream_state->is_pool && !block->stream_state->is_idle) {
        ashlar__recording_add(&own->own_replay->recording, requested, block->tag,
                              block->stream_state, block);
    }
}

void ashlar__step_record_refusal_locked(ashlar_cache *own, size_t requested, ashlar_tag tag,
                                        ashlar_stream_state *state) {
    if (own != NULL && own->own_replay != NULL && own->own_replay->is_recorded && state != NULL &&
        !state->is_pool) {
        ashlar__recording_add(&own->own_replay->recording, requested, (unsigned)tag, state, NULL);
    }
}

/* Tell the recording to which the block belongs, if there is one. */
static void tell_recording_locked(ashlar_allocator *a, const ashlar_block *block,
                                  bool (*tell)(ashlar_recording *, const ashlar_block *)) {
    ASHLAR_OWNS(&a->lock);
    ASHLAR_CHECK2(a->planner.recording_count <= a->planner.active_step_count);
    if (a->planner.recording_count == 0 || ashlar__block_is_of_slot(block)) {
        return;
    }
    for (ashlar_cache *cache = a->caches; cache != NULL; cache = cache->next) {
        if (cache->own_replay != NULL && cache->own_replay->is_recorded &&
            tell(&cache->own_replay->recording, block)) {
            return;
        }
    }
}

void ashlar__step_record_free_locked(ashlar_allocator *a, const ashlar_block *block) {
    tell_recording_locked(a, block, ashlar__recording_end);
}

void ashlar__step_record_share_locked(ashlar_allocator *a, const ashlar_block *block) {
    tell_recording_locked(a, block, ashlar__recording_share);
}
