/*
 * fake_cudnn_run.c - sizes and passes of the fake cuDNN: the CPU's, queued on the driver's stream.
 *
 * A pass checks what the real one only says in its documentation, above all that backward gets the
 * y, hx and cx of its forward again: their sums lie in the reserve.
 */
#include "tests/cuda/fake_cudnn_impl.h"

#include <stdlib.h>
#include <string.h>

#include "arena/compute/convert.h"
#include "rnn/layer/rnn_cpu.h"

enum { HEAD_BYTES = 64, EXTRA_WORK = 64 };

/* In front of the CPU's reserve. */
typedef struct head {
    uint64_t algorithm;
    uint64_t sums[3]; /* of y, hx, cx as forward left them */
} head;

static ashlar_dtype dtype_of(cudnnDataType_t type) {
    return type == CUDNN_DATA_DOUBLE  ? ASHLAR_F64
           : type == CUDNN_DATA_HALF  ? ASHLAR_F16
           : type == CUDNN_DATA_FLOAT ? ASHLAR_F32
                                      : ASHLAR_BF16;
}

static bool layout_of(const struct cudnnRNNStruct *rnn, ashlar_rnn_layout *layout) {
    static const ashlar_rnn_cell cells[] = {
        [CUDNN_LSTM] = ASHLAR_RNN_LSTM,
        [CUDNN_GRU] = ASHLAR_RNN_GRU,
        [CUDNN_RNN_TANH] = ASHLAR_RNN_TANH,
        [CUDNN_RNN_RELU] = ASHLAR_RNN_RELU,
    };
    static const ashlar_rnn_bias biases[] = {
        [CUDNN_RNN_DOUBLE_BIAS] = ASHLAR_RNN_BIAS_DOUBLE,
        [CUDNN_RNN_NO_BIAS] = ASHLAR_RNN_BIAS_NONE,
        [CUDNN_RNN_SINGLE_INP_BIAS] = ASHLAR_RNN_BIAS_INPUT,
        [CUDNN_RNN_SINGLE_REC_BIAS] = ASHLAR_RNN_BIAS_RECURRENT,
    };
    const ashlar_rnn_config config = {
        .input = (size_t)rnn->input,
        .hidden = (size_t)rnn->hidden,
        .layers = (size_t)rnn->layers,
        .dtype = rnn->type == CUDNN_DATA_DOUBLE ? ASHLAR_F64 : ASHLAR_F32,
        .cell = cells[rnn->cell],
        .bias = biases[rnn->bias],
        .directions = rnn->direction == CUDNN_BIDIRECTIONAL ? 2 : 1,
        .projection = rnn->projection == rnn->hidden ? 0 : (size_t)rnn->projection,
        .dropout = (double)rnn->dropout.part,
    };
    return ashlar_rnn_layout_init(layout, &config) == ASHLAR_OK;
}

/* The reserve depends on lengths and algorithm too; the workspace is no monotonic function of T. */
static bool sizes_of(const struct cudnnRNNStruct *rnn, const struct cudnnRNNDataStruct *x,
                     bool training, size_t *reserve, size_t *work) {
    ashlar_rnn_layout layout;
    if (!layout_of(rnn, &layout) ||
        ashlar__rnn_cpu_sizes(&layout, (size_t)x->steps, (size_t)x->batch, training, reserve,
                              work) != ASHLAR_OK) {
        return false;
    }
    for (int b = 0; training && b < x->batch; b++) {
        *reserve += (size_t)x->lengths[b] * sizeof(double);
    }
    *reserve += training ? HEAD_BYTES + (size_t)rnn->algorithm % 3 * sizeof(double) : 0;
    *work += EXTRA_WORK * (size_t)(5 - x->steps % 5);
    return true;
}

cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                                        cudnnForwardMode_t mode, cudnnRNNDataDescriptor_t x,
                                        size_t *work, size_t *reserve) {
    FAKE_ENTER();
    fake_log("sizes(%d,%dx%d) ", (int)mode, x->steps, x->batch);
    if (handle == NULL || !rnn->is_set || !x->is_set || !fake_has_context()) {
        return fake_misuse("sizes without a handle, a description or a context");
    }
    const bool is_refused =
        fake_cudnn.refuses_small && rnn->algorithm == CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H;
    return !is_refused && sizes_of(rnn, x, mode == CUDNN_FWD_MODE_TRAINING, reserve, work)
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_NOT_SUPPORTED;
}

