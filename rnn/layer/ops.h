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

/* Take what the operations can use of device memory, for calls ordered with `stream`, and give it
 * to them. *work is the caller's, to be freed after `ops`; unchanged where they need none. Errors:
 * those of ashlar_alloc(). */
ASHLAR_BEGIN_DECLS
ASHLAR_MUST_CHECK ashlar_status ashlar__ops_take_work(ashlar_ops *ops, ashlar_allocator *allocator,
                                                      ashlar_stream stream, void **work);
ASHLAR_END_DECLS

#endif /* ASHLAR_OPS_H */
