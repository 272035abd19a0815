/*
 * hit.c - allocating from and freeing into the calling thread's own cache: the path that takes no
 * lock, makes no call out of the library and writes nothing that another thread writes.
 *
 * tests/shell_hit_path.sh disassembles this file's object. Whatever does not fit under those
 * conditions is behind ashlar_alloc_slow() and ashlar_free_slow().
 */
#include "allocator_impl.h"

static inline ashlar_status allocate(ashlar_allocator *a, size_t bytes, ashlar_tag tag,
                                     ashlar_stream stream, void **out) {
    ashlar_cache *cache = ashlar_cache_recent;
    if (ASHLAR_LIKELY(cache->allocator_id == a->fixed.id &&
                      (unsigned)tag < (unsigned)ASHLAR_TAG_COUNT && ashlar_cache_enter(cache))) {
        ashlar_magazines *m = cache->recent;
        if (cache->stream != stream || m == NULL) {
            m = ashlar_cache_find(cache, stream);
        }
        ashlar_block *block = m != NULL ? ashlar_cache_pop(cache, m, bytes) : NULL;
        if (ASHLAR_LIKELY(block != NULL)) {
            block->requested = bytes;
            block->tag = (unsigned char)tag;
            cache->counters.hit_count++;
            ashlar_count_alloc(&cache->counters, bytes, (unsigned)tag);
            *out = ashlar_ptr_out(a->fixed.base + block->offset);
            ashlar_cache_leave(cache);
            return ASHLAR_OK;
        }
        ashlar_cache_leave(cache);
    }
    return ashlar_alloc_slow(a, bytes, tag, stream, out);
}

ashlar_status ashlar_alloc(ashlar_allocator *a, size_t bytes, ashlar_stream stream, void **out) {
    return allocate(a, bytes, ASHLAR_TAG_USER, stream, out);
}

ashlar_status ashlar_alloc_tagged(ashlar_allocator *a, size_t bytes, ashlar_tag tag,
                                  ashlar_stream stream, void **out) {
    return allocate(a, bytes, tag, stream, out);
}

/* The cache takes the block, or lets it wait for the heap. False: its thread has to see to it. */
static inline bool give(ashlar_cache *cache, ashlar_block *block) {
    ashlar_magazines *m = cache->recent;
    if (m == NULL || m->order != block->order) {
        m = ashlar_cache_find_order(cache, block->order);
    }
    if (m == NULL || (!ashlar_cache_push(cache, m, block) && !ashlar_cache_defer(cache, block))) {
        return false;
    }
    cache->counters.free_count++;
    ashlar_count_free(&cache->counters, block->requested, block->tag);
    block->requested = 0;
    return true;
}

ashlar_status ashlar_free(ashlar_allocator *a, void *ptr) {
    ashlar_cache *cache = ashlar_cache_recent;
    /* An address below the base wraps to a huge offset. */
    const size_t offset = (size_t)(ashlar_ptr_in(ptr) - a->fixed.base);
    if (ASHLAR_LIKELY(cache->allocator_id == a->fixed.id && offset < a->fixed.range_bytes)) {
        ashlar_block *block = ashlar_page_map_get(&a->fixed.map, offset);
        if (ASHLAR_LIKELY(block != NULL && ashlar_cache_enter(cache))) {
            const bool is_given = block->requested != 0 && !block->is_shared && give(cache, block);
            ashlar_cache_leave(cache);
            if (ASHLAR_LIKELY(is_given)) {
                return ASHLAR_OK;
            }
        }
    }
    return ashlar_free_slow(a, ptr);
}
