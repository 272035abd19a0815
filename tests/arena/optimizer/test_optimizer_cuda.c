/*
 * test_optimizer_cuda.c - the optimizer's kernels on a CUDA device: which are launched for what,
 * and calls that fail. test_gpu_optimizer.c compares numbers.
 *
 * Run with the folder of the fake libcuda.so.1 first in LD_LIBRARY_PATH: its kernels are the same
 * source on the CPU (libcuda_kernels.c).
 */
#include "tests/allocator/device/gpu_fixture.h"

#include <ashlar/optimizer.h>

#include "allocator/base/host.h"
#include "arena/optimizer/optimizer_impl.h"

enum { KERNELS = 6 + ASHLAR_ALGORITHM_COUNT * ASHLAR_DTYPE_COUNT };

static int (*module_count)(void), (*early_unload_count)(void);
static const char *(*launch_log)(void);
static ashlar_allocator *allocator;
static ashlar_arena *arena;
static ashlar_optimizer *optimizer;

static void find_fake(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *found[] = {dlsym(cuda, "ashlar_fake_module_count"),
                     dlsym(cuda, "ashlar_fake_early_unload_count"),
                     dlsym(cuda, "ashlar_fake_launch_log")};
    memcpy(&module_count, &found[0], sizeof found[0]);
    memcpy(&early_unload_count, &found[1], sizeof found[1]);
    memcpy(&launch_log, &found[2], sizeof found[2]);
}

static void close_all(void) {
    ashlar_optimizer_destroy(optimizer);
    ashlar_arena_destroy(arena);
    ashlar_allocator_destroy(allocator);
    optimizer = NULL;
    arena = NULL;
    CHECK(module_count() == 0 && early_unload_count() == 0); /* before queued work had run */
    CHECK(gpu->driver->table.ctx_pop_current(NULL) == CU_INVALID_CONTEXT);
}

/* An arena with these tensors, of `elements` each; the last one is frozen. */
static bool open_arena(const ashlar_dtype *types, size_t count, size_t elements) {
    bool is_open = ashlar_allocator_create(gpu, &allocator) == ASHLAR_OK &&
                   ashlar_arena_create(&arena) == ASHLAR_OK;
    for (size_t i = 0; i < count && is_open; i++) {
        const char name[] = {(char)('a' + i), '\0'};
        const ashlar_tensor_options options = {.is_frozen = i + 1 == count};
        is_open = ashlar_arena_add(arena, name, types[i], 1, &elements, NULL) == ASHLAR_OK &&
                  ashlar_arena_set_options(arena, i, &options) == ASHLAR_OK;
    }
    return is_open && check_at_end(close_all) &&
           ashlar_arena_commit(arena, allocator, gpu_stream, ASHLAR_REGIONS_ALL) == ASHLAR_OK;
}

static ashlar_status create(ashlar_optimizer_kind kind, double momentum) {
    const ashlar_optimizer_config config = {.kind = kind, .momentum = momentum};
    return ashlar_optimizer_create(arena, &config, gpu_stream, &optimizer);
}

static ashlar_status sum_range(size_t offset, size_t bytes) {
    const ashlar_optimizer_call call = {
        .parts = ASHLAR_OPTIMIZER_SUM, .offset = offset, .bytes = bytes};
    return ashlar_optimizer_step_with(optimizer, &call, gpu_stream);
}

static ashlar_status decide(double gradient_scale) {
    const ashlar_optimizer_call call = {.parts = ASHLAR_OPTIMIZER_DECIDE,
                                        .gradient_scale = gradient_scale};
    return ashlar_optimizer_step_with(optimizer, &call, gpu_stream);
}

static ashlar_status update_range(size_t offset, size_t bytes, double learning_rate) {
    const ashlar_optimizer_call call = {.parts = ASHLAR_OPTIMIZER_UPDATE,
                                        .learning_rate = learning_rate,
                                        .offset = offset,
                                        .bytes = bytes};
    return ashlar_optimizer_step_with(optimizer, &call, gpu_stream);
}

