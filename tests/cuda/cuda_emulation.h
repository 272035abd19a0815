/*
 * cuda_emulation.h - CUDA C's words for a kernel on the CPU, one block after the other (the
 * including file is C).
 *
 * The threads of a block are threads where a sanitizer watches those (CUDA_EMULATION_THREADS),
 * which then finds what lacks a __syncthreads(). Elsewhere they take turns on one, which takes a
 * fraction of the time. Speed, warps and memory that a device would refuse are not emulated.
 */
#ifndef ASHLAR_CUDA_EMULATION_H
#define ASHLAR_CUDA_EMULATION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define __global__
#define __device__
#define __shared__ static /* blocks follow each other */
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(threads)
#define __align__(bytes) __attribute__((aligned(bytes)))

typedef struct emulated_index {
    unsigned x;
} emulated_index;

static _Thread_local emulated_index threadIdx, blockIdx;

static inline unsigned atomicOr(unsigned *word, unsigned bits) {
    return __atomic_fetch_or(word, bits, __ATOMIC_RELAXED);
}

#ifdef CUDA_EMULATION_THREADS
#include "tests/cuda/emulated_threads.h"
#else
#include "tests/cuda/emulated_turns.h"
#endif

/* Run a kernel to its end; one at a time. */
static inline void emulate(void (*kernel)(const void *param), const void *param, unsigned blocks,
                           unsigned threads) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    emulated_launch(kernel, param, blocks, threads);
    pthread_mutex_unlock(&lock);
}

#endif /* ASHLAR_CUDA_EMULATION_H */
