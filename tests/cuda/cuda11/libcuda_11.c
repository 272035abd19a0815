/*
 * libcuda_11.c - the way into a driver of CUDA 11.8 or before: cuGetProcAddress() of the old name,
 * which does not say why it fails.
 */

#include "tests/cuda/libcuda.h"

ASHLAR_API cu_result cuGetProcAddress(const char *symbol, void **address, int version,
                                      unsigned long long flags);

cu_result cuGetProcAddress(const char *symbol, void **address, int version,
                           unsigned long long flags) {
    unsigned int found;
    return ashlar_fake_find(11080, symbol, address, version, flags, &found);
}
