#include "allocator/pinned/pending.h"

#include "allocator/base/host.h"
#include "allocator/pinned/report.h"

/* A handle, not a stream: which stream it means depends on the thread that records the event. */
#define PER_THREAD_STREAM ((ashlar_stream)(uintptr_t)2)

/* ---- batches ---- */

static ashlar_pending_batch *make_batch_locked(ashlar_pending *pending) {
    ashlar_pending_batch *batch = pending->spares;
    if (batch == NULL) {
        return ashlar__host_calloc(1, sizeof *batch);
    }
    pending->spares = batch->next;
    batch->next = NULL;
    return batch;
}

static void spare_batch_locked(ashlar_pending *pending, ashlar_pending_batch *batch) {
    *batch = (ashlar_pending_batch){.next = pending->spares, .event = batch->event};
    pending->spares = batch;
}

static void append_batch(ashlar_pending_stream *stream, ashlar_pending_batch *batch) {
    if (stream->last != NULL) {
        stream->last->next = batch;
    } else {
        stream->first = batch;
    }
    stream->last = batch;
}

static void unlink_first(ashlar_pending_stream *stream) {
    stream->first = stream->first->next;
    if (stream->first == NULL) {
        stream->last = NULL;
    }
}

static ashlar_status record_locked(ashlar_pending *pending, const ashlar_pending_stream *stream,
                                   ashlar_pending_batch *batch) {
    ashlar_status status = ASHLAR_OK;
    if (batch->event == NULL) {
        status = ashlar_event_create(pending->device, &batch->event);
    }
    if (status == ASHLAR_OK) {
        status = ashlar_event_record(pending->device, batch->event, stream->stream);
    }
    if (status == ASHLAR_OK) {
        batch->is_recorded = true;
        batch->order = ++pending->events_recorded;
    }
    return status;
}

static void push_released(ashlar_pinned_block **released, ashlar_pinned_block *block) {
    block->next = *released;
    *released = block;
}

static void release_batch_locked(ashlar_pending *pending, ashlar_pending_batch *batch,
                                 ashlar_pinned_block **released) {
    for (unsigned i = 0; i < batch->block_count; i++) {
        ashlar_pinned_block *block = batch->blocks[i];
        if (--block->wait_count == 0) {
            pending->pending_bytes -= block->bytes;
            pending->released_count++;
            push_released(released, block);
        }
    }
    batch->is_over = true;
    if (batch->waiter_count == 0) {
        spare_batch_locked(pending, batch); /* else the last waiter does it */
    }
}

/* ---- adding ---- */

static ashlar_pending_stream *find_stream_locked(const ashlar_pending *pending,
                                                 ashlar_stream handle) {
    ashlar_pending_stream *stream = pending->streams;
    while (stream != NULL && (stream->stream != handle || stream->is_forgotten)) {
        stream = stream->next;
    }
    return stream;
}

/* Make sure that `handle` has an open batch with room. One that stays empty is no harm. */
static bool make_room_locked(ashlar_pending *pending, ashlar_stream handle) {
    ashlar_pending_stream *stream = find_stream_locked(pending, handle);
    if (stream == NULL) {
        stream = ashlar__host_calloc(1, sizeof *stream);
        if (stream == NULL) {
            return false;
        }
        stream->stream = handle;
        stream->next = pending->streams;
        pending->streams = stream;
    }
    if (stream->last == NULL || stream->last->is_recorded ||
        stream->last->block_count == BATCH_BLOCKS) {
        ashlar_pending_batch *batch = make_batch_locked(pending);
        if (batch == NULL) {
            return false;
        }
        append_batch(stream, batch);
    }
    return true;
}

static bool is_named_before(const ashlar_stream *streams, size_t idx) {
    for (size_t i = 0; i < idx; i++) {
        if (streams[i] == streams[idx]) {
            return true;
        }
    }
    return false;
}

