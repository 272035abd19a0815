/*
 * rnn_onednn.c - networks by oneDNN 2.x; versions before 2.0 and from 3.0 on have other interfaces.
 *
 * Letters are those of rnn_layout.h. oneDNN's weights have dimensions L D I G O; packed order is
 * its "ldgoi" with L = D = 1. Its GRU with linear before reset is ours, except for the order z r n
 * and a fourth bias, that of R h in gate n; other cells have one bias, bW + bR.
 *
 * The first states are passed as zeros, and their gradients requested: without them, oneDNN 2.6.3
 * computes a wrong gradient of an LSTM's R.
 */
#include "bench/rnn/rnn_onednn_impl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/host.h"
#include "allocator/base/error.h"

const int ashlar__onednn_ends[][2] = {
    [W_IN] = {W_USER, W},
    [R_IN] = {R_USER, R},
    [W_BACK_IN] = {W_USER, W_BACK},
    [R_BACK_IN] = {R_USER, R_BACK},
    [DIFF_W_OUT] = {DIFF_W, DIFF_W_USER},
    [DIFF_R_OUT] = {DIFF_R, DIFF_R_USER},
};
ASHLAR_TABLE_IS_FULL(ashlar__onednn_ends, REORDER_COUNT);

bool ashlar__onednn_has(const ashlar_rnn_layout *layout) {
    const ashlar_rnn_config *c = &layout->config;
    return (c->cell == ASHLAR_RNN_LSTM || c->cell == ASHLAR_RNN_GRU) && c->dtype == ASHLAR_F32 &&
           c->bias == ASHLAR_RNN_BIAS_DOUBLE && c->projection == 0 && c->dropout == 0;
}

