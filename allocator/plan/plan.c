/* plan.c - turning a recording into a plan: slots, their order of expiry, and their offsets. */
#include "allocator/plan/plan.h"

#include <string.h>

#include <ashlar/allocator.h>

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/heap/block.h"

void ashlar__plan_free(ashlar_plan *plan) {
    if (plan != NULL) {
        ashlar__host_free(plan->slots);
        ashlar__host_free(plan->offsets);
        ashlar__host_free((void *)plan->expiry);
        ashlar__host_free(plan->expired_to);
        ashlar__host_free(plan->landings);
        ashlar__host_free(plan->next_kind);
        ashlar__host_free(plan);
    }
}

static ashlar_status new_plan(uint32_t count, ashlar_plan **out) {
    ashlar_plan *plan = NULL;
    ASHLAR_HOST_NEW(plan, 1, "no host memory for a plan");
    plan->count = count;
    plan->slots = ashlar__host_calloc((size_t)count + 1, sizeof *plan->slots);
    plan->offsets = ashlar__host_calloc((size_t)count + 1, sizeof *plan->offsets);
    plan->expiry = ashlar__host_calloc((size_t)count + 1, sizeof(ashlar_slot *));
    plan->expired_to = ashlar__host_calloc((size_t)count + 1, sizeof *plan->expired_to);
    plan->landings = ashlar__host_calloc((size_t)count + 1, sizeof *plan->landings);
    plan->next_kind = ashlar__host_calloc((size_t)count + 1, sizeof *plan->next_kind);
    if (plan->slots == NULL || plan->offsets == NULL || plan->expiry == NULL ||
        plan->expired_to == NULL || plan->landings == NULL || plan->next_kind == NULL) {
        ashlar__plan_free(plan);
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a plan of %u slots", count);
    }
    *out = plan;
    return ASHLAR_OK;
}

static bool is_alike(const ashlar_slot *a, const ashlar_slot *b) {
    return ashlar__slot_room(a) == ashlar__slot_room(b) && a->tag == b->tag &&
           a->stream_idx == b->stream_idx && a->is_refused == b->is_refused;
}

static void link_kinds(ashlar_plan *plan) {
    plan->next_kind[plan->count] = plan->count;
    for (uint32_t i = plan->count; i-- > 0;) {
        const ashlar_slot *slot = &plan->slots[i];
        const bool goes_on = i + 1 < plan->count && is_alike(slot, slot + 1);
        plan->next_kind[i] = goes_on ? plan->next_kind[i + 1] : i + 1;
        ASHLAR_CHECK2(i < plan->next_kind[i] && plan->next_kind[i] <= plan->count);
    }
}

static ashlar_status fill_slots(ashlar_plan *plan, const ashlar_recording *recording) {
    for (uint32_t i = 0; i < plan->count; i++) {
        const ashlar_recorded *a = &recording->allocs[i];
        ashlar_slot *slot = &plan->slots[i];
        slot->tag = a->tag;
        slot->stream_idx = a->stream_idx;
        slot->end = ashlar__recording_held_to(recording, i);
        slot->is_shared = a->is_shared && a->end != ASHLAR_NOT_PLANNED;
        slot->is_refused = a->is_refused;
        slot->unplanned = a->end == ASHLAR_NOT_PLANNED ? a->bytes : 0;
        ASHLAR_CHECK2(a->bytes > 0 && a->stream_idx < recording->stream_count);
        ASHLAR_CHECK2(a->end == ASHLAR_NOT_PLANNED || (i < a->end && a->end <= plan->count));
        if (a->is_landing) {
            plan->landings[plan->landing_count++] = i;
        }
        if (a->end != ASHLAR_NOT_PLANNED &&
            !ashlar__align_up(a->bytes, ASHLAR_BLOCK_ALIGN, &slot->bytes)) {
            return ashlar__fail(ASHLAR_EOVERFLOW, "a recorded allocation of %zu bytes", a->bytes);
        }
    }
    link_kinds(plan);
    return ASHLAR_OK;
}

