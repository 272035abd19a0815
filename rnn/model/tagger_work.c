/* tagger_work.c - the work that a step of the tagger queues in each phase, on buffers it has. */
#include "allocator/base/check_level.h"
#include "allocator/base/error.h"
#include "rnn/layer/rnn_cpu.h"
#include "rnn/model/tagger.h"

typedef enum ashlar_tagger_kind {
    ASHLAR_TAGGER_TRAIN,
    ASHLAR_TAGGER_PREDICT, /* take all buffers, queue forward only */
    ASHLAR_TAGGER_DRY_RUN, /* take all buffers, queue nothing */
} ashlar_tagger_kind;

typedef struct ashlar_tagger_work {
    const ashlar_tagger *tagger;
    const ashlar_tagger_batch *batch;
    ashlar_tagger_kind kind;
    double weight;                             /* of each word's loss */
    double *loss;                              /* device memory */
    int32_t *labels;                           /* host memory; only for ASHLAR_TAGGER_PREDICT */
    ashlar_tagger_arrays arrays;               /* the batch in device memory */
    size_t token;                              /* that phase TOKEN works on, 0 .. T-1 */
    size_t active;                             /* sentences that have it; if is_fixed(): all */
    void *buffers[ASHLAR_TAGGER_BUFFER_COUNT]; /* NULL while not held */
} ashlar_tagger_work;

/* One of the step's buffers. */
#define ASHLAR_TAGGER_BUFFER(work, name) ((work)->buffers[ASHLAR_TAGGER_BUFFER_##name])

/* Whether the calls may depend on nothing but the batch's shape. */
static bool tagger_is_fixed(const ashlar_tagger_work *work) {
    return work->kind == ASHLAR_TAGGER_TRAIN && work->tagger->weight_at != NULL;
}

/* T * B */
static size_t tagger_words(const ashlar_tagger_work *work) {
    return work->batch->shape.steps * work->batch->shape.batch;
}

/* The address of element `at` of a buffer. */
static void *tagger_element(const ashlar_tagger_work *work, void *buffer, size_t at) {
    return (char *)buffer + at * ashlar_dtype_bytes(work->tagger->config.dtype);
}

#define TRY ASHLAR_TRY
#define BUFFER ASHLAR_TAGGER_BUFFER

/* Width of a row of the words' outputs. */
static size_t output_of(const ashlar_tagger_work *w) {
    return ashlar_rnn_layout_of(w->tagger->word_rnn)->output;
}

/* How to embed the previous token's labels; TOKEN_LABELS has their vectors, or the gradient of
 * these. */
static ashlar_embedding_args label_embedding(const ashlar_tagger_work *w) {
    return (ashlar_embedding_args){
        .steps = 1,
        .batch = w->active,
        .lengths = w->arrays.present + w->token * w->batch->shape.batch,
        .classes = w->tagger->config.tags,
        .width = w->tagger->config.label_embedding,
        .tokens = (int32_t *)BUFFER(w, LABELS) + (w->token - 1) * w->batch->shape.batch,
        .table = w->tagger->parameters.label_embedding,
        .out = BUFFER(w, TOKEN_LABELS),
        .dout = BUFFER(w, TOKEN_LABELS),
        .dtable = w->tagger->gradients.label_embedding,
    };
}

/* `inputs` and `dinputs` are [rows, D*P + F]; the logits' gradient replaces the logits. */
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

/* The loss of [steps, batch] logits; in training their gradient replaces them. */
static ashlar_status run_loss(const ashlar_tagger_work *w, ashlar_cross_entropy_args args,
                              void *logits) {
    args.classes = w->tagger->config.tags;
    args.weight = w->weight;
    args.weight_at = tagger_is_fixed(w) ? w->tagger->weight_at : NULL;
    args.logits = logits;
    args.dlogits = w->kind == ASHLAR_TAGGER_TRAIN ? logits : NULL;
    args.scale = w->tagger->loss_scale;
    args.loss = w->loss;
    return ashlar_cross_entropy(w->tagger->ops, &args, w->tagger->stream);
}

static ashlar_status find_labels(const ashlar_tagger_work *w, size_t rows, const void *logits,
                                 int32_t *labels) {
    const ashlar_argmax_args args = {
        .rows = rows, .classes = w->tagger->config.tags, .logits = logits, .labels = labels};
    return ashlar_argmax(w->tagger->ops, &args, w->tagger->stream);
}

