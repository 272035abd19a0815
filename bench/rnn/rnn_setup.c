/* rnn_setup.c - the cases of `ashlar-bench rnn`, and a step of each subject on one of them. */
#include "bench/rnn/bench_rnn.h"

#include "allocator/base/check_level.h"
#include "allocator/base/host.h"
#include "allocator/base/random.h"
#include "allocator/device/device_impl.h"

enum { LENGTHS_SEED = 20261121 };

#define NETWORK(of_cell, of_input, of_hidden, of_layers, of_directions)                         \
    {                                                                                           \
        .input = (of_input), .hidden = (of_hidden), .layers = (of_layers), .dtype = ASHLAR_F32, \
        .cell = ASHLAR_RNN_##of_cell, .directions = (of_directions)                             \
    }

/* The last three fields of a case: is_varied, is_inference, is_prepared. */
#define TRAINING false, false, false
#define VARIED true, false, false
#define INFERENCE false, true, false
#define PREPARED false, true, true

const ashlar_rnn_case *ashlar__rnn_cases(size_t *count) {
    static const ashlar_rnn_case cases[] = {
        {"lstm_T64_B32_H256_L2", 64, 32, NETWORK(LSTM, 256, 256, 2, 1), TRAINING},
        {"gru_T64_B32_H256_L2", 64, 32, NETWORK(GRU, 256, 256, 2, 1), TRAINING},
        {"lstm_T64_B32_I128_H512_L1", 64, 32, NETWORK(LSTM, 128, 512, 1, 1), TRAINING},
        {"lstm_T20_B8_H64_L2", 20, 8, NETWORK(LSTM, 64, 64, 2, 1), TRAINING},
        {"lstm_T64_B1_H256_L2", 64, 1, NETWORK(LSTM, 256, 256, 2, 1), TRAINING},
        {"gru_T64_B1_H256_L2", 64, 1, NETWORK(GRU, 256, 256, 2, 1), TRAINING},
        {"lstm_T256_B16_H256_L2", 256, 16, NETWORK(LSTM, 256, 256, 2, 1), TRAINING},
        {"lstm_T64_B32_H256_L2_varied", 64, 32, NETWORK(LSTM, 256, 256, 2, 1), VARIED},
        {"lstm_T64_B32_H256_L2_both", 64, 32, NETWORK(LSTM, 256, 256, 2, 2), TRAINING},
        {"lstm_T64_B32_H256_L2_inference", 64, 32, NETWORK(LSTM, 256, 256, 2, 1), PREPARED},
        {"gru_T64_B32_H256_L2_inference", 64, 32, NETWORK(GRU, 256, 256, 2, 1), PREPARED},
        {"lstm_T64_B1_H256_L2_inference", 64, 1, NETWORK(LSTM, 256, 256, 2, 1), PREPARED},
        {"lstm_T64_B16_H1024_L1", 64, 16, NETWORK(LSTM, 1024, 1024, 1, 1), TRAINING},
        {"lstm_T64_B16_H1024_L1_inference", 64, 16, NETWORK(LSTM, 1024, 1024, 1, 1), PREPARED},
        {"lstm_T64_B1_H1024_L1_inference", 64, 1, NETWORK(LSTM, 1024, 1024, 1, 1), PREPARED},
        {"lstm_T64_B1_H1024_L1_inference_plain", 64, 1, NETWORK(LSTM, 1024, 1024, 1, 1), INFERENCE},
    };
    *count = sizeof cases / sizeof cases[0];
    return cases;
}

/* A case's lengths, [batch]: the same on every machine; one sequence has all T steps. */
static void rnn_case_lengths(const ashlar_rnn_case *which, int32_t *lengths) {
    ashlar_random random;
    ashlar__random_init(&random, LENGTHS_SEED);
    for (size_t b = 0; b < which->batch; b++) {
        const size_t least = which->is_varied && b > 0 ? which->steps / 4 : which->steps;
        lengths[b] = (int32_t)(least + ashlar__random_below(&random, which->steps - least + 1));
    }
}

