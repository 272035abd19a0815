/* plan_replay.c - finding the slot for each request of a step that is replayed. */
#include "allocator/plan/plan_replay.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

/* Expire slots in the order of their ends, up to entry `end` of plan->expiry. The blocks of expired
 * slots that are still live become late. A slot block with slot == NULL is on the late list already
 * and is not added again. */
static void expire(ashlar_replay *replay, uint32_t end) {
    ASHLAR_CHECK2(end <= replay->plan->expiry_count);
    while (replay->expired < end) {
        const ashlar_slot *slot = replay->plan->expiry[replay->expired++];
        ashlar_block *slot_block = slot->slot_block;
        if (slot_block->slot == slot && ashlar__slot_block_is_taken(slot_block)) {
            ashlar_plan_memory *memory = replay->memories[slot->stream_idx];
            slot_block->slot = NULL;
            ASHLAR_CHECK2(memory->is_busy && memory->late_count < memory->slot_block_count);
            memory->late[memory->late_count++] = slot_block;
            replay->late_count++;
        }
    }
}

static uint32_t next_of(const ashlar_replay *replay) {
    return (uint32_t)(replay->next - replay->plan->slots);
}

/* A slot that fits no request: bytes is 0. */
static const ashlar_slot no_slot;

ashlar_replay ashlar__no_replay = {.next = &no_slot};

/* The invariants of plan_replay.h. O(1). */
static bool is_sound(const ashlar_replay *replay) {
    const ashlar_plan *plan = replay->plan;
    const ashlar_slot *next = replay->next == &no_slot ? replay->held : replay->next;
    return next >= plan->slots && next <= plan->slots + plan->count &&
           replay->expired <= plan->expiry_count &&
           replay->skipped_count <= ASHLAR_REPLAY_SKIPPED_MAX;
}

uint64_t ashlar__replay_served(const ashlar_replay *replay) {
    const ashlar_slot *next = replay->next == &no_slot ? replay->held : replay->next;
    return replay->hits_before + (uint64_t)(next - replay->plan->slots) - replay->unserved;
}

/* While any block is late, make every request take the slow way, which looks at the late lists. */
static void hold(ashlar_replay *replay) {
    ASHLAR_CHECK2(replay->next != &no_slot);
    replay->held = replay->next;
    replay->next = replay->late_count > 0 ? &no_slot : replay->next;
}

void ashlar__replay_start(ashlar_replay *replay, ashlar_plan *plan) {
    replay->plan = plan;
    replay->next = plan->slots;
    replay->expired = 0;
    replay->skipped_count = 0;
    replay->unplanned = 0;
    replay->unserved = 0;
    memset(replay->misses, 0, sizeof replay->misses);
    replay->late_count = 0;
    ashlar__plan_name_streams(plan, replay->streams);
    for (uint32_t stream_idx = 0; stream_idx < plan->stream_count; stream_idx++) {
        if (replay->memories[stream_idx] != NULL) {
            ASHLAR_CHECK2(replay->memories[stream_idx]->stream_state ==
                          plan->stream_plans[stream_idx].stream_state);
            ashlar__plan_memory_clean(replay->memories[stream_idx]);
            replay->late_count += replay->memories[stream_idx]->late_count;
        }
    }
    hold(replay);
    ASHLAR_CHECK2(is_sound(replay));
}

/* Undo hold(), and bring `expired` up to date. ashlar__replay_serve() need not advance it, because
 * it hands out a slot only after seeing that the blocks of the slots that end there are freed. */
static void let_go(ashlar_replay *replay) {
    replay->next = replay->next == &no_slot ? replay->held : replay->next;
    const uint32_t next = next_of(replay);
    const uint32_t seen = next > 0 ? replay->plan->expired_to[next - 1] : 0;
    replay->expired = seen > replay->expired ? seen : replay->expired;
    ASHLAR_CHECK2(is_sound(replay));
}

/* End the step: its blocks that are still live are late from now on. */
static void replay_stop(ashlar_replay *replay) {
    let_go(replay);
    expire(replay, replay->plan->expiry_count);
}

/* ---- what is in the way ---- */

static bool overlaps(const ashlar_block *block, size_t begin, size_t end) {
    return block->offset < end && begin < block->offset + block->bytes;
}

