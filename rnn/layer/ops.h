/* ops.h - the list of a model's operations, whose contracts are in <ashlar/model.h> (internal; C
 * and CUDA C). */
#ifndef ASHLAR_OPS_H
#define ASHLAR_OPS_H

#include <ashlar/model.h>

/* The operations: name, arguments. A program queues one by ashlar_NAME(ops, args, stream). */
#define ASHLAR_OPS_MAP(X)            \
    X(embedding_forward, embedding)  \
    X(embedding_backward, embedding) \
    X(linear_forward, linear)        \
    X(linear_backward, linear)       \
    X(cross_entropy, cross_entropy)  \
    X(squared_error, squared_error)  \
    X(copy_columns, columns)         \
    X(argmax, argmax)

#endif /* ASHLAR_OPS_H */
