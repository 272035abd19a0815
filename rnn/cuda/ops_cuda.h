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
 *   cross_entropy_smooth the same with smoothing
 *   squared_error        a block for each position: doutputs, and its part of the loss
 *   element_loss         the same for the other kinds
 *   copy_columns         shares out the rows of to, EACH units to a thread. A linear layer's
 *                        forward begins with it: y = bias, read as rows with a stride of 0
 *   argmax               a block for each row
 *   loss_count           one block: 1 / the number of valid positions, or elements, or the sum of
 *                        their weights: what a loss's weight of 0 stands for
 *   map                  a unit to a thread
 *   scale_rows           shares out the rows, EACH elements to a thread
 *   row_products, softmax, softmax_back
 *                        a block for each row
 *   drop                 shares out the rows; a thread has the four elements of a block of Philox
 *   pool, pool_back      a thread for each of B * W columns, which goes through the steps
 *   swap                 shares out the rows of to, EACH units to a thread
 *
 * and for all types:
 *
 *   loss_sum             one block: loss += weight * the sum of the positions' parts
 *   embedding_link       one block: link the positions of each token, in their order
 *   clip_lengths         a thread for each length
 *
 * In a loss's work, an array of doubles, element 0 is loss_count's result. The parts follow, unless
 * the caller wants them in `losses`. */
#define ASHLAR_OPS_KERNEL_MAP(X)           \
    X(embedding_forward, lookup)           \
    X(embedding_backward, embedding)       \
    X(embedding_add, chain)                \
    X(bias_backward, linear)               \
    X(cross_entropy, cross_entropy)        \
    X(cross_entropy_smooth, cross_entropy) \
    X(squared_error, squared_error)        \
    X(element_loss, squared_error)         \
    X(copy_columns, copy)                  \
    X(argmax, argmax)                      \
    X(loss_count, loss_count)              \
    X(map, mapped)                         \
    X(scale_rows, scaled)                  \
    X(row_products, row_products)          \
    X(softmax, softmax)                    \
    X(softmax_back, softmax_back)          \
    X(drop, dropped)                       \
    X(pool, pool)                          \
    X(pool_back, pool)                     \
    X(swap, swapped)

/* The kernels for all types. */
#define ASHLAR_OPS_COMMON_MAP(X) \
    X(loss_sum, cross_entropy)   \
    X(embedding_link, chain)     \
    X(clip_lengths, clip_lengths)

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

/* What counts: positions whose target, if there are targets, is not negative, each as much as its
 * class weighs times as it weighs; with `is_mask` 1, if it weighs anything. */
typedef struct ashlar_loss_count_args {
    size_t steps, batch, classes;
    const int32_t *lengths, *targets;
    const void *class_weights, *position_weights;
    bool is_mask;
    double factor; /* multiplies the number: the elements of a position */
    void *work;
} ashlar_loss_count_args;

typedef struct ashlar_mapped_args {
    ashlar_map_args map;
    size_t units; /* as in ashlar_rows */
    bool is_wide;
} ashlar_mapped_args;

typedef struct ashlar_scaled_args {
    ashlar_scale_rows_args scale;
    ashlar_rows rows;
} ashlar_scaled_args;

typedef struct ashlar_dropped_args {
    ashlar_drop_args drop;
    ashlar_rows rows; /* whose units are blocks of Philox */
} ashlar_dropped_args;

typedef struct ashlar_swapped_args {
    ashlar_swap_args swap;
    ashlar_rows rows; /* of to; their counterparts are those of from */
} ashlar_swapped_args;

/* The positions of each token as a chain. A link is the next position plus 1, or 0, and has FIRST
 * in the first of its chain; that of a position without a token is 0. */
typedef struct ashlar_chain_args {
    ashlar_embedding_args embedding;
    uint32_t *newest; /* [V], all 0 at first: 1 + the last position of each token so far */
    uint32_t *links;  /* [T, B] */
    ashlar_rows rows; /* the rows of `dout`; their counterparts are rows of `dtable` */
} ashlar_chain_args;

#define ASHLAR_OPS_FIRST ((uint32_t)1 << 31)

#endif /* ASHLAR_OPS_CUDA_H */
