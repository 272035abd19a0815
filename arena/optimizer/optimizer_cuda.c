/* optimizer_cuda.c - loads the optimizer's kernels on a CUDA device, and launches jobs. */
#include "arena/optimizer/optimizer_impl.h"

#include "arena/compute/cuda_kernels.h"
#include "allocator/base/check_level.h"
#include "allocator/base/host.h"

extern const unsigned long long ashlar__optimizer_image[]; /* made of optimizer_cuda.cu */

enum {
    KERNEL_SUM,
    KERNEL_DECIDE,
    KERNEL_MUON_BEGIN_F32,
    KERNEL_MUON_BEGIN_F64,
    KERNEL_MUON_PRODUCT_F32,
    KERNEL_MUON_PRODUCT_F64,
    KERNEL_UPDATE, /* the first update kernel; see UPDATE() */
    KERNEL_COUNT = KERNEL_UPDATE + ASHLAR_ALGORITHM_COUNT * ASHLAR_DTYPE_COUNT,
};

#define UPDATE(algorithm, dtype) \
    (KERNEL_UPDATE + (int)(algorithm)*ASHLAR_DTYPE_COUNT + (int)(dtype))

static const char *const kernel_names[] = {
    [KERNEL_SUM] = "ashlar_kernel_sum",
    [KERNEL_DECIDE] = "ashlar_kernel_decide",
    [KERNEL_MUON_BEGIN_F32] = "ashlar_kernel_muon_begin_f32",
    [KERNEL_MUON_BEGIN_F64] = "ashlar_kernel_muon_begin_f64",
    [KERNEL_MUON_PRODUCT_F32] = "ashlar_kernel_muon_product_f32",
    [KERNEL_MUON_PRODUCT_F64] = "ashlar_kernel_muon_product_f64",
#define X(name, function, has1, has2)                                                   \
    [UPDATE(ASHLAR_ALGORITHM_##name, ASHLAR_F32)] = "ashlar_kernel_" #function "_f32", \
    [UPDATE(ASHLAR_ALGORITHM_##name, ASHLAR_F64)] = "ashlar_kernel_" #function "_f64", \
    [UPDATE(ASHLAR_ALGORITHM_##name, ASHLAR_F16)] = "ashlar_kernel_" #function "_f16", \
    [UPDATE(ASHLAR_ALGORITHM_##name, ASHLAR_BF16)] = "ashlar_kernel_" #function "_bf16",
    ASHLAR_ALGORITHM_MAP(X)
#undef X
};
ASHLAR_TABLE_IS_FULL(kernel_names, KERNEL_COUNT);

static const ashlar_cuda_image image = {.what = "optimizer", .image = ashlar__optimizer_image};

struct ashlar_optimizer_cuda {
    ashlar_device *device;
    cu_module module; /* loaded into the device's context */
    cu_function kernels[KERNEL_COUNT];
};

ashlar_status ashlar__optimizer_cuda_open(ashlar_device *device, ashlar_optimizer_cuda **out) {
    ashlar_optimizer_cuda *cuda;
    ASHLAR_HOST_NEW(cuda, 1, "no host memory for the optimizer's kernels");
    cuda->device = device;
    ASHLAR_HAND_OUT(ashlar__cuda_kernels_load(device, &image, kernel_names, KERNEL_COUNT,
                                              &cuda->module, cuda->kernels),
                    cuda, ashlar__host_free, out);
}

void ashlar__optimizer_cuda_close(ashlar_optimizer_cuda *cuda) {
    if (cuda == NULL) {
        return;
    }
    ashlar__cuda_kernels_unload(cuda->device, cuda->module);
    ashlar__host_free(cuda);
}

/* Launch one kernel. The device's context must be current. */
static ashlar_status launch(ashlar_optimizer_cuda *cuda, int kernel, size_t blocks,
                            unsigned int threads, const ashlar_optimizer_job *job,
                            ashlar_stream stream) {
    ASHLAR_CHECK2(kernel < KERNEL_COUNT && cuda->kernels[kernel] != NULL);
    return ashlar__cuda_kernels_launch(cuda->device, cuda->kernels[kernel], kernel_names[kernel],
                                       blocks, threads, job, stream);
}

static ashlar_status launch_updates(ashlar_optimizer_cuda *cuda, ashlar_algorithm algorithm,
                                    unsigned dtypes, const ashlar_optimizer_job *job,
                                    ashlar_stream stream) {
    ashlar_status status = ASHLAR_OK;
    for (int dtype = 0; dtype < ASHLAR_DTYPE_COUNT; dtype++) {
        if (status == ASHLAR_OK && (dtypes & ASHLAR_DTYPE_BIT(dtype)) != 0) {
            status = launch(cuda, UPDATE(algorithm, dtype), job->end_chunk - job->first_chunk,
                            ASHLAR_CHUNK_THREADS, job, stream);
        }
    }
    return status;
}

/* The iterations of a batch of MUON's matrices; `matrix` is the first one. */
static ashlar_status launch_batch(ashlar_optimizer_cuda *cuda,
                                  const ashlar_optimizer_matrix *matrix, ashlar_optimizer_job *job,
                                  ashlar_stream stream) {
    const bool is_wide = matrix->is_wide;
    const int kernel = is_wide ? KERNEL_MUON_PRODUCT_F64 : KERNEL_MUON_PRODUCT_F32;
    ASHLAR_TRY(launch(cuda, is_wide ? KERNEL_MUON_BEGIN_F64 : KERNEL_MUON_BEGIN_F32,
                      job->batch_count, ASHLAR_MUON_THREADS, job, stream));
    for (job->ns_step = 0; job->ns_step < job->rule.config.ns_steps; job->ns_step++) {
        for (job->ns_product = 0; job->ns_product < ASHLAR_MUON_PRODUCT_COUNT; job->ns_product++) {
            ASHLAR_TRY(launch(cuda, kernel,
                              job->batch_count * ashlar__muon_tiles(matrix, job->ns_product),
                              ASHLAR_MUON_THREADS, job, stream));
        }
    }
    return ASHLAR_OK;
}

/* Whether the job covers one of the batch's matrices, of which the first is given. */
static bool has_any(const ashlar_optimizer_job *job, const ashlar_optimizer_matrix *matrices) {
    bool has = false;
    for (size_t i = 0; i < job->batch_count; i++) {
        has |= matrices[i].run - job->first_run < job->run_count; /* a smaller run wraps */
    }
    return has;
}

static ashlar_status launch_muon(ashlar_optimizer_cuda *cuda, const ashlar_optimizer_table *table,
                                 const ashlar_optimizer_job *given, ashlar_stream stream) {
    ashlar_optimizer_job job = *given;
    ASHLAR_TRY(
        launch_updates(cuda, ASHLAR_ALGORITHM_MUON_DIRECTION, job.matrix_dtypes, &job, stream));
    for (size_t at = 0; at < table->matrix_count; at += job.batch_count) {
        job.batch_first = at;
        job.batch_count = ashlar__muon_batch(table->matrices, table->matrix_count, at);
        ASHLAR_TRY(has_any(&job, &table->matrices[at])
                       ? launch_batch(cuda, &table->matrices[at], &job, stream)
                       : ASHLAR_OK);
    }
    return launch_updates(cuda, ASHLAR_ALGORITHM_MUON_APPLY, job.matrix_dtypes, &job, stream);
}

/* Launch the kernels of the job's passes. If it has no chunks, only KERNEL_DECIDE is launched. */
static ashlar_status launch_parts(ashlar_optimizer_cuda *cuda, const ashlar_optimizer_table *table,
                                  const ashlar_optimizer_job *job, ashlar_stream stream) {
    const size_t chunks = job->end_chunk - job->first_chunk;
    const unsigned decides =
        ASHLAR_OPTIMIZER_SUM | ASHLAR_OPTIMIZER_DECIDE | ASHLAR_OPTIMIZER_FOLLOW;
    ashlar_status status = ASHLAR_OK;
    if ((job->passes & ASHLAR_OPTIMIZER_SUM) != 0) {
        status = launch(cuda, KERNEL_SUM, chunks, ASHLAR_CHUNK_THREADS, job, stream);
    }
    if (status == ASHLAR_OK && (job->passes & decides) != 0) {
        status = launch(cuda, KERNEL_DECIDE, 1, ASHLAR_DECIDE_THREADS, job, stream);
    }
    if (status == ASHLAR_OK && (job->passes & ASHLAR_OPTIMIZER_UPDATE) != 0) {
        status = launch_updates(cuda, job->rule.algorithm, job->dtypes, job, stream);
        if (status == ASHLAR_OK && job->matrix_dtypes != 0) {
            status = launch_muon(cuda, table, job, stream);
        }
    }
    return status;
}

ashlar_status ashlar__optimizer_cuda_run(ashlar_optimizer_cuda *cuda,
                                         const ashlar_optimizer_table *table,
                                         const ashlar_optimizer_job *job, ashlar_stream stream) {
    ashlar_status status = ashlar__device_enter(cuda->device);
    if (status == ASHLAR_OK) {
        status = launch_parts(cuda, table, job, stream);
        ashlar__device_leave(cuda->device);
    }
    return status;
}
