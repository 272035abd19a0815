/* rnn_onednn.c - networks by oneDNN, from 2.5 on (rnn_onednn_version.h).
 *
 * Letters as in rnn_layout.h. oneDNN's dimensions of weights are L D I G O; packed order is its
 * "ldgoi" with L = D = 1. Its linear-before-reset GRU is ours, except that its gates are in the
 * order z r n, and that gate n has a second bias, for R h. Every other bias of oneDNN is bW + bR.
 *
 * The first states are passed as zeros, and their gradients are asked for, because without them the
 * gradient of an LSTM's R is wrong in 2.6.3. */
#include "bench/rnn/rnn_onednn_impl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "allocator/base/check_level.h"
#include "allocator/base/host.h"

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

/* If oneDNN was built with OpenMP, it takes its threads from the OpenMP library that is loaded. */
void ashlar__onednn_set_threads(size_t count) {
    void (*set)(int);
    void *const found = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    memcpy(&set, &found, sizeof set);
    if (set != NULL) {
        set((int)count);
    }
}

static onednn_memory describe(layer *l, int count, const dnnl_dim_t *dims, dnnl_format_tag_t tag) {
    ASHLAR_ASSERT(l->kept_count < KEPT_MAX);
    return onednn_describe(&l->kept[l->kept_count++], count, dims, tag);
}

static onednn_memory describe_rows(const ashlar_onednn *net, layer *l, size_t width) {
    const dnnl_dims_t dims = {(dnnl_dim_t)net->steps, (dnnl_dim_t)net->batch, (dnnl_dim_t)width};
    return describe(l, 3, dims, dnnl_tnc);
}

static onednn_memory describe_weights(const ashlar_onednn *net, layer *l, size_t input,
                                      dnnl_format_tag_t tag) {
    const ashlar_rnn_config *c = &net->layout.config;
    const dnnl_dims_t dims = {1, (dnnl_dim_t)c->directions, (dnnl_dim_t)input,
                              (dnnl_dim_t)net->layout.gates, (dnnl_dim_t)c->hidden};
    return describe(l, 5, dims, tag);
}

static onednn_memory describe_bias(const ashlar_onednn *net, layer *l) {
    const ashlar_rnn_config *c = &net->layout.config;
    const dnnl_dims_t dims = {1, (dnnl_dim_t)c->directions, (dnnl_dim_t)net->bias_count,
                              (dnnl_dim_t)c->hidden};
    return describe(l, 4, dims, dnnl_ldgo);
}

static onednn_memory describe_states(const ashlar_onednn *net, layer *l) {
    const ashlar_rnn_config *c = &net->layout.config;
    const dnnl_dims_t dims = {1, (dnnl_dim_t)c->directions, (dnnl_dim_t)net->batch,
                              (dnnl_dim_t)c->hidden};
    return describe(l, 4, dims, dnnl_ldnc);
}

static ashlar_status make_pass(ashlar_onednn *net, layer *l, int pass) {
    const ashlar_rnn_config *c = &net->layout.config;
    const onednn_pass p = {
        .kind = net->training ? dnnl_forward_training : dnnl_forward_inference,
        .direction =
            c->directions == 2 ? dnnl_bidirectional_concat : dnnl_unidirectional_left2right,
        .src = describe_rows(net, l, l->input),
        .state = describe_states(net, l),
        .w = describe_weights(net, l, l->input, dnnl_format_tag_any),
        .r = describe_weights(net, l, c->hidden, dnnl_format_tag_any),
        .bias = describe_bias(net, l),
        .dst = describe_rows(net, l, net->layout.output),
        .forward = pass == FORWARD ? NULL : l->descs[FORWARD],
    };
    TRY(c->cell == ASHLAR_RNN_LSTM ? onednn_describe_lstm(&p, net->engine, &l->descs[pass])
                                   : onednn_describe_gru(&p, net->engine, &l->descs[pass]));
    TRY(dnnl_primitive_create(&l->passes[pass], l->descs[pass]));
    return ASHLAR_OK;
}

/* The description of a memory: the format that a primitive prefers, or else ours. */
static onednn_memory describe_memory(const ashlar_onednn *net, layer *l, int which) {
    const_dnnl_primitive_desc_t forward = l->descs[FORWARD], backward = l->descs[BACKWARD];
    switch (which) {
    case W:
    case R:
        return dnnl_primitive_desc_query_md(forward, dnnl_query_weights_md, which - W);
    case WORKSPACE:
        return dnnl_primitive_desc_query_md(forward, dnnl_query_workspace_md, 0);
    case W_BACK:
    case R_BACK:
        return dnnl_primitive_desc_query_md(backward, dnnl_query_weights_md, which - W_BACK);
    case DIFF_W:
    case DIFF_R:
        return dnnl_primitive_desc_query_md(backward, dnnl_query_diff_weights_md, which - DIFF_W);
    case SRC:
    case DIFF_SRC:
        return describe_rows(net, l, l->input);
    case DST:
    case DIFF_DST:
        return describe_rows(net, l, net->layout.output);
    case BIAS:
    case DIFF_BIAS:
        return describe_bias(net, l);
    case W_USER:
    case DIFF_W_USER:
        return describe_weights(net, l, l->input, dnnl_ldgoi);
    case R_USER:
    case DIFF_R_USER:
        return describe_weights(net, l, net->layout.config.hidden, dnnl_ldgoi);
    default: /* h and c before the first step, or their gradients, which nobody reads */
        return describe_states(net, l);
    }
}

