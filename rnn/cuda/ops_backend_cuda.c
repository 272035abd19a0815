/* ops_backend_cuda.c - a model's operations on CUDA devices: kernels of ops_cuda.cu, and cuBLAS. */
#include "rnn/layer/ops.h"

#include <pthread.h>

#include <cublas_v2.h>

#include "arena/compute/cuda_kernels.h"
#include "allocator/base/host.h"
#include "allocator/base/shared_library.h"
#include "rnn/layer/dropout.h"
#include "rnn/cuda/ops_cuda.h"

/* X(field, symbol). A symbol has _v2 where the plain name is only a macro of cuBLAS's header. */
#define ASHLAR_CUBLAS_MAP(X)                    \
    X(get_status_string, cublasGetStatusString) \
    X(create, cublasCreate_v2)                  \
    X(destroy, cublasDestroy_v2)                \
    X(set_stream, cublasSetStream_v2)           \
    X(set_workspace, cublasSetWorkspace_v2)     \
    X(gemm, cublasGemmEx)

#define FIELD(field, symbol) __typeof__(&symbol) field;
typedef struct ashlar_cublas {
    ASHLAR_CUBLAS_MAP(FIELD)
} ashlar_cublas;

#define SYMBOL(field, symbol) #symbol,
static const char *const names[] = {ASHLAR_CUBLAS_MAP(SYMBOL)};
enum { FUNCTION_COUNT = sizeof names / sizeof names[0] };
_Static_assert(FUNCTION_COUNT * sizeof(void (*)(void)) == sizeof(ashlar_cublas), "only functions");

/* Set *out to the process's one table of cuBLAS's functions, found at run time: nothing links to
 * cuBLAS. The first call fills it. Errors: ASHLAR_ENOTSUP (no library); the next call tries again.
 */
static ashlar_status open_cublas(const ashlar_cublas **out) {
    static ashlar_shared_table once = {.lock = ASHLAR_LOCK(ASHLAR_LEVEL_SHARED_LIBRARY)};
    static ashlar_cublas functions;
    static const ashlar_shared_library library = {
        .what = "cuBLAS",
        .variable = "ASHLAR_CUBLAS",
        .names = {"libcublas.so.13", "libcublas.so.12"},
        .functions = names,
        .function_count = FUNCTION_COUNT,
    };
    ASHLAR_TRY(ashlar__shared_load(&once, &library, &functions));
    *out = &functions;
    return ASHLAR_OK;
}

static ashlar_status fail_cublas(const ashlar_cublas *cublas, const char *what,
                                 cublasStatus_t result) {
    const ashlar_status status =
        result == CUBLAS_STATUS_ALLOC_FAILED ? ASHLAR_ENOMEM
        : result == CUBLAS_STATUS_NOT_SUPPORTED || result == CUBLAS_STATUS_ARCH_MISMATCH
            ? ASHLAR_ENOTSUP
            : ASHLAR_EDRIVER;
    return ashlar__fail(status, "%s: %s (%d)", what, cublas->get_status_string(result),
                        (int)result);
}

extern const unsigned long long ashlar__ops_image[]; /* the compiled kernels of ops_cuda.cu */

static const ashlar_cuda_image image = {.what = "ops", .image = ashlar__ops_image};

#define KERNEL(function, kind) KERNEL_##function,
enum { ASHLAR_OPS_KERNEL_MAP(KERNEL) ASHLAR_OPS_COMMON_MAP(KERNEL) KERNEL_COUNT };

