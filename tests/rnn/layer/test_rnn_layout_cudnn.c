/*
 * test_rnn_layout_cudnn.c - the packed order against what cuDNN itself answers.
 *
 * Needs no GPU: cuDNN 9.19 computes weight addresses on the host and only compares its handle
 * with NULL, so where no handle can be created a pointer to zeroed memory stands in for one. That
 * is outside cuDNN's contract. It is done here only, and only for the version where it was seen.
 */
#include "tests/check.h"
#include "allocator/base/random.h"

#include <stdint.h>

#include <cudnn.h>

#include <ashlar/rnn_layout.h>

enum {
    ORACLE_VERSION = 91900,
    CONFIG_COUNT = 1600,
};

static uint64_t random_state = 0x9e3779b97f4a7c15u;

static size_t random_between(size_t low, size_t high) {
    return low + (size_t)ashlar__random_step_below(&random_state, high - low + 1);
}

typedef struct oracle {
    cudnnHandle_t handle;
    cudnnRNNDescriptor_t rnn;
    cudnnDropoutDescriptor_t dropout;
    cudnnTensorDescriptor_t matrix, bias;
} oracle;

static cudnnRNNMode_t mode_of(ashlar_rnn_cell cell) {
    static const cudnnRNNMode_t modes[ASHLAR_RNN_CELL_COUNT] = {
        [ASHLAR_RNN_LSTM] = CUDNN_LSTM,
        [ASHLAR_RNN_GRU] = CUDNN_GRU,
        [ASHLAR_RNN_TANH] = CUDNN_RNN_TANH,
        [ASHLAR_RNN_RELU] = CUDNN_RNN_RELU,
    };
    return modes[cell];
}

static cudnnRNNBiasMode_t bias_of(ashlar_rnn_bias bias) {
    static const cudnnRNNBiasMode_t modes[ASHLAR_RNN_BIAS_COUNT] = {
        [ASHLAR_RNN_BIAS_DOUBLE] = CUDNN_RNN_DOUBLE_BIAS,
        [ASHLAR_RNN_BIAS_NONE] = CUDNN_RNN_NO_BIAS,
        [ASHLAR_RNN_BIAS_INPUT] = CUDNN_RNN_SINGLE_INP_BIAS,
        [ASHLAR_RNN_BIAS_RECURRENT] = CUDNN_RNN_SINGLE_REC_BIAS,
    };
    return modes[bias];
}

/* cuDNN's name for no projection is one as wide as hidden. */
static bool oracle_configure(const oracle *cudnn, const ashlar_rnn_layout *layout) {
    const ashlar_rnn_config *c = &layout->config;
    const cudnnDataType_t type = c->dtype == ASHLAR_F64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    return cudnnSetRNNDescriptor_v8(
               cudnn->rnn, CUDNN_RNN_ALGO_STANDARD, mode_of(c->cell), bias_of(c->bias),
               c->directions == 2 ? CUDNN_BIDIRECTIONAL : CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT,
               type, type, CUDNN_FMA_MATH, (int32_t)c->input, (int32_t)c->hidden,
               (int32_t)layout->state, (int32_t)c->layers, cudnn->dropout,
               CUDNN_RNN_PADDED_IO_ENABLED) == CUDNN_STATUS_SUCCESS;
}

static char *const base = (char *)(uintptr_t)0x100000000000u; /* never read */

/* One gate of one of our tensors: its own rows of a view in which the gates follow each other. */
static void compare_place(const void *place, const ashlar_rnn_layout *layout, size_t pseudo_layer,
                          ashlar_rnn_tensor tensor, size_t gate, size_t gates) {
    const ashlar_rnn_view view = ashlar_rnn_layout_view(layout, pseudo_layer, tensor);
    const size_t item = ashlar_dtype_bytes(layout->config.dtype);
    CHECK((place == NULL) == (view.rows == 0));
    if (place != NULL) {
        CHECK_ZU((size_t)((const char *)place - base),
                 (view.offset + gate * (view.rows / gates) * view.cols) * item);
    }
}

/* Rows, columns and the distance of rows of the matrix that cuDNN has just described. */
static void compare_shape(const oracle *cudnn, const ashlar_rnn_view *view, size_t gates) {
    cudnnDataType_t type;
    int dims = 0, shape[3] = {0}, strides[3] = {0};
    REQUIRE(cudnnGetTensorNdDescriptor(cudnn->matrix, 3, &type, &dims, shape, strides) ==
            CUDNN_STATUS_SUCCESS);
    CHECK_ZU((size_t)shape[1], view->rows / gates);
    CHECK_ZU((size_t)shape[2], view->cols);
    CHECK_ZU((size_t)strides[1], view->cols);
}

