/*
 * modes.c - calls that a thread's cache cannot serve: from the public function, under the lock,
 * through the modes that are on, to the core (miss.c, free.c); and which modes go together.
 *
 * A mode wraps the core as an adaptor does in RMM: it gets a call, does its part, and passes the
 * call on. Without a mode a call goes straight to the core.
 */
#include "allocator/core/core.h"

#include <stdio.h>

#include "allocator/base/error.h"

/* ---- zero=on ---- */

/*
 * Clear a block on the stream that allocates it. During a capture the fill becomes part of the
 * graph. With a guard, the bytes behind the requested ones are the red zone. With NVTX, tools know
 * only the requested bytes as the block, and would report a write behind them.
 */
static ashlar_status zero_block(ashlar_allocator *a, const ashlar_block *block) {
    const bool is_exact = ashlar__has_mode(a, ASHLAR_MODE_GUARD) || a->nvtx != NULL;
    const cu_ptr start = a->constants.base + block->offset;
    const size_t bytes = is_exact ? block->requested : block->bytes;
    ASHLAR_TRY(ashlar__device_enter(a->device));
    const cu_result result =
        ASHLAR_CALL(&a->client, memset_d8_async, (start, 0, bytes, block->stream_state->stream));
    ashlar__device_leave(a->device);
    return result == CU_SUCCESS
               ? ASHLAR_OK
               : ashlar__driver_error(a->device->driver, "cuMemsetD8Async", result);
}

static void take_back_traced(ashlar_allocator *a, const ashlar_call *call) {
    const ashlar_trace_event event = ashlar__trace_event_of(a, ASHLAR_TRACE_FREE, call->block,
                                                            call->block->stream_state->stream);
    ashlar__trace_put(a->client.trace, &event);
    ashlar__take_back_locked(a, call);
}

static ashlar_status alloc_zeroed(ashlar_allocator *a, ashlar_call *call) {
    ASHLAR_TRY(call->next(a, call));
    const ashlar_status status = zero_block(a, call->block);
    if (status != ASHLAR_OK) {
        take_back_traced(a, call);
    }
    return status;
}

/* ---- page-locked memory ---- */

/* Take memory that no work uses, since the host may write to the block at once; and note that the
 * stream's work will use it. */
static ashlar_status alloc_host(ashlar_allocator *a, ashlar_call *call) {
    ashlar_stream_state *state = NULL;
    call->request.is_unplanned = call->request.is_idle = true;
    ASHLAR_TRY(call->next(a, call));
    ashlar_status status = ashlar__stream_state_of_locked(a, call->stream, &state);
    ASHLAR_THEN(status, ashlar__cross_add_use(&a->heap, call->block, state));
    if (status != ASHLAR_OK) {
        take_back_traced(a, call);
    }
    return status;
}

/* ---- trace, and NVTX behind it ---- */

static ashlar_status alloc_traced(ashlar_allocator *a, ashlar_call *call) {
    ASHLAR_TRY(call->next(a, call));
    const ashlar_stream stream = call->block->stream_state->stream;
    const ashlar_trace_event event =
        ashlar__trace_event_of(a, ASHLAR_TRACE_ALLOC, call->block, stream);
    ashlar__trace_put(a->client.trace, &event);
    return ASHLAR_OK;
}

static ashlar_status free_traced(ashlar_allocator *a, ashlar_call *call) {
    ASHLAR_TRY(ashlar__call_find_locked(a, call));
    const ashlar_trace_event event =
        ashlar__trace_event_of(a, ASHLAR_TRACE_FREE, call->block, call->state->stream);
    ASHLAR_TRY(call->next(a, call));
    ashlar__trace_put(a->client.trace, &event);
    return ASHLAR_OK;
}

/* ---- the modes ---- */