#define X_COMMON(function, kind) "ashlar_kernel_" #function,
#define FOR_ALL_TYPES ASHLAR_OPS_COMMON_MAP(X_COMMON)
#define X_F32(function, kind) "ashlar_kernel_" #function "_f32",
#define X_F64(function, kind) "ashlar_kernel_" #function "_f64",
#define X_F16(function, kind) "ashlar_kernel_" #function "_f16",
#define X_BF16(function, kind) "ashlar_kernel_" #function "_bf16",
static const char *const kernel_names[][KERNEL_COUNT] = {
    [ASHLAR_F32] = {ASHLAR_OPS_KERNEL_MAP(X_F32) FOR_ALL_TYPES},
    [ASHLAR_F64] = {ASHLAR_OPS_KERNEL_MAP(X_F64) FOR_ALL_TYPES},
    [ASHLAR_F16] = {ASHLAR_OPS_KERNEL_MAP(X_F16) FOR_ALL_TYPES},
    [ASHLAR_BF16] = {ASHLAR_OPS_KERNEL_MAP(X_BF16) FOR_ALL_TYPES},
};
ASHLAR_TABLE_IS_FULL(kernel_names, ASHLAR_DTYPE_COUNT);

typedef struct cuda_ops {
    cu_module module;
    cu_function kernels[KERNEL_COUNT];
    const ashlar_cublas *cublas;
    pthread_mutex_t lock; /* guards the handle, which serves one thread at a time */
    cublasHandle_t handle;
    size_t work_bytes; /* the workspace that cuBLAS's documentation recommends for this device */
} cuda_ops;

/* Create cuBLAS's handle, which takes device memory. */
static ashlar_status create_handle(const ashlar_ops *ops, cuda_ops *c) {
    ASHLAR_TRY(ashlar__device_enter_relaxed(ops->device));
    const cublasStatus_t result = c->cublas->create(&c->handle);
    ashlar__device_leave_relaxed(ops->device);
    return result == CUBLAS_STATUS_SUCCESS ? ASHLAR_OK
                                           : fail_cublas(c->cublas, "cublasCreate", result);
}

static ashlar_status find_work_bytes(const ashlar_ops *ops, cuda_ops *c) {
    ashlar_driver *driver = ops->device->driver;
    int major;
    const cu_result result =
        ASHLAR_DRIVER_CALL(driver, device_get_attribute,
                           (&major, CU_ATTRIBUTE_CAPABILITY_MAJOR, ops->device->info.ordinal));
    if (result != CU_SUCCESS) {
        return ashlar__driver_error(driver, "cuDeviceGetAttribute", result);
    }
    c->work_bytes = (size_t)(major >= 9 ? 32 : 4) << 20;
    return ASHLAR_OK;
}

static ashlar_status build(const ashlar_ops *ops, cuda_ops *c) {
    ASHLAR_TRY(open_cublas(&c->cublas));
    ASHLAR_TRY(find_work_bytes(ops, c));
    ASHLAR_TRY(ashlar__cuda_kernels_load(ops->device, &image, kernel_names[ops->dtype],
                                         KERNEL_COUNT, &c->module, c->kernels));
    const ashlar_status status = create_handle(ops, c);
    if (status != ASHLAR_OK) {
        ashlar__cuda_kernels_unload(ops->device, c->module);
    }
    return status;
}

static ashlar_status open_cuda(ashlar_ops *ops) {
    cuda_ops *c = ashlar__host_calloc(1, sizeof *c);
    if (c == NULL || pthread_mutex_init(&c->lock, NULL) != 0) {
        ashlar__host_free(c);
        return ashlar__fail(ASHLAR_EHOSTMEM, "no host memory for a model's operations");
    }
    const ashlar_status status = build(ops, c);
    if (status != ASHLAR_OK) {
        pthread_mutex_destroy(&c->lock);
        ashlar__host_free(c);
        return status;
    }
    ops->state = c;
    return ASHLAR_OK;
}

static void close_cuda(ashlar_ops *ops) {
    cuda_ops *c = ops->state;
    ashlar__cuda_kernels_unload(ops->device, c->module); /* waits for queued products too */
    if (ashlar__device_enter_relaxed(ops->device) == ASHLAR_OK) {
        (void)c->cublas->destroy(c->handle);
        ashlar__device_leave_relaxed(ops->device);
    }
    pthread_mutex_destroy(&c->lock);
    ashlar__host_free(c);
}

static size_t work_bytes(const ashlar_ops *ops) {
    const cuda_ops *c = ops->state;
    return c->work_bytes;
}

static ashlar_status check(ashlar_dtype dtype) {
    (void)dtype; /* kernels and cuBLAS support every type */
    return ASHLAR_OK;
}

