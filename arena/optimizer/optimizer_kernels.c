/*
 * The optimizer's loops, for the instruction set this file is compiled for: meson.build names the
 * table ASHLAR_KERNELS.
 */
#include "arena/optimizer/optimizer_kernels.h"

#include "arena/compute/half.h"

/* ---- sums ---- */

enum { LANES = 16 };

static double add_lanes(const double lanes[static LANES]) {
    double sum = 0;
    for (size_t lane = 0; lane < LANES; lane++) {
        sum += lanes[lane];
    }
    return sum;
}

#define SUM(name, element, real)                                     \
    static double sum_##name(const void *array, size_t count) {      \
        const element *values = array;                               \
        double lanes[LANES] = {0};                                   \
        size_t i = 0;                                                \
        for (; i + LANES <= count; i += LANES) {                     \
            for (size_t lane = 0; lane < LANES; lane++) {            \
                const double value = (double)real(values[i + lane]); \
                lanes[lane] += value * value;                        \
            }                                                        \
        }                                                            \
        for (size_t lane = 0; i < count; i++, lane++) {              \
            const double value = (double)real(values[i]);            \
            lanes[lane] += value * value;                            \
        }                                                            \
        return add_lanes(lanes);                                     \
    }

SUM(f32, float, )
SUM(f64, double, )
SUM(f16, uint16_t, ashlar_float_from_f16)
SUM(bf16, uint16_t, ashlar_float_from_bf16)

/* ---- updates ---- */

#define ASHLAR_REAL float
#define ASHLAR_REAL_NAME(name) name##_f32
#include "arena/optimizer/optimizer_kernels_template.h"

#define ASHLAR_REAL double
#define ASHLAR_REAL_NAME(name) name##_f64
#include "arena/optimizer/optimizer_kernels_template.h"

/* A narrow type: its conversions, of a whole array each. */
typedef struct narrow_type {
    void (*widen)(float *restrict to, const uint16_t *restrict from, size_t count);
    void (*narrow)(uint16_t *restrict to, const float *restrict from, size_t count);
} narrow_type;

#define NARROW_TYPE(name)                                                                        \
    static void widen_##name(float *restrict to, const uint16_t *restrict from, size_t count) {  \
        for (size_t i = 0; i < count; i++) {                                                     \
            to[i] = ashlar_float_from_##name(from[i]);                                           \
        }                                                                                        \
    }                                                                                            \
    static void narrow_##name(uint16_t *restrict to, const float *restrict from, size_t count) { \
        for (size_t i = 0; i < count; i++) {                                                     \
            to[i] = ashlar_##name##_from_float(from[i]);                                         \
        }                                                                                        \
    }                                                                                            \
    static const narrow_type type_##name = {widen_##name, narrow_##name};

NARROW_TYPE(f16)
NARROW_TYPE(bf16)

/* Through masters, in blocks that stay in the first cache. */
static void update_narrow(const narrow_type *type, const ashlar_optimizer_factors *factors,
                          const ashlar_optimizer_run *part,
                          void (*update)(const ashlar_optimizer_factors *factors,
                                         const ashlar_optimizer_run *part)) {
    enum { BLOCK = 512 };
    float gradients[BLOCK];
    ashlar_optimizer_run block = *part;
    uint16_t *parameters = part->parameters;
    const uint16_t *from = part->gradients;
    for (size_t left = part->elements; left > 0; left -= block.elements) {
        block.elements = left < BLOCK ? left : BLOCK;
        if (factors->is_first) {
            type->widen(block.master, parameters, block.elements);
        }
        type->widen(gradients, from, block.elements);
        block.parameters = block.master;
        block.gradients = gradients;
        update(factors, &block);
        type->narrow(parameters, block.master, block.elements);
        parameters += block.elements;
        from += block.elements;
        block.master += block.elements;
        block.moment1 = block.moment1 == NULL ? NULL : (float *)block.moment1 + block.elements;
        block.moment2 = block.moment2 == NULL ? NULL : (float *)block.moment2 + block.elements;
    }
}

#define UPDATE_NARROW(name, function, moment1, moment2)                           \
    static void update_##function##_f16(const ashlar_optimizer_factors *factors,  \
                                        const ashlar_optimizer_run *part) {       \
        update_narrow(&type_f16, factors, part, update_##function##_f32);         \
    }                                                                             \
    static void update_##function##_bf16(const ashlar_optimizer_factors *factors, \
                                         const ashlar_optimizer_run *part) {      \
        update_narrow(&type_bf16, factors, part, update_##function##_f32);        \
    }
ASHLAR_ALGORITHM_MAP(UPDATE_NARROW)

/* ---- the table ---- */

#define ROW(function)                                                                    \
    {                                                                                    \
        [ASHLAR_F32] = update_##function##_f32, [ASHLAR_F64] = update_##function##_f64,  \
        [ASHLAR_F16] = update_##function##_f16, [ASHLAR_BF16] = update_##function##_bf16 \
    }
#define ENTRY(name, function, moment1, moment2) [ASHLAR_ALGORITHM_##name] = ROW(function),

const ashlar_optimizer_kernels ASHLAR_KERNELS = {
    .sum = {[ASHLAR_F32] = sum_f32,
            [ASHLAR_F64] = sum_f64,
            [ASHLAR_F16] = sum_f16,
            [ASHLAR_BF16] = sum_bf16},
    .update = {ASHLAR_ALGORITHM_MAP(ENTRY)},
};
