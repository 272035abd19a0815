/* cross_stream.c - queues of freed blocks that streams other than their owner may still use. */
#include "allocator/heap/heap.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

/* The number of blocks of a queue that one request examines. */
enum { LOOKED_AT = 16 };

/* ---- uses ---- */

ashlar_use *ashlar__cross_find_use(const ashlar_block *block, const ashlar_stream_state *state) {
    ashlar_use *use = ashlar__block_is_shared(block) ? block->uses : NULL;
    while (use != NULL && use->stream_state != state) {
        use = use->next;
    }
    return use;
}

static void drop_use(ashlar_heap *heap, ashlar_block *block, ashlar_use **link) {
    ashlar_use *use = *link;
    *link = use->next;
    if (use == &block->own_use) {
        use->stream_state = NULL;
    } else {
        use->next = heap->spare_uses;
        heap->spare_uses = use;
    }
}

static void add_use(ashlar_block *block, ashlar_use *use, ashlar_stream_state *state) {
    use->stream_state = state;
    use->tick = 0;
    use->next = ashlar__block_is_shared(block) ? block->uses : NULL;
    block->uses = use;
    block->marks |= ASHLAR_BLOCK_SHARED;
}

ashlar_status ashlar__cross_add_use(ashlar_heap *heap, ashlar_block *block,
                                    ashlar_stream_state *state) {
    ASHLAR_CHECK2(block->state == ASHLAR_BLOCK_USED && ashlar__block_live_bytes(block) > 0);
    /* A use by the owner counts, too, if the block was taken for another stream: one that borrowed
     * it, or that owned its zone until that stream ended. Without this, the stream that frees the
     * block could get it back while the owner still uses it. */
    const bool is_own = ashlar__block_owner(block) == state && block->stream_state == state;
    return is_own ? ASHLAR_OK : ashlar__cross_add_any_use(heap, block, state);
}

ashlar_status ashlar__cross_add_any_use(ashlar_heap *heap, ashlar_block *block,
                                        ashlar_stream_state *state) {
    if (ashlar__cross_find_use(block, state) != NULL) {
        return ASHLAR_OK;
    }
    /* Do not take the block's own_use, which is kept for the stream of the free. */
    ashlar_use *use = heap->spare_uses;
    if (use == NULL) {
        ASHLAR_HOST_NEW(use, 1, "no host memory for a further stream of a block");
    } else {
        heap->spare_uses = use->next;
    }
    add_use(block, use, state);
    return ASHLAR_OK;
}

void ashlar__cross_drop_uses(ashlar_heap *heap, ashlar_block *block) {
    while (ashlar__block_is_shared(block) && block->uses != NULL) {
        drop_use(heap, block, &block->uses);
    }
    block->marks &= (unsigned char)~ASHLAR_BLOCK_SHARED;
}

/* ---- queues ---- */

static void enlist(ashlar_heap *heap, ashlar_stream_state *user) {
    if (!user->is_awaited) {
        user->is_awaited = true;
        user->next_awaited = NULL;
        *(heap->awaited != NULL ? &heap->awaited_end->next_awaited : &heap->awaited) = user;
        heap->awaited_end = user;
    }
}

/* Take a stream out of the list of awaited ones. Returns the link that pointed to `user`, and now
 * points to the next stream. */
static ashlar_stream_state **delist(ashlar_heap *heap, ashlar_stream_state *user) {
    ASHLAR_CHECK2(user->is_awaited && user->oldest_cross == NULL);
    ashlar_stream_state **at = &heap->awaited, *before = NULL;
    while (*at != user) {
        before = *at;
        at = &before->next_awaited;
    }
    *at = user->next_awaited;
    heap->awaited_end = heap->awaited_end == user ? before : heap->awaited_end;
    user->is_awaited = false;
    return at;
}

/* Append a block to the queue of the stream of its first use. */
static void enqueue(ashlar_heap *heap, ashlar_block *block) {
    ashlar_stream_state *user = block->uses->stream_state;
    ASHLAR_CHECK2(ashlar__block_is_shared(block) && ashlar__block_live_bytes(block) == 0);
    block->older = NULL;
    *(user->oldest_cross == NULL ? &user->oldest_cross : &user->newest_cross->older) = block;
    user->newest_cross = block;
    enlist(heap, user);
}