/* The linear layer, the loss and, in training, backward through the layer, for all tokens. */
static ashlar_status queue_labels(const ashlar_tagger_work *w) {
    const ashlar_tagger *m = w->tagger;
    void *const logits = BUFFER(w, LOGITS);
    const ashlar_linear_args args =
        linear(w, tagger_words(w), BUFFER(w, WORD_OUTPUTS), logits, BUFFER(w, WORD_DOUTPUTS));
    TRY(ashlar_linear_forward(m->ops, &args, m->stream));
    if (w->kind == ASHLAR_TAGGER_PREDICT) {
        TRY(find_labels(w, tagger_words(w), logits, BUFFER(w, LABELS)));
    }
    TRY(run_loss(w,
                 (ashlar_cross_entropy_args){.steps = w->batch->shape.steps,
                                             .batch = w->batch->shape.batch,
                                             .lengths = w->arrays.lengths,
                                             .targets = w->arrays.targets,
                                             .work = BUFFER(w, LOSS_WORK)},
                 logits));
    return w->kind == ASHLAR_TAGGER_TRAIN ? ashlar_linear_backward(m->ops, &args, m->stream)
                                          : ASHLAR_OK;
}

/* Copy `width` columns of one token's rows between matrices with different strides (elements). */
static ashlar_status copy_columns(const ashlar_tagger_work *w, const void *from, size_t from_stride,
                                  void *to, size_t to_stride, size_t width) {
    const ashlar_columns_args args = {.rows = w->active,
                                      .width = width,
                                      .from = from,
                                      .from_stride = from_stride,
                                      .to = to,
                                      .to_stride = to_stride};
    return ashlar_copy_columns(w->tagger->ops, &args, w->tagger->stream);
}

/* Join the linear layer's input for one token: the words' outputs, and the previous labels. */
static ashlar_status join_token(const ashlar_tagger_work *w) {
    const ashlar_tagger *m = w->tagger;
    const size_t output = output_of(w), width = w->tagger->config.label_embedding;
    void *const outputs =
        tagger_element(w, BUFFER(w, WORD_OUTPUTS), w->token * w->batch->shape.batch * output);
    void *const inputs = BUFFER(w, TOKEN_INPUTS);
    if (w->token == 0) {
        TRY(ashlar_fill(m->device, BUFFER(w, TOKEN_LABELS), 0,
                        w->active * width * ashlar_dtype_bytes(m->config.dtype), m->stream));
    } else {
        const ashlar_embedding_args before = label_embedding(w);
        TRY(ashlar_embedding_forward(m->ops, &before, m->stream));
    }
    TRY(copy_columns(w, outputs, output, inputs, output + width, output));
    return copy_columns(w, BUFFER(w, TOKEN_LABELS), width, tagger_element(w, inputs, output),
                        output + width, width);
}

/* Split the gradient of the input that join_token() makes into the gradients of its two parts. */
static ashlar_status split_token(const ashlar_tagger_work *w) {
    const ashlar_tagger *m = w->tagger;
    const size_t output = output_of(w), width = w->tagger->config.label_embedding;
    void *const dinputs = BUFFER(w, TOKEN_DINPUTS);
    void *const doutputs =
        tagger_element(w, BUFFER(w, WORD_DOUTPUTS), w->token * w->batch->shape.batch * output);
    TRY(copy_columns(w, dinputs, output + width, doutputs, output, output));
    if (w->token == 0) {
        return ASHLAR_OK;
    }
    TRY(copy_columns(w, tagger_element(w, dinputs, output), output + width, BUFFER(w, TOKEN_LABELS),
                     width, width));
    const ashlar_embedding_args before = label_embedding(w);
    return ashlar_embedding_backward(m->ops, &before, m->stream);
}

/* Queue forward and backward of one token of each sentence. Sentences are sorted by length: the
 * first `active` ones have the token. */
