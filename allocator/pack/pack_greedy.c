/* pack_greedy.c - greedy packing: items one by one, each at the lowest offset where it fits. */
#include "allocator/pack/pack_internal.h"

#include <stdlib.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"

typedef struct greedy_order {
    const char *name;
    double (*key)(const ashlar_pack_items *p, const ashlar_pack_item *item); /* largest key first */
} greedy_order;

/* ---- orders ---- */

static double key_life(const ashlar_pack_items *p, const ashlar_pack_item *item) {
    (void)p;
    return ashlar__pack_life(item);
}

static double key_area(const ashlar_pack_items *p, const ashlar_pack_item *item) {
    return (double)item->bytes * key_life(p, item);
}

/* Place the items of the fullest section first, so that they stack at the bottom without gaps. */
static double key_peak(const ashlar_pack_items *p, const ashlar_pack_item *item) {
    const bool is_live = item->first <= p->peak_section && p->peak_section < item->end;
    return is_live ? key_life(p, item) : 0;
}

static const greedy_order orders[] = {
    {"fullest section first", key_peak},
    {"largest area first", key_area},
    {"longest-lived first", key_life},
};

/* Of items with equal keys, the larger comes first, then the longer-lived, then the one with the
 * lower index, so that the order is total. */
static int compare(const void *a, const void *b, void *context) {
    const ashlar_pack_state *state = context;
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const ashlar_pack_item *x = &state->problem->items[i], *y = &state->problem->items[j];
    const uint32_t life_x = ashlar__pack_life(x), life_y = ashlar__pack_life(y);
    if (state->keys[i] != state->keys[j]) {
        return state->keys[i] > state->keys[j] ? -1 : 1;
    }
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    if (life_x != life_y) {
        return life_x > life_y ? -1 : 1;
    }
    return (i > j) - (i < j);
}

static void sort(ashlar_pack_state *state) {
    const uint32_t count = (uint32_t)state->problem->count;
    for (uint32_t i = 0; i < count; i++) {
        state->order[i] = i;
        ASHLAR_CHECK3(state->keys[i] == state->keys[i]); /* a NaN has no place in an order */
    }
    qsort_r(state->order, count, sizeof *state->order, compare, state);
    ASHLAR_CHECK2(state->keys[state->order[0]] >= state->keys[state->order[count - 1]]);
}

/* ---- placing ---- */

ashlar_status ashlar__pack_place(ashlar_pack_state *state, size_t limit, size_t *bytes) {
    enum { LOOK_EVERY = 1024 };
    const ashlar_pack_items *p = state->problem;
    size_t top = 0, gap_end;
    sort(state);
    ashlar__pack_occupancy_clear(state->occupancy);
    for (size_t k = 0; k < p->count; k++) {
        const uint32_t i = state->order[k];
        const ashlar_pack_item *item = &p->items[i];
        const size_t offset = ashlar__pack_occupancy_gap(state->occupancy, item, 0, &gap_end);
        state->trial[i] = offset;
        top = offset + item->bytes > top ? offset + item->bytes : top;
        const bool must_stop = k % LOOK_EVERY == LOOK_EVERY - 1 && !ashlar__pack_has_time(state) &&
                               state->plan_bytes != SIZE_MAX;
        if (must_stop || top >= limit) {
            *bytes = SIZE_MAX;
            return ASHLAR_OK;
        }
        if (!ashlar__pack_occupancy_add(state->occupancy, item, offset)) {
            return ashlar__pack_memory_check(state->memory);
        }
    }
    ASHLAR_CHECK2(top >= p->peak_bytes); /* no plan is smaller */
    *bytes = top;
    return ASHLAR_OK;
}

/* Whether another order could gain little. A given capacity must be met: close does not count. */
static bool is_close(const ashlar_pack_state *state) {
    enum { SHARE = 1024 };
    const bool has_capacity = state->budget.options->capacity_bytes > 0;
    const size_t little = has_capacity ? 0 : state->problem->peak_bytes / SHARE;
    return state->plan_bytes <= state->target_bytes ||
           state->plan_bytes - state->target_bytes <= little;
}

ashlar_status ashlar__pack_greedy(ashlar_pack_state *state, size_t order_count) {
    const ashlar_pack_items *p = state->problem;
    for (size_t o = 0; o < sizeof orders / sizeof orders[0] && o < order_count; o++) {
        size_t bytes;
        state->budget.now.strategy = orders[o].name;
        for (size_t i = 0; i < p->count; i++) {
            state->keys[i] = orders[o].key(p, &p->items[i]);
        }
        ASHLAR_TRY(ashlar__pack_place(state, state->plan_bytes, &bytes));
        ashlar__pack_keep_trial(state, bytes);
        ASHLAR_CHECK2(state->plan_bytes != SIZE_MAX); /* the first order is always completed */
        if (is_close(state) || state->budget.is_stopped) {
            break;
        }
    }
    return ASHLAR_OK;
}
