/* cudnn_state.h - an rnn's state for cuDNN: handle, descriptors, dropout's states (internal). The
 * functions ashlar__cudnn_state_*, except _create and _destroy, require the lock to be held and the
 * device's context to be current. */
#ifndef ASHLAR_CUDNN_STATE_H
#define ASHLAR_CUDNN_STATE_H

#include <pthread.h>

#include <cudnn.h>

#include "rnn/layer/backend.h"

/* The functions of cuDNN 9 that ashlar calls: X(field, symbol). Types come from cuDNN's headers.
 * The functions are found at run time in libcudnn.so.9, or in the file that the environment
 * variable ASHLAR_CUDNN names; nothing links to cuDNN. */
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

/* The one table of the process; the first call fills it. Errors: ASHLAR_ENOTSUP (no library,
 * another major version). */
ASHLAR_MUST_CHECK ashlar_status ashlar__cudnn_open(const ashlar_cudnn **out);

/* Turn an error of cuDNN into ASHLAR_ENOTSUP, ASHLAR_ENOMEM, ASHLAR_EHOSTMEM or else
 * ASHLAR_EDRIVER, with cuDNN's own text. */
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

/* The properties of a GPU on which the choice of an algorithm depends. */
typedef struct ashlar_cudnn_gpu {
    int major, minor; /* its compute capability */
    int multiprocessors;
} ashlar_cudnn_gpu;

/* The bytes that cuDNN needs for one shape, whatever the lengths. steps 0: not asked for yet. */
typedef struct ashlar_cudnn_sizes {
    size_t steps, batch;
    bool training;
    ashlar_rnn_algorithm full; /* the algorithm for sequences of full length; with ASHLAR_RNN_AUTO
                                * shorter ones take the standard one, otherwise this one, too */
    size_t reserve, work;
} ashlar_cudnn_sizes;

typedef struct ashlar_cudnn_state {
    const ashlar_cudnn *cudnn; /* set once */
    pthread_mutex_t lock;      /* guards all fields below: a handle serves one thread at a time */
    cudnnHandle_t handle;
    cudnnRNNDescriptor_t rnns[ASHLAR_RNN_AUTO]; /* by algorithm; NULL: not made yet */
    cudnnDropoutDescriptor_t dropout;
    cudnnRNNDataDescriptor_t x, y; /* ashlar__cudnn_state_describe() sets them for each batch */
    cudnnTensorDescriptor_t h, c;  /* likewise */
    void *states;                  /* dropout's, owned, in device memory; NULL: no dropout */
    size_t states_bytes;
    bool is_seeded;            /* the first training forward has seeded dropout */
    ashlar_cudnn_gpu gpu;      /* set once, and only for ASHLAR_RNN_AUTO */
    size_t built_batch;        /* PERSIST_DYNAMIC: batch size that its code is compiled for, or 0 */
    ashlar_cudnn_sizes newest; /* cuDNN's last answer: most calls ask for the same shape again */
} ashlar_cudnn_state;

/* *out is written only on success. Errors: ASHLAR_EHOSTMEM, and those of cuDNN and the driver. */
ASHLAR_MUST_CHECK ashlar_status ashlar__cudnn_state_create(const ashlar_rnn *rnn,
                                                           ashlar_cudnn_state **out);
/* Waits for the device. NULL is allowed. */
void ashlar__cudnn_state_destroy(const ashlar_rnn *rnn, ashlar_cudnn_state *state);

/* Seed dropout: later masks are drawn from `seed`. */
ASHLAR_MUST_CHECK ashlar_status ashlar__cudnn_state_seed(const ashlar_rnn *rnn,
                                                         ashlar_cudnn_state *state, uint64_t seed);

/* The rnn's descriptor for one algorithm. Errors: those of cuDNN. */
ASHLAR_MUST_CHECK ashlar_status ashlar__cudnn_state_stack(const ashlar_rnn *rnn,
                                                          ashlar_cudnn_state *state,
                                                          ashlar_rnn_algorithm algorithm,
                                                          cudnnRNNDescriptor_t *out);

/* Set the descriptors x, y, h and c for a batch. lengths NULL: all are `steps`. */
ASHLAR_MUST_CHECK ashlar_status ashlar__cudnn_state_describe(const ashlar_rnn *rnn,
                                                             const ashlar_cudnn_state *state,
                                                             size_t steps, size_t batch,
                                                             const int32_t *lengths);

/* The algorithm for sequences of full length: that of `config` or, for AUTO, the one that the rule
 * in backend_cudnn.c picks. The rule follows PyTorch's get_algo() in
 * aten/src/ATen/native/cudnn/RNN.cpp. */
ashlar_rnn_algorithm ashlar__cudnn_choose(const ashlar_rnn_config *config,
                                          const ashlar_cudnn_gpu *gpu, size_t steps, size_t batch,
                                          bool training);

/* Errors: ASHLAR_EDRIVER. */
ASHLAR_MUST_CHECK ashlar_status ashlar__cudnn_gpu_read(const ashlar_rnn *rnn,
                                                       ashlar_cudnn_gpu *out);

/* Compare every weight's place and shape with cuDNN's. Errors: ASHLAR_ENOTSUP; the detail names the
 * first weight that differs. */
ASHLAR_MUST_CHECK ashlar_status ashlar__cudnn_check_layout(const ashlar_rnn_layout *layout,
                                                           const ashlar_cudnn_state *state,
                                                           cudnnRNNDescriptor_t rnn);

#endif /* ASHLAR_CUDNN_STATE_H */
