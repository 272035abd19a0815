/* rnn_prepare.h - how weights become panels, for a pass or for many (internal; compiled for each
 * element type and instruction set, see real.h). */
#ifndef ASHLAR_RNN_PREPARE_H
#define ASHLAR_RNN_PREPARE_H

#include "rnn/layer/rnn_prepared.h"
#include "rnn/product/real.h"

/* A factor [depth, columns] that becomes panels (panel.h), which lie one behind the other. */
typedef struct matrix_packing {
    bool trans;   /* weights are stored transposed */
    bool is_bf16; /* panels are; only a transposed factor of floats */
    size_t columns, depth;
    const real *weights;
    size_t ld;
    void *panels;
} matrix_packing;

#define pack_matrix ASHLAR_VARIANT(ashlar__pack_matrix)
#define gather_bias ASHLAR_VARIANT(ashlar__gather_bias)

/* Shared by the workers. */
void pack_matrix(matrix_packing m);

/* bias [K] = for each column of gates, the sum of all biases that are added to it. */
void gather_bias(const ashlar_rnn_layout *layout, size_t pseudo_layer, const real *weights,
                 real *bias);

#endif /* ASHLAR_RNN_PREPARE_H */
