/*
 * The optimizer's loops, for the instruction set this file is compiled for: meson.build names the
 * table ASHLAR_KERNELS.
 */
#include "optimizer_kernels.h"

enum { LANES = 16 };

static double add_lanes(const double lanes[static LANES]) {
    double sum = 0;
    for (size_t lane = 0; lane < LANES; lane++) {
        sum += lanes[lane];
    }
    return sum;
}

#define ASHLAR_REAL float
#define ASHLAR_REAL_NAME(name) name##_f32
#include "optimizer_kernels_template.h"

#define ASHLAR_REAL double
#define ASHLAR_REAL_NAME(name) name##_f64
#include "optimizer_kernels_template.h"

#define UPDATE_F32(name, function, moment1, moment2) \
    [ASHLAR_ALGORITHM_##name] = update_##function##_f32,
#define UPDATE_F64(name, function, moment1, moment2) \
    [ASHLAR_ALGORITHM_##name] = update_##function##_f64,

const ashlar_optimizer_kernels ASHLAR_KERNELS = {
    .sum = {[ASHLAR_F32] = sum_f32, [ASHLAR_F64] = sum_f64},
    .update = {[ASHLAR_F32] = {ASHLAR_ALGORITHM_MAP(UPDATE_F32)},
               [ASHLAR_F64] = {ASHLAR_ALGORITHM_MAP(UPDATE_F64)}},
};
