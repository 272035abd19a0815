/* The way into a driver of CUDA 11.3 to 11.8: the older name, which does not say why it fails. */
#include <ashlar/export.h>

#include "fake_libcuda.h"

ASHLAR_API cu_result cuGetProcAddress(const char *symbol, void **address, int version,
                                      unsigned long long flags);

cu_result cuGetProcAddress(const char *symbol, void **address, int version,
                           unsigned long long flags) {
    unsigned int found;
    return ashlar_fake_find(symbol, address, version, flags, &found);
}
