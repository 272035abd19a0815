/* optimizer_kernels.h - the optimizer's loops on one CPU core, compiled for several instruction
 * sets, all of which give the same bits (internal). */
#ifndef ASHLAR_OPTIMIZER_KERNELS_H
#define ASHLAR_OPTIMIZER_KERNELS_H

#include "allocator/base/check_level.h"
#include "arena/optimizer/optimizer_formula.h"

/* Update every element of `piece`, a part of a run described as a run of its own. */
typedef void ashlar_optimizer_update_fn(const ashlar_optimizer_factors *factors,
                                        const ashlar_optimizer_run *piece);

typedef ashlar_optimizer_update_fn *ashlar_optimizer_updates[ASHLAR_ALGORITHM_COUNT];

/* The sum of the squares of values[count], in double. It has 16 interleaved partial sums, so that
 * the order of additions is the same whether or not the compiler vectorises the loop. */
typedef double ashlar_optimizer_sum_fn(const void *values, size_t count);

/* The loops of one instruction set. */
typedef struct ashlar_optimizer_kernels {
    ashlar_optimizer_sum_fn *sum[ASHLAR_DTYPE_COUNT];
    const ashlar_optimizer_updates *update[ASHLAR_DTYPE_COUNT];
} ashlar_optimizer_kernels;

#define ASHLAR_DECLARE_LOOPS(type, set)                          \
    ashlar_optimizer_sum_fn ashlar__optimizer_sum_##type##_##set; \
    extern const ashlar_optimizer_updates ashlar__optimizer_updates_##type##_##set;
#define ASHLAR_DECLARE_SET(set)                                            \
    extern const ashlar_optimizer_kernels ashlar__optimizer_kernels_##set; \
    ASHLAR_DECLARE_LOOPS(f32, set)                                         \
    ASHLAR_DECLARE_LOOPS(f64, set)                                         \
    ASHLAR_DECLARE_LOOPS(f16, set)                                         \
    ASHLAR_DECLARE_LOOPS(bf16, set)
ASHLAR_DECLARE_SET(baseline)
ASHLAR_DECLARE_SET(avx2)

/* The loops of the best instruction set that this processor can run. */
const ashlar_optimizer_kernels *ashlar__optimizer_kernels_best(void);

/* Like ashlar__optimizer_cpu_run(), but with the given loops. For tests. */
void ashlar__optimizer_cpu_run_with(const ashlar_optimizer_job *job,
                                    const ashlar_optimizer_kernels *kernels);

#endif /* ASHLAR_OPTIMIZER_KERNELS_H */
