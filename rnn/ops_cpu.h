/*
 * ops_cpu.h - embedding, linear layer, softmax and loss on plain memory (internal).
 *
 * Batches are padded and time-major, as in rnn_cpu.h: [T, B, ...], lengths[B], each 1..T. Where
 * lengths are given, positions past them are neither read nor counted. The elements behind the
 * void pointers are float for _f32 and double for _f64.
 *
 * Outputs are overwritten unless a field says ADDED TO, and overlap no input unless it says so.
 * No function here allocates or fails. Threads: any, on distinct outputs. The same arguments give
 * the same bits (see blas.h): sums run in the order of the rows.
 */
#ifndef ASHLAR_OPS_CPU_H
#define ASHLAR_OPS_CPU_H

#include <stddef.h>
#include <stdint.h>

typedef struct ashlar_embedding_args {
    size_t steps;           /* T */
    size_t batch;           /* B */
    const int32_t *lengths; /* [B] */
    size_t classes;         /* V */
    size_t width;           /* E */
    const int32_t *tokens;  /* [T, B], each 0..V-1 up to its length (asserted) */
    const void *table;      /* [V, E], forward */
    void *out;              /* [T, B, E], forward; 0 past the lengths */
    const void *dout;       /* [T, B, E], backward */
    void *dtable;           /* [V, E], backward, ADDED TO */
} ashlar_embedding_args;

/* out = the table's row of each token. */
void ashlar_embedding_forward_f32(const ashlar_embedding_args *args);
void ashlar_embedding_forward_f64(const ashlar_embedding_args *args);

/* dtable += dout, row by row in the order of the tokens. */
void ashlar_embedding_backward_f32(const ashlar_embedding_args *args);
void ashlar_embedding_backward_f64(const ashlar_embedding_args *args);

/* Every row is used: padding must hold numbers. */
typedef struct ashlar_linear_args {
    size_t rows;        /* N */
    size_t in;          /* I */
    size_t out;         /* O */
    const void *x;      /* [N, I] */
    const void *weight; /* [O, I] */
    const void *bias;   /* [O], forward; NULL = none */
    void *y;            /* [N, O], forward */
    const void *dy;     /* [N, O], backward */
    void *dx;           /* [N, I], backward; NULL = not wanted */
    void *dweight;      /* [O, I], backward, ADDED TO; NULL = not wanted */
    void *dbias;        /* [O], backward, ADDED TO; NULL = not wanted */
} ashlar_linear_args;

/* y = x weight^T + bias. */
void ashlar_linear_forward_f32(const ashlar_linear_args *args);
void ashlar_linear_forward_f64(const ashlar_linear_args *args);

/* dx = dy weight, dweight += dy^T x, dbias += the sum of dy's rows. */
void ashlar_linear_backward_f32(const ashlar_linear_args *args);
void ashlar_linear_backward_f64(const ashlar_linear_args *args);

typedef struct ashlar_loss_args {
    size_t steps;           /* T */
    size_t batch;           /* B */
    const int32_t *lengths; /* [B] */
    size_t classes;         /* V, 1.. */
    const void *logits;     /* [T, B, V] */
    const int32_t *targets; /* [T, B], each 0..V-1 up to its length (asserted) */
    void *dlogits;          /* [T, B, V], may be logits; 0 past the lengths; NULL = not wanted */
    const double *scale;    /* what dlogits is multiplied by; NULL stands for 1 */
} ashlar_loss_args;

/*
 * The mean over all valid positions of -log softmax(logits)[target], in nats; dlogits is the
 * gradient of that mean times the scale.
 */
double ashlar_loss_f32(const ashlar_loss_args *args);
double ashlar_loss_f64(const ashlar_loss_args *args);

typedef struct ashlar_softmax_args {
    size_t rows;        /* N */
    size_t classes;     /* V, 1.. */
    double temperature; /* > 0: below 1 sharpens, above 1 flattens */
    const void *logits; /* [N, V] */
    void *probs;        /* [N, V], may be logits */
} ashlar_softmax_args;

/* probs = softmax(logits / temperature), each row sums to 1. */
void ashlar_softmax_f32(const ashlar_softmax_args *args);
void ashlar_softmax_f64(const ashlar_softmax_args *args);

#endif /* ASHLAR_OPS_CPU_H */
