#include "frees.h"

#include <pthread.h>
#include <stdatomic.h>

#include "devices.h"
#include "error.h"
#include "host.h"

/* More batches would be no sooner over: what is freed then waits for the next. */
enum { BATCHES_MAX = 8 };

/* An event, in one list at a time. */
typedef struct mark {
    struct mark *next;
    cu_event event;
} mark;

typedef struct batch {
    struct batch *next;
    ashlar_block *blocks;
    mark *marks; /* those not known to have completed */
} batch;

typedef struct known_stream {
    struct known_stream *next;
    ashlar_stream stream;
} known_stream;

struct ashlar_frees {
    ashlar_allocator *allocator; /* const */
    ashlar_device *device;       /* const */
    atomic_bool is_distrusted;   /* there may be streams that are not known */
    atomic_bool is_trusting;     /* tests */
    _Atomic size_t batch_count;
    pthread_mutex_t lock; /* guards what follows; taken before the allocator's */
    known_stream *streams;
    mark *ended; /* behind the last work of streams that are gone */
    mark *spare;
    batch *first; /* oldest first */
    batch **end;
};

static _Atomic(ashlar_frees *) all[ASHLAR_DROPIN_DEVICES_MAX];
static atomic_bool is_given_up[ASHLAR_DROPIN_DEVICES_MAX];
static pthread_mutex_t making_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- marks; the device's context is current ---- */

/* NULL: no host memory, or the driver refuses. */
static mark *new_mark_locked(ashlar_frees *f) {
    mark *made = f->spare;
    if (made != NULL) {
        f->spare = made->next;
        return made;
    }
    made = ashlar_host_calloc(1, sizeof *made);
    if (made != NULL && ASHLAR_DRIVER_CALL(f->device->driver, event_create,
                                           (&made->event, CU_EVENT_NO_TIMING)) != CU_SUCCESS) {
        ashlar_host_free(made);
        made = NULL;
    }
    return made;
}

static void put_marks(mark **list, mark *marks) {
    while (marks != NULL) {
        mark *next = marks->next;
        marks->next = *list;
        *list = marks;
        marks = next;
    }
}

/* Put a mark behind the work of a stream. False: that was not possible. */
static bool mark_stream_locked(ashlar_frees *f, ashlar_stream stream, mark **marks) {
    mark *made = new_mark_locked(f);
    if (made == NULL) {
        return false;
    }
    const bool is_marked =
        ASHLAR_DRIVER_CALL(f->device->driver, event_record, (made->event, stream)) == CU_SUCCESS;
    mark **list = is_marked ? marks : &f->spare;
    made->next = *list;
    *list = made;
    return is_marked;
}

/* A program may capture by ways that are not watched. */
static bool is_captured(const ashlar_frees *f, ashlar_stream stream) {
    unsigned int status = CU_CAPTURE_NONE;
    const cu_result result =
        ASHLAR_DRIVER_CALL(f->device->driver, stream_is_capturing, (stream, &status));
    return result == CU_STREAM_CAPTURE_IMPLICIT ||
           (result == CU_SUCCESS && status != CU_CAPTURE_NONE);
}

static bool is_any_captured_locked(const ashlar_frees *f) {
    bool is_any = is_captured(f, NULL);
    for (const known_stream *s = f->streams; s != NULL && !is_any; s = s->next) {
        is_any = is_captured(f, s->stream);
    }
    return is_any;
}

/* ---- batches ---- */

static bool is_capture_on(const ashlar_frees *f) {
    return atomic_load(&f->device->driver->capture_count) > 0;
}

/*
 * Behind all work submitted so far. False: not possible now; marks that were made are in `marks`.
 * A stream that takes no event may have been destroyed by a way that is not watched.
 */
static bool mark_all_locked(ashlar_frees *f, mark **marks) {
    if (is_any_captured_locked(f)) {
        return false;
    }
    bool is_marked = mark_stream_locked(f, NULL, marks);
    for (const known_stream *s = f->streams; s != NULL && is_marked; s = s->next) {
        is_marked = mark_stream_locked(f, s->stream, marks);
    }
    if (!is_marked) {
        ashlar_frees_distrust_streams(f);
    }
    return is_marked;
}