static void join_batch_locked(ashlar_pending *pending, ashlar_stream handle,
                              ashlar_pinned_block *block) {
    const ashlar_pending_stream *stream = find_stream_locked(pending, handle);
    ashlar_pending_batch *batch = stream->last;
    batch->blocks[batch->block_count++] = block;
    batch->bytes += block->bytes;
    block->wait_count++;
    if (batch->block_count == BATCH_BLOCKS || batch->bytes >= BATCH_BYTES) {
        /* Where that fails it is tried again by whoever wants the memory. */
        (void)record_locked(pending, stream, batch);
    }
}

static ashlar_status add_locked(ashlar_pending *pending, ashlar_block_table *table, const void *ptr,
                                const ashlar_stream *streams, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!make_room_locked(pending, streams[i])) {
            return ashlar__pinned_fail(ASHLAR_EHOSTMEM, "no host memory to note who uses %p", ptr);
        }
    }
    ashlar_pinned_block *block = NULL;
    const ashlar_status status = ashlar__block_table_take(table, ptr, &block);
    if (status != ASHLAR_OK) {
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        if (!is_named_before(streams, i)) {
            join_batch_locked(pending, streams[i], block);
        }
    }
    pending->pending_bytes += block->bytes;
    pending->deferred_count++;
    return ASHLAR_OK;
}

ashlar_status ashlar__pending_add(ashlar_pending *pending, ashlar_block_table *table,
                                  const void *ptr, const ashlar_stream *streams, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (streams[i] == PER_THREAD_STREAM) {
            return ashlar__pinned_fail(ASHLAR_ENOTSUP,
                                       "stream: the per-thread default stream; name a stream that "
                                       "is the same in every thread");
        }
    }
    pthread_mutex_lock(&pending->lock);
    const ashlar_status status = add_locked(pending, table, ptr, streams, count);
    pthread_mutex_unlock(&pending->lock);
    return status;
}

/* ---- completion ---- */

