#include <ashlar/optimizer.h>

#include <math.h>

#include "arena_impl.h"
#include "error.h"

ashlar_adamw ashlar_adamw_default(void) {
    return (ashlar_adamw){.learning_rate = 1e-3,
                          .beta1 = 0.9,
                          .beta2 = 0.999,
                          .epsilon = 1e-8,
                          .weight_decay = 0.01};
}

/* One launch's arguments: regions as flat arrays, padding included (it is and stays zero). */
typedef struct update {
    float *parameters; /* [count], updated */
    const float *gradients;
    float *moment1;    /* [count], updated */
    float *moment2;    /* [count], updated */
    size_t count;
    double *norm;      /* NULL: not wanted */
    double clip_norm;
    float rate;        /* learning_rate / (1 - beta1^step) */
    float shrink;      /* learning_rate * weight_decay; floats near 1 are too coarse for 1 - it */
    float beta1, beta2;
    float rest1, rest2; /* 1 - beta, rounded once: 1.0f - 0.999f is wrong in its fifth digit */
    float root_scale;  /* 1 / sqrt(1 - beta2^step) */
    float epsilon;
} update;

/*
 * The sum of squares in double, over LANES interleaved partial sums: the same order of additions
 * whatever the compiler vectorises.
 */
enum { LANES = 16 };
_Static_assert(ASHLAR_ARENA_ALIGN % (LANES * sizeof(float)) == 0, "a region is whole lanes");

static double sum_of_squares(const float *values, size_t count) {
    double lanes[LANES] = {0};
    for (size_t i = 0; i < count; i += LANES) {
        for (size_t lane = 0; lane < LANES; lane++) {
            const double value = values[i + lane];
            lanes[lane] += value * value;
        }
    }
    double sum = 0;
    for (size_t lane = 0; lane < LANES; lane++) {
        sum += lanes[lane];
    }
    return sum;
}

static void apply(const update *u, float scale) {
    float *restrict parameters = u->parameters;
    const float *restrict gradients = u->gradients;
    float *restrict moment1 = u->moment1;
    float *restrict moment2 = u->moment2;
    const float beta1 = u->beta1, beta2 = u->beta2, rest1 = u->rest1, rest2 = u->rest2;
    const float rate = u->rate, shrink = u->shrink;
    const float root_scale = u->root_scale, epsilon = u->epsilon;
    for (size_t i = 0; i < u->count; i++) {
        const float g = scale * gradients[i];
        const float m = beta1 * moment1[i] + rest1 * g;
        const float v = beta2 * moment2[i] + rest2 * g * g;
        moment1[i] = m;
        moment2[i] = v;
        parameters[i] -= rate * m / (sqrtf(v) * root_scale + epsilon) + shrink * parameters[i];
    }
}

static void run_update(void *args) {
    const update *u = args;
    const double norm = sqrt(sum_of_squares(u->gradients, u->count));
    if (u->norm != NULL) {
        *u->norm = norm;
    }
    if (!isfinite(norm)) {
        return;
    }
    const bool clips = u->clip_norm > 0 && norm > u->clip_norm;
    apply(u, clips ? (float)(u->clip_norm / norm) : 1.0f);
}

/*
 * What the formulas need of the values, and that their fp32 forms keep padding at zero. Step 0
 * is refused by its rate, which is infinite.
 */
static bool is_in_range(const ashlar_adamw *adamw, const update *u) {
    return adamw->learning_rate > 0 && adamw->beta1 >= 0 && adamw->beta1 < 1 &&
           adamw->beta2 >= 0 && adamw->beta2 < 1 && adamw->weight_decay >= 0 &&
           adamw->clip_norm >= 0 && u->epsilon > 0 && isfinite(u->rate) && isfinite(u->shrink);
}

static ashlar_status check_arena(const ashlar_arena *arena) {
    const unsigned wanted = ASHLAR_REGION_BIT(ASHLAR_REGION_PARAMETERS) |
                            ASHLAR_REGION_BIT(ASHLAR_REGION_GRADIENTS) |
                            ASHLAR_REGION_BIT(ASHLAR_REGION_MOMENT1) |
                            ASHLAR_REGION_BIT(ASHLAR_REGION_MOMENT2);
    if ((ashlar_arena_regions(arena) & wanted) != wanted) {
        return ashlar_fail(ASHLAR_EINVAL, "adamw: the arena lacks gradients or moments; commit it "
                           "with ASHLAR_REGIONS_ALL");
    }
    for (size_t i = 0; i < arena->tensor_count; i++) {
        if (arena->tensors[i].info.dtype != ASHLAR_F32) {
            return ashlar_fail(ASHLAR_EINVAL, "adamw: tensor %s is not fp32",
                               arena->tensors[i].name);
        }
    }
    ashlar_device_info device;
    ashlar_device_info_read(ashlar_allocator_device(arena->allocator), &device);
    if (device.kind != ASHLAR_DEVICE_SOFT) {
        return ashlar_fail(ASHLAR_ENOTSUP, "adamw: only on a software device yet");
    }
    return ASHLAR_OK;
}

ashlar_status ashlar_adamw_step(ashlar_arena *arena, const ashlar_adamw *adamw, uint64_t step,
                                double *norm, ashlar_stream stream) {
    const ashlar_status status = check_arena(arena);
    if (status != ASHLAR_OK) {
        return status;
    }
    const update u = {
        .parameters = arena->regions[ASHLAR_REGION_PARAMETERS],
        .gradients = arena->regions[ASHLAR_REGION_GRADIENTS],
        .moment1 = arena->regions[ASHLAR_REGION_MOMENT1],
        .moment2 = arena->regions[ASHLAR_REGION_MOMENT2],
        .count = ashlar_arena_region_bytes(arena, ASHLAR_REGION_PARAMETERS) / sizeof(float),
        .norm = norm,
        .clip_norm = adamw->clip_norm,
        .rate = (float)(adamw->learning_rate / (1 - pow(adamw->beta1, (double)step))),
        .shrink = (float)(adamw->learning_rate * adamw->weight_decay),
        .beta1 = (float)adamw->beta1,
        .beta2 = (float)adamw->beta2,
        .rest1 = (float)(1 - adamw->beta1),
        .rest2 = (float)(1 - adamw->beta2),
        .root_scale = (float)(1 / sqrt(1 - pow(adamw->beta2, (double)step))),
        .epsilon = (float)adamw->epsilon,
    };
    if (!is_in_range(adamw, &u)) {
        return ashlar_fail(ASHLAR_EINVAL,
                           "adamw: learning_rate %g, beta1 %g, beta2 %g, epsilon %g, "
                           "weight_decay %g, clip_norm %g, step %llu: one is out of its range",
                           adamw->learning_rate, adamw->beta1, adamw->beta2, adamw->epsilon,
                           adamw->weight_decay, adamw->clip_norm, (unsigned long long)step);
    }
    return ashlar_launch(ashlar_allocator_device(arena->allocator), stream, run_update, &u,
                         sizeof u);
}
