/*
 * rnn_layout.c - offsets of the weights of an RNN stack in cuDNN's packed order.
 */
#include <ashlar/rnn_layout.h>

#include <stdbool.h>

#include "check_level.h"
#include "checked.h"
#include "error.h"

static const size_t ELEMENT_LIMIT = (size_t)1 << 31;

static size_t gate_rows(const ashlar_rnn_config *config) {
    return ASHLAR_LSTM_GATES * config->hidden;
}

static size_t layer_input(const ashlar_rnn_config *config, size_t layer) {
    return layer == 0 ? config->input : config->hidden;
}

/* base(layer) of the header's formula. Layers above the first are all of one size. */
static size_t matrix_base(const ashlar_rnn_config *config, size_t layer) {
    if (layer == 0) {
        return 0;
    }
    const size_t first = gate_rows(config) * (config->input + config->hidden);
    return first + (layer - 1) * gate_rows(config) * 2 * config->hidden;
}

/* Elements of the whole stack; false when they reach the limit. */
static bool count_elements(const ashlar_rnn_config *config, size_t *out) {
    if (config->input >= ELEMENT_LIMIT || config->hidden >= ELEMENT_LIMIT ||
        config->layers >= ELEMENT_LIMIT) {
        return false;
    }
    /* Elements per gate row. Below 2^63 + 2^34 with such dimensions, so it cannot wrap. */
    const size_t width = config->input + config->hidden +
                         2 * config->hidden * (config->layers - 1) + 2 * config->layers;
    size_t elements;
    if (!ashlar_mul(gate_rows(config), width, &elements) || elements >= ELEMENT_LIMIT) {
        return false;
    }
    *out = elements;
    return true;
}

ashlar_status ashlar_rnn_layout_init(ashlar_rnn_layout *layout, const ashlar_rnn_config *config) {
    if (config->input == 0 || config->hidden == 0 || config->layers == 0) {
        return ashlar_fail(ASHLAR_EINVAL,
                           "rnn: input %zu, hidden %zu, layers %zu; each must be at least 1",
                           config->input, config->hidden, config->layers);
    }
    if (ashlar_dtype_bytes(config->dtype) == 0) {
        return ashlar_fail(ASHLAR_EINVAL, "rnn: dtype %d is no element type; use ASHLAR_F32 or "
                           "ASHLAR_F64", (int)config->dtype);
    }
    size_t elements;
    if (!count_elements(config, &elements)) {
        return ashlar_fail(ASHLAR_EOVERFLOW,
                           "rnn: input %zu, hidden %zu, layers %zu need 2^31 weights or more; "
                           "lower hidden or layers",
                           config->input, config->hidden, config->layers);
    }
    *layout = (ashlar_rnn_layout){.config = *config, .elements = elements};
    return ASHLAR_OK;
}

ashlar_rnn_view ashlar_rnn_layout_view(const ashlar_rnn_layout *layout, size_t layer,
                                       ashlar_rnn_tensor tensor) {
    const ashlar_rnn_config *config = &layout->config;
    ASHLAR_ASSERT(layer < config->layers && (unsigned)tensor < ASHLAR_RNN_TENSOR_COUNT);
    const size_t rows = gate_rows(config);
    const size_t base = matrix_base(config, layer);
    const size_t bias = matrix_base(config, config->layers) + layer * 2 * rows;
    const size_t input = layer_input(config, layer);
    const ashlar_rnn_view views[ASHLAR_RNN_TENSOR_COUNT] = {
        [ASHLAR_RNN_W] = {.offset = base, .rows = rows, .cols = input},
        [ASHLAR_RNN_R] = {.offset = base + rows * input, .rows = rows, .cols = config->hidden},
        [ASHLAR_RNN_BW] = {.offset = bias, .rows = rows, .cols = 1},
        [ASHLAR_RNN_BR] = {.offset = bias + rows, .rows = rows, .cols = 1},
    };
    return views[tensor];
}