/* Whether no late block overlaps a slot. Takes the freed blocks off the late list on the way. */
static bool is_clear(ashlar_replay *replay, const ashlar_slot *slot) {
    ashlar_plan_memory *memory = replay->memories[slot->stream_idx];
    if (memory == NULL) {
        return true; /* ashlar__replay_find_served() replays without memory */
    }
    ASHLAR_CHECK2(slot->bytes > 0 && replay->late_count >= memory->late_count);
    const size_t begin = slot->slot_block->offset, end = begin + slot->bytes;
    replay->late_count -= memory->late_count;
    ashlar__plan_memory_clean(memory);
    replay->late_count += memory->late_count;
    for (size_t i = 0; i < memory->late_count; i++) {
        if (overlaps(memory->late[i], begin, end)) {
            return false;
        }
    }
    return true;
}

/* Whether no live block would overlap slot i if time passed to it now. */
static bool would_be_clear(ashlar_replay *replay, uint32_t i) {
    const ashlar_slot *slot = &replay->plan->slots[i];
    const size_t begin = slot->slot_block->offset, end = begin + slot->bytes;
    for (uint32_t k = replay->expired; k < replay->plan->expired_to[i]; k++) {
        const ashlar_slot *ended = replay->plan->expiry[k];
        const ashlar_block *block = ended->slot_block;
        if (ended->stream_idx == slot->stream_idx && block->slot == ended &&
            ashlar__slot_block_is_taken(block) && overlaps(block, begin, end)) {
            return false;
        }
    }
    return is_clear(replay, slot);
}

/* ---- finding the slot ---- */

typedef struct request {
    size_t bytes;
    unsigned tag;
    ashlar_stream stream;
} request;

static bool names(const ashlar_replay *replay, ashlar_stream stream) {
    uint32_t stream_idx = 0;
    while (stream_idx < replay->plan->stream_count && replay->streams[stream_idx] != stream) {
        stream_idx++;
    }
    return stream_idx < replay->plan->stream_count;
}

/* Whether the slot is for requests on `stream`. An allocation that is not planned because its
 * stream has ended may come on any stream that the plan does not name. */
static bool is_for(const ashlar_replay *replay, const ashlar_slot *slot, ashlar_stream stream) {
    const ashlar_stream named = replay->streams[slot->stream_idx];
    return named == stream ||
           (named == ASHLAR_NO_STREAM && slot->bytes == 0 && !names(replay, stream));
}

static bool fits(const ashlar_replay *replay, const ashlar_slot *slot, const request *r) {
    const bool is_size =
        slot->is_refused ? r->bytes >= slot->unplanned : r->bytes <= ashlar__slot_room(slot);
    return is_size && slot->tag == r->tag && is_for(replay, slot, r->stream);
}

/* The next slot that fits the request and is a landing: a step merged into the plan went on there
 * after leaving out other slots. plan->count: there is none. See ashlar_recorded.is_landing. */
