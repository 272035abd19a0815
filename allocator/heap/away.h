/*
 * away.h - blocks that were freed while streams other than their home may still use them
 * (internal).
 *
 * A block's home is the stream in whose zone, or plan memory, the block lies. A block that only its
 * home uses returns to a gap when it is freed. Other streams use a block if it was marked by
 * ashlar_record_stream(), freed on another stream or borrowed. Such a block is away after its free:
 * it keeps a stamp for each of these uses, and goes home when all of them are past. An event is
 * recorded behind each use, at the free or, if many small blocks share the event, later. A gap
 * never has a stamp of another stream, so it merges with the gaps beside it at once.
 *
 * Each stream has a queue of the blocks that wait for it, in the order of their frees, which is the
 * order in which its events complete. A block waits in the queue of its first use, then in that of
 * the next one. So a free, a request or a query to the driver costs no more if many blocks are
 * away.
 *
 * Invariants (ashlar__away_check):
 *   away_bytes == sum of the blocks in all queues
 *   a block in the queue of a stream: not live, marked SHARED, uses->stream_state == that stream
 *   away_count of a stream == blocks in all queues whose home it is
 *   a stream whose queue is not empty is in the heap's list `awaited`
 */
#ifndef ASHLAR_AWAY_H
#define ASHLAR_AWAY_H

#include "allocator/heap/heap.h"

/* The stream to which a block finally returns. */
static inline ashlar_stream_state *ashlar__block_home(const ashlar_block *block) {
    return ashlar__block_is_of_slot(block) ? block->prev->stream_state : block->window->zone->owner;
}

/* Note that a live block is used by a stream other than the one that it was taken for. This may be
 * the block's home. Errors: ASHLAR_EHOSTMEM. */
ASHLAR_MUST_CHECK ashlar_status ashlar__away_add_use(ashlar_heap *heap, ashlar_block *block,
                                                     ashlar_stream_state *state);

/*
 * Like ashlar__away_add_use(), but also for the stream in whose zone the block lies: for a free
 * that does not stamp the block's home.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__away_add_any_use(ashlar_heap *heap, ashlar_block *block,
                                                         ashlar_stream_state *state);

/* The use of a block by a stream, or NULL. */
ashlar_use *ashlar__away_find_use(const ashlar_block *block, const ashlar_stream_state *state);

/* Forget all uses of a block that is in no queue; then the block is no longer SHARED. */
void ashlar__away_drop_uses(ashlar_heap *heap, ashlar_block *block);

/*
 * Free a used block. `state`: the stream of the free; all work on this stream that uses the block
 * has been queued. If only its home uses the block, it goes home at once. Otherwise an event is
 * recorded behind each use, at once or together with further blocks, and the block goes home when
 * all uses are past. Cannot fail.
 */
void ashlar__release_block_locked(ashlar_heap *heap, ashlar_block *block,
                                  ashlar_stream_state *state);

/*
 * Like ashlar__release_block_locked(), for a block whose uses by streams other than `state` were
 * stamped when they ended.
 */
void ashlar__release_stamped_locked(ashlar_heap *heap, ashlar_block *block,
                                    ashlar_stream_state *state);

/* Like ashlar__release_block_locked(), with an event behind the free, if one can be recorded. */
void ashlar__release_covered_locked(ashlar_heap *heap, ashlar_block *block,
                                    ashlar_stream_state *state);

/*
 * Like ashlar__release_block_locked(), for a block that only its home uses. The thread whose cache
 * holds the stream needs no lock for this, unless the heap is short of memory.
 */
void ashlar__release_own_block(ashlar_heap *heap, ashlar_block *block);

/* Send home the blocks whose uses are known to be past. True: at least one went home. */
bool ashlar__away_settle(ashlar_heap *heap);

/*
 * Ask the driver about at most `count` of the streams that blocks wait for, and send home the
 * blocks whose uses are past. Errors: ASHLAR_EDRIVER.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__away_ask(ashlar_heap *heap, size_t count);

/*
 * Take a block of exactly `bytes` bytes that was freed on `state` and waits for no other stream, so
 * that it can serve `state` again at once. NULL: none among the oldest few blocks fits.
 */
ashlar_block *ashlar__away_take_own(ashlar_heap *heap, ashlar_stream_state *state, size_t bytes);

/* Take a block out of its queue, without its uses: the caller has noted them elsewhere. O(blocks in
 * the queue). */
void ashlar__away_take_out(ashlar_heap *heap, ashlar_block *block);

/*
 * Send home one block that is away from `state` and has at least `bytes` bytes, and let `state`
 * wait in-stream for that block's uses. *found: whether there was such a block.
 *
 * prompt   only if each wait is for no work that was queued after the block was freed
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__away_wait(ashlar_heap *heap, ashlar_stream_state *state,
                                                  size_t bytes, bool prompt, bool *found);

/*
 * Send every block home without a wait on the host: its home waits in-stream for uses that are not
 * known to be past. A block stays away if its home has ended, or if no event can be recorded now on
 * the stream of its home or of a use. Errors: ASHLAR_EDRIVER.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__away_bring_home(ashlar_heap *heap);

/*
 * Have `state` wait in-stream for the uses of a block that is in no queue, and forget them.
 * *is_joined false: no event can be recorded now on one of the streams; then nothing has changed.
 * Errors: ASHLAR_EDRIVER, ASHLAR_EINVAL (`state` is captured); then the uses stay noted.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__away_join(ashlar_heap *heap, ashlar_stream_state *state,
                                                  ashlar_block *block, bool *is_joined);

/* Try to have an event recorded behind each use of a block. */
void ashlar__away_try_cover(ashlar_heap *heap, const ashlar_block *block);

/* Record events behind all uses that blocks wait for. */
ASHLAR_MUST_CHECK ashlar_status ashlar__away_cover(ashlar_heap *heap);

/* Make the blocks that wait for `from` wait instead for the work of `to` up to now. */
void ashlar__away_move_queue(ashlar_heap *heap, ashlar_stream_state *from, ashlar_stream_state *to);

/* Check the invariants above. Errors: ASHLAR_EFORMAT, naming the broken one. O(blocks away). */
ASHLAR_MUST_CHECK ashlar_status ashlar__away_check(const ashlar_heap *heap);

#endif /* ASHLAR_AWAY_H */
