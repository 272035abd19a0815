/* rnn_pass.c - the RNN's passes on the CPU: forward, backward over the data, backward over the
 * weights. Rows are copied from the caller's tensors to packed ones, and back; all else computes on
 * packed rows, without padding and with the sequences sorted by length. */
#include "rnn/layer/rnn_pass.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "arena/compute/workers.h"
#include "rnn/layer/dropout.h"
#include "arena/product/blas.h"
#include "arena/product/panel.h"

static layer_part open_pseudo_layer(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                                    size_t layer, size_t direction) {
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

/* A forward pseudo-layer's outputs as packed rows. In reverse, initial states lie between them. */
static const real *forward_outputs(const ashlar_rnn_rows *batch, const layer_part *part) {
    return part->states + batch->batch * part->state;
}

/* The output of step t of sequence p. */
static const real *output_row(const ashlar_rnn_rows *batch, const layer_part *part, size_t t,
                              size_t p) {
    return part->states +
           (ashlar__rnn_rows_state(batch, side_after(part->direction, t)) + p) * part->state;
}

/* The copy that layer l > 0 has of its input. In inference all layers share one buffer for it. */
static real *joined_input(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args, size_t l) {
    char *const reserve = args->b.reserve;
    return batch->training
               ? (real *)(void *)(reserve + batch->map.inputs + (l - 1) * batch->map.input_bytes)
               : in_work(args, batch->map.rows);
}

static uint64_t *kept_seed(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args) {
    return (uint64_t *)(void *)((char *)args->b.reserve + batch->map.seed);
}

/* The least work that is worth waking a thread for, about ten microseconds: in elements that are
 * copied, and in elements for which random numbers are drawn. */
enum { COPIED_LEAST = 1 << 15, DROPPED_LEAST = 1 << 13 };

/* Rows of all time steps, on their way from one tensor to another. Threads share the steps. */
typedef struct row_copy {
    const ashlar_rnn_rows *batch;
    const layer_part *part; /* its outputs are copied; NULL: `from` is copied */
    const real *from;
    real *to;
    size_t width; /* of a row of `to` */
} row_copy;

static void share_steps(const row_copy *copy, size_t least,
                        void (*fn)(void *context, size_t first, size_t end)) {
    const size_t each = copy->batch->batch * copy->width;
    ashlar__workers_share(copy->batch->steps, (least + each - 1) / each, fn,
                          (void *)(uintptr_t)copy); /* `fn` only reads it */
}

/* Fill packed rows `to` [N, width] from the part's outputs or, without a part, from padded rows. */
static void fill_packed(void *context, size_t first, size_t end) {
    const row_copy *const c = context;
    const ashlar_rnn_rows *const batch = c->batch;
    const size_t bytes = (c->part != NULL ? c->part->state : c->width) * sizeof(real);
    for (size_t t = first; t < end; t++) {
        for (size_t p = 0; p < ashlar__rnn_rows_active(batch, t); p++) {
            const size_t padded = t * batch->batch + batch->order[p];
            memcpy(c->to + (batch->start[t] + p) * c->width,
                   c->part != NULL ? output_row(batch, c->part, t, p) : c->from + padded * c->width,
                   bytes);
        }
    }
}

/* Fill padded rows `to` [T, B, width] from the part's outputs or, without a part, from packed rows.
 * Rows past a sequence's length get zeros. */
static void fill_padded(void *context, size_t first, size_t end) {
    const row_copy *const c = context;
    const ashlar_rnn_rows *const batch = c->batch;
    const size_t bytes = (c->part != NULL ? c->part->state : c->width) * sizeof(real);
    for (size_t t = first; t < end; t++) {
        for (size_t p = 0; p < batch->batch; p++) {
            const size_t packed = batch->start[t] + p;
            real *row = c->to + (t * batch->batch + batch->order[p]) * c->width;
            if (p >= ashlar__rnn_rows_active(batch, t)) {
                memset(row, 0, bytes);
                continue;
            }
            memcpy(row,
                   c->part != NULL ? output_row(batch, c->part, t, p) : c->from + packed * c->width,
                   bytes);
        }
    }
}

/* The rows of padded [T, B, width] as packed rows [N, width]: `padded` itself if nothing is padded,
 * else a copy in `packed`. If `padded` is NULL, zeros. */
static const real *packed_rows(const ashlar_rnn_rows *batch, const real *padded, size_t width,
                               real *packed) {
    if (padded == NULL) {
        return memset(packed, 0, batch->row_count * width * sizeof(real));
    }
    if (batch->is_unpadded) {
        return padded;
    }
    const row_copy copy = {.batch = batch, .from = padded, .to = packed, .width = width};
    share_steps(&copy, COPIED_LEAST, fill_packed);
    return packed;
}

/* padded [T, B, width] = packed [N, width], and zeros past each length. */
static void unpack_rows(const ashlar_rnn_rows *batch, const real *packed, size_t width,
                        real *padded) {
    const row_copy copy = {.batch = batch, .from = packed, .to = padded, .width = width};
    share_steps(&copy, COPIED_LEAST, fill_padded);
}

/* Write a pseudo-layer's columns of y [T, B, D*P], with zeros past each length. */
static void write_outputs(const ashlar_rnn_rows *batch, const layer_part *part, real *y) {
    const row_copy copy = {.batch = batch,
                           .part = part,
                           .to = y + part->direction * part->state,
                           .width = batch->layout->output};
    share_steps(&copy, COPIED_LEAST, batch->is_unpadded ? fill_packed : fill_padded);
}

/* Write a pseudo-layer's columns of the next layer's input, packed [N, D*P]. */
static void join_outputs(const ashlar_rnn_rows *batch, const layer_part *part, real *input) {
    const row_copy copy = {.batch = batch,
                           .part = part,
                           .to = input + part->direction * part->state,
                           .width = batch->layout->output};
    share_steps(&copy, COPIED_LEAST, fill_packed);
}

/* Rows [N, D*P] on which dropout is to act. */
typedef struct row_drop {
    row_copy rows; /* first, since share_steps() hands on a pointer to it; `to` is changed */
    const ashlar_rnn_cpu_args *args;
    uint64_t seed;
    size_t layer;
} row_drop;

static void drop_row(const ashlar_dropout_row *key, double rate, size_t width, real *row) {
    const uint32_t threshold = ashlar__dropout_threshold(rate);
    const real scale = (real)(1 / (1 - rate));
    for (size_t first = 0; first < width; first += ASHLAR_DROPOUT_DRAWS) {
        uint32_t draws[ASHLAR_DROPOUT_DRAWS];
        ashlar__dropout_draw(key, first / ASHLAR_DROPOUT_DRAWS, draws);
        const size_t left = width - first;
        const size_t count = left < ASHLAR_DROPOUT_DRAWS ? left : ASHLAR_DROPOUT_DRAWS;
        for (size_t j = 0; j < count; j++) {
            row[first + j] = draws[j] < threshold ? 0 : row[first + j] * scale;
        }
    }
}

static void drop_steps(void *context, size_t first, size_t end) {
    const row_drop *const d = context;
    const ashlar_rnn_rows *const batch = d->rows.batch;
    const size_t stride = d->args->dropout_stride == 0 ? 1 : d->args->dropout_stride;
    for (size_t t = first; t < end; t++) {
        for (size_t p = 0; p < ashlar__rnn_rows_active(batch, t); p++) {
            const ashlar_dropout_row key = {.seed = d->seed,
                                            .layer = d->layer,
                                            .step = t,
                                            .sequence =
                                                d->args->dropout_first + batch->order[p] * stride};
            drop_row(&key, batch->layout->config.dropout, d->rows.width,
                     d->rows.to + (batch->start[t] + p) * d->rows.width);
        }
    }
}

/* Multiply rows [N, D*P], the input of `layer` or its gradient, by the dropout mask. */
static void drop_rows(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args, uint64_t seed,
                      size_t layer, real *rows) {
    const row_drop drop = {
        .rows = {.batch = batch, .to = rows, .width = batch->layout->output},
        .args = args,
        .seed = seed,
        .layer = layer,
    };
    share_steps(&drop.rows, DROPPED_LEAST, drop_steps);
}

/* Which states of a sequence: before its first step, after its last one, or gradients of either. */
typedef enum state_kind { FIRST_STATES, LAST_STATES, STATE_GRADIENTS } state_kind;

/* The row of sequence p in the caller's states [L*D, B, width]. */
static size_t state_row(const ashlar_rnn_rows *batch, const layer_part *part, size_t p) {
    return pseudo_layer_of(batch, part) * batch->batch + batch->order[p];
}

/* The row of sequence p in the pass's own states, which rnn_cpu.h describes. Gradients of states
 * have one row for each sequence: row p. */
static size_t own_row(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                      const layer_part *part, state_kind kind, bool is_cell, size_t p) {
    const bool is_begin = (kind == FIRST_STATES) == (part->direction == 0);
    const size_t t = is_begin ? 0 : (size_t)args->lengths[batch->order[p]];
    return p + (kind == STATE_GRADIENTS ? 0
                : is_cell               ? ashlar__rnn_rows_cell(batch, t)
                                        : ashlar__rnn_rows_state(batch, t));
}

/* Copy states from the caller's buffers h [L*D, B, P] and c [L*D, B, H]; only the LSTM has a c. A
 * buffer that is NULL gives zeros. */
static void read_states(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                        const layer_part *part, state_kind kind, const void *const from[2],
                        real *const own[2]) {
    for (size_t i = 0; i < 1 + (size_t)(batch->layout->config.cell == ASHLAR_RNN_LSTM); i++) {
        const size_t width = i == 0 ? part->state : part->hidden;
        for (size_t p = 0; p < batch->batch; p++) {
            real *to = own[i] + own_row(batch, args, part, kind, i > 0, p) * width;
            if (from[i] == NULL) {
                memset(to, 0, width * sizeof(real));
            } else {
                memcpy(to, (const real *)from[i] + state_row(batch, part, p) * width,
                       width * sizeof(real));
            }
        }
    }
}

/* Copy states to the caller's buffers, but for those that are NULL. */
static void write_states(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                         const layer_part *part, state_kind kind, real *const own[2],
                         void *const to[2]) {
    for (size_t i = 0; i < 1 + (size_t)(batch->layout->config.cell == ASHLAR_RNN_LSTM); i++) {
        const size_t width = i == 0 ? part->state : part->hidden;
        for (size_t p = 0; to[i] != NULL && p < batch->batch; p++) {
            memcpy((real *)to[i] + state_row(batch, part, p) * width,
                   own[i] + own_row(batch, args, part, kind, i > 0, p) * width,
                   width * sizeof(real));
        }
    }
}

/* Multiply a pseudo-layer's input [N, in] with W. Returns the bias [K] of its gates. */
static const real *multiply_input(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                                  const layer_part *part, const real *input) {
    if (args->b.prepared != NULL) {
        const ashlar_prepared_layer at =
            ashlar__rnn_prepared_layer(batch->layout, false, pseudo_layer_of(batch, part));
        REAL(ashlar__gemm_panels)
        (batch->row_count, batch->gate_rows, part->input, input, part->input,
         in_prepared(args, at.w), false, part->gates, batch->gate_stride);
        return in_prepared(args, at.bias);
    }
    const real *const weights = args->b.weights;
    real *const bias = in_work(args, batch->map.bias);
    REAL(ashlar__gemm)
    (false, true, batch->row_count, batch->gate_rows, part->input, input, part->input,
     weights + part->place[ASHLAR_RNN_W].offset, part->input, false, part->gates,
     batch->gate_stride);
    gather_bias(batch->layout, pseudo_layer_of(batch, part), weights, bias);
    return bias;
}

/* Run one pseudo-layer, from its layer's input [N, in] to its last states. */
static void forward_pseudo_layer(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                                 const layer_part *part, const real *input) {
    real *const own[] = {part->states, part->cells};
    /* Read the input before writing any states: in inference they may share its memory. */
    const real *const bias = multiply_input(batch, args, part, input);
    read_states(batch, args, part, FIRST_STATES, (const void *const[]){args->b.hx, args->b.cx},
                own);
    run_layer((layer_run){.batch = batch, .part = part, .is_forward = true, .bias = bias}, args);
    write_states(batch, args, part, LAST_STATES, own, (void *const[]){args->b.hy, args->b.cy});
}

/* The input of layer l > 0, made from the outputs of layer l - 1. */
static const real *make_input(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                              size_t l) {
    if (!batch->is_joined) {
        const layer_part below = open_pseudo_layer(batch, args, l - 1, 0);
        return forward_outputs(batch, &below);
    }
    real *const input = joined_input(batch, args, l);
    for (size_t d = 0; d < batch->layout->config.directions; d++) {
        const layer_part below = open_pseudo_layer(batch, args, l - 1, d);
        join_outputs(batch, &below, input);
    }
    if (batch->is_dropping) {
        drop_rows(batch, args, args->dropout_seed, l, input);
    }
    return input;
}

void forward_pass(const ashlar_rnn_cpu_args *args) {
    ASHLAR_ASSERT(args->layout->config.dtype == REAL_DTYPE);
    if (ashlar__rnn_is_step(args)) {
        single_step(args);
        return;
    }
    ASHLAR_ASSERT(!args->is_bf16);
    const ashlar_rnn_rows batch = ashlar__rnn_rows_open(args, args->b.reserve != NULL);
    const ashlar_rnn_config *config = &args->layout->config;
    const real *input =
        packed_rows(&batch, args->b.x, config->input, in_work(args, batch.map.rows));
    if (batch.training) { /* forward never declines */
        (void)ashlar__rnn_take_reserve(args, ASHLAR_RNN_FORWARD);
    }
    if (batch.is_dropping) {
        *kept_seed(&batch, args) = args->dropout_seed;
    }
    for (size_t l = 0; l < config->layers; l++) {
        input = l == 0 ? input : make_input(&batch, args, l);
        for (size_t d = 0; d < config->directions; d++) {
            const layer_part part = open_pseudo_layer(&batch, args, l, d);
            forward_pseudo_layer(&batch, args, &part, input);
        }
    }
    for (size_t d = 0; d < config->directions; d++) {
        const layer_part part = open_pseudo_layer(&batch, args, config->layers - 1, d);
        write_outputs(&batch, &part, args->b.y);
    }
}

/* ---- backward over the data ---- */

static void backward_pseudo_layer(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                                  const layer_part *part, const real *dy) {
    real *const own[] = {in_work(args, batch->map.dh), in_work(args, batch->map.dc)};
    read_states(batch, args, part, STATE_GRADIENTS, (const void *const[]){args->b.dhy, args->b.dcy},
                own);
    run_layer((layer_run){.batch = batch,
                          .part = part,
                          .dy = dy + part->direction * part->state,
                          .dh = own[0],
                          .dc = own[1]},
              args);
    write_states(batch, args, part, STATE_GRADIENTS, own,
                 (void *const[]){args->b.dhx, args->b.dcx});
}

void backward_data_pass(const ashlar_rnn_cpu_args *args) {
    ASHLAR_ASSERT(args->layout->config.dtype == REAL_DTYPE && args->b.reserve != NULL);
    if (!ashlar__rnn_take_reserve(args, ASHLAR_RNN_BACKWARD_DATA)) {
        return;
    }
    const ashlar_rnn_rows batch = ashlar__rnn_rows_open(args, true);
    const ashlar_rnn_config *config = &args->layout->config;
    const real *const weights = args->b.weights;
    real *const rows = in_work(args, batch.map.rows);
    const real *flow = packed_rows(&batch, args->b.dy, batch.layout->output, rows);
    for (size_t l = config->layers; l-- > 0;) {
        for (size_t d = 0; d < config->directions; d++) {
            const layer_part part = open_pseudo_layer(&batch, args, l, d);
            backward_pseudo_layer(&batch, args, &part, flow);
        }
        /* Only now may the input's gradient overwrite `rows`, which all directions have read. */
        real *const into = l == 0 && batch.is_unpadded ? args->b.dx : rows;
        for (size_t d = 0; d < config->directions && (l > 0 || args->b.dx != NULL); d++) {
            const layer_part part = open_pseudo_layer(&batch, args, l, d);
            REAL(ashlar__gemm)
            (false, false, batch.row_count, part.input, batch.gate_rows, part.gates,
             batch.gate_stride, weights + part.place[ASHLAR_RNN_W].offset, part.input, d > 0, into,
             part.input);
        }
        if (l > 0 && batch.is_dropping) {
            drop_rows(&batch, args, *kept_seed(&batch, args), l, into);
        }
        flow = into;
    }
    if (args->b.dx != NULL && !batch.is_unpadded) {
        unpack_rows(&batch, flow, config->input, args->b.dx);
    }
}

/* ---- backward over the weights ---- */

/* A bias's gradient is the sum of a column of gate gradients; a row of W's or R's gradient is the
 * sum of that column times inputs or states. Threads share the columns, so each sum is added in the
 * order of the rows. A part of the rows goes into all three sums while the cache has it. */

/* A range of columns of gates, each of which has a row in W's gradient, in R's, or in both. */
typedef struct gate_run {
    size_t first, end;
    real *dw, *dr; /* the first column's row in the gradient; NULL: these columns have none */
} gate_run;

enum { RUNS_MAX = 3 };

typedef struct gradient_sums {
    const ashlar_rnn_rows *batch;
    const layer_part *part;
    const real *input; /* [N, in(l)] */
    real *sum;         /* [K], out: the sum of each column of gates */
    gate_run runs[RUNS_MAX];
    size_t run_count, pieces;
} gradient_sums;

/* The columns of a run that one piece computes, counted from the run's first column. */
typedef struct run_share {
    size_t first, end;
} run_share;

static run_share share_of(const gradient_sums *s, const gate_run *run, size_t piece) {
    const size_t columns = run->end - run->first;
    return (run_share){ashlar__blas_edge(columns, ASHLAR_ROW_UNIT, s->pieces, piece),
                       ashlar__blas_edge(columns, ASHLAR_ROW_UNIT, s->pieces, piece + 1)};
}

/* Prefetch rows of gates: they are about a page apart, which processors do not prefetch across. */
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

/* One product adds several steps to R's gradient, if the states before these steps are consecutive
 * rows: in reverse all are; in the forward direction only while no sequence ends. Returns the end
 * of such a range of steps that begins with step `from`. */
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

/* The state before the step of row `row` of gates, a row in the range of steps from `from` on. */
static const real *states_before(const gradient_sums *s, size_t from, size_t row) {
    const size_t first = ashlar__rnn_rows_state(s->batch, side_before(s->part->direction, from));
    return s->part->states + (first + row - s->batch->start[from]) * s->part->state;
}

/* Add rows row .. end - 1 to a piece's columns of the gradients of W and of the biases. */
static void add_inputs(const gradient_sums *s, size_t piece, size_t row, size_t end) {
    const size_t width = s->part->input;
    for (size_t i = 0; i < s->run_count; i++) {
        const gate_run *const run = &s->runs[i];
        const run_share share = share_of(s, run, piece);
        add_columns(s, run, share, row, end);
        add_products(s, run, share, row, end, s->input + row * width, width, run->dw);
    }
}

/* Add rows row .. end - 1, of a range of steps that begins with `from`, to a piece of R's gradient.
 */
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

/* Divide the columns of gates into runs. The GRU's gate n has separate columns for W and for R. */
static void find_runs(gradient_sums *s, real *dw, real *dr) {
    const size_t split = s->batch->split, end = s->batch->gate_rows;
    s->runs[s->run_count++] = (gate_run){0, split, dw, dr};
    if (split < end) {
        s->runs[s->run_count++] = (gate_run){split, end, dw + split * s->part->input, NULL};
        s->runs[s->run_count++] =
            (gate_run){end, s->batch->gate_width, NULL, dr + split * s->part->state};
    }
}

/* Add the sums of the columns to the gradients of bW and bR. */
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

void backward_weights_pass(const ashlar_rnn_cpu_args *args) {
    ASHLAR_ASSERT(args->layout->config.dtype == REAL_DTYPE && args->b.reserve != NULL);
    if (!ashlar__rnn_take_reserve(args, ASHLAR_RNN_BACKWARD_WEIGHTS)) {
        return;
    }
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