static ashlar_status tagger_queue_token(const ashlar_tagger_work *w) {
    const ashlar_tagger *m = w->tagger;
    const size_t first = w->token * w->batch->shape.batch;
    void *const logits = BUFFER(w, TOKEN_LOGITS);
    const ashlar_linear_args args =
        linear(w, w->active, BUFFER(w, TOKEN_INPUTS), logits, BUFFER(w, TOKEN_DINPUTS));
    TRY(join_token(w));
    TRY(ashlar_linear_forward(m->ops, &args, m->stream));
    TRY(find_labels(w, w->active, logits, (int32_t *)BUFFER(w, LABELS) + first));
    TRY(run_loss(w,
                 (ashlar_cross_entropy_args){.steps = 1,
                                             .batch = w->active,
                                             .lengths = w->arrays.present + first,
                                             .targets = w->arrays.targets + first,
                                             .work = BUFFER(w, TOKEN_WORK)},
                 logits));
    if (w->kind != ASHLAR_TAGGER_TRAIN) {
        return ASHLAR_OK;
    }
    TRY(ashlar_linear_backward(m->ops, &args, m->stream));
    return split_token(w);
}

static ashlar_embedding_args character_embedding(const ashlar_tagger_work *w) {
    return (ashlar_embedding_args){
        .steps = w->batch->shape.width,
        .batch = tagger_words(w),
        .lengths = w->arrays.char_counts,
        .classes = w->tagger->config.characters,
        .width = w->tagger->config.character_embedding,
        .tokens = w->arrays.characters,
        .table = w->tagger->parameters.character_embedding,
        .out = BUFFER(w, CHAR_INPUTS),
        .dout = BUFFER(w, CHAR_DINPUTS),
        .dtable = w->tagger->gradients.character_embedding,
    };
}

static ashlar_embedding_args word_embedding(const ashlar_tagger_work *w) {
    return (ashlar_embedding_args){
        .steps = w->batch->shape.steps,
        .batch = w->batch->shape.batch,
        .lengths = w->arrays.lengths,
        .classes = w->tagger->config.words,
        .width = w->tagger->config.word_embedding,
        .tokens = w->arrays.words,
        .table = w->tagger->parameters.word_embedding,
        .out = BUFFER(w, WORD_VECTORS),
        .dout = BUFFER(w, WORD_DVECTORS),
        .dtable = w->tagger->gradients.word_embedding,
    };
}

/* One pass of an RNN; `lengths` are those of the batch in device memory. */
static ashlar_status run_rnn(const ashlar_tagger_work *w, const ashlar_rnn *rnn,
                             ashlar_rnn_pass pass, const ashlar_rnn_batch *batch,
                             const ashlar_rnn_buffers *buffers, const int32_t *lengths) {
    const ashlar_tagger *m = w->tagger;
    if (tagger_is_fixed(w)) {
        const ashlar_rnn_varying varying = {lengths, m->seed_at};
        return ashlar__rnn_queue_varying(rnn, pass, batch, buffers, &varying, m->stream);
    }
    switch (pass) {
    case ASHLAR_RNN_FORWARD:
        return ashlar_rnn_forward(rnn, batch, buffers, m->stream);
    case ASHLAR_RNN_BACKWARD_DATA:
        return ashlar_rnn_backward_data(rnn, batch, buffers, m->stream);
    default:
        return ashlar_rnn_backward_weights(rnn, batch, buffers, m->stream);
    }
}

static ashlar_status run_char_rnn(const ashlar_tagger_work *w, ashlar_rnn_pass pass, void *work) {
    const ashlar_tagger_arrays host = ashlar__tagger_batch_arrays(&w->batch->shape, w->batch->data);
    const ashlar_rnn_batch batch = {
        .steps = w->batch->shape.width, .batch = tagger_words(w), .lengths = host.char_counts};
    const ashlar_rnn_buffers buffers = {
        .reserve = BUFFER(w, CHAR_RESERVE),
        .work = work,
        .x = BUFFER(w, CHAR_INPUTS),
        .weights = w->tagger->parameters.character_stack,
        .y = BUFFER(w, CHAR_OUTPUTS),
        .hy = BUFFER(w, CHAR_STATES),
        .dhy = BUFFER(w, CHAR_DSTATES),
        .dx = BUFFER(w, CHAR_DINPUTS),
        .dweights = w->tagger->gradients.character_stack,
    };
    return run_rnn(w, w->tagger->character_rnn, pass, &batch, &buffers, w->arrays.char_counts);
}

