/*
 * gpu_rnn_fixture.h - RNN problems of rnn_cpu_fixture.h once more on a CUDA device, for tests.
 */
#ifndef ASHLAR_GPU_RNN_FIXTURE_H
#define ASHLAR_GPU_RNN_FIXTURE_H

#include "tests/allocator/device/gpu_fixture.h"
#include "tests/rnn/layer/rnn_cpu_fixture.h"

#include <ashlar/rnn.h>

#include "arena/compute/convert.h"
#include "rnn/cuda/cudnn_state.h"

/* The same problem on the GPU. */
typedef struct gpu_copy {
    const problem *near;
    ashlar_rnn *rnn;
    ashlar_rnn_batch batch;
    ashlar_rnn_buffers all;
    size_t item;
    double atol, rtol;
} gpu_copy;

static inline size_t state_bytes(const gpu_copy *t) {
    return t->near->state_count * t->item;
}

static inline size_t cell_bytes(const gpu_copy *t) {
    return t->near->cell_count * t->item;
}

/* Numbers of the problem's type, in the copy's. */
static inline void *send(const gpu_copy *t, const void *from, size_t count) {
    if (from == NULL || t->item == t->near->item) {
        return gpu_send(from, count * t->item);
    }
    uint16_t *narrow = malloc(count * sizeof *narrow);
    const bool is_f16 = ashlar_rnn_layout_of(t->rnn)->config.dtype == ASHLAR_F16;
    for (size_t i = 0; i < count; i++) {
        const float value = ((const float *)from)[i];
        narrow[i] = is_f16 ? ashlar__f16_from_float(value) : ashlar__bf16_from_float(value);
    }
    void *far = gpu_send(narrow, count * t->item);
    free(narrow);
    return far;
}

static inline bool open_gpu_copy(gpu_copy *t, const problem *near, const ashlar_rnn_config *config,
                                 bool training) {
    const ashlar_rnn_cpu_args *a = &near->args;
    const size_t elements = near->layout.elements;
    *t = (gpu_copy){.near = near,
                    .item = ashlar_dtype_bytes(config->dtype),
                    .batch = {.steps = a->steps, .batch = a->batch, .lengths = a->lengths}};
    size_t reserve = 0, work = 0;
    if (ashlar_rnn_create(gpu, config, &t->rnn) != ASHLAR_OK ||
        ashlar_rnn_sizes(t->rnn, a->steps, a->batch, training, &reserve, &work) != ASHLAR_OK) {
        printf("# %s\n", ashlar_error_detail());
        ashlar_rnn_destroy(t->rnn);
        t->rnn = NULL;
        return false;
    }
    CHECK((reserve > 0) == training);
    t->all = (ashlar_rnn_buffers){
        .reserve = training ? gpu_take(reserve) : NULL,
        .work = gpu_take(work),
        .x = send(t, a->b.x, near->x_count),
        .hx = send(t, a->b.hx, near->state_count),
        .cx = send(t, a->b.cx, near->cell_count),
        .weights = send(t, a->b.weights, elements),
        .y = gpu_take(near->y_count * t->item),
        .hy = gpu_take(state_bytes(t)),
        .cy = gpu_take(cell_bytes(t)),
        .dy = send(t, a->b.dy, near->y_count),
        .dhy = send(t, a->b.dhy, near->state_count),
        .dcy = send(t, a->b.dcy, near->cell_count),
        .dx = gpu_take(near->x_count * t->item),
        .dhx = gpu_take(state_bytes(t)),
        .dcx = gpu_take(cell_bytes(t)),
        .dweights = gpu_take(elements * t->item),
    };
    CHECK(ashlar_fill(gpu, t->all.dweights, 0, elements * t->item, gpu_stream) == ASHLAR_OK);
    t->atol = t->item == 8 ? 1e-11 : 2e-5;
    t->rtol = t->item == 8 ? 1e-9 : 2e-4;
    return true;
}

static inline double far_number(const gpu_copy *t, const void *data, size_t i) {
    const uint16_t narrow = t->item == 2 ? ((const uint16_t *)data)[i] : 0;
    if (t->item != 2) {
        return get(data, t->item, i);
    }
    return ashlar_rnn_layout_of(t->rnn)->config.dtype == ASHLAR_F16
               ? (double)ashlar__float_from_f16(narrow)
               : (double)ashlar__float_from_bf16(narrow);
}

