/* pack_movable.c - lists of movable items by section, and gaps between fixed items. */
#include "allocator/pack/pack_movable.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

enum { AREA_MAX = 1 << 22 }; /* when the lists are this long, items above the goal stay fixed */

static uint32_t life_of(const ashlar_pack_item *item) {
    return item->end - item->first;
}

static ashlar_status no_memory(const ashlar_pack_movable *m) {
    return ashlar__fail(ASHLAR_EHOSTMEM, "pack: no host memory to move %zu buffers",
                        m->problem->count);
}

ashlar_status ashlar__pack_movable_init(ashlar_pack_movable *m, const ashlar_pack_items *problem) {
    *m = (ashlar_pack_movable){.problem = problem};
    m->is_movable = ashlar__host_calloc(problem->count, sizeof *m->is_movable);
    m->starts = ashlar__host_calloc(problem->section_count + 1, sizeof *m->starts);
    m->begin_counts = ashlar__host_calloc(problem->section_count, sizeof *m->begin_counts);
    m->gap_begins = ashlar__host_calloc(problem->count, sizeof *m->gap_begins);
    m->gap_ends = ashlar__host_calloc(problem->count, sizeof *m->gap_ends);
    if (m->is_movable == NULL || m->starts == NULL || m->begin_counts == NULL ||
        m->gap_begins == NULL || m->gap_ends == NULL) {
        return no_memory(m);
    }
    return ashlar__pack_occupancy_create(problem->section_count, &m->fixed);
}

void ashlar__pack_movable_finish(ashlar_pack_movable *m) {
    ashlar__host_free(m->is_movable);
    ashlar__host_free(m->starts);
    ashlar__host_free(m->begin_counts);
    ashlar__host_free(m->listed);
    ashlar__host_free(m->gaps);
    ashlar__host_free(m->gap_begins);
    ashlar__host_free(m->gap_ends);
    ashlar__pack_occupancy_destroy(m->fixed);
}

uint32_t ashlar__pack_movable_life(const ashlar_pack_items *problem, uint32_t live_count) {
    uint64_t area = 0;
    uint32_t life = 1;
    for (; life < problem->section_count; life *= 2) {
        for (size_t i = 0; i < problem->count; i++) {
            const uint32_t mine = life_of(&problem->items[i]);
            area += mine <= 2 * life && (mine > life || life == 1) ? mine : 0;
        }
        if (area > (uint64_t)live_count * problem->section_count) {
            break;
        }
    }
    return life;
}

/* ---- choosing ---- */

static uint64_t mark_movable(ashlar_pack_movable *m, uint32_t life, size_t goal) {
    const ashlar_pack_items *p = m->problem;
    uint64_t area = 0;
    m->fixed_top = m->plan_top = 0;
    for (size_t i = 0; i < p->count; i++) {
        m->is_movable[i] = life_of(&p->items[i]) <= life;
        area += m->is_movable[i] ? life_of(&p->items[i]) : 0;
    }
    for (size_t i = 0; i < p->count; i++) {
        const size_t end = m->plan[i] + p->items[i].bytes;
        const uint32_t mine = life_of(&p->items[i]);
        if (!m->is_movable[i] && end > goal && area + mine <= AREA_MAX) {
            m->is_movable[i] = true;
            area += mine;
        }
        m->fixed_top = !m->is_movable[i] && end > m->fixed_top ? end : m->fixed_top;
        m->plan_top = end > m->plan_top ? end : m->plan_top;
    }
    return area;
}

/* Set starts[] and begin_counts[] from the counts of items live in each section. */
static void count_listed(ashlar_pack_movable *m) {
    const ashlar_pack_items *p = m->problem;
    memset(m->starts, 0, (p->section_count + 1) * sizeof *m->starts);
    memset(m->begin_counts, 0, p->section_count * sizeof *m->begin_counts);
    for (size_t i = 0; i < p->count; i++) {
        if (m->is_movable[i]) {
            m->begin_counts[p->items[i].first]++;
            for (uint32_t s = p->items[i].first; s < p->items[i].end; s++) {
                m->starts[s + 1]++;
            }
        }
    }
    for (size_t s = 0; s < p->section_count; s++) {
        m->starts[s + 1] += m->starts[s];
    }
}

