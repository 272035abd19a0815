/* pack_movable.c - which items ejection may move, lists of them by section, the gaps between fixed
 * items, and the cheapest place for an item in these gaps. */
#include "allocator/pack/pack_internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"

enum { AREA_MAX = 1 << 22 }; /* of all lists; once they are so long, the other items stay fixed */

ashlar_status ashlar__pack_movable_init(ashlar_pack_movable *m, ashlar_pack_memory *memory,
                                        const ashlar_pack_items *problem) {
    const size_t count = problem->count, sections = problem->section_count;
    *m = (ashlar_pack_movable){
        .problem = problem,
        .memory = memory,
        .is_movable = ashlar__pack_alloc(memory, count, sizeof *m->is_movable),
        .starts = ashlar__pack_alloc(memory, sections + 1, sizeof *m->starts),
        .begin_counts = ashlar__pack_alloc(memory, sections, sizeof *m->begin_counts),
        .gap_begins = ashlar__pack_alloc(memory, count, sizeof *m->gap_begins),
        .gap_ends = ashlar__pack_alloc(memory, count, sizeof *m->gap_ends),
        .fixed = ashlar__pack_occupancy_create(memory, sections),
    };
    return ashlar__pack_memory_check(memory);
}

/* ---- choosing ---- */

static uint64_t mark_movable(ashlar_pack_movable *m, const size_t *plan, uint32_t life,
                             size_t goal) {
    const ashlar_pack_items *p = m->problem;
    uint64_t area = 0;
    m->fixed_top = m->plan_top = 0;
    for (size_t i = 0; i < p->count; i++) {
        m->is_movable[i] = ashlar__pack_life(&p->items[i]) <= life;
        area += m->is_movable[i] ? ashlar__pack_life(&p->items[i]) : 0;
    }
    for (size_t i = 0; i < p->count; i++) {
        const size_t end = plan[i] + p->items[i].bytes;
        const uint32_t mine = ashlar__pack_life(&p->items[i]);
        if (!m->is_movable[i] && end > goal && area + mine <= AREA_MAX) {
            m->is_movable[i] = true;
            area += mine;
        }
        m->fixed_top = !m->is_movable[i] && end > m->fixed_top ? end : m->fixed_top;
        m->plan_top = end > m->plan_top ? end : m->plan_top;
    }
    return area;
}

/* Set starts[] and begin_counts[]: count the movable items of each section. */
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
    m->gap_count = 0;
    memset(m->gap_begins, 0, p->count * sizeof *m->gap_begins);
    memset(m->gap_ends, 0, p->count * sizeof *m->gap_ends);
    const uint64_t area = mark_movable(m, plan, life, goal);
    m->listed = ashlar__pack_grow(m->memory, m->listed, &m->listed_capacity, (size_t)area + 1,
                                  sizeof *m->listed);
    ASHLAR_TRY(ashlar__pack_memory_check(m->memory));
    count_listed(m);
    ASHLAR_CHECK2(m->starts[p->section_count] == area);
    fill_listed(m);
    ASHLAR_CHECK2(m->starts[p->section_count] == area);
    ashlar__pack_occupancy_clear(m->fixed);
    for (size_t i = 0; i < p->count; i++) {
        if (!m->is_movable[i] && !ashlar__pack_occupancy_add(m->fixed, &p->items[i], plan[i])) {
            break;
        }
    }
    return ashlar__pack_memory_check(m->memory);
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

/* Find the gaps between fixed items that `item` fits in, ascending. The last may end at SIZE_MAX.
 * At least one is kept, even if it begins above plan_top, so that the item's gaps are known to have
 * been looked for. */
