/* optimizer_cuda.cu - the optimizer's kernels for CUDA devices. They compute what the CPU computes,
 * to the last bit, except that they add the sums of chunks in another order, which depends only on
 * their number. This file uses only what C and C++ share: tests compile it for the CPU, too. */
#include <assert.h>

#include "arena/compute/element.h"
#include "arena/optimizer/optimizer_impl.h"

enum {
    LANES = 16,             /* interleaved partial sums of a chunk, as in optimizer_loops.c */
    ROOM_BYTES = 16 * 1024, /* of shared memory: a chunk's values as floats, or half as doubles */
    ASHLAR_MUON_PITCH = ASHLAR_MUON_TILE + 1, /* so that columns, too, lie in different banks */
};

static_assert(ROOM_BYTES % (LANES * sizeof(double)) == 0, "each part begins with the first lane");

static __device__ void find_piece(const ashlar_optimizer_job *job, size_t chunk,
                                  ashlar_optimizer_piece *p) {
    size_t count = 0;
    p->run = job->runs[ashlar__formula_clip(job, chunk, &p->first, &count)];
    p->count = (unsigned)count;
    ashlar__formula_stage(job, &p->run);
}

/* Add up a value of each of `count` threads, a power of two, to sums[0], which the first thread may
 * read at once, the others behind a barrier. */
static __device__ void add_up(double value, double *sums, unsigned count) {
    sums[threadIdx.x] = value;
    for (unsigned left = count / 2; left > 0; left /= 2) {
        __syncthreads();
        if (threadIdx.x < left) {
            sums[threadIdx.x] += sums[threadIdx.x + left];
        }
    }
}

#undef ASHLAR_TYPE
#define ASHLAR_TYPE f32
#define ASHLAR_FMA fmaf
#include "arena/optimizer/optimizer_update.h"
#include "arena/optimizer/optimizer_cuda_piece.cuh"
#include "arena/optimizer/optimizer_muon.cuh"
#undef ASHLAR_FMA

#undef ASHLAR_TYPE
#define ASHLAR_TYPE f64
#define ASHLAR_FMA fma
#include "arena/optimizer/optimizer_update.h"
#include "arena/optimizer/optimizer_cuda_piece.cuh"
#include "arena/optimizer/optimizer_muon.cuh"
#undef ASHLAR_FMA

#undef ASHLAR_TYPE
#define ASHLAR_TYPE f16
#include "arena/optimizer/optimizer_cuda_piece.cuh"

#undef ASHLAR_TYPE
#define ASHLAR_TYPE bf16
#include "arena/optimizer/optimizer_cuda_piece.cuh"

/* Call the version of `function` that is compiled for `dtype`. */
#define FOR_DTYPE(dtype, function, args) \
    switch (dtype) {                     \
    case ASHLAR_F32:                     \
        function##_f32 args;             \
        break;                           \
    case ASHLAR_F64:                     \
        function##_f64 args;             \
        break;                           \
    case ASHLAR_F16:                     \
        function##_f16 args;             \
        break;                           \
    default:                             \
        function##_bf16 args;            \
        break;                           \
    }

ASHLAR_BEGIN_DECLS

__global__ void __launch_bounds__(ASHLAR_CHUNK_THREADS)
    ashlar_kernel_sum(const __grid_constant__ ashlar_optimizer_job job) {
    __shared__ ashlar_optimizer_piece p;
    __shared__ double room[ROOM_BYTES / sizeof(double)];
    __shared__ double lanes[LANES];
    const size_t chunk = job.first_chunk + blockIdx.x;
    if (ashlar__formula_is_stale(&job)) {
        return;
    }
    if (threadIdx.x == 0) {
        find_piece(&job, chunk, &p);
        job.partials[chunk] = 0;
    }
    __syncthreads();
    if (p.run.is_frozen) {
        return;
    }
    FOR_DTYPE(p.run.dtype, square, (&p, room, lanes + threadIdx.x % LANES))
    __syncthreads();
    if (threadIdx.x == 0) {
        double sum = 0;
        for (unsigned lane = 0; lane < LANES; lane++) {
            sum += lanes[lane];
        }
        job.partials[chunk] = sum;
    }
}