/* Fill the list of each section: first the items that begin in it, then the others. Meanwhile
 * starts[s] is the next index to write to; at the end it is restored. */
static void fill_listed(ashlar_pack_movable *m) {
    const ashlar_pack_items *p = m->problem;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < p->count; i++) {
            const uint32_t first = p->items[i].first + (uint32_t)pass;
            const uint32_t end = pass == 0 ? first + 1 : p->items[i].end;
            for (uint32_t s = first; m->is_movable[i] && s < end; s++) {
                m->listed[m->starts[s]++] = i;
            }
        }
    }
    memmove(m->starts + 1, m->starts, p->section_count * sizeof *m->starts);
    m->starts[0] = 0;
}

ashlar_status ashlar__pack_movable_choose(ashlar_pack_movable *m, const size_t *plan, uint32_t life,
                                          size_t goal) {
    const ashlar_pack_items *p = m->problem;
    m->plan = plan;
    m->gap_count = 0;
    memset(m->gap_begins, 0, p->count * sizeof *m->gap_begins);
    memset(m->gap_ends, 0, p->count * sizeof *m->gap_ends);
    const uint64_t area = mark_movable(m, life, goal);
    if (area > m->listed_capacity) {
        uint32_t *grown = ashlar__host_realloc(m->listed, (size_t)area, sizeof *grown);
        if (grown == NULL) {
            return no_memory(m);
        }
        m->listed = grown;
        m->listed_capacity = (size_t)area;
    }
    count_listed(m);
    ASHLAR_CHECK2(m->starts[p->section_count] == area);
    fill_listed(m);
    ASHLAR_CHECK2(m->starts[p->section_count] == area);
    ashlar__pack_occupancy_clear(m->fixed);
    for (size_t i = 0; i < p->count; i++) {
        const ashlar_pack_item *x = &p->items[i];
        if (!m->is_movable[i]) {
            ASHLAR_TRY(ashlar__pack_occupancy_add(m->fixed, x->first, x->end, plan[i], x->bytes));
        }
    }
    return ASHLAR_OK;
}

/* ---- neighbours and gaps ---- */

size_t ashlar__pack_movable_neighbours(const ashlar_pack_movable *m, uint32_t item, uint32_t *out) {
    const ashlar_pack_item *x = &m->problem->items[item];
    size_t count = 0;
    for (uint32_t s = x->first; s < x->end; s++) {
        const size_t begin = m->starts[s];
        const size_t end = s == x->first ? m->starts[s + 1] : begin + m->begin_counts[s];
        for (size_t k = begin; k < end; k++) {
            out[count] = m->listed[k];
            count += m->listed[k] != item;
        }
    }
    return count;
}

static ashlar_status add_gap(ashlar_pack_movable *m, ashlar_pack_gap gap) {
    if (m->gap_count == m->gap_capacity) {
        const size_t capacity = m->gap_capacity == 0 ? 1024 : 2 * m->gap_capacity;
        ashlar_pack_gap *grown = ashlar__host_realloc(m->gaps, capacity, sizeof *grown);
        if (grown == NULL) {
            return no_memory(m);
        }
        m->gaps = grown;
        m->gap_capacity = capacity;
    }
    m->gaps[m->gap_count++] = gap;
    return ASHLAR_OK;
}

/* At least one gap is kept, even if it begins above plan_top. So the item's gaps are known to have
 * been looked for. */
ashlar_status ashlar__pack_movable_gaps(ashlar_pack_movable *m, uint32_t item,
                                        const ashlar_pack_gap **gaps, size_t *count) {
    const ashlar_pack_item *x = &m->problem->items[item];
    if (m->gap_begins[item] == m->gap_ends[item]) {
        ashlar_pack_gap gap = {0, 0};
        m->gap_begins[item] = m->gap_count;
        while (gap.end <= m->plan_top) {
            gap.begin =
                ashlar__pack_occupancy_gap(m->fixed, x->first, x->end, gap.end, x->bytes, &gap.end);
            ASHLAR_TRY(add_gap(m, gap));
        }
        m->gap_ends[item] = m->gap_count;
    }
    *gaps = &m->gaps[m->gap_begins[item]];
    *count = m->gap_ends[item] - m->gap_begins[item];
    return ASHLAR_OK;
}
