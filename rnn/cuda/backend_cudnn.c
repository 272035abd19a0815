/* backend_cudnn.c - computes the RNN's sizes and runs its passes with cuDNN; chooses cuDNN's
 * algorithm for ASHLAR_RNN_AUTO. */
#include "allocator/base/checked.h"
#include "allocator/base/error.h"
#include "allocator/base/host.h"
#include "allocator/device/device_impl.h"
#include "rnn/layer/backend.h"
#include "rnn/cuda/cudnn_state.h"

/* Whether H is small enough for PERSIST_SMALL, with PyTorch's limits. For an H between the limits
 * of forward and backward, PyTorch runs the two passes with different algorithms. Here all passes
 * of a training take backward's limit: a reserve must be read by the algorithm that wrote it. */
static bool is_small(const ashlar_rnn_config *c, const ashlar_cudnn_gpu *gpu, bool training) {
    const bool is_plain = c->cell == ASHLAR_RNN_TANH || c->cell == ASHLAR_RNN_RELU;
    const size_t forward = is_plain ? 384 : 192, backward = is_plain ? 256 : 128;
    return gpu->major >= 6 && c->hidden <= (training ? backward : forward);
}

/* On Volta: whether PERSIST_STATIC is faster, by PyTorch's rule. */
static bool volta_gains(size_t steps, size_t batch) {
    const bool has_batch = (batch % 16 == 0 && batch != 80 && batch != 112) || batch == 8;
    return has_batch && ((steps >= 40 && batch <= 128) || (steps >= 20 && batch <= 96) ||
                         (steps >= 10 && batch <= 32));
}

/* On Ampere and later: whether PERSIST_STATIC is faster, by PyTorch's rule. It excludes compute
 * capability 8.6, where that algorithm had errors, and GRUs, which gained nothing. */
static bool ampere_gains(const ashlar_rnn_config *c, const ashlar_cudnn_gpu *gpu, size_t batch) {
    const bool is_plain = c->cell == ASHLAR_RNN_TANH || c->cell == ASHLAR_RNN_RELU;
    if (gpu->multiprocessors < 98 || gpu->minor == 6 || c->cell == ASHLAR_RNN_GRU ||
        batch % 8 != 0 || batch > 128) {
        return false;
    }
    return !is_plain || batch < 96 || c->hidden < 896;
}

static bool is_static(const ashlar_rnn_config *c, const ashlar_cudnn_gpu *gpu, size_t steps,
                      size_t batch) {
    if (c->dtype != ASHLAR_F16 || c->layers != 1 || c->directions == 2 || c->hidden > 1024 ||
        c->hidden % 128 != 0 || c->input % 128 != 0) {
        return false;
    }
    return gpu->major == 7 ? gpu->minor != 5 && volta_gains(steps, batch)
                           : gpu->major >= 8 && ampere_gains(c, gpu, batch);
}

ashlar_rnn_algorithm ashlar__cudnn_choose(const ashlar_rnn_config *c, const ashlar_cudnn_gpu *gpu,
                                          size_t steps, size_t batch, bool training) {
    if (c->algorithm != ASHLAR_RNN_AUTO) {
        return c->algorithm;
    }
    if (!ashlar__rnn_may_persist(c) || c->dtype == ASHLAR_F64) {
        return ASHLAR_RNN_STANDARD;
    }
    return is_small(c, gpu, training)        ? ASHLAR_RNN_PERSIST_SMALL
           : is_static(c, gpu, steps, batch) ? ASHLAR_RNN_PERSIST_STATIC
                                             : ASHLAR_RNN_STANDARD;
}

static ashlar_status read_attribute(ashlar_driver *driver, const ashlar_device *device,
                                    unsigned attribute, int *out) {
    const cu_result result =
        ASHLAR_DRIVER_CALL(driver, device_get_attribute, (out, attribute, device->info.ordinal));
    return result == CU_SUCCESS ? ASHLAR_OK
                                : ashlar__driver_error(driver, "cuDeviceGetAttribute", result);
}

ashlar_status ashlar__cudnn_gpu_read(const ashlar_rnn *rnn, ashlar_cudnn_gpu *out) {
    ashlar_driver *driver = rnn->device->driver;
    ASHLAR_TRY(
        read_attribute(driver, rnn->device, CU_ATTRIBUTE_MULTIPROCESSORS, &out->multiprocessors));
    ASHLAR_TRY(read_attribute(driver, rnn->device, CU_ATTRIBUTE_CAPABILITY_MAJOR, &out->major));
    return read_attribute(driver, rnn->device, CU_ATTRIBUTE_CAPABILITY_MINOR, &out->minor);
}

