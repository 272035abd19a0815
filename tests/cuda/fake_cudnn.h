/*
 * fake_cudnn.h - what a test asks of the fake cuDNN, and tells it; see fake_cudnn.c.
 */
#ifndef ASHLAR_FAKE_CUDNN_H
#define ASHLAR_FAKE_CUDNN_H

#include <stdbool.h>

#include <ashlar/base.h>

/* How the fake's layout differs from the real one's. */
typedef enum fake_cudnn_change {
    FAKE_CUDNN_SAME,
    FAKE_CUDNN_GATES,   /* the first two gates of R of the last part change places */
    FAKE_CUDNN_BIASES,  /* the last part's biases have come before the matrices */
    FAKE_CUDNN_COLUMNS, /* W of the last part is stored by columns */
    FAKE_CUDNN_ABSENT,  /* the last part has no bR */
    FAKE_CUDNN_SIZE,    /* 4 bytes more */
    FAKE_CUDNN_CHANGE_COUNT
} fake_cudnn_change;

/* Which pass writes one wrong number, in F32. */
typedef enum fake_cudnn_plant {
    FAKE_CUDNN_RIGHT,
    FAKE_CUDNN_WRONG_Y,        /* the first of y */
    FAKE_CUDNN_WRONG_DX,       /* the first of dx */
    FAKE_CUDNN_WRONG_DWEIGHTS, /* the second of the gradients of weights */
} fake_cudnn_plant;

enum { FAKE_CUDNN_LOG_BYTES = 1 << 14, FAKE_CUDNN_STATES_BYTES = 4096 };

/* The one of the library: dlsym(library, "fake_cudnn"). */
typedef struct fake_cudnn_control {
    int live;        /* handles and descriptors that are not destroyed */
    long calls;      /* calls that have a status, but the destroying ones */
    long fail_at;    /* the n-th of them from now on, from 1; 0: none */
    int fail_status; /* and what it returns */
    fake_cudnn_change change;
    fake_cudnn_plant plant;
    bool refuses_small;             /* no sizes for PERSIST_STATIC_SMALL_H */
    int algorithm;                  /* of the last pass that ran */
    unsigned kernels;               /* bit n: a pass had 2^n .. 2^(n+1)-1 steps. The real one
                                     * loads kernels and takes memory when it first needs them */
    char log[FAKE_CUDNN_LOG_BYTES]; /* "call(arguments) ", for calls that describe or compute */
    char misuse[256];               /* the first thing that the real one would have answered with a
                                       fault, or wrong numbers; "" */
} fake_cudnn_control;

extern ASHLAR_API fake_cudnn_control fake_cudnn;

#endif /* ASHLAR_FAKE_CUDNN_H */
