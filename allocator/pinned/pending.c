/* pending.c - batches of freed blocks, their events, and the release of completed batches. */
#include "allocator/pinned/pending.h"

#include "allocator/base/host.h"
#include "allocator/pinned/report.h"

/* cudaStreamPerThread, which means a different stream in each thread. */
#define PER_THREAD_STREAM ((ashlar_stream)(uintptr_t)2)

/* ---- batches ---- */

static ashlar_pending_batch *make_batch_locked(ashlar_pending *pending) {
    ASHLAR_OWNS(&pending->lock);
    ashlar_pending_batch *batch = pending->spares;
    if (batch == NULL) {
        return ashlar__host_calloc(1, sizeof *batch);
    }
    pending->spares = batch->next;
    batch->next = NULL;
    ASHLAR_CHECK2(batch->block_count == 0 && !batch->is_recorded && batch->waiter_count == 0);
    return batch;
}

static void spare_batch_locked(ashlar_pending *pending, ashlar_pending_batch *batch) {
    ASHLAR_OWNS(&pending->lock);
    ASHLAR_CHECK2(batch->is_over && batch->waiter_count == 0); /* no thread waits for the event */
    *batch = (ashlar_pending_batch){.next = pending->spares, .event = batch->event};
    pending->spares = batch;
}

static void append_batch(ashlar_pending_stream *stream, ashlar_pending_batch *batch) {
    ASHLAR_CHECK2(batch->next == NULL && !stream->is_forgotten);
    ASHLAR_CHECK2((stream->first == NULL) == (stream->last == NULL));
    if (stream->last != NULL) {
        stream->last->next = batch;
    } else {
        stream->first = batch;
    }
    stream->last = batch;
}

static void unlink_first(ashlar_pending_stream *stream) {
    ASHLAR_CHECK2(stream->last->next == NULL);
    stream->first = stream->first->next;
    if (stream->first == NULL) {
        stream->last = NULL;
    }
}

static ashlar_status record_locked(ashlar_pending *pending, const ashlar_pending_stream *stream,
                                   ashlar_pending_batch *batch) {
    ashlar_status status = ASHLAR_OK;
    ASHLAR_OWNS(&pending->lock);
    ASHLAR_CHECK2(!batch->is_recorded && batch->block_count > 0 && !stream->is_forgotten);
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
    ASHLAR_OWNS(&pending->lock);
    for (unsigned i = 0; i < batch->block_count; i++) {
        ashlar_pinned_block *block = batch->blocks[i];
        ASHLAR_CHECK2(block->wait_count > 0);
        if (--block->wait_count == 0) {
            ASHLAR_CHECK2(block->bytes <= pending->pending_bytes);
            pending->pending_bytes -= block->bytes;
            pending->released_count++;
            push_released(released, block);
        }
    }
    ASHLAR_CHECK2(pending->released_count <= pending->deferred_count);
    batch->is_over = true;
    if (batch->waiter_count == 0) {
        spare_batch_locked(pending, batch); /* otherwise the last waiter frees the batch */
    }
}

/* ---- adding ---- */

static ashlar_pending_stream *find_stream_locked(const ashlar_pending *pending,
                                                 ashlar_stream handle) {
    ASHLAR_OWNS(&pending->lock);
    ashlar_pending_stream *stream = pending->streams;
    while (stream != NULL && (stream->stream != handle || stream->is_forgotten)) {
        stream = stream->next;
    }
    return stream;
}

/* Provide an open batch with room for `handle`'s next block. The batch may stay empty. */
static bool make_room_locked(ashlar_pending *pending, ashlar_stream handle) {
    ASHLAR_OWNS(&pending->lock);
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
    ASHLAR_OWNS(&pending->lock);
    const ashlar_pending_stream *stream = find_stream_locked(pending, handle);
    ashlar_pending_batch *batch = stream->last;
    ASHLAR_CHECK2(!batch->is_recorded && batch->block_count < BATCH_BLOCKS);
    batch->blocks[batch->block_count++] = block;
    batch->bytes += block->bytes;
    block->wait_count++;
    if (batch->block_count == BATCH_BLOCKS || batch->bytes >= BATCH_BYTES) {
        /* If this fails, the next poll tries again. */
        (void)record_locked(pending, stream, batch);
    }
}

static ashlar_status add_locked(ashlar_pending *pending, ashlar_block_table *table, const void *ptr,
                                const ashlar_stream *streams, size_t count) {
    ASHLAR_OWNS(&pending->lock);
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
    ASHLAR_CHECK2(block->wait_count > 0 && block->wait_count <= count);
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
    ashlar__lock_acquire(&pending->lock);
    const ashlar_status status = add_locked(pending, table, ptr, streams, count);
    ashlar__lock_release(&pending->lock);
    return status;
}

/* ---- completion ---- */

