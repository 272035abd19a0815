/*
 * hit.c - allocating from and freeing into the calling thread's own cache: the path that takes no
 * lock, makes no call out of the library and writes nothing that another thread writes.
 *
 * tests/shell/shell_hit_path.sh checks this in the machine code. Code that takes the lock lies
 * behind ashlar__alloc_slow(), ashlar__alloc_unplanned(), ashlar__free_slow() and
 * ashlar__free_from().
 */
#include "allocator/core/allocator_impl.h"

#include "allocator/base/check_level.h"
#include "allocator/core/cycle.h"
#include "allocator/core/hand_out.h"
#include "allocator/core/hold.h"
#include "allocator/core/miss.h"
#include "allocator/core/slow_path.h"
#include "allocator/plan/plan_replay.h"

/*
 * Serve a request for a stream other than the last request's, or a request that the step's plan
 * does not expect. The cache has been entered.
 */
static ASHLAR_NOINLINE ashlar_status alloc_unexpected(ashlar_allocator *a, size_t bytes,
                                                      ashlar_tag tag, ashlar_stream stream,
                                                      void **out) {
    ashlar_cache *cache = ashlar__cache_recent;
    const ashlar_stream named = ashlar__stream_named(stream);
    ashlar_block *block =
        ashlar__cache_is_replaying(cache)
            ? ashlar__replay_serve_otherwise(cache->active_replay, bytes, (unsigned)tag, named)
            : NULL;
    if (block != NULL) {
        ashlar__hand_out(a, cache, block, bytes, tag, NULL, out);
        return ASHLAR_OK;
    }
    ashlar_magazines *m = ashlar__cache_find(cache, stream);
    block = m != NULL && !ashlar__cycle_is_tight(&a->heap, cache)
                ? ashlar__cache_pop(cache, m, bytes)
                : NULL;
    if (block != NULL) {
        ashlar__hand_out(a, cache, block, bytes, tag, &cache->counters.hit_count, out);
        return ASHLAR_OK;
    }
    if (m != NULL) {
        return ashlar__alloc_miss(a, bytes, tag, stream, out);
    }
    ashlar__cache_leave(cache);
    return ashlar__alloc_unplanned(a, bytes, tag, stream, out);
}

/*
 * Serve a request for a stream other than the last request's, or any request in a replayed step.
 * The cache has been entered.
 */
static inline ashlar_status alloc_otherwise(ashlar_allocator *a, ashlar_cache *cache, size_t bytes,
                                            ashlar_tag tag, ashlar_stream stream, void **out) {
    ashlar_block *block = ashlar__replay_serve(cache->active_replay, bytes, (unsigned)tag, stream);
    if (!ASHLAR_LIKELY(block != NULL)) {
        return alloc_unexpected(a, bytes, tag, stream, out);
    }
    ashlar__hand_out(a, cache, block, bytes, tag, NULL, out);
    return ASHLAR_OK;
}

/* Serve a request to an allocator other than the one that the thread used last. */
static ASHLAR_NOINLINE ashlar_status alloc_of_other(ashlar_allocator *a, size_t bytes,
                                                    ashlar_tag tag, ashlar_stream stream,
                                                    void **out) {
    if ((unsigned)tag < (unsigned)ASHLAR_TAG_COUNT && ashlar__cache_switch(a->constants.id) &&
        ashlar__cache_enter(ashlar__cache_recent)) {
        return alloc_otherwise(a, ashlar__cache_recent, bytes, tag, stream, out);
    }
    return ashlar__alloc_slow(a, bytes, tag, stream, out);
}

static inline ashlar_status allocate(ashlar_allocator *a, size_t bytes, ashlar_tag tag,
                                     ashlar_stream stream, void **out) {
    ashlar_cache *cache = ashlar__cache_recent;
    if (!ASHLAR_LIKELY(cache->allocator_id == a->constants.id)) {
        return alloc_of_other(a, bytes, tag, stream, out);
    }
    if (ASHLAR_LIKELY((unsigned)tag < (unsigned)ASHLAR_TAG_COUNT && ashlar__cache_enter(cache))) {
        if (!ASHLAR_LIKELY(cache->stream == stream)) {
            return alloc_otherwise(a, cache, bytes, tag, stream, out);
        }
        ashlar_block *block = ashlar__cache_pop(cache, cache->recent, bytes);
        if (ASHLAR_LIKELY(block != NULL)) {
            ashlar__hand_out(a, cache, block, bytes, tag, &cache->counters.hit_count, out);
            return ASHLAR_OK;
        }
        return ashlar__alloc_miss(a, bytes, tag, stream, out);
    }
    return ashlar__alloc_slow(a, bytes, tag, stream, out);
}

ashlar_status ashlar_alloc(ashlar_allocator *a, size_t bytes, ashlar_stream stream, void **out) {
    return allocate(a, bytes, ASHLAR_TAG_USER, stream, out);
}

