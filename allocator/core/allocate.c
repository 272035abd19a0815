/*
 * allocate.c - serving a request under the allocator's lock, if the thread's cache cannot serve it.
 */
#include "allocator/core/allocator_impl.h"

#include <stddef.h>
#include <stdio.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/core/cycle.h"
#include "allocator/core/deferred_free.h"
#include "allocator/core/dry_run.h"
#include "allocator/core/forked.h"
#include "allocator/core/hold.h"
#include "allocator/core/miss.h"
#include "allocator/core/note.h"
#include "allocator/core/report.h"
#include "allocator/core/slow_path.h"
#include "allocator/core/streams.h"
#include "allocator/core/watch.h"
#include "allocator/heap/away.h"
#include "allocator/plan/planner.h"
#include "allocator/trace/trace_ring.h"

/* ---- counting ---- */

/* The offset in ashlar_stats of each rung's counter. */
static const size_t served_at[] = {
    [ASHLAR_RUNG_PLANNED] = offsetof(ashlar_stats, served_planned),
    [ASHLAR_RUNG_CACHED] = offsetof(ashlar_stats, served_cached),
    [ASHLAR_RUNG_SAME_STREAM] = offsetof(ashlar_stats, served_same_stream),
    [ASHLAR_RUNG_IDLE] = offsetof(ashlar_stats, served_idle),
    [ASHLAR_RUNG_COMPLETED] = offsetof(ashlar_stats, served_completed),
    [ASHLAR_RUNG_WAITED] = offsetof(ashlar_stats, served_waited),
    [ASHLAR_RUNG_MAPPED] = offsetof(ashlar_stats, served_mapped),
    [ASHLAR_RUNG_DRAINED] = offsetof(ashlar_stats, served_drained),
    [ASHLAR_RUNG_RECLAIMED] = offsetof(ashlar_stats, served_reclaimed),
    [ASHLAR_RUNG_AFTER_SYNC] = offsetof(ashlar_stats, served_after_sync),
    [ASHLAR_RUNG_GATHERED] = offsetof(ashlar_stats, served_gathered),
};
ASHLAR_TABLE_IS_FULL(served_at, ASHLAR_RUNG_COUNT);

static void count_rung_locked(ashlar_allocator *a, ashlar_counters *counters, ashlar_rung rung) {
    ASHLAR_OWNS(&a->lock);
    ASHLAR_CHECK2(rung < ASHLAR_RUNG_COUNT && served_at[rung] != 0);
    if (rung == ASHLAR_RUNG_CACHED) {
        counters->hit_count++;
    } else if (rung != ASHLAR_RUNG_PLANNED) { /* replayed steps count planned blocks themselves */
        ++*(uint64_t *)((char *)&a->stats + served_at[rung]);
        a->stats.alloc_count++;
    }
}

/* ---- tracing ---- */

/*
 * Trace an OOM event. Its `bytes` are an upper bound of the device's free memory: reading the exact
 * number would take a driver call.
 */
static void note_refusal_locked(ashlar_allocator *a, size_t bytes, ashlar_tag tag,
                                ashlar_stream stream) {
    ASHLAR_OWNS(&a->lock);
    const ashlar_range *range = &a->heap.range;
    ashlar__trace_put_if(a->client.trace, &(ashlar_trace_event){
                                              .action = ASHLAR_TRACE_OOM,
                                              .bytes = range->memory_bytes - range->mapped_bytes,
                                              .requested = bytes,
                                              .stream = (uintptr_t)ashlar__stream_named(stream),
                                              .tag = (uint8_t)tag,
                                          });
}

/* ---- allocating ---- */

/*
 * Like ashlar__stream_state_of_locked(), but skips the search if the thread's recent magazines are
 * for this stream. Their state is valid: a stream that has magazines keeps its handle
 * (ashlar__may_cache()), and loses its magazines when it is forgotten.
 */
