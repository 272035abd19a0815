/* ops_cpu.h - the operations of ops.h on plain memory (internal). The elements behind the
 * arguments' void pointers are float for _f32 and double for _f64. No function here allocates or
 * fails. Threads: any, on distinct outputs; the work is shared by the workers (workers.h). The same
 * arguments give the same bits, with any number of threads (see blas.h): sums run in the order of
 * the rows. */
#ifndef ASHLAR_OPS_CPU_H
#define ASHLAR_OPS_CPU_H

#include "rnn/layer/ops.h"

#define ASHLAR_OPS_DECLARE_CPU(op, kind)                       \
    void ashlar__##op##_f32(const ashlar_##kind##_args *args); \
    void ashlar__##op##_f64(const ashlar_##kind##_args *args);
ASHLAR_OPS_MAP(ASHLAR_OPS_DECLARE_CPU)

typedef struct ashlar_softmax_args {
    size_t rows;        /* N */
    size_t classes;     /* V, 1.. */
    double temperature; /* > 0: below 1 sharpens, above 1 flattens */
    const void *logits; /* [N, V] */
    void *probs;        /* [N, V], may be logits */
} ashlar_softmax_args;

/* probs = softmax(logits / temperature), each row sums to 1. */
void ashlar__softmax_f32(const ashlar_softmax_args *args);
void ashlar__softmax_f64(const ashlar_softmax_args *args);

#endif /* ASHLAR_OPS_CPU_H */