/* Whether the layer owns a memory. The first layer's input, the last layer's output and weights
 * used in place belong to the caller, who passes them at each call. */
static bool is_owned(const ashlar_onednn *net, int which, bool is_last) {
    const bool is_src = which == SRC || which == DIFF_SRC;
    const bool is_dst = which == DST || which == DIFF_DST;
    const bool is_user = which == W_USER || which == R_USER;
    return !is_src && !(is_dst && is_last) && !(is_user && net->is_direct);
}

static ashlar_status make_memory(ashlar_onednn *net, layer *l, bool is_last) {
    for (int i = 0; i < (net->training ? MEMORY_COUNT : FORWARD_COUNT); i++) {
        const onednn_memory md = describe_memory(net, l, i);
        const bool has_data = is_owned(net, i, is_last);
        TRY(dnnl_memory_create(&l->memory[i], md, net->engine,
                               has_data ? DNNL_MEMORY_ALLOCATE : DNNL_MEMORY_NONE));
        if (has_data) {
            memset(data_of(l, i), 0, dnnl_memory_desc_get_size(md));
        }
    }
    return ASHLAR_OK;
}

static ashlar_status make_reorders(ashlar_onednn *net, layer *l) {
    for (int i = 0; i < (net->training ? REORDER_COUNT : W_BACK_IN); i++) {
        onednn_memory from, to;
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
    l->input = index == 0 ? net->layout.config.input : net->layout.output;
    for (int pass = FORWARD; pass <= (net->training ? BACKWARD : FORWARD); pass++) {
        ASHLAR_TRY(make_pass(net, l, pass));
    }
    ASHLAR_TRY(make_memory(net, l, index + 1 == net->layout.config.layers));
    return make_reorders(net, l);
}

static ashlar_status make(ashlar_onednn *net) {
    TRY(dnnl_engine_create(&net->engine, dnnl_cpu, 0));
    TRY(dnnl_stream_create(&net->stream, net->engine, dnnl_stream_default_flags));
    for (size_t i = 0; i < net->layout.config.layers; i++) {
        ASHLAR_TRY(make_layer(net, i));
    }
    return ASHLAR_OK;
}

ashlar_status ashlar__onednn_create(const ashlar_rnn_layout *layout, size_t steps, size_t batch,
                                    bool training, ashlar_onednn **out) {
    const size_t layers = layout->config.layers;
    ashlar_onednn *net = ashlar__host_calloc(1, sizeof *net + layers * sizeof net->layers[0]);
    ASHLAR_FAIL_IF(net == NULL, ASHLAR_EHOSTMEM, "onednn: no host memory");
    const bool is_gru = layout->config.cell == ASHLAR_RNN_GRU;
    net->layout = *layout;
    net->steps = steps;
    net->batch = batch;
    net->training = training;
    net->is_direct = layout->config.directions == 1 && !is_gru;
    net->bias_count = is_gru ? 4 : layout->gates;
    ASHLAR_HAND_OUT(make(net), net, ashlar__onednn_destroy, out);
}

#define DESTROY(kind, object)                    \
    do {                                         \
        if ((object) != NULL) {                  \
            (void)dnnl_##kind##_destroy(object); \
        }                                        \
    } while (0)

static void destroy_layer(layer *l) {
    for (int i = 0; i < REORDER_COUNT; i++) {
        DESTROY(primitive, l->reorders[i]);
    }
    for (int i = 0; i < MEMORY_COUNT; i++) {
        DESTROY(memory, l->memory[i]);
    }
    for (size_t i = 0; i < l->kept_count; i++) {
        onednn_forget(&l->kept[i]);
    }
    for (int i = 0; i < PASS_COUNT; i++) {
        DESTROY(primitive, l->passes[i]);
        DESTROY(primitive_desc, l->descs[i]);
    }
}

void ashlar__onednn_destroy(ashlar_onednn *net) {
    if (net == NULL) {
        return;
    }
    for (size_t i = 0; i < net->layout.config.layers; i++) {
        destroy_layer(&net->layers[i]);
    }
    DESTROY(stream, net->stream);
    DESTROY(engine, net->engine);
    ashlar__host_free(net);
}
