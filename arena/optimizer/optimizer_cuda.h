/* optimizer_cuda.h - the names, thread blocks and parameter of the optimizer's CUDA kernels
 * (internal; C and CUDA C). */
#ifndef ASHLAR_OPTIMIZER_CUDA_H
#define ASHLAR_OPTIMIZER_CUDA_H

#include "arena/optimizer/optimizer_formula.h"

/* Each kernel has one parameter, an ashlar_optimizer_job, and no dynamic shared memory.
 *
 *   ashlar_kernel_sum      one block of CHUNK_THREADS for each of the job's chunks: partial sums
 *   ashlar_kernel_decide   one block of DECIDE_THREADS: adds the partial sums to scalars->sum if
 *                          job.passes has ADD, decides if it has DECIDE
 *   ashlar_kernel_F_T      for each function F of ASHLAR_ALGORITHM_MAP and each type T: UPDATE of
 *                          the runs of this type; blocks as for sum, of which those of other types
 *                          do nothing. Registers are for one type, so that more blocks run
 */
enum { ASHLAR_CHUNK_THREADS = 128, ASHLAR_DECIDE_THREADS = 256 };

/* What one block works on: the elements of one chunk that the job covers, all of one run. */
typedef struct ashlar_optimizer_piece {
    ashlar_optimizer_run run;
    size_t first; /* counted in elements of the run */
    unsigned count;
    ashlar_optimizer_factors factors; /* set for UPDATE only */
} ashlar_optimizer_piece;

ASHLAR_SHARED_FN bool ashlar__is_aligned(const void *array, size_t bytes) {
    return (uintptr_t)array % bytes == 0;
}

#endif /* ASHLAR_OPTIMIZER_CUDA_H */
