/* rnn_rows.h - one call's batch without its padding, and the map of its buffers (internal).
 *
 * Packed rows: the sequences are sorted by descending length; equal ones keep their order. Step t
 * has one row for each sequence that still runs, one after the other, and step follows step.
 *
 *     start[0]                  = 0
 *     start[t + 1] - start[t]   = n(t), the number of lengths > t; never grows with t
 *     start[T]                  = N, the sum of the lengths
 *     row start[t] + p          = step t of sequence order[p], p < n(t)
 *
 * The states before step t are n(t) consecutive rows of one buffer, and so are the states after it.
 * With state(0) = 0 and state(t) = B + start[t - 1], step t has
 *
 *     forward   before: rows state(t) ..        after: rows state(t + 1) ..
 *     reverse   before: rows state(t + 1) ..    after: rows state(t) ..
 *
 * and sequence p of length n begins with row state(0) + p and ends with row state(n) + p, in
 * reverse the other way round. In reverse, the first n(t + 1) rows before step t are the states
 * after step t + 1; the others are the initial states of the sequences whose last step is t. */
#ifndef ASHLAR_RNN_ROWS_H
#define ASHLAR_RNN_ROWS_H

#include <stdbool.h>
#include <stddef.h>

#include "rnn/layer/backend.h"
#include "rnn/layer/rnn_cpu.h"

/* ---- rnn varying ---- */

/*
 * A pass of an RNN that reads from device memory what differs from one training
 * step to the next, so that a captured pass can be launched again (internal).
 */

/* Both are in device memory, and read when the pass runs. */
typedef struct ashlar_rnn_varying {
    const int32_t *lengths; /* [B], each 1..T */
    const uint64_t *seed;   /* added to the batch's dropout_seed */
} ashlar_rnn_varying;

/* Like the call of rnn.h for that pass, with the lengths and the seed of *varying; batch->lengths
 * is not read. A back end that can take lengths only from the host runs all sequences for all
 * steps, padding included, and draws its own seeds: see ashlar__rnn_varies().
 *
 * Errors: those of ashlar_rnn_forward(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__rnn_queue_varying(
    const ashlar_rnn *rnn, ashlar_rnn_pass pass, const ashlar_rnn_batch *batch,
    const ashlar_rnn_buffers *buffers, const ashlar_rnn_varying *varying, ashlar_stream stream);

/* Whether the back end reads lengths and seeds from device memory. If not, last states are those
 * after the padding, and the reverse direction begins with the padding. */
bool ashlar__rnn_varies(const ashlar_rnn *rnn);

/* Byte offsets and sizes. All are for the padded T * B rows, so they do not depend on the lengths.
 * K is the width of a row of gates; see ashlar_rnn_rows. */
typedef struct ashlar_rnn_map {
    /* in work */
    size_t order;     /* size_t [B] */
    size_t start;     /* size_t [T + 1] */
    size_t rows;      /* [T*B, max(I, D*P)]: a layer's input, or the gradient on its way down */
    size_t bias;      /* [K]: the biases of a row of gates, or their gradient */
    size_t sums;      /* [B, G*H], GRU: a step's R h, or the gradient of it */
    size_t full;      /* [B, H], with a projection: a step's h' before it, or the gradient */
    size_t recurrent; /* a pseudo-layer's R, or its transpose, in panels (panel.h) */
    size_t project;   /* likewise its Wp, or its transpose, in panels */
    size_t dh;        /* [B, P], training */
    size_t dc;        /* [B, H], training, LSTM */
    size_t slices;    /* inference: one slice for each direction, shared by all layers */
    size_t work_bytes;

    /* in a slice, which is a pseudo-layer's share of the reserve (ashlar__rnn_rows_slice()) */
    size_t gates;    /* [T*B, gate_stride] packed; after backward_data: their gradients */
    size_t states;   /* [B + T*B, P] */
    size_t cells;    /* LSTM: [B + T*B, H]; in inference [2B, H], used in turn */
    size_t fulls;    /* [T*B, H] packed, training with a projection: h' before it */
    size_t doutputs; /* [T*B, P] packed, training with a projection: the gradient of h' */
    size_t slice_bytes;

    /* in the reserve; all 0 for inference */
    size_t seed;   /* uint64_t, with dropout */
    size_t inputs; /* of layer l > 0 at (l - 1) * input_bytes: [T*B, D*P], if is_joined */
    size_t input_bytes;
    size_t reserve_slices;
    size_t reserve_bytes;
} ashlar_rnn_map;

/* A row of gates has a column for each row of W. R's products are added to the same columns, except
 * that rows of R from `split` on have their own columns (GRU: gate n, split = 2H; others: split =
 * G*H):
 *
 *     K = 2 G*H - split        row j of R belongs to column j < split ? j : j + G*H - split */
typedef struct ashlar_rnn_rows {
    ashlar_rnn_map map;
    const ashlar_rnn_layout *layout;
    bool training;
    bool is_dropping;
    bool is_packed;           /* R and Wp are packed, since there are enough steps */
    bool is_joined;           /* a layer reads a copy of the outputs below it, not the states */
    size_t gate_rows;         /* G*H */
    size_t split, gate_width; /* K */
    size_t gate_stride;       /* elements from one row of gates to the next: K or a bit more */
    size_t steps, batch;      /* T, B */
    size_t row_count;         /* N */
    size_t shards;            /* threads that have sequences of their own, 1.. */
    size_t *order;            /* [B], in work */
    size_t *start;            /* [T + 1], in work */
} ashlar_rnn_rows;

/* Sort args->lengths into args->b.work. ashlar__rnn_cpu_sizes() must have accepted the sizes. */
ashlar_rnn_rows ashlar__rnn_rows_open(const ashlar_rnn_cpu_args *args, bool training);

/* The slice of one pseudo-layer. */
char *ashlar__rnn_rows_slice(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                             size_t pseudo_layer);

/* How many threads should share one step's product with so many weights; 1 if there are shards. */
size_t ashlar__rnn_rows_pieces(const ashlar_rnn_rows *batch, size_t weights);

/* state(t), defined in the comment at the head of this file. */
static inline size_t ashlar__rnn_rows_state(const ashlar_rnn_rows *batch, size_t t) {
    return t == 0 ? 0 : batch->batch + batch->start[t - 1];
}

/* Like state(t), for cells. Inference uses two blocks in turn; it never rewrites a finished row. */
static inline size_t ashlar__rnn_rows_cell(const ashlar_rnn_rows *batch, size_t t) {
    return batch->training ? ashlar__rnn_rows_state(batch, t) : t % 2 * batch->batch;
}

/* n(t): how many sequences run at step t. */
static inline size_t ashlar__rnn_rows_active(const ashlar_rnn_rows *batch, size_t t) {
    return batch->start[t + 1] - batch->start[t];
}

#endif /* ASHLAR_RNN_ROWS_H */
