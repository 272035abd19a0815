/* rnn_layout.c - offsets of the weights of an RNN stack in cuDNN's packed order, and the weights'
 * PyTorch names. */
#include <ashlar/rnn.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/checked.h"
#include "allocator/base/host.h"

static const size_t ELEMENT_LIMIT = (size_t)1 << 31;

#define CELL_GATES(name, gates, text) gates,
#define CELL_TEXT(name, gates, text) text,
static const size_t cell_gates[] = {ASHLAR_RNN_CELL_MAP(CELL_GATES)};
ASHLAR_TABLE_IS_FULL(cell_gates, ASHLAR_RNN_CELL_COUNT);
static const char *const cell_texts[] = {ASHLAR_RNN_CELL_MAP(CELL_TEXT)};
ASHLAR_TABLE_IS_FULL(cell_texts, ASHLAR_RNN_CELL_COUNT);

const char *ashlar_rnn_cell_name(ashlar_rnn_cell cell) {
    return (unsigned)cell < ASHLAR_RNN_CELL_COUNT ? cell_texts[cell] : NULL;
}

static ashlar_status check_sizes(const ashlar_rnn_config *c) {
    ASHLAR_FAIL_IF(c->input == 0 || c->hidden == 0 || c->layers == 0, ASHLAR_EINVAL,
                   "rnn: input %zu, hidden %zu, layers %zu; each must be at least 1", c->input,
                   c->hidden, c->layers);
    ASHLAR_FAIL_IF(
        c->dropout > 0 && c->layers == 1, ASHLAR_EINVAL,
        "rnn: dropout %g of 1 layer, and it is between layers; drop the layer's output, by "
        "ashlar_model_dropout()",
        c->dropout);
    ASHLAR_FAIL_IF(c->directions > 2, ASHLAR_EINVAL, "rnn: %zu directions; there are 1 and 2",
                   c->directions);
    ASHLAR_FAIL_IF(c->projection != 0 && (c->cell != ASHLAR_RNN_LSTM || c->projection >= c->hidden),
                   ASHLAR_EINVAL,
                   "rnn: a projection to %zu with hidden %zu and cell %s; it must be below hidden, "
                   "and the cell lstm",
                   c->projection, c->hidden, ashlar_rnn_cell_name(c->cell));
    return ASHLAR_OK;
}

static ashlar_status check_config(const ashlar_rnn_config *c) {
    ASHLAR_FAIL_IF(ashlar_dtype_bytes(c->dtype) == 0, ASHLAR_EINVAL,
                   "rnn: dtype %d is no element type, such as ASHLAR_F32", (int)c->dtype);
    ASHLAR_FAIL_IF(
        (unsigned)c->cell >= ASHLAR_RNN_CELL_COUNT || (unsigned)c->bias >= ASHLAR_RNN_BIAS_COUNT,
        ASHLAR_EINVAL, "rnn: cell %d, bias %d: there is no such one", (int)c->cell, (int)c->bias);
    ASHLAR_FAIL_IF((unsigned)c->math >= ASHLAR_RNN_MATH_COUNT ||
                       (unsigned)c->algorithm >= ASHLAR_RNN_ALGORITHM_COUNT,
                   ASHLAR_EINVAL, "rnn: math %d, algorithm %d: there is no such one", (int)c->math,
                   (int)c->algorithm);
    ASHLAR_FAIL_IF(!(c->dropout >= 0 && c->dropout < 1), ASHLAR_EINVAL,
                   "rnn: dropout %g; it must be at least 0 and below 1", c->dropout);
    return check_sizes(c);
}

static bool has_input_bias(const ashlar_rnn_config *c) {
    return c->bias == ASHLAR_RNN_BIAS_DOUBLE || c->bias == ASHLAR_RNN_BIAS_INPUT;
}

static bool has_recurrent_bias(const ashlar_rnn_config *c) {
    return c->bias == ASHLAR_RNN_BIAS_DOUBLE || c->bias == ASHLAR_RNN_BIAS_RECURRENT;
}

/* The elements of a pseudo-layer's biases, of which the stack has 0, 1 or 2. */
static size_t bias_elements(const ashlar_rnn_layout *l) {
    const size_t count = (size_t)has_input_bias(&l->config) + has_recurrent_bias(&l->config);
    return count * l->gates * l->config.hidden;
}

