/* sampling.c - draws a symbol from logits: temperature, top-k, top-p. */
#include "rnn/layer/sampling.h"

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "allocator/base/host.h"
#include "allocator/device/device_impl.h"
#include "arena/compute/convert.h"
#include "arena/compute/workers.h"
#include "rnn/layer/ops.h"

ashlar_status ashlar__sampling_init(ashlar_sampling *c, size_t classes,
                                    const ashlar_sampling_config *config) {
    *c = (ashlar_sampling){
        .config = *config,
        .classes = classes,
        .logits = ashlar__host_calloc(classes, sizeof *c->logits),
        .probabilities = ashlar__host_calloc(classes, sizeof *c->probabilities),
        .ranking = ashlar__host_calloc(classes, sizeof *c->ranking),
    };
    if (c->logits == NULL || c->probabilities == NULL || c->ranking == NULL) {
        ashlar__sampling_finish(c);
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory to choose among %zu symbols", classes);
    }
    for (size_t i = 0; i < classes; i++) {
        c->ranking[i] = (uint32_t)i;
    }
    return ASHLAR_OK;
}

void ashlar__sampling_finish(ashlar_sampling *c) {
    ashlar__host_free(c->logits);
    ashlar__host_free(c->probabilities);
    ashlar__host_free(c->ranking);
    *c = (ashlar_sampling){0};
}

static bool are_finite(const float *logits, size_t classes) {
    for (size_t i = 0; i < classes; i++) {
        if (!isfinite(logits[i])) {
            return false;
        }
    }
    return true;
}

