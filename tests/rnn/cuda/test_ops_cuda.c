/*
 * test_ops_cuda.c - what a model's operations launch on a CUDA device, and what they do when the
 * driver or cuBLAS refuses. Run on the fakes; test_gpu_ops.c compares numbers.
 */
#include "tests/allocator/device/gpu_fixture.h"

#include <cublas_v2.h>

#include "tests/cuda/fake_cublas.h"
#include "tests/cuda/libcuda.h"
#include "allocator/base/host.h"
#include "rnn/layer/ops.h"

enum { STEPS = 3, BATCH = 2, CLASSES = 5, WIDTH = 4, ROWS = STEPS * BATCH, CELLS = 64 };

static fake_cublas_control *blas;
static int (*module_count)(void);
static int (*early_unload_count)(void);
static const char *(*launch_log)(void);

static void check_clean(void) {
    gpu_wait();
    CHECK(module_count() == 0 && early_unload_count() == 0);
    CHECK_ZU((size_t)blas->live, 0);
    CHECK(gpu->driver->table.ctx_pop_current(NULL) == CU_INVALID_CONTEXT);
}

/* Everything that the operations read and write, zeros all. */
typedef struct buffers {
    int32_t *ints; /* CELLS */
    double *scale;
    double *loss;
    void *reals[3]; /* CELLS each */
} buffers;

static buffers take_buffers(void) {
    static const double zeros[CELLS];
    buffers b = {.ints = gpu_send(zeros, sizeof zeros),
                 .scale = gpu_send(zeros, sizeof *zeros),
                 .loss = gpu_send(zeros, sizeof *zeros)};
    for (int i = 0; i < 3; i++) {
        b.reals[i] = gpu_send(zeros, sizeof zeros);
    }
    return b;
}

static ashlar_ops *ops; /* of the case */

static void close_ops(void) {
    ashlar_ops_destroy(ops);
    ops = NULL;
    gpu_give_all();
}

static bool open_ops(ashlar_dtype dtype) {
    return ashlar_ops_create(gpu, dtype, &ops) == ASHLAR_OK && check_at_end(close_ops);
}

typedef ashlar_status operation(const buffers *b);

static ashlar_embedding_args embedding_args(const buffers *b) {
    return (ashlar_embedding_args){.steps = STEPS,
                                   .batch = BATCH,
                                   .lengths = b->ints,
                                   .classes = CLASSES,
                                   .width = WIDTH,
                                   .tokens = b->ints,
                                   .table = b->reals[0],
                                   .out = b->reals[1],
                                   .dout = b->reals[1],
                                   .dtable = b->reals[2]};
}

static ashlar_status embed(const buffers *b) {
    const ashlar_embedding_args args = embedding_args(b);
    return ashlar_embedding_forward(ops, &args, gpu_stream);
}

static ashlar_status embed_back(const buffers *b) {
    const ashlar_embedding_args args = embedding_args(b);
    return ashlar_embedding_backward(ops, &args, gpu_stream);
}

static ashlar_linear_args linear_args(const buffers *b) {
    return (ashlar_linear_args){.rows = ROWS,
                                .in = WIDTH,
                                .out = CLASSES,
                                .x = b->reals[0],
                                .weight = b->reals[0],
                                .bias = b->reals[0],
                                .y = b->reals[1],
                                .dy = b->reals[1],
                                .dx = b->reals[2],
                                .dweight = b->reals[2],
                                .dbias = b->reals[2]};
}

static ashlar_status multiply(const buffers *b) {
    const ashlar_linear_args args = linear_args(b);
    return ashlar_linear_forward(ops, &args, gpu_stream);
}

static ashlar_status multiply_back(const buffers *b) {
    const ashlar_linear_args args = linear_args(b);
    return ashlar_linear_backward(ops, &args, gpu_stream);
}

static ashlar_cross_entropy_args loss_args(const buffers *b) {
    return (ashlar_cross_entropy_args){.steps = STEPS,
                                       .batch = BATCH,
                                       .lengths = b->ints,
                                       .classes = CLASSES,
                                       .logits = b->reals[0],
                                       .targets = b->ints,
                                       .weight = 1,
                                       .dlogits = b->reals[1],
                                       .scale = b->scale,
                                       .work = b->reals[2],
                                       .loss = b->loss};
}