static ashlar_status state_of_locked(ashlar_allocator *a, const ashlar_cache *own,
                                     ashlar_stream stream, ashlar_stream_state **out) {
    ASHLAR_OWNS(&a->lock);
    ashlar_stream_state *recent =
        own != NULL && own->stream == stream ? own->recent->stream_state : NULL;
    if (recent == NULL || recent->is_gone) {
        return ashlar__stream_state_of_locked(a, stream, out);
    }
    *out = recent;
    return ASHLAR_OK;
}

static ashlar_block *pop_own_locked(ashlar_cache *own, ashlar_stream_state *state, size_t bytes) {
    if (own == NULL) {
        return NULL;
    }
    ASHLAR_OWNS(&own->allocator->lock);
    ASHLAR_CHECK2(own->thread == ashlar__thread_number());
    ashlar_magazines *m = own->recent;
    m = m->stream_state == state ? m : ashlar__cache_find_state(own, state);
    return m != NULL ? ashlar__cache_pop(own, m, bytes) : NULL;
}

/* Climb the ladder. If it finds no memory, empty guard=fill's quarantine and climb once more. */
static ashlar_status climb_locked(ashlar_allocator *a, const ashlar_request *request,
                                  ashlar_block **out, ashlar_rung *rung) {
    ASHLAR_OWNS(&a->lock);
    ashlar_status status = ashlar__ladder_take_locked(a, request, out, rung);
    if (status != ASHLAR_ENOMEM || a->guard_fill == NULL || a->guard_fill->count == 0) {
        return status;
    }
    ashlar_rung unused;
    status = ashlar__guard_fill_release_locked(a->guard_fill, NULL);
    *rung = ASHLAR_RUNG_DRAINED;
    return status == ASHLAR_OK ? ashlar__ladder_take_locked(a, request, out, &unused) : status;
}

static ashlar_block *ask_plan_locked(const ashlar_request *r, size_t requested, ashlar_tag tag,
                                     ashlar_stream stream) {
    return r->own != NULL && ashlar__cache_is_replaying(r->own) && !r->is_unplanned
               ? ashlar__replay_serve_otherwise(r->own->active_replay, requested, (unsigned)tag,
                                                ashlar__stream_named(stream))
               : NULL;
}

/*
 * Whether the recorded step was refused this request, too, and nothing can serve it now. Then the
 * ladder is not climbed, whose lower rungs would take memory from others in vain in every step.
 */
static bool is_hopeless_locked(ashlar_allocator *a, const ashlar_request *r) {
    ASHLAR_OWNS(&a->lock);
    return r->own != NULL && ashlar__cache_is_replaying(r->own) && !r->is_idle &&
           r->own->active_replay->is_at_refusal && r->bytes > ashlar__room_locked(a) &&
           !ashlar__reclaim_locked(a, r->bytes);
}

static ashlar_status find_block_locked(ashlar_allocator *a, const ashlar_request *request,
                                       ashlar_block **out, ashlar_rung *rung) {
    ASHLAR_OWNS(&a->lock);
    *out = pop_own_locked(request->own, request->stream_state, request->bytes);
    *rung = ASHLAR_RUNG_CACHED;
    if (*out != NULL) {
        return ASHLAR_OK;
    }
    const ashlar_status status = climb_locked(a, request, out, rung);
    if (status == ASHLAR_OK && request->own != NULL && request->bytes > ASHLAR_SC_MAX_BYTES) {
        request->own->last_large = a->heap.is_near_limit ? NULL : *out;
    }
    if (request->own != NULL && a->heap.was_short) {
        request->own->stream = ASHLAR_NO_STREAM; /* see set_recent() in cache.c */
    }
    /* The ladder may have mapped memory even if the request fails, and the peak counts it. */
    ashlar__update_reserved_peak_locked(a);
    return status;
}

/*
 * Before searching the stream's own memory: let the calling thread hold the stream, have magazines
 * for it, and take the stream's blocks that other threads have freed.
 */
