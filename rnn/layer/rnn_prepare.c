/* rnn_prepare.c - packs a stack's weights once, for many passes; compiled for each element type and
 * instruction set (real.h). */
#include "rnn/layer/rnn_prepare.h"

#include <string.h>

#include "allocator/base/check_level.h"
#include "arena/compute/workers.h"
#include "rnn/product/blas_impl.h"
#include "rnn/product/panel.h"

/* The elements of panels that are tens of microseconds of work to pack. */
enum { PACKED_LEAST = 1 << 16 };

/* Pack panels `first` .. `end` - 1. */
static void pack_some(void *context, size_t first, size_t end) {
    const matrix_packing *const m = context;
    const size_t column = first * PANEL, last = end * PANEL;
    const size_t columns = (last < m->columns ? last : m->columns) - column;
    const real *const from = m->weights + column * (m->trans ? m->ld : 1);
    if (m->is_bf16) {
        pack_bf16_panels(columns, m->depth, from, m->ld,
                         (uint32_t *)m->panels + column * m->depth / 2);
    } else {
        pack_panels(m->trans, columns, m->depth, from, m->ld, m->depth * PANEL,
                    (real *)m->panels + column * m->depth);
    }
}

void pack_matrix(matrix_packing m) {
    ASHLAR_ASSERT(m.trans || !m.is_bf16);
    ashlar__workers_share(ashlar__blas_units(m.columns, PANEL),
                          PACKED_LEAST / (m.depth * PANEL + 1) + 1, pack_some, &m);
}

void gather_bias(const ashlar_rnn_layout *layout, size_t pseudo_layer, const real *weights,
                 real *bias) {
    const ashlar_rnn_view w = ashlar_rnn_layout_view(layout, pseudo_layer, ASHLAR_RNN_BW);
    const ashlar_rnn_view r = ashlar_rnn_layout_view(layout, pseudo_layer, ASHLAR_RNN_BR);
    memset(bias, 0, ashlar__rnn_gate_width(layout) * sizeof(real));
    for (size_t j = 0; j < w.rows; j++) {
        bias[j] = weights[w.offset + j];
    }
    for (size_t j = 0; j < r.rows; j++) {
        bias[ashlar__rnn_gate_column(layout, j)] += weights[r.offset + j];
    }
}

static void prepare_tensor(const ashlar_prepare_args *args, size_t pseudo_layer,
                           ashlar_rnn_tensor tensor, size_t offset) {
    const ashlar_rnn_view view = ashlar_rnn_layout_view(args->layout, pseudo_layer, tensor);
    if (view.rows > 0) {
        pack_matrix((matrix_packing){.trans = true,
                                     .is_bf16 = args->is_bf16,
                                     .columns = view.rows,
                                     .depth = view.cols,
                                     .weights = (const real *)args->weights + view.offset,
                                     .ld = view.cols,
                                     .panels = (char *)args->prepared + offset});
    }
}

void ASHLAR_VARIANT(ashlar__rnn_prepare_stack)(const ashlar_prepare_args *args) {
    ASHLAR_ASSERT(args->layout->config.dtype == REAL_DTYPE);
    for (size_t i = 0; i < args->layout->pseudo_layers; i++) {
        const ashlar_prepared_layer at = ashlar__rnn_prepared_layer(args->layout, args->is_bf16, i);
        gather_bias(args->layout, i, args->weights,
                    (real *)(void *)((char *)args->prepared + at.bias));
        prepare_tensor(args, i, ASHLAR_RNN_W, at.w);
        prepare_tensor(args, i, ASHLAR_RNN_R, at.r);
        prepare_tensor(args, i, ASHLAR_RNN_WP, at.wp);
    }
}
