/*
 * fake_cudnn_impl.h - what the handles and descriptors of the fake cuDNN are.
 */
#ifndef ASHLAR_FAKE_CUDNN_IMPL_H
#define ASHLAR_FAKE_CUDNN_IMPL_H

#include <stdint.h>

#pragma GCC visibility push(default) /* its functions are this library's interface */
#include <cudnn.h>
#pragma GCC visibility pop

#include "tests/cuda/fake_cudnn.h"
#include "tests/cuda/fake_driver.h"

enum { MAX_DIMS = 3 };

struct cudnnContext {
    cu_stream stream;
};

struct cudnnTensorStruct {
    cudnnDataType_t type;
    int dims, shape[MAX_DIMS], strides[MAX_DIMS];
};

struct cudnnDropoutStruct {
    float part;
    void *states;
    size_t bytes;
};

struct cudnnRNNStruct {
    bool is_set;
    cudnnRNNAlgo_t algorithm;
    cudnnRNNMode_t cell;
    cudnnRNNBiasMode_t bias;
    cudnnDirectionMode_t direction;
    cudnnDataType_t type;
    int32_t input, hidden, projection, layers;
    struct cudnnDropoutStruct dropout; /* as it was when the descriptor was set */
    int built_batch;
};

struct cudnnRNNDataStruct {
    bool is_set, has_padding_fill;
    cudnnDataType_t type;
    int steps, batch, width;
    int *lengths;
};

/* Count a call; false: it is the one that is to fail, with fake_cudnn.fail_status. */
bool fake_admit(void);
void fake_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Keep the first misuse, and return CUDNN_STATUS_BAD_PARAM. */
cudnnStatus_t fake_misuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

size_t fake_type_bytes(cudnnDataType_t type);
size_t fake_weight_bytes(const struct cudnnRNNStruct *rnn);

/* At the beginning of every function with a status. */
#define FAKE_ENTER()                                      \
    do {                                                  \
        if (!fake_admit()) {                              \
            return (cudnnStatus_t)fake_cudnn.fail_status; \
        }                                                 \
    } while (0)

#endif /* ASHLAR_FAKE_CUDNN_IMPL_H */
