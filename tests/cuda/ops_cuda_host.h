/*
 * ops_cuda_host.h - the CUDA kernels of a model's operations, compiled for the CPU.
 */
#ifndef ASHLAR_OPS_CUDA_HOST_H
#define ASHLAR_OPS_CUDA_HOST_H

#include "tests/cuda/host_kernel.h"

/* The kernels by number; NULL behind the last one. Each takes the arguments of ops_cuda.h. */
const host_kernel *ops_kernel_at(size_t number);

#endif /* ASHLAR_OPS_CUDA_HOST_H */