static void prepare_locked(ashlar_allocator *a, const ashlar_request *r) {
    ASHLAR_OWNS(&a->lock);
    ashlar_stream_state *state = r->stream_state;
    ashlar_magazines *m = NULL;
    ashlar__hold_locked(a, r->own, state);
    if (r->own != NULL && ashlar__cycle_is_tight(&a->heap, r->own)) {
        ashlar__cycle_restart(r->own);
    }
    if (r->own != NULL) {
        ashlar__outbox_send(r->own); /* the outbox may have blocks of this stream */
        m = ashlar__cache_need_locked(r->own, state);
    }
    if (m != NULL && ashlar__holder_of(state) == r->own) {
        ashlar__miss_take_returned(r->own, m);
    } else {
        ashlar__returned_put_locked(a, state);
    }
}

/* Find a block of the step's plan, or any other block that fits. Sets request->stream_state. */
static ashlar_status choose_locked(ashlar_allocator *a, size_t requested, ashlar_request *request,
                                   ashlar_tag tag, ashlar_stream stream, ashlar_block **out,
                                   ashlar_rung *rung) {
    ASHLAR_OWNS(&a->lock);
    ashlar_stream_state *state = NULL;
    *out = ask_plan_locked(request, requested, tag, stream);
    if (*out != NULL) {
        request->stream_state = (*out)->stream_state;
        *rung = ASHLAR_RUNG_PLANNED;
        return ASHLAR_OK;
    }
    const ashlar_status status = request->is_idle
                                     ? ashlar__stream_state_idle_locked(a, &state)
                                     : state_of_locked(a, request->own, stream, &state);
    if (status != ASHLAR_OK) {
        return status;
    }
    request->stream_state = state->pool != NULL ? state->pool : state;
    if (is_hopeless_locked(a, request)) {
        return ashlar__fail(ASHLAR_ENOMEM, "the recorded step was refused this, too");
    }
    prepare_locked(a, request);
    return find_block_locked(a, request, out, rung);
}

/*
 * With zero=on: clear `bytes` bytes from `start`, on the stream that allocates them. During a
 * capture the fill becomes part of the graph.
 */
static ASHLAR_NOINLINE ashlar_status zero_locked(ashlar_allocator *a, cu_ptr start, size_t bytes,
                                                 const ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    ASHLAR_CHECK2(a->zeroes_blocks && bytes > 0 && !ashlar__stream_state_is_others(state));
    const ashlar_status status = ashlar__device_enter(a->device);
    if (status != ASHLAR_OK) {
        return status;
    }
    const cu_result result =
        ASHLAR_CALL(&a->client, memset_d8_async, (start, 0, bytes, state->stream));
    ashlar__device_leave(a->device);
    return result == CU_SUCCESS
               ? ASHLAR_OK
               : ashlar__driver_error(a->device->driver, "cuMemsetD8Async", result);
}

/* Free a block of a request that fails after the block was already counted as handed out. */
static void take_back_locked(ashlar_allocator *a, ashlar_cache *own, ashlar_block *block) {
    ASHLAR_OWNS(&a->lock);
    ashlar__account_free_locked(a, own, block);
    ashlar__step_record_free_locked(a, block);
    if (ashlar__block_is_of_slot(block)) {
        ashlar__slot_block_vacate(block);
        return;
    }
    block->requested = 0;
    ashlar__shut_out_locked(a); /* another thread may hold the block's zone */
    ashlar__release_block_locked(&a->heap, block, block->stream_state);
}

static ashlar_status zero_block_locked(ashlar_allocator *a, const ashlar_request *request,
                                       ashlar_block *block) {
    ASHLAR_OWNS(&a->lock);
    /*
     * With guard=fill, the bytes behind the requested ones are the red zone. With NVTX, tools know
     * only the requested bytes as the block, and would report a write behind them.
     */
    const size_t bytes = a->guard_fill != NULL || a->nvtx != NULL ? block->requested : block->bytes;
    const ashlar_status status =
        zero_locked(a, a->constants.base + block->offset, bytes, block->stream_state);
    if (status != ASHLAR_OK) {
        take_back_locked(a, request->own, block);
    }
    return status;
}