static ashlar_status lose(const buffers *b) {
    const ashlar_cross_entropy_args args = loss_args(b);
    return ashlar_cross_entropy(ops, &args, gpu_stream);
}

static ashlar_status lose_mean(const buffers *b) {
    ashlar_cross_entropy_args args = loss_args(b);
    args.weight = 0;
    return ashlar_cross_entropy(ops, &args, gpu_stream);
}

static ashlar_status err(const buffers *b) {
    const ashlar_squared_error_args args = {.steps = STEPS,
                                            .batch = BATCH,
                                            .width = WIDTH,
                                            .outputs = b->reals[0],
                                            .targets = b->reals[0],
                                            .work = b->reals[2],
                                            .loss = b->loss};
    return ashlar_squared_error(ops, &args, gpu_stream);
}

static ashlar_status lose_smoothly(const buffers *b) {
    ashlar_cross_entropy_args args = loss_args(b);
    args.smoothing = 0.5;
    return ashlar_cross_entropy(ops, &args, gpu_stream);
}

/* The mean over what lengths leave, which must be counted. */
static ashlar_status lose_elements(const buffers *b) {
    const ashlar_squared_error_args args = {.steps = STEPS,
                                            .batch = BATCH,
                                            .lengths = b->ints,
                                            .width = WIDTH,
                                            .outputs = b->reals[0],
                                            .targets = b->reals[0],
                                            .work = b->reals[2],
                                            .loss = b->loss,
                                            .kind = ASHLAR_ELEMENT_BINARY};
    return ashlar_squared_error(ops, &args, gpu_stream);
}

/* Parts of a batch, whose losses are added up later. */
static ashlar_status lose_part(const buffers *b) {
    ashlar_cross_entropy_args args = loss_args(b);
    args.losses = b->loss;
    args.loss = NULL;
    return ashlar__ops_cross_entropy(ops, &args, gpu_stream);
}

static ashlar_status err_part(const buffers *b) {
    const ashlar_squared_error_args args = {.steps = STEPS,
                                            .batch = BATCH,
                                            .width = WIDTH,
                                            .outputs = b->reals[0],
                                            .targets = b->reals[0],
                                            .weight = 1,
                                            .work = b->reals[2],
                                            .losses = b->loss};
    return ashlar__ops_squared_error(ops, &args, gpu_stream);
}

#define UNCHECKED(op, kind, ...)                         \
    static ashlar_status run_##op(const buffers *b) {    \
        const ashlar_##kind##_args args = {__VA_ARGS__}; \
        return ashlar__ops_##op(ops, &args, gpu_stream); \
    }
#define RUN_ROWS .rows = ROWS, .width = WIDTH
#define RUN_GRID .steps = STEPS, .batch = BATCH, .width = WIDTH
UNCHECKED(map, map, .count = ROWS * WIDTH, .a = b->reals[0], .out = b->reals[1])
UNCHECKED(scale_rows, scale_rows, RUN_ROWS, .a = b->reals[0], .out = b->reals[1])
UNCHECKED(row_products, row_products, RUN_ROWS, .a = b->reals[0], .b = b->reals[0],
          .out = b->reals[1])
UNCHECKED(softmax, softmax, RUN_ROWS, .x = b->reals[0], .y = b->reals[1])
UNCHECKED(softmax_back, softmax_back, RUN_ROWS, .y = b->reals[0], .dy = b->reals[0],
          .dx = b->reals[1])
UNCHECKED(drop, drop, RUN_GRID, .a = b->reals[0], .out = b->reals[1])
UNCHECKED(pool, pool, RUN_GRID, .x = b->reals[0], .y = b->reals[1])
UNCHECKED(pool_back, pool_back, RUN_GRID, .x = b->reals[0], .y = b->reals[0], .dy = b->reals[0],
          .dx = b->reals[1])
UNCHECKED(swap, swap, .outer = STEPS, .inner = BATCH, .width = WIDTH, .from = b->reals[0],
          .to = b->reals[1])
