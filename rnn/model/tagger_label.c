/* How the tagger labels words, and learns from it: all at once, or one after the other. */
#include "rnn/model/tagger_work.h"

#include "allocator/base/error.h"

#define TRY ASHLAR_TRY
#define BUFFER ASHLAR_TAGGER_BUFFER

/* Width of a row of the words' outputs. */
static size_t output_of(const ashlar_tagger_work *w) {
    return ashlar_rnn_layout_of(w->tagger->word_rnn)->output;
}

/* The labels before this token, and their vectors or the gradient of those. */
static ashlar_embedding_args label_embedding(const ashlar_tagger_work *w) {
    return (ashlar_embedding_args){
        .steps = 1,
        .batch = w->active,
        .lengths = w->arrays.ones,
        .classes = w->tagger->config.tags,
        .width = w->tagger->config.label_embedding,
        .tokens = (int32_t *)BUFFER(w, LABELS) + (w->token - 1) * w->batch->shape.batch,
        .table = w->tagger->parameters.label_embedding,
        .out = BUFFER(w, TOKEN_LABELS),
        .dout = BUFFER(w, TOKEN_LABELS),
        .dtable = w->tagger->gradients.label_embedding,
    };
}

/* From and to `inputs`, [rows, D*P + F]; the gradient of the logits lies in their own place. */
static ashlar_linear_args linear(const ashlar_tagger_work *w, size_t rows, void *inputs,
                                 void *logits, void *dinputs) {
    return (ashlar_linear_args){
        .rows = rows,
        .in = output_of(w) + w->tagger->config.label_embedding,
        .out = w->tagger->config.tags,
        .x = inputs,
        .weight = w->tagger->parameters.weight,
        .bias = w->tagger->parameters.bias,
        .y = logits,
        .dy = logits,
        .dx = dinputs,
        .dweight = w->tagger->gradients.weight,
        .dbias = w->tagger->gradients.bias,
    };
}

/* The loss of [steps, batch] logits and, in training, their gradient in their own place. */
static ashlar_status run_loss(const ashlar_tagger_work *w, ashlar_loss_args args, void *logits) {
    args.classes = w->tagger->config.tags;
    args.weight = w->weight;
    args.logits = logits;
    args.dlogits = w->kind == ASHLAR_TAGGER_TRAIN ? logits : NULL;
    args.scale = w->tagger->loss_scale;
    args.loss = w->loss;
    return ashlar__ops_loss(w->tagger->ops, &args, w->tagger->stream);
}

static ashlar_status find_labels(const ashlar_tagger_work *w, size_t rows, const void *logits,
                                 int32_t *labels) {
    const ashlar_argmax_args args = {
        .rows = rows, .classes = w->tagger->config.tags, .logits = logits, .labels = labels};
    return ashlar__ops_argmax(w->tagger->ops, &args, w->tagger->stream);
}

ashlar_status ashlar__tagger_queue_labels(const ashlar_tagger_work *w) {
    const ashlar_tagger *m = w->tagger;
    void *const logits = BUFFER(w, LOGITS);
    const ashlar_linear_args args = linear(w, ashlar__tagger_words(w), BUFFER(w, WORD_OUTPUTS),
                                           logits, BUFFER(w, WORD_DOUTPUTS));
    TRY(ashlar__ops_linear_forward(m->ops, &args, m->stream));
    if (w->kind == ASHLAR_TAGGER_PREDICT) {
        TRY(find_labels(w, ashlar__tagger_words(w), logits, BUFFER(w, LABELS)));
    }
    TRY(run_loss(w,
                 (ashlar_loss_args){.steps = w->batch->shape.steps,
                                    .batch = w->batch->shape.batch,
                                    .lengths = w->arrays.lengths,
                                    .targets = w->arrays.targets,
                                    .work = BUFFER(w, LOSS_WORK)},
                 logits));
    return w->kind == ASHLAR_TAGGER_TRAIN ? ashlar__ops_linear_backward(m->ops, &args, m->stream)
                                          : ASHLAR_OK;
}

