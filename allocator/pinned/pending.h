/*
 * pending.h - blocks that were freed while queued work may still use them (internal to
 * ashlar-pinned).
 *
 * A block joins the open batch of each stream that it was freed on. The batch's event is recorded
 * when the batch is full or its memory is wanted, so that one event serves many frees. A block is
 * released when every batch that holds it has completed. Streams are polled one by one, so that a
 * slow stream delays only its own blocks.
 */
#ifndef ASHLAR_PINNED_PENDING_H
#define ASHLAR_PINNED_PENDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/device.h>

#include "allocator/pinned/block_table.h"

enum { BATCH_BLOCKS = 32 };
#define BATCH_BYTES ((size_t)1 << 20)

/*
 * A batch is open (not recorded yet), recorded, over (completed, with waiters), or spare.
 *
 * block_count <= BATCH_BLOCKS;  is_recorded: block_count > 0;  spare: block_count == 0
 */
typedef struct ashlar_pending_batch {
    struct ashlar_pending_batch *next;
    ashlar_event event; /* NULL: not made yet; kept while spare */
    bool is_recorded;
    bool is_over;          /* completed, and kept for its waiters */
    unsigned waiter_count; /* threads waiting for its event */
    uint64_t order;        /* the number of its recording, counted over all streams */
    unsigned block_count;
    size_t bytes;
    ashlar_pinned_block *blocks[BATCH_BLOCKS];
} ashlar_pending_batch;

/* Invariants: (first == NULL) == (last == NULL);  is_forgotten => all batches are recorded. */
typedef struct ashlar_pending_stream {
    struct ashlar_pending_stream *next;
    ashlar_stream stream;
    bool is_forgotten;           /* the handle may name another stream by now */
    ashlar_pending_batch *first; /* oldest */
    ashlar_pending_batch *last;
} ashlar_pending_stream;

/* Invariants: pending_blocks == deferred_count - released_count == blocks in batches, each counted
 * once; block->wait_count == number of batches that hold the block. */
typedef struct ashlar_pending {
    ashlar_device *device; /* const */
    ashlar_lock lock;      /* for all fields below; held during cuEventCreate, -Record, -Query and
                            * -Destroy, which do not wait for the device */
    ashlar_pending_stream *streams;
    ashlar_pending_batch *spares;
    size_t pending_bytes;
    uint64_t deferred_count;
    uint64_t released_count;
    uint64_t events_recorded;
    uint64_t host_waits;
} ashlar_pending;

/* `pending` must be zeroed, except for its constants. */
void ashlar__pending_init(ashlar_pending *pending);

/* Wait until nothing is pending, and free the blocks' records. The caller frees the blocks. */
void ashlar__pending_finish(ashlar_pending *pending);

/* Remove the live block at `ptr` from `table`, and keep it pending until all `streams` (count > 0)
 * have run the work queued so far. Errors: ASHLAR_EPOINTER, ASHLAR_ENOTSUP (the per-thread default
 * stream), ASHLAR_EHOSTMEM; nothing has changed then. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pending_add(ashlar_pending *pending,
                                                    ashlar_block_table *table, const void *ptr,
                                                    const ashlar_stream *streams, size_t count);

/* Record events for open batches, and poll recorded ones. *released, set also on failure, lists the
 * blocks that no work uses any more; they are the caller's. Errors: ASHLAR_EDRIVER, ASHLAR_ENOMEM:
 * an event failed, but all streams were polled. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pending_poll(ashlar_pending *pending,
                                                     ashlar_pinned_block **released);

/* Wait on the host, without the lock, for the event that was recorded first. *is_any: whether there
 * was one. Errors: ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__pending_wait(ashlar_pending *pending, bool *is_any);

/*
 * Record the open batch of `stream`, and forget the handle. Errors: ASHLAR_EDRIVER, ASHLAR_ENOMEM.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__pending_forget_stream(ashlar_pending *pending,
                                                              ashlar_stream stream);

void ashlar__pending_drop_spares(ashlar_pending *pending);

/* Lock the counters, to read them together with others. Lock before the locks of a table. */
void ashlar__pending_lock(ashlar_pending *pending);
void ashlar__pending_read_locked(const ashlar_pending *pending, ashlar_pinned_stats *stats);
void ashlar__pending_unlock(ashlar_pending *pending);

#endif /* ASHLAR_PINNED_PENDING_H */
