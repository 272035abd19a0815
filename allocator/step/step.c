/*
 * step.c - where a step begins and ends: which plan it is replayed on, or whether it is recorded.
 */
#include "allocator/step/step.h"

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/core/shared.h"
#include "allocator/core/streams.h"

/* ---- beginning ---- */

static bool may_use(const ashlar_allocator *a, const ashlar_plan *plan) {
    for (uint32_t part = 0; part < plan->part_count; part++) {
        const ashlar_plan_region *region =
            ashlar_planner_region(&a->planner, plan->parts[part].order);
        if (region != NULL && region->is_busy) {
            return false;
        }
    }
    return true;
}

/* A stream that the plan was made for, and that no request can name any more. */
static bool has_lost_stream(const ashlar_plan *plan) {
    bool is_lost = false;
    for (uint32_t part = 0; plan != NULL && part < plan->part_count; part++) {
        is_lost |= plan->parts[part].order->is_gone || plan->parts[part].order->is_ended;
    }
    return is_lost;
}

static ashlar_stream name_of(const ashlar_order *order) {
    const bool is_open = !order->is_gone && !order->is_ended && order->pool == NULL &&
                         !ashlar_order_is_others(order);
    return is_open ? order->stream : ASHLAR_NO_STREAM;
}

static void begin_replay(ashlar_allocator *a, ashlar_cache *own, ashlar_plan *plan) {
    ashlar_run *run = own->run;
    for (uint32_t part = 0; part < plan->part_count; part++) {
        ashlar_plan_region *region = ashlar_planner_region(&a->planner, plan->parts[part].order);
        run->streams[part] = name_of(plan->parts[part].order);
        run->regions[part] = region;
        if (region != NULL) {
            region->is_busy = true;
        }
    }
    ashlar_run_start(run, plan);
    run->hits_before = own->counters.planned_count;
    ashlar_cache_set_replay(own, run);
}

static void begin_recording(ashlar_allocator *a, ashlar_run *run) {
    run->is_recorded = true;
    run->key->is_busy = true;
    /* Every hit of every thread goes by the lock, where the recording sees it. */
    a->planner.recording_count++;
    ashlar_caches_rewatch_locked(a);
}

/* The step's way: recorded, replayed, or, where neither can be, the ordinary one. */
static void choose(ashlar_allocator *a, ashlar_cache *own, ashlar_step_key *key) {
    const bool is_free = key != NULL && !key->is_busy;
    const bool is_unknown = is_free && key->plan == NULL && !key->is_current;
    own->run->key = key;
    if (is_free && has_lost_stream(key->plan)) {
        key->is_stale = true;
    }
    if (is_free && (is_unknown || key->is_wanted || key->is_stale)) {
        begin_recording(a, own->run);
    } else if (is_free && key->plan != NULL && may_use(a, key->plan)) {
        key->replay_count++;
        begin_replay(a, own, key->plan);
    } else {
        own->run->key = NULL;
        a->planner.stats.steps_declined++;
    }
}

/* *out: unchanged where the step is to be declined. Errors: ASHLAR_EHOSTMEM, ASHLAR_EDRIVER. */
static ashlar_status prepare(ashlar_allocator *a, ashlar_stream stream, uint64_t number,
                             ashlar_step_key **out) {
    ashlar_order *order = NULL;
    ashlar_status status = ashlar_order_of_locked(a, stream, &order);
    if (status != ASHLAR_OK) {
        return status;
    }
    /* While a region is made its stream's plans must not change; nor may one wait in a capture. */
    if (!a->planner.is_installing && order->pool == NULL) {
        ashlar_planner_forget_stream_locked(&a->planner, &a->heap, NULL);
        status = ashlar_step_key_of_locked(a, number, order, out);
    }
    return status == ASHLAR_OK ? ashlar_shared_return_seats_locked(a) : status;
}

static ashlar_status begin_locked(ashlar_allocator *a, ashlar_cache *own, ashlar_stream stream,
                                  uint64_t number) {
    ashlar_run *run = own->run;
    ashlar_step_key *key = NULL;
    const ashlar_status status = prepare(a, stream, number, &key);
    if (status != ASHLAR_OK) {
        return status;
    }
    ashlar_planner_tidy_locked(&a->planner, &a->heap);
    run->depth = 1;
    run->is_recorded = false;
    a->planner.run_count++;
    choose(a, own, key);
    return ASHLAR_OK;
}

/* Under the lock: whoever frees a block looks at every cache's run. */
static ashlar_status enter_locked(ashlar_allocator *a, ashlar_cache *own, ashlar_stream stream,
                                  uint64_t key) {
    if (own->run == NULL) {
        own->run = ashlar_host_calloc(1, sizeof *own->run);
    }
    if (own->run == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory for a step");
    }
    if (own->run->depth > 0) {
        own->run->depth++;
        return ASHLAR_OK;
    }
    return begin_locked(a, own, stream, key);
}

