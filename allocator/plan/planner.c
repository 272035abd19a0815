/*
 * planner.c - the keys, plans and regions that an allocator has: finding them, and letting them go.
 */
#include "allocator/plan/planner.h"

#include "allocator/base/error.h"
#include "allocator/base/host.h"

const ashlar_plan_options ashlar_plan_defaults = {.search_ms = 200, .build_after = 1};

/* ---- regions ---- */

ashlar_plan_region *ashlar_planner_region(const ashlar_planner *planner,
                                          const ashlar_order *order) {
    ashlar_plan_region *region = planner->regions;
    while (region != NULL && (region->order != order || region->is_retired)) {
        region = region->next;
    }
    return region;
}

void ashlar_planner_tidy_locked(ashlar_planner *planner, ashlar_heap *heap) {
    for (ashlar_plan_region **link = &planner->regions; *link != NULL;) {
        ashlar_plan_region *region = *link;
        if (!region->is_retired || region->is_busy || ashlar_region_is_live(region)) {
            link = &region->next;
            continue;
        }
        *link = region->next;
        ashlar_region_destroy_locked(heap, region);
    }
}

static bool is_used(const ashlar_planner *planner, const ashlar_order *order) {
    const ashlar_step_key *key = planner->keys;
    while (key != NULL && !ashlar_plan_uses(key->plan, order)) {
        key = key->next;
    }
    return key != NULL;
}

void ashlar_planner_retire_unused_locked(ashlar_planner *planner, ashlar_heap *heap) {
    for (ashlar_plan_region *region = planner->regions; region != NULL; region = region->next) {
        region->is_retired = region->is_retired || !is_used(planner, region->order);
    }
    ashlar_planner_tidy_locked(planner, heap);
}

/* ---- keys ---- */

void ashlar_step_key_drop_plan(ashlar_step_key *key) {
    ashlar_plan_free(key->plan);
    key->plan = NULL;
}

void ashlar_planner_mark_referenced(const ashlar_planner *planner) {
    for (const ashlar_step_key *key = planner->keys; key != NULL; key = key->next) {
        key->order->is_referenced = true;
        ashlar_recording_mark_referenced(&key->recording);
        for (uint32_t part = 0; key->plan != NULL && part < key->plan->part_count; part++) {
            key->plan->parts[part].order->is_referenced = true;
        }
    }
}

void ashlar_planner_free_key(ashlar_step_key *key) {
    if (key != NULL) {
        ashlar_step_key_drop_plan(key);
        ashlar_recording_finish(&key->recording);
        ashlar_host_free(key);
    }
}

void ashlar_planner_free_keys(ashlar_planner *planner) {
    while (planner->keys != NULL) {
        ashlar_step_key *next = planner->keys->next;
        ashlar_planner_free_key(planner->keys);
        planner->keys = next;
    }
}

void ashlar_planner_forget_stream_locked(ashlar_planner *planner, ashlar_heap *heap,
                                         const ashlar_order *order) {
    bool is_any = false;
    for (ashlar_step_key **link = &planner->keys; *link != NULL;) {
        ashlar_step_key *key = *link;
        if (ashlar_step_key_is_in_use(key) ||
            (order != NULL ? key->order != order : !key->order->is_ended)) {
            link = &key->next;
            continue;
        }
        is_any = true;
        *link = key->next;
        ashlar_planner_free_key(key);
    }
    if (is_any) {
        ashlar_planner_retire_unused_locked(planner, heap);
    }
}

void ashlar_planner_finish(ashlar_planner *planner) {
    ashlar_planner_free_keys(planner);
    while (planner->regions != NULL) {
        ashlar_plan_region *next = planner->regions->next;
        ashlar_region_free(planner->regions);
        planner->regions = next;
    }
}

ashlar_status ashlar_planner_refuse_busy_locked(const ashlar_planner *planner) {
    bool is_busy = planner->run_count > 0 || planner->is_installing;
    for (const ashlar_step_key *key = planner->keys; key != NULL; key = key->next) {
        is_busy = is_busy || key->is_busy;
    }
    return is_busy ? ashlar_fail(ASHLAR_EINVAL, "a step is under way; end it first") : ASHLAR_OK;
}