ashlar_rnn_work ashlar__rnn_case_work(const ashlar_rnn_case *which) {
    enum { BIASES = 2, LENGTHS_MAX = 64 };
    const ashlar_rnn_config *c = &which->config;
    ashlar_rnn_layout layout;
    int32_t lengths[LENGTHS_MAX];
    double rows = 0; /* of all time steps: the sum of the lengths */
    const ashlar_status status = ashlar_rnn_layout_init(&layout, c);
    ASHLAR_ASSERT(status == ASHLAR_OK && which->batch <= LENGTHS_MAX && c->projection == 0 &&
                  c->bias == ASHLAR_RNN_BIAS_DOUBLE);
    (void)status;
    rnn_case_lengths(which, lengths);
    for (size_t b = 0; b < which->batch; b++) {
        rows += (double)lengths[b];
    }
    const size_t gate_rows = layout.gates * c->hidden;
    const double all = (double)(layout.elements - layout.pseudo_layers * BIASES * gate_rows);
    const double recurrent = (double)(layout.pseudo_layers * gate_rows * layout.state);
    const double passes = which->is_inference ? 1 : 2;
    return (ashlar_rnn_work){
        .flops = 2 * rows * all * (which->is_inference ? 1 : 3),
        .read_bytes = passes * sizeof(float) * (all + recurrent * (double)(which->steps - 1)),
        .state_bytes = gate_rows * layout.state * sizeof(float),
    };
}

enum { VALUES_SEED = 7, RANGE_ALIGN = 256 };

const char *ashlar__rnn_subject_name(ashlar_rnn_subject subject) {
#define NAME(name, text) [ASHLAR_RNN_SUBJECT_##name] = text,
    static const char *const names[] = {ASHLAR_RNN_SUBJECT_MAP(NAME)};
    ASHLAR_TABLE_IS_FULL(names, ASHLAR_RNN_SUBJECT_COUNT);
    return names[subject];
}

static size_t align_up(size_t bytes) {
    return (bytes + RANGE_ALIGN - 1) / RANGE_ALIGN * RANGE_ALIGN;
}

/* Draw `count` numbers of about `width` in size. */
static ashlar_status take_values(ashlar_rnn_setup *s, size_t count, float width, void **out) {
    ashlar_random random;
    float *values;
    ASHLAR_TRY(ashlar_alloc(s->allocator, count * sizeof(float), s->stream, out));
    ASHLAR_HOST_NEW(values, count, "bench: no host memory for %zu numbers", count);
    ashlar__random_init(&random, VALUES_SEED);
    for (size_t i = 0; i < count; i++) {
        values[i] = width * (float)(2 * ashlar__random_uniform(&random) - 1);
    }
    ashlar_status status =
        ashlar_copy_to_device(s->device, *out, values, count * sizeof *values, s->stream);
    ASHLAR_THEN(status, ashlar_stream_synchronize(s->device, s->stream));
    ashlar__host_free(values);
    return status;
}

static ashlar_status prepare(ashlar_rnn_setup *s) {
    const size_t bytes = ashlar_rnn_prepared_bytes(s->rnn);
    if (bytes == 0) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(ashlar_alloc(s->allocator, bytes, s->stream, &s->prepared));
    return ashlar_rnn_prepare(s->rnn, s->weights, s->prepared, s->stream);
}

static ashlar_status take_tensors(ashlar_rnn_setup *s) {
    const ashlar_rnn_layout *layout = ashlar_rnn_layout_of(s->rnn);
    const size_t rows = s->which->steps * s->which->batch;
    ASHLAR_TRY(take_values(s, rows * layout->config.input, 1, &s->x));
    ASHLAR_TRY(take_values(s, rows * layout->output, 1, &s->dy));
    ASHLAR_TRY(take_values(s, layout->elements, 0.06f, &s->weights)); /* 1 / sqrt(H) */
    ASHLAR_TRY(take_values(s, layout->elements, 0, &s->dweights));
    return s->which->is_prepared ? prepare(s) : ASHLAR_OK;
}

static ashlar_status size_buffers(ashlar_rnn_setup *s) {
    const ashlar_rnn_layout *layout = ashlar_rnn_layout_of(s->rnn);
    const size_t rows = s->which->steps * s->which->batch;
    size_t whole = 0;
    ASHLAR_TRY(ashlar_rnn_sizes(s->rnn, s->which->steps, s->which->batch, !s->which->is_inference,
                                &s->bytes[ASHLAR_RNN_RESERVE], &s->bytes[ASHLAR_RNN_WORK]));
    s->bytes[ASHLAR_RNN_OUTPUT] = rows * layout->output * sizeof(float);
    s->bytes[ASHLAR_RNN_DX] =
        s->which->is_inference ? 0 : rows * layout->config.input * sizeof(float);
    for (size_t i = 0; i < ASHLAR_RNN_TAKEN; i++) {
        whole += align_up(s->bytes[i]);
    }
    return ashlar_alloc(s->allocator, whole, s->stream, &s->range);
}

