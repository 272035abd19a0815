/* planner_memory.c - taking the memory that a stream's plans share, for their slots. */
#include "allocator/step/step.h"

#include <stdlib.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/core/slow_path.h"
#include "allocator/heap/away.h"

/* ---- memory ---- */

/* What the plans of one stream need together. */
typedef struct needs {
    ashlar_stream_state *stream_state;
    size_t bytes;    /* bytes of the largest plan */
    size_t *offsets; /* [count], the slots' offsets: rising, no two equal, < bytes */
    size_t count;
    size_t may_reserve; /* the most that any of their keys' steps made the cache reserve */
} needs;

/* Take a block of the heap. *out stays NULL if it costs too much. */
static ashlar_status take_block_locked(ashlar_allocator *a, ashlar_cache *own, const needs *n,
                                       ashlar_block **out) {
    ASHLAR_OWNS(&a->lock);
    const ashlar_request request = {.stream_state = n->stream_state, .bytes = n->bytes, .own = own};
    ashlar_block *block = NULL;
    if (n->bytes > a->heap.range.memory_bytes) {
        return ashlar__fail(ASHLAR_ENOMEM, "a plan of %zu bytes is more than the device has",
                            n->bytes);
    }
    const ashlar_status status = ashlar__plan_place_locked(a, &request, n->may_reserve, &block);
    ashlar__update_reserved_peak_locked(a);
    if (status == ASHLAR_OK && block != NULL) {
        ASHLAR_CHECK2(block->bytes >= n->bytes);
        block->stream_state = n->stream_state;
        *out = block;
    }
    return status;
}

/* Make a plan memory with a slot block at each offset. The caller adds it to the planner's list.
 * *out stays NULL if it costs too much. Lock: held; may be dropped and taken again meanwhile. */
static ashlar_status create_memory_locked(ashlar_allocator *a, ashlar_cache *own, const needs *n,
                                          ashlar_plan_memory **out) {
    ASHLAR_OWNS(&a->lock);
    ashlar_block *block = NULL;
    ASHLAR_ASSERT(n->count > 0 && n->bytes > 0);
    ashlar_plan_memory *memory = ashlar__plan_memory_new(n->count);
    if (memory == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a plan's memory");
    }
    ashlar_status status = take_block_locked(a, own, n, &block);
    if (status == ASHLAR_OK && block != NULL) {
        status = ashlar__plan_memory_place_locked(memory, &a->heap, block, n->offsets);
        if (status != ASHLAR_OK) {
            ashlar__release_block_locked(&a->heap, block, n->stream_state);
        }
    }
    if (status != ASHLAR_OK || block == NULL) {
        ashlar__plan_memory_free(memory);
        return status;
    }
    ASHLAR_CHECK2(memory->stream_state == n->stream_state && !memory->is_unused);
    *out = memory;
    return ASHLAR_OK;
}

/* ---- what the plans of a stream share ---- */

void ashlar__planner_leave_memory(ashlar_allocator *a, const ashlar_plan *plan) {
    for (uint32_t k = 0; k < plan->stream_count; k++) {
        ashlar_stream_state *state = plan->stream_plans[k].stream_state;
        ashlar_plan_memory *memory = ashlar__planner_memory(&a->planner, state);
        if (memory != NULL) {
            bool is_joined;
            ASHLAR_CHECK2(!memory->is_busy);
            memory->is_unused = true;
            /* Let the stream wait for other streams' uses first, so that the new memory may reuse
             * the old bytes. If it cannot wait, these bytes are kept until the uses are over. */
            ASHLAR_IGNORE(ashlar__away_join(&a->heap, state, memory->block, &is_joined));
        }
    }
    ashlar__planner_tidy_locked(&a->planner, &a->heap);
}

typedef void (*slot_fn)(void *context, ashlar_plan *plan, uint32_t i);

/* Call `visit` for every planned slot on the stream, in all plans. */
static void each_slot(const ashlar_allocator *a, const ashlar_stream_state *state, slot_fn visit,
                      void *context) {
    for (ashlar_step_key *key = a->planner.keys; key != NULL; key = key->next) {
        for (uint32_t i = 0; key->plan != NULL && i < key->plan->count; i++) {
            const ashlar_slot *slot = &key->plan->slots[i];
            if (slot->bytes > 0 &&
                key->plan->stream_plans[slot->stream_idx].stream_state == state) {
                visit(context, key->plan, i);
            }
        }
    }
}

