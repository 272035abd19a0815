/* rnn_cpu.h - the RNN on plain memory: passes, the map of their buffers, prepared weights, single
 * steps with them (internal). */
#ifndef ASHLAR_RNN_CPU_H
#define ASHLAR_RNN_CPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ashlar/model.h>

#include "rnn/layer/backend.h"

/*
 * The passes. Batches, buffers and the letters for sizes (T, B, I, H, P, G, L, D) are those of
 * rnn.h. The reverse direction begins at each sequence's own last step. The passes sort the batch
 * by length and leave out padding: the work depends on the sum of the lengths, not on their order.
 *
 * No function here allocates, fails or keeps anything between calls. Threads: any, on distinct
 * outputs, work and reserve. On one machine the same arguments give the same bits, with any number
 * of threads (see blas.h).
 */

/* The arguments of all three passes. Elements are of type layout->config.dtype, which must be the
 * type of the pass called (asserted). Unlike in rnn.h, hy may be hx and cy may be cx: the states
 * are then updated in place. */
typedef struct ashlar_rnn_cpu_args {
    const ashlar_rnn_layout *layout;
    size_t steps, batch;    /* T and B, 1.. */
    const int32_t *lengths; /* [B], each 1..T, any order */
    uint64_t dropout_seed;  /* used with dropout and a reserve; forward keeps it in the reserve */
    size_t dropout_first, dropout_stride; /* as in rnn.h */
    bool rows_are_packed;                 /* x, y, dy and dx have no padding: is_packed in rnn.h */
    ashlar_rnn_buffers b; /* in plain memory; reserve and work are 64-byte aligned */
    bool is_bf16; /* the matrices of b.prepared are bf16; only a step (below) may be given such */
} ashlar_rnn_cpu_args;

/* As ashlar_rnn_sizes(). Neither size depends on the lengths, and neither shrinks when steps or
 * batch grows, so the sizes of the largest batch suffice for every smaller one. Errors:
 * ASHLAR_EINVAL (steps or batch 0), ASHLAR_EOVERFLOW; outputs are written only on ASHLAR_OK. */
ASHLAR_MUST_CHECK ashlar_status ashlar__rnn_cpu_sizes(const ashlar_rnn_layout *layout, size_t steps,
                                                      size_t batch, bool training,
                                                      size_t *reserve_bytes, size_t *work_bytes);

typedef void ashlar_rnn_cpu_pass(const ashlar_rnn_cpu_args *args);

/*
 * One call's batch without its padding, and the map of its buffers.
 *
 * Packed rows: the sequences are sorted by descending length; equal ones keep their order. Step t
 * has one row for each sequence that still runs; the rows of step t + 1 follow those of step t.
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
 * after step t + 1; the others are the initial states of the sequences whose last step is t.
 */

/* Byte offsets and sizes. All are for the padded T * B rows, so they do not depend on the lengths.
 * K is the width of a row of gates; see ashlar_rnn_rows. */
typedef struct ashlar_rnn_map {
    /* in work */
    size_t order;     /* size_t [B], as above */
    size_t start;     /* size_t [T + 1], as above */
    size_t rows;      /* [T*B, max(I, D*P)]: a layer's input; in backward, its gradient */
    size_t bias;      /* [K]: the biases of a row of gates, or their gradient */
    size_t sums;      /* [B, G*H], GRU: a step's R h, or the gradient of it */
    size_t full;      /* [B, H], with a projection: a step's h' before that, or the gradient */
    size_t recurrent; /* a pseudo-layer's R, or its transpose, in panels (panel.h) */
    size_t project;   /* likewise its Wp, or its transpose, in panels */
    size_t dh;        /* [B, P], training: the gradient of h */
    size_t dc;        /* [B, H], training, LSTM: the gradient of c */
    size_t slices;    /* inference: one slice for each direction, shared by all layers */
    size_t work_bytes;

    /* in a slice, which is a pseudo-layer's share of the reserve (ashlar__rnn_rows_slice()) */
    size_t gates;    /* [T*B, gate_stride] packed; after backward_data: their gradients */
    size_t states;   /* [B + T*B, P]: rows state(0) and following */
    size_t cells;    /* LSTM: [B + T*B, H]; in inference [2B, H], two sets used in turn */
    size_t fulls;    /* [T*B, H] packed, training with a projection: h' before that */
    size_t doutputs; /* [T*B, P] packed, training with a projection: the gradient of h' */
    size_t slice_bytes;

    /* in the reserve, which begins with a uint64_t (rnn_rows.c); all 0 for inference */
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
    bool is_packed;           /* R and Wp are packed into panels; false: too few steps to gain */
    bool is_unpadded;         /* the caller's rows are packed rows, in their order */
    bool is_joined;           /* a layer reads a copy of the outputs below it, not the states */
    size_t gate_rows;         /* G*H */
    size_t split, gate_width; /* as above; gate_width is K */
    size_t gate_stride;       /* elements from one row of gates to the next: K or a bit more */
    size_t steps, batch;      /* T, B */
    size_t row_count;         /* N */
    size_t shards;            /* 1..; the sequences are divided into shards, each for a thread */
    const int32_t *lengths;   /* [B], the caller's */
    size_t *order;            /* [B], in work; as above */
    size_t *start;            /* [T + 1], in work; as above */
} ashlar_rnn_rows;

