/* rnn_onednn_version.h - hides where the interfaces of oneDNN 2.x and 3.x differ: descriptions of
 * memory, which are structures in 2.x and objects in 3.x, and of passes (internal). */
#ifndef ASHLAR_RNN_ONEDNN_VERSION_H
#define ASHLAR_RNN_ONEDNN_VERSION_H

#include <stdbool.h>

#include <oneapi/dnnl/dnnl.h>

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t onednn_memory;
#else
typedef const dnnl_memory_desc_t *onednn_memory;
#endif

/* A pass of a layer. A gradient has the description of the tensor whose gradient it is. */
typedef struct onednn_pass {
    dnnl_prop_kind_t kind;
    dnnl_rnn_direction_t direction;
    onednn_memory src, state, w, r, bias, dst;
    const_dnnl_primitive_desc_t forward; /* of a backward pass: the forward one; else NULL */
} onednn_pass;

/* Describe fp32 memory in *kept, which must stay; this cannot fail, since dimensions are positive
 * and tags fit them. */
static inline onednn_memory onednn_describe(dnnl_memory_desc_t *kept, int count,
                                            const dnnl_dim_t *dims, dnnl_format_tag_t tag) {
#if DNNL_VERSION_MAJOR >= 3
    (void)dnnl_memory_desc_create_with_tag(kept, count, dims, dnnl_f32, tag);
    return *kept;
#else
    (void)dnnl_memory_desc_init_by_tag(kept, count, dims, dnnl_f32, tag);
    return kept;
#endif
}

static inline void onednn_forget(dnnl_memory_desc_t *kept) {
#if DNNL_VERSION_MAJOR >= 3
    (void)dnnl_memory_desc_destroy(*kept);
#else
    (void)kept;
#endif
}

#if DNNL_VERSION_MAJOR >= 3

static inline dnnl_status_t onednn_describe_lstm(const onednn_pass *p, dnnl_engine_t engine,
                                                 dnnl_primitive_desc_t *out) {
    if (p->forward == NULL) {
        return dnnl_lstm_forward_primitive_desc_create(out, engine, p->kind, p->direction, p->src,
                                                       p->state, p->state, p->w, p->r, NULL, NULL,
                                                       p->bias, p->dst, NULL, NULL, 0, NULL);
    }
    return dnnl_lstm_backward_primitive_desc_create(
        out, engine, dnnl_backward, p->direction, p->src, p->state, p->state, p->w, p->r, NULL,
        NULL, p->bias, p->dst, NULL, NULL, p->src, p->state, p->state, p->w, p->r, NULL, NULL,
        p->bias, p->dst, NULL, NULL, 0, p->forward, NULL);
}

static inline dnnl_status_t onednn_describe_gru(const onednn_pass *p, dnnl_engine_t engine,
                                                dnnl_primitive_desc_t *out) {
    if (p->forward == NULL) {
        return dnnl_lbr_gru_forward_primitive_desc_create(out, engine, p->kind, p->direction,
                                                          p->src, p->state, p->w, p->r, p->bias,
                                                          p->dst, NULL, 0, NULL);
    }
    return dnnl_lbr_gru_backward_primitive_desc_create(
        out, engine, dnnl_backward, p->direction, p->src, p->state, p->w, p->r, p->bias, p->dst,
        NULL, p->src, p->state, p->w, p->r, p->bias, p->dst, NULL, 0, p->forward, NULL);
}

#else

static inline dnnl_status_t onednn_describe_lstm(const onednn_pass *p, dnnl_engine_t engine,
                                                 dnnl_primitive_desc_t *out) {
    dnnl_rnn_desc_t desc;
    const dnnl_status_t status =
        p->forward == NULL
            ? dnnl_lstm_forward_desc_init(&desc, p->kind, p->direction, p->src, p->state, p->state,
                                          p->w, p->r, p->bias, p->dst, NULL, NULL, 0)
            : dnnl_lstm_backward_desc_init(&desc, dnnl_backward, p->direction, p->src, p->state,
                                           p->state, p->w, p->r, p->bias, p->dst, NULL, NULL,
                                           p->src, p->state, p->state, p->w, p->r, p->bias, p->dst,
                                           NULL, NULL, 0);
    return status == dnnl_success ? dnnl_primitive_desc_create(out, &desc, NULL, engine, p->forward)
                                  : status;
}

static inline dnnl_status_t onednn_describe_gru(const onednn_pass *p, dnnl_engine_t engine,
                                                dnnl_primitive_desc_t *out) {
    dnnl_rnn_desc_t desc;
    const dnnl_status_t status =
        p->forward == NULL
            ? dnnl_lbr_gru_forward_desc_init(&desc, p->kind, p->direction, p->src, p->state, p->w,
                                             p->r, p->bias, p->dst, NULL, 0)
            : dnnl_lbr_gru_backward_desc_init(&desc, dnnl_backward, p->direction, p->src, p->state,
                                              p->w, p->r, p->bias, p->dst, NULL, p->src, p->state,
                                              p->w, p->r, p->bias, p->dst, NULL, 0);
    return status == dnnl_success ? dnnl_primitive_desc_create(out, &desc, NULL, engine, p->forward)
                                  : status;
}

#endif

#endif /* ASHLAR_RNN_ONEDNN_VERSION_H */
