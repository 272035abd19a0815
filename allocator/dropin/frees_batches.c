/* frees_batches.c - what is freed, until all work submitted before is over. */
#include "allocator/dropin/frees_impl.h"

#include "allocator/base/host.h"

/*
 * How often events are asked before more memory is mapped: some 50 microseconds, which mapping
 * takes too. An event on a device that has nothing to do completes within a few.
 */
enum { POLLS = 64 };

/* ---- marks; the device's context is current ---- */

/* NULL: no host memory, or the driver refuses. */
static ashlar_event_node *new_mark_locked(ashlar_frees *f) {
    ashlar_event_node *made = f->spare;
    if (made != NULL) {
        f->spare = made->next;
        return made;
    }
    made = ashlar__host_calloc(1, sizeof *made);
    if (made != NULL && ASHLAR_DRIVER_CALL(f->device->driver, event_create,
                                           (&made->event, CU_EVENT_NO_TIMING)) != CU_SUCCESS) {
        ashlar__host_free(made);
        made = NULL;
    }
    return made;
}

static void put_marks(ashlar_event_node **list, ashlar_event_node *marks) {
    while (marks != NULL) {
        ashlar_event_node *next = marks->next;
        marks->next = *list;
        *list = marks;
        marks = next;
    }
}

/* Put a mark behind the work of a stream. False: that was not possible. */
static bool mark_stream_locked(ashlar_frees *f, ashlar_stream stream, ashlar_event_node **marks) {
    ashlar_event_node *made = new_mark_locked(f);
    if (made == NULL) {
        return false;
    }
    const bool is_marked =
        ASHLAR_DRIVER_CALL(f->device->driver, event_record, (made->event, stream)) == CU_SUCCESS;
    ashlar_event_node **list = is_marked ? marks : &f->spare;
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
    for (const ashlar_known_stream *s = f->streams; s != NULL && !is_any; s = s->next) {
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
static bool mark_all_locked(ashlar_frees *f, ashlar_event_node **marks) {
    if (is_any_captured_locked(f)) {
        return false;
    }
    bool is_marked = mark_stream_locked(f, NULL, marks);
    for (const ashlar_known_stream *s = f->streams; s != NULL && is_marked; s = s->next) {
        is_marked = mark_stream_locked(f, s->stream, marks);
    }
    if (!is_marked) {
        ashlar__frees_distrust_streams(f);
    }
    return is_marked;
}

/* What is deferred becomes a batch, if it can be marked. */
static void make_batch_locked(ashlar_frees *f) {
    ashlar_free_batch *made = ashlar__host_calloc(1, sizeof *made);
    if (made == NULL) {
        return;
    }
    /* Before the events: a block that is deferred behind them is not theirs. */
    made->blocks = ashlar__deferred_take(f->allocator);
    if (made->blocks == NULL || !mark_all_locked(f, &made->marks)) {
        ashlar__deferred_put_back(f->allocator, made->blocks);
        put_marks(&f->spare, made->marks);
        ashlar__host_free(made);
        return;
    }
    put_marks(&made->marks, f->ended);
    f->ended = NULL;
    *f->end = made;
    f->end = &made->next;
    atomic_fetch_add(&f->batch_count, 1);
}

/* Drop the marks that have completed, up to the first that has not. */
static void ask_locked(ashlar_frees *f, ashlar_event_node **marks) {
    while (*marks != NULL &&
           ASHLAR_DRIVER_CALL(f->device->driver, event_query, ((*marks)->event)) == CU_SUCCESS) {
        ashlar_event_node *done = *marks;
        *marks = done->next;
        done->next = f->spare;
        f->spare = done;
    }
}

static void release(ashlar_frees *f, ashlar_block *blocks) {
    ashlar__deferred_release(f->allocator, blocks);
    atomic_fetch_add(&f->release_count, 1);
}

static bool release_past_locked(ashlar_frees *f) {
    bool has_any = false;
    while (f->first != NULL) {
        ashlar_free_batch *oldest = f->first;
        ask_locked(f, &oldest->marks);
        if (oldest->marks != NULL) {
            break;
        }
        f->first = oldest->next;
        f->end = f->first == NULL ? &f->first : f->end;
        release(f, oldest->blocks);
        ashlar__host_free(oldest);
        atomic_fetch_sub(&f->batch_count, 1);
        has_any = true;
    }
    return has_any;
}

/* Events would not do, or not be waited for. */
static bool needs_wait(const ashlar_frees *f) {
    return atomic_load(&f->is_distrusted) || atomic_load(&f->is_trusting);
}

static ashlar_status synchronize(const ashlar_frees *f) {
    return f->is_host ? ashlar__device_synchronize_all(f->device)
                      : ashlar__device_synchronize(f->device);
}

/* All that is deferred is over after a wait on the host. */
static bool release_after_wait(ashlar_frees *f) {
    pthread_mutex_lock(&f->wait_lock);
    ashlar_block *blocks = ashlar__deferred_take(f->allocator);
    const bool is_over =
        blocks != NULL && (atomic_load(&f->is_trusting) || synchronize(f) == ASHLAR_OK);
    if (is_over) {
        release(f, blocks);
    } else if (blocks != NULL) {
        ashlar__deferred_put_back(f->allocator, blocks);
    }
    pthread_mutex_unlock(&f->wait_lock);
    return is_over;
}

bool ashlar__frees_has_pending(const ashlar_frees *f) {
    return atomic_load(&f->batch_count) > 0 || ashlar__has_deferred(f->allocator);
}

/* And no capture begins while the lock is held. */
static void make_batch_unless_full_locked(ashlar_frees *f, size_t batches_max) {
    if (!is_capture_on(f) && !needs_wait(f) && atomic_load(&f->batch_count) < batches_max) {
        make_batch_locked(f);
    }
}

void ashlar__frees_cover(ashlar_frees *f) {
    if (is_capture_on(f) || !ashlar__has_deferred(f->allocator) ||
        ashlar__device_enter(f->device) != ASHLAR_OK) {
        return;
    }
    pthread_mutex_lock(&f->lock);
    make_batch_unless_full_locked(f, ASHLAR_BATCHES_MAX);
    pthread_mutex_unlock(&f->lock);
    ashlar__device_leave(f->device);
}

bool ashlar__frees_reap(ashlar_frees *f, size_t batches_max) {
    bool has_any = false;
    if (is_capture_on(f) || !ashlar__frees_has_pending(f) ||
        ashlar__device_enter(f->device) != ASHLAR_OK) {
        return false;
    }
    pthread_mutex_lock(&f->lock);
    make_batch_unless_full_locked(f, batches_max);
    for (int i = 0; i < POLLS && !has_any && f->first != NULL && !is_capture_on(f); i++) {
        has_any = release_past_locked(f);
    }
    pthread_mutex_unlock(&f->lock);
    if (needs_wait(f)) {
        has_any = release_after_wait(f) || has_any;
    }
    ashlar__device_leave(f->device);
    return has_any;
}

bool ashlar__frees_has_more(ashlar_frees *f, uint64_t release_count) {
    pthread_mutex_lock(&f->wait_lock);
    pthread_mutex_unlock(&f->wait_lock);
    pthread_mutex_lock(&f->lock);
    const bool has_more = !is_capture_on(f) && (atomic_load(&f->release_count) != release_count ||
                                                ashlar__frees_has_pending(f));
    pthread_mutex_unlock(&f->lock);
    return has_more;
}

bool ashlar__frees_wait(ashlar_frees *f) {
    if (is_capture_on(f) || synchronize(f) != ASHLAR_OK) {
        return false;
    }
    (void)ashlar__frees_reap(f, SIZE_MAX);
    return true;
}

/* The event that the oldest batch waits for; NULL: there is no batch. */
static cu_event awaited_event(ashlar_frees *f) {
    pthread_mutex_lock(&f->lock);
    const cu_event event =
        f->first != NULL && f->first->marks != NULL ? f->first->marks->event : NULL;
    pthread_mutex_unlock(&f->lock);
    return event;
}

/* No lock is held during the wait; an event that another thread uses anew is waited for longer. */
bool ashlar__frees_reclaim(void *user, size_t bytes) {
    ashlar_frees *f = user;
    (void)bytes;
    bool has_any = ashlar__frees_reap(f, SIZE_MAX);
    for (cu_event event = awaited_event(f); event != NULL && !is_capture_on(f);
         event = awaited_event(f)) {
        if (ashlar_event_synchronize(f->device, event) != ASHLAR_OK) {
            break;
        }
        has_any = ashlar__frees_reap(f, SIZE_MAX) || has_any;
    }
    return has_any;
}

/* ---- streams ---- */

void ashlar__frees_add_stream(ashlar_frees *f, ashlar_stream stream) {
    ashlar_known_stream *made = ashlar__host_calloc(1, sizeof *made);
    if (made == NULL) {
        ashlar__frees_distrust_streams(f);
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
    ashlar_known_stream **link = &f->streams;
    while (*link != NULL && (*link)->stream != stream) {
        link = &(*link)->next;
    }
    ashlar_known_stream *found = *link;
    if (found == NULL) {
        return false;
    }
    *link = found->next;
    ashlar__host_free(found);
    return true;
}

/* Behind its last work. */
static ashlar_status mark_end_locked(ashlar_frees *f, ashlar_stream stream) {
    const ashlar_status status = ashlar__device_enter(f->device);
    if (status != ASHLAR_OK) {
        return status;
    }
    if (!is_capture_on(f)) {
        ask_locked(f, &f->ended); /* there may never be a batch that wants them */
    }
    const bool is_marked = !is_captured(f, stream) && mark_stream_locked(f, stream, &f->ended);
    ashlar__device_leave(f->device);
    return is_marked ? ASHLAR_OK : ASHLAR_EDRIVER;
}

void ashlar__frees_end_stream(ashlar_frees *f, ashlar_stream stream) {
    /* Also what cudaFreeAsync() gave back there. Where that fails it is found out later. */
    const ashlar_status unused = ashlar_allocator_forget_stream(f->allocator, stream);
    (void)unused;
    pthread_mutex_lock(&f->lock);
    if (forget_stream_locked(f, stream) && mark_end_locked(f, stream) != ASHLAR_OK) {
        ashlar__frees_distrust_streams(f);
    }
    pthread_mutex_unlock(&f->lock);
}

void ashlar__frees_begin_capture(ashlar_frees *f) {
    pthread_mutex_lock(&f->lock);
    atomic_fetch_add(&f->device->driver->capture_count, 1);
    pthread_mutex_unlock(&f->lock);
}

void ashlar__frees_end_capture(ashlar_frees *f) {
    atomic_fetch_sub(&f->device->driver->capture_count, 1);
}

/* ---- tests ---- */

static void drop_marks(ashlar_event_node *marks) {
    while (marks != NULL) {
        ashlar_event_node *next = marks->next;
        ashlar__host_free(marks);
        marks = next;
    }
}

void ashlar__frees_drop_all(ashlar_frees *f) {
    drop_marks(f->spare);
    drop_marks(f->ended);
    while (f->first != NULL) {
        ashlar_free_batch *oldest = f->first;
        f->first = oldest->next;
        drop_marks(oldest->marks);
        ashlar__host_free(oldest);
    }
    while (f->streams != NULL) {
        (void)forget_stream_locked(f, f->streams->stream);
    }
}