static inline void compare(const gpu_copy *t, const char *name, const void *far, const void *near,
                           size_t count) {
    void *got = gpu_fetch(far, count * t->item);
    double worst = 0;
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        const double want = get(near, t->near->item, i);
        const double difference = fabs(far_number(t, got, i) - want);
        const bool is_near = difference <= t->atol + t->rtol * fabs(want); /* no NaN is */
        wrong += is_near ? 0 : 1;
        worst = difference > worst || isnan(difference) ? difference : worst;
    }
    CHECK_ZU(wrong, 0);
    if (wrong > 0) {
        const ashlar_rnn_config *c = &t->near->layout.config;
        printf("# %s: worst %g; %s, bias %d, %zu directions, projection %zu, %zu layers, "
               "T %zu, B %zu\n",
               name, worst, ashlar_rnn_cell_name(c->cell), (int)c->bias, c->directions,
               c->projection, c->layers, t->near->args.steps, t->near->args.batch);
    }
}

static inline void compare_forward(const gpu_copy *t) {
    const ashlar_rnn_cpu_args *a = &t->near->args;
    compare(t, "y", t->all.y, a->b.y, t->near->y_count);
    compare(t, "hy", t->all.hy, a->b.hy, t->near->state_count);
    if (t->near->layout.config.cell == ASHLAR_RNN_LSTM) {
        compare(t, "cy", t->all.cy, a->b.cy, t->near->cell_count);
    }
}

static inline void compare_backward(const gpu_copy *t) {
    const ashlar_rnn_cpu_args *a = &t->near->args;
    compare(t, "dx", t->all.dx, a->b.dx, t->near->x_count);
    compare(t, "dhx", t->all.dhx, a->b.dhx, t->near->state_count);
    if (t->near->layout.config.cell == ASHLAR_RNN_LSTM) {
        compare(t, "dcx", t->all.dcx, a->b.dcx, t->near->cell_count);
    }
    compare(t, "dweights", t->all.dweights, a->b.dweights, t->near->layout.elements);
}

static inline ashlar_status run_far(const gpu_copy *t, bool training) {
    ashlar_status status = ashlar_rnn_forward(t->rnn, &t->batch, &t->all, gpu_stream);
    if (status == ASHLAR_OK && training) {
        status = ashlar_rnn_backward_data(t->rnn, &t->batch, &t->all, gpu_stream);
    }
    if (status == ASHLAR_OK && training) {
        status = ashlar_rnn_backward_weights(t->rnn, &t->batch, &t->all, gpu_stream);
    }
    if (status != ASHLAR_OK) {
        printf("# %s\n", ashlar_error_detail());
    }
    return status;
}

/* CPU and GPU cannot drop the same outputs. */
static inline kind undropped(size_t i) {
    kind k = kind_at(i);
    k.dropout = 0;
    return k;
}

static problem near; /* of the case, on the CPU */
static gpu_copy far; /* and on the device */

static inline void close_pair(void) {
    gpu_wait();
    ashlar_rnn_destroy(far.rnn);
    far.rnn = NULL;
    gpu_give_all();
    drop_problems();
}

/* `near` in a type, `far` as `config` has it; the pair before is closed. */
static inline bool open_pair(const shape *s, const kind *k, ashlar_dtype dtype,
                             const ashlar_rnn_config *config, bool training) {
    close_pair();
    return check_at_end(close_pair) && open_problem(&near, s, k, dtype, training) &&
           open_gpu_copy(&far, &near, config, training);
}

/* cuDNN takes long to make a handle. An RNN here ends before the next one begins, so that one
 * handle serves all of them. */
static cudnnHandle_t handle;
static cudnnStatus_t (*make_handle)(cudnnHandle_t *);

static inline cudnnStatus_t lend_handle(cudnnHandle_t *out) {
    const cudnnStatus_t result = handle != NULL ? CUDNN_STATUS_SUCCESS : make_handle(&handle);
    *out = handle;
    return result;
}

static inline cudnnStatus_t keep_handle(cudnnHandle_t lent) {
    return lent == handle ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

static inline void share_handle(void) {
    const ashlar_cudnn *found;
    if (ashlar__cudnn_open(&found) == ASHLAR_OK) {
        ashlar_cudnn *cudnn = (ashlar_cudnn *)(uintptr_t)found; /* a table that is not const */
        make_handle = cudnn->create;
        cudnn->create = lend_handle;
        cudnn->destroy = keep_handle;
    }
}

#define RUN_RNN_CASES_ON_GPU()       \
    int main(void) {                 \
        const int why = gpu_begin(); \
        if (why != 0) {              \
            return why;              \
        }                            \
        share_handle();              \
        check_run_cases();           \
        gpu_end();                   \
        return check_report();       \
    }

#endif /* ASHLAR_GPU_RNN_FIXTURE_H */
