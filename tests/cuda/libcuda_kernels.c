/*
 * libcuda_kernels.c - modules and kernels of the fake driver: whatever image it is given, it has
 * the kernels of the optimizer and of a model's operations in it, and runs them in stream order on
 * the CPU (optimizer_cuda_host.h, ops_cuda_host.h).
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcuda.h"
#include "tests/cuda/ops_cuda_host.h"
#include "tests/cuda/optimizer_cuda_host.h"
#include "allocator/soft/soft_state.h"

/* What a compiled image begins with. */
#define FATBIN_MAGIC 0xBA55ED50u

/* Tests launch from one thread. */
static int module_count;
static int early_unload_count;
static _Atomic int queued_count; /* kernels that have not run */
static char launch_log[4096], log_taken[4096];

int ashlar_fake_module_count(void) {
    return module_count;
}

int ashlar_fake_early_unload_count(void) {
    return early_unload_count;
}

const char *ashlar_fake_launch_log(void) {
    memcpy(log_taken, launch_log, sizeof log_taken);
    launch_log[0] = '\0';
    return log_taken;
}

/* All there are, one number after the other. */
static const host_kernel *kernel_at(size_t number) {
    size_t first = 0;
    while (optimizer_kernel_at(first) != NULL) {
        first++;
    }
    return number < first ? optimizer_kernel_at(number) : ops_kernel_at(number - first);
}

static cu_result need_context(void) {
    soft_device *device;
    const cu_result result = ashlar__soft_enter_context(ASHLAR_DRIVER_FN_COUNT, &device);
    return result == CU_SUCCESS ? ashlar__soft_leave(CU_SUCCESS) : result;
}

cu_result ashlar_fake_module_load_data(cu_module *module, const void *image) {
    static char loaded; /* all modules are the same */
    const char *fault = getenv("FAKE_CUDA");
    uint32_t magic;
    const cu_result result = need_context();
    if (result != CU_SUCCESS) {
        return result;
    }
    memcpy(&magic, image, sizeof magic);
    if (magic != FATBIN_MAGIC) {
        return CU_INVALID_VALUE;
    }
    if (fault != NULL && strcmp(fault, "nobinary") == 0) {
        return CU_NO_BINARY_FOR_GPU;
    }
    if (fault != NULL && strcmp(fault, "oldptx") == 0) {
        return CU_UNSUPPORTED_PTX_VERSION;
    }
    module_count++;
    *module = (cu_module)(void *)&loaded;
    return CU_SUCCESS;
}

cu_result ashlar_fake_module_unload(cu_module module) {
    const cu_result result = need_context();
    if (result != CU_SUCCESS) {
        return result;
    }
    if (module == NULL || module_count == 0) {
        return CU_INVALID_HANDLE;
    }
    module_count--;
    early_unload_count += atomic_load(&queued_count) > 0;
    return CU_SUCCESS;
}

cu_result ashlar_fake_module_get_function(cu_function *function, cu_module module,
                                          const char *name) {
    if (module == NULL || module_count == 0) {
        return CU_INVALID_HANDLE;
    }
    for (size_t i = 0; kernel_at(i) != NULL; i++) {
        if (strcmp(kernel_at(i)->name, name) == 0) {
            *function = (cu_function)(uintptr_t)(i + 1);
            return CU_SUCCESS;
        }
    }
    return CU_NOT_FOUND;
}

typedef struct queued_kernel {
    struct queued_kernel *next; /* of those that a graph may run again, until the process ends */
    bool is_captured;
    const host_kernel *kernel;
    unsigned blocks, threads;
    max_align_t param[];
} queued_kernel;

static void run_queued(void *user_data) {
    queued_kernel *queued = user_data;
    queued->kernel->run(queued->param, queued->blocks, queued->threads);
    if (!queued->is_captured) {
        atomic_fetch_sub(&queued_count, 1);
        free(queued);
    }
}

static queued_kernel *_Atomic captured_kernels;

static bool is_captured(cu_stream stream) {
    unsigned int status = CU_CAPTURE_NONE;
    return ashlar__soft_stream_is_capturing(stream, &status) == CU_SUCCESS &&
           status != CU_CAPTURE_NONE;
}

/* Before it is queued: how it ends. */
static void sign_up(queued_kernel *queued, cu_stream stream) {
    queued->is_captured = is_captured(stream);
    if (!queued->is_captured) {
        atomic_fetch_add(&queued_count, 1);
        return;
    }
    queued->next = atomic_load(&captured_kernels);
    while (!atomic_compare_exchange_weak(&captured_kernels, &queued->next, queued)) {
    }
}

static void note(const host_kernel *kernel, unsigned blocks, unsigned threads) {
    const size_t used = strlen(launch_log);
    (void)snprintf(launch_log + used, sizeof launch_log - used, "%s<<<%u, %u>>> ", kernel->name,
                   blocks, threads);
}

cu_result ashlar_fake_launch_kernel(cu_function function, unsigned int grid_x, unsigned int grid_y,
                                    unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                    unsigned int block_z, unsigned int shared_bytes,
                                    cu_stream stream, void **params, void **extra) {
    const host_kernel *kernel =
        function == NULL ? NULL : kernel_at((size_t)(uintptr_t)function - 1);
    if (kernel == NULL || module_count == 0) {
        return CU_INVALID_HANDLE;
    }
    if (grid_x == 0 || grid_y != 1 || grid_z != 1 || block_x == 0 || block_y != 1 || block_z != 1 ||
        shared_bytes != 0 || params == NULL || extra != NULL) {
        return CU_INVALID_VALUE;
    }
    queued_kernel *queued = calloc(1, sizeof *queued + kernel->param_bytes);
    if (queued == NULL) {
        return CU_OUT_OF_MEMORY;
    }
    queued->kernel = kernel;
    queued->blocks = grid_x;
    queued->threads = block_x;
    memcpy(queued->param, params[0], kernel->param_bytes);
    sign_up(queued, stream);
    const cu_result result = ashlar__soft_launch_host_func(stream, run_queued, queued);
    if (result != CU_SUCCESS && !queued->is_captured) {
        atomic_fetch_sub(&queued_count, 1);
        free(queued);
    }
    if (result != CU_SUCCESS) {
        return result;
    }
    note(kernel, grid_x, block_x);
    return CU_SUCCESS;
}
