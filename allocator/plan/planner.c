/* planner.c - finding an allocator's plan memories, and freeing them and the keys of steps. */
#include "allocator/plan/planner.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

ashlar_plan_options ashlar__plan_options_chosen(ashlar_plan_options given) {
    given.search_ms = given.search_ms != 0 ? given.search_ms : 200;
    given.build_after = given.build_after != 0 ? given.build_after : 1;
    return given;
}

/* ---- plan memories ---- */

ashlar_plan_memory *ashlar__planner_memory(const ashlar_planner *planner,
                                           const ashlar_stream_state *state) {
    ashlar_plan_memory *memory = planner->memories;
    while (memory != NULL && (memory->stream_state != state || memory->is_unused)) {
        memory = memory->next;
    }
    return memory;
}

/* End the memory at *link, and take it out of the list. False: it cannot end now. */
static bool end(ashlar_plan_memory **link, ashlar_heap *heap) {
    ashlar_plan_memory *memory = *link, *next = memory->next;
    if (!ashlar__plan_memory_end_locked(memory, heap)) {
        return false;
    }
    *link = next;
    return true;
}

void ashlar__planner_tidy_locked(ashlar_planner *planner, ashlar_heap *heap) {
    for (ashlar_plan_memory **link = &planner->memories; *link != NULL;) {
        if (!(*link)->is_unused || (*link)->is_busy || !end(link, heap)) {
            link = &(*link)->next;
        }
    }
}

/* Whether no step uses the memory or is about to use it. */
static bool is_spare(const ashlar_planner *planner, const ashlar_plan_memory *memory) {
    if (memory->is_busy || memory->is_unused) {
        return !memory->is_busy;
    }
    const ashlar_step_key *key = planner->keys;
    while (key != NULL && (!planner->is_installing || !key->is_busy ||
                           !ashlar__plan_uses(key->plan, memory->stream_state))) {
        key = key->next;
    }
    return key == NULL;
}

/* When a step last began in the memory; memory that no plan uses counts as the oldest. */
static uint64_t last_use(const ashlar_plan_memory *memory) {
    return memory->is_unused ? 0 : memory->used_at;
}

bool ashlar__planner_end_memory_locked(ashlar_planner *planner, ashlar_heap *heap,
                                       const ashlar_plan_memory *memory) {
    ashlar_plan_memory **link = &planner->memories;
    while (*link != memory) {
        link = &(*link)->next;
    }
    return is_spare(planner, memory) && end(link, heap);
}

bool ashlar__planner_give_up_locked(ashlar_planner *planner, ashlar_heap *heap) {
    ashlar_plan_memory **oldest = NULL;
    for (ashlar_plan_memory **link = &planner->memories; *link != NULL; link = &(*link)->next) {
        if (is_spare(planner, *link) && (oldest == NULL || last_use(*link) < last_use(*oldest))) {
            oldest = link;
        }
    }
    bool is_ended = oldest != NULL && end(oldest, heap);
    for (ashlar_plan_memory **link = &planner->memories; *link != NULL && !is_ended;) {
        is_ended = is_spare(planner, *link) && end(link, heap);
        link = is_ended ? link : &(*link)->next;
    }
    return is_ended;
}

size_t ashlar__planner_quiet_bytes(const ashlar_planner *planner) {
    size_t bytes = 0;
    for (const ashlar_plan_memory *memory = planner->memories; memory != NULL;
         memory = memory->next) {
        bytes += memory->is_busy ? 0 : memory->block->bytes;
    }
    return bytes;
}

bool ashlar__planner_lacks_memory(const ashlar_planner *planner, const ashlar_plan *plan) {
    bool is_lacking = false;
    for (uint32_t stream_idx = 0; stream_idx < plan->stream_count; stream_idx++) {
        const ashlar_stream_plan *p = &plan->stream_plans[stream_idx];
        is_lacking |= p->plan_bytes > 0 && ashlar__planner_memory(planner, p->stream_state) == NULL;
    }
    return is_lacking;
}

