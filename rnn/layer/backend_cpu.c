/* backend_cpu.c - the CPU's back end for RNNs: queues passes, and prepared linear layers, as host
 * functions on a stream, or runs them at once where there is no device, with the loops for the best
 * instruction set of the processor. */
#include "allocator/base/checked.h"
#include "allocator/base/host.h"
#include "allocator/device/device_impl.h"
#include "allocator/soft/soft.h"
#include "arena/compute/element.h"
#include "arena/compute/workers.h"
#include "rnn/layer/rnn_cpu.h"

const ashlar_rnn_loops *ashlar__rnn_loops_of(ashlar_dtype dtype) {
#define ROW(set)                                  \
    {[ASHLAR_F32] = &ashlar__rnn_loops_f32_##set, \
     [ASHLAR_F64] = &ASHLAR_F64_NAME(ashlar__rnn_loops_f64_, set)},
    static const ashlar_rnn_loops *const sets[][ASHLAR_DTYPE_COUNT] = {ASHLAR_SETS(ROW)};
    return sets[ashlar__best_set()][dtype];
}

/* The arguments of a queued pass. ashlar_launch() copies all of them, lengths included. */
typedef struct call {
    ashlar_rnn_cpu_pass *run;
    ashlar_rnn_layout layout;
    ashlar_rnn_cpu_args args; /* run_call() sets its layout and lengths to the copies here */
    ashlar_rnn_varying varying;
    int32_t lengths[]; /* [B]; empty if varying.lengths is given */
} call;

/* Run a queued pass. A graph may run it again, so it must not change the arguments. */
static void run_call(void *copied) {
    const call *c = copied;
    ashlar_rnn_cpu_args args = c->args;
    args.layout = &c->layout;
    args.lengths = c->varying.lengths != NULL ? c->varying.lengths : c->lengths;
    args.dropout_seed += c->varying.seed != NULL ? *c->varying.seed : 0;
    c->run(&args);
}

static ashlar_status check(const ashlar_rnn_layout *layout) {
    const ashlar_dtype dtype = layout->config.dtype;
    ASHLAR_FAIL_IF(ashlar__rnn_loops_of(dtype) == NULL, ASHLAR_ENOTSUP,
                   "rnn: the CPU computes in ASHLAR_F32 and ASHLAR_F64 only; ASHLAR_%s is for GPUs",
                   ashlar_dtype_name(dtype));
    ASHLAR_TRY(ashlar__workers_check());
    return ashlar__instruction_set_check();
}

/* Run fn(args) in the stream's order; without a device, now. */
static ashlar_status launch(const ashlar_rnn *rnn, ashlar_stream stream, const char *name,
                            void (*fn)(void *), void *args, size_t args_bytes) {
    if (rnn->device != NULL) {
        ashlar__soft_name(name);
        return ashlar_launch(rnn->device, stream, fn, args, args_bytes);
    }
    fn(args);
    return ASHLAR_OK;
}

/* Without a device there are no later calls that could tell of a pass that did not run. */
static ashlar_status check_now(const ashlar_rnn *rnn, ashlar_rnn_pass pass,
                               const ashlar_rnn_buffers *b) {
    const char *const fault = rnn->device != NULL || pass == ASHLAR_RNN_FORWARD
                                  ? NULL
                                  : ashlar__rnn_reserve_fault(b->reserve, pass);
    ASHLAR_FAIL_IF(fault != NULL, ASHLAR_EINVAL, "%s", fault);
    return ASHLAR_OK;
}

static ashlar_status queue_varying(const ashlar_rnn *rnn, ashlar_rnn_pass pass,
                                   const ashlar_rnn_batch *batch, const ashlar_rnn_buffers *buffers,
                                   const ashlar_rnn_varying *varying, ashlar_stream stream) {
    const size_t count = varying->lengths == NULL ? batch->batch : 0;
    size_t lengths_bytes, bytes;
    call *c = NULL;
    ASHLAR_TRY(check_now(rnn, pass, buffers));
    if (ashlar__mul(count, sizeof c->lengths[0], &lengths_bytes) &&
        ashlar__add(sizeof *c, lengths_bytes, &bytes)) {
        c = ashlar__host_calloc(1, bytes);
    }
    ASHLAR_FAIL_IF(c == NULL, ASHLAR_EHOSTMEM, "no host memory to queue a batch of %zu",
                   batch->batch);
    c->run = ashlar__rnn_loops_of(rnn->layout.config.dtype)->passes[pass];
    c->layout = rnn->layout;
    c->args = (ashlar_rnn_cpu_args){.steps = batch->steps,
                                    .batch = batch->batch,
                                    .dropout_seed = batch->dropout_seed,
                                    .dropout_first = batch->dropout_first,
                                    .dropout_stride = batch->dropout_stride,
                                    .rows_are_packed = batch->is_packed,
                                    .b = *buffers};
    c->args.layout = &rnn->layout;
    c->args.is_bf16 = rnn->prepares_bf16 && ashlar__rnn_is_step(&c->args);
    c->args.b.prepared = rnn->prepares_bf16 && !c->args.is_bf16 ? NULL : buffers->prepared;
    c->varying = *varying;
    for (size_t b = 0; b < count; b++) {
        c->lengths[b] = batch->lengths != NULL ? batch->lengths[b] : (int32_t)batch->steps;
    }
    static const char *const names[] = {[ASHLAR_RNN_FORWARD] = "rnn_forward",
                                        [ASHLAR_RNN_BACKWARD_DATA] = "rnn_backward_data",
                                        [ASHLAR_RNN_BACKWARD_WEIGHTS] = "rnn_backward_weights"};
    ASHLAR_TABLE_IS_FULL(names, ASHLAR_RNN_PASS_COUNT);
    const ashlar_status status = launch(rnn, stream, names[pass], run_call, c, bytes);
    ashlar__host_free(c);
    return status;
}

