/* pack_items.c - turns buffers into items: rounds sizes up, divides time into sections
 * (pack_items.h), and adds up the load of each section. */
#include "allocator/pack/pack_items.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"

enum { BUFFERS_MAX = INT32_MAX / 2 };
_Static_assert(UINT64_C(2) * BUFFERS_MAX < UINT32_MAX, "marks and sections have 32-bit numbers");

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
            sum == SIZE_MAX) { /* SIZE_MAX stands for no plan */
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

static ashlar_status find_sections(const ashlar_pack_buffer *buffers, ashlar_pack_items *p) {
    mark *marks = ashlar__host_calloc(2 * p->count + 1, sizeof *marks); /* count may be 0 */
    if (marks == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "pack: no host memory for %zu buffers", p->count);
    }
    for (uint32_t i = 0; i < p->count; i++) {
        marks[2 * i] = (mark){buffers[i].begin, i, true};
        marks[2 * i + 1] = (mark){buffers[i].end, i, false};
    }
    qsort(marks, 2 * p->count, sizeof *marks, compare_marks);
    p->section_count = number_sections(marks, 2 * p->count, p->items);
    ASHLAR_CHECK2(p->section_count <= p->count); /* loads[] has room for one more */
    ashlar__host_free(marks);
    return ASHLAR_OK;
}

/*
 * Turn loads[], which hold differences to the previous section, into sums. Differences may wrap;
 * their sums do not.
 */
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

static ashlar_status fill(ashlar_pack_items *p, const ashlar_pack_buffer *buffers,
                          size_t alignment) {
    p->items = ashlar__host_calloc(p->count + 1, sizeof *p->items);
    p->loads = ashlar__host_calloc(p->count + 1, sizeof *p->loads); /* + 1 for the last end */
    if (p->items == NULL || p->loads == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "pack: no host memory for %zu buffers", p->count);
    }
    for (size_t i = 0; i < p->count; i++) {
        p->items[i].bytes = (buffers[i].bytes + alignment - 1) & ~(alignment - 1);
        ASHLAR_CHECK2(p->items[i].bytes >= buffers[i].bytes); /* check_buffers() excludes a wrap */
    }
    const ashlar_status status = find_sections(buffers, p);
    if (status == ASHLAR_OK) {
        sum_loads(p);
    }
    return status;
}

ashlar_status ashlar__pack_items_init(ashlar_pack_items *out, const ashlar_pack_buffer *buffers,
                                      size_t count, size_t alignment) {
    ashlar_pack_items p = {.count = count};
    ASHLAR_CHECK2(alignment > 0 && (alignment & (alignment - 1)) == 0);
    ashlar_status status = check_buffers(buffers, count, alignment);
    ASHLAR_THEN(status, fill(&p, buffers, alignment));
    if (status != ASHLAR_OK) {
        ashlar__pack_items_finish(&p);
        return status;
    }
    *out = p;
    return ASHLAR_OK;
}

void ashlar__pack_items_finish(ashlar_pack_items *p) {
    ashlar__host_free(p->items);
    ashlar__host_free(p->loads);
    *p = (ashlar_pack_items){0};
}