/* Launch one kernel. The device's context must be current. */
static ashlar_status launch(const ashlar_ops *ops, int kernel, size_t blocks, const void *args,
                            ashlar_stream stream) {
    const cuda_ops *c = ops->state;
    return ashlar__cuda_kernels_launch(ops->device, c->kernels[kernel],
                                       kernel_names[ops->dtype][kernel], blocks, ASHLAR_OPS_THREADS,
                                       args, stream);
}

static size_t divide_up(size_t count, size_t by) {
    return count / by + (count % by != 0);
}

/* A matrix: its first element, and the elements from one row to the next. */
typedef struct matrix {
    const void *data;
    size_t stride;
} matrix;

/* `count` rows of `width` elements in `a`, each with a counterpart in `b`: a thread moves whole
 * vectors of them if both matrices are aligned for it. */
static ashlar_rows rows_of(const ashlar_ops *ops, size_t count, size_t width, matrix a, matrix b) {
    const size_t item = ashlar_dtype_bytes(ops->dtype), vector = ASHLAR_OPS_VECTOR_BYTES;
    const bool is_wide = (uintptr_t)a.data % vector == 0 && (uintptr_t)b.data % vector == 0 &&
                         a.stride * item % vector == 0 && b.stride * item % vector == 0 &&
                         width * item % vector == 0;
    return (ashlar_rows){
        .count = count, .units = is_wide ? width * item / vector : width, .is_wide = is_wide};
}

static ashlar_status queue_lookup(const ashlar_ops *ops, const ashlar_embedding_args *args,
                                  ashlar_stream stream) {
    ashlar_lookup_args lookup = {.embedding = *args,
                                 .rows = rows_of(ops, args->steps * args->batch, args->width,
                                                 (matrix){args->table, args->width},
                                                 (matrix){args->out, args->width})};
    const size_t blocks = ashlar__rows_share(&lookup.rows, ASHLAR_OPS_EACH);
    return launch(ops, KERNEL_embedding_forward, blocks, &lookup, stream);
}

static ashlar_status queue_copy(const ashlar_ops *ops, const ashlar_columns_args *args,
                                ashlar_stream stream) {
    ashlar_copy_args copy = {.columns = *args,
                             .rows = rows_of(ops, args->rows, args->width,
                                             (matrix){args->from, args->from_stride},
                                             (matrix){args->to, args->to_stride})};
    const size_t blocks = ashlar__rows_share(&copy.rows, ASHLAR_OPS_EACH);
    return launch(ops, KERNEL_copy_columns, blocks, &copy, stream);
}

static ashlar_status queue_map(const ashlar_ops *ops, const ashlar_map_args *args,
                               ashlar_stream stream) {
    const size_t item = ashlar_dtype_bytes(ops->dtype), vector = ASHLAR_OPS_VECTOR_BYTES;
    const uintptr_t places = (uintptr_t)args->a | (uintptr_t)args->b | (uintptr_t)args->out;
    const bool is_wide = places % vector == 0 && args->count * item % vector == 0;
    const ashlar_mapped_args mapped = {.map = *args,
                                       .units = is_wide ? args->count * item / vector : args->count,
                                       .is_wide = is_wide};
    return launch(ops, KERNEL_map, divide_up(mapped.units, ASHLAR_OPS_THREADS), &mapped, stream);
}

static ashlar_status queue_scale(const ashlar_ops *ops, const ashlar_scale_rows_args *args,
                                 ashlar_stream stream) {
    ashlar_scaled_args scaled = {.scale = *args,
                                 .rows = {.count = args->rows, .units = args->width}};
    const size_t blocks = ashlar__rows_share(&scaled.rows, ASHLAR_OPS_EACH);
    return launch(ops, KERNEL_scale_rows, blocks, &scaled, stream);
}

