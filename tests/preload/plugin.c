/* plugin.c - what is loaded later and frees what the program took: by the driver that it is linked
 * with, and by the next library that has the function. */
#include <dlfcn.h>
#include <string.h>

#include <ashlar/base.h>

#include "allocator/driver/cuda_abi.h"

cu_result cuMemFree_v2(cu_ptr ptr);
ASHLAR_API cu_result plugin_free(cu_ptr ptr);
ASHLAR_API cu_result plugin_free_next(cu_ptr ptr);

cu_result plugin_free(cu_ptr ptr) {
    return cuMemFree_v2(ptr);
}

cu_result plugin_free_next(cu_ptr ptr) {
    cu_result (*next)(cu_ptr ptr);
    void *address = dlsym(RTLD_NEXT, "cuMemFree_v2");
    memcpy(&next, &address, sizeof next);
    return next == NULL ? CU_NOT_FOUND : next(ptr);
}
