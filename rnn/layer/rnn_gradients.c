/* rnn_gradients.c - the RNN's backward pass over its weights.
 *
 * A bias's gradient is the sum of its column of gate gradients, and a row of W's or R's gradient is
 * the sum of products with it. Threads share the columns of gates, so each sum is in the order of
 * the rows. All three sums take one part of the rows after the other, while it is in the cache. */
#include "rnn/layer/rnn_cpu.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "arena/compute/workers.h"
#include "rnn/layer/rnn_part.h"
#include "rnn/layer/rnn_prepared.h"
#include "rnn/product/blas_impl.h"
#include "rnn/product/panel.h"

/* Columns of gates that are rows of W's gradient, of R's, or of both. */
typedef struct gate_run {
    size_t first, end;
    real *dw, *dr; /* the row of the first column; NULL: the columns have none */
} gate_run;

enum { RUNS_MAX = 3 };

typedef struct gradient_sums {
    const ashlar_rnn_rows *batch;
    const layer_part *part;
    const real *input; /* [N, in(l)] */
    real *sum;         /* [K], of the columns */
    gate_run runs[RUNS_MAX];
    size_t run_count, pieces;
} gradient_sums;

/* A run's columns that a piece has, as rows of the run's gradients. */
typedef struct run_share {
    size_t first, end;
} run_share;

static run_share share_of(const gradient_sums *s, const gate_run *run, size_t piece) {
    const size_t columns = run->end - run->first;
    return (run_share){ashlar__blas_edge(columns, ASHLAR_ROW_UNIT, s->pieces, piece),
                       ashlar__blas_edge(columns, ASHLAR_ROW_UNIT, s->pieces, piece + 1)};
}

/* Rows of gates are about a page apart, and the processor does not prefetch across pages. */
enum { ROWS_AHEAD = 8 };

/* Add rows row .. end - 1 of gates to the columns' sums. */
static void add_columns(const gradient_sums *s, const gate_run *run, run_share share, size_t row,
                        size_t end) {
    const size_t count = share.end - share.first, stride = s->batch->gate_stride;
    real *restrict const sum = s->sum + run->first + share.first;
    for (size_t i = row; i < end; i++) {
        const real *restrict const from = s->part->gates + i * stride + run->first + share.first;
        const real *const ahead = i + ROWS_AHEAD < end ? from + ROWS_AHEAD * stride : from;
        for (size_t j = 0; j < count; j += LINE) {
            ASHLAR_PREFETCH(ahead + j);
        }
        for (size_t j = 0; j < count; j++) {
            sum[j] += from[j];
        }
    }
}

/* c += rows row .. end - 1 of gates, transposed, times the rows [end - row, width] at `right`.
 * Nothing if the run's columns have no rows in c. */
static void add_products(const gradient_sums *s, const gate_run *run, run_share share, size_t row,
                         size_t end, const real *right, size_t width, real *c) {
    const ashlar_gemm_args product = {
        .trans_a = true,
        .m = run->end - run->first,
        .n = width,
        .k = end - row,
        .a = s->part->gates + row * s->batch->gate_stride + run->first,
        .lda = s->batch->gate_stride,
        .b = right,
        .ldb = width,
        .adds = true,
        .c = c,
        .ldc = width,
    };
    const ashlar_gemm_tile tile = {.row = share.first, .row_end = share.end, .column_end = width};
    if (c != NULL && share.first < share.end) {
        ASHLAR_VARIANT(ashlar__gemm_kernel)(&product, &tile);
    }
}

/* Steps share one product with the states before them if these are neighbours too: in reverse all
 * are, and else those of steps between which no sequence ended. Returns the end of such steps from
 * step `from` on. */
static size_t end_of_steps(const gradient_sums *s, size_t from) {
    const ashlar_rnn_rows *const batch = s->batch;
    for (size_t t = from; t + 1 < batch->steps; t++) {
        const size_t before = t == 0 ? batch->batch : ashlar__rnn_rows_active(batch, t - 1);
        if (s->part->direction == 0 && ashlar__rnn_rows_active(batch, t) != before) {
            return t + 1;
        }
    }
    return batch->steps;
}

/* The states before the steps from step `from` on: the row that belongs to row `row` of gates. */
static const real *states_before(const gradient_sums *s, size_t from, size_t row) {
    const size_t first = ashlar__rnn_rows_state(s->batch, side_before(s->part->direction, from));
    return s->part->states + (first + row - s->batch->start[from]) * s->part->state;
}

/* The piece's share of the sums over rows row .. end - 1, W's and the biases'. */
static void add_inputs(const gradient_sums *s, size_t piece, size_t row, size_t end) {
    const size_t width = s->part->input;
    for (size_t i = 0; i < s->run_count; i++) {
        const gate_run *const run = &s->runs[i];
        const run_share share = share_of(s, run, piece);
        add_columns(s, run, share, row, end);
        add_products(s, run, share, row, end, s->input + row * width, width, run->dw);
    }
}

