/* rnn_names.c - a stack's tensors under PyTorch's names. */
#include <stdio.h>

#include <ashlar/rnn.h>

#include "allocator/base/error.h"
#include "allocator/base/host.h"

enum { NAME_BYTES = 128 };

static const char *const kinds[] = {
    [ASHLAR_RNN_W] = "weight_ih",
    [ASHLAR_RNN_R] = "weight_hh",
    [ASHLAR_RNN_BW] = "bias_ih",
    [ASHLAR_RNN_BR] = "bias_hh",
    [ASHLAR_RNN_WP] = "weight_hr",
};
ASHLAR_TABLE_IS_FULL(kinds, ASHLAR_RNN_TENSOR_COUNT);

/* Fill in the spec of one tensor; `name` keeps its text. */
static ashlar_status describe(const ashlar_rnn_layout *layout, const char *prefix,
                              size_t pseudo_layer, ashlar_rnn_tensor tensor, char *name,
                              ashlar_tensor_spec *spec) {
    const size_t directions = layout->config.directions;
    const int length =
        snprintf(name, NAME_BYTES, "%s.%s_l%zu%s", prefix, kinds[tensor], pseudo_layer / directions,
                 pseudo_layer % directions == 0 ? "" : "_reverse");
    if (length < 0 || length >= NAME_BYTES) {
        return ashlar__fail(ASHLAR_EINVAL, "prefix: %.40s... is too long for a tensor's name",
                            prefix);
    }
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