/* Release completed batches. A stream's batches complete in order, so stop at an incomplete one. */
static ashlar_status poll_stream_locked(ashlar_pending *pending, ashlar_pending_stream *stream,
                                        ashlar_pinned_block **released) {
    ASHLAR_OWNS(&pending->lock);
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
    ashlar__lock_acquire(&pending->lock);
    ashlar_pending_stream **link = &pending->streams;
    while (*link != NULL) {
        ashlar_pending_stream *stream = *link;
        const ashlar_status status = poll_stream_locked(pending, stream, released);
        if (stream->last != NULL && !stream->last->is_recorded && stream->last->block_count > 0) {
            (void)record_locked(pending, stream, stream->last);
        }
        worst = status != ASHLAR_OK ? status : worst;
        if (stream->first == NULL) {
            *link = stream->next; /* otherwise the entries of streams that come and go would pile
                                     up */
            ashlar__host_free(stream);
        } else {
            link = &stream->next;
        }
    }
    ashlar__lock_release(&pending->lock);
    return worst;
}

static ashlar_pending_batch *oldest_recorded_locked(const ashlar_pending *pending) {
    ASHLAR_OWNS(&pending->lock);
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
    ashlar__lock_acquire(&pending->lock);
    ashlar_pending_batch *batch = oldest_recorded_locked(pending);
    ashlar_status status = ASHLAR_OK;
    *is_any = batch != NULL;
    if (batch != NULL) {
        batch->waiter_count++; /* so that the event is not reused meanwhile */
        pending->host_waits++;
        ashlar__lock_release(&pending->lock);
        status = ashlar_event_synchronize(pending->device, batch->event);
        ashlar__lock_acquire(&pending->lock);
        ASHLAR_CHECK2(batch->waiter_count > 0 && batch->is_recorded);
        batch->waiter_count--;
        if (batch->is_over && batch->waiter_count == 0) {
            spare_batch_locked(pending, batch);
        }
    }
    ashlar__lock_release(&pending->lock);
    return status;
}

ashlar_status ashlar__pending_forget_stream(ashlar_pending *pending, ashlar_stream handle) {
    ashlar_status status = ASHLAR_OK;
    ashlar__lock_acquire(&pending->lock);
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
    ashlar__lock_release(&pending->lock);
    return status;
}

/* ---- life ---- */

void ashlar__pending_init(ashlar_pending *pending) {
    ASHLAR_CHECK2(pending->streams == NULL && pending->spares == NULL);
    ashlar__lock_init(&pending->lock, ASHLAR_RANK_PINNED_PENDING);
}

void ashlar__pending_drop_spares(ashlar_pending *pending) {
    ashlar__lock_acquire(&pending->lock);
    while (pending->spares != NULL) {
        ashlar_pending_batch *batch = pending->spares;
        pending->spares = batch->next;
        ashlar_event_destroy(pending->device, batch->event);
        ashlar__host_free(batch);
    }
    ashlar__lock_release(&pending->lock);
}

/* If no event can be recorded any more, wait for the stream itself. */
static void finish_stream_locked(ashlar_pending *pending, ashlar_pending_stream *stream,
                          ashlar_pinned_block **released) {
    ASHLAR_OWNS(&pending->lock);
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
        (void)status; /* the device is lost: nothing more can be done */
        unlink_first(stream);
        release_batch_locked(pending, batch, released);
    }
}

void ashlar__pending_finish(ashlar_pending *pending) {
    ashlar_pinned_block *released = NULL;
    ashlar__lock_acquire(&pending->lock);
    while (pending->streams != NULL) {
        ashlar_pending_stream *stream = pending->streams;
        pending->streams = stream->next;
        finish_stream_locked(pending, stream, &released);
        ashlar__host_free(stream);
    }
    ASHLAR_CHECK2(pending->pending_bytes == 0);
    ASHLAR_CHECK2(pending->released_count == pending->deferred_count);
    ashlar__lock_release(&pending->lock);
    while (released != NULL) {
        ashlar_pinned_block *block = released;
        released = block->next;
        ashlar__host_free(block);
    }
    ashlar__pending_drop_spares(pending);
    ashlar__lock_finish(&pending->lock);
}

/* ---- counters ---- */

void ashlar__pending_lock(ashlar_pending *pending) {
    ashlar__lock_acquire(&pending->lock);
}

void ashlar__pending_read_locked(const ashlar_pending *pending, ashlar_pinned_stats *stats) {
    ASHLAR_OWNS(&pending->lock);
    stats->pending_bytes = pending->pending_bytes;
    stats->pending_blocks = pending->deferred_count - pending->released_count;
    stats->deferred_count = pending->deferred_count;
    stats->released_count = pending->released_count;
    stats->events_recorded = pending->events_recorded;
    stats->host_waits = pending->host_waits;
}

void ashlar__pending_unlock(ashlar_pending *pending) {
    ashlar__lock_release(&pending->lock);
}
