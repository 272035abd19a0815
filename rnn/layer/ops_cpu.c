/* ops_cpu.c - embeddings, linear layers, columns and argmax on plain memory, for the element type
 * that meson.build compiles this file for (real.h). */
#include "rnn/layer/ops.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "allocator/soft/soft.h"
#include "rnn/layer/ops_rows.h"

static void gather_rows(void *context, size_t first, size_t end) {
    const ashlar_embedding_args *const args = context;
    const size_t width = args->width;
    const real *const table = args->table;
    real *const out = args->out;
    for (size_t at = first; at < end; at++) {
        const size_t t = at / args->batch, b = at % args->batch;
        if (t >= length_of(args->lengths, b, args->steps)) {
            memset(out + at * width, 0, width * sizeof(real));
            continue;
        }
        const size_t token = (size_t)args->tokens[at];
        memcpy(out + at * width, table + token * width, width * sizeof(real));
    }
}

/* Whether every token is a class; else the device is lost. The host could not look: tokens may be
 * written by work that is queued before. */
static bool are_classes(const ashlar_embedding_args *args) {
    for (size_t at = 0; at < args->steps * args->batch; at++) {
        if (at / args->batch < length_of(args->lengths, at % args->batch, args->steps) &&
            (size_t)args->tokens[at] >= args->classes) {
            ashlar__soft_lose_device("embedding: a token is no class of the table: it is negative, "
                                     "or not below the number of classes");
            return false;
        }
    }
    return true;
}

void REAL(ashlar__embedding_forward)(const ashlar_embedding_args *args) {
    if (are_classes(args)) {
        ashlar__workers_share(args->steps * args->batch, rows_worth(COPIED_LEAST, args->width),
                              gather_rows, (void *)(uintptr_t)args);
    }
}

static void scatter_columns(void *context, size_t first, size_t end) {
    const ashlar_embedding_args *const args = context;
    const real *const dout = args->dout;
    real *const dtable = args->dtable;
    for (size_t at = 0; at < args->steps * args->batch; at++) {
        if (at / args->batch >= length_of(args->lengths, at % args->batch, args->steps)) {
            continue;
        }
        const size_t token = (size_t)args->tokens[at];
        put_row(dout + at * args->width + first, end - first, true,
                dtable + token * args->width + first);
    }
}

void REAL(ashlar__embedding_backward)(const ashlar_embedding_args *args) {
    if (are_classes(args)) {
        share_columns(args->steps * args->batch, args->width, scatter_columns, args);
    }
}

static void copy_bias(void *context, size_t first, size_t end) {
    const ashlar_linear_args *const args = context;
    for (size_t row = first; row < end; row++) {
        memcpy((real *)args->y + row * args->out, args->bias, args->out * sizeof(real));
    }
}

void REAL(ashlar__linear_forward)(const ashlar_linear_args *args) {
    if (args->bias != NULL) {
        ashlar__workers_share(args->rows, rows_worth(COPIED_LEAST, args->out), copy_bias,
                              (void *)(uintptr_t)args);
    }
    REAL(ashlar__gemm)
    (false, true, args->rows, args->out, args->in, args->x, args->in, args->weight, args->in,
     args->bias != NULL, args->y, args->out);
}

static void add_bias_columns(void *context, size_t first, size_t end) {
    const ashlar_linear_args *const args = context;
    for (size_t row = 0; row < args->rows; row++) {
        put_row((const real *)args->dy + row * args->out + first, end - first, true,
                (real *)args->dbias + first);
    }
}

void REAL(ashlar__linear_backward)(const ashlar_linear_args *args) {
    const real *const dy = args->dy;
    if (args->dx != NULL) {
        REAL(ashlar__gemm)
        (false, false, args->rows, args->in, args->out, dy, args->out, args->weight, args->in,
         false, args->dx, args->in);
    }
    if (args->dweight != NULL) {
        REAL(ashlar__gemm)
        (true, false, args->out, args->in, args->rows, dy, args->out, args->x, args->in, true,
         args->dweight, args->in);
    }
    if (args->dbias != NULL) {
        share_columns(args->rows, args->out, add_bias_columns, args);
    }
}

void REAL(ashlar__copy_columns)(const ashlar_columns_args *args) {
    if (args->rows == 1) { /* a whole array, which all threads share */
        const ashlar_map_args map = {.kind = ASHLAR_MAP_COPY,
                                     .count = args->width,
                                     .a = args->from,
                                     .out = args->to,
                                     .adds = args->adds};
        REAL(ashlar__map)(&map);
        return;
    }
    for (size_t row = 0; row < args->rows; row++) {
        put_row((const real *)args->from + row * args->from_stride, args->width, args->adds,
                (real *)args->to + row * args->to_stride);
    }
}

void REAL(ashlar__argmax)(const ashlar_argmax_args *args) {
    const real *const logits = args->logits;
    for (size_t row = 0; row < args->rows; row++) {
        const real *const in = logits + row * args->classes;
        size_t best = 0;
        for (size_t j = 1; j < args->classes; j++) {
            if (in[j] > in[best] || isnan(in[best])) { /* NaN is never the largest */
                best = j;
            }
        }
        args->labels[row] = isnan(in[best]) ? 0 : (int32_t)best;
    }
}