ashlar_status ashlar_step_begin(ashlar_allocator *a, ashlar_stream stream, uint64_t key) {
    ashlar_cache *own = ashlar_cache_get(a);
    if (own == NULL) {
        return ASHLAR_OK;
    }
    pthread_mutex_lock(&a->lock);
    const ashlar_status status = enter_locked(a, own, stream, key);
    pthread_mutex_unlock(&a->lock);
    return status;
}

/* ---- ending ---- */

/* Into the key, with what was recorded before. */
static ashlar_status keep(ashlar_step_key *key, ashlar_recording *recording) {
    ashlar_status status = ASHLAR_OK;
    if (recording->is_incomplete) {
        status = ashlar_fail(ASHLAR_EHOSTMEM, "no host memory for the recording of a step");
    } else if (key->step_count == 0 || key->is_stale) {
        ashlar_recording_finish(&key->recording);
        key->recording = *recording;
        *recording = (ashlar_recording){0};
        key->step_count = 0;
    } else {
        status = ashlar_recording_merge(&key->recording, recording);
    }
    ashlar_recording_finish(recording);
    if (status == ASHLAR_OK) {
        key->step_count++;
        key->is_current = key->is_wanted = key->is_stale = false;
        key->diverged = 0;
    }
    return status;
}

static ashlar_status end_recording(ashlar_allocator *a, ashlar_run *run) {
    ashlar_run_stop_recording(run, &a->planner);
    ashlar_caches_rewatch_locked(a);
    ashlar_recording_close(&run->recording);
    const ashlar_status status = keep(run->key, &run->recording);
    a->planner.stats.steps_recorded += status == ASHLAR_OK;
    return status;
}

/* Whether the key is to be planned now, without being asked. */
static bool is_due(const ashlar_allocator *a, const ashlar_step_key *key) {
    const uint32_t after = a->planner.options.build_after;
    return after > 0 && key->step_count >= after && !key->is_current && !key->is_wanted &&
           !key->is_stale && !key->is_busy;
}

ashlar_status ashlar_step_keep_locked(ashlar_allocator *a, ashlar_cache *own, ashlar_order *order,
                                      uint64_t number, ashlar_recording *recording) {
    ashlar_step_key *key = NULL;
    ashlar_status status = ASHLAR_OK;
    if (!a->planner.is_installing) {
        status = ashlar_step_key_of_locked(a, number, order, &key);
    }
    if (status == ASHLAR_OK && (key == NULL || key->is_busy)) {
        status = ashlar_fail(ASHLAR_EINVAL,
                             "a step of key %llu is recorded, or plans are made; wait for the end",
                             (unsigned long long)number);
    }
    if (status != ASHLAR_OK) {
        ashlar_recording_finish(recording);
        return status;
    }
    status = keep(key, recording);
    a->planner.stats.steps_recorded += status == ASHLAR_OK;
    return status == ASHLAR_OK && is_due(a, key) ? ashlar_planner_build_locked(a, own, key)
                                                 : status;
}

static ashlar_status end_locked(ashlar_allocator *a, ashlar_cache *own) {
    ashlar_run *run = own->run;
    ashlar_step_key *key = run->key;
    ashlar_status status = ASHLAR_OK;
    if (--run->depth > 0) {
        return ASHLAR_OK;
    }
    a->planner.run_count--;
    if (run->is_recorded) {
        status = end_recording(a, run);
    } else if (key != NULL) {
        ashlar_cache_end_replay(own, &a->planner);
    }
    run->key = NULL;
    ashlar_planner_tidy_locked(&a->planner, &a->heap);
    if (status == ASHLAR_OK && key != NULL && is_due(a, key)) {
        status = ashlar_planner_build_locked(a, own, key);
    }
    return status;
}

ashlar_status ashlar_step_end(ashlar_allocator *a) {
    ashlar_cache *own = ashlar_cache_get(a);
    if (own == NULL) {
        return ASHLAR_OK;
    }
    if (own->run == NULL || own->run->depth == 0) {
        return ashlar_fail(ASHLAR_EINVAL, "no step of this thread is under way; begin one");
    }
    pthread_mutex_lock(&a->lock);
    const ashlar_status status = end_locked(a, own);
    pthread_mutex_unlock(&a->lock);
    return status;
}

/* ---- rehearsals ---- */

ashlar_status ashlar_rehearsal_begin(ashlar_allocator *a, ashlar_stream stream, uint64_t key) {
    const ashlar_status status = ashlar_step_begin(a, stream, key);
    ashlar_cache *own = ashlar_cache_get(a);
    if (status == ASHLAR_OK && own != NULL) {
        own->run->is_rehearsed = true;
    }
    return status;
}

ashlar_status ashlar_rehearsal_end(ashlar_allocator *a) {
    ashlar_cache *own = ashlar_cache_get(a);
    uint32_t left_count = 0;
    if (own != NULL && own->run != NULL) {
        left_count = own->run->rehearsed_count;
        own->run->is_rehearsed = false;
        own->run->rehearsed_count = 0;
    }
    const ashlar_status status = ashlar_step_end(a);
    return status != ASHLAR_OK || left_count == 0
               ? status
               : ashlar_fail(ASHLAR_EINVAL,
                             "a rehearsal left %u of its blocks live; it must free what it takes",
                             left_count);
}
