/* prepare.c - copies of a model's weights in the order in which products read them. */
#include "rnn/engine/engine.h"

#include "allocator/base/checked.h"
#include "allocator/device/device_impl.h"
#include "rnn/layer/ops.h"

enum { PREPARED_ALIGN = 64 };

/* Add the bytes of a node's preparation to *bytes. */
static ashlar_status add_bytes(const ashlar_node *node, size_t *bytes) {
    size_t end;
    ASHLAR_FAIL_IF(!ashlar__add(*bytes, ashlar__layer_prepared_bytes(node), &end) ||
                       !ashlar__align_up(end, PREPARED_ALIGN, bytes),
                   ASHLAR_EOVERFLOW, "model: prepared weights are too large to address");
    return ASHLAR_OK;
}

static ashlar_status prepare(ashlar_model *m, bool is_bf16, ashlar_stream stream) {
    size_t bytes = 0, at = 0;
    void *prepared;
    ASHLAR_FAIL_IF(!m->is_committed, ASHLAR_EINVAL, "model: not committed");
    ASHLAR_FAIL_IF(
        is_bf16 && (m->dtype != ASHLAR_F32 || m->ops->backend != &ashlar__ops_backend_cpu),
        ASHLAR_EINVAL, "model: weights in bf16: only a software device reads an fp32 model so");
    ASHLAR_TRY(ashlar__model_drop_prepared(m));
    m->prepares_bf16 = is_bf16;
    for (size_t n = 0; n < m->node_count; n++) {
        ASHLAR_TRY(add_bytes(m->nodes[n], &bytes));
    }
    if (bytes == 0) {
        return ASHLAR_OK;
    }
    ASHLAR_TRY(ashlar_alloc_tagged(m->allocator, bytes, ASHLAR_TAG_WEIGHTS, stream, &prepared));
    m->prepared = prepared;
    ashlar_status status = ASHLAR_OK;
    for (size_t n = 0; n < m->node_count; n++) {
        ASHLAR_THEN(status, ashlar__layer_prepare(m->nodes[n], (char *)prepared + at, stream));
        ASHLAR_THEN(status, add_bytes(m->nodes[n], &at));
    }
    if (status != ASHLAR_OK) {
        ASHLAR_IGNORE(ashlar__model_drop_prepared(m)); /* the first failure counts */
    }
    return status;
}

ashlar_status ashlar_model_prepare(ashlar_model *m, ashlar_stream stream) {
    return prepare(m, false, stream);
}

ashlar_status ashlar_model_prepare_bf16(ashlar_model *m, ashlar_stream stream) {
    return prepare(m, true, stream);
}