/* Sort the planned slots by their ends. A counting sort, since ends are at most `count`. `starts`
 * is scratch: [count + 2], all zero. */
static void sort_by_end(ashlar_plan *plan, uint32_t *starts) {
    for (uint32_t i = 0; i < plan->count; i++) {
        if (plan->slots[i].bytes > 0) {
            starts[plan->slots[i].end + 1]++;
            plan->expiry_count++;
        }
    }
    for (uint32_t end = 1; end <= plan->count + 1; end++) {
        starts[end] += starts[end - 1];
    }
    /* Now starts[e + 1] is the number of planned slots that end at or before e. */
    for (uint32_t i = 0; i <= plan->count; i++) {
        plan->expired_to[i] = starts[i + 1];
    }
    ASHLAR_CHECK2(plan->expired_to[0] == 0 && plan->expired_to[plan->count] == plan->expiry_count);
    for (uint32_t i = 0; i < plan->count; i++) {
        if (plan->slots[i].bytes > 0) {
            plan->expiry[starts[plan->slots[i].end]++] = &plan->slots[i];
        }
    }
    for (uint32_t k = 1; ASHLAR_DEBUG >= 3 && k < plan->expiry_count; k++) {
        ASHLAR_CHECK3(plan->expiry[k - 1]->end <= plan->expiry[k]->end);
    }
}

ashlar_block ashlar__no_slot_block;
ashlar_block ashlar__many_slot_blocks = {.requested = ASHLAR_SLOT_BLOCK_AWAITED};

void ashlar__plan_link(ashlar_plan *plan) {
    uint32_t before = 0;
    for (uint32_t i = 0; i <= plan->count; i++) {
        const uint32_t to = plan->expired_to[i];
        ASHLAR_CHECK2(before <= to && to <= plan->expiry_count);
        ASHLAR_CHECK2(to != before + 1 || plan->expiry[before]->slot_block != NULL);
        plan->slots[i].before = to == before       ? &ashlar__no_slot_block
                                : to == before + 1 ? plan->expiry[before]->slot_block
                                                   : &ashlar__many_slot_blocks;
        before = to;
    }
}

void ashlar__plan_name_streams(ashlar_plan *plan, const ashlar_stream *streams) {
    ASHLAR_CHECK2(plan->stream_count <= ASHLAR_PLAN_STREAMS_MAX);
    const size_t bytes = plan->stream_count * sizeof *streams;
    if (plan->has_streams && memcmp(plan->streams, streams, bytes) == 0) {
        return;
    }
    memcpy(plan->streams, streams, bytes);
    plan->has_streams = true;
    for (uint32_t i = 0; i < plan->count; i++) {
        ashlar_slot *slot = &plan->slots[i];
        slot->who = ashlar__slot_who(streams[slot->stream_idx], slot->tag);
    }
}

/* ---- offsets ---- */

