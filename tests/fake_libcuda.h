/*
 * fake_libcuda.h - what both fake drivers answer with; see fake_libcuda.c.
 */
#ifndef ASHLAR_FAKE_LIBCUDA_H
#define ASHLAR_FAKE_LIBCUDA_H

#include "cuda_abi.h"

/* As cuGetProcAddress_v2, of a driver for CUDA versions up to `newest`. */
cu_result ashlar_fake_find(int newest, const char *symbol, void **address, int version,
                           unsigned long long flags, unsigned int *found);

#endif /* ASHLAR_FAKE_LIBCUDA_H */
