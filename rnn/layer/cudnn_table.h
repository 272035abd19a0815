/*
 * cudnn_table.h - the functions of cuDNN 9 that ashlar calls, as one table (internal).
 *
 * Types come from cuDNN's headers. The functions are found at run time in libcudnn.so.9, or in the
 * file that the environment variable ASHLAR_CUDNN names; nothing links to cuDNN.
 */
#ifndef ASHLAR_CUDNN_TABLE_H
#define ASHLAR_CUDNN_TABLE_H

#include <cudnn.h>

#include <ashlar/status.h>

/* X(field, symbol) */
#define ASHLAR_CUDNN_MAP(X)                           \
    X(get_version, cudnnGetVersion)                   \
    X(get_error_string, cudnnGetErrorString)          \
    X(get_last_error_string, cudnnGetLastErrorString) \
    X(create, cudnnCreate)                            \
    X(destroy, cudnnDestroy)                          \
    X(set_stream, cudnnSetStream)                     \
    X(create_tensor, cudnnCreateTensorDescriptor)     \
    X(destroy_tensor, cudnnDestroyTensorDescriptor)   \
    X(set_tensor, cudnnSetTensorNdDescriptor)         \
    X(get_tensor, cudnnGetTensorNdDescriptor)         \
    X(create_dropout, cudnnCreateDropoutDescriptor)   \
    X(destroy_dropout, cudnnDestroyDropoutDescriptor) \
    X(dropout_states_size, cudnnDropoutGetStatesSize) \
    X(set_dropout, cudnnSetDropoutDescriptor)         \
    X(create_rnn, cudnnCreateRNNDescriptor)           \
    X(destroy_rnn, cudnnDestroyRNNDescriptor)         \
    X(set_rnn, cudnnSetRNNDescriptor_v8)              \
    X(build_dynamic, cudnnBuildRNNDynamic)            \
    X(weight_space_size, cudnnGetRNNWeightSpaceSize)  \
    X(weight_params, cudnnGetRNNWeightParams)         \
    X(create_data, cudnnCreateRNNDataDescriptor)      \
    X(destroy_data, cudnnDestroyRNNDataDescriptor)    \
    X(set_data, cudnnSetRNNDataDescriptor)            \
    X(temp_space_sizes, cudnnGetRNNTempSpaceSizes)    \
    X(forward, cudnnRNNForward)                       \
    X(backward_data, cudnnRNNBackwardData_v8)         \
    X(backward_weights, cudnnRNNBackwardWeights_v8)

typedef struct ashlar_cudnn {
#define X(field, symbol) __typeof__(&symbol) field;
    ASHLAR_CUDNN_MAP(X)
#undef X
} ashlar_cudnn;

/*
 * The table, one for the whole process; the first call fills it.
 *
 * Ownership: the table is static.  Threads: any.
 * Errors:    ASHLAR_ENOTSUP (no library, another major version); the next call tries again.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__cudnn_open(const ashlar_cudnn **out);

/* Turn an error of cuDNN into a status with a detail line that has cuDNN's own text: ASHLAR_ENOTSUP
 * for the statuses of the kind CUDNN_STATUS_NOT_SUPPORTED, ASHLAR_ENOMEM or ASHLAR_EHOSTMEM for
 * lack of memory, else ASHLAR_EDRIVER. `result` must not be CUDNN_STATUS_SUCCESS. */
ashlar_status ashlar__cudnn_error(const ashlar_cudnn *cudnn, const char *what,
                                  cudnnStatus_t result);

/* Call a function of the table; on an error, return its status from the calling function.
 * Example: ASHLAR_CUDNN_TRY(cudnn, create, cudnnCreate, (&handle)); */
#define ASHLAR_CUDNN_TRY(cudnn, field, symbol, args)               \
    do {                                                           \
        const cudnnStatus_t result_ = (cudnn)->field args;         \
        if (result_ != CUDNN_STATUS_SUCCESS) {                     \
            return ashlar__cudnn_error((cudnn), #symbol, result_); \
        }                                                          \
    } while (0)

#endif /* ASHLAR_CUDNN_TABLE_H */
