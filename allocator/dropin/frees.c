/* frees.c - allocating and freeing with the promises of cudaMalloc() and cudaFree(). An
 * ashlar_frees does this for one device or context; this file makes and finds these objects, and
 * decides how hard a request tries before it fails. */
#include "allocator/dropin/frees.h"

#include <string.h>

#include "allocator/base/host.h"
#include "allocator/base/error.h"
#include "allocator/base/threads.h"
#include "allocator/core/core.h"
#include "allocator/heap/heap.h"
#include "allocator/step/step.h"

static ashlar_frees all[ASHLAR_DROPIN_ALLOCATORS_MAX]; /* by place */
static ashlar_lock making_lock = ASHLAR_LOCK(ASHLAR_LEVEL_DROPIN_FREES);

/*
 * The least to take from the driver at a time, where memory comes in segments. Freed blocks become
 * reusable at different times in each step of a program, so each step's blocks lie in different
 * places. If the first step reserves more than it needs, later steps fit, too.
 */
#define GROWTH_MIN_BYTES ((size_t)32 << 20)
enum { GROWTH_DEVICE_DIVISOR = 64 }; /* but at most 1/64 of the device's memory */

/*
 * For how long a request polls for the end of work that uses freed blocks, before it lets the
 * allocator reserve up to `percent` of the peak of live bytes. (cudaFree() always waits for that
 * work.) The first duration is about what mapping takes: on an idle device an event completes
 * within a few microseconds. The second is that of many a step's work: memory that is taken to
 * avoid such a wait is kept for good. The third bounds the memory of a program that never lets the
 * device rest; it is not endless, since the work may depend on what the program does next.
 */
static const struct {
    uint64_t ns;
    unsigned percent;
} stages[] = {{200 * 1000, 117}, {100 * 1000 * 1000, 175}, {1000 * 1000 * 1000, 175}};

enum { STAGES = sizeof stages / sizeof stages[0] };

/* How often a request is tried at most, since other threads may take what becomes free for it. */
enum { TRIES_MAX = 16 };

/* ---- making ---- */

static void set_growth(ashlar_allocator *a) {
    const size_t most = a->heap.range.memory_bytes / GROWTH_DEVICE_DIVISOR;
    ashlar__lock_acquire(&a->lock);
    a->heap.range.growth_min_bytes = most < GROWTH_MIN_BYTES ? most : GROWTH_MIN_BYTES;
    ashlar__lock_release(&a->lock);
}

static ashlar_status begin_locked(ashlar_frees *f, ashlar_allocator *a, bool is_host) {
    ASHLAR_OWNS(&making_lock);
    if (atomic_load(&f->is_ready)) {
        return ASHLAR_OK;
    }
    if (!is_host) {
        ASHLAR_TRY(ashlar__deferred_add_stream(a, NULL));
        set_growth(a);
    }
    f->allocator = a;
    f->device = ashlar_allocator_device(a);
    f->is_host = is_host;
    atomic_store(&f->is_distrusted, is_host);
    ashlar_allocator_set_reclaim(a, ashlar__frees_reclaim, f);
    atomic_store_explicit(&f->is_ready, true, memory_order_release);
    return ASHLAR_OK;
}

ashlar_frees *ashlar__frees_peek(int place) {
    return (unsigned)place < (unsigned)ASHLAR_DROPIN_ALLOCATORS_MAX &&
                   !ashlar__dropin_is_forked() &&
                   atomic_load_explicit(&all[place].is_ready, memory_order_acquire)
               ? &all[place]
               : NULL;
}

ashlar_status ashlar__frees_at(int place, int ordinal, ashlar_frees **out) {
    ashlar_frees *f = ashlar__frees_peek(place);
    ashlar_allocator *a;
    if (ASHLAR_LIKELY(f != NULL)) {
        *out = f;
        return ASHLAR_OK;
    }
    ASHLAR_TRY(ashlar__dropin_at(place, ordinal, &a));
    f = &all[place];
    ASHLAR_FAIL_IF(atomic_load(&f->is_given_up), ASHLAR_ENOTSUP,
                   "device %d: it was reset by the program", ordinal);
    ashlar__lock_acquire(&making_lock);
    const ashlar_status status = begin_locked(f, a, place == ASHLAR_DROPIN_HOST);
    ashlar__lock_release(&making_lock);
    if (status == ASHLAR_OK) {
        *out = f;
    }
    return status;
}

static void forget(ashlar_frees *f) {
    ashlar__frees_drop_captures(f, NULL);
    memset(f, 0, sizeof *f);
}

void ashlar__frees_drop_context(int place) {
    ASHLAR_CHECK2(place >= ASHLAR_DROPIN_CONTEXTS);
    atomic_store(&all[place].is_ready, false);
    ashlar__dropin_drop_context(place);
    forget(&all[place]);
}

static bool may_have(ashlar_allocator *a, const void *ptr) {
    return ashlar__ptr_in(ptr) - a->constants.base < a->constants.range_bytes ||
           ((uintptr_t)ptr >= ASHLAR_DRY_RUN_BASE &&
            ashlar__dry_run_has(ashlar__cache_get(a), ptr));
}

