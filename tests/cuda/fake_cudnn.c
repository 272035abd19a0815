/*
 * fake_cudnn.c - a cuDNN for tests: handles, descriptors and the layout of the weights as the real
 * one answers, every call recorded and made to fail on request. fake_cudnn_run.c computes. The
 * environment variable FAKE_CUDNN makes it misbehave: "old" (a version that is too old) or "wrong" (a
 * wrong number in y).
 *
 * Rules of arguments are those that cuDNN 9.19 was seen to have.
 */
#include "tests/cuda/fake_cudnn_impl.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fake_cudnn_control fake_cudnn;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of fake_cudnn */

bool fake_admit(void) {
    pthread_mutex_lock(&lock);
    fake_cudnn.calls++;
    const bool is_good = fake_cudnn.fail_at == 0 || --fake_cudnn.fail_at != 0;
    pthread_mutex_unlock(&lock);
    return is_good;
}

void fake_log(const char *format, ...) {
    va_list args;
    va_start(args, format);
    pthread_mutex_lock(&lock);
    const size_t used = strlen(fake_cudnn.log);
    (void)vsnprintf(fake_cudnn.log + used, sizeof fake_cudnn.log - used, format, args);
    pthread_mutex_unlock(&lock);
    va_end(args);
}

cudnnStatus_t fake_misuse(const char *format, ...) {
    va_list args;
    va_start(args, format);
    pthread_mutex_lock(&lock);
    if (fake_cudnn.misuse[0] == '\0') {
        (void)vsnprintf(fake_cudnn.misuse, sizeof fake_cudnn.misuse, format, args);
    }
    pthread_mutex_unlock(&lock);
    va_end(args);
    return CUDNN_STATUS_BAD_PARAM;
}

static void *make(size_t bytes) {
    void *made = calloc(1, bytes);
    pthread_mutex_lock(&lock);
    fake_cudnn.live += made != NULL;
    pthread_mutex_unlock(&lock);
    return made;
}

static cudnnStatus_t unmake(void *made) {
    if (made == NULL) {
        return fake_misuse("NULL is destroyed");
    }
    pthread_mutex_lock(&lock);
    fake_cudnn.live--;
    pthread_mutex_unlock(&lock);
    free(made);
    return CUDNN_STATUS_SUCCESS;
}

#define CREATE(function, type)                                                   \
    cudnnStatus_t function(type *out) {                                          \
        FAKE_ENTER();                                                            \
        *out = make(sizeof **out);                                               \
        return *out == NULL ? CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED \
                            : CUDNN_STATUS_SUCCESS;                              \
    }
#define DESTROY(function, type)         \
    cudnnStatus_t function(type made) { \
        return unmake(made);            \
    }

CREATE(cudnnCreateTensorDescriptor, cudnnTensorDescriptor_t)
DESTROY(cudnnDestroyTensorDescriptor, cudnnTensorDescriptor_t)
CREATE(cudnnCreateDropoutDescriptor, cudnnDropoutDescriptor_t)
DESTROY(cudnnDestroyDropoutDescriptor, cudnnDropoutDescriptor_t)
CREATE(cudnnCreateRNNDescriptor, cudnnRNNDescriptor_t)
DESTROY(cudnnDestroyRNNDescriptor, cudnnRNNDescriptor_t)
CREATE(cudnnCreateRNNDataDescriptor, cudnnRNNDataDescriptor_t)

cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t data) {
    if (data != NULL) {
        free(data->lengths);
    }
    return unmake(data);
}

static bool fault_is(const char *name) {
    const char *fault = getenv("FAKE_CUDNN");
    return fault != NULL && strcmp(fault, name) == 0;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
    FAKE_ENTER();
    if (!fake_has_context()) {
        return fake_misuse("cudnnCreate without a context");
    }
    if (fault_is("wrong")) {
        fake_cudnn.plant = FAKE_CUDNN_WRONG_Y;
    }
    *handle = make(sizeof **handle);
    return CUDNN_STATUS_SUCCESS;
}
DESTROY(cudnnDestroy, cudnnHandle_t)

size_t cudnnGetVersion(void) {
    return fault_is("old") ? 80907 : 91900;
}

