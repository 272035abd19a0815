/* moves.c - a training walk that is not cut, in less memory than it takes: which buffers are on the
 * host in their longest idle time, and where they lie before and behind it. */
#include <string.h>

#include "allocator/base/checked.h"
#include "allocator/base/host.h"
#include "rnn/engine/engine.h"

#include <ashlar/plan.h>

typedef struct planning {
    const ashlar_model *model;
    const ashlar_walk_table *table;
    const ashlar_walk_plan *plan;
    ashlar_tiers_moment *moments; /* [phases] */
    ashlar_tiers_item *items;     /* [buffers] those with an idle time */
    ashlar_tiers_place *places;   /* likewise */
    size_t *numbers;              /* likewise: the buffer */
    ashlar_pack_buffer *parts;    /* [2 * buffers] every home, and behind them second places */
    size_t *offsets;              /* likewise */
    ashlar_tiers_table costs;
    ashlar_tiers_choice choice;
    ashlar_pack_result packed;
} planning;

enum { TRIES = 6 };

static size_t bytes_of(const planning *p, size_t buffer) {
    return ashlar__round_up(p->plan->places[buffer].bytes, ASHLAR_WALK_ALIGN);
}

static void list_items(planning *p) {
    const ashlar_walk_table *t = p->table;
    size_t count = 0;
    for (size_t k = 0; k < t->phase_count; k++) {
        p->moments[k].ns = ashlar__walk_phases_ns(p->model, t, p->plan, k, k + 1);
    }
    for (size_t i = 0; i < t->buffer_count; i++) {
        const ashlar_walk_buffer *b = &t->buffers[i];
        const size_t bytes = b->home == i ? bytes_of(p, i) : 0;
        if (bytes > 0 && b->resume - b->pause > 1) {
            p->items[count] =
                (ashlar_tiers_item){bytes, b->first, b->pause, b->resume, b->last, 0, false};
            p->numbers[count++] = i;
            continue;
        }
        for (size_t k = b->first; k <= b->last && bytes > 0; k++) {
            p->moments[k].bytes += bytes;
        }
    }
    p->costs = (ashlar_tiers_table){.moments = p->moments,
                                    .moment_count = t->phase_count,
                                    .items = p->items,
                                    .item_count = count};
    ashlar__walk_copy_rates(p->model, &p->costs);
}

static ashlar_status begin(planning *p, const ashlar_model *m, const ashlar_walk_table *t,
                           const ashlar_walk_plan *plan, char **memory) {
    const size_t n = t->buffer_count;
    *p = (planning){.model = m, .table = t, .plan = plan};
    ASHLAR_HOST_NEW(*memory,
                    t->phase_count * sizeof *p->moments +
                        n * (sizeof *p->items + sizeof *p->places + sizeof *p->numbers +
                             2 * (sizeof *p->parts + sizeof *p->offsets)),
                    "no host memory to plan a walk");
    p->moments = (ashlar_tiers_moment *)(void *)*memory;
    p->items = (ashlar_tiers_item *)(void *)(p->moments + t->phase_count);
    p->places = (ashlar_tiers_place *)(void *)(p->items + n);
    p->parts = (ashlar_pack_buffer *)(void *)(p->places + n);
    p->offsets = (size_t *)(p->parts + 2 * n);
    p->numbers = p->offsets + 2 * n;
    list_items(p);
    return ASHLAR_OK;
}

/* Choose in a budget, and pack; the places may take more than the budget, by what lies between
 * them. No search, which ends by the clock: the least memory must be the same each time. */
static ashlar_status try_budget(planning *p, size_t budget) {
    const ashlar_walk_table *t = p->table;
    const ashlar_pack_options options = {.alignment = ASHLAR_WALK_ALIGN};
    size_t count = 0, item = 0, seconds = 0;
    ASHLAR_TRY(ashlar__tiers_choose(&p->costs, budget, p->places, &p->choice));
    for (size_t i = 0; i < t->buffer_count; i++) {
        const ashlar_walk_buffer *b = &t->buffers[i];
        if (b->home != i || bytes_of(p, i) == 0) {
            continue;
        }
        const bool is_item = item < p->costs.item_count && p->numbers[item] == i;
        const ashlar_tiers_place *place = is_item ? &p->places[item++] : NULL;
        const bool moves = place != NULL && place->tier == ASHLAR_TIER_HOST;
        p->parts[count++] =
            (ashlar_pack_buffer){bytes_of(p, i), b->first, 1 + (moves ? place->out_end : b->last)};
    }
    for (size_t i = 0; i < p->costs.item_count; i++) {
        const ashlar_tiers_place *place = &p->places[i];
        if (place->tier == ASHLAR_TIER_HOST) {
            p->parts[count + seconds++] = (ashlar_pack_buffer){p->items[i].bytes, place->back_begin,
                                                               p->items[i].last_backward + 1};
        }
    }
    return ashlar_pack(p->parts, count + seconds, &options, p->offsets, &p->packed);
}

