/*
 * test_optimizer_cuda.c - the optimizer's kernels, loaded and launched through the driver.
 *
 * Run with the folder of the fake libcuda.so.1 first in LD_LIBRARY_PATH: its kernels are the same
 * source on the CPU (libcuda_kernels.c). What needs no fake also runs on a real device.
 */
#include "tests/arena/optimizer/optimizer_world_fixture.h"

#include <dlfcn.h>

#include "allocator/device/device_impl.h"
#include "tests/cuda/libcuda.h"
#include "allocator/base/host.h"
#include "arena/optimizer/optimizer_cuda.h"
#include "arena/optimizer/optimizer_kernels.h"

enum {
    ALL_PARTS = ASHLAR_OPTIMIZER_SUM | ASHLAR_OPTIMIZER_DECIDE | ASHLAR_OPTIMIZER_UPDATE,
    KERNELS = 2 + ASHLAR_ALGORITHM_COUNT * ASHLAR_DTYPE_COUNT,
};

static ashlar_device *device;
static ashlar_optimizer_cuda *cuda;
static ashlar_stream stream;
static int (*fake_early_unload_count)(void);
static int (*fake_module_count)(void);       /* NULL: a real driver */
static const char *(*fake_launch_log)(void); /* the same */

static void find_fake(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *count = library == NULL ? NULL : dlsym(library, "ashlar_fake_module_count");
    void *log = library == NULL ? NULL : dlsym(library, "ashlar_fake_launch_log");
    void *early = library == NULL ? NULL : dlsym(library, "ashlar_fake_early_unload_count");
    memcpy(&fake_module_count, &count, sizeof count);
    memcpy(&fake_early_unload_count, &early, sizeof early);
    memcpy(&fake_launch_log, &log, sizeof log);
}

static void check_context_stack(void) {
    CHECK(device->driver->table.ctx_pop_current(NULL) == CU_INVALID_CONTEXT);
}

static void tear_down(void) {
    ashlar_stream_destroy(device, stream);
    ashlar__optimizer_cuda_close(cuda);
    if (fake_module_count != NULL) {
        CHECK(fake_module_count() == 0 && fake_early_unload_count() == 0);
        check_context_stack();
    }
    ashlar_device_close(device);
}

/* NULL: ready. Else why not: no device, or a build without kernels. */
static const char *set_up(bool needs_fake) {
    cuda = NULL;
    if (ashlar_device_open("cuda", &device) != ASHLAR_OK) {
        return "no CUDA device, real or fake";
    }
    const ashlar_status status = ashlar__optimizer_cuda_open(device, &cuda);
    if (status != ASHLAR_OK) {
        CHECK(status == ASHLAR_ENOTSUP);
        ashlar_device_close(device);
        return "no CUDA kernels in this build, or for this device";
    }
    CHECK(ashlar_stream_create(device, &stream) == ASHLAR_OK);
    (void)check_at_end(tear_down);
    return needs_fake && fake_launch_log == NULL ? "of the fake driver only" : NULL;
}

/* The case, skipped where set_up() says so. */
#define CASE_ON_DEVICE(test, needs_fake)      \
    static void test##_body(void);            \
    CASE(test) {                              \
        const char *why = set_up(needs_fake); \
        SKIP_IF(why != NULL, why);            \
        test##_body();                        \
    }                                         \
    static void test##_body(void)

/* ---- a world on the device ---- */

static unsigned char *far; /* the world's block there */
static world near, remote; /* of the case: on the CPU, and what the device made of its like */

static void free_worlds(void) {
    world_free(&near);
    world_free(&remote);
    near.bytes = remote.bytes = NULL;
}

static void send_world(const world *w) {
    cu_ptr ptr = 0;
    ashlar_optimizer_run runs[RUNS_MAX];
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    CHECK(device->driver->table.mem_alloc(&ptr, w->size) == CU_SUCCESS);
    ashlar__device_leave(device);
    far = ashlar__ptr_out(ptr);
    world_point(w, far, runs);
    CHECK(ashlar_copy_to_device(device, far, w->bytes, w->size, stream) == ASHLAR_OK);
    CHECK(ashlar_copy_to_device(device, far + w->runs_at, runs, w->run_count * sizeof *runs,
                                stream) == ASHLAR_OK);
}

/* And give its block back. */
static void fetch_world(world *w) {
    CHECK(ashlar_copy_to_host(device, w->bytes, far, w->size, stream) == ASHLAR_OK);
    CHECK(ashlar_stream_synchronize(device, stream) == ASHLAR_OK);
    CHECK(ashlar__device_enter(device) == ASHLAR_OK);
    CHECK(device->driver->table.mem_free(ashlar__ptr_in(far)) == CU_SUCCESS);
    ashlar__device_leave(device);
}