/* Columns of one token's rows: from one matrix to another, each with its own stride. */
static ashlar_status copy_columns(const ashlar_tagger_work *w, const void *from, size_t from_stride,
                                  void *to, size_t to_stride, size_t width) {
    const ashlar_columns_args args = {.rows = w->active,
                                      .width = width,
                                      .from = from,
                                      .from_stride = from_stride,
                                      .to = to,
                                      .to_stride = to_stride};
    return ashlar__ops_columns(w->tagger->ops, &args, w->tagger->stream);
}

/* What the linear layer reads of one token: its outputs, and the label before it. */
static ashlar_status join_token(const ashlar_tagger_work *w) {
    const ashlar_tagger *m = w->tagger;
    const size_t output = output_of(w), width = w->tagger->config.label_embedding;
    void *const outputs = ashlar__tagger_element(w, BUFFER(w, WORD_OUTPUTS),
                                                 w->token * w->batch->shape.batch * output);
    void *const inputs = BUFFER(w, TOKEN_INPUTS);
    if (w->token == 0) {
        TRY(ashlar_fill(m->device, BUFFER(w, TOKEN_LABELS), 0,
                        w->active * width * ashlar_dtype_bytes(m->config.dtype), m->stream));
    } else {
        const ashlar_embedding_args before = label_embedding(w);
        TRY(ashlar__ops_embedding_forward(m->ops, &before, m->stream));
    }
    TRY(copy_columns(w, outputs, output, inputs, output + width, output));
    return copy_columns(w, BUFFER(w, TOKEN_LABELS), width,
                        ashlar__tagger_element(w, inputs, output), output + width, width);
}

/* The gradient of that, to where each part came from. */
static ashlar_status split_token(const ashlar_tagger_work *w) {
    const ashlar_tagger *m = w->tagger;
    const size_t output = output_of(w), width = w->tagger->config.label_embedding;
    void *const dinputs = BUFFER(w, TOKEN_DINPUTS);
    void *const doutputs = ashlar__tagger_element(w, BUFFER(w, WORD_DOUTPUTS),
                                                  w->token * w->batch->shape.batch * output);
    TRY(copy_columns(w, dinputs, output + width, doutputs, output, output));
    if (w->token == 0) {
        return ASHLAR_OK;
    }
    TRY(copy_columns(w, ashlar__tagger_element(w, dinputs, output), output + width,
                     BUFFER(w, TOKEN_LABELS), width, width));
    const ashlar_embedding_args before = label_embedding(w);
    return ashlar__ops_embedding_backward(m->ops, &before, m->stream);
}

/* Sentences are sorted: those that have the token are the first `active` ones. */
ashlar_status ashlar__tagger_queue_token(const ashlar_tagger_work *w) {
    const ashlar_tagger *m = w->tagger;
    const size_t first = w->token * w->batch->shape.batch;
    void *const logits = BUFFER(w, TOKEN_LOGITS);
    const ashlar_linear_args args =
        linear(w, w->active, BUFFER(w, TOKEN_INPUTS), logits, BUFFER(w, TOKEN_DINPUTS));
    TRY(join_token(w));
    TRY(ashlar__ops_linear_forward(m->ops, &args, m->stream));
    TRY(find_labels(w, w->active, logits, (int32_t *)BUFFER(w, LABELS) + first));
    TRY(run_loss(w,
                 (ashlar_loss_args){.steps = 1,
                                    .batch = w->active,
                                    .lengths = w->arrays.ones,
                                    .targets = w->arrays.targets + first,
                                    .work = BUFFER(w, TOKEN_WORK)},
                 logits));
    if (w->kind != ASHLAR_TAGGER_TRAIN) {
        return ASHLAR_OK;
    }
    TRY(ashlar__ops_linear_backward(m->ops, &args, m->stream));
    return split_token(w);
}
