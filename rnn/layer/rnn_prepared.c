/* rnn_prepared.c - the sizes of prepared weights; no arithmetic on elements. */
#include "rnn/layer/rnn_prepared.h"

#include <stdint.h>

#include "allocator/base/check_level.h"
#include "arena/compute/instruction_set.h"

/* Bytes of a cache line, so that no two parts share one. */
enum { PART_ALIGN = 64 };

static size_t align_up(size_t bytes) {
    return (bytes + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
}

size_t ashlar__rnn_panel_elements(size_t columns, size_t depth, ashlar_dtype dtype) {
    const size_t wide = 2 * ASHLAR_VECTOR_BYTES_MAX / ashlar_dtype_bytes(dtype);
    return (columns + wide - 1) / wide * wide * depth;
}

size_t ashlar__rnn_panel_bytes(size_t columns, size_t depth, ashlar_dtype dtype, bool is_bf16) {
    const size_t item = is_bf16 ? sizeof(uint16_t) : ashlar_dtype_bytes(dtype);
    return align_up(ashlar__rnn_panel_elements(columns, depth, dtype) * item);
}

/* The offsets of a pseudo-layer whose weights begin at 0. */
static ashlar_prepared_layer layer_at_0(const ashlar_rnn_layout *layout, bool is_bf16,
                                        size_t input) {
    const ashlar_rnn_config *c = &layout->config;
    const size_t rows = layout->gates * c->hidden;
    const size_t width = rows + (c->cell == ASHLAR_RNN_GRU ? c->hidden : 0);
    ashlar_prepared_layer at = {0};
    at.w = align_up(width * ashlar_dtype_bytes(c->dtype));
    at.r = at.w + ashlar__rnn_panel_bytes(rows, input, c->dtype, is_bf16);
    at.wp = at.r + ashlar__rnn_panel_bytes(rows, layout->state, c->dtype, is_bf16);
    at.end = at.wp + ashlar__rnn_panel_bytes(c->projection, c->hidden, c->dtype, is_bf16);
    return at;
}

ashlar_prepared_layer ashlar__rnn_prepared_layer(const ashlar_rnn_layout *layout, bool is_bf16,
                                                 size_t pseudo_layer) {
    const ashlar_rnn_config *c = &layout->config;
    const size_t directions = c->directions;
    const ashlar_prepared_layer first = layer_at_0(layout, is_bf16, c->input);
    const ashlar_prepared_layer other = layer_at_0(layout, is_bf16, layout->output);
    const bool is_first = pseudo_layer < directions;
    const ashlar_prepared_layer own = is_first ? first : other;
    const size_t begin = is_first
                             ? pseudo_layer * first.end
                             : directions * first.end + (pseudo_layer - directions) * other.end;
    ASHLAR_CHECK2(pseudo_layer < layout->pseudo_layers);
    return (ashlar_prepared_layer){.bias = begin,
                                   .w = begin + own.w,
                                   .r = begin + own.r,
                                   .wp = begin + own.wp,
                                   .end = begin + own.end};
}

size_t ashlar__rnn_prepared_bytes(const ashlar_rnn_layout *layout, bool is_bf16) {
    return ashlar__rnn_prepared_layer(layout, is_bf16, layout->pseudo_layers - 1).end;
}