/* What each mode does with each kind of call; NULL: nothing. */
static ashlar_call_fn *const modes[][ASHLAR_CALL_KIND_COUNT] = {
    [ASHLAR_MODE_WATCH] = {ashlar__watch_call, ashlar__watch_call, ashlar__watch_call},
    [ASHLAR_MODE_HOST] = {alloc_host, NULL, NULL},
    [ASHLAR_MODE_DRY_RUN] = {ashlar__dry_run_alloc, ashlar__dry_run_free, ashlar__dry_run_use},
    [ASHLAR_MODE_ZERO] = {alloc_zeroed, NULL, NULL},
    [ASHLAR_MODE_TRACE] = {alloc_traced, free_traced, NULL},
    [ASHLAR_MODE_GUARD] = {ashlar__guard_alloc, ashlar__guard_free, ashlar__guard_use},
};
ASHLAR_TABLE_IS_FULL(modes, ASHLAR_MODE_COUNT);

static ashlar_call_fn *const core[] = {
    [ASHLAR_CALL_ALLOC] = ashlar__core_alloc_locked,
    [ASHLAR_CALL_FREE] = ashlar__core_free_locked,
    [ASHLAR_CALL_USE] = ashlar__core_use_locked,
};
ASHLAR_TABLE_IS_FULL(core, ASHLAR_CALL_KIND_COUNT);

/* Pass a call on to the next mode, or to the core. */
static ashlar_status next_locked(ashlar_allocator *a, ashlar_call *call) {
    ASHLAR_OWNS(&a->lock);
    while (call->modes != 0) {
        ashlar_call_fn *act = modes[__builtin_ctz(call->modes)][call->kind];
        call->modes &= call->modes - 1;
        if (act != NULL) {
            return act(a, call);
        }
    }
    return core[call->kind](a, call);
}

static ashlar_status enter_locked(ashlar_allocator *a, ashlar_call *call) {
    ASHLAR_OWNS(&a->lock);
    call->next = next_locked;
    call->modes = a->modes;
    if (ashlar__dry_run_is_on(call->request.own)) {
        call->modes |= 1u << ASHLAR_MODE_DRY_RUN;
    }
    return next_locked(a, call);
}

/* Options and kinds of memory that exclude each other. */
ashlar_status ashlar__modes_check(const ashlar_config *config, ashlar_range_kind kind) {
    const bool has_guard = config->guard != ASHLAR_GUARD_OFF, is_host = kind == ASHLAR_RANGE_HOST;
    const struct {
        bool one, other;
        const char *why;
    } excluded[] = {
        {has_guard, config->tells_nvtx,
         "nvtx and a guard, whose own accesses tools would report; choose one"},
        {config->shares_memory, config->without_virtual_memory,
         "share=on needs virtual memory management, and vmm=off; choose one"},
        {is_host, has_guard || config->zero_blocks || config->tells_nvtx || config->shares_memory,
         "guard, zero, nvtx and share are for device memory; leave them off"},
    };
    for (size_t i = 0; i < sizeof excluded / sizeof *excluded; i++) {
        ASHLAR_FAIL_IF(excluded[i].one && excluded[i].other, ASHLAR_EINVAL, "config: %s",
                       excluded[i].why);
    }
    return ASHLAR_OK;
}

/* ---- allocating ---- */

static void record_refusal_locked(ashlar_allocator *a, const ashlar_call *call) {
    ASHLAR_OWNS(&a->lock);
    ashlar_stream_state *state = call->request.stream_state;
    if (a->planner.recording_count == 0 || call->request.is_idle) {
        return;
    }
    if (state == NULL && ashlar__stream_state_of_locked(a, call->stream, &state) == ASHLAR_OK) {
        state = state->pool != NULL ? state->pool : state;
    }
    ashlar__step_record_refusal_locked(call->request.own, call->bytes, call->tag, state);
}