static void count_slot(void *context, ashlar_plan *plan, uint32_t i) {
    needs *n = context;
    const size_t bytes = plan->stream_plans[plan->slots[i].stream_idx].plan_bytes;
    ASHLAR_CHECK2(plan->offsets[i] + plan->slots[i].bytes <= bytes);
    n->bytes = bytes > n->bytes ? bytes : n->bytes;
    n->count++;
}

static void add_offset(void *context, ashlar_plan *plan, uint32_t i) {
    needs *n = context;
    n->offsets[n->count++] = plan->offsets[i];
}

static void set_slot_block(void *context, ashlar_plan *plan, uint32_t i) {
    const ashlar_plan_memory *memory = context;
    ASHLAR_CHECK2(plan->offsets[i] + plan->slots[i].bytes <= memory->block->bytes);
    plan->slots[i].slot_block = ashlar__plan_memory_block_at(memory, plan->offsets[i]);
    ASHLAR_CHECK2(!ashlar__slot_block_is_taken(plan->slots[i].slot_block));
}

static int by_size(const void *left, const void *right) {
    const size_t a = *(const size_t *)left, b = *(const size_t *)right;
    return a < b ? -1 : a > b;
}

static ashlar_status find_needs(const ashlar_allocator *a, ashlar_stream_state *state, needs *out) {
    *out = (needs){.stream_state = state};
    for (const ashlar_step_key *key = a->planner.keys; key != NULL; key = key->next) {
        if (ashlar__plan_uses(key->plan, state) && key->reserved_bytes > out->may_reserve) {
            out->may_reserve = key->reserved_bytes;
        }
    }
    each_slot(a, state, count_slot, out);
    if (out->count == 0) {
        return ASHLAR_OK;
    }
    out->offsets = ashlar__host_calloc(out->count, sizeof *out->offsets);
    if (out->offsets == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for the offsets of a plan");
    }
    out->count = 0;
    each_slot(a, state, add_offset, out);
    qsort(out->offsets, out->count, sizeof *out->offsets, by_size);
    size_t kept = 0;
    for (size_t i = 0; i < out->count; i++) {
        if (kept == 0 || out->offsets[kept - 1] != out->offsets[i]) {
            out->offsets[kept++] = out->offsets[i];
        }
    }
    out->count = kept;
    return ASHLAR_OK;
}

void ashlar__planner_link_plans(const ashlar_allocator *a) {
    for (ashlar_step_key *key = a->planner.keys; key != NULL; key = key->next) {
        if (key->plan != NULL && key->replay_count == 0 &&
            !ashlar__planner_lacks_memory(&a->planner, key->plan)) {
            ashlar__plan_link(key->plan);
        }
    }
}

/* Take memory for all slots on the stream, which has none. */
static ashlar_status take_memory(ashlar_allocator *a, ashlar_cache *own,
                                 ashlar_stream_state *state) {
    needs n;
    ashlar_plan_memory *memory = NULL;
    ashlar_status status = find_needs(a, state, &n);
    if (status == ASHLAR_OK && n.count > 0) {
        status = create_memory_locked(a, own, &n, &memory);
    }
    if (status == ASHLAR_OK && memory != NULL) {
        ASHLAR_CHECK2(ashlar__planner_memory(&a->planner, state) == NULL);
        memory->used_at = ashlar__heap_count_use(&a->heap);
        memory->next = a->planner.memories;
        a->planner.memories = memory;
        each_slot(a, state, set_slot_block, memory);
    }
    ashlar__host_free(n.offsets);
    return status;
}

ashlar_status ashlar__planner_take_lacking(ashlar_allocator *a, ashlar_cache *own,
                                           const ashlar_plan *plan) {
    ASHLAR_CHECK2(a->planner.is_installing); /* so no other thread replaces the memory meanwhile */
    for (uint32_t k = 0; k < plan->stream_count; k++) {
        ashlar_stream_state *state = plan->stream_plans[k].stream_state;
        if (ashlar__planner_memory(&a->planner, state) == NULL &&
            !ashlar__stream_state_has_ended(state)) {
            ASHLAR_TRY(take_memory(a, own, state));
        }
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__planner_take_again_locked(ashlar_allocator *a, ashlar_cache *own,
                                                ashlar_step_key *key) {
    ASHLAR_OWNS(&a->lock);
    ASHLAR_CHECK2(!a->planner.is_installing && !key->is_busy && !ashlar__plan_has_ended(key->plan));
    a->planner.is_installing = true;
    key->is_busy = true; /* so that no other thread moves the key, or drops its memory, while the
                            lock is dropped */
    const ashlar_status status = ashlar__planner_take_lacking(a, own, key->plan);
    ashlar__planner_link_plans(a);
    key->is_busy = false;
    a->planner.is_installing = false;
    return status;
}
