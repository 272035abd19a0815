#include "allocator/plan/run.h"

#include <string.h>

#include "allocator/base/check_level.h"

/*
 * Let the time of slots be over, in the order of their ends: those still live are late. A seat that
 * is on the list already, say since an earlier step, is no slot's.
 */
static void expire(ashlar_run *run, uint32_t end) {
    while (run->expired < end) {
        const ashlar_slot *slot = run->plan->expiry[run->expired++];
        ashlar_block *seat = slot->seat;
        if (seat->slot == slot && ashlar_seat_is_taken(seat)) {
            ashlar_plan_region *region = run->regions[slot->part];
            seat->slot = NULL;
            region->late[region->late_count++] = seat;
            run->late_count++;
        }
    }
}

static uint32_t next_of(const ashlar_run *run) {
    return (uint32_t)(run->next - run->plan->slots);
}

/* Nothing fits it. */
static const ashlar_slot no_slot;

ashlar_run ashlar_no_run = {.next = &no_slot};

uint64_t ashlar_run_served(const ashlar_run *run) {
    const ashlar_slot *next = run->next == &no_slot ? run->held : run->next;
    return run->hits_before + (uint64_t)(next - run->plan->slots) - run->unserved;
}

/* While something is late, no request is served without a look at it. */
static void hold(ashlar_run *run) {
    run->held = run->next;
    run->next = run->late_count > 0 ? &no_slot : run->next;
}

void ashlar_run_start(ashlar_run *run, ashlar_plan *plan) {
    run->plan = plan;
    run->next = plan->slots;
    run->expired = 0;
    run->skipped_count = 0;
    run->unplanned = 0;
    run->unserved = 0;
    memset(run->misses, 0, sizeof run->misses);
    run->late_count = 0;
    ashlar_plan_name_streams(plan, run->streams);
    for (uint32_t part = 0; part < plan->part_count; part++) {
        if (run->regions[part] != NULL) {
            ashlar_region_clean(run->regions[part]);
            run->late_count += run->regions[part]->late_count;
        }
    }
    hold(run);
}

/* No longer held; and past what the requests that were as expected have found dead. */
static void let_go(ashlar_run *run) {
    run->next = run->next == &no_slot ? run->held : run->next;
    const uint32_t next = next_of(run);
    const uint32_t seen = next > 0 ? run->plan->expired_to[next - 1] : 0;
    run->expired = seen > run->expired ? seen : run->expired;
}

void ashlar_run_stop(ashlar_run *run) {
    let_go(run);
    expire(run, run->plan->expiry_count);
}

/* ---- what is in the way ---- */

/* Whether a slot's addresses meet no late block. Takes what was freed off the list. */
static bool is_clear(ashlar_run *run, const ashlar_slot *slot) {
    ashlar_plan_region *region = run->regions[slot->part];
    const size_t begin = slot->seat->offset, end = begin + slot->bytes;
    run->late_count -= region->late_count;
    ashlar_region_clean(region);
    run->late_count += region->late_count;
    for (size_t i = 0; i < region->late_count; i++) {
        const ashlar_block *late = region->late[i];
        if (late->offset < end && begin < late->offset + late->bytes) {
            return false;
        }
    }
    return true;
}

/* ---- finding the slot ---- */

typedef struct request {
    size_t bytes;
    unsigned tag;
    ashlar_stream stream;
} request;

static bool fits(const ashlar_run *run, const ashlar_slot *slot, const request *r) {
    return r->bytes <= ashlar_slot_room(slot) && slot->tag == r->tag &&
           run->streams[slot->part] == r->stream;
}

