/* recording.c - writing down a step's allocations and frees, and merging two recordings. */
#include "allocator/plan/plan.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/heap/block.h"

enum { CAPACITY_MIN = 64 };

void ashlar__recording_finish(ashlar_recording *r) {
    ashlar__host_free(r->allocs);
    ashlar__host_free(r->blocks);
    *r = (ashlar_recording){0};
}

bool ashlar__recording_is_sound(const ashlar_recording *r) {
    for (uint32_t i = 0; i < r->count; i++) {
        const ashlar_recorded *a = &r->allocs[i];
        const bool is_lifetime = a->end == ASHLAR_NOT_PLANNED || (i < a->end && a->end <= r->count);
        if (!is_lifetime || a->stream_idx >= r->stream_count || a->bytes == 0 ||
            a->tag >= ASHLAR_TAG_COUNT || (a->is_refused && a->end != ASHLAR_NOT_PLANNED)) {
            return false;
        }
    }
    return r->stream_count <= ASHLAR_PLAN_STREAMS_MAX;
}

/* ---- recording ---- */

static bool make_room(ashlar_recording *r) {
    if (r->count < r->capacity) {
        return true;
    }
    if (r->capacity >= ASHLAR_RECORDING_MAX) {
        return false;
    }
    const uint32_t capacity = r->capacity > 0 ? 2 * r->capacity : CAPACITY_MIN;
    ashlar_recorded *allocs = ashlar__host_realloc(r->allocs, capacity, sizeof *allocs);
    if (allocs == NULL) {
        return false;
    }
    r->allocs = allocs;
    const ashlar_block **blocks =
        ashlar__host_realloc((void *)r->blocks, capacity, sizeof(ashlar_block *));
    if (blocks == NULL) {
        return false;
    }
    r->blocks = blocks;
    r->capacity = capacity;
    return true;
}

/* A stream's index, new if need be; ASHLAR_PLAN_STREAMS_MAX if there are too many streams. */
static uint32_t idx_of_stream(ashlar_recording *r, ashlar_stream_state *state) {
    ASHLAR_CHECK2(r->stream_count <= ASHLAR_PLAN_STREAMS_MAX);
    uint32_t stream_idx = 0;
    while (stream_idx < r->stream_count && r->stream_states[stream_idx] != state) {
        stream_idx++;
    }
    if (stream_idx == r->stream_count && stream_idx < ASHLAR_PLAN_STREAMS_MAX) {
        r->stream_states[r->stream_count++] = state;
    }
    return stream_idx;
}

void ashlar__recording_add(ashlar_recording *r, size_t bytes, unsigned tag,
                           ashlar_stream_state *state, ashlar_block *block) {
    ASHLAR_CHECK2(bytes > 0 && tag < ASHLAR_TAG_COUNT);
    const uint32_t stream_idx = idx_of_stream(r, state);
    if (stream_idx == ASHLAR_PLAN_STREAMS_MAX || r->is_incomplete) {
        return; /* one stream too many: leave the allocation out, as a replay does */
    }
    if (!make_room(r)) {
        r->is_incomplete = true;
        return;
    }
    ASHLAR_CHECK2(r->count < r->capacity && stream_idx < r->stream_count);
    r->allocs[r->count] = (ashlar_recorded){.bytes = bytes,
                                            .end = block != NULL ? 0 : ASHLAR_NOT_PLANNED,
                                            .tag = (unsigned char)tag,
                                            .stream_idx = (unsigned char)stream_idx,
                                            .is_refused = block == NULL};
    r->blocks[r->count] = block;
    if (block != NULL) {
        block->recorded = r->count;
    }
    r->count++;
}

static bool has(const ashlar_recording *r, const ashlar_block *block) {
    return block->recorded < r->count && r->blocks[block->recorded] == block;
}

bool ashlar__recording_end(ashlar_recording *r, const ashlar_block *block) {
    if (!has(r, block)) {
        return false;
    }
    r->blocks[block->recorded] = NULL;
    r->allocs[block->recorded].end = r->count;
    return true;
}

