/* ops_cuda.cu - the kernels of a model's operations for CUDA devices. The same arguments give the
 * same bits: every sum has an order that depends on nothing but the sizes. This file uses only what
 * C and C++ have in common: tests compile it for the CPU as well. */
#include <math.h>

#include "arena/compute/element.h"
#include "rnn/layer/dropout.h"
#include "rnn/cuda/ops_cuda.h"

enum { THREADS = ASHLAR_OPS_THREADS, WORD_BITS = 32 };

/* The sum of `value` over the block's threads, added as a tree. Every thread gets the sum. */
static __device__ double block_sum(double value) {
    __shared__ double sums[THREADS];
    sums[threadIdx.x] = value;
    for (unsigned left = THREADS / 2; left > 0; left /= 2) {
        __syncthreads();
        if (threadIdx.x < left) {
            sums[threadIdx.x] += sums[threadIdx.x + left];
        }
    }
    __syncthreads();
    const double sum = sums[0];
    __syncthreads(); /* the next sum reuses sums[] */
    return sum;
}

/* A position in [T, B], as step and sequence. It can be moved on by a fixed number of positions, of
 * which it keeps the quotient and the remainder by B: so no move has to divide. */
typedef struct cursor {
    size_t step, sequence;
    size_t steps, sequences; /* that one move adds */
} cursor;

static __device__ cursor cursor_at(size_t position, size_t batch, size_t by) {
    cursor p;
    p.step = position / batch;
    p.sequence = position % batch;
    p.steps = by / batch;
    p.sequences = by % batch;
    return p;
}

static __device__ void move_on(cursor *p, size_t batch) {
    p->step += p->steps;
    p->sequence += p->sequences;
    if (p->sequence >= batch) {
        p->sequence -= batch;
        p->step++;
    }
}

/* Whether a position lies before the end of its sequence. */
static __device__ bool is_before_end(const cursor *p, const int32_t *lengths) {
    return lengths == NULL || (long long)p->step < (long long)lengths[p->sequence];
}

static __device__ bool is_inside(size_t position, size_t batch, const int32_t *lengths) {
    const cursor p = cursor_at(position, batch, 0);
    return is_before_end(&p, lengths);
}

/* The weight of one position or element, times the loss's factor: the given weight, or loss_count's
 * where there is `work`. */
static __device__ double position_weight(double weight, const double *weight_at, double factor,
                                         const void *work) {
    const double given = weight_at != NULL ? *weight_at : weight;
    const double own = given != 0 || work == NULL ? given : *(const double *)work;
    return own * (factor != 0 ? factor : 1);
}

/* Where each position's loss is: in the caller's `losses`, else in `work`, after the count. */
static __device__ double *parts_of(void *work, double *losses) {
    return losses != NULL ? losses : (double *)work + 1;
}

/* Which of the CHUNK positions from `first` on have the token `class_`: bit i of words[k] is
 * position first + k * WORD_BITS + i. */
enum { CHUNK = THREADS * WORD_BITS, GROUP = 8 };

static __device__ void find_token(const ashlar_embedding_args *args, unsigned class_, size_t first,
                                  uint32_t *words) {
    const size_t positions = args->steps * args->batch;
    words[threadIdx.x] = 0;
    __syncthreads();
    for (unsigned i = threadIdx.x; i < CHUNK && first + i < positions; i += THREADS) {
        if ((uint32_t)args->tokens[first + i] == class_ &&
            is_inside(first + i, args->batch, args->lengths)) {
            (void)atomicOr(&words[i / WORD_BITS], (uint32_t)1 << i % WORD_BITS);
        }
    }
}

/* Whether a bit is set in GROUP words; in most groups none is. */
static __device__ bool has_any(const uint32_t *words) {
    uint32_t any = 0;
    for (unsigned k = 0; k < GROUP; k++) {
        any |= words[k];
    }
    return any != 0;
}

#undef ASHLAR_TYPE
#define ASHLAR_TYPE f32
#include "rnn/cuda/ops_cuda_typed.cuh"

