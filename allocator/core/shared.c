/*
 * shared.c - blocks that several streams use, from ashlar_record_stream() until they go back to the
 * heap.
 */
#include "allocator/core/shared.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/core/dry_run.h"
#include "allocator/core/note.h"
#include "allocator/core/slow_path.h"
#include "allocator/core/streams.h"
#include "allocator/plan/plan_memory.h"

static ashlar_use *find_use(ashlar_block *block, const ashlar_stream_state *state) {
    ashlar_use *use = ashlar__block_is_shared(block) ? block->uses : NULL;
    while (use != NULL && use->stream_state != state) {
        use = use->next;
    }
    return use;
}

static void drop_use(ashlar_use **link) {
    ashlar_use *use = *link;
    *link = use->next;
    ashlar__host_free(use);
}

static ashlar_use *new_use(ashlar_stream_state *state, ashlar_use *next) {
    ashlar_use *use = ashlar__host_calloc(1, sizeof *use);
    if (use != NULL) {
        use->stream_state = state;
        use->next = next;
    }
    return use;
}

/* ---- marking ---- */

/*
 * The first mark also allocates the use of the block's own stream, so that a free needs no host
 * memory.
 */
ashlar_status ashlar__shared_add_use_locked(ashlar_block *block, ashlar_stream_state *state) {
    ASHLAR_CHECK2(block->state == ASHLAR_BLOCK_USED && ashlar__block_live_bytes(block) > 0);
    if (find_use(block, state) != NULL) {
        return ASHLAR_OK;
    }
    ashlar_use *own = ashlar__block_is_shared(block) ? NULL : new_use(block->stream_state, NULL);
    ashlar_use *use = ashlar__block_is_shared(block) || own != NULL ? new_use(state, NULL) : NULL;
    if (use == NULL) {
        ashlar__host_free(own);
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a further stream of a block");
    }
    use->next = ashlar__block_is_shared(block) ? block->uses : own;
    block->uses = use;
    block->marks |= ASHLAR_BLOCK_SHARED;
    ASHLAR_CHECK2(use->next != NULL); /* at least two uses: by the block's own stream, and this */
    return ASHLAR_OK;
}

/* ---- freeing ---- */

void ashlar__shared_put_locked(ashlar_allocator *a, ashlar_block *block,
                               ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    ASHLAR_ASSERT(ashlar__block_is_shared(block) && ashlar__block_live_bytes(block) == 0);
    if (find_use(block, state) == NULL) {
        /*
         * The block is freed on a stream that was not marked, whose work then comes after the work
         * of the block's own stream: one use stands for both.
         */
        ashlar_use *of_home = find_use(block, block->stream_state);
        ASHLAR_ASSERT(of_home != NULL);
        of_home->stream_state = state;
    }
    for (ashlar_use *use = block->uses; use != NULL; use = use->next) {
        use->tick = ashlar__stream_state_stamp(use->stream_state);
    }
    ASHLAR_CHECK2(find_use(block, state) != NULL);
    block->stream_state = state;
    block->older = a->shared;
    a->shared = block;
    a->shared_bytes += block->bytes;
}

/* Forget the uses that are past. True: the block may go back to the heap, or to its plan memory. */
static bool settle(ashlar_block *block) {
    for (ashlar_use **link = &block->uses; *link != NULL;) {
        if (ashlar__stream_state_is_past((*link)->stream_state, (*link)->tick)) {
            drop_use(link);
        } else {
            link = &(*link)->next;
        }
    }
    const ashlar_use *left = block->uses;
    /*
     * A slot block goes back to the stream of its plan memory: only a use by that stream may be
     * left.
     */
    return left == NULL ||
           (left->next == NULL &&
            (!ashlar__block_is_of_slot(block) || left->stream_state == block->prev->stream_state));
}

/*
 * Take a block out of the list, and give it to the heap as last used by `state`, or as idle if
 * `state` is NULL. A slot block goes to its plan memory instead.
 */