static size_t layer_input(const ashlar_rnn_layout *l, size_t layer) {
    return layer == 0 ? l->config.input : l->output;
}

static size_t projection_elements(const ashlar_rnn_layout *l) {
    return l->config.projection * l->config.hidden;
}

/* The elements of the matrices of one pseudo-layer. */
static size_t matrix_elements(const ashlar_rnn_layout *l, size_t layer) {
    const size_t rows = l->gates * l->config.hidden;
    return rows * (layer_input(l, layer) + l->state) + projection_elements(l);
}

/* base(p) of the formula in rnn.h. All layers above the first have the same size. */
static size_t matrix_base(const ashlar_rnn_layout *l, size_t pseudo_layer) {
    const size_t layer = pseudo_layer / l->config.directions;
    const size_t first = layer == 0 ? pseudo_layer : l->config.directions;
    return first * matrix_elements(l, 0) + (pseudo_layer - first) * matrix_elements(l, 1);
}

/* Add the elements of `count` pseudo-layers like those of `layer`. False: too many elements. */
static bool add_pseudo_layers(const ashlar_rnn_layout *l, size_t layer, size_t count,
                              size_t *total) {
    size_t products, all;
    if (!ashlar__mul(l->gates * l->config.hidden, layer_input(l, layer) + l->state, &products) ||
        products >= ELEMENT_LIMIT) {
        return false;
    }
    return ashlar__mul(count, matrix_elements(l, layer) + bias_elements(l), &all) &&
           ashlar__add(*total, all, total);
}

/* Count the elements of the whole stack. False: they reach ELEMENT_LIMIT. */
static bool count_elements(ashlar_rnn_layout *l) {
    const ashlar_rnn_config *c = &l->config;
    if (c->input >= ELEMENT_LIMIT || c->hidden >= ELEMENT_LIMIT || c->layers >= ELEMENT_LIMIT) {
        return false; /* smaller sizes, times gates and directions, cannot overflow a size_t */
    }
    size_t total = 0;
    if (!add_pseudo_layers(l, 0, c->directions, &total) ||
        (c->layers > 1 && !add_pseudo_layers(l, 1, l->pseudo_layers - c->directions, &total)) ||
        total >= ELEMENT_LIMIT) {
        return false;
    }
    l->elements = total;
    return true;
}

ashlar_status ashlar_rnn_layout_init(ashlar_rnn_layout *layout, const ashlar_rnn_config *given) {
    ashlar_rnn_layout l = {.config = ASHLAR_OR_ZERO(ashlar_rnn_config, given)};
    ashlar_rnn_config *config = &l.config;
    ASHLAR_TRY(check_config(config));
    config->directions = config->directions == 2 ? 2 : 1;
    l.gates = cell_gates[config->cell];
    l.state = config->projection != 0 ? config->projection : config->hidden;
    l.output = l.config.directions * l.state;
    l.pseudo_layers = config->layers * l.config.directions;
    ASHLAR_FAIL_IF(
        !count_elements(&l), ASHLAR_EOVERFLOW,
        "rnn: input %zu, hidden %zu, layers %zu need 2^31 weights or more; lower hidden or layers",
        config->input, config->hidden, config->layers);
    *layout = l;
    return ASHLAR_OK;
}

static ashlar_rnn_view view_of(size_t offset, size_t rows, size_t cols) {
    return (ashlar_rnn_view){.offset = offset, .rows = rows, .cols = cols};
}

ashlar_rnn_view ashlar_rnn_layout_view(const ashlar_rnn_layout *layout, size_t pseudo_layer,
                                       ashlar_rnn_tensor tensor) {
    const ashlar_rnn_config *config = &layout->config;
    ASHLAR_ASSERT(pseudo_layer < layout->pseudo_layers &&
                  (unsigned)tensor < ASHLAR_RNN_TENSOR_COUNT);
    const ashlar_rnn_view none = {0};
    const size_t rows = layout->gates * config->hidden;
    const size_t input = layer_input(layout, pseudo_layer / config->directions);
    const size_t base = matrix_base(layout, pseudo_layer);
    const size_t bias =
        matrix_base(layout, layout->pseudo_layers) + pseudo_layer * bias_elements(layout);
    switch (tensor) {
    case ASHLAR_RNN_W:
        return view_of(base, rows, input);
    case ASHLAR_RNN_R:
        return view_of(base + rows * input, rows, layout->state);
    case ASHLAR_RNN_BW:
        return has_input_bias(config) ? view_of(bias, rows, 1) : none;
    case ASHLAR_RNN_BR:
        return !has_recurrent_bias(config)
                   ? none
                   : view_of(has_input_bias(config) ? bias + rows : bias, rows, 1);
    case ASHLAR_RNN_WP:
        return config->projection == 0
                   ? none
                   : view_of(base + rows * (input + layout->state), layout->state, config->hidden);
    case ASHLAR_RNN_TENSOR_COUNT:
        break;
    }
    return none;
}

