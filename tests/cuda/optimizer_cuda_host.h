/*
 * optimizer_cuda_host.h - the optimizer's CUDA kernels, compiled for the CPU (cuda_emulation.h).
 */
#ifndef ASHLAR_OPTIMIZER_CUDA_HOST_H
#define ASHLAR_OPTIMIZER_CUDA_HOST_H

#include "tests/cuda/host_kernel.h"
#include "arena/optimizer/optimizer_cuda.h"

/* The kernels by number; NULL behind the last one. Each takes an ashlar_optimizer_job. */
const host_kernel *optimizer_kernel_at(size_t number);

#endif /* ASHLAR_OPTIMIZER_CUDA_HOST_H */