const char *cudnnGetErrorString(cudnnStatus_t status) {
    return status == CUDNN_STATUS_BAD_PARAM ? "CUDNN_STATUS_BAD_PARAM" : "CUDNN_STATUS_FAKE";
}

void cudnnGetLastErrorString(char *message, size_t size) {
    (void)snprintf(message, size, "the fake's last words");
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    FAKE_ENTER();
    handle->stream = (cu_stream)stream;
    return CUDNN_STATUS_SUCCESS;
}

size_t fake_type_bytes(cudnnDataType_t type) {
    return type == CUDNN_DATA_DOUBLE ? 8 : type == CUDNN_DATA_FLOAT ? 4 : 2;
}

/* ---- tensors ---- */

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t desc, cudnnDataType_t type,
                                         int dims, const int shape[], const int strides[]) {
    FAKE_ENTER();
    if (dims != MAX_DIMS) {
        return fake_misuse("a tensor of %d dimensions", dims);
    }
    *desc = (struct cudnnTensorStruct){.type = type, .dims = dims};
    memcpy(desc->shape, shape, sizeof desc->shape);
    memcpy(desc->strides, strides, sizeof desc->strides);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t desc, int requested,
                                         cudnnDataType_t *type, int *dims, int shape[],
                                         int strides[]) {
    FAKE_ENTER();
    const size_t bytes = (size_t)(requested < desc->dims ? requested : desc->dims) * sizeof(int);
    *type = desc->type;
    *dims = desc->dims;
    memcpy(shape, desc->shape, bytes);
    memcpy(strides, desc->strides, bytes);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t desc, cudnnDataType_t type,
                                        cudnnRNNDataLayout_t layout, int steps, int batch,
                                        int width, const int lengths[], void *padding_fill) {
    FAKE_ENTER();
    if (layout != CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED || steps < 1 || batch < 1 || width < 1 ||
        lengths == NULL) {
        return fake_misuse("data of %d steps, %d sequences, width %d, layout %d", steps, batch,
                           width, (int)layout);
    }
    for (int b = 0; b < batch; b++) {
        if (lengths[b] < 1 || lengths[b] > steps) {
            return fake_misuse("a length of %d of %d", lengths[b], steps);
        }
    }
    free(desc->lengths);
    desc->lengths = malloc((size_t)batch * sizeof(int));
    memcpy(desc->lengths, lengths, (size_t)batch * sizeof(int));
    desc->is_set = true;
    desc->has_padding_fill =
        padding_fill != NULL && memcmp(padding_fill, "\0\0\0\0\0\0\0", fake_type_bytes(type)) == 0;
    desc->type = type;
    desc->steps = steps;
    desc->batch = batch;
    desc->width = width;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- dropout ---- */

cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t handle, size_t *bytes) {
    FAKE_ENTER();
    *bytes = FAKE_CUDNN_STATES_BYTES;
    return handle == NULL ? fake_misuse("no handle") : CUDNN_STATUS_SUCCESS;
}

typedef struct seeding {
    unsigned long long *state, seed;
} seeding;

static void seed_states(void *user_data) {
    seeding *job = user_data;
    *job->state = job->seed;
}

cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t desc, cudnnHandle_t handle,
                                        float part, void *states, size_t bytes,
                                        unsigned long long seed) {
    FAKE_ENTER();
    fake_log("dropout(%g,%s,%llu) ", (double)part, states == NULL ? "none" : "states", seed);
    *desc = (struct cudnnDropoutStruct){.part = part, .states = states, .bytes = bytes};
    if (states == NULL) {
        return part == 0 ? CUDNN_STATUS_SUCCESS : fake_misuse("dropout without states");
    }
    if (bytes < FAKE_CUDNN_STATES_BYTES || !fake_has_context()) {
        return fake_misuse("dropout's states of %zu bytes, or no context", bytes);
    }
    seeding *job = fake_keep(sizeof *job);
    *job = (seeding){states, seed};
    return fake_launch(handle->stream, seed_states, job) == CU_SUCCESS
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_EXECUTION_FAILED;
}

/* ---- the stack ---- */

static bool is_precision(cudnnDataType_t type, cudnnDataType_t math) {
    return type == CUDNN_DATA_DOUBLE ? math == CUDNN_DATA_DOUBLE : math == CUDNN_DATA_FLOAT;
}

cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t rnn, cudnnRNNAlgo_t algorithm,
                                       cudnnRNNMode_t cell, cudnnRNNBiasMode_t bias,
                                       cudnnDirectionMode_t direction, cudnnRNNInputMode_t input,
                                       cudnnDataType_t type, cudnnDataType_t precision,
                                       cudnnMathType_t math, int32_t input_size,
                                       int32_t hidden_size, int32_t projection, int32_t layers,
                                       cudnnDropoutDescriptor_t dropout, uint32_t flags) {
    FAKE_ENTER();
    fake_log("rnn(algorithm=%d,cell=%d,bias=%d,direction=%d,input=%d,type=%d,precision=%d,math=%d,"
             "%dx%dx%dx%d,flags=%u) ",
             (int)algorithm, (int)cell, (int)bias, (int)direction, (int)input, (int)type,
             (int)precision, (int)math, input_size, hidden_size, projection, layers, flags);
    if (projection <= 0 || flags != CUDNN_RNN_PADDED_IO_ENABLED || dropout == NULL ||
        input != CUDNN_LINEAR_INPUT) {
        return fake_misuse("projection %d, flags %u, or no dropout", projection, flags);
    }
    if (projection > hidden_size || !is_precision(type, precision) ||
        (projection != hidden_size &&
         (cell != CUDNN_LSTM || algorithm != CUDNN_RNN_ALGO_STANDARD)) ||
        (algorithm != CUDNN_RNN_ALGO_STANDARD &&
         (bias != CUDNN_RNN_DOUBLE_BIAS ||
          (type == CUDNN_DATA_DOUBLE && algorithm != CUDNN_RNN_ALGO_PERSIST_DYNAMIC)))) {
        return CUDNN_STATUS_NOT_SUPPORTED;
    }
    *rnn = (struct cudnnRNNStruct){.is_set = true,
                                   .algorithm = algorithm,
                                   .cell = cell,
                                   .bias = bias,
                                   .direction = direction,
                                   .type = type,
                                   .input = input_size,
                                   .hidden = hidden_size,
                                   .projection = projection,
                                   .layers = layers,
                                   .dropout = *dropout};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBuildRNNDynamic(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, int batch) {
    FAKE_ENTER();
    fake_log("build(%d) ", batch);
    rnn->built_batch = batch;
    return handle == NULL ? fake_misuse("no handle") : CUDNN_STATUS_SUCCESS;
}

/* The order of the weights, from what the real cuDNN answers: all matrices of all parts (W by
 * gates, R by gates, the projection), then all biases of all parts (bW, bR). In elements. */
typedef struct geometry {
    size_t gates, directions, hidden, state;
    size_t input_biases, recurrent_biases; /* 0 or 1 */
} geometry;

static geometry geometry_of(const struct cudnnRNNStruct *rnn) {
    return (geometry){
        .gates = rnn->cell == CUDNN_LSTM  ? 4
                 : rnn->cell == CUDNN_GRU ? 3
                                          : 1,
        .directions = rnn->direction == CUDNN_BIDIRECTIONAL ? 2 : 1,
        .hidden = (size_t)rnn->hidden,
        .state = (size_t)rnn->projection,
        .input_biases =
            rnn->bias == CUDNN_RNN_DOUBLE_BIAS || rnn->bias == CUDNN_RNN_SINGLE_INP_BIAS,
        .recurrent_biases =
            rnn->bias == CUDNN_RNN_DOUBLE_BIAS || rnn->bias == CUDNN_RNN_SINGLE_REC_BIAS,
    };
}

static size_t input_of(const struct cudnnRNNStruct *rnn, const geometry *g, size_t part) {
    return part < g->directions ? (size_t)rnn->input : g->directions * g->state;
}

static size_t matrices_of(const struct cudnnRNNStruct *rnn, const geometry *g, size_t part) {
    const size_t projected = g->state != g->hidden ? g->state * g->hidden : 0;
    return g->gates * g->hidden * (input_of(rnn, g, part) + g->state) + projected;
}

static size_t matrices_before(const struct cudnnRNNStruct *rnn, const geometry *g, size_t part) {
    size_t sum = 0;
    for (size_t p = 0; p < part; p++) {
        sum += matrices_of(rnn, g, p);
    }
    return sum;
}

size_t fake_weight_bytes(const struct cudnnRNNStruct *rnn) {
    const geometry g = geometry_of(rnn);
    const size_t parts = (size_t)rnn->layers * g.directions;
    const size_t biases = parts * (g.input_biases + g.recurrent_biases) * g.gates * g.hidden;
    return (matrices_before(rnn, &g, parts) + biases) * fake_type_bytes(rnn->type);
}

cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                                         size_t *bytes) {
    FAKE_ENTER();
    *bytes = fake_weight_bytes(rnn) + (fake_cudnn.change == FAKE_CUDNN_SIZE ? 4 : 0);
    return handle == NULL ? fake_misuse("no handle") : CUDNN_STATUS_SUCCESS;
}

