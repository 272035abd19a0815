/* ops_cuda_host.c - the source of the CUDA kernels of a model's operations, for the CPU. */
#include "tests/cuda/cuda_emulation.h"

#include "tests/cuda/host_kernels.h"

/* Nobody declares kernels: they are found by name. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#include "rnn/cuda/ops_cuda.cu"

#define RUN(function, kind)                                                           \
    static void call_##function(const void *args) {                                   \
        ashlar_kernel_##function(*(const ashlar_##kind##_args *)args);                \
    }                                                                                 \
    static void run_##function(const void *args, unsigned blocks, unsigned threads) { \
        emulate(call_##function, args, blocks, threads);                              \
    }
#define RUN_TYPES(function, kind) \
    RUN(function##_f32, kind)     \
    RUN(function##_f64, kind)     \
    RUN(function##_f16, kind)     \
    RUN(function##_bf16, kind)
ASHLAR_OPS_KERNEL_MAP(RUN_TYPES)
ASHLAR_OPS_COMMON_MAP(RUN)

#define ROW(function, kind) \
    {"ashlar_kernel_" #function, sizeof(ashlar_##kind##_args), run_##function},
#define ROW_TYPES(function, kind) \
    ROW(function##_f32, kind)     \
    ROW(function##_f64, kind)     \
    ROW(function##_f16, kind)     \
    ROW(function##_bf16, kind)
static const host_kernel kernels[] = {ASHLAR_OPS_KERNEL_MAP(ROW_TYPES) ASHLAR_OPS_COMMON_MAP(ROW)};

const host_kernel *ops_kernel_at(size_t number) {
    return number < sizeof kernels / sizeof *kernels ? &kernels[number] : NULL;
}
