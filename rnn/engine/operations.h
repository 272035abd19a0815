/* operations.h - what the files that declare the built-in operations share (internal). */
#ifndef ASHLAR_ENGINE_OPERATIONS_H
#define ASHLAR_ENGINE_OPERATIONS_H

#include <string.h>

#include "rnn/engine/engine.h"

/* Add an operation of one output, or none if it is a loss; NULL after a failure, and for a loss.
 * layer: as of ashlar__model_add(). */
ashlar_tensor *ashlar__model_one(ashlar_model *model, const ashlar_operation *operation,
                                 const char *layer, ashlar_tensor *const *inputs,
                                 size_t input_count, ashlar_axis axis, size_t width,
                                 const size_t *weights, size_t weight_count);

#endif /* ASHLAR_ENGINE_OPERATIONS_H */
