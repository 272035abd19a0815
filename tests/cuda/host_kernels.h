/*
 * host_kernels.h - the CUDA kernels of the optimizer and of a model's operations, compiled for the
 * CPU (cuda_emulation.h), by name.
 */
#ifndef ASHLAR_HOST_KERNELS_H
#define ASHLAR_HOST_KERNELS_H

#include <stddef.h>

/* `run` takes the kernel's one parameter, and goes through all blocks. */
typedef struct host_kernel {
    const char *name;
    size_t param_bytes;
    void (*run)(const void *param, unsigned blocks, unsigned threads);
} host_kernel;

/* The kernels by number; NULL behind the last one. They take an ashlar_optimizer_job, or the
 * arguments of ops_cuda.h. */
const host_kernel *optimizer_kernel_at(size_t number);
const host_kernel *ops_kernel_at(size_t number);

#endif /* ASHLAR_HOST_KERNELS_H */