/* Row-major. Missing: no dimensions. */
static void describe(cudnnTensorDescriptor_t desc, cudnnDataType_t type, size_t rows, size_t cols) {
    *desc = (struct cudnnTensorStruct){.type = type};
    if (rows > 0) {
        const int r = (int)rows, c = (int)cols;
        *desc = (struct cudnnTensorStruct){type, MAX_DIMS, {1, r, c}, {r * c, c, 1}};
    }
}

cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, int32_t part,
                                      size_t bytes, const void *weights, int32_t number,
                                      cudnnTensorDescriptor_t matrix, void **matrix_at,
                                      cudnnTensorDescriptor_t bias, void **bias_at) {
    FAKE_ENTER();
    const geometry g = geometry_of(rnn);
    const size_t parts = (size_t)rnn->layers * g.directions, p = (size_t)part;
    const size_t block = (size_t)number / g.gates;
    size_t gate = (size_t)number % g.gates;
    if (handle == NULL || bytes != fake_weight_bytes(rnn) || p >= parts ||
        (size_t)number > 2 * g.gates ||
        ((size_t)number == 2 * g.gates && rnn->cell != CUDNN_LSTM)) {
        return fake_misuse("weight %d of part %d in %zu bytes", number, part, bytes);
    }
    const fake_cudnn_change change = p + 1 == parts ? fake_cudnn.change : FAKE_CUDNN_SAME;
    if (change == FAKE_CUDNN_GATES && block == 1 && gate < 2) {
        gate = 1 - gate;
    }
    const size_t in = input_of(rnn, &g, p);
    const size_t begin = matrices_before(rnn, &g, p), all = matrices_before(rnn, &g, parts);
    const size_t both = g.input_biases + g.recurrent_biases;
    const size_t bias_begin =
        (change == FAKE_CUDNN_BIASES ? 0 : all) + p * both * g.gates * g.hidden;
    const size_t rows = block < 2 ? g.hidden : g.state != g.hidden ? g.state : 0;
    const size_t cols = block == 0 ? in : block == 1 ? g.state : g.hidden;
    const size_t at = block == 0   ? begin + gate * g.hidden * in
                      : block == 1 ? begin + g.gates * g.hidden * in + gate * g.hidden * g.state
                                   : begin + g.gates * g.hidden * (in + g.state);
    const bool has_bias = (block == 0 && g.input_biases != 0) ||
                          (block == 1 && g.recurrent_biases != 0 && change != FAKE_CUDNN_ABSENT);
    const size_t bias_rank = block == 1 ? g.input_biases : 0;
    const size_t bias_place = bias_begin + (bias_rank * g.gates + gate) * g.hidden;
    const size_t item = fake_type_bytes(rnn->type);
    describe(matrix, rnn->type, rows, cols);
    if (change == FAKE_CUDNN_COLUMNS && block == 0) {
        matrix->strides[1] = 1;
        matrix->strides[2] = (int)rows;
    }
    describe(bias, rnn->type, has_bias ? g.hidden : 0, 1);
    *matrix_at = rows == 0 ? NULL : (char *)(uintptr_t)weights + at * item;
    *bias_at = has_bias ? (char *)(uintptr_t)weights + bias_place * item : NULL;
    return CUDNN_STATUS_SUCCESS;
}
