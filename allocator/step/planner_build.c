/*
 * planner_build.c - from recordings to plans with memory: packing, and the plan memories that
 * plans share.
 */
#include "allocator/step/step.h"

#include <stdlib.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/step/plan_memory_create.h"

/* ---- plan memories ---- */

static void retire(ashlar_allocator *a, const ashlar_stream_state *state) {
    ashlar_plan_memory *memory = ashlar__planner_memory(&a->planner, state);
    if (memory != NULL) {
        memory->is_unused = true;
        /* So that the next one may have its memory. */
        ashlar__planner_tidy_locked(&a->planner, &a->heap);
    }
}

/* What the plans of one stream need together. */
typedef struct needs {
    const ashlar_stream_state *stream_state;
    size_t bytes;
    size_t *offsets; /* [count], different and in order */
    size_t count;
} needs;

typedef void (*slot_fn)(void *context, ashlar_plan *plan, uint32_t i);

/* Call `visit` for every planned slot on a stream. */
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
    n->bytes = bytes > n->bytes ? bytes : n->bytes;
    n->count++;
}

static void add_offset(void *context, ashlar_plan *plan, uint32_t i) {
    needs *n = context;
    n->offsets[n->count++] = plan->offsets[i];
}

static void set_slot_block(void *memory, ashlar_plan *plan, uint32_t i) {
    plan->slots[i].slot_block = ashlar__plan_memory_block_at(memory, plan->offsets[i]);
}

static int by_size(const void *left, const void *right) {
    const size_t a = *(const size_t *)left, b = *(const size_t *)right;
    return a < b ? -1 : a > b;
}

