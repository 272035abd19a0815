/*
 * optimizer_cuda.h - the optimizer's CUDA kernels as their launcher knows them (internal; C and
 * CUDA C).
 */
#ifndef ASHLAR_OPTIMIZER_CUDA_H
#define ASHLAR_OPTIMIZER_CUDA_H

#include "arena/optimizer/optimizer_impl.h"

/*
 * Each kernel has one parameter, an ashlar_optimizer_job, and no dynamic shared memory.
 *
 *   ashlar_kernel_sum      a block of CHUNK_THREADS for each of the job's chunks: its partial sum
 *   ashlar_kernel_decide   one block of DECIDE_THREADS: the rest of SUM, and DECIDE; by job.parts
 *   ashlar_kernel_F        F a function of ASHLAR_ALGORITHM_MAP; blocks as of _sum: UPDATE
 */
enum { ASHLAR_CHUNK_THREADS = 128, ASHLAR_DECIDE_THREADS = 256 };

#endif /* ASHLAR_OPTIMIZER_CUDA_H */