static ashlar_status queue(const ashlar_rnn *rnn, ashlar_rnn_pass pass,
                           const ashlar_rnn_batch *batch, const ashlar_rnn_buffers *buffers,
                           ashlar_stream stream) {
    const ashlar_rnn_varying nothing = {0};
    return queue_varying(rnn, pass, batch, buffers, &nothing, stream);
}

/* The arguments of queued work that prepares weights. */
typedef struct prepare_call {
    ashlar_rnn_prepare_function *run;
    ashlar_rnn_layout layout;
    ashlar_prepare_args args; /* run_prepare() sets its layout to the copy here */
} prepare_call;

static void run_prepare(void *copied) {
    const prepare_call *const c = copied;
    ashlar_prepare_args args = c->args;
    args.layout = &c->layout;
    c->run(&args);
}

static size_t prepared_bytes(const ashlar_rnn *rnn) {
    return ashlar__rnn_prepared_bytes(&rnn->layout, rnn->prepares_bf16);
}

static ashlar_status prepare(const ashlar_rnn *rnn, const void *weights, void *prepared,
                             ashlar_stream stream) {
    prepare_call c = {
        .run = ashlar__rnn_loops_of(rnn->layout.config.dtype)->prepare,
        .layout = rnn->layout,
        .args = {.is_bf16 = rnn->prepares_bf16, .weights = weights, .prepared = prepared}};
    const ashlar_operand operands[] = {
        {"weights", weights, rnn->layout.elements * ashlar_dtype_bytes(rnn->layout.config.dtype),
         true},
        {"prepared", prepared, prepared_bytes(rnn), true},
        {0}};
    ASHLAR_TRY(ashlar__check_operands(rnn->device, "ashlar_rnn_prepare", operands));
    return launch(rnn, stream, "rnn_prepare", run_prepare, &c, sizeof c);
}

/* ---- prepared linear layers ---- */

typedef struct linear_call {
    ashlar_linear_function *run;
    ashlar_prepared_linear linear;
} linear_call;

static void run_linear(void *copied) {
    const linear_call *const c = copied;
    c->run(&c->linear);
}

ashlar_status ashlar__linear_prepare(ashlar_device *device, const ashlar_prepared_linear *linear,
                                     ashlar_stream stream) {
    const linear_call c = {ashlar__rnn_loops_of(linear->dtype)->prepare_linear, *linear};
    ashlar__soft_name("linear_prepare");
    return ashlar_launch(device, stream, run_linear, &c, sizeof c);
}

ashlar_status ashlar__linear_run_prepared(ashlar_device *device,
                                          const ashlar_prepared_linear *linear,
                                          ashlar_stream stream) {
    const linear_call c = {ashlar__rnn_loops_of(linear->dtype)->linear, *linear};
    ashlar__soft_name("linear_prepared");
    return ashlar_launch(device, stream, run_linear, &c, sizeof c);
}

static ashlar_status sizes(const ashlar_rnn *rnn, size_t steps, size_t batch, bool training,
                           size_t *reserve_bytes, size_t *work_bytes) {
    return ashlar__rnn_cpu_sizes(&rnn->layout, steps, batch, training, reserve_bytes, work_bytes);
}

const ashlar_rnn_backend ashlar__rnn_backend_cpu = {.name = "cpu",
                                                    .check = check,
                                                    .sizes = sizes,
                                                    .prepared_bytes = prepared_bytes,
                                                    .prepare = prepare,
                                                    .queue = queue,
                                                    .queue_varying = queue_varying};
