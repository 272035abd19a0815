/*
 * optimizer_cuda_host.h - the optimizer's CUDA kernels, compiled for the CPU (cuda_emulation.h).
 */
#ifndef ASHLAR_OPTIMIZER_CUDA_HOST_H
#define ASHLAR_OPTIMIZER_CUDA_HOST_H

#include "optimizer_cuda.h"

/*
 * The kernels by number; NULL behind the last one. `run` takes an ashlar_optimizer_job and goes
 * through all of its blocks.
 */
typedef struct host_kernel {
    const char *name;
    void (*run)(const ashlar_optimizer_job *job, unsigned blocks, unsigned threads);
} host_kernel;

const host_kernel *host_kernel_at(size_t number);

#endif /* ASHLAR_OPTIMIZER_CUDA_HOST_H */
