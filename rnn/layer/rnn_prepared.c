/* rnn_prepared.c - the sizes of prepared weights, and of a decoder that reads them; no arithmetic
 * on elements. */
#include "rnn/layer/rnn_decode.h"

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

/* Bytes of one matrix [depth, columns] in panels, a multiple of 64. */
static size_t rnn_panel_bytes(size_t columns, size_t depth, ashlar_dtype dtype, bool is_bf16) {
    const size_t item = is_bf16 ? sizeof(uint16_t) : ashlar_dtype_bytes(dtype);
    return align_up(ashlar__rnn_panel_elements(columns, depth, dtype) * item);
}

/* The offsets of a pseudo-layer whose weights begin at 0. */
static ashlar_prepared_layer layer_at_0(const ashlar_rnn_layout *layout, bool is_bf16,
                                        size_t input) {
    const ashlar_rnn_config *c = &layout->config;
    const size_t rows = ashlar__rnn_gate_rows(layout);
    ashlar_prepared_layer at = {0};
    at.w = align_up(ashlar__rnn_gate_width(layout) * ashlar_dtype_bytes(c->dtype));
    at.r = at.w + rnn_panel_bytes(rows, input, c->dtype, is_bf16);
    at.wp = at.r + rnn_panel_bytes(rows, layout->state, c->dtype, is_bf16);
    at.end = at.wp + rnn_panel_bytes(c->projection, c->hidden, c->dtype, is_bf16);
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

/* ---- a decoder (rnn_decode.h) ---- */

size_t ashlar__decode_packed_bytes(const ashlar_rnn_layout *layout, bool is_bf16, size_t classes) {
    return ashlar__rnn_prepared_bytes(layout, is_bf16) +
           rnn_panel_bytes(classes, layout->output, layout->config.dtype, is_bf16);
}

ashlar_decode_work ashlar__decode_work(const ashlar_rnn_layout *layout, size_t batch) {
    const ashlar_rnn_config *c = &layout->config;
    const size_t row = batch * ashlar_dtype_bytes(c->dtype);
    ashlar_decode_work at = {0};
    at.gates = align_up(row * c->input);
    at.sums = at.gates + align_up(row * ashlar__rnn_gate_width(layout));
    at.full =
        at.sums + (c->cell == ASHLAR_RNN_GRU ? align_up(row * ashlar__rnn_gate_rows(layout)) : 0);
    at.end = at.full + (c->projection > 0 ? align_up(row * c->hidden) : 0);
    return at;
}

size_t ashlar__decode_work_bytes(const ashlar_rnn_layout *layout, size_t batch) {
    return ashlar__decode_work(layout, batch).end;
}