ashlar_frees *ashlar__frees_each(int *place) {
    ashlar_frees *frees = NULL;
    while (frees == NULL && *place < ASHLAR_DROPIN_ALLOCATORS_MAX) {
        frees = *place == ASHLAR_DROPIN_HOST ? NULL : ashlar__frees_peek(*place);
        ++*place;
    }
    return frees;
}

ashlar_frees *ashlar__frees_next(int *place, const void *ptr) {
    ashlar_frees *frees = ashlar__frees_each(place);
    while (frees != NULL && !may_have(frees->allocator, ptr)) {
        frees = ashlar__frees_each(place);
    }
    return frees;
}

void ashlar__frees_give_up(int ordinal) {
    ashlar_frees *f = ashlar__frees_peek(ordinal);
    if (f != NULL) {
        ashlar__frees_drop_captures(f, NULL);
        atomic_store(&f->is_given_up, true);
        atomic_store(&f->is_ready, false);
        ashlar_allocator_destroy(f->allocator);
    }
}

void ashlar__frees_forget(void) {
    for (int i = 0; i < ASHLAR_DROPIN_ALLOCATORS_MAX; i++) {
        forget(&all[i]);
    }
}

/* ---- memory ---- */

/* First turn freed blocks into gaps, as far as they can: a handle that lies partly in two freed
 * blocks is counted as free, but could not serve the next request before they are one gap. */
size_t ashlar__frees_spare_bytes(ashlar_frees *f) {
    ashlar_allocator *a = f->allocator;
    (void)ashlar__frees_reap(f, 0, false);
    ashlar__allocator_enter(a);
    ashlar__caches_flush_locked(a);
    const ashlar_status unused = ashlar__cross_ask(&a->heap, SIZE_MAX);
    (void)unused; /* a failure is harmless: memory counts even if work may still use it */
    const size_t bytes = ashlar__heap_servable_bytes(&a->heap);
    ashlar__allocator_leave(a);
    return bytes;
}

bool ashlar__frees_give_back(ashlar_frees *f, size_t kept_bytes) {
    ashlar_stats before, after;
    ashlar_allocator_get_stats(f->allocator, &before);
    if (before.reserved_bytes <= kept_bytes) {
        return false;
    }
    (void)ashlar__frees_reclaim(f, 0);
    const ashlar_status unused = ashlar_allocator_trim(f->allocator, kept_bytes);
    (void)unused; /* even a failed call may have given something back */
    ashlar_allocator_get_stats(f->allocator, &after);
    return after.reserved_bytes < before.reserved_bytes;
}

/* Allocate by all means, including waits on the host. Fails only if no other thread is about to
 * make freed blocks available. `stream` NULL: for any stream. */
static ashlar_status alloc_at_last(ashlar_frees *f, size_t bytes, const ashlar_stream *stream,
                                   void **out) {
    ashlar_status status;
    uint64_t seen;
    int tries = TRIES_MAX;
    (void)ashlar__frees_settle_captures();
    do {
        seen = atomic_load(&f->allocator->release_count);
        status = stream == NULL ? ashlar__alloc_idle(f->allocator, bytes, ASHLAR_BY_ALL_MEANS, out)
                                : ashlar_alloc(f->allocator, bytes, *stream, out);
    } while (status == ASHLAR_ENOMEM && --tries > 0 &&
             ashlar__deferred_has_more(f->allocator, seen));
    ASHLAR_CHECK2(status != ASHLAR_OK || *out != NULL);
    return status;
}

/* Allocate in a guard mode, and wait for the work that the guard queues on the block. */
static ashlar_status alloc_guarded(ashlar_frees *f, size_t bytes, void **out) {
    void *ptr = NULL;
    ashlar_status status = ashlar_alloc(f->allocator, bytes, NULL, &ptr);
    if (status == ASHLAR_OK) {
        status = ashlar__device_synchronize(f->device);
    }
    if (status == ASHLAR_OK) {
        *out = ptr;
    }
    return status;
}

/* For the duration of a stage, try again whenever blocks become free. The first stage does nothing
 * if so little was freed that mapping more takes no longer than asking. */
static ashlar_status alloc_when_past(ashlar_frees *f, size_t bytes, int stage, void **out) {
    const uint64_t start = ashlar__clock_ns();
    const unsigned percent = stage > 0 ? stages[stage - 1].percent : 0;
    ashlar_status status = ASHLAR_ENOMEM;
    uint64_t spent = 0;
    if (stage == 0 && !ashlar__deferred_fills_handle(f->allocator)) {
        return status;
    }
    while (status == ASHLAR_ENOMEM && spent < stages[stage].ns &&
           ashlar__frees_reap(f, stages[stage].ns - spent, stage == STAGES - 1)) {
        status = ashlar__alloc_idle(f->allocator, bytes, percent, out);
        spent = ashlar__clock_ns() - start;
    }
    return status;
}

