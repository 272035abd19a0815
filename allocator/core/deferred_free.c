#include "allocator/core/deferred_free.h"

#include "allocator/base/check_level.h"
#include "allocator/core/lookup.h"
#include "allocator/core/note.h"
#include "allocator/core/shared.h"

static void defer_locked(ashlar_allocator *a, ashlar_cache *own, ashlar_block *block) {
    ASHLAR_ASSERT(!ashlar_allocator_is_guarded(a) && !ashlar_block_is_of_slot(block));
    ashlar_account_free_locked(a, own, block);
    ashlar_shared_drop_uses_locked(block); /* they come before now */
    block->requested = 0;
    block->marks |= ASHLAR_BLOCK_SHARED;
    block->uses = NULL;
    block->older = a->deferred;
    a->deferred = block;
    a->shared_bytes += block->bytes;
}

ashlar_status ashlar_free_deferred(ashlar_allocator *a, void *ptr) {
    ashlar_block *block = NULL;
    ashlar_cache *own = ashlar_cache_get(a);
    pthread_mutex_lock(&a->lock);
    const ashlar_status status = ashlar_find_live_locked(a, ptr, &block);
    if (status == ASHLAR_OK) {
        defer_locked(a, own, block);
    }
    pthread_mutex_unlock(&a->lock);
    return status;
}

bool ashlar_has_deferred(ashlar_allocator *a) {
    pthread_mutex_lock(&a->lock);
    const bool has_any = a->deferred != NULL;
    pthread_mutex_unlock(&a->lock);
    return has_any;
}

ashlar_block *ashlar_deferred_take(ashlar_allocator *a) {
    pthread_mutex_lock(&a->lock);
    ashlar_block *list = a->deferred;
    a->deferred = NULL;
    pthread_mutex_unlock(&a->lock);
    return list;
}

void ashlar_deferred_release(ashlar_allocator *a, ashlar_block *list) {
    pthread_mutex_lock(&a->lock);
    while (list != NULL) {
        ashlar_block *block = list;
        list = block->older;
        a->shared_bytes -= block->bytes;
        block->marks &= (unsigned char)~ASHLAR_BLOCK_SHARED;
        ashlar_heap_put(&a->heap, block, NULL, 0);
    }
    pthread_mutex_unlock(&a->lock);
}

void ashlar_deferred_put_back(ashlar_allocator *a, ashlar_block *list) {
    pthread_mutex_lock(&a->lock);
    ashlar_block **end = &a->deferred;
    while (*end != NULL) {
        end = &(*end)->older;
    }
    *end = list;
    pthread_mutex_unlock(&a->lock);
}
