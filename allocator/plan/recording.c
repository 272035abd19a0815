#include "allocator/plan/recording.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

enum { CAPACITY_MIN = 64 };

void ashlar__recording_finish(ashlar_recording *r) {
    ashlar__host_free(r->allocs);
    ashlar__host_free(r->blocks);
    *r = (ashlar_recording){0};
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

/* The part of a stream, added if need be; ASHLAR_PLAN_STREAMS_MAX where there are too many. */
static uint32_t part_of(ashlar_recording *r, ashlar_stream_state *state) {
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
    const uint32_t stream_idx = part_of(r, state);
    if (stream_idx == ASHLAR_PLAN_STREAMS_MAX || r->is_incomplete) {
        return; /* of one stream too many: a replay does not look for it either */
    }
    if (!make_room(r)) {
        r->is_incomplete = true;
        return;
    }
    r->allocs[r->count] = (ashlar_recorded){.bytes = bytes,
                                            .end = 0,
                                            .tag = (unsigned char)tag,
                                            .stream_idx = (unsigned char)stream_idx};
    r->blocks[r->count] = block;
    block->recorded = r->count++;
}

bool ashlar__recording_end(ashlar_recording *r, const ashlar_block *block, bool is_planned) {
    const uint32_t i = block->recorded;
    if (i >= r->count || r->blocks[i] != block) {
        return false;
    }
    r->blocks[i] = NULL;
    r->allocs[i].end = is_planned ? r->count : ASHLAR_NOT_PLANNED;
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
    r->capacity = 0; /* nothing is added any more */
}

/* ---- merging ---- */

enum { KINDS = ASHLAR_TAG_COUNT * ASHLAR_PLAN_STREAMS_MAX };

/* Two recordings on their way to one, and where their allocations have gone to. */
typedef struct merger {
    const ashlar_recording *from[2];
    uint32_t part_map[2][ASHLAR_PLAN_STREAMS_MAX];
    uint32_t *to[2];       /* [from[i]->count] */
    uint32_t first[KINDS]; /* of the first one's allocations that are left, by tag and stream */
    uint32_t *next_alike;  /* [from[0]->count] */
    ashlar_recording out;
} merger;

static uint32_t kind_of(const merger *m, int which, uint32_t i) {
    const ashlar_recorded *a = &m->from[which]->allocs[i];
    return m->part_map[which][a->stream_idx] * ASHLAR_TAG_COUNT + a->tag;
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

/* The first allocation from i on that is of a kind, or the count of all. */
static uint32_t find_alike(merger *m, uint32_t kind, uint32_t i) {
    uint32_t *first = &m->first[kind];
    while (*first < i) {
        *first = m->next_alike[*first];
    }
    return *first;
}

/* Put allocation i of recording `which` at the end of what comes out, or with the last one there.
 */
static void put(merger *m, int which, uint32_t i, bool is_paired) {
    const ashlar_recorded *a = &m->from[which]->allocs[i];
    if (!is_paired) {
        m->out.allocs[m->out.count++] = (ashlar_recorded){
            .tag = a->tag, .stream_idx = (unsigned char)m->part_map[which][a->stream_idx]};
    }
    ashlar_recorded *out = &m->out.allocs[m->out.count - 1];
    out->bytes = a->bytes > out->bytes ? a->bytes : out->bytes;
    out->is_landing |= a->is_landing;
    m->to[which][i] = m->out.count - 1;
}

/* Pair each allocation of the second with the next one of the first that is of its kind. */
static void pair(merger *m) {
    const uint32_t count = m->from[0]->count;
    uint32_t i = 0;
    for (uint32_t j = 0; j < m->from[1]->count; j++) {
        const uint32_t k = find_alike(m, kind_of(m, 1, j), i);
        while (k < count && i <= k) {
            put(m, 0, i++, false);
        }
        put(m, 1, j, k < count);
    }
    while (i < count) {
        put(m, 0, i++, false);
    }
}

static void mark_landings(merger *m, int which) {
    uint32_t expected = 0;
    for (uint32_t i = 0; i < m->from[which]->count; i++) {
        const uint32_t at = m->to[which][i];
        m->out.allocs[at].is_landing |= at != expected;
        expected = at + 1;
    }
}

/*
 * A free that came after e allocations came before the next one of that recording: so right behind
 * the last of them it is early enough, and no earlier is known.
 */
static void map_ends(merger *m, int which) {
    for (uint32_t i = 0; i < m->from[which]->count; i++) {
        const uint32_t end = m->from[which]->allocs[i].end;
        const uint32_t mapped =
            end == ASHLAR_NOT_PLANNED ? ASHLAR_NOT_PLANNED : m->to[which][end - 1] + 1;
        uint32_t *out = &m->out.allocs[m->to[which][i]].end;
        *out = mapped > *out ? mapped : *out;
    }
}

static ashlar_status map_parts(merger *m) {
    for (int which = 0; which < 2; which++) {
        for (uint32_t stream_idx = 0; stream_idx < m->from[which]->stream_count; stream_idx++) {
            const uint32_t to = part_of(&m->out, m->from[which]->stream_states[stream_idx]);
            if (to == ASHLAR_PLAN_STREAMS_MAX) {
                return ashlar__fail(ASHLAR_EOVERFLOW, "steps of one key on more than %d streams",
                                    ASHLAR_PLAN_STREAMS_MAX);
            }
            m->part_map[which][stream_idx] = to;
        }
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__recording_merge(ashlar_recording *into, const ashlar_recording *from) {
    merger m = {.from = {into, from}};
    const uint64_t most = (uint64_t)into->count + from->count;
    ashlar_status status = map_parts(&m);
    if (status != ASHLAR_OK) {
        return status;
    }
    if (most > ASHLAR_RECORDING_MAX) {
        return ashlar__fail(ASHLAR_EOVERFLOW, "steps of one key with %llu allocations",
                            (unsigned long long)most);
    }
    m.out.allocs = ashlar__host_calloc((size_t)most + 1, sizeof *m.out.allocs);
    m.to[0] = ashlar__host_calloc((size_t)into->count + 1, sizeof *m.to[0]);
    m.to[1] = ashlar__host_calloc((size_t)from->count + 1, sizeof *m.to[1]);
    m.next_alike = ashlar__host_calloc((size_t)into->count + 1, sizeof *m.next_alike);
    if (m.out.allocs == NULL || m.to[0] == NULL || m.to[1] == NULL || m.next_alike == NULL) {
        status = ashlar__fail(ASHLAR_EHOSTMEM, "no host memory to merge two recordings");
        ashlar__recording_finish(&m.out);
    } else {
        link_alike(&m);
        pair(&m);
        for (int which = 0; which < 2; which++) {
            map_ends(&m, which);
            mark_landings(&m, which);
        }
        ashlar__recording_finish(into);
        *into = m.out;
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