enum { ALIGN = 256 };

static ashlar_cudnn_state *state_of(const ashlar_rnn *rnn) {
    return rnn->state;
}

static ashlar_status create(ashlar_rnn *rnn) {
    ashlar_cudnn_state *state;
    ASHLAR_TRY(ashlar__cudnn_state_create(rnn, &state));
    rnn->state = state;
    return ASHLAR_OK;
}

static void destroy(ashlar_rnn *rnn) {
    ashlar__cudnn_state_destroy(rnn, rnn->state);
}

/* Lock cuDNN's handle, and make the device's context current. */
static ashlar_status lock(const ashlar_rnn *rnn) {
    pthread_mutex_lock(&state_of(rnn)->lock);
    const ashlar_status status = ashlar__device_enter(rnn->device);
    if (status != ASHLAR_OK) {
        pthread_mutex_unlock(&state_of(rnn)->lock);
    }
    return status;
}

static void unlock(const ashlar_rnn *rnn) {
    ashlar__device_leave(rnn->device);
    pthread_mutex_unlock(&state_of(rnn)->lock);
}

/* In training, room for dx and dy follows cuDNN's workspace: cuDNN needs both, but in rnn.h they
 * are optional. This room is small compared to cuDNN's workspace of 8 MiB or more.
 *
 *     work = [cuDNN's, rounded up to ALIGN | dx, rounded up to ALIGN | dy] */
typedef struct work_layout {
    size_t dx, dx_bytes, dy, dy_bytes, bytes;
} work_layout;

static bool lay_out_work(const ashlar_rnn *rnn, const ashlar_cudnn_sizes *sizes, work_layout *p) {
    const size_t item = ashlar_dtype_bytes(rnn->layout.config.dtype);
    *p = (work_layout){.bytes = sizes->work > 0 ? sizes->work : 1};
    if (!sizes->training) {
        return true;
    }
    return ashlar__mul(sizes->steps * sizes->batch, rnn->layout.config.input * item,
                       &p->dx_bytes) &&
           ashlar__mul(sizes->steps * sizes->batch, rnn->layout.output * item, &p->dy_bytes) &&
           ashlar__align_up(sizes->work, ALIGN, &p->dx) &&
           ashlar__add(p->dx, p->dx_bytes, &p->dy) && ashlar__align_up(p->dy, ALIGN, &p->dy) &&
           ashlar__add(p->dy, p->dy_bytes, &p->bytes);
}