__global__ void __launch_bounds__(ASHLAR_DECIDE_THREADS)
    ashlar_kernel_decide(const __grid_constant__ ashlar_optimizer_job job) {
    __shared__ double sums[ASHLAR_DECIDE_THREADS];
    if ((job.passes & ASHLAR_OPTIMIZER_SUM) != 0) {
        double sum = 0;
        for (size_t i = job.first_chunk + threadIdx.x; i < job.end_chunk;
             i += ASHLAR_DECIDE_THREADS) {
            sum += job.partials[i];
        }
        add_up(sum, sums, ASHLAR_DECIDE_THREADS);
        if (threadIdx.x == 0) {
            ashlar__formula_add_sum(&job, sums[0]);
        }
    }
    if (threadIdx.x == 0 && (job.passes & ASHLAR_OPTIMIZER_DECIDE) != 0) {
        ashlar__formula_decide(&job.rule.config, job.rule.algorithm, job.gradient_scale,
                               job.scalars);
    }
    if ((job.passes & ASHLAR_OPTIMIZER_DECIDE) != 0) {
        __syncthreads();
        ashlar__formula_correct(&job, threadIdx.x, ASHLAR_DECIDE_THREADS);
    }
    if (threadIdx.x == 0 && (job.passes & ASHLAR_OPTIMIZER_FOLLOW) != 0) {
        ashlar__formula_follow(&job);
    }
}

#define UPDATE_KERNEL(name, function, type, TYPE)                                             \
    __global__ void __launch_bounds__(ASHLAR_CHUNK_THREADS)                                   \
        ashlar_kernel_##function##_##type(const __grid_constant__ ashlar_optimizer_job job) { \
        __shared__ ashlar_optimizer_piece p;                                                  \
        if (job.scalars->state.is_skipped != 0 || ashlar__formula_is_stale(&job)) {           \
            return;                                                                           \
        }                                                                                     \
        if (threadIdx.x == 0) {                                                               \
            find_piece(&job, job.first_chunk + blockIdx.x, &p);                               \
            p.factors = ashlar__formula_is_muon(ASHLAR_ALGORITHM_##name)                      \
                            ? ashlar__formula_muon(&job, &p.run)                              \
                            : ashlar__formula_factors(&job, &p.run);                          \
        }                                                                                     \
        __syncthreads();                                                                      \
        if (p.run.dtype == ASHLAR_##TYPE && !p.run.is_frozen &&                               \
            ashlar__formula_is_muon(ASHLAR_ALGORITHM_##name) == p.run.is_matrix) {            \
            function##_##type(&p);                                                            \
        }                                                                                     \
    }
#define UPDATE_KERNELS(name, function, has1, has2) \
    UPDATE_KERNEL(name, function, f32, F32)        \
    UPDATE_KERNEL(name, function, f64, F64)        \
    UPDATE_KERNEL(name, function, f16, F16)        \
    UPDATE_KERNEL(name, function, bf16, BF16)
ASHLAR_ALGORITHM_MAP(UPDATE_KERNELS)

/* ---- MUON's matrices ---- */

/* The matrix of the batch that a block works on, of `each` blocks for one; its run, or NULL if it
 * is not updated; and the room for its products. */
static __device__ const ashlar_optimizer_run *find_matrix(const ashlar_optimizer_job *job,
                                                          size_t each,
                                                          const ashlar_optimizer_matrix **matrix,
                                                          void **room) {
    const size_t i = blockIdx.x / each;
    *matrix = job->matrices + job->batch_first + i;
    *room = (char *)job->products + i * ashlar__muon_products_bytes(*matrix);
    return job->scalars->state.is_skipped != 0 || ashlar__formula_is_stale(job)
               ? NULL
               : ashlar__formula_matrix(job, *matrix);
}

#define MUON_KERNELS(type, real)                                                              \
    __global__ void __launch_bounds__(ASHLAR_MUON_THREADS)                                    \
        ashlar_kernel_muon_begin_##type(const __grid_constant__ ashlar_optimizer_job job) {   \
        __shared__ double sums[ASHLAR_MUON_THREADS];                                          \
        const ashlar_optimizer_matrix *matrix;                                                \
        void *room;                                                                           \
        const ashlar_optimizer_run *run = find_matrix(&job, 1, &matrix, &room);               \
        if (run != NULL) {                                                                    \
            muon_begin_##type(&job, run, room, sums);                                         \
        }                                                                                     \
    }                                                                                         \
    __global__ void __launch_bounds__(ASHLAR_MUON_THREADS)                                    \
        ashlar_kernel_muon_product_##type(const __grid_constant__ ashlar_optimizer_job job) { \
        __shared__ real a[muon_deep_##type][ASHLAR_MUON_PITCH];                               \
        __shared__ real b[muon_deep_##type][ASHLAR_MUON_PITCH];                               \
        const ashlar_optimizer_matrix *matrix = job.matrices + job.batch_first;               \
        const size_t tiles = ashlar__muon_tiles(matrix, job.ns_product);                      \
        void *room;                                                                           \
        const ashlar_optimizer_run *run = find_matrix(&job, tiles, &matrix, &room);           \
        muon_args_##type p;                                                                   \
        if (run != NULL) {                                                                    \
            muon_describe_##type(&job, matrix, run, room, &p);                                \
            muon_tile_##type(&p, blockIdx.x % tiles, a, b);                                   \
        }                                                                                     \
    }
MUON_KERNELS(f32, float)
MUON_KERNELS(f64, double)

ASHLAR_END_DECLS