static ashlar_status serve_locked(ashlar_allocator *a, ashlar_call *call) {
    ASHLAR_OWNS(&a->lock);
    /* A request larger than all of the device's memory needs no search, and rounding its size up
     * might overflow. */
    const ashlar_status status = call->bytes <= a->heap.range.memory_bytes
                                     ? enter_locked(a, call)
                                     : ashlar__fail(ASHLAR_ENOMEM, "more than there is");
    if (status == ASHLAR_OK && call->block != NULL) {
        ashlar__account_alloc_locked(a, call);
    }
    if (status != ASHLAR_ENOMEM || call->request.is_at_hand) {
        return status;
    }
    const ashlar_status refused = ashlar__no_memory_locked(a, call);
    record_refusal_locked(a, call);
    return refused;
}

static ASHLAR_NOINLINE void give_warning(ashlar_warn_fn warn, void *user, const ashlar_call *call) {
    char line[128];
    (void)snprintf(line, sizeof line,
                   "a request of %zu bytes (%s) made the sealed allocator take more memory",
                   call->bytes, ashlar_tag_name(call->tag));
    warn(user, line);
}

/* However little is live, so many handles may be reserved, or one segment. */
enum { HANDLES_MIN = 4 };

/* The most that may be reserved, for ashlar__alloc_idle(). */
static size_t limit_locked(ashlar_allocator *a, const ashlar_call *call) {
    ASHLAR_OWNS(&a->lock);
    ashlar__counters_publish(ashlar__counters_of(a, call->request.own), &a->stats);
    const ashlar_range *range = &a->heap.range;
    const size_t live = (size_t)a->stats.live_bytes + call->bytes;
    const size_t peak = (size_t)a->stats.live_peak_bytes;
    const size_t most = (live > peak ? live : peak) / 100 * call->request.percent;
    const size_t handles = HANDLES_MIN * range->handle_bytes;
    const size_t segment = range->segments != NULL ? range->growth_min_bytes : 0;
    const size_t least = handles > segment ? handles : segment;
    const size_t limit = most > least ? most : least;
    return limit < range->limit_bytes ? limit : range->limit_bytes;
}

static ashlar_status alloc(ashlar_allocator *a, ashlar_call *call, void **out) {
    ASHLAR_FAIL_IF(call->bytes == 0, ASHLAR_EINVAL,
                   "bytes: a block of 0 bytes; ask for at least 1");
    ASHLAR_FAIL_IF((unsigned)call->tag >= (unsigned)ASHLAR_TAG_COUNT, ASHLAR_EINVAL,
                   "tag: %d is no ashlar_tag", (int)call->tag);
    ASHLAR_REFUSE_OF_PARENT(a);
    call->request.own = ashlar__cache_get(a);
    ashlar__lock_acquire(&a->lock);
    ashlar_range *range = &a->heap.range;
    const size_t mapped_before = range->mapped_bytes, limit = range->limit_bytes;
    const bool is_bounded = call->request.percent > 0;
    /* Such a request never drops the lock, so nobody else sees the lower limit. */
    range->limit_bytes = is_bounded ? limit_locked(a, call) : limit;
    const ashlar_status status = serve_locked(a, call);
    range->limit_bytes = is_bounded ? limit : range->limit_bytes;
    const bool is_due =
        a->stats.is_sealed && a->seal == ASHLAR_SEAL_WARN && range->mapped_bytes > mapped_before;
    const ashlar_warn_fn warn = is_due ? a->warn : NULL;
    void *user = a->warn_user;
    ashlar__allocator_leave(a);
    if (warn != NULL) {
        give_warning(warn, user, call);
    }
    if (status == ASHLAR_OK) {
        *out = call->ptr;
    }
    return status;
}

ashlar_status ashlar__alloc_slow(ashlar_allocator *a, size_t bytes, ashlar_tag tag,
                                 ashlar_stream stream, void **out) {
    ashlar_call call = {.bytes = bytes, .tag = tag, .stream = stream};
    return alloc(a, &call, out);
}

ashlar_status ashlar__alloc_unplanned(ashlar_allocator *a, size_t bytes, ashlar_tag tag,
                                      ashlar_stream stream, void **out) {
    ashlar_call call = {.bytes = bytes, .tag = tag, .stream = stream, .request.is_unplanned = true};
    return alloc(a, &call, out);
}

