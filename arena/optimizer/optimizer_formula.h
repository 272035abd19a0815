/* optimizer_formula.h - the arithmetic that an optimizer does once per step and once per run, on
 * every back end (internal; C and CUDA C). The arithmetic per element is in optimizer_update.h.
 *
 * Both files are compiled without contraction (-ffp-contract=off, nvcc -fmad=false), so that every
 * back end gets the same bits.
 *
 * Sources: torch.optim's documentation of SGD, Adam, AdamW, Adagrad and RMSprop and of
 * torch.amp.GradScaler (PyTorch 2); clipping as in Pascanu et al. 2013. */
#ifndef ASHLAR_OPTIMIZER_FORMULA_H
#define ASHLAR_OPTIMIZER_FORMULA_H

#include <float.h>
#include <math.h>

#include "allocator/base/compiler.h"
#include "arena/optimizer/optimizer_impl.h"

/* base^n, by repeated squaring: the same bits on every back end; those of pow() may differ. */
ASHLAR_SHARED_FN double ashlar__power(double base, uint64_t n) {
    double result = 1;
    for (; n != 0; n >>= 1) {
        if ((n & 1) != 0) {
            result *= base;
        }
        base *= base;
    }
    return result;
}

/* The run that `chunk` belongs to: the last run that begins at or before it. */
ASHLAR_SHARED_FN size_t ashlar__formula_find_run(const ashlar_optimizer_job *job, size_t chunk) {
    size_t low = 0, high = job->run_count; /* always runs[low].first_chunk <= chunk */
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

/* The run of a chunk, and which of its elements are in the chunk and covered by the job. */
ASHLAR_SHARED_FN size_t ashlar__formula_clip(const ashlar_optimizer_job *job, size_t chunk,
                                             size_t *first, size_t *count) {
    const size_t run = ashlar__formula_find_run(job, chunk);
    const ashlar_optimizer_run *r = &job->runs[run];
    const size_t begin = (chunk - r->first_chunk) * ASHLAR_OPTIMIZER_CHUNK;
    const size_t low = run == 0 ? job->first : 0;
    const size_t high = run + 1 == job->run_count ? job->end : r->elements;
    const size_t full = begin + ASHLAR_OPTIMIZER_CHUNK;
    *first = begin > low ? begin : low;
    *count = (full < high ? full : high) - *first;
    return run;
}

/* Update the loss scale as GradScaler does. `is_good`: every gradient was finite. */
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

/* The end of the pass SUM: add `sum`, the sum over the job's elements. Ranks that own a part of
 * each bucket launch a SUM for each part, so launches before the decision add up. A job that also
 * decides covers everything, so it begins at 0 and ignores the rest of an abandoned step. */
ASHLAR_SHARED_FN void ashlar__formula_add_sum(unsigned passes, double sum,
                                              ashlar_optimizer_scalars *scalars) {
    const bool is_first = scalars->sum_count == 0 || (passes & ASHLAR_OPTIMIZER_DECIDE) != 0;
    scalars->sum = is_first ? sum : scalars->sum + sum;
    scalars->sum_count++;
}

/* The pass DECIDE, from scalars->sum. A skipped step sets no factors, since nobody reads them. */
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
    scalars->sum_count = 0;
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

/* The factors for the elements of one run in one step. Each algorithm uses some of them. */
typedef struct ashlar_optimizer_factors {
    double scale;      /* multiplies the gradient */
    double penalty;    /* 0 for AdamW; else penalty * parameter is added to the gradient */
    double rate;       /* learning rate, with 1 / bias1 (Adam, AdamW) or rate decay (Adagrad) */
    double shrink;     /* learning rate * weight decay for AdamW; 0 for the others */
    double keep1;      /* multiplies the old moment1: beta1 or momentum */
    double rest1;      /* multiplies the addend of moment1 */
    double keep2;      /* multiplies the old moment2: beta2, smoothing, or 1 */
    double rest2;      /* multiplies the squared gradient that is added to moment2 */
    double root_scale; /* multiplies the root of moment2: 1 / sqrt(bias2), or 1 */
    double epsilon;
    bool is_first; /* first step: make masters from the parameters */
} ashlar_optimizer_factors;

ASHLAR_SHARED_FN double ashlar__formula_rate(const ashlar_optimizer_job *job) {
    return job->rate_at != NULL ? *job->rate_at : job->learning_rate;
}

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