/* Take the block at *link out of a queue; `before` is the block before it, or NULL. */
static ashlar_block *dequeue(ashlar_stream_state *user, ashlar_block **link, ashlar_block *before) {
    ashlar_block *block = *link;
    *link = block->older;
    user->newest_cross = user->newest_cross == block ? before : user->newest_cross;
    return block;
}

/* Take a block that has left its queue off the counts of cross-stream blocks. */
static void uncount(ashlar_heap *heap, const ashlar_block *block) {
    ashlar_stream_state *owner = ashlar__block_owner(block);
    ASHLAR_CHECK2(owner->cross_count > 0 && heap->cross_bytes >= block->bytes);
    heap->cross_bytes -= block->bytes;
    owner->cross_count--;
}

/* Return a block that is in no queue and has no use left: to a gap, or to its plan's memory. */
static void return_block(ashlar_heap *heap, ashlar_block *block) {
    ASHLAR_CHECK2(block->uses == NULL);
    uncount(heap, block);
    block->marks &= (unsigned char)~ASHLAR_BLOCK_SHARED;
    if (ashlar__block_is_of_slot(block)) {
        block->stream_state = ashlar__block_owner(block);
        atomic_store_explicit(&block->taken, 0, memory_order_release);
    } else {
        ashlar__heap_put_stamped(heap, block, block->covered_by);
    }
}

/* Forget the uses of a block that are past. True: none is left. */
static bool drop_past_uses(ashlar_heap *heap, ashlar_block *block) {
    for (ashlar_use **link = &block->uses; *link != NULL;) {
        if (ashlar__stream_state_is_past((*link)->stream_state, (*link)->tick)) {
            drop_use(heap, block, link);
        } else {
            link = &(*link)->next;
        }
    }
    return block->uses == NULL;
}

/* Take the blocks that are done with this stream from the front of its queue. Those that wait for
 * another stream go to its queue, the others return. True: at least one returned. */
static bool settle_queue(ashlar_heap *heap, ashlar_stream_state *user) {
    bool is_any = false;
    while (user->oldest_cross != NULL &&
           ashlar__stream_state_is_past(user, user->oldest_cross->uses->tick)) {
        ashlar_block *block = dequeue(user, &user->oldest_cross, NULL);
        if (drop_past_uses(heap, block)) {
            return_block(heap, block);
            is_any = true;
        } else {
            enqueue(heap, block);
        }
    }
    return is_any;
}

bool ashlar__cross_settle(ashlar_heap *heap) {
    bool is_any = false;
    for (ashlar_stream_state **link = &heap->awaited; *link != NULL;) {
        ashlar_stream_state *user = *link;
        is_any |= settle_queue(heap, user);
        link = user->oldest_cross == NULL ? delist(heap, user) : &user->next_awaited;
    }
    return is_any;
}

/* ---- freeing ---- */

/* Record an event behind a use. *is_covered false: none can be recorded now. */
static ashlar_status cover(ashlar_heap *heap, const ashlar_use *use, bool *is_covered) {
    return ashlar__stream_state_try_cover(use->stream_state, heap->range.client, use->tick,
                                          heap->events_recorded, is_covered);
}

/* Try to record an event behind a use. If that fails, a request that wants the memory records
 * it. */
static void try_cover(ashlar_heap *heap, const ashlar_use *use) {
    bool unused;
    if (!heap->is_settling && !ashlar__stream_state_is_past(use->stream_state, use->tick)) {
        ASHLAR_IGNORE(cover(heap, use, &unused));
    }
}

/* Small blocks share events: one event follows after this many frees, or bytes. A request that
 * wants such a block earlier records the event itself. It can do that only on a stream that is
 * known to be alive and that its thread can name, so if streams are watched, or on a thread's
 * default stream, each free records an event. */
enum { BATCH_BLOCKS = 32 };
#define BATCH_BYTES ASHLAR_SC_MAX_BYTES

/* Whether to record an event now, behind a use of `bytes` bytes that was just stamped. */
static bool is_batch_full(const ashlar_heap *heap, const ashlar_use *use, size_t bytes) {
    ashlar_stream_state *user = use->stream_state;
    ashlar_use_batch *batch = &user->batch;
    if (batch->tick != use->tick) {
        *batch = (ashlar_use_batch){.tick = use->tick};
    }
    batch->count++;
    batch->bytes += bytes;
    return batch->count == BATCH_BLOCKS || batch->bytes > BATCH_BYTES ||
           ashlar__heap_has_waited(heap) || heap->range.client->watches_streams ||
           user->thread != 0;
}

