/* pack_items.c - what all packing methods use: memory, the buffers as items (sizes rounded up, time
 * divided into sections, the load of each section), the time that is left, the best plan. */
#include "allocator/pack/pack_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/host.h"
#include "allocator/base/error.h"

enum { BUFFERS_MAX = INT32_MAX / 2 };
_Static_assert(UINT64_C(2) * BUFFERS_MAX < UINT32_MAX, "marks and sections have 32-bit numbers");

/* ---- memory ---- */

typedef struct ashlar_pack_chunk {
    struct ashlar_pack_chunk *next;
    max_align_t array[];
} ashlar_pack_chunk;

void *ashlar__pack_alloc(ashlar_pack_memory *m, size_t count, size_t bytes) {
    size_t whole;
    ashlar_pack_chunk *chunk = NULL;
    if (ashlar__mul(count, bytes, &whole) && ashlar__add(whole, sizeof *chunk, &whole)) {
        chunk = ashlar__host_calloc(whole, 1);
    }
    if (chunk == NULL) {
        m->has_failed = true;
        return NULL;
    }
    chunk->next = m->chunks;
    m->chunks = chunk;
    return chunk->array;
}

/* The old array is kept: capacities double, so all old ones together are no larger than the new. */
void *ashlar__pack_grow(ashlar_pack_memory *m, void *array, size_t *capacity, size_t needed,
                        size_t bytes) {
    if (needed <= *capacity) {
        return array;
    }
    void *grown = ashlar__pack_alloc(m, 2 * needed, bytes);
    if (grown != NULL && *capacity > 0) {
        memcpy(grown, array, *capacity * bytes);
    }
    *capacity = grown != NULL ? 2 * needed : *capacity;
    return grown;
}

ashlar_status ashlar__pack_memory_check(const ashlar_pack_memory *m) {
    return m->has_failed ? ashlar__fail(ASHLAR_EHOSTMEM, "pack: no host memory to pack the buffers")
                         : ASHLAR_OK;
}

void ashlar__pack_memory_finish(ashlar_pack_memory *m) {
    while (m->chunks != NULL) {
        ashlar_pack_chunk *chunk = m->chunks;
        m->chunks = chunk->next;
        ashlar__host_free(chunk);
    }
}

/* ---- sections ---- */

/* The beginning or the end of an item. */
typedef struct mark {
    uint64_t time;
    uint32_t item;
    bool is_begin;
} mark;

/* Order by time. At equal times ends come first: lifetimes are half-open. Items break ties. */
static int compare_marks(const void *a, const void *b) {
    const mark *x = a, *y = b;
    if (x->time != y->time) {
        return x->time < y->time ? -1 : 1;
    }
    if (x->is_begin != y->is_begin) {
        return x->is_begin ? 1 : -1;
    }
    return (x->item > y->item) - (x->item < y->item);
}