/* What is retired becomes a batch, if it can be marked. */
static void make_batch_locked(ashlar_frees *f) {
    batch *made = ashlar_host_calloc(1, sizeof *made);
    if (made == NULL) {
        return;
    }
    /* Before the events: a block that is retired behind them is not theirs. */
    made->blocks = ashlar_retired_take(f->allocator);
    if (made->blocks == NULL || !mark_all_locked(f, &made->marks)) {
        ashlar_retired_put_back(f->allocator, made->blocks);
        put_marks(&f->spare, made->marks);
        ashlar_host_free(made);
        return;
    }
    put_marks(&made->marks, f->ended);
    f->ended = NULL;
    *f->end = made;
    f->end = &made->next;
    atomic_fetch_add(&f->batch_count, 1);
}

/* Drop the marks that have completed, up to the first that has not. */
static void ask_locked(ashlar_frees *f, mark **marks) {
    while (*marks != NULL &&
           ASHLAR_DRIVER_CALL(f->device->driver, event_query, ((*marks)->event)) == CU_SUCCESS) {
        mark *done = *marks;
        *marks = done->next;
        done->next = f->spare;
        f->spare = done;
    }
}

static bool release_past_locked(ashlar_frees *f) {
    bool has_any = false;
    while (f->first != NULL) {
        batch *oldest = f->first;
        ask_locked(f, &oldest->marks);
        if (oldest->marks != NULL) {
            break;
        }
        f->first = oldest->next;
        f->end = f->first == NULL ? &f->first : f->end;
        ashlar_retired_release(f->allocator, oldest->blocks);
        ashlar_host_free(oldest);
        atomic_fetch_sub(&f->batch_count, 1);
        has_any = true;
    }
    return has_any;
}

/* Events would not do, or not be waited for. */
static bool needs_wait(const ashlar_frees *f) {
    return atomic_load(&f->is_distrusted) || atomic_load(&f->is_trusting);
}

/* All that is retired is over after a wait on the host. */
static bool release_after_wait(ashlar_frees *f) {
    ashlar_block *blocks = ashlar_retired_take(f->allocator);
    if (blocks == NULL) {
        return false;
    }
    if (!atomic_load(&f->is_trusting) && ashlar_device_synchronize(f->device) != ASHLAR_OK) {
        ashlar_retired_put_back(f->allocator, blocks);
        return false;
    }
    ashlar_retired_release(f->allocator, blocks);
    return true;
}

static bool has_pending(const ashlar_frees *f) {
    return atomic_load(&f->batch_count) > 0 || ashlar_has_retired(f->allocator);
}

/* Give back to the allocator what is known to be over. True: there was something. */
static bool reap(ashlar_frees *f, size_t batches_max) {
    bool has_any = false;
    if (is_capture_on(f) || !has_pending(f) || ashlar_device_enter(f->device) != ASHLAR_OK) {
        return false;
    }
    pthread_mutex_lock(&f->lock);
    if (!is_capture_on(f)) { /* and none begins now */
        if (!needs_wait(f) && atomic_load(&f->batch_count) < batches_max) {
            make_batch_locked(f);
        }
        has_any = release_past_locked(f);
    }
    pthread_mutex_unlock(&f->lock);
    if (needs_wait(f)) {
        has_any = release_after_wait(f) || has_any;
    }
    ashlar_device_leave(f->device);
    return has_any;
}

/* The event that the oldest batch waits for; NULL: there is no batch. */
static cu_event awaited_event(ashlar_frees *f) {
    pthread_mutex_lock(&f->lock);
    const cu_event event =
        f->first != NULL && f->first->marks != NULL ? f->first->marks->event : NULL;
    pthread_mutex_unlock(&f->lock);
    return event;
}

/*
 * As the allocator calls it when memory is out: wait for all that is pending. No lock is held
 * during the wait; an event that another thread uses anew meanwhile is only waited for longer.
 */
static bool reclaim(void *user, size_t bytes) {
    ashlar_frees *f = user;
    (void)bytes;
    bool has_any = reap(f, SIZE_MAX);
    for (cu_event event = awaited_event(f); event != NULL && !is_capture_on(f);
         event = awaited_event(f)) {
        if (ashlar_event_synchronize(f->device, event) != ASHLAR_OK) {
            break;
        }
        has_any = reap(f, SIZE_MAX) || has_any;
    }
    return has_any;
}

/* ---- making ---- */

