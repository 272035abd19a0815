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
 *   embedding_add        the same sums, along the links of embedding_link; shares out the rows of
 *                        dout, a unit to a thread
 *   bias_backward        a block for each COLUMNS of dbias: dbias += the sum of dy's rows
 *   cross_entropy        a block for each position: dlogits, and its part of the loss
 *   squared_error        a block for each position: doutputs, and its part of the loss
 *   copy_columns         shares out the rows of to, EACH units to a thread. A linear layer's
 *                        forward begins with it: y = bias, read as rows with a stride of 0
 *   argmax               a block for each row
 *
 * These serve all types, and run in one block; the first two take cross_entropy's arguments:
 *
 *   loss_count           the number of valid positions; if the weight is 0, it is 1 / that number
 *   loss_sum             loss += weight * the sum of the positions' parts
 *   embedding_link       link the positions of each token, in their order
 *
 * A loss's workspace is an array of doubles: first the number of valid positions (or elements, for
 * squared_error), then each position's part of the loss, unless the caller wants it in `losses`. */
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

/* Rows that are divided among teams of threads. A team gets a row, or a part of one, and its
 * threads take turns at the units: so a thread divides once, not once for each element. */
typedef struct ashlar_rows {
    size_t count;
    size_t units;       /* of a row: vectors if is_wide, else elements */
    bool is_wide;       /* every row, and every row's counterpart, is made of aligned vectors */
    unsigned team_bits; /* a team has 1 << team_bits threads */
    unsigned parts;     /* of a row, a thread block for each; 1 unless a team is a whole block */
} ashlar_rows;

/* The units of the rows that one thread gets: in row `row`, units first + k * team for k = 0, 1, ..
 * while k * team < reach. */
typedef struct ashlar_row_part {
    size_t row, first;
    unsigned team, reach;
} ashlar_row_part;

/* Set team_bits and parts from the other fields; returns the number of thread blocks. A team is
 * doubled until its threads have at most `each` units or it is a whole block; below TEAM_LEAST
 * threads also while a row has more units than it has threads, to read whole sectors of memory. */
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
    rows->parts = (unsigned)parts; /* fits: CUDA allows fewer than 2^31 blocks in x */
    return (rows->count / at_once + (rows->count % at_once != 0)) * parts;
}

/* The units of thread `thread` of block `block`. */
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
    ashlar_rows rows; /* the rows of `out`; their counterparts are rows of the table */
} ashlar_lookup_args;

typedef struct ashlar_copy_args {
    ashlar_columns_args columns; /* from_stride may be 0 */
    ashlar_rows rows;            /* the rows of `to`; their counterparts are rows of `from` */
} ashlar_copy_args;

/* The positions of each token as a linked list, in order. links[p] is 1 + the token's next position
 * after p, or 0; at its first position ASHLAR_OPS_FIRST is set, too. Padding has link 0. */
typedef struct ashlar_chain_args {
    ashlar_embedding_args embedding;
    uint32_t *newest; /* [V], all 0 at first: 1 + the last position of each token so far */
    uint32_t *links;  /* [T, B] */
    ashlar_rows rows; /* the rows of `dout`; their counterparts are rows of `dtable` */
} ashlar_chain_args;

#define ASHLAR_OPS_FIRST ((uint32_t)1 << 31)

#endif /* ASHLAR_OPS_CUDA_H */