/* Check that T, B, the widths and their products fit in an int: cuDNN computes them as ints. */
static ashlar_status check_shape(const ashlar_rnn *rnn, size_t steps, size_t batch) {
    const size_t width = rnn->layout.output > rnn->layout.config.input ? rnn->layout.output
                                                                       : rnn->layout.config.input;
    size_t rows, elements;
    ASHLAR_FAIL_IF(steps == 0 || batch == 0, ASHLAR_EINVAL,
                   "rnn: %zu steps of %zu sequences; each is at least 1", steps, batch);
    ASHLAR_FAIL_IF(!ashlar__mul(steps, batch, &rows) || !ashlar__mul(rows, width, &elements) ||
                       rows > INT32_MAX || elements > SIZE_MAX / sizeof(double) ||
                       rnn->layout.pseudo_layers * batch > INT32_MAX / rnn->layout.config.hidden,
                   ASHLAR_EOVERFLOW, "rnn: %zu steps of %zu sequences are too many for cuDNN",
                   steps, batch);
    return ASHLAR_OK;
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

/* Ask cuDNN for the sizes of one algorithm with every sequence at full length, and enlarge *sizes
 * to them. Shorter sequences never needed more in cuDNN 9.19, which would refuse a pass whose
 * buffers are too small. The lock must be held. */
static ashlar_status ask(const ashlar_rnn *rnn, ashlar_rnn_algorithm algorithm,
                         ashlar_cudnn_sizes *sizes) {
    ashlar_cudnn_state *s = state_of(rnn);
    cudnnRNNDescriptor_t stack = NULL;
    size_t work, reserve;
    ASHLAR_TRY(ashlar__cudnn_state_stack(rnn, s, algorithm, &stack));
    ASHLAR_TRY(ashlar__cudnn_state_describe(rnn, s, sizes->steps, sizes->batch, NULL));
    ASHLAR_CUDNN_TRY(s->cudnn, temp_space_sizes, cudnnGetRNNTempSpaceSizes,
                     (s->handle, stack,
                      sizes->training ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE, s->x,
                      &work, &reserve));
    sizes->work = larger(sizes->work, work);
    sizes->reserve = sizes->training ? larger(sizes->reserve, reserve) : 0;
    sizes->full = algorithm;
    return ASHLAR_OK;
}

/* Sizes for the standard algorithm, and for the one that AUTO's rule prefers, unless cuDNN refuses
 * that for this shape. The lock must be held. */
static ashlar_status ask_for_all(const ashlar_rnn *rnn, ashlar_cudnn_sizes *sizes) {
    const ashlar_rnn_config *c = &rnn->layout.config;
    const ashlar_rnn_algorithm chosen =
        ashlar__cudnn_choose(c, &state_of(rnn)->gpu, sizes->steps, sizes->batch, sizes->training);
    if (c->algorithm != ASHLAR_RNN_AUTO || chosen == ASHLAR_RNN_STANDARD) {
        return ask(rnn, chosen, sizes);
    }
    ASHLAR_TRY(ask(rnn, ASHLAR_RNN_STANDARD, sizes));
    const ashlar_status status = ask(rnn, chosen, sizes);
    return status == ASHLAR_ENOTSUP ? ASHLAR_OK : status;
}

/* Compile PERSIST_DYNAMIC's code for this number of sequences. The lock must be held. */
static ashlar_status build_for(const ashlar_rnn *rnn, size_t batch) {
    ashlar_cudnn_state *s = state_of(rnn);
    if (rnn->layout.config.algorithm != ASHLAR_RNN_PERSIST_DYNAMIC || s->built_batch == batch) {
        return ASHLAR_OK;
    }
    s->built_batch = 0;
    ASHLAR_CUDNN_TRY(s->cudnn, build_dynamic, cudnnBuildRNNDynamic,
                     (s->handle, s->rnns[ASHLAR_RNN_PERSIST_DYNAMIC], (int)batch));
    s->built_batch = batch;
    return ASHLAR_OK;
}

/* The sizes for a shape: the last ones if its shape was the same, else cuDNN's. Lock held. */
static ashlar_status find_sizes(const ashlar_rnn *rnn, size_t steps, size_t batch, bool training,
                                ashlar_cudnn_sizes *out) {
    ashlar_cudnn_state *s = state_of(rnn);
    ASHLAR_TRY(build_for(rnn, batch));
    if (s->newest.steps != steps || s->newest.batch != batch || s->newest.training != training) {
        ashlar_cudnn_sizes sizes = {.steps = steps, .batch = batch, .training = training};
        ASHLAR_TRY(ask_for_all(rnn, &sizes));
        s->newest = sizes;
    }
    *out = s->newest;
    return ASHLAR_OK;
}

static ashlar_status sizes(const ashlar_rnn *rnn, size_t steps, size_t batch, bool training,
                           size_t *reserve_bytes, size_t *work_bytes) {
    ashlar_cudnn_sizes found;
    work_layout at;
    ASHLAR_TRY(check_shape(rnn, steps, batch));
    ASHLAR_TRY(lock(rnn));
    const ashlar_status status = find_sizes(rnn, steps, batch, training, &found);
    unlock(rnn);
    ASHLAR_TRY(status);
    ASHLAR_FAIL_IF(!lay_out_work(rnn, &found, &at), ASHLAR_EOVERFLOW,
                   "rnn: the workspace of %zu steps of %zu sequences is too large to address",
                   steps, batch);
    *reserve_bytes = found.reserve;
    *work_bytes = at.bytes;
    return ASHLAR_OK;
}

/* One pass, and what cuDNN needs for it. Every function that takes a call requires the lock. */
typedef struct call {
    const ashlar_rnn *rnn;
    ashlar_cudnn_state *state;
    const ashlar_rnn_batch *batch;
    const ashlar_rnn_buffers *b;
    ashlar_stream stream;
    bool is_full; /* tell cuDNN that all sequences have full length, though some may be shorter */
    cudnnRNNDescriptor_t stack;
    ashlar_cudnn_sizes sizes;
    work_layout at;
    size_t weight_bytes;
} call;

/* Seed dropout if this pass must. cuDNN's seeding cannot be captured in a graph. */
static ashlar_status seed(const call *c) {
    ashlar_driver *driver = c->rnn->device->driver;
    unsigned int capture = CU_CAPTURE_NONE;
    const bool is_wanted = !c->state->is_seeded || c->batch->dropout_restarts;
    if (c->state->states == NULL || !is_wanted) {
        return ASHLAR_OK;
    }
    const cu_result result = ASHLAR_DRIVER_CALL(driver, stream_is_capturing, (c->stream, &capture));
    if (result != CU_SUCCESS) {
        return ashlar__driver_error(driver, "cuStreamIsCapturing", result);
    }
    ASHLAR_FAIL_IF(capture != CU_CAPTURE_NONE, ASHLAR_ENOTSUP,
                   "rnn: the first training forward with dropout may not be captured, nor one with "
                   "dropout_restarts; run one before");
    const ashlar_status status = ashlar__cudnn_state_seed(c->rnn, c->state, c->batch->dropout_seed);
    c->state->is_seeded = status == ASHLAR_OK;
    return status;
}

static ashlar_status forward(const call *c) {
    const ashlar_cudnn_state *s = c->state;
    const ashlar_rnn_buffers *b = c->b;
    ASHLAR_TRY(c->sizes.training ? seed(c) : ASHLAR_OK);
    ASHLAR_CUDNN_TRY(s->cudnn, forward, cudnnRNNForward,
                     (s->handle, c->stack,
                      c->sizes.training ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE, NULL,
                      s->x, b->x, s->y, b->y, s->h, b->hx, b->hy, s->c, b->cx, b->cy,
                      c->weight_bytes, b->weights, c->sizes.work, b->work, c->sizes.reserve,
                      b->reserve));
    return ASHLAR_OK;
}

static ashlar_status clear(const call *c, void *at, size_t bytes) {
    ashlar_driver *driver = c->rnn->device->driver;
    const cu_result result =
        ASHLAR_DRIVER_CALL(driver, memset_d8_async, (ashlar__ptr_in(at), 0, bytes, c->stream));
    return result == CU_SUCCESS ? ASHLAR_OK
                                : ashlar__driver_error(driver, "cuMemsetD8Async", result);
}

static ashlar_status backward_data(const call *c) {
    const ashlar_cudnn_state *s = c->state;
    const ashlar_rnn_buffers *b = c->b;
    void *const dx = b->dx != NULL ? b->dx : (char *)b->work + c->at.dx;
    const void *dy = b->dy;
    if (b->dx != NULL && !c->is_full) {
        /* Zero dx past the lengths: cuDNN documents the descriptor's fill value for y only. */
        ASHLAR_TRY(clear(c, b->dx, c->at.dx_bytes));
    }
    if (dy == NULL) {
        dy = (char *)b->work + c->at.dy;
        ASHLAR_TRY(clear(c, (char *)b->work + c->at.dy, c->at.dy_bytes));
    }
    ASHLAR_CUDNN_TRY(s->cudnn, backward_data, cudnnRNNBackwardData_v8,
                     (s->handle, c->stack, NULL, s->y, b->y, dy, s->x, dx, s->h, b->hx, b->dhy,
                      b->dhx, s->c, b->cx, b->dcy, b->dcx, c->weight_bytes, b->weights,
                      c->sizes.work, b->work, c->sizes.reserve, b->reserve));
    return ASHLAR_OK;
}

static ashlar_status backward_weights(const call *c) {
    const ashlar_cudnn_state *s = c->state;
    const ashlar_rnn_buffers *b = c->b;
    ASHLAR_CUDNN_TRY(s->cudnn, backward_weights, cudnnRNNBackwardWeights_v8,
                     (s->handle, c->stack, CUDNN_WGRAD_MODE_ADD, NULL, s->x, b->x, s->h, b->hx,
                      s->y, b->y, c->weight_bytes, b->dweights, c->sizes.work, b->work,
                      c->sizes.reserve, b->reserve));
    return ASHLAR_OK;
}

static ashlar_status run(call *c, ashlar_rnn_pass pass) {
    static ashlar_status (*const passes[])(const call *) = {
        [ASHLAR_RNN_FORWARD] = forward,
        [ASHLAR_RNN_BACKWARD_DATA] = backward_data,
        [ASHLAR_RNN_BACKWARD_WEIGHTS] = backward_weights,
    };
    ASHLAR_TABLE_IS_FULL(passes, ASHLAR_RNN_PASS_COUNT);
    const ashlar_rnn_batch *batch = c->batch;
    const bool training = c->b->reserve != NULL;
    ASHLAR_CUDNN_TRY(c->state->cudnn, set_stream, cudnnSetStream,
                     (c->state->handle, (cudaStream_t)c->stream));
    ASHLAR_TRY(find_sizes(c->rnn, batch->steps, batch->batch, training, &c->sizes));
    ASHLAR_FAIL_IF(!lay_out_work(c->rnn, &c->sizes, &c->at), ASHLAR_EOVERFLOW,
                   "rnn: the workspace is too large to address");
    const ashlar_rnn_config *config = &c->rnn->layout.config;
    /* The standard algorithm does less work on short sequences, so it gets their lengths. */
    c->is_full = c->sizes.full == ASHLAR_RNN_STANDARD ? ashlar__rnn_is_full(batch)
                                                      : ashlar__rnn_may_be_full(config, batch);
    const bool falls_back = config->algorithm == ASHLAR_RNN_AUTO && !c->is_full;
    ASHLAR_TRY(ashlar__cudnn_state_stack(
        c->rnn, c->state, falls_back ? ASHLAR_RNN_STANDARD : c->sizes.full, &c->stack));
    ASHLAR_TRY(ashlar__cudnn_state_describe(c->rnn, c->state, batch->steps, batch->batch,
                                            c->is_full ? NULL : batch->lengths));
    return passes[pass](c);
}

static ashlar_status queue(const ashlar_rnn *rnn, ashlar_rnn_pass pass,
                           const ashlar_rnn_batch *batch, const ashlar_rnn_buffers *buffers,
                           ashlar_stream stream) {
    const ashlar_rnn_config *config = &rnn->layout.config;
    call c = {.rnn = rnn,
              .state = state_of(rnn),
              .batch = batch,
              .b = buffers,
              .stream = stream,
              .weight_bytes = rnn->layout.elements * ashlar_dtype_bytes(config->dtype)};
    ASHLAR_FAIL_IF(pass != ASHLAR_RNN_FORWARD && buffers->y == NULL, ASHLAR_EINVAL,
                   "rnn: y is NULL; on a CUDA device the backward calls read the y, hx and cx of "
                   "forward again");
    ASHLAR_FAIL_IF(batch->is_packed, ASHLAR_ENOTSUP,
                   "rnn: packed rows are for the CPU; on a CUDA device give padded ones");
    ASHLAR_FAIL_IF(config->dropout > 0 && (batch->dropout_first != 0 || batch->dropout_stride > 1),
                   ASHLAR_ENOTSUP,
                   "rnn: cuDNN cannot drop what another part of a batch would; leave "
                   "dropout_first and dropout_stride 0");
    ashlar_status status = lock(rnn);
    if (status == ASHLAR_OK) {
        status = run(&c, pass);
        unlock(rnn);
    }
    return status;
}

static ashlar_status restart_dropout(const ashlar_rnn *rnn, uint64_t seed_value,
                                     ashlar_stream stream) {
    ashlar_cudnn_state *s = state_of(rnn);
    if (s->states == NULL) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(lock(rnn));
    const cudnnStatus_t set = s->cudnn->set_stream(s->handle, (cudaStream_t)stream);
    const ashlar_status status = set == CUDNN_STATUS_SUCCESS
                                     ? ashlar__cudnn_state_seed(rnn, s, seed_value)
                                     : ashlar__cudnn_error(s->cudnn, "cudnnSetStream", set);
    s->is_seeded = status == ASHLAR_OK;
    unlock(rnn);
    return status;
}

/* The most time steps that cuDNN takes at once. */
enum { STEPS_MAX = 65535 };

const ashlar_rnn_backend ashlar__rnn_backend_cudnn = {.name = "cudnn",
                                                      .create = create,
                                                      .destroy = destroy,
                                                      .sizes = sizes,
                                                      .queue = queue,
                                                      .restart_dropout = restart_dropout,
                                                      .backward_reads_output = true,
                                                      .most_steps = STEPS_MAX};