static ashlar_status alloc_locked(ashlar_allocator *a, size_t requested, ashlar_request *request,
                                  ashlar_tag tag, ashlar_stream stream, void **out) {
    ASHLAR_OWNS(&a->lock);
    ashlar_block *block = NULL;
    ashlar_rung rung = ASHLAR_RUNG_PLANNED;
    ashlar_status status = choose_locked(a, requested, request, tag, stream, &block, &rung);
    if (status != ASHLAR_OK) {
        return status;
    }
    /* No caller has the block yet, and it is large enough. Its fields are set only below. */
    ASHLAR_CHECK2(block->state == ASHLAR_BLOCK_USED && block->requested == 0);
    ASHLAR_CHECK2(block->bytes >= requested && !ashlar__block_is_shared(block));
    ashlar_counters *counters = ashlar__counters_of(a, request->own);
    block->stream_state = request->stream_state;
    block->requested = requested;
    block->tag = (unsigned char)tag;
    block->list = (uint16_t)ashlar__cache_list(block->bytes);
    if (a->guard_fill != NULL && !block->stream_state->is_pool) {
        status = ashlar__guard_fill_take_locked(a->guard_fill, block, block->stream_state);
        if (status != ASHLAR_OK) {
            block->requested = 0;
            ashlar__release_block_locked(&a->heap, block, block->stream_state);
            return status;
        }
    }
    count_rung_locked(a, counters, rung);
    ashlar__count_alloc(counters, requested, (unsigned)tag);
    ashlar__publish_locked(a, request->own);
    ashlar__step_record_alloc_locked(request->own, requested, block);
    ashlar__trace_block_locked(a, ASHLAR_TRACE_ALLOC, block, block->stream_state);
    status = a->zeroes_blocks ? zero_block_locked(a, request, block) : ASHLAR_OK;
    if (status != ASHLAR_OK) {
        return status;
    }
    ASHLAR_CHECK3(ashlar__is_sound_locked(a, request->own));
    *out = ashlar__ptr_out(a->constants.base + block->offset);
    return ASHLAR_OK;
}

/*
 * Serve a request in a dry run: by an address without memory, or by a block if the recording leaves
 * the request out.
 */
static ASHLAR_NOINLINE ashlar_status dry_run_locked(ashlar_allocator *a, size_t bytes,
                                                    ashlar_request *request, ashlar_tag tag,
                                                    ashlar_stream stream, void **out) {
    ASHLAR_OWNS(&a->lock);
    void *ptr = NULL;
    const ashlar_status status =
        ashlar__dry_run_alloc_locked(a, request->own, bytes, tag, stream, &ptr);
    if (status == ASHLAR_OK && ptr == NULL) {
        return alloc_locked(a, bytes, request, tag, stream, out);
    }
    *out = status == ASHLAR_OK ? ptr : *out;
    return status;
}

static bool block_bytes_of(const ashlar_allocator *a, size_t bytes, size_t *out) {
    if (a->guard_fill != NULL) {
        *out = ashlar__guard_fill_block_bytes(bytes);
        return true;
    }
    return ashlar__block_bytes(bytes, out);
}

/* Add a refused request to the step that is recorded, unless another attempt follows. */
static void record_refusal_locked(ashlar_allocator *a, size_t bytes, const ashlar_request *request,
                                  ashlar_tag tag, ashlar_stream stream) {
    ASHLAR_OWNS(&a->lock);
    ashlar_stream_state *state = request->stream_state;
    if (a->planner.recording_count == 0 || request->is_at_hand || request->is_idle) {
        return;
    }
    if (state == NULL && ashlar__stream_state_of_locked(a, stream, &state) == ASHLAR_OK &&
        state->pool != NULL) {
        state = state->pool;
    }
    ashlar__step_record_refusal_locked(request->own, bytes, tag, state);
}