static ashlar_status make_torch(ashlar_rnn_setup *s, ashlar_rnn_torch *torch) {
    const ashlar_rnn_case *const one = s->which;
    bool is_made = false;
    if (torch != NULL && !s->is_cuda) {
        ASHLAR_TRY(ashlar__rnn_torch_make(torch, &one->config, one->steps, one->batch, s->lengths,
                                          one->is_inference, &is_made));
    }
    s->torch = is_made ? torch : NULL;
    return ASHLAR_OK;
}

static ashlar_status take_lengths(ashlar_rnn_setup *s) {
    s->lengths = ashlar__host_calloc(s->which->batch, sizeof s->lengths[0]);
    ASHLAR_FAIL_IF(s->lengths == NULL, ASHLAR_EHOSTMEM, "bench: no host memory for %zu lengths",
                   s->which->batch);
    rnn_case_lengths(s->which, s->lengths);
    return ASHLAR_OK;
}

ashlar_status ashlar__rnn_setup_init(ashlar_rnn_setup *s, ashlar_device *device,
                                     ashlar_rnn_torch *torch, const ashlar_rnn_case *which) {
    const ashlar_device_info info = ashlar_device_get_info(device);
    s->which = which;
    s->device = device;
    s->is_cuda = info.kind == ASHLAR_DEVICE_CUDA;
    ASHLAR_TRY(ashlar_stream_create(device, &s->stream));
    ASHLAR_TRY(ashlar_allocator_create(device, &s->allocator));
    ASHLAR_TRY(take_lengths(s));
    ASHLAR_TRY(make_torch(s, torch));
    ASHLAR_TRY(ashlar_rnn_create(device, &which->config, &s->rnn));
    ASHLAR_TRY(take_tensors(s));
    return size_buffers(s);
}

void ashlar__rnn_setup_finish(ashlar_rnn_setup *s) {
    void *const taken[] = {s->x, s->dy, s->weights, s->dweights, s->prepared, s->range};
    for (size_t i = 0; s->allocator != NULL && i < sizeof taken / sizeof taken[0]; i++) {
        const ashlar_status status = ashlar_free(s->allocator, taken[i]);
        ASHLAR_ASSERT(status == ASHLAR_OK);
        (void)status;
    }
    ashlar_rnn_destroy(s->rnn);
    ashlar__host_free(s->lengths);
    ashlar_allocator_destroy(s->allocator);
    if (s->stream != NULL) {
        ashlar_stream_destroy(s->device, s->stream);
    }
    *s = (ashlar_rnn_setup){0};
}

bool ashlar__rnn_setup_has(const ashlar_rnn_setup *s, ashlar_rnn_subject subject) {
    return subject != ASHLAR_RNN_SUBJECT_TORCH || s->torch != NULL;
}

static ashlar_status take_plain(ashlar_device *device, size_t bytes, void **out) {
    cu_ptr ptr = 0;
    ASHLAR_TRY(ashlar__device_enter(device));
    const cu_result result = ASHLAR_DRIVER_CALL(device->driver, mem_alloc, (&ptr, bytes));
    ashlar__device_leave(device);
    *out = ashlar__ptr_out(ptr);
    return result == CU_SUCCESS
               ? ASHLAR_OK
               : ashlar__fail(ASHLAR_ENOMEM, "bench: the driver has no %zu bytes", bytes);
}

static void give_plain(ashlar_device *device, void *ptr) {
    if (ptr != NULL && ashlar__device_enter(device) == ASHLAR_OK) {
        (void)ASHLAR_DRIVER_CALL(device->driver, mem_free, (ashlar__ptr_in(ptr)));
        ashlar__device_leave(device);
    }
}

static ashlar_status take_one(ashlar_rnn_setup *s, ashlar_rnn_subject subject, size_t i,
                              void **out) {
    size_t offset = 0;
    for (size_t before = 0; before < i; before++) {
        offset += align_up(s->bytes[before]);
    }
    switch (subject) {
    case ASHLAR_RNN_SUBJECT_ASHLAR:
        return ashlar_alloc(s->allocator, s->bytes[i], s->stream, out);
    case ASHLAR_RNN_SUBJECT_DRIVER_EACH_STEP:
        return take_plain(s->device, s->bytes[i], out);
    default:
        *out = (char *)s->range + offset;
        return ASHLAR_OK;
    }
}