const char *ashlar__onednn_name(void) {
    static char name[32];
    const dnnl_version_t *version = dnnl_version();
    snprintf(name, sizeof name, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
    return name;
}

/* Built with OpenMP, oneDNN takes its number of threads from the OpenMP library that is loaded. */
void ashlar__onednn_set_threads(size_t count) {
    void (*set)(int);
    void *const found = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    memcpy(&set, &found, sizeof set);
    if (set != NULL) {
        set((int)count);
    }
}

/* ---- descriptions ---- */

static dnnl_memory_desc_t describe(int count, const dnnl_dim_t *dims, dnnl_format_tag_t tag) {
    dnnl_memory_desc_t md;
    /* Cannot fail: dimensions are positive, and the tags fit them. */
    (void)dnnl_memory_desc_init_by_tag(&md, count, dims, dnnl_f32, tag);
    return md;
}

static dnnl_memory_desc_t describe_rows(const ashlar_onednn *net, size_t width) {
    const dnnl_dims_t dims = {(dnnl_dim_t)net->steps, (dnnl_dim_t)net->batch, (dnnl_dim_t)width};
    return describe(3, dims, dnnl_tnc);
}

static dnnl_memory_desc_t describe_weights(const ashlar_onednn *net, size_t input,
                                           dnnl_format_tag_t tag) {
    const ashlar_rnn_config *c = &net->layout.config;
    const dnnl_dims_t dims = {1, (dnnl_dim_t)c->directions, (dnnl_dim_t)input,
                              (dnnl_dim_t)net->layout.gates, (dnnl_dim_t)c->hidden};
    return describe(5, dims, tag);
}

static dnnl_memory_desc_t describe_bias(const ashlar_onednn *net) {
    const ashlar_rnn_config *c = &net->layout.config;
    const dnnl_dims_t dims = {1, (dnnl_dim_t)c->directions, (dnnl_dim_t)net->bias_count,
                              (dnnl_dim_t)c->hidden};
    return describe(4, dims, dnnl_ldgo);
}

static dnnl_memory_desc_t describe_states(const ashlar_onednn *net) {
    const ashlar_rnn_config *c = &net->layout.config;
    const dnnl_dims_t dims = {1, (dnnl_dim_t)c->directions, (dnnl_dim_t)net->batch,
                              (dnnl_dim_t)c->hidden};
    return describe(4, dims, dnnl_ldnc);
}

/* ---- primitives ---- */

static dnnl_rnn_direction_t direction_of(const ashlar_onednn *net) {
    return net->layout.config.directions == 2 ? dnnl_bidirectional_concat
                                              : dnnl_unidirectional_left2right;
}

static ashlar_status make_forward(ashlar_onednn *net, layer *l) {
    const size_t hidden = net->layout.config.hidden;
    const dnnl_prop_kind_t kind = net->training ? dnnl_forward_training : dnnl_forward_inference;
    const dnnl_memory_desc_t src = describe_rows(net, l->input);
    const dnnl_memory_desc_t dst = describe_rows(net, net->layout.output);
    const dnnl_memory_desc_t w = describe_weights(net, l->input, dnnl_format_tag_any);
    const dnnl_memory_desc_t r = describe_weights(net, hidden, dnnl_format_tag_any);
    const dnnl_memory_desc_t bias = describe_bias(net), state = describe_states(net);
    dnnl_rnn_desc_t desc;
    if (net->layout.config.cell == ASHLAR_RNN_LSTM) {
        TRY(dnnl_lstm_forward_desc_init(&desc, kind, direction_of(net), &src, &state, &state, &w,
                                        &r, &bias, &dst, NULL, NULL, 0));
    } else {
        TRY(dnnl_lbr_gru_forward_desc_init(&desc, kind, direction_of(net), &src, &state, &w, &r,
                                           &bias, &dst, NULL, 0));
    }
    TRY(dnnl_primitive_desc_create(&l->forward_desc, &desc, NULL, net->engine, NULL));
    TRY(dnnl_primitive_create(&l->forward, l->forward_desc));
    return ASHLAR_OK;
}

static ashlar_status make_backward(ashlar_onednn *net, layer *l) {
    const size_t hidden = net->layout.config.hidden;
    const dnnl_memory_desc_t src = describe_rows(net, l->input);
    const dnnl_memory_desc_t dst = describe_rows(net, net->layout.output);
    const dnnl_memory_desc_t w = describe_weights(net, l->input, dnnl_format_tag_any);
    const dnnl_memory_desc_t r = describe_weights(net, hidden, dnnl_format_tag_any);
    const dnnl_memory_desc_t bias = describe_bias(net), state = describe_states(net);
    dnnl_rnn_desc_t desc;
    if (net->layout.config.cell == ASHLAR_RNN_LSTM) {
        TRY(dnnl_lstm_backward_desc_init(&desc, dnnl_backward, direction_of(net), &src, &state,
                                         &state, &w, &r, &bias, &dst, NULL, NULL, &src, &state,
                                         &state, &w, &r, &bias, &dst, NULL, NULL, 0));
    } else {
        TRY(dnnl_lbr_gru_backward_desc_init(&desc, dnnl_backward, direction_of(net), &src, &state,
                                            &w, &r, &bias, &dst, NULL, &src, &state, &w, &r, &bias,
                                            &dst, NULL, 0));
    }
    TRY(dnnl_primitive_desc_create(&l->backward_desc, &desc, NULL, net->engine, l->forward_desc));
    TRY(dnnl_primitive_create(&l->backward, l->backward_desc));
    return ASHLAR_OK;
}

/* ---- memory ---- */

static ashlar_status make_memory(ashlar_onednn *net, layer *l, int which,
                                 const dnnl_memory_desc_t *md, bool is_owned) {
    TRY(dnnl_memory_create(&l->memory[which], md, net->engine,
                           is_owned ? DNNL_MEMORY_ALLOCATE : DNNL_MEMORY_NONE));
    return ASHLAR_OK;
}

static const dnnl_memory_desc_t *asked(const_dnnl_primitive_desc_t desc, dnnl_query_t what,
                                       int index) {
    return dnnl_primitive_desc_query_md(desc, what, index);
}

/* The caller of each pass says where the first layer's input and the last layer's output lie. */
static ashlar_status make_rows(ashlar_onednn *net, layer *l, bool is_last, int src, int dst) {
    const dnnl_memory_desc_t input = describe_rows(net, l->input);
    const dnnl_memory_desc_t output = describe_rows(net, net->layout.output);
    ASHLAR_TRY(make_memory(net, l, src, &input, false));
    return make_memory(net, l, dst, &output, !is_last);
}

static ashlar_status make_weights(ashlar_onednn *net, layer *l, int user, bool is_owned) {
    const dnnl_memory_desc_t w = describe_weights(net, l->input, dnnl_ldgoi);
    const dnnl_memory_desc_t r = describe_weights(net, net->layout.config.hidden, dnnl_ldgoi);
    ASHLAR_TRY(make_memory(net, l, user, &w, is_owned));
    return make_memory(net, l, user + 1, &r, is_owned);
}

/* Two memories in the primitive's own format: for W and for R. */
static ashlar_status make_formats(ashlar_onednn *net, layer *l, int which,
                                  const_dnnl_primitive_desc_t desc, dnnl_query_t what) {
    ASHLAR_TRY(make_memory(net, l, which, asked(desc, what, 0), true));
    return make_memory(net, l, which + 1, asked(desc, what, 1), true);
}

/* h and c before the first step, which are 0; or their gradients, which nobody reads. */
static ashlar_status make_states(ashlar_onednn *net, layer *l, int which) {
    const dnnl_memory_desc_t state = describe_states(net);
    const size_t bytes = dnnl_memory_desc_get_size(&state);
    ashlar_status status = ASHLAR_OK;
    for (int i = which; i < which + 2 && status == ASHLAR_OK; i++) {
        status = make_memory(net, l, i, &state, true);
        if (status == ASHLAR_OK) {
            memset(data_of(l, i), 0, bytes);
        }
    }
    return status;
}

static ashlar_status make_forward_memory(ashlar_onednn *net, layer *l, bool is_last) {
    const dnnl_memory_desc_t bias = describe_bias(net);
    ASHLAR_TRY(make_rows(net, l, is_last, SRC, DST));
    ASHLAR_TRY(make_states(net, l, H_FIRST));
    ASHLAR_TRY(make_weights(net, l, W_USER, !net->is_direct));
    ASHLAR_TRY(make_formats(net, l, W, l->forward_desc, dnnl_query_weights_md));
    ASHLAR_TRY(make_memory(net, l, BIAS, &bias, true));
    if (net->training) {
        ASHLAR_TRY(make_memory(net, l, WORKSPACE,
                               asked(l->forward_desc, dnnl_query_workspace_md, 0), true));
    }
    return ASHLAR_OK;
}

static ashlar_status make_backward_memory(ashlar_onednn *net, layer *l, bool is_last) {
    const dnnl_memory_desc_t bias = describe_bias(net);
    ASHLAR_TRY(make_rows(net, l, is_last, DIFF_SRC, DIFF_DST));
    ASHLAR_TRY(make_states(net, l, DIFF_H));
    ASHLAR_TRY(make_weights(net, l, DIFF_W_USER, true));
    ASHLAR_TRY(make_formats(net, l, W_BACK, l->backward_desc, dnnl_query_weights_md));
    ASHLAR_TRY(make_formats(net, l, DIFF_W, l->backward_desc, dnnl_query_diff_weights_md));
    return make_memory(net, l, DIFF_BIAS, &bias, true);
}

static ashlar_status make_reorders(ashlar_onednn *net, layer *l) {
    for (int i = 0; i < (net->training ? REORDER_COUNT : W_BACK_IN); i++) {
        const dnnl_memory_desc_t *from, *to;
        dnnl_primitive_desc_t desc;
        TRY(dnnl_memory_get_memory_desc(l->memory[ashlar__onednn_ends[i][0]], &from));
        TRY(dnnl_memory_get_memory_desc(l->memory[ashlar__onednn_ends[i][1]], &to));
        TRY(dnnl_reorder_primitive_desc_create(&desc, from, net->engine, to, net->engine, NULL));
        const dnnl_status_t status = dnnl_primitive_create(&l->reorders[i], desc);
        (void)dnnl_primitive_desc_destroy(desc);
        TRY(status);
    }
    return ASHLAR_OK;
}

static ashlar_status make_layer(ashlar_onednn *net, size_t index) {
    layer *const l = &net->layers[index];
    const bool is_last = index + 1 == net->layout.config.layers;
    l->input = index == 0 ? net->layout.config.input : net->layout.output;
    ASHLAR_TRY(make_forward(net, l));
    ASHLAR_TRY(make_forward_memory(net, l, is_last));
    if (net->training) {
        ASHLAR_TRY(make_backward(net, l));
    }
    if (net->training) {
        ASHLAR_TRY(make_backward_memory(net, l, is_last));
    }
    return make_reorders(net, l);
}

/* ---- life ---- */

static ashlar_status make(ashlar_onednn *net) {
    TRY(dnnl_engine_create(&net->engine, dnnl_cpu, 0));
    TRY(dnnl_stream_create(&net->stream, net->engine, dnnl_stream_default_flags));
    ashlar_status status = ASHLAR_OK;
    for (size_t i = 0; i < net->layout.config.layers && status == ASHLAR_OK; i++) {
        status = make_layer(net, i);
    }
    return status;
}

ashlar_status ashlar__onednn_create(const ashlar_rnn_layout *layout, size_t steps, size_t batch,
                                    bool training, ashlar_onednn **out) {
    const size_t layers = layout->config.layers;
    ashlar_onednn *net = ashlar__host_calloc(1, sizeof *net + layers * sizeof net->layers[0]);
    if (net == NULL) {
        return ashlar__fail(ASHLAR_EHOSTMEM, "onednn: no host memory");
    }
    const bool is_gru = layout->config.cell == ASHLAR_RNN_GRU;
    net->layout = *layout;
    net->steps = steps;
    net->batch = batch;
    net->training = training;
    net->is_direct = layout->config.directions == 1 && !is_gru;
    net->bias_count = is_gru ? 4 : layout->gates;
    const ashlar_status status = make(net);
    if (status != ASHLAR_OK) {
        ashlar__onednn_destroy(net);
        return status;
    }
    *out = net;
    return ASHLAR_OK;
}

static void destroy_layer(layer *l) {
    for (int i = 0; i < REORDER_COUNT; i++) {
        if (l->reorders[i] != NULL) {
            (void)dnnl_primitive_destroy(l->reorders[i]);
        }
    }
    for (int i = 0; i < MEMORY_COUNT; i++) {
        if (l->memory[i] != NULL) {
            (void)dnnl_memory_destroy(l->memory[i]);
        }
    }
    if (l->backward != NULL) {
        (void)dnnl_primitive_destroy(l->backward);
    }
    if (l->backward_desc != NULL) {
        (void)dnnl_primitive_desc_destroy(l->backward_desc);
    }
    if (l->forward != NULL) {
        (void)dnnl_primitive_destroy(l->forward);
    }
    if (l->forward_desc != NULL) {
        (void)dnnl_primitive_desc_destroy(l->forward_desc);
    }
}

void ashlar__onednn_destroy(ashlar_onednn *net) {
    if (net == NULL) {
        return;
    }
    for (size_t i = 0; i < net->layout.config.layers; i++) {
        destroy_layer(&net->layers[i]);
    }
    if (net->stream != NULL) {
        (void)dnnl_stream_destroy(net->stream);
    }
    if (net->engine != NULL) {
        (void)dnnl_engine_destroy(net->engine);
    }
    ashlar__host_free(net);
}