ashlar_status ashlar__alloc_idle(ashlar_allocator *a, size_t bytes, unsigned percent, void **out) {
    const bool is_bounded = percent != ASHLAR_BY_ALL_MEANS;
    void *ptr = NULL;
    ashlar_call call = {.bytes = bytes,
                        .request = {.is_unplanned = true,
                                    .is_idle = true,
                                    .is_at_hand = is_bounded,
                                    .percent = is_bounded ? percent : 0}};
    ashlar_status status = alloc(a, &call, &ptr);
    if (status == ASHLAR_OK && ashlar__has_mode(a, ASHLAR_MODE_ZERO)) {
        /* Non-blocking streams would not wait for the fill. */
        status = ashlar_stream_synchronize(a->device, NULL);
    }
    if (status == ASHLAR_OK) {
        *out = ptr;
    }
    return status;
}

ashlar_status ashlar__alloc_at_hand(ashlar_allocator *a, size_t bytes, ashlar_stream stream,
                                    void **out) {
    ashlar_call call = {.bytes = bytes, .stream = stream, .request.is_at_hand = true};
    return alloc(a, &call, out);
}

/* ---- freeing and using ---- */

/* The calling thread's cache of the allocator, if it has one. */
static ashlar_cache *find_own(const ashlar_allocator *a) {
    return ashlar__cache_switch(a->constants.id) ? ashlar__cache_recent : NULL;
}

/* Make a call about the block of call->ptr. */
static ashlar_status act_on(ashlar_allocator *a, ashlar_call *call, ashlar_cache *own) {
    call->request.own = own;
    ashlar__lock_acquire(&a->lock);
    const ashlar_status status = enter_locked(a, call);
    ashlar__allocator_leave(a);
    return status;
}

static ashlar_status free_in(ashlar_allocator *a, ashlar_call *call) {
    if (call->ptr == NULL || ashlar__is_of_parent(a)) {
        return ASHLAR_OK;
    }
    call->kind = ASHLAR_CALL_FREE;
    ASHLAR_TRY(act_on(a, call, ashlar__cache_get(a)));
    return ashlar__guard_take_finding(a);
}

ashlar_status ashlar__free_from(ashlar_allocator *a, void *ptr, const void *caller) {
    ashlar_call call = {.ptr = ptr, .caller = caller};
    return free_in(a, &call);
}

ashlar_status ashlar__free_slow(ashlar_allocator *a, void *ptr) {
    return ashlar__free_from(a, ptr, NULL);
}

ashlar_status ashlar_free_on(ashlar_allocator *a, void *ptr, ashlar_stream stream) {
    ashlar_call call = {
        .ptr = ptr, .stream = stream, .names_stream = true, .caller = ASHLAR_RETURN_ADDRESS()};
    return free_in(a, &call);
}

ashlar_status ashlar_record_stream(ashlar_allocator *a, void *ptr, ashlar_stream stream) {
    ashlar_call call = {
        .kind = ASHLAR_CALL_USE, .ptr = ptr, .stream = stream, .names_stream = true};
    ASHLAR_REFUSE_OF_PARENT(a);
    return act_on(a, &call, find_own(a));
}

ashlar_status ashlar_usable_bytes(ashlar_allocator *a, const void *ptr, size_t *out) {
    ASHLAR_REFUSE_OF_PARENT(a);
    const ashlar_cache *own = find_own(a);
    ashlar_block *block = NULL;
    ashlar__lock_acquire(&a->lock);
    ashlar_status status;
    if (ashlar__dry_run_has(own, ptr)) {
        status = ashlar__dry_run_bytes(own, ptr, out);
    } else {
        status = ashlar__find_live_locked(a, ptr, &block);
    }
    if (block != NULL) { /* with a guard, an access beyond the requested bytes is a mistake */
        *out = a->guard_fill != NULL ? block->requested : block->bytes;
    }
    ashlar__allocator_leave(a);
    return status;
}
