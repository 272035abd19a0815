/*
 * fake_libcuda.h - what both fake drivers answer with; see fake_libcuda.c.
 */
#ifndef ASHLAR_FAKE_LIBCUDA_H
#define ASHLAR_FAKE_LIBCUDA_H

#include "cuda_abi.h"

/* As cuGetProcAddress_v2. */
cu_result ashlar_fake_find(const char *symbol, void **address, int version,
                           unsigned long long flags, unsigned int *found);

#endif /* ASHLAR_FAKE_LIBCUDA_H */