#undef ASHLAR_TYPE
#define ASHLAR_TYPE f64
#include "rnn/cuda/ops_cuda_typed.cuh"

#undef ASHLAR_TYPE
#define ASHLAR_TYPE f16
#include "rnn/cuda/ops_cuda_typed.cuh"

#undef ASHLAR_TYPE
#define ASHLAR_TYPE bf16
#include "rnn/cuda/ops_cuda_typed.cuh"

ASHLAR_BEGIN_DECLS

#define DEFINE_KERNEL(type, function, kind)                                             \
    __global__ void __launch_bounds__(ASHLAR_OPS_THREADS)                               \
        ashlar_kernel_##function##_##type(                                              \
            const __grid_constant__ ashlar_##kind##_args args) {                        \
        function##_##type(&args);                                                       \
    }
#define DEFINE_F32(function, kind) DEFINE_KERNEL(f32, function, kind)
#define DEFINE_F64(function, kind) DEFINE_KERNEL(f64, function, kind)
#define DEFINE_F16(function, kind) DEFINE_KERNEL(f16, function, kind)
#define DEFINE_BF16(function, kind) DEFINE_KERNEL(bf16, function, kind)
ASHLAR_OPS_KERNEL_MAP(DEFINE_F32)
ASHLAR_OPS_KERNEL_MAP(DEFINE_F64)
ASHLAR_OPS_KERNEL_MAP(DEFINE_F16)
ASHLAR_OPS_KERNEL_MAP(DEFINE_BF16)

__global__ void __launch_bounds__(ASHLAR_OPS_THREADS)
    ashlar_kernel_loss_sum(const __grid_constant__ ashlar_cross_entropy_args args) {
    const double *parts = parts_of(args.work, args.losses);
    double sum = 0;
    for (size_t i = threadIdx.x; i < args.steps * args.batch; i += THREADS) {
        sum += parts[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        *args.loss += sum * position_weight(args.weight, args.weight_at, args.factor, args.work);
    }
}

/* Link the positions of each token, THREADS positions at a time: the links among these are found by
 * comparing them, and newest[] has each token's last position before them. */
__global__ void __launch_bounds__(ASHLAR_OPS_THREADS)
    ashlar_kernel_embedding_link(const __grid_constant__ ashlar_chain_args args) {
    __shared__ size_t tokens[THREADS];
    const ashlar_embedding_args *e = &args.embedding;
    const size_t positions = e->steps * e->batch;
    cursor p = cursor_at(threadIdx.x, e->batch, THREADS);
    for (size_t first = 0; first < positions; first += THREADS) {
        const size_t at = first + threadIdx.x;
        const size_t token =
            at < positions && is_before_end(&p, e->lengths) ? (size_t)e->tokens[at] : (size_t)-1;
        uint32_t link = 0;
        bool has_before = false;
        tokens[threadIdx.x] = token;
        __syncthreads();
        for (unsigned i = 0; i < threadIdx.x; i++) {
            has_before |= tokens[i] == token;
        }
        for (unsigned i = THREADS - 1; i > threadIdx.x; i--) {
            link = tokens[i] == token ? (uint32_t)(first + i + 1) : link;
        }
        const bool is_newest = link == 0;
        if (token < e->classes && !has_before) {
            const uint32_t before = args.newest[token];
            if (before != 0) {
                args.links[before - 1] |= (uint32_t)at + 1;
            } else {
                link |= ASHLAR_OPS_FIRST;
            }
        }
        if (at < positions) {
            args.links[at] = token < e->classes ? link : 0;
        }
        __syncthreads();
        if (token < e->classes && is_newest) {
            args.newest[token] = (uint32_t)at + 1;
        }
        move_on(&p, e->batch);
        __syncthreads();
    }
}

__global__ void __launch_bounds__(ASHLAR_OPS_THREADS)
    ashlar_kernel_clip_lengths(const __grid_constant__ ashlar_clip_lengths_args args) {
    const size_t b = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (b < args.batch) {
        args.out[b] = ashlar__clip_length(&args, b);
    }
}

ASHLAR_END_DECLS