static ashlar_optimizer_job far_job(const world *w, const ashlar_optimizer_config *config) {
    ashlar_optimizer_job job = world_job(w, config);
    job.runs = (const ashlar_optimizer_run *)(const void *)(far + w->runs_at);
    job.scalars = (ashlar_optimizer_scalars *)(void *)far;
    job.partials = (double *)(void *)(far + w->partials_at);
    return job;
}

/* `steps` steps of the CPU in `near`; the device does the same to a copy, `remote`. */
static void run_steps(const ashlar_optimizer_config *config, int steps) {
    remote = world_copy(&near);
    send_world(&remote);
    ashlar_optimizer_job cpu = world_job(&near, config), job = far_job(&remote, config);
    cpu.passes = job.passes = ALL_PARTS;
    for (int step = 0; step < steps; step++) {
        ashlar__optimizer_cpu_run_with(&cpu, &ashlar__optimizer_kernels_baseline);
        CHECK(ashlar__optimizer_cuda_run(cuda, &job, stream) == ASHLAR_OK);
    }
    memset(&job, 0xFF, sizeof job); /* its values have been read */
    fetch_world(&remote);
}

/* ---- cases ---- */

CASE_ON_DEVICE(steps_on_the_device_get_the_bits_of_the_cpu, false) {
    static const run_spec two_chunks[] = {{ASHLAR_F32, 4096, {0}}, {ASHLAR_BF16, 100, {0}}};
    for (int algorithm = 0; algorithm < ASHLAR_ALGORITHM_COUNT; algorithm++) {
        const ashlar_optimizer_config config = world_config((ashlar_algorithm)algorithm);
        near = world_new(two_chunks, 2); /* two sums have one order */
        world_draw(&near, 21, true);
        world_cell(&near)->state.loss_scale = 1024;
        const world start = world_copy(&near);
        run_steps(&config, 3);
        CHECK(world_cell(&near)->sum == world_cell(&remote)->sum);
        CHECK(world_is_same(&near, &remote));
        CHECK(!world_is_same(&start, &remote));
        CHECK(world_cell(&remote)->state.step == 3);
        free_worlds();
        free(start.bytes);
    }
}

/* Without clipping the order of the sums touches the norm alone. */
CASE_ON_DEVICE(many_chunks_of_every_type_agree_too, false) {
    static const run_spec specs[] = {{ASHLAR_F32, 30000, {0}},
                                     {ASHLAR_F64, 5003, {0}},
                                     {ASHLAR_F16, 20000, {0, 1}},
                                     {ASHLAR_F32, 7, {1, 0, 1}}};
    ashlar_optimizer_config config = world_config(ASHLAR_ALGORITHM_ADAM);
    config.clip_norm = 0;
    near = world_new(specs, 4);
    world_draw(&near, 22, true);
    world_cell(&near)->state.loss_scale = 1024;
    run_steps(&config, 2);
    CHECK_NEAR(world_cell(&remote)->state.norm, world_cell(&near)->state.norm, 0, 1e-14);
    world_cell(&remote)->state.norm = world_cell(&near)->state.norm;
    CHECK(world_is_same(&near, &remote));
}