static void release(ashlar_allocator *a, ashlar_block **link, ashlar_stream_state *state) {
    ashlar_block *block = *link;
    ASHLAR_CHECK2(ashlar__block_is_shared(block) && ashlar__block_live_bytes(block) == 0);
    ASHLAR_CHECK2(a->shared_bytes >= block->bytes);
    *link = block->older;
    a->shared_bytes -= block->bytes;
    while (block->uses != NULL) {
        drop_use(&block->uses);
    }
    block->marks &= (unsigned char)~ASHLAR_BLOCK_SHARED;
    if (ashlar__block_is_of_slot(block)) {
        block->stream_state = block->prev->stream_state;
        ashlar__slot_block_vacate(block);
    } else if (state != NULL) {
        ashlar__release_block_locked(&a->heap, block, state);
    } else {
        ashlar__heap_put(&a->heap, block, NULL, 0);
    }
}

bool ashlar__shared_settle_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    bool is_any = false;
    for (ashlar_block **link = &a->shared; *link != NULL;) {
        if (settle(*link)) {
            release(a, link, (*link)->uses != NULL ? (*link)->uses->stream_state : NULL);
            is_any = true;
        } else {
            link = &(*link)->older;
        }
    }
    return is_any;
}

void ashlar__shared_drop_uses_locked(ashlar_block *block) {
    while (ashlar__block_is_shared(block) && block->uses != NULL) {
        drop_use(&block->uses);
    }
}

/* ---- asking and waiting ---- */

/* Have an event recorded behind a use. The use's stream must not be in a capture. */
static ashlar_status cover(ashlar_allocator *a, const ashlar_use *use) {
    return ashlar__stream_state_cover(use->stream_state, &a->client, use->tick,
                                      &a->stats.events_recorded);
}

/* Whether events can be recorded on all streams of a block: none of them is being captured. */
static bool is_open(const ashlar_allocator *a, const ashlar_block *block) {
    for (const ashlar_use *use = block->uses; use != NULL; use = use->next) {
        if (ashlar__stream_state_is_closed(use->stream_state, &a->client)) {
            return false;
        }
    }
    return true;
}

/* Ask the driver whether the uses of a block are over, except a use by `but`. */
static ashlar_status ask(ashlar_allocator *a, const ashlar_block *block,
                         const ashlar_stream_state *but) {
    ashlar_status status = ASHLAR_OK;
    for (const ashlar_use *use = block->uses; use != NULL && status == ASHLAR_OK;
         use = use->next) {
        if (use->stream_state != but) {
            status = ashlar__stream_state_ask(use->stream_state, &a->client, use->tick,
                                              &a->stats.events_recorded);
        }
    }
    return status;
}

ashlar_status ashlar__shared_query_locked(ashlar_allocator *a, size_t bytes) {
    ASHLAR_OWNS(&a->lock);
    ashlar_status status = ASHLAR_OK;
    for (const ashlar_block *block = a->shared; block != NULL && status == ASHLAR_OK;
         block = block->older) {
        if (block->bytes >= bytes && is_open(a, block)) {
            status = ask(a, block, NULL);
        }
    }
    return status;
}

ashlar_status ashlar__shared_return_slot_blocks_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    ashlar_status status = ASHLAR_OK;
    bool is_any = false;
    for (const ashlar_block *block = a->shared; block != NULL && status == ASHLAR_OK;
         block = block->older) {
        if (ashlar__block_is_of_slot(block) && is_open(a, block)) {
            is_any = true;
            status = ask(a, block, block->prev->stream_state);
        }
    }
    if (is_any) {
        ashlar__shared_settle_locked(a);
    }
    return status;
}

ashlar_status ashlar__shared_wait_locked(ashlar_allocator *a, ashlar_stream_state *state,
                                         size_t bytes, bool *found) {
    ASHLAR_OWNS(&a->lock);
    ashlar_block **best = NULL;
    for (ashlar_block **link = &a->shared; *link != NULL; link = &(*link)->older) {
        if ((*link)->bytes >= bytes && is_open(a, *link) && !ashlar__block_is_of_slot(*link) &&
            (best == NULL || (*link)->bytes < (*best)->bytes)) {
            best = link;
        }
    }
    *found = false;
    if (best == NULL) {
        return ASHLAR_OK;
    }
    for (const ashlar_use *use = (*best)->uses; use != NULL; use = use->next) {
        ashlar_status status = use->stream_state == state ? ASHLAR_OK : cover(a, use);
        if (status == ASHLAR_OK && use->stream_state != state) {
            status = ashlar__stream_state_wait_on(use->stream_state, &a->client, state->stream);
        }
        if (status != ASHLAR_OK) {
            return status;
        }
    }
    release(a, best, state);
    *found = true;
    return ASHLAR_OK;
}