static ashlar_status make(int ordinal, ashlar_frees **out) {
    ashlar_allocator *a;
    const ashlar_status status = ashlar_dropin_allocator(ordinal, &a);
    if (status != ASHLAR_OK) {
        return status;
    }
    ashlar_frees *made = ashlar_host_calloc(1, sizeof *made);
    if (made == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory for the frees of device %d", ordinal);
    }
    made->allocator = a;
    made->device = ashlar_allocator_device(a);
    made->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    made->end = &made->first;
    ashlar_set_reclaim(a, reclaim, made);
    *out = made;
    return ASHLAR_OK;
}

static ashlar_status find_or_make(int ordinal, ashlar_frees **out) {
    ashlar_status status = ASHLAR_OK;
    if (ordinal < 0 || ordinal >= ASHLAR_DROPIN_DEVICES_MAX) {
        return ashlar_fail(ASHLAR_EINVAL, "device %d: ordinals are 0 to %d", ordinal,
                           ASHLAR_DROPIN_DEVICES_MAX - 1);
    }
    if (atomic_load(&is_given_up[ordinal])) {
        return ashlar_fail(ASHLAR_ENOTSUP, "device %d: it was reset by the program", ordinal);
    }
    pthread_mutex_lock(&making_lock);
    ashlar_frees *frees = atomic_load(&all[ordinal]);
    if (frees == NULL) {
        status = make(ordinal, &frees);
        if (status == ASHLAR_OK) {
            atomic_store_explicit(&all[ordinal], frees, memory_order_release);
        }
    }
    pthread_mutex_unlock(&making_lock);
    if (status == ASHLAR_OK) {
        *out = frees;
    }
    return status;
}

ashlar_status ashlar_frees_of(int ordinal, ashlar_frees **out) {
    ashlar_frees *frees = ashlar_frees_peek(ordinal);
    if (ASHLAR_LIKELY(frees != NULL)) {
        *out = frees;
        return ASHLAR_OK;
    }
    return ashlar_dropin_is_forked()
               ? ashlar_fail(ASHLAR_EDRIVER, "device %d: CUDA does not survive a fork", ordinal)
               : find_or_make(ordinal, out);
}

ashlar_frees *ashlar_frees_peek(int ordinal) {
    return (unsigned)ordinal < (unsigned)ASHLAR_DROPIN_DEVICES_MAX && !ashlar_dropin_is_forked() &&
                   !atomic_load_explicit(&is_given_up[ordinal], memory_order_relaxed)
               ? atomic_load_explicit(&all[ordinal], memory_order_acquire)
               : NULL;
}

/* Where the allocator has a range of its own, one look tells. */
static bool may_have(const ashlar_allocator *a, cu_ptr ptr) {
    return a->unmap != NULL || ptr - a->fixed.base < a->fixed.range_bytes;
}

ashlar_frees *ashlar_frees_next(int *ordinal, const void *ptr) {
    while (*ordinal < ASHLAR_DROPIN_DEVICES_MAX) {
        ashlar_frees *frees = ashlar_frees_peek((*ordinal)++);
        if (frees != NULL && may_have(frees->allocator, ashlar_ptr_in(ptr))) {
            return frees;
        }
    }
    return NULL;
}

ashlar_allocator *ashlar_frees_allocator(const ashlar_frees *f) {
    return f->allocator;
}

ashlar_device *ashlar_frees_device(const ashlar_frees *f) {
    return f->device;
}

void ashlar_frees_give_up(int ordinal) {
    const ashlar_frees *frees = ashlar_frees_peek(ordinal);
    if (frees != NULL) {
        atomic_store(&is_given_up[ordinal], true);
        ashlar_allocator_destroy(frees->allocator);
    }
}

void ashlar_frees_forget(void) {
    for (int i = 0; i < ASHLAR_DROPIN_DEVICES_MAX; i++) {
        atomic_store(&all[i], NULL);
        atomic_store(&is_given_up[i], false);
    }
}

/* ---- memory ---- */

size_t ashlar_frees_spare_bytes(const ashlar_frees *f) {
    ashlar_stats stats;
    ashlar_stats_read(f->allocator, &stats);
    return (size_t)(stats.reserved_bytes - stats.block_bytes);
}

static ashlar_status alloc_guarded(ashlar_frees *f, size_t bytes, void **out) {
    void *ptr = NULL;
    ashlar_status status = ashlar_alloc(f->allocator, bytes, NULL, &ptr);
    if (status == ASHLAR_OK) {
        status = ashlar_device_synchronize(f->device); /* the guard has queued work on it */
    }
    if (status == ASHLAR_OK) {
        *out = ptr;
    }
    return status;
}

