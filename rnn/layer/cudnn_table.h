/*
 * cudnn_table.h - the functions of cuDNN 9 that ashlar calls, as one table (internal).
 *
 * Types are those of cuDNN's headers; the functions are found at run time in libcudnn.so.9, or in
 * the file that the environment's ASHLAR_CUDNN names. Nothing links to cuDNN.
 */
#ifndef ASHLAR_CUDNN_TABLE_H
#define ASHLAR_CUDNN_TABLE_H

#include <cudnn.h>

#include <ashlar/status.h>

/* field, cuDNN's name */
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
 * The process's one table, filled at the first call.
 *
 * Ownership: the library's.  Threads: any.
 * Errors:    ASHLAR_ENOTSUP (no library, another major version); tried again by the next call.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__cudnn_open(const ashlar_cudnn **out);

/*
 * Turn a refusal into a status with a detail line that has cuDNN's own words: ASHLAR_ENOTSUP for
 * CUDNN_STATUS_NOT_SUPPORTED and its kin, ASHLAR_ENOMEM and ASHLAR_EHOSTMEM for memory, else
 * ASHLAR_EDRIVER. `result` is not CUDNN_STATUS_SUCCESS.
 */
ashlar_status ashlar__cudnn_error(const ashlar_cudnn *cudnn, const char *what,
                                  cudnnStatus_t result);

/* In a function that returns a status: ASHLAR_CUDNN_TRY(cudnn, create, cudnnCreate, (&handle)). */
#define ASHLAR_CUDNN_TRY(cudnn, field, symbol, args)               \
    do {                                                           \
        const cudnnStatus_t result_ = (cudnn)->field args;         \
        if (result_ != CUDNN_STATUS_SUCCESS) {                     \
            return ashlar__cudnn_error((cudnn), #symbol, result_); \
        }                                                          \
    } while (0)

#endif /* ASHLAR_CUDNN_TABLE_H */
