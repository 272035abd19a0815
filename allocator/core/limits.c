/*
 * limits.c - how much memory an allocator takes from the device (trim, limit, reservation, seal,
 * and the program's callback that frees blocks), and which peer devices may use this memory.
 */
#include "allocator/core/core.h"

#include "allocator/base/error.h"

/* ---- giving memory back ---- */

/* Ask each stream that may still use freed memory, even a cross-stream block, whether it is
 * idle. */
static ashlar_status ask_streams_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    ashlar_status status = ASHLAR_OK;
    for (ashlar_stream_state *state = a->stream_states; state != NULL && status == ASHLAR_OK;
         state = state->next) {
        if (!ashlar__stream_state_is_quiet(state)) {
            status = ashlar__stream_state_ask_idle(state, &a->client, &a->stats.events_recorded);
        }
    }
    (void)ashlar__cross_settle(&a->heap);
    return status;
}

/* Find out, without waiting, which free memory no work uses any more. Cross-stream blocks come back
 * first, since that may free a plan's memory. */
static ashlar_status find_past_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    a->heap.is_settling = true;
    ashlar__caches_flush_locked(a);
    const ashlar_status status = ask_streams_locked(a);
    const uint64_t before = a->heap.use_clock;
    ashlar__planner_tidy_locked(&a->planner, &a->heap);
    a->heap.is_settling = false;
    const bool has_freed = a->heap.use_clock != before;
    return status == ASHLAR_OK && has_freed ? ask_streams_locked(a) : status;
}

ashlar_status ashlar__trim_locked(ashlar_allocator *a, size_t target_bytes) {
    ASHLAR_OWNS(&a->lock);
    if (a->heap.range.mapped_bytes <= target_bytes) {
        return ASHLAR_OK;
    }
    const ashlar_status status = find_past_locked(a);
    return status == ASHLAR_OK ? ashlar__heap_trim(&a->heap, target_bytes) : status;
}

ashlar_status ashlar_allocator_trim(ashlar_allocator *a, size_t target_bytes) {
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar__allocator_enter(a);
    const ashlar_status status = ashlar__trim_locked(a, target_bytes);
    ashlar__allocator_leave(a);
    return status;
}

/* ---- limit and reservation ---- */

ashlar_status ashlar_allocator_set_limit(ashlar_allocator *a, size_t bytes) {
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar__allocator_enter(a);
    ashlar_range *range = &a->heap.range;
    ASHLAR_CHECK2(range->mapped_bytes <= range->memory_bytes);
    range->limit_bytes = bytes != 0 && bytes < range->memory_bytes ? bytes : range->memory_bytes;
    ashlar_status status = ashlar__trim_locked(a, range->limit_bytes);
    if (status == ASHLAR_OK && range->mapped_bytes > range->limit_bytes) {
        status = ashlar__fail(ASHLAR_ENOMEM,
                              "limit: %zu bytes are reserved, and what is above %zu is in use; it "
                              "goes back when ashlar_allocator_trim() is called after it is free",
                              range->mapped_bytes, range->limit_bytes);
    }
    ashlar__allocator_leave(a);
    return status;
}

static ashlar_status reserve_locked(ashlar_allocator *a, size_t bytes) {
    ASHLAR_OWNS(&a->lock);
    ashlar_stream_state *state = NULL;
    if (a->heap.range.segments == NULL) {
        return ashlar__heap_reserve(&a->heap, NULL, bytes);
    }
    /* A segment must lie in some stream's zone. The zone of this state belongs to no stream and has
     * seen no work, so the first stream that needs memory takes it over. */
    ASHLAR_TRY(ashlar__stream_state_new_locked(a, ASHLAR_NO_STREAM, &state));
    state->is_gone = true;
    state->recorded = state->completed = 1;
    return ashlar__heap_reserve(&a->heap, &state->zones[ASHLAR_ZONE_LARGE], bytes);
}

bool ashlar__others_give_back_locked(ashlar_allocator *a, size_t bytes, bool may_wait,
                                     ashlar_others *others) {
    ASHLAR_OWNS(&a->lock);
    ashlar__allocator_leave(a);
    const bool has_any = ashlar__allocators_give_back(a->device->driver, a->device->info.ordinal, a,
                                                      bytes, may_wait, others);
    ashlar__allocator_enter(a);
    return has_any;
}

/* Have the device's other allocators give back what a reservation of `bytes` bytes lacks. */
static bool has_of_others(ashlar_allocator *a, size_t bytes, bool may_wait) {
    const size_t mapped_bytes = a->heap.range.mapped_bytes;
    return bytes <= a->heap.range.limit_bytes &&
           ashlar__others_give_back_locked(a, bytes > mapped_bytes ? bytes - mapped_bytes : 0,
                                           may_wait, NULL);
}

ashlar_status ashlar_allocator_reserve(ashlar_allocator *a, size_t bytes) {
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar__allocator_enter(a);
    const bool is_there = bytes <= a->heap.range.mapped_bytes;
    ashlar_status status = is_there ? ASHLAR_OK : ashlar__may_map_locked(a);
    if (status == ASHLAR_OK && !is_there) {
        status = reserve_locked(a, bytes);
        for (int waits = 0; waits < 2 && status == ASHLAR_ENOMEM; waits++) {
            if (has_of_others(a, bytes, waits > 0)) {
                status = reserve_locked(a, bytes);
            }
        }
        ashlar__update_reserved_peak_locked(a);
    }
    ashlar__allocator_leave(a);
    return status;
}

/* ---- the seal ---- */