/* R's share, of rows that are of steps from step `from` on. */
static void add_states(const gradient_sums *s, size_t piece, size_t from, size_t row, size_t end) {
    for (size_t i = 0; i < s->run_count; i++) {
        const gate_run *const run = &s->runs[i];
        add_products(s, run, share_of(s, run, piece), row, end, states_before(s, from, row),
                     s->part->state, run->dr);
    }
}

static void add_piece(void *context, size_t piece) {
    const gradient_sums *const s = context;
    const size_t rows = s->batch->row_count, *const start = s->batch->start;
    size_t from = 0, next = end_of_steps(s, 0);
    for (size_t row = 0, end; row < rows; row = end) {
        end = rows - row < DEPTH ? rows : row + DEPTH;
        add_inputs(s, piece, row, end);
        for (size_t at = row, stop; at < end; at = stop) {
            while (start[next] == at) {
                from = next;
                next = end_of_steps(s, from);
            }
            stop = start[next] < end ? start[next] : end;
            add_states(s, piece, from, at, stop);
        }
    }
}

/* The GRU's gate n has columns of its own for W and for R. */
static void find_runs(gradient_sums *s, real *dw, real *dr) {
    const size_t split = s->batch->split, end = s->batch->gate_rows;
    s->runs[s->run_count++] = (gate_run){0, split, dw, dr};
    if (split < end) {
        s->runs[s->run_count++] = (gate_run){split, end, dw + split * s->part->input, NULL};
        s->runs[s->run_count++] =
            (gate_run){end, s->batch->gate_width, NULL, dr + split * s->part->state};
    }
}

/* Add the biases' gradients. */
static void add_bias(const ashlar_rnn_rows *batch, const layer_part *part, const real *sum,
                     real *restrict dweights) {
    const ashlar_rnn_view w = part->place[ASHLAR_RNN_BW], r = part->place[ASHLAR_RNN_BR];
    for (size_t j = 0; j < w.rows; j++) {
        dweights[w.offset + j] += sum[j];
    }
    for (size_t j = 0; j < r.rows; j++) {
        dweights[r.offset + j] += sum[ashlar__rnn_gate_column(batch->layout, j)];
    }
}

static void backward_pseudo_layer_weights(const ashlar_rnn_rows *batch,
                                          const ashlar_rnn_cpu_args *args, const layer_part *part,
                                          const real *input) {
    real *const dweights = args->b.dweights;
    const ashlar_rnn_view project = part->place[ASHLAR_RNN_WP];
    gradient_sums sums = {.batch = batch,
                          .part = part,
                          .input = input,
                          .sum = in_work(args, batch->map.bias),
                          .pieces = ashlar__blas_pieces(batch->gate_rows, part->input + part->state,
                                                        batch->row_count)};
    find_runs(&sums, dweights + part->place[ASHLAR_RNN_W].offset,
              dweights + part->place[ASHLAR_RNN_R].offset);
    memset(sums.sum, 0, batch->gate_width * sizeof(real));
    ashlar__workers_run(sums.pieces, add_piece, &sums);
    add_bias(batch, part, sums.sum, dweights);
    if (project.rows > 0) {
        REAL(ashlar__gemm)
        (true, false, part->state, part->hidden, batch->row_count, part->doutputs, part->state,
         part->fulls, part->hidden, true, dweights + project.offset, part->hidden);
    }
}

/* The input of layer l, as forward left it in the reserve. */
static const real *kept_input(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                              size_t l) {
    if (batch->is_joined) {
        return joined_input(batch, args, l);
    }
    const layer_part below = open_pseudo_layer(batch, args, l - 1, 0);
    return forward_outputs(batch, &below);
}

void ASHLAR_VARIANT(ashlar__rnn_backward_weights)(const ashlar_rnn_cpu_args *args) {
    ASHLAR_ASSERT(args->layout->config.dtype == REAL_DTYPE && args->b.reserve != NULL);
    const ashlar_rnn_rows batch = ashlar__rnn_rows_open(args, true);
    const ashlar_rnn_config *config = &args->layout->config;
    const real *const rows =
        packed_rows(&batch, args->b.x, config->input, in_work(args, batch.map.rows));
    for (size_t l = 0; l < config->layers; l++) {
        const real *const input = l == 0 ? rows : kept_input(&batch, args, l);
        for (size_t d = 0; d < config->directions; d++) {
            const layer_part part = open_pseudo_layer(&batch, args, l, d);
            backward_pseudo_layer_weights(&batch, args, &part, input);
        }
    }
}
