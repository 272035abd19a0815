/* pack_improve.c - local search over the orders of greedy packing. */
#include "allocator/pack/pack_improve.h"

#include <float.h>
#include <string.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"

/* Bytes by which item `i` of the trial is above the target. */
static size_t above_target(const ashlar_pack_state *state, size_t i) {
    const size_t end = state->trial[i] + state->problem->items[i].bytes;
    return end > state->target_bytes ? end - state->target_bytes : 0;
}

/* Over all items: falls also where the highest end does not. */
static double sum_above_target(const ashlar_pack_state *state) {
    double sum = 0;
    for (size_t i = 0; i < state->problem->count; i++) {
        sum += (double)above_target(state, i);
    }
    return sum;
}

/* By a random part of the way to the bottom, most often a small one. */
static void move_forward(ashlar_pack_state *state, uint64_t *random) {
    for (size_t i = 0; i < state->problem->count; i++) {
        if (above_target(state, i) > 0) {
            state->keys[i] +=
                ashlar__random_step_uniform(random) * ashlar__random_step_uniform(random);
        }
    }
}

/* One round; `kept` are the keys of the best order so far, whose sum is *least. */
static ashlar_status improve_once(ashlar_pack_state *state, double *kept, double *least,
                                  uint64_t *random) {
    const size_t kept_bytes = state->problem->count * sizeof *kept;
    size_t bytes;
    ashlar__pack_sort(state);
    const ashlar_status status = ashlar__pack_place(state, &bytes);
    if (status != ASHLAR_OK || bytes == SIZE_MAX) {
        return status;
    }
    const double sum = sum_above_target(state);
    if (sum <= *least) {
        *least = sum;
        memcpy(kept, state->keys, kept_bytes);
    } else {
        memcpy(state->keys, kept, kept_bytes);
    }
    move_forward(state, random);
    ashlar__pack_keep_trial(state, bytes);
    return ASHLAR_OK;
}

ashlar_status ashlar__pack_improve(ashlar_pack_state *state, size_t rounds, uint64_t *random) {
    const ashlar_pack_items *p = state->problem;
    ashlar_status status = ASHLAR_OK;
    double least = DBL_MAX;
    double *kept = ashlar__host_calloc(p->count, sizeof *kept);
    if (kept == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "pack: no host memory for %zu buffers", p->count);
    }
    for (size_t i = 0; i < p->count; i++) {
        state->keys[i] = -(double)state->offsets[i] / (double)p->peak_bytes;
    }
    for (size_t r = 0; r < rounds && status == ASHLAR_OK; r++) {
        if (state->plan_bytes <= state->target_bytes ||
            !ashlar__pack_budget_is_left(&state->budget)) {
            break;
        }
        status = improve_once(state, kept, &least, random);
    }
    ashlar__host_free(kept);
    return status;
}