bool ashlar__recording_share(ashlar_recording *r, const ashlar_block *block) {
    if (!has(r, block)) {
        return false;
    }
    r->allocs[block->recorded].is_shared = true;
    return true;
}

void ashlar__recording_close(ashlar_recording *r) {
    for (uint32_t i = 0; i < r->count; i++) {
        if (r->blocks[i] != NULL) {
            r->allocs[i].end = ASHLAR_NOT_PLANNED;
        }
    }
    ashlar__host_free((void *)r->blocks);
    r->blocks = NULL;
    r->capacity = 0;
    ASHLAR_CHECK3(ashlar__recording_is_sound(r));
}

/* ---- peaks ---- */

/* List how the live bytes of a stream change at each time from 0 to count. A decrease is a number
 * modulo 2^64, so running sums come out right. False: the sum of all bytes overflows. */
static bool list_changes(const ashlar_recording *r, bool is_held, uint32_t stream_idx,
                         size_t *changes) {
    size_t bytes, sum = 0;
    memset(changes, 0, ((size_t)r->count + 1) * sizeof *changes);
    for (uint32_t i = 0; i < r->count; i++) {
        const ashlar_recorded *a = &r->allocs[i];
        if (a->stream_idx == stream_idx && a->end != ASHLAR_NOT_PLANNED) {
            if (!ashlar__align_up(a->bytes, ASHLAR_BLOCK_ALIGN, &bytes) ||
                !ashlar__add(sum, bytes, &sum)) {
                return false;
            }
            changes[i] += bytes;
            changes[is_held ? ashlar__recording_held_to(r, i) : a->end] -= bytes;
        }
    }
    return true;
}

static size_t highest_sum(const size_t *changes, uint32_t count) {
    size_t live = 0, peak = 0;
    for (uint32_t i = 0; i < count; i++) {
        live += changes[i];
        peak = live > peak ? live : peak;
    }
    return peak;
}

ashlar_status ashlar__recording_find_peaks(const ashlar_recording *r, bool is_held,
                                           size_t peaks[static ASHLAR_PLAN_STREAMS_MAX]) {
    size_t found[ASHLAR_PLAN_STREAMS_MAX] = {0};
    size_t *changes = ashlar__host_calloc((size_t)r->count + 1, sizeof *changes);
    ASHLAR_CHECK2(r->blocks == NULL && !r->is_incomplete);
    if (changes == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory to measure a recorded step");
    }
    bool fits = true;
    for (uint32_t stream_idx = 0; stream_idx < r->stream_count && fits; stream_idx++) {
        fits = list_changes(r, is_held, stream_idx, changes);
        found[stream_idx] = highest_sum(changes, r->count);
    }
    ashlar__host_free(changes);
    if (!fits) {
        return ashlar__fail(ASHLAR_EOVERFLOW, "a step's allocations are more than %zu bytes",
                            SIZE_MAX);
    }
    memcpy(peaks, found, sizeof found);
    return ASHLAR_OK;
}

/* ---- merging ---- */

enum { KINDS = 2 * ASHLAR_TAG_COUNT * ASHLAR_PLAN_STREAMS_MAX };

_Static_assert(ASHLAR_PLAN_STREAMS_MAX <= UINT8_MAX, "a stream's index fits its byte");

/* Two recordings that are being merged, and the new places of their allocations. */
typedef struct merger {
    const ashlar_recording *from[2]; /* the arguments `base` and `more` */
    uint32_t stream_map[2][ASHLAR_PLAN_STREAMS_MAX];
    uint32_t *to[2];       /* to[i]: [from[i]->count], rising; each allocation's index in `out` */
    uint32_t first[KINDS]; /* by kind: the first allocation of from[0] not in `out` yet */
    uint32_t *next_alike;  /* [from[0]->count], the next allocation of the same kind */
    bool is_passed[KINDS]; /* by kind: in `out`, one of from[0] follows the latest of from[1] */
    ashlar_recording out;
} merger;

