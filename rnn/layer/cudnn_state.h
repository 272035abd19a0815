/*
 * cudnn_state.h - what an rnn keeps for cuDNN: handle, descriptors, dropout's states (internal).
 *
 * All functions but create and destroy require the lock, and the device's context to be current.
 */
#ifndef ASHLAR_CUDNN_STATE_H
#define ASHLAR_CUDNN_STATE_H

#include <pthread.h>

#include "rnn/layer/backend.h"
#include "rnn/layer/cudnn_table.h"

/* The bytes that cuDNN needs for one shape at full length. steps 0: no shape is known yet. */
typedef struct ashlar_cudnn_sizes {
    size_t steps, batch;
    bool training;
    size_t reserve, work;
} ashlar_cudnn_sizes;

typedef struct ashlar_cudnn_state {
    const ashlar_cudnn *cudnn; /* const */
    pthread_mutex_t lock;      /* guards all fields below: a handle serves one thread at a time */
    cudnnHandle_t handle;
    cudnnRNNDescriptor_t rnn;
    cudnnDropoutDescriptor_t dropout;
    cudnnRNNDataDescriptor_t x, y; /* set anew for each call */
    cudnnTensorDescriptor_t h, c;  /* set anew for each call */
    void *states;                  /* dropout's, owned, in device memory; NULL: no dropout */
    size_t states_bytes;
    bool is_seeded;            /* the first training forward has seeded dropout */
    size_t built_batch;        /* PERSIST_DYNAMIC: its code is for this batch size; 0: no code */
    ashlar_cudnn_sizes newest; /* kept, because most calls ask for the same shape as the last */
} ashlar_cudnn_state;

/* *out is written only on success. Errors: ASHLAR_EHOSTMEM, and those of cuDNN and the driver. */
ASHLAR_MUST_CHECK ashlar_status ashlar__cudnn_state_create(const ashlar_rnn *rnn,
                                                           ashlar_cudnn_state **out);
/* Waits for the device. NULL is allowed. */
void ashlar__cudnn_state_destroy(const ashlar_rnn *rnn, ashlar_cudnn_state *state);

/* Seed dropout: later masks are drawn from `seed`. */
ASHLAR_MUST_CHECK ashlar_status ashlar__cudnn_state_seed(const ashlar_rnn *rnn,
                                                         ashlar_cudnn_state *state, uint64_t seed);

/* Set the descriptors x, y, h and c for a batch. */
ASHLAR_MUST_CHECK ashlar_status ashlar__cudnn_state_describe(const ashlar_rnn *rnn,
                                                             const ashlar_cudnn_state *state,
                                                             size_t steps, size_t batch,
                                                             const int32_t *lengths);

cudnnDataType_t ashlar__cudnn_type(ashlar_dtype dtype);

/*
 * Compare every weight's place and shape with cuDNN's answer (cudnn_check.c).
 *
 * Errors: ASHLAR_ENOTSUP; the detail names the first weight that differs.
 */
ASHLAR_MUST_CHECK ashlar_status ashlar__cudnn_check_layout(const ashlar_rnn_layout *layout,
                                                           const ashlar_cudnn_state *state);

#endif /* ASHLAR_CUDNN_STATE_H */
