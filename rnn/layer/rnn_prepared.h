/* rnn_prepared.h - a stack's weights in the order in which the CPU's products read them (internal).
 *
 * A pass packs weights into panels (panel.h) for its products, or reads them as they are. Who runs
 * many forward passes or steps with the same weights packs them once, before the first. For each
 * pseudo-layer, one after the other, each part aligned to 64 bytes:
 *
 *     bias [K], W^T [in(l), G*H], R^T [P, G*H], with a projection Wp^T [H, P]    matrices in panels
 *
 * bias is the sum of all biases that are added to a column of gates; K is that of rnn_rows.h.
 *
 * A step of few rows reads all weights, and does little else. So the matrices can be packed as
 * bf16, of half the bytes; only a decoder (rnn_decode.h) reads these. */
#ifndef ASHLAR_RNN_PREPARED_H
#define ASHLAR_RNN_PREPARED_H

#include <stdbool.h>
#include <stddef.h>

#include <ashlar/rnn.h>

/* G*H, the rows of W, and K, the width of a row of gates (rnn_rows.h). */
static inline size_t ashlar__rnn_gate_rows(const ashlar_rnn_layout *layout) {
    return layout->gates * layout->config.hidden;
}

static inline size_t ashlar__rnn_gate_width(const ashlar_rnn_layout *layout) {
    const bool is_gru = layout->config.cell == ASHLAR_RNN_GRU;
    return ashlar__rnn_gate_rows(layout) + (is_gru ? layout->config.hidden : 0);
}

/* The column of gates that row `row` of R, or of R's biases, belongs to. */
static inline size_t ashlar__rnn_gate_column(const ashlar_rnn_layout *layout, size_t row) {
    const size_t hidden = layout->config.hidden;
    return layout->config.cell == ASHLAR_RNN_GRU && row >= 2 * hidden ? row + hidden : row;
}

/* Where the parts of a pseudo-layer lie, offsets in bytes. */
typedef struct ashlar_prepared_layer {
    size_t bias, w, r, wp, end;
} ashlar_prepared_layer;
ashlar_prepared_layer ashlar__rnn_prepared_layer(const ashlar_rnn_layout *layout, bool is_bf16,
                                                 size_t pseudo_layer);

/* Bytes of a stack. They fit in a size_t, because the stack does, of which they are a small
 * multiple. */
size_t ashlar__rnn_prepared_bytes(const ashlar_rnn_layout *layout, bool is_bf16);

/* Its elements. Panels count as wide as those of the widest instruction set, so sizes are equal
 * everywhere. */
size_t ashlar__rnn_panel_elements(size_t columns, size_t depth, ashlar_dtype dtype);

/* The weights of a stack, of type layout->config.dtype, and where they go. */
typedef struct ashlar_prepare_args {
    const ashlar_rnn_layout *layout;
    bool is_bf16;        /* only for fp32 */
    const void *weights; /* packed order, rnn_layout.h */
    void *prepared;      /* ashlar__rnn_prepared_bytes(), aligned to 64 bytes */
} ashlar_prepare_args;

/* Read the weights, and fill `prepared`; shared by the workers. One function for each type and
 * instruction set (meson.build). */
typedef void ashlar_rnn_prepare_function(const ashlar_prepare_args *args);

/* The function of a type, for the best set that this processor can run. NULL: the CPU does not
 * compute in that type. */
ashlar_rnn_prepare_function *ashlar__rnn_prepare_of(ashlar_dtype dtype);

#define ASHLAR_DECLARE_PREPARE(set)                                  \
    ashlar_rnn_prepare_function ashlar__rnn_prepare_stack_f32_##set; \
    ashlar_rnn_prepare_function ashlar__rnn_prepare_stack_f64_##set;
ASHLAR_DECLARE_PREPARE(baseline)
ASHLAR_DECLARE_PREPARE(avx2)
ASHLAR_DECLARE_PREPARE(avx512)
ASHLAR_DECLARE_PREPARE(neon)

#endif /* ASHLAR_RNN_PREPARED_H */
