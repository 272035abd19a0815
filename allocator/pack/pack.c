/* pack.c - ashlar_pack(): the order in which the packer tries its methods. */
#include <ashlar/pack.h>

#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/pack/pack_greedy.h"

static ashlar_status check_alignment(size_t alignment) {
    ASHLAR_CHECK2(alignment > 0); /* 0 has become its default */
    if ((alignment & (alignment - 1)) != 0) {
        return ashlar__fail(ASHLAR_EINVAL, "pack: an alignment of %zu; give a power of two",
                            alignment);
    }
    return ASHLAR_OK;
}

static ashlar_status state_init(ashlar_pack_state *state, const ashlar_pack_items *problem) {
    const size_t count = problem->count;
    ASHLAR_CHECK2(count > 0); /* empty problems never come here */
    state->offsets = ashlar__host_calloc(count, sizeof *state->offsets);
    state->trial = ashlar__host_calloc(count, sizeof *state->trial);
    state->order = ashlar__host_calloc(count, sizeof *state->order);
    state->keys = ashlar__host_calloc(count, sizeof *state->keys);
    if (state->offsets == NULL || state->trial == NULL || state->order == NULL ||
        state->keys == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "pack: no host memory for %zu buffers", count);
    }
    return ashlar__pack_occupancy_create(problem->section_count, &state->occupancy);
}

static void state_finish(ashlar_pack_state *state) {
    ashlar__host_free(state->offsets);
    ashlar__host_free(state->trial);
    ashlar__host_free(state->order);
    ashlar__host_free(state->keys);
    ashlar__pack_occupancy_destroy(state->occupancy);
}

/* Without a capacity to meet, the search may stop at a plan close to the bound. */
static size_t search_target(const ashlar_pack_state *state, const ashlar_pack_options *options) {
    enum { CLOSE = 200 }; /* a 200th of the bound: 0.5 % */
    const size_t bound = state->problem->peak_bytes;
    ASHLAR_CHECK2(state->target_bytes >= bound);
    const bool is_near_the_end = bound > SIZE_MAX - bound / CLOSE;
    return options->capacity_bytes > 0 || is_near_the_end ? state->target_bytes
                                                          : bound + bound / CLOSE;
}

/* How many greedy orders to try. With many buffers each order takes long, and the search makes
 * better use of a time budget: it begins with a plan of its own. */
static size_t order_count(const ashlar_pack_state *state, const ashlar_pack_options *options) {
    enum { ITEMS_MAX = 32768 };
    return options->time_budget_ms > 0 ? ITEMS_MAX / state->problem->count : SIZE_MAX;
}

/* Try the greedy orders, then search if a smaller plan is possible and there is time. */
static ashlar_status make_plan(ashlar_pack_state *state, const ashlar_pack_options *options,
                               size_t *proven_bytes) {
    const ashlar_status status = ashlar__pack_greedy(state, order_count(state, options));
    *proven_bytes = state->problem->peak_bytes;
    if (status != ASHLAR_OK || options->time_budget_ms == 0) {
        return status;
    }
    state->target_bytes = search_target(state, options);
    state->budget.has_deadline = true;
    return state->plan_bytes > state->target_bytes ? ashlar__pack_refine(state, proven_bytes)
                                                   : ASHLAR_OK;
}

static ashlar_status pack_items(const ashlar_pack_items *problem,
                                const ashlar_pack_options *options, size_t *offsets,
                                ashlar_pack_result *out) {
    ashlar_pack_state state = {.problem = problem, .plan_bytes = SIZE_MAX};
    const size_t capacity = options->capacity_bytes;
    size_t proven_bytes = problem->peak_bytes;
    state.target_bytes = capacity > problem->peak_bytes ? capacity : problem->peak_bytes;
    ashlar__pack_budget_init(&state.budget, options, problem->peak_bytes);
    ashlar_status status = state_init(&state, problem);
    ASHLAR_THEN(status, make_plan(&state, options, &proven_bytes));
    if (status == ASHLAR_OK) {
        ASHLAR_CHECK2(state.plan_bytes != SIZE_MAX); /* the first plan is always completed */
        ASHLAR_CHECK2(problem->peak_bytes <= proven_bytes && proven_bytes <= state.plan_bytes);
        ASHLAR_CHECK3(state.plan_bytes == ashlar__pack_highest_end(problem, state.offsets));
        memcpy(offsets, state.offsets, problem->count * sizeof *offsets);
        *out = (ashlar_pack_result){
            .plan_bytes = state.plan_bytes,
            .bound_bytes = proven_bytes < state.plan_bytes ? proven_bytes : state.plan_bytes,
            .is_optimal = state.plan_bytes <= proven_bytes,
            .was_stopped = state.budget.is_stopped,
            .strategy = state.strategy,
        };
    }
    state_finish(&state);
    return status;
}

ashlar_status ashlar_pack(const ashlar_pack_buffer *buffers, size_t count,
                          const ashlar_pack_options *options, size_t *offsets,
                          ashlar_pack_result *out) {
    ashlar_pack_items problem;
    ashlar_pack_result result = {.is_optimal = true, .strategy = "nothing to place"};
    ashlar_pack_options chosen = ASHLAR_OR_ZERO(ashlar_pack_options, options);
    const size_t alignment = chosen.alignment == 0 ? 1 : chosen.alignment;
    ashlar_status status = check_alignment(alignment);
    ASHLAR_THEN(status, ashlar__pack_items_init(&problem, buffers, count, alignment));
    if (status != ASHLAR_OK) {
        return status;
    }
    if (count > 0) {
        status = pack_items(&problem, &chosen, offsets, &result);
    }
    ashlar__pack_items_finish(&problem);
    if (status == ASHLAR_OK) {
        if (out != NULL) {
            *out = result;
        }
    }
    return status;
}
