/* recording_served.c - whether the slots of one recording serve the step of another. */
#include "allocator/plan/recording.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/heap/size_class.h"

/* Whether slot k of `base` may serve allocation i of `more`, as a replay sees it. */
static bool fits(const ashlar_recording *base, uint32_t k, const ashlar_recording *more,
                 uint32_t i) {
    const ashlar_recorded *slot = &base->allocs[k], *a = &more->allocs[i];
    return slot->tag == a->tag && a->bytes <= slot->bytes && !slot->is_refused &&
           base->stream_states[slot->stream_idx] == more->stream_states[a->stream_idx];
}

static bool is_alike(const ashlar_recorded *a, const ashlar_recorded *b) {
    return (a->bytes - 1) / ASHLAR_BLOCK_ALIGN == (b->bytes - 1) / ASHLAR_BLOCK_ALIGN &&
           a->tag == b->tag && a->stream_idx == b->stream_idx && a->is_refused == b->is_refused;
}

/* A replay of `base` by the allocations of `more`, as plan_replay.c would serve them. */
typedef struct imagined {
    const ashlar_recording *base, *more;
    uint32_t next;
    uint32_t skipped[ASHLAR_REPLAY_SKIPPED_MAX], skipped_count;
    uint32_t *slots, *times; /* [more->count]: of each allocation its slot, and `next` after it */
} imagined;

/* The slot among those passed over that serves allocation i; base->count: none. */
static uint32_t take_skipped(imagined *m, uint32_t i) {
    uint32_t k = 0;
    while (k < m->skipped_count && !(fits(m->base, m->skipped[k], m->more, i) &&
                                     m->base->allocs[m->skipped[k]].end != ASHLAR_NOT_PLANNED &&
                                     m->base->allocs[m->skipped[k]].end >= m->next)) {
        k++;
    }
    if (k == m->skipped_count) {
        return m->base->count;
    }
    const uint32_t slot = m->skipped[k];
    m->skipped_count--;
    memmove(&m->skipped[k], &m->skipped[k + 1], (m->skipped_count - k) * sizeof m->skipped[0]);
    return slot;
}

static uint32_t look_ahead(const imagined *m, uint32_t i) {
    const ashlar_recording *base = m->base;
    uint32_t k = m->next;
    for (int kinds = 0; k < base->count && kinds <= ASHLAR_PLAN_LOOK_AHEAD; k++) {
        if (fits(base, k, m->more, i)) {
            return k;
        }
        kinds += k + 1 == base->count || !is_alike(&base->allocs[k], &base->allocs[k + 1]);
    }
    return base->count;
}

static void pass_to(imagined *m, uint32_t slot) {
    for (; m->next < slot; m->next++) {
        if (m->skipped_count == ASHLAR_REPLAY_SKIPPED_MAX) {
            m->skipped_count--;
            memmove(m->skipped, m->skipped + 1, m->skipped_count * sizeof m->skipped[0]);
        }
        m->skipped[m->skipped_count++] = m->next;
    }
    m->next++;
}

/* False: no slot serves allocation i. */
static bool serve(imagined *m, uint32_t i) {
    uint32_t slot = m->next;
    if (slot == m->base->count || !fits(m->base, slot, m->more, i)) {
        slot = take_skipped(m, i);
        if (slot == m->base->count) {
            slot = look_ahead(m, i);
        }
    }
    if (m->more->allocs[i].is_refused || slot == m->base->count) {
        return false;
    }
    if (slot >= m->next) {
        pass_to(m, slot);
    }
    m->slots[i] = slot;
    m->times[i] = m->next;
    return true;
}

/* Whether the block of allocation i is given back while its slot is held, and planned as it is. */
static bool is_held(const imagined *m, uint32_t i) {
    const ashlar_recorded *slot = &m->base->allocs[m->slots[i]], *a = &m->more->allocs[i];
    if (slot->end == ASHLAR_NOT_PLANNED || a->end == ASHLAR_NOT_PLANNED) {
        return slot->end == a->end;
    }
    return m->times[a->end - 1] <= slot->end && (slot->is_shared || !a->is_shared);
}

static bool has_landing(const ashlar_recording *r) {
    uint32_t i = 0;
    while (i < r->count && !r->allocs[i].is_landing) {
        i++;
    }
    return i < r->count;
}

ashlar_status ashlar__recording_find_served(const ashlar_recording *base,
                                            const ashlar_recording *more, bool *is_served) {
    imagined m = {.base = base, .more = more};
    uint32_t count = 0, i = 0;
    *is_served = false;
    if (more->count > base->count || has_landing(base) || has_landing(more)) {
        return ASHLAR_OK;
    }
    m.slots = ashlar__host_calloc(2 * (size_t)more->count + 1, sizeof *m.slots);
    if (m.slots == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory to compare two recordings");
    }
    m.times = m.slots + more->count;
    while (count < more->count && serve(&m, count)) {
        count++;
    }
    while (count == more->count && i < count && is_held(&m, i)) {
        i++;
    }
    *is_served = i == more->count;
    ashlar__host_free(m.slots);
    return ASHLAR_OK;
}
