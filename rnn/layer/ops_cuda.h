/* ops_cuda.h - the CUDA kernels for the operations of ops.h: names, arguments, thread blocks
 * (internal; C and CUDA C). */
#ifndef ASHLAR_OPS_CUDA_H
#define ASHLAR_OPS_CUDA_H

#include "allocator/base/compiler.h"
#include "rnn/layer/ops.h"

/* X(kernel, arguments). Each kernel exists for every element type, as ashlar_kernel_<kernel>_<type>
 * with a type of f32, f64, f16, bf16. It has one parameter, the arguments, no dynamic shared
 * memory, and blocks of THREADS. Narrow types are computed in float, and rounded once.
 *
 *   embedding_forward    shares out the rows of out, EACH units to a thread
 *   embedding_backward   a block for each class and each THREADS columns of dtable
 *   embedding_add        the same after embedding_link; shares out the rows of dout, a unit to a
 *                        thread
 *   bias_backward        a block for each COLUMNS of dbias: dbias += the sum of dy's rows
 *   cross_entropy        a block for each position: dlogits, and its part of the loss
 *   squared_error        a block for each position: doutputs, and its part of the loss
 *   copy_columns         shares out the rows of to, EACH units to a thread. A linear layer's
 *                        forward begins with it: y = bias, whose rows are 0 apart
 *   argmax               a block for each row
 *
 * and for all types, in one block each; the first two with the arguments of cross_entropy:
 *
 *   loss_count           the number of valid positions; if the weight is 0, it is 1 / that number
 *   loss_sum             loss += weight * the sum of the positions' parts
 *   embedding_link       link the positions of each token, in their order
 *
 * In a loss's work, an array of doubles, element 0 is that number. The parts follow, unless the
 * caller wants them in `losses`. */
#define ASHLAR_OPS_KERNEL_MAP(X)     \
    X(embedding_forward, lookup)     \
    X(embedding_backward, embedding) \
    X(embedding_add, chain)          \
    X(bias_backward, linear)         \
    X(cross_entropy, cross_entropy)  \
    X(squared_error, squared_error)  \
    X(copy_columns, copy)            \
    X(argmax, argmax)

enum {
    ASHLAR_OPS_THREADS = 128,
    ASHLAR_OPS_EACH = 4,
    ASHLAR_OPS_COLUMNS = 8,
    ASHLAR_OPS_VECTOR_BYTES = 16,
};

/* Rows that teams of threads share out. A team has a row, or a part of one, and its threads take
 * turns at the units: so a thread divides once, not once for each element. */
typedef struct ashlar_rows {
    size_t count;
    size_t units;       /* of a row: vectors if is_wide, else elements */
    bool is_wide;       /* every row, and every row's counterpart, is made of aligned vectors */
    unsigned team_bits; /* a team has 1 << team_bits threads */
    unsigned parts;     /* of a row, and so many blocks for it; 1 unless a team is a block */
} ashlar_rows;

/* What a thread has of the rows: of row `row` the units first + k * team, for k from 0 on while
 * k * team < reach. */
typedef struct ashlar_row_part {
    size_t row, first;
    unsigned team, reach;
} ashlar_row_part;

/* Set team_bits and parts from the other fields; returns the number of blocks. A team grows until
 * its threads have at most `each` units, a block being the largest. One of fewer than TEAM_LEAST
 * grows while the row has more units than it, so that it reads whole sectors of memory. */
static inline size_t ashlar__rows_share(ashlar_rows *rows, unsigned each) {
    enum { TEAM_LEAST = 8 };
    unsigned bits = 0, team = 1;
    while (team < ASHLAR_OPS_THREADS && team < rows->units &&
           (team < TEAM_LEAST || (size_t)team * each < rows->units)) {
        team = 1u << ++bits;
    }
    const size_t part = (size_t)team * each, at_once = ASHLAR_OPS_THREADS / team;
    const size_t parts = rows->units / part + (rows->units % part != 0);
    rows->team_bits = bits;
    rows->parts = (unsigned)parts; /* it fits if the blocks are as few as CUDA allows */
    return (rows->count / at_once + (rows->count % at_once != 0)) * parts;
}

/* What thread `thread` of block `block` has. */
ASHLAR_SHARED_FN ashlar_row_part ashlar__rows_part(const ashlar_rows *rows, unsigned each,
                                                   unsigned block, unsigned thread) {
    const unsigned team = 1u << rows->team_bits, most = team * each;
    const unsigned group = block / rows->parts, part = block % rows->parts;
    ashlar_row_part p;
    p.row = (size_t)group * (ASHLAR_OPS_THREADS >> rows->team_bits) + (thread >> rows->team_bits);
    p.first = (size_t)part * most + (thread & (team - 1));
    p.team = team;
    const size_t left = p.row < rows->count && p.first < rows->units ? rows->units - p.first : 0;
    p.reach = left < most ? (unsigned)left : most;
    return p;
}

typedef struct ashlar_lookup_args {
    ashlar_embedding_args embedding;
    ashlar_rows rows; /* of out; their counterparts are the table's */
} ashlar_lookup_args;

typedef struct ashlar_copy_args {
    ashlar_columns_args columns; /* from_stride may be 0 */
    ashlar_rows rows;            /* of to; their counterparts are those of from */
} ashlar_copy_args;

/* The positions of each token as a chain. A link is the next position plus 1, or 0, and has FIRST
 * in the first of its chain; that of a position without a token is 0. */
typedef struct ashlar_chain_args {
    ashlar_embedding_args embedding;
    uint32_t *newest; /* [V], 0 before: the last position of each token so far, plus 1 */
    uint32_t *links;  /* [T, B] */
    ashlar_rows rows; /* of dout; their counterparts are dtable's */
} ashlar_chain_args;

#define ASHLAR_OPS_FIRST ((uint32_t)1 << 31)

#endif /* ASHLAR_OPS_CUDA_H */