ashlar_status ashlar__shared_join_locked(ashlar_allocator *a, ashlar_block *block,
                                         ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    while (ashlar__block_is_shared(block) && block->uses != NULL) {
        ashlar_use *use = block->uses;
        if (use->stream_state != state) {
            use->tick = ashlar__stream_state_stamp(use->stream_state);
            ashlar_status status = cover(a, use);
            if (status == ASHLAR_OK) {
                status = ashlar__stream_state_wait_on(use->stream_state, &a->client, state->stream);
            }
            if (status != ASHLAR_OK) {
                return status;
            }
        }
        drop_use(&block->uses);
    }
    ASHLAR_CHECK2(!ashlar__block_is_shared(block) || block->uses == NULL);
    block->marks &= (unsigned char)~ASHLAR_BLOCK_SHARED;
    return ASHLAR_OK;
}

ashlar_status ashlar__shared_cover_locked(ashlar_allocator *a) {
    ASHLAR_OWNS(&a->lock);
    ashlar_status status = ASHLAR_OK;
    for (const ashlar_block *block = a->shared; block != NULL; block = block->older) {
        for (const ashlar_use *use = is_open(a, block) ? block->uses : NULL;
             use != NULL && status == ASHLAR_OK; use = use->next) {
            status = cover(a, use);
        }
    }
    return status;
}

bool ashlar__shared_waits_for_locked(const ashlar_allocator *a, const ashlar_stream_state *state) {
    ASHLAR_OWNS(&a->lock);
    for (const ashlar_block *block = a->shared; block != NULL; block = block->older) {
        for (const ashlar_use *use = block->uses; use != NULL; use = use->next) {
            if (use->stream_state == state && !ashlar__stream_state_is_past(state, use->tick)) {
                return true;
            }
        }
    }
    return false;
}

static void rehome(ashlar_block *block, const ashlar_stream_state *from, ashlar_stream_state *to) {
    const bool is_freed = ashlar__block_live_bytes(block) == 0;
    ASHLAR_CHECK2(from != to);
    ashlar_use *moved = find_use(block, from), *there = find_use(block, to);
    if (moved == NULL) {
        return;
    }
    if (there == NULL) {
        moved->stream_state = to;
        there = moved;
    } else {
        ashlar_use **link = &block->uses;
        while (*link != moved) {
            link = &(*link)->next;
        }
        drop_use(link);
    }
    there->tick = is_freed ? ashlar__stream_state_stamp(to) : 0;
}

void ashlar__shared_rehome_locked(ashlar_allocator *a, const ashlar_stream_state *from,
                                  ashlar_stream_state *to) {
    ASHLAR_OWNS(&a->lock);
    for (ashlar_block *block = a->heap.first; block != NULL; block = ashlar__block_after(block)) {
        rehome(block, from, to);
    }
}

void ashlar__shared_finish(ashlar_allocator *a) {
    for (ashlar_block *block = a->heap.first; block != NULL; block = ashlar__block_after(block)) {
        ashlar__shared_drop_uses_locked(block);
    }
}

/* ---- the public function ---- */

ashlar_status ashlar_record_stream(ashlar_allocator *a, void *ptr, ashlar_stream stream) {
    ashlar_block *block = NULL;
    ashlar_stream_state *state = NULL;
    /* The thread's cache is needed only for an address of a dry run. */
    ashlar_cache *own = (uintptr_t)ptr >= ASHLAR_DRY_RUN_BASE ? ashlar__cache_get(a) : NULL;
    ashlar__lock_acquire(&a->lock);
    if (ashlar__dry_run_has(own, ptr)) {
        const ashlar_status marked = ashlar__dry_run_mark_locked(a, own, ptr, stream);
        ashlar__lock_release(&a->lock);
        return marked;
    }
    ashlar_status status = ashlar__find_live_locked(a, ptr, &block);
    if (status == ASHLAR_OK) {
        status = ashlar__stream_state_of_locked(a, stream, &state);
    }
    if (status == ASHLAR_OK && state != block->stream_state && state->pool != block->stream_state) {
        status = ashlar__shared_add_use_locked(block, state);
        ashlar__step_record_free_locked(a, block, false);
    }
    ashlar__lock_release(&a->lock);
    return status;
}
