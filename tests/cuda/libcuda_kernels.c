/*
 * libcuda_kernels.c - modules and kernels of the fake driver: whatever image it is given, it has
 * the kernels of the optimizer and of a model's operations in it, and runs them in stream order on
 * the CPU (host_kernels.h).
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcuda.h"
#include "tests/cuda/fake_driver.h"
#include "tests/cuda/host_kernels.h"
#include "allocator/soft/soft_state.h"
#include "arena/optimizer/optimizer_impl.h"

/* What a compiled image begins with. */
#define FATBIN_MAGIC 0xBA55ED50u

enum { KERNELS_MAX = 128 };

/* A module is its context's, and so are its functions: a pointer to one's place. */
typedef struct CUmod_st {
    struct CUmod_st *next;
    const soft_device *context;
    soft_memory *overhead; /* what it takes of the device, as its context does */
    char functions[KERNELS_MAX];
} fake_module;

static fake_module *modules; /* Lock: the software device's */
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

static cu_result load_locked(soft_device *context, cu_module *module) {
    fake_module *made = calloc(1, sizeof *made);
    const cu_result result =
        made == NULL ? CU_OUT_OF_MEMORY : ashlar__soft_overhead_take(context, &made->overhead);
    if (result != CU_SUCCESS) {
        free(made);
        return result;
    }
    made->context = context;
    made->next = modules;
    modules = made;
    module_count++;
    *module = made;
    return CU_SUCCESS;
}

cu_result ashlar_fake_module_load_data(cu_module *module, const void *image) {
    const char *fault = getenv("FAKE_CUDA");
    soft_device *context;
    uint32_t magic;
    const cu_result result = ashlar__soft_enter_context(ASHLAR_DRIVER_FN_COUNT, &context);
    if (result != CU_SUCCESS) {
        return result;
    }
    memcpy(&magic, image, sizeof magic);
    if (magic != FATBIN_MAGIC) {
        return ashlar__soft_leave(CU_INVALID_VALUE);
    }
    if (fault != NULL && strcmp(fault, "nobinary") == 0) {
        return ashlar__soft_leave(CU_NO_BINARY_FOR_GPU);
    }
    if (fault != NULL && strcmp(fault, "oldptx") == 0) {
        return ashlar__soft_leave(CU_UNSUPPORTED_PTX_VERSION);
    }
    return ashlar__soft_leave(load_locked(context, module));
}

static void unload(fake_module **link) {
    fake_module *gone = *link;
    *link = gone->next;
    if (gone->overhead != NULL) {
        ashlar__soft_memory_drop(gone->overhead);
    }
    free(gone);
    module_count--;
}

/* The link to the module of which `known` says so; to NULL: there is none. */
static fake_module **find_module(const void *known) {
    fake_module **link = &modules;
    while (*link != NULL && *link != known &&
           ((const char *)known < (*link)->functions ||
            (const char *)known >= (*link)->functions + KERNELS_MAX)) {
        link = &(*link)->next;
    }
    return link;
}

cu_result ashlar_fake_module_unload(cu_module module) {
    soft_device *context;
    const cu_result result = ashlar__soft_enter_context(ASHLAR_DRIVER_FN_COUNT, &context);
    if (result != CU_SUCCESS) {
        return result;
    }
    fake_module **link = find_module(module);
    if (*link == NULL) {
        return ashlar__soft_leave(CU_INVALID_HANDLE);
    }
    unload(link);
    early_unload_count += atomic_load(&queued_count) > 0;
    return ashlar__soft_leave(CU_SUCCESS);
}

void ashlar_fake_modules_forget(const soft_device *context) {
    if (ashlar__soft_enter(ASHLAR_DRIVER_FN_COUNT) != CU_SUCCESS) {
        return;
    }
    for (fake_module **link = &modules; *link != NULL;) {
        if ((*link)->context == context) {
            unload(link);
        } else {
            link = &(*link)->next;
        }
    }
    (void)ashlar__soft_leave(CU_SUCCESS);
}

cu_result ashlar_fake_module_get_function(cu_function *function, cu_module module,
                                          const char *name) {
    const cu_result result = ashlar__soft_enter(ASHLAR_DRIVER_FN_COUNT);
    if (result != CU_SUCCESS) {
        return result;
    }
    fake_module *found = *find_module(module);
    if (found == NULL) {
        return ashlar__soft_leave(CU_INVALID_HANDLE);
    }
    for (size_t i = 0; i < KERNELS_MAX && kernel_at(i) != NULL; i++) {
        if (strcmp(kernel_at(i)->name, name) == 0) {
            *function = (cu_function)(void *)&found->functions[i];
            return ashlar__soft_leave(CU_SUCCESS);
        }
    }
    return ashlar__soft_leave(CU_NOT_FOUND);
}

/* The kernel, if its module and the stream are of one context. */
static cu_result find_kernel(cu_function function, cu_stream stream, const host_kernel **out) {
    soft_stream *on = NULL;
    const cu_result result = ashlar__soft_enter_stream(ASHLAR_DRIVER_FN_COUNT, stream, &on);
    if (result != CU_SUCCESS) {
        return result;
    }
    const char *place = (const char *)(void *)function;
    const fake_module *module = *find_module(place);
    if (module == NULL || module->context != on->device) {
        return ashlar__soft_leave(CU_INVALID_HANDLE);
    }
    *out = kernel_at((size_t)(place - module->functions));
    return ashlar__soft_leave(CU_SUCCESS);
}

typedef struct queued_kernel {
    struct queued_kernel *next; /* of those that a graph may run again, until the process ends */
    bool is_captured;
    const host_kernel *kernel;
    unsigned blocks, threads;
    max_align_t param[];
} queued_kernel;

#define ADAM "ashlar_kernel_adam_" /* and a type */

/* FAKE_CUDA=wrong: Adam writes one byte wrong; =wronggraph: where a graph runs it. */
static void plant(const queued_kernel *queued) {
    const char *fault = getenv("FAKE_CUDA");
    const ashlar_optimizer_job *job = (const void *)queued->param;
    const bool is_wrong =
        fault != NULL &&
        (strcmp(fault, "wrong") == 0 || (queued->is_captured && strcmp(fault, "wronggraph") == 0));
    if (is_wrong && strncmp(queued->kernel->name, ADAM, sizeof ADAM - 1) == 0 &&
        job->run_count > 0) {
        ++*(unsigned char *)job->runs[0].parameters; /* which does not cancel, as a bit may */
    }
}

static void run_queued(void *user_data) {
    queued_kernel *queued = user_data;
    queued->kernel->run(queued->param, queued->blocks, queued->threads);
    plant(queued);
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
    const host_kernel *kernel = NULL;
    cu_result result = find_kernel(function, stream, &kernel);
    if (result != CU_SUCCESS) {
        return result;
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
    result = ashlar__soft_launch_host_func(stream, run_queued, queued);
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
