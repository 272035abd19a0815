/*
 * seal.c - whether more memory may be taken of the device, who is warned, and what the program's
 * callback gives back instead.
 */
#include "allocator/core/seal.h"

#include "allocator/base/error.h"

/* ---- the seal ---- */

void ashlar_allocator_seal(ashlar_allocator *a) {
    ashlar__lock_acquire(&a->lock);
    a->stats.is_sealed = true;
    a->calls_at_seal = a->client.calls;
    ashlar__lock_release(&a->lock);
}

void ashlar_allocator_set_seal_policy(ashlar_allocator *a, ashlar_seal_policy policy,
                                      ashlar_warn_fn warn, void *user) {
    ashlar__lock_acquire(&a->lock);
    a->seal = policy;
    a->warn = warn;
    a->warn_user = user;
    ashlar__lock_release(&a->lock);
}

ashlar_status ashlar__may_map_locked(ashlar_allocator *a) {
    return a->stats.is_sealed && a->seal == ASHLAR_SEAL_ERROR
               ? ashlar__fail(ASHLAR_ENOMEM, "the allocator is sealed, and its policy lets no more "
                                             "memory be taken; warm up with the largest step")
               : ASHLAR_OK;
}

void ashlar__update_reserved_peak_locked(ashlar_allocator *a) {
    const uint64_t mapped =
        a->heap.range.mapped_bytes + (a->guards.unmap != NULL ? a->guards.unmap->mapped_bytes : 0);
    if (mapped > a->stats.reserved_peak_bytes) {
        a->stats.reserved_peak_bytes = mapped;
    }
}

/* ---- callbacks ---- */

static _Thread_local bool is_reclaiming;

void ashlar_allocator_set_reclaim(ashlar_allocator *a, ashlar_reclaim_fn reclaim, void *user) {
    ashlar__lock_acquire(&a->lock);
    a->reclaim = reclaim;
    a->reclaim_user = user;
    ashlar__lock_release(&a->lock);
}

bool ashlar__reclaim_locked(ashlar_allocator *a, size_t bytes) {
    const ashlar_reclaim_fn reclaim = a->reclaim;
    void *user = a->reclaim_user;
    /* It may allocate, but what it allocates is not reclaimed for. */
    if (reclaim == NULL || is_reclaiming) {
        return false;
    }
    ashlar__lock_release(&a->lock);
    is_reclaiming = true;
    const bool has_helped = reclaim(user, bytes);
    is_reclaiming = false;
    ashlar__lock_acquire(&a->lock);
    return has_helped;
}