static void stamp_uses(ashlar_heap *heap, ashlar_block *block, bool are_stamped) {
    for (ashlar_use *use = block->uses; use != NULL; use = use->next) {
        if (are_stamped && use != &block->own_use) {
            continue;
        }
        use->tick = ashlar__stream_state_next(use->stream_state) - 1;
        if (is_batch_full(heap, use, block->bytes)) {
            /* A stream given to ashlar_record_stream() lives until the free, so name it now. */
            const bool is_alive = use != &block->own_use;
            use->stream_state->caller_count += is_alive;
            try_cover(heap, use);
            use->stream_state->caller_count -= is_alive;
        }
    }
}

void ashlar__release_own_block(ashlar_heap *heap, ashlar_block *block) {
    ashlar_stream_state *owner = block->window->zone->owner;
    ASHLAR_CHECK2(!ashlar__block_is_shared(block) && !ashlar__block_is_of_slot(block));
    const bool is_large = block->bytes > ASHLAR_SC_MAX_BYTES;
    ashlar__heap_put(heap, block);
    if ((is_large && ashlar__heap_has_waited(heap)) ||
        ashlar__stream_state_is_recorded_at_calls(owner, heap->range.client)) {
        try_cover(heap, &(ashlar_use){.stream_state = owner, .tick = owner->last_tick});
    }
}

static void release_locked(ashlar_heap *heap, ashlar_block *block, ashlar_stream_state *state,
                           bool are_stamped) {
    ashlar_stream_state *owner = ashlar__block_owner(block);
    ASHLAR_CHECK2(block->state == ASHLAR_BLOCK_USED && ashlar__stream_state_is_sound(state));
    (void)ashlar__stream_state_next(state);
    state->last_used = ashlar__heap_count_use(heap);
    if (state != owner && ashlar__cross_find_use(block, state) == NULL) {
        ASHLAR_ASSERT(block->own_use.stream_state == NULL);
        add_use(block, &block->own_use, state);
    }
    if (!ashlar__block_is_shared(block)) {
        ashlar__release_own_block(heap, block);
        return;
    }
    stamp_uses(heap, block, are_stamped);
    /* A borrowed block waits for no work of its owner but the uses noted in `uses`. Nor does one
     * whose owner is silent: it was freed on `state`, whose work comes behind the owner's, and the
     * owner may never get an event again. Else the owner's work up to now is stamped, too. */
    const bool is_apart = (block->marks & ASHLAR_BLOCK_BORROWED) != 0 ||
                          ashlar__stream_state_is_silent(owner, heap->range.client);
    block->covered_by =
        is_apart && state != owner && !owner->is_pool ? 0 : ashlar__stream_state_next(owner);
    block->stream_state = state;
    heap->cross_bytes += block->bytes;
    owner->cross_count++;
    heap->cross_frees++;
    if (drop_past_uses(heap, block)) {
        return_block(heap, block);
    } else {
        enqueue(heap, block);
    }
}

void ashlar__release_block_locked(ashlar_heap *heap, ashlar_block *block,
                                  ashlar_stream_state *state) {
    release_locked(heap, block, state, false);
}

void ashlar__release_covered_locked(ashlar_heap *heap, ashlar_block *block,
                                    ashlar_stream_state *state) {
    release_locked(heap, block, state, false);
    try_cover(heap, &(ashlar_use){.stream_state = state, .tick = state->last_tick});
}

void ashlar__release_stamped_locked(ashlar_heap *heap, ashlar_block *block,
                                    ashlar_stream_state *state) {
    release_locked(heap, block, state, true);
}

/* ---- asking whether streams are done, and waiting for them ---- */

static ashlar_status ask(ashlar_heap *heap, ashlar_stream_state *user) {
    if (user->oldest_cross == NULL || ashlar__stream_state_is_past(user, user->last_tick)) {
        return ASHLAR_OK;
    }
    /* There may be no event behind the newest use yet. One recorded now would complete later, so
     * ask first whether the stream is idle. */
    return user->newest_cross->uses->tick < user->recorded
               ? ashlar__stream_state_ask(user, heap->range.client, user->last_tick,
                                          heap->events_recorded)
               : ashlar__stream_state_ask_idle(user, heap->range.client, heap->events_recorded);
}