/* Sort args->lengths into args->b.work. ashlar__rnn_cpu_sizes() must have accepted the sizes. */
ashlar_rnn_rows ashlar__rnn_rows_open(const ashlar_rnn_cpu_args *args, bool training);

/* Why a reserve does not hold what `pass` reads, as text of static storage; NULL: it does. */
const char *ashlar__rnn_reserve_fault(const void *reserve, ashlar_rnn_pass pass);

/* Tell the reserve, at its beginning, that `pass` runs on it. False: it has a fault, so that the
 * pass must not run; the device is lost (ashlar__soft_lose_device()). */
bool ashlar__rnn_take_reserve(const ashlar_rnn_cpu_args *args, ashlar_rnn_pass pass);

/* The slice of one pseudo-layer. */
char *ashlar__rnn_rows_slice(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                             size_t pseudo_layer);

/* The row, 0 .. B, at which shard i's sequences begin. Shards have about equally many time steps.
 * They are consecutive rows, since a processor fetches what follows the lines that it reads: were
 * that other shards' rows, their threads would wait for the lines that they write. */
size_t ashlar__rnn_rows_edge(const ashlar_rnn_rows *batch, size_t i);

/* How many threads should share a step's product with a matrix of `weights` elements; 1 if there
 * are several shards, each of which has its own thread. */
size_t ashlar__rnn_rows_pieces(const ashlar_rnn_rows *batch, size_t weights);

/* state(t), defined in the comment above. */
static inline size_t ashlar__rnn_rows_state(const ashlar_rnn_rows *batch, size_t t) {
    return t == 0 ? 0 : batch->batch + batch->start[t - 1];
}

/* Like state(t), for the rows of c. Inference has two sets of B rows, used in turn. When a sequence
 * has ended, its row is written no more: later steps have fewer rows. */
static inline size_t ashlar__rnn_rows_cell(const ashlar_rnn_rows *batch, size_t t) {
    return batch->training ? ashlar__rnn_rows_state(batch, t) : t % 2 * batch->batch;
}

/* n(t): how many sequences run at step t. */
static inline size_t ashlar__rnn_rows_active(const ashlar_rnn_rows *batch, size_t t) {
    return batch->start[t + 1] - batch->start[t];
}

/*
 * A stack's weights, packed once for many passes or steps. For each pseudo-layer, one after the
 * other, each part aligned to 64 bytes:
 *
 *     bias [K], W^T [in(l), G*H], R^T [P, G*H], with a projection Wp^T [H, P]    matrices in panels
 *
 * bias is the sum of all biases that are added to a column of gates. A step of few rows spends its
 * time on reading weights. So a step (below) can have its matrices in bf16: half the bytes.
 */

/* G*H, the rows of W, and K, the width of a row of gates (above). */
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

/* Where a pseudo-layer's prepared weights lie: offsets in bytes, and their end. */
typedef struct ashlar_prepared_layer {
    size_t bias, w, r, wp, end;
} ashlar_prepared_layer;
ashlar_prepared_layer ashlar__rnn_prepared_layer(const ashlar_rnn_layout *layout, bool is_bf16,
                                                 size_t pseudo_layer);

/* Bytes of a stack's prepared weights. They cannot overflow: a layout is limited to 2^31 elements,
 * and they are a small multiple of these. */
size_t ashlar__rnn_prepared_bytes(const ashlar_rnn_layout *layout, bool is_bf16);