UNCHECKED(clip_lengths, clip_lengths, .batch = BATCH, .steps = STEPS, .lengths = b->ints,
          .out = b->ints)
UNCHECKED(add_losses, add_losses, .positions = 1, .losses = b->loss, .weight = 1, .factor = 1,
          .loss = b->loss)

static ashlar_status copy_columns(const buffers *b) {
    const ashlar_columns_args args = {.rows = ROWS,
                                      .width = WIDTH,
                                      .from = b->reals[0],
                                      .from_stride = WIDTH,
                                      .to = b->reals[1],
                                      .to_stride = WIDTH + 1};
    return ashlar_copy_columns(ops, &args, gpu_stream);
}

static ashlar_status label(const buffers *b) {
    const ashlar_argmax_args args = {
        .rows = ROWS, .classes = CLASSES, .logits = b->reals[0], .labels = b->ints};
    return ashlar_argmax(ops, &args, gpu_stream);
}

/* An operation, what it launches in F16, and of how many refusable calls of cuBLAS. */
static const struct {
    operation *run;
    const char *launches;
    int blas_calls;
} operations[] = {
    {embed, "ashlar_kernel_embedding_forward_f16<<<1, 128>>> ", 0},
    {embed_back, "ashlar_kernel_embedding_backward_f16<<<5, 128>>> ", 0},
    {multiply, "ashlar_kernel_copy_columns_f16<<<1, 128>>> ", 2},
    {multiply_back, "ashlar_kernel_bias_backward_f16<<<1, 128>>> ", 3},
    {lose, "ashlar_kernel_cross_entropy_f16<<<6, 128>>> ashlar_kernel_loss_sum<<<1, 128>>> ", 0},
    {lose_mean,
     "ashlar_kernel_loss_count_f16<<<1, 128>>> ashlar_kernel_cross_entropy_f16<<<6, 128>>> "
     "ashlar_kernel_loss_sum<<<1, 128>>> ",
     0},
    {err, "ashlar_kernel_squared_error_f16<<<6, 128>>> ashlar_kernel_loss_sum<<<1, 128>>> ", 0},
    {copy_columns, "ashlar_kernel_copy_columns_f16<<<1, 128>>> ", 0},
    {label, "ashlar_kernel_argmax_f16<<<6, 128>>> ", 0},
    {lose_smoothly,
     "ashlar_kernel_cross_entropy_smooth_f16<<<6, 128>>> ashlar_kernel_loss_sum<<<1, 128>>> ", 0},
    {lose_elements,
     "ashlar_kernel_loss_count_f16<<<1, 128>>> ashlar_kernel_element_loss_f16<<<6, 128>>> "
     "ashlar_kernel_loss_sum<<<1, 128>>> ",
     0},
    {run_map, "ashlar_kernel_map_f16<<<1, 128>>> ", 0},
    {run_scale_rows, "ashlar_kernel_scale_rows_f16<<<1, 128>>> ", 0},
    {run_row_products, "ashlar_kernel_row_products_f16<<<6, 128>>> ", 0},
    {run_softmax, "ashlar_kernel_softmax_f16<<<6, 128>>> ", 0},
    {run_softmax_back, "ashlar_kernel_softmax_back_f16<<<6, 128>>> ", 0},
    {run_drop, "ashlar_kernel_drop_f16<<<1, 128>>> ", 0},
    {run_pool, "ashlar_kernel_pool_f16<<<1, 128>>> ", 0},
    {run_pool_back, "ashlar_kernel_pool_back_f16<<<1, 128>>> ", 0},
    {run_swap, "ashlar_kernel_swap_f16<<<1, 128>>> ", 0},
    {run_clip_lengths, "ashlar_kernel_clip_lengths<<<1, 128>>> ", 0},
    {lose_part, "ashlar_kernel_cross_entropy_f16<<<6, 128>>> ", 0},
    {err_part, "ashlar_kernel_squared_error_f16<<<6, 128>>> ", 0},
    {run_add_losses, "ashlar_kernel_loss_sum<<<1, 128>>> ", 0},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

/* ---- cases ---- */

/* The first case: a library that was found stays. */
CASE(a_library_that_is_none_is_refused_by_name) {
    const char *given = getenv("ASHLAR_CUBLAS");
    char *good = strdup(given == NULL ? "" : given);
    setenv("ASHLAR_CUBLAS", "/nowhere/libcublas.so", 1);
    CHECK_FAILS(ashlar_ops_create(gpu, ASHLAR_F32, &ops), ASHLAR_ENOTSUP, "cuBLAS was not found");
    CHECK_HAS(ashlar_error_detail(), "ASHLAR_CUBLAS");
    setenv("ASHLAR_CUBLAS", "libm.so.6", 1);
    CHECK_FAILS(ashlar_ops_create(gpu, ASHLAR_F32, &ops), ASHLAR_ENOTSUP,
                "cuBLAS lacks cublasGetStatusString");
    setenv("ASHLAR_CUBLAS", good, 1);
    CHECK(ops == NULL);
    free(good);
}

CASE_WITH(each_operation_launches_what_it_needs_and_no_more, open_ops(ASHLAR_F16)) {
    CHECK(strcmp(ops->backend->name, "cuda") == 0);
    CHECK_ZU(ashlar_ops_get_need(ops, 7).loss_work_bytes,
             8 * sizeof(double)); /* and their number */
    const buffers b = take_buffers();
    (void)launch_log();
    for (size_t i = 0; i < OPERATIONS; i++) {
        const long before = blas->calls;
        CHECK(operations[i].run(&b) == ASHLAR_OK);
        CHECK(strcmp(launch_log(), operations[i].launches) == 0);
        CHECK(blas->calls - before == operations[i].blas_calls);
    }
}

CASE(products_of_fp32_are_in_fp32) {
    static const cublasComputeType_t want[ASHLAR_DTYPE_COUNT] = {
        [ASHLAR_F32] = CUBLAS_COMPUTE_32F_PEDANTIC,
        [ASHLAR_F64] = CUBLAS_COMPUTE_64F,
        [ASHLAR_F16] = CUBLAS_COMPUTE_32F,
        [ASHLAR_BF16] = CUBLAS_COMPUTE_32F};
    for (int type = 0; type < ASHLAR_DTYPE_COUNT; type++) {
        REQUIRE(open_ops((ashlar_dtype)type));
        const buffers b = take_buffers();
        CHECK(multiply(&b) == ASHLAR_OK);
        CHECK(blas->compute_type == (int)want[type]);
        close_ops();
    }
}

/* cublasSetStream takes a workspace away, so that it is set anew for each call. */
CASE_WITH(products_work_in_the_memory_that_they_are_given, open_ops(ASHLAR_F32)) {
    const buffers b = take_buffers();
    const size_t bytes = ashlar_ops_get_need(ops, 1).work_bytes;
    char *work = gpu_take(bytes + 1);
    CHECK_ZU(bytes, 4 << 20); /* cuBLAS's documentation, before compute capability 9.0 */
    blas->unaided = 0;
    CHECK(multiply(&b) == ASHLAR_OK);
    CHECK(blas->unaided == 1);
    CHECK_FAILS(ashlar_ops_set_work(ops, work + 1, bytes), ASHLAR_EINVAL, "aligned to 256 bytes");
    CHECK_FAILS(ashlar_ops_set_work(ops, work, 0), ASHLAR_EINVAL, "bytes is 0");
    CHECK(ashlar_ops_set_work(ops, work, bytes) == ASHLAR_OK);
    for (int i = 0; i < 2; i++) {
        CHECK(multiply(&b) == ASHLAR_OK && multiply_back(&b) == ASHLAR_OK);
        CHECK(blas->unaided == 1 && blas->workspace == work && blas->workspace_bytes == bytes);
    }
    for (long n = 1; n <= 4; n++) { /* setting it may fail, too */
        blas->fail_at = n;
        blas->fail_status = (int)CUBLAS_STATUS_EXECUTION_FAILED;
        CHECK(multiply(&b) == (n <= 3 ? ASHLAR_EDRIVER : ASHLAR_OK));
        blas->fail_at = 0;
    }
    CHECK(ashlar_ops_set_work(ops, NULL, 0) == ASHLAR_OK);
    CHECK(multiply(&b) == ASHLAR_OK);
    CHECK(blas->unaided == 2);
}

/* Each of 5,000 rows would be a block that looks at all positions: where there is no room for
 * links, and too slow for the emulator, so that the launch is made to fail. */
CASE_WITH(an_embedding_of_many_rows_links_positions_where_there_is_room, open_ops(ASHLAR_F16)) {
    const buffers b = take_buffers();
    const size_t classes = 5000, room = (classes + ROWS) * sizeof(uint32_t);
    static const struct {
        ashlar_driver_fn function;
        uint64_t number;
        size_t lacks; /* of the room */
        const char *detail;
    } failures[] = {
        {ASHLAR_DRIVER_FN_launch_kernel, 1, 4, "(ashlar_kernel_embedding_backward_f16)"},
        {ASHLAR_DRIVER_FN_memset_d8_async, 1, 0, "cuMemsetD8Async"},
        {ASHLAR_DRIVER_FN_launch_kernel, 1, 0, "(ashlar_kernel_embedding_link)"},
        {ASHLAR_DRIVER_FN_launch_kernel, 2, 0, "(ashlar_kernel_embedding_add_f16)"}};
    ashlar_embedding_args args = embedding_args(&b);
    args.classes = classes;
    args.dtable = gpu_take(classes * WIDTH * sizeof(uint16_t));
    void *work = gpu_take(room);
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        CHECK(ashlar_ops_set_work(ops, work, room - failures[i].lacks) == ASHLAR_OK);
        ashlar__driver_fail_at(gpu->driver, (int)failures[i].function, failures[i].number,
                               CU_LAUNCH_FAILED);
        CHECK_FAILS(ashlar_embedding_backward(ops, &args, gpu_stream), ASHLAR_EDRIVER,
                    failures[i].detail);
    }
    ashlar__driver_fail_at(gpu->driver, -1, 0, CU_SUCCESS);
    (void)launch_log();
    CHECK(ashlar_embedding_backward(ops, &args, gpu_stream) == ASHLAR_OK);
    CHECK(strcmp(launch_log(), "ashlar_kernel_embedding_link<<<1, 128>>> "
                               "ashlar_kernel_embedding_add_f16<<<1, 128>>> ") == 0);
}