static ashlar_status run_word_rnn(const ashlar_tagger_work *w, ashlar_rnn_pass pass, void *work) {
    const ashlar_tagger *m = w->tagger;
    const ashlar_tagger_arrays host = ashlar__tagger_batch_arrays(&w->batch->shape, w->batch->data);
    const ashlar_rnn_batch batch = {.steps = w->batch->shape.steps,
                                    .batch = w->batch->shape.batch,
                                    .lengths = host.lengths,
                                    .dropout_seed = m->dropout_seed,
                                    .dropout_first = m->dropout_first,
                                    .dropout_stride = m->dropout_stride};
    const ashlar_rnn_buffers buffers = {
        .reserve = BUFFER(w, WORD_RESERVE),
        .work = work,
        .x = BUFFER(w, WORD_INPUTS),
        .weights = m->parameters.word_stack,
        .y = BUFFER(w, WORD_OUTPUTS),
        .dy = BUFFER(w, WORD_DOUTPUTS),
        .dx = BUFFER(w, WORD_DINPUTS),
        .dweights = m->gradients.word_stack,
    };
    return run_rnn(w, w->kind == ASHLAR_TAGGER_PREDICT ? m->word_rnn_predict : m->word_rnn, pass,
                   &batch, &buffers, w->arrays.lengths);
}

static ashlar_status char_forward(const ashlar_tagger_work *w) {
    const ashlar_embedding_args characters = character_embedding(w);
    TRY(ashlar_embedding_forward(w->tagger->ops, &characters, w->tagger->stream));
    return run_char_rnn(w, ASHLAR_RNN_FORWARD, BUFFER(w, CHAR_FORWARD_WORK));
}

/* Join the words' inputs from their parts, or split the gradient of the inputs into the same parts.
 * The parts are groups of columns: the words' vectors, then the characters' last states of each
 * direction. */
static ashlar_status move_parts(const ashlar_tagger_work *w, void *joined, void *vectors,
                                void *states, bool joins) {
    const ashlar_rnn_layout *words = ashlar_rnn_layout_of(w->tagger->word_rnn);
    const ashlar_rnn_layout *characters = ashlar_rnn_layout_of(w->tagger->character_rnn);
    size_t column = 0;
    for (size_t i = 0; i <= characters->config.directions; i++) {
        const size_t width = i == 0 ? w->tagger->config.word_embedding : characters->state;
        void *const part =
            i == 0 ? vectors
                   : tagger_element(w, states, (i - 1) * tagger_words(w) * characters->state);
        void *const columns = tagger_element(w, joined, column);
        const ashlar_columns_args args = {
            .rows = tagger_words(w),
            .width = width,
            .from = joins ? part : columns,
            .from_stride = joins ? width : words->config.input,
            .to = joins ? columns : part,
            .to_stride = joins ? words->config.input : width,
        };
        TRY(ashlar_copy_columns(w->tagger->ops, &args, w->tagger->stream));
        column += width;
    }
    return ASHLAR_OK;
}

static ashlar_status join(const ashlar_tagger_work *w) {
    const ashlar_embedding_args words = word_embedding(w);
    TRY(ashlar_embedding_forward(w->tagger->ops, &words, w->tagger->stream));
    return move_parts(w, BUFFER(w, WORD_INPUTS), BUFFER(w, WORD_VECTORS), BUFFER(w, CHAR_STATES),
                      true);
}

static ashlar_status split(const ashlar_tagger_work *w) {
    TRY(move_parts(w, BUFFER(w, WORD_DINPUTS), BUFFER(w, WORD_DVECTORS), BUFFER(w, CHAR_DSTATES),
                   false));
    const ashlar_embedding_args words = word_embedding(w);
    return ashlar_embedding_backward(w->tagger->ops, &words, w->tagger->stream);
}

static ashlar_status copy_labels(const ashlar_tagger_work *w) {
    return ashlar_copy_to_host(w->tagger->device, w->labels, BUFFER(w, LABELS),
                               tagger_words(w) * sizeof *w->labels, w->tagger->stream);
}

static ashlar_status vectors_back(const ashlar_tagger_work *w) {
    const ashlar_embedding_args characters = character_embedding(w);
    return ashlar_embedding_backward(w->tagger->ops, &characters, w->tagger->stream);
}

/* Queue the work of a phase; for TOKEN only what follows its last token. Not for dry runs. Errors:
 * those of ashlar_launch() and ashlar_rnn_forward(). */
