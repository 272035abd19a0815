/*
 * step.c - where a step begins and ends: which plan it is replayed on, or whether it is recorded.
 */
#include "step.h"

#include "error.h"
#include "host.h"

/* ---- keys ---- */

static ashlar_step_key *find_key(const ashlar_allocator *a, uint64_t key,
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
    while (at != NULL && (at->key != key || at->is_busy || !at->order->is_gone)) {
        at = at->next;
    }
    return at;
}

static void replace_order(ashlar_order **at, const ashlar_order *from, ashlar_order *to) {
    *at = *at == from ? to : *at;
}

/* All plans of a stream that is gone are `to`'s: its work is put behind that stream's. */
static ashlar_status rehome(ashlar_allocator *a, ashlar_order *from, ashlar_order *to) {
    ashlar_region *region = ashlar_planner_region(a, from);
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

/* Errors: ASHLAR_EHOSTMEM, ASHLAR_EDRIVER. */
static ashlar_status key_of(ashlar_allocator *a, uint64_t number, ashlar_order *order,
                            ashlar_step_key **out) {
    ashlar_step_key *key = find_key(a, number, order);
    if (key == NULL) {
        key = find_orphan(a, number);
        /* Where the new stream has plans of its own, the two could not share a region. */
        if (key != NULL && ashlar_planner_region(a, order) == NULL) {
            const ashlar_status status = rehome(a, key->order, order);
            if (status != ASHLAR_OK) {
                return status;
            }
        } else {
            return new_key(a, number, order, out);
        }
    }
    *out = key;
    return ASHLAR_OK;
}

/* ---- beginning ---- */

/* Have every hit of every thread go by the lock, where a recording sees it; or no longer. */
static void watch(ashlar_allocator *a, bool begins) {
    a->planner.recording_count += begins ? 1 : (size_t)-1;
    ashlar_caches_rewatch_locked(a);
}

static bool may_use(const ashlar_allocator *a, const ashlar_plan *plan) {
    for (uint32_t part = 0; part < plan->part_count; part++) {
        const ashlar_region *region = ashlar_planner_region(a, plan->parts[part].order);
        if (region != NULL && region->is_busy) {
            return false;
        }
    }
    return plan->expiry_count > 0;
}

static ashlar_stream name_of(const ashlar_order *order) {
    const bool is_open = !order->is_gone && !order->is_ended && order->pool == NULL &&
                         !ashlar_order_is_others(order);
    return is_open ? order->stream : ASHLAR_NO_STREAM;
}

static void begin_replay(ashlar_allocator *a, ashlar_cache *own, const ashlar_plan *plan) {
    ashlar_run *run = own->run;
    for (uint32_t part = 0; part < plan->part_count; part++) {
        ashlar_region *region = ashlar_planner_region(a, plan->parts[part].order);
        run->streams[part] = name_of(plan->parts[part].order);
        run->regions[part] = region;
        if (region != NULL) {
            region->is_busy = true;
        }
    }
    ashlar_run_start(run, plan);
    ashlar_cache_set_replay(own, run);
}

static void begin_recording(ashlar_allocator *a, ashlar_run *run) {
    run->is_recorded = true;
    run->key->is_busy = true;
    watch(a, true);
}

static ashlar_status begin_locked(ashlar_allocator *a, ashlar_cache *own, ashlar_stream stream,
                                  uint64_t number) {
    ashlar_run *run = own->run;
    ashlar_order *order = NULL;
    ashlar_step_key *key = NULL;
    ashlar_status status = ashlar_order_of_locked(a, stream, &order);
    if (status == ASHLAR_OK) {
        status = key_of(a, number, order, &key);
    }
    if (status != ASHLAR_OK) {
        return status;
    }
    ashlar_planner_tidy_locked(a);
    run->depth = 1;
    a->planner.run_count++;
    run->key = NULL;
    run->is_recorded = false;
    if (key->is_busy || a->planner.is_installing || order->pool != NULL) {
        a->planner.stats.steps_declined++;
        return ASHLAR_OK;
    }
    if (key->plan == NULL || key->is_wanted) {
        run->key = key;
        begin_recording(a, run);
    } else if (may_use(a, key->plan)) {
        run->key = key;
        begin_replay(a, own, key->plan);
    } else {
        a->planner.stats.steps_declined++;
    }
    return ASHLAR_OK;
}

static ashlar_run *run_of(ashlar_cache *own) {
    if (own->run == NULL) {
        own->run = ashlar_host_calloc(1, sizeof *own->run);
    }
    return own->run;
}

ashlar_status ashlar_step_begin(ashlar_allocator *a, ashlar_stream stream, uint64_t key) {
    ashlar_cache *own = ashlar_cache_get(a);
    if (own == NULL) {
        return ASHLAR_OK;
    }
    if (run_of(own) == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory for a step");
    }
    pthread_mutex_lock(&a->lock);
    ashlar_status status = ASHLAR_OK;
    if (own->run->depth > 0) {
        own->run->depth++;
    } else {
        status = begin_locked(a, own, stream, key);
    }
    pthread_mutex_unlock(&a->lock);
    return status;
}

/* ---- recording ---- */

void ashlar_step_note_alloc_locked(ashlar_cache *own, size_t requested, ashlar_block *block) {
    /* A graph's blocks are its pool's for as long as that lives. */
    if (own != NULL && own->run != NULL && own->run->is_recorded && !block->order->is_pool) {
        ashlar_recording_add(&own->run->recording, requested, block->tag, block->order, block);
    }
}

void ashlar_step_note_free_locked(ashlar_allocator *a, const ashlar_block *block, bool is_planned) {
    if (a->planner.recording_count == 0 || ashlar_block_is_seat(block)) {
        return;
    }
    for (ashlar_cache *cache = a->caches; cache != NULL; cache = cache->next) {
        if (cache->run != NULL && cache->run->is_recorded &&
            ashlar_recording_end(&cache->run->recording, block, is_planned)) {
            return;
        }
    }
}

/* ---- ending ---- */

static void end_replay(ashlar_allocator *a, ashlar_cache *own) {
    ashlar_run *run = own->run;
    ashlar_plan_stats *stats = &a->planner.stats;
    uint64_t misses = 0;
    ashlar_cache_set_replay(own, NULL);
    ashlar_run_stop(run);
    for (uint32_t part = 0; part < run->plan->part_count; part++) {
        if (run->regions[part] != NULL) {
            run->regions[part]->is_busy = false;
        }
    }
    for (int i = 0; i < ASHLAR_PLAN_MISS_COUNT; i++) {
        stats->misses[i] += run->misses[i];
        misses += run->misses[i];
    }
    stats->hits += run->hits;
    stats->unplanned += run->unplanned;
    stats->steps_replayed++;
    ashlar_step_key *key = run->key;
    const uint32_t patience = a->planner.options.rerecord_after;
    key->diverged = misses > 0 ? key->diverged + 1 : 0;
    if (patience > 0 && key->diverged >= patience) {
        key->is_wanted = key->is_stale = true;
    }
}

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

static void stop_recording(ashlar_allocator *a, ashlar_run *run) {
    run->is_recorded = false;
    run->key->is_busy = false;
    watch(a, false);
}

static ashlar_status end_recording(ashlar_allocator *a, ashlar_run *run) {
    stop_recording(a, run);
    ashlar_recording_close(&run->recording);
    const ashlar_status status = keep(run->key, &run->recording);
    a->planner.stats.steps_recorded += status == ASHLAR_OK;
    return status;
}

/* Whether the key is to be planned now, without being asked. */
static bool is_due(const ashlar_allocator *a, const ashlar_step_key *key) {
    const uint32_t after = a->planner.options.build_after;
    return after > 0 && key->step_count >= after && !key->is_current && !key->is_wanted &&
           !key->is_busy;
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
        end_replay(a, own);
    }
    run->key = NULL;
    ashlar_planner_tidy_locked(a);
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

void ashlar_step_abandon_locked(ashlar_allocator *a, ashlar_cache *cache) {
    ashlar_run *run = cache->run;
    if (run == NULL) {
        return;
    }
    if (run->depth > 0) {
        a->planner.run_count--;
        if (run->is_recorded) {
            stop_recording(a, run);
        } else if (run->key != NULL) {
            end_replay(a, cache);
        }
    }
    ashlar_recording_finish(&run->recording);
    ashlar_host_free(run);
    cache->run = NULL;
}

void ashlar_step_forget_order(ashlar_cache *cache, const ashlar_order *order) {
    ashlar_run *run = cache->run;
    for (uint32_t part = 0; cache->replay != NULL && part < run->plan->part_count; part++) {
        if (run->plan->parts[part].order == order) {
            run->streams[part] = ASHLAR_NO_STREAM;
        }
    }
}