CASE_WITH(what_cublas_cannot_count_is_refused, open_ops(ASHLAR_F32)) {
    const size_t huge = (size_t)INT32_MAX + 1;
    const size_t sizes[][3] = {{huge, 1, 1}, {1, huge, 1}, {1, 1, huge}};
    const buffers b = take_buffers();
    (void)launch_log();
    for (size_t i = 0; i < 3; i++) {
        ashlar_linear_args args = linear_args(&b);
        args.rows = sizes[i][0];
        args.in = sizes[i][1];
        args.out = sizes[i][2];
        CHECK(ashlar_linear_forward(ops, &args, gpu_stream) == ASHLAR_EOVERFLOW);
        CHECK(ashlar_linear_backward(ops, &args, gpu_stream) == ASHLAR_EOVERFLOW);
    }
    CHECK(strcmp(launch_log(), "") == 0);
}

CASE_WITH(every_call_of_an_operation_may_fail, open_ops(ASHLAR_F32)) {
    static const ashlar_driver_fn functions[] = {ASHLAR_DRIVER_FN_ctx_push_current,
                                                 ASHLAR_DRIVER_FN_launch_kernel};
    const buffers b = take_buffers();
    for (size_t i = 0; i < OPERATIONS; i++) {
        for (size_t f = 0; f < 2; f++) {
            ashlar_status status = ASHLAR_EDRIVER;
            for (uint64_t n = 1; status != ASHLAR_OK && n < 10; n++) {
                ashlar__driver_fail_at(gpu->driver, (int)functions[f], n, CU_LAUNCH_FAILED);
                status = operations[i].run(&b);
                const bool is_reached = atomic_load(&gpu->driver->fail_countdown) == 0;
                CHECK(status == (is_reached ? ASHLAR_EDRIVER : ASHLAR_OK));
                CHECK(is_reached || n > 1);
                ashlar__driver_fail_at(gpu->driver, -1, 0, CU_SUCCESS);
            }
        }
        for (long n = 1; n <= operations[i].blas_calls + 1; n++) {
            blas->fail_at = n;
            blas->fail_status = (int)CUBLAS_STATUS_EXECUTION_FAILED;
            CHECK(operations[i].run(&b) ==
                  (n <= operations[i].blas_calls ? ASHLAR_EDRIVER : ASHLAR_OK));
            blas->fail_at = 0;
        }
    }
    blas->fail_at = 2;
    CHECK_FAILS(multiply(&b), ASHLAR_EDRIVER, "cublasGemmEx: CUBLAS_STATUS_EXECUTION_FAILED (13)");
}