static ashlar_status tagger_queue(const ashlar_tagger_work *w, ashlar_tagger_phase phase) {
    switch (phase) {
    case ASHLAR_TAGGER_CHAR_FORWARD:
        return char_forward(w);
    case ASHLAR_TAGGER_CONCAT:
        return join(w);
    case ASHLAR_TAGGER_WORD_FORWARD:
        return run_word_rnn(w, ASHLAR_RNN_FORWARD, BUFFER(w, WORD_FORWARD_WORK));
    case ASHLAR_TAGGER_LABEL:
        return w->tagger->config.label_embedding > 0 ? ASHLAR_OK : queue_labels(w);
    case ASHLAR_TAGGER_TOKEN: /* all tokens have been queued */
        return w->kind == ASHLAR_TAGGER_PREDICT ? copy_labels(w) : ASHLAR_OK;
    case ASHLAR_TAGGER_WORD_BACKWARD:
        return run_word_rnn(w, ASHLAR_RNN_BACKWARD_DATA, BUFFER(w, WORD_BACKWARD_WORK));
    case ASHLAR_TAGGER_WORD_WEIGHTS:
        return run_word_rnn(w, ASHLAR_RNN_BACKWARD_WEIGHTS, BUFFER(w, WORD_WEIGHTS_WORK));
    case ASHLAR_TAGGER_SPLIT:
        return split(w);
    case ASHLAR_TAGGER_CHAR_BACKWARD:
        return run_char_rnn(w, ASHLAR_RNN_BACKWARD_DATA, BUFFER(w, CHAR_BACKWARD_WORK));
    case ASHLAR_TAGGER_CHAR_EMBEDDING:
        return vectors_back(w);
    case ASHLAR_TAGGER_CHAR_WEIGHTS:
        return run_char_rnn(w, ASHLAR_RNN_BACKWARD_WEIGHTS, BUFFER(w, CHAR_WEIGHTS_WORK));
    case ASHLAR_TAGGER_PHASE_COUNT:
        break;
    }
    return ASHLAR_OK;
}

/* ---- a step, phase by phase ---- */

typedef struct step {
    ashlar_tagger_work work;
    const ashlar_tagger_bytes *sizes;
} step;

static bool is_of_one_token(const ashlar_tagger_buffer_info *b) {
    return b->first == ASHLAR_TAGGER_TOKEN && b->last == ASHLAR_TAGGER_TOKEN;
}

static ashlar_status take_first(step *s, ashlar_tagger_phase phase) {
    const ashlar_tagger *m = s->work.tagger;
    for (size_t i = 0; i < ASHLAR_TAGGER_BUFFER_COUNT; i++) {
        const ashlar_tagger_buffer_info *b = &ashlar__tagger_buffers[i];
        if (b->first == phase && s->sizes->of[i] > 0) {
            ASHLAR_CHECK2(s->work.buffers[i] == NULL);
            const ashlar_buffer_request r = {b->text, s->sizes->of[i], b->tag,
                                             phase >= ASHLAR_TAGGER_WORD_BACKWARD};
            TRY(ashlar__buffer_take(m->source, &r, m->allocator, m->stream, &s->work.buffers[i]));
        }
    }
    return ASHLAR_OK;
}

static ashlar_status give(step *s, size_t i) {
    void *ptr = s->work.buffers[i];
    s->work.buffers[i] = NULL;
    return ashlar__buffer_give(s->work.tagger->source, s->work.tagger->allocator, ptr);
}

/* Give back the buffers whose last phase this is; at the end of a token, only those it took. */
static ashlar_status give_last(step *s, ashlar_tagger_phase phase, bool is_token_end) {
    for (size_t i = 0; i < ASHLAR_TAGGER_BUFFER_COUNT; i++) {
        const ashlar_tagger_buffer_info *b = &ashlar__tagger_buffers[i];
        const bool is_last = ashlar__tagger_last_phase(s->sizes, (ashlar_tagger_buffer)i) == phase;
        if (is_last && (!is_token_end || is_of_one_token(b))) {
            TRY(give(s, i));
        }
    }
    return ASHLAR_OK;
}

/* Give back all that is still held, after a failure; the failure's detail stays. */
static void give_all(step *s) {
    for (size_t i = 0; i < ASHLAR_TAGGER_BUFFER_COUNT; i++) {
        ASHLAR_IGNORE(give(s, i));
    }
}