/* Release what has completed. A stream's batches complete in order, so one that has not ends it. */
static ashlar_status poll_stream_locked(ashlar_pending *pending, ashlar_pending_stream *stream,
                                        ashlar_pinned_block **released) {
    while (stream->first != NULL) {
        ashlar_pending_batch *batch = stream->first;
        bool is_done = batch->block_count == 0;
        if (!is_done) {
            ashlar_status status =
                batch->is_recorded ? ASHLAR_OK : record_locked(pending, stream, batch);
            if (status == ASHLAR_OK) {
                status = ashlar_event_query(pending->device, batch->event, &is_done);
            }
            if (status != ASHLAR_OK || !is_done) {
                return status;
            }
        }
        unlink_first(stream);
        release_batch_locked(pending, batch, released);
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__pending_poll(ashlar_pending *pending, ashlar_pinned_block **released) {
    ashlar_status worst = ASHLAR_OK;
    *released = NULL;
    pthread_mutex_lock(&pending->lock);
    ashlar_pending_stream **link = &pending->streams;
    while (*link != NULL) {
        ashlar_pending_stream *stream = *link;
        const ashlar_status status = poll_stream_locked(pending, stream, released);
        if (stream->last != NULL && !stream->last->is_recorded && stream->last->block_count > 0) {
            (void)record_locked(pending, stream, stream->last);
        }
        worst = status != ASHLAR_OK ? status : worst;
        if (stream->first == NULL) {
            *link = stream->next; /* so that streams that come and go leave nothing */
            ashlar__host_free(stream);
        } else {
            link = &stream->next;
        }
    }
    pthread_mutex_unlock(&pending->lock);
    return worst;
}

static ashlar_pending_batch *oldest_recorded_locked(const ashlar_pending *pending) {
    ashlar_pending_batch *oldest = NULL;
    for (const ashlar_pending_stream *s = pending->streams; s != NULL; s = s->next) {
        ashlar_pending_batch *batch = s->first;
        if (batch != NULL && batch->is_recorded &&
            (oldest == NULL || batch->order < oldest->order)) {
            oldest = batch;
        }
    }
    return oldest;
}

ashlar_status ashlar__pending_wait(ashlar_pending *pending, bool *is_any) {
    pthread_mutex_lock(&pending->lock);
    ashlar_pending_batch *batch = oldest_recorded_locked(pending);
    ashlar_status status = ASHLAR_OK;
    *is_any = batch != NULL;
    if (batch != NULL) {
        batch->waiter_count++; /* so that its event is not used anew meanwhile */
        pending->host_waits++;
        pthread_mutex_unlock(&pending->lock);
        status = ashlar_event_synchronize(pending->device, batch->event);
        pthread_mutex_lock(&pending->lock);
        batch->waiter_count--;
        if (batch->is_over && batch->waiter_count == 0) {
            spare_batch_locked(pending, batch);
        }
    }
    pthread_mutex_unlock(&pending->lock);
    return status;
}

ashlar_status ashlar__pending_forget_stream(ashlar_pending *pending, ashlar_stream handle) {
    ashlar_status status = ASHLAR_OK;
    pthread_mutex_lock(&pending->lock);
    ashlar_pending_stream *stream = find_stream_locked(pending, handle);
    if (stream != NULL) {
        for (ashlar_pending_batch *b = stream->first; b != NULL && status == ASHLAR_OK;
             b = b->next) {
            if (!b->is_recorded && b->block_count > 0) {
                status = record_locked(pending, stream, b);
            }
        }
        stream->is_forgotten = status == ASHLAR_OK;
    }
    pthread_mutex_unlock(&pending->lock);
    return status;
}

/* ---- life ---- */

void ashlar__pending_init(ashlar_pending *pending) {
    pthread_mutex_init(&pending->lock, NULL); /* cannot fail with default attributes on Linux */
}

void ashlar__pending_drop_spares(ashlar_pending *pending) {
    pthread_mutex_lock(&pending->lock);
    while (pending->spares != NULL) {
        ashlar_pending_batch *batch = pending->spares;
        pending->spares = batch->next;
        ashlar_event_destroy(pending->device, batch->event);
        ashlar__host_free(batch);
    }
    pthread_mutex_unlock(&pending->lock);
}

/* Where the driver takes no event any more, the stream itself is the last way to wait. */
static void finish_stream(ashlar_pending *pending, ashlar_pending_stream *stream,
                          ashlar_pinned_block **released) {
    while (stream->first != NULL) {
        ashlar_pending_batch *batch = stream->first;
        ashlar_status status = batch->is_recorded || batch->block_count == 0
                                   ? ASHLAR_OK
                                   : record_locked(pending, stream, batch);
        if (status == ASHLAR_OK && batch->is_recorded) {
            status = ashlar_event_synchronize(pending->device, batch->event);
        }
        if (status != ASHLAR_OK && !stream->is_forgotten) {
            status = ashlar_stream_synchronize(pending->device, stream->stream);
        }
        (void)status; /* what is left is a device that answers nothing */
        unlink_first(stream);
        release_batch_locked(pending, batch, released);
    }
}

void ashlar__pending_finish(ashlar_pending *pending) {
    ashlar_pinned_block *released = NULL;
    while (pending->streams != NULL) {
        ashlar_pending_stream *stream = pending->streams;
        pending->streams = stream->next;
        finish_stream(pending, stream, &released);
        ashlar__host_free(stream);
    }
    while (released != NULL) {
        ashlar_pinned_block *block = released;
        released = block->next;
        ashlar__host_free(block);
    }
    ashlar__pending_drop_spares(pending);
    pthread_mutex_destroy(&pending->lock);
}

/* ---- counters ---- */

void ashlar__pending_lock(ashlar_pending *pending) {
    pthread_mutex_lock(&pending->lock);
}

void ashlar__pending_read_locked(const ashlar_pending *pending, ashlar_pinned_stats *stats) {
    stats->pending_bytes = pending->pending_bytes;
    stats->pending_blocks = pending->deferred_count - pending->released_count;
    stats->deferred_count = pending->deferred_count;
    stats->released_count = pending->released_count;
    stats->events_recorded = pending->events_recorded;
    stats->host_waits = pending->host_waits;
}

void ashlar__pending_unlock(ashlar_pending *pending) {
    pthread_mutex_unlock(&pending->lock);
}
