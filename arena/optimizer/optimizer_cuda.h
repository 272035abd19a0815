/*
 * optimizer_cuda.h - the optimizer's CUDA kernels as their launcher knows them (internal; C and
 * CUDA C).
 */
#ifndef ASHLAR_OPTIMIZER_CUDA_H
#define ASHLAR_OPTIMIZER_CUDA_H

#include "arena/optimizer/optimizer_formula.h"

/*
 * Each kernel has one parameter, an ashlar_optimizer_job, and no dynamic shared memory.
 *
 *   ashlar_kernel_sum      a block of CHUNK_THREADS for each of the job's chunks: its partial sum
 *   ashlar_kernel_decide   one block of DECIDE_THREADS: the rest of SUM, and DECIDE; by job.passes
 *   ashlar_kernel_F        F a function of ASHLAR_ALGORITHM_MAP; blocks as of _sum: UPDATE
 */
enum { ASHLAR_CHUNK_THREADS = 128, ASHLAR_DECIDE_THREADS = 256 };

/* What one block works on: elements of one run that lie in one chunk. */
typedef struct ashlar_optimizer_piece {
    ashlar_optimizer_run run;
    size_t first; /* element of the run */
    unsigned count;
    ashlar_optimizer_factors factors; /* of UPDATE */
} ashlar_optimizer_piece;

ASHLAR_SHARED_FN bool ashlar__is_aligned(const void *array, size_t bytes) {
    return (uintptr_t)array % bytes == 0;
}

#endif /* ASHLAR_OPTIMIZER_CUDA_H */