/* Place the slots of one stream. `buffers`, `offsets`: [count], overwritten. */
static ashlar_status place_stream(ashlar_plan *plan, uint32_t stream_idx,
                                  const ashlar_pack_options *options, ashlar_pack_buffer *buffers,
                                  size_t *offsets) {
    ashlar_pack_result result;
    ashlar_stream_plan *out = &plan->stream_plans[stream_idx];
    size_t count = 0;
    for (uint32_t i = 0; i < plan->count; i++) {
        const ashlar_slot *slot = &plan->slots[i];
        if (slot->bytes > 0 && slot->stream_idx == stream_idx) {
            buffers[count++] =
                (ashlar_pack_buffer){.bytes = slot->bytes, .begin = i, .end = slot->end};
        }
    }
    ASHLAR_TRY(ashlar_pack(buffers, count, options, offsets, &result));
    out->plan_bytes = result.plan_bytes;
    for (size_t k = 0; k < count; k++) {
        ASHLAR_CHECK2(offsets[k] % ASHLAR_BLOCK_ALIGN == 0 && offsets[k] <= out->plan_bytes);
        ASHLAR_CHECK2(buffers[k].bytes <= out->plan_bytes - offsets[k]);
        plan->offsets[buffers[k].begin] = offsets[k];
    }
    return ASHLAR_OK;
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Place the slots of all streams. A merged recording's peak may count allocations that are not
 * planned; so bound_bytes is at most plan_bytes. */
static ashlar_status place_streams(ashlar_plan *plan, const ashlar_recording *recording,
                                   uint64_t search_ms, const size_t *room) {
    ashlar_pack_options options = {.alignment = ASHLAR_BLOCK_ALIGN, .time_budget_ms = search_ms};
    const size_t max = (size_t)plan->count + 2;
    uint32_t *starts = ashlar__host_calloc(max, sizeof *starts);
    ashlar_pack_buffer *buffers = ashlar__host_calloc(max, sizeof *buffers);
    size_t *offsets = ashlar__host_calloc(max, sizeof *offsets);
    ashlar_status status = ASHLAR_OK;
    if (starts == NULL || buffers == NULL || offsets == NULL) {
        status =
            ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a plan of %u slots", plan->count);
    } else {
        sort_by_end(plan, starts);
        for (uint32_t stream_idx = 0; stream_idx < plan->stream_count && status == ASHLAR_OK;
             stream_idx++) {
            ashlar_stream_plan *p = &plan->stream_plans[stream_idx];
            p->stream_state = recording->stream_states[stream_idx];
            options.capacity_bytes = room != NULL ? room[stream_idx] : 0;
            status = place_stream(plan, stream_idx, &options, buffers, offsets);
            p->bound_bytes = least(p->plan_bytes, recording->peaks[stream_idx]);
        }
    }
    ashlar__host_free(starts);
    ashlar__host_free(buffers);
    ashlar__host_free(offsets);
    return status;
}

/* ---- plans ---- */

ashlar_status ashlar__plan_outline(const ashlar_recording *recording, ashlar_plan **out) {
    ashlar_plan *plan = NULL;
    ASHLAR_CHECK2(recording->blocks == NULL && !recording->is_incomplete);
    ASHLAR_CHECK3(ashlar__recording_is_sound(recording));
    ASHLAR_TRY(new_plan(recording->count, &plan));
    plan->stream_count = recording->stream_count;
    ASHLAR_HAND_OUT(fill_slots(plan, recording), plan, ashlar__plan_free, out);
}

ashlar_status ashlar__plan_make(const ashlar_recording *recording, uint64_t search_ms,
                                const size_t *room, ashlar_plan **out) {
    ashlar_plan *plan = NULL;
    ASHLAR_TRY(ashlar__plan_outline(recording, &plan));
    ASHLAR_HAND_OUT(place_streams(plan, recording, search_ms, room), plan, ashlar__plan_free, out);
}

bool ashlar__plan_uses(const ashlar_plan *plan, const ashlar_stream_state *state) {
    bool is_found = false;
    for (uint32_t stream_idx = 0; plan != NULL && stream_idx < plan->stream_count; stream_idx++) {
        is_found |= plan->stream_plans[stream_idx].stream_state == state &&
                    plan->stream_plans[stream_idx].plan_bytes > 0;
    }
    return is_found;
}

bool ashlar__plan_has_ended(const ashlar_plan *plan) {
    bool is_found = false;
    for (uint32_t stream_idx = 0; plan != NULL && stream_idx < plan->stream_count; stream_idx++) {
        is_found |= plan->stream_plans[stream_idx].plan_bytes > 0 &&
                    ashlar__stream_state_has_ended(plan->stream_plans[stream_idx].stream_state);
    }
    return is_found;
}
