/* The way into a driver of CUDA 12 and later. */
#include <ashlar/export.h>

#include "fake_libcuda.h"

ASHLAR_API cu_result cuGetProcAddress_v2(const char *symbol, void **address, int version,
                                         unsigned long long flags, unsigned int *found);

cu_result cuGetProcAddress_v2(const char *symbol, void **address, int version,
                              unsigned long long flags, unsigned int *found) {
    return ashlar_fake_find(12080, symbol, address, version, flags, found);
}
