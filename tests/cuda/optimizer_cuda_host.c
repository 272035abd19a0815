/* optimizer_cuda_host.c - the source of the optimizer's CUDA kernels, compiled for the CPU. */
#include "tests/cuda/cuda_emulation.h"

#include "tests/cuda/host_kernels.h"

/* Nobody declares kernels: they are found by name. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#include "arena/optimizer/optimizer_cuda.cu"

#define RUN(kernel)                                                                \
    static void call_##kernel(const void *job) {                                   \
        ashlar_kernel_##kernel(*(const ashlar_optimizer_job *)job);                \
    }                                                                              \
    static void run_##kernel(const void *job, unsigned blocks, unsigned threads) { \
        emulate(call_##kernel, job, blocks, threads);                              \
    }
#define RUN_UPDATE(name, function, has1, has2) \
    RUN(function##_f32) RUN(function##_f64) RUN(function##_f16) RUN(function##_bf16)
RUN(sum)
RUN(decide)
RUN(muon_begin_f32)
RUN(muon_begin_f64)
RUN(muon_product_f32)
RUN(muon_product_f64)
ASHLAR_ALGORITHM_MAP(RUN_UPDATE)

#define ROW(kernel) {"ashlar_kernel_" #kernel, sizeof(ashlar_optimizer_job), run_##kernel},
#define ROW_UPDATE(name, function, has1, has2) \
    ROW(function##_f32) ROW(function##_f64) ROW(function##_f16) ROW(function##_bf16)
static const host_kernel kernels[] = {ROW(sum) ROW(decide) ROW(muon_begin_f32) ROW(
    muon_begin_f64) ROW(muon_product_f32) ROW(muon_product_f64) ASHLAR_ALGORITHM_MAP(ROW_UPDATE)};

const host_kernel *optimizer_kernel_at(size_t number) {
    return number < sizeof kernels / sizeof *kernels ? &kernels[number] : NULL;
}