CASE_ON_DEVICE(each_part_launches_its_kernels_and_no_others, true) {
    static const struct {
        unsigned passes;
        bool has_chunks;
        const char *log;
    } rows[] = {
        {ASHLAR_OPTIMIZER_SUM, true,
         "ashlar_kernel_sum<<<3, 128>>> ashlar_kernel_decide<<<1, 256>>> "},
        {ASHLAR_OPTIMIZER_DECIDE, true, "ashlar_kernel_decide<<<1, 256>>> "},
        {ASHLAR_OPTIMIZER_UPDATE, true, "ashlar_kernel_rmsprop_momentum_f32<<<3, 128>>> "},
        {ASHLAR_OPTIMIZER_SUM | ASHLAR_OPTIMIZER_DECIDE, true,
         "ashlar_kernel_sum<<<3, 128>>> ashlar_kernel_decide<<<1, 256>>> "},
        {ASHLAR_OPTIMIZER_SUM | ASHLAR_OPTIMIZER_DECIDE | ASHLAR_OPTIMIZER_UPDATE, true,
         "ashlar_kernel_sum<<<3, 128>>> ashlar_kernel_decide<<<1, 256>>> "
         "ashlar_kernel_rmsprop_momentum_f32<<<3, 128>>> "},
        {0, true, ""},
        {ASHLAR_OPTIMIZER_SUM | ASHLAR_OPTIMIZER_DECIDE | ASHLAR_OPTIMIZER_UPDATE, false,
         "ashlar_kernel_decide<<<1, 256>>> "},
        {ASHLAR_OPTIMIZER_UPDATE, false, ""},
    };
    static const run_spec spec = {ASHLAR_F32, 3 * ASHLAR_OPTIMIZER_CHUNK, {0}};
    const ashlar_optimizer_config config = world_config(ASHLAR_ALGORITHM_RMSPROP_MOMENTUM);
    near = world_new(&spec, 1);
    send_world(&near);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ashlar_optimizer_job job = far_job(&near, &config);
        job.passes = rows[i].passes;
        if (!rows[i].has_chunks) {
            job.run_count = job.end_chunk = job.first_chunk = 0;
        }
        (void)fake_launch_log();
        CHECK(ashlar__optimizer_cuda_run(cuda, &job, stream) == ASHLAR_OK);
        CHECK(strcmp(fake_launch_log(), rows[i].log) == 0);
    }
    ashlar_optimizer_job rest = far_job(&near, &config); /* from the second chunk on */
    rest.passes = ASHLAR_OPTIMIZER_UPDATE;
    rest.first = ASHLAR_OPTIMIZER_CHUNK;
    rest.first_chunk = 1;
    CHECK(ashlar__optimizer_cuda_run(cuda, &rest, stream) == ASHLAR_OK);
    CHECK(strcmp(fake_launch_log(), "ashlar_kernel_rmsprop_momentum_f32<<<2, 128>>> ") == 0);
    fetch_world(&near);
}

/* One launch, but for runs of several types, of which each has its own. */
CASE_ON_DEVICE(each_type_that_is_there_has_its_update, true) {
    static const run_spec specs[] = {
        {ASHLAR_BF16, 64, {0}}, {ASHLAR_F64, 64, {0}}, {ASHLAR_BF16, 64, {0}}};
    const ashlar_optimizer_config config = world_config(ASHLAR_ALGORITHM_SGD);
    near = world_new(specs, 3);
    send_world(&near);
    ashlar_optimizer_job job = far_job(&near, &config);
    job.passes = ASHLAR_OPTIMIZER_UPDATE;
    (void)fake_launch_log();
    CHECK(ashlar__optimizer_cuda_run(cuda, &job, stream) == ASHLAR_OK);
    CHECK(strcmp(fake_launch_log(),
                 "ashlar_kernel_sgd_f64<<<3, 128>>> ashlar_kernel_sgd_bf16<<<3, 128>>> ") == 0);
    fetch_world(&near);
}

CASE_ON_DEVICE(a_device_without_kernels_is_named, true) {
    static const char *const faults[] = {"nobinary", "oldptx"};
    for (int i = 0; i < 2; i++) {
        ashlar_optimizer_cuda *second = NULL;
        setenv("FAKE_CUDA", faults[i], 1);
        CHECK(ashlar__optimizer_cuda_open(device, &second) == ASHLAR_ENOTSUP);
        unsetenv("FAKE_CUDA");
        CHECK_HAS(ashlar_error_detail(), device->info.name);
        CHECK_HAS(ashlar_error_detail(), "compute capability 8.0");
        CHECK(second == NULL && fake_module_count() == 1);
    }
}

CASE(a_build_without_kernels_says_so) {
    ashlar_optimizer_cuda *kernels = NULL;
    SKIP_IF(ashlar_device_open("cuda", &device) != ASHLAR_OK, "no CUDA device, real or fake");
    const ashlar_status status = ashlar__optimizer_cuda_open(device, &kernels);
    if (status == ASHLAR_ENOTSUP) {
        CHECK_HAS(ashlar_error_detail(), "CUDA kernels");
        CHECK(kernels == NULL);
    } else {
        CHECK(status == ASHLAR_OK && kernels != NULL);
    }
    ashlar__optimizer_cuda_close(kernels);
    ashlar__optimizer_cuda_close(NULL);
    ashlar_device_close(device);
}