/* Ask for one linear layer: the gates of W, then those of R, then the projection. */
static void compare_linear(const oracle *cudnn, const ashlar_rnn_layout *layout,
                           size_t pseudo_layer, size_t linear_id) {
    const size_t block = linear_id / layout->gates, gate = linear_id % layout->gates;
    static const ashlar_rnn_tensor matrices[] = {ASHLAR_RNN_W, ASHLAR_RNN_R, ASHLAR_RNN_WP};
    static const ashlar_rnn_tensor biases[] = {ASHLAR_RNN_BW, ASHLAR_RNN_BR};
    void *matrix_at = NULL, *bias_at = NULL;
    REQUIRE(cudnnGetRNNWeightParams(cudnn->handle, cudnn->rnn, (int32_t)pseudo_layer,
                                    layout->elements * ashlar_dtype_bytes(layout->config.dtype),
                                    base, (int32_t)linear_id, cudnn->matrix, &matrix_at,
                                    cudnn->bias, &bias_at) == CUDNN_STATUS_SUCCESS);
    const size_t gates = block < 2 ? layout->gates : 1;
    compare_place(matrix_at, layout, pseudo_layer, matrices[block], gate, gates);
    if (block < 2) {
        compare_place(bias_at, layout, pseudo_layer, biases[block], gate, gates);
    }
    const ashlar_rnn_view view = ashlar_rnn_layout_view(layout, pseudo_layer, matrices[block]);
    if (view.rows > 0) {
        compare_shape(cudnn, &view, gates);
    }
}

static void compare_config(const oracle *cudnn, const ashlar_rnn_config *config) {
    ashlar_rnn_layout layout;
    REQUIRE(ashlar_rnn_layout_init(&layout, config) == ASHLAR_OK);
    REQUIRE(oracle_configure(cudnn, &layout));
    size_t bytes = 0;
    REQUIRE(cudnnGetRNNWeightSpaceSize(cudnn->handle, cudnn->rnn, &bytes) == CUDNN_STATUS_SUCCESS);
    CHECK_ZU(layout.elements * ashlar_dtype_bytes(config->dtype), bytes);
    const size_t projection = config->cell == ASHLAR_RNN_LSTM; /* only there it has a number */
    for (size_t pseudo_layer = 0; pseudo_layer < layout.pseudo_layers; pseudo_layer++) {
        for (size_t linear_id = 0; linear_id < 2 * layout.gates + projection; linear_id++) {
            compare_linear(cudnn, &layout, pseudo_layer, linear_id);
        }
    }
}

/* Sizes small and large; every cell, bias, direction and projection by chance. */
static ashlar_rnn_config random_config(int i) {
    const size_t widest = i % 2 == 0 ? 40 : 2000;
    ashlar_rnn_config config = {
        .input = random_between(1, widest),
        .hidden = random_between(1, widest),
        .layers = random_between(1, 8),
        .dtype = random_between(0, 1) == 0 ? ASHLAR_F32 : ASHLAR_F64,
        .cell = (ashlar_rnn_cell)random_between(0, ASHLAR_RNN_CELL_COUNT - 1),
        .bias = (ashlar_rnn_bias)random_between(0, ASHLAR_RNN_BIAS_COUNT - 1),
        .directions = random_between(1, 2),
    };
    if (config.cell == ASHLAR_RNN_LSTM && random_between(0, 1) == 0) {
        config.projection = random_between(0, config.hidden - 1);
    }
    return config;
}

CASE(cudnn_places_every_weight_where_the_layout_does) {
    static char page[1 << 16];
    oracle cudnn = {0};
    const bool has_handle = cudnnCreate(&cudnn.handle) == CUDNN_STATUS_SUCCESS;
    if (!has_handle) {
        SKIP_IF(cudnnGetVersion() != ORACLE_VERSION,
                "no GPU, and not the cuDNN version that answers without one");
        cudnn.handle = (cudnnHandle_t)(void *)page;
    }
    REQUIRE(cudnnCreateRNNDescriptor(&cudnn.rnn) == CUDNN_STATUS_SUCCESS);
    REQUIRE(cudnnCreateDropoutDescriptor(&cudnn.dropout) == CUDNN_STATUS_SUCCESS);
    REQUIRE(cudnnCreateTensorDescriptor(&cudnn.matrix) == CUDNN_STATUS_SUCCESS);
    REQUIRE(cudnnCreateTensorDescriptor(&cudnn.bias) == CUDNN_STATUS_SUCCESS);
    for (int i = 0; i < CONFIG_COUNT; i++) {
        const ashlar_rnn_config config = random_config(i);
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

RUN_CASES()
