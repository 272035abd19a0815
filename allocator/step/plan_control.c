/* plan_control.c - making, dropping, re-recording and counting plans at the program's request. */
#include <ashlar/plan.h>

#include "allocator/step/step.h"
#include "allocator/core/forked.h"
#include "allocator/core/hold.h"

ashlar_status ashlar_plan_build(ashlar_allocator *a) {
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar_cache *own = ashlar__cache_get(a);
    ashlar__allocator_enter(a);
    ashlar_status status = ashlar__planner_refuse_busy_locked(&a->planner);
    if (status == ASHLAR_OK) {
        status = ashlar__planner_build_all_locked(a, own);
    }
    ashlar__allocator_leave(a);
    return status;
}

ashlar_status ashlar_plan_drop(ashlar_allocator *a) {
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar__allocator_enter(a);
    const ashlar_status status = ashlar__planner_refuse_busy_locked(&a->planner);
    if (status == ASHLAR_OK) {
        ASHLAR_CHECK2(a->planner.recording_count == 0 && !a->planner.is_installing);
        ashlar__planner_free_keys(&a->planner);
        for (ashlar_plan_memory *memory = a->planner.memories; memory != NULL;
             memory = memory->next) {
            ASHLAR_CHECK2(!memory->is_busy);
            memory->is_unused = true;
        }
        ashlar__planner_tidy_locked(&a->planner, &a->heap);
    }
    ashlar__allocator_leave(a);
    return status;
}

ashlar_status ashlar__planner_forget_keys(ashlar_allocator *a, uint64_t first, uint64_t count) {
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar__allocator_enter(a);
    const ashlar_status status = ashlar__planner_refuse_busy_locked(&a->planner);
    for (ashlar_step_key **link = &a->planner.keys; *link != NULL && status == ASHLAR_OK;) {
        ashlar_step_key *key = *link;
        const bool is_warmed = key->is_warmed && key->warmup_key == first;
        if (key->key - first >= count && !ashlar__step_key_has(key, first) && !is_warmed) {
            /* a number below `first` wraps around to a large difference */
            link = &key->next;
            continue;
        }
        ASHLAR_CHECK2(!ashlar__step_key_is_in_use(key));
        *link = key->next;
        ashlar__planner_free_key(key);
    }
    if (status == ASHLAR_OK) {
        ashlar__planner_drop_unused_locked(&a->planner, &a->heap);
    }
    ashlar__allocator_leave(a);
    return status;
}

ashlar_status ashlar_plan_set_options(ashlar_allocator *a, const ashlar_plan_options *options) {
    ashlar_plan_options chosen = ASHLAR_OR_ZERO(ashlar_plan_options, options);
    ASHLAR_REFUSE_OF_PARENT(a);
    ashlar__allocator_enter(a);
    a->planner.options = ashlar__plan_options_chosen(chosen);
    ashlar__allocator_leave(a);
    return ASHLAR_OK;
}

void ashlar_plan_record_next(ashlar_allocator *a, uint64_t key) {
    if (ashlar__is_of_parent(a)) {
        return;
    }
    ashlar__allocator_enter(a);
    for (ashlar_step_key *at = a->planner.keys; at != NULL; at = at->next) {
        at->is_wanted = at->is_wanted || ashlar__step_key_has(at, key);
    }
    ashlar__allocator_leave(a);
}

/* Add to *out the bytes of a plan memory, and the largest size and the largest lower bound among
 * the plans of its stream. */
static void add_stream(const ashlar_allocator *a, const ashlar_plan_memory *memory,
                       ashlar_plan_stats *out) {
    uint64_t plan_bytes = 0, bound_bytes = 0;
    for (const ashlar_step_key *key = a->planner.keys; key != NULL; key = key->next) {
        for (uint32_t stream_idx = 0; key->plan != NULL && stream_idx < key->plan->stream_count;
             stream_idx++) {
            const ashlar_stream_plan *p = &key->plan->stream_plans[stream_idx];
            ASHLAR_CHECK2(p->bound_bytes <= p->plan_bytes);
            if (p->stream_state == memory->stream_state && !memory->is_unused) {
                plan_bytes = p->plan_bytes > plan_bytes ? p->plan_bytes : plan_bytes;
                bound_bytes = p->bound_bytes > bound_bytes ? p->bound_bytes : bound_bytes;
            }
        }
    }
    /* a plan that is being installed may be larger than the present memory */
    ASHLAR_CHECK2(a->planner.is_installing || plan_bytes <= memory->block->bytes);
    out->memory_bytes += memory->block->bytes;
    out->plan_bytes += plan_bytes;
    out->bound_bytes += bound_bytes;
}

static void sum_stats(ashlar_allocator *a, ashlar_plan_stats *out) {
    ashlar__allocator_enter(a);
    *out = a->planner.stats;
    for (const ashlar_plan_memory *memory = a->planner.memories; memory != NULL;
         memory = memory->next) {
        add_stream(a, memory, out);
    }
    for (const ashlar_step_key *key = a->planner.keys; key != NULL; key = key->next) {
        out->plan_count += key->plan != NULL;
        out->slot_count += key->plan != NULL ? key->plan->expiry_count : 0;
    }
    ashlar__allocator_leave(a);
}

void ashlar_plan_get_stats(ashlar_allocator *a, ashlar_plan_stats *out) {
    ashlar_plan_stats sums = {0};
    if (!ashlar__is_of_parent(a)) {
        sum_stats(a, &sums);
    }
    *out = sums;
}
