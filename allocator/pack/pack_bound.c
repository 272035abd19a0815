/* pack_bound.c - raises the lower bound of all plans: cuts windows of time out of a packing
 * problem, and searches for the smallest plan of each. */
#include "allocator/pack/pack_bound.h"

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/pack/pack_search.h"

enum {
    WINDOWS_MAX = 32, /* of one width */
    LOAD_SHARE = 16,  /* only windows whose peak is less than 1/16 below the bound count */
};

/* What is proved of a window: none of its plans is below `low`. A plan of `high` bytes is known, or
 * is of no interest. */
typedef struct proof {
    size_t low, high, unit;
    size_t base; /* bytes of the items that are live in the whole window */
    uint64_t steps;
    ashlar_pack_budget *budget;
} proof;

/* Try capacities from p->low upwards, in steps that double while capacities prove impossible. A
 * capacity that is possible becomes p->high, and the steps begin again. */
static ashlar_status search_window(ashlar_pack_search *search, size_t *offsets, proof *p) {
    size_t step = 0;
    while (p->low < p->high && !p->budget->is_stopped) {
        ashlar_pack_outcome outcome;
        const size_t capacity = p->high - p->low > step ? p->low + step : p->high - p->unit;
        ASHLAR_TRY(ashlar__pack_search_run(search, capacity - p->base, p->steps, p->budget, offsets,
                                           &outcome));
        if (outcome == ASHLAR_PACK_UNDECIDED) {
            break;
        }
        if (outcome == ASHLAR_PACK_FOUND) {
            p->high = capacity;
            step = 0;
        } else {
            p->low = capacity + p->unit;
            step = step == 0 ? p->unit : 2 * step;
        }
    }
    return ASHLAR_OK;
}

/* Write to `buffers` the items live in sections [first, end), with their lives cut to these
 * sections. Items that are live in all of them are left out; *base is the sum of their sizes.
 * Returns the number of buffers. */
static size_t cut(const ashlar_pack_items *problem, uint32_t first, uint32_t end,
                  ashlar_pack_buffer *buffers, size_t *base) {
    size_t count = 0;
    *base = 0;
    for (size_t i = 0; i < problem->count; i++) {
        const ashlar_pack_item *x = &problem->items[i];
        if (x->first <= first && end <= x->end) {
            *base += x->bytes;
        } else if (x->first < end && first < x->end) {
            buffers[count++] = (ashlar_pack_buffer){x->bytes, x->first > first ? x->first : first,
                                                    x->end < end ? x->end : end};
        }
    }
    return count;
}

static ashlar_status prove(const ashlar_pack_items *problem, uint32_t first, uint32_t end,
                           ashlar_pack_buffer *buffers, size_t *offsets, proof *p) {
    ashlar_pack_items window;
    ashlar_pack_search *search = NULL;
    const size_t count = cut(problem, first, end, buffers, &p->base);
    if (count == 0) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(ashlar__pack_items_init(&window, buffers, count, 1));
    ashlar_status status = ashlar__pack_search_create(&window, &search);
    ASHLAR_THEN(status, search_window(search, offsets, p));
    ashlar__pack_search_destroy(search);
    ashlar__pack_items_finish(&window);
    return status;
}

static bool is_full(const ashlar_pack_items *problem, uint32_t first, uint32_t end, size_t bound) {
    size_t peak = 0;
    for (uint32_t s = first; s < end; s++) {
        peak = problem->loads[s] > peak ? problem->loads[s] : peak;
    }
    return peak > bound - bound / LOAD_SHARE;
}

ashlar_status ashlar__pack_bound_raise(const ashlar_pack_items *problem, uint32_t width,
                                       size_t unit, size_t below, uint64_t steps,
                                       ashlar_pack_budget *budget, size_t *bound) {
    const uint32_t sections = (uint32_t)problem->section_count;
    ashlar_pack_buffer *buffers = ashlar__host_calloc(problem->count, sizeof *buffers);
    size_t *offsets = ashlar__host_calloc(problem->count, sizeof *offsets);
    ashlar_status status = ASHLAR_OK;
    ASHLAR_CHECK2(width > 3 && problem->peak_bytes <= *bound && *bound <= below);
    if (buffers == NULL || offsets == NULL) {
        status =
            ashlar__fail(ASHLAR_EHOSTMEM, "pack: no host memory for %zu buffers", problem->count);
    }
    uint32_t windows = 0;
    for (uint32_t first = 0; status == ASHLAR_OK && windows < WINDOWS_MAX && first < sections &&
                             *bound < below && !budget->is_stopped;
         first += width / 2) {
        const uint32_t end = sections - first > width ? first + width : sections;
        if (is_full(problem, first, end, *bound)) {
            proof p = {
                .low = *bound, .high = below, .unit = unit, .steps = steps, .budget = budget};
            status = prove(problem, first, end, buffers, offsets, &p);
            *bound = status == ASHLAR_OK ? p.low : *bound;
            windows++;
        }
    }
    ashlar__host_free(buffers);
    ashlar__host_free(offsets);
    return status;
}