enum { NAME_BYTES = 128 };

static const char *const kinds[] = {
    [ASHLAR_RNN_W] = "weight_ih", [ASHLAR_RNN_R] = "weight_hh",  [ASHLAR_RNN_BW] = "bias_ih",
    [ASHLAR_RNN_BR] = "bias_hh",  [ASHLAR_RNN_WP] = "weight_hr",
};
ASHLAR_TABLE_IS_FULL(kinds, ASHLAR_RNN_TENSOR_COUNT);

/* Fill in the spec of one tensor. Its name is written to `name`, which must outlive the spec. */
static ashlar_status describe(const ashlar_rnn_layout *layout, const char *prefix,
                              size_t pseudo_layer, ashlar_rnn_tensor tensor, char *name,
                              ashlar_tensor_spec *spec) {
    const size_t directions = layout->config.directions;
    const int length =
        snprintf(name, NAME_BYTES, "%s.%s_l%zu%s", prefix, kinds[tensor], pseudo_layer / directions,
                 pseudo_layer % directions == 0 ? "" : "_reverse");
    ASHLAR_FAIL_IF(length < 0 || length >= NAME_BYTES, ASHLAR_EINVAL,
                   "prefix: %.40s... is too long for a tensor's name", prefix);
    const ashlar_rnn_view view = ashlar_rnn_layout_view(layout, pseudo_layer, tensor);
    const bool is_bias = tensor == ASHLAR_RNN_BW || tensor == ASHLAR_RNN_BR;
    *spec = (ashlar_tensor_spec){
        .name = name,
        .dtype = layout->config.dtype,
        .rank = is_bias ? 1 : 2,
        .shape = {view.rows, is_bias ? 0 : view.cols},
        .group_offset = view.offset * ashlar_dtype_bytes(layout->config.dtype),
    };
    return ASHLAR_OK;
}

static ashlar_status declare(ashlar_arena *arena, const char *prefix,
                             const ashlar_rnn_layout *layout, ashlar_tensor_spec *specs,
                             char (*names)[NAME_BYTES], size_t *first) {
    size_t count = 0;
    for (size_t pseudo_layer = 0; pseudo_layer < layout->pseudo_layers; pseudo_layer++) {
        for (int i = 0; i < ASHLAR_RNN_TENSOR_COUNT; i++) {
            const ashlar_rnn_tensor tensor = (ashlar_rnn_tensor)i;
            if (ashlar_rnn_layout_view(layout, pseudo_layer, tensor).rows == 0) {
                continue;
            }
            ASHLAR_TRY(describe(layout, prefix, pseudo_layer, tensor, names[count], &specs[count]));
            count++;
        }
    }
    const size_t bytes = layout->elements * ashlar_dtype_bytes(layout->config.dtype);
    return ashlar_arena_add_group(arena, bytes, specs, count, first);
}

ashlar_status ashlar_rnn_declare(ashlar_arena *arena, const char *prefix,
                                 const ashlar_rnn_layout *layout, size_t *first) {
    const size_t most = layout->pseudo_layers * ASHLAR_RNN_TENSOR_COUNT;
    ashlar_tensor_spec *specs = ashlar__host_calloc(most, sizeof *specs);
    char(*names)[NAME_BYTES] = ashlar__host_calloc(most, sizeof *names);
    const ashlar_status status =
        specs != NULL && names != NULL
            ? declare(arena, prefix, layout, specs, names, first)
            : ashlar__fail(ASHLAR_EHOSTMEM,
                           "no host memory to declare a stack of %zu pseudo-layers",
                           layout->pseudo_layers);
    ashlar__host_free(names);
    ashlar__host_free(specs);
    return status;
}