CASE_ON_DEVICE(closing_lets_queued_kernels_end, false) {
    static const run_spec spec = {ASHLAR_F32, 64, {0}};
    const ashlar_optimizer_config config = world_config(ASHLAR_ALGORITHM_SGD);
    near = world_new(&spec, 1);
    world_draw(&near, 23, true);
    world_cell(&near)->state.loss_scale = 1;
    remote = world_copy(&near);
    send_world(&remote);
    ashlar_optimizer_job cpu = world_job(&near, &config), job = far_job(&remote, &config);
    cpu.passes = job.passes = ALL_PARTS;
    ashlar__optimizer_cpu_run_with(&cpu, &ashlar__optimizer_kernels_baseline);
    CHECK(ashlar__optimizer_cuda_run(cuda, &job, stream) == ASHLAR_OK);
    ashlar__optimizer_cuda_close(cuda);
    cuda = NULL;
    fetch_world(&remote);
    CHECK(world_is_same(&near, &remote));
}

/* ---- failures ---- */

CASE_ON_DEVICE(every_failing_call_of_open_is_reported_and_leaks_nothing, true) {
    static const struct {
        ashlar_driver_fn fn;
        uint64_t count;
        const char *name;
    } rows[] = {
        {ASHLAR_DRIVER_FN_ctx_push_current, 1, "cuCtxPushCurrent on the cuda device"},
        {ASHLAR_DRIVER_FN_module_load_data, 1, "cuModuleLoadData on the cuda device"},
        {ASHLAR_DRIVER_FN_module_get_function, KERNELS, "cuModuleGetFunction on the cuda device"},
    };
    ashlar_optimizer_cuda *second = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (uint64_t n = 1; n <= rows[i].count; n++) {
            ashlar__driver_fail_at(device->driver, (int)rows[i].fn, n, CU_UNKNOWN);
            CHECK_FAILS(ashlar__optimizer_cuda_open(device, &second), ASHLAR_EDRIVER, rows[i].name);
            CHECK(second == NULL && fake_module_count() == 1);
            check_context_stack();
        }
        ashlar__driver_fail_at(device->driver, (int)rows[i].fn, rows[i].count + 1, CU_UNKNOWN);
        CHECK(ashlar__optimizer_cuda_open(device, &second) == ASHLAR_OK);
        ashlar__driver_fail_at(device->driver, -1, 0, CU_SUCCESS);
        CHECK(fake_module_count() == 2);
        ashlar__optimizer_cuda_close(second);
        CHECK(fake_module_count() == 1);
        second = NULL;
    }
    ashlar__driver_fail_at(device->driver, ASHLAR_DRIVER_FN_module_load_data, 1, CU_OUT_OF_MEMORY);
    CHECK(ashlar__optimizer_cuda_open(device, &second) == ASHLAR_ENOMEM);
    HOST_FAILS_AT(1, CHECK(ashlar__optimizer_cuda_open(device, &second) == ASHLAR_EHOSTMEM));
    CHECK_HAS(ashlar_error_detail(), "no host memory for the optimizer's kernels");
    CHECK(second == NULL && fake_module_count() == 1);
}

CASE_ON_DEVICE(every_failing_launch_is_named_and_ends_the_job, false) {
    static const char *const names[] = {"cuLaunchKernel(ashlar_kernel_sum) on",
                                        "cuLaunchKernel(ashlar_kernel_decide) on",
                                        "cuLaunchKernel(ashlar_kernel_adagrad_f32) on"};
    static const run_spec spec = {ASHLAR_F32, 64, {0}};
    const ashlar_optimizer_config config = world_config(ASHLAR_ALGORITHM_ADAGRAD);
    near = world_new(&spec, 1);
    send_world(&near);
    ashlar_optimizer_job job = far_job(&near, &config);
    const _Atomic uint64_t *calls = &device->driver->calls[ASHLAR_DRIVER_FN_launch_kernel];
    job.passes = ALL_PARTS;
    for (uint64_t n = 1; n <= 3; n++) {
        const uint64_t before = *calls;
        ashlar__driver_fail_at(device->driver, ASHLAR_DRIVER_FN_launch_kernel, n, CU_LAUNCH_FAILED);
        CHECK_FAILS(ashlar__optimizer_cuda_run(cuda, &job, stream), ASHLAR_EDRIVER, names[n - 1]);
        CHECK(*calls == before + n);
    }
    ashlar__driver_fail_at(device->driver, ASHLAR_DRIVER_FN_ctx_push_current, 1, CU_UNKNOWN);
    CHECK_FAILS(ashlar__optimizer_cuda_run(cuda, &job, stream), ASHLAR_EDRIVER,
                "cuCtxPushCurrent on");
    CHECK(ashlar__optimizer_cuda_run(cuda, &job, stream) == ASHLAR_OK);
    fetch_world(&near);
}

RUN_CASES_AFTER(find_fake(); check_each = free_worlds)