static ashlar_status take_buffers(ashlar_rnn_setup *s, ashlar_rnn_subject subject,
                                  void *taken[static ASHLAR_RNN_TAKEN]) {
    for (size_t i = 0; i < ASHLAR_RNN_TAKEN; i++) {
        if (s->bytes[i] != 0) {
            ASHLAR_TRY(take_one(s, subject, i, &taken[i]));
        }
    }
    return ASHLAR_OK;
}

/* Free a step's buffers. Returns `status` or, if that is ASHLAR_OK, the first failure to free. */
static ashlar_status give_buffers(ashlar_rnn_setup *s, ashlar_rnn_subject subject,
                                  void *taken[static ASHLAR_RNN_TAKEN], ashlar_status status) {
    for (size_t i = ASHLAR_RNN_TAKEN; i-- > 0;) {
        if (subject == ASHLAR_RNN_SUBJECT_ASHLAR) {
            const ashlar_status freed = ashlar_free(s->allocator, taken[i]);
            status = status == ASHLAR_OK ? freed : status;
        } else if (subject == ASHLAR_RNN_SUBJECT_DRIVER_EACH_STEP) {
            give_plain(s->device, taken[i]);
        }
    }
    return status;
}

static ashlar_status forward(ashlar_rnn_setup *s, const ashlar_rnn_batch *batch,
                             const ashlar_rnn_buffers *b) {
    ASHLAR_TRY(ashlar_rnn_forward(s->rnn, batch, b, s->stream));
    return ashlar_stream_synchronize(s->device, s->stream);
}

static size_t weight_bytes(const ashlar_rnn_setup *s) {
    return ashlar_rnn_layout_of(s->rnn)->elements * sizeof(float);
}

static ashlar_status backward(ashlar_rnn_setup *s, const ashlar_rnn_batch *batch,
                              const ashlar_rnn_buffers *b) {
    ASHLAR_TRY(ashlar_rnn_backward_data(s->rnn, batch, b, s->stream));
    ASHLAR_TRY(ashlar_fill(s->device, s->dweights, 0, weight_bytes(s), s->stream));
    ASHLAR_TRY(ashlar_rnn_backward_weights(s->rnn, batch, b, s->stream));
    return ashlar_stream_synchronize(s->device, s->stream);
}

static ashlar_status run_ours(ashlar_rnn_setup *s, ashlar_rnn_subject subject, double *middle) {
    const ashlar_rnn_batch batch = {
        .steps = s->which->steps, .batch = s->which->batch, .lengths = s->lengths};
    void *taken[ASHLAR_RNN_TAKEN] = {0};
    ashlar_status status = take_buffers(s, subject, taken);
    const ashlar_rnn_buffers buffers = {
        .reserve = taken[ASHLAR_RNN_RESERVE],
        .work = taken[ASHLAR_RNN_WORK],
        .x = s->x,
        .weights = s->weights,
        .prepared = s->prepared,
        .y = taken[ASHLAR_RNN_OUTPUT],
        .dy = s->dy,
        .dx = taken[ASHLAR_RNN_DX],
        .dweights = s->dweights,
    };
    ASHLAR_THEN(status, forward(s, &batch, &buffers));
    *middle = ashlar__clock_s();
    if (status == ASHLAR_OK && !s->which->is_inference) {
        status = backward(s, &batch, &buffers);
    }
    return give_buffers(s, subject, taken, status);
}

ashlar_status ashlar__rnn_setup_run(ashlar_rnn_setup *s, ashlar_rnn_subject subject,
                                    ashlar_rnn_times *times) {
    if (subject == ASHLAR_RNN_SUBJECT_TORCH) {
        return ashlar__rnn_torch_step(s->torch, &times->forward_s, &times->backward_s);
    }
    const double start = ashlar__clock_s();
    double middle = start;
    const ashlar_status status = run_ours(s, subject, &middle);
    const double end = ashlar__clock_s();
    times->forward_s = s->which->is_inference ? end - start : middle - start;
    times->backward_s = s->which->is_inference ? 0 : end - middle;
    return status;
}