/* Find places in `memory`, or if it is less than that, in the least: what the least budget takes
 * when it is packed. */
static ashlar_status fit(planning *p, size_t memory) {
    size_t least, budget = memory;
    ASHLAR_TRY(ashlar__tiers_least(&p->costs, &least));
    ASHLAR_TRY(try_budget(p, least));
    if (memory <= p->packed.plan_bytes) {
        return ASHLAR_OK;
    }
    for (size_t i = 0; i < TRIES && budget > least; i++) {
        ASHLAR_TRY(try_budget(p, budget));
        const size_t bytes = p->packed.plan_bytes;
        if (bytes <= memory) {
            return ASHLAR_OK;
        }
        budget = bytes - memory < budget ? budget - (bytes - memory) : 0;
    }
    return try_budget(p, least);
}

ashlar_status ashlar__moves_least(const ashlar_walking *w, size_t *bytes, size_t *resident) {
    planning p;
    char *memory = NULL;
    ashlar_status status = begin(&p, w->model, w->table, w->plan, &memory);
    ASHLAR_THEN(status, fit(&p, 0));
    for (size_t i = 0; i < p.costs.item_count && status == ASHLAR_OK; i++) {
        *resident += p.items[i].bytes;
    }
    *bytes = p.packed.plan_bytes;
    ashlar__host_free(memory);
    return status;
}

/* In the order in which they are read again. */
static void insert(ashlar_walk_plan *plan, ashlar_walk_move move) {
    size_t at = plan->move_count++;
    for (; at > 0 && plan->moves[at - 1].resume > move.resume; at--) {
        plan->moves[at] = plan->moves[at - 1];
    }
    plan->moves[at] = move;
}

/* Put what was found into the plan. */
static ashlar_status commit(const planning *p, ashlar_walk_plan *plan) {
    const ashlar_walk_table *t = p->table;
    size_t count = 0;
    ASHLAR_HOST_NEW(plan->moves, p->costs.item_count + 1, "no host memory to plan a walk");
    for (size_t i = 0; i < t->buffer_count; i++) {
        if (t->buffers[i].home == i && plan->places[i].bytes > 0) {
            plan->places[i].offset = p->offsets[count++];
        }
    }
    for (size_t i = 0; i < p->costs.item_count; i++) {
        const ashlar_tiers_place *place = &p->places[i];
        if (place->tier == ASHLAR_TIER_HOST) {
            insert(plan, (ashlar_walk_move){.buffer = p->numbers[i],
                                            .pause = p->items[i].last_forward,
                                            .out_end = place->out_end,
                                            .back_begin = place->back_begin,
                                            .resume = p->items[i].first_backward,
                                            .back_at = p->offsets[count++],
                                            .host = plan->host_bytes});
            plan->host_bytes += p->items[i].bytes;
        }
    }
    for (size_t i = 0; i < plan->move_count; i++) {
        plan->places[plan->moves[i].buffer].move = (uint32_t)(i + 1);
    }
    for (size_t i = 0; i < t->buffer_count; i++) {
        const size_t bytes = plan->places[i].bytes;
        size_t home = i;
        while (t->buffers[home].home != home) {
            home = t->buffers[home].home;
        }
        plan->places[i] = plan->places[home];
        plan->places[i].bytes = bytes;
    }
    plan->bytes = p->packed.plan_bytes;
    plan->bound = p->packed.bound_bytes;
    plan->choice = p->choice;
    return ASHLAR_OK;
}

ashlar_status ashlar__moves_plan(const ashlar_model *m, const ashlar_walk_table *t,
                                 ashlar_walk_plan *plan) {
    planning p;
    char *memory = NULL;
    ashlar_status status = begin(&p, m, t, plan, &memory);
    ASHLAR_THEN(status, fit(&p, plan->shape.memory));
    if (status == ASHLAR_OK && p.packed.plan_bytes > plan->shape.memory) {
        status = ashlar__fail(ASHLAR_ENOMEM,
                              "model: a walk of %zu steps needs at least %zu bytes, and may have "
                              "%zu: give it more, or chunks",
                              plan->shape.steps[ASHLAR_AXIS_TIME], p.packed.plan_bytes,
                              plan->shape.memory);
    }
    ASHLAR_THEN(status, commit(&p, plan));
    ashlar__host_free(memory);
    return status;
}
