/*
 * fake_cublas.h - what a test asks of the fake cuBLAS, and tells it; see fake_cublas.c.
 */
#ifndef ASHLAR_FAKE_CUBLAS_H
#define ASHLAR_FAKE_CUBLAS_H

#include <ashlar/base.h>

/* The one of the library: dlsym(library, "fake_cublas"). */
typedef struct fake_cublas_control {
    int live;         /* handles that are not destroyed */
    long calls;       /* calls that have a status, but the destroying ones */
    long fail_at;     /* the n-th of them from now on, from 1; 0: none */
    int fail_status;  /* and what it returns */
    int compute_type; /* of the last product */
    long unaided;     /* products for which the real one would have taken memory of its own */
    void *workspace;  /* of the last product; NULL: none was set */
    size_t workspace_bytes;
} fake_cublas_control;

extern ASHLAR_API fake_cublas_control fake_cublas;

#endif /* ASHLAR_FAKE_CUBLAS_H */
