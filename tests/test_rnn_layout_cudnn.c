/*
 * test_rnn_layout_cudnn.c - the packed order against what cuDNN itself answers.
 *
 * Needs no GPU: cuDNN 9.19 computes weight addresses on the host and only compares its handle
 * with NULL, so where no handle can be created a pointer to zeroed memory stands in for one. That
 * is outside cuDNN's contract. It is done here only, and only for the version where it was seen.
 */
#include "check.h"

#include <stdint.h>

#include <cudnn.h>

#include <ashlar/rnn_layout.h>

enum {
    ORACLE_VERSION = 91900,
    CONFIG_COUNT = 400,
    GATES = ASHLAR_LSTM_GATES,
};

static uint64_t random_state = 0x9e3779b97f4a7c15u;

static size_t random_between(size_t low, size_t high) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return low + (size_t)(random_state >> 11) % (high - low + 1);
}

typedef struct oracle {
    cudnnHandle_t handle;
    cudnnRNNDescriptor_t rnn;
    cudnnDropoutDescriptor_t dropout;
    cudnnTensorDescriptor_t matrix, bias;
} oracle;

static bool oracle_configure(const oracle *cudnn, const ashlar_rnn_config *config) {
    const cudnnDataType_t type =
        config->dtype == ASHLAR_F64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    return cudnnSetRNNDescriptor_v8(
               cudnn->rnn, CUDNN_RNN_ALGO_STANDARD, CUDNN_LSTM, CUDNN_RNN_DOUBLE_BIAS,
               CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT, type, type, CUDNN_FMA_MATH,
               (int32_t)config->input, (int32_t)config->hidden, (int32_t)config->hidden,
               (int32_t)config->layers, cudnn->dropout,
               CUDNN_RNN_PADDED_IO_ENABLED) == CUDNN_STATUS_SUCCESS;
}

/* One gate of one of our tensors: its own rows of a view in which the gates follow each other. */
static size_t gate_offset(const ashlar_rnn_layout *layout, size_t layer, ashlar_rnn_tensor tensor,
                          size_t gate) {
    const ashlar_rnn_view view = ashlar_rnn_layout_view(layout, layer, tensor);
    return view.offset + gate * (view.rows / GATES) * view.cols;
}

static void compare_gate(const oracle *cudnn, const ashlar_rnn_layout *layout, size_t layer,
                         size_t linear_id) {
    char *const base = (char *)(uintptr_t)0x100000000000u; /* never read */
    const size_t item = ashlar_dtype_bytes(layout->config.dtype);
    const bool is_input = linear_id < GATES;
    const size_t gate = linear_id % GATES;
    const ashlar_rnn_tensor matrix = is_input ? ASHLAR_RNN_W : ASHLAR_RNN_R;
    const ashlar_rnn_tensor bias = is_input ? ASHLAR_RNN_BW : ASHLAR_RNN_BR;
    void *matrix_at = NULL, *bias_at = NULL;
    REQUIRE(cudnnGetRNNWeightParams(cudnn->handle, cudnn->rnn, (int32_t)layer,
                                    layout->elements * item, base, (int32_t)linear_id,
                                    cudnn->matrix, &matrix_at, cudnn->bias,
                                    &bias_at) == CUDNN_STATUS_SUCCESS);
    cudnnDataType_t type;
    int dims = 0, shape[3] = {0}, strides[3] = {0};
    REQUIRE(cudnnGetTensorNdDescriptor(cudnn->matrix, 3, &type, &dims, shape, strides) ==
            CUDNN_STATUS_SUCCESS);
    const ashlar_rnn_view view = ashlar_rnn_layout_view(layout, layer, matrix);
    CHECK_ZU((size_t)((char *)matrix_at - base), gate_offset(layout, layer, matrix, gate) * item);
    CHECK_ZU((size_t)((char *)bias_at - base), gate_offset(layout, layer, bias, gate) * item);
    CHECK_ZU((size_t)shape[1], view.rows / GATES);
    CHECK_ZU((size_t)shape[2], view.cols);
    CHECK_ZU((size_t)strides[1], view.cols);
}

static void compare_config(const oracle *cudnn, const ashlar_rnn_config *config) {
    ashlar_rnn_layout layout;
    REQUIRE(ashlar_rnn_layout_init(&layout, config) == ASHLAR_OK);
    REQUIRE(oracle_configure(cudnn, config));
    size_t bytes = 0;
    REQUIRE(cudnnGetRNNWeightSpaceSize(cudnn->handle, cudnn->rnn, &bytes) ==
            CUDNN_STATUS_SUCCESS);
    CHECK_ZU(layout.elements * ashlar_dtype_bytes(config->dtype), bytes);
    for (size_t layer = 0; layer < config->layers; layer++) {
        for (size_t linear_id = 0; linear_id < 2 * GATES; linear_id++) {
            compare_gate(cudnn, &layout, layer, linear_id);
        }
    }
}

static void cudnn_places_every_weight_where_the_layout_does(void) {
    static char page[1 << 16];
    oracle cudnn = {0};
    const bool has_handle = cudnnCreate(&cudnn.handle) == CUDNN_STATUS_SUCCESS;
    if (!has_handle) {
        if (cudnnGetVersion() != ORACLE_VERSION) {
            SKIP("no GPU, and not the cuDNN version that answers without one");
        }
        cudnn.handle = (cudnnHandle_t)(void *)page;
    }
    REQUIRE(cudnnCreateRNNDescriptor(&cudnn.rnn) == CUDNN_STATUS_SUCCESS);
    REQUIRE(cudnnCreateDropoutDescriptor(&cudnn.dropout) == CUDNN_STATUS_SUCCESS);
    REQUIRE(cudnnCreateTensorDescriptor(&cudnn.matrix) == CUDNN_STATUS_SUCCESS);
    REQUIRE(cudnnCreateTensorDescriptor(&cudnn.bias) == CUDNN_STATUS_SUCCESS);
    for (int i = 0; i < CONFIG_COUNT; i++) {
        const size_t widest = i % 2 == 0 ? 40 : 2000;
        const ashlar_rnn_config config = {
            .input = random_between(1, widest),
            .hidden = random_between(1, widest),
            .layers = random_between(1, 8),
            .dtype = random_between(0, 1) == 0 ? ASHLAR_F32 : ASHLAR_F64,
        };
        compare_config(&cudnn, &config);
    }
    cudnnDestroyTensorDescriptor(cudnn.bias);
    cudnnDestroyTensorDescriptor(cudnn.matrix);
    cudnnDestroyDropoutDescriptor(cudnn.dropout);
    cudnnDestroyRNNDescriptor(cudnn.rnn);
    if (has_handle) {
        cudnnDestroy(cudnn.handle);
    }
}

int main(void) {
    RUN(cudnn_places_every_weight_where_the_layout_does);
    return check_report();
}