ashlar_status ashlar_alloc_tagged(ashlar_allocator *a, size_t bytes, ashlar_tag tag,
                                  ashlar_stream stream, void **out) {
    return allocate(a, bytes, tag, stream, out);
}

static inline ashlar_status free_slot_block(ashlar_cache *cache, ashlar_block *block) {
    ASHLAR_CHECK2(ashlar__block_is_of_slot(block) && block->requested <= block->bytes);
    cache->counters.free_count++;
    ashlar__count_free(&cache->counters, block->requested, block->tag);
    ashlar__slot_block_vacate(block);
    ashlar__cache_leave(cache);
    return ASHLAR_OK;
}

/* Free a slot block as the first free after a peak. Out of line, since such frees are rare. */
static ASHLAR_NOINLINE ashlar_status free_slot_block_at_peak(ashlar_cache *cache,
                                                             ashlar_block *block) {
    return free_slot_block(cache, block);
}

/* Free a block with marks: one that several streams use, or that belongs to a plan. */
static inline ashlar_status free_marked(ashlar_allocator *a, void *ptr, ashlar_cache *cache,
                                        ashlar_block *block) {
    if (!ASHLAR_LIKELY(block->marks == ASHLAR_BLOCK_OF_SLOT && ashlar__cache_enter(cache))) {
        return ashlar__free_slow(a, ptr);
    }
    return ASHLAR_LIKELY(!cache->counters.is_at_peak) ? free_slot_block(cache, block)
                                                      : free_slot_block_at_peak(cache, block);
}

/*
 * Free a block in one of three cases: its stream is not that of the recent magazines, another
 * thread holds its stream, or this is the first free after a peak. The cache has been entered.
 */
static ASHLAR_NOINLINE ashlar_status free_otherwise(ashlar_allocator *a, void *ptr,
                                                    ashlar_block *block) {
    ashlar_cache *cache = ashlar__cache_recent;
    ashlar_magazines *m = ashlar__cache_find_state(cache, block->stream_state);
    if (m != NULL && !ashlar__cache_push(cache, m, block)) {
        return ashlar__free_miss(a, ptr, block);
    }
    if (m != NULL) {
        ashlar__take_back(cache, block);
        return ASHLAR_OK;
    }
    if (ashlar__outbox_wants(cache, block) && !ashlar__counters_are_due(&cache->counters)) {
        ashlar__count_back(cache, block);
        ashlar__outbox_add(cache, block);
        ashlar__cache_leave(cache);
        return ASHLAR_OK;
    }
    ashlar__cache_leave(cache);
    return ashlar__free_slow(a, ptr);
}

/*
 * Free a block of an allocator other than the one that the thread used last, or refuse a pointer
 * that is not a block. Guard modes have no caches, so all their frees come here; only they use
 * `caller`.
 */
static ASHLAR_NOINLINE ashlar_status free_of_other(ashlar_allocator *a, void *ptr,
                                                   const void *caller) {
    const size_t offset = (size_t)(ashlar__ptr_in(ptr) - a->constants.base);
    if (offset < a->constants.range_bytes && ashlar__cache_switch(a->constants.id)) {
        ashlar_block *block = ashlar__page_map_get(&a->constants.map, offset);
        if (block != NULL && block->requested != 0 && block->marks == 0 &&
            ashlar__cache_enter(ashlar__cache_recent)) {
            return free_otherwise(a, ptr, block);
        }
    }
    return ashlar__free_from(a, ptr, caller);
}

ashlar_status ashlar_free(ashlar_allocator *a, void *ptr) {
    ashlar_cache *cache = ashlar__cache_recent;
    /* An address below the base wraps around to a huge offset. */
    const size_t offset = (size_t)(ashlar__ptr_in(ptr) - a->constants.base);
    if (!ASHLAR_LIKELY(cache->allocator_id == a->constants.id &&
                       offset < a->constants.range_bytes)) {
        return free_of_other(a, ptr, ASHLAR_RETURN_ADDRESS());
    }
    ashlar_block *block = ashlar__page_map_get(&a->constants.map, offset);
    if (!ASHLAR_LIKELY(block != NULL && block->requested != 0)) {
        return ashlar__free_slow(a, ptr);
    }
    if (!ASHLAR_LIKELY(block->marks == 0)) {
        return free_marked(a, ptr, cache, block);
    }
    if (!ASHLAR_LIKELY(ashlar__cache_enter(cache))) {
        return ashlar__free_slow(a, ptr);
    }
    ashlar_magazines *m = cache->recent;
    if (!ASHLAR_LIKELY(m->stream_state == block->stream_state && !cache->counters.is_at_peak)) {
        return free_otherwise(a, ptr, block);
    }
    if (!ASHLAR_LIKELY(ashlar__cache_push(cache, m, block))) {
        return ashlar__free_miss(a, ptr, block);
    }
    ashlar__take_back(cache, block);
    return ASHLAR_OK;
}