static ashlar_status check_buffers(const ashlar_pack_buffer *buffers, size_t count,
                                   size_t alignment) {
    size_t sum = 0;
    if (count > BUFFERS_MAX) {
        return ashlar__fail(ASHLAR_EOVERFLOW, "pack: %zu buffers; at most %d can be packed", count,
                            BUFFERS_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        const ashlar_pack_buffer *b = &buffers[i];
        size_t bytes;
        if (b->bytes == 0) {
            return ashlar__fail(ASHLAR_EINVAL, "pack: buffer %zu has 0 bytes; leave it out", i);
        }
        if (b->begin >= b->end) {
            return ashlar__fail(ASHLAR_EINVAL,
                                "pack: buffer %zu lives from %" PRIu64 " to %" PRIu64
                                "; its end has to come after its beginning",
                                i, b->begin, b->end);
        }
        if (!ashlar__align_up(b->bytes, alignment, &bytes) || !ashlar__add(sum, bytes, &sum) ||
            sum == SIZE_MAX) { /* SIZE_MAX means "no plan" */
            return ashlar__fail(ASHLAR_EOVERFLOW,
                                "pack: with buffer %zu of %zu bytes the sizes add up to more than "
                                "size_t holds; is its unit right?",
                                i, b->bytes);
        }
    }
    return ASHLAR_OK;
}

/* Number the sections. A section ends where, after a beginning, the first item ends: from there to
 * the next beginning items only end. */
static size_t number_sections(const mark *marks, size_t mark_count, ashlar_pack_item *items) {
    uint32_t section = 0;
    bool is_over = false;
    for (size_t i = 0; i < mark_count; i++) {
        if (!marks[i].is_begin) {
            items[marks[i].item].end = section + 1;
            ASHLAR_CHECK2(items[marks[i].item].first < items[marks[i].item].end);
            is_over = true;
            continue;
        }
        section += is_over;
        is_over = false;
        items[marks[i].item].first = section;
    }
    return mark_count == 0 ? 0 : (size_t)section + 1;
}

static void find_sections(const ashlar_pack_buffer *buffers, ashlar_pack_items *p, mark *marks) {
    for (uint32_t i = 0; i < p->count; i++) {
        marks[2 * i] = (mark){buffers[i].begin, i, true};
        marks[2 * i + 1] = (mark){buffers[i].end, i, false};
    }
    qsort(marks, 2 * p->count, sizeof *marks, compare_marks);
    p->section_count = number_sections(marks, 2 * p->count, p->items);
    ASHLAR_CHECK2(p->section_count <= p->count); /* loads[] has room for one more */
}

/* Sum up the sections' loads from differences between neighbours, which may wrap; sums do not. */
static void sum_loads(ashlar_pack_items *p) {
    size_t load = 0;
    for (size_t i = 0; i < p->count; i++) {
        p->loads[p->items[i].first] += p->items[i].bytes;
        p->loads[p->items[i].end] -= p->items[i].bytes;
    }
    for (size_t s = 0; s < p->section_count; s++) {
        load += p->loads[s];
        p->loads[s] = load;
        if (load > p->peak_bytes) {
            p->peak_bytes = load;
            p->peak_section = (uint32_t)s;
        }
    }
    ASHLAR_CHECK2(load + p->loads[p->section_count] == 0); /* every item has ended */
    ASHLAR_CHECK2(p->count == 0 || p->peak_bytes > 0);
}

ashlar_status ashlar__pack_items_init(ashlar_pack_items *out, ashlar_pack_memory *memory,
                                      const ashlar_pack_buffer *buffers, size_t count,
                                      size_t alignment) {
    ASHLAR_CHECK2(alignment > 0 && (alignment & (alignment - 1)) == 0);
    ASHLAR_TRY(check_buffers(buffers, count, alignment));
    ashlar_pack_items p = {
        .count = count,
        .items = ashlar__pack_alloc(memory, count, sizeof *p.items),
        .loads = ashlar__pack_alloc(memory, count + 1, sizeof *p.loads), /* + 1: for last ends */
    };
    mark *marks = ashlar__pack_alloc(memory, 2 * count, sizeof *marks);
    ASHLAR_TRY(ashlar__pack_memory_check(memory));
    for (size_t i = 0; i < count; i++) {
        p.items[i].bytes = (buffers[i].bytes + alignment - 1) & ~(alignment - 1);
        ASHLAR_CHECK2(p.items[i].bytes >= buffers[i].bytes); /* check_buffers() excludes a wrap */
    }
    find_sections(buffers, &p, marks);
    sum_loads(&p);
    *out = p;
    return ASHLAR_OK;
}

/* ---- time, and the best plan ---- */

uint64_t ashlar__pack_now_ms(void) {
    return ashlar__clock_ns() / 1000000;
}

bool ashlar__pack_has_time(ashlar_pack_state *state) {
    enum { TELL_EVERY_MS = 100 };
    ashlar_pack_budget *budget = &state->budget;
    const ashlar_pack_options *options = budget->options;
    const uint64_t now = ashlar__pack_now_ms();
    ASHLAR_CHECK2(budget->begin_ms <= budget->told_ms && budget->told_ms <= now);
    if (budget->is_stopped) {
        return false;
    }
    budget->now.elapsed_ms = now - budget->begin_ms;
    /* <ashlar/plan.h> promises `progress` what these two lines assert. */
    ASHLAR_CHECK2(budget->now.strategy != NULL);
    ASHLAR_CHECK2(budget->now.plan_bytes == 0 || budget->now.plan_bytes >= budget->now.bound_bytes);
    if (options->progress != NULL && now - budget->told_ms >= TELL_EVERY_MS) {
        budget->told_ms = now;
        budget->is_stopped = !options->progress(options->user, &budget->now);
    }
    if (budget->has_deadline && budget->now.elapsed_ms >= options->time_budget_ms) {
        budget->is_stopped = true;
    }
    return !budget->is_stopped;
}

size_t ashlar__pack_highest_end(const ashlar_pack_items *problem, const size_t *offsets) {
    size_t highest = 0;
    for (size_t i = 0; i < problem->count; i++) {
        const size_t end = offsets[i] + problem->items[i].bytes;
        highest = end > highest ? end : highest;
    }
    return highest;
}

void ashlar__pack_keep_trial(ashlar_pack_state *state, size_t bytes) {
    ASHLAR_CHECK2(bytes >= state->problem->peak_bytes);
    ASHLAR_CHECK3(bytes == SIZE_MAX ||
                  bytes == ashlar__pack_highest_end(state->problem, state->trial));
    if (bytes < state->plan_bytes) {
        size_t *const worse = state->offsets;
        state->offsets = state->trial;
        state->trial = worse;
        state->plan_bytes = bytes;
        state->strategy = state->budget.now.strategy;
        state->budget.now.plan_bytes = bytes;
    }
}
