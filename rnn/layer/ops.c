/* ops.c - the operations of a model around its layers: checks their arguments, chooses a back end,
 * and queues them on the CPU as host functions. */
#include "rnn/layer/ops.h"

#include "allocator/base/host.h"
#include "allocator/device/device_impl.h"
#include "allocator/soft/soft.h"

enum { WORK_ALIGN = 256 }; /* which cuBLAS requires of its workspace */

static ashlar_status check_cpu(ashlar_dtype dtype) {
    return dtype == ASHLAR_F32 || dtype == ASHLAR_F64
               ? ASHLAR_OK
               : ashlar__fail(
                     ASHLAR_ENOTSUP,
                     "ops: the CPU computes in ASHLAR_F32 and ASHLAR_F64 only; ASHLAR_%s is "
                     "for GPUs",
                     ashlar_dtype_name(dtype));
}

static size_t no_work_bytes(size_t positions) {
    (void)positions;
    return 0;
}

static size_t use_no_work(const ashlar_ops *ops) {
    (void)ops;
    return 0;
}

/* The CPU's function that queues an operation. ashlar_launch() copies the arguments. */
#define QUEUE_OP(op, kind)                                                                     \
    static void run_##op##_f32(void *args) {                                                   \
        ashlar__##op##_f32(args);                                                              \
    }                                                                                          \
    static void run_##op##_f64(void *args) {                                                   \
        ashlar__##op##_f64(args);                                                              \
    }                                                                                          \
    static ashlar_status queue_##op(const ashlar_ops *ops, const ashlar_##kind##_args *args,   \
                                    ashlar_stream stream) {                                    \
        ashlar__soft_name(#op);                                                                \
        return ashlar_launch(ops->device, stream,                                              \
                             ops->dtype == ASHLAR_F32 ? run_##op##_f32 : run_##op##_f64, args, \
                             sizeof *args);                                                    \
    }

ASHLAR_OPS_MAP(QUEUE_OP)

#define ROW(op, kind) .op = queue_##op,
const ashlar_ops_backend ashlar__ops_backend_cpu = {.name = "cpu",
                                                    .check = check_cpu,
                                                    .loss_work_bytes = no_work_bytes,
                                                    .work_bytes = use_no_work,
                                                    ASHLAR_OPS_MAP(ROW)};

ashlar_status ashlar_ops_create(ashlar_device *device, ashlar_dtype dtype, ashlar_ops **out) {
    const ashlar_device_info info = ashlar_device_get_info(device);
    const ashlar_ops_backend *backend =
        info.kind == ASHLAR_DEVICE_CUDA ? &ashlar__ops_backend_cuda : &ashlar__ops_backend_cpu;
    ASHLAR_FAIL_IF(ashlar_dtype_bytes(dtype) == 0, ASHLAR_EINVAL,
                   "ops: %d is no type of elements; give ASHLAR_F32 or another of base.h",
                   (int)dtype);
    ASHLAR_TRY(backend->check(dtype));
    ashlar_ops *ops;
    ASHLAR_HOST_NEW(ops, 1, "no host memory for a model's operations");
    *ops = (ashlar_ops){.device = device, .backend = backend, .dtype = dtype};
    const ashlar_status status = backend->open != NULL ? backend->open(ops) : ASHLAR_OK;
    ASHLAR_HAND_OUT(status, ops, ashlar__host_free, out);
}

void ashlar_ops_destroy(ashlar_ops *ops) {
    if (ops == NULL) {
        return;
    }
    if (ops->backend->close != NULL) {
        ops->backend->close(ops);
    }
    ashlar__host_free(ops);
}

ashlar_ops_need ashlar_ops_get_need(const ashlar_ops *ops, size_t positions) {
    return (ashlar_ops_need){.work_bytes = ops->backend->work_bytes(ops),
                             .loss_work_bytes = ops->backend->loss_work_bytes(positions)};
}

ashlar_status ashlar_ops_set_work(ashlar_ops *ops, void *work, size_t bytes) {
    ASHLAR_FAIL_IF((uintptr_t)work % WORK_ALIGN != 0, ASHLAR_EINVAL,
                   "ashlar_ops_set_work: work is not aligned to %d bytes", WORK_ALIGN);
    ASHLAR_FAIL_IF(work != NULL && bytes == 0, ASHLAR_EINVAL, "ashlar_ops_set_work: bytes is 0");
    ops->work = work;
    ops->work_bytes = work != NULL ? bytes : 0;
    return ASHLAR_OK;
}

ashlar_status ashlar__ops_take_work(ashlar_ops *ops, ashlar_allocator *allocator,
                                    ashlar_stream stream, void **work) {
    const size_t bytes = ops->backend->work_bytes(ops);
    if (bytes == 0) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(ashlar_alloc_tagged(allocator, bytes, ASHLAR_TAG_WORKSPACE, stream, work));
    return ashlar_ops_set_work(ops, *work, bytes);
}

/* ---- arguments ---- */

/* A buffer of an operation, [rows, width]. MAY: it may be NULL. NEED: it must be given. NEED_IF: it
 * must be given if the condition holds, and is not used otherwise. */
#define MAY(field, rows, width, item) \
    { #field, args->field, ashlar__operand_bytes(rows, width, item), false }
#define NEED_IF(condition, field, rows, width, item) \
    { #field, args->field, (condition) ? ashlar__operand_bytes(rows, width, item) : 0, condition }
#define NEED(field, rows, width, item) NEED_IF(true, field, rows, width, item)
#define LENGTHS() MAY(lengths, args->batch, 1, sizeof(int32_t))
#define LOSS(at)                                                                                   \
    NEED_IF(ops->backend->loss_work_bytes(at) > 0, work, 1, 1, ops->backend->loss_work_bytes(at)), \
        MAY(scale, 1, 1, sizeof(double)), NEED(loss, 1, 1, sizeof(double)),                        \
        MAY(losses, at, 1, sizeof(double))

static size_t positions(size_t steps, size_t batch) {
    return ashlar__operand_bytes(steps, batch, 1);
}

static bool has_batch(size_t steps, size_t batch, size_t width) {
    return steps > 0 && batch > 0 && width > 0;
}

/* The bytes from the start of the first row to the end of the last; stride: between row starts. */
static size_t strided_bytes(size_t rows, size_t stride, size_t width, size_t item) {
    const size_t before = ashlar__operand_bytes(rows - 1, stride, item);
    size_t last, bytes;
    return ashlar__mul(width, item, &last) && ashlar__add(before, last, &bytes) ? bytes : SIZE_MAX;
}

/* Check that no size is 0 (has_sizes says so), the numbers, and the buffers. */
#define DEFINE_CHECK_OF(op, kind, has_sizes, is_right, wrong, ...)                             \
    static ashlar_status check_##op(const ashlar_ops *ops, const ashlar_##kind##_args *args) { \
        const size_t item = ashlar_dtype_bytes(ops->dtype);                                    \
        ASHLAR_FAIL_IF(!(has_sizes), ASHLAR_EINVAL, "ashlar_" #op ": a size is 0");            \
        ASHLAR_FAIL_IF(!(is_right), ASHLAR_EINVAL, "ashlar_" #op ": " wrong);                  \
        return ashlar__check_operands(ops->device, "ashlar_" #op,                              \
                                      (const ashlar_operand[]){__VA_ARGS__, {0}});             \
    }

#define DEFINE_CHECK(op, kind, has_sizes, ...) \
    DEFINE_CHECK_OF(op, kind, has_sizes, true, "", __VA_ARGS__)

DEFINE_CHECK(embedding_forward, embedding,
             has_batch(args->steps, args->batch, args->width) && args->classes > 0, LENGTHS(),
             NEED(tokens, args->steps, args->batch, sizeof(int32_t)),
             NEED(table, args->classes, args->width, item),
             NEED(out, positions(args->steps, args->batch), args->width, item))
DEFINE_CHECK(embedding_backward, embedding,
             has_batch(args->steps, args->batch, args->width) && args->classes > 0, LENGTHS(),
             NEED(tokens, args->steps, args->batch, sizeof(int32_t)),
             NEED(dout, positions(args->steps, args->batch), args->width, item),
             NEED(dtable, args->classes, args->width, item))
DEFINE_CHECK(linear_forward, linear, has_batch(args->rows, args->in, args->out),
             NEED(x, args->rows, args->in, item), NEED(weight, args->out, args->in, item),
             MAY(bias, args->out, 1, item), NEED(y, args->rows, args->out, item))
DEFINE_CHECK(linear_backward, linear, has_batch(args->rows, args->in, args->out),
             NEED(dy, args->rows, args->out, item),
             NEED_IF(args->dx != NULL, weight, args->out, args->in, item),
             NEED_IF(args->dweight != NULL, x, args->rows, args->in, item),
             MAY(dx, args->rows, args->in, item), MAY(dweight, args->out, args->in, item),
             MAY(dbias, args->out, 1, item))
DEFINE_CHECK_OF(cross_entropy, cross_entropy, has_batch(args->steps, args->batch, args->classes),
                args->smoothing >= 0 && args->smoothing <= 1, "smoothing is not in 0..1", LENGTHS(),
                NEED(logits, positions(args->steps, args->batch), args->classes, item),
                NEED(targets, args->steps, args->batch, sizeof(int32_t)),
                MAY(weight_at, 1, 1, sizeof(double)), MAY(class_weights, args->classes, 1, item),
                MAY(position_weights, args->steps, args->batch, item),
                MAY(dlogits, positions(args->steps, args->batch), args->classes, item),
                LOSS(positions(args->steps, args->batch)))
DEFINE_CHECK_OF(squared_error, squared_error, has_batch(args->steps, args->batch, args->width),
                (unsigned)args->kind < ASHLAR_ELEMENT_LOSS_COUNT &&
                    (args->kind != ASHLAR_ELEMENT_HUBER || args->delta > 0),
                "kind or delta", LENGTHS(),
                NEED(outputs, positions(args->steps, args->batch), args->width, item),
                NEED(targets, positions(args->steps, args->batch), args->width, item),
                MAY(mask, args->steps, args->batch, item), MAY(weight_at, 1, 1, sizeof(double)),
                MAY(doutputs, positions(args->steps, args->batch), args->width, item),
                LOSS(positions(args->steps, args->batch)))
DEFINE_CHECK(copy_columns, columns,
             args->rows > 0 && args->width > 0 && args->from_stride >= args->width &&
                 args->to_stride >= args->width,
             NEED(from, 1, 1, strided_bytes(args->rows, args->from_stride, args->width, item)),
             NEED(to, 1, 1, strided_bytes(args->rows, args->to_stride, args->width, item)))
DEFINE_CHECK(argmax, argmax, args->rows > 0 && args->classes > 0,
             NEED(logits, args->rows, args->classes, item),
             NEED(labels, args->rows, 1, sizeof(int32_t)))

#define DEFINE_OP(op, kind)                                                             \
    ashlar_status ashlar_##op(const ashlar_ops *ops, const ashlar_##kind##_args *given, \
                              ashlar_stream stream) {                                   \
        const ashlar_##kind##_args args = ASHLAR_OR_ZERO(ashlar_##kind##_args, given);  \
        ASHLAR_TRY(check_##op(ops, &args));                                             \
        return ops->backend->op(ops, &args, stream);                                    \
    }
ASHLAR_OPS_PUBLIC_MAP(DEFINE_OP)

#define DEFINE_UNCHECKED(op, kind)                                                          \
    ashlar_status ashlar__ops_##op(const ashlar_ops *ops, const ashlar_##kind##_args *args, \
                                   ashlar_stream stream) {                                  \
        return ops->backend->op(ops, args, stream);                                         \
    }
ASHLAR_OPS_MAP(DEFINE_UNCHECKED)
