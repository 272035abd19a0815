/* optimizer_config.c - the kinds of optimizer, their defaults, and the ranges of their values;
 * the learning rate of each step of a schedule: a warm-up, then constant, along a cosine, or
 * lowered every so many steps. */
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include <ashlar/optimizer.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "arena/optimizer/optimizer_impl.h"

#define NAME(name, text) [ASHLAR_OPTIMIZER_##name] = text,
static const char *const names[] = {ASHLAR_OPTIMIZER_MAP(NAME)};
ASHLAR_TABLE_IS_FULL(names, ASHLAR_OPTIMIZER_COUNT);

static ashlar_optimizer_config defaults_of(ashlar_optimizer_kind kind) {
    ashlar_optimizer_config c = {
        .kind = kind,
        .is_complete = true,
        .learning_rate = 1e-3,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .smoothing = 0.99,
        .epsilon = 1e-8,
        .scale_growth = 2,
        .scale_backoff = 0.5,
        .scale_interval = 2000,
        .ns = {3.4445, -4.7750, 2.0315},
        .ns_steps = 5,
        .ns_epsilon = 1e-7,
    };
    if (kind == ASHLAR_OPTIMIZER_ADAMW) {
        c.weight_decay = 0.01;
    } else if (kind == ASHLAR_OPTIMIZER_MUON) {
        c.weight_decay = 0.1;
        c.momentum = 0.95;
        c.nesterov = true;
    } else if (kind == ASHLAR_OPTIMIZER_ADAGRAD || kind == ASHLAR_OPTIMIZER_RMSPROP) {
        c.learning_rate = 1e-2;
        c.epsilon = kind == ASHLAR_OPTIMIZER_ADAGRAD ? 1e-10 : 1e-8;
    }
    return c;
}

/* `value`, or `initial` if it is 0: the program did not set it. */
static double chosen(double value, double initial) {
    return value >= 0 && value <= 0 ? initial : value;
}

/* Replace fields that are 0 by their defaults. Fields whose default is 0 too are left out. */
static void fill_in(ashlar_optimizer_config *c) {
    const ashlar_optimizer_config d = defaults_of(c->kind);
    if (c->is_complete) {
        return;
    }
    c->learning_rate = chosen(c->learning_rate, d.learning_rate);
    c->beta1 = chosen(c->beta1, d.beta1);
    c->beta2 = chosen(c->beta2, d.beta2);
    c->smoothing = chosen(c->smoothing, d.smoothing);
    c->epsilon = chosen(c->epsilon, d.epsilon);
    c->weight_decay = chosen(c->weight_decay, d.weight_decay);
    c->momentum = chosen(c->momentum, d.momentum);
    c->nesterov = c->nesterov || d.nesterov;
    if (memcmp(c->ns, (double[3]){0}, sizeof c->ns) == 0) {
        memcpy(c->ns, d.ns, sizeof c->ns);
    }
    c->ns_steps = c->ns_steps != 0 ? c->ns_steps : d.ns_steps;
    c->ns_epsilon = chosen(c->ns_epsilon, d.ns_epsilon);
    c->scale_growth = chosen(c->scale_growth, d.scale_growth);
    c->scale_backoff = chosen(c->scale_backoff, d.scale_backoff);
    c->scale_interval = c->scale_interval != 0 ? c->scale_interval : d.scale_interval;
    c->is_complete = true;
}

double ashlar__muon_scale(const ashlar_optimizer_config *config, size_t rows, size_t columns) {
    const double r = (double)rows, c = (double)columns;
    switch (config->muon_scale) {
    case ASHLAR_MUON_SCALE_MATCH_RMS_ADAMW:
        return 0.2 * sqrt(fmax(r, c));
    case ASHLAR_MUON_SCALE_SPECTRAL_UNCLAMPED:
        return sqrt(r / c);
    default:
        return sqrt(fmax(1, r / c));
    }
}

ashlar_algorithm ashlar__optimizer_algorithm(const ashlar_optimizer_config *config) {
    switch (config->kind) {
    case ASHLAR_OPTIMIZER_ADAGRAD:
        return ASHLAR_ALGORITHM_ADAGRAD;
    case ASHLAR_OPTIMIZER_RMSPROP:
        return config->momentum > 0 ? ASHLAR_ALGORITHM_RMSPROP_MOMENTUM : ASHLAR_ALGORITHM_RMSPROP;
    case ASHLAR_OPTIMIZER_SGD:
        if (config->momentum > 0) {
            return config->nesterov ? ASHLAR_ALGORITHM_NESTEROV : ASHLAR_ALGORITHM_MOMENTUM;
        }
        return ASHLAR_ALGORITHM_SGD;
    default:
        return ASHLAR_ALGORITHM_ADAM;
    }
}