static size_t find_likeliest(const float *logits, size_t classes) {
    size_t best = 0;
    for (size_t i = 1; i < classes; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return best;
}

static bool is_likelier(const float *logits, uint32_t a, uint32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

/* Sort the ranking, the likeliest first. Shell sort works in place, while qsort() may allocate. No
 * two symbols rank equally, so the result does not depend on the order that is in it before. */
static void rank(ashlar_sampling *c) {
    uint32_t *const ranking = c->ranking;
    size_t gap = 1;
    while (gap < c->classes / 3) {
        gap = 3 * gap + 1;
    }
    for (; gap > 0; gap /= 3) {
        for (size_t i = gap; i < c->classes; i++) {
            const uint32_t symbol = ranking[i];
            size_t at = i;
            for (; at >= gap && is_likelier(c->logits, symbol, ranking[at - gap]); at -= gap) {
                ranking[at] = ranking[at - gap];
            }
            ranking[at] = symbol;
        }
    }
}

/* How many of the `count` likeliest symbols it takes to reach the share top_p < 1 of the sum of
 * their probabilities. The loop ends at `count` at the latest, since both sums add the same
 * probabilities in the same order. */
static size_t count_nucleus(const ashlar_sampling *c, size_t count) {
    double total = 0, mass = 0;
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        total += c->probabilities[c->ranking[i]];
    }
    do {
        mass += c->probabilities[c->ranking[kept++]];
    } while (mass < c->config.top_p * total);
    return kept;
}

/* Drop the symbols that top_k and top_p do not keep. */
static void narrow(ashlar_sampling *c) {
    const size_t top_k = c->config.top_k;
    size_t kept = top_k > 0 && top_k < c->classes ? top_k : c->classes;
    const bool wants_all = c->config.top_p >= 1; /* not by the sums below, which round */
    if (wants_all && kept == c->classes) {
        return;
    }
    rank(c);
    if (!wants_all) {
        kept = count_nucleus(c, kept);
    }
    for (size_t i = kept; i < c->classes; i++) {
        c->probabilities[c->ranking[i]] = 0;
    }
}

/* The symbol in whose part of [0, 1) `number` lies; the last kept one if rounding goes past it. */
static size_t pick(const float *probabilities, size_t classes, double number) {
    double left = 0;
    size_t last = 0;
    for (size_t i = 0; i < classes; i++) {
        left += probabilities[i];
    }
    left *= number;
    for (size_t i = 0; i < classes; i++) {
        if (probabilities[i] > 0) {
            last = i;
            if (left < probabilities[i]) {
                break;
            }
            left -= probabilities[i];
        }
    }
    return last;
}

ashlar_status ashlar__sampling_draw(ashlar_sampling *c, double number, int32_t *symbol) {
    ASHLAR_FAIL_IF(!are_finite(c->logits, c->classes), ASHLAR_EFORMAT,
                   "a logit is not finite: the model's weights are no numbers; train it anew "
                   "with a smaller learning rate");
    if (c->config.temperature < (double)FLT_MIN) { /* 1 / temperature must be a finite float */
        *symbol = (int32_t)find_likeliest(c->logits, c->classes);
        return ASHLAR_OK;
    }
    const ashlar_softmax_args softmax = {
        .rows = 1,
        .width = c->classes,
        .temperature = c->config.temperature,
        .x = c->logits,
        .y = c->probabilities,
    };
    ashlar__softmax_f32(&softmax);
    narrow(c);
    *symbol = (int32_t)pick(c->probabilities, c->classes, number);
    return ASHLAR_OK;
}

struct ashlar_sampler {
    ashlar_sampling sampling;
};

static ashlar_status check_sampling(const ashlar_sampling_config *c, size_t classes) {
    ASHLAR_FAIL_IF(!(c->temperature >= 0) || !isfinite(c->temperature), ASHLAR_EINVAL,
                   "sampler: a temperature of %g; it must be 0 or more", c->temperature);
    ASHLAR_FAIL_IF(!(c->top_p >= 0) || c->top_p > 1, ASHLAR_EINVAL,
                   "sampler: a top_p of %g; it must be 0 to 1", c->top_p);
    ASHLAR_FAIL_IF(classes == 0 || classes > (size_t)1 << 31, ASHLAR_EINVAL,
                   "sampler: %zu classes; it must be 1 to 2^31", classes);
    return ASHLAR_OK;
}

ashlar_status ashlar_sampler_create(const ashlar_sampling_config *config, size_t classes,
                                    ashlar_sampler **out) {
    ashlar_sampling_config c = ASHLAR_OR_ZERO(ashlar_sampling_config, config);
    ASHLAR_TRY(check_sampling(&c, classes));
    c.top_p = c.top_p == 0 ? 1 : c.top_p;
    ashlar_sampler *sampler;
    ASHLAR_HOST_NEW(sampler, 1, "no host memory for a sampler");
    ASHLAR_HAND_OUT(ashlar__sampling_init(&sampler->sampling, classes, &c), sampler,
                    ashlar__host_free, out);
}

void ashlar_sampler_destroy(ashlar_sampler *sampler) {
    if (sampler != NULL) {
        ashlar__sampling_finish(&sampler->sampling);
        ashlar__host_free(sampler);
    }
}

static ashlar_status draw(ashlar_sampler *sampler, ashlar_dtype dtype, const void *logits,
                          double number, int32_t *out) {
    ashlar_sampling *c = &sampler->sampling;
    ASHLAR_FAIL_IF(!(number >= 0 && number < 1), ASHLAR_EINVAL,
                   "sampler: the number is %g; it must be at least 0 and below 1", number);
    ashlar__convert(ASHLAR_F32, c->logits, dtype, logits, c->classes);
    return ashlar__sampling_draw(c, number, out);
}

/* The arguments of ashlar_sampler_draw(), and the first row that failed. */
typedef struct draws {
    ashlar_sampler *const *samplers;
    ashlar_dtype dtype;
    const char *logits;
    const double *numbers;
    int32_t *out;
    atomic_size_t bad; /* SIZE_MAX: none */
} draws;

static ashlar_status draw_row(const draws *d, size_t i) {
    const size_t row_bytes = d->samplers[i]->sampling.classes * ashlar_dtype_bytes(d->dtype);
    return draw(d->samplers[i], d->dtype, d->logits + i * row_bytes, d->numbers[i], &d->out[i]);
}

static void draw_one(void *context, size_t i) {
    draws *const d = context;
    if (draw_row(d, i) != ASHLAR_OK) {
        size_t bad = atomic_load(&d->bad);
        while (i < bad && !atomic_compare_exchange_weak(&d->bad, &bad, i)) {
        }
    }
}

ashlar_status ashlar_sampler_draw(ashlar_sampler *const *samplers, size_t count, ashlar_dtype dtype,
                                  const void *logits, const double *numbers, int32_t *out) {
    draws d = {.samplers = samplers,
               .dtype = dtype,
               .logits = logits,
               .numbers = numbers,
               .out = out,
               .bad = SIZE_MAX};
    const size_t classes = count > 0 ? samplers[0]->sampling.classes : 0;
    ASHLAR_FAIL_IF((unsigned)dtype >= ASHLAR_DTYPE_COUNT, ASHLAR_EINVAL, "sampler: %d is no type",
                   (int)dtype);
    /* A byte for each logit is enough to tell host memory from a device's. */
    ASHLAR_TRY(ashlar__check_host_array("ashlar_sampler_draw", "logits", logits, count * classes));
    ashlar__workers_run(count, draw_one, &d);
    const size_t bad = atomic_load(&d.bad);
    return bad == SIZE_MAX ? ASHLAR_OK : draw_row(&d, bad); /* the detail is this thread's */
}