static void check_launched(ashlar_status status, const char *kernels) {
    CHECK(status == ASHLAR_OK);
    CHECK(strcmp(launch_log(), kernels) == 0);
}

#define SUM(blocks) "ashlar_kernel_sum<<<" blocks ", 128>>> "
#define DECIDE "ashlar_kernel_decide<<<1, 256>>> "
#define UPDATE(blocks) "ashlar_kernel_rmsprop_momentum_f32<<<" blocks ", 128>>> "

CASE(each_part_launches_its_kernels_and_no_others) {
    static const ashlar_dtype types[] = {ASHLAR_F32, ASHLAR_F32};
    const size_t chunk = ASHLAR_OPTIMIZER_CHUNK * sizeof(float);
    REQUIRE(open_arena(types, 2, 3 * ASHLAR_OPTIMIZER_CHUNK));
    SKIP_IF(create(ASHLAR_OPTIMIZER_RMSPROP, 0.9) == ASHLAR_ENOTSUP, "no CUDA kernels here");
    (void)launch_log();
    check_launched(ashlar_optimizer_step(optimizer, 0.1, 1, gpu_stream),
                   SUM("6") DECIDE UPDATE("6"));
    check_launched(sum_range(0, 3 * chunk), SUM("3") DECIDE);
    check_launched(sum_range(3 * chunk, 0), DECIDE);
    check_launched(decide(1), DECIDE);
    check_launched(update_range(chunk, chunk, 0.1), UPDATE("1"));
    check_launched(update_range(3 * chunk, 0, 0.1), "");
}

/* One launch, but for runs of several types, of which each has its own. */
CASE(each_type_that_is_there_has_its_update) {
    static const ashlar_dtype types[] = {ASHLAR_BF16, ASHLAR_F64, ASHLAR_BF16};
    REQUIRE(open_arena(types, 3, 64));
    SKIP_IF(create(ASHLAR_OPTIMIZER_SGD, 0) == ASHLAR_ENOTSUP, "no CUDA kernels here");
    (void)launch_log();
    check_launched(
        update_range(0, ashlar_arena_get_info(arena).region_bytes[ASHLAR_REGION_PARAMETERS], 0.1),
        "ashlar_kernel_sgd_f64<<<3, 128>>> ashlar_kernel_sgd_bf16<<<3, 128>>> ");
}

CASE(a_device_without_kernels_is_named) {
    static const ashlar_dtype types[] = {ASHLAR_F32, ASHLAR_F32};
    static const char *const faults[] = {"nobinary", "oldptx"};
    REQUIRE(open_arena(types, 2, 64));
    for (int i = 0; i < 2; i++) {
        setenv("FAKE_CUDA", faults[i], 1);
        CHECK_FAILS(create(ASHLAR_OPTIMIZER_SGD, 0), ASHLAR_ENOTSUP, "CUDA kernels");
        unsetenv("FAKE_CUDA");
        CHECK(optimizer == NULL && module_count() == 0);
    }
    SKIP_IF(create(ASHLAR_OPTIMIZER_SGD, 0) == ASHLAR_ENOTSUP, "no CUDA kernels here");
    setenv("FAKE_CUDA", faults[0], 1);
    ashlar_optimizer_destroy(optimizer);
    optimizer = NULL;
    CHECK_FAILS(create(ASHLAR_OPTIMIZER_SGD, 0), ASHLAR_ENOTSUP, gpu->info.name);
    CHECK_HAS(ashlar_error_detail(), "compute capability 8.0");
    unsetenv("FAKE_CUDA");
}

/* ---- failures ---- */

