/*
 * host_kernel.h - a CUDA kernel compiled for the CPU (cuda_emulation.h), by name.
 */
#ifndef ASHLAR_HOST_KERNEL_H
#define ASHLAR_HOST_KERNEL_H

#include <stddef.h>

/* `run` takes the kernel's one parameter, and goes through all blocks. */
typedef struct host_kernel {
    const char *name;
    size_t param_bytes;
    void (*run)(const void *param, unsigned blocks, unsigned threads);
} host_kernel;

#endif /* ASHLAR_HOST_KERNEL_H */
