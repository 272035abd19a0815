/*
 * fake_libcuda.h - what both fake drivers answer with; see fake_libcuda.c.
 */
#ifndef ASHLAR_FAKE_LIBCUDA_H
#define ASHLAR_FAKE_LIBCUDA_H

#include <ashlar/export.h>

#include "cuda_abi.h"

/* As cuGetProcAddress_v2, of a driver for CUDA versions up to `newest`. */
cu_result ashlar_fake_find(int newest, const char *symbol, void **address, int version,
                           unsigned long long flags, unsigned int *found);

/* As the functions of the table (fake_kernels.c). */
cu_result ashlar_fake_module_load_data(cu_module *module, const void *image);
cu_result ashlar_fake_module_unload(cu_module module);
cu_result ashlar_fake_module_get_function(cu_function *function, cu_module module,
                                          const char *name);
cu_result ashlar_fake_launch_kernel(cu_function function, unsigned int grid_x, unsigned int grid_y,
                                    unsigned int grid_z, unsigned int block_x,
                                    unsigned int block_y, unsigned int block_z,
                                    unsigned int shared_bytes, cu_stream stream, void **params,
                                    void **extra);

/*
 * What a test asks of the fake, by dlsym(): how many modules are loaded; how many were unloaded
 * with kernels still queued; each kernel launched since the last call, as
 * "name<<<blocks, threads>>>" with a space behind it.
 */
ASHLAR_API int ashlar_fake_module_count(void);
ASHLAR_API int ashlar_fake_early_unload_count(void);
ASHLAR_API const char *ashlar_fake_launch_log(void);

#endif /* ASHLAR_FAKE_LIBCUDA_H */