/* How many of the first `before` sentences, longest first, have a token t. */
static size_t count_active(const ashlar_tagger_batch *batch, size_t t, size_t before) {
    const int32_t *lengths = ashlar__tagger_batch_arrays(&batch->shape, batch->data).lengths;
    while (before > 0 && (size_t)lengths[before - 1] <= t) {
        before--;
    }
    ASHLAR_ASSERT(before > 0);
    return before;
}

/* The token loop: each token takes its buffers and gives them back. */
static ashlar_status run_tokens(step *s) {
    ashlar_tagger_work *w = &s->work;
    const bool has_work = w->kind != ASHLAR_TAGGER_DRY_RUN;
    const bool is_fixed = tagger_is_fixed(w);
    const size_t steps = has_work ? w->batch->shape.steps : s->sizes->steps;
    w->active = w->batch->shape.batch;
    for (w->token = 0; w->token < steps; w->token++) {
        TRY(take_first(s, ASHLAR_TAGGER_TOKEN));
        if (has_work) {
            w->active = is_fixed ? w->active : count_active(w->batch, w->token, w->active);
            TRY(tagger_queue_token(w));
        }
        TRY(give_last(s, ASHLAR_TAGGER_TOKEN, true));
    }
    return ASHLAR_OK;
}

static bool has_work_at(const step *s, ashlar_tagger_phase phase) {
    return s->work.kind == ASHLAR_TAGGER_TRAIN ||
           (s->work.kind == ASHLAR_TAGGER_PREDICT && phase <= ASHLAR_TAGGER_TOKEN);
}

static ashlar_status run_phase(step *s, ashlar_tagger_phase phase) {
    if (phase != ASHLAR_TAGGER_TOKEN) {
        TRY(take_first(s, phase));
    } else if (s->work.tagger->config.label_embedding > 0) {
        TRY(run_tokens(s));
    }
    if (has_work_at(s, phase)) {
        TRY(tagger_queue(&s->work, phase));
    }
    return give_last(s, phase, false);
}

static bool holds_nothing(const step *s) {
    for (size_t i = 0; i < ASHLAR_TAGGER_BUFFER_COUNT; i++) {
        if (s->work.buffers[i] != NULL) {
            return false;
        }
    }
    return true;
}

static ashlar_status run(step *s) {
    ashlar_status status = ASHLAR_OK;
    for (int i = 0; i < ASHLAR_TAGGER_PHASE_COUNT && status == ASHLAR_OK; i++) {
        status = run_phase(s, (ashlar_tagger_phase)i);
    }
    if (status != ASHLAR_OK) {
        give_all(s);
    }
    ASHLAR_CHECK2(holds_nothing(s)); /* phases free all buffers */
    return status;
}

ashlar_status ashlar__tagger_step(ashlar_tagger *tagger, const ashlar_tagger_batch *batch,
                                  const ashlar_tagger_bytes *sizes, double weight, double *loss) {
    step s = {.work = {.tagger = tagger,
                       .batch = batch,
                       .kind = ASHLAR_TAGGER_TRAIN,
                       .arrays = ashlar__tagger_batch_arrays(&batch->shape, batch->device),
                       .weight = weight != 0 ? weight : 1.0 / (double)batch->tokens,
                       .loss = loss},
              .sizes = sizes};
    return run(&s);
}

ashlar_status ashlar__tagger_predict(ashlar_tagger *tagger, const ashlar_tagger_batch *batch,
                                     const ashlar_tagger_bytes *sizes, double *loss,
                                     int32_t *labels) {
    step s = {.work = {.tagger = tagger,
                       .batch = batch,
                       .kind = ASHLAR_TAGGER_PREDICT,
                       .arrays = ashlar__tagger_batch_arrays(&batch->shape, batch->device),
                       .weight = 1.0 / (double)batch->tokens,
                       .loss = loss,
                       .labels = labels},
              .sizes = sizes};
    return run(&s);
}

ashlar_status ashlar__tagger_dry_run(ashlar_tagger *tagger, const ashlar_tagger_bytes *sizes) {
    const ashlar_tagger_batch nothing = {0};
    step s = {.work = {.tagger = tagger, .batch = &nothing, .kind = ASHLAR_TAGGER_DRY_RUN},
              .sizes = sizes};
    return run(&s);
}