static ashlar_status find_needs(const ashlar_allocator *a, const ashlar_stream_state *state,
                                needs *out) {
    *out = (needs){.stream_state = state};
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

/* Once all of them have their slot blocks. What is replayed now has kept them, and is being read.
 * */
static void link_plans(const ashlar_allocator *a) {
    for (ashlar_step_key *key = a->planner.keys; key != NULL; key = key->next) {
        if (key->plan != NULL && key->replay_count == 0) {
            ashlar__plan_link(key->plan);
        }
    }
}

/* Replace the plan memory of a stream by one for all its plans as they are now. */
static ashlar_status renew_memory(ashlar_allocator *a, ashlar_cache *own,
                                  ashlar_stream_state *state) {
    needs n;
    ashlar_plan_memory *memory = NULL;
    ashlar_status status = find_needs(a, state, &n);
    if (status == ASHLAR_OK) {
        retire(a, state);
    }
    if (status == ASHLAR_OK && n.count > 0) {
        status =
            ashlar__plan_memory_create_locked(a, own, state, n.bytes, n.offsets, n.count, &memory);
    }
    if (status == ASHLAR_OK && memory != NULL) {
        memory->next = a->planner.memories;
        a->planner.memories = memory;
        each_slot(a, state, set_slot_block, memory);
    }
    ashlar__host_free(n.offsets);
    return status;
}

/* ---- plans ---- */

/* No plan memory for this stream: nor are there plans that need it. */
static void drop_plans_of(ashlar_allocator *a, const ashlar_stream_state *state) {
    for (ashlar_step_key *key = a->planner.keys; key != NULL; key = key->next) {
        if (ashlar__plan_uses(key->plan, state)) {
            ashlar__step_key_drop_plan(key);
        }
    }
}

static bool is_any_busy(const ashlar_allocator *a, const ashlar_plan *plan) {
    for (uint32_t stream_idx = 0; plan != NULL && stream_idx < plan->stream_count; stream_idx++) {
        const ashlar_plan_memory *memory =
            ashlar__planner_memory(&a->planner, plan->stream_plans[stream_idx].stream_state);
        if (memory != NULL && memory->is_busy) {
            return true;
        }
    }
    return false;
}

/* No memory for a key's plan: the other plans have their plan memories as before, if that can be.
 * */
static void give_up(ashlar_allocator *a, ashlar_cache *own, ashlar_step_key *key) {
    ashlar_plan *plan = key->plan;
    key->plan = NULL;
    for (uint32_t stream_idx = 0; stream_idx < plan->stream_count; stream_idx++) {
        ashlar_stream_state *state = plan->stream_plans[stream_idx].stream_state;
        if (ashlar__planner_memory(&a->planner, state) == NULL &&
            renew_memory(a, own, state) != ASHLAR_OK) {
            drop_plans_of(a, state);
        }
    }
    ashlar__plan_free(plan);
}

/*
 * Put a plan in the place of the key's. While a step is in one of the plan memories it cannot be,
 * and the key goes on without: the next step that ends tries again.
 */
static ashlar_status install(ashlar_allocator *a, ashlar_cache *own, ashlar_step_key *key,
                             ashlar_plan *plan) {
    if (a->planner.is_installing || key->replay_count > 0 || is_any_busy(a, plan)) {
        ashlar__plan_free(plan);
        return ASHLAR_OK;
    }
    ashlar_status status = ASHLAR_OK;
    ashlar__step_key_drop_plan(key);
    key->plan = plan;
    a->planner.is_installing = true;
    for (uint32_t stream_idx = 0; stream_idx < plan->stream_count && status == ASHLAR_OK;
         stream_idx++) {
        status = renew_memory(a, own, plan->stream_plans[stream_idx].stream_state);
    }
    if (status != ASHLAR_OK) {
        give_up(a, own, key);
    }
    ashlar__planner_drop_unused_locked(&a->planner, &a->heap);
    link_plans(a);
    a->planner.is_installing = false;
    key->is_current = true;
    return status;
}

ashlar_status ashlar__planner_build_locked(ashlar_allocator *a, ashlar_cache *own,
                                           ashlar_step_key *key) {
    ashlar_plan *plan = NULL;
    const uint64_t search_ms = a->planner.options.search_ms;
    key->is_busy = true;
    ashlar__lock_release(&a->lock);
    ashlar_status status = ashlar__plan_make(&key->recording, search_ms, &plan);
    ashlar__lock_acquire(&a->lock);
    if (status == ASHLAR_OK) {
        status = install(a, own, key, plan);
    }
    key->is_busy = false;
    return status;
}

/* ---- keys with plans from elsewhere ---- */

static void unlink_key(ashlar_allocator *a, const ashlar_step_key *key) {
    ashlar_step_key **link = &a->planner.keys;
    while (*link != key) {
        link = &(*link)->next;
    }
    *link = key->next;
}

/* Regions for those streams of a key's plan that have none. */
static ashlar_status add_plan_memories(ashlar_allocator *a, ashlar_cache *own,
                                       const ashlar_step_key *key) {
    ashlar_status status = ASHLAR_OK;
    for (uint32_t stream_idx = 0; stream_idx < key->plan->stream_count && status == ASHLAR_OK;
         stream_idx++) {
        ashlar_stream_state *state = key->plan->stream_plans[stream_idx].stream_state;
        if (ashlar__planner_memory(&a->planner, state) == NULL) {
            status = renew_memory(a, own, state);
        }
    }
    return status;
}

ashlar_status ashlar__planner_adopt_locked(ashlar_allocator *a, ashlar_cache *own,
                                           ashlar_step_key **keys, size_t count) {
    ashlar_status status = ASHLAR_OK;
    /* So that a plan's memory of these streams is one with slot blocks for these keys. */
    ashlar__planner_drop_unused_locked(&a->planner, &a->heap);
    a->planner.is_installing = true;
    for (size_t i = 0; i < count; i++) {
        keys[i]->is_busy = true; /* the lock may be dropped: nobody else is to move or plan it */
        keys[i]->next = a->planner.keys;
        a->planner.keys = keys[i];
    }
    for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
        status = add_plan_memories(a, own, keys[i]);
    }
    for (size_t i = 0; i < count; i++) {
        keys[i]->is_busy = false;
        keys[i]->is_current = true;
        if (status != ASHLAR_OK) {
            unlink_key(a, keys[i]);
        }
    }
    ashlar__planner_drop_unused_locked(&a->planner, &a->heap);
    link_plans(a);
    a->planner.is_installing = false;
    return status;
}
