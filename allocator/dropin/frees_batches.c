/* frees_batches.c - batches of freed blocks, kept until all work submitted before their frees is
 * over; and the streams that do such work. */
#include "allocator/dropin/frees_impl.h"

#include "allocator/base/host.h"
#include "allocator/core/streams.h"
#include "allocator/core/watch.h"

/*
 * How many times events are polled before more memory is mapped: for about 50 microseconds, which
 * is as long as mapping takes. On an idle device an event completes within a few microseconds.
 */
enum { POLLS = 64 };

/* ---- marks: events behind work. The device's context is current. ---- */

/* Make an event. NULL: host memory ran out, or the driver refused. */
static ashlar_event_node *new_mark_locked(ashlar_frees *f) {
    ASHLAR_OWNS(&f->lock);
    ashlar_event_node *made = f->spare;
    if (made != NULL) {
        ASHLAR_CHECK2(made->event != NULL);
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

/* Move all of `marks` to `list`. */
static void put_marks(ashlar_event_node **list, ashlar_event_node *marks) {
    while (marks != NULL) {
        ashlar_event_node *next = marks->next;
        marks->next = *list;
        *list = marks;
        marks = next;
    }
}

/* Record a mark behind the work of a stream. False: that failed. */
static bool mark_stream_locked(ashlar_frees *f, ashlar_stream stream, ashlar_event_node **marks) {
    ASHLAR_OWNS(&f->lock);
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

/* Ask the driver, since a program may begin captures in ways that we do not intercept. */
static bool is_captured(const ashlar_frees *f, ashlar_stream stream) {
    unsigned int status = CU_CAPTURE_NONE;
    const cu_result result =
        ASHLAR_DRIVER_CALL(f->device->driver, stream_is_capturing, (stream, &status));
    return result == CU_STREAM_CAPTURE_IMPLICIT ||
           (result == CU_SUCCESS && status != CU_CAPTURE_NONE);
}

static bool is_any_captured_locked(const ashlar_frees *f) {
    ASHLAR_OWNS(&f->lock);
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

/* Like is_capture_on(), for callers without a lock: first stops counting captures that are over. */
static bool is_capture_still_on(const ashlar_frees *f) {
    if (is_capture_on(f)) {
        ashlar__frees_settle_captures();
    }
    return is_capture_on(f);
}

/*
 * Record marks behind all work submitted so far. False: some could not be recorded; `marks` has the
 * others. If a stream refuses an event, the program may have destroyed it in a way that we do not
 * intercept.
 */
static bool mark_all_locked(ashlar_frees *f, ashlar_event_node **marks) {
    ASHLAR_OWNS(&f->lock);
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

/* O(batches). */
static bool batches_hold(ashlar_frees *f) {
    size_t count = 0;
    ashlar_free_batch **link = &f->first;
    while (*link != NULL) {
        count++;
        link = &(*link)->next;
    }
    return link == f->end && count == atomic_load(&f->batch_count);
}

/* Make a batch of the deferred blocks, if marks can be made. */
static void make_batch_locked(ashlar_frees *f) {
    ASHLAR_OWNS(&f->lock);
    ASHLAR_CHECK2(!f->is_host && *f->end == NULL);
    ashlar_free_batch *made = ashlar__host_calloc(1, sizeof *made);
    if (made == NULL) {
        return;
    }
    /* Take the blocks first, because the events do not cover blocks that are deferred later. */
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
    ASHLAR_CHECK2(made->blocks != NULL && made->marks != NULL);
    ASHLAR_CHECK2(batches_hold(f));
}

/* Drop the marks that have completed, up to the first that has not. */
static void poll_locked(ashlar_frees *f, ashlar_event_node **marks) {
    ASHLAR_OWNS(&f->lock);
    while (*marks != NULL &&
           ASHLAR_DRIVER_CALL(f->device->driver, event_query, ((*marks)->event)) == CU_SUCCESS) {
        ashlar_event_node *done = *marks;
        *marks = done->next;
        done->next = f->spare;
        f->spare = done;
    }
}

static void release(ashlar_frees *f, ashlar_block *blocks) {
    ASHLAR_CHECK2(blocks != NULL);
    ashlar__deferred_release(f->allocator, blocks);
    atomic_fetch_add(&f->release_count, 1);
}

static bool release_past_locked(ashlar_frees *f) {
    ASHLAR_OWNS(&f->lock);
    bool has_any = false;
    while (f->first != NULL) {
        ashlar_free_batch *oldest = f->first;
        poll_locked(f, &oldest->marks);
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
    ASHLAR_CHECK2(batches_hold(f));
    return has_any;
}

/* Whether blocks are released without a batch: after a wait on the host, since events do not cover
 * all streams, or, in tests, at once. */
static bool needs_wait(const ashlar_frees *f) {
    return atomic_load(&f->is_distrusted) || atomic_load(&f->is_trusting);
}

/* Wait for the device; if streams are watched, blocks freed in stream order are past then, too. */
static ashlar_status synchronize(const ashlar_frees *f) {
    return f->is_host                     ? ashlar__device_synchronize_all(f->device)
           : atomic_load(&f->is_watching) ? ashlar__watch_settle(f->allocator)
                                          : ashlar__device_try_synchronize(f->device);
}

/* Wait on the host, and then release all deferred blocks. */
static bool release_after_wait(ashlar_frees *f) {
    ashlar__lock_acquire(&f->wait_lock);
    ashlar_block *blocks = ashlar__deferred_take(f->allocator);
    const bool is_over =
        blocks != NULL && (atomic_load(&f->is_trusting) || synchronize(f) == ASHLAR_OK);
    if (is_over) {
        release(f, blocks);
    } else if (blocks != NULL) {
        ashlar__deferred_put_back(f->allocator, blocks);
    }
    ashlar__lock_release(&f->wait_lock);
    return is_over;
}

bool ashlar__frees_has_pending(const ashlar_frees *f) {
    return atomic_load(&f->batch_count) > 0 || ashlar__has_deferred(f->allocator);
}

/* Holding the lock keeps captures from beginning on the device. */
static void make_batch_unless_full_locked(ashlar_frees *f, size_t batches_max) {
    ASHLAR_OWNS(&f->lock);
    ASHLAR_CHECK2(batches_max > 0);
    if (!is_capture_on(f) && !needs_wait(f) && atomic_load(&f->batch_count) < batches_max) {
        make_batch_locked(f);
    }
}

void ashlar__frees_cover(ashlar_frees *f) {
    if (is_capture_still_on(f) || !ashlar__has_deferred(f->allocator) ||
        ashlar__device_enter(f->device) != ASHLAR_OK) {
        return;
    }
    ashlar__lock_acquire(&f->lock);
    make_batch_unless_full_locked(f, ASHLAR_BATCHES_MAX);
    ashlar__lock_release(&f->lock);
    ashlar__device_leave(f->device);
}

bool ashlar__frees_reap(ashlar_frees *f, size_t batches_max) {
    bool has_any = false;
    if (is_capture_still_on(f) || !ashlar__frees_has_pending(f) ||
        ashlar__device_enter(f->device) != ASHLAR_OK) {
        return false;
    }
    ashlar__lock_acquire(&f->lock);
    make_batch_unless_full_locked(f, batches_max);
    for (int i = 0; i < POLLS && !has_any && f->first != NULL && !is_capture_on(f); i++) {
        has_any = release_past_locked(f);
    }
    ashlar__lock_release(&f->lock);
    if (needs_wait(f)) {
        has_any = release_after_wait(f) || has_any;
    }
    ashlar__device_leave(f->device);
    return has_any;
}

bool ashlar__frees_has_more(ashlar_frees *f, uint64_t release_count) {
    ashlar__lock_acquire(&f->wait_lock); /* a thread that held blocks has returned them */
    ashlar__lock_release(&f->wait_lock);
    ashlar__lock_acquire(&f->lock);
    const bool has_more = !is_capture_on(f) && (atomic_load(&f->release_count) != release_count ||
                                                ashlar__frees_has_pending(f));
    ashlar__lock_release(&f->lock);
    return has_more;
}

bool ashlar__frees_wait(ashlar_frees *f) {
    if (is_capture_still_on(f) || synchronize(f) != ASHLAR_OK) {
        return false;
    }
    (void)ashlar__frees_reap(f, SIZE_MAX);
    return true;
}

/* The event that the oldest batch waits for; NULL: there is no batch. */
static cu_event awaited_event(ashlar_frees *f) {
    ashlar__lock_acquire(&f->lock);
    const cu_event event =
        f->first != NULL && f->first->marks != NULL ? f->first->marks->event : NULL;
    ashlar__lock_release(&f->lock);
    return event;
}

/* No lock is held during a wait. If another thread reuses the event meanwhile, the wait is longer.
 */
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
    ASHLAR_CHECK2(stream != NULL);
    ashlar_known_stream *made = ashlar__host_calloc(1, sizeof *made);
    if (made == NULL) {
        ashlar__frees_distrust_streams(f);
        return;
    }
    made->stream = stream;
    ashlar__lock_acquire(&f->lock);
    made->next = f->streams;
    f->streams = made;
    ashlar__lock_release(&f->lock);
}

/* Returns whether the stream was known. */
static bool forget_stream_locked(ashlar_frees *f, ashlar_stream stream) {
    ASHLAR_OWNS(&f->lock);
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

/* Put a mark behind the last work of a stream. */
static ashlar_status mark_end_locked(ashlar_frees *f, ashlar_stream stream) {
    ASHLAR_OWNS(&f->lock);
    const ashlar_status status = ashlar__device_enter(f->device);
    if (status != ASHLAR_OK) {
        return status;
    }
    if (!is_capture_on(f)) {
        poll_locked(f, &f->ended); /* otherwise completed marks might gather, if no batch follows */
    }
    const bool is_marked = !is_captured(f, stream) && mark_stream_locked(f, stream, &f->ended);
    ashlar__device_leave(f->device);
    return is_marked ? ASHLAR_OK : ASHLAR_EDRIVER;
}

void ashlar__frees_end_stream(ashlar_frees *f, ashlar_stream stream) {
    ashlar__frees_drop_captures(f, &stream);
    ashlar__allocator_end_stream(f->allocator, stream); /* for blocks that cudaFreeAsync() freed on
                                                         * it */
    ashlar__lock_acquire(&f->lock);
    if (forget_stream_locked(f, stream) && mark_end_locked(f, stream) != ASHLAR_OK) {
        ashlar__frees_distrust_streams(f);
    }
    ashlar__lock_release(&f->lock);
}

/* ---- the end ---- */

static void drop_marks(ashlar_event_node *marks) {
    while (marks != NULL) {
        ashlar_event_node *next = marks->next;
        ashlar__host_free(marks);
        marks = next;
    }
}

void ashlar__frees_drop_all(ashlar_frees *f) {
    ashlar__frees_drop_captures(f, NULL);
    ashlar__lock_acquire(&f->lock);
    ASHLAR_CHECK2(batches_hold(f));
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
    ashlar__lock_release(&f->lock);
}
