/* rnn_onednn_impl.h - shared by rnn_onednn.c, which sets up, and rnn_onednn_pass.c, which runs. */
#ifndef ASHLAR_RNN_ONEDNN_IMPL_H
#define ASHLAR_RNN_ONEDNN_IMPL_H

#include "bench/rnn/rnn_onednn.h"

#include <oneapi/dnnl/dnnl.h>

#include "allocator/base/error.h"

/* The memories of a layer. BACK: in the format that backward asks for. USER: in packed order. */
enum {
    SRC,
    DST,
    BIAS,
    WORKSPACE,
    H_FIRST,
    C_FIRST,
    W,
    R,
    W_BACK,
    R_BACK,
    W_USER,
    R_USER,
    DIFF_SRC,
    DIFF_DST,
    DIFF_H,
    DIFF_C,
    DIFF_BIAS,
    DIFF_W,
    DIFF_R,
    DIFF_W_USER,
    DIFF_R_USER,
    MEMORY_COUNT
};

/* The reorderings, from one memory of a layer to another ... */
enum { W_IN, R_IN, W_BACK_IN, R_BACK_IN, DIFF_W_OUT, DIFF_R_OUT, REORDER_COUNT };
/* ... and the two memories of each. */
extern const int ashlar__onednn_ends[REORDER_COUNT][2];

typedef struct layer {
    size_t input;
    dnnl_primitive_desc_t forward_desc, backward_desc;
    dnnl_primitive_t forward, backward;
    dnnl_primitive_t reorders[REORDER_COUNT];
    dnnl_memory_t memory[MEMORY_COUNT];
} layer;

struct ashlar_onednn {
    ashlar_rnn_layout layout;
    size_t steps, batch;
    bool training;
    bool is_direct; /* tensors in packed order serve as USER memory without a copy */
    size_t bias_count;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    layer layers[];
};

#define TRY(call)                                                                                 \
    do {                                                                                          \
        const dnnl_status_t try_status = (call);                                                  \
        if (try_status != dnnl_success) {                                                         \
            return ashlar__fail(ASHLAR_ENOTSUP, "onednn: %s: status %d", #call, (int)try_status); \
        }                                                                                         \
    } while (0)

static inline float *data_of(const layer *l, int which) {
    void *data = NULL;
    (void)dnnl_memory_get_data_handle(l->memory[which], &data); /* fails only without a memory */
    return data;
}

#endif /* ASHLAR_RNN_ONEDNN_IMPL_H */