void ashlar_allocator_seal(ashlar_allocator *a) {
    if (ashlar__is_of_parent(a)) {
        return;
    }
    ashlar__lock_acquire(&a->lock);
    a->stats.is_sealed = true;
    a->calls_at_seal = a->client.calls;
    ashlar__lock_release(&a->lock);
}

ashlar_status ashlar_allocator_set_seal_policy(ashlar_allocator *a, ashlar_seal_policy policy,
                                               ashlar_warn_fn warn, void *user) {
    ASHLAR_FAIL_IF((unsigned)policy > ASHLAR_SEAL_ERROR, ASHLAR_EINVAL,
                   "seal policy: %d; give ASHLAR_SEAL_COUNT, _WARN or _ERROR", (int)policy);
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar__lock_acquire(&a->lock);
    a->seal = policy;
    a->warn = warn;
    a->warn_user = user;
    ashlar__lock_release(&a->lock);
    return ASHLAR_OK;
}

ashlar_status ashlar__may_map_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    return a->stats.is_sealed && a->seal == ASHLAR_SEAL_ERROR
               ? ashlar__fail(ASHLAR_ENOMEM, "the allocator is sealed, and its policy lets no more "
                                             "memory be taken; warm up with the largest step")
               : ASHLAR_OK;
}

size_t ashlar__room_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    const ashlar_range *range = &a->heap.range;
    const size_t most =
        range->mapped_bytes > range->limit_bytes ? range->mapped_bytes : range->limit_bytes;
    ashlar_stats stats;
    ashlar__stats_sum_locked(a, &stats);
    const size_t idle =
        stats.cached_bytes + stats.shared_bytes + ashlar__planner_quiet_bytes(&a->planner);
    const size_t used = ashlar__heap_used_bytes(&a->heap);
    return used > idle ? most - (used - idle) : most;
}

void ashlar__update_reserved_peak_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    const uint64_t mapped = a->heap.range.mapped_bytes;
    if (mapped > a->stats.reserved_peak_bytes) {
        a->stats.reserved_peak_bytes = mapped;
    }
    ASHLAR_CHECK2(a->heap.range.mapped_bytes <= a->heap.range.memory_bytes);
}

/* Publishes all threads' counters twice: to get the live bytes, and then so that threads count
 * against the new peak. */
static void lower_live_peak_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    ashlar_stats unused;
    ashlar__stats_sum_locked(a, &unused);
    a->stats.live_peak_bytes = a->stats.live_bytes;
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        ashlar_tag_stats *of_tag = &a->stats.tags[tag];
        of_tag->at_peak_bytes = of_tag->live_bytes;
        of_tag->peak_bytes = of_tag->live_bytes;
    }
    ashlar__stats_sum_locked(a, &unused);
}

void ashlar__allocator_reset_peaks(ashlar_allocator *a, bool of_live, bool of_reserved) {
    if (ashlar__is_of_parent(a)) {
        return;
    }
    ashlar__allocator_enter(a);
    if (of_live) {
        lower_live_peak_locked(a);
    }
    if (of_reserved) {
        a->stats.reserved_peak_bytes = 0;
        ashlar__update_reserved_peak_locked(a);
    }
    ashlar__allocator_leave(a);
}

void ashlar_allocator_reset_peaks(ashlar_allocator *a) {
    ashlar__allocator_reset_peaks(a, true, true);
}

/* ---- the callback that gives memory back ---- */

static _Thread_local bool is_reclaiming;

void ashlar_allocator_set_reclaim(ashlar_allocator *a, ashlar_reclaim_fn reclaim, void *user) {
    if (ashlar__is_of_parent(a)) {
        return;
    }
    ashlar__lock_acquire(&a->lock);
    a->reclaim = reclaim;
    a->reclaim_user = user;
    ashlar__lock_release(&a->lock);
}

bool ashlar__reclaim_locked(ashlar_allocator *a, size_t bytes) {
    ASHLAR_OWNS(&a->lock);
    const ashlar_reclaim_fn reclaim = a->reclaim;
    void *user = a->reclaim_user;
    /* The callback may allocate, but its own allocations do not call it again. */
    if (reclaim == NULL || is_reclaiming) {
        return false;
    }
    ashlar__allocator_leave(a);
    is_reclaiming = true;
    const bool has_helped = reclaim(user, bytes);
    ASHLAR_CHECK2(is_reclaiming);
    is_reclaiming = false;
    ashlar__allocator_enter(a);
    return has_helped;
}

/* ---- peers ---- */

/* Refuse a device that cannot be a peer. If it were accepted, the next mapping would fail. */
static ashlar_status can_be_peer_locked(ashlar_allocator *a, int ordinal) {
    ASHLAR_OWNS(&a->lock);
    const int own = a->device->info.ordinal;
    int can_access = 0;
    if (ordinal == own || a->heap.range.segments != NULL) {
        return ASHLAR_OK; /* of segments, ashlar__heap_allow_peer() refuses what cannot be */
    }
    const cu_result result =
        ASHLAR_CALL(&a->client, device_can_access_peer, (&can_access, ordinal, own));
    if (result != CU_SUCCESS && result != CU_INVALID_DEVICE) {
        return ashlar__driver_error(a->device->driver, "cuDeviceCanAccessPeer", result);
    }
    return can_access
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_ENOTSUP,
                              "peer %d: it cannot use memory of device %d; copy between them "
                              "instead",
                              ordinal, own);
}

ashlar_status ashlar_allocator_allow_peer(ashlar_allocator *a, int ordinal) {
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar__allocator_enter(a);
    ashlar_status status = can_be_peer_locked(a, ordinal);
    ASHLAR_THEN(status, ashlar__heap_allow_peer(&a->heap, ordinal));
    ashlar__allocator_leave(a);
    return status;
}