ashlar_status ashlar_frees_alloc(ashlar_frees *f, size_t bytes, void **out) {
    if (ashlar_allocator_is_guarded(f->allocator)) {
        return alloc_guarded(f, bytes, out);
    }
    ashlar_status status = ashlar_alloc_idle(f->allocator, bytes, true, out);
    if (status == ASHLAR_ENOMEM && reap(f, BATCHES_MAX)) {
        status = ashlar_alloc_idle(f->allocator, bytes, true, out);
    }
    return status == ASHLAR_ENOMEM ? ashlar_alloc_idle(f->allocator, bytes, false, out) : status;
}

ashlar_status ashlar_frees_alloc_on(ashlar_frees *f, size_t bytes, ashlar_stream stream,
                                    void **out) {
    if (ashlar_allocator_is_guarded(f->allocator) || !has_pending(f)) {
        return ashlar_alloc(f->allocator, bytes, stream, out);
    }
    const ashlar_status status = ashlar_alloc_at_hand(f->allocator, bytes, stream, out);
    if (status != ASHLAR_ENOMEM) {
        return status;
    }
    (void)reap(f, BATCHES_MAX);
    return ashlar_alloc(f->allocator, bytes, stream, out);
}

ashlar_status ashlar_frees_free(ashlar_frees *f, void *ptr) {
    if (!ashlar_allocator_is_guarded(f->allocator)) {
        return ashlar_retire(f->allocator, ptr);
    }
    const ashlar_status status = ashlar_device_synchronize(f->device);
    return status == ASHLAR_OK ? ashlar_free(f->allocator, ptr) : status;
}

/* ---- streams ---- */

void ashlar_frees_add_stream(ashlar_frees *f, ashlar_stream stream) {
    known_stream *made = ashlar_host_calloc(1, sizeof *made);
    if (made == NULL) {
        ashlar_frees_distrust_streams(f);
        return;
    }
    made->stream = stream;
    pthread_mutex_lock(&f->lock);
    made->next = f->streams;
    f->streams = made;
    pthread_mutex_unlock(&f->lock);
}

/* True: it was known. */
static bool forget_stream_locked(ashlar_frees *f, ashlar_stream stream) {
    known_stream **link = &f->streams;
    while (*link != NULL && (*link)->stream != stream) {
        link = &(*link)->next;
    }
    known_stream *found = *link;
    if (found == NULL) {
        return false;
    }
    *link = found->next;
    ashlar_host_free(found);
    return true;
}

/* Behind its last work. */
static ashlar_status mark_end_locked(ashlar_frees *f, ashlar_stream stream) {
    const ashlar_status status = ashlar_device_enter(f->device);
    if (status != ASHLAR_OK) {
        return status;
    }
    if (!is_capture_on(f)) {
        ask_locked(f, &f->ended); /* there may never be a batch that wants them */
    }
    const bool is_marked = !is_captured(f, stream) && mark_stream_locked(f, stream, &f->ended);
    ashlar_device_leave(f->device);
    return is_marked ? ASHLAR_OK : ASHLAR_EDRIVER;
}

void ashlar_frees_end_stream(ashlar_frees *f, ashlar_stream stream) {
    /* Also what cudaFreeAsync() gave back there. Where that fails it is found out later. */
    const ashlar_status unused = ashlar_forget_stream(f->allocator, stream);
    (void)unused;
    pthread_mutex_lock(&f->lock);
    if (forget_stream_locked(f, stream) && mark_end_locked(f, stream) != ASHLAR_OK) {
        ashlar_frees_distrust_streams(f);
    }
    pthread_mutex_unlock(&f->lock);
}

void ashlar_frees_begin_capture(ashlar_frees *f) {
    pthread_mutex_lock(&f->lock);
    atomic_fetch_add(&f->device->driver->capture_count, 1);
    pthread_mutex_unlock(&f->lock);
}

void ashlar_frees_end_capture(ashlar_frees *f) {
    atomic_fetch_sub(&f->device->driver->capture_count, 1);
}

void ashlar_frees_distrust_streams(ashlar_frees *f) {
    atomic_store(&f->is_distrusted, true);
}

void ashlar_frees_trust_all(ashlar_frees *f) {
    atomic_store(&f->is_trusting, true);
}