static bool is_used(const ashlar_planner *planner, const ashlar_stream_state *state) {
    const ashlar_step_key *key = planner->keys;
    while (key != NULL && !ashlar__plan_uses(key->plan, state)) {
        key = key->next;
    }
    return key != NULL;
}

void ashlar__planner_drop_unused_locked(ashlar_planner *planner, ashlar_heap *heap) {
    for (ashlar_plan_memory *memory = planner->memories; memory != NULL; memory = memory->next) {
        memory->is_unused = memory->is_unused || !is_used(planner, memory->stream_state);
    }
    ashlar__planner_tidy_locked(planner, heap);
}

/* ---- keys ---- */

void ashlar__planner_retire_plan_locked(ashlar_planner *planner, ashlar_heap *heap,
                                        ashlar_step_key *key) {
    key->is_retired = key->plan != NULL && key->replay_count > 0;
    if (!key->is_retired) {
        ashlar__step_key_drop_plan(key);
        ashlar__planner_drop_unused_locked(planner, heap);
    }
}

void ashlar__step_key_drop_plan(ashlar_step_key *key) {
    ashlar__plan_free(key->plan);
    key->plan = NULL;
}

void ashlar__planner_mark_referenced(const ashlar_planner *planner) {
    for (const ashlar_step_key *key = planner->keys; key != NULL; key = key->next) {
        key->stream_state->is_referenced = true;
        ashlar__recording_mark_referenced(&key->recording);
        for (uint32_t stream_idx = 0; key->plan != NULL && stream_idx < key->plan->stream_count;
             stream_idx++) {
            key->plan->stream_plans[stream_idx].stream_state->is_referenced = true;
        }
    }
}

void ashlar__planner_unlink_key(ashlar_planner *planner, const ashlar_step_key *key) {
    ashlar_step_key **link = &planner->keys;
    while (*link != key) {
        ASHLAR_CHECK2(*link != NULL);
        link = &(*link)->next;
    }
    *link = key->next;
}

void ashlar__planner_free_key(ashlar_step_key *key) {
    if (key != NULL) {
        ashlar__step_key_drop_plan(key);
        ashlar__recording_finish(&key->recording);
        ashlar__host_free(key);
    }
}

void ashlar__planner_free_keys(ashlar_planner *planner) {
    while (planner->keys != NULL) {
        ashlar_step_key *next = planner->keys->next;
        ashlar__planner_free_key(planner->keys);
        planner->keys = next;
    }
}

void ashlar__planner_forget_stream_locked(ashlar_planner *planner, ashlar_heap *heap,
                                          const ashlar_stream_state *state) {
    bool is_any = false;
    for (ashlar_step_key **link = &planner->keys; *link != NULL;) {
        ashlar_step_key *key = *link;
        if (ashlar__step_key_is_in_use(key) ||
            (state != NULL ? key->stream_state != state : !key->stream_state->is_ended)) {
            link = &key->next;
            continue;
        }
        is_any = true;
        *link = key->next;
        ashlar__planner_free_key(key);
    }
    if (is_any) {
        ashlar__planner_drop_unused_locked(planner, heap);
    }
}

void ashlar__planner_finish(ashlar_planner *planner) {
    ashlar__planner_free_keys(planner);
    while (planner->memories != NULL) {
        ashlar_plan_memory *next = planner->memories->next;
        ashlar__plan_memory_free(planner->memories);
        planner->memories = next;
    }
}

ashlar_status ashlar__planner_refuse_busy_locked(const ashlar_planner *planner) {
    ASHLAR_CHECK2(planner->recording_count <= planner->active_step_count);
    bool is_busy = planner->active_step_count > 0 || planner->is_installing;
    for (const ashlar_step_key *key = planner->keys; key != NULL; key = key->next) {
        is_busy = is_busy || key->is_busy;
    }
    return is_busy ? ashlar__fail(ASHLAR_EINVAL, "a step is under way; end it first") : ASHLAR_OK;
}