/* cause   why the last attempt failed; added to the error detail */
static ASHLAR_NOINLINE ashlar_status refuse_locked(ashlar_allocator *a, size_t bytes,
                                                   const ashlar_request *request, ashlar_tag tag,
                                                   ashlar_stream stream, const char *cause) {
    ASHLAR_OWNS(&a->lock);
    note_refusal_locked(a, bytes, tag, stream);
    const ashlar_status status = ashlar__no_memory_locked(a, bytes, tag, cause);
    record_refusal_locked(a, bytes, request, tag, stream);
    return status;
}

static ashlar_status serve_locked(ashlar_allocator *a, size_t bytes, ashlar_request *request,
                                  ashlar_tag tag, ashlar_stream stream, void **out) {
    ASHLAR_OWNS(&a->lock);
    /*
     * A request larger than all of the device's memory needs no search, and rounding its size up
     * might overflow.
     */
    const bool is_possible =
        bytes <= a->heap.range.memory_bytes && block_bytes_of(a, bytes, &request->bytes);
    const ashlar_status status = !is_possible ? ashlar__fail(ASHLAR_ENOMEM, "more than there is")
                                 : ashlar__dry_run_is_on(request->own) && !request->is_idle
                                     ? dry_run_locked(a, bytes, request, tag, stream, out)
                                     : alloc_locked(a, bytes, request, tag, stream, out);
    return status != ASHLAR_ENOMEM || request->is_at_hand
               ? status
               : refuse_locked(a, bytes, request, tag, stream, ashlar_error_detail());
}

/*
 * The callback to call, after the lock is released, when a sealed allocator has mapped memory.
 * `warn` is NULL if there is nothing to report.
 */
typedef struct warning {
    ashlar_warn_fn warn;
    void *user;
} warning;

static warning warning_locked(const ashlar_allocator *a, size_t mapped_before) {
    ASHLAR_OWNS(&a->lock);
    const bool is_due = a->stats.is_sealed && a->seal == ASHLAR_SEAL_WARN &&
                        a->heap.range.mapped_bytes > mapped_before;
    return (warning){is_due ? a->warn : NULL, a->warn_user};
}

static ASHLAR_NOINLINE void give_warning(const warning *w, size_t bytes, ashlar_tag tag) {
    char line[128];
    (void)snprintf(line, sizeof line,
                   "a request of %zu bytes (%s) made the sealed allocator take more memory", bytes,
                   ashlar_tag_name(tag));
    w->warn(w->user, line);
}

/* However little is live, so many handles may be taken, or one segment. */
enum { HANDLES_MIN = 4 };

/* The most that may be reserved, for ashlar__alloc_idle(). */
static size_t limit_locked(ashlar_allocator *a, size_t bytes, unsigned percent) {
    ASHLAR_OWNS(&a->lock);
    const ashlar_range *range = &a->heap.range;
    const size_t live = (size_t)a->stats.live_bytes + bytes;
    const size_t peak = (size_t)a->stats.live_peak_bytes;
    const size_t most = (live > peak ? live : peak) / 100 * percent;
    const size_t handles = HANDLES_MIN * range->handle_bytes;
    const size_t segment = range->segments != NULL ? range->growth_min_bytes : 0;
    const size_t least = handles > segment ? handles : segment;
    const size_t limit = most > least ? most : least;
    return limit < range->limit_bytes ? limit : range->limit_bytes;
}

