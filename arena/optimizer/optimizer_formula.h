/*
 * optimizer_formula.h - what an optimizer computes once per step and once per run, on every back
 * end (internal; C and CUDA C). What it does to an element stands in optimizer_update.h.
 *
 * No operation here or there may be contracted into another (-ffp-contract=off, nvcc -fmad=false),
 * so that every back end gets the same bits.
 *
 * Sources: torch.optim's documentation of SGD, Adam, AdamW, Adagrad and RMSprop and of
 * torch.amp.GradScaler (PyTorch 2); clipping as in Pascanu et al. 2013.
 */
#ifndef ASHLAR_OPTIMIZER_FORMULA_H
#define ASHLAR_OPTIMIZER_FORMULA_H

#include <float.h>
#include <math.h>

#include "allocator/base/compiler.h"
#include "arena/optimizer/optimizer_impl.h"
#include "arena/optimizer/power.h"

/* The run of `chunk`: the last one that begins there or before, which has elements. */
ASHLAR_SHARED_FN size_t ashlar__formula_find_run(const ashlar_optimizer_job *job, size_t chunk) {
    size_t low = 0, high = job->run_count; /* runs[low].first_chunk <= chunk */
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (job->runs[middle].first_chunk <= chunk) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* GradScaler's update: `is_good` unless a gradient was not finite. */
ASHLAR_SHARED_FN void ashlar__formula_rescale(const ashlar_optimizer_config *config,
                                              ashlar_optimizer_state *state, bool is_good) {
    if (!is_good) {
        const double smaller = state->loss_scale * config->scale_backoff;
        state->loss_scale = smaller >= (double)FLT_MIN ? smaller : (double)FLT_MIN;
        state->good_steps = 0;
    } else if (++state->good_steps >= config->scale_interval) {
        const double larger = state->loss_scale * config->scale_growth;
        state->loss_scale = larger <= (double)FLT_MAX ? larger : state->loss_scale;
        state->good_steps = 0;
    }
}

/* DECIDE, from scalars->sum. A skipped step leaves the factors alone: nobody reads them. */
ASHLAR_SHARED_FN void ashlar__formula_decide(const ashlar_optimizer_config *config,
                                             ashlar_algorithm algorithm, double gradient_scale,
                                             ashlar_optimizer_scalars *scalars) {
    ashlar_optimizer_state *state = &scalars->state;
    const bool is_scaled = config->loss_scale > 0;
    const double unscale = is_scaled ? gradient_scale / state->loss_scale : gradient_scale;
    const double norm = sqrt(scalars->sum) * unscale;
    const bool clips = config->clip_norm > 0 && norm > config->clip_norm;
    const double factor = clips ? config->clip_norm / norm * unscale : unscale;
    const bool is_good = norm <= DBL_MAX && factor <= (double)FLT_MAX; /* false for a NaN */
    state->norm = norm;
    state->is_skipped = !is_good;
    if (is_good) {
        const bool is_adam = algorithm == ASHLAR_ALGORITHM_ADAM;
        state->step++;
        scalars->factor = factor;
        scalars->bias1 = is_adam ? 1 - ashlar__power(config->beta1, state->step) : 1;
        scalars->bias2 = is_adam ? 1 - ashlar__power(config->beta2, state->step) : 1;
    } else {
        state->skipped++;
    }
    if (is_scaled) {
        ashlar__formula_rescale(config, state, is_good);
    }
}

/* The factors of one run's elements at one step, of which each formula uses some. */
typedef struct ashlar_optimizer_factors {
    double scale;      /* of gradients */
    double penalty;    /* weight decay that is added to the gradient; 0 for AdamW */
    double rate;       /* learning rate; the Adams' has 1 / bias1 in it, Adagrad's its decay */
    double shrink;     /* learning rate * weight decay of AdamW; 0 for the others */
    double keep1;      /* of moment1: beta1 or momentum */
    double rest1;      /* of what is added to it */
    double keep2;      /* of moment2: beta2, smoothing, or 1 */
    double rest2;      /* of the squared gradient */
    double root_scale; /* of moment2's root: 1 / sqrt(bias2), or 1 */
    double epsilon;
    bool is_first; /* masters are made from their parameters before */
} ashlar_optimizer_factors;

ASHLAR_SHARED_FN ashlar_optimizer_factors
ashlar__formula_factors(const ashlar_optimizer_rule *rule, const ashlar_optimizer_scalars *scalars,
                        const ashlar_optimizer_run *run, double learning_rate) {
    const ashlar_optimizer_config *config = &rule->config;
    const double rate = learning_rate * run->rate_scale;
    const double decay = run->is_decayed ? config->weight_decay : 0;
    const bool is_decoupled = config->kind == ASHLAR_OPTIMIZER_ADAMW;
    ashlar_optimizer_factors f;
    f.is_first = scalars->state.step == 1;
    f.scale = scalars->factor;
    f.penalty = is_decoupled ? 0 : decay;
    f.shrink = is_decoupled ? rate * decay : 0;
    f.rate = rate;
    f.keep1 = config->momentum;
    f.rest1 = 1;
    f.keep2 = 1;
    f.rest2 = 1;
    f.root_scale = 1;
    f.epsilon = config->epsilon;
    if (rule->algorithm == ASHLAR_ALGORITHM_ADAM) {
        f.rate = rate / scalars->bias1;
        f.keep1 = config->beta1;
        f.rest1 = 1 - config->beta1;
        f.keep2 = config->beta2;
        f.rest2 = 1 - config->beta2;
        f.root_scale = 1 / sqrt(scalars->bias2);
    } else if (config->kind == ASHLAR_OPTIMIZER_ADAGRAD) {
        f.rate = rate / (1 + (double)(scalars->state.step - 1) * config->rate_decay);
    } else if (config->kind == ASHLAR_OPTIMIZER_RMSPROP) {
        f.keep2 = config->smoothing;
        f.rest2 = 1 - config->smoothing;
    } else if (!f.is_first) {
        f.rest1 = 1 - config->dampening; /* the first step takes the whole gradient */
    }
    return f;
}

#endif /* ASHLAR_OPTIMIZER_FORMULA_H */
