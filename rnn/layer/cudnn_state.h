/*
 * cudnn_state.h - what an rnn holds of cuDNN: handle, descriptors, dropout's states (internal).
 *
 * All functions but create and destroy want the lock held and the device's context current.
 */
#ifndef ASHLAR_CUDNN_STATE_H
#define ASHLAR_CUDNN_STATE_H

#include <pthread.h>

#include "rnn/layer/backend.h"
#include "rnn/layer/cudnn_table.h"

/* What cuDNN asked for at full length for one shape. steps is 0: nothing is known. */
typedef struct ashlar_cudnn_sizes {
    size_t steps, batch;
    bool training;
    size_t reserve, work;
} ashlar_cudnn_sizes;

typedef struct ashlar_cudnn_state {
    const ashlar_cudnn *cudnn; /* const */
    pthread_mutex_t lock;      /* of what follows: a handle serves one thread at a time */
    cudnnHandle_t handle;
    cudnnRNNDescriptor_t rnn;
    cudnnDropoutDescriptor_t dropout;
    cudnnRNNDataDescriptor_t x, y; /* of the call at hand */
    cudnnTensorDescriptor_t h, c;  /* the same */
    void *states;                  /* of dropout, in device memory; NULL: no dropout */
    size_t states_bytes;
    bool is_seeded;            /* by the first training forward */
    size_t built_batch;        /* PERSIST_DYNAMIC: the code is for this one; 0: none */
    ashlar_cudnn_sizes newest; /* a step asks for one shape again and again */
} ashlar_cudnn_state;

/* Errors: ASHLAR_EHOSTMEM, and those of cuDNN and of the driver. *out only on success. */
ASHLAR_MUST_CHECK ashlar_status ashlar__cudnn_state_create(const ashlar_rnn *rnn,
                                                           ashlar_cudnn_state **out);
/* Waits for the device. NULL is allowed. */
void ashlar__cudnn_state_destroy(const ashlar_rnn *rnn, ashlar_cudnn_state *state);

/* Draw the masks from here on from `seed`. */
ASHLAR_MUST_CHECK ashlar_status ashlar__cudnn_state_seed(const ashlar_rnn *rnn,
                                                         ashlar_cudnn_state *state, uint64_t seed);

/* Describe a batch in x, y, h and c. */
ASHLAR_MUST_CHECK ashlar_status ashlar__cudnn_state_describe(const ashlar_rnn *rnn,
                                                             const ashlar_cudnn_state *state,
                                                             size_t steps, size_t batch,
                                                             const int32_t *lengths);

cudnnDataType_t ashlar__cudnn_type(ashlar_dtype dtype);

/*
 * Compare every weight's place and shape with those that cuDNN answers with (cudnn_check.c).
 *
 * Errors: ASHLAR_ENOTSUP, naming the first that differs.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__cudnn_check_layout(const ashlar_rnn_layout *layout,
                                                           const ashlar_cudnn_state *state);

#endif /* ASHLAR_CUDNN_STATE_H */