ashlar_status ashlar__cross_ask(ashlar_heap *heap, size_t count) {
    ashlar_status status = ASHLAR_OK;
    ashlar_stream_state *user = heap->awaited, *asked = NULL;
    for (; count > 0 && user != NULL && status == ASHLAR_OK; count--) {
        status = ask(heap, user);
        /* A block that moves on to another stream's queue is examined there in a later round. */
        (void)settle_queue(heap, user);
        asked = user;
        user = user->next_awaited;
    }
    if (user != NULL && asked != NULL) {
        /* Streams that were not asked this time are the first to be asked next time. */
        heap->awaited_end->next_awaited = heap->awaited;
        heap->awaited_end = asked;
        asked->next_awaited = NULL;
        heap->awaited = user;
    }
    (void)ashlar__cross_settle(heap);
    return status;
}

/* Whether work that is queued on a stream from now on comes behind that of the block's owner. It
 * does where the block was freed on the stream, except that graphs are launched on any stream. */
static bool is_behind_owner(const ashlar_block *block, const ashlar_stream_state *state) {
    const ashlar_stream_state *owner = ashlar__block_owner(block);
    return !owner->is_pool && (owner->released_on == NULL || owner->released_on == state);
}

ashlar_block *ashlar__cross_take_own(ashlar_heap *heap, ashlar_stream_state *state, size_t bytes) {
    ashlar_block *before = NULL;
    ashlar_block **link = &state->oldest_cross;
    for (size_t i = 0; *link != NULL && i < LOOKED_AT; i++) {
        ashlar_block *block = *link;
        /* The only use left is this stream's own, so the stream's later work may have it. */
        if (!ashlar__block_is_of_slot(block) && block->bytes == bytes &&
            is_behind_owner(block, state) && block->uses == &block->own_use &&
            block->own_use.next == NULL) {
            (void)dequeue(state, link, before);
            uncount(heap, block);
            ashlar__cross_drop_uses(heap, block);
            return block;
        }
        before = block;
        link = &block->older;
    }
    return NULL;
}

void ashlar__cross_take_out(ashlar_heap *heap, ashlar_block *block) {
    ashlar_stream_state *user = block->uses->stream_state;
    ashlar_block *before = NULL, **link = &user->oldest_cross;
    while (*link != block) {
        ASHLAR_CHECK2(*link != NULL);
        before = *link;
        link = &before->older;
    }
    (void)dequeue(user, link, before);
    uncount(heap, block);
    ashlar__cross_drop_uses(heap, block);
}

/* Record an event behind each use that has none. *are_covered false: for one it is impossible. */
static ashlar_status cover_uses(ashlar_heap *heap, const ashlar_block *block, bool *are_covered) {
    ashlar_status status = ASHLAR_OK;
    *are_covered = true;
    for (const ashlar_use *use = block->uses; use != NULL && status == ASHLAR_OK && *are_covered;
         use = use->next) {
        status = cover(heap, use, are_covered);
    }
    return status;
}

/* Let the stream of `state` wait in-stream for every use of a block. *are_covered false: no wait
 * was queued, since an event is missing behind some use and cannot be recorded now. */
static ashlar_status wait_for_uses(ashlar_heap *heap, ashlar_stream_state *state,
                                   const ashlar_block *block, bool *are_covered) {
    ashlar_status status = cover_uses(heap, block, are_covered);
    const ashlar_use *use = status == ASHLAR_OK && *are_covered ? block->uses : NULL;
    for (; use != NULL && status == ASHLAR_OK; use = use->next) {
        status = ashlar__stream_state_wait_on(use->stream_state, heap->range.client, state->stream,
                                              use->tick);
    }
    *are_covered = *are_covered && status == ASHLAR_OK;
    return status;
}

ashlar_status ashlar__cross_join(ashlar_heap *heap, ashlar_stream_state *state, ashlar_block *block,
                                 bool *is_joined) {
    *is_joined = true;
    if (!ashlar__block_is_shared(block)) {
        return ASHLAR_OK;
    }
    const ashlar_status status = wait_for_uses(heap, state, block, is_joined);
    if (status == ASHLAR_OK && *is_joined) {
        ashlar__cross_drop_uses(heap, block);
    }
    return status;
}

void ashlar__cross_try_cover(ashlar_heap *heap, const ashlar_block *block) {
    for (ashlar_use *use = ashlar__block_is_shared(block) ? block->uses : NULL; use != NULL;
         use = use->next) {
        try_cover(heap, use);
    }
}