/* Where a step that was merged into the plan may go on; plan->count: nowhere. */
static uint32_t find_landing(const ashlar_run *run, const request *r) {
    const ashlar_plan *plan = run->plan;
    uint32_t low = 0, high = plan->landing_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (plan->landings[middle] <= next_of(run)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    while (low < plan->landing_count && !fits(run, &run->plan->slots[plan->landings[low]], r)) {
        low++;
    }
    return low < plan->landing_count ? plan->landings[low] : plan->count;
}

static void skip(ashlar_run *run, uint32_t i) {
    if (run->skipped_count == ASHLAR_RUN_SKIPPED_MAX) {
        run->skipped_count--;
        memmove(run->skipped, run->skipped + 1, run->skipped_count * sizeof run->skipped[0]);
    }
    run->skipped[run->skipped_count++] = i;
}

/* A slot passed over that the recorded step would have live now. */
static ashlar_block *serve_skipped(ashlar_run *run, const request *r) {
    for (uint32_t k = 0; k < run->skipped_count; k++) {
        const ashlar_slot *slot = &run->plan->slots[run->skipped[k]];
        if (slot->bytes > 0 && fits(run, slot, r) && slot->end >= next_of(run) &&
            is_clear(run, slot)) {
            run->skipped_count--;
            run->unserved--;
            memmove(run->skipped + k, run->skipped + k + 1,
                    (run->skipped_count - k) * sizeof run->skipped[0]);
            return ashlar_run_seat(slot);
        }
    }
    return NULL;
}

/* The next slot near that stands for the request; plan->count: there is none. */
static uint32_t look_ahead(const ashlar_run *run, const request *r) {
    uint32_t i = next_of(run);
    for (int kinds = 0; i < run->plan->count && kinds <= ASHLAR_PLAN_LOOK_AHEAD; kinds++) {
        if (fits(run, &run->plan->slots[i], r)) {
            return i;
        }
        i = run->plan->next_kind[i];
    }
    return run->plan->count;
}

static ashlar_plan_miss reason(const ashlar_run *run, const request *r) {
    const ashlar_slot *slot = run->next;
    if (next_of(run) == run->plan->count) {
        return ASHLAR_PLAN_MISS_EXTRA;
    }
    if (run->streams[slot->part] != r->stream) {
        return ASHLAR_PLAN_MISS_STREAM;
    }
    return slot->tag != r->tag ? ASHLAR_PLAN_MISS_TAG : ASHLAR_PLAN_MISS_BYTES;
}

/* Let time pass to slot i, which is behind what was expected or that itself. */
static void advance(ashlar_run *run, uint32_t i) {
    const uint32_t next = next_of(run);
    const uint32_t first = i - next > ASHLAR_RUN_SKIPPED_MAX ? i - ASHLAR_RUN_SKIPPED_MAX : next;
    for (uint32_t k = first; k < i; k++) {
        skip(run, k);
    }
    expire(run, run->plan->expired_to[i]);
    run->unserved += i - next;
    run->next = &run->plan->slots[i + 1];
}

static ashlar_block *serve_slot(ashlar_run *run, uint32_t i) {
    advance(run, i);
    if (run->plan->slots[i].bytes == 0) {
        run->unplanned++;
        run->unserved++;
        return NULL;
    }
    if (!is_clear(run, &run->plan->slots[i])) {
        run->unserved++;
        run->misses[ASHLAR_PLAN_MISS_LIVE]++;
        return NULL;
    }
    return ashlar_run_seat(&run->plan->slots[i]);
}

static ashlar_block *serve(ashlar_run *run, const request *r) {
    if (fits(run, run->next, r)) {
        return serve_slot(run, next_of(run));
    }
    /* Before what was passed over: a step that was merged is to find its own slots. */
    uint32_t i = find_landing(run, r);
    if (i == run->plan->count) {
        ashlar_block *seat = serve_skipped(run, r);
        if (seat != NULL) {
            return seat;
        }
        i = look_ahead(run, r);
    }
    if (i == run->plan->count) {
        run->misses[reason(run, r)]++;
        return NULL;
    }
    return serve_slot(run, i);
}

ASHLAR_NOINLINE ashlar_block *ashlar_run_serve_otherwise(ashlar_run *run, size_t bytes,
                                                         unsigned tag, ashlar_stream stream) {
    const request r = {bytes, tag, stream};
    if (bytes == 0) {
        return NULL; /* an error, told by the ordinary path */
    }
    let_go(run);
    ashlar_block *block = serve(run, &r);
    hold(run);
    return block;
}

/* ---- the end of a step ---- */

void ashlar_run_stop_recording(ashlar_run *run, ashlar_planner *planner) {
    run->is_recorded = false;
    run->key->is_busy = false;
    planner->recording_count--;
}

void ashlar_run_end_replay(ashlar_run *run, ashlar_planner *planner, uint64_t planned_count) {
    ashlar_plan_stats *stats = &planner->stats;
    uint64_t misses = 0;
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
    stats->hits += planned_count - run->hits_before;
    stats->unplanned += run->unplanned;
    stats->steps_replayed++;
    ashlar_step_key *key = run->key;
    key->replay_count--;
    const uint32_t patience = planner->options.rerecord_after;
    key->diverged = misses > 0 ? key->diverged + 1 : 0;
    if (patience > 0 && key->diverged >= patience) {
        key->is_stale = true;
    }
}

void ashlar_run_forget_order(ashlar_run *run, const ashlar_order *order) {
    for (uint32_t part = 0; part < run->plan->part_count; part++) {
        if (run->plan->parts[part].order == order) {
            run->streams[part] = ASHLAR_NO_STREAM;
        }
    }
    if (run->plan->part_count > 0) {
        ashlar_plan_name_streams(run->plan, run->streams);
    }
}