static void find_gaps(ashlar_pack_movable *m, uint32_t item) {
    ashlar_pack_gap gap = {0};
    m->gap_begins[item] = m->gap_count;
    do {
        gap.begin =
            ashlar__pack_occupancy_gap(m->fixed, &m->problem->items[item], gap.end, &gap.end);
        ashlar_pack_gap *gaps =
            ashlar__pack_grow(m->memory, m->gaps, &m->gap_capacity, m->gap_count + 1, sizeof *gaps);
        if (gaps == NULL) {
            return;
        }
        m->gaps = gaps;
        m->gaps[m->gap_count++] = gap;
    } while (gap.end < m->plan_top);
    m->gap_ends[item] = m->gap_count;
}

/* ---- sliding ---- */

/* A sweep upwards over offsets. The items in the way of [offset, offset + bytes) are those that
 * begin below its end, less those that end at or below `offset`. */
typedef struct slide {
    const ashlar_pack_mark *begins, *ends; /* [placed_count], sorted */
    size_t placed_count, bytes, capacity;
    size_t begun, ended;
    double begun_cost, ended_cost;
    double least;
    size_t best;
} slide;

static void try_offset(slide *s, size_t offset) {
    const size_t end = offset + s->bytes;
    ASHLAR_CHECK3(end <= s->capacity);
    for (; s->ended < s->placed_count && s->ends[s->ended].at <= offset; s->ended++) {
        s->ended_cost += s->ends[s->ended].cost;
    }
    for (; s->begun < s->placed_count && s->begins[s->begun].at < end; s->begun++) {
        s->begun_cost += s->begins[s->begun].cost;
    }
    ASHLAR_CHECK3(s->ended <= s->begun);
    /* Rounding: beside large costs the sums lose small ones, so the difference may be 0, or less.
     * What is in the way must cost something all the same, else it would not be taken out. */
    const double left = s->begun_cost - s->ended_cost;
    const double cost = s->begun == s->ended ? 0 : left > 0 ? left : DBL_MIN;
    if (cost < s->least) {
        s->least = cost;
        s->best = offset;
    }
}

/* Try only the bottoms of gaps and the ends of items: from anywhere else, an item could sink to one
 * of these, where nothing more is in its way. */
static void slide_up(slide *s, const ashlar_pack_gap *gap, const ashlar_pack_gap *last) {
    for (; gap < last && s->least > 0; gap++) {
        const size_t end = gap->end < s->capacity ? gap->end : s->capacity;
        if (gap->begin > end || end - gap->begin < s->bytes) {
            break; /* each gap is wide enough, so the capacity cuts this one off */
        }
        try_offset(s, gap->begin);
        while (s->least > 0 && s->ended < s->placed_count &&
               s->ends[s->ended].at <= end - s->bytes) {
            try_offset(s, s->ends[s->ended].at);
        }
    }
}

/* Shell's sort, in place, since there are few marks. */
static void sort(ashlar_pack_mark *all, size_t count) {
    for (size_t step = count / 2; step > 0; step = step == 2 ? 1 : step * 5 / 11) {
        for (size_t i = step; i < count; i++) {
            const ashlar_pack_mark moved = all[i];
            size_t to = i;
            for (; to >= step && all[to - step].at > moved.at; to -= step) {
                all[to] = all[to - step];
            }
            all[to] = moved;
        }
    }
}

ashlar_status ashlar__pack_movable_cheapest(ashlar_pack_movable *m, uint32_t item,
                                            ashlar_pack_mark *begins, ashlar_pack_mark *ends,
                                            size_t placed_count, size_t capacity, double *cost,
                                            size_t *offset) {
    if (m->gap_begins[item] == m->gap_ends[item]) {
        find_gaps(m, item);
        ASHLAR_TRY(ashlar__pack_memory_check(m->memory));
    }
    slide up = {.begins = begins,
                .ends = ends,
                .placed_count = placed_count,
                .bytes = m->problem->items[item].bytes,
                .capacity = capacity,
                .least = INFINITY};
    sort(begins, placed_count);
    sort(ends, placed_count);
    slide_up(&up, &m->gaps[m->gap_begins[item]], &m->gaps[m->gap_ends[item]]);
    *cost = up.least;
    *offset = up.least < INFINITY ? up.best : *offset;
    return ASHLAR_OK;
}
