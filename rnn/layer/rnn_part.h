/* rnn_part.h - one pseudo-layer of one call, and copies of rows between a caller's tensors and
 * packed ones (internal; compiled for each element type and instruction set, see real.h). Only
 * loops in rnn_part.c deal with padding and with the caller's order of sequences. */
#ifndef ASHLAR_RNN_PART_H
#define ASHLAR_RNN_PART_H

#include "rnn/layer/rnn_rows.h"
#include "rnn/product/real.h"

/* One pseudo-layer of one call. */
typedef struct layer_part {
    size_t layer, direction;
    size_t input;  /* in(l) */
    size_t hidden; /* H */
    size_t state;  /* P */
    ashlar_rnn_view place[ASHLAR_RNN_TENSOR_COUNT];
    real *gates;    /* [N, K], gate_stride apart */
    real *states;   /* [B + N, P] */
    real *cells;    /* [B + N, H] or [2B, H] */
    real *fulls;    /* [N, H] */
    real *doutputs; /* [N, P] */
} layer_part;

/* The address in `work` at a byte offset of the map. */
static inline real *in_work(const ashlar_rnn_cpu_args *args, size_t offset) {
    return (real *)(void *)((char *)args->b.work + offset);
}

/* The address in the prepared weights at a byte offset (rnn_prepared.h). */
static inline const real *in_prepared(const ashlar_rnn_cpu_args *args, size_t offset) {
    return (const real *)(const void *)((const char *)args->b.prepared + offset);
}

static inline layer_part open_pseudo_layer(const ashlar_rnn_rows *batch,
                                           const ashlar_rnn_cpu_args *args, size_t layer,
                                           size_t direction) {
    const size_t pseudo_layer = layer * batch->layout->config.directions + direction;
    char *const slice = ashlar__rnn_rows_slice(batch, args, pseudo_layer);
    layer_part view = {
        .layer = layer,
        .direction = direction,
        .hidden = batch->layout->config.hidden,
        .state = batch->layout->state,
        .gates = (real *)(void *)(slice + batch->map.gates),
        .states = (real *)(void *)(slice + batch->map.states),
        .cells = (real *)(void *)(slice + batch->map.cells),
        .fulls = (real *)(void *)(slice + batch->map.fulls),
        .doutputs = (real *)(void *)(slice + batch->map.doutputs),
    };
    for (int tensor = 0; tensor < ASHLAR_RNN_TENSOR_COUNT; tensor++) {
        view.place[tensor] =
            ashlar_rnn_layout_view(args->layout, pseudo_layer, (ashlar_rnn_tensor)tensor);
    }
    view.input = view.place[ASHLAR_RNN_W].cols;
    return view;
}

static inline size_t pseudo_layer_of(const ashlar_rnn_rows *batch, const layer_part *part) {
    return part->layer * batch->layout->config.directions + part->direction;
}

/* Of which i state(i) (rnn_rows.h) is the state before step t of a direction (side_before), and the
 * state after it (side_after). */
static inline size_t side_before(size_t direction, size_t t) {
    return direction == 0 ? t : t + 1;
}

static inline size_t side_after(size_t direction, size_t t) {
    return direction == 0 ? t + 1 : t;
}

/* A pseudo-layer's outputs as packed rows. Forward direction only: in reverse they have gaps. */
static inline const real *forward_outputs(const ashlar_rnn_rows *batch, const layer_part *part) {
    return part->states + batch->batch * part->state;
}

/* The output of step t of sequence p. */
static inline const real *output_row(const ashlar_rnn_rows *batch, const layer_part *part, size_t t,
                                     size_t p) {
    return part->states +
           (ashlar__rnn_rows_state(batch, side_after(part->direction, t)) + p) * part->state;
}

/* The copy that layer l > 0 has of its input. In inference all layers share one buffer for it. */
static inline real *joined_input(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                                 size_t l) {
    char *const reserve = args->b.reserve;
    return batch->training
               ? (real *)(void *)(reserve + batch->map.inputs + (l - 1) * batch->map.input_bytes)
               : in_work(args, batch->map.rows);
}

static inline uint64_t *kept_seed(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args) {
    return (uint64_t *)(void *)((char *)args->b.reserve + batch->map.seed);
}

#define packed_rows ASHLAR_VARIANT(ashlar__packed_rows)
#define unpack_rows ASHLAR_VARIANT(ashlar__unpack_rows)
#define write_outputs ASHLAR_VARIANT(ashlar__write_outputs)
#define join_outputs ASHLAR_VARIANT(ashlar__join_outputs)
#define drop_rows ASHLAR_VARIANT(ashlar__drop_rows)
#define read_states ASHLAR_VARIANT(ashlar__read_states)
#define write_states ASHLAR_VARIANT(ashlar__write_states)

/* Whether no sequence is padded. Then their order is the caller's, and so are all rows. */
static inline bool is_dense(const ashlar_rnn_rows *batch) {
    return batch->row_count == batch->steps * batch->batch;
}

/* The rows [N, width] of padded [T, B, width], in `packed` or where they are; NULL = zeros. */
const real *packed_rows(const ashlar_rnn_rows *batch, const real *padded, size_t width,
                        real *packed);
/* padded [T, B, width] = packed [N, width], and zeros past each length. */
void unpack_rows(const ashlar_rnn_rows *batch, const real *packed, size_t width, real *padded);
/* This pseudo-layer's columns of y [T, B, D*P], and zeros past each length. */
void write_outputs(const ashlar_rnn_rows *batch, const layer_part *part, real *y);
/* This pseudo-layer's columns of the next layer's input, packed [N, D*P]. */
void join_outputs(const ashlar_rnn_rows *batch, const layer_part *part, real *input);
/* Multiply rows [N, D*P], the input of `layer` or its gradient, by the dropout mask. */
void drop_rows(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args, uint64_t seed,
               size_t layer, real *rows);

/* Which states of a pseudo-layer: before a sequence's steps, after them, or gradients of either. */
typedef enum state_kind { FIRST_STATES, LAST_STATES, STATE_GRADIENTS } state_kind;

/* Copy states between the caller's buffers and ours. The caller's are h [L*D, B, P] and c [L*D, B,
 * H]; only the LSTM has a c. If the caller's buffer is NULL, reading gives zeros, and writing does
 * nothing. */
void read_states(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                 const layer_part *part, state_kind kind, const void *const from[2],
                 real *const own[2]);
void write_states(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                  const layer_part *part, state_kind kind, real *const own[2], void *const to[2]);

#endif /* ASHLAR_RNN_PART_H */
