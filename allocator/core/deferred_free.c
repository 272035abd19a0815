#include "allocator/core/deferred_free.h"

#include "allocator/base/check_level.h"
#include "allocator/core/lookup.h"
#include "allocator/core/note.h"
#include "allocator/core/shared.h"

static void defer_locked(ashlar_allocator *a, ashlar_cache *own, ashlar_block *block) {
    ASHLAR_ASSERT(!ashlar__allocator_is_guarded(a) && !ashlar__block_is_of_slot(block));
    ashlar__account_free_locked(a, own, block);
    ashlar__shared_drop_uses_locked(block); /* they come before now */
    block->requested = 0;
    block->marks |= ASHLAR_BLOCK_SHARED;
    block->uses = NULL;
    block->older = a->deferred;
    a->deferred = block;
    a->shared_bytes += block->bytes;
}

ashlar_status ashlar__free_deferred(ashlar_allocator *a, void *ptr) {
    ashlar_block *block = NULL;
    ashlar_cache *own = ashlar__cache_get(a);
    ashlar__lock_acquire(&a->lock);
    const ashlar_status status = ashlar__find_live_locked(a, ptr, &block);
    if (status == ASHLAR_OK) {
        defer_locked(a, own, block);
    }
    ashlar__lock_release(&a->lock);
    return status;
}

bool ashlar__has_deferred(ashlar_allocator *a) {
    ashlar__lock_acquire(&a->lock);
    const bool has_any = a->deferred != NULL;
    ashlar__lock_release(&a->lock);
    return has_any;
}

ashlar_block *ashlar__deferred_take(ashlar_allocator *a) {
    ashlar__lock_acquire(&a->lock);
    ashlar_block *list = a->deferred;
    a->deferred = NULL;
    ashlar__lock_release(&a->lock);
    return list;
}

void ashlar__deferred_release(ashlar_allocator *a, ashlar_block *list) {
    ashlar__lock_acquire(&a->lock);
    while (list != NULL) {
        ashlar_block *block = list;
        list = block->older;
        a->shared_bytes -= block->bytes;
        block->marks &= (unsigned char)~ASHLAR_BLOCK_SHARED;
        ashlar__heap_put(&a->heap, block, NULL, 0);
    }
    ashlar__lock_release(&a->lock);
}

void ashlar__deferred_put_back(ashlar_allocator *a, ashlar_block *list) {
    ashlar__lock_acquire(&a->lock);
    ashlar_block **end = &a->deferred;
    while (*end != NULL) {
        end = &(*end)->older;
    }
    *end = list;
    ashlar__lock_release(&a->lock);
}
