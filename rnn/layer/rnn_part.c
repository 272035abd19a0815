/* rnn_part.c - copies rows between a caller's tensors and packed ones, shared by the threads. */
#include "rnn/layer/rnn_part.h"

#include <string.h>

#include "arena/compute/workers.h"
#include "rnn/layer/dropout.h"

/* The least work that is worth a thread, about ten microseconds of it: elements that are copied,
 * and elements for which numbers are drawn. */
enum { COPIED_LEAST = 1 << 15, DROPPED_LEAST = 1 << 13 };

/* Rows of all time steps, on their way from one tensor to another. Threads share the steps. */
typedef struct row_copy {
    const ashlar_rnn_rows *batch;
    const layer_part *part; /* of which the outputs are copied */
    const real *from;
    real *to;
    size_t width; /* of a row of `to` */
} row_copy;

static void share_steps(const row_copy *copy, size_t least,
                        void (*fn)(void *context, size_t first, size_t end)) {
    const size_t each = copy->batch->batch * copy->width;
    ashlar__workers_share(copy->batch->steps, (least + each - 1) / each, fn,
                          (void *)(uintptr_t)copy); /* nobody writes to it */
}

static void pack_steps(void *context, size_t first, size_t end) {
    const row_copy *const c = context;
    const ashlar_rnn_rows *const batch = c->batch;
    for (size_t t = first; t < end; t++) {
        for (size_t p = 0; p < ashlar__rnn_rows_active(batch, t); p++) {
            memcpy(c->to + (batch->start[t] + p) * c->width,
                   c->from + (t * batch->batch + batch->order[p]) * c->width,
                   c->width * sizeof(real));
        }
    }
}

const real *packed_rows(const ashlar_rnn_rows *batch, const real *padded, size_t width,
                        real *packed) {
    if (padded == NULL) {
        return memset(packed, 0, batch->row_count * width * sizeof(real));
    }
    if (is_dense(batch)) {
        return padded;
    }
    const row_copy copy = {.batch = batch, .from = padded, .to = packed, .width = width};
    share_steps(&copy, COPIED_LEAST, pack_steps);
    return packed;
}

static void unpack_steps(void *context, size_t first, size_t end) {
    const row_copy *const c = context;
    const ashlar_rnn_rows *const batch = c->batch;
    for (size_t t = first; t < end; t++) {
        for (size_t p = 0; p < batch->batch; p++) {
            real *row = c->to + (t * batch->batch + batch->order[p]) * c->width;
            if (p < ashlar__rnn_rows_active(batch, t)) {
                memcpy(row, c->from + (batch->start[t] + p) * c->width, c->width * sizeof(real));
            } else {
                memset(row, 0, c->width * sizeof(real));
            }
        }
    }
}

void unpack_rows(const ashlar_rnn_rows *batch, const real *packed, size_t width, real *padded) {
    const row_copy copy = {.batch = batch, .from = packed, .to = padded, .width = width};
    share_steps(&copy, COPIED_LEAST, unpack_steps);
}

static void write_steps(void *context, size_t first, size_t end) {
    const row_copy *const c = context;
    const ashlar_rnn_rows *const batch = c->batch;
    const size_t bytes = c->part->state * sizeof(real);
    for (size_t t = first; t < end; t++) {
        for (size_t p = 0; p < batch->batch; p++) {
            real *row = c->to + (t * batch->batch + batch->order[p]) * c->width;
            if (p < ashlar__rnn_rows_active(batch, t)) {
                memcpy(row, output_row(batch, c->part, t, p), bytes);
            } else {
                memset(row, 0, bytes);
            }
        }
    }
}

void write_outputs(const ashlar_rnn_rows *batch, const layer_part *part, real *y) {
    const row_copy copy = {.batch = batch,
                           .part = part,
                           .to = y + part->direction * part->state,
                           .width = batch->layout->output};
    share_steps(&copy, COPIED_LEAST, write_steps);
}

static void join_steps(void *context, size_t first, size_t end) {
    const row_copy *const c = context;
    for (size_t t = first; t < end; t++) {
        for (size_t p = 0; p < ashlar__rnn_rows_active(c->batch, t); p++) {
            memcpy(c->to + (c->batch->start[t] + p) * c->width, output_row(c->batch, c->part, t, p),
                   c->part->state * sizeof(real));
        }
    }
}

void join_outputs(const ashlar_rnn_rows *batch, const layer_part *part, real *input) {
    const row_copy copy = {.batch = batch,
                           .part = part,
                           .to = input + part->direction * part->state,
                           .width = batch->layout->output};
    share_steps(&copy, COPIED_LEAST, join_steps);
}

/* Dropout of rows [N, D*P]. */
typedef struct row_drop {
    row_copy rows; /* `to` is changed in place; the first member */
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

void drop_rows(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args, uint64_t seed,
               size_t layer, real *rows) {
    const row_drop drop = {
        .rows = {.batch = batch, .to = rows, .width = batch->layout->output},
        .args = args,
        .seed = seed,
        .layer = layer,
    };
    share_steps(&drop.rows, DROPPED_LEAST, drop_steps);
}

/* The row of sequence p in the caller's states [L*D, B, width]. */
static size_t state_row(const ashlar_rnn_rows *batch, const layer_part *part, size_t p) {
    return pseudo_layer_of(batch, part) * batch->batch + batch->order[p];
}

/* The row of our own states that holds a state of sequence p (rnn_rows.h). Gradients have one row
 * for each sequence: row p. */
static size_t own_row(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                      const layer_part *part, state_kind kind, bool is_cell, size_t p) {
    const bool is_begin = (kind == FIRST_STATES) == (part->direction == 0);
    const size_t t = is_begin ? 0 : (size_t)args->lengths[batch->order[p]];
    return p + (kind == STATE_GRADIENTS ? 0
                : is_cell               ? ashlar__rnn_rows_cell(batch, t)
                                        : ashlar__rnn_rows_state(batch, t));
}

void read_states(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
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

void write_states(const ashlar_rnn_rows *batch, const ashlar_rnn_cpu_args *args,
                  const layer_part *part, state_kind kind, real *const own[2], void *const to[2]) {
    for (size_t i = 0; i < 1 + (size_t)(batch->layout->config.cell == ASHLAR_RNN_LSTM); i++) {
        const size_t width = i == 0 ? part->state : part->hidden;
        for (size_t p = 0; to[i] != NULL && p < batch->batch; p++) {
            memcpy((real *)to[i] + state_row(batch, part, p) * width,
                   own[i] + own_row(batch, args, part, kind, i > 0, p) * width,
                   width * sizeof(real));
        }
    }
}