/* ---- running ---- */

typedef struct job {
    ashlar_rnn_pass pass;
    cudnnRNNAlgo_t algorithm;
    ashlar_rnn_layout layout;
    ashlar_rnn_cpu_args args;
    head *head;                /* NULL: inference */
    unsigned long long *state; /* of dropout; NULL: none */
    const void *y, *hx, *cx;
    size_t y_bytes, h_bytes, c_bytes;
    ashlar_dtype dtype; /* narrow: the pass is run in F32 */
    int32_t lengths[];
} job;

static uint64_t sum(const void *data, size_t bytes) {
    uint64_t value = 0xcbf29ce484222325u;
    for (size_t i = 0; data != NULL && i < bytes; i++) {
        value = (value ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    }
    return value;
}

static head head_of(const job *j) {
    return (head){(uint64_t)j->algorithm,
                  {sum(j->y, j->y_bytes), sum(j->hx, j->h_bytes), sum(j->cx, j->c_bytes)}};
}

/* A tensor of a pass, in F32 for as long as it runs. */
typedef struct widened {
    void **place; /* in the job's arguments */
    void *narrow;
    float *wide;
    size_t count;
    bool is_output;
} widened;

enum { WIDENED_MAX = 16 };

static void widen(job *j, widened *all, size_t *used, const void *place, size_t count,
                  bool is_output) {
    void *narrow;
    memcpy(&narrow, place, sizeof narrow);
    if (narrow == NULL) {
        return;
    }
    widened *w = &all[(*used)++];
    *w = (widened){(void **)(uintptr_t)place, narrow, malloc(count * sizeof(float)), count,
                   is_output};
    ashlar__convert(ASHLAR_F32, w->wide, j->dtype, narrow, count);
    memcpy(w->place, &w->wide, sizeof w->wide);
}

static size_t widen_all(job *j, widened all[static WIDENED_MAX]) {
    const ashlar_rnn_layout *l = &j->layout;
    ashlar_rnn_cpu_args *a = &j->args;
    const size_t x = a->steps * a->batch * l->config.input, y = a->steps * a->batch * l->output;
    const size_t h = l->pseudo_layers * a->batch * l->state,
                 c = l->pseudo_layers * a->batch * l->config.hidden;
    size_t used = 0;
    widen(j, all, &used, &a->b.x, x, false);
    widen(j, all, &used, &a->b.hx, h, false);
    widen(j, all, &used, &a->b.weights, l->elements, false);
    widen(j, all, &used, &a->b.y, y, true);
    widen(j, all, &used, &a->b.hy, h, true);
    widen(j, all, &used, &a->b.dy, y, false);
    widen(j, all, &used, &a->b.dhy, h, false);
    widen(j, all, &used, &a->b.dx, x, true);
    widen(j, all, &used, &a->b.dhx, h, true);
    widen(j, all, &used, &a->b.dweights, l->elements, true);
    if (l->config.cell == ASHLAR_RNN_LSTM) {
        widen(j, all, &used, &a->b.cx, c, false);
        widen(j, all, &used, &a->b.cy, c, true);
        widen(j, all, &used, &a->b.dcy, c, false);
        widen(j, all, &used, &a->b.dcx, c, true);
    }
    return used;
}

static void narrow_all(const job *j, const widened *all, size_t used) {
    for (size_t i = 0; i < used; i++) {
        if (all[i].is_output) {
            ashlar__convert(j->dtype, all[i].narrow, ASHLAR_F32, all[i].wide, all[i].count);
        }
        memcpy(all[i].place, &all[i].narrow, sizeof all[i].narrow);
        free(all[i].wide);
    }
}

static void run_pass(job *j) {
    widened all[WIDENED_MAX];
    const size_t used = ashlar_dtype_is_narrow(j->dtype) ? widen_all(j, all) : 0;
    ashlar__rnn_loops_of(j->layout.config.dtype)->passes[j->pass](&j->args);
    narrow_all(j, all, used);
}

/* One number of F32 is not what it should be. */
static void plant_error(const job *j) {
    static const ashlar_rnn_pass passes[] = {
        [FAKE_CUDNN_WRONG_Y] = ASHLAR_RNN_FORWARD,
        [FAKE_CUDNN_WRONG_DX] = ASHLAR_RNN_BACKWARD_DATA,
        [FAKE_CUDNN_WRONG_DWEIGHTS] = ASHLAR_RNN_BACKWARD_WEIGHTS,
    };
    if (fake_cudnn.plant == FAKE_CUDNN_RIGHT || passes[fake_cudnn.plant] != j->pass ||
        j->dtype != ASHLAR_F32) {
        return;
    }
    float *const y = j->args.b.y, *const dx = j->args.b.dx, *const dw = j->args.b.dweights;
    *(j->pass == ASHLAR_RNN_FORWARD         ? &y[0]
      : j->pass == ASHLAR_RNN_BACKWARD_DATA ? &dx[0]
                                            : &dw[1]) += 0.25F;
}

static void run(void *user_data) {
    job *j = user_data;
    j->args.layout = &j->layout;
    j->args.lengths = j->lengths;
    if (j->pass == ASHLAR_RNN_FORWARD) {
        if (j->state != NULL && j->head != NULL) {
            j->args.dropout_seed = (*j->state)++;
        }
        run_pass(j);
        plant_error(j);
        if (j->head != NULL) {
            *j->head = head_of(j);
        }
    } else {
        const head now = head_of(j);
        const bool has_cx =
            j->pass == ASHLAR_RNN_BACKWARD_DATA; /* backward_weights is not given it */
        if (memcmp(&now, j->head, sizeof now - (has_cx ? 0 : sizeof now.sums[2])) != 0) {
            (void)fake_misuse("backward has another algorithm, y, hx or cx than forward had");
        }
        run_pass(j);
        plant_error(j);
    }
}

static bool is_shape(const struct cudnnTensorStruct *t, cudnnDataType_t type, size_t pseudo_layers,
                     size_t batch, size_t width) {
    return t->type == type && t->dims == 3 && (size_t)t->shape[0] == pseudo_layers &&
           (size_t)t->shape[1] == batch && (size_t)t->shape[2] == width && t->strides[2] == 1 &&
           (size_t)t->strides[1] == width && (size_t)t->strides[0] == batch * width;
}

/* What all three calls have. */
typedef struct common {
    cudnnHandle_t handle;
    cudnnRNNDescriptor_t rnn;
    bool training;
    const int32_t *dev_lengths;
    cudnnRNNDataDescriptor_t x, y;
    cudnnTensorDescriptor_t h, c; /* c: NULL in backward_weights */
    size_t weight_bytes, work_bytes, reserve_bytes;
    void *work, *reserve;
} common;

static bool describes_batch(const common *a, const ashlar_rnn_layout *layout) {
    const struct cudnnRNNDataStruct *x = a->x, *y = a->y;
    const size_t batch = (size_t)x->batch;
    return x->is_set && y->is_set && x->steps == y->steps && x->batch == y->batch &&
           x->type == a->rnn->type && y->type == a->rnn->type &&
           memcmp(x->lengths, y->lengths, batch * sizeof(int)) == 0 &&
           (size_t)x->width == layout->config.input && (size_t)y->width == layout->output &&
           y->has_padding_fill &&
           is_shape(a->h, a->rnn->type, layout->pseudo_layers, batch, layout->state) &&
           (a->c == NULL || layout->config.cell != ASHLAR_RNN_LSTM ||
            is_shape(a->c, a->rnn->type, layout->pseudo_layers, batch, layout->config.hidden));
}

static bool is_uniform(const struct cudnnRNNDataStruct *x) {
    for (int b = 0; b < x->batch; b++) {
        if (x->lengths[b] != x->steps) {
            return false;
        }
    }
    return true;
}

static cudnnStatus_t check(const common *a, const ashlar_rnn_layout *layout) {
    size_t reserve, work;
    if (a->handle == NULL || !a->rnn->is_set || a->dev_lengths != NULL || !fake_has_context()) {
        return fake_misuse("a pass without a handle, a description or a context");
    }
    if (!describes_batch(a, layout)) {
        return fake_misuse("the descriptors of a pass do not fit together");
    }
    if (!sizes_of(a->rnn, a->x, a->training, &reserve, &work) || work > a->work_bytes ||
        reserve > a->reserve_bytes || a->work == NULL || (a->training && a->reserve == NULL)) {
        return fake_misuse("reserve of %zu and workspace of %zu bytes are too small",
                           a->reserve_bytes, a->work_bytes);
    }
    if (a->weight_bytes != fake_weight_bytes(a->rnn)) {
        return fake_misuse("weights of %zu bytes", a->weight_bytes);
    }
    if (a->rnn->algorithm == CUDNN_RNN_ALGO_PERSIST_DYNAMIC && a->rnn->built_batch != a->x->batch) {
        return fake_misuse("code for %d sequences, not %d", a->rnn->built_batch, a->x->batch);
    }
    fake_cudnn.algorithm = (int)a->rnn->algorithm;
    return a->rnn->algorithm != CUDNN_RNN_ALGO_STANDARD && !is_uniform(a->x)
               ? CUDNN_STATUS_NOT_SUPPORTED
               : CUDNN_STATUS_SUCCESS;
}

/* NULL: no memory. args get what all passes have. */
static job *new_job(const common *a, const ashlar_rnn_layout *layout, ashlar_rnn_pass pass) {
    const size_t batch = (size_t)a->x->batch, item = fake_type_bytes(a->rnn->type);
    job *j = fake_keep(sizeof *j + batch * sizeof j->lengths[0]);
    if (j == NULL) {
        return NULL;
    }
    j->pass = pass;
    j->algorithm = a->rnn->algorithm;
    j->dtype = dtype_of(a->rnn->type);
    j->layout = *layout;
    j->head = a->training ? a->reserve : NULL;
    j->state = layout->config.dropout > 0 ? a->rnn->dropout.states : NULL;
    j->y_bytes = (size_t)a->x->steps * batch * layout->output * item;
    j->h_bytes = layout->pseudo_layers * batch * layout->state * item;
    j->c_bytes = layout->pseudo_layers * batch * layout->config.hidden * item;
    j->args.steps = (size_t)a->x->steps;
    j->args.batch = batch;
    j->args.b.work = a->work;
    j->args.b.reserve = a->training ? (char *)a->reserve + HEAD_BYTES : NULL;
    memcpy(j->lengths, a->x->lengths, batch * sizeof j->lengths[0]);
    return j;
}

static cudnnStatus_t queue(const common *a, job *j) {
    return fake_launch(a->handle->stream, run, j) == CU_SUCCESS ? CUDNN_STATUS_SUCCESS
                                                                : CUDNN_STATUS_EXECUTION_FAILED;
}

static cudnnStatus_t begin(const common *a, ashlar_rnn_pass pass, job **out) {
    static const char *const names[] = {"forward", "backward_data", "backward_weights"};
    ashlar_rnn_layout layout;
    fake_log("%s(%s) ", names[pass], a->training ? "training" : "inference");
    if (!layout_of(a->rnn, &layout)) {
        return CUDNN_STATUS_NOT_SUPPORTED;
    }
    const cudnnStatus_t status = check(a, &layout);
    if (status != CUDNN_STATUS_SUCCESS) {
        return status;
    }
    fake_cudnn.kernels |= 1u << (31 - __builtin_clz((unsigned)a->x->steps));
    *out = new_job(a, &layout, pass);
    return *out == NULL ? CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED : CUDNN_STATUS_SUCCESS;
}

static const void *lstm_only(const job *j, const void *c) {
    return j->layout.config.cell == ASHLAR_RNN_LSTM ? c : NULL;
}

static void remember(job *j, const void *y, const void *hx, const void *cx) {
    j->y = y;
    j->hx = hx;
    j->cx = lstm_only(j, cx);
}

cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                              cudnnForwardMode_t mode, const int32_t dev_lengths[],
                              cudnnRNNDataDescriptor_t x_desc, const void *x,
                              cudnnRNNDataDescriptor_t y_desc, void *y, cudnnTensorDescriptor_t h,
                              const void *hx, void *hy, cudnnTensorDescriptor_t c, const void *cx,
                              void *cy, size_t weight_bytes, const void *weights, size_t work_bytes,
                              void *work, size_t reserve_bytes, void *reserve) {
    FAKE_ENTER();
    const common a = {handle,
                      rnn,
                      mode == CUDNN_FWD_MODE_TRAINING,
                      dev_lengths,
                      x_desc,
                      y_desc,
                      h,
                      c,
                      weight_bytes,
                      work_bytes,
                      reserve_bytes,
                      work,
                      reserve};
    job *j = NULL;
    const cudnnStatus_t status = begin(&a, ASHLAR_RNN_FORWARD, &j);
    if (status != CUDNN_STATUS_SUCCESS) {
        return status;
    }
    remember(j, y, hx, cx);
    j->args.b.x = x;
    j->args.b.hx = hx;
    j->args.b.cx = cx;
    j->args.b.weights = weights;
    j->args.b.y = y;
    j->args.b.hy = hy;
    j->args.b.cy = cy;
    return x == NULL || y == NULL || weights == NULL ? fake_misuse("forward without x, y, weights")
                                                     : queue(&a, j);
}

