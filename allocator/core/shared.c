#include "allocator/core/shared.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/plan/region.h"

static ashlar_use *find_use(ashlar_block *block, const ashlar_order *order) {
    ashlar_use *use = ashlar_block_is_shared(block) ? block->uses : NULL;
    while (use != NULL && use->order != order) {
        use = use->next;
    }
    return use;
}

static void drop_use(ashlar_use **link) {
    ashlar_use *use = *link;
    *link = use->next;
    ashlar_host_free(use);
}

static ashlar_use *new_use(ashlar_order *order, ashlar_use *next) {
    ashlar_use *use = ashlar_host_calloc(1, sizeof *use);
    if (use != NULL) {
        use->order = order;
        use->next = next;
    }
    return use;
}

/* ---- marking ---- */

/* Room for the freeing stream's own use comes with the first mark, so that a free cannot fail. */
ashlar_status ashlar_shared_add_use_locked(ashlar_block *block, ashlar_order *order) {
    if (find_use(block, order) != NULL) {
        return ASHLAR_OK;
    }
    ashlar_use *own = ashlar_block_is_shared(block) ? NULL : new_use(block->order, NULL);
    ashlar_use *use = ashlar_block_is_shared(block) || own != NULL ? new_use(order, NULL) : NULL;
    if (use == NULL) {
        ashlar_host_free(own);
        return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory for a further stream of a block");
    }
    use->next = ashlar_block_is_shared(block) ? block->uses : own;
    block->uses = use;
    block->marks |= ASHLAR_BLOCK_SHARED;
    return ASHLAR_OK;
}

/* ---- freeing ---- */

void ashlar_shared_put_locked(ashlar_allocator *a, ashlar_block *block, ashlar_order *order) {
    ASHLAR_ASSERT(ashlar_block_is_shared(block) && ashlar_block_live_bytes(block) == 0);
    if (find_use(block, order) == NULL) {
        /* Freed on a stream that was not marked: its use comes after the first stream's. */
        ashlar_use *of_home = find_use(block, block->order);
        ASHLAR_ASSERT(of_home != NULL);
        of_home->order = order;
    }
    for (ashlar_use *use = block->uses; use != NULL; use = use->next) {
        use->tick = ashlar_order_stamp(use->order);
    }
    block->order = order;
    block->older = a->shared;
    a->shared = block;
    a->shared_bytes += block->bytes;
}

/* Forget the uses that are past. True: one is left, or none. */
static bool is_settled(ashlar_block *block) {
    for (ashlar_use **link = &block->uses; *link != NULL;) {
        if (ashlar_order_is_past((*link)->order, (*link)->tick)) {
            drop_use(link);
        } else {
            link = &(*link)->next;
        }
    }
    const ashlar_use *left = block->uses;
    /* A seat is its region's stream's: no other may have it next. */
    return left == NULL ||
           (left->next == NULL &&
            (!ashlar_block_is_seat(block) || left->order == block->prev->order));
}

/* Give a block to the heap, last used on `order`; NULL: by nobody who may not be done. */
static void release(ashlar_allocator *a, ashlar_block **link, ashlar_order *order) {
    ashlar_block *block = *link;
    *link = block->older;
    a->shared_bytes -= block->bytes;
    while (block->uses != NULL) {
        drop_use(&block->uses);
    }
    block->marks &= (unsigned char)~ASHLAR_BLOCK_SHARED;
    if (ashlar_block_is_seat(block)) {
        block->order = block->prev->order;
        ashlar_seat_vacate(block);
    } else if (order != NULL) {
        ashlar_release_block_locked(&a->heap, block, order);
    } else {
        ashlar_heap_put(&a->heap, block, NULL, 0);
    }
}

bool ashlar_shared_settle_locked(ashlar_allocator *a) {
    bool is_any = false;
    for (ashlar_block **link = &a->shared; *link != NULL;) {
        if (is_settled(*link)) {
            release(a, link, (*link)->uses != NULL ? (*link)->uses->order : NULL);
            is_any = true;
        } else {
            link = &(*link)->older;
        }
    }
    return is_any;
}

void ashlar_shared_drop_uses_locked(ashlar_block *block) {
    while (ashlar_block_is_shared(block) && block->uses != NULL) {
        drop_use(&block->uses);
    }
}

/* ---- asking and waiting ---- */

/* A use that an event can be recorded for, or has been: not of a stream that is being captured. */
static ashlar_status cover(ashlar_allocator *a, const ashlar_use *use) {
    return ashlar_order_cover(use->order, &a->caller, use->tick, &a->stats.events_recorded);
}

static bool is_open(const ashlar_allocator *a, const ashlar_block *block) {
    for (const ashlar_use *use = block->uses; use != NULL; use = use->next) {
        if (ashlar_order_is_closed(use->order, &a->caller)) {
            return false;
        }
    }
    return true;
}

