/* rnn_onednn_pass.c - forward and backward by oneDNN, with conversion from and to packed order. */
#include "bench/rnn/rnn_onednn_impl.h"

#include <string.h>

/* oneDNN's number of our gate. */
static size_t gate_of(const ashlar_onednn *net, size_t gate) {
    return net->layout.config.cell == ASHLAR_RNN_GRU && gate < 2 ? 1 - gate : gate;
}

static ashlar_status point_at(const layer *l, int which, const void *data) {
    TRY(dnnl_memory_set_data_handle(l->memory[which], (void *)(uintptr_t)data));
    return ASHLAR_OK;
}

/* One gate of W or R of one direction. USER memory is laid out as [D, G, O, I]. */
typedef struct gate_place {
    size_t packed, user; /* element offsets in packed order and in USER memory */
    size_t count;
} gate_place;

static gate_place place_of(const ashlar_onednn *net, size_t index, size_t direction,
                           ashlar_rnn_tensor tensor, size_t gate) {
    const size_t pseudo_layer = index * net->layout.config.directions + direction;
    const ashlar_rnn_view view = ashlar_rnn_layout_view(&net->layout, pseudo_layer, tensor);
    const size_t count = net->layout.config.hidden * view.cols;
    return (gate_place){.packed = view.offset + gate * count,
                        .user = (direction * net->layout.gates + gate_of(net, gate)) * count,
                        .count = count};
}

static ashlar_status gather_matrices(const ashlar_onednn *net, size_t index, const float *weights) {
    const layer *l = &net->layers[index];
    for (int m = 0; m < 2; m++) {
        const ashlar_rnn_tensor tensor = m == 0 ? ASHLAR_RNN_W : ASHLAR_RNN_R;
        if (net->is_direct) {
            const size_t offset = ashlar_rnn_layout_view(&net->layout, index, tensor).offset;
            ASHLAR_TRY(point_at(l, W_USER + m, weights + offset));
            continue;
        }
        for (size_t d = 0; d < net->layout.config.directions; d++) {
            for (size_t g = 0; g < net->layout.gates; g++) {
                const gate_place at = place_of(net, index, d, tensor, g);
                memcpy(data_of(l, W_USER + m) + at.user, weights + at.packed,
                       at.count * sizeof(float));
            }
        }
    }
    return ASHLAR_OK;
}

/* The index of our bias of a gate in oneDNN's biases; the GRU's gate n has two. */
static size_t bias_of(const ashlar_onednn *net, size_t direction, size_t gate, bool is_recurrent) {
    const bool is_apart = net->layout.config.cell == ASHLAR_RNN_GRU && gate == 2 && is_recurrent;
    const size_t position = is_apart ? 3 : gate_of(net, gate);
    return (direction * net->bias_count + position) * net->layout.config.hidden;
}

/* theirs += ours or, if is_out, ours += theirs. */
static void add_biases(const ashlar_onednn *net, size_t index, float *theirs, float *ours,
                       bool is_out) {
    const size_t directions = net->layout.config.directions, hidden = net->layout.config.hidden;
    for (size_t d = 0; d < directions; d++) {
        for (size_t i = 0; i < 2 * net->layout.gates; i++) {
            const bool is_recurrent = i >= net->layout.gates;
            const size_t gate = i % net->layout.gates;
            const ashlar_rnn_view view = ashlar_rnn_layout_view(
                &net->layout, index * directions + d, is_recurrent ? ASHLAR_RNN_BR : ASHLAR_RNN_BW);
            float *const mine = ours + view.offset + gate * hidden;
            float *const other = theirs + bias_of(net, d, gate, is_recurrent);
            for (size_t j = 0; j < hidden; j++) {
                if (is_out) {
                    mine[j] += other[j];
                } else {
                    other[j] += mine[j];
                }
            }
        }
    }
}

static void add_matrices(const ashlar_onednn *net, size_t index, float *dweights) {
    for (size_t i = 0; i < 2 * net->layout.config.directions * net->layout.gates; i++) {
        const int m = (int)(i % 2);
        const size_t d = i / 2 / net->layout.gates, g = i / 2 % net->layout.gates;
        const gate_place at = place_of(net, index, d, m == 0 ? ASHLAR_RNN_W : ASHLAR_RNN_R, g);
        const float *const from = data_of(&net->layers[index], DIFF_W_USER + m) + at.user;
        for (size_t j = 0; j < at.count; j++) {
            dweights[at.packed + j] += from[j];
        }
    }
}

static ashlar_status reorder(const ashlar_onednn *net, const layer *l, int which) {
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, l->memory[ashlar__onednn_ends[which][0]]},
                                    {DNNL_ARG_TO, l->memory[ashlar__onednn_ends[which][1]]}};
    TRY(dnnl_primitive_execute(l->reorders[which], net->stream, 2, args));
    return ASHLAR_OK;
}

static ashlar_status reorder_two(const ashlar_onednn *net, const layer *l, int first) {
    ASHLAR_TRY(reorder(net, l, first));
    return reorder(net, l, first + 1);
}

enum { NO_MEMORY = -1 };