/* Returns the status of a creation that fails, or succeeds and is undone. */
static ashlar_status try_creation(void) {
    const ashlar_status status = ashlar_ops_create(gpu, ASHLAR_F32, &ops);
    CHECK((status == ASHLAR_OK) == (ops != NULL));
    close_ops();
    CHECK(module_count() == 0 && blas->live == 0);
    CHECK(gpu->driver->table.ctx_pop_current(NULL) == CU_INVALID_CONTEXT);
    return status;
}

CASE(creation_fails_whole) {
    static const ashlar_driver_fn functions[] = {
        ASHLAR_DRIVER_FN_ctx_push_current, ASHLAR_DRIVER_FN_module_load_data,
        ASHLAR_DRIVER_FN_module_get_function, ASHLAR_DRIVER_FN_device_get_attribute};
    static const uint64_t counts[] = {2, 1, 8, 1};
    for (size_t f = 0; f < 4; f++) {
        for (uint64_t n = 1; n <= counts[f]; n++) {
            ashlar__driver_fail_at(gpu->driver, (int)functions[f], n, CU_UNKNOWN);
            CHECK(try_creation() == ASHLAR_EDRIVER);
            ashlar__driver_fail_at(gpu->driver, -1, 0, CU_SUCCESS);
        }
    }
    for (unsigned long n = 1; n <= 2; n++) {
        HOST_FAILS_AT(n, CHECK(try_creation() == ASHLAR_EHOSTMEM));
    }
    static const struct {
        cublasStatus_t cublas;
        ashlar_status want;
    } refusals[] = {{CUBLAS_STATUS_ALLOC_FAILED, ASHLAR_ENOMEM},
                    {CUBLAS_STATUS_ARCH_MISMATCH, ASHLAR_ENOTSUP},
                    {CUBLAS_STATUS_NOT_SUPPORTED, ASHLAR_ENOTSUP},
                    {CUBLAS_STATUS_NOT_INITIALIZED, ASHLAR_EDRIVER}};
    for (size_t i = 0; i < 4; i++) {
        blas->fail_at = 1;
        blas->fail_status = (int)refusals[i].cublas;
        CHECK(try_creation() == refusals[i].want);
    }
    setenv("FAKE_CUDA", "nobinary", 1);
    CHECK_FAILS(try_creation(), ASHLAR_ENOTSUP, "ops: no CUDA kernels for ");
    unsetenv("FAKE_CUDA");
    CHECK(try_creation() == ASHLAR_OK);
}

static void find(void *library, const char *name, void *function) {
    void *address = library == NULL ? NULL : dlsym(library, name);
    memcpy(function, &address, sizeof address);
}

int main(void) {
    const char *path = getenv("ASHLAR_CUBLAS");
    void *cublas = path == NULL ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    find(cublas, "fake_cublas", &blas);
    find(cuda, "ashlar_fake_module_count", &module_count);
    find(cuda, "ashlar_fake_early_unload_count", &early_unload_count);
    find(cuda, "ashlar_fake_launch_log", &launch_log);
    if (gpu_begin() != 0 || blas == NULL || module_count == NULL) {
        printf("Bail out! it wants the fake driver and the fake cuBLAS\n");
        return 1;
    }
    check_each = check_clean;
    check_run_cases();
    gpu_end();
    return check_report();
}
