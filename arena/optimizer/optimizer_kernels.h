/*
 * optimizer_kernels.h - the loops of the optimizer on one CPU core, compiled for several
 * instruction sets (internal). All of them get the same bits.
 */
#ifndef ASHLAR_OPTIMIZER_KERNELS_H
#define ASHLAR_OPTIMIZER_KERNELS_H

#include "arena/optimizer/optimizer_formula.h"

typedef struct ashlar_optimizer_kernels {
    /*
     * The sum of squares of values[count], in double, over 16 interleaved partial sums: the same
     * order of additions whatever the compiler vectorises.
     */
    double (*sum[ASHLAR_DTYPE_COUNT])(const void *values, size_t count);

    /* Update every element of `part`, a piece of a run whose arrays begin with the piece. */
    void (*update[ASHLAR_ALGORITHM_COUNT][ASHLAR_DTYPE_COUNT])(
        const ashlar_optimizer_factors *factors, const ashlar_optimizer_run *part);
} ashlar_optimizer_kernels;

extern const ashlar_optimizer_kernels ashlar_optimizer_kernels_baseline;
extern const ashlar_optimizer_kernels ashlar_optimizer_kernels_avx2;

/* The best that this processor runs (optimizer_kernels_x86.c or optimizer_kernels_any.c). */
const ashlar_optimizer_kernels *ashlar_optimizer_kernels_best(void);

/* ashlar_optimizer_cpu_run() with kernels of one's choice. */
void ashlar_optimizer_cpu_run_with(const ashlar_optimizer_job *job,
                                   const ashlar_optimizer_kernels *kernels);

#endif /* ASHLAR_OPTIMIZER_KERNELS_H */