/* A number for an allocation's tag, its stream in `out`, and whether it was refused. */
static uint32_t kind_of(const merger *m, int which, uint32_t i) {
    const ashlar_recorded *a = &m->from[which]->allocs[i];
    ASHLAR_CHECK2(a->tag < ASHLAR_TAG_COUNT && a->stream_idx < m->from[which]->stream_count);
    return 2 * (m->stream_map[which][a->stream_idx] * ASHLAR_TAG_COUNT + a->tag) + a->is_refused;
}

static void link_alike(merger *m) {
    const uint32_t count = m->from[0]->count;
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        m->first[kind] = count;
    }
    for (uint32_t i = count; i-- > 0;) {
        uint32_t *first = &m->first[kind_of(m, 0, i)];
        m->next_alike[i] = *first;
        *first = i;
    }
}

/* The first allocation of `kind` in from[0] from index i on; from[0]->count if there is none. */
static uint32_t find_alike(merger *m, uint32_t kind, uint32_t i) {
    ASHLAR_CHECK2(kind < KINDS && i <= m->from[0]->count);
    uint32_t *first = &m->first[kind];
    while (*first < i) {
        *first = m->next_alike[*first];
    }
    return *first;
}

/* Put allocation i of recording `which` at the end of `out`; if is_paired, merge it into the last
 * allocation of `out` instead. */
static void put(merger *m, int which, uint32_t i, bool is_paired) {
    const ashlar_recorded *a = &m->from[which]->allocs[i];
    if (!is_paired) {
        m->out.allocs[m->out.count++] =
            (ashlar_recorded){.bytes = a->is_refused ? a->bytes : 0,
                              .tag = a->tag,
                              .stream_idx = (unsigned char)m->stream_map[which][a->stream_idx],
                              .is_refused = a->is_refused};
    }
    ASHLAR_CHECK2(m->out.count > 0);
    ashlar_recorded *out = &m->out.allocs[m->out.count - 1];
    ASHLAR_CHECK2(out->tag == a->tag && out->stream_idx == m->stream_map[which][a->stream_idx]);
    ASHLAR_CHECK2(i == 0 || m->to[which][i - 1] < m->out.count - 1);
    out->bytes = (a->bytes > out->bytes) != a->is_refused ? a->bytes : out->bytes;
    out->is_landing |= a->is_landing;
    out->is_shared |= a->is_shared;
    m->to[which][i] = m->out.count - 1;
}

/* Pair each allocation of from[1] with the next one of from[0] of the same tag and stream. False: a
 * replay of a step of from[1] would take a slot of from[0] in place of its own, since one of the
 * same tag and stream was passed over on the way to a landing of that step. */
static bool pair(merger *m) {
    const uint32_t count = m->from[0]->count;
    uint32_t i = 0;
    for (uint32_t j = 0; j < m->from[1]->count; j++) {
        const uint32_t kind = kind_of(m, 1, j), k = find_alike(m, kind, i);
        if (m->from[1]->allocs[j].is_landing && m->is_passed[kind]) {
            return false;
        }
        while (k < count && i <= k) {
            m->is_passed[kind_of(m, 0, i)] = true;
            put(m, 0, i++, false);
        }
        put(m, 1, j, k < count);
        m->is_passed[kind] = false;
    }
    while (i < count) {
        put(m, 0, i++, false);
    }
    ASHLAR_CHECK2(m->out.count >= count && m->out.count >= m->from[1]->count);
    ASHLAR_CHECK2(m->out.count <= count + m->from[1]->count);
    return true;
}

static void mark_landings(merger *m, int which) {
    uint32_t expected = 0;
    for (uint32_t i = 0; i < m->from[which]->count; i++) {
        const uint32_t at = m->to[which][i];
        m->out.allocs[at].is_landing |= at != expected;
        expected = at + 1;
    }
}

/* A block with end == e was freed between the allocations e - 1 and e of its recording. In `out` it
 * ends right behind allocation e - 1, which is the earliest end allowed. */