static ashlar_status alloc_for_any(ashlar_frees *f, size_t bytes, void **out) {
    if (!atomic_load_explicit(&f->is_distrusted, memory_order_relaxed) &&
        ashlar__deferred_is_due(f->allocator)) {
        (void)ashlar__frees_reap(f, 0, false);
    }
    ashlar_status status = ashlar__alloc_idle(f->allocator, bytes, 0, out);
    for (int i = 0; i < STAGES && status == ASHLAR_ENOMEM; i++) {
        if (i == STAGES - 1 && !ashlar__may_grow(f->allocator, bytes)) {
            break; /* the device has no more to give, so alloc_at_last() waits as long as need be */
        }
        status = alloc_when_past(f, bytes, i, out);
        if (status == ASHLAR_ENOMEM) {
            status = ashlar__alloc_idle(f->allocator, bytes, stages[i].percent, out);
        }
    }
    return status == ASHLAR_ENOMEM ? alloc_at_last(f, bytes, NULL, out) : status;
}

/* In a step, allocate on the step's stream; but not while any stream is captured: it may be this
 * one, and the memory would stay with the graph. */
ashlar_status ashlar__frees_alloc(ashlar_frees *f, size_t bytes, void **out) {
    ashlar_stream stream;
    if (ashlar__allocator_is_guarded(f->allocator)) {
        return alloc_guarded(f, bytes, out);
    }
    return ashlar__step_stream(f->allocator, &stream) && !ashlar__frees_settle_captures()
               ? ashlar__frees_alloc_on(f, bytes, stream, out)
               : alloc_for_any(f, bytes, out);
}

ashlar_status ashlar__frees_alloc_on(ashlar_frees *f, size_t bytes, ashlar_stream stream,
                                     void **out) {
    ashlar__frees_watch(f, stream);
    if (ashlar__allocator_is_guarded(f->allocator) || !ashlar__has_deferred(f->allocator)) {
        return alloc_at_last(f, bytes, &stream, out);
    }
    ashlar_status status = ashlar__alloc_at_hand(f->allocator, bytes, stream, out);
    if (status == ASHLAR_ENOMEM && ashlar__frees_reap(f, stages[0].ns, false)) {
        status = ashlar__alloc_at_hand(f->allocator, bytes, stream, out);
    }
    return status == ASHLAR_ENOMEM ? alloc_at_last(f, bytes, &stream, out) : status;
}

/* ---- freeing ---- */

/* Free a slot of a plan. The plan's steps may reuse it in their own stream's order, but here other
 * streams may have used it, so wait for the device first. */
static ashlar_status free_planned(ashlar_frees *f, void *ptr, bool is_capturing) {
    ashlar_status status = ashlar__frees_synchronize(f, is_capturing);
    if (status == ASHLAR_EINVAL) {
        status = ashlar__frees_synchronize(f, true); /* there is a capture that we do not know of */
    }
    return status == ASHLAR_OK ? ashlar_free(f->allocator, ptr) : status;
}

ashlar_status ashlar__frees_free(ashlar_frees *f, void *ptr) {
    ashlar_stream stream;
    bool is_planned;
    if (ashlar__allocator_is_guarded(f->allocator)) {
        ASHLAR_TRY(ashlar__device_synchronize(f->device));
        return ashlar_free(f->allocator, ptr);
    }
    const bool is_capturing = ashlar__frees_settle_captures();
    if (!is_capturing && ashlar__step_stream(f->allocator, &stream) &&
        ashlar__step_has(f->allocator, ptr, stream)) {
        return ashlar_free(f->allocator, ptr);
    }
    const ashlar_status status = ashlar__free_deferred(f->allocator, ptr, &is_planned);
    if (is_planned) {
        return free_planned(f, ptr, is_capturing);
    }
    if (status == ASHLAR_OK && is_capturing) {
        (void)ashlar__frees_wait(f, true);
    }
    return status;
}

static bool answer(ashlar_frees *f, void *ptr, const ashlar_stream *stream, cu_result *result) {
    if (stream != NULL) {
        ashlar__frees_watch(f, *stream);
    }
    const ashlar_status status =
        stream == NULL ? ashlar__frees_free(f, ptr) : ashlar_free_on(f->allocator, ptr, *stream);
    switch (status) {
    case ASHLAR_OK:
    case ASHLAR_EDAMAGE: /* the block is freed; the damage is reported elsewhere */
        *result = CU_SUCCESS;
        return true;
    case ASHLAR_EPOINTER:
        *result = CU_INVALID_VALUE;
        return ashlar__has_reserved(f->allocator, ptr);
    case ASHLAR_EHOSTMEM:
        *result = CU_OUT_OF_MEMORY;
        return true;
    default:
        *result = CU_UNKNOWN;
        return true;
    }
}

bool ashlar__frees_answer(void *ptr, const ashlar_stream *stream, cu_result *result) {
    int place = 0;
    ashlar_frees *f = ashlar__frees_next(&place, ptr);
    while (f != NULL && !answer(f, ptr, stream, result)) {
        f = ashlar__frees_next(&place, ptr);
    }
    return f != NULL;
}

bool ashlar__frees_answer_host(void *ptr, cu_result *result) {
    ashlar_frees *f = ashlar__frees_peek(ASHLAR_DROPIN_HOST);
    return f != NULL && answer(f, ptr, NULL, result);
}
