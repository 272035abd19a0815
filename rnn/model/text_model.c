/* text_model.c - declares the character model. */
#include "rnn/model/text_model.h"

#include "allocator/base/error.h"

static ashlar_status declare(ashlar_model *m, const ashlar_text_model_config *c, unsigned regions,
                             ashlar_stream stream) {
    const ashlar_rnn_config layers = {.hidden = c->hidden,
                                      .layers = c->layers,
                                      .cell = c->cell,
                                      .projection = c->projection,
                                      .dropout = c->dropout,
                                      .algorithm = c->algorithm,
                                      .math = c->math};
    ashlar_tensor *tokens = ashlar_model_input(m, "tokens", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *targets = ashlar_model_input(m, "targets", ASHLAR_AXIS_TIME, 0);
    ashlar_tensor *x = ashlar_model_embedding(m, "embedding", tokens, c->classes, c->embedding);
    ashlar_tensor *y = ashlar_model_rnn(m, ashlar_rnn_cell_name(c->cell), x, &layers, NULL).y;
    ashlar_tensor *logits = ashlar_model_linear(m, "linear", y, c->classes, true);
    ashlar_model_loss(m, ASHLAR_LOSS_CROSS_ENTROPY, logits, targets, NULL);
    ashlar_model_output(m, logits);
    return ashlar_model_commit(m, regions, stream);
}

ashlar_status ashlar__text_model_create(ashlar_allocator *allocator, ashlar_stream stream,
                                        const ashlar_text_model_config *config, unsigned regions,
                                        ashlar_model **out) {
    ashlar_model *m;
    ASHLAR_TRY(ashlar_model_create(allocator, config->dtype, &m));
    ASHLAR_HAND_OUT(declare(m, config, regions, stream), m, ashlar_model_destroy, out);
}