unsigned ashlar__optimizer_regions(const ashlar_optimizer_config *config) {
#define MOMENTS(name, function, moment1, moment2)                                            \
    [ASHLAR_ALGORITHM_##name] = ((moment1) ? ASHLAR_REGION_BIT(ASHLAR_REGION_MOMENT1) : 0) | \
                                ((moment2) ? ASHLAR_REGION_BIT(ASHLAR_REGION_MOMENT2) : 0),
    static const unsigned moments[] = {ASHLAR_ALGORITHM_MAP(MOMENTS)};
    ASHLAR_TABLE_IS_FULL(moments, ASHLAR_ALGORITHM_COUNT);
    ashlar_optimizer_config known = ASHLAR_OR_ZERO(ashlar_optimizer_config, config);
    return ASHLAR_REGION_BIT(ASHLAR_REGION_PARAMETERS) |
           ASHLAR_REGION_BIT(ASHLAR_REGION_GRADIENTS) | ASHLAR_REGION_BIT(ASHLAR_REGION_MASTER) |
           moments[ashlar__optimizer_algorithm(&known)];
}

/* One value and whether it is in its range. */
typedef struct limit {
    const char *name;
    double value;
    bool is_fine;
    const char *range;
} limit;

static ashlar_status check_limits(const ashlar_optimizer_config *config, const limit *limits,
                                  size_t count) {
    for (size_t i = 0; i < count; i++) {
        ASHLAR_FAIL_IF(!limits[i].is_fine, ASHLAR_EINVAL, "optimizer %s: %s %g; give %s",
                       names[config->kind], limits[i].name, limits[i].value, limits[i].range);
    }
    return ASHLAR_OK;
}

/* Positive and finite, also in fp32: an epsilon of 0 or an infinite rate would make padding NaN. */
static bool is_positive(double value) {
    return value <= (double)FLT_MAX && (float)value > 0;
}

static bool is_fraction(double value) {
    return value >= 0 && value < 1;
}

static ashlar_status check_kind(const ashlar_optimizer_config *c) {
    const bool is_muon = c->kind == ASHLAR_OPTIMIZER_MUON;
    const bool is_adam =
        c->kind == ASHLAR_OPTIMIZER_ADAM || c->kind == ASHLAR_OPTIMIZER_ADAMW || is_muon;
    const bool is_sgd = c->kind == ASHLAR_OPTIMIZER_SGD;
    const bool is_rmsprop = c->kind == ASHLAR_OPTIMIZER_RMSPROP;
    const bool is_adagrad = c->kind == ASHLAR_OPTIMIZER_ADAGRAD;
    const limit limits[] = {
        {"learning_rate", c->learning_rate, is_positive(c->learning_rate), "a number above 0"},
        {"weight_decay", c->weight_decay,
         c->weight_decay >= 0 && c->weight_decay <= (double)FLT_MAX, "0 or more"},
        {"clip_norm", c->clip_norm, c->clip_norm >= 0, "0 (no clipping) or more"},
        {"epsilon", c->epsilon, is_sgd || is_positive(c->epsilon),
         "a number above 0 that fp32 can hold"},
        {"beta1", c->beta1, !is_adam || is_fraction(c->beta1), "0 or more, below 1"},
        {"beta2", c->beta2, !is_adam || is_fraction(c->beta2), "0 or more, below 1"},
        {"momentum", c->momentum, !(is_sgd || is_rmsprop || is_muon) || is_fraction(c->momentum),
         "0 or more, below 1"},
        {"dampening", c->dampening, !is_sgd || (c->dampening >= 0 && c->dampening <= 1), "0 to 1"},
        {"smoothing", c->smoothing, !is_rmsprop || (c->smoothing >= 0 && c->smoothing <= 1),
         "0 to 1"},
        {"rate_decay", c->rate_decay,
         !is_adagrad || (c->rate_decay >= 0 && isfinite(c->rate_decay)), "0 or more"},
        {"nesterov with momentum", c->momentum, !is_sgd || !c->nesterov || c->momentum > 0,
         "a momentum above 0"},
        {"nesterov with dampening", c->dampening, !is_sgd || !c->nesterov || c->dampening <= 0,
         "no dampening"},
        {"ns[0]", c->ns[0], !is_muon || isfinite(c->ns[0]), "a number"},
        {"ns[1]", c->ns[1], !is_muon || isfinite(c->ns[1]), "a number"},
        {"ns[2]", c->ns[2], !is_muon || isfinite(c->ns[2]), "a number"},
        {"ns_steps", c->ns_steps, !is_muon || (c->ns_steps >= 1 && c->ns_steps < 100), "1 to 99"},
        {"ns_epsilon", c->ns_epsilon, !is_muon || is_positive(c->ns_epsilon),
         "a number above 0 that fp32 can hold"},
        {"muon_scale", (double)c->muon_scale,
         !is_muon || (unsigned)c->muon_scale < ASHLAR_MUON_SCALE_COUNT, "one of ashlar_muon_scale"},
    };
    return check_limits(c, limits, sizeof limits / sizeof limits[0]);
}

static ashlar_status check_scaling(const ashlar_optimizer_config *c) {
    const bool is_off = c->loss_scale >= 0 && c->loss_scale <= 0; /* equal to 0, and not a NaN */
    const limit limits[] = {
        {"loss_scale", c->loss_scale, is_off || is_positive(c->loss_scale),
         "0 (no loss scaling) or a positive number that fp32 can hold"},
        {"scale_growth", c->scale_growth,
         is_off || (c->scale_growth >= 1 && isfinite(c->scale_growth)), "1 or more"},
        {"scale_backoff", c->scale_backoff,
         is_off || (c->scale_backoff > 0 && c->scale_backoff < 1), "a number above 0, below 1"},
        {"scale_interval", (double)c->scale_interval, is_off || c->scale_interval >= 1,
         "at least 1 step"},
    };
    return check_limits(c, limits, sizeof limits / sizeof limits[0]);
}

ashlar_status ashlar__optimizer_take(ashlar_optimizer_config *config,
                                     const ashlar_optimizer_config *given) {
    *config = ASHLAR_OR_ZERO(ashlar_optimizer_config, given);
    ASHLAR_FAIL_IF((unsigned)config->kind >= ASHLAR_OPTIMIZER_COUNT, ASHLAR_EINVAL,
                   "optimizer: kind %d; there are %d", (int)config->kind,
                   (int)ASHLAR_OPTIMIZER_COUNT);
    fill_in(config);
    ASHLAR_TRY(check_kind(config));
    return check_scaling(config);
}

ashlar_status ashlar_optimizer_complete(ashlar_optimizer_config *config) {
    ashlar_optimizer_config taken;
    ASHLAR_TRY(ashlar__optimizer_take(&taken, config));
    *config = taken;
    return ASHLAR_OK;
}

/* ---- schedules ---- */

#define SCHEDULE_NAME(name, text) [ASHLAR_SCHEDULE_##name] = text,
static const char *const schedule_names[] = {ASHLAR_SCHEDULE_MAP(SCHEDULE_NAME)};
ASHLAR_TABLE_IS_FULL(schedule_names, ASHLAR_SCHEDULE_COUNT);

static bool is_cosine_fine(const ashlar_schedule *s) {
    return s->total_steps >= 1 && s->warmup_steps <= s->total_steps && s->floor >= 0 &&
           s->floor <= 1;
}

static ashlar_status check_schedule(const ashlar_schedule *s) {
    ASHLAR_FAIL_IF((unsigned)s->kind >= (unsigned)ASHLAR_SCHEDULE_COUNT, ASHLAR_EINVAL,
                   "schedule: kind %d; there are %d", (int)s->kind, (int)ASHLAR_SCHEDULE_COUNT);
    ASHLAR_FAIL_IF(!(s->rate > 0 && isfinite(s->rate)), ASHLAR_EINVAL,
                   "schedule: rate %g; give a number above 0", s->rate);
    ASHLAR_FAIL_IF(s->kind == ASHLAR_SCHEDULE_COSINE && !is_cosine_fine(s), ASHLAR_EINVAL,
                   "schedule %s: %llu steps with %llu of warm-up down to %g; give at least 1 step, "
                   "no longer a warm-up, and a floor from 0 to 1",
                   schedule_names[s->kind], (unsigned long long)s->total_steps,
                   (unsigned long long)s->warmup_steps, s->floor);
    ASHLAR_FAIL_IF(s->kind == ASHLAR_SCHEDULE_STEP &&
                       !(s->step_size >= 1 && s->gamma > 0 && s->gamma <= 1),
                   ASHLAR_EINVAL,
                   "schedule %s: times %g every %llu steps; give at least 1 step, and a factor "
                   "above 0 that is at most 1",
                   schedule_names[s->kind], s->gamma, (unsigned long long)s->step_size);
    return ASHLAR_OK;
}

static double cosine(const ashlar_schedule *s, uint64_t step) {
    const double pi = 3.14159265358979323846;
    const uint64_t start = s->warmup_steps > 0 ? s->warmup_steps : 1;
    if (step == start) {
        return s->rate;
    }
    if (step >= s->total_steps) {
        return s->rate * s->floor;
    }
    const double done = (double)(step - start) / (double)(s->total_steps - start);
    return s->rate * (s->floor + (1 - s->floor) * (1 + cos(pi * done)) / 2);
}

static double rate_of(const ashlar_schedule *s, uint64_t step) {
    step = step > 0 ? step : 1;
    if (step < s->warmup_steps) {
        return s->rate * ((double)step / (double)s->warmup_steps);
    }
    if (step == s->warmup_steps || s->kind == ASHLAR_SCHEDULE_CONSTANT) {
        return s->rate;
    }
    return s->kind == ASHLAR_SCHEDULE_COSINE
               ? cosine(s, step)
               : s->rate * ashlar__power(s->gamma, (step - s->warmup_steps - 1) / s->step_size);
}

double ashlar_schedule_rate(const ashlar_schedule *schedule, uint64_t step) {
    ashlar_schedule s = ASHLAR_OR_ZERO(ashlar_schedule, schedule);
    s.gamma = chosen(s.gamma, 0.1);
    return check_schedule(&s) == ASHLAR_OK ? rate_of(&s, step) : (double)NAN;
}