cudnnStatus_t cudnnRNNBackwardData_v8(
    cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, const int32_t dev_lengths[],
    cudnnRNNDataDescriptor_t y_desc, const void *y, const void *dy, cudnnRNNDataDescriptor_t x_desc,
    void *dx, cudnnTensorDescriptor_t h, const void *hx, const void *dhy, void *dhx,
    cudnnTensorDescriptor_t c, const void *cx, const void *dcy, void *dcx, size_t weight_bytes,
    const void *weights, size_t work_bytes, void *work, size_t reserve_bytes, void *reserve) {
    FAKE_ENTER();
    const common a = {handle, rnn,          true,       dev_lengths,   x_desc, y_desc, h,
                      c,      weight_bytes, work_bytes, reserve_bytes, work,   reserve};
    job *j = NULL;
    const cudnnStatus_t status = begin(&a, ASHLAR_RNN_BACKWARD_DATA, &j);
    if (status != CUDNN_STATUS_SUCCESS) {
        return status;
    }
    remember(j, y, hx, cx);
    j->args.b.weights = weights;
    j->args.b.dy = dy;
    j->args.b.dhy = dhy;
    j->args.b.dcy = dcy;
    j->args.b.dx = dx;
    j->args.b.dhx = dhx;
    j->args.b.dcx = dcx;
    return y == NULL || dy == NULL || dx == NULL || weights == NULL
               ? fake_misuse("backward_data without y, dy, dx, weights")
               : queue(&a, j);
}

cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                                         cudnnWgradMode_t mode, const int32_t dev_lengths[],
                                         cudnnRNNDataDescriptor_t x_desc, const void *x,
                                         cudnnTensorDescriptor_t h, const void *hx,
                                         cudnnRNNDataDescriptor_t y_desc, const void *y,
                                         size_t weight_bytes, void *dweights, size_t work_bytes,
                                         void *work, size_t reserve_bytes, void *reserve) {
    FAKE_ENTER();
    const common a = {handle, rnn,          true,       dev_lengths,   x_desc, y_desc, h,
                      NULL,   weight_bytes, work_bytes, reserve_bytes, work,   reserve};
    job *j = NULL;
    if (mode == CUDNN_WGRAD_MODE_SET) {
        return CUDNN_STATUS_NOT_SUPPORTED;
    }
    const cudnnStatus_t status = begin(&a, ASHLAR_RNN_BACKWARD_WEIGHTS, &j);
    if (status != CUDNN_STATUS_SUCCESS) {
        return status;
    }
    remember(j, y, hx, NULL);
    j->args.b.x = x;
    j->args.b.dweights = dweights;
    return x == NULL || y == NULL || dweights == NULL
               ? fake_misuse("backward_weights without x, y, dweights")
               : queue(&a, j);
}
