/*
 * planner_build.c - from recordings to plans with memory: packing, and the regions that
 * plans share.
 */
#include "allocator/step/step.h"

#include <stdlib.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/step/region_memory.h"

/* ---- regions ---- */

static void retire(ashlar_allocator *a, const ashlar_order *order) {
    ashlar_plan_region *region = ashlar_planner_region(&a->planner, order);
    if (region != NULL) {
        region->is_retired = true;
        /* So that the next one may have its memory. */
        ashlar_planner_tidy_locked(&a->planner, &a->heap);
    }
}

/* What the plans of one stream need together. */
typedef struct needs {
    const ashlar_order *order;
    size_t bytes;
    size_t *offsets; /* [count], different and in order */
    size_t count;
} needs;

typedef void (*slot_fn)(void *context, ashlar_plan *plan, uint32_t i);

/* Call `visit` for every planned slot on a stream. */
static void each_slot(const ashlar_allocator *a, const ashlar_order *order, slot_fn visit,
                      void *context) {
    for (ashlar_step_key *key = a->planner.keys; key != NULL; key = key->next) {
        for (uint32_t i = 0; key->plan != NULL && i < key->plan->count; i++) {
            const ashlar_slot *slot = &key->plan->slots[i];
            if (slot->bytes > 0 && key->plan->parts[slot->part].order == order) {
                visit(context, key->plan, i);
            }
        }
    }
}

static void count_slot(void *context, ashlar_plan *plan, uint32_t i) {
    needs *n = context;
    const size_t bytes = plan->parts[plan->slots[i].part].plan_bytes;
    n->bytes = bytes > n->bytes ? bytes : n->bytes;
    n->count++;
}

static void add_offset(void *context, ashlar_plan *plan, uint32_t i) {
    needs *n = context;
    n->offsets[n->count++] = plan->offsets[i];
}

static void set_seat(void *region, ashlar_plan *plan, uint32_t i) {
    plan->slots[i].seat = ashlar_region_seat(region, plan->offsets[i]);
}

static int by_size(const void *left, const void *right) {
    const size_t a = *(const size_t *)left, b = *(const size_t *)right;
    return a < b ? -1 : a > b;
}

