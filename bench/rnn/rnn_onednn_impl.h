/* rnn_onednn_impl.h - a network of oneDNN and its layers' memory, which rnn_onednn.c sets up and
 * rnn_onednn_pass.c runs (internal). */
#ifndef ASHLAR_RNN_ONEDNN_IMPL_H
#define ASHLAR_RNN_ONEDNN_IMPL_H

#include "bench/rnn/rnn_onednn.h"

#include "allocator/base/error.h"
#include "bench/rnn/rnn_onednn_version.h"

/* The memories of a layer. W_BACK and R_BACK are in the format that backward asks for, and those
 * whose names end in _USER in packed order. R always follows W, and C follows H. */
enum {
    SRC,
    DST,
    BIAS,
    H_FIRST,
    C_FIRST,
    W,
    R,
    W_USER,
    R_USER,
    FORWARD_COUNT, /* memories of inference; all others are for training */
    WORKSPACE = FORWARD_COUNT,
    W_BACK,
    R_BACK,
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

enum { FORWARD, BACKWARD, PASS_COUNT };

/* Reorders from one memory of a layer to another. */
enum { W_IN, R_IN, W_BACK_IN, R_BACK_IN, DIFF_W_OUT, DIFF_R_OUT, REORDER_COUNT };
/* The two memories of each reorder. */
extern const int ashlar__onednn_ends[REORDER_COUNT][2];

enum { KEPT_MAX = 2 * 6 + MEMORY_COUNT }; /* each pass and each memory is described */

typedef struct layer {
    size_t input;
    dnnl_memory_desc_t kept[KEPT_MAX]; /* [kept_count], descriptions */
    size_t kept_count;
    dnnl_primitive_desc_t descs[PASS_COUNT];
    dnnl_primitive_t passes[PASS_COUNT];
    dnnl_primitive_t reorders[REORDER_COUNT];
    dnnl_memory_t memory[MEMORY_COUNT];
} layer;

struct ashlar_onednn {
    ashlar_rnn_layout layout;
    size_t steps, batch;
    bool training;
    bool is_direct; /* tensors in packed order serve as USER memory unchanged */
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
    (void)dnnl_memory_get_data_handle(l->memory[which], &data); /* fails only for a NULL memory */
    return data;
}

#endif /* ASHLAR_RNN_ONEDNN_IMPL_H */
