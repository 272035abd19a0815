/* rnn_onednn_none.c - the functions of rnn_onednn.h for builds without oneDNN: all refuse. */
#include "bench/rnn/rnn_onednn.h"

#include "allocator/base/error.h"

bool ashlar__onednn_has(const ashlar_rnn_layout *layout) {
    (void)layout;
    return false;
}

const char *ashlar__onednn_name(void) {
    return NULL;
}

void ashlar__onednn_set_threads(size_t count) {
    (void)count;
}

ashlar_status ashlar__onednn_create(const ashlar_rnn_layout *layout, size_t steps, size_t batch,
                                    bool training, ashlar_onednn **out) {
    (void)layout, (void)steps, (void)batch, (void)training, (void)out;
    return ashlar__fail(ASHLAR_ENOTSUP, "onednn: not in this build");
}

void ashlar__onednn_destroy(ashlar_onednn *net) {
    (void)net;
}

ashlar_status ashlar__onednn_prepare(ashlar_onednn *net, const float *weights) {
    (void)net, (void)weights;
    return ASHLAR_ENOTSUP;
}

ashlar_status ashlar__onednn_forward(ashlar_onednn *net, const float *x, const float *weights,
                                     float *y) {
    (void)net, (void)x, (void)weights, (void)y;
    return ashlar__fail(ASHLAR_ENOTSUP, "onednn: not in this build");
}

ashlar_status ashlar__onednn_backward(ashlar_onednn *net, const float *dy, float *dx,
                                      float *dweights) {
    (void)net, (void)dy, (void)dx, (void)dweights;
    return ashlar__fail(ASHLAR_ENOTSUP, "onednn: not in this build");
}
