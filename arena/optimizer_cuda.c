/* optimizer_cuda.c - the optimizer's kernels on a CUDA device: loaded, and launched for a job. */
#include "optimizer_cuda.h"

#include <stdio.h>

#include "check_level.h"
#include "device_impl.h"
#include "error.h"
#include "host.h"

extern const unsigned long long ashlar_optimizer_image[]; /* optimizer_cuda.cu, compiled */

enum {
    KERNEL_SUM,
    KERNEL_DECIDE,
    KERNEL_UPDATE, /* + the algorithm */
    KERNEL_COUNT = KERNEL_UPDATE + ASHLAR_ALGORITHM_COUNT,
};

static const char *const kernel_names[KERNEL_COUNT] = {
    [KERNEL_SUM] = "ashlar_kernel_sum",
    [KERNEL_DECIDE] = "ashlar_kernel_decide",
#define X(name, function, has1, has2) \
    [KERNEL_UPDATE + ASHLAR_ALGORITHM_##name] = "ashlar_kernel_" #function,
    ASHLAR_ALGORITHM_MAP(X)
#undef X
};

struct ashlar_optimizer_cuda {
    ashlar_device *device;
    cu_module module; /* of the device's context */
    cu_function kernels[KERNEL_COUNT];
};

/* Inside the device's context. */
static ashlar_status load(ashlar_optimizer_cuda *cuda) {
    ashlar_driver *driver = cuda->device->driver;
    cu_result result =
        ASHLAR_DRIVER_CALL(driver, module_load_data, (&cuda->module, ashlar_optimizer_image));
    if (result == CU_NO_BINARY_FOR_GPU || result == CU_UNSUPPORTED_PTX_VERSION ||
        result == CU_NOT_SUPPORTED) {
        return ashlar_fail(ASHLAR_ENOTSUP,
                           "optimizer: no CUDA kernels for %s; they need compute capability 8.0, "
                           "or a newer driver",
                           cuda->device->info.name);
    }
    if (result != CU_SUCCESS) {
        return ashlar_driver_error(driver, "cuModuleLoadData", result);
    }
    for (int i = 0; i < KERNEL_COUNT; i++) {
        result = ASHLAR_DRIVER_CALL(driver, module_get_function,
                                    (&cuda->kernels[i], cuda->module, kernel_names[i]));
        if (result != CU_SUCCESS) {
            (void)ASHLAR_DRIVER_CALL(driver, module_unload, (cuda->module));
            return ashlar_driver_error(driver, "cuModuleGetFunction", result);
        }
    }
    return ASHLAR_OK;
}

ashlar_status ashlar_optimizer_cuda_open(ashlar_device *device, ashlar_optimizer_cuda **out) {
    ashlar_optimizer_cuda *cuda = ashlar_host_calloc(1, sizeof *cuda);
    if (cuda == NULL) {
        return ashlar_fail(ASHLAR_EHOSTMEM, "no host memory for the optimizer's kernels");
    }
    cuda->device = device;
    ashlar_status status = ashlar_device_enter(device);
    if (status == ASHLAR_OK) {
        status = load(cuda);
        ashlar_device_leave(device);
    }
    if (status != ASHLAR_OK) {
        ashlar_host_free(cuda);
        return status;
    }
    *out = cuda;
    return ASHLAR_OK;
}

void ashlar_optimizer_cuda_close(ashlar_optimizer_cuda *cuda) {
    if (cuda == NULL) {
        return;
    }
    ashlar_driver *driver = cuda->device->driver;
    if (ashlar_device_enter(cuda->device) == ASHLAR_OK) {
        /* Kernels that are queued still need their code. */
        (void)ASHLAR_DRIVER_CALL(driver, ctx_synchronize, ());
        (void)ASHLAR_DRIVER_CALL(driver, module_unload, (cuda->module));
        ashlar_device_leave(cuda->device);
    }
    ashlar_host_free(cuda);
}

/* Inside the device's context. */
static ashlar_status launch(ashlar_optimizer_cuda *cuda, int kernel, size_t blocks,
                            unsigned int threads, const ashlar_optimizer_job *job,
                            ashlar_stream stream) {
    ashlar_driver *driver = cuda->device->driver;
    void *params[] = {(void *)(uintptr_t)job}; /* read before the call returns */
    ASHLAR_ASSERT(blocks <= INT32_MAX);        /* CUDA's limit; so many chunks are 16 TiB */
    const cu_result result =
        ASHLAR_DRIVER_CALL(driver, launch_kernel,
                           (cuda->kernels[kernel], (unsigned int)blocks, 1, 1, threads, 1, 1, 0,
                            stream, params, NULL));
    if (result == CU_SUCCESS) {
        return ASHLAR_OK;
    }
    char what[64];
    (void)snprintf(what, sizeof what, "cuLaunchKernel(%s)", kernel_names[kernel]);
    return ashlar_driver_error(driver, what, result);
}

/* A grid has at least one block: without chunks there is nothing to launch but the decision. */
static ashlar_status launch_parts(ashlar_optimizer_cuda *cuda, const ashlar_optimizer_job *job,
                                  ashlar_stream stream) {
    const size_t chunks = job->end_chunk - job->first_chunk;
    const unsigned sum_or_decide = ASHLAR_OPTIMIZER_SUM | ASHLAR_OPTIMIZER_DECIDE;
    ashlar_status status = ASHLAR_OK;
    if ((job->parts & ASHLAR_OPTIMIZER_SUM) != 0 && chunks > 0) {
        status = launch(cuda, KERNEL_SUM, chunks, ASHLAR_CHUNK_THREADS, job, stream);
    }
    if (status == ASHLAR_OK && (job->parts & sum_or_decide) != 0) {
        status = launch(cuda, KERNEL_DECIDE, 1, ASHLAR_DECIDE_THREADS, job, stream);
    }
    if (status == ASHLAR_OK && (job->parts & ASHLAR_OPTIMIZER_UPDATE) != 0 && chunks > 0) {
        status = launch(cuda, KERNEL_UPDATE + (int)job->rule.algorithm, chunks,
                        ASHLAR_CHUNK_THREADS, job, stream);
    }
    return status;
}

ashlar_status ashlar_optimizer_cuda_run(ashlar_optimizer_cuda *cuda,
                                        const ashlar_optimizer_job *job, ashlar_stream stream) {
    ashlar_status status = ashlar_device_enter(cuda->device);
    if (status == ASHLAR_OK) {
        status = launch_parts(cuda, job, stream);
        ashlar_device_leave(cuda->device);
    }
    return status;
}