/* Let a block's owner wait in-stream for the block's uses, and return the block. *is_sent false:
 * some use can have no event now, and the block stays in its queue. */
static ashlar_status send_waiting(ashlar_heap *heap, ashlar_stream_state *user, ashlar_block **link,
                                  ashlar_block *before, bool *is_sent) {
    ashlar_stream_state *owner = ashlar__block_owner(*link);
    const ashlar_status status = wait_for_uses(heap, owner, *link, is_sent);
    if (status != ASHLAR_OK || !*is_sent) {
        return status;
    }
    ashlar_block *block = dequeue(user, link, before);
    while (block->uses != NULL) {
        drop_use(heap, block, &block->uses);
    }
    /* The uses may still run, but the owner's later work now comes behind them. */
    block->covered_by = ashlar__stream_state_next(owner);
    return_block(heap, block);
    return ASHLAR_OK;
}

ashlar_status ashlar__cross_return_all(ashlar_heap *heap) {
    ashlar_status status = ASHLAR_OK;
    for (ashlar_stream_state *user = heap->awaited; user != NULL; user = user->next_awaited) {
        ashlar_block *before = NULL, **link = &user->oldest_cross;
        while (*link != NULL && status == ASHLAR_OK) {
            bool is_sent = false;
            if (ashlar__stream_state_can_wait(ashlar__block_owner(*link), heap->range.client)) {
                status = send_waiting(heap, user, link, before, &is_sent);
            }
            if (!is_sent) {
                heap->left_cross++;
                before = *link;
                link = &before->older;
            }
        }
    }
    (void)ashlar__cross_settle(heap);
    return status;
}

static bool is_prompt(const ashlar_block *block) {
    const ashlar_use *use = block->uses;
    while (use != NULL && ashlar__stream_state_is_prompt(use->stream_state, use->tick)) {
        use = use->next;
    }
    return use == NULL;
}

/* Considers only blocks that the stream owns: in another zone's gap the block would have only
 * stamps of that zone's owner, which do not show that `state` has waited. */
ashlar_status ashlar__cross_wait(ashlar_heap *heap, ashlar_stream_state *state, size_t bytes,
                                 bool prompt, bool *found) {
    *found = false;
    for (ashlar_stream_state *user = heap->awaited; user != NULL; user = user->next_awaited) {
        ashlar_block *before = NULL, **link = &user->oldest_cross;
        for (size_t i = 0; *link != NULL && i < LOOKED_AT; i++) {
            ashlar_block *block = *link;
            if (block->bytes >= bytes && !ashlar__block_is_of_slot(block) &&
                ashlar__block_owner(block) == state && (!prompt || is_prompt(block))) {
                const ashlar_status status = send_waiting(heap, user, link, before, found);
                if (status != ASHLAR_OK || *found) {
                    return status;
                }
            }
            before = block;
            link = &block->older;
        }
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__cross_cover(ashlar_heap *heap) {
    bool unused;
    for (const ashlar_stream_state *user = heap->awaited; user != NULL; user = user->next_awaited) {
        for (const ashlar_block *block = user->oldest_cross; block != NULL; block = block->older) {
            for (const ashlar_use *use = block->uses; use != NULL; use = use->next) {
                ASHLAR_TRY(cover(heap, use, &unused));
            }
        }
    }
    return ASHLAR_OK;
}

/* ---- queues that change hands ---- */

void ashlar__cross_move_queue(ashlar_heap *heap, ashlar_stream_state *from,
                              ashlar_stream_state *to) {
    ashlar_block *list = from->oldest_cross;
    from->oldest_cross = from->newest_cross = NULL;
    if (from->is_awaited) {
        delist(heap, from); /* since the caller may delete `from` next */
    }
    while (list != NULL) {
        ashlar_block *block = list;
        list = block->older;
        ashlar_use *there = ashlar__cross_find_use(block, to), *use = block->uses;
        if (ashlar__block_owner(block) == to) {
            block->covered_by = ashlar__stream_state_next(to);
            drop_use(heap, block, &block->uses);
        } else if (there != NULL) {
            drop_use(heap, block, &block->uses);
        } else {
            use->stream_state = to;
            there = use;
        }
        if (there != NULL) {
            there->tick = ashlar__stream_state_next(to) - 1;
        }
        if (block->uses == NULL) {
            return_block(heap, block);
        } else {
            enqueue(heap, block);
        }
    }
}
