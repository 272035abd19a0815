/*
 * step_key.c - which key's recording and plan a step has to do with, also when the key's stream is
 * gone.
 */
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/step/step.h"

ashlar_step_key *ashlar_step_key_find_locked(const ashlar_allocator *a, uint64_t key,
                                             const ashlar_order *order) {
    ashlar_step_key *at = a->planner.keys;
    while (at != NULL && (at->key != key || at->order != order)) {
        at = at->next;
    }
    return at;
}

/* Steps of the same key whose stream is gone, so that another may go on with them. */
static ashlar_step_key *find_orphan(const ashlar_allocator *a, uint64_t key) {
    ashlar_step_key *at = a->planner.keys;
    while (at != NULL && (at->key != key || !at->order->is_gone)) {
        at = at->next;
    }
    return at;
}

static bool knows(const ashlar_step_key *key, const ashlar_order *order) {
    bool is_known = key->order == order;
    for (uint32_t part = 0; part < key->recording.part_count; part++) {
        is_known |= key->recording.orders[part] == order;
    }
    return is_known;
}

/* Whether steps that have to do with a stream are recorded, planned or replayed now. */
static bool is_order_busy(const ashlar_allocator *a, const ashlar_order *order) {
    const ashlar_plan_region *region = ashlar_planner_region(&a->planner, order);
    const ashlar_step_key *at = a->planner.keys;
    while (at != NULL && (!ashlar_step_key_is_in_use(at) || !knows(at, order))) {
        at = at->next;
    }
    return at != NULL || (region != NULL && region->is_busy);
}

/* Whether a stream has plans, or recordings for them. */
static bool has_steps(const ashlar_allocator *a, const ashlar_order *order) {
    const ashlar_step_key *at = a->planner.keys;
    while (at != NULL && at->order != order) {
        at = at->next;
    }
    return at != NULL || ashlar_planner_region(&a->planner, order) != NULL;
}

static void replace_order(ashlar_order **at, const ashlar_order *from, ashlar_order *to) {
    *at = *at == from ? to : *at;
}

/* All plans of a stream that is gone are `to`'s: its work is put behind that stream's. */
static ashlar_status rehome(ashlar_allocator *a, ashlar_order *from, ashlar_order *to) {
    ashlar_plan_region *region = ashlar_planner_region(&a->planner, from);
    if (region != NULL && !ashlar_order_is_past(from, ashlar_order_stamp(from))) {
        const ashlar_status status = ashlar_order_wait_on(from, &a->caller, to->stream);
        if (status != ASHLAR_OK) {
            return status;
        }
    }
    if (region != NULL) {
        ashlar_region_rehome_locked(region, to);
    }
    for (ashlar_step_key *key = a->planner.keys; key != NULL; key = key->next) {
        replace_order(&key->order, from, to);
        for (uint32_t part = 0; part < key->recording.part_count; part++) {
            replace_order(&key->recording.orders[part], from, to);
        }
        for (uint32_t part = 0; key->plan != NULL && part < key->plan->part_count; part++) {
            replace_order(&key->plan->parts[part].order, from, to);
        }
    }
    return ASHLAR_OK;
}

static ashlar_status new_key(ashlar_allocator *a, uint64_t number, ashlar_order *order,
                             ashlar_step_key **out) {
    ashlar_step_key *key = ashlar_host_calloc(1, sizeof *key);
    if (key == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory for a key of steps");
    }
    *key = (ashlar_step_key){.key = number, .order = order, .next = a->planner.keys};
    a->planner.keys = key;
    *out = key;
    return ASHLAR_OK;
}

/* Go on with the steps of a stream that is gone; *out stays NULL while others are at them. */
static ashlar_status adopt(ashlar_allocator *a, ashlar_step_key *orphan, ashlar_order *order,
                           ashlar_step_key **out) {
    const uint64_t number = orphan->key;
    if (is_order_busy(a, orphan->order)) {
        return ASHLAR_OK;
    }
    if (has_steps(a, order)) {
        /* Two streams' plans cannot share a region: what was the old one's is recorded anew. */
        ashlar_planner_forget_stream_locked(&a->planner, &a->heap, orphan->order);
        return new_key(a, number, order, out);
    }
    const ashlar_status status = rehome(a, orphan->order, order);
    if (status == ASHLAR_OK) {
        *out = orphan;
    }
    return status;
}

ashlar_status ashlar_step_key_of_locked(ashlar_allocator *a, uint64_t number, ashlar_order *order,
                                        ashlar_step_key **out) {
    ashlar_step_key *key = ashlar_step_key_find_locked(a, number, order);
    ashlar_step_key *orphan = key == NULL ? find_orphan(a, number) : NULL;
    if (orphan != NULL) {
        return adopt(a, orphan, order, out);
    }
    if (key == NULL) {
        return new_key(a, number, order, out);
    }
    *out = key;
    return ASHLAR_OK;
}
