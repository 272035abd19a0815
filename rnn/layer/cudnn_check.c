/* cudnn_check.c - compares the packed order of weights in rnn_layout.h with cuDNN's, for each new
 * rnn. */
#include "rnn/layer/cudnn_state.h"

#include "allocator/base/error.h"

/* A made-up address of the weights: cuDNN only computes addresses from it. Not NULL, since cuDNN
 * answers NULL for a tensor that is absent. */
static char *const base = (char *)(uintptr_t)0x100000;

/* One of cuDNN's linear layers: one gate of one of our tensors, in which the gates follow each
 * other. The projection counts as one gate. */
typedef struct place {
    const ashlar_rnn_layout *layout;
    size_t pseudo_layer, gate, gates;
} place;

static ashlar_status differs(const place *p, ashlar_rnn_tensor tensor, const char *what,
                             size_t cudnn, size_t ours) {
    static const char *const names[] = {
        [ASHLAR_RNN_W] = "W",   [ASHLAR_RNN_R] = "R",   [ASHLAR_RNN_BW] = "bW",
        [ASHLAR_RNN_BR] = "bR", [ASHLAR_RNN_WP] = "Wp",
    };
    ASHLAR_TABLE_IS_FULL(names, ASHLAR_RNN_TENSOR_COUNT);
    const size_t directions = p->layout->config.directions;
    return ashlar__fail(ASHLAR_ENOTSUP,
                        "rnn: %s of layer %zu%s, gate %zu: %s is %zu for this cuDNN, %zu for "
                        "ashlar; use another cuDNN 9",
                        names[tensor], p->pseudo_layer / directions,
                        p->pseudo_layer % directions == 0 ? "" : " reverse", p->gate, what, cudnn,
                        ours);
}

static ashlar_status check_offset(const place *p, ashlar_rnn_tensor tensor, const void *address) {
    const ashlar_rnn_view view = ashlar_rnn_layout_view(p->layout, p->pseudo_layer, tensor);
    if ((address == NULL) != (view.rows == 0)) {
        return differs(p, tensor, "the number of its tensors", address != NULL, view.rows != 0);
    }
    if (address == NULL) {
        return ASHLAR_OK;
    }
    const size_t item = ashlar_dtype_bytes(p->layout->config.dtype);
    const size_t got = (size_t)((const char *)address - base);
    const size_t want = (view.offset + p->gate * (view.rows / p->gates) * view.cols) * item;
    return got == want ? ASHLAR_OK : differs(p, tensor, "its byte", got, want);
}

/* Compare the shape in descriptor s->h with ours. cuDNN's matrices are 1 x rows x columns. */
static ashlar_status check_shape(const ashlar_cudnn_state *s, const place *p,
                                 ashlar_rnn_tensor tensor) {
    const ashlar_rnn_view view = ashlar_rnn_layout_view(p->layout, p->pseudo_layer, tensor);
    cudnnDataType_t type;
    int dims = 0, shape[3] = {0}, strides[3] = {0};
    if (view.rows == 0) {
        return ASHLAR_OK;
    }
    ASHLAR_CUDNN_TRY(s->cudnn, get_tensor, cudnnGetTensorNdDescriptor,
                     (s->h, 3, &type, &dims, shape, strides));
    const struct {
        const char *what;
        size_t got, want;
    } all[] = {
        {"its number of rows", (size_t)shape[1], view.rows / p->gates},
        {"its number of columns", (size_t)shape[2], view.cols},
        {"the distance of its rows", (size_t)strides[1], view.cols},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i].got != all[i].want) {
            return differs(p, tensor, all[i].what, all[i].got, all[i].want);
        }
    }
    return ASHLAR_OK;
}

/* Check linear layer `number`: W's gates come first, then R's gates, then the projection. */
static ashlar_status check_linear(const ashlar_rnn_layout *layout, const ashlar_cudnn_state *s,
                                  cudnnRNNDescriptor_t stack, size_t pseudo_layer, size_t number) {
    static const ashlar_rnn_tensor matrices[] = {ASHLAR_RNN_W, ASHLAR_RNN_R, ASHLAR_RNN_WP};
    static const ashlar_rnn_tensor biases[] = {ASHLAR_RNN_BW, ASHLAR_RNN_BR};
    const size_t block = number / layout->gates;
    const place p = {.layout = layout,
                     .pseudo_layer = pseudo_layer,
                     .gate = number % layout->gates,
                     .gates = block < 2 ? layout->gates : 1};
    void *matrix = NULL, *bias = NULL;
    ASHLAR_CUDNN_TRY(s->cudnn, weight_params, cudnnGetRNNWeightParams,
                     (s->handle, stack, (int32_t)pseudo_layer,
                      layout->elements * ashlar_dtype_bytes(layout->config.dtype), base,
                      (int32_t)number, s->h, &matrix, s->c, &bias));
    ASHLAR_TRY(check_offset(&p, matrices[block], matrix));
    ASHLAR_TRY(check_shape(s, &p, matrices[block]));
    return block < 2 ? check_offset(&p, biases[block], bias) : ASHLAR_OK;
}

ashlar_status ashlar__cudnn_check_layout(const ashlar_rnn_layout *layout,
                                         const ashlar_cudnn_state *s, cudnnRNNDescriptor_t stack) {
    const size_t want = layout->elements * ashlar_dtype_bytes(layout->config.dtype);
    const size_t numbers = 2 * layout->gates + (layout->config.cell == ASHLAR_RNN_LSTM);
    size_t got = 0;
    ASHLAR_CUDNN_TRY(s->cudnn, weight_space_size, cudnnGetRNNWeightSpaceSize,
                     (s->handle, stack, &got));
    ASHLAR_FAIL_IF(
        got != want, ASHLAR_ENOTSUP,
        "rnn: the stack has %zu bytes for this cuDNN, %zu for ashlar; use another cuDNN 9", got,
        want);
    for (size_t pseudo_layer = 0; pseudo_layer < layout->pseudo_layers; pseudo_layer++) {
        for (size_t number = 0; number < numbers; number++) {
            ASHLAR_TRY(check_linear(layout, s, stack, pseudo_layer, number));
        }
    }
    return ASHLAR_OK;
}