CASE(every_failing_call_of_creation_is_reported_and_leaks_nothing) {
    static const ashlar_dtype types[] = {ASHLAR_F32, ASHLAR_F32};
    static const struct {
        int fn;
        uint64_t least; /* so many of them are made */
        const char *name;
    } rows[] = {
        {ASHLAR_DRIVER_FN_ctx_push_current, 1, "cuCtxPushCurrent on the cuda device"},
        {ASHLAR_DRIVER_FN_module_load_data, 1, "cuModuleLoadData on the cuda device"},
        {ASHLAR_DRIVER_FN_module_get_function, KERNELS, "cuModuleGetFunction on the cuda device"},
    };
    bool is_named = false;
    REQUIRE(open_arena(types, 2, 64));
    SKIP_IF(create(ASHLAR_OPTIMIZER_SGD, 0) == ASHLAR_ENOTSUP, "no CUDA kernels here");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t n = 0;
        for (ashlar_status status = ASHLAR_EDRIVER; status != ASHLAR_OK && n < 100;) {
            ashlar_optimizer_destroy(optimizer);
            optimizer = NULL;
            ashlar__driver_fail_at(gpu->driver, rows[i].fn, ++n, CU_UNKNOWN);
            status = create(ASHLAR_OPTIMIZER_SGD, 0);
            ashlar__driver_fail_at(gpu->driver, -1, 0, CU_SUCCESS);
            CHECK(status == ASHLAR_OK || status == ASHLAR_EDRIVER);
            CHECK((optimizer != NULL) == (status == ASHLAR_OK));
            CHECK(module_count() == (status == ASHLAR_OK));
            CHECK(n > rows[i].least || strstr(ashlar_error_detail(), rows[i].name) != NULL);
        }
        CHECK(n > rows[i].least && n < 100);
    }
    for (unsigned long n = 1; n < 10; n++) {
        ashlar_optimizer_destroy(optimizer);
        optimizer = NULL;
        HOST_FAILS_AT(n, (void)create(ASHLAR_OPTIMIZER_SGD, 0));
        is_named = is_named || (optimizer == NULL &&
                                strstr(ashlar_error_detail(), "the optimizer's kernels") != NULL);
        CHECK(module_count() == (optimizer != NULL));
    }
    CHECK(is_named);
}

CASE(every_failing_launch_is_named_and_ends_the_job) {
    static const ashlar_dtype types[] = {ASHLAR_F32, ASHLAR_F32};
    static const char *const names[] = {"cuLaunchKernel(ashlar_kernel_sum) on",
                                        "cuLaunchKernel(ashlar_kernel_decide) on",
                                        "cuLaunchKernel(ashlar_kernel_adagrad_f32) on"};
    REQUIRE(open_arena(types, 2, 64));
    SKIP_IF(create(ASHLAR_OPTIMIZER_ADAGRAD, 0) == ASHLAR_ENOTSUP, "no CUDA kernels here");
    const _Atomic uint64_t *calls = &gpu->driver->calls[ASHLAR_DRIVER_FN_launch_kernel];
    for (uint64_t n = 1; n <= 3; n++) {
        const uint64_t before = *calls;
        ashlar__driver_fail_at(gpu->driver, ASHLAR_DRIVER_FN_launch_kernel, n, CU_LAUNCH_FAILED);
        CHECK_FAILS(ashlar_optimizer_step(optimizer, 0.1, 1, gpu_stream), ASHLAR_EDRIVER,
                    names[n - 1]);
        CHECK(*calls == before + n);
    }
    ashlar__driver_fail_at(gpu->driver, ASHLAR_DRIVER_FN_ctx_push_current, 1, CU_UNKNOWN);
    CHECK_FAILS(ashlar_optimizer_step(optimizer, 0.1, 1, gpu_stream), ASHLAR_EDRIVER,
                "cuCtxPushCurrent on");
    CHECK(ashlar_optimizer_step(optimizer, 0.1, 1, gpu_stream) == ASHLAR_OK);
}

int main(void) {
    const int why = gpu_begin();
    find_fake();
    if (why != 0 || launch_log == NULL) {
        return why != 0 ? why : 77;
    }
    check_run_cases();
    gpu_end();
    return check_report();
}