static ashlar_status queue_drop(const ashlar_ops *ops, const ashlar_drop_args *args,
                                ashlar_stream stream) {
    ashlar_dropped_args dropped = {
        .drop = *args,
        .rows = {.count = args->steps * args->batch,
                 .units = divide_up(args->width, ASHLAR_DROPOUT_DRAWS) * ASHLAR_DROPOUT_LANES}};
    const size_t blocks = ashlar__rows_share(&dropped.rows, 1);
    return launch(ops, KERNEL_drop, blocks, &dropped, stream);
}

static ashlar_status queue_swap(const ashlar_ops *ops, const ashlar_swap_args *args,
                                ashlar_stream stream) {
    ashlar_swapped_args swapped = {.swap = *args,
                                   .rows = rows_of(ops, args->outer * args->inner, args->width,
                                                   (matrix){args->from, args->width},
                                                   (matrix){args->to, args->width})};
    const size_t blocks = ashlar__rows_share(&swapped.rows, ASHLAR_OPS_EACH);
    return launch(ops, KERNEL_swap, blocks, &swapped, stream);
}

/* Define the queueing of a kernel with the operation's arguments. */
#define DEFINE_QUEUE(op, kind, blocks)                                                       \
    static ashlar_status queue_##op(const ashlar_ops *ops, const ashlar_##kind##_args *args, \
                                    ashlar_stream stream) {                                  \
        return launch(ops, KERNEL_##op, blocks, args, stream);                               \
    }
DEFINE_QUEUE(argmax, argmax, args->rows)
DEFINE_QUEUE(row_products, row_products, args->rows)
DEFINE_QUEUE(softmax, softmax, args->rows)
DEFINE_QUEUE(softmax_back, softmax_back, args->rows)
DEFINE_QUEUE(pool, pool, divide_up(args->batch * args->width, ASHLAR_OPS_THREADS))
DEFINE_QUEUE(pool_back, pool_back, divide_up(args->batch * args->width, ASHLAR_OPS_THREADS))
DEFINE_QUEUE(clip_lengths, clip_lengths, divide_up(args->batch, ASHLAR_OPS_THREADS))

/* Define an operation that only queues its kernel. */
#define DEFINE_SIMPLE(op, kind, queue)                                               \
    static ashlar_status op(const ashlar_ops *ops, const ashlar_##kind##_args *args, \
                            ashlar_stream stream) {                                  \
        ASHLAR_TRY(ashlar__device_enter(ops->device));                               \
        const ashlar_status status = queue(ops, args, stream);                       \
        ashlar__device_leave(ops->device);                                           \
        return status;                                                               \
    }
DEFINE_SIMPLE(embedding_forward, embedding, queue_lookup)
DEFINE_SIMPLE(copy_columns, columns, queue_copy)
DEFINE_SIMPLE(argmax, argmax, queue_argmax)
DEFINE_SIMPLE(map, map, queue_map)
DEFINE_SIMPLE(scale_rows, scale_rows, queue_scale)
DEFINE_SIMPLE(row_products, row_products, queue_row_products)
DEFINE_SIMPLE(softmax, softmax, queue_softmax)
DEFINE_SIMPLE(softmax_back, softmax_back, queue_softmax_back)
DEFINE_SIMPLE(drop, drop, queue_drop)
DEFINE_SIMPLE(pool, pool, queue_pool)
DEFINE_SIMPLE(pool_back, pool_back, queue_pool_back)
DEFINE_SIMPLE(swap, swap, queue_swap)
DEFINE_SIMPLE(clip_lengths, clip_lengths, queue_clip_lengths)

/* embedding_backward compares every position's token in each of its blocks. Beyond this many blocks
 * it is faster to link the positions of each token first: docs/kernels.md has the estimate. */
enum { BLOCKS_THAT_COMPARE_MAX = 4096 };

/* Link the positions of each token, in the operations' workspace, and add up the gradients along
 * the links. The device's context must be current. */
static ashlar_status add_along_links(const ashlar_ops *ops, const ashlar_embedding_args *args,
                                     size_t positions, ashlar_stream stream) {
    ashlar_driver *driver = ops->device->driver;
    ashlar_chain_args chain = {.embedding = *args,
                               .newest = ops->work,
                               .links = (uint32_t *)ops->work + args->classes,
                               .rows = rows_of(ops, positions, args->width,
                                               (matrix){args->dout, args->width},
                                               (matrix){args->dtable, args->width})};
    const size_t blocks = ashlar__rows_share(&chain.rows, 1);
    const cu_result cleared = ASHLAR_DRIVER_CALL(
        driver, memset_d8_async,
        (ashlar__ptr_in(ops->work), 0, args->classes * sizeof *chain.newest, stream));
    if (cleared != CU_SUCCESS) {
        return ashlar__driver_error(driver, "cuMemsetD8Async", cleared);
    }
    ASHLAR_TRY(launch(ops, KERNEL_embedding_link, 1, &chain, stream));
    return launch(ops, KERNEL_embedding_add, blocks, &chain, stream);
}

static ashlar_status embedding_backward(const ashlar_ops *ops, const ashlar_embedding_args *args,
                                        ashlar_stream stream) {
    const size_t positions = args->steps * args->batch;
    const size_t blocks = args->classes * divide_up(args->width, ASHLAR_OPS_THREADS);
    const size_t links_max = ops->work_bytes / sizeof(uint32_t);
    const bool has_room = args->classes < links_max && positions <= links_max - args->classes;
    ASHLAR_TRY(ashlar__device_enter(ops->device));
    const ashlar_status status = blocks > BLOCKS_THAT_COMPARE_MAX && has_room
                                     ? add_along_links(ops, args, positions, stream)
                                     : launch(ops, KERNEL_embedding_backward, blocks, args, stream);
    ashlar__device_leave(ops->device);
    return status;
}

/* A loss's workspace: the number of valid positions, then each position's loss. */
static size_t loss_work_bytes(size_t positions) {
    return (1 + positions) * sizeof(double);
}

static ashlar_status cross_entropy(const ashlar_ops *ops, const ashlar_cross_entropy_args *args,
                                   ashlar_stream stream) {
    const ashlar_loss_count_args count = {.steps = args->steps,
                                          .batch = args->batch,
                                          .classes = args->classes,
                                          .lengths = args->lengths,
                                          .targets = args->targets,
                                          .class_weights = args->class_weights,
                                          .position_weights = args->position_weights,
                                          .factor = 1,
                                          .work = args->work};
    const int kernel = args->smoothing > 0 ? KERNEL_cross_entropy_smooth : KERNEL_cross_entropy;
    ASHLAR_TRY(ashlar__device_enter(ops->device));
    const bool is_given = args->weight_at == NULL && args->weight != 0;
    ashlar_status status = is_given ? ASHLAR_OK : launch(ops, KERNEL_loss_count, 1, &count, stream);
    ASHLAR_THEN(status, launch(ops, kernel, args->steps * args->batch, args, stream));
    if (args->loss != NULL) {
        ASHLAR_THEN(status, launch(ops, KERNEL_loss_sum, 1, args, stream));
    }
    ashlar__device_leave(ops->device);
    return status;
}

static ashlar_status squared_error(const ashlar_ops *ops, const ashlar_squared_error_args *given,
                                   ashlar_stream stream) {
    ashlar_squared_error_args args = *given;
    const ashlar_loss_count_args count = {.steps = args.steps,
                                          .batch = args.batch,
                                          .lengths = args.lengths,
                                          .position_weights = args.mask,
                                          .is_mask = true,
                                          .factor = (double)args.width,
                                          .work = args.work};
    const int kernel =
        args.kind == ASHLAR_ELEMENT_SQUARED ? KERNEL_squared_error : KERNEL_element_loss;
    bool is_given = args.weight_at == NULL && args.weight != 0;
    if (!is_given && args.weight_at == NULL && args.lengths == NULL && args.mask == NULL) {
        args.weight = 1 / ((double)args.steps * (double)args.batch * (double)args.width);
        is_given = true;
    }
    const ashlar_cross_entropy_args sum = {.steps = args.steps,
                                           .batch = args.batch,
                                           .weight = args.weight,
                                           .weight_at = args.weight_at,
                                           .factor = args.factor,
                                           .work = args.work,
                                           .loss = args.loss,
                                           .losses = args.losses};
    ASHLAR_TRY(ashlar__device_enter(ops->device));
    ashlar_status status = is_given ? ASHLAR_OK : launch(ops, KERNEL_loss_count, 1, &count, stream);
    ASHLAR_THEN(status, launch(ops, kernel, args.steps * args.batch, &args, stream));
    if (args.loss != NULL) {
        ASHLAR_THEN(status, launch(ops, KERNEL_loss_sum, 1, &sum, stream));
    }
    ashlar__device_leave(ops->device);
    return status;
}

static ashlar_status add_losses(const ashlar_ops *ops, const ashlar_add_losses_args *args,
                                ashlar_stream stream) {
    const ashlar_cross_entropy_args sum = {.steps = args->positions,
                                           .batch = 1,
                                           .weight = args->weight,
                                           .weight_at = args->weight_at,
                                           .factor = args->factor,
                                           .loss = args->loss,
                                           .losses = args->losses};
    ASHLAR_TRY(ashlar__device_enter(ops->device));
    const ashlar_status status = launch(ops, KERNEL_loss_sum, 1, &sum, stream);
    ashlar__device_leave(ops->device);
    return status;
}

/* A factor of a product, stored row-major with rows `width` elements apart. */
typedef struct factor {
    const void *data;
    size_t width;
    bool is_transposed;
} factor;

/* c [m, n] = a [m, k] b [k, n], or c += if `adds`, all row-major. cuBLAS is column-major and sees
 * the transpose of each matrix, so it computes c^T = b^T a^T. The lock must be held and the
 * device's context current. */
static ashlar_status multiply(const ashlar_ops *ops, size_t m, size_t n, size_t k, const factor *a,
                              const factor *b, bool adds, void *out) {
    static const cudaDataType_t types[] = {[ASHLAR_F32] = CUDA_R_32F,
                                           [ASHLAR_F64] = CUDA_R_64F,
                                           [ASHLAR_F16] = CUDA_R_16F,
                                           [ASHLAR_BF16] = CUDA_R_16BF};
    ASHLAR_TABLE_IS_FULL(types, ASHLAR_DTYPE_COUNT);
    /* PEDANTIC: in fp32, never in TF32, not even if the environment asks for it. */
    static const cublasComputeType_t computes[] = {[ASHLAR_F32] = CUBLAS_COMPUTE_32F_PEDANTIC,
                                                   [ASHLAR_F64] = CUBLAS_COMPUTE_64F,
                                                   [ASHLAR_F16] = CUBLAS_COMPUTE_32F,
                                                   [ASHLAR_BF16] = CUBLAS_COMPUTE_32F};
    ASHLAR_TABLE_IS_FULL(computes, ASHLAR_DTYPE_COUNT);
    static const float one32 = 1, zero32 = 0;
    static const double one64 = 1, zero64 = 0;
    const cuda_ops *c = ops->state;
    const bool is_f64 = ops->dtype == ASHLAR_F64;
    const void *one = is_f64 ? (const void *)&one64 : &one32;
    const void *zero = is_f64 ? (const void *)&zero64 : &zero32;
    const cudaDataType_t type = types[ops->dtype];
    const cublasStatus_t result = c->cublas->gemm(
        c->handle, b->is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
        a->is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, (int)n, (int)m, (int)k, one, b->data, type,
        (int)b->width, a->data, type, (int)a->width, adds ? one : zero, out, type, (int)n,
        computes[ops->dtype], CUBLAS_GEMM_DEFAULT);
    return result == CUBLAS_STATUS_SUCCESS ? ASHLAR_OK
                                           : fail_cublas(c->cublas, "cublasGemmEx", result);
}

/* Set the handle's stream and then its workspace: cublasSetStream() resets the workspace. The lock
 * must be held and the device's context current. */
static ashlar_status prepare_handle(const ashlar_ops *ops, ashlar_stream stream) {
    const cuda_ops *c = ops->state;
    cublasStatus_t result = c->cublas->set_stream(c->handle, (cudaStream_t)stream);
    if (result != CUBLAS_STATUS_SUCCESS) {
        return fail_cublas(c->cublas, "cublasSetStream", result);
    }
    if (ops->work != NULL) {
        result = c->cublas->set_workspace(c->handle, ops->work, ops->work_bytes);
    }
    return result == CUBLAS_STATUS_SUCCESS ? ASHLAR_OK
                                           : fail_cublas(c->cublas, "cublasSetWorkspace", result);
}

static void unlock(const ashlar_ops *ops) {
    cuda_ops *c = ops->state;
    ashlar__device_leave(ops->device);
    pthread_mutex_unlock(&c->lock);
}

/* Lock cuBLAS's handle, make the device's context current, and prepare the handle. */
static ashlar_status lock(const ashlar_ops *ops, const ashlar_linear_args *args,
                          ashlar_stream stream) {
    cuda_ops *c = ops->state;
    ASHLAR_FAIL_IF(args->rows > INT32_MAX || args->in > INT32_MAX || args->out > INT32_MAX,
                   ASHLAR_EOVERFLOW,
                   "ops: a linear layer of %zu rows, %zu to %zu, is too large for cuBLAS",
                   args->rows, args->in, args->out);
    pthread_mutex_lock(&c->lock);
    ashlar_status status = ashlar__device_enter(ops->device);
    if (status != ASHLAR_OK) {
        pthread_mutex_unlock(&c->lock);
        return status;
    }
    status = prepare_handle(ops, stream);
    if (status != ASHLAR_OK) {
        unlock(ops);
    }
    return status;
}

static ashlar_status linear_forward(const ashlar_ops *ops, const ashlar_linear_args *args,
                                    ashlar_stream stream) {
    const factor x = {args->x, args->in, false};
    const factor weight = {args->weight, args->in, true};
    const ashlar_columns_args bias_to_y = {.rows = args->rows,
                                           .width = args->out,
                                           .from = args->bias,
                                           .from_stride = 0,
                                           .to = args->y,
                                           .to_stride = args->out};
    ashlar_status status = ASHLAR_OK;
    ASHLAR_TRY(lock(ops, args, stream));
    if (args->bias != NULL) {
        status = queue_copy(ops, &bias_to_y, stream);
    }
    ASHLAR_THEN(status, multiply(ops, args->rows, args->out, args->in, &x, &weight,
                                 args->bias != NULL, args->y));
    unlock(ops);
    return status;
}

/* Queue those gradients of a linear layer that are wanted. The lock must be held. */
static ashlar_status queue_backward(const ashlar_ops *ops, const ashlar_linear_args *args,
                                    ashlar_stream stream) {
    const factor x = {args->x, args->in, false};
    const factor weight = {args->weight, args->in, false};
    const factor dy = {args->dy, args->out, false}, dy_transposed = {args->dy, args->out, true};
    ashlar_status status = ASHLAR_OK;
    if (args->dx != NULL) {
        status = multiply(ops, args->rows, args->in, args->out, &dy, &weight, false, args->dx);
    }
    if (status == ASHLAR_OK && args->dweight != NULL) {
        status =
            multiply(ops, args->out, args->in, args->rows, &dy_transposed, &x, true, args->dweight);
    }
    if (status == ASHLAR_OK && args->dbias != NULL) {
        status = launch(ops, KERNEL_bias_backward, divide_up(args->out, ASHLAR_OPS_COLUMNS), args,
                        stream);
    }
    return status;
}

static ashlar_status linear_backward(const ashlar_ops *ops, const ashlar_linear_args *args,
                                     ashlar_stream stream) {
    ashlar_status status = lock(ops, args, stream);
    if (status == ASHLAR_OK) {
        status = queue_backward(ops, args, stream);
        unlock(ops);
    }
    return status;
}

#define ROW(op, kind) .op = op,
const ashlar_ops_backend ashlar__ops_backend_cuda = {.name = "cuda",
                                                     .open = open_cuda,
                                                     .close = close_cuda,
                                                     .check = check,
                                                     .loss_work_bytes = loss_work_bytes,
                                                     .work_bytes = work_bytes,
                                                     ASHLAR_OPS_MAP(ROW)};