static ashlar_status find_needs(const ashlar_allocator *a, const ashlar_order *order, needs *out) {
    *out = (needs){.order = order};
    each_slot(a, order, count_slot, out);
    if (out->count == 0) {
        return ASHLAR_OK;
    }
    out->offsets = ashlar_host_calloc(out->count, sizeof *out->offsets);
    if (out->offsets == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory for the offsets of a plan");
    }
    out->count = 0;
    each_slot(a, order, add_offset, out);
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

/* Once all of them have their seats. What is replayed now has kept them, and is being read. */
static void link_plans(const ashlar_allocator *a) {
    for (ashlar_step_key *key = a->planner.keys; key != NULL; key = key->next) {
        if (key->plan != NULL && key->replay_count == 0) {
            ashlar_plan_link(key->plan);
        }
    }
}

/* Replace the region of a stream by one for all its plans as they are now. */
static ashlar_status renew_region(ashlar_allocator *a, ashlar_cache *own, ashlar_order *order) {
    needs n;
    ashlar_plan_region *region = NULL;
    ashlar_status status = find_needs(a, order, &n);
    if (status == ASHLAR_OK) {
        retire(a, order);
    }
    if (status == ASHLAR_OK && n.count > 0) {
        status = ashlar_region_create_locked(a, own, order, n.bytes, n.offsets, n.count, &region);
    }
    if (status == ASHLAR_OK && region != NULL) {
        region->next = a->planner.regions;
        a->planner.regions = region;
        each_slot(a, order, set_seat, region);
    }
    ashlar_host_free(n.offsets);
    return status;
}

/* ---- plans ---- */

/* No region for this stream: nor are there plans that need it. */
static void drop_plans_of(ashlar_allocator *a, const ashlar_order *order) {
    for (ashlar_step_key *key = a->planner.keys; key != NULL; key = key->next) {
        if (ashlar_plan_uses(key->plan, order)) {
            ashlar_step_key_drop_plan(key);
        }
    }
}

static bool is_any_busy(const ashlar_allocator *a, const ashlar_plan *plan) {
    for (uint32_t part = 0; plan != NULL && part < plan->part_count; part++) {
        const ashlar_plan_region *region =
            ashlar_planner_region(&a->planner, plan->parts[part].order);
        if (region != NULL && region->is_busy) {
            return true;
        }
    }
    return false;
}

/* No memory for a key's plan: the other plans have their regions as before, if that can be. */
static void give_up(ashlar_allocator *a, ashlar_cache *own, ashlar_step_key *key) {
    ashlar_plan *plan = key->plan;
    key->plan = NULL;
    for (uint32_t part = 0; part < plan->part_count; part++) {
        ashlar_order *order = plan->parts[part].order;
        if (ashlar_planner_region(&a->planner, order) == NULL &&
            renew_region(a, own, order) != ASHLAR_OK) {
            drop_plans_of(a, order);
        }
    }
    ashlar_plan_free(plan);
}

/*
 * Put a plan in the place of the key's. While a step is in one of the regions it cannot be, and the
 * key goes on without: the next step that ends tries again.
 */
static ashlar_status install(ashlar_allocator *a, ashlar_cache *own, ashlar_step_key *key,
                             ashlar_plan *plan) {
    if (a->planner.is_installing || key->replay_count > 0 || is_any_busy(a, plan)) {
        ashlar_plan_free(plan);
        return ASHLAR_OK;
    }
    ashlar_status status = ASHLAR_OK;
    ashlar_step_key_drop_plan(key);
    key->plan = plan;
    a->planner.is_installing = true;
    for (uint32_t part = 0; part < plan->part_count && status == ASHLAR_OK; part++) {
        status = renew_region(a, own, plan->parts[part].order);
    }
    if (status != ASHLAR_OK) {
        give_up(a, own, key);
    }
    ashlar_planner_retire_unused_locked(&a->planner, &a->heap);
    link_plans(a);
    a->planner.is_installing = false;
    key->is_current = true;
    return status;
}

ashlar_status ashlar_planner_build_locked(ashlar_allocator *a, ashlar_cache *own,
                                          ashlar_step_key *key) {
    ashlar_plan *plan = NULL;
    const uint64_t search_ms = a->planner.options.search_ms;
    key->is_busy = true;
    pthread_mutex_unlock(&a->lock);
    ashlar_status status = ashlar_plan_make(&key->recording, search_ms, &plan);
    pthread_mutex_lock(&a->lock);
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
static ashlar_status add_regions(ashlar_allocator *a, ashlar_cache *own,
                                 const ashlar_step_key *key) {
    ashlar_status status = ASHLAR_OK;
    for (uint32_t part = 0; part < key->plan->part_count && status == ASHLAR_OK; part++) {
        ashlar_order *order = key->plan->parts[part].order;
        if (ashlar_planner_region(&a->planner, order) == NULL) {
            status = renew_region(a, own, order);
        }
    }
    return status;
}

ashlar_status ashlar_planner_adopt_locked(ashlar_allocator *a, ashlar_cache *own,
                                          ashlar_step_key **keys, size_t count) {
    ashlar_status status = ASHLAR_OK;
    /* So that a region of these streams is one with seats for these keys. */
    ashlar_planner_retire_unused_locked(&a->planner, &a->heap);
    a->planner.is_installing = true;
    for (size_t i = 0; i < count; i++) {
        keys[i]->is_busy = true; /* the lock may be dropped: nobody else is to move or plan it */
        keys[i]->next = a->planner.keys;
        a->planner.keys = keys[i];
    }
    for (size_t i = 0; i < count && status == ASHLAR_OK; i++) {
        status = add_regions(a, own, keys[i]);
    }
    for (size_t i = 0; i < count; i++) {
        keys[i]->is_busy = false;
        keys[i]->is_current = true;
        if (status != ASHLAR_OK) {
            unlink_key(a, keys[i]);
        }
    }
    ashlar_planner_retire_unused_locked(&a->planner, &a->heap);
    link_plans(a);
    a->planner.is_installing = false;
    return status;
}