/* The memories that are each pass's arguments. */
static const struct {
    int arg, memory[PASS_COUNT];
    bool is_of_cells; /* only an LSTM has it */
} arguments[] = {
    {DNNL_ARG_SRC_LAYER, {SRC, SRC}, false},
    {DNNL_ARG_DST_LAYER, {DST, DST}, false},
    {DNNL_ARG_SRC_ITER, {H_FIRST, H_FIRST}, false},
    {DNNL_ARG_SRC_ITER_C, {C_FIRST, C_FIRST}, true},
    {DNNL_ARG_WEIGHTS_LAYER, {W, W_BACK}, false},
    {DNNL_ARG_WEIGHTS_ITER, {R, R_BACK}, false},
    {DNNL_ARG_BIAS, {BIAS, BIAS}, false},
    {DNNL_ARG_WORKSPACE, {WORKSPACE, WORKSPACE}, false},
    {DNNL_ARG_DIFF_SRC_LAYER, {NO_MEMORY, DIFF_SRC}, false},
    {DNNL_ARG_DIFF_DST_LAYER, {NO_MEMORY, DIFF_DST}, false},
    {DNNL_ARG_DIFF_SRC_ITER, {NO_MEMORY, DIFF_H}, false},
    {DNNL_ARG_DIFF_SRC_ITER_C, {NO_MEMORY, DIFF_C}, true},
    {DNNL_ARG_DIFF_WEIGHTS_LAYER, {NO_MEMORY, DIFF_W}, false},
    {DNNL_ARG_DIFF_WEIGHTS_ITER, {NO_MEMORY, DIFF_R}, false},
    {DNNL_ARG_DIFF_BIAS, {NO_MEMORY, DIFF_BIAS}, false},
};
enum { ARGUMENTS = sizeof arguments / sizeof arguments[0] };

static ashlar_status run_pass(const ashlar_onednn *net, const layer *l, int pass) {
    const bool has_cells = net->layout.config.cell == ASHLAR_RNN_LSTM;
    dnnl_exec_arg_t args[ARGUMENTS];
    int count = 0;
    for (size_t i = 0; i < ARGUMENTS; i++) {
        const int which = arguments[i].memory[pass];
        const bool is_there = which != NO_MEMORY && l->memory[which] != NULL;
        if (is_there && (has_cells || !arguments[i].is_of_cells)) {
            args[count++] = (dnnl_exec_arg_t){arguments[i].arg, l->memory[which]};
        }
    }
    TRY(dnnl_primitive_execute(l->passes[pass], net->stream, count, args));
    return ASHLAR_OK;
}

/* Bring a layer's weights into the order in which oneDNN reads them. */
static ashlar_status prepare_layer(const ashlar_onednn *net, size_t index, const float *weights) {
    const layer *l = &net->layers[index];
    const size_t bias_elements =
        net->layout.config.directions * net->bias_count * net->layout.config.hidden;
    ASHLAR_TRY(gather_matrices(net, index, weights));
    memset(data_of(l, BIAS), 0, bias_elements * sizeof(float));
    add_biases(net, index, data_of(l, BIAS), (float *)(uintptr_t)weights, false);
    return reorder_two(net, l, W_IN);
}

ashlar_status ashlar__onednn_prepare(ashlar_onednn *net, const float *weights) {
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; i < net->layout.config.layers && status == ASHLAR_OK; i++) {
        status = prepare_layer(net, i, weights);
    }
    TRY(dnnl_stream_wait(net->stream));
    return status;
}

ashlar_status ashlar__onednn_forward(ashlar_onednn *net, const float *x, const float *weights,
                                     float *y) {
    const size_t layers = net->layout.config.layers;
    ashlar_status status = point_at(&net->layers[layers - 1], DST, y);
    for (size_t i = 0; i < layers && status == ASHLAR_OK; i++) {
        status = point_at(&net->layers[i], SRC, i == 0 ? x : data_of(&net->layers[i - 1], DST));
        ASHLAR_THEN(status, weights == NULL ? ASHLAR_OK : prepare_layer(net, i, weights));
        ASHLAR_THEN(status, run_pass(net, &net->layers[i], FORWARD));
    }
    TRY(dnnl_stream_wait(net->stream));
    return status;
}

/* oneDNN adds to its gradients of weights and biases, so they must be 0 before a pass. */
static void clear_gradients(const layer *l) {
    for (int which = DIFF_BIAS; which <= DIFF_R; which++) {
        onednn_memory md;
        if (dnnl_memory_get_memory_desc(l->memory[which], &md) == dnnl_success) {
            memset(data_of(l, which), 0, dnnl_memory_desc_get_size(md));
        }
    }
}

static ashlar_status backward_layer(const ashlar_onednn *net, size_t index, float *dweights) {
    const layer *l = &net->layers[index];
    clear_gradients(l);
    ashlar_status status = reorder_two(net, l, W_BACK_IN);
    ASHLAR_THEN(status, run_pass(net, l, BACKWARD));
    ASHLAR_THEN(status, reorder_two(net, l, DIFF_W_OUT));
    TRY(dnnl_stream_wait(net->stream));
    if (status == ASHLAR_OK) {
        add_matrices(net, index, dweights);
        add_biases(net, index, data_of(l, DIFF_BIAS), dweights, true);
    }
    return status;
}

ashlar_status ashlar__onednn_backward(ashlar_onednn *net, const float *dy, float *dx,
                                      float *dweights) {
    const size_t layers = net->layout.config.layers;
    ASHLAR_TRY(point_at(&net->layers[layers - 1], DIFF_DST, dy));
    for (size_t i = layers; i-- > 0;) {
        ASHLAR_TRY(point_at(&net->layers[i], DIFF_SRC,
                            i == 0 ? dx : data_of(&net->layers[i - 1], DIFF_DST)));
        ASHLAR_TRY(backward_layer(net, i, dweights));
    }
    return ASHLAR_OK;
}