static uint32_t find_landing(const ashlar_replay *replay, const request *r) {
    const ashlar_plan *plan = replay->plan;
    uint32_t low = 0, high = plan->landing_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (plan->landings[middle] <= next_of(replay)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    while (low < plan->landing_count &&
           !fits(replay, &replay->plan->slots[plan->landings[low]], r)) {
        low++;
    }
    return low < plan->landing_count ? plan->landings[low] : plan->count;
}

/* Remember that slot i is passed over, and forget the oldest one if there are too many. */
static void skip(ashlar_replay *replay, uint32_t i) {
    ASHLAR_CHECK2(replay->skipped_count == 0 || replay->skipped[replay->skipped_count - 1] < i);
    if (replay->skipped_count == ASHLAR_REPLAY_SKIPPED_MAX) {
        replay->skipped_count--;
        memmove(replay->skipped, replay->skipped + 1,
                replay->skipped_count * sizeof replay->skipped[0]);
    }
    replay->skipped[replay->skipped_count++] = i;
}

/* Take, for a request, a slot that was passed over and was still live at this time of the recorded
 * step. NULL: there is none. */
static const ashlar_slot *take_skipped(ashlar_replay *replay, const request *r) {
    for (uint32_t k = 0; k < replay->skipped_count; k++) {
        const ashlar_slot *slot = &replay->plan->slots[replay->skipped[k]];
        if (slot->bytes > 0 && fits(replay, slot, r) && slot->end >= next_of(replay) &&
            is_clear(replay, slot)) {
            ASHLAR_CHECK2(replay->unserved > 0 && replay->skipped[k] < next_of(replay));
            replay->skipped_count--;
            replay->unserved--;
            memmove(replay->skipped + k, replay->skipped + k + 1,
                    (replay->skipped_count - k) * sizeof replay->skipped[0]);
            return slot;
        }
    }
    return NULL;
}

/* The next slot that fits the request; plan->count: none in the next few runs of alike slots. */
static uint32_t look_ahead(const ashlar_replay *replay, const request *r) {
    uint32_t i = next_of(replay);
    for (int kinds = 0; i < replay->plan->count && kinds <= ASHLAR_PLAN_LOOK_AHEAD; kinds++) {
        if (fits(replay, &replay->plan->slots[i], r)) {
            return i;
        }
        i = replay->plan->next_kind[i];
    }
    return replay->plan->count;
}

/* The reason why no slot was found for a request. */
static ashlar_plan_miss reason(const ashlar_replay *replay, const request *r) {
    const ashlar_slot *slot = replay->next;
    if (next_of(replay) == replay->plan->count) {
        return ASHLAR_PLAN_MISS_EXTRA;
    }
    if (replay->streams[slot->stream_idx] != r->stream) {
        return ASHLAR_PLAN_MISS_STREAM;
    }
    return slot->tag != r->tag ? ASHLAR_PLAN_MISS_TAG : ASHLAR_PLAN_MISS_BYTES;
}

/* Let time pass to slot i, which is the next slot or a later one. */
static void advance(ashlar_replay *replay, uint32_t i) {
    const uint32_t next = next_of(replay);
    ASHLAR_CHECK2(next <= i && i < replay->plan->count);
    const uint32_t first =
        i - next > ASHLAR_REPLAY_SKIPPED_MAX ? i - ASHLAR_REPLAY_SKIPPED_MAX : next;
    for (uint32_t k = first; k < i; k++) {
        skip(replay, k);
    }
    expire(replay, replay->plan->expired_to[i]);
    replay->unserved += i - next;
    replay->next = &replay->plan->slots[i + 1];
}

static const ashlar_slot *take_slot(ashlar_replay *replay, uint32_t i) {
    advance(replay, i);
    if (replay->plan->slots[i].bytes == 0) {
        replay->is_at_refusal = replay->plan->slots[i].is_refused;
        replay->unplanned++;
        replay->unserved++;
        return NULL;
    }
    if (!is_clear(replay, &replay->plan->slots[i])) {
        replay->unserved++;
        replay->misses[ASHLAR_PLAN_MISS_LIVE]++;
        replay->is_at_miss = true;
        return NULL;
    }
    return &replay->plan->slots[i];
}

/* The slot to go on with if the next one stands for a refused request that fits this one. Perhaps
 * only another of the merged steps was refused there, and this one goes on at a landing: if one
 * fits the request and nothing is in its way, it is preferred. */
static uint32_t refusal_or_landing(ashlar_replay *replay, const request *r) {
    const uint32_t i = find_landing(replay, r);
    return i < replay->plan->count && replay->plan->slots[i].bytes > 0 && would_be_clear(replay, i)
               ? i
               : next_of(replay);
}

/* The slot for the request; NULL: the ordinary path serves it. */
static const ashlar_slot *take(ashlar_replay *replay, const request *r) {
    if (fits(replay, replay->next, r)) {
        return take_slot(replay, replay->next->is_refused ? refusal_or_landing(replay, r)
                                                          : next_of(replay));
    }
    /* Try landings before passed-over slots, so that a merged step finds its own slots. */
    uint32_t i = find_landing(replay, r);
    if (i == replay->plan->count) {
        const ashlar_slot *slot = take_skipped(replay, r);
        if (slot != NULL) {
            return slot;
        }
        i = look_ahead(replay, r);
    }
    if (i == replay->plan->count) {
        replay->misses[reason(replay, r)]++;
        replay->is_at_miss = true;
        return NULL;
    }
    return take_slot(replay, i);
}

ASHLAR_NOINLINE ashlar_block *ashlar__replay_serve_otherwise(ashlar_replay *replay, size_t bytes,
                                                             unsigned tag, ashlar_stream stream) {
    const request r = {bytes, tag, stream};
    if (bytes == 0) {
        return NULL; /* the caller's mistake, which the ordinary path reports */
    }
    let_go(replay);
    replay->is_at_refusal = replay->is_at_miss = false;
    const ashlar_slot *slot = take(replay, &r);
    hold(replay);
    ASHLAR_CHECK2(is_sound(replay));
    ASHLAR_CHECK2(slot == NULL || slot->bytes >= bytes);
    return slot != NULL ? ashlar__replay_slot_block(slot) : NULL;
}

/* ---- the end of a step ---- */

void ashlar__replay_stop_recording(ashlar_replay *replay, ashlar_planner *planner) {
    ASHLAR_CHECK2(replay->is_recorded && replay->key->is_busy && planner->recording_count > 0);
    replay->is_recorded = false;
    replay->key->is_busy = false;
    planner->recording_count--;
}

void ashlar__replay_end_replay(ashlar_replay *replay, ashlar_planner *planner,
                               uint64_t planned_count) {
    ashlar_plan_stats *stats = &planner->stats;
    uint64_t misses = 0;
    ASHLAR_CHECK2(planned_count >= replay->hits_before && replay->key->replay_count > 0);
    replay_stop(replay);
    for (uint32_t stream_idx = 0; stream_idx < replay->plan->stream_count; stream_idx++) {
        if (replay->memories[stream_idx] != NULL) {
            replay->memories[stream_idx]->is_busy = false;
        }
    }
    for (int i = 0; i < ASHLAR_PLAN_MISS_COUNT; i++) {
        stats->misses[i] += replay->misses[i];
        misses += replay->misses[i];
    }
    stats->miss_count += misses;
    stats->hits += planned_count - replay->hits_before;
    stats->unplanned += replay->unplanned;
    stats->steps_replayed++;
    ashlar_step_key *key = replay->key;
    key->replay_count--;
    const uint32_t patience = planner->options.rerecord_after;
    key->diverged = misses > 0 ? key->diverged + 1 : 0;
    if (patience > 0 && key->diverged >= patience) {
        key->is_stale = true;
    }
}

void ashlar__replay_forget_stream(ashlar_replay *replay, const ashlar_stream_state *state) {
    for (uint32_t stream_idx = 0; stream_idx < replay->plan->stream_count; stream_idx++) {
        if (replay->plan->stream_plans[stream_idx].stream_state == state) {
            replay->streams[stream_idx] = ASHLAR_NO_STREAM;
        }
    }
    if (replay->plan->stream_count > 0) {
        ashlar__plan_name_streams(replay->plan, replay->streams);
    }
}

/* ---- whether one recording's plan serves another's step ---- */

/* What serves one allocation of the step: its slot, and the replay's time after it. */
typedef struct served {
    const ashlar_slot *slot;
    uint32_t time;
} served;

/* Whether each allocation of `more` has a slot exactly if it is planned, is freed before its slot
 * ends, and is shared only if the slot is. `by`: [more->count]. */
static bool are_held(const ashlar_recording *more, const served *by) {
    bool is_so = true;
    for (uint32_t i = 0; i < more->count && is_so; i++) {
        const ashlar_recorded *a = &more->allocs[i];
        const ashlar_slot *slot = by[i].slot;
        is_so = slot->bytes == 0 || a->end == ASHLAR_NOT_PLANNED
                    ? slot->bytes == 0 && a->end == ASHLAR_NOT_PLANNED
                    : by[a->end - 1].time <= slot->end && (slot->is_shared || !a->is_shared);
    }
    return is_so;
}

/* Replay the step of `more` on the outline of a plan of `base`: without memory, no block is in the
 * way. The address of a stream's state stands for the stream's handle. */
static bool serves_all(ashlar_plan *plan, const ashlar_recording *base,
                       const ashlar_recording *more, served *by) {
    ashlar_replay replay = {.plan = plan, .next = plan->slots};
    bool is_so = true;
    for (uint32_t k = 0; k < base->stream_count; k++) {
        replay.streams[k] = (ashlar_stream)(void *)base->stream_states[k];
    }
    for (uint32_t i = 0; i < more->count && is_so; i++) {
        const ashlar_recorded *a = &more->allocs[i];
        const request r = {a->bytes, a->tag,
                           (ashlar_stream)(void *)more->stream_states[a->stream_idx]};
        const uint32_t next = next_of(&replay);
        const ashlar_slot *slot = take(&replay, &r);
        by[i].time = next_of(&replay);
        /* If time has passed without a block, the slot that was found is not planned. */
        by[i].slot = slot == NULL && by[i].time > next ? replay.next - 1 : slot;
        is_so = by[i].slot != NULL && !by[i].slot->is_refused && !a->is_refused;
    }
    return is_so && are_held(more, by);
}

ashlar_status ashlar__replay_find_served(const ashlar_recording *base, const ashlar_recording *more,
                                         bool *is_served) {
    ashlar_plan *plan = NULL;
    bool has_landing = false;
    for (uint32_t i = 0; i < more->count; i++) {
        has_landing |= more->allocs[i].is_landing;
    }
    *is_served = false;
    if (more->count > base->count || has_landing) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(ashlar__plan_outline(base, &plan));
    served *by = ashlar__host_calloc((size_t)more->count + 1, sizeof *by);
    *is_served = by != NULL && plan->landing_count == 0 && serves_all(plan, base, more, by);
    ashlar__host_free(by);
    ashlar__plan_free(plan);
    return by != NULL ? ASHLAR_OK
                      : ashlar__fail(ASHLAR_EHOSTMEM, "no host memory to compare two recordings");
}
