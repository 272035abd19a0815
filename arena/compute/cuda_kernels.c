/* cuda_kernels.c - loads a fat binary into a device's context, and launches its kernels. */
#include "arena/compute/cuda_kernels.h"

#include <stdio.h>

#include "allocator/base/check_level.h"
#include "allocator/base/error.h"

/* Load the image and find the kernels. The device's context must be current. */
static ashlar_status load(ashlar_device *device, const ashlar_cuda_image *image,
                          const char *const *names, size_t count, cu_module *module,
                          cu_function *kernels) {
    ashlar_driver *driver = device->driver;
    cu_module loaded;
    ASHLAR_CHECK2(image->image != NULL && count > 0);
    cu_result result;
    ASHLAR_CALL_WITH_ROOM(device, result, module_load_data, (&loaded, image->image));
    ASHLAR_FAIL_IF(
        result == CU_NO_BINARY_FOR_GPU || result == CU_UNSUPPORTED_PTX_VERSION ||
            result == CU_NOT_SUPPORTED,
        ASHLAR_ENOTSUP,
        "%s: no CUDA kernels for %s; they need compute capability 8.0, or a newer driver",
        image->what, device->info.name);
    if (result != CU_SUCCESS) {
        return ashlar__driver_error(driver, "cuModuleLoadData", result);
    }
    for (size_t i = 0; i < count; i++) {
        result = ASHLAR_DRIVER_CALL(driver, module_get_function, (&kernels[i], loaded, names[i]));
        if (result != CU_SUCCESS) {
            (void)ASHLAR_DRIVER_CALL(driver, module_unload, (loaded));
            return ashlar__driver_error(driver, "cuModuleGetFunction", result);
        }
    }
    *module = loaded;
    return ASHLAR_OK;
}

ashlar_status ashlar__cuda_kernels_load(ashlar_device *device, const ashlar_cuda_image *image,
                                        const char *const *names, size_t count, cu_module *module,
                                        cu_function *kernels) {
    ASHLAR_FAIL_IF(image->image[0] == 0, ASHLAR_ENOTSUP,
                   "%s: this build has no CUDA kernels; build where nvcc is on the PATH, or use a "
                   "software device",
                   image->what);
    ashlar_status status = ashlar__device_enter(device);
    if (status == ASHLAR_OK) {
        status = load(device, image, names, count, module, kernels);
        ashlar__device_leave(device);
    }
    return status;
}

void ashlar__cuda_kernels_unload(ashlar_device *device, cu_module module) {
    if (ashlar__device_enter(device) == ASHLAR_OK) {
        (void)ASHLAR_DRIVER_CALL(device->driver, ctx_synchronize, ());
        (void)ASHLAR_DRIVER_CALL(device->driver, module_unload, (module));
        ashlar__device_leave(device);
    }
}

ashlar_status ashlar__cuda_kernels_launch(ashlar_device *device, cu_function kernel,
                                          const char *name, size_t blocks, unsigned threads,
                                          const void *param, ashlar_stream stream) {
    ashlar_driver *driver = device->driver;
    void *params[] = {(void *)(uintptr_t)param};
    ASHLAR_ASSERT(blocks <= INT32_MAX); /* CUDA's limit for the x dimension of a grid */
    ASHLAR_CHECK2(kernel != NULL && threads >= 1 && threads <= 1024);
    if (blocks == 0) {
        return ASHLAR_OK;
    }
    const cu_result result = ASHLAR_DRIVER_CALL(
        driver, launch_kernel,
        (kernel, (unsigned int)blocks, 1, 1, threads, 1, 1, 0, stream, params, NULL));
    if (result == CU_SUCCESS) {
        return ASHLAR_OK;
    }
    char what[64];
    (void)snprintf(what, sizeof what, "cuLaunchKernel(%s)", name);
    return ashlar__driver_error(driver, what, result);
}
