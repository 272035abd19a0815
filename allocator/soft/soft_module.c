/* soft_module.c - kernels: a software device has none, its compute is queued host functions. */
#include "allocator/soft/soft_state.h"

cu_result ashlar__soft_module_load_data(cu_module *module, const void *image) {
    (void)module;
    (void)image;
    return CU_NOT_SUPPORTED;
}

cu_result ashlar__soft_module_unload(cu_module module) {
    (void)module;
    return CU_NOT_SUPPORTED;
}

cu_result ashlar__soft_module_get_function(cu_function *function, cu_module module,
                                           const char *name) {
    (void)function;
    (void)module;
    (void)name;
    return CU_NOT_SUPPORTED;
}

cu_result ashlar__soft_launch_kernel(cu_function function, unsigned int grid_x, unsigned int grid_y,
                                     unsigned int grid_z, unsigned int block_x,
                                     unsigned int block_y, unsigned int block_z,
                                     unsigned int shared_bytes, cu_stream stream, void **params,
                                     void **extra) {
    (void)function;
    (void)grid_x;
    (void)grid_y;
    (void)grid_z;
    (void)block_x;
    (void)block_y;
    (void)block_z;
    (void)shared_bytes;
    (void)stream;
    (void)params;
    (void)extra;
    return CU_NOT_SUPPORTED;
}