static ashlar_status alloc(ashlar_allocator *a, size_t bytes, ashlar_tag tag, ashlar_stream stream,
                           ashlar_request request, void **out) {
    if (bytes == 0) {
        return ashlar__fail(ASHLAR_EINVAL, "bytes: a block of 0 bytes; ask for at least 1");
    }
    if ((unsigned)tag >= (unsigned)ASHLAR_TAG_COUNT) {
        return ashlar__fail(ASHLAR_EINVAL, "tag: %d is no ashlar_tag", (int)tag);
    }
    ASHLAR_REFUSE_OF_PARENT(a);
    request.own = ashlar__cache_get(a);
    ashlar__lock_acquire(&a->lock);
    const size_t mapped_before = a->heap.range.mapped_bytes, limit = a->heap.range.limit_bytes;
    ashlar_stream_state *named = NULL;
    if (request.percent > 0) {
        ashlar__counters_publish(ashlar__counters_of(a, request.own), &a->stats);
        a->heap.range.limit_bytes = limit_locked(a, bytes, request.percent);
    }
    ashlar_status status =
        request.is_idle ? ASHLAR_OK : ashlar__watch_begin_locked(a, stream, &named);
    if (status == ASHLAR_OK) {
        status = serve_locked(a, bytes, &request, tag, stream, out);
        ashlar__watch_end_locked(named);
    }
    if (request.percent > 0) { /* such a request does not drop the lock */
        a->heap.range.limit_bytes = limit;
    }
    const warning w = warning_locked(a, mapped_before);
    ashlar__allocator_leave(a);
    if (w.warn != NULL) {
        give_warning(&w, bytes, tag);
    }
    return status;
}

/* The host may write to the block at once, and the stream's work uses it, too. */
static ASHLAR_NOINLINE ashlar_status alloc_host(ashlar_allocator *a, size_t bytes, ashlar_tag tag,
                                                ashlar_stream stream, void **out) {
    const ashlar_request request = {.is_unplanned = true, .is_idle = true};
    void *ptr = NULL;
    ASHLAR_TRY(alloc(a, bytes, tag, NULL, request, &ptr));
    const ashlar_status status = ashlar_record_stream(a, ptr, stream);
    if (status != ASHLAR_OK) {
        ASHLAR_IGNORE(ashlar__free_slow(a, ptr)); /* cannot fail: the block is live */
        return status;
    }
    *out = ptr;
    return ASHLAR_OK;
}

ashlar_status ashlar__alloc_slow(ashlar_allocator *a, size_t bytes, ashlar_tag tag,
                                 ashlar_stream stream, void **out) {
    return a->heap.range.kind == ASHLAR_RANGE_HOST
               ? alloc_host(a, bytes, tag, stream, out)
               : alloc(a, bytes, tag, stream, (ashlar_request){0}, out);
}

ashlar_status ashlar__alloc_unplanned(ashlar_allocator *a, size_t bytes, ashlar_tag tag,
                                      ashlar_stream stream, void **out) {
    return alloc(a, bytes, tag, stream, (ashlar_request){.is_unplanned = true}, out);
}

ashlar_status ashlar__alloc_idle(ashlar_allocator *a, size_t bytes, unsigned percent, void **out) {
    const bool is_bounded = percent != ASHLAR_BY_ALL_MEANS;
    const ashlar_request request = {.is_unplanned = true,
                                    .is_idle = true,
                                    .is_at_hand = is_bounded,
                                    .percent = is_bounded ? percent : 0};
    void *ptr = NULL;
    ashlar_status status = alloc(a, bytes, ASHLAR_TAG_USER, NULL, request, &ptr);
    if (status == ASHLAR_OK && a->zeroes_blocks) {
        status = ashlar_stream_synchronize(a->device, NULL); /* so the fill is over for non-blocking
                                                              * streams, too */
    }
    if (status == ASHLAR_OK) {
        *out = ptr;
    }
    return status;
}

ashlar_status ashlar__alloc_at_hand(ashlar_allocator *a, size_t bytes, ashlar_stream stream,
                                    void **out) {
    return alloc(a, bytes, ASHLAR_TAG_USER, stream, (ashlar_request){.is_at_hand = true}, out);
}