static void map_ends(merger *m, int which) {
    for (uint32_t i = 0; i < m->from[which]->count; i++) {
        const uint32_t end = m->from[which]->allocs[i].end;
        ASHLAR_CHECK2(end == ASHLAR_NOT_PLANNED || (i < end && end <= m->from[which]->count));
        const uint32_t mapped =
            end == ASHLAR_NOT_PLANNED ? ASHLAR_NOT_PLANNED : m->to[which][end - 1] + 1;
        uint32_t *out = &m->out.allocs[m->to[which][i]].end;
        *out = mapped > *out ? mapped : *out;
    }
}

static void raise(size_t *peak, size_t other) {
    *peak = other > *peak ? other : *peak;
}

static ashlar_status map_streams(merger *m) {
    for (int which = 0; which < 2; which++) {
        for (uint32_t stream_idx = 0; stream_idx < m->from[which]->stream_count; stream_idx++) {
            const uint32_t to = idx_of_stream(&m->out, m->from[which]->stream_states[stream_idx]);
            if (to == ASHLAR_PLAN_STREAMS_MAX) {
                return ashlar__fail(ASHLAR_EOVERFLOW, "steps of one key on more than %d streams",
                                    ASHLAR_PLAN_STREAMS_MAX);
            }
            m->stream_map[which][stream_idx] = to;
            raise(&m->out.peaks[to], m->from[which]->peaks[stream_idx]);
            raise(&m->out.held_peaks[to], m->from[which]->held_peaks[stream_idx]);
        }
    }
    return ASHLAR_OK;
}

static ashlar_status fill_out(merger *m) {
    link_alike(m);
    if (!pair(m)) {
        return ashlar__fail(ASHLAR_EOVERFLOW, "the steps leave out different allocations");
    }
    for (int which = 0; which < 2; which++) {
        map_ends(m, which);
        mark_landings(m, which);
    }
    ASHLAR_CHECK3(ashlar__recording_is_sound(&m->out));
    return ASHLAR_OK;
}

ashlar_status ashlar__recording_merge(const ashlar_recording *base, const ashlar_recording *more,
                                      ashlar_recording *out) {
    ASHLAR_CHECK2(base != more && base->blocks == NULL && more->blocks == NULL);
    merger m = {.from = {base, more}};
    const uint64_t most = (uint64_t)base->count + more->count;
    ashlar_status status = map_streams(&m);
    if (status != ASHLAR_OK) {
        return status;
    }
    if (most > ASHLAR_RECORDING_MAX) {
        return ashlar__fail(ASHLAR_EOVERFLOW, "steps of one key with %llu allocations",
                            (unsigned long long)most);
    }
    m.out.allocs = ashlar__host_calloc((size_t)most + 1, sizeof *m.out.allocs);
    m.to[0] = ashlar__host_calloc((size_t)base->count + 1, sizeof *m.to[0]);
    m.to[1] = ashlar__host_calloc((size_t)more->count + 1, sizeof *m.to[1]);
    m.next_alike = ashlar__host_calloc((size_t)base->count + 1, sizeof *m.next_alike);
    if (m.out.allocs == NULL || m.to[0] == NULL || m.to[1] == NULL || m.next_alike == NULL) {
        status = ashlar__fail(ASHLAR_EHOSTMEM, "no host memory to merge two recordings");
    }
    ASHLAR_THEN(status, fill_out(&m));
    if (status == ASHLAR_OK) {
        *out = m.out;
    } else {
        ashlar__recording_finish(&m.out);
    }
    ashlar__host_free(m.to[0]);
    ashlar__host_free(m.to[1]);
    ashlar__host_free(m.next_alike);
    return status;
}

void ashlar__recording_mark_referenced(const ashlar_recording *recording) {
    for (uint32_t stream_idx = 0; stream_idx < recording->stream_count; stream_idx++) {
        recording->stream_states[stream_idx]->is_referenced = true;
    }
}