/* The weights of a stack, of type layout->config.dtype, and where to put the prepared ones. */
typedef struct ashlar_prepare_args {
    const ashlar_rnn_layout *layout;
    bool is_bf16;        /* only for fp32 */
    const void *weights; /* in rnn.h's packed order */
    void *prepared;      /* ashlar__rnn_prepared_bytes(), aligned to 64 bytes */
} ashlar_prepare_args;

/* Read the weights, and fill `prepared`. The workers share the work. */
typedef void ashlar_rnn_prepare_function(const ashlar_prepare_args *args);

/*
 * A forward pass of one time step in inference, with prepared weights and all states given, runs in
 * another way. Text is written, and a stream is answered, step by step with the same weights. So
 * each thread always reads the same part of a matrix, which its core's cache may keep, and a
 * layer's two products are one piece of work.
 *
 * Outputs and states have the bits of one long forward pass over the same steps (with 4 rows or
 * more), whatever the batch, and with any number of threads.
 */
static inline bool ashlar__rnn_is_step(const ashlar_rnn_cpu_args *args) {
    const ashlar_rnn_buffers *b = &args->b;
    return args->steps == 1 && b->reserve == NULL && b->prepared != NULL &&
           args->layout->config.directions == 1 && b->hx != NULL && b->hy != NULL &&
           b->hx != b->hy &&
           (args->layout->config.cell != ASHLAR_RNN_LSTM || (b->cx != NULL && b->cy != NULL));
}

/* Where the parts of a step's work lie, offsets in bytes. `end` is at most the pass's work_bytes.
 */
typedef struct ashlar_rnn_step_work {
    size_t gates; /* [B, K], a layer's rows of gates */
    size_t sums;  /* GRU: [B, 3H], R h */
    size_t full;  /* with a projection: [B, H], h' before that */
    size_t end;
} ashlar_rnn_step_work;
ashlar_rnn_step_work ashlar__rnn_step_work(const ashlar_rnn_layout *layout, size_t batch);

/* A linear layer of few rows in inference, with its W^T in panels; y has the bits of a product of 4
 * rows or more. `weight` is read by `prepare_linear` alone, x, bias and y by `linear`. */
typedef struct ashlar_prepared_linear {
    ashlar_linear_args args; /* elements are of type `dtype` */
    ashlar_dtype dtype;
    bool is_bf16;   /* prepared as bf16; only for fp32 */
    void *prepared; /* ashlar__linear_prepared_bytes(), aligned to 64 bytes */
} ashlar_prepared_linear;

typedef void ashlar_linear_function(const ashlar_prepared_linear *linear);

/* They fit in a size_t if the weight does, and a cache line for each of its columns. */
size_t ashlar__linear_prepared_bytes(const ashlar_prepared_linear *linear);

/* Queue `prepare_linear`, or `linear`, on a software device. Errors: those of ashlar_launch(). */
ASHLAR_MUST_CHECK ashlar_status ashlar__linear_prepare(ashlar_device *device,
                                                       const ashlar_prepared_linear *linear,
                                                       ashlar_stream stream);
ASHLAR_MUST_CHECK ashlar_status ashlar__linear_run_prepared(ashlar_device *device,
                                                            const ashlar_prepared_linear *linear,
                                                            ashlar_stream stream);

/* The functions for one element type and one instruction set (meson.build). With fused multiply-add
 * they round less often: their results differ in the last bits from the baseline's, but have the
 * same bits on every processor that has it. */
typedef struct ashlar_rnn_loops {
    ashlar_rnn_cpu_pass *passes[ASHLAR_RNN_PASS_COUNT];
    ashlar_rnn_prepare_function *prepare;
    ashlar_linear_function *prepare_linear, *linear;
} ashlar_rnn_loops;

extern const ashlar_rnn_loops ashlar__rnn_loops_f32_baseline, ashlar__rnn_loops_f64_baseline;
extern const ashlar_rnn_loops ashlar__rnn_loops_f32_avx2, ashlar__rnn_loops_f64_avx2;
extern const ashlar_rnn_loops ashlar__rnn_loops_f32_avx512;
extern const ashlar_rnn_loops ashlar__rnn_loops_f32_neon, ashlar__rnn_loops_f64_neon;

/* The functions for a type, in the best instruction set that this processor has. NULL: the CPU does
 * not compute in that type. */
const ashlar_rnn_loops *ashlar__rnn_loops_of(ashlar_dtype dtype);

#endif /* ASHLAR_RNN_CPU_H */