/* Ask about every use of a block, but for those by `but`. */
static ashlar_status ask(ashlar_allocator *a, const ashlar_block *block, const ashlar_order *but) {
    ashlar_status status = ASHLAR_OK;
    for (const ashlar_use *use = block->uses; use != NULL && status == ASHLAR_OK;
         use = use->next) {
        if (use->order != but) {
            status =
                ashlar_order_ask(use->order, &a->caller, use->tick, &a->stats.events_recorded);
        }
    }
    return status;
}

ashlar_status ashlar_shared_query_locked(ashlar_allocator *a, size_t bytes) {
    ashlar_status status = ASHLAR_OK;
    for (const ashlar_block *block = a->shared; block != NULL && status == ASHLAR_OK;
         block = block->older) {
        if (block->bytes >= bytes && is_open(a, block)) {
            status = ask(a, block, NULL);
        }
    }
    return status;
}

ashlar_status ashlar_shared_return_seats_locked(ashlar_allocator *a) {
    ashlar_status status = ASHLAR_OK;
    bool is_any = false;
    for (const ashlar_block *block = a->shared; block != NULL && status == ASHLAR_OK;
         block = block->older) {
        if (ashlar_block_is_seat(block) && is_open(a, block)) {
            is_any = true;
            status = ask(a, block, block->prev->order);
        }
    }
    if (is_any) {
        ashlar_shared_settle_locked(a);
    }
    return status;
}

ashlar_status ashlar_shared_wait_locked(ashlar_allocator *a, ashlar_order *order, size_t bytes,
                                        bool *found) {
    ashlar_block **best = NULL;
    for (ashlar_block **link = &a->shared; *link != NULL; link = &(*link)->older) {
        if ((*link)->bytes >= bytes && is_open(a, *link) && !ashlar_block_is_seat(*link) &&
            (best == NULL || (*link)->bytes < (*best)->bytes)) {
            best = link;
        }
    }
    *found = false;
    if (best == NULL) {
        return ASHLAR_OK;
    }
    for (const ashlar_use *use = (*best)->uses; use != NULL; use = use->next) {
        ashlar_status status = use->order == order ? ASHLAR_OK : cover(a, use);
        if (status == ASHLAR_OK && use->order != order) {
            status = ashlar_order_wait_on(use->order, &a->caller, order->stream);
        }
        if (status != ASHLAR_OK) {
            return status;
        }
    }
    release(a, best, order);
    *found = true;
    return ASHLAR_OK;
}

ashlar_status ashlar_shared_join_locked(ashlar_allocator *a, ashlar_block *block,
                                        ashlar_order *order) {
    while (ashlar_block_is_shared(block) && block->uses != NULL) {
        ashlar_use *use = block->uses;
        if (use->order != order) {
            use->tick = ashlar_order_stamp(use->order);
            ashlar_status status = cover(a, use);
            if (status == ASHLAR_OK) {
                status = ashlar_order_wait_on(use->order, &a->caller, order->stream);
            }
            if (status != ASHLAR_OK) {
                return status;
            }
        }
        drop_use(&block->uses);
    }
    block->marks &= (unsigned char)~ASHLAR_BLOCK_SHARED;
    return ASHLAR_OK;
}

ashlar_status ashlar_shared_cover_locked(ashlar_allocator *a) {
    ashlar_status status = ASHLAR_OK;
    for (const ashlar_block *block = a->shared; block != NULL; block = block->older) {
        for (const ashlar_use *use = is_open(a, block) ? block->uses : NULL;
             use != NULL && status == ASHLAR_OK; use = use->next) {
            status = cover(a, use);
        }
    }
    return status;
}

bool ashlar_shared_waits_for_locked(const ashlar_allocator *a, const ashlar_order *order) {
    for (const ashlar_block *block = a->shared; block != NULL; block = block->older) {
        for (const ashlar_use *use = block->uses; use != NULL; use = use->next) {
            if (use->order == order && !ashlar_order_is_past(order, use->tick)) {
                return true;
            }
        }
    }
    return false;
}

static void rehome(ashlar_block *block, const ashlar_order *from, ashlar_order *to) {
    const bool is_freed = ashlar_block_live_bytes(block) == 0;
    ashlar_use *moved = find_use(block, from), *there = find_use(block, to);
    if (moved == NULL) {
        return;
    }
    if (there == NULL) {
        moved->order = to;
        there = moved;
    } else {
        ashlar_use **link = &block->uses;
        while (*link != moved) {
            link = &(*link)->next;
        }
        drop_use(link);
    }
    there->tick = is_freed ? ashlar_order_stamp(to) : 0;
}

void ashlar_shared_rehome_locked(ashlar_allocator *a, const ashlar_order *from, ashlar_order *to) {
    for (ashlar_block *block = a->heap.first; block != NULL; block = ashlar_block_after(block)) {
        rehome(block, from, to);
    }
}

void ashlar_shared_finish(ashlar_allocator *a) {
    for (ashlar_block *block = a->heap.first; block != NULL; block = ashlar_block_after(block)) {
        ashlar_shared_drop_uses_locked(block);
    }
}
